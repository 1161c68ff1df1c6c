import { expect, test } from 'vitest';
import { daysOf, readUsage, sumOf } from './usage.ts';

test('rows are read with what an older server leaves out', () => {
  const rows = readUsage({
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
