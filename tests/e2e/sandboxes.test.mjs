// Sandboxes: their life, limits and owners, and what is left of them.
import assert from 'node:assert/strict';
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync, chmodSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { buildDir, createKey, isAlive as alive, procText, request, root, runCay, slow, startCay, tempDir, until, withCay } from '../lib/cay.mjs';
import { call, make } from '../lib/sandbox.mjs';
import { withStore } from '../lib/store.mjs';

const isRoot = process.getuid() === 0;
const status = (pid) => procText(pid, 'status');
const pids = () => readdirSync('/proc').filter((name) => /^\d+$/.test(name)).map(Number);
const childrenOf = (pid) => pids().filter((n) => new RegExp(`^PPid:\\t${pid}$`, 'm').test(status(n)));
const familyOf = (pid) => childrenOf(pid).flatMap((n) => [n, ...familyOf(n)]);

/** The launcher, and as root the two processes of its starter: one works, its parent watches. */
function startersOf(cay, { session, launcher } = {}) {
  const named = (pid) => alive(pid) && /^Name:\tcay-sandbox$/m.test(status(pid));
  const first = session ?? childrenOf(cay.pid).find(named);
  if (!isRoot) return { launcher: first };
  if (!launcher) {
    const [worker] = childrenOf(first);
    return { session: first, watcher: first, worker, launcher: childrenOf(worker)[0] };
  }
  const sessionOf = (pid) => Number(readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\) /, '').split(' ')[3]);
  const sandboxes = [launcher, ...familyOf(launcher)];
  const two = pids().filter((pid) => {
    try {
      return named(pid) && sessionOf(pid) === session && !sandboxes.includes(pid);
    } catch {
      return false; // gone since
    }
  });
  const worker = two.find((pid) => two.some((other) => childrenOf(other).includes(pid)));
  return { session, launcher, worker, watcher: two.find((pid) => pid !== worker) };
}

