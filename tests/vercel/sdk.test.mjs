// The unmodified @vercel/sandbox, all that it can ask for, against cay.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer as createRawServer } from 'node:tls';
import { after, before, test } from 'node:test';

import { Drive, Sandbox, Snapshot } from '@vercel/sandbox';
import { createKey, slow, until } from '../lib/cay.mjs';
import { runProgram, startVercel, textOf } from './support.mjs';

let cay;
let env;
let upstream;
let tls;
let port;
let tlsPort;
let liar; // knows no lengths: every head that it finds is a request, and answered
let liarPort;
const heads = []; // that it found
const asked = [];
const dir = mkdtempSync(join(tmpdir(), 'cay-vercel-'));

before(async () => {
  const work = join(dir, 'work');
  chmodSync(dir, 0o755); // a server that is started as root becomes somebody else, and reads cert.pem
  mkdirSync(work);
  const git = (...args) => execFileSync('git', ['-C', work, '-c', 'user.name=t', '-c', 'user.email=t@t', ...args], { stdio: 'ignore' });
  git('init', '-b', 'main');
  writeFileSync(join(work, 'README'), 'from git\n');
  git('add', '.');
  git('commit', '-m', 'first');
  git('branch', 'old');
  writeFileSync(join(work, 'README'), 'from git, newer\n');
  git('commit', '-am', 'second');
  execFileSync('git', ['clone', '--bare', work, join(dir, 'repo.git')], { stdio: 'ignore' });
  execFileSync('git', ['-C', join(dir, 'repo.git'), 'update-server-info']);
  execFileSync('tar', ['-C', work, '-czf', join(dir, 'work.tgz'), 'README']);
  execFileSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost', '-keyout', join(dir, 'key.pem'), '-out', join(dir, 'cert.pem')], { stdio: 'ignore' });
  const serve = (req, res) => {
    asked.push(req);
    if (req.url.startsWith('/echo')) return res.end(JSON.stringify(req.headers));
    if (req.url.startsWith('/ask')) return res.end('asked');
    if (req.url.startsWith('/closed/') && req.headers.authorization !== `Basic ${btoa('me:s3same')}`) return res.writeHead(401, { 'www-authenticate': 'Basic' }).end();
    try {
      return res.end(readFileSync(join(dir, new URL(req.url, 'http://x').pathname.replace('/closed/', '/'))));
    } catch {
      return res.writeHead(404).end();
    }
  };
  upstream = createServer(serve);
  tls = createTlsServer({ key: readFileSync(join(dir, 'key.pem')), cert: readFileSync(join(dir, 'cert.pem')) }, serve);
  liar = createRawServer({ key: readFileSync(join(dir, 'key.pem')), cert: readFileSync(join(dir, 'cert.pem')) }, (socket) => {
    let text = '';
    socket.on('error', () => {});
    socket.setEncoding('latin1').on('data', (data) => {
      text += data;
      for (let end; (end = text.indexOf('\r\n\r\n')) >= 0; text = text.slice(end + 4)) {
        const head = text.slice(0, end);
        const who = /(?:GET|POST) \/(\w+)/.exec(head)?.[1] ?? 'nobody';
        heads.push({ socket, who, head });
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${5 + who.length}\r\n\r\nfor ${who}\n`);
      }
    });
  });
  for (const server of [upstream, tls, liar]) await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  port = upstream.address().port;
  tlsPort = tls.address().port;
  liarPort = liar.address().port;
  ({ cay, env } = await startVercel({
    config: {
      require_key: true,
      sandboxes: { pool: 1, allow: [`localhost:${tlsPort}`, `localhost:${liarPort}`, `tcp://localhost:${port}`, 'api.example.com', 'example.com', '*.example.org'], private: [`localhost:${port}`, `localhost:${tlsPort}`, `localhost:${liarPort}`], ca_file: join(dir, 'cert.pem') },
    },
  }));
});
after(async () => {
  await cay.stop();
  upstream.close();
  tls.close();
  liar.close();
  rmSync(dir, { recursive: true, force: true });
});

test('a program written for Vercel runs with no change but the environment', async () => {
  const out = await runProgram('program.mjs', env);
  assert.equal(
    out,
    'step 1\nstep 2\nstep 3\nexit 0\nexit 4 "sorry\\n"\nstdout "one\\n"\nstdout "two\\n"\nexit 0\nsnapshot created\nagain 51\nstopped stopped\n',
  );
});

test('create: what was asked for is what it has', async () => {
  const sandbox = await Sandbox.create({
    name: 'first',
    runtime: 'node22',
    ports: [3000, 8080],
    timeout: 90_000,
    resources: { vcpus: 1 },
    env: { GREETING: 'hello', HOME_TOWN: 'x' },
    tags: { team: 'infra' },
  });
  assert.equal(sandbox.name, 'first');
  assert.equal(sandbox.status, 'running');
  assert.equal(sandbox.cwd, '/vercel/sandbox');
  assert.equal(sandbox.persistent, true);
  assert.equal(sandbox.runtime, 'node22');
  assert.equal(sandbox.currentSession().timeout, 90_000);
  assert.equal(sandbox.vcpus, 1);
  assert.ok(sandbox.memory > 0);
  assert.deepEqual(sandbox.tags, { team: 'infra' });
  assert.ok(Math.abs(sandbox.expiresAt - Date.now() - 90_000) < 10_000 * slow);
  const who = await sandbox.runCommand('sh', ['-c', 'id -un; id -gn; echo $HOME $USER; pwd; echo $GREETING']);
  assert.equal(await who.stdout(), 'vercel-sandbox\nvercel-sandbox\n/home/vercel-sandbox vercel-sandbox\n/vercel/sandbox\nhello\n');
  await sandbox.delete();
});

test('get, getOrCreate, list, listSessions', async () => {
  let created = 0;
  const made = await Sandbox.getOrCreate({ name: 'box-a', persistent: false, tags: { kind: 'x' }, onCreate: () => void created++ });
  await Sandbox.create({ name: 'box-b', persistent: false });
  const again = await Sandbox.getOrCreate({ name: 'box-a', onCreate: () => void created++ });
  assert.equal(created, 1);
  assert.equal(again.currentSession().sessionId, made.currentSession().sessionId);
  assert.equal((await Sandbox.get({ name: 'box-a' })).status, 'running');
  const names = async (params) => (await (await Sandbox.list(params)).toArray()).map((s) => s.name);
  assert.deepEqual(await names({ namePrefix: 'box-' }), ['box-b', 'box-a']);
  assert.deepEqual(await names({ namePrefix: 'box-', sortBy: 'name', sortOrder: 'asc' }), ['box-a', 'box-b']);
  assert.deepEqual(await names({ tags: { kind: 'x' } }), ['box-a']);
  // Page by page, one at a time.
  assert.deepEqual(await names({ namePrefix: 'box-', limit: 1 }), ['box-b', 'box-a']);
  const first = await Sandbox.list({ namePrefix: 'box-', limit: 1 });
  assert.equal(first.pagination.count, 1);
  assert.deepEqual((await (await again.listSessions()).toArray()).map((s) => s.status), ['running']);
  await assert.rejects(Sandbox.get({ name: 'box-none' }), (e) => e.response.status === 404);
  await Promise.all(['box-a', 'box-b'].map(async (name) => (await Sandbox.get({ name })).delete()));
  assert.deepEqual(await names({ namePrefix: 'box-' }), []);
});

test('files: write, read, download, mkdir, fs', async () => {
  const sandbox = await Sandbox.create({ persistent: false });
  const blob = Buffer.alloc(3 << 20, 7);
  await sandbox.writeFiles([
    { path: 'a.txt', content: 'text ü\n' },
    { path: 'deep/down/b.bin', content: blob },
    { path: '/tmp/abs.sh', content: '#!/bin/sh\necho ran', mode: 0o755 },
  ]);
  assert.equal(await textOf(await sandbox.readFile({ path: 'a.txt' })), 'text ü\n');
  const read = await sandbox.readFileToBuffer({ path: 'down/b.bin', cwd: 'deep' });
  assert.equal(createHash('sha256').update(read).digest('hex'), createHash('sha256').update(blob).digest('hex'));
  assert.equal(await sandbox.readFile({ path: 'nothing' }), null);
  assert.equal((await sandbox.runCommand('/tmp/abs.sh')).exitCode, 0);
  await assert.rejects(sandbox.writeFiles([{ path: '/etc/x', content: 'x' }]), (e) => e.response.status === 400 && /etc/.test(e.message));
  const target = join(dir, 'down.txt');
  assert.equal(await sandbox.downloadFile({ path: 'a.txt' }, { path: target }), target);
  assert.equal(readFileSync(target, 'utf8'), 'text ü\n');
  await sandbox.mkDir('sub/dir');
  await sandbox.fs.writeFile('sub/dir/f', 'x');
  assert.deepEqual((await sandbox.fs.readdir('sub/dir')).map(String), ['f']);
  assert.equal((await sandbox.fs.stat('sub/dir/f')).size, 1);
  await sandbox.fs.rename('sub/dir/f', 'sub/g');
  await sandbox.fs.rm('sub/dir', { recursive: true });
  assert.equal(await sandbox.fs.readFile('sub/g', 'utf8'), 'x');
  await sandbox.stop();
});

test('commands: logs as they come, detached, wait, kill, time, trouble', async () => {
  const sandbox = await Sandbox.create({ persistent: false });
  const seen = [];
  const done = await sandbox.runCommand({
    cmd: 'sh',
    args: ['-c', 'echo out; echo err >&2; until [ -e seen ]; do sleep 0.02; done; printf "\\303"; sleep 0.1; printf "\\274\\n"; exit 7'],
    cwd: '/tmp',
    env: { A: '1' },
    // It goes on when the first line has been seen.
    stdout: { write: (text) => seen.push(text) === 1 && sandbox.writeFiles([{ path: '/tmp/seen', content: '' }]) },
  });
  assert.equal(done.exitCode, 7);
  assert.equal(await done.stdout(), 'out\nü\n');
  assert.equal(await done.stderr(), 'err\n');
  assert.equal(seen.join(''), 'out\nü\n');
  const detached = await sandbox.runCommand({ cmd: 'sh', args: ['-c', 'echo begun; sleep 100'], detached: true });
  const lines = [];
  for await (const log of detached.logs()) {
    lines.push(log);
    if (lines.length === 1) await detached.kill('SIGINT');
  }
  assert.deepEqual(lines, [{ stream: 'stdout', data: 'begun\n' }]);
  assert.equal((await detached.wait()).exitCode, 130);
  assert.equal((await sandbox.getCommand(detached.cmdId)).exitCode, 130);
  await detached.kill(); // again, and nothing happens
  const late = await sandbox.runCommand({ cmd: 'sleep', args: ['100'], timeoutMs: 300 });
  assert.equal(late.exitCode, 137);
  const none = await sandbox.runCommand('no-such-program', ['x']);
  assert.equal(none.exitCode, 127);
  assert.match(await none.stderr(), /no-such-program/);
  const binary = await sandbox.runCommand('sh', ['-c', 'printf "a\\377b"']);
  assert.equal(await binary.stdout(), 'a\ufffdb');
  await sandbox.stop();
});

test('sudo and users: a clear end', async () => {
  const sandbox = await Sandbox.create({ persistent: false });
  const sudo = await sandbox.runCommand({ cmd: 'dnf', args: ['install', 'x'], sudo: true });
  assert.equal(sudo.exitCode, 1);
  assert.match(await sudo.stderr(), /no root in a sandbox/);
  const detached = await sandbox.runCommand({ cmd: 'id', sudo: true, detached: true });
  assert.equal((await detached.wait()).exitCode, 1);
  assert.match(await detached.stderr(), /no root/);
  await assert.rejects(sandbox.createUser('alice'), /no root in a sandbox/);
  for (const name of ['root', 'alice']) {
    const other = await sandbox.asUser(name).runCommand('whoami');
    assert.equal(other.exitCode, 1);
    assert.match(await other.stderr(), /no root in a sandbox/);
  }
  await assert.rejects(sandbox.createGroup('devs'), /no root in a sandbox/);
  await sandbox.stop();
});

test('domain: a server inside is reached by fetch', async () => {
  const sandbox = await Sandbox.create({ persistent: false, ports: [3000] });
  await sandbox.writeFiles([{ path: 's.mjs', content: "import h from 'node:http'; h.createServer((q, r) => { let b = ''; q.on('data', (d) => b += d).on('end', () => r.end(JSON.stringify([q.method, q.url, b, q.headers.authorization ?? null, q.headers.host]))); }).listen(3000)" }]);
  await sandbox.runCommand({ cmd: 'node', args: ['s.mjs'], detached: true });
  const url = sandbox.domain(3000);
  assert.match(url, /^https:\/\/3000-sbx_\w+\.vercel\.run$/);
  const ask = (path, init) => fetch(url + path, init).then((r) => (r.ok ? r.json() : null));
  await until(() => ask('/'), 'the server inside');
  const [method, path, body, auth, host] = await ask('/x?y=1', { method: 'POST', body: 'hello' });
  assert.deepEqual([method, path, body, auth], ['POST', '/x?y=1', 'hello', null]);
  assert.match(host, /^3000-sbx_\w+\.localhost:\d+$/);
  const [put, , sent] = await (await fetch(new Request(`${url}/r`, { method: 'PUT', body: 'z' }))).json();
  assert.deepEqual([put, sent], ['PUT', 'z']);
  assert.equal((await fetch(`${cay.url}/health`)).status, 200); // others go where they went
  assert.throws(() => sandbox.domain(4000), /No route/);
  await sandbox.stop();
});

test('more time, network, update', async () => {
  const sandbox = await Sandbox.create({ persistent: false, timeout: 60_000, networkPolicy: 'deny-all' });
  await sandbox.extendTimeout(30_500);
  assert.equal(sandbox.currentSession().timeout, 90_500);
  assert.deepEqual(sandbox.networkPolicy, 'deny-all');
  const ask = async () => (await sandbox.runCommand('sh', ['-c', `curl -s -m 10 -p http://localhost:${port}/work.tgz | wc -c`])).stdout();
  assert.equal((await ask()).trim(), '0');
  await sandbox.updateNetworkPolicy({ allow: ['example.com', '*.example.org'] });
  assert.deepEqual(sandbox.currentSession().networkPolicy, { allow: ['example.com', '*.example.org'] });
  await sandbox.updateNetworkPolicy({
    allow: { 'api.example.com': [{ transform: [{ headers: { authorization: 'Bearer secret' } }] }] },
    subnets: { deny: ['10.0.0.0/8'] },
  });
  const { networkPolicy } = sandbox.currentSession();
  assert.deepEqual(networkPolicy, { allow: { 'api.example.com': [{ transform: [{ headers: { authorization: '<redacted>' } }] }] } });
  await assert.rejects(sandbox.updateNetworkPolicy({ allow: ['evil.example'] }), /operator does not let/);
  await assert.rejects(sandbox.updateNetworkPolicy({ subnets: { allow: ['1.2.3.0/24'] } }), /subnets.allow/);
  await assert.rejects(sandbox.updateNetworkPolicy({ allow: { 'example.com': [{ forwardURL: 'https://x.example' }] } }), /transform/);
  // Everything is what the operator lets out.
  await sandbox.updateNetworkPolicy('allow-all');
  assert.ok(sandbox.currentSession().networkPolicy.allow.includes('example.com'));
  assert.notEqual((await ask()).trim(), '0');
  await sandbox.update({ timeout: 120_000, ports: [5000], tags: { a: 'b' }, networkPolicy: 'deny-all' });
  assert.equal(sandbox.timeout, 120_000);
  assert.match(sandbox.domain(5000), /^https:\/\/5000-/);
  assert.equal(sandbox.currentSession().timeout, 120_000);
  await sandbox.stop();
});

test('the network policy in force is kept over stop and resume, and by fork', async () => {
  const sandbox = await Sandbox.create({ name: 'policy', networkPolicy: { allow: ['example.com'] } });
  const allowed = (box) => box.currentSession().networkPolicy;
  await sandbox.updateNetworkPolicy('deny-all');
  await assert.rejects(sandbox.updateNetworkPolicy({ allow: ['evil.example'] }), /operator does not let/);
  await sandbox.stop();
  const again = await Sandbox.get({ name: 'policy' });
  assert.equal((await again.runCommand('true')).exitCode, 0); // resumes it
  assert.equal(allowed(again), 'deny-all');
  const fork = await Sandbox.fork({ sourceSandbox: 'policy', name: 'policy-fork' });
  assert.equal(allowed(fork), 'deny-all');
  await fork.delete();
  // The other way round: what was opened stays open.
  await again.updateNetworkPolicy({ allow: ['example.com', '*.example.org'] });
  await again.stop();
  const open = await Sandbox.get({ name: 'policy' });
  await open.runCommand('true');
  assert.deepEqual(allowed(open), { allow: ['example.com', '*.example.org'] });
  // A policy that is refused is not kept: the sandbox can still be resumed.
  await assert.rejects(open.update({ networkPolicy: { allow: ['evil.example'] } }), /operator does not let/);
  await open.stop();
  const last = await Sandbox.get({ name: 'policy' });
  assert.equal((await last.runCommand('true')).exitCode, 0);
  assert.deepEqual(allowed(last), { allow: ['example.com', '*.example.org'] });
  await last.delete();
});

test('deny-all stays in force: after stop, fork and the end of its time, and whatever is refused meanwhile', async () => {
  const target = `https://localhost:${tlsPort}/ask`;
  const reach = async (box) => (await box.runCommand('sh', ['-c', `curl -sk -m 20 -o /dev/null -w '%{http_connect}' --noproxy '' -x http://127.0.0.1:3128 ${target}`])).stdout();
  const inForce = async (box) => [await reach(box), box.currentSession().networkPolicy];
  const closed = ['403', 'deny-all'];
  const boxes = ['deny', 'deny-fork', 'deny-late', 'deny-short'];
  const sandbox = await Sandbox.create({ name: 'deny', networkPolicy: { allow: [`localhost:${tlsPort}`] } });
  assert.equal(await reach(sandbox), '200', 'it was open');
  await sandbox.updateNetworkPolicy('deny-all');
  assert.deepEqual(await inForce(sandbox), closed);
  const before = asked.length;

  // A fork of one that is stopped, the session after the stop, and a fork of one that runs.
  await sandbox.snapshot();
  assert.deepEqual(await inForce(await Sandbox.fork({ sourceSandbox: 'deny', name: 'deny-fork' })), closed);
  assert.deepEqual(await inForce(await Sandbox.get({ name: 'deny', resume: true })), closed);
  const again = await Sandbox.get({ name: 'deny' });
  assert.deepEqual(await inForce(await Sandbox.fork({ sourceSandbox: 'deny', name: 'deny-late' })), closed);

  // What is refused is not stored, while it runs and while it is stopped.
  const refused = [
    { allow: ['evil.example'] },
    { allow: [`localhost:${tlsPort}`, 'evil.example'] },
    { allow: [`localhost:${tlsPort}`], subnets: { allow: ['1.2.3.0/24'] } },
    { allow: { [`localhost:${tlsPort}`]: [{ transform: [{ headers: { 'content-length': '0' } }] }] } },
    { allow: { [`localhost:${tlsPort}`]: [{ forwardURL: 'https://x.example' }] } },
    { allow: ['a b'] },
  ];
  for (const networkPolicy of refused) {
    await assert.rejects(again.updateNetworkPolicy(networkPolicy), (e) => [400, 403].includes(e.response.status), JSON.stringify(networkPolicy));
    await assert.rejects(again.update({ networkPolicy }), (e) => [400, 403].includes(e.response.status), JSON.stringify(networkPolicy));
  }
  assert.deepEqual(await inForce(again), closed);
  await again.stop();
  for (const networkPolicy of refused) await assert.rejects(again.update({ networkPolicy }), (e) => [400, 403].includes(e.response.status), JSON.stringify(networkPolicy));
  assert.deepEqual(await inForce(await Sandbox.get({ name: 'deny' })), closed);

  // The end of its time is a stop like any other.
  const short = await Sandbox.create({ name: 'deny-short', timeout: 6000 });
  const first = short.currentSession().sessionId;
  await short.updateNetworkPolicy('deny-all');
  await until(async () => (await Sandbox.get({ name: 'deny-short', resume: false })).status === 'stopped', 'its end');
  const after = await Sandbox.get({ name: 'deny-short', resume: false });
  await after.update({ timeout: 300_000 });
  assert.deepEqual(await inForce(after), closed);
  assert.notEqual(after.currentSession().sessionId, first);

  assert.equal(asked.length, before, 'nothing arrived');
  for (const name of boxes) await (await Sandbox.get({ name, resume: false })).delete({ deleteOrphanSnapshots: true });
});

test('headers of a transform are put on outside, on requests by the route and on no others', async () => {
  const host = `localhost:${tlsPort}`;
  const route = `http://127.0.0.1:3128/_/localhost-${tlsPort}`;
  const policy = { allow: { [host]: [{ transform: [{ headers: { authorization: 'Bearer s3same', 'x-team': 'blue' } }] }] } };
  const sandbox = await Sandbox.create({ name: 'transformed', networkPolicy: policy });
  const run = async (command) => (await sandbox.runCommand('sh', ['-c', command])).stdout();
  const curl = async (url, more = '') => run(`curl -s -m 20 ${more} ${url}`);
  assert.equal(await curl(`${route}/ask?a=1`, '-X PUT -d x -H "authorization: Bearer mine" -H "x-own: 1"'), 'asked');
  const { url, method, headers } = asked.at(-1);
  assert.deepEqual([url, method, headers.authorization, headers['x-team'], headers['x-own'], headers.host], ['/ask?a=1', 'PUT', 'Bearer s3same', 'blue', '1', host]);
  assert.doesNotMatch(await curl(`${route}/echo`), /s3same/, 'an answer that has it is cut');
  assert.equal(await curl(`https://${host}/ask`, '-k --noproxy "" -x http://127.0.0.1:3128'), 'asked');
  assert.deepEqual([asked.at(-1).headers.authorization, asked.at(-1).headers['x-team']], [undefined, undefined], 'TLS is not opened');
  assert.equal(await curl(`http://127.0.0.1:3128/_/example-com/ask -o /dev/null -w '%{http_code}'`), '403', 'no other route is there');
  assert.doesNotMatch(await run('env; cat /proc/*/environ 2>/dev/null'), /s3same/);
  // Two hosts with one name of a route: the headers of one would be sent to the other.
  await assert.rejects(sandbox.updateNetworkPolicy({ allow: Object.fromEntries(['a.b.example.org', 'a-b.example.org'].map((h) => [h, policy.allow[host]])) }), /the same route/);
  await assert.rejects(sandbox.updateNetworkPolicy({ allow: { [host]: [{ transform: [{ headers: { authorization: '${ANTHROPIC_API_KEY}' } }] }] } }), /secret/);
  await assert.rejects(sandbox.updateNetworkPolicy({ allow: { [host]: [{ transform: [{ headers: { 'x-a': 'b\r\nx-c: d' } }] }] } }), /header/);
  await sandbox.stop();
  assert.equal(await curl(`${route}/ask`), 'asked');
  assert.equal(asked.at(-1).headers.authorization, 'Bearer s3same', 'the next session has it too');
  await sandbox.updateNetworkPolicy({ allow: [host] });
  assert.equal(await curl(`${route}/ask -o /dev/null -w '%{http_code}'`), '403');
  await sandbox.delete();
});

test('what the policy of one key sets never reaches a request of another', async () => {
  const host = `localhost:${liarPort}`;
  const team = { teamId: env.VERCEL_TEAM_ID, projectId: env.VERCEL_PROJECT_ID };
  const second = (await createKey(cay.dataDir, { name: 'second' })).text;
  const policy = (headers) => ({ allow: { [host]: [{ transform: [{ headers }] }] } });
  const make = (token, who) => Sandbox.create({ ...team, token, persistent: false, networkPolicy: policy({ 'x-team': `team-of-${who}` }) });
  const [a, b] = await Promise.all([make(cay.key, 'a'), make(second, 'b')]);
  const framing = ['content-length', 'Content_Length', 'TRANSFER-ENCODING', 'connection', 'keep-alive', 'te', 'trailer', 'upgrade', 'expect', 'Host', 'proxy-connection', 'http2-settings'];
  const disguised = [' content-length', 'content-length\t', 'content-length\0', 'x-a\r\ncontent-length', 'content\u2010length', '\u212aeep-alive', 'content-length\r\n '];
  for (const name of [...framing, ...disguised]) {
    await assert.rejects(a.updateNetworkPolicy(policy({ 'x-team': 'changed', [name]: '0' })), (e) => e.response.status === 400, JSON.stringify(name));
  }
  for (const value of ['0\r\ncontent-length: 0', '0\n1', '0\r1', '0\0', '0\r\n 1']) {
    await assert.rejects(a.updateNetworkPolicy(policy({ 'x-team': value })), (e) => e.response.status === 400, JSON.stringify(value));
  }
  // Both at once, over and over, and between them a request inside a body.
  const url = `http://127.0.0.1:3128/_/localhost-${liarPort}`;
  const inner = 'GET /a_inner HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n';
  const loop = async (box, command) => (await box.runCommand('sh', ['-c', `for i in 1 2 3 4 5 6 7 8; do ${command}; done`])).stdout();
  const [, answers] = await Promise.all([
    loop(a, `printf '${inner}' | curl -s -m 20 --data-binary @- ${url}/a`),
    loop(b, `curl -s -m 20 ${url}/b`),
  ]);
  assert.equal(answers, 'for b\n'.repeat(8));
  const users = new Map();
  for (const { socket, who, head } of heads) {
    users.set(socket, new Set([...(users.get(socket) ?? []), who[0]]));
    // What is inside the body has no fields but its own.
    const team = /^x-team: (.*?)\r?$/im.exec(head)?.[1];
    assert.equal(team, { a: 'team-of-a', a_inner: undefined, b: 'team-of-b' }[who], head);
  }
  for (const set of users.values()) assert.equal(set.size, 1, [...set].join());
  assert.deepEqual(new Set(heads.map((h) => h.who)), new Set(['a', 'a_inner', 'b']));
  await Promise.all([a.stop(), b.stop()]);
});

test('snapshot: the session ends, others begin from it', async () => {
  const sandbox = await Sandbox.create({ name: 'snap', env: { KEEP: 'me' } });
  await sandbox.writeFiles([{ path: 'state', content: 'one' }]);
  const snapshot = await sandbox.snapshot({ expiration: 3_600_000 });
  assert.equal(snapshot.status, 'created');
  assert.ok(snapshot.sizeBytes > 0);
  assert.ok(snapshot.expiresAt > new Date());
  assert.equal(sandbox.status, 'stopped');
  const other = await Sandbox.create({ persistent: false, source: { type: 'snapshot', snapshotId: snapshot.snapshotId } });
  assert.equal(String(await other.readFileToBuffer({ path: 'state' })), 'one');
  assert.equal(other.sourceSnapshotId, snapshot.snapshotId);
  await other.stop();
  const fork = await Sandbox.fork({ sourceSandbox: 'snap', name: 'snap-fork', persistent: false });
  const out = await fork.runCommand('sh', ['-c', 'cat state; echo $KEEP']);
  assert.equal(await out.stdout(), 'oneme\n');
  await fork.stop();
  const got = await Snapshot.get({ snapshotId: snapshot.snapshotId });
  assert.equal(got.sourceSessionId, sandbox.currentSession().sessionId);
  // The SDK resumes it by itself, from there.
  await sandbox.writeFiles([{ path: 'state', content: 'two' }]);
  const second = await sandbox.snapshot();
  assert.deepEqual((await (await sandbox.listSnapshots()).toArray()).map((s) => s.id), [second.snapshotId, snapshot.snapshotId]);
  assert.ok((await (await Snapshot.list({ limit: 1 })).toArray()).length >= 2);
  const tree = await (await Snapshot.tree({ snapshotId: second.snapshotId })).toArray();
  assert.deepEqual(tree.map((n) => n.snapshot.id), [second.snapshotId, snapshot.snapshotId]);
  await got.delete();
  assert.equal(got.status, 'deleted');
  await assert.rejects(Snapshot.get({ snapshotId: snapshot.snapshotId }), (e) => e.response.status === 404);
  await sandbox.delete({ deleteOrphanSnapshots: true });
  assert.deepEqual(await (await Snapshot.list()).toArray().then((all) => all.filter((s) => s.id === second.snapshotId)), []);
});

test('a stopped, persistent sandbox comes back by itself', async () => {
  let resumed = 0;
  const sandbox = await Sandbox.create({ name: 'keeps', onResume: () => void resumed++ });
  await sandbox.writeFiles([{ path: 'f', content: 'kept' }]);
  const stopped = await sandbox.stop();
  assert.equal(stopped.status, 'stopped');
  assert.equal(stopped.snapshot.status, 'created');
  const before = sandbox.currentSession().sessionId;
  assert.equal(await (await sandbox.runCommand('cat', ['f'])).stdout(), 'kept');
  assert.notEqual(sandbox.currentSession().sessionId, before);
  assert.equal(resumed, 1);
  // While it is stopped by another, a command waits for that and then comes back.
  const other = await Sandbox.get({ name: 'keeps' });
  const [, cat] = await Promise.all([other.stop(), sandbox.runCommand('cat', ['f'])].map((p) => p.catch((e) => e)));
  assert.ok(cat.exitCode === 0 || cat.code === 'sandbox_stopped', String(cat));
  assert.equal(await (await sandbox.runCommand('cat', ['f'])).stdout(), 'kept');
  await assert.rejects(Sandbox.create({ name: 'keeps' }), (e) => e.response.status === 409);
  await sandbox.delete({ deleteOrphanSnapshots: true });
});

test('time that is over keeps what a persistent sandbox has', async () => {
  const sandbox = await Sandbox.create({ name: 'short', timeout: 4000 });
  await sandbox.writeFiles([{ path: 'f', content: 'in time' }]);
  await until(async () => (await Sandbox.get({ name: 'short' })).status === 'stopped', 'its end');
  assert.equal(await (await sandbox.runCommand('cat', ['f'])).stdout(), 'in time');
  await sandbox.delete({ deleteOrphanSnapshots: true });
});

test('a snapshot that is gone: getOrCreate makes a new one', async () => {
  const sandbox = await Sandbox.create({ name: 'stale' });
  const { snapshot } = await sandbox.stop();
  await (await Snapshot.get({ snapshotId: snapshot.id })).delete();
  let created = 0;
  const fresh = await Sandbox.getOrCreate({ name: 'stale', resume: true, onCreate: () => void created++ });
  assert.equal(created, 1);
  assert.equal(fresh.status, 'running');
  await fresh.delete();
});

test('only so many snapshots are kept, if that is asked for', async () => {
  const sandbox = await Sandbox.create({ name: 'few', keepLastSnapshots: { count: 1 } });
  const first = (await sandbox.stop()).snapshot;
  await sandbox.runCommand('true');
  await sandbox.stop();
  assert.equal((await (await sandbox.listSnapshots()).toArray()).length, 1);
  await assert.rejects(Snapshot.get({ snapshotId: first.id }), (e) => e.response.status === 404);
  await sandbox.delete({ deleteOrphanSnapshots: true });
});

test('sources: git and tarball', async () => {
  const url = `http://localhost:${port}`;
  const repo = `https://localhost:${tlsPort}/repo.git`;
  const more = { persistent: false, env: { GIT_SSL_NO_VERIFY: '1' } };
  const git = await Sandbox.create({ ...more, source: { type: 'git', url: repo }, networkPolicy: 'deny-all' });
  assert.equal(String(await git.readFileToBuffer({ path: 'README' })), 'from git, newer\n');
  // What was let out for the clone is closed again.
  assert.equal(git.networkPolicy, 'deny-all');
  assert.notEqual((await git.runCommand('git', ['ls-remote', repo])).exitCode, 0);
  await git.stop();
  const closed = { type: 'git', url: repo.replace('/repo', '/closed/repo'), revision: 'old', username: 'me', password: 's3same' };
  const old = await Sandbox.create({ ...more, source: closed });
  assert.equal(String(await old.readFileToBuffer({ path: 'README' })), 'from git\n');
  assert.equal((await old.runCommand('sh', ['-c', 'grep -r "s3same\\|bWU6" .git /home'])).exitCode, 1, 'a credential was left behind');
  await old.stop();
  await assert.rejects(Sandbox.create({ ...more, source: { ...closed, password: 'wrong' } }), /could not be fetched/);
  const tar = await Sandbox.create({ persistent: false, source: { type: 'tarball', url: `${url}/work.tgz` } });
  assert.equal(String(await tar.readFileToBuffer({ path: 'README' })), 'from git, newer\n');
  await tar.stop();
  for (const source of [
    { type: 'tarball', url: `${url}/none.tgz` },
    { type: 'git', url: 'file:///etc' },
    { type: 'git', url: repo, revision: '--upload-pack=x' },
    { type: 'git', url: `${url}/repo.git` },
    { type: 'snapshot', snapshotId: 'snp_none' },
  ])
    await assert.rejects(Sandbox.create({ source }), (e) => [400, 404].includes(e.response.status), JSON.stringify(source));
});

test('a terminal', async () => {
  const sandbox = await Sandbox.create({ persistent: false });
  const { url, token } = await sandbox.openInteractive();
  assert.ok(token.endsWith(cay.key));
  const { default: WebSocket } = await import('../node_modules/ws/wrapper.mjs');
  const ws = new WebSocket(url, { headers: { Authorization: `Bearer ${token}` } });
  let seen = '';
  ws.on('message', (data) => (seen += data));
  await new Promise((resolve, reject) => ws.once('open', resolve).once('error', reject));
  ws.send(Buffer.from('echo $((6*7)); pwd; exit\n'));
  await new Promise((resolve) => ws.once('close', resolve));
  assert.match(seen, /\r42\r\n\/vercel\/sandbox\r\n/);
  await sandbox.stop();
});

test('drives: there are none, and that is said', async () => {
  assert.deepEqual(await (await Drive.list()).toArray(), []);
  await assert.rejects(Drive.getOrCreate({ name: 'd' }), /no drives here/);
});

test('token, team and project given in code', async () => {
  const given = { token: env.VERCEL_TOKEN, teamId: env.VERCEL_TEAM_ID, projectId: env.VERCEL_PROJECT_ID };
  assert.equal(given.token, cay.key);
  const { VERCEL_OIDC_TOKEN } = process.env;
  delete process.env.VERCEL_OIDC_TOKEN;
  try {
    const sandbox = await Sandbox.create({ ...given, persistent: false });
    assert.equal((await sandbox.runCommand('true')).exitCode, 0);
    await sandbox.stop();
  } finally {
    process.env.VERCEL_OIDC_TOKEN = VERCEL_OIDC_TOKEN;
  }
});

test('1.x: the same sandboxes by the older paths', async () => {
  const { Sandbox: Old, Snapshot: OldSnapshot } = await import('vercel-sandbox-1');
  const sandbox = await Old.create({ ports: [3000], timeout: 60_000, env: { A: 'b' } });
  assert.equal(sandbox.status, 'running');
  await sandbox.writeFiles([{ path: 'a', content: Buffer.from('old') }]);
  assert.equal(await textOf(await sandbox.readFile({ path: 'a' })), 'old');
  const done = await sandbox.runCommand('sh', ['-c', 'echo $A; exit 2']);
  assert.equal(done.exitCode, 2);
  assert.equal(await done.stdout(), 'b\n');
  const detached = await sandbox.runCommand({ cmd: 'sleep', args: ['100'], detached: true });
  await detached.kill('SIGTERM');
  assert.equal((await detached.wait()).exitCode, 143);
  await sandbox.mkDir('d');
  await sandbox.extendTimeout(1000);
  await sandbox.updateNetworkPolicy('deny-all');
  assert.match(sandbox.domain(3000), /vercel\.run$/);
  assert.equal((await Old.get({ sandboxId: sandbox.sandboxId })).sandboxId, sandbox.sandboxId);
  assert.ok((await Old.list()).json.sandboxes.some((s) => s.id === sandbox.sandboxId));
  const snapshot = await sandbox.snapshot();
  assert.equal(snapshot.sourceSandboxId, sandbox.sandboxId);
  assert.equal(sandbox.status, 'stopped');
  const next = await Old.create({ source: { type: 'snapshot', snapshotId: snapshot.snapshotId } });
  assert.equal(await textOf(await next.readFile({ path: 'a' })), 'old');
  await next.stop({ blocking: true });
  assert.ok((await OldSnapshot.list()).json.snapshots.length > 0);
  await snapshot.delete();
});
