// What the store keeps, and for how long.
import assert from 'node:assert/strict';
import { chownSync, closeSync, mkdirSync, openSync, readFileSync, rmSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { bearer, createKey, request, root, runCay, startCay, tempDir, until, withCay } from '../lib/cay.mjs';
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
    const add = (owner, ms, n) => addRun(db, { id: makeId('run', ms, n), owner, created_ms: ms });
    for (let i = 0; i < 4; i++) add(few.project, now - 9e6 + i);
    for (let i = 0; i < 3; i++) add(few.project, now - 7e6 + i);
    for (let i = 0; i < 90; i++) add(many.project, now - 6e6 + i, i);
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
  await until(() => /store\.write.*run_events/.test(cay.stderr()), 'a note of what was left out');
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
  assert.ok(longest > 10e6 && longest < 64e6, `${longest} bytes`);
});

/** A server whose data folder is a small disk of its own, and what fills and frees that. */
async function withSmallDisk(t, options = {}) {
  const dataDir = join(tempDir(t), 'data');
  mkdirSync(dataDir);
  const mount = 'mount -t tmpfs -o size=24m,mode=755 small "$0" && exec "$@"';
  const cay = await withCay(t, { dataDir, wrap: ['unshare', '--mount', 'sh', '-c', mount, dataDir], ...options });
  const ballast = `/proc/${cay.pid}/root${dataDir}/ballast`;
  return {
    cay,
    fill() {
      const fd = openSync(ballast, 'a');
      try {
        for (let size = 1 << 20; size > 0; ) {
          try {
            if (writeSync(fd, Buffer.alloc(size)) < size) size >>= 1;
          } catch (error) {
            assert.equal(error.code, 'ENOSPC');
            size >>= 1;
          }
        }
      } finally {
        closeSync(fd);
      }
    },
    free: () => rmSync(ballast),
  };
}

const notRoot = process.getuid() !== 0 && 'a small disk is mounted, which needs root';

test('a full disk is said, with what to do, and the server goes on when there is room', { skip: notRoot }, async (t) => {
  const { cay, fill, free } = await withSmallDisk(t);
  const key = async () => (await request(cay, '/v1/runs')).status;
  const late = 'export default async () => { await new Promise((r) => setTimeout(r, 1500)); return 5 }';
  const before = (await run(cay, { code: 'export default () => 1' })).json();
  const underWay = run(cay, { code: late });
  await until(async () => (await list(cay)).some((r) => r.status === 'running'), 'a run that is under way');
  fill();
  // The log has room for some.
  const refused = await until(async () => {
    const answer = await run(cay, { code: 'export default () => "x".repeat(100000)' });
    return answer.status !== 200 && answer;
  }, 'a full log');
  assert.equal(refused.status, 507, refused.body);
  assert.equal(refused.json().error.code, 'disk_full');
  assert.match(refused.json().error.message, /the disk is full: .*make room/);
  assert.ok(!refused.body.includes(cay.dataDir), 'no path of this machine');
  assert.equal(await key(), 200, 'what is there can be read');
  assert.equal((await request(cay, `/v1/runs/${before.id}`)).json().status, 'done');
  const answer = (await underWay).json();
  assert.equal(answer.result, 5, 'what was under way ends as it would have');
  const health = await request(cay, '/health');
  assert.equal(health.status, 200);
  assert.equal(health.json().status, 'degraded');
  assert.match(health.json().detail, /disk of the server is full/);
  free();
  // The server tries again every half second.
  await until(async () => (await request(cay, '/health')).json().status === 'healthy', 'health');
  await until(async () => (await run(cay, { code: 'export default () => 2' })).json().result === 2, 'a run when there is room');
  await until(async () => (await request(cay, `/v1/runs/${answer.id}`)).json().status === 'done', 'the end of the run that ended meanwhile');
  const record = (await request(cay, `/v1/runs/${answer.id}`)).json();
  assert.equal(record.detail.result, 5);
  assert.ok(record.duration_ms < 10_000);
});

