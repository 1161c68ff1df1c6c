import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { backoffMs } from './backoff.ts';
import { StatusFeed } from './feed.ts';
import { lockSession, unlockSession } from './session.ts';

type Stream = { send: (status: object) => void; end: () => void; signal: AbortSignal };
let streams: Stream[];
let refuse: number | null;
let stop: (() => void) | undefined;

beforeEach(() => {
  vi.useFakeTimers();
  streams = [];
  refuse = null;
  vi.stubGlobal('fetch', async (_path: string, init: RequestInit) => {
    if (refuse === 0) throw new TypeError('Failed to fetch');
    if (refuse !== null) return Response.json({ error: {} }, { status: refuse });
    let controller!: ReadableStreamDefaultController<Uint8Array>;
    const body = new ReadableStream<Uint8Array>({ start: (it) => void (controller = it) });
    const signal = init.signal!;
    signal.addEventListener('abort', () => controller.error(new Error('aborted')));
    const text = new TextEncoder();
    streams.push({
      send: (status) =>
        controller.enqueue(text.encode(`event: status\ndata: ${JSON.stringify(status)}\n\n`)),
      end: () => controller.close(),
      signal,
    });
    return new Response(body);
  });
});

afterEach(() => {
  stop?.();
  unlockSession();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

const settle = () => vi.advanceTimersByTimeAsync(0);

async function live() {
  const feed = new StatusFeed();
  stop = feed.start();
  await settle();
  streams[0]!.send({ pid: 1, uptime_ms: 1000, requests_total: 10 });
  await settle();
  expect(feed.snapshot().connection.state).toBe('live');
  return feed;
}

test('rates come from the server’s own clock, and start anew with a new process', async () => {
  const feed = await live();
  expect(feed.snapshot().rates).toEqual([]);
  streams[0]!.send({ pid: 1, uptime_ms: 3000, requests_total: 30 });
  await settle();
  expect(feed.snapshot().rates).toEqual([10]);
  streams[0]!.send({ pid: 2, uptime_ms: 100, requests_total: 1 });
  await settle();
  expect(feed.snapshot().rates).toEqual([]);
  streams[0]!.send({ pid: 2, uptime_ms: 1100, requests_total: 4 });
  await settle();
  expect(feed.snapshot().rates).toEqual([3]);
});

test('only the last minute of rates is kept', async () => {
  const feed = await live();
  for (let i = 1; i <= 90; i++)
    streams[0]!.send({ pid: 1, uptime_ms: 1000 + i * 1000, requests_total: 10 + i });
  await settle();
  expect(feed.snapshot().rates).toHaveLength(60);
});

test('a stream that ends is lost, then tried again, keeping what was known', async () => {
  const feed = await live();
  streams[0]!.end();
  await settle();
  expect(feed.snapshot().connection.state).toBe('lost');
  expect(feed.snapshot().status?.requestsTotal).toBe(10);
  await vi.advanceTimersByTimeAsync(700);
  expect(streams).toHaveLength(2);
  expect(feed.snapshot().connection.state).toBe('lost');
  streams[1]!.send({ pid: 1, uptime_ms: 2000, requests_total: 11 });
  await settle();
  expect(feed.snapshot().connection.state).toBe('live');
});

test('a stream that falls silent is given up', async () => {
  const feed = await live();
  await vi.advanceTimersByTimeAsync(5900);
  expect(streams[0]!.signal.aborted).toBe(false);
  await vi.advanceTimersByTimeAsync(200);
  expect(streams[0]!.signal.aborted).toBe(true);
  expect(feed.snapshot().connection.state).toBe('lost');
});

test('tries grow apart, and one can be asked for', async () => {
  const feed = await live();
  const fetch = vi.spyOn(globalThis, 'fetch');
  refuse = 0;
  streams[0]!.end();
  await vi.advanceTimersByTimeAsync(60_000);
  const tries = fetch.mock.calls.length;
  expect(tries).toBeGreaterThan(5);
  expect(tries).toBeLessThan(12);
  refuse = null;
  feed.retry();
  await settle();
  expect(streams).toHaveLength(2);
});

test('a 401 locks the page, forgets the status, and signing in starts it again', async () => {
  const feed = await live();
  refuse = 401;
  streams[0]!.end();
  await vi.advanceTimersByTimeAsync(700);
  expect(feed.snapshot()).toMatchObject({ connection: { state: 'locked' }, status: null });
  const fetch = vi.spyOn(globalThis, 'fetch');
  await vi.advanceTimersByTimeAsync(60_000);
  expect(fetch).not.toHaveBeenCalled();
  refuse = null;
  unlockSession();
  await settle();
  expect(streams).toHaveLength(2);
});

test('signing out closes the stream', async () => {
  const feed = await live();
  lockSession();
  await settle();
  expect(streams[0]!.signal.aborted).toBe(true);
  expect(feed.snapshot().status).toBeNull();
});

test('a hidden tab lets go of the stream and comes back to it', async () => {
  await live();
  const hidden = vi.spyOn(document, 'hidden', 'get').mockReturnValue(true);
  document.dispatchEvent(new Event('visibilitychange'));
  await vi.advanceTimersByTimeAsync(60_000);
  expect(streams[0]!.signal.aborted).toBe(true);
  expect(streams).toHaveLength(1);
  hidden.mockReturnValue(false);
  document.dispatchEvent(new Event('visibilitychange'));
  await settle();
  expect(streams).toHaveLength(2);
  hidden.mockRestore();
});

test('the back-off doubles up to a quarter of a minute', () => {
  const middle = () => 0.5;
  expect([0, 1, 2, 3, 4, 5, 50].map((n) => backoffMs(n, middle))).toEqual([
    500, 1000, 2000, 4000, 8000, 15_000, 15_000,
  ]);
  expect(backoffMs(0, () => 0)).toBe(400);
  expect(backoffMs(0, () => 1)).toBe(600);
});
