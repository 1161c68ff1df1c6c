// `cay sandbox` against a real server: every verb, both ways of copying, streams, signals, a terminal,
// a connection that is cut, and what is said when something is wrong.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, lstatSync, mkdirSync, readFileSync, readdirSync, readlinkSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { bearer, createKey, isSanitized, request, slow, startCay, tempDir, until } from '../lib/cay.mjs';
import { program, startProgram } from '../lib/program.mjs';

const limit = { timeout: 90_000 * slow };
const quoted = (word) => `'${word.replaceAll("'", `'\\''`)}'`;

const start = (t, server, args, { env, ...more } = {}) => startProgram(t, args, { env: { CAY_URL: server.url, ...env }, ...more });

async function run(t, server, args, options = {}) {
  const it = start(t, server, ['sandbox', ...args], { input: '', ...options });
  const { code, signal } = await it.ended;
  assert.doesNotMatch(it.err, /Sanitizer|runtime error:/);
  assert.equal(signal, null);
  return { ...it, code, bytes: Buffer.concat(it.raw) };
}

async function ok(t, server, ...args) {
  const done = await run(t, server, args);
  assert.equal(done.code, 0, `${args.join(' ')}: ${done.err}`);
  return done.out;
}

let shared;
/** One server for the tests that only use it. */
async function withServer() {
  shared ??= await startCay();
  return shared;
}
test.after(async () => shared?.stop());

async function withBox(t, ...args) {
  const server = await withServer();
  const id = (await ok(t, server, 'create', ...args)).trim();
  assert.match(id, /^sbx_\w{26}$/);
  t.after(() => request(server, `/v1/sandboxes/${id}`, { method: 'DELETE' }));
  return { server, id };
}

test('create, ls, inspect, extend, pause, resume, rm', limit, async (t) => {
  const { server, id } = await withBox(t, '--name', 'life', '--timeout', '10m', '--memory', '200m', '-e', 'A=1=2', '-l', 'team=x');
  const record = JSON.parse(await ok(t, server, 'inspect', 'life'));
  assert.deepEqual([record.id, record.name, record.limits.memory_mb, record.metadata.team], [id, 'life', 200, 'x']);
  assert.equal(await ok(t, server, 'exec', 'life', 'printenv', 'A'), '1=2\n');
  const table = await ok(t, server, 'ls');
  assert.match(table, /\d\.\dM {2}life/);
  assert.doesNotMatch(table, / 0\.0M {2}life/, 'measured now');
  assert.match(table, /^ID +STATUS +AGE +LEFT +MEMORY +NAME\n/);
  assert.match(table, new RegExp(`^${id} +running +\\d+s +9m|10m .* life$`, 'm'));
  assert.ok((await ok(t, server, 'ls', '-q')).split('\n').includes(id));
  assert.equal(JSON.parse(await ok(t, server, 'ls', '-o', 'json')).find((it) => it.id === id).name, 'life');
  const end = Date.parse((await ok(t, server, 'extend', 'life', '1h')).trim());
  assert.ok(Math.abs(end - Date.now() - 3_600_000) < 30_000);
  assert.equal(await ok(t, server, 'pause', 'life'), `${id}\n`);
  assert.match(await ok(t, server, 'ls'), new RegExp(`^${id} +paused`, 'm'));
  assert.equal(await ok(t, server, 'resume', '-q', 'life'), '');
  assert.equal(await ok(t, server, 'port', 'life', '8000'), `http://8000-${id}.localhost:${server.port}/\n`);
  await ok(t, server, 'rm', 'life');
  assert.doesNotMatch(await ok(t, server, 'ls', '-q'), new RegExp(id));
  assert.match(await ok(t, server, 'ls', '-a'), new RegExp(`^${id} +stopped`, 'm'));
  assert.equal((await run(t, server, ['exec', 'life', 'true'])).code, 66, 'the name is free again');
});