test('a conversation on a full disk is refused as that, begun or new', { skip: notRoot }, async (t) => {
  const { cay, fill, free } = await withSmallDisk(t, { args: ['--agents-dir', join(root, 'agents')] });
  const say = (name, text = 'hello') =>
    request(cay, `/v1/agents/sandbox-agent/${name}/messages`, { method: 'POST', headers: { accept: 'application/json' }, body: JSON.stringify({ message: { id: crypto.randomUUID(), role: 'user', parts: [{ type: 'text', text }] } }) });
  assert.equal((await say('begun')).status, 200);
  fill();
  for (const name of ['begun', 'new']) {
    const refused = await until(async () => {
      const answer = await say(name, 'x'.repeat(200_000));
      return answer.status !== 200 && answer;
    }, 'a refusal');
    assert.equal(refused.status, 507, `${name}: ${refused.body}`);
    assert.match(refused.json().error.message, /disk is full/);
  }
  free();
  await until(async () => (await say('new')).status === 200, 'an answer when there is room');
});

test('a server that finds a full disk when it starts says so, promises nothing, and starts when there is room', { skip: notRoot }, async (t) => {
  for (const left of [20, 60, 200, 400]) {
    const dataDir = join(tempDir(t), 'data');
    mkdirSync(dataDir);
    const mount = `mount -t tmpfs -o size=1024k,mode=755 small "$0" && head -c ${(1024 - left) * 1024} /dev/zero >"$0/ballast"
      "$@"; rm "$0/ballast"; mount -o remount,size=24m "$0"; exec "$@"`;
    const cay = await startCay({ dataDir, wrap: ['unshare', '--mount', 'sh', '-c', mount, dataDir] });
    assert.match(cay.stderr(), /the disk is full: make room/, `${left} KiB`);
    assert.doesNotMatch(cay.stderr(), /by itself/);
    await cay.stop();
  }
});

test('a database that has lost all its bytes is not taken for a new one', async (t) => {
  const first = await startCay({ key: true });
  t.after(() => first.clean());
  await first.halt();
  for (const name of ['ledger.db', 'cay.db']) {
    const file = join(first.dataDir, name);
    const kept = readFileSync(file);
    const { uid, gid } = statSync(file);
    for (const end of ['-wal', '-shm']) rmSync(file + end, { force: true });
    writeFileSync(file, '');
    await assert.rejects(startCay({ dataDir: first.dataDir }), (error) => {
      assert.match(error.message, new RegExp(`${name} is empty, though this data folder has been in use: .* put a backup in its place, or delete`));
      return true;
    });
    if (name === 'ledger.db') {
      const keys = await runCay(['key', 'list', '--data-dir', first.dataDir]);
      assert.notEqual(keys.code, 0);
      assert.match(keys.stderr, /is empty/);
    }
    writeFileSync(file, kept);
    chownSync(file, uid, gid);
  }
  await (await startCay({ dataDir: first.dataDir })).stop();
  rmSync(join(first.dataDir, 'ledger.db')); // as the message says
  await (await startCay({ dataDir: first.dataDir })).stop();
});

test('a sandbox that a full disk has no room to write down is neither there nor remembered', { skip: notRoot }, async (t) => {
  const { cay, fill, free } = await withSmallDisk(t);
  const made = [];
  const make = async () => {
    const answer = await request(cay, '/v1/sandboxes', { method: 'POST', body: JSON.stringify({ env: { FILLS: 'x'.repeat(20_000) } }) });
    if (answer.status === 201) made.push(answer.json().id);
    return answer;
  };
  const running = async () => (await request(cay, '/v1/status')).json().sandboxes.running;
  await make();
  fill();
  const refused = await until(async () => {
    const answer = await make();
    return answer.status !== 201 && answer;
  }, 'a full log');
  assert.equal(refused.status, 507, refused.body);
  await until(async () => (await running()) === made.length, 'the boxes that were told of, and no other');
  const first = `/v1/sandboxes/${made[0]}`;
  assert.equal((await request(cay, first, { method: 'DELETE' })).status, 204);
  free();
  await until(async () => (await make()).status === 201, 'a sandbox when there is room');
  await until(async () => (await request(cay, first)).json().status === 'stopped', 'an end that is written down late, after all before it');
  const known = (await request(cay, '/v1/sandboxes?limit=100')).json().sandboxes.map((s) => s.id);
  assert.deepEqual(known.sort(), made.sort());
});

