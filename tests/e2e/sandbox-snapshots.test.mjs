// Snapshots: what is kept, what comes back, and that no key takes the room of all.
import assert from 'node:assert/strict';
import { chmodSync, chownSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createKey, slow, startCay, tempDir, until, withCay } from '../lib/cay.mjs';
import { call, make } from '../lib/sandbox.mjs';

const isRoot = process.getuid() === 0;

describe('a server with snapshots', () => {
  let cay;
  before(async () => {
    cay = await startCay({ config: { sandboxes: { pool: 0 } } });
  });
  after(() => cay.stop());

  const shoot = async (box) => {
    const made = await box.call('POST', '/snapshots', {});
    assert.equal(made.status, 201, made.raw.toString());
    return made.json;
  };
  const restore = (shot, more = {}) => make(cay, { snapshot: shot.id, ...more });

  test('a deep tree takes no time, and a folder named as ours is the guest’s', async () => {
    const box = await make(cay);
    await box.run('p=/work; for i in $(seq 1000); do p=$p/d; done; mkdir -p $p; echo deep > $p/f; mkdir -p rootfs/home/.disk; echo mine > rootfs/home/.disk/data');
    const begun = Date.now();
    const shot = await shoot(box);
    assert.ok(Date.now() - begun < 4000 * slow, `${Date.now() - begun} ms`);
    await box.end();
    const copy = await restore(shot);
    const done = await copy.run('cat rootfs/home/.disk/data; p=/work; for i in $(seq 1000); do p=$p/d; done; cat $p/f; ls -a /home');
    assert.equal(done.stdout, 'mine\ndeep\n.\n..\ncay\n', done.stderr);
    assert.deepEqual(shot.warnings, []);
    await copy.end();
  });

  test('holes stay holes, and what fitted once fits again', async () => {
    const box = await make(cay);
    await box.run('for i in 1 2 3; do truncate -s 300M s$i; printf x >> s$i; done; ln s1 hard; head -c 20000000 /dev/urandom > r; sha1sum r > sum');
    const shot = await shoot(box);
    assert.ok(shot.size < 30e6, String(shot.size));
    await box.end();
    const copy = await restore(shot);
    assert.equal((await copy.run('stat -c %s s1 s2 s3; tail -c 1 s3; sha1sum -c sum; stat -c %h hard')).stdout, '314572801\n314572801\n314572801\nxr: OK\n2\n');
    await copy.end();
  });

  test('paths that are too long for any program do not keep the rest back', async () => {
    const box = await make(cay);
    await box.run(['/usr/bin/python3', '-c', `
import os
open('/work/f', 'w').write('here')
os.chdir('/work')
for i in range(50):
    os.mkdir('d' * 100); os.chdir('d' * 100)
open('deep', 'w').write('deep')
`]);
    const shot = await shoot(box);
    await box.end();
    const copy = await restore(shot);
    assert.match(copy.warnings[0], /^\d+ paths of the snapshot are too long/);
    assert.equal((await copy.run('cat f; ls -d d*/d* | wc -l')).stdout, 'here1\n');
    assert.deepEqual((await copy.get()).warnings, copy.warnings);
    await copy.end();
  });

  test('every kind of thing a guest can leave comes back, or is named', async () => {
    const box = await make(cay);
    await box.run(['/usr/bin/python3', '-c', `
import os, socket
os.mkfifo('/work/fifo')
socket.socket(socket.AF_UNIX).bind('/work/sock')
open(b'/work/caf\\xe9', 'w').write('latin')
open('/work/line\\nbreak', 'w').write('odd')
open('/work/-rf', 'w').write('dash')
os.mkdir('/work/ro'); open('/work/ro/in', 'w').write('in'); os.chmod('/work/ro', 0o555)
open('/work/suid', 'w').write('s'); os.chmod('/work/suid', 0o6755)
open('/work/old', 'w').close(); os.utime('/work/old', (-5, -5))
open('/work/new', 'w').close(); os.utime('/work/new', (2**33, 2**33))
open('/work/secret', 'w').write('s'); os.chmod('/work/secret', 0)
os.mkdir('/work/closed'); os.chmod('/work/closed', 0)
`]);
    const shot = await shoot(box);
    const said = shot.warnings.join('\n');
    for (const name of ['work/secret', 'work/closed', 'work/sock']) assert.ok(said.includes(name), said);
    assert.equal(shot.warnings.length, 3, said);
    assert.deepEqual((await call(cay, 'GET', `/v1/snapshots/${shot.id}`)).json, shot);
    await box.end();
    const copy = await restore(shot);
    const done = await copy.run(['/usr/bin/python3', '-c', `
import os, stat
print(stat.S_ISFIFO(os.stat('/work/fifo').st_mode), open(b'/work/caf\\xe9').read(), open('/work/line\\nbreak').read(), open('/work/-rf').read(),
      open('/work/ro/in').read(), oct(os.stat('/work/ro').st_mode & 0o7777), oct(os.stat('/work/suid').st_mode & 0o7777),
      int(os.stat('/work/old').st_mtime), int(os.stat('/work/new').st_mtime), os.path.exists('/work/secret'))
`]);
    assert.equal(done.stdout, 'True latin odd dash in 0o555 0o6755 -5 8589934592 False\n', done.stderr);
    await copy.end();
  });

  test('files that change and vanish meanwhile do not spoil it', async () => {
    const box = await make(cay);
    await box.run('mkdir d; for i in $(seq 200); do head -c 100000 /dev/zero > d/$i; done');
    await box.run('while :; do for i in $(seq 200); do head -c $((RANDOM * 4)) /dev/zero > d/$i; rm -f d/$((RANDOM % 200)); done; done', { background: true });
    for (let i = 0; i < 3; i++) {
      const shot = await shoot(box);
      const copy = await restore(shot);
      await copy.end();
      assert.equal((await box.call('GET', '/tar?path=/work')).status, 200);
    }
    await box.end();
  });

  test('what does not fit into a smaller disk says so', async () => {
    const box = await make(cay);
    await box.run('head -c 30000000 /dev/urandom > f');
    const shot = await shoot(box);
    await box.end();
    const small = await call(cay, 'POST', '/v1/sandboxes', { snapshot: shot.id, disk_mb: 8 });
    assert.equal(small.status, 422, small.raw.toString());
    assert.match(small.json.error.message, /disk_mb/);
    const two = await make(cay);
    await two.run('head -c 6000000 /dev/urandom > f; cp f g');
    const shot2 = await shoot(two);
    await two.end();
    const full = await call(cay, 'POST', '/v1/sandboxes', { snapshot: shot2.id, disk_mb: 8 });
    assert.equal(full.status, 422, full.raw.toString());
    assert.match(full.json.error.message, /disk_mb.*work\/[fg]/);
  });
});