test('a name leads to one sandbox', limit, async (t) => {
  const { server, id } = await withBox(t, '--name', 'only');
  const second = await run(t, server, ['create', '--name', 'only']);
  assert.equal(second.code, 75);
  assert.match(second.err, new RegExp(`${id} has the name "only" already: choose another name`));
  const many = await Promise.all(Array.from({ length: 4 }, () => request(server, '/v1/sandboxes', { method: 'POST', body: '{"name":"raced"}' })));
  assert.deepEqual(many.map((res) => res.status).sort(), [201, 409, 409, 409]);
  await ok(t, server, 'rm', 'raced');
  await ok(t, server, 'rm', 'only');
  await withBox(t, '--name', 'only');
});

test('a shell without a terminal runs what comes in, and ends with it', limit, async (t) => {
  const { server, id } = await withBox(t);
  const piped = await run(t, server, ['sh', id], { input: 'echo $((6 * 7)); tty; exit 3\n' });
  assert.deepEqual([piped.code, piped.out], [3, '42\nnot a tty\n'], piped.err);
  assert.equal((await run(t, server, ['sh', id], { input: '' })).code, 0);
  const waiting = start(t, server, ['sandbox', 'sh', id]);
  waiting.child.stdin.write('echo ready\n');
  await until(() => waiting.out === 'ready\n', 'the shell');
  waiting.child.kill('SIGTERM');
  assert.equal((await waiting.ended).code, 143);
});

test('the status of the command is the status', limit, async (t) => {
  const { server, id } = await withBox(t);
  const cases = [
    [['true'], 0],
    [['--', 'sh', '-c', 'exit 3'], 3],
    [['sh', '-c', 'kill -9 $$'], 137],
    [['nosuch-command'], 127],
    [['/etc/passwd'], 126],
  ];
  for (const [args, code] of cases) {
    const done = await run(t, server, ['exec', id, ...args]);
    assert.equal(done.code, code, `${args.join(' ')}: ${done.err}`);
  }
  assert.match((await run(t, server, ['exec', id, 'nosuch-command'])).err, /^cay: nosuch-command: /);
  const late = await run(t, server, ['exec', '--timeout', '1s', id, 'sleep', '60']);
  assert.equal(late.code, 124);
  assert.equal((await run(t, server, ['exec', id, '-w', '/tmp', '-e', 'X=y', '--', 'sh', '-c', 'pwd; echo $X'])).out, '/tmp\ny\n');
});

test('bytes go in and out as they are, and as they happen', limit, async (t) => {
  const { server, id } = await withBox(t);
  const bytes = Buffer.from(Array.from({ length: 900_000 }, (_, i) => (i * 7) % 256));
  const done = await run(t, server, ['exec', id, 'cat'], { input: bytes });
  assert.equal(done.bytes.length, bytes.length, done.err);
  assert.ok(done.bytes.equals(bytes));
  const both = await run(t, server, ['exec', id, 'sh', '-c', 'echo out; echo err >&2']);
  assert.deepEqual([both.out, both.err], ['out\n', 'err\n']);
  const it = start(t, server, ['sandbox', 'exec', id, 'sh', '-c', 'echo ready; read line; echo "got $line"; cat > /dev/null; echo end']);
  await until(() => it.out === 'ready\n', 'the first line');
  it.child.stdin.write('something\n');
  await until(() => it.out === 'ready\ngot something\n', 'the second line');
  it.child.stdin.end();
  assert.deepEqual(await it.ended, { code: 0, signal: null });
  assert.equal(it.out, 'ready\ngot something\nend\n');
  const record = JSON.parse(await ok(t, server, 'exec', '-o', 'json', id, '--', 'sh', '-c', 'echo o; printf "\\377" >&2'));
  assert.deepEqual([record.exit_code, record.stdout, record.stderr_base64], [0, 'o\n', '/w==']);
});