describe('a server with sandboxes', () => {
  let cay;
  let keys;
  before(async () => {
    cay = await startCay({
      config: { sandboxes: { pool: 1, max: 6, max_per_key: 3, timeout_s: 60, max_timeout_s: 120, pids: 64, memory_mb: 256, disk_mb: 64, keep: 50 } },
    });
    keys = {
      a: await createKey(cay.dataDir, { name: 'a' }),
      b: await createKey(cay.dataDir, { name: 'b' }),
      read: await createKey(cay.dataDir, { name: 'read', scope: 'read' }),
      admin: await createKey(cay.dataDir, { name: 'admin', scope: 'admin' }),
    };
  });
  after(() => cay.stop());

  test('one is made, used and ended, and stays in the records', async () => {
    const box = await make(cay, { name: 'fïrst 名', metadata: { a: [1] }, env: { GREETING: 'hello' } });
    assert.match(box.id, /^sbx_[0-9a-z]{26}$/);
    assert.equal(box.status, 'running');
    assert.equal(box.name, 'fïrst 名');
    assert.deepEqual(box.metadata, { a: [1] });
    assert.deepEqual(box.network, { allow: [], routes: [] });
    assert.deepEqual(box.limits, { memory_mb: 256, disk_mb: 64, pids: 64, cpus: null, timeout_s: 60 });
    assert.equal(Date.parse(box.expires_at) - Date.parse(box.created_at), 60_000);
    assert.equal((await box.run('echo $GREETING; pwd; id -u')).stdout, 'hello\n/work\n1000\n');
    const seen = await box.get();
    assert.equal(seen.status, 'running');
    if (isRoot) assert.ok(seen.usage.memory_bytes > 0 && seen.usage.pids >= 1, JSON.stringify(seen.usage));
    await box.end();
    const gone = await box.get();
    assert.equal(gone.status, 'stopped');
    assert.ok(gone.stopped_at);
    assert.equal(gone.error, null);
    assert.equal((await box.call('POST', '/exec', { command: 'true' })).status, 409);
    // Its command and the output are still there.
    const { execs } = (await box.call('GET', '/execs')).json;
    assert.equal(execs.length, 1);
    assert.equal((await box.call('GET', `/execs/${execs[0].id}/stdout`)).raw.toString(), 'hello\n/work\n1000\n');
    // A second DELETE forgets it all.
    await box.end();
    assert.equal((await box.call('GET', '')).status, 404);
    assert.equal((await box.call('GET', `/execs/${execs[0].id}`)).status, 404);
    assert.ok(!existsSync(join(cay.dataDir, 'sandboxes', box.id)));
  });

  test('an empty body asks for the defaults', async () => {
    const { status: code, json } = await call(cay, 'POST', '/v1/sandboxes');
    assert.equal(code, 201);
    assert.equal((await call(cay, 'DELETE', `/v1/sandboxes/${json.id}`)).status, 204);
  });

  test('files come with it', async () => {
    const big = 'x'.repeat(700_000);
    const box = await make(cay, {
      files: [
        { path: '/work/deep/er/a.txt', content: 'text ü' },
        { path: '/work/run.sh', content: '#!/bin/sh\necho ran', mode: 0o755 },
        { path: '/work/raw', content_base64: Buffer.from([0, 255, 10]).toString('base64') },
        { path: '/work/big', content: big },
        { path: '/work/empty', content: '' },
      ],
    });
    const done = await box.run('cat deep/er/a.txt; ./run.sh; od -An -tx1 raw; wc -c < big; wc -c < empty');
    assert.equal(done.stdout, 'text üran\n 00 ff 0a\n700000\n0\n');
    await box.end();
    // A file that cannot be written makes no sandbox.
    const bad = await call(cay, 'POST', '/v1/sandboxes', { files: [{ path: '/usr/x', content: '' }] });
    assert.ok(bad.status >= 400 && bad.status < 600, String(bad.status));
    assert.match(bad.json.error.message, /\/usr\/x/);
    const failed = (await call(cay, 'GET', '/v1/sandboxes?limit=1')).json.sandboxes[0];
    assert.equal(failed.status, 'failed');
    assert.ok(failed.error.message);
  });

  test('what is asked for in a wrong way is refused', async () => {
    const wrong = [
      [{ x: 1 }, 400],
      [[], 400],
      ['{', 400],
      [{ name: 5 }, 400],
      [{ name: 'n'.repeat(101) }, 400],
      ...['a\nb', '\u001b[2J', '\u007f', '\u0085', '\u009b1m', 'a\u2028b', 'a\u202eb', 'a\u2066b', '\t'].map((name) => [{ name }, 400]),
      [{ root: '/etc' }, 400],
      [{ root: 'nowhere' }, 400],
      [{ snapshot: 'snp_x' }, 404],
      [{ files: {} }, 400],
      [{ files: [{ path: 'a' }] }, 400],
      [{ files: [{ path: 'a', content: '', content_base64: '' }] }, 400],
      [{ files: [{ path: 'a', content_base64: '!' }] }, 400],
      [{ files: [{ path: 'a', content: '', mode: 0o4755 }] }, 400],
      [{ files: [{ path: 'a', content: '', owner: 'root' }] }, 400],
      [{ env: [] }, 400],
      [{ env: { 'A=B': 'x' } }, 400],
      [{ env: { A: 1 } }, 400],
      [{ env: { A: 'x\0y' } }, 400],
      [{ network: { allow: 'x' } }, 400],
      [{ network: { allow: ['http://x/'] } }, 400],
      [{ network: { what: [] } }, 400],
      [{ network: { routes: ['none'] } }, 403],
      [{ binds: [{ name: 'none', path: '/mnt/x' }] }, 403],
      [{ binds: [{ name: '/etc', path: '/mnt/x' }] }, 403],
      [{ memory_mb: 1 }, 400],
      [{ memory_mb: 257 }, 422],
      [{ disk_mb: 65 }, 422],
      [{ pids: 65 }, 422],
      [{ pids: -1 }, 400],
      [{ cpus: 0 }, 400],
      [{ cpus: 'x' }, 400],
      [{ timeout_s: 0 }, 400],
      [{ timeout_s: 121 }, 422],
      [{ metadata: 5 }, 400],
      [{ metadata: { x: 'y'.repeat(20000) } }, 400],
      [{ metadata: { a: 'x\0y' } }, 400],
      [{ metadata: { a: [{ b: '\0' }] } }, 400],
      [{ name: 'x\0y' }, 400],
    ];
    for (const [body, code] of wrong) {
      const answer = await call(cay, 'POST', '/v1/sandboxes', body);
      assert.equal(answer.status, code, `${JSON.stringify(body).slice(0, 80)}: ${answer.raw}`);
      assert.ok(answer.json.error.message);
    }
    assert.match((await call(cay, 'POST', '/v1/sandboxes', { metadata: { a: [{ b: '\0' }] } })).json.error.message, /^"metadata\.a\[0\]\.b" must not hold a NUL/);
    for (const [method, path] of [['GET', ''], ['DELETE', ''], ['POST', '/extend'], ['POST', '/pause'], ['POST', '/resume'], ['PUT', '/network'], ['GET', '/network/events'], ['POST', '/exec'], ['GET', '/execs'], ['GET', '/files?path=/work'], ['POST', '/snapshots']])
      for (const id of ['sbx_none', 'sbx_00000000000000000000000000', '%2e%2e', 'x'])
        assert.equal((await call(cay, method, `/v1/sandboxes/${id}${path}`, method === 'GET' ? undefined : {})).status, 404, `${method} ${id}${path}`);
  });

  test('what belongs to one key is not there for another', async () => {
    const box = await make(cay, { files: [{ path: '/work/a', content: 'a' }] }, keys.a);
    const done = await box.run('echo out');
    const shot = (await box.call('POST', '/snapshots', {})).json;
    const asked = [
      ['GET', ''],
      ['DELETE', ''],
      ['POST', '/extend'],
      ['POST', '/pause'],
      ['POST', '/resume'],
      ['PUT', '/network'],
      ['GET', '/network/events'],
      ['POST', '/exec', { command: 'true' }],
      ['GET', '/execs'],
      ['GET', `/execs/${done.id}`],
      ['GET', `/execs/${done.id}/output`],
      ['GET', `/execs/${done.id}/stdout`],
      ['GET', `/execs/${done.id}/stderr`],
      ['POST', `/execs/${done.id}/stdin`],
      ['POST', `/execs/${done.id}/signal`, { signal: 9 }],
      ['POST', `/execs/${done.id}/resize`, { cols: 1, rows: 1 }],
      ['GET', `/execs/${done.id}/tty`],
      ['GET', '/files?path=/work/a'],
      ['PUT', '/files?path=/work/b', 'b'],
      ['DELETE', '/files?path=/work/a'],
      ['GET', '/files/stat?path=/work/a'],
      ['GET', '/files/list?path=/work'],
      ['POST', '/files/mkdir', { path: '/work/d' }],
      ['POST', '/files/move', { from: '/work/a', to: '/work/b' }],
      ['GET', '/tar?path=/work'],
      ['PUT', '/tar?path=/work', 'x'],
      ['POST', '/snapshots', {}],
    ];
    for (const [method, path, body] of asked) {
      const answer = await call(cay, method, box.at + path, body, keys.b);
      assert.equal(answer.status, 404, `${method} ${path}: ${answer.status}`);
    }
    assert.equal((await call(cay, 'GET', `/v1/snapshots/${shot.id}`, undefined, keys.b)).status, 404);
    assert.equal((await call(cay, 'DELETE', `/v1/snapshots/${shot.id}`, undefined, keys.b)).status, 404);
    assert.equal((await call(cay, 'POST', '/v1/sandboxes', { snapshot: shot.id }, keys.b)).status, 404);
    assert.deepEqual((await call(cay, 'GET', '/v1/sandboxes', undefined, keys.b)).json.sandboxes, []);
    assert.deepEqual((await call(cay, 'GET', '/v1/snapshots', undefined, keys.b)).json.snapshots, []);
    assert.ok((await call(cay, 'GET', '/v1/sandboxes', undefined, keys.admin)).json.sandboxes.length > 0);
    assert.equal((await call(cay, 'GET', box.at, undefined, keys.admin)).status, 200);
    // A key that may only look does not run anything, and sees nothing of others.
    assert.equal((await call(cay, 'POST', '/v1/sandboxes', {}, keys.read)).status, 403);
    assert.equal((await call(cay, 'GET', box.at, undefined, keys.read)).status, 404);
    assert.equal((await call(cay, 'DELETE', `/v1/snapshots/${shot.id}`, undefined, keys.a)).status, 204);
    await box.end();
  });

  test('no more of them than the key and the server may have', async () => {
    const boxes = [];
    for (let i = 0; i < 3; i++) boxes.push(await make(cay, {}, keys.a));
    const fourth = await call(cay, 'POST', '/v1/sandboxes', {}, keys.a);
    assert.equal(fourth.status, 429);
    assert.match(fourth.json.error.message, /max_per_key/);
    assert.ok(fourth.headers['retry-after']);
    for (let i = 0; i < 3; i++) boxes.push(await make(cay, {}, keys.b));
    const seventh = await call(cay, 'POST', '/v1/sandboxes', {});
    assert.equal(seventh.status, 429);
    assert.match(seventh.json.error.message, /sandboxes\.max\b/);
    await boxes[0].end();
    boxes[0] = await make(cay, {}, keys.a);
    await Promise.all(boxes.map((b) => b.end()));
  });

  test('time: it ends when it is over, later when that was asked for', async () => {
    const short = await make(cay, { timeout_s: 1 });
    await until(async () => (await short.get()).error?.code === 'timeout', 'its end');
    const box = await make(cay);
    const long = await box.run('echo begun; sleep 100', { background: true });
    await until(async () => (await box.call('GET', `/execs/${long.id}`)).json.stdout_bytes === 6, 'its word');
    assert.equal((await box.call('POST', '/extend', { timeout_s: 1 })).status, 200);
    const ended = await until(async () => {
      const o = await box.get();
      return o.status !== 'running' && o;
    });
    assert.equal(ended.status, 'stopped');
    assert.equal(ended.error.code, 'timeout');
    const exec = (await box.call('GET', `/execs/${long.id}`)).json;
    assert.equal(exec.status, 'interrupted');
    assert.equal(exec.exit_code, null);
    assert.equal(exec.signal, null);
    assert.equal((await box.call('GET', `/execs/${long.id}/stdout`)).raw.toString(), 'begun\n');

    const more = await make(cay, { timeout_s: 3 });
    const extended = await more.call('POST', '/extend', { timeout_s: 100 });
    assert.equal(extended.status, 200);
    assert.ok(Date.parse(extended.json.expires_at) - Date.now() > 90_000);
    assert.equal((await more.run('sleep 3.5; echo here')).stdout, 'here\n');
    const tooLong = await more.call('POST', '/extend', { timeout_s: 121 });
    assert.equal(tooLong.status, 422);
    assert.match(tooLong.json.error.message, /max_timeout_s/);
    assert.equal((await more.call('POST', '/extend', { timeout_s: 0 })).status, 400);
    assert.equal((await more.call('POST', '/extend', { seconds: 5 })).status, 400);
    await more.end();
  });

  test('pause and resume', async () => {
    const box = await make(cay);
    const ticks = await box.run('while :; do echo tick; sleep 0.05; done', { background: true });
    const size = async () => (await box.call('GET', `/execs/${ticks.id}`)).json.stdout_bytes;
    await until(async () => (await size()) > 20);
    const paused = await box.call('POST', '/pause');
    assert.equal(paused.status, 200);
    assert.equal(paused.json.status, 'paused');
    assert.equal((await box.call('POST', '/pause')).json.status, 'paused');
    const first = await size();
    await new Promise((resolve) => setTimeout(resolve, 400));
    assert.ok((await size()) <= first + 10, 'it stands still');
    for (const [method, path, body] of [['POST', '/exec', { command: 'true' }], ['GET', '/files?path=/work'], ['POST', '/snapshots', {}], ['GET', '/tar?path=/work']]) {
      const answer = await box.call(method, path, body);
      assert.equal(answer.status, 409, path);
      assert.match(answer.json.error.message, /paused/);
    }
    assert.equal((await box.call('POST', '/resume')).json.status, 'running');
    const resumed = await size();
    await until(async () => (await size()) > resumed + 20);
    assert.equal((await box.run('echo on')).stdout, 'on\n');
    // One that is paused can be ended.
    await box.call('POST', '/pause');
    await box.end();
    assert.equal((await box.get()).status, 'stopped');
  });

  test('snapshots: what it wrote, in a new one', async () => {
    const box = await make(cay);
    await box.run('mkdir -p d && echo data > d/f && chmod 750 d/f && ln -s f d/l && echo home > ~/h && echo t > /tmp/t');
    const made = await box.call('POST', '/snapshots', { name: 'shot' });
    assert.equal(made.status, 201, made.raw.toString());
    assert.match(made.json.id, /^snp_/);
    assert.equal(made.json.name, 'shot');
    assert.equal(made.json.sandbox, box.id);
    assert.ok(made.json.size > 0);
    await box.end();
    const list = (await call(cay, 'GET', '/v1/snapshots')).json.snapshots;
    assert.deepEqual(list[0], made.json);
    assert.deepEqual((await call(cay, 'GET', `/v1/snapshots/${made.json.id}`)).json, made.json);
    const copy = await make(cay, { snapshot: made.json.id, files: [{ path: '/work/d/more', content: 'm' }] });
    assert.equal(copy.snapshot, made.json.id);
    const done = await copy.run('cat d/f d/l ~/h /tmp/t d/more; stat -c %a d/f; readlink d/l');
    assert.equal(done.stdout, 'data\ndata\nhome\nt\nm750\nf\n', done.stderr);
    await copy.end();
    assert.equal((await call(cay, 'DELETE', `/v1/snapshots/${made.json.id}`)).status, 204);
    assert.equal((await call(cay, 'GET', `/v1/snapshots/${made.json.id}`)).status, 404);
    assert.deepEqual(readdirSync(join(cay.dataDir, 'snapshots')), []);
    for (const body of [{ name: 5 }, { x: 1 }, { name: 'n'.repeat(101) }, { name: 'a\nb' }]) {
      const other = await make(cay);
      assert.equal((await other.call('POST', '/snapshots', body)).status, 400);
      await other.end();
    }
  });

  test('a network is not there unless it is asked for', async () => {
    const box = await make(cay);
    const done = await box.run('cat /proc/net/dev | grep -c :; getent hosts example.com || echo unknown; env | grep -ci proxy || true');
    assert.equal(done.stdout, '1\nunknown\n0\n');
    const tried = await box.run(['/usr/bin/python3', '-c', `
import socket
for host in [('1.1.1.1', 53), ('169.254.169.254', 80), ('127.0.0.1', ${cay.port})]:
    s = socket.socket()
    s.settimeout(3)
    try:
        s.connect(host)
        print('connected')
    except OSError as e:
        print(type(e).__name__)
`]);
    assert.equal(tried.stdout, 'OSError\nOSError\nConnectionRefusedError\n', tried.stderr);
    assert.deepEqual((await box.call('GET', '/network/events')).json.events, []);
    assert.equal((await box.call('GET', '/network/events?after=x')).status, 400);
    await box.end();
  });

  test('a disk fits into its memory', async () => {
    const small = await make(cay, { memory_mb: 32 });
    assert.equal(small.limits.disk_mb, 20);
    await small.end();
    const refused = await call(cay, 'POST', '/v1/sandboxes', { memory_mb: 32, disk_mb: 32 });
    assert.equal(refused.status, 400);
    assert.match(refused.json.error.message, /"disk_mb" 32 does not fit into "memory_mb" 32.*at most 20/);
  });

  // The sanitized build has no probe: it would need more memory than the sandbox has.
  const probePath = [buildDir, join(root, 'build')].map((dir) => join(dir, 'tests/escape/escape-probe')).find(existsSync);
  test('a sandbox that ends by want of memory says so', { skip: (!isRoot && 'no control group') || (!probePath && 'the probe is not built') }, async () => {
    // Shared memory stays when its maker is gone: nobody is left to be ended for it but init.
    const probe = readFileSync(probePath).toString('base64');
    const box = await make(cay, { memory_mb: 32, files: [{ path: '/work/probe', content_base64: probe, mode: 0o755 }] });
    for (let i = 0; i < 50 && (await box.get()).status === 'running'; i++) await box.call('POST', '/exec', { argv: ['/work/probe', 'hold', 'shm'] });
    const gone = await box.get();
    assert.match(gone.error.message, /ran out of memory.*memory_mb/, JSON.stringify(gone));
  });

  test('limits of one sandbox hold: memory, processes, disk', async () => {
    const box = await make(cay, { memory_mb: 64, disk_mb: 8, pids: 20 });
    const memory = await box.run(['/usr/bin/python3', '-c', 'x = bytearray(300 << 20)']);
    assert.ok(memory.exit_code !== 0, JSON.stringify(memory));
    if (isRoot && memory.signal === 9) assert.equal(memory.oom, true);
    const disk = await box.run('head -c 20000000 /dev/zero > f');
    assert.notEqual(disk.exit_code, 0);
    assert.match(disk.stderr, /No space|too large|size limit/i);
    const forks = await box.run('for i in $(seq 100); do sleep 3 & done; true');
    assert.match(forks.stderr, /fork|retry|unavailable/i);
    await box.end();
  });

  test('the numbers are in the status and the metrics', async () => {
    const box = await make(cay);
    const s = (await request(cay, '/v1/status')).json();
    assert.equal(s.sandboxes.available, true);
    assert.equal(s.sandboxes.running, 1);
    assert.equal(s.sandboxes.max, 6);
    assert.ok(s.children.some((c) => c.name === 'cay-sandbox' && c.state === 'running'));
    assert.match((await request(cay, '/metrics')).body, /^cay_sandboxes_running 1$/m);
    await box.end();
  });
});

