import { Suspense, useEffect, useMemo, useRef, useState } from 'react';
import { api, ApiError, runsPath, type RunQuery } from '../../api/client.ts';
import type { Run, RunPage } from '../../api/types.ts';
import { Curl } from '../../components/Curl.tsx';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { RunTable } from '../../components/RunTable.tsx';
import { useLater, useLoad, useNow } from '../../hooks.ts';
import { lazyView } from '../../lazyView.ts';
import {
  isWanted,
  kinds,
  noFilter,
  queryOf,
  readFilter,
  spans,
  statuses,
  writeFilter,
  type Filter,
} from './filter.ts';
import './runs.css';

const RunCharts = lazyView(() => import('./RunCharts.tsx'));

const pageSize = 25;
const refreshMs = 2_000;
/** How long one may pause between letters. */
const typingMs = 300;

type FilterProps = { filter: Filter; onChange: (filter: Filter) => void };

function FilterBar({ filter, onChange }: FilterProps) {
  const choose = (
    key: 'kind' | 'status' | 'time',
    label: string,
    options: readonly (readonly [string, string])[],
  ) => (
    <label>
      {label}
      <select
        value={filter[key]}
        onChange={(event) => onChange({ ...filter, [key]: event.target.value })}
      >
        {options.map(([value, name]) => (
          <option key={value} value={value}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
  const moment = (key: 'from' | 'to', label: string) => (
    <label>
      {label}
      <input
        type="datetime-local"
        value={filter[key]}
        onChange={(event) => onChange({ ...filter, [key]: event.target.value })}
      />
    </label>
  );
  return (
    <search className="fields filters">
      {choose('kind', 'Kind', kinds)}
      {choose('status', 'Status', [
        ['', 'Every status'],
        ...statuses.map((status) => [status, status] as const),
      ])}
      {choose('time', 'Time', spans)}
      {filter.time === 'own' && moment('from', 'From')}
      {filter.time === 'own' && moment('to', 'To')}
      {filter.key !== '' && (
        <label>
          Key
          <input
            value={filter.key}
            onChange={(event) => onChange({ ...filter, key: event.target.value.trim() })}
          />
        </label>
      )}
      <label>
        Text
        <input
          type="search"
          value={filter.text}
          maxLength={200}
          placeholder="in title, id or error"
          onChange={(event) => onChange({ ...filter, text: event.target.value })}
        />
      </label>
    </search>
  );
}

/** The newest page stays fresh; older pages are added below on request. */
export default function RunsView() {
  const [filter, setFilter] = useState<Filter>(() => readFilter(location.search));
  const minute = Math.floor(useNow(60_000) / 60_000);
  const asked = useLater(filter, typingMs);
  const query = useMemo(() => queryOf(asked, minute * 60_000), [asked, minute]);
  const change = (next: Filter) => {
    setFilter(next);
    history.replaceState(history.state, '', location.pathname + writeFilter(next));
  };
  return (
    <div className="stack view-runs">
      <div className="page-head">
        <h1>Runs</h1>
        <p>
          Everything that was run here, newest first.{' '}
          <Curl call={{ path: runsPath({ ...query, limit: pageSize }) }} of="list" />
        </p>
      </div>
      <Suspense fallback={null}>
        <RunCharts query={query} />
      </Suspense>
      <FilterBar filter={filter} onChange={change} />
      {/* Another question is another list, with pages of its own. */}
      <RunList
        key={JSON.stringify({ ...asked, text: asked.text.trim() })}
        query={query}
        onClear={writeFilter(filter) === '' ? null : () => change(noFilter)}
      />
    </div>
  );
}

function RunList({ query, onClear }: { query: RunQuery; onClear: (() => void) | null }) {
  const first = useLoad((signal) => api.runs({ ...query, limit: pageSize, signal }), [], refreshMs);
  const [older, setOlder] = useState<RunPage | null>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const now = useNow(1000);
  const abort = useRef<AbortController | null>(null);
  useEffect(() => () => abort.current?.abort(), []);

  const cursor = older ? older.nextCursor : (first.data?.nextCursor ?? null);
  const loaded = mergeRuns(first.data?.runs ?? [], older?.runs ?? []);
  const runs = loaded.filter((run) => isWanted(run, query));

  async function loadOlder() {
    setBusy(true);
    setError(null);
    abort.current = new AbortController();
    const { signal } = abort.current;
    try {
      const page = await api.runs({ ...query, limit: pageSize, cursor, signal });
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
      {first.data && runs.length === 0 && onClear && (
        <Notice title="No run is like that" action={{ label: 'Show all runs', run: onClear }}>
          {cursor !== null ? 'None of the newest, at least: older ones can be shown.' : null}
        </Notice>
      )}
      {first.data && (runs.length > 0 || !onClear) && (
        <div className="card table-card">
          <RunTable runs={runs} now={now} costs />
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
    </>
  );
}

/** Both lists without repeats, newest first; where both have a run, the first list's is newer. */
export function mergeRuns(newer: readonly Run[], older: readonly Run[]): Run[] {
  const seen = new Set(newer.map((run) => run.id));
  return [...newer, ...older.filter((run) => !seen.has(run.id))];
}
