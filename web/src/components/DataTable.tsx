import type { ReactNode } from 'react';
import './DataTable.css';

export type Column<Row> = {
  title: string;
  cell: (row: Row) => ReactNode;
  /** Right-aligned figures of equal width. */
  numeric?: boolean;
  /** The cell that names the row; one column has it. */
  head?: boolean;
  /** Takes the room the others leave. */
  wide?: boolean;
  /** Needs no label on a phone, where the heads of the columns are not seen. */
  plain?: boolean;
};

type Props<Row> = {
  caption: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row, index: number) => string | number;
  empty?: ReactNode;
  /** Heads that order the rows: which one does, and what a press on one asks for. */
  order?: { column: string; down: boolean } | null;
  onOrder?: (column: string) => void;
};

/**
 * A table that becomes a list of cards on a phone. The roles are spelled out because browsers drop
 * the table's meaning once its parts are no longer laid out as one.
 */
export function DataTable<Row>(props: Props<Row>) {
  const { caption, columns, rows, rowKey, empty, order, onOrder } = props;
  if (rows.length === 0 && empty !== undefined) return <p className="table-empty">{empty}</p>;
  const kind = (column: Column<Row>) =>
    [column.numeric && 'numeric', column.wide && 'wide', column.plain && 'plain']
      .filter(Boolean)
      .join(' ') || undefined;
  return (
    <table className="data-table" role="table">
      <caption className="visually-hidden">{caption}</caption>
      <thead role="rowgroup">
        <tr role="row">
          {columns.map((column) => (
            <th
              key={column.title}
              role="columnheader"
              scope="col"
              className={kind(column)}
              {...(order?.column === column.title
                ? { 'aria-sort': order.down ? ('descending' as const) : ('ascending' as const) }
                : {})}
            >
              {onOrder ? (
                <button type="button" className="order" onClick={() => onOrder(column.title)}>
                  {column.title}
                  <span aria-hidden="true">
                    {order?.column !== column.title ? '' : order.down ? ' ↓' : ' ↑'}
                  </span>
                </button>
              ) : (
                column.title
              )}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((row, index) => (
          <tr key={rowKey(row, index)} role="row">
            {columns.map((column) => {
              const Cell = column.head ? 'th' : 'td';
              const value = column.cell(row);
              return (
                <Cell
                  key={column.title}
                  role={column.head ? 'rowheader' : 'cell'}
                  scope={column.head ? 'row' : undefined}
                  className={kind(column)}
                  data-title={column.title}
                  data-empty={value === '–' || undefined}
                >
                  {value}
                </Cell>
              );
            })}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