test('a bound folder is not part of a snapshot, and is not written to by one', async (t) => {
  const dir = tempDir(t);
  for (const name of ['ro', 'rw']) {
    mkdirSync(join(dir, name));
    writeFileSync(join(dir, name, 'host'), 'of the host\n');
    chmodSync(join(dir, name), 0o755);
    if (isRoot) for (const path of [join(dir, name), join(dir, name, 'host')]) chownSync(path, 12345, 12345);
  }
  const cay = await withCay(t, { config: { sandboxes: { pool: 0, binds: { ro: { path: join(dir, 'ro') }, rw: { path: join(dir, 'rw'), mode: 'rw' } } } } });
  const binds = [{ name: 'ro', path: '/work/r[o]' }, { name: 'rw', path: '/work/rw', mode: 'rw' }];
  const box = await make(cay, { binds });
  await box.run('echo mine > m; mkdir ro; echo kept > ro/f');
  const shot = await box.call('POST', '/snapshots', {});
  assert.equal(shot.status, 201, shot.raw.toString());
  await box.end();
  writeFileSync(join(dir, 'rw', 'host'), 'newer\n');
  const again = await make(cay, { binds, snapshot: shot.json.id });
  assert.equal((await again.run('cat m r\\[o\\]/host rw/host')).stdout, 'mine\nof the host\nnewer\n');
  await again.end();
  const without = await make(cay, { snapshot: shot.json.id });
  assert.equal((await without.run('cat m ro/f; ls')).stdout, 'mine\nkept\nm\nro\n');
  assert.equal(readFileSync(join(dir, 'rw', 'host'), 'utf8'), 'newer\n');
});