test('signals, a reader that has enough, a command left behind', limit, async (t) => {
  const { server, id } = await withBox(t);
  const trapping = start(t, server, ['sandbox', 'exec', id, 'sh', '-c', 'trap "echo caught; exit 9" INT; echo ready; while :; do sleep 0.05; done']);
  await until(() => trapping.out.includes('ready'), 'the command');
  trapping.child.kill('SIGINT');
  assert.deepEqual(await trapping.ended, { code: 9, signal: null });
  assert.match(trapping.out, /caught/);
  const line = `{ ${quoted(program)} sandbox exec ${id} yes; echo "status $?" >&2; } | head -2`;
  const piped = start(t, server, ['-c', line], { command: 'sh', input: '' });
  await piped.ended;
  assert.deepEqual([piped.out, piped.err], ['y\ny\n', 'status 141\n']);
  const exec = (await ok(t, server, 'exec', '--detach', id, 'sh', '-c', 'for i in 1 2 3 4; do echo $i; sleep 0.2; done; exit 5')).trim();
  assert.match(exec, /^exec_\w{26}$/);
  const soFar = await ok(t, server, 'logs', id, exec);
  assert.match(soFar, /^(1\n(2\n(3\n(4\n)?)?)?)?$/);
  assert.equal(await ok(t, server, 'logs', '-f', id), '1\n2\n3\n4\n');
  assert.equal(await ok(t, server, 'logs', id, exec), '1\n2\n3\n4\n');
});

test('output is whole when the connection is cut again and again', limit, async (t) => {
  const { server, id } = await withBox(t);
  const sockets = new Set();
  const relay = createServer((near) => {
    const far = connect(server.port, '127.0.0.1');
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on('error', () => socket.destroy());
      socket.on('close', () => (near.destroy(), far.destroy(), sockets.delete(socket)));
    }
    near.pipe(far).pipe(near);
  });
  await new Promise((resolve) => relay.listen(0, '127.0.0.1', resolve));
  t.after(() => relay.close());
  const through = { url: `http://127.0.0.1:${relay.address().port}` };
  const script = 'i=0; while [ $i -lt 300 ]; do echo "line $i"; i=$((i+1)); sleep 0.01; done';
  const it = start(t, through, ['sandbox', 'exec', id, 'sh', '-c', script], { input: '' });
  for (let cut = 1; cut <= 4; cut++) {
    await until(() => it.out.split('\n').length > cut * 50, 'output');
    for (const socket of sockets) socket.destroy();
  }
  assert.deepEqual(await it.ended, { code: 0, signal: null });
  assert.equal(it.out, Array.from({ length: 300 }, (_, i) => `line ${i}\n`).join(''));
});

/** A way to the server that can be made to swallow what is sent on it, without a word. */
async function frozenWay(t, server) {
  const way = { sockets: new Set(), silent: false };
  const relay = createServer((near) => {
    way.sockets.add(near);
    near.on('error', () => near.destroy());
    near.on('close', () => way.sockets.delete(near));
    if (way.silent) return near.resume();
    const far = connect(server.port, '127.0.0.1');
    far.on('error', () => far.destroy());
    far.on('close', () => near.destroy());
    near.on('close', () => far.destroy());
    near.on('data', (data) => near.mute || far.write(data));
    far.on('data', (data) => near.mute || near.write(data));
  });
  await new Promise((resolve) => relay.listen(0, '127.0.0.1', resolve));
  t.after(() => (relay.close(), [...way.sockets].forEach((socket) => socket.destroy())));
  way.url = `http://127.0.0.1:${relay.address().port}`;
  way.freeze = () => way.sockets.forEach((socket) => (socket.mute = true));
  return way;
}

