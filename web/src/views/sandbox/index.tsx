import { lazy, Suspense, useEffect, useRef, useState } from 'react';
import { ApiError, send } from '../../api/client.ts';
import { calls, sandboxes, type Sandbox } from '../../api/sandboxes.ts';
import { Confirm } from '../../components/Confirm.tsx';
import { Curl } from '../../components/Curl.tsx';
import { Facts, type Fact } from '../../components/Facts.tsx';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { Sparkline } from '../../components/Sparkline.tsx';
import { Tabs } from '../../components/Tabs.tsx';
import { formatAge, formatBytes, formatTime } from '../../format.ts';
import { useLoad, useNow } from '../../hooks.ts';
import { Link, navigate } from '../../router.tsx';
import type { ViewProps } from '../../views.ts';
import { againBody, extendBy, formatCores, isLive, timeLeft, useCores } from '../sandboxes/live.ts';
import { SandboxBadge } from '../sandboxes/StatusBadge.tsx';
import { Commands } from './Commands.tsx';
import { Files } from './Files.tsx';
import { Network } from './Network.tsx';
import { Ports } from './Ports.tsx';
import './sandbox.css';

const Terminal = lazy(() => import('./Terminal.tsx'));

const refreshMs = 1_500;
const samples = 60;
const extensions = [
  ['5 min', 300],
  ['30 min', 1800],
  ['2 h', 7200],
] as const;
const warnMs = 120_000;
const tabNames = ['terminal', 'commands', 'files', 'ports', 'network'];

/** One sandbox: what it uses, and everything that can be done with it. */
export default function SandboxView({ params }: ViewProps) {
  const id = params.id ?? '';
  const { data, error, reload } = useLoad((signal) => sandboxes.get(id, signal), [id], refreshMs);
  return (
    <div className="stack view-sandbox">
      <nav aria-label="Breadcrumb" className="crumb">
        <Link to="/sandboxes">Sandboxes</Link>
      </nav>
      {!data && !error && <Loading />}
      {!data && error && (
        <Notice
          tone={error.status === 404 ? 'plain' : 'bad'}
          title={
            error.status === 404 ? 'There is no such sandbox' : 'The sandbox could not be loaded'
          }
          action={{ label: 'Try again', run: reload }}
        >
          {error.status === 404 ? (
            <>
              No sandbox has the id <code>{id}</code>, or it belongs to another key.
            </>
          ) : (
            `${error.message}.`
          )}
        </Notice>
      )}
      {data && <Shown sandbox={data} reload={reload} gone={error?.status === 404} />}
    </div>
  );
}

type ShownProps = { sandbox: Sandbox; reload: () => void; gone: boolean };

function Shown({ sandbox, reload, gone }: ShownProps) {
  const { id, usage } = sandbox;
  const one = useRef<readonly Sandbox[]>([]);
  if (one.current[0] !== sandbox) one.current = [sandbox];
  const cores = useCores(one.current).get(id);
  const [history, setHistory] = useState<{ memory: number[]; cpu: number[] }>({
    memory: [],
    cpu: [],
  });
  useEffect(() => {
    setHistory(({ memory, cpu }) => ({
      memory: [...memory, usage.memoryBytes ?? 0].slice(-samples),
      cpu: [...cpu, (cores ?? 0) * 100].slice(-samples),
    }));
  }, [sandbox, cores]);
  const live = isLive(sandbox) && !gone;

  return (
    <>
      <div className="page-head">
        <h1>{sandbox.name || id}</h1>
        {sandbox.name && <p className="mono">{id}</p>}
      </div>
      {sandbox.error && !sandbox.expired && <Notice tone="bad" title={sandbox.error} />}
      {gone && <Notice tone="warn" title="It is gone" />}
      {live && <EndsSoon sandbox={sandbox} reload={reload} />}
      {!live && <Again sandbox={sandbox} />}
      <div className="card sandbox-top">
        <Record sandbox={sandbox} />
        <div className="figures">
          <Figure
            name="Memory"
            value={formatBytes(usage.memoryBytes)}
            more={sandbox.memoryMb === null ? '' : `of ${sandbox.memoryMb} MiB`}
            values={history.memory}
          />
          <Figure
            name="CPU"
            value={formatCores(cores)}
            more={usage.cpuMs === null ? '' : `${(usage.cpuMs / 1000).toFixed(1)} s in all`}
            values={history.cpu}
          />
        </div>
        {!gone && <Actions sandbox={sandbox} live={live} reload={reload} />}
      </div>
      <Panels sandbox={sandbox} live={live} reload={reload} />
    </>
  );
}

