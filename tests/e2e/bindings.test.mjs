// What a key may bind is one rule for runs, tasks and deployed workers, and it is the rule of now.
import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { bearer, createKey, request, startCay, until } from '../lib/cay.mjs';

let cay;
let key;
before(async () => {
  cay = await startCay();
  key = await createKey(cay.dataDir, { name: 'shop', more: ['--facet', 'shop', '--worker', 'helper'] });
});
after(() => cay.stop());

const ask = (path, method, body) => request(cay, path, { method, headers: bearer(key.text), body: JSON.stringify(body) });
const query = `export default { async fetch(request, env) { return Response.json(await env.db.query('SELECT 1 AS x')) } }`;
const put = (id, env, more = {}) => ask(`/v1/workers/${id}`, 'PUT', { code: query, env, ...more });
const call = (host) => request(cay, '/', { headers: { Host: `${host}.localhost`, ...bearer(key.text) } });
/** As another server would change it. */
function setGrants(text) {
  const db = new DatabaseSync(join(cay.dataDir, 'ledger.db'), { timeout: 60_000 });
  db.prepare('UPDATE keys SET grants = ? WHERE id = ?').run(text, key.id);
  db.close();
}

const refused = [
  [{ $facet: 'other' }, 403, /facet \\"other\\"/],
  [{ $worker: 'stranger' }, 403, /worker \\"stranger\\"/],
  [{ $facet: 'shop\0x' }, 400, /\$facet/],
  [{ $worker: 'helper\0x' }, 400, /\$worker/],
  [{ $facet: 'shop', methods: ['query\0x'] }, 400, /methods.*NUL/],
];
for (const [binding, status, message] of refused)
  test(`refused in a run, a task and a worker alike: ${JSON.stringify(binding)}`, async () => {
    const env = { db: binding };
    const answers = { worker: await put('gx', env), run: await ask('/v1/run', 'POST', { code: 'export default () => 1', env }) };
    for (const [what, got] of Object.entries(answers)) {
      assert.equal(got.status, status, `${what}: ${got.body}`);
      assert.match(got.body, message, what);
    }
    const task = await ask('/v1/tasks', 'POST', { type: 'run', input: { code: 'export default () => 1', env }, max_attempts: 1 });
    if (task.status === 202 || task.status === 200 || task.status === 201) {
      const { id } = task.json();
      await until(async () => (await request(cay, `/v1/tasks/${id}`, { headers: bearer(key.text) })).json().state === 'failed', 'the task to fail');
    } else {
      assert.equal(task.status, status, task.body);
    }
  });

test('what a worker was deployed with is not reachable once the key may not bind it', async () => {
  const made = await put('till', { db: { $facet: 'shop' } });
  assert.equal(made.status, 200, made.body);
  const { host } = made.json();
  assert.deepEqual((await call(host)).json(), [{ x: 1 }]);
  for (const grants of ['{"facets":["other"]}', '{"facets":', '']) {
    setGrants(grants);
    await until(async () => (await call(host)).status !== 200, `a refusal with ${grants}`);
    const got = await call(host);
    assert.doesNotMatch(got.body, /"x":1/);
    assert.equal((await put('till', { db: { $facet: 'shop' } })).status, 403);
    setGrants('{"facets":["shop"]}');
    await until(async () => (await call(host)).status === 200, 'an answer again');
  }
});

test('a call under way ends when the key may not bind what it holds', async () => {
  const code = `export default { async fetch(request, env) {
    for (;;) { await env.db.query('SELECT 1'); await new Promise((r) => setTimeout(r, 20)); } } }`;
  const made = await put('slow', { db: { $facet: 'shop' } }, { code });
  assert.equal(made.status, 200, made.body);
  const answer = call(made.json().host);
  await until(async () => (await request(cay, '/v1/workers', { headers: bearer(key.text) })).json().workers.some((w) => w.id === 'slow' && w.warm), 'it to run');
  setGrants('{"facets":["other"]}');
  assert.notEqual((await answer).status, 200);
  const { body } = await answer;
  assert.doesNotMatch(body, /time limit/);
  setGrants('{"facets":["shop"]}');
});
