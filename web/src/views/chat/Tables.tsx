import { useMemo, useState } from 'react';
import { plainText } from '../../components/ansi.ts';
import { DataTable, type Column } from '../../components/DataTable.tsx';
import { Notice } from '../../components/Notice.tsx';
import { arrange, cellOf, columnsOf, titleOf, type Order, type StateTable } from './state.ts';

const rowsAtOnce = 100;

/** One list of the agent's state, live. */
export function StateTableView({ table }: { table: StateTable }) {
  const { key, rows, error } = table;
  const [search, setSearch] = useState('');
  const [order, setOrder] = useState<Order | null>(null);
  const [page, setPage] = useState(0);
  const found = useMemo(() => arrange(rows, search, order), [rows, search, order]);
  const pages = Math.max(1, Math.ceil(found.length / rowsAtOnce));
  const at = Math.min(page, pages - 1);
  const from = at * rowsAtOnce;
  const columns = useMemo(() => {
    const names = columnsOf(rows);
    const isNumeric = (name: string) =>
      rows.length > 0 && rows.every((row) => /^-?[\d.]+$/.test(cellOf(row, name)));
    // What names a row is words, where there are any.
    const head =
      ['name', 'title'].find((name) => names.includes(name)) ??
      names.find((name) => name !== 'id' && !isNumeric(name)) ??
      names[0];
    return names.map((name): Column<unknown> => ({
      title: name,
      head: name === head,
      wide: name === head,
      numeric: isNumeric(name),
      cell: (row) => plainText(cellOf(row, name)),
    }));
  }, [rows]);
  return (
    <div className="state-table">
      {error !== null && (
        <Notice tone="bad" title={`${titleOf(key)} cannot be read`}>
          <span className="error-text">{plainText(error)}</span>
          What is shown is what was known before. Ask the agent to put it right.
        </Notice>
      )}
      {rows.length > 10 && (
        <div className="table-search">
          <input
            type="search"
            aria-label={`Search ${titleOf(key)}`}
            placeholder="Search"
            value={search}
            onChange={(event) => {
              setSearch(event.target.value);
              setPage(0);
            }}
          />
        </div>
      )}
      {(rows.length > 0 || error === null) && (
        <DataTable
          caption={titleOf(key)}
          columns={columns}
          rows={found.slice(from, from + rowsAtOnce)}
          rowKey={(row, index) => `${cellOf(row, 'id')}-${index}`}
          empty={search === '' ? 'No rows.' : 'No row says that.'}
          order={order}
          onOrder={(column) =>
            setOrder((now) => ({ column, down: now?.column === column && !now.down }))
          }
        />
      )}
      {found.length > rowsAtOnce && (
        <p className="table-pages">
          <button
            type="button"
            className="button quiet"
            disabled={at === 0}
            onClick={() => setPage(at - 1)}
          >
            Before
          </button>
          <span role="status">
            {(from + 1).toLocaleString('en')} to{' '}
            {Math.min(from + rowsAtOnce, found.length).toLocaleString('en')} of{' '}
            {found.length.toLocaleString('en')}
          </span>
          <button
            type="button"
            className="button quiet"
            disabled={at === pages - 1}
            onClick={() => setPage(at + 1)}
          >
            After
          </button>
        </p>
      )}
    </div>
  );
}
