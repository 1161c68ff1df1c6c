import { useState } from 'react';
import { ApiError, send } from '../../api/client.ts';
import { calls, sandboxes, type Sandbox } from '../../api/sandboxes.ts';
import { Curl } from '../../components/Curl.tsx';
import { DataTable, type Column } from '../../components/DataTable.tsx';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import '../../components/RunTable.css';
import { TimeAgo } from '../../components/TimeAgo.tsx';
import { formatAge, formatBytes } from '../../format.ts';
import { useLoad, useNow } from '../../hooks.ts';
import { Link } from '../../router.tsx';
import { Create } from './Create.tsx';
import { extendBy, formatCores, isLive, liveFirst, timeLeft, useCores } from './live.ts';
import { Snapshots } from './Snapshots.tsx';
import { SandboxBadge } from './StatusBadge.tsx';
import './sandboxes.css';

const refreshMs = 2_000;
const extendS = 900;

export default function SandboxesView() {
  const { data, error, reload } = useLoad((signal) => sandboxes.list(signal), [], refreshMs);
  const cores = useCores(data);
  const now = useNow(1000);
  const [creating, setCreating] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);

  async function extend(item: Sandbox) {
    try {
      setProblem(null);
      await send(extendBy(item, extendS, Date.now()));
      reload();
    } catch (cause) {
      setProblem(cause instanceof ApiError ? cause.message : 'Something went wrong');
    }
  }

  const columns: Column<Sandbox>[] = [
    {
      title: 'Sandbox',
      head: true,
      wide: true,
      cell: (it) => (
        <Link to={`/sandboxes/${encodeURIComponent(it.id)}`} className="run-link">
          <span className="run-title">{it.name || it.id}</span>
          {it.name && <span className="run-id">{it.id}</span>}
        </Link>
      ),
    },
    { title: 'Status', plain: true, cell: (it) => <SandboxBadge status={it.status} /> },
    {
      title: 'Memory',
      numeric: true,
      cell: (it) => (isLive(it) ? formatBytes(it.usage.memoryBytes) : '–'),
    },
    { title: 'CPU', numeric: true, cell: (it) => formatCores(cores.get(it.id)) },
    {
      title: 'Created',
      numeric: true,
      cell: (it) => <TimeAgo time={it.createdAt} now={Math.max(now, Date.parse(it.createdAt))} />,
    },
    {
      title: 'Time left',
      numeric: true,
      cell: (it) => {
        const left = timeLeft(it, now);
        if (left === null) return '–';
        return (
          <span className="time-left">
            {formatAge(left)}
            <button
              type="button"
              className="button quiet"
              aria-label={`Extend ${it.name || it.id} by 15 minutes`}
              title="15 minutes more"
              onClick={() => void extend(it)}
            >
              Extend
            </button>
            <Curl call={extendBy(it, extendS, now)} of={`extend ${it.name || it.id}`} />
          </span>
        );
      },
    },
  ];

  return (
    <div className="stack view-sandboxes">
      <div className="page-head">
        <div>
          <h1>Sandboxes</h1>
          <p>Linux machines of their own: no network, no files, nothing but what you hand them.</p>
        </div>
        <div className="head-actions">
          <button type="button" className="button primary" onClick={() => setCreating(true)}>
            New sandbox
          </button>
          <Curl call={calls.list()} of="list" />
        </div>
      </div>
      {!data && !error && <Loading />}
      {error && (
        <Notice
          tone="bad"
          title={data ? 'What is shown may be out of date' : 'The sandboxes could not be loaded'}
          action={{ label: 'Try again', run: reload }}
        >
          {error.message}.
        </Notice>
      )}
      {problem !== null && (
        <Notice tone="bad" title="It was not extended">
          {problem}.
        </Notice>
      )}
      {data && (
        <div className="card table-card sandboxes-card">
          <DataTable
            caption="Sandboxes: those that live first, then newest first"
            columns={columns}
            rows={liveFirst(data)}
            rowKey={(it) => it.id}
            empty={
              <>
                There is none yet. Make one here, with <code>cay sandbox create</code>, or by the
                API.
              </>
            }
          />
        </div>
      )}
      <Snapshots />
      {creating && <Create onClose={() => setCreating(false)} />}
    </div>
  );
}
