// The server as a process: how it starts, what it holds, how it ends, and what it leaves.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { bearer, buildDir, createKey, isAlive, isSanitized, procText, raw, request, runCay, slow, startCay, startHttpServer, statuses, tempDir, until, withCay } from '../lib/cay.mjs';
import { addRun, makeId, withStore } from '../lib/store.mjs';

const isRoot = process.getuid() === 0;
const procStatus = (pid) => procText(pid, 'status');
const childrenOf = (pid) =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && new RegExp(`^PPid:\\t${pid}$`, 'm').test(procStatus(name)))
    .map(Number);

test('it says where it listens, which model, what isolation, where data lies', async (t) => {
  const cay = await withCay(t);
  assert.match(cay.stdout(), /^cay \d+\.\d+\.\d+\n/);
  assert.match(cay.stdout(), /^ {2}listening {2}http:\/\/127\.0\.0\.1:\d+$/m);
  assert.match(cay.stdout(), /^ {2}model {6}demo/m);
  assert.match(cay.stdout(), /^ {2}isolation {2}kernel ok, /m);
  assert.ok(cay.stdout().includes(`  data       ${cay.dataDir}\n`));
});

test('the server has a system-call filter, which its programs do not inherit', async (t) => {
  const modes = async (config) => {
    const cay = await withCay(t, { config });
    await until(async () => (await request(cay, '/health')).status === 200);
    const seen = {};
    for (const pid of [cay.pid, ...childrenOf(cay.pid)]) {
      const status = procStatus(pid);
      if (!status) continue; // it has ended since
      seen[status.match(/^Name:\t(.*)$/m)[1]] = Number(status.match(/^Seccomp:\t(\d)$/m)[1]);
    }
    return { seen, log: cay.stderr() };
  };
  const on = await modes({});
  if (!isSanitized) assert.equal(on.seen.cay, 2);
  assert.equal(on.seen['cay-spawn'], 0);
  assert.doesNotMatch(on.log, /server\.call_filter/);
  const off = await modes({ call_filter: false });
  assert.equal(off.seen.cay, 0);
  assert.ok(!('cay-spawn' in off.seen));
  assert.match(off.log, /server\.call_filter/);
});

test('a server that nobody uses sleeps', async (t) => {
  const cay = await withCay(t);
  const wakes = () => Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(readFileSync(`/proc/${cay.pid}/task/${cay.pid}/status`, 'utf8'))[1]);
  let each;
  for (let i = 0; i < 60 && !(each <= 14); i++) {
    // Its isolates are made and measured in the first seconds.
    const before = wakes();
    await new Promise((resolve) => setTimeout(resolve, 2000));
    each = wakes() - before;
  }
  assert.ok(each <= 14, `it woke ${each} times in two seconds`);
});

test('SIGTERM lets requests finish, refuses new ones, then ends', async (t) => {
  const server = await startHttpServer(t, ['drain_ms=60000']);
  // Who asks is one of them.
  const connections = (n) => until(async () => (await request(server, '/counts')).json().connections === n + 1, `${n} connections`);
  const idle = connect(server.port, '127.0.0.1');
  let idleClosed = false;
  idle.on('close', () => (idleClosed = true)).on('data', () => {});
  await connections(1);
  const slowAnswer = request(server, '/later?ms=2500');
  await connections(2);
  // One that reads when the end was told: it must not be over before.
  const reader = httpRequest({ host: '127.0.0.1', port: server.port, path: '/stream?n=30000000', agent: false }).end();
  const [answering] = await once(reader, 'response');
  server.signal('SIGTERM');
  await until(() => idleClosed, 'the end of an idle connection');
  await assert.rejects(request(server, '/hello'), /ECONNREFUSED/);
  const answer = await slowAnswer;
  assert.equal(answer.body, 'late');
  assert.equal(answer.headers.connection, 'close');
  let streamed = 0;
  for await (const piece of answering) streamed += piece.length;
  assert.equal(streamed, 30_000_000);
  assert.deepEqual(await server.ended, { code: 0, signal: null });
});

test('a drain does not wait for ever', async (t) => {
  const server = await startHttpServer(t, ['drain_ms=300']);
  const stuck = request(server, '/later?ms=600000');
  stuck.catch(() => {});
  await until(async () => (await request(server, '/counts')).json().connections >= 2);
  server.signal('SIGTERM');
  await assert.rejects(stuck); // long before its answer would come
  await server.kill9(); // its handler still waits for its timer
});