test('one SIGTERM is enough when the server does not answer any more', limit, async (t) => {
  const { server, id } = await withBox(t);
  const way = await frozenWay(t, server);
  const command = ['sh', '-c', 'trap "" TERM; echo ready; while :; do sleep 0.1; done'];
  const it = start(t, way, ['sandbox', 'exec', id, ...command], { input: '' });
  await until(() => it.out.includes('ready'), 'the command');
  way.silent = true;
  way.freeze();
  const begun = Date.now();
  it.child.kill('SIGTERM');
  assert.deepEqual(await it.ended, { code: 143, signal: null });
  assert.ok(Date.now() - begun < 10_000 * slow);
  assert.match(it.err, /does not answer; the command may still run/);
});

test('a connection that died in silence is noticed, and its output taken up elsewhere', { ...limit, skip: isSanitized && 'it only waits' }, async (t) => {
  const { server, id } = await withBox(t);
  const way = await frozenWay(t, server);
  const it = start(t, way, ['sandbox', 'exec', id, 'sh', '-c', 'echo first; sleep 1; echo second; exit 3'], { input: '' });
  await until(() => it.out.includes('first'), 'output');
  way.freeze();
  assert.deepEqual(await it.ended, { code: 3, signal: null });
  assert.equal(it.out, 'first\nsecond\n');
});

test('copying files and folders, both ways', limit, async (t) => {
  const { server, id } = await withBox(t, '--name', 'copy');
  const dir = tempDir(t);
  const from = join(dir, 'from');
  mkdirSync(join(from, 'sub'), { recursive: true });
  const bytes = Buffer.from(Array.from({ length: 3_000_000 }, (_, i) => (i * 31) % 256));
  writeFileSync(join(from, 'big'), bytes);
  writeFileSync(join(from, 'sub/run me'), '#!/bin/sh\necho ran\n');
  chmodSync(join(from, 'sub/run me'), 0o755);
  symlinkSync('../big', join(from, 'sub/link'));
  const long = join(...Array(5).fill('n'.repeat(60)));
  mkdirSync(join(from, long), { recursive: true });
  writeFileSync(join(from, long, '-rf \n é'), 'deep');
  symlinkSync(`${'../'.repeat(5)}${'x/'.repeat(80)}y`, join(from, long, 'link'));

  // A file: to a name, into a folder, back again.
  await ok(t, server, 'cp', join(from, 'big'), 'copy:/work/new/name');
  await ok(t, server, 'cp', join(from, 'sub/run me'), `${id}:/work`);
  assert.equal(await ok(t, server, 'exec', id, '/work/run me'), 'ran\n');
  await ok(t, server, 'cp', 'copy:/work/new/name', join(dir, 'back'));
  assert.ok(readFileSync(join(dir, 'back')).equals(bytes));
  await ok(t, server, 'cp', 'copy:new/name', dir);
  assert.ok(readFileSync(join(dir, 'name')).equals(bytes));

  // A folder: into one that is there, as a new one, back again.
  await ok(t, server, 'cp', from, 'copy:/work');
  await ok(t, server, 'cp', from, 'copy:/work/other');
  for (const at of ['/work/from', '/work/other']) assert.equal(await ok(t, server, 'exec', id, `${at}/sub/run me`), 'ran\n');
  await ok(t, server, 'cp', 'copy:/work/from', join(dir, 'folder'));
  assert.ok(readFileSync(join(dir, 'folder/big')).equals(bytes));
  assert.equal(readlinkSync(join(dir, 'folder/sub/link')), '../big');
  assert.ok(statSync(join(dir, 'folder/sub/run me')).mode & 0o100);
  await ok(t, server, 'cp', 'copy:/work/from', join(dir, 'folder'));
  assert.ok(existsSync(join(dir, 'folder/from/big')), 'into a folder that is there');
  assert.equal(readFileSync(join(dir, 'folder', long, '-rf \n é'), 'utf8'), 'deep');
  assert.equal(readlinkSync(join(dir, 'folder', long, 'link')), `${'../'.repeat(5)}${'x/'.repeat(80)}y`);
  execFileSync('mkfifo', [join(from, 'pipe')]);
  const part = await run(t, server, ['cp', from, 'copy:/work/part']);
  assert.equal(part.code, 3, part.err);
  assert.match(part.err, /pipe: a pipe, socket or device/);

  // Archives in pipes.
  const packed = await run(t, server, ['cp', 'copy:/work/from/sub', '-']);
  assert.equal(packed.code, 0, packed.err);
  const unpacked = await run(t, server, ['cp', '-', 'copy:/tmp'], { input: packed.bytes });
  assert.equal(unpacked.code, 0, unpacked.err);
  assert.equal(await ok(t, server, 'exec', id, '/tmp/run me'), 'ran\n');

  for (const [args, code, text] of [
    [['cp', 'copy:/nosuch', dir], 66, /nosuch|No such/],
    [['cp', '/nosuch', 'copy:/work'], 74, /\/nosuch: No such file/],
    [['cp', from, dir], 2, /SANDBOX:PATH/],
    [['cp', 'copy:/a', 'copy:/b'], 2, /SANDBOX:PATH/],
    [['cp', from, 'nosuch:/work'], 66, /no sandbox has the id or name "nosuch"/],
  ]) {
    const done = await run(t, server, args);
    assert.equal(done.code, code, `${args.join(' ')}: ${done.err}`);
    assert.match(done.err, text);
  }
  assert.deepEqual(readdirSync(dir).filter((name) => name.includes('.part')), [], 'nothing half is left');
});

