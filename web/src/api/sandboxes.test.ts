import { afterEach, expect, test, vi } from 'vitest';
import {
  calls,
  joinPath,
  portUrl,
  readExec,
  readListing,
  readNetworkEvent,
  readPiece,
  readSandbox,
  sandboxes,
  readListeners,
} from './sandboxes.ts';

afterEach(() => vi.unstubAllGlobals());

test('a sandbox is read, and what is missing costs a blank', () => {
  const it = readSandbox({
    id: 'sbx_1',
    name: 'one',
    status: 'running',
    created_at: '2026-01-01T00:00:00Z',
    expires_at: 1_800_000_000_000,
    network: { allow: ['a.example'], routes: [1, 'r'] },
    limits: { memory_mb: 512 },
    usage: { memory_bytes: 1024, cpu_ms: 7, pids: 2 },
  });
  expect(it).toMatchObject({
    id: 'sbx_1',
    status: 'running',
    expiresAt: '2027-01-15T08:00:00.000Z',
    network: { allow: ['a.example'], routes: ['r'] },
    memoryMb: 512,
    diskMb: null,
    usage: { memoryBytes: 1024, cpuMs: 7, pids: 2, memoryPeakBytes: null },
    error: null,
  });
  expect(readSandbox(null)).toMatchObject({ id: '', status: 'interrupted' });
  expect(readSandbox({ error: { code: 'x', message: 'why' } }).error).toBe('why');
});

test('an exec never claims an end that was not told', () => {
  expect(readExec({ id: 'e', status: 'running', exit_code: null })).toMatchObject({
    status: 'running',
    exitCode: null,
    signal: null,
  });
  expect(readExec({ status: 'exited', exit_code: 3, command: 'x' })).toMatchObject({ exitCode: 3 });
  expect(readExec({ status: 'exited', exit_code: null, signal: 'KILL', oom: true })).toMatchObject({
    exitCode: null,
    signal: 'KILL',
    oom: true,
  });
  expect(readExec({ status: 'exited', signal: 9 }).signal).toBe('SIGKILL');
  expect(readExec({ argv: ['ls', 'a b'] }).command).toBe('ls "a b"');
  expect(readExec({ status: 'of another age' }).status).toBe('failed');
});

test('a listing has folders first and no name that leads elsewhere', () => {
  const { entries, more } = readListing({
    entries: [
      { name: 'b10', kind: 'file', mode: 0o644, size: 3, mtime: '2026-01-01T00:00:00Z' },
      { name: 'b2', kind: 'file' },
      { name: 'z', kind: 'dir' },
      { name: '..', kind: 'dir' },
      { name: 'a/../../etc', kind: 'file' },
      { name: '', kind: 'file' },
    ],
    more: true,
  });
  expect(entries.map(({ name }) => name)).toEqual(['z', 'b2', 'b10']);
  expect(entries[2]).toMatchObject({ mode: '0644', size: 3 });
  expect(more).toBe(true);
});

test('a piece of output is bytes, whichever way it came', () => {
  const { stream, offset, bytes } = readPiece('stdout', { offset: 5, data: 'é' });
  expect({ stream, offset, bytes: [...bytes] }).toEqual({
    stream: 'stdout',
    offset: 5,
    bytes: [0xc3, 0xa9],
  });
  expect([...readPiece('stderr', { offset: 0, data_base64: '/wA=' }).bytes]).toEqual([255, 0]);
});

test('a network event was let out only if it says so', () => {
  expect(
    readNetworkEvent({
      host: 'a',
      port: 443,
      state: 'ended',
      method: 'GET',
      path: '/x',
      status: 200,
      bytes_in: 5,
      bytes_out: 6,
      route: 'models',
    }),
  ).toMatchObject({ host: 'a:443 by models', state: 'ended', what: 'GET /x → 200', bytes: 11 });
  expect(readNetworkEvent({ state: 'refused', reason: 'why' })).toMatchObject({
    state: 'refused',
    what: 'why',
  });
  expect(readNetworkEvent({ state: 'refused', host: '*', port: 0, count: 1200 }).host).toBe(
    '*, 1,200 times',
  );
  expect(readNetworkEvent({ state: 'new word' }).state).toBe('refused');
});

test('paths and ids are escaped in addresses', async () => {
  expect(calls.readFile('sbx_1', '/a b&c#d').path).toBe(
    '/v1/sandboxes/sbx_1/files?path=%2Fa+b%26c%23d',
  );
  expect(calls.get('../keys').path).toBe('/v1/sandboxes/..%2Fkeys');
  expect(joinPath('/', 'a')).toBe('/a');
  expect(joinPath('/work', 'a')).toBe('/work/a');
});

test('a file that is too large is not fetched to its end', async () => {
  let pulled = 0;
  let cancelled = false;
  const body = () =>
    new ReadableStream({
      pull(controller) {
        pulled++;
        controller.enqueue(new Uint8Array(1000).fill(65));
        if (pulled === 1000) controller.close();
      },
      cancel() {
        cancelled = true;
      },
    });
  vi.stubGlobal('fetch', async () => new Response(body()));
  expect(await sandboxes.readFile('sbx_1', '/work/x', 5000)).toBeNull();
  expect(cancelled).toBe(true);
  expect(pulled).toBeLessThan(20);
  vi.stubGlobal('fetch', async () => new Response('text'));
  const bytes = await sandboxes.readFile('sbx_1', '/work/x', 5000);
  expect(new TextDecoder().decode(bytes ?? undefined)).toBe('text');
});

test('the list is of what lives now, also when one ends in between', async () => {
  vi.stubGlobal('fetch', async (path: string) => {
    if (path.endsWith('/gone')) return Response.json({}, { status: 404 });
    if (path.endsWith('/one'))
      return Response.json({ id: 'one', status: 'running', usage: { memory_bytes: 7 } });
    return Response.json({
      sandboxes: ['one', 'gone', 'done'].map((id) => ({
        id,
        status: id === 'done' ? 'stopped' : 'running',
        usage: { memory_bytes: 1 },
      })),
    });
  });
  const all = await sandboxes.list();
  expect(all.map(({ id, usage }) => [id, usage.memoryBytes])).toEqual([
    ['one', 7],
    ['gone', 1],
    ['done', 1],
  ]);
});

test('a file is written as it is', async () => {
  const fetch = vi.fn(async (_path: string, _init?: RequestInit) => new Response(null));
  vi.stubGlobal('fetch', fetch);
  await sandboxes.writeFile('sbx_1', '/work/x', 'text');
  const [path, init] = fetch.mock.calls[0]!;
  expect(path).toBe('/v1/sandboxes/sbx_1/files?path=%2Fwork%2Fx&parents=1');
  expect(init).toMatchObject({ method: 'PUT', body: 'text' });
  expect(init?.headers).toMatchObject({ 'Content-Type': 'application/octet-stream' });
});

test('a port is never at the origin of the page', () => {
  const at = { protocol: 'http:', port: '8787' };
  expect(portUrl('sbx_1', 8000, at)).toBe('http://8000-sbx_1.localhost:8787/');
});

test('what listens is told from what is connected, and from the way out', () => {
  const table = `  sl  local_address rem_address   st tx_queue
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000
   1: 0100007F:1F40 0100007F:D431 01 00000000:00000000
   2: 0100007F:0C38 00000000:0000 0A 00000000:00000000
   3: 00000000000000000000000001000000:0BB8 00000000000000000000000000000000:0000 0A 0
   x: <img src=x> 0A`;
  expect(readListeners(table)).toEqual([3000, 8000]);
  expect(readListeners('')).toEqual([]);
});
