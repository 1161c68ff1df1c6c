// Deployed workers as a client sees them: what was put is called at once, what was deleted is not, and those of an
// earlier version of cay are there after the update.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { bearer, createKey, request, startCay, tempDir, until, withCay } from '../lib/cay.mjs';
import { withLedger, withStore } from '../lib/store.mjs';

const says = (text) => `export default { fetch() { return new Response(${JSON.stringify(text)}) } }`;
const put = (cay, id, text, { headers, ...more } = {}) =>
  request(cay, `/v1/workers/${id}`, { method: 'PUT', headers, body: JSON.stringify({ code: says(text), ...more }) });
const call = (cay, host, options = {}) => request(cay, '/', { ...options, headers: { Host: `${host}.localhost`, ...options.headers } });
const remove = (cay, id, options = {}) => request(cay, `/v1/workers/${id}`, { method: 'DELETE', ...options });

/** As cay.db had them. */
function addOldWorkers(db, rows) {
  db.exec(
    'CREATE TABLE workers (owner TEXT NOT NULL, id TEXT NOT NULL, label TEXT NOT NULL UNIQUE, updated_ms INTEGER NOT NULL,' +
      ' bytes INTEGER NOT NULL DEFAULT 0, code TEXT NOT NULL, PRIMARY KEY (owner, id))',
  );
  const add = db.prepare('INSERT INTO workers VALUES (?, ?, ?, ?, ?, ?)');
  for (const { owner = '', id, label = id, ...code } of rows) add.run(owner, id, label, 1e12, JSON.stringify(code).length, JSON.stringify(code));
}

test('the workers of an earlier version are there after the update, once', async (t) => {
  const first = await startCay({ config: { require_key: true }, key: true });
  t.after(() => first.clean());
  const mine = await createKey(first.dataDir, { name: 'mine' });
  await first.halt();
  // A key of then owned what it made: it is a project under the same id now.
  withLedger(first.dataDir, (db) => {
    db.prepare('INSERT INTO projects (id, name, created_ms) VALUES (?, ?, 0)').run(mine.id, mine.id);
    db.prepare('UPDATE keys SET project = id WHERE id = ?').run(mine.id);
  });
  const label = `shop-${mine.id.slice(-10)}`;
  withStore(first.dataDir, (db) =>
    addOldWorkers(db, [
      { owner: mine.id, id: 'shop', label, code: says('closed shop') },
      { id: 'open', code: says('open to all'), public: true },
    ]));
  const cay = await withCay(t, { dataDir: first.dataDir, config: { require_key: true } });
  const mineToo = { headers: bearer(mine.text) };
  assert.equal((await call(cay, label, mineToo)).body, 'closed shop');
  assert.equal((await call(cay, label)).status, 404, 'it is not for everybody');
  assert.equal((await call(cay, 'open')).body, 'open to all');
  const { workers } = (await request(cay, '/v1/workers', mineToo)).json();
  assert.deepEqual(workers, [{ id: 'shop', host: label, updated_at: new Date(1e12).toISOString(), warm: true, public: false }]);
  const whole = (await request(cay, '/v1/workers/shop', mineToo)).json();
  assert.deepEqual(whole.code, { code: says('closed shop') });
  assert.equal((await remove(cay, 'shop', mineToo)).status, 204);
  await cay.halt();
  withStore(first.dataDir, (db) => assert.throws(() => db.prepare('SELECT * FROM workers'), /no such table/));
  withLedger(first.dataDir, (db) => assert.deepEqual(db.prepare('SELECT id FROM workers').all().map((r) => r.id), ['open']));
  const again = await withCay(t, { dataDir: first.dataDir, config: { require_key: true } });
  assert.equal((await call(again, label, mineToo)).status, 404, 'what was deleted does not come back');
  assert.equal((await call(again, 'open')).body, 'open to all');
});