test('what a guest packs stays in the folder it is copied to', limit, async (t) => {
  const { server, id } = await withBox(t);
  const dir = tempDir(t);
  const make = `mkdir -p /work/d/sub; cd /work/d; echo evil > /work/outside
    ln -s /etc/passwd abs; ln -s ../../../x up; ln -s sub inner; mkfifo pipe; echo fine > file; ln file hard
    mkdir -p .git/hooks sub/bare/objects sub/bare/refs; echo x >.git/config; echo 'ref: refs/heads/x' >sub/bare/HEAD; echo x >sub/bare/config`;
  await ok(t, server, 'exec', id, 'sh', '-c', make);
  writeFileSync(join(dir, 'x'), 'untouched');
  const done = await run(t, server, ['cp', `${id}:/work/d`, join(dir, 'out')]);
  assert.equal(done.code, 3, done.err);
  assert.match(done.err, /\d entries were left out/);
  assert.match(done.err, /abs: the link leads out/);
  assert.match(done.err, /\.git\/config: what git keeps in \.git is not written/);
  assert.ok(!['HEAD', 'objects', 'refs'].every((name) => readdirSync(join(dir, 'out/sub/bare')).includes(name)), 'no repository');
  assert.deepEqual(readdirSync(join(dir, 'out')).filter((name) => name !== 'hard' && name !== 'file').sort(), ['inner', 'sub']);
  assert.ok(lstatSync(join(dir, 'out/inner')).isSymbolicLink());
  assert.equal(readFileSync(join(dir, 'x'), 'utf8'), 'untouched');
  const named = await run(t, server, ['cp', `${id}:/work/d/.git`, dir]);
  assert.equal(named.code, 77, named.err);
  assert.match(named.err, /copy it as an archive/);
  symlinkSync(join(dir, 'x'), join(dir, 'file'));
  await ok(t, server, 'cp', `${id}:/work/d/file`, dir);
  assert.equal(readFileSync(join(dir, 'x'), 'utf8'), 'untouched', 'a link is replaced, not written through');
});

