// What a client was told of a conversation is on the disk, and what it asks for is what it was told.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';

import { request } from '../lib/cay.mjs';
import { Raw, startCay, TYPE, until, user, withCay } from './support.mjs';

const path = (name, rest = '/messages') => `/v1/agents/${TYPE}/${name}${rest}`;
const messages = async (cay, name) => (await request(cay, path(name))).json().messages;
const say = (cay, name, id, options = {}) =>
  request(cay, path(name), {
    method: 'POST', headers: { accept: 'application/json', ...options.headers },
    body: JSON.stringify({ message: user(id, 'hello') }),
  });

test('while the writer stands still nothing is acknowledged, and everybody sees what is to be written', async (t) => {
  const cay = await withCay(t);
  assert.equal((await say(cay, 'held', 'u1')).status, 200);
  const db = new DatabaseSync(join(cay.dataDir, 'agents', TYPE, 'held', 'agent.db'), { timeout: 60_000 });
  t.after(() => db.close());
  const told = [];
  const tell = (what) => (r) => (told.push(what), r);
  const roles = async () => (await messages(cay, 'held')).map((m) => m.role);

  db.exec('BEGIN IMMEDIATE'); // the writer stands still
  const said = say(cay, 'held', 'u2').then(tell('turn'));
  const streamed = say(cay, 'held', 'u3', { headers: { accept: '*/*' } }).then(tell('stream'));
  await until(async () => (await messages(cay, 'held')).length === 4, 'both messages');
  assert.deepEqual(await roles(), ['user', 'assistant', 'user', 'user']);
  assert.equal((await request(cay, '/health')).status, 200);
  assert.deepEqual(told, []);
  db.exec('ROLLBACK');
  assert.equal((await said).json().message.role, 'assistant');
  assert.match((await streamed).body, /\[DONE\]/);
  assert.deepEqual(await roles(), ['user', 'assistant', 'user', 'assistant', 'user', 'assistant']);

  db.exec('BEGIN IMMEDIATE');
  const cleared = request(cay, path('held'), { method: 'DELETE' }).then(tell('clear'));
  await until(async () => (await messages(cay, 'held')).length === 0, 'an empty conversation');
  assert.deepEqual(told.toSorted(), ['stream', 'turn']);
  db.exec('ROLLBACK');
  assert.equal((await cleared).status, 204);
});

test('kill -9 right after an answer: the turn is there, whole, and what was cleared or removed is not', async (t) => {
  const first = await startCay();
  t.after(() => first.clean());
  await first.halt();
  for (let round = 0; round < 3; round++) {
    const start = async () => withCay(t, { dataDir: first.dataDir });
    let cay = await start();
    const kept = await messages(cay, 'kept');
    assert.equal(kept.length, 4 * round);
    assert.equal((await say(cay, `cleared${round}`, 'u')).status, 200);
    assert.equal((await say(cay, `removed${round}`, 'u')).status, 200);
    assert.equal((await request(cay, path(`cleared${round}`), { method: 'DELETE' })).status, 204);
    assert.equal((await request(cay, path(`removed${round}`, ''), { method: 'DELETE' })).status, 204);
    const raw = await Raw.ready(cay, 'kept');
    await raw.turn(`t${round}`, [...kept, user(`w${round}`, 'hello')]);
    assert.equal((await say(cay, 'kept', `u${round}`)).status, 200);
    await cay.kill9();
    raw.close();
    cay = await start();
    const list = await messages(cay, 'kept');
    assert.deepEqual(list.map((m) => m.role), Array.from({ length: 4 * (round + 1) }, (_, i) => (i % 2 ? 'assistant' : 'user')));
    assert.equal(list.some((m) => m.metadata?.interrupted), false);
    assert.deepEqual(await messages(cay, `cleared${round}`), []);
    const { agents } = (await request(cay, '/v1/agents')).json();
    assert.equal(agents.find((a) => a.type === TYPE).names.includes(`removed${round}`), false);
    await cay.halt();
  }
});