const failure = (cause: unknown): string =>
  cause instanceof ApiError ? cause.message : 'Something went wrong';

/** Said in time to do something about it. */
function EndsSoon({ sandbox, reload }: { sandbox: Sandbox; reload: () => void }) {
  const now = useNow(1000);
  const [problem, setProblem] = useState<string | null>(null);
  const left = timeLeft(sandbox, now);
  if (left === null || left > warnMs) return null;
  const extend = async () => {
    try {
      setProblem(null);
      await send(extendBy(sandbox, extensions[1][1], Date.now()));
    } catch (cause) {
      setProblem(failure(cause));
    }
    reload();
  };
  return (
    <Notice
      tone="warn"
      title={`It ends in ${formatAge(left)}`}
      action={{ label: `Give it ${extensions[1][0]} more`, run: () => void extend() }}
    >
      {problem ?? 'What is in it goes with it, unless a snapshot keeps it.'}
    </Notice>
  );
}

/** One that has ended cannot go on; another like it can be had. */
function Again({ sandbox }: { sandbox: Sandbox }) {
  const [problem, setProblem] = useState<string | null>(null);
  const create = async () => {
    try {
      setProblem(null);
      const made = await sandboxes.create(againBody(sandbox));
      navigate(`/sandboxes/${encodeURIComponent(made.id)}`);
    } catch (cause) {
      setProblem(failure(cause));
    }
  };
  return (
    <Notice
      tone={sandbox.expired ? 'warn' : 'plain'}
      title={sandbox.expired ? 'Its time was over' : 'It has ended'}
      action={{ label: 'Create one like it', run: () => void create() }}
    >
      {problem ?? 'Its files are gone; its commands and their output can still be read.'}
    </Notice>
  );
}

function Record({ sandbox }: { sandbox: Sandbox }) {
  const now = useNow(1000);
  const left = timeLeft(sandbox, now);
  const facts: Fact[] = [
    ['Status', <SandboxBadge status={sandbox.status} />],
    [
      left === null ? 'Ended' : 'Time left',
      left === null ? formatTime(sandbox.stoppedAt) : formatAge(left),
    ],
    ['Processes', sandbox.usage.pids ?? '–'],
    ['Root', sandbox.root || 'host’s /usr'],
    ['Created', <time dateTime={sandbox.createdAt}>{formatTime(sandbox.createdAt)}</time>],
    ['Disk', sandbox.diskMb === null ? '–' : `${sandbox.diskMb} MiB`],
  ];
  return <Facts facts={facts} />;
}

type FigureProps = { name: string; value: string; more: string; values: readonly number[] };

function Figure({ name, value, more, values }: FigureProps) {
  return (
    <div className="figure">
      <span className="figure-name">{name}</span>
      <span>
        <span className="figure-value">{value}</span> <span className="figure-more">{more}</span>
      </span>
      <Sparkline values={values} samples={samples} label={`${name}: ${value}`} />
    </div>
  );
}

type ActionsProps = { sandbox: Sandbox; live: boolean; reload: () => void };

