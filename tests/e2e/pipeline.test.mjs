// Requests that arrive together on one connection: what one answer sets off must not reach into the next.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { raw, request, slow, startCay, statuses } from '../lib/cay.mjs';

/** One request as text. */
export function text(method, path, { host = 'localhost', body, headers = {} } = {}) {
  const all = { Host: host, ...headers };
  if (body !== undefined) all['Content-Length'] = String(Buffer.byteLength(body));
  const head = Object.entries(all).map(([k, v]) => `${k}: ${v}\r\n`).join('');
  return `${method} ${path} HTTP/1.1\r\n${head}\r\n${body ?? ''}`;
}
const run = (body) => text('POST', '/v1/run', { body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } });
const message = (name, words) =>
  text('POST', `/v1/agents/todo-agent/${name}/messages`, {
    body: JSON.stringify({ text: words }),
    headers: { Accept: 'application/json' },
  });

describe('requests that come together', () => {
  let cay;
  before(async () => {
    cay = await startCay();
  });
  after(() => cay.stop());

  /** Sends them in one write, followed by one to /health whose answer ends the wait. */
  async function together(requests) {
    const all = [...requests, text('GET', '/health', { headers: { Connection: 'close' } })].join('');
    const { text: got, ended } = await raw(cay, all, { ms: 30_000 * slow });
    assert.equal(ended, 'end', got);
    assert.equal(statuses(got).length, requests.length + 1, got);
    assert.equal((await request(cay, '/health')).status, 200);
    return statuses(got);
  }

  const sleeps = 'export default async () => { await new Promise((r) => setTimeout(r, 1e5)); }';
  const hoards = 'export default () => { const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1)); }';

  test('calls of one warm program whose time limit ends them', async () => {
    const call = run({ id: 'sleeps', code: sleeps, limits: { wall_ms: 200 } });
    assert.deepEqual(await together([call, call, call]), [200, 200, 200, 200]);
  });

  test('a warm program that exceeds its time, then another under its id', async () => {
    const call = run({ id: 'changes', code: sleeps, limits: { wall_ms: 200 } });
    const other = run({ id: 'changes', code: 'export default () => 2' });
    assert.deepEqual(await together([call, other, call, other]), [200, 200, 200, 200, 200]);
  });

  test('calls of one warm program whose memory limit ends them', async () => {
    const call = run({ id: 'hoards', code: hoards, limits: { memory_bytes: 64 << 20 } });
    await together([call, call, call, call]);
  });

  test('programs under one id that do not compile', async () => {
    const call = run({ id: 'broken', code: 'export default (' });
    await together([call, call, run({ id: 'broken', code: 'export default () => 1' }), call]);
  });

  test('requests to the host of a worker that exceeds its limits', async () => {
    const code = `export default { async fetch(request) {
      if (new URL(request.url).pathname === '/fine') return new Response('fine');
      const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1));
    } }`;
    const put = await request(cay, '/v1/workers/hungry', { method: 'PUT', body: JSON.stringify({ code, limits: { memory_bytes: 64 << 20 } }) });
    assert.equal(put.status, 200, put.body);
    const get = (path) => text('GET', path, { host: 'hungry.localhost' });
    const got = await together([get('/'), get('/'), get('/fine'), get('/')]);
    assert.equal(got[2], 200, 'a worker that died answers the next request');
  });

  test('a message to an agent and the removal of the agent, or of its messages', async () => {
    const remove = (rest) => text('DELETE', `/v1/agents/todo-agent/gone${rest}`);
    for (const rest of ['', '/messages'])
      await together([message('gone', 'hello'), remove(rest), message('gone', 'hello'), remove(rest)]);
  });

  test('more of them than are taken in one turn of the loop', async () => {
    const got = await together(Array.from({ length: 500 }, (_, i) => (i % 7 ? text('GET', '/health') : run({ code: `export default () => ${i}` }))));
    assert.ok(got.every((s) => s === 200));
  });
});
