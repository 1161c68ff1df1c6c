// Files of sandboxes, one by one and as archives.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { isSanitized, startCay, tempDir, until } from '../lib/cay.mjs';
import { make } from '../lib/sandbox.mjs';

let cay;
let box;
before(async () => {
  cay = await startCay({ config: { sandboxes: { pool: 1, upload_mb: 40, disk_mb: 64 } } });
  box = await make(cay);
});
after(() => cay.stop());

const at = (path, more = '') => `/files?path=${encodeURIComponent(path)}${more}`;

test('bytes in and out, small and large, whatever they are', async () => {
  for (const size of [0, 1, 255, 65536, 262143, 262144, 262145, 5_000_000]) {
    const bytes = randomBytes(size);
    const put = await box.call('PUT', at(`/work/f${size}`), bytes);
    assert.equal(put.status, 200, put.raw.toString());
    assert.deepEqual(put.json, { path: `/work/f${size}`, size });
    const got = await box.call('GET', at(`/work/f${size}`));
    assert.equal(got.status, 200);
    assert.equal(got.headers['content-type'], 'application/octet-stream');
    assert.ok(got.raw.equals(bytes), String(size));
  }
  const { stdout } = await box.run('stat -c "%s %a" f5000000');
  assert.equal(stdout, '5000000 644\n');
});

test('modes, appending, parents, names', async () => {
  assert.equal((await box.call('PUT', at('/work/x', '&mode=0755'), '#!/bin/sh\necho ran')).status, 200);
  assert.equal((await box.run('./x')).stdout, 'ran\n');
  assert.equal((await box.call('PUT', at('/work/log'), 'a')).status, 200);
  assert.equal((await box.call('PUT', at('/work/log', '&append=1'), 'b')).status, 200);
  assert.equal((await box.call('GET', at('/work/log'))).raw.toString(), 'ab');
  assert.equal((await box.call('PUT', at('/work/no/such/dir'), 'x')).status, 404);
  assert.equal((await box.call('PUT', at('/work/new/dir/f', '&parents=1'), 'x')).status, 200);
  const odd = '/work/ü ?&%\n"\'\\';
  assert.equal((await box.call('PUT', at(odd), 'odd')).status, 200);
  assert.equal((await box.call('GET', at(odd))).raw.toString(), 'odd');
  assert.ok((await box.call('GET', '/files/list?path=/work')).json.entries.some((e) => e.name === odd.slice(6)));
});

test('stat, list, mkdir, move, delete', async () => {
  assert.equal((await box.call('POST', '/files/mkdir', { path: '/work/d/e', parents: true })).status, 204);
  assert.equal((await box.call('POST', '/files/mkdir', { path: '/work/q/e' })).status, 404);
  await box.run('echo hello > d/f; ln -s f d/l; mkfifo d/p; chmod 600 d/f');
  const stat = (await box.call('GET', '/files/stat?path=/work/d/f')).json;
  assert.deepEqual({ kind: stat.kind, mode: stat.mode, size: stat.size }, { kind: 'file', mode: '0600', size: 6 });
  assert.ok(Math.abs(stat.mtime - Date.now()) < 60_000);
  assert.equal((await box.call('GET', '/files/stat?path=/work/d/l')).json.kind, 'link');
  assert.equal((await box.call('GET', '/files/stat?path=/work/d/l&follow=1')).json.kind, 'file');
  const list = (await box.call('GET', '/files/list?path=/work/d')).json;
  assert.equal(list.more, false);
  assert.deepEqual(
    list.entries.map(({ name, kind }) => [name, kind]).sort(),
    [['e', 'dir'], ['f', 'file'], ['l', 'link'], ['p', 'other']],
  );
  assert.equal((await box.call('POST', '/files/move', { from: '/work/d/f', to: '/work/d/g' })).status, 204);
  assert.equal((await box.call('GET', at('/work/d/g'))).raw.toString(), 'hello\n');
  assert.equal((await box.call('GET', at('/work/d/f'))).status, 404);
  assert.notEqual((await box.call('DELETE', at('/work/d'))).status, 204, 'not empty');
  assert.equal((await box.call('DELETE', at('/work/d', '&recursive=1'))).status, 204);
  assert.equal((await box.call('GET', '/files/stat?path=/work/d')).status, 404);
});

