/** Follows a job's events through whatever happens to the line, into a state. */
import { useEffect, useRef, useState } from 'react';
import { backoffMs } from './backoff.ts';
import { ApiError } from './client.ts';
import { LogTail, readLog } from './program.ts';
import { emptyCode, followRun, readCodeEvent, type CodeState } from './code.ts';

type Followed<S> = { state: S; lost: boolean; error: ApiError | null };

/** A job may tell faster than a page can be drawn. */
const drawEveryMs = 40;

/**
 * reduce() gives the state after one more event, isOver() whether there is none to come. Null
 * follows nothing.
 */
export function useEvents<S extends { seq: number }>(
  id: string | null,
  empty: () => S,
  reduce: (state: S, type: string, data: unknown) => S,
  isOver: (state: S) => boolean,
): Followed<S> {
  const [state, setState] = useState(empty);
  const [lost, setLost] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const how = useRef({ reduce, isOver });
  how.current = { reduce, isOver };

  useEffect(() => {
    if (id === null) return;
    const abort = new AbortController();
    let latest = empty();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const draw = () => {
      timer = undefined;
      setState(latest);
      setLost(false);
    };
    const over = () => abort.signal.aborted || how.current.isOver(latest);
    const follow = async () => {
      for (let attempt = 0; !over(); attempt++) {
        try {
          for await (const [seq, type, data] of followRun(id, latest.seq, abort.signal)) {
            latest = { ...how.current.reduce(latest, type, data), seq };
            timer ??= setTimeout(draw, drawEveryMs);
            attempt = 0;
          }
        } catch (cause) {
          if (abort.signal.aborted) return;
          if (cause instanceof ApiError && cause.status >= 400 && cause.status < 500)
            return setError(cause);
        }
        if (over()) return undefined;
        setLost(true);
        await new Promise((done) => setTimeout(done, backoffMs(attempt)));
      }
      return undefined;
    };
    void follow();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [id]);
  return { state, lost, error };
}

const codeIsOver = (state: CodeState): boolean => state.run !== null;

export const useCode = (id: string | null): Followed<CodeState> =>
  useEvents(id, () => emptyCode, readCodeEvent, codeIsOver);

export type Printed = { seq: number; tail: LogTail; over: boolean };
const nothing = (): Printed => ({ seq: 0, tail: new LogTail(), over: false });

function readPrinted(state: Printed, type: string, data: unknown): Printed {
  if (type === 'end') return { ...state, over: true };
  // Each follower has its own: a copy of it for each line of a flood would cost more than the lines.
  if (type === 'log') state.tail.add(readLog(data));
  return state;
}

/** What a program prints while it runs. */
export const usePrinted = (id: string | null): Followed<Printed> =>
  useEvents(id, nothing, readPrinted, ({ over }) => over);