test('settings that are none of ours are errors that name them', async (t) => {
  const dir = tempDir(t);
  const file = join(dir, 'bad.json');
  const cases = [
    [{ what: 1 }, /what/],
    [{ max: 0 }, /max/],
    [{ timeout_s: 10, max_timeout_s: 5 }, /max_timeout_s/],
    [{ roots: { 'a/b': '/x' } }, /a\/b/],
    [{ roots: { a: 'relative' } }, /absolute/],
    [{ binds: { a: { path: '/x', mode: 'w' } } }, /mode/],
    [{ binds: { a: { path: '/does/not/exist' } } }, /does\/not\/exist/],
    [{ routes: { r: {} } }, /url/],
    [{ routes: { r: { url: 'https://example.com', headers: { authorization: 'Bearer ${NOT_SET_ANYWHERE}' } } } }, /NOT_SET_ANYWHERE/],
    [{ uid_count: 10 }, /uid_count/],
    [{ caps: { usd: -1 } }, /usd/],
  ];
  for (const [sandboxes, pattern] of cases) {
    writeFileSync(file, JSON.stringify({ sandboxes }));
    const done = await runCay(['serve', '--listen', '127.0.0.1:0', '--data-dir', join(dir, 'data'), '--config', file]);
    assert.notEqual(done.code, 0, JSON.stringify(sandboxes));
    assert.match(done.stderr, pattern);
  }
});