test('a long list comes in pages', async () => {
  await box.run('mkdir many; cd many; touch $(seq 1 2300)');
  const names = new Set();
  let skip = 0;
  for (let more = true; more; ) {
    const page = (await box.call('GET', `/files/list?path=/work/many&skip=${skip}`)).json;
    page.entries.forEach((e) => names.add(e.name));
    skip += page.entries.length;
    more = page.more;
    assert.ok(skip <= 2300);
  }
  assert.equal(names.size, 2300);
});

test('what is not a file of the guest is not served', async () => {
  await box.run('ln -s /etc/shadow s; ln -s /proc/self/environ e; mkfifo pipe; ln -s ../../../../etc/passwd p');
  for (const path of ['/etc/shadow', '/proc/1/environ', '/proc/self/mem', '/work/e', '/work/s', '/work/pipe', '/work', '/dev/zero', '/work/../proc/1/maps']) {
    const { status } = await box.call('GET', at(path));
    assert.ok(status >= 400 && status < 600, `${path}: ${status}`);
  }
  assert.doesNotMatch((await box.call('GET', at('/work/p'))).raw.toString(), /daemon:.*nologin[^]*sshd/);
  for (const path of ['/usr/bin/new', '/etc/passwd', '/proc/sys/kernel/hostname']) {
    const { status } = await box.call('PUT', at(path), 'x');
    assert.ok(status >= 400, path);
  }
});

test('wrong requests', async () => {
  for (const [method, path, body] of [
    ['GET', '/files'],
    ['GET', '/files?path='],
    ['GET', `/files?path=${'a'.repeat(5000)}`],
    ['GET', '/files?path=%00'],
    ['GET', '/files?path=%ff'],
    ['PUT', at('/work/x', '&mode=9'), 'x'],
    ['PUT', at('/work/x', '&mode=4755'), 'x'],
    ['GET', '/files/stat'],
    ['GET', '/files/list?path=/work&skip=-1'],
    ['POST', '/files/mkdir', {}],
    ['POST', '/files/mkdir', { path: 5 }],
    ['POST', '/files/mkdir', { path: '/work/z', owner: 0 }],
    ['POST', '/files/move', { from: '/work/a' }],
    ['GET', '/tar'],
    ['PUT', '/tar', 'x'],
    ['DELETE', '/files'],
  ])
    assert.equal((await box.call(method, path, body)).status, 400, `${method} ${path.slice(0, 50)}`);
});

test('an upload is bounded by the setting, and by the disk', async () => {
  const big = await box.call('PUT', at('/work/big'), Buffer.alloc((40 << 20) + 1)).catch((e) => e);
  assert.ok(big.status === 413 || big.code === 'ECONNRESET' || big.code === 'EPIPE', String(big.status ?? big.code));
  const other = await make(cay, { disk_mb: 4 });
  const full = await other.call('PUT', at('/work/big'), Buffer.alloc(20 << 20)).catch((e) => e);
  assert.ok(full.status === 422 || full.code, String(full.status));
  if (full.json) assert.match(full.json.error.message, /space|large/i);
  await other.end();
});

