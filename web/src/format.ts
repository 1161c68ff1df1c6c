/** Numbers and times as people read them. */

const byteUnits = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

export function formatBytes(bytes: number | null): string {
  if (bytes === null) return '–';
  let value = Math.max(0, bytes);
  let unit = 0;
  while (value >= 1024 && unit < byteUnits.length - 1) {
    value /= 1024;
    unit++;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${byteUnits[unit]}`;
}

/** The two largest units that matter: `3 d 4 h`, `2 min 5 s`, `1.25 s`, `40 ms`. */
export function formatDuration(ms: number | null): string {
  if (ms === null) return '–';
  const value = Math.max(0, ms);
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 10_000) return `${(Math.floor(value / 10) / 100).toFixed(2)} s`;
  return formatAge(value);
}

/** The same in whole seconds, for things that count upward before one's eyes. */
export function formatAge(ms: number | null): string {
  if (ms === null) return '–';
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  const days = Math.floor(hours / 24);
  const two = (a: number, unitA: string, b: number, unitB: string) =>
    b === 0 ? `${a} ${unitA}` : `${a} ${unitA} ${b} ${unitB}`;
  if (days > 0) return two(days, 'd', hours % 24, 'h');
  if (hours > 0) return two(hours, 'h', minutes % 60, 'min');
  if (minutes > 0) return two(minutes, 'min', seconds % 60, 's');
  return `${seconds} s`;
}

/** `just now`, `12 s ago`, `5 min ago`, `3 h ago`, then the day. */
export function formatAgo(time: string, now: number): string {
  const then = Date.parse(time);
  if (Number.isNaN(then)) return '–';
  const seconds = Math.floor((now - then) / 1000);
  if (seconds < 2) return 'just now';
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return formatDay(then);
}

const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric' });
const full = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

export const formatDay = (time: number): string => day.format(time);

export function formatTime(time: string | null): string {
  const then = time === null ? NaN : Date.parse(time);
  return Number.isNaN(then) ? '–' : full.format(then);
}

export function formatRate(perSecond: number): string {
  return perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond).toLocaleString('en');
}

export const formatCount = (n: number | null): string =>
  n === null ? '–' : n.toLocaleString('en');

/** Small sums keep what makes them more than nothing. */
export function formatCost(usd: number | null): string {
  if (usd === null) return '–';
  if (usd === 0) return '$0';
  return usd < 0.01 ? `$${usd.toPrecision(2)}` : `$${usd.toFixed(usd < 1 ? 3 : 2)}`;
}

export const formatTokens = (tokens: { input: number; output: number } | null): string =>
  tokens ? `${formatCount(tokens.input)} in, ${formatCount(tokens.output)} out` : '–';

export const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
