import { expect, test } from 'vitest';
import { arrange, cellOf, columnsOf, readExecutions, readTables, titleOf } from './state.ts';

test('executions are read, whatever is missing', () => {
  const [one, two] = readExecutions({
    executions: [
      { id: 'a', code: 'x', output: 'y', error: null, timestamp: '2026-11-15 06:00:00' },
      { code: 7, error: 'bad' },
    ],
  });
  expect(one).toEqual({
    id: 'a',
    code: 'x',
    output: 'y',
    error: null,
    time: Date.UTC(2026, 10, 15, 6),
  });
  expect(two).toEqual({ id: '1', code: '', output: '', error: 'bad', time: null });
  for (const state of [undefined, null, 'x', [], { executions: 'none' }])
    expect(readExecutions(state)).toEqual([]);
});

test('every list but the executions is a table, and an error has its table', () => {
  const tables = readTables({
    customers: [{ id: 1 }],
    executions: [],
    count: 3,
    todo: [],
    errors: { todo: 'no such table', gone: 'lost' },
  });
  expect(tables).toEqual([
    { key: 'customers', rows: [{ id: 1 }], error: null },
    { key: 'todo', rows: [], error: 'no such table' },
    { key: 'gone', rows: [], error: 'lost' },
  ]);
  expect(readTables(undefined)).toEqual([]);
});

test('rows need not be alike', () => {
  const rows = [{ a: 1, b: { c: 2 } }, { d: null }, 'plain', [1]];
  expect(columnsOf(rows)).toEqual(['a', 'b', 'd', 'value']);
  expect(cellOf(rows[0], 'a')).toBe('1');
  expect(cellOf(rows[0], 'b')).toBe('{"c":2}');
  expect(cellOf(rows[1], 'd')).toBe('–');
  expect(cellOf(rows[2], 'value')).toBe('plain');
  expect(cellOf(rows[2], 'a')).toBe('–');
});

test('keys become titles', () => {
  expect(titleOf('customers')).toBe('Customers');
  expect(titleOf('openOrders')).toBe('Open Orders');
  expect(titleOf('to_do-items')).toBe('To do items');
});

test('rows are searched in every column and ordered as people expect', () => {
  const rows = [
    { id: 10, name: 'Zoë' },
    { id: 9, name: 'alice' },
    { id: 2, name: 'Bob 10' },
  ];
  const ids = (all: unknown[]) => all.map((row) => (row as { id: number }).id);
  expect(ids(arrange(rows, '', null))).toEqual([10, 9, 2]);
  expect(ids(arrange(rows, '', { column: 'id', down: false }))).toEqual([2, 9, 10]);
  expect(ids(arrange(rows, '', { column: 'name', down: true }))).toEqual([10, 2, 9]);
  expect(ids(arrange(rows, ' ALI', null))).toEqual([9]);
  expect(ids(arrange(rows, '10', { column: 'id', down: false }))).toEqual([2, 10]);
  expect(arrange([null, 7, 'x'], 'x', { column: 'value', down: false })).toEqual(['x']);
  expect(
    rows.map(({ id }) => id),
    'they are not touched',
  ).toEqual([10, 9, 2]);
});
