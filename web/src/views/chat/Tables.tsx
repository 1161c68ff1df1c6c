import { useMemo } from 'react';
import { plainText } from '../../components/ansi.ts';
import { DataTable, type Column } from '../../components/DataTable.tsx';
import { Notice } from '../../components/Notice.tsx';
import { cellOf, columnsOf, titleOf, type StateTable } from './state.ts';

const rowsAtOnce = 500;

/** One list of the agent's state, live. */
export function StateTableView({ table }: { table: StateTable }) {
  const { key, rows, error } = table;
  const columns = useMemo(() => {
    const names = columnsOf(rows);
    const head = ['name', 'title'].find((name) => names.includes(name)) ?? names[0];
    return names.map((name): Column<unknown> => ({
      title: name,
      head: name === head,
      wide: name === head,
      numeric: rows.length > 0 && rows.every((row) => /^-?[\d.]+$/.test(cellOf(row, name))),
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
      {(rows.length > 0 || error === null) && (
        <DataTable
          caption={titleOf(key)}
          columns={columns}
          rows={rows.slice(0, rowsAtOnce)}
          rowKey={(row, index) => `${cellOf(row, 'id')}-${index}`}
          empty="No rows."
        />
      )}
      {rows.length > rowsAtOnce && (
        <p className="table-empty">
          {rowsAtOnce} of {rows.length.toLocaleString('en')} rows.
        </p>
      )}
    </div>
  );
}
