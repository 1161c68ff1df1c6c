// A greedy key against a modest one, over everything of sandboxes that keys share; see also
// sandbox-snapshots.test.mjs.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createKey, withCay } from '../lib/cay.mjs';
import { call, make } from '../lib/sandbox.mjs';

const keysOf = async (cay) => [await createKey(cay.dataDir, { name: 'greedy' }), await createKey(cay.dataDir, { name: 'modest' })];

const isFull = (answer, setting) => {
  assert.equal(answer.status, 429, answer.raw.toString());
  assert.ok(Number(answer.headers['retry-after']) > 0);
  assert.match(answer.json.error.message, setting);
};

test('sandboxes: a key that asks for all leaves some', async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 0, max: 4 } } });
  const [greedy, modest] = await keysOf(cay);
  const asked = await Promise.all(Array.from({ length: 6 }, () => call(cay, 'POST', '/v1/sandboxes', {}, greedy)));
  assert.deepEqual(asked.map((it) => it.status).sort(), [201, 201, 201, 429, 429, 429]);
  isFull(asked.find((it) => it.status === 429), /max_per_key/);
  const box = await make(cay, {}, modest);
  assert.equal((await box.run('echo here')).stdout, 'here\n');
  isFull(await call(cay, 'POST', '/v1/sandboxes', {}, modest), /sandboxes\.max\b/);
});

test('commands: a key that runs as many as it can leaves some', async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 0, commands: 16 } } });
  const [greedy, modest] = await keysOf(cay);
  const boxes = [await make(cay, {}, greedy), await make(cay, {}, greedy)];
  const asked = [];
  for (let i = 0; i < 16; i++) asked.push(await boxes[i % 2].call('POST', '/exec', { command: 'sleep 1000', background: true }));
  assert.deepEqual(asked.map((it) => it.status), [...Array(12).fill(202), ...Array(4).fill(429)]);
  isFull(asked[15], /commands_per_key/);
  const box = await make(cay, {}, modest);
  for (let i = 0; i < 3; i++) await box.run('sleep 1000', { background: true });
  assert.equal((await box.run('echo here')).stdout, 'here\n');
  await box.run('sleep 1000', { background: true });
  isFull(await box.call('POST', '/exec', { command: 'true' }), /sandboxes\.commands\b/);
  // What ends makes room; a command is not needed to end one, nor are files in the way.
  assert.equal((await boxes[0].call('POST', `/execs/${asked[0].json.id}/signal`, { signal: 'KILL' })).status, 204);
  await boxes[1].end();
  assert.equal((await box.run('echo again')).stdout, 'again\n');
});

test('one sandbox full of commands still serves its files', async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 0, pids: 600 } } });
  const box = await make(cay);
  const start = () => box.call('POST', '/exec', { argv: ['sleep', '1000'], background: true });
  const asked = (await Promise.all(Array.from({ length: 24 }, async () => {
    const some = [];
    for (let i = 0; i < 11; i++) some.push(await start());
    return some;
  }))).flat();
  assert.equal(asked.filter((it) => it.status === 202).length, 240);
  isFull(asked.find((it) => it.status !== 202), /this sandbox runs 240 commands/);
  assert.equal((await box.call('PUT', '/files?path=/work/a', 'a')).status, 200);
  assert.equal((await box.call('DELETE', '/files?path=/work/a')).status, 204);
});

test('input that commands do not read: a key that gives much leaves room', async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 0 } } });
  const [greedy, modest] = await keysOf(cay);
  const box = await make(cay, {}, greedy);
  const stdin = 'x'.repeat(1 << 20);
  const given = (of, key) => call(cay, 'POST', `/v1/sandboxes/${of.id}/exec`, { argv: ['sleep', '100'], stdin, background: true }, key);
  let taken = 0;
  let answer;
  do answer = await given(box, greedy);
  while (answer.status < 300 && ++taken < 60);
  isFull(answer, /have not read 24 MiB/);
  assert.ok(taken >= 20 && taken <= 30, `${taken} were taken`);
  const own = await make(cay, {}, modest);
  assert.ok((await given(own, modest)).status < 300, 'another key gives its own');
  assert.equal((await own.run('wc -c', { stdin: 'abc' })).stdout.trim(), '3');
});