test('roots and binds are handed out by name', async (t) => {
  const dir = tempDir(t);
  const shared = join(dir, 'shared');
  mkdirSync(shared);
  writeFileSync(join(shared, 'host.txt'), 'from the host\n');
  chmodSync(shared, 0o755);
  if (isRoot) chownSync(shared, 12345, 12345); // what root owns is never bound writable anyway
  const limited = { name: 'limited', more: ['--bind', 'other'] };
  const cay = await withCay(t, { config: { sandboxes: { roots: { same: '/' }, binds: { shared: { path: shared } } } } });
  const key = await createKey(cay.dataDir, limited);
  const box = await make(cay, { root: 'same', binds: [{ name: 'shared', path: '/mnt/shared' }] });
  const done = await box.run('cat /mnt/shared/host.txt; echo x > /mnt/shared/new 2>/dev/null || echo refused');
  assert.equal(done.stdout, 'from the host\nrefused\n', done.stderr);
  await box.end();
  assert.equal((await call(cay, 'POST', '/v1/sandboxes', { binds: [{ name: 'shared', path: '/mnt/s', mode: 'rw' }] })).status, 403);
  assert.equal((await call(cay, 'POST', '/v1/sandboxes', { binds: [{ name: 'shared', path: '/mnt/s' }] }, key)).status, 403);
  // A file is on its way before the box is there: what keeps the box from coming is what is said.
  const nowhere = await call(cay, 'POST', '/v1/sandboxes', { files: [{ path: '/work/a', content: 'x' }], binds: [{ name: 'shared', path: '/usr/none/x' }] });
  assert.match(nowhere.json.error.message, /^bind path '\/usr\/none\/x'/);
});