/** A sandbox whose tar never ends. */
const endless = { env: { PATH: '/work/bin:/usr/bin' }, files: [{ path: '/work/bin/tar', content: '#!/bin/sh\necho begun\nsleep 1000', mode: 0o755 }] };

test('slow snapshots end in time, and keep nobody from making theirs', async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 0, max: 8, max_per_key: 6, snapshot_mb: 4, snapshots_mb: 16, snapshot_s: 3 } } });
  const greedy = await createKey(cay.dataDir, { name: 'greedy' });
  const modest = await createKey(cay.dataDir, { name: 'modest' });
  const boxes = [];
  for (let i = 0; i < 4; i++) boxes.push(await make(cay, endless, greedy));
  const slowOnes = boxes.map((box) => box.call('POST', '/snapshots', {}));
  const box = await make(cay, {}, modest);
  await box.run('head -c 1000000 /dev/urandom > f');
  for (let i = 0; i < 3; i++) {
    const made = await box.call('POST', '/snapshots', {});
    assert.equal(made.status, 201, made.raw.toString());
  }
  for (const made of await Promise.all(slowOnes)) {
    assert.equal(made.status, 422, made.raw.toString());
    assert.match(made.json.error.message, /snapshot_s/);
  }
  assert.equal((await call(cay, 'GET', '/v1/snapshots', undefined, greedy)).json.snapshots.length, 0);
  assert.equal(readdirSync(join(cay.dataDir, 'snapshots')).length, 3);
  // Tar is gone: the sandbox can be asked again.
  assert.equal((await boxes[0].call('POST', '/snapshots', {})).status, 422);
});

test('a sandbox is not paused while it is kept, and that ends in time', async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 0, snapshot_s: 3 } } });
  const box = await make(cay, endless);
  const made = box.call('POST', '/snapshots', {});
  await until(async () => readdirSync(join(cay.dataDir, 'snapshots')).length === 1);
  assert.equal((await box.call('POST', '/pause')).status, 409);
  assert.equal((await made).status, 422);
  assert.deepEqual(readdirSync(join(cay.dataDir, 'snapshots')), []);
  await box.end();
});

test('one key does not take the room of the others', async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 0, snapshot_mb: 3, snapshots_mb: 8 } } });
  const greedy = await createKey(cay.dataDir, { name: 'greedy' });
  const modest = await createKey(cay.dataDir, { name: 'modest' });
  const box = await make(cay, {}, greedy);
  await box.run('head -c 1900000 /dev/urandom > f');
  const codes = [];
  for (let i = 0; i < 6; i++) codes.push(await box.call('POST', '/snapshots', {}));
  assert.deepEqual(codes.map((it) => it.status), [201, 201, 201, 422, 422, 422]);
  assert.match(codes[5].json.error.message, /snapshots_mb_per_key/);
  const other = await make(cay, {}, modest);
  await other.run('head -c 1500000 /dev/urandom > f');
  assert.equal((await other.call('POST', '/snapshots', {})).status, 201);
  // All are full: that is nothing a key can mend by itself.
  const full = await other.call('POST', '/snapshots', {});
  assert.equal(full.status, 429, full.raw.toString());
  assert.ok(full.headers['retry-after']);
  assert.match(full.json.error.message, /snapshots_mb\b/);
  const third = await make(cay);
  assert.equal((await third.call('POST', '/snapshots', {})).status, 201, 'a small one still fits');
});
