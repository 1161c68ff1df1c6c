import { expect, test } from 'vitest';
import { readRun } from '../../api/types.ts';
import { isWanted, noFilter, queryOf, readFilter, writeFilter } from './filter.ts';

const now = Date.parse('2026-03-04T05:06:07.089Z');

test('a filter goes through an address and back', () => {
  const filter = { ...noFilter, kind: 'chat', status: 'failed', text: 'a&b=c d', time: '3600000' };
  expect(readFilter(writeFilter(filter))).toEqual(filter);
  expect(writeFilter(noFilter)).toBe('');
});

test('an address that makes no sense asks for everything', () => {
  expect(readFilter('?kind=<b>&status=odd&time=12')).toEqual(noFilter);
});

test('times are told as the server reads them', () => {
  expect(queryOf({ ...noFilter, time: '3600000' }, now)).toEqual({
    since: '2026-03-04T04:06:00.000Z',
  });
  expect(queryOf({ ...noFilter, time: 'own', from: 'x', to: '2026-03-04T00:00:00Z' }, now)).toEqual(
    { until: '2026-03-04T00:00:00.000Z' },
  );
});

test('what is loaded is checked against all of it', () => {
  const run = readRun({
    id: 'run_1',
    status: 'failed',
    title: 'Hello',
    error: { message: 'Boom' },
  });
  const timed = { ...run, createdAt: '2026-03-04T04:00:00Z' };
  expect(isWanted(timed, { text: 'bOOm', status: 'failed' })).toBe(true);
  expect(isWanted(timed, { status: 'done' })).toBe(false);
  expect(isWanted(timed, { since: '2026-03-04T04:06:00Z' })).toBe(false);
  expect(isWanted(timed, { until: '2026-03-04T03:06:00Z' })).toBe(false);
});