test('kill -9 of the server: nothing runs on, the next start says interrupted', async (t) => {
  const first = await startCay({ config: { sandboxes: { pool: 1 } } });
  const box = await make(first);
  const exec = await box.run('echo kept; echo also >&2; sleep 1000', { background: true });
  await until(async () => (await box.call('GET', `/execs/${exec.id}`)).json.stderr_bytes === 5);
  const family = familyOf(first.pid);
  assert.ok(family.length >= 4);
  first.child.kill('SIGKILL');
  await first.ended;
  await until(() => family.every((pid) => !alive(pid)), 'the end of all processes');
  const second = await startCay({ dataDir: first.dataDir });
  t.after(async () => {
    await second.stop();
    first.clean();
  });
  assert.match(second.stderr(), /"event":"sandboxes.interrupted","count":2/);
  const seen = (await call(second, 'GET', box.at)).json;
  assert.equal(seen.status, 'interrupted');
  assert.equal(seen.error.code, 'interrupted');
  assert.ok(seen.stopped_at);
  const was = (await call(second, 'GET', `${box.at}/execs/${exec.id}`)).json;
  assert.equal(was.status, 'interrupted');
  assert.equal(was.exit_code, null);
  assert.equal(was.signal, null);
  assert.equal(was.stdout_bytes, 5);
  assert.equal((await call(second, 'GET', `${box.at}/execs/${exec.id}/stdout`)).raw.toString(), 'kept\n');
  assert.equal((await call(second, 'GET', `${box.at}/execs/${exec.id}/stderr`)).raw.toString(), 'also\n');
  assert.equal((await call(second, 'POST', `${box.at}/exec`, { command: 'true' })).status, 409);
  const other = await make(second);
  assert.equal((await other.run('echo new')).stdout, 'new\n');
  await other.end();
});

