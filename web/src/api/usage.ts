/** What each key used, by day: GET /v1/usage. */
import { api } from './client.ts';
import { list, number, numberOrNull, object, readTokens, text, type Tokens } from './types.ts';

export type Usage = {
  key: string;
  day: string;
  type: string;
  tasks: number;
  done: number;
  wallMs: number;
  /** null: the server does not say. */
  tokens: Tokens | null;
  costUsd: number | null;
};

export type Today = {
  key: string;
  tokens: number;
  usd: number;
  /** null: there is no limit. */
  tokensPerDay: number | null;
  usdPerDay: number | null;
};

export type UsageAnswer = { rows: Usage[]; today: Today[] };

function readRow(item: unknown): Usage {
  const it = object(item);
  return {
    key: text(it.key),
    day: text(it.day),
    type: text(it.kind) || text(it.type),
    tasks: number(it.jobs) + number(it.tasks),
    done: number(it.done),
    wallMs: number(it.wall_ms),
    tokens: readTokens(it),
    costUsd: numberOrNull(it.cost_usd),
  };
}

function readToday(item: unknown): Today {
  const it = object(item);
  return {
    key: text(it.key),
    tokens: number(it.tokens) + number(it.held_tokens),
    usd: number(it.charged_usd) + number(it.held_usd),
    tokensPerDay: numberOrNull(it.tokens_per_day),
    usdPerDay: numberOrNull(it.usd_per_day),
  };
}

/** Jobs of every kind where the server counts them; an older one has the tasks alone. */
export function readUsage(value: unknown): UsageAnswer {
  const { jobs, usage, today } = object(value);
  return { rows: list(jobs ?? usage).map(readRow), today: list(today).map(readToday) };
}

export const usagePath = (since: string): string => `/v1/usage?since=${since}`;

export const loadUsage = async (since: string, signal: AbortSignal): Promise<UsageAnswer> =>
  readUsage(await api.json(usagePath(since), { signal }));

export type Sum = Omit<Usage, 'key' | 'day' | 'type'>;

export function sumOf(rows: readonly Usage[]): Sum {
  const add = (pick: (row: Usage) => number | null): number | null =>
    rows.every((row) => pick(row) === null)
      ? null
      : rows.reduce((sum, row) => sum + (pick(row) ?? 0), 0);
  const input = add((row) => row.tokens?.input ?? null);
  return {
    tasks: add((row) => row.tasks) ?? 0,
    done: add((row) => row.done) ?? 0,
    wallMs: add((row) => row.wallMs) ?? 0,
    tokens:
      input === null ? null : { input, output: add((row) => row.tokens?.output ?? null) ?? 0 },
    costUsd: add((row) => row.costUsd),
  };
}

/** The days from one to the other, both of them in. */
export function daysOf(first: string, last: string): string[] {
  const days: string[] = [];
  const end = Date.parse(last);
  for (let at = Date.parse(first); at <= end && days.length < 400; at += 86_400_000)
    days.push(new Date(at).toISOString().slice(0, 10));
  return days;
}