test('open status streams do not hold up the end', async () => {
  const drain = 40_000 * slow;
  const cay = await startCay({ config: { limits: { drain_timeout_ms: drain } } });
  const controller = new AbortController();
  const answer = await fetch(`${cay.url}/v1/status`, { headers: { accept: 'text/event-stream' }, signal: controller.signal });
  const reading = answer.text().catch(() => {});
  const began = Date.now();
  await cay.stop(2 * drain);
  assert.ok(Date.now() - began < drain, `${Date.now() - began} ms`);
  await reading;
});

test('a second instance on the same data folder is told who is there', async (t) => {
  const cay = await withCay(t);
  const second = await runCay(['serve', '--listen', '127.0.0.1:0', '--data-dir', cay.dataDir]);
  assert.equal(second.code, 75);
  assert.equal(second.stderr.trim().split('\n').length, 1, second.stderr);
  assert.match(second.stderr, new RegExp(`another cay \\(pid ${cay.pid}\\) is using the data folder`));
  assert.equal((await request(cay, '/health')).status, 200);
});

test('a busy port is one clear line', async (t) => {
  const server = createServer().listen(0, '127.0.0.1');
  t.after(() => server.close());
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address();
  const done = await runCay(['serve', '--listen', `127.0.0.1:${port}`, '--data-dir', join(tempDir(t), 'd')]);
  assert.equal(done.code, 75);
  assert.match(done.stderr, new RegExp(`^cay: 127.0.0.1:${port} is in use: .*--listen\n$`));
});

test('.env beside cay.json is read, the environment wins, bad lines are named', async (t) => {
  const openai = await withCay(t, { dotenv: '# keys\nexport OPENAI_API_KEY="abc"\n' });
  assert.match(openai.stdout(), /model {6}gpt\S* \(openai\)/);
  const open = await withCay(t, { dotenv: 'OTHER=1\n' });
  await until(() => /"event":"env_file.unknown".*"name":"OTHER"/.test(open.stderr()));
  const dir = tempDir(t);
  writeFileSync(join(dir, '.env'), 'ANTHROPIC_API_KEY=x\nsk-secret-without-name\n', { mode: 0o644 });
  writeFileSync(join(dir, 'cay.json'), '{}');
  const bad = await runCay(['serve', '--config', join(dir, 'cay.json'), '--listen', '127.0.0.1:0', '--data-dir', join(dir, 'd')]);
  assert.equal(bad.code, 2);
  assert.match(bad.stderr, /\.env: line 2 is not NAME=value/);
  assert.match(bad.stderr, /env_file.open_to_others/);
  assert.ok(!bad.stderr.includes('sk-secret'));
});

test('keys leave the environment, and the process cannot be looked into', async (t) => {
  const secret = 'sk-environ-0123456789';
  const cay = await withCay(t, { env: { ANTHROPIC_API_KEY: secret, OPENAI_API_KEY: secret, KEEP: 'kept' } });
  assert.match(cay.stdout(), /anthropic/);
  assert.match(readFileSync(`/proc/${cay.pid}/limits`, 'utf8'), /^Max core file size +0 +0 /m);
  // A process that is not dumpable belongs to root in /proc, whoever runs it.
  assert.equal(statSync(`/proc/${cay.pid}/environ`).uid, 0);
  if (isRoot) {
    const environ = readFileSync(`/proc/${cay.pid}/environ`, 'latin1');
    assert.ok(environ.includes('KEEP=kept'));
    assert.ok(!environ.includes(secret));
    const user = /^Uid:\t(\d+)/m.exec(procStatus(cay.pid))[1];
    const look = spawnSync('setpriv', [`--reuid=${user}`, `--regid=${user}`, '--clear-groups', 'cat', `/proc/${cay.pid}/environ`]);
    assert.notEqual(look.status, 0, 'its own user must not read it');
  }
  for (const pid of childrenOf(cay.pid)) assert.ok(!procText(pid, 'environ').includes(secret));
});