test('kill -9 of the launcher: its sandboxes are interrupted, new ones can be made', async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 1 } } });
  const box = await make(cay);
  const exec = await box.run('echo kept; sleep 1000', { background: true });
  await until(async () => (await box.call('GET', `/execs/${exec.id}`)).json.stdout_bytes === 5);
  const { launcher } = startersOf(cay);
  const family = familyOf(launcher);
  process.kill(launcher, 'SIGKILL');
  const ended = await until(async () => {
    const o = await box.get();
    return o.status !== 'running' && o;
  });
  assert.equal(ended.status, 'interrupted');
  assert.equal(ended.error.code, 'unavailable');
  const was = (await box.call('GET', `/execs/${exec.id}`)).json;
  assert.equal(was.status, 'interrupted');
  assert.equal(was.exit_code, null);
  await until(() => family.every((pid) => !alive(pid)), 'the end of its processes');
  const next = await until(async () => {
    const answer = await call(cay, 'POST', '/v1/sandboxes', {});
    return answer.status === 201 && answer.json;
  });
  assert.equal((await call(cay, 'POST', `/v1/sandboxes/${next.id}/exec`, { command: 'echo again' })).json.stdout, 'again\n');
});

test('whatever stands by the launcher is killed, sandboxes with binds are made again', async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 0 } } });
  const work = async () => (await request(cay, '/v1/code', { method: 'POST', body: JSON.stringify({ command: 'echo here > there' }) })).json();
  assert.match((await work()).detail.diff, /here/);
  const { launcher } = startersOf(cay);
  // What binds, and where there are control groups what clears them away.
  for (const pid of childrenOf(launcher)) {
    if (!alive(launcher)) break; // it went with what binds, and another has come
    if (!alive(pid)) continue; // of the sandbox that has just ended
    process.kill(pid, 'SIGKILL');
    await until(() => !alive(pid), 'its end');
    await until(async () => (await work()).detail?.diff?.includes('here'), 'work');
  }
  assert.ok(!alive(launcher), 'one that can bind nothing gives way to the next');
});

