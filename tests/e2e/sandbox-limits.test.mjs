// What sandboxes may leave on the disk and take of the front, however they are asked.
import assert from 'node:assert/strict';
import { chownSync, closeSync, existsSync, ftruncateSync, openSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { slow, startCay, until, withCay } from '../lib/cay.mjs';
import { call, events, make } from '../lib/sandbox.mjs';
import { addRecord, makeId, withStore } from '../lib/store.mjs';

test('snapshots made at the same time share one quota', async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 0, snapshot_mb: 1, snapshots_mb: 1 } } });
  const boxes = [await make(cay), await make(cay), await make(cay)];
  for (const box of boxes) assert.equal((await box.run('head -c 600000 /dev/urandom > /work/data')).exit_code, 0);
  const made = await Promise.all(boxes.map((box) => box.call('POST', '/snapshots', {})));
  const codes = made.map((it) => it.status).sort();
  assert.equal(codes[0], 201, made[0].raw.toString());
  assert.ok(codes.slice(1).every((code) => code === 422 || code === 429), String(codes));
  const kept = (await call(cay, 'GET', '/v1/snapshots')).json.snapshots;
  assert.equal(kept.length, 1);
  assert.equal(readdirSync(join(cay.dataDir, 'snapshots')).length, 1);
  // What was reserved is given back.
  assert.equal((await call(cay, 'DELETE', `/v1/snapshots/${kept[0].id}`)).status, 204);
  assert.equal((await boxes[0].call('POST', '/snapshots', {})).status, 201);
});

test('what a crash left of a snapshot is swept, and nothing else', async (t) => {
  const first = await startCay({ config: { sandboxes: { pool: 0 } } });
  t.after(() => first.clean());
  const box = await make(first);
  const kept = (await box.call('POST', '/snapshots', {})).json;
  await first.halt();
  const dir = join(first.dataDir, 'snapshots');
  const left = `${makeId('snp', Date.now(), 7)}.tar`;
  for (const name of [left, 'notes.txt', 'snp_x.tar']) writeFileSync(join(dir, name), 'half');
  await withCay(t, { dataDir: first.dataDir, config: { sandboxes: { pool: 0 } } });
  assert.deepEqual(readdirSync(dir).sort(), ['notes.txt', 'snp_x.tar', `${kept.id}.tar`].sort());
});

test('an archive that tar does not read to its end is not read here either', async (t) => {
  const first = await startCay({ config: { sandboxes: { pool: 0 } } });
  t.after(() => first.clean());
  await first.halt();
  // Zeros are the end of an archive: tar leaves at the first of 4 GiB.
  const id = makeId('snp', Date.now(), 8);
  const path = join(first.dataDir, 'snapshots', `${id}.tar`);
  const fd = openSync(path, 'w', 0o600);
  ftruncateSync(fd, 4 * 2 ** 30);
  closeSync(fd);
  const { uid, gid } = statSync(join(first.dataDir, 'snapshots'));
  chownSync(path, uid, gid);
  withStore(first.dataDir, (db) => addRecord(db, { kind: 'snapshot', id, status: 'done', created_ms: Date.now(), ended_ms: Date.now(), bytes: 1 }));
  const cay = await withCay(t, { dataDir: first.dataDir, config: { sandboxes: { pool: 0 } } });
  assert.ok(existsSync(path));
  const bytesRead = () => Number(/^rchar: (\d+)$/m.exec(readFileSync(`/proc/${cay.pid}/io`, 'utf8'))[1]);
  try {
    bytesRead();
  } catch (error) {
    assert.equal(error.code, 'EACCES');
    t.skip('only root sees what the server reads');
    return;
  }
  const before = bytesRead();
  await call(cay, 'POST', '/v1/sandboxes', { snapshot: id });
  assert.ok(bytesRead() - before < 64 * 2 ** 20, `${bytesRead() - before} bytes were read`);
});

test('an event with the longest command is whole', async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 0 } } });
  const box = await make(cay);
  const words = Array(4).fill('\x01'.repeat(100_000));
  const seen = await events(cay, 'POST', `${box.at}/exec`, { body: { argv: ['true', ...words] } });
  assert.equal(seen.at(-1).event, 'exit');
  assert.equal(seen.at(-1).data.exit_code, 0);
  assert.deepEqual(seen.at(-1).data.argv.slice(1), words);
});

test('a terminal shows what comes, also where other commands have used up what is kept', async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 0, output_mb: 1, outputs_mb: 1 } } });
  const box = await make(cay);
  const full = await box.run('head -c 2000000 /dev/zero | tr "\\0" x');
  assert.equal(full.stdout_bytes, 2_000_000);
  assert.equal(full.truncated, true);
  const shown = await box.run('echo first; sleep 0.2; echo last', { tty: true });
  assert.match(shown.stdout, /last/);
  const dir = join(cay.dataDir, 'sandboxes', box.id);
  const kept = readdirSync(dir).reduce((sum, name) => sum + statSync(join(dir, name)).size, 0);
  assert.ok(kept <= 2 ** 20 + 65536, String(kept));
});

test('a body of many small values is refused before a tree is made of it', async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 0 } } });
  const ask = (n) => call(cay, 'POST', '/v1/sandboxes', `{"metadata":{"a":[${'1,'.repeat(n)}1]}}`);
  const many = await ask(7_000_000);
  assert.equal(many.status, 413, many.raw.toString());
  assert.match(many.json.error.message, /1000000 JSON values/);
  const peak = Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${cay.pid}/status`, 'utf8'))[1]) / 1024;
  assert.ok(peak < 400 * slow, `${peak} MiB`);
  assert.equal((await ask(900_000)).status, 400, 'fewer are looked at');
});

test('while nothing can be written nothing begins, and what ends is written later', { timeout: 120_000 }, async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 0 } } });
  const db = new DatabaseSync(join(cay.dataDir, 'cay.db'), { timeout: 60_000 });
  t.after(() => db.close());
  const lived = await make(cay);
  db.exec('BEGIN IMMEDIATE');
  // The first is accepted before anybody knows; its record waits.
  const accepted = await call(cay, 'POST', '/v1/sandboxes', {});
  assert.equal(accepted.status, 201, accepted.raw.toString());
  const refused = await call(cay, 'POST', '/v1/sandboxes', {});
  assert.equal(refused.status, 503, refused.raw.toString());
  assert.match(refused.json.error.message, /another program has the database locked/);
  const health = (await call(cay, 'GET', '/health')).json;
  assert.equal(health.status, 'degraded');
  assert.match(health.detail, /records of the server cannot be written/);
  assert.equal((await call(cay, 'GET', '/v1/status')).json.sandboxes.running, 2);
  assert.ok((await lived.call('POST', '/exec', { command: 'true' })).status >= 500);
  await lived.end();
  assert.equal((await lived.get()).status, 'stopped');
  db.exec('ROLLBACK');
  const box = await until(async () => {
    const made = await call(cay, 'POST', '/v1/sandboxes', {});
    return made.status === 201 && made.json;
  }, 'a sandbox when there is room');
  assert.equal((await call(cay, 'GET', '/health')).json.status, 'healthy');
  await lived.end();
  assert.equal((await lived.call('GET', '')).status, 404, 'it is forgotten');
  const listed = (await call(cay, 'GET', '/v1/sandboxes')).json.sandboxes.map(({ id }) => id);
  assert.deepEqual(listed, [box.id, accepted.json.id]);
});
