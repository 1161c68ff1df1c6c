// One key that takes all it can get, and another that asks for little: the second is always served.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { bearer, createKey, request, slow, startCay, until } from '../lib/cay.mjs';

describe('a greedy key and a modest one', () => {
  let cay;
  let greedy;
  let modest;
  let admin;
  before(async () => {
    cay = await startCay({
      config: {
        require_key: true,
        limits: { isolates: 4, ready_isolates: 2, waiting_runs: 8, wait_ms: 6000, warm_workers: 4, facets: 4 },
      },
    });
    greedy = (await createKey(cay.dataDir, { name: 'greedy' })).text;
    modest = (await createKey(cay.dataDir, { name: 'modest' })).text;
    admin = (await createKey(cay.dataDir, { name: 'admin', scope: 'admin' })).text;
  });
  after(() => cay.stop());

  const post = (key, body) => request(cay, '/v1/run', { method: 'POST', headers: bearer(key), body: JSON.stringify(body) });
  const ok = async (key, body, what) => {
    const start = Date.now();
    const got = await post(key, body);
    assert.equal(got.status, 200, `${what}: ${got.body}`);
    assert.equal(got.json().status, 'done', `${what}: ${got.body}`);
    return Date.now() - start;
  };
  const status = async () => (await request(cay, '/v1/status', { headers: bearer(admin) })).json();
  const sleeps = (ms) => `export default async () => { await new Promise((r) => setTimeout(r, ${ms})); return 1 }`;

  test('isolates at work: the greedy one never has all of them', async () => {
    const all = Array.from({ length: 12 }, () => post(greedy, { code: sleeps(2000 * slow) }));
    await until(async () => (await status()).isolates.busy >= 3, 'the greedy one at work');
    for (let i = 0; i < 5; i++) {
      const ms = await ok(modest, { code: 'export default () => 1' }, 'a run beside it');
      assert.ok(ms < 1500 * slow, `it waited ${ms} ms`);
    }
    for (const got of await Promise.all(all))
      assert.ok(got.status === 200 || (got.status === 429 && got.headers['retry-after']), got.body);
  });

  test('the queue: who waits for most makes way, and is told so', async () => {
    const all = Array.from({ length: 30 }, () => post(greedy, { code: sleeps(1200) }));
    await until(async () => (await status()).isolates.waiting >= 7, 'a full queue');
    await Promise.all(Array.from({ length: 4 }, () => ok(modest, { code: sleeps(50) }, 'a run that must wait')));
    const answers = await Promise.all(all);
    const refused = answers.filter((a) => a.status === 429);
    assert.ok(refused.length > 0);
    for (const a of refused) {
      assert.equal(a.headers['retry-after'], '1');
      assert.match(a.json().error.message, /limit (waiting_runs|isolates)/);
    }
  });

  test('warm programs that are idle make room, and are not at work', async () => {
    for (let i = 0; i < 8; i++) await ok(greedy, { id: `warm-${i}`, code: `export default () => ${i}` }, 'a warm one');
    // A call is over a moment after its answer.
    await until(async () => (await status()).isolates.busy === 0, 'none at work');
    await ok(modest, { code: 'export default () => 1' }, 'a fresh one');
    for (let i = 0; i < 3; i++) await ok(modest, { id: `mine-${i}`, code: `export default () => ${i}` }, 'a warm one of its own');
    await ok(greedy, { id: 'warm-7', code: 'export default () => 7' }, 'again');
  });

  test('warm programs at work: the greedy one never has all of them', async () => {
    const all = Array.from({ length: 6 }, (_, i) => post(greedy, { id: `busy-${i}`, code: sleeps(1500 * slow) }));
    await until(async () => (await status()).isolates.busy >= 3, 'the greedy one at work');
    await ok(modest, { id: 'mine', code: 'export default () => 1' }, 'a warm one beside them');
    for (const got of await Promise.all(all)) assert.ok([200, 429].includes(got.status), got.body);
  });

  test('databases that are idle make room; those in use are never all of one key', async () => {
    const touch = (name) => ({ code: 'export default (env) => env.db.query("SELECT 1 AS one")', env: { db: { $facet: name } } });
    const hold = (name) => ({
      code: `export default async (env) => { await env.db.query("SELECT 1"); await new Promise((r) => setTimeout(r, ${1500 * slow})); return 1 }`,
      env: { db: { $facet: name } },
    });
    for (let i = 0; i < 10; i++) await ok(greedy, touch(`idle-${i}`), 'one after another');
    for (let i = 0; i < 3; i++) await ok(modest, touch(`mine-${i}`), 'its own');
    const all = Array.from({ length: 4 }, (_, i) => post(greedy, hold(`held-${i}`)));
    await until(async () => (await status()).isolates.busy >= 3, 'the greedy one at work');
    await ok(modest, touch('mine-0'), 'beside them');
    for (const got of await Promise.all(all)) assert.ok([200, 429].includes(got.status), got.body);
  });

  test('a worker that has died answers the next request with another isolate', async () => {
    const code = `export default { fetch(request) {
      if (new URL(request.url).pathname === '/fine') return new Response('fine');
      const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1));
    } }`;
    const put = await request(cay, '/v1/workers/dies', { method: 'PUT', headers: bearer(modest), body: JSON.stringify({ code, limits: { memory_bytes: 64 << 20 } }) });
    const { host } = put.json();
    const get = (path) => request(cay, path, { headers: { Host: `${host}.localhost`, ...bearer(modest) } });
    for (let i = 0; i < 5; i++) {
      assert.match((await get('/')).json().error.message, /memory limit/);
      assert.equal((await get('/fine')).body, 'fine');
    }
  });

  test('a deployed worker opens its own database', async () => {
    const code = 'export default { async fetch(request, env) { return Response.json(await env.db.query("SELECT 5 AS five")) } }';
    const put = await request(cay, '/v1/workers/data', { method: 'PUT', headers: bearer(modest), body: JSON.stringify({ code, env: { db: { $facet: 'new' } } }) });
    assert.equal((await request(cay, '/', { headers: { Host: `${put.json().host}.localhost`, ...bearer(modest) } })).body, '[{"five":5}]');
  });

  test('a program with the id of a deployed worker does not replace it', async () => {
    const put = await request(cay, '/v1/workers/shop', { method: 'PUT', headers: bearer(modest), body: JSON.stringify({ code: 'export default { fetch() { return new Response("deployed") } }' }) });
    const { host } = put.json();
    await ok(modest, { id: 'shop', code: 'export default () => 1' }, 'a run of that id');
    assert.equal((await request(cay, '/', { headers: { Host: `${host}.localhost`, ...bearer(modest) } })).body, 'deployed');
  });
});