test('a killed starter is replaced, and its sandboxes go on', { skip: !isRoot && 'only root has one' }, async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 0 } } });
  const box = await make(cay);
  const ticks = await box.run('while :; do echo tick; sleep 0.05; done', { background: true });
  const goesOn = async () => {
    const size = async () => (await box.call('GET', `/execs/${ticks.id}`)).json.stdout_bytes;
    const was = await size();
    await until(async () => (await size()) > was, 'more output');
    assert.equal((await box.run('echo here')).stdout, 'here\n');
    await (await make(cay)).end();
  };
  const { session, launcher } = startersOf(cay);
  // First the one that works, then the one that watches; each twice, so that the new ones are met too.
  for (const which of ['worker', 'watcher', 'worker', 'watcher']) {
    const before = startersOf(cay, { session, launcher });
    process.kill(before[which], 'SIGKILL');
    await until(() => {
      const now = startersOf(cay, { session, launcher });
      return now.worker && now.watcher && now[which] !== before[which] && now;
    }, `another ${which}`);
    await goesOn();
  }
  // Who has taken over starts launchers: this one's sandboxes end with it.
  process.kill(launcher, 'SIGKILL');
  await until(async () => (await box.get()).status === 'interrupted');
  await until(async () => (await call(cay, 'POST', '/v1/sandboxes', {})).status === 201, 'a new launcher');
});

test('when the starters are killed at once that is said, and sandboxes go on', { skip: !isRoot && 'only root has them' }, async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 0 } } });
  const box = await make(cay);
  const { watcher, worker, launcher } = startersOf(cay);
  process.kill(watcher, 'SIGSTOP'); // so that it does not see the end of the other
  process.kill(worker, 'SIGKILL');
  process.kill(watcher, 'SIGKILL');
  await until(() => !alive(watcher) && !alive(worker));
  assert.equal((await box.run('echo here')).stdout, 'here\n');
  await until(() => /sandbox\.starter/.test(cay.stderr()));
  process.kill(launcher, 'SIGKILL');
  const refused = await until(async () => {
    const answer = await call(cay, 'POST', '/v1/sandboxes', {});
    return answer.status === 503 && /Restart cay/.test(answer.json.error.message) && answer;
  });
  assert.match(refused.json.error.message, /sandboxes/);
  assert.equal((await request(cay, '/v1/status')).json().sandboxes.available, false);
  assert.equal((await request(cay, '/health')).status, 200);
});

test('the end of the server ends its sandboxes', async () => {
  const cay = await startCay({ config: { sandboxes: { pool: 1 }, limits: { drain_timeout_ms: 1000 } } });
  const box = await make(cay);
  await box.run('sleep 1000', { background: true });
  const family = familyOf(cay.pid);
  await cay.halt();
  await until(() => family.every((pid) => !alive(pid)), 'the end of all processes');
  const second = await startCay({ dataDir: cay.dataDir });
  assert.equal((await call(second, 'GET', box.at)).json.status, 'stopped');
  assert.doesNotMatch(second.stderr(), /sandboxes\.interrupted/);
  await second.stop();
  cay.clean();
});

test('old ones are forgotten, by number and by age', async (t) => {
  const cay = await startCay({ config: { sandboxes: { keep: 2 } } });
  const ids = [];
  for (let i = 0; i < 4; i++) {
    const box = await make(cay);
    await box.run('seq 2000');
    await box.end();
    ids.push(box.id);
  }
  await cay.halt();
  const second = await startCay({ dataDir: cay.dataDir, config: { sandboxes: { keep: 2 } } });
  const listed = (await call(second, 'GET', '/v1/sandboxes')).json.sandboxes.map((s) => s.id);
  assert.deepEqual(listed, ids.slice(2).reverse());
  assert.deepEqual(readdirSync(join(cay.dataDir, 'sandboxes')).sort(), ids.slice(2));
  await second.halt();
  const third = await startCay({ dataDir: cay.dataDir, config: { sandboxes: { keep_s: 0 } } });
  t.after(async () => {
    await third.stop();
    cay.clean();
  });
  assert.deepEqual((await call(third, 'GET', '/v1/sandboxes')).json.sandboxes, []);
  assert.deepEqual(readdirSync(join(cay.dataDir, 'sandboxes')), []);
});

test('the snapshot quota', async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { snapshot_mb: 2, snapshots_mb: 3 } } });
  const box = await make(cay);
  await box.run('head -c 3000000 /dev/urandom > f');
  const big = await box.call('POST', '/snapshots', {});
  assert.equal(big.status, 422);
  assert.match(big.json.error.message, /snapshot_mb/);
  assert.deepEqual(readdirSync(join(cay.dataDir, 'snapshots')), []);
  await box.run('head -c 1800000 /dev/urandom > f');
  assert.equal((await box.call('POST', '/snapshots', {})).status, 201);
  const second = await box.call('POST', '/snapshots', {});
  assert.equal(second.status, 422);
  assert.match(second.json.error.message, /snapshots_mb/);
});

