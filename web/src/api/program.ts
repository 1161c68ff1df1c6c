/** What is known of a program that ran: the answer of POST /v1/run, and the detail of its run. */
import { object } from './types.ts';

export type LogLine = { level: string; time: number; message: string };

export type ProgramError = {
  name: string;
  message: string;
  stack: string;
  module: string | null;
  line: number | null;
  column: number | null;
};

export type Program = {
  id: string;
  status: string;
  code: string | null;
  /** What it was asked with besides, where that is known. */
  request: Record<string, unknown>;
  output: string;
  /** undefined: it gave nothing back. */
  result: unknown;
  error: ProgramError | null;
  logs: LogLine[];
  usage: Record<string, number>;
};

const text = (value: unknown): string => (typeof value === 'string' ? value : '');
const number = (value: unknown): number | null =>
  typeof value === 'number' && Number.isFinite(value) ? value : null;

export function readLog(value: unknown): LogLine {
  const it = object(value);
  return { level: text(it.level) || 'log', time: number(it.time) ?? 0, message: text(it.message) };
}

/** The server leaves out the middle of a flood and says so in a line of its own. */
const leftOut = /^\u2026 (\d+) lines and \d+ bytes left out$/;

/** How many lines of the program these stand for. */
export function countLines(lines: readonly LogLine[]): number {
  let count = 0;
  for (const { level, message } of lines)
    count += Number((level === 'warn' && leftOut.exec(message)?.[1]) || 1);
  return count;
}

/** More than these are not drawn. */
export const linesAtOnce = 2000;

export type Newest = { lines: LogLine[]; before: number };

/** The newest lines of a program, however many there are. */
export class LogTail {
  readonly #lines: LogLine[] = [];
  #before = 0;

  add(line: LogLine): void {
    if (this.#lines.push(line) >= 4 * linesAtOnce)
      this.#before += countLines(this.#lines.splice(0, 2 * linesAtOnce));
  }

  newest(): Newest {
    const from = Math.max(0, this.#lines.length - linesAtOnce);
    return {
      lines: this.#lines.slice(from),
      before: this.#before + countLines(this.#lines.slice(0, from)),
    };
  }
}

/** null when the value is the record of something else, such as a chat. */
export function readProgram(value: unknown): Program | null {
  const it = object(value);
  if (!('usage' in it) || !('output' in it)) return null;
  const error = it.error === null || it.error === undefined ? null : object(it.error);
  const usage: Record<string, number> = {};
  for (const [key, item] of Object.entries(object(it.usage))) {
    const n = number(item);
    if (n !== null) usage[key] = n;
  }
  return {
    id: text(it.id),
    status: text(it.status),
    code: typeof it.code === 'string' ? it.code : null,
    request: object(it.request),
    output: text(it.output),
    result: it.result ?? undefined,
    error: error && {
      name: text(error.name) || 'Error',
      message: text(error.message),
      stack: text(error.stack),
      module: typeof error.module === 'string' ? error.module : null,
      line: number(error.line),
      column: number(error.column),
    },
    logs: Array.isArray(it.logs) ? it.logs.map(readLog) : [],
    usage,
  };
}

/** The line of the program people wrote that failed; null when it was in another module. */
export function failedLine(error: ProgramError | null): number | null {
  if (!error || error.line === null) return null;
  return /^(main\.|user-code\.js$)/.test(error.module ?? '') ? error.line : null;
}
