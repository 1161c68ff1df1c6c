/** Runs by the time they began, for charts. */
import type { Run } from '../../api/types.ts';
import type { Column } from '../../components/Chart.tsx';

export type Buckets = {
  count: Column[];
  latency: Column[];
  spend: Column[];
  /** Over all of them. */
  total: number;
  failed: number;
  medianMs: number | null;
  costUsd: number | null;
};

/** The value below which that part of the others lies; the list is in order. */
export function quantile(sorted: readonly number[], part: number): number | null {
  if (sorted.length === 0) return null;
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? null;
}

const inOrder = (values: (number | null)[]): number[] =>
  values.filter((value): value is number => value !== null).sort((a, b) => a - b);

const sumOf = (values: readonly (number | null)[]): number | null =>
  values.every((value) => value === null)
    ? null
    : values.reduce<number>((sum, value) => sum + (value ?? 0), 0);

export function bucketRuns(
  runs: readonly Run[],
  from: number,
  to: number,
  parts: number,
  nameOf: (time: number) => string,
): Buckets {
  const step = Math.max(1, (to - from) / parts);
  const groups: Run[][] = Array.from({ length: parts }, () => []);
  for (const run of runs) {
    const at = Math.floor((Date.parse(run.createdAt) - from) / step);
    groups[Math.min(parts - 1, at)]?.push(run);
  }
  const column = (group: (runs: Run[]) => (number | null)[]): Column[] =>
    groups.map((group_, i) => ({ name: nameOf(from + i * step), values: group(group_) }));
  const failedOf = (some: readonly Run[]) =>
    some.filter(({ status }) => status === 'failed' || status === 'interrupted').length;
  const times = (some: readonly Run[]) => inOrder(some.map((run) => run.durationMs));
  const inside = groups.flat();
  return {
    count: column((some) => [some.length - failedOf(some), failedOf(some)]),
    latency: column((some) => [quantile(times(some), 0.5), quantile(times(some), 0.95)]),
    spend: column((some) => [sumOf(some.map((run) => run.costUsd))]),
    total: inside.length,
    failed: failedOf(inside),
    medianMs: quantile(times(inside), 0.5),
    costUsd: sumOf(inside.map((run) => run.costUsd)),
  };
}
