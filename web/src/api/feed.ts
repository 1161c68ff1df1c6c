/**
 * The live status: one event stream per tab, kept open while the tab is seen. It reconnects with
 * back-off when the stream ends, fails or falls silent, waits while the session is locked, and lets
 * go while the tab is hidden (browsers allow few connections to one server over HTTP/1.1).
 */
import { createContext, useContext, useSyncExternalStore } from 'react';
import { backoffMs } from './backoff.ts';
import { request } from './client.ts';
import { sessionIsLocked, subscribeSession } from './session.ts';
import { serverEvents } from './sse.ts';
import { readStatus, type Status } from './types.ts';

export type Connection =
  | { state: 'connecting' }
  | { state: 'live' }
  | { state: 'lost'; retryAt: number }
  | { state: 'locked' };

export type FeedSnapshot = {
  connection: Connection;
  status: Status | null;
  /** Requests per second between one event and the next, oldest first. */
  rates: readonly number[];
};

export const rateSamples = 60;
/** The server sends once a second: after this long without a word the line is dead. */
const silenceMs = 6_000;

export class StatusFeed {
  #snapshot: FeedSnapshot = { connection: { state: 'connecting' }, status: null, rates: [] };
  #listeners = new Set<() => void>();
  #abort: AbortController | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #attempt = 0;
  #started = false;

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  snapshot = (): FeedSnapshot => this.#snapshot;

  /** Returns the function that stops it. */
  start(): () => void {
    this.#started = true;
    const wake = () => this.#wake();
    const unsubscribe = subscribeSession(wake);
    document.addEventListener('visibilitychange', wake);
    window.addEventListener('online', this.retry);
    this.#wake();
    return () => {
      this.#started = false;
      unsubscribe();
      document.removeEventListener('visibilitychange', wake);
      window.removeEventListener('online', this.retry);
      this.#close();
    };
  }

  /** Tries again now rather than when the back-off says. */
  retry = (): void => {
    if (this.#snapshot.connection.state !== 'lost') return;
    this.#close();
    this.#wake();
  };

  #set(change: Partial<FeedSnapshot>): void {
    this.#snapshot = { ...this.#snapshot, ...change };
    for (const listener of this.#listeners) listener();
  }

  #close(): void {
    clearTimeout(this.#timer);
    this.#abort?.abort();
    this.#abort = null;
  }

  /** Looks at the world and opens, keeps or closes the stream. */
  #wake(): void {
    if (!this.#started) return;
    if (sessionIsLocked()) {
      this.#close();
      // What a signed-out person may not fetch, the page does not go on showing.
      this.#set({ connection: { state: 'locked' }, status: null, rates: [] });
      return;
    }
    if (document.hidden) {
      this.#close();
      return;
    }
    if (this.#abort) return;
    clearTimeout(this.#timer);
    if (this.#snapshot.connection.state === 'locked') {
      this.#attempt = 0;
      this.#set({ connection: { state: 'connecting' } });
    }
    void this.#run();
  }

  async #run(): Promise<void> {
    const abort = new AbortController();
    this.#abort = abort;
    let watchdog = setTimeout(() => abort.abort(), silenceMs);
    try {
      const response = await request('/v1/status', {
        headers: { Accept: 'text/event-stream' },
        signal: abort.signal,
      });
      for await (const event of serverEvents(response)) {
        if (this.#abort !== abort) return;
        clearTimeout(watchdog);
        watchdog = setTimeout(() => abort.abort(), silenceMs);
        if (event.event === 'status') this.#receive(readStatus(JSON.parse(event.data)));
      }
    } catch {
      // Every way to fail ends the same: below.
    } finally {
      clearTimeout(watchdog);
    }
    // Closed on purpose, and perhaps opened anew: the newer call has the say.
    if (this.#abort !== abort) return;
    this.#abort = null;
    if (sessionIsLocked()) return;
    const delay = backoffMs(this.#attempt++);
    this.#timer = setTimeout(() => this.#wake(), delay);
    this.#set({ connection: { state: 'lost', retryAt: Date.now() + delay } });
  }

  #receive(status: Status): void {
    const before = this.#snapshot.status;
    let rates = this.#snapshot.rates;
    const sameProcess = before !== null && before.pid === status.pid;
    const elapsedMs = before ? status.uptimeMs - before.uptimeMs : 0;
    if (!sameProcess || elapsedMs <= 0) {
      rates = before === null || sameProcess ? rates : [];
    } else {
      const rate = Math.max(0, status.requestsTotal - before.requestsTotal) / (elapsedMs / 1000);
      rates = [...rates, rate].slice(-rateSamples);
    }
    this.#attempt = 0;
    this.#set({ connection: { state: 'live' }, status, rates });
  }
}

export const FeedContext = createContext<StatusFeed | null>(null);

export function useFeed(): FeedSnapshot & { retry: () => void } {
  const feed = useContext(FeedContext);
  if (!feed) throw new Error('useFeed needs a FeedContext');
  return { ...useSyncExternalStore(feed.subscribe, feed.snapshot), retry: feed.retry };
}