test('a database of a program on a full disk does not blame its own limit', { skip: notRoot }, async (t) => {
  const { cay, fill, free } = await withSmallDisk(t);
  const code = `export default async (env) => { try { await env.db.execute("CREATE TABLE IF NOT EXISTS t (x)");
    for (let i = 0; i < 500; i++) await env.db.execute("INSERT INTO t VALUES (randomblob(100000))"); return "fits" }
    catch (e) { return [e.name, e.code, e.message].join(" ") } }`;
  // Recorded already when the disk is full: the store has no part in this. (More than the disk has, so that it is full
  // in any case.)
  const slow = code.replace('try {', 'try { await new Promise((r) => setTimeout(r, 1000));');
  const env = { db: { $facet: 'a' } };
  assert.equal((await run(cay, { code: 'export default (env) => env.db.query("SELECT 1")', env })).status, 200);
  const underWay = run(cay, { code: slow, env });
  await until(async () => (await list(cay)).some((r) => r.status === 'running'), 'a run that is under way');
  fill();
  const { result, error } = (await underWay).json();
  assert.match(String(result), /^SqliteError SQLITE_FULL the disk of the server is full/, JSON.stringify(error));
  assert.doesNotMatch(result, /disk limit/);
  free();
});

test('cay prune deletes what is beyond, with the server running or not', async (t) => {
  const cay = await withCay(t);
  for (let i = 0; i < 12; i++) assert.equal((await run(cay, { code: 'export default () => 1' })).status, 200);
  assert.equal((await list(cay)).length, 12, 'who asks the server has all of them written');
  const prune = async (...args) => runCay(['prune', '--data-dir', cay.dataDir, ...args]);
  const done = await prune('--keep-runs', '5', '--json');
  assert.equal(done.code, 0, done.stderr);
  const { runs_before, runs, bytes_before, bytes } = JSON.parse(done.stdout);
  assert.deepEqual([runs_before, runs], [12, 5]);
  assert.ok(bytes > 0 && bytes < bytes_before);
  assert.equal((await list(cay)).length, 5);
  assert.equal((await run(cay, { code: 'export default () => 1' })).status, 200);
  await cay.halt();
  assert.match((await prune('--keep-runs', '2')).stdout, /^4 of 6 runs were deleted; the 2 that are kept have 0\.0 MiB$/m);
  for (const wrong of [['--keep-runs', '0'], ['--keep-runs', 'x'], ['--keep', '1ms'], ['--keep-size', '1k'], ['x'], ['--nonsense']])
    assert.equal((await prune(...wrong)).code, 2, wrong.join(' '));
});

test('how much of the disk is taken is in the metrics and in cay doctor', async (t) => {
  const cay = await withCay(t);
  const part = async (name) => Number(new RegExp(`^cay_disk_bytes\\{part="${name}"\\} (\\d+)$`, 'm').exec((await request(cay, '/metrics')).body)?.[1]);
  await until(async () => (await part('store')) > 0, 'a first count');
  assert.ok((await part('ledger')) > 0);
  assert.equal(await part('snapshots'), 4096 * Math.round((await part('snapshots')) / 4096), 'whole blocks');
  assert.match((await request(cay, '/metrics')).body, /^cay_disk_counted 1$/m);
  writeFileSync(join(cay.dir, 'other.json'), JSON.stringify({ data_dir: cay.dataDir }));
  mkdirSync(join(cay.dataDir, 'snapshots', 'x'), { recursive: true });
  writeFileSync(join(cay.dataDir, 'snapshots', 'x', 'y'), Buffer.alloc(3 << 20));
  const doctor = JSON.parse((await runCay(['doctor', '--json', '--config', join(cay.dir, 'other.json')], { timeout: 60_000 })).stdout);
  const disk = doctor.find((f) => f.name === 'disk');
  assert.equal(disk.status, 'ok', JSON.stringify(disk));
  assert.match(disk.detail, /store \d.*snapshots 3\.\d.* are free/);
});

