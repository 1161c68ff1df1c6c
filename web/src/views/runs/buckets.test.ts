import { expect, test } from 'vitest';
import { readRun } from '../../api/types.ts';
import { bucketRuns, quantile } from './buckets.ts';

const at = (ms: number, more: object = {}) =>
  readRun({ status: 'done', created_at: new Date(ms).toISOString(), duration_ms: 10, ...more });

test('runs fall into the part of the time they began in', () => {
  const runs = [
    at(0),
    at(99, { status: 'failed', duration_ms: 30, usage: { cost_usd: 0.5 } }),
    at(100),
    at(400, { usage: { cost_usd: 0.25 } }),
  ];
  const found = bucketRuns(runs, 0, 400, 4, String);
  expect(found.count.map(({ values }) => values)).toEqual([
    [1, 1],
    [1, 0],
    [0, 0],
    [1, 0],
  ]);
  expect(found.latency[0]?.values).toEqual([30, 30]);
  expect(found.latency[2]?.values).toEqual([null, null]);
  expect(found.spend.map(({ values }) => values[0])).toEqual([0.5, null, null, 0.25]);
  expect([found.total, found.failed, found.costUsd]).toEqual([4, 1, 0.75]);
});

test('what is outside the time, or has none, is left out', () => {
  const found = bucketRuns([at(-1), at(0, { created_at: 'x' }), at(5)], 0, 10, 2, String);
  expect(found.total).toBe(1);
});

test('a quantile of nothing is nothing', () => {
  expect(quantile([], 0.5)).toBe(null);
  expect(quantile([1, 2, 3, 4], 0.5)).toBe(3);
  expect(quantile([1], 0.95)).toBe(1);
});