function Actions({ sandbox, live, reload }: ActionsProps) {
  const { id, status } = sandbox;
  const [busy, setBusy] = useState(false);
  const [said, setSaid] = useState<{ bad: boolean; text: string } | null>(null);
  const [extension, setExtension] = useState<number>(extensions[1][1]);
  const paused = status === 'paused';
  const label = sandbox.name || id;

  async function act(what: () => Promise<unknown>, done = '') {
    setBusy(true);
    setSaid(null);
    try {
      await what();
      if (done) setSaid({ bad: false, text: done });
    } catch (cause) {
      setSaid({
        bad: true,
        text: cause instanceof ApiError ? cause.message : 'Something went wrong',
      });
    }
    setBusy(false);
    reload();
  }

  const pause = paused ? calls.resume(id) : calls.pause(id);
  return (
    <div className="sandbox-actions">
      {live && (
        <>
          <span className="action">
            <button
              type="button"
              className="button"
              disabled={busy}
              onClick={() => void act(() => send(pause))}
            >
              {paused ? 'Resume' : 'Pause'}
            </button>
            <Curl call={pause} of={paused ? 'resume' : 'pause'} />
          </span>
          <span className="action fields">
            <select
              aria-label="How much longer it lives"
              value={extension}
              onChange={(event) => setExtension(Number(event.target.value))}
            >
              {extensions.map(([name, value]) => (
                <option key={value} value={value}>
                  + {name}
                </option>
              ))}
            </select>
            <button
              type="button"
              className="button"
              disabled={busy}
              onClick={() => void act(() => send(extendBy(sandbox, extension, Date.now())))}
            >
              Extend
            </button>
            <Curl call={extendBy(sandbox, extension, Date.now())} of="extend" />
          </span>
          <span className="action">
            <button
              type="button"
              className="button"
              disabled={busy}
              onClick={() =>
                void act(async () => {
                  const made = await sandboxes.snapshot(id, '');
                  setSaid({ bad: false, text: `Kept as ${made.name || made.id}.` });
                })
              }
            >
              Snapshot
            </button>
            <Curl call={calls.snapshot(id, '')} of="snapshot" />
          </span>
        </>
      )}
      <span className="action">
        <Confirm
          label={live ? 'Delete' : 'Forget'}
          of={label}
          disabled={busy}
          onConfirm={() =>
            void act(async () => {
              await send(calls.remove(id));
              navigate('/sandboxes');
            })
          }
        />
        <Curl call={calls.remove(id)} of="delete" />
      </span>
      {said && (
        <p className="action-said" role={said.bad ? 'alert' : 'status'} data-bad={said.bad}>
          {said.text}
        </p>
      )}
    </div>
  );
}

function Panels({
  sandbox,
  live,
  reload,
}: {
  sandbox: Sandbox;
  live: boolean;
  reload: () => void;
}) {
  const { id } = sandbox;
  const paused = sandbox.status === 'paused';
  const [tab, setTab] = useState(() => {
    const asked = location.hash.slice(1);
    return tabNames.includes(asked) ? asked : 'terminal';
  });
  // The address may change under an open page: Back, or a link to another panel.
  useEffect(() => {
    const follow = () => {
      const asked = location.hash.slice(1);
      if (tabNames.includes(asked)) show(asked);
    };
    addEventListener('hashchange', follow);
    addEventListener('popstate', follow);
    return () => {
      removeEventListener('hashchange', follow);
      removeEventListener('popstate', follow);
    };
  }, []);
  // A panel begins when it is first seen; a shell nobody looked at is not started.
  const [seen, setSeen] = useState<ReadonlySet<string>>(new Set([tab]));
  function show(to: string) {
    setTab(to);
    setSeen((before) => new Set([...before, to]));
  }
  function change(to: string) {
    show(to);
    history.replaceState(null, '', `#${to}`);
  }
  const panel = (name: string, content: () => React.ReactNode) =>
    seen.has(name) ? <div className="panel">{content()}</div> : null;

  return (
    <div className="card sandbox-panels">
      <Tabs
        label="Sandbox"
        current={tab}
        onChange={change}
        tabs={[
          {
            id: 'terminal',
            label: 'Terminal',
            panel: panel('terminal', () =>
              live || seen.size > 1 ? (
                <Suspense fallback={<Loading what="Loading the terminal" />}>
                  <Terminal id={id} live={live} paused={paused} />
                </Suspense>
              ) : (
                <p className="panel-empty">It has ended.</p>
              ),
            ),
          },
          {
            id: 'commands',
            label: 'Commands',
            panel: panel('commands', () => (
              <Commands id={id} live={live} shown={tab === 'commands'} />
            )),
          },
          {
            id: 'files',
            label: 'Files',
            panel: panel('files', () => <Files id={id} live={live} paused={paused} />),
          },
          {
            id: 'ports',
            label: 'Ports',
            panel: panel('ports', () => <Ports id={id} live={live} paused={paused} />),
          },
          {
            id: 'network',
            label: 'Network',
            panel: panel('network', () => (
              <Network sandbox={sandbox} live={live} shown={tab === 'network'} onChange={reload} />
            )),
          },
        ]}
      />
    </div>
  );
}
