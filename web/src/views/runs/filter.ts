/** What the list of runs is asked for, in the form, in the address and in the request. */
import type { RunQuery } from '../../api/client.ts';
import type { Run } from '../../api/types.ts';

export type Filter = {
  kind: string;
  status: string;
  text: string;
  /** A number of milliseconds back from now; 'own': from and to; '': all of them. */
  time: string;
  from: string;
  to: string;
  /** The id of a key. */
  key: string;
};

export const noFilter: Filter = {
  kind: '',
  status: '',
  text: '',
  time: '',
  from: '',
  to: '',
  key: '',
};

export const kinds: readonly [string, string][] = [
  ['', 'Every kind'],
  ['run', 'Programs'],
  ['execution', 'Programs of agents'],
  ['chat', 'Chat'],
  ['code', 'Coding'],
  ['execute', '/execute'],
  ['sdk', '/execute/sdk'],
];
export const statuses = ['running', 'done', 'failed', 'cancelled', 'interrupted'];

const hourMs = 3_600_000;
export const spans: readonly [string, string][] = [
  ['', 'Any time'],
  [String(hourMs), 'The last hour'],
  [String(24 * hourMs), 'The last day'],
  [String(7 * 24 * hourMs), 'The last week'],
  [String(30 * 24 * hourMs), 'The last 30 days'],
  ['own', 'From … to …'],
];

export function readFilter(search: string): Filter {
  const fields = new URLSearchParams(search);
  const read = (key: keyof Filter) => fields.get(key) ?? '';
  const time = read('time');
  return {
    kind: kinds.some(([kind]) => kind === read('kind')) ? read('kind') : '',
    status: statuses.includes(read('status')) ? read('status') : '',
    text: read('text').slice(0, 200),
    time: spans.some(([span]) => span === time) ? time : '',
    from: read('from'),
    to: read('to'),
    key: read('key').slice(0, 60),
  };
}

export function writeFilter(filter: Filter): string {
  const fields = new URLSearchParams();
  for (const [key, value] of Object.entries(filter)) if (value) fields.set(key, value);
  const text = fields.toString();
  return text === '' ? '' : `?${text}`;
}

const rfc3339 = (local: string): string | null => {
  const time = Date.parse(local);
  return Number.isNaN(time) ? null : new Date(time).toISOString();
};

/** Whole minutes, so that what is asked for stays the same for a while. */
export function queryOf(filter: Filter, now: number): RunQuery {
  const query: RunQuery = {};
  if (filter.kind) query.kind = filter.kind;
  if (filter.status) query.status = filter.status;
  if (filter.key) query.key = filter.key;
  if (filter.text.trim()) query.text = filter.text.trim();
  if (filter.time === 'own') {
    const [since, until] = [rfc3339(filter.from), rfc3339(filter.to)];
    if (since) query.since = since;
    if (until) query.until = until;
  } else if (filter.time) {
    const since = now - Number(filter.time);
    query.since = new Date(Math.floor(since / 60_000) * 60_000).toISOString();
  }
  return query;
}

/** Whether a run that is loaded is to be shown: a server that is older leaves some of it to us. */
export function isWanted(run: Run, query: RunQuery): boolean {
  const began = Date.parse(run.createdAt);
  if (query.status && run.status !== query.status) return false;
  if (query.since && began < Date.parse(query.since)) return false;
  if (query.until && began > Date.parse(query.until)) return false;
  const words = (query.text ?? '').toLowerCase();
  return `${run.title} ${run.id} ${run.error?.message ?? ''}`.toLowerCase().includes(words);
}
