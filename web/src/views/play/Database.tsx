import { useState } from 'react';
import { api, ApiError } from '../../api/client.ts';
import { list, object, text } from '../../api/types.ts';
import { plainText } from '../../components/ansi.ts';
import { DataTable } from '../../components/DataTable.tsx';
import { Notice } from '../../components/Notice.tsx';
import { formatCount } from '../../format.ts';
import { useLoad } from '../../hooks.ts';
import { cellOf, columnsOf } from '../chat/state.ts';

const rowsShown = 20;
const tablesShown = 20;

/** The page has no key to a database either: it asks by a program, as anybody would. */
const look = `export default async function (env) {
  const tables = await env.db.query(
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name LIMIT ${tablesShown}");
  const out = [];
  for (const { name } of tables) {
    const quoted = '"' + name.replaceAll('"', '""') + '"';
    const [{ count }] = await env.db.query('SELECT COUNT(*) AS count FROM ' + quoted);
    const rows = await env.db.query('SELECT * FROM ' + quoted + ' LIMIT ${rowsShown}');
    out.push({ name, count, rows });
  }
  return out;
}
`;

type Table = { name: string; count: number; rows: unknown[] };

async function load(facet: string, signal: AbortSignal): Promise<Table[]> {
  const answer = object(
    await api.json('/v1/run', {
      method: 'POST',
      signal,
      body: { title: `tables of ${facet}`, code: look, env: { db: { $facet: facet } } },
    }),
  );
  const error = object(answer.error);
  if (text(error.message)) throw new ApiError(0, 'program', text(error.message));
  return list(answer.result).map((item) => {
    const it = object(item);
    return { name: text(it.name), count: Number(it.count) || 0, rows: list(it.rows) };
  });
}

/** The tables of a database that the program is handed, once they are asked for. */
export function Database({ facet, turn }: { facet: string; turn: number }) {
  const [open, setOpen] = useState(false);
  return (
    <details className="card play-database" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        Tables of <code>{plainText(facet)}</code>
      </summary>
      {open && <Tables facet={facet} turn={turn} />}
    </details>
  );
}

function Tables({ facet, turn }: { facet: string; turn: number }) {
  const { data, error, reload } = useLoad((signal) => load(facet, signal), [facet, turn]);
  if (error)
    return (
      <Notice tone="bad" title="They cannot be read" action={{ label: 'Try again', run: reload }}>
        {plainText(error.message)}
      </Notice>
    );
  if (!data) return <p className="table-empty">Loading…</p>;
  if (data.length === 0) return <p className="table-empty">It has no table yet.</p>;
  return data.map(({ name, count, rows }) => (
    <section key={name} aria-label={`Table ${plainText(name)}`} className="play-table">
      <h3>
        {plainText(name)} <span>{formatCount(count)} rows</span>
      </h3>
      <DataTable
        caption={`Rows of ${plainText(name)}`}
        columns={columnsOf(rows).map((title, index) => ({
          title,
          head: index === 0,
          cell: (row: unknown) => plainText(cellOf(row, title)),
        }))}
        rows={rows}
        rowKey={(_row, index) => index}
        empty="No rows."
      />
    </section>
  ));
}
