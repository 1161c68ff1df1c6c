import { useEffect, useRef, useState } from 'react';
import { api, ApiError } from '../../api/client.ts';
import type { Run, RunPage } from '../../api/types.ts';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { RunTable } from '../../components/RunTable.tsx';
import { useLoad, useNow } from '../../hooks.ts';
import './runs.css';

const pageSize = 25;
const refreshMs = 5_000;

type Filter = { kind: string; status: string; text: string };

const noFilter: Filter = { kind: '', status: '', text: '' };
const kinds: readonly [string, string][] = [
  ['', 'Every kind'],
  ['run', 'Programs'],
  ['execution', 'Programs of agents'],
  ['chat', 'Chat'],
  ['code', 'Coding'],
  ['execute', '/execute'],
  ['sdk', '/execute/sdk'],
];
const statuses = ['running', 'done', 'failed', 'cancelled', 'interrupted'];

/** Whether a run that is loaded is to be shown. */
export function isWanted(run: Run, filter: Pick<Filter, 'status' | 'text'>): boolean {
  const words = filter.text.trim().toLowerCase();
  if (filter.status && run.status !== filter.status) return false;
  return `${run.title} ${run.id} ${run.error?.message ?? ''}`.toLowerCase().includes(words);
}

function FilterBar({ filter, onChange }: { filter: Filter; onChange: (filter: Filter) => void }) {
  return (
    <search className="fields filters">
      <label>
        Kind
        <select
          value={filter.kind}
          onChange={(event) => onChange({ ...filter, kind: event.target.value })}
        >
          {kinds.map(([value, name]) => (
            <option key={value} value={value}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label>
        Status
        <select
          value={filter.status}
          onChange={(event) => onChange({ ...filter, status: event.target.value })}
        >
          <option value="">Every status</option>
          {statuses.map((status) => (
            <option key={status}>{status}</option>
          ))}
        </select>
      </label>
      <label>
        Text
        <input
          type="search"
          value={filter.text}
          placeholder="in title, id or error"
          onChange={(event) => onChange({ ...filter, text: event.target.value })}
        />
      </label>
    </search>
  );
}

/** The newest page stays fresh; older pages are added below on request. */
export default function RunsView() {
  const [filter, setFilter] = useState<Filter>(noFilter);
  const { kind } = filter;
  // Another kind is another list, with pages of its own.
  return (
    <div className="stack view-runs">
      <div className="page-head">
        <h1>Runs</h1>
        <p>Everything that was run here, newest first.</p>
      </div>
      <FilterBar filter={filter} onChange={setFilter} />
      <RunList key={kind} filter={filter} />
    </div>
  );
}

function RunList({ filter }: { filter: Filter }) {
  const { kind } = filter;
  const first = useLoad(
    (signal) => api.runs({ limit: pageSize, signal, ...(kind ? { kind } : {}) }),
    [kind],
    refreshMs,
  );
  const [older, setOlder] = useState<RunPage | null>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const now = useNow(1000);
  const abort = useRef<AbortController | null>(null);
  useEffect(() => () => abort.current?.abort(), []);

  const cursor = older ? older.nextCursor : (first.data?.nextCursor ?? null);
  const loaded = mergeRuns(first.data?.runs ?? [], older?.runs ?? []);
  const runs = loaded.filter((run) => isWanted(run, filter));

  async function loadOlder() {
    setBusy(true);
    setError(null);
    abort.current = new AbortController();
    const { signal } = abort.current;
    try {
      const page = await api.runs({
        limit: pageSize,
        cursor,
        signal,
        ...(kind ? { kind } : {}),
      });
      // The newest page moves on while one reads: keep what it showed when the older ones came.
      setOlder((before) => ({
        runs: mergeRuns(before?.runs ?? first.data?.runs ?? [], page.runs),
        nextCursor: page.nextCursor,
      }));
    } catch (cause) {
      if (!signal.aborted && cause instanceof ApiError) setError(cause);
    }
    if (!signal.aborted) setBusy(false);
  }

  return (
    <>
      {!first.data && !first.error && <Loading />}
      {!first.data && first.error && (
        <Notice
          tone="bad"
          title="The runs could not be loaded"
          action={{ label: 'Try again', run: first.reload }}
        >
          {first.error.message}.
        </Notice>
      )}
      {first.data && (
        <div className="card runs-card">
          <RunTable runs={runs} now={now} />
        </div>
      )}
      {error && (
        <Notice tone="bad" title="Older runs could not be loaded">
          {error.message}.
        </Notice>
      )}
      {cursor !== null && (
        <button
          type="button"
          className="button more"
          disabled={busy}
          onClick={() => void loadOlder()}
        >
          {busy ? 'Loading…' : 'Show older runs'}
        </button>
      )}
      {runs.length < loaded.length && (
        <p className="shown" role="status">
          {runs.length} of the {loaded.length} runs that are loaded.
        </p>
      )}
    </>
  );
}

/** Both lists without repeats, newest first; where both have a run, the first list's is newer. */
export function mergeRuns(newer: readonly Run[], older: readonly Run[]): Run[] {
  const seen = new Set(newer.map((run) => run.id));
  return [...newer, ...older.filter((run) => !seen.has(run.id))];
}
