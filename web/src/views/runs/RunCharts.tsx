import { api, type RunQuery } from '../../api/client.ts';
import type { Run } from '../../api/types.ts';
import { Chart } from '../../components/Chart.tsx';
import { Section } from '../../components/Section.tsx';
import { formatCost, formatCount, formatDuration } from '../../format.ts';
import { useLoad } from '../../hooks.ts';
import { bucketRuns } from './buckets.ts';

const parts = 32;
const pages = 5;
const pageSize = 100;
const refreshMs = 15_000;

type Sample = { runs: Run[]; whole: boolean };

async function sample(query: RunQuery, signal: AbortSignal): Promise<Sample> {
  const runs: Run[] = [];
  let cursor: string | null = null;
  for (let page = 0; page < pages; page++) {
    const next = await api.runs({ ...query, limit: pageSize, cursor, signal });
    runs.push(...next.runs);
    cursor = next.nextCursor;
    if (cursor === null) break;
  }
  return { runs, whole: cursor === null };
}

const hour = new Intl.DateTimeFormat('en-GB', { timeStyle: 'short' });
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
const dayHour = new Intl.DateTimeFormat('en-GB', {
  day: 'numeric',
  month: 'short',
  hour: '2-digit',
  minute: '2-digit',
});

function namer(spanMs: number): (time: number) => string {
  const format = spanMs <= 86_400_000 ? hour : spanMs <= 14 * 86_400_000 ? dayHour : day;
  return (time) => format.format(time);
}

/** Runs, how long they took and what they cost, over the time that is asked for. */
export default function RunCharts({ query }: { query: RunQuery }) {
  const { data } = useLoad((signal) => sample(query, signal), [JSON.stringify(query)], refreshMs);
  if (!data) return <Section title="Over time">Loading…</Section>;
  const times = data.runs.map((run) => Date.parse(run.createdAt)).filter(Number.isFinite);
  const first = Math.min(...times, Date.now());
  const asked = query.since ? Date.parse(query.since) : first;
  // Where there are more than were asked for, the time is that of those that are known.
  const from = data.whole ? asked : first;
  const to = query.until ? Math.min(Date.parse(query.until), Date.now()) : Date.now();
  const found = bucketRuns(data.runs, from, Math.max(to, from + 1), parts, namer(to - from));
  return (
    <Section
      title="Over time"
      aside={data.whole ? undefined : `the newest ${formatCount(data.runs.length)}`}
    >
      <div className="charts">
        <Chart
          title="Runs"
          figure={`${formatCount(found.total)}${found.failed > 0 ? `, ${formatCount(found.failed)} failed` : ''}`}
          columns={found.count}
          series={['well', 'failed']}
          format={formatCount}
        />
        <div className="chart-overlap">
          <Chart
            title="Time they took"
            figure={found.medianMs === null ? '–' : `${formatDuration(found.medianMs)} median`}
            columns={found.latency}
            series={['median', '95 of 100']}
            overlap
            format={formatDuration}
          />
        </div>
        {found.costUsd !== null && (
          <Chart
            title="Spend"
            figure={formatCost(found.costUsd)}
            columns={found.spend}
            series={['cost']}
            format={formatCost}
          />
        )}
      </div>
    </Section>
  );
}