for (const [signal, code] of [['TERM', 143], ['HUP', 129]])
  test(`one signal ends a shell at a terminal, and the shell in its sandbox: SIG${signal}`, limit, async (t) => {
    const { server, id } = await withBox(t);
    // The shell around it stays: what ends is not seen by the end of the terminal.
    const line = `sh -c 'echo "pid $$"; exec "$0" sandbox sh ${id}' ${quoted(program)}; echo "status $?"; stty -a`;
    const it = start(t, server, ['-qefc', line, '/dev/null'], { command: 'script' });
    await until(() => /\$ $/.test(it.out), 'the prompt');
    it.child.stdin.write('echo $$ > /work/pid; echo "re""ady"\r');
    await until(() => /^ready\r$/m.test(it.out), 'the shell');
    process.kill(Number(/pid (\d+)/.exec(it.out)[1]), `SIG${signal}`);
    await it.ended;
    assert.match(it.out, new RegExp(`status ${code}\\r?\\n`));
    assert.match(it.out.slice(it.out.indexOf('status')), /[^-]icanon/, 'our terminal is as it was');
    const isGone = ['exec', id, 'sh', '-c', 'test -s /work/pid && ! test -e "/proc/$(cat /work/pid)"'];
    await until(async () => (await run(t, server, isGone)).code === 0, 'the end of the shell inside');
  });

test('a snapshot is another beginning', limit, async (t) => {
  const { server, id } = await withBox(t);
  await ok(t, server, 'exec', id, 'sh', '-c', 'echo kept > /work/file');
  const snapshot = (await ok(t, server, 'snapshot', '--name', 'first', id)).trim();
  assert.match(snapshot, /^snp_/);
  const { id: second } = await withBox(t, '--snapshot', snapshot);
  assert.equal(await ok(t, server, 'exec', second, 'cat', '/work/file'), 'kept\n');
});

test('a shell at a terminal: size, keys, a change of size, and our own put back', limit, async (t) => {
  const { server, id } = await withBox(t);
  const line = `tty; stty cols 100 rows 40; ${quoted(program)} sandbox sh ${id}; echo "status $?"; stty -a`;
  const it = start(t, server, ['-qefc', line, '/dev/null'], { command: 'script' });
  await until(() => /\$ $/.test(it.out), `the prompt: ${it.out}`);
  const pts = /^(\/dev\/pts\/\d+)/.exec(it.out)[1];
  it.child.stdin.write('stty size\r');
  await until(() => it.out.includes('40 100'), 'the size');
  it.child.stdin.write('cat\r');
  await until(() => {
    it.child.stdin.write('mark\r'); // what is typed before it runs is the shell's
    return /mark\r\nmark\r\n/.test(it.out);
  }, 'cat to answer');
  it.child.stdin.write('\x03');
  await until(() => /\^C[^]*\$ $/.test(it.out), 'the prompt again');
  it.child.stdin.write('echo "a""fter"\r');
  await until(() => /^after\r$/m.test(it.out), 'Ctrl-C as a key');
  const resized = start(t, server, ['-F', pts, 'cols', '90', 'rows', '30'], { command: 'stty', input: '' });
  assert.equal((await resized.ended).code, 0, resized.err);
  await until(() => {
    it.child.stdin.write('stty size\r');
    return it.out.includes('30 90');
  }, 'the new size');
  it.child.stdin.write('exit 5\r');
  await it.ended;
  assert.match(it.out, /status 5\r?\n/);
  const after = it.out.slice(it.out.indexOf('status 5'));
  assert.match(after, /[^-]icanon/, 'our terminal is as it was');
});

test('what a terminal would obey is not printed in a message', limit, async (t) => {
  const { server } = await withBox(t);
  const name = '\x1b]0;owned\x07\u009b31m';
  const it = start(t, server, ['-qefc', `${quoted(program)} sandbox inspect ${quoted(name)}`, '/dev/null'], { command: 'script' });
  await it.ended;
  assert.match(it.out, /no sandbox has the id or name/);
  assert.doesNotMatch(it.out, /[\x1b\x07\u009b]/);
});

