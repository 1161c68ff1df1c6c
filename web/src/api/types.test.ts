import { expect, test } from 'vitest';
import { readRun, readRunDetail, readRunPage, readStatus } from './types.ts';

test('a status that lacks everything still makes a page', () => {
  for (const nothing of [
    {},
    null,
    [],
    'x',
    { features: 3, children: {}, model: null, key: null },
  ]) {
    const status = readStatus(nothing);
    expect(status.features).toEqual([]);
    expect(status.children).toEqual([]);
    expect(status.key).toBeNull();
    expect(status.requestsTotal).toBe(0);
  }
});

test('a word for a feature that is not known does not pass for ok', () => {
  const status = readStatus({ features: [{ name: 'x', status: 'splendid' }] });
  expect(status.features[0]?.status).toBe('degraded');
});

test('a run keeps its error, its detail and its events', () => {
  const run = readRunDetail({
    id: 'run_1',
    status: 'failed',
    error: { code: 'limit_time', message: 'too long' },
    detail: { a: 1 },
    events: [{ seq: 1, time: 't', type: 'console', data: 'hi' }, { seq: 2 }],
  });
  expect(run.error).toEqual({ code: 'limit_time', message: 'too long' });
  expect(run.detail).toEqual({ a: 1 });
  expect(run.events).toHaveLength(2);
  expect(run.events[0]).toEqual({ seq: 1, time: 't', type: 'console', data: 'hi' });
  expect(run.events[1]?.data).toBeNull();
  expect(readRun({ status: 'running' }).error).toBeNull();
  expect(readRunPage({ runs: [{ id: 'a' }], next_cursor: 'b' }).nextCursor).toBe('b');
});
