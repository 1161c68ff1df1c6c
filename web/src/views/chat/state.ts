/** What the agent's synced state holds, made sure of: a client of any kind may have set it. */
import { object } from '../../api/types.ts';

export type Execution = {
  id: string;
  code: string;
  output: string;
  error: string | null;
  /** Milliseconds, or null when the text is no time. */
  time: number | null;
};

export type StateTable = { key: string; rows: unknown[]; error: string | null };

const text = (value: unknown): string => (typeof value === 'string' ? value : '');

/** The agent writes `YYYY-MM-DD HH:MM:SS`, in UTC. */
function readTime(value: unknown): number | null {
  const iso = /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/.test(text(value))
    ? `${text(value).replace(' ', 'T')}Z`
    : text(value);
  const time = Date.parse(iso);
  return Number.isNaN(time) ? null : time;
}

export function readExecutions(state: unknown): Execution[] {
  const { executions } = object(state);
  if (!Array.isArray(executions)) return [];
  return executions.map((item, index) => {
    const it = object(item);
    return {
      id: text(it.id) || String(index),
      code: text(it.code),
      output: text(it.output),
      error: it.error === null || it.error === undefined ? null : String(it.error),
      time: readTime(it.timestamp),
    };
  });
}

/** Every list but the executions is a table; one that could not be read has its error instead. */
export function readTables(state: unknown): StateTable[] {
  const fields = object(state);
  const errors = object(fields.errors);
  const keys = Object.keys(fields).filter((key) => Array.isArray(fields[key]));
  for (const key of Object.keys(errors)) if (!keys.includes(key)) keys.push(key);
  return keys
    .filter((key) => key !== 'executions')
    .map((key) => ({
      key,
      rows: Array.isArray(fields[key]) ? fields[key] : [],
      error: key in errors ? String(errors[key]) : null,
    }));
}

export const executionsError = (state: unknown): string | null => {
  const errors = object(object(state).errors);
  return 'executions' in errors ? String(errors.executions) : null;
};

export function titleOf(key: string): string {
  const words = key.replace(/([a-z])([A-Z])/g, '$1 $2').replace(/[_-]+/g, ' ');
  return words.charAt(0).toUpperCase() + words.slice(1);
}

const isRow = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** The columns of rows that need not be alike; a plain value stands in a column of its own. */
export function columnsOf(rows: readonly unknown[]): string[] {
  const columns = new Set<string>();
  for (const row of rows.slice(0, 100))
    for (const key of isRow(row) ? Object.keys(row) : ['value']) columns.add(key);
  return [...columns].slice(0, 30);
}

export function cellOf(row: unknown, column: string): string {
  const value = isRow(row) ? row[column] : column === 'value' ? row : undefined;
  if (value === null || value === undefined) return '–';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

export type Order = { column: string; down: boolean };

/** The rows that say it somewhere, in the order asked for. Numbers are ordered as numbers. */
export function arrange(rows: readonly unknown[], search: string, order: Order | null): unknown[] {
  const wanted = search.trim().toLowerCase();
  const columns = columnsOf(rows);
  const says = (row: unknown) =>
    columns.some((column) => cellOf(row, column).toLowerCase().includes(wanted));
  const found = wanted === '' ? [...rows] : rows.filter(says);
  if (!order) return found;
  const compare = new Intl.Collator('en', { numeric: true }).compare;
  const sign = order.down ? -1 : 1;
  return found.sort((a, b) => sign * compare(cellOf(a, order.column), cellOf(b, order.column)));
}