test('the key: needed, sent, and only its own sandboxes', limit, async (t) => {
  const server = await startCay({ config: { require_key: true } });
  t.after(() => server.stop());
  const none = await run(t, server, ['ls']);
  assert.equal(none.code, 77, none.err);
  assert.match(none.err, /key.*\(set CAY_API_KEY\)/);
  const env = { CAY_API_KEY: server.key };
  const id = (await run(t, server, ['create', '--name', 'mine'], { env })).out.trim();
  assert.match(id, /^sbx_/);
  const other = await createKey(server.dataDir, { name: 'other' });
  const foreign = { env: { CAY_API_KEY: other.text } };
  assert.equal((await run(t, server, ['ls', '-q'], foreign)).out, '');
  for (const verb of [['inspect', id], ['exec', id, 'true'], ['rm', id], ['logs', id], ['cp', `${id}:/work`, '/tmp/nothing'], ['exec', '-t', id, 'true']]) {
    const done = await run(t, server, verb, foreign);
    assert.equal(done.code, 66, `${verb.join(' ')}: ${done.err}`);
  }
  const tty = start(t, server, ['-qefc', `${quoted(program)} sandbox exec -t ${id} -- sh -c 'exit 4'; echo "status $?"`, '/dev/null'], { command: 'script', env });
  await tty.ended;
  assert.match(tty.out, /status 4/);
  assert.equal((await request(server, `/v1/sandboxes/${id}`, { headers: bearer(server.key) })).status, 200);
});

test('wrong words get exit status 2 and a line that helps', limit, async (t) => {
  const server = { url: 'http://127.0.0.1:1' };
  for (const [args, code, text] of [
    [[], 2, /usage: cay sandbox VERB/],
    [['nonsense'], 2, /`cay sandbox --help`/],
    [['exec'], 2, /say which sandbox\nusage: cay sandbox exec /],
    [['exec', 'x'], 2, /usage: cay sandbox exec .*COMMAND/],
    [['rm'], 2, /say which sandbox/],
    [['ls', 'extra'], 2, /unexpected argument "extra"/],
    [['ls', '--memory', '1g'], 2, /unknown option --memory/],
    [['create', '--memory', 'lots'], 2, /256m/],
    [['create', '--bind', 'nopath'], 2, /NAME:PATH/],
    [['create', '-e', '=x'], 2, /NAME=VALUE/],
    [['extend', 'x', 'soon'], 2, /15m/],
    [['port', 'x', '70000'], 2, /65535/],
    [['ls', '--url', 'ftp://x'], 2, /--url is http/],
    [['ls'], 69, /127\.0\.0\.1:1: .*is `cay serve` running there/],
  ]) {
    const done = await run(t, server, args);
    assert.equal(done.code, code, `${args.join(' ')}: ${done.err}`);
    assert.match(done.err, text, args.join(' '));
  }
  for (const verb of ['create', 'ls', 'exec', 'sh', 'cp', 'logs', 'pause', 'resume', 'extend', 'snapshot', 'rm', 'port', 'inspect']) {
    const help = await ok(t, server, verb, '--help');
    assert.match(help, new RegExp(`^usage: cay sandbox ${verb}`));
    for (const line of help.split('\n')) assert.ok(line.length <= 100, line);
  }
});

test('a name from a server that takes any makes no row', limit, async (t) => {
  const forged = 'sbx_01m7gbff3dmnxbpry7yvsp83rb';
  const sandboxes = [{ id: 'sbx_01m7gbff3dmnxbpry7yvsp83ra', status: 'stopped', name: `a\n${forged}  running\tü` }];
  const server = createHttpServer((req, res) => {
    res.setHeader('Content-Type', 'application/json');
    res.end(JSON.stringify({ sandboxes, next_cursor: null }));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const done = await run(t, { url: `http://127.0.0.1:${server.address().port}` }, ['ls', '-a']);
  assert.equal(done.out.split('\n').length, 3, done.out);
  assert.match(done.out, /a\\x0asbx_01m7gbff3dmnxbpry7yvsp83rb {2}running\\x09ü\n$/);
});
