import { expect, test } from 'vitest';
import { daysOf, readUsage, sumOf } from './usage.ts';

test('rows are read with what an older server leaves out', () => {
  const { rows } = readUsage({
    usage: [
      { key: '', day: '2026-01-01', type: 'run', tasks: 2, done: 1, wall_ms: 5 },
      {
        key: 'k',
        day: '2026-01-02',
        type: 'sdk',
        tasks: 1,
        done: 1,
        wall_ms: 7,
        cost_usd: 0.5,
        input_tokens: 3,
        output_tokens: 4,
      },
      7,
    ],
  });
  expect(rows[0]).toMatchObject({ key: '', tokens: null, costUsd: null, tasks: 2 });
  expect(rows[1]).toMatchObject({ tokens: { input: 3, output: 4 }, costUsd: 0.5 });
  expect(sumOf(rows)).toEqual({
    tasks: 3,
    done: 2,
    wallMs: 12,
    tokens: { input: 3, output: 4 },
    costUsd: 0.5,
  });
  expect(sumOf([]).costUsd).toBe(null);
});

test('days have no gap', () => {
  expect(daysOf('2026-02-27', '2026-03-01')).toEqual(['2026-02-27', '2026-02-28', '2026-03-01']);
  expect(daysOf('x', 'y')).toEqual([]);
});

test('jobs of every kind count where the server tells them, and what is left of today', () => {
  const { rows, today } = readUsage({
    usage: [{ tasks: 1 }],
    jobs: [
      {
        key: 'k',
        day: '2026-01-01',
        kind: 'chat',
        jobs: 3,
        done: 2,
        input_tokens: 5,
        output_tokens: 6,
        cost_usd: 0.25,
      },
    ],
    today: [
      {
        key: 'k',
        tokens: 10,
        held_tokens: 5,
        charged_usd: 0.5,
        held_usd: 0.25,
        tokens_per_day: 100,
        usd_per_day: null,
      },
    ],
  });
  expect(rows).toMatchObject([
    { type: 'chat', tasks: 3, tokens: { input: 5, output: 6 }, costUsd: 0.25 },
  ]);
  expect(today).toEqual([{ key: 'k', tokens: 15, usd: 0.75, tokensPerDay: 100, usdPerDay: null }]);
});