test('as an ordinary user everything works as well', { skip: !isRoot && 'the other tests show it' }, async (t) => {
  // A copy of the programs, for a user who may not look into ours.
  const { cpSync } = await import('node:fs');
  const { spawn } = await import('node:child_process');
  const dir = tempDir(t);
  for (const name of ['cay', 'cay-compile', 'cay-isolate', 'cay-facet', 'cay-sandbox', 'cay-egress', 'cay-spawn'])
    if (existsSync(join(buildDir, name))) cpSync(join(buildDir, name), join(dir, name));
  mkdirSync(join(dir, 'data'));
  mkdirSync(join(dir, 'agents'));
  chownSync(join(dir, 'data'), 12345, 12345);
  const child = spawn(join(dir, 'cay'), ['serve', '--listen', '127.0.0.1:0', '--data-dir', join(dir, 'data'), '--agents-dir', join(dir, 'agents')], {
    uid: 12345,
    gid: 12345,
    cwd: dir,
    env: { PATH: '/usr/bin:/bin', HOME: dir, ...(process.env.ASAN_OPTIONS ? { ASAN_OPTIONS: 'detect_leaks=0' } : {}) },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let out = '';
  let err = '';
  child.stdout.on('data', (d) => (out += d));
  child.stderr.on('data', (d) => (err += d));
  const ended = new Promise((resolve) => child.once('close', resolve));
  try {
    const port = await until(() => /listening {2}http:\/\/127\.0\.0\.1:(\d+)/.exec(out)?.[1], 'a line');
    const cay = { port: Number(port) };
    const box = await make(cay);
    assert.equal((await box.run('id -u; echo hi > f; cat f')).stdout, '1000\nhi\n');
    assert.equal(box.limits.unenforced, undefined);
    const quota = await make(cay, { cpus: 0.5 });
    assert.deepEqual([quota.limits.cpus, quota.limits.unenforced], [0.5, ['cpus']]);
    assert.deepEqual((await quota.get()).limits, quota.limits);
    await quota.end();
    const shot = await box.call('POST', '/snapshots', {});
    assert.equal(shot.status, 201, shot.raw.toString() + err);
    await box.end();
    const copy = await make(cay, { snapshot: shot.json.id });
    assert.equal((await copy.run('cat f')).stdout, 'hi\n');
    // kill -9 of the launcher: the server starts it again by itself.
    const launcher = childrenOf(child.pid).find((pid) => /^Name:\tcay-sandbox$/m.test(status(pid)));
    process.kill(launcher, 'SIGKILL');
    await until(async () => (await call(cay, 'GET', copy.at)).json.status === 'interrupted');
    await until(async () => (await call(cay, 'POST', '/v1/sandboxes', {})).status === 201);
  } finally {
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), 10_000 * slow);
    await ended;
    clearTimeout(timer);
  }
  assert.doesNotMatch(err, /Sanitizer|runtime error/);
});

test('content may hold a NUL, and what a command wrote with one is there after a restart', async (t) => {
  const cay = await startCay({});
  t.after(() => cay.clean());
  const box = await make(cay, { files: [{ path: '/work/a', content: 'x\0y' }], metadata: { a: 'b' } });
  const done = await box.run('cat /work/a -', { stdin: '\0z' });
  assert.equal(done.stdout, 'x\0y\0z');
  await box.end();
  await cay.halt();
  const again = await withCay(t, { dataDir: cay.dataDir });
  const output = await call(again, 'GET', `${box.at}/execs/${done.id}/output`);
  assert.match(output.raw.toString(), /"data":"x\\u0000y\\u0000z"/);
  assert.deepEqual((await call(again, 'GET', box.at)).json.metadata, { a: 'b' });
});

test('a record that cannot be read is listed, says so, and can be deleted', async (t) => {
  const cay = await startCay({});
  t.after(() => cay.clean());
  const box = await make(cay, { name: 'a' });
  const done = await box.run('echo out');
  await box.end();
  await cay.halt();
  withStore(cay.dataDir, (db) => db.exec("UPDATE records SET doc = '{\"name\":'"));
  const again = await withCay(t, { dataDir: cay.dataDir });
  const { sandboxes } = (await call(again, 'GET', '/v1/sandboxes')).json;
  assert.deepEqual(sandboxes.map((s) => [s.id, s.error.code]), [[box.id, 'unreadable']]);
  assert.match((await call(again, 'GET', box.at)).json.error.message, /cannot be read: delete it/);
  assert.equal((await call(again, 'GET', `${box.at}/execs/${done.id}`)).json.error.code, 'unreadable');
  assert.equal((await call(again, 'GET', `${box.at}/execs`)).json.execs[0].error.code, 'unreadable');
  assert.equal((await call(again, 'DELETE', box.at)).status, 204);
  assert.equal((await call(again, 'GET', box.at)).status, 404);
});
