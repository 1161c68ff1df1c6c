import type { Run } from '../api/types.ts';
import { formatCost, formatDuration, formatTokens } from '../format.ts';
import { Link } from '../router.tsx';
import { RunBadge } from './Badge.tsx';
import { plainText } from './ansi.ts';
import { DataTable, type Column } from './DataTable.tsx';
import { TimeAgo } from './TimeAgo.tsx';
import './RunTable.css';

/** How long a run took, or has taken so far. */
export function runDuration(run: Run, now: number): number | null {
  if (run.durationMs !== null) return run.durationMs;
  const started = Date.parse(run.createdAt);
  return run.status === 'running' && !Number.isNaN(started) ? Math.max(0, now - started) : null;
}

type Props = {
  runs: readonly Run[];
  now: number;
  /** Where a run is shown. */
  link?: (run: Run) => string;
  /** Whether what they cost is shown, where it is known. */
  costs?: boolean;
};

const runLink = (run: Run): string => `/runs/${encodeURIComponent(run.id)}`;

const cost: Column<Run> = {
  title: 'Cost',
  numeric: true,
  cell: (run) => (
    <span title={formatTokens(run.tokens)}>
      {formatCost(run.costUsd)}
      {run.priceKnown ? '' : ' +?'}
    </span>
  ),
};

export function RunTable({ runs, now, link = runLink, costs = false }: Props) {
  const columns: Column<Run>[] = [
    {
      title: 'Run',
      head: true,
      wide: true,
      cell: (run) => (
        <Link to={link(run)} className="run-link">
          <span className="run-title">{plainText(run.title) || run.id}</span>
          {run.title && <span className="run-id">{run.id}</span>}
        </Link>
      ),
    },
    { title: 'Kind', plain: true, cell: (run) => run.kind },
    { title: 'Status', plain: true, cell: (run) => <RunBadge status={run.status} /> },
    {
      title: 'When',
      numeric: true,
      plain: true,
      cell: (run) => <TimeAgo time={run.createdAt} now={now} />,
    },
    { title: 'Duration', numeric: true, cell: (run) => formatDuration(runDuration(run, now)) },
    ...(costs && runs.some((run) => run.costUsd !== null) ? [cost] : []),
  ];
  return (
    <DataTable
      caption="Runs, newest first"
      columns={columns}
      rows={runs}
      rowKey={(run) => run.id}
      empty="Nothing has been run yet."
    />
  );
}