test('whoever was answered calls what he has put', async (t) => {
  const cay = await withCay(t);
  let newest = 0;
  let over = false;
  // Others call all the time, and see no step back.
  const others = Array.from({ length: 3 }, async () => {
    let seen = 0;
    let calls = 0;
    while (!over) {
      const least = newest;
      const { status, body } = await call(cay, 'news');
      calls++;
      if (status === 404) assert.equal(least, 0, 'it is not there yet');
      else if (status === 200) assert.ok(Number(body) >= Math.max(least, seen), `${body} after ${least} and ${seen}`);
      else assert.match(body, /isolate was ended/, `${status} ${body}`); // put anew while it was under way
      if (status === 200) seen = Number(body);
    }
    return calls;
  });
  for (let i = 1; i <= 25; i++) {
    assert.equal((await put(cay, 'news', String(i))).status, 200);
    newest = i;
    assert.equal((await call(cay, 'news')).body, String(i));
  }
  over = true;
  for (const calls of await Promise.all(others)) assert.ok(calls > 3);
});

test('two who put at once are one after the other', async (t) => {
  const cay = await withCay(t);
  for (let i = 0; i < 5; i++) {
    const answers = await Promise.all(['a', 'b', 'c', 'd'].map((text) => put(cay, 'race', text + i)));
    assert.ok(answers.every((a) => a.status === 200));
    const { body } = await call(cay, 'race');
    assert.equal((await request(cay, '/v1/workers/race')).json().code.code, says(body));
  }
});

test('what was deleted is not there, also for a binding that was made before', async (t) => {
  const cay = await withCay(t);
  assert.equal((await put(cay, 'back', 'back')).status, 200);
  const front = { code: 'export default { async fetch(r, env) { try { return new Response(await (await env.b.fetch("http://x/")).text()) } catch (e) { return new Response(e.message) } } }', env: { b: { $worker: 'back' } } };
  const deploy = () => request(cay, '/v1/workers/front', { method: 'PUT', body: JSON.stringify(front) });
  assert.equal((await deploy()).status, 200);
  assert.equal((await call(cay, 'front')).body, 'back');
  assert.equal((await put(cay, 'back', 'anew')).status, 200);
  assert.equal((await call(cay, 'front')).body, 'anew', 'the binding leads to what was put since');
  assert.equal((await remove(cay, 'back')).status, 204);
  assert.equal((await remove(cay, 'back')).status, 404);
  assert.equal((await call(cay, 'front')).body, 'there is no worker "back"');
  assert.equal((await call(cay, 'back')).status, 404);
  assert.match((await deploy()).body, /there is no worker \\"back\\"/);
  assert.deepEqual((await request(cay, '/v1/workers')).json().workers.map((w) => w.id), ['front']);
  const long = 'x'.repeat(300);
  assert.equal((await request(cay, `/v1/workers/${long}`)).status, 404);
  assert.equal((await remove(cay, long)).status, 404);
});

test('a host name is of one worker', async (t) => {
  const cay = await withCay(t);
  const key = await createKey(cay.dataDir, { name: 'k' });
  assert.equal((await put(cay, 'a', 'the key’s', { headers: bearer(key.text) })).status, 200);
  const label = `a-${key.project.slice(-10)}`;
  const refused = await put(cay, label, 'the operator’s');
  assert.equal(refused.status, 409);
  assert.match(refused.json().error.message, /choose another id/);
  assert.equal((await call(cay, label)).body, 'the key’s');
});

test('a worker whose code does not fit in the cache is got each time', async (t) => {
  const cay = await withCay(t, { config: { limits: { worker_cache_bytes: 0, warm_workers: 1 } } });
  for (const id of ['a', 'b']) assert.equal((await put(cay, id, id)).status, 200);
  // The place of the other is free when its call is quite over, which is after its answer.
  const patient = (id) => until(async () => {
    const answer = await call(cay, id);
    return answer.status !== 429 && answer;
  }, 'a place');
  for (let i = 0; i < 3; i++) for (const id of ['a', 'b']) assert.equal((await patient(id)).body, id);
});

