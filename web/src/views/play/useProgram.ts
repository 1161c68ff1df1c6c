import { useCallback, useEffect, useRef, useState } from 'react';
import { ApiError, request } from '../../api/client.ts';
import { LogTail, readLog, readProgram, type LogLine, type Program } from '../../api/program.ts';
import { serverEvents } from '../../api/sse.ts';

export type Running = {
  state: 'idle' | 'running' | 'ended' | 'stopped';
  startedAt: number;
  /** The newest. */
  lines: LogLine[];
  before: number;
  program: Program | null;
  /** The server did not run it, or the line was cut. */
  problem: string | null;
};

const idle: Running = {
  state: 'idle',
  startedAt: 0,
  lines: [],
  before: 0,
  program: null,
  problem: null,
};
/** A program may print faster than a page can be drawn. */
const drawEveryMs = 40;

/** Runs a program and gathers its lines as they come. */
export function useProgram(): {
  run: Running;
  start: (body: unknown) => Promise<void>;
  stop: () => void;
  show: (program: Program) => void;
} {
  const [run, setRun] = useState<Running>(idle);
  const abort = useRef<AbortController | null>(null);
  useEffect(() => () => abort.current?.abort(), []);

  const start = useCallback(async (body: unknown) => {
    abort.current?.abort();
    const mine = new AbortController();
    abort.current = mine;
    const startedAt = Date.now();
    setRun({ ...idle, state: 'running', startedAt });
    const tail = new LogTail();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const set = (change: Partial<Running>) => {
      if (abort.current === mine) setRun((before) => ({ ...before, ...change }));
    };
    const draw = () => {
      timer = undefined;
      set(tail.newest());
    };
    let program: Program | null = null;
    let problem: string | null = null;
    try {
      const response = await request('/v1/run', {
        method: 'POST',
        body,
        headers: { Accept: 'text/event-stream' },
        signal: mine.signal,
      });
      for await (const { event, data } of serverEvents(response)) {
        if (event === 'log') {
          tail.add(readLog(JSON.parse(data)));
          timer ??= setTimeout(draw, drawEveryMs);
        } else if (event === 'result') program = readProgram(JSON.parse(data));
        else if (event === 'error') problem = String(JSON.parse(data));
      }
      if (!program && !problem) problem = 'The connection ended before the program did';
    } catch (cause) {
      if (!mine.signal.aborted)
        problem = cause instanceof ApiError ? cause.message : 'The connection was lost';
    }
    clearTimeout(timer);
    if (mine.signal.aborted && !program) set({ state: 'stopped', ...tail.newest() });
    else set({ state: 'ended', ...tail.newest(), program, problem });
  }, []);

  // Shown at once, whatever is still on its way.
  const stop = useCallback(() => {
    abort.current?.abort();
    setRun((now) => (now.state === 'running' ? { ...now, state: 'stopped' } : now));
  }, []);
  const show = useCallback((program: Program) => {
    abort.current?.abort();
    abort.current = null;
    setRun({ ...idle, state: 'ended', lines: program.logs, program });
  }, []);
  return { run, start, stop, show };
}