test('uploads and downloads take little memory', async () => {
  const rss = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${cay.pid}/status`, 'utf8'))[1]) * 1024;
  const before = rss();
  const jobs = Array.from({ length: 3 }, (_, i) => box.call('PUT', at(`/work/m${i}`), Buffer.alloc(15 << 20, i)));
  await Promise.all(jobs);
  const got = await Promise.all(Array.from({ length: 3 }, (_, i) => box.call('GET', at(`/work/m${i}`))));
  got.forEach(({ raw }, i) => assert.ok(raw.equals(Buffer.alloc(15 << 20, i))));
  if (!isSanitized) assert.ok(rss() - before < 24 << 20, `${(rss() - before) >> 20} MiB more`);
  await box.run('rm -f m0 m1 m2');
});

test('a download that is not read, and one that is broken off', async () => {
  await box.run('head -c 20000000 /dev/urandom > big');
  for (let i = 0; i < 5; i++) {
    const req = httpRequest({ host: '127.0.0.1', port: cay.port, path: box.at + at('/work/big'), agent: false });
    const res = await new Promise((resolve) => req.once('response', resolve).end());
    if (i % 2) await new Promise((resolve) => res.once('data', resolve));
    else res.pause();
    res.on('error', () => {});
    req.on('error', () => {});
    req.destroy();
  }
  assert.equal((await box.call('GET', at('/work/big'))).raw.length, 20_000_000);
  await box.run('rm big');
});

test('archives out and in, plain and compressed', async (t) => {
  await box.run('mkdir -p t/sub; echo one > t/a; head -c 3000000 /dev/urandom > t/sub/big; ln -s a t/l; chmod 750 t/a');
  const dir = tempDir(t);
  const out = await box.call('GET', '/tar?path=/work/t');
  assert.equal(out.status, 200);
  assert.equal(out.headers['content-type'], 'application/x-tar');
  writeFileSync(join(dir, 'out.tar'), out.raw);
  const names = execFileSync('tar', ['-tf', join(dir, 'out.tar')], { encoding: 'utf8' });
  for (const name of ['./a', './sub/big', './l']) assert.ok(names.split('\n').includes(name), names);

  const src = join(dir, 'src');
  mkdirSync(join(src, 'x', 'y'), { recursive: true });
  writeFileSync(join(src, 'x', 'y', 'file'), 'from outside\n');
  symlinkSync('y/file', join(src, 'x', 'link'));
  const tar = execFileSync('tar', ['-C', src, '-cf', '-', '.'], { maxBuffer: 1 << 26 });
  for (const [name, bytes] of [['plain', tar], ['gz', gzipSync(tar)], ['back', out.raw]]) {
    await box.run(`mkdir in-${name}`);
    const put = await box.call('PUT', `/tar?path=/work/in-${name}`, bytes);
    assert.equal(put.status, 204, put.raw.toString());
  }
  const done = await box.run('cat in-plain/x/link in-gz/x/y/file; cmp t/sub/big in-back/sub/big && stat -c %a in-back/a; stat -c %u in-plain/x/y/file');
  assert.equal(done.stdout, 'from outside\nfrom outside\n750\n1000\n', done.stderr);
});

test('archives that are none, folders that are not there', async () => {
  const bad = await box.call('PUT', '/tar?path=/work', 'this is no archive'.repeat(100));
  assert.equal(bad.status, 400);
  assert.match(bad.json.error.message, /tar/);
  assert.equal((await box.call('PUT', '/tar?path=/work/none', 'x'.repeat(10240))).status, 400);
  assert.ok((await box.call('GET', '/tar?path=/work/none')).status >= 400);
  assert.ok((await box.call('PUT', '/tar?path=/usr', execFileSync('tar', ['-C', '/etc', '-cf', '-', 'hostname']))).status >= 400);
});

test('an archive cannot leave its sandbox', async (t) => {
  const dir = tempDir(t);
  writeFileSync(join(dir, 'evil'), 'evil\n');
  const tar = execFileSync('tar', ['-C', dir, '-P', '--transform', 's,evil,../../../../../../tmp/cay-escaped-by-tar,', '-cf', '-', 'evil']);
  await box.call('PUT', '/tar?path=/work', tar);
  assert.throws(() => readFileSync('/tmp/cay-escaped-by-tar'));
});

test('a client that leaves in the middle of an archive leaves nothing running', async () => {
  const req = httpRequest({ host: '127.0.0.1', port: cay.port, path: `${box.at}/tar?path=/usr`, agent: false });
  const res = await new Promise((resolve) => req.once('response', resolve).end());
  res.on('error', () => {});
  req.on('error', () => {});
  await new Promise((resolve) => res.once('data', resolve));
  res.pause();
  assert.equal((await box.run('pgrep -c tar || true')).stdout, '1\n');
  req.destroy();
  await until(async () => (await box.run('pgrep -c tar || true')).stdout === '0\n', 'the end of tar');
  assert.equal((await box.run('echo fine')).stdout, 'fine\n');
});

test('an archive of files that change while they are read is whole', async () => {
  await box.run('mkdir c; for i in $(seq 50); do head -c 200000 /dev/zero > c/$i; done');
  const writer = await box.run('while :; do for i in $(seq 50); do head -c $((RANDOM * 8)) /dev/zero > c/$i; done; done', { background: true });
  for (let i = 0; i < 6; i++) {
    const out = await box.call('GET', '/tar?path=/work/c');
    assert.equal(out.status, 200);
    assert.equal(execFileSync('tar', ['-tf', '-'], { input: out.raw, encoding: 'utf8' }).split('\n').length, 52);
  }
  assert.equal((await box.call('POST', `/execs/${writer.id}/signal`, { signal: 'KILL' })).status, 204);
  await box.run('rm -r c');
});

test('an archive of the root is what the guest has written', async () => {
  const other = await make(cay);
  await other.run('echo w > w; mkdir -p rootfs/home/.disk; echo d > rootfs/home/.disk/d; echo h > ~/h; echo t > /tmp/t');
  for (const path of ['/', '//', '/.', '/work/..', '/work/../', '.']) {
    const out = await other.call('GET', `/tar?path=${path}`);
    assert.equal(out.status, 200, out.raw.toString());
    assert.ok(out.raw.length < 100_000, `${path}: ${out.raw.length} bytes`);
    const names = execFileSync('tar', ['-tf', '-'], { input: out.raw, encoding: 'utf8' }).split('\n');
    for (const name of ['./work/w', './work/rootfs/home/.disk/d', './home/cay/h', './tmp/t']) assert.ok(names.includes(name), `${path}: ${names}`);
    assert.ok(!names.some((name) => /^\.\/(usr|proc|home\/\.disk)/.test(name)), String(names));
  }
  await other.end();
});

test('a file that cannot be packed is named, and can be left out', async () => {
  const other = await make(cay);
  await other.run('mkdir d; echo a > d/a; echo s > d/secret; chmod 0 d/secret');
  const refused = await other.call('GET', '/tar?path=/work/d');
  assert.equal(refused.status, 400);
  assert.match(refused.json.error.message, /secret.*skip_unreadable/s);
  const out = await other.call('GET', '/tar?path=/work/d&skip_unreadable=1');
  assert.equal(out.status, 200);
  assert.deepEqual(execFileSync('tar', ['-tf', '-'], { input: out.raw, encoding: 'utf8' }).trim().split('\n').sort(), ['./', './a']);
  await other.end();
});

test('a tree of any depth can be deleted, and nothing beside it', async () => {
  const other = await make(cay);
  await other.run(['/usr/bin/python3', '-c', `
import os
os.mkdir('/work/deep')
for top in range(3):
    os.chdir('/work/deep')
    for i in range(2000):
        os.mkdir('d%d' % top); os.chdir('d%d' % top)
        if i % 100 == 0: open('f', 'w').close(); os.symlink('/work/beside', 'l'); os.mkdir('.cay-delete-%d' % i)
os.mkdir('/work/beside'); open('/work/beside/kept', 'w').close()
`]);
  const done = await other.call('DELETE', at('/work/deep', '&recursive=1'));
  assert.equal(done.status, 204, done.raw.toString());
  assert.equal((await other.run('ls -A /work /work/beside')).stdout, '/work:\nbeside\n\n/work/beside:\nkept\n');
  await other.end();
});

test('pipes, sockets and devices are wrong requests, not failures', async () => {
  const other = await make(cay);
  await other.run(['/usr/bin/python3', '-c', "import os, socket; os.mkfifo('/work/pipe'); socket.socket(socket.AF_UNIX).bind('/work/sock'); os.symlink('/dev/ptmx', '/work/tty')"]);
  for (const path of ['/work/pipe', '/work/sock', '/dev/null', '/dev/zero', '/dev/tty', '/work/tty'])
    for (const [method, body] of [['GET'], ['PUT', 'x'], ['PUT', '']]) {
      const answer = await other.call(method, at(path), body);
      assert.ok(answer.status >= 400 && answer.status < 500, `${method} ${path}: ${answer.raw}`);
      if (path.startsWith('/work/')) assert.match(answer.json.error.message, /pipe, socket or device/, `${method} ${path}`);
    }
  await other.run('cp /usr/bin/sleep busy; ./busy 1000', { background: true });
  await until(async () => (await other.run('pgrep -x busy')).exit_code === 0);
  const busy = await other.call('PUT', at('/work/busy'), 'x');
  assert.equal(busy.status, 409, busy.raw.toString());
  for (const path of ['/work/pipe', '/work/sock']) assert.equal((await other.call('DELETE', at(path))).status, 204);
  await other.end();
});

test('names that are no text can be listed, read, written, moved and deleted', async () => {
  const other = await make(cay);
  await other.run(['/usr/bin/python3', '-c', "import os; os.mkdir(b'/work/d\\xff'); open(b'/work/d\\xff/caf\\xe9', 'w').write('latin')"]);
  const b64 = (text) => Buffer.from(text, 'latin1').toString('base64');
  const inside = (text) => `path_base64=${encodeURIComponent(b64(text))}`;
  const entries = (await other.call('GET', '/files/list?path=/work')).json.entries;
  assert.deepEqual(entries.map(({ name, name_base64 }) => [name, name_base64]), [['d\ufffd', b64('d\xff')]]);
  const listed = (await other.call('GET', `/files/list?${inside('/work/d\xff')}`)).json.entries;
  assert.equal(listed[0].name_base64, b64('caf\xe9'));
  assert.equal((await other.call('GET', `/files?${inside('/work/d\xff/caf\xe9')}`)).raw.toString(), 'latin');
  assert.equal((await other.call('GET', `/files/stat?${inside('/work/d\xff/caf\xe9')}`)).json.size, 5);
  const put = await other.call('PUT', `/files?${inside('/work/d\xff/n\xf8w')}`, 'new');
  assert.deepEqual(put.json, { path: '/work/d\ufffd/n\ufffdw', path_base64: b64('/work/d\xff/n\xf8w'), size: 3 });
  assert.equal((await other.call('POST', '/files/mkdir', { path_base64: b64('/work/\xfe') })).status, 204);
  assert.equal((await other.call('POST', '/files/move', { from_base64: b64('/work/d\xff/n\xf8w'), to: '/work/plain' })).status, 204);
  assert.equal((await other.call('GET', at('/work/plain'))).raw.toString(), 'new');
  assert.equal((await other.call('GET', `/tar?${inside('/work/d\xff')}`)).status, 200);
  // As it comes from tools that spell base 64 for URLs, or forget to escape "+".
  assert.equal((await other.call('GET', `/files/stat?path_base64=${Buffer.from('/work/d\xff', 'latin1').toString('base64url')}`)).status, 200);
  assert.equal((await other.call('DELETE', `/files?${inside('/work/d\xff')}&recursive=1`)).status, 204);
  for (const bad of ['!', '', b64('/work/\0x'), 'A'])
    assert.equal((await other.call('GET', `/files?path_base64=${encodeURIComponent(bad)}`)).status, 400, bad);
  const missing = await other.call('GET', `/files?${inside('/work/\xe9')}`);
  assert.equal(missing.status, 404);
  assert.ok(missing.json.error.message);
  await other.end();
});
