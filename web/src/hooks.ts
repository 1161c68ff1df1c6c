import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from 'react';
import { ApiError } from './api/client.ts';

/** The time in milliseconds, told anew every so often; null stops the clock. */
export function useNow(intervalMs: number | null): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (intervalMs === null) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), intervalMs);
    return () => clearInterval(timer);
  }, [intervalMs]);
  return now;
}

export type Loaded<T> = {
  data: T | null;
  error: ApiError | null;
  reload: () => void;
};

/**
 * Loads something and, given an interval, loads it again and again while the tab is seen. A failed
 * reload keeps the data that is there and sets `error`. `load` is called anew when `deps` change.
 */
export function useLoad<T>(
  load: (signal: AbortSignal) => Promise<T>,
  deps: readonly unknown[],
  intervalMs: number | null = null,
): Loaded<T> {
  const [state, setState] = useState<{ data: T | null; error: ApiError | null }>({
    data: null,
    error: null,
  });
  const [turn, setTurn] = useState(0);
  const latest = useRef(load);
  latest.current = load;

  // Other deps are another thing: what was loaded for the old ones must not be shown for the new.
  useEffect(() => setState({ data: null, error: null }), deps);

  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let busy = false;
    const once = async () => {
      busy = true;
      try {
        const data = await latest.current(abort.signal);
        if (!abort.signal.aborted) setState({ data, error: null });
      } catch (cause) {
        if (abort.signal.aborted) return;
        const error =
          cause instanceof ApiError ? cause : new ApiError(0, 'unknown', 'Something went wrong');
        setState((before) => ({ ...before, error }));
      }
      busy = false;
      if (intervalMs !== null && !abort.signal.aborted) timer = setTimeout(again, intervalMs);
    };
    const again = () => {
      clearTimeout(timer);
      // A hidden tab asks for nothing; visibilitychange wakes it.
      if (!document.hidden && !busy) void once();
    };
    if (intervalMs !== null) document.addEventListener('visibilitychange', again);
    void once();
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', again);
    };
  }, [...deps, turn, intervalMs]);

  return { ...state, reload: useCallback(() => setTurn((n) => n + 1), []) };
}

/** Whether a media query holds, followed as it changes. */
export function useMedia(query: string): boolean {
  return useSyncExternalStore(
    (listener) => {
      const list = matchMedia(query);
      list.addEventListener('change', listener);
      return () => list.removeEventListener('change', listener);
    },
    () => matchMedia(query).matches,
  );
}

/** The value, once it has stayed the same for a while. */
export function useLater<T>(value: T, afterMs: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    if (value === settled) return;
    const timer = setTimeout(() => setSettled(value), afterMs);
    return () => clearTimeout(timer);
  }, [value, settled, afterMs]);
  return settled;
}
