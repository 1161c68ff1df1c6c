// What the store keeps, and for how long.
import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { bearer, createKey, request, startCay, until, withCay } from '../lib/cay.mjs';
import { addRun, makeId, withStore } from '../lib/store.mjs';

const run = (cay, body, options = {}) => request(cay, '/v1/run', { method: 'POST', body: JSON.stringify(body), ...options });
const list = async (cay, options) => (await request(cay, '/v1/runs?limit=100', options)).json().runs;

test('runs beyond the number and the age that are kept go by themselves, of whom has the most', async (t) => {
  const first = await startCay();
  t.after(() => first.clean());
  const few = await createKey(first.dataDir, { name: 'few' });
  const many = await createKey(first.dataDir, { name: 'many' });
  await first.halt();
  const now = Date.now();
  withStore(first.dataDir, (db) => {
    for (let i = 0; i < 3; i++) addRun(db, { id: makeId('run', now - 7e6 + i), owner: few.id });
    for (let i = 0; i < 90; i++) addRun(db, { id: makeId('run', now - 6e6 + i, i), owner: many.id });
    for (let i = 0; i < 4; i++) addRun(db, { id: makeId('run', now - 9e6 + i), owner: few.id });
  });
  const cay = await withCay(t, { dataDir: first.dataDir, config: { store: { keep_runs: 20, keep_s: 8000 } } });
  await until(async () => (await list(cay)).length === 20, 'a store of 20 runs');
  assert.equal((await list(cay, { headers: bearer(few.text) })).length, 3, 'three of seven were not too old');
  const kept = await list(cay, { headers: bearer(many.text) });
  assert.deepEqual(kept.map((r) => r.id), Array.from({ length: 17 }, (_, i) => makeId('run', now - 6e6 + 89 - i, 89 - i)));
  const answer = (await run(cay, { code: 'export default () => 1' })).json();
  assert.equal(answer.result, 1);
  await until(async () => (await list(cay, { headers: bearer(many.text) })).length === 16, 'room for the new one');
  assert.equal((await request(cay, `/v1/runs/${answer.id}`)).status, 200);
});

test('a run has its fill of events, a key of workers', async (t) => {
  const cay = await withCay(t, { config: { store: { run_events: 2, workers: 2 } } });
  const { id } = (await run(cay, { code: 'export default () => 1' })).json();
  for (let i = 0; i < 4; i++) assert.equal((await run(cay, { code: 'export default () => 2', tails: [{ run: id }] })).json().status, 'done');
  assert.equal((await request(cay, `/v1/runs/${id}`)).json().events.length, 2);
  await until(() => /tail\.failed.*run_events/.test(cay.stderr()), 'a note of what was left out');
  const put = (name) => request(cay, `/v1/workers/${name}`, { method: 'PUT', body: JSON.stringify({ code: 'export default () => 1' }) });
  for (const name of ['a', 'b', 'a']) assert.equal((await put(name)).status, 200);
  const refused = await put('c');
  assert.equal(refused.status, 422);
  assert.match(refused.json().error.message, /the most that one key may have \("workers"\): delete one first/);
  assert.equal((await request(cay, '/v1/workers/a', { method: 'DELETE' })).status, 204);
  assert.equal((await put('c')).status, 200);
});

test('the log of the store stays short while runs come one after the other', async (t) => {
  const cay = await withCay(t);
  let longest = 0;
  const one = async () => {
    assert.equal((await run(cay, { code: 'export default () => "x".repeat(200000)', isolation: 'reset' })).json().status, 'done');
    longest = Math.max(longest, statSync(join(cay.dataDir, 'cay.db-wal')).size);
  };
  for (let i = 0; i < 400; i++) await one();
  assert.ok(longest > 20e6 && longest < 64e6, `${longest} bytes`);
});