test('started as root it becomes somebody else, for good', { skip: !isRoot && 'needs root' }, async (t) => {
  const cay = await withCay(t);
  const status = procStatus(cay.pid);
  const [, ...uids] = /^Uid:\t(\d+)\t(\d+)\t(\d+)\t(\d+)$/m.exec(status);
  assert.ok(uids.every((uid) => uid === uids[0] && uid !== '0'), uids.join());
  const [, ...gids] = /^Gid:\t(\d+)\t(\d+)\t(\d+)\t(\d+)$/m.exec(status);
  assert.ok(gids.every((gid) => gid === gids[0] && gid !== '0'), gids.join());
  assert.match(status, /^Groups:\t\s*$/m);
  for (const set of ['CapPrm', 'CapEff', 'CapInh', 'CapAmb']) assert.match(status, new RegExp(`^${set}:\\t0+$`, 'm'));
  assert.equal(String(statSync(join(cay.dataDir, 'cay.db')).uid), uids[0]);
  // It holds nothing of root's beyond its sockets.
  for (const fd of readdirSync(`/proc/${cay.pid}/fd`)) assert.doesNotMatch(readlinkSync(`/proc/${cay.pid}/fd/${fd}`), /^\/(root|etc)\//);
});

test('what root made in the data folder becomes the server\'s; links out of it do not', { skip: !isRoot && 'needs root' }, async (t) => {
  const dir = tempDir(t);
  const dataDir = join(dir, 'data');
  const key = await createKey(dataDir);
  const outside = join(dir, 'outside');
  writeFileSync(outside, 'x');
  mkdirSync(join(dataDir, 'agents/x'), { recursive: true });
  writeFileSync(join(dataDir, 'agents/x/file'), 'x');
  const { linkSync, symlinkSync } = await import('node:fs');
  symlinkSync(outside, join(dataDir, 'link'));
  symlinkSync(dir, join(dataDir, 'folder'));
  linkSync(outside, join(dataDir, 'hard'));
  const cay = await withCay(t, { dataDir });
  assert.equal((await request(cay, '/v1/runs', { headers: bearer(key.text) })).status, 200);
  const { uid } = statSync(join(dataDir, 'cay.db'));
  assert.notEqual(uid, 0);
  assert.equal(statSync(join(dataDir, 'agents/x/file')).uid, uid);
  assert.equal(statSync(join(dataDir, 'agents')).uid, uid);
  assert.equal(statSync(outside).uid, 0);
  assert.equal(statSync(dir).uid, 0);
});

test('files are closed to others, in a folder that was open before too', async (t) => {
  const dataDir = join(tempDir(t), 'data');
  mkdirSync(dataDir);
  chmodSync(dataDir, 0o755);
  const cay = await withCay(t, { dataDir });
  for (const name of readdirSync(cay.dataDir)) assert.equal(statSync(join(cay.dataDir, name)).mode & 0o077, 0, name);
  const fresh = await withCay(t);
  assert.equal(statSync(fresh.dataDir).mode & 0o077, 0);
});

test('a Unix socket: closed to others, taken over from the dead, not from the living', async (t) => {
  const dir = tempDir(t);
  chmodSync(dir, 0o777); // it is also removed by the user that the server becomes
  const path = join(dir, 's.sock');
  const cay = await withCay(t, { listen: [`unix:${path}`] });
  assert.ok(cay.stdout().includes(`listening  unix:${path}`));
  assert.equal(statSync(path).mode & 0o077, 0);
  assert.equal((await request(cay, '/v1/runs', { socketPath: path, headers: { Host: 'localhost' } })).status, 200);
  const { text } = await raw(cay, 'GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n', { socketPath: path });
  assert.deepEqual(statuses(text), [200]);
  const second = await runCay(['serve', '--listen', `unix:${path}`, '--data-dir', join(dir, 'other')]);
  assert.equal(second.code, 75);
  assert.match(second.stderr, /is in use/);
  assert.equal((await request(cay, '/health', { socketPath: path, headers: { Host: 'localhost' } })).status, 200);
  await cay.kill9();
  assert.ok(existsSync(path));
  const third = await withCay(t, { listen: [`unix:${path}`, '127.0.0.1:0'] });
  assert.equal((await request(third, '/health', { socketPath: path, headers: { Host: 'localhost' } })).status, 200);
  await third.halt();
  assert.ok(!existsSync(path));
});

test('kill -9 leaves no child, and a running run is interrupted', async () => {
  const cay = await startCay();
  await cay.halt();
  const id = makeId('run', Date.now());
  const again = await startCay({ dataDir: cay.dataDir });
  const children = childrenOf(again.pid);
  await again.kill9();
  await until(() => !children.some(isAlive), 'the end of the children');
  withStore(cay.dataDir, (db) => addRun(db, { id, status: 'running', finished_ms: 0 }));
  const third = await startCay({ dataDir: cay.dataDir });
  const run = (await request(third, `/v1/runs/${id}`)).json();
  assert.equal(run.status, 'interrupted');
  await third.stop();
  cay.clean();
});

test('a parent that ignores SIGCHLD changes nothing', () => {
  const cay = join(buildDir, 'cay');
  const env = { ...process.env, ASAN_OPTIONS: 'detect_leaks=0' };
  const usual = spawnSync(cay, ['doctor', '--json'], { env });
  // A shell would not pass it on.
  const script = 'import os,signal,sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])';
  const ignored = spawnSync('python3', ['-c', script, cay, 'doctor', '--json'], { env });
  const features = (done) => JSON.parse(done.stdout).map((f) => `${f.name} ${f.status}`);
  assert.deepEqual(features(ignored), features(usual));
});

test('asked twice, it does not wait', { skip: isSanitized && 'the same code' }, async () => {
  const cay = await startCay({ config: { limits: { drain_timeout_ms: 60_000 } } });
  // A request whose body does not come keeps the first one waiting.
  const socket = connect(cay.port, '127.0.0.1');
  socket.on('error', () => {});
  socket.write('POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc');
  await until(async () => /cay_http_requests 2/.test((await request(cay, '/metrics')).body));
  cay.signal('SIGTERM');
  await until(() => cay.stderr().includes('server.stopping'));
  cay.signal('SIGTERM');
  assert.deepEqual(await cay.ended, { code: 143, signal: null });
  socket.destroy();
  cay.clean();
});

const withFiles = (n) => ['bash', '-c', `ulimit -n ${n}; exec "$0" "$@"`];

test('the soft limit of open files is raised to the hard one', async (t) => {
  const cay = await withCay(t, { wrap: ['bash', '-c', 'ulimit -Sn 200; exec "$0" "$@"'] });
  const [, soft, hard] = /^Max open files +(\d+) +(\d+)/m.exec(readFileSync(`/proc/${cay.pid}/limits`, 'utf8'));
  assert.equal(soft, hard);
  assert.ok(Number(soft) > 200);
});

test('too few open files to work with: it says what to set', (t) => {
  const done = spawnSync('bash', ['-c', 'ulimit -n 200; exec "$0" "$@"', join(buildDir, 'cay'), 'serve', '--listen', '127.0.0.1:0'], { encoding: 'utf8', cwd: tempDir(t), timeout: 20_000 * slow });
  assert.equal(done.signal, null);
  assert.notEqual(done.status, 0);
  assert.match(done.stderr, /limit of open files is 200.*ulimit -n \d+.*LimitNOFILE=\d+/s);
});

test('fewer open files than the limits may need: connections do not take those of the work', async (t) => {
  const cay = await withCay(t, { wrap: withFiles(300) });
  assert.match(cay.stderr(), /server\.open_files/);
  assert.match(cay.stderr(), /LimitNOFILE=\d+/);
  const sockets = [];
  t.after(() => sockets.forEach((s) => s.destroy()));
  const first = await Promise.all(
    Array.from({ length: 40 }, () => fetch(`${cay.url}/health`)), // made before the crowd comes: fetch keeps them
  );
  assert.ok(first.every((r) => r.status === 200));
  let refused = 0;
  for (let i = 0; i < 400; i++) {
    const s = connect(cay.port, '127.0.0.1').on('error', () => {});
    s.on('data', (d) => (refused += /^HTTP\/1.1 503/.test(d)));
    sockets.push(s);
  }
  await until(() => refused > 0, 'a refusal');
  const run = await fetch(`${cay.url}/v1/run`, { method: 'POST', body: JSON.stringify({ code: 'export default () => 5' }) });
  assert.equal(run.status, 200);
  assert.equal((await run.json()).result, 5);
  assert.doesNotMatch(cay.stderr(), /protocol|EMFILE|too many open files/i);
});