test('kill -9: what was listed, or answered 100 ms before, is there, and nothing is said to run on', async (t) => {
  const first = await startCay();
  t.after(() => first.clean());
  await first.halt();
  let cay = await withCay(t, { dataDir: first.dataDir });
  const told = new Map();
  const answered = new Map();
  for (let round = 0; round < 6; round++) {
    const answers = 5 + 7 * round;
    let n = 0;
    let alive = true;
    const enough = Promise.withResolvers();
    // Short ones and some that are still at it, so that records wait for one another.
    const worker = async (i) => {
      while (alive) {
        const code = i % 4 === 3 ? 'export default () => new Promise((r) => setTimeout(r, 30, 7))' : 'export default () => 7';
        const answer = await run(cay, { code, id: `w${i}` }).catch(() => null);
        if (answer?.status !== 200) return;
        told.set(answer.json().id, 'done');
        answered.set(answer.json().id, performance.now());
        if (++n === answers) enough.resolve();
      }
    };
    const looker = async () => {
      while (alive) {
        const runs = await list(cay).catch(() => []);
        for (const r of runs) if (!told.has(r.id)) told.set(r.id, 'listed');
        await new Promise((r) => setTimeout(r, 1 + round * 5));
      }
    };
    const work = Promise.all([...Array(8).keys()].map(worker).concat(looker()));
    await enough.promise;
    const killed = performance.now();
    await cay.kill9();
    alive = false;
    await work;
    cay = await withCay(t, { dataDir: first.dataDir });
    for (const [id, how] of told) {
      const found = await request(cay, `/v1/runs/${id}`);
      const record = found.json();
      if (answered.get(id) > killed - 100 && record.status !== 'done') {
        assert.ok(found.status === 404 || record.status === 'interrupted', `${id}: ${found.body}`);
        told.delete(id); // a plain run's record follows its answer within 100 ms
        continue;
      }
      if (how === 'done') assert.deepEqual([record.status, record.detail.result], ['done', 7], id);
      else assert.ok(['done', 'interrupted'].includes(record.status), `${id}: ${JSON.stringify(record)}`);
    }
    assert.equal((await request(cay, '/v1/runs?status=running')).json().runs.length, 0);
  }
  assert.ok(told.size > 100, `${told.size} runs`);
});

test('a run that takes longer is written down though nobody asks for it', async (t) => {
  const cay = await withCay(t);
  const later = run(cay, { code: 'export default () => new Promise((r) => setTimeout(r, 3000, 1))' });
  const db = new DatabaseSync(join(cay.dataDir, 'cay.db'), { readOnly: true, timeout: 60_000 });
  t.after(() => db.close());
  const running = () => db.prepare("SELECT count(*) AS n FROM runs WHERE status = 'running'").get().n;
  await until(() => running() === 1, 'the record of a run that nobody asked for');
  assert.equal((await later).json().result, 1);
  await until(() => running() === 0, 'its end');
});

test('nobody sees that the store writes late: requests wait for what was answered before them', async (t) => {
  const cay = await withCay(t);
  const db = new DatabaseSync(join(cay.dataDir, 'cay.db'), { timeout: 60_000 });
  t.after(() => db.close());
  db.exec('BEGIN IMMEDIATE'); // the writer stands still
  const answer = (await run(cay, { code: 'export default () => 7' })).json();
  assert.equal(answer.result, 7, 'a plain run does not wait for its record');
  const told = [];
  const tell = (what) => (r) => (told.push(what), r);
  const got = request(cay, `/v1/runs/${answer.id}`).then(tell('record'));
  const listed = request(cay, '/v1/runs').then(tell('list'));
  const made = request(cay, '/v1/sandboxes', { method: 'POST', body: '{}' }).then(tell('sandbox'));
  const streamed = request(cay, '/v1/run', {
    method: 'POST', headers: { accept: 'text/event-stream' }, body: JSON.stringify({ code: 'export default () => 8' }),
  }).then(tell('stream'));
  assert.equal((await request(cay, '/health')).status, 200);
  assert.equal((await run(cay, { code: 'export default () => 9' })).json().result, 9);
  assert.deepEqual(told, []);
  db.exec('ROLLBACK');
  assert.equal((await got).json().detail.result, 7);
  assert.ok((await listed).json().runs.some((r) => r.id === answer.id));
  const box = (await made).json();
  assert.equal((await made).status, 201, JSON.stringify(box));
  assert.match((await streamed).body, /"result":8/);
  assert.equal((await request(cay, `/v1/sandboxes/${box.id}`, { method: 'DELETE' })).status, 204);
});