test('what was answered is there after a kill in the midst of it', async (t) => {
  const dataDir = join(tempDir(t), 'data');
  const names = ['a', 'b', 'c', 'd'];
  const known = new Map(names.map((name) => [name, null])); // what was answered last: a text, or null
  let n = 0;
  for (let life = 0; life < 3; life++) {
    const cay = await startCay({ dataDir });
    const asked = new Map();
    let changes = 0;
    const writers = names.map(async (name) => {
      for (;;) {
        const text = known.get(name) !== null && n % 3 === 0 ? null : String(++n);
        asked.set(name, text);
        const answer = await (text === null ? remove(cay, name) : put(cay, name, text)).catch(() => null);
        if (!answer) return; // killed: it may or may not be so
        assert.equal(answer.status, text === null ? 204 : 200);
        known.set(name, text);
        asked.delete(name);
        changes++;
      }
    });
    await until(() => changes > 20 + 7 * life, 'changes');
    await cay.kill9();
    await Promise.all(writers);
    const next = await startCay({ dataDir });
    for (const name of names) {
      const { status, body } = await call(next, name);
      const may = [known.get(name), ...(asked.has(name) ? [asked.get(name)] : [])];
      const is = status === 404 ? null : body;
      assert.ok(may.includes(is), `${name}: ${is}, not one of ${JSON.stringify(may)}`);
      known.set(name, is);
    }
    const listed = (await request(next, '/v1/workers')).json().workers.map((w) => w.id);
    assert.deepEqual(listed, names.filter((name) => known.get(name) !== null));
    await next.stop();
  }
});

const runWith = async (cay, code, more = {}) => (await request(cay, '/v1/run', { method: 'POST', body: JSON.stringify({ code, ...more }) })).json();

test('calls between workers carry what is documented, and one that is too large leaves the binding', async (t) => {
  const cay = await withCay(t, { config: { limits: { run_memory_bytes: 512 << 20 } } });
  const peer = `import { WorkerEntrypoint } from 'cloudflare:workers';
    export default class extends WorkerEntrypoint {
      size(text) { return text.length }
      fetch(request) { return new Response(new Uint8Array(Number(new URL(request.url).searchParams.get('n'))).fill(7)) }
    }`;
  assert.equal((await request(cay, '/v1/workers/peer', { method: 'PUT', body: JSON.stringify({ code: peer }) })).status, 200);
  const env = { peer: { $worker: 'peer' } };
  for (const n of [9e6, 20e6, 30e6]) {
    const r = await runWith(cay, `export default (env) => env.peer.size('x'.repeat(${n}))`, { env });
    assert.equal(r.result, n, JSON.stringify(r.error));
  }
  const r = await runWith(cay, `export default async (env) => {
    const out = [(await (await env.peer.fetch('http://x/?n=12000000')).arrayBuffer()).byteLength];
    for (const ask of [() => env.peer.size('x'.repeat(34e6)), () => env.peer.fetch('http://x/?n=20000000')])
      out.push(await ask().then(() => 'passed', (e) => (/limit|large/.test(e.message) ? 'refused' : e.message)));
    out.push(await env.peer.size('still there'));
    return out;
  }`, { env });
  assert.deepEqual(r.result, [12e6, 'refused', 'refused', 11], JSON.stringify(r.error));
});

test('nobody is blamed for the processor time of a call that nobody waits for any more', async (t) => {
  const cay = await withCay(t);
  const code = `import { WorkerEntrypoint } from 'cloudflare:workers';
    export default class extends WorkerEntrypoint { spin() { for (;;) {} } well() { return 7 } }`;
  assert.equal((await request(cay, '/v1/workers/busy', { method: 'PUT', body: JSON.stringify({ code, limits: { cpu_ms: 3000 } }) })).status, 200);
  const env = { busy: { $worker: 'busy' } };
  assert.equal((await runWith(cay, 'export default (env) => env.busy.well()', { env })).result, 7);
  const first = await runWith(cay, 'export default (env) => env.busy.spin()', { env, limits: { wall_ms: 1000 } });
  assert.match(first.error.message, /time limit of 1000 ms/);
  const next = await runWith(cay, 'export default (env) => env.busy.well()', { env });
  assert.equal(next.status, 'failed');
  assert.match(next.error.message, /another call on it exceeded/);
  assert.equal((await runWith(cay, 'export default (env) => env.busy.well()', { env })).result, 7);
});
