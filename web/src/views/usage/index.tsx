import { useState } from 'react';
import { daysOf, loadUsage, sumOf, usagePath, type Today, type Usage } from '../../api/usage.ts';
import { plainText } from '../../components/ansi.ts';
import { Chart, type Column as Bar } from '../../components/Chart.tsx';
import { Curl } from '../../components/Curl.tsx';
import { DataTable, type Column } from '../../components/DataTable.tsx';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { Section } from '../../components/Section.tsx';
import { formatCost, formatCount, formatDuration, formatTokens } from '../../format.ts';
import { useLoad } from '../../hooks.ts';
import { Link } from '../../router.tsx';
import './usage.css';

const refreshMs = 30_000;
const rowsAtOnce = 200;
const spans: readonly [number, string][] = [
  [7, 'The last 7 days'],
  [30, 'The last 30 days'],
  [90, 'The last 90 days'],
];

const dayOf = (time: number): string => new Date(time).toISOString().slice(0, 10);
const keyName = (key: string): string => key || 'operator';

/** What each key used, day by day. */
export default function UsageView() {
  const [days, setDays] = useState(30);
  const [key, setKey] = useState<string | null>(null);
  const today = dayOf(Date.now());
  const since = dayOf(Date.now() - (days - 1) * 86_400_000);
  const { data, error, reload } = useLoad((signal) => loadUsage(since, signal), [since], refreshMs);
  const keys = [...new Set(data?.rows.map((row) => row.key))].sort();
  const mine = (row: { key: string }) => key === null || row.key === key;
  const rows = (data?.rows ?? []).filter(mine);
  const limited = (data?.today ?? []).filter(mine);
  return (
    <div className="stack view-usage">
      <div className="page-head">
        <h1>Usage</h1>
        <p>
          What each key used, day by day. <Curl call={{ path: usagePath(since) }} of="usage" />
        </p>
      </div>
      <search className="fields filters">
        <label>
          Time
          <select value={days} onChange={(event) => setDays(Number(event.target.value))}>
            {spans.map(([value, name]) => (
              <option key={value} value={value}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <label>
          Key
          <select
            value={key === null ? 'all' : `key ${key}`}
            onChange={({ target: { value } }) => setKey(value === 'all' ? null : value.slice(4))}
          >
            <option value="all">Every key</option>
            {keys.map((it) => (
              <option key={it} value={`key ${it}`}>
                {plainText(keyName(it))}
              </option>
            ))}
          </select>
        </label>
      </search>
      {!data && !error && <Loading />}
      {error && (
        <Notice
          tone="bad"
          title={data ? 'What is shown may be out of date' : 'The usage could not be loaded'}
          action={{ label: 'Try again', run: reload }}
        >
          {error.message}.
        </Notice>
      )}
      {data && <Charts rows={rows} days={daysOf(since, today)} />}
      {limited.length > 0 && <Limits rows={limited} />}
      {data && <Table rows={rows} />}
    </div>
  );
}

const short = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', timeZone: 'UTC' });

function Charts({ rows, days }: { rows: readonly Usage[]; days: readonly string[] }) {
  const byDay = new Map(days.map((day) => [day, [] as Usage[]]));
  for (const row of rows) byDay.get(row.day)?.push(row);
  const sums = [...byDay].map(([day, some]) => ({
    name: short.format(Date.parse(day)),
    sum: sumOf(some),
  }));
  const all = sumOf(rows);
  const bars = (pick: (sum: ReturnType<typeof sumOf>) => (number | null)[]): Bar[] =>
    sums.map(({ name, sum }) => ({ name, values: pick(sum) }));
  return (
    <Section title="Day by day">
      <div className="charts">
        <Chart
          title="Jobs"
          figure={formatCount(all.tasks)}
          columns={bars((sum) => [sum.done, sum.tasks - sum.done])}
          series={['done', 'not done']}
          format={formatCount}
        />
        <Chart
          title="Time at work"
          figure={formatDuration(all.wallMs)}
          columns={bars((sum) => [sum.wallMs])}
          series={['time']}
          format={formatDuration}
        />
        {all.tokens && (
          <Chart
            title="Tokens"
            figure={formatTokens(all.tokens)}
            columns={bars((sum) => [(sum.tokens?.input ?? 0) + (sum.tokens?.output ?? 0)])}
            series={['tokens']}
            format={formatCount}
          />
        )}
        {all.costUsd !== null && (
          <Chart
            title="Cost"
            figure={formatCost(all.costUsd)}
            columns={bars((sum) => [sum.costUsd])}
            series={['cost']}
            format={formatCost}
          />
        )}
      </div>
    </Section>
  );
}

/** How much of it is used, drawn and said. */
function Share({
  used,
  of,
  format,
}: {
  used: number;
  of: number | null;
  format: (n: number) => string;
}) {
  if (of === null) return <>{format(used)}, no limit</>;
  return (
    <span className="usage-share">
      {format(used)} of {format(of)}
      <meter
        min={0}
        max={of}
        high={of * 0.8}
        optimum={0}
        value={Math.min(used, of)}
        aria-label="used"
      />
    </span>
  );
}

const limitColumns: Column<Today>[] = [
  {
    title: 'Key',
    head: true,
    wide: true,
    cell: (row) => <span className="mono">{plainText(keyName(row.key))}</span>,
  },
  {
    title: 'Tokens',
    numeric: true,
    cell: (row) => <Share used={row.tokens} of={row.tokensPerDay} format={formatCount} />,
  },
  {
    title: 'Spend',
    numeric: true,
    cell: (row) => <Share used={row.usd} of={row.usdPerDay} format={formatCost} />,
  },
];

/** What counts against the limits of keys: what runs has its part set aside. */
function Limits({ rows }: { rows: readonly Today[] }) {
  return (
    <Section title="Today" flush aside="days are of UTC">
      <DataTable
        caption="What each key has used today, and may"
        columns={limitColumns}
        rows={rows}
        rowKey={(row) => row.key}
      />
    </Section>
  );
}

const columns: Column<Usage>[] = [
  { title: 'Day', head: true, cell: (row) => row.day },
  {
    title: 'Key',
    wide: true,
    cell: (row) =>
      row.key === '' ? (
        keyName(row.key)
      ) : (
        <Link to={`/runs?key=${encodeURIComponent(row.key)}`} className="mono">
          {plainText(row.key)}
        </Link>
      ),
  },
  { title: 'Kind', plain: true, cell: (row) => plainText(row.type) },
  { title: 'Jobs', numeric: true, cell: (row) => formatCount(row.tasks) },
  { title: 'Done', numeric: true, cell: (row) => formatCount(row.done) },
  { title: 'Time', numeric: true, cell: (row) => formatDuration(row.wallMs) },
];
const tokens: Column<Usage> = {
  title: 'Tokens',
  numeric: true,
  cell: (row) => formatTokens(row.tokens),
};
const cost: Column<Usage> = {
  title: 'Cost',
  numeric: true,
  cell: (row) => formatCost(row.costUsd),
};

function Table({ rows }: { rows: readonly Usage[] }) {
  const [limit, setLimit] = useState(rowsAtOnce);
  const shown = [
    ...columns,
    ...(rows.some((row) => row.tokens) ? [tokens] : []),
    ...(rows.some((row) => row.costUsd !== null) ? [cost] : []),
  ];
  return (
    <Section title="Rows" flush aside={formatCount(rows.length)}>
      <DataTable
        caption="Usage by day, key and type"
        columns={shown}
        rows={rows.slice(0, limit)}
        rowKey={(row) => `${row.day} ${row.key} ${row.type}`}
        empty="Nothing was used in that time."
      />
      {rows.length > limit && (
        <button type="button" className="button more" onClick={() => setLimit(limit + rowsAtOnce)}>
          Show more
        </button>
      )}
    </Section>
  );
}
