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

/** The newest page stays fresh; older pages are added below on request. */
export default function RunsView() {
  const first = useLoad((signal) => api.runs({ limit: pageSize, signal }), [], refreshMs);
  const [older, setOlder] = useState<RunPage | null>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const now = useNow(1000);
  const abort = useRef<AbortController | null>(null);
  useEffect(() => () => abort.current?.abort(), []);

  const cursor = older ? older.nextCursor : (first.data?.nextCursor ?? null);
  const runs = mergeRuns(first.data?.runs ?? [], older?.runs ?? []);

  async function loadOlder() {
    setBusy(true);
    setError(null);
    abort.current = new AbortController();
    const { signal } = abort.current;
    try {
      const page = await api.runs({ limit: pageSize, cursor, signal });
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
    <div className="stack view-runs">
      <div className="page-head">
        <h1>Runs</h1>
        <p>Everything that was run here, newest first.</p>
      </div>
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
    </div>
  );
}

/** Both lists without repeats, newest first; where both have a run, the first list's is newer. */
export function mergeRuns(newer: readonly Run[], older: readonly Run[]): Run[] {
  const seen = new Set(newer.map((run) => run.id));
  return [...newer, ...older.filter((run) => !seen.has(run.id))];
}
