import { useState } from 'react';
import { ApiError, send } from '../../api/client.ts';
import { calls, sandboxes, type Snapshot } from '../../api/sandboxes.ts';
import { plainText } from '../../components/ansi.ts';
import { Confirm } from '../../components/Confirm.tsx';
import { Curl } from '../../components/Curl.tsx';
import { DataTable, type Column } from '../../components/DataTable.tsx';
import { Notice } from '../../components/Notice.tsx';
import { Section } from '../../components/Section.tsx';
import { TimeAgo } from '../../components/TimeAgo.tsx';
import { formatBytes } from '../../format.ts';
import { useLoad, useNow } from '../../hooks.ts';
import { navigate } from '../../router.tsx';

const refreshMs = 10_000;

/** What was kept is only half of it without the root it stood on. */
const bodyOf = ({ id, root }: Snapshot) => ({ snapshot: id, ...(root ? { root } : {}) });

/** What sandboxes have left behind: each is the beginning of a new one. */
export function Snapshots() {
  const { data, error, reload } = useLoad((signal) => sandboxes.snapshots(signal), [], refreshMs);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const now = useNow(10_000);
  if (!data && error)
    return (
      <Notice
        tone="bad"
        title="The snapshots could not be loaded"
        action={{ label: 'Try again', run: reload }}
      >
        {error.message}.
      </Notice>
    );
  if (!data || data.length === 0) return null;

  async function act(what: () => Promise<void>) {
    setBusy(true);
    setProblem(null);
    try {
      await what();
    } catch (cause) {
      setProblem(cause instanceof ApiError ? cause.message : 'Something went wrong');
    }
    setBusy(false);
    reload();
  }

  const nameOf = (it: Snapshot): string => plainText(it.name || it.id);
  const columns: Column<Snapshot>[] = [
    { title: 'Snapshot', head: true, wide: true, cell: nameOf },
    { title: 'Size', numeric: true, cell: (it) => formatBytes(it.bytes) },
    {
      title: 'Made',
      numeric: true,
      cell: (it) => <TimeAgo time={it.createdAt} now={Math.max(now, Date.parse(it.createdAt))} />,
    },
    {
      title: 'Actions',
      numeric: true,
      plain: true,
      cell: (it) => (
        <span className="snapshot-actions">
          <button
            type="button"
            className="button quiet"
            disabled={busy}
            onClick={() =>
              void act(async () => {
                const made = await sandboxes.create(bodyOf(it));
                navigate(`/sandboxes/${encodeURIComponent(made.id)}`);
              })
            }
          >
            Restore<span className="visually-hidden"> {nameOf(it)} into a new sandbox</span>
          </button>
          <Curl call={calls.create(bodyOf(it))} of={`restore ${nameOf(it)}`} />
          <Confirm
            quiet
            label="Delete"
            of={nameOf(it)}
            disabled={busy}
            onConfirm={() => void act(async () => void (await send(calls.removeSnapshot(it.id))))}
          />
          <Curl call={calls.removeSnapshot(it.id)} of={`delete ${nameOf(it)}`} />
        </span>
      ),
    },
  ];
  return (
    <Section title="Snapshots" flush aside={<Curl call={calls.snapshots()} of="snapshots" />}>
      {problem !== null && (
        <Notice tone="bad" title="It did not work">
          {problem}.
        </Notice>
      )}
      <DataTable
        caption="Snapshots, newest first"
        columns={columns}
        rows={data}
        rowKey={(it) => it.id}
      />
    </Section>
  );
}
