// The Vercel wire as strangers use it: wrong keys, wrong order, cut in the middle, never read, lies.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { availableParallelism } from 'node:os';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';

import { createKey, isSanitized, raw, request, sleep, startCay, statuses, until } from '../lib/cay.mjs';
import { makeId, withStore } from '../lib/store.mjs';

const MiB = 1 << 20;
const BOMB = 192 * MiB; // the disk has 64
let cay;
let other;
before(async () => {
  cay = await startCay({ config: { require_key: true, limits: { write_timeout_ms: 300_000 }, sandboxes: { pool: 1, disk_mb: 64, memory_mb: 256, upload_mb: 16 } } });
  other = (await createKey(cay.dataDir, { name: 'other' })).text;
});
after(() => cay.stop());

const token = (key) => `${btoa('{"alg":"none"}')}.${btoa('{"owner_id":"t","project_id":"p"}')}.${key}`;
async function ask(method, path, body, { key = cay.key, headers = {} } = {}) {
  const answer = await request(cay, `/api${path}${path.includes('?') ? '&' : '?'}teamId=team_cay`, {
    method,
    headers: { Authorization: `Bearer ${token(key)}`, ...headers },
    body: body === undefined || typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body),
  });
  let json = null;
  try {
    json = answer.json();
  } catch {
    // not one JSON text
  }
  return { ...answer, json };
}
async function create(body = {}, options) {
  const { status, json, raw: text } = await ask('POST', '/v3/sandboxes', { persistent: false, ...body }, options);
  assert.equal(status, 200, String(text));
  const at = `/v2/sandboxes/sessions/${json.session.id}`;
  return { ...json, at, stop: () => ask('POST', `${at}/stop`), cmd: (command, ...args) => ask('POST', `${at}/cmd`, { command, args, wait: true, logs: true }) };
}
const lines = (answer) => String(answer.raw).split('\n').filter(Boolean).map((line) => JSON.parse(line));
const living = async () => (await ask('GET', '/v2/sandboxes?limit=1000')).json.sandboxes.filter((s) => s.status === 'running').length;
const rss = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${cay.pid}/status`, 'latin1'))[1]) * 1024;

test('tokens: the third part is the key, and nothing else is', async () => {
  const status = async (authorization) => (await request(cay, '/api/v2/sandboxes', { headers: authorization ? { Authorization: authorization } : {} })).status;
  assert.equal(await status(`Bearer ${token(cay.key)}`), 200);
  assert.equal(await status(`Bearer ${cay.key}`), 200);
  assert.equal(await status(), 401);
  for (const wrong of ['operator', '', 'x', `${cay.key}x`, cay.key.slice(0, -1), `${cay.key}.`, `${cay.key}.operator`]) assert.equal(await status(`Bearer ${token(wrong)}`), 401, wrong);
  assert.equal(await status('Bearer operator'), 401);
  assert.equal(await status('Bearer .operator'), 401);
  assert.equal(await status(`Bearer ${cay.key}.x.y`), 401);
});

test('what belongs to one key is not there for another', async () => {
  const box = await create({ name: 'mine' });
  const command = lines(await box.cmd('echo', 'secret'))[0].command.id;
  const made = (await ask('POST', `${box.at}/snapshot`)).json.snapshot.id;
  const again = await create({ name: 'mine-2' });
  const tries = [
    ['GET', '/v2/sandboxes/mine'],
    ['GET', '/v2/sandboxes/mine?resume=true'],
    ['PATCH', '/v2/sandboxes/mine', { timeout: 5 }],
    ['DELETE', '/v2/sandboxes/mine'],
    ['POST', '/v2/sandboxes/mine/fork', {}],
    ['GET', again.at],
    ['POST', `${again.at}/cmd`, { command: 'id', args: [], wait: true }],
    ['POST', `${again.at}/fs/read`, { path: '/etc/passwd' }],
    ['POST', `${again.at}/fs/write`, gzipSync('')],
    ['POST', `${again.at}/stop`],
    ['POST', `${again.at}/snapshot`],
    ['POST', `${again.at}/extend-timeout`, { duration: 1 }],
    ['POST', `${again.at}/network-policy`, { mode: 'allow-all' }],
    ['POST', `${again.at}/interactive`, {}],
    ['GET', `${box.at}/cmd/${command}`],
    ['GET', `${box.at}/cmd/${command}/logs`],
    ['POST', `${box.at}/cmd/${command}/kill`, { signal: 9 }],
    ['GET', `/v2/sandboxes/snapshots/${made}`],
    ['DELETE', `/v2/sandboxes/snapshots/${made}`],
    ['GET', `/v2/sandboxes/snapshots/tree?snapshotId=${made}`],
    ['POST', '/v3/sandboxes', { source: { type: 'snapshot', snapshotId: made } }],
    ['GET', '/v2/sandboxes/sessions?name=mine'],
    ['GET', `/v1/sandboxes/${again.session.id}`],
  ];
  for (const [method, path, body] of tries) {
    const answer = await ask(method, path, body, { key: other });
    assert.equal(answer.status, 404, `${method} ${path}: ${answer.raw}`);
    assert.doesNotMatch(String(answer.raw), /secret/);
  }
  assert.deepEqual((await ask('GET', '/v2/sandboxes', undefined, { key: other })).json.sandboxes, []);
  assert.deepEqual((await ask('GET', '/v2/sandboxes/snapshots', undefined, { key: other })).json.snapshots, []);
  assert.equal((await ask('GET', again.at)).json.session.status, 'running');
  // A sandbox of /v1 is none of this wire.
  const plain = await request(cay, '/v1/sandboxes', { method: 'POST', headers: { Authorization: `Bearer ${cay.key}` }, body: '{}' });
  assert.equal((await ask('POST', `/v2/sandboxes/sessions/${plain.json().id}/cmd`, { command: 'id', args: [] })).status, 410);
  await again.stop();
});

test('the head of a stream, to the letter, and at once', async () => {
  const box = await create();
  const done = await box.cmd('sh', '-c', 'echo a; kill -9 $$');
  assert.equal(done.headers['content-type'], 'application/x-ndjson');
  const all = lines(done);
  assert.equal(all[0].command.exitCode, null);
  assert.deepEqual(all[1], { stream: 'stdout', data: 'a\n' });
  assert.equal(all.at(-1).command.exitCode, 137);
  const { json } = await ask('POST', `${box.at}/cmd`, { command: 'sleep', args: ['100'] });
  assert.equal(json.command.exitCode, null);
  // Long before it ends there is a head, and then something now and then.
  const seen = { logs: '', wait: '' };
  const sockets = Object.entries({ logs: '/logs', wait: '?wait=true' }).map(([name, end]) => {
    const socket = connect(cay.port, '127.0.0.1');
    socket.write(`GET /api${box.at}/cmd/${json.command.id}${end} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${cay.key}\r\n\r\n`);
    socket.on('data', (data) => (seen[name] += data)).on('error', () => {});
    return socket;
  });
  await until(() => Object.values(seen).every((text) => text.includes('\r\n\r\n')), 'the heads');
  await until(() => Object.values(seen).every((text) => /\r\n\r\n1\r\n\n\r\n/.test(text)), 'an empty line');
  await ask('POST', `${box.at}/cmd/${json.command.id}/kill`, { signal: 15 });
  await until(() => seen.wait.includes('"exitCode":143') && seen.logs.endsWith('0\r\n\r\n'), 'the end');
  for (const socket of sockets) socket.destroy();
  await box.stop();
});

/** Of requests that came at once: each got the one session, or is to come again while it is made. */
const theOneOf = (answers) => {
  for (const { status, raw } of answers) assert.ok([200, 503].includes(status), String(raw));
  const ids = new Set(answers.filter((a) => a.status === 200).map((a) => a.json.session.id));
  assert.equal(ids.size, 1);
  return [...ids][0];
};

test('a session that has ended says 410, one that is ending 422', async () => {
  const box = await create({ name: 'gone' });
  await box.stop();
  for (const [path, body] of [['/cmd', { command: 'id', args: [] }], ['/fs/read', { path: 'x' }], ['/fs/mkdir', { path: 'x' }], ['/fs/write', gzipSync('')], ['/snapshot'], ['/extend-timeout', { duration: 5 }], ['/network-policy', { mode: 'deny-all' }], ['/interactive', {}]]) {
    const answer = await ask('POST', box.at + path, body);
    assert.equal(answer.status, 410, `${path}: ${answer.raw}`);
    assert.equal(answer.json.error.code, 'sandbox_stopped');
  }
  assert.equal((await box.stop()).status, 200); // twice is once
  const keeps = await create({ name: 'keeps', persistent: true });
  await keeps.cmd('sh', '-c', 'head -c 20000000 /dev/urandom > big');
  const stopping = keeps.stop();
  const met = new Set();
  await until(async () => {
    const { status, json } = await ask('POST', `${keeps.at}/cmd`, { command: 'true', args: [], wait: true });
    met.add(status === 200 ? 200 : `${status} ${json.error.code}`);
    return status === 410;
  }, 'its end');
  assert.equal((await stopping).status, 200);
  for (const one of met) assert.ok([200, '422 sandbox_snapshotting', '422 sandbox_stopping', '410 sandbox_stopped'].includes(one), one);
  // Two that resume at once get one session.
  const both = await Promise.all([1, 2].map(() => ask('GET', '/v2/sandboxes/keeps?resume=true')));
  const resumed = theOneOf(both);
  await until(async () => (await ask('GET', '/v2/sandboxes/keeps?resume=true')).json.session?.id === resumed);
  await ask('DELETE', '/v2/sandboxes/keeps?deleteOrphanSnapshots=true');
});

test('a session that is ended, or paused, while it is being kept', async () => {
  const v1 = (method, id, more = '') => request(cay, `/v1/sandboxes/${id}${more}`, { method, headers: { Authorization: `Bearer ${cay.key}` } });
  const seen = { stop: 0, snapshot: 0, paused: 0 };
  for (let i = 0; i < 60 && Math.min(...Object.values(seen)) === 0; i++) {
    const what = ['stop', 'snapshot', 'paused'][i % 3];
    const box = await create({ persistent: true, name: `kept-${i}` });
    const { id } = box.session;
    await box.cmd('sh', '-c', 'head -c 50000000 /dev/urandom >big');
    const kept = ask('POST', `${box.at}/${what === 'snapshot' ? 'snapshot' : 'stop'}`);
    let state = 'running';
    while (state === 'running') state = (await ask('GET', box.at)).json.session.status;
    if (state === 'snapshotting') {
      const { status } = await (what === 'paused' ? v1('POST', id, '/pause') : v1('DELETE', id));
      const answer = await kept;
      if (what === 'paused' && status === 409) seen.paused++;
      if (what === 'paused') assert.notEqual(status, 200, 'a snapshot would wait for its end');
      else if (answer.status !== 200 || !answer.json.snapshot) {
        assert.equal(answer.status, what === 'stop' ? 200 : 409, String(answer.raw));
        seen[what]++;
      }
    }
    await kept;
    await ask('DELETE', `/v2/sandboxes/kept-${i}?deleteOrphanSnapshots=true`);
  }
  assert.ok(Math.min(...Object.values(seen)) > 0, `each was met: ${JSON.stringify(seen)}`);
  await until(async () => (await living()) === 0, 'none');
});

test('a name of a living sandbox of /v1 is taken, for its key', async () => {
  const v1 = (method, path, body) => request(cay, `/v1/sandboxes${path}`, { method, headers: { Authorization: `Bearer ${cay.key}` }, body });
  const made = await v1('POST', '', '{"name":"shared"}');
  assert.equal(made.status, 201, made.body);
  const { id } = made.json();
  const body = { name: 'shared', persistent: true };
  const refused = await ask('POST', '/v3/sandboxes', body);
  assert.equal(refused.status, 409, refused.body);
  assert.match(refused.json.error.message, new RegExp(`${id} has the name "shared" already`));
  await (await create(body, { key: other })).stop();
  assert.equal((await ask('DELETE', '/v2/sandboxes/shared?deleteOrphanSnapshots=true', undefined, { key: other })).status, 200);
  assert.equal((await v1('DELETE', `/${id}`)).status, 204);
  // Free again; and what took it keeps it, also from a session that would begin again.
  const box = await create(body);
  assert.equal((await v1('POST', '', '{"name":"shared"}')).status, 409);
  await box.stop();
  await until(async () => (await living()) === 0, 'its end');
  const late = await v1('POST', '', '{"name":"shared"}');
  assert.equal(late.status, 201, late.body);
  assert.equal((await ask('GET', '/v2/sandboxes/shared?resume=true')).status, 409);
  assert.equal((await v1('DELETE', `/${late.json().id}`)).status, 204);
  assert.equal((await ask('GET', '/v2/sandboxes/shared?resume=true')).status, 200);
  assert.equal((await ask('DELETE', '/v2/sandboxes/shared?deleteOrphanSnapshots=true')).status, 200);
  await until(async () => (await living()) === 0, 'none');
});

test('creates that come twice', async () => {
  const body = { name: 'twice', persistent: false, timeout: 60_000 };
  const first = await ask('POST', '/v3/sandboxes', body);
  const second = await ask('POST', '/v3/sandboxes', body);
  assert.equal(second.status, 200);
  assert.equal(second.json.session.id, first.json.session.id);
  assert.equal((await ask('POST', '/v3/sandboxes', { ...body, timeout: 61_000 })).status, 409);
  // Who has used it has had its answer: that is another sandbox of the same name.
  await ask('POST', `/v2/sandboxes/sessions/${first.json.session.id}/cmd`, { command: 'true', args: [] });
  assert.equal((await ask('POST', '/v3/sandboxes', body)).status, 409);
  const many = await Promise.all(Array.from({ length: 8 }, () => ask('POST', '/v3/sandboxes', { name: 'race', persistent: false })));
  theOneOf(many);
  for (const name of ['twice', 'race']) assert.equal((await ask('DELETE', `/v2/sandboxes/${name}`)).status, 200);
  await until(async () => (await living()) === 0, 'their end');
});

test('clients that leave while one is made leave none behind', async () => {
  for (let i = 0; i < 12; i++) {
    const socket = connect(cay.port, '127.0.0.1').on('error', () => {});
    const body = JSON.stringify({ name: `left-${i}` });
    socket.write(`POST /api/v3/sandboxes HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${cay.key}\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    await sleep(i);
    socket.destroy();
  }
  const admin = (await createKey(cay.dataDir, { name: 'admin', scope: 'admin' })).text;
  const status = async () => (await request(cay, '/v1/status', { headers: { Authorization: `Bearer ${admin}` } })).json().sandboxes;
  await until(async () => (await status()).starting === 0, 'what is made');
  // One whose answer was on its way already is known by its name; no other is.
  const { sandboxes } = (await ask('GET', '/v2/sandboxes?namePrefix=left-&limit=100')).json;
  const shown = (await request(cay, '/v1/sandboxes', { headers: { Authorization: `Bearer ${cay.key}` } })).json().sandboxes.filter((s) => s.status === 'running' && s.name?.startsWith('left-'));
  assert.deepEqual(shown.map((s) => s.name).sort(), sandboxes.filter((s) => s.status === 'running').map((s) => s.name).sort());
  for (const { name } of sandboxes) await ask('DELETE', `/v2/sandboxes/${name}`);
  await until(async () => (await living()) === 0, 'their end');
});

test('pipelined: each has its own answer, in order', async () => {
  const box = await create();
  const post = (path, body) => {
    const text = JSON.stringify(body);
    return `POST /api${box.at}${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${cay.key}\r\nContent-Length: ${text.length}\r\n\r\n${text}`;
  };
  const all = [post('/cmd', { command: 'echo', args: ['one'], wait: true, logs: true }), post('/fs/read', { path: 'none' }), post('/cmd', { command: 'echo', args: ['two'], wait: true, logs: true }), post('/fs/mkdir', { path: 'd' }), post('/extend-timeout', { duration: 1000 })];
  const { text } = await raw(cay, all.join(''), { isDone: (seen) => statuses(seen).length === 5 && seen.includes('"session"') });
  assert.deepEqual(statuses(text), [200, 404, 200, 200, 200]);
  assert.ok(text.indexOf('one') < text.indexOf('two'));
  await box.stop();
});

test('logs that nobody reads, and clients that leave in the middle of them', async () => {
  const box = await create();
  const { json } = await ask('POST', `${box.at}/cmd`, { command: 'sh', args: ['-c', 'head -c 60000000 /dev/zero | tr "\\0" x; sleep 100'] });
  const started = rss();
  const sockets = Array.from({ length: 40 }, (_, i) => {
    const socket = connect(cay.port, '127.0.0.1').on('error', () => {});
    socket.write(`GET /api${box.at}/cmd/${json.command.id}/logs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${cay.key}\r\n\r\n`);
    if (i % 2) socket.once('data', () => socket.destroy());
    else socket.pause();
    return socket;
  });
  const { command } = json;
  await until(async () => {
    const shown = (await request(cay, `/v1/sandboxes/${box.session.id}/execs/${command.id}`, { headers: { Authorization: `Bearer ${cay.key}` } })).json();
    return shown.stdout_bytes === 60_000_000;
  }, 'all of it');
  assert.equal(lines(await box.cmd('echo', 'fine'))[1].data, 'fine\n');
  // A sanitizer keeps what was freed.
  assert.ok(rss() - started < (isSanitized ? 400 : 60) * MiB, `${(rss() - started) / MiB} MiB more`);
  // Who begins to read late gets all that is kept.
  let got = 0;
  sockets[0].on('data', (data) => (got += data.length)).resume();
  await until(() => got > 60_000_000, 'all of it, later');
  for (const socket of sockets) socket.destroy();
  await ask('POST', `${box.at}/cmd/${json.command.id}/kill`, { signal: 9 });
  assert.equal((await ask('GET', `${box.at}/cmd/${json.command.id}?wait=true`)).json.command.exitCode, 137);
  await box.stop();
});

test('archives that are none, and bombs', async () => {
  const box = await create();
  const write = (body, headers = {}) => ask('POST', `${box.at}/fs/write`, body, { headers: { 'content-type': 'application/gzip', 'x-cwd': '/', ...headers } });
  const garbage = Buffer.from(Array.from({ length: 5000 }, (_, i) => (i * 7919) % 251));
  const cut = gzipSync(Buffer.alloc(100_000, 1)).subarray(0, 60);
  for (const body of [Buffer.from('x'), garbage, gzipSync(garbage), cut, Buffer.concat([Buffer.from([0x1f, 0x8b]), garbage])]) {
    const answer = await write(body);
    assert.equal(answer.status, 400, String(answer.raw));
  }
  assert.equal((await write(Buffer.alloc(0))).status, 400);
  assert.equal((await write(gzipSync(Buffer.alloc(10240)))).status, 200); // an archive of nothing
  for (const bad of ['relative', '']) assert.equal((await write(gzipSync(Buffer.alloc(10240)), { 'x-cwd': bad })).status, 400);
  // Much more than it can hold, packed to almost nothing: the sandbox's disk is what it fills, and says so.
  const head = Buffer.alloc(512);
  head.write('tmp/bomb', 0);
  head.write('0000644\0', 100);
  head.write('0000000\0', 108);
  head.write('0000000\0', 116);
  head.write(`${BOMB.toString(8).padStart(11, '0')}\0`, 124);
  head.write('00000000000\0', 136);
  head.write('        ', 148);
  head.write('0', 156);
  head.write(`${head.reduce((a, b) => a + b, 0).toString(8).padStart(6, '0')}\0 `, 148);
  const before = rss();
  const bomb = await write(gzipSync(Buffer.concat([head, Buffer.alloc(BOMB)])));
  assert.equal(bomb.status, 422, String(bomb.raw));
  assert.match(String(bomb.raw), /larger than the disk/);
  assert.ok(rss() - before < 40 * MiB);
  const out = Buffer.alloc(16 * MiB + 1024, 0x1f);
  assert.equal((await write(out).catch((e) => ({ status: e.code }))).status, 413);
  assert.equal(lines(await box.cmd('echo', 'alive'))[1].data, 'alive\n');
  await box.stop();
});

test('requests that are wrong', async () => {
  const box = await create({ ports: [1] });
  for (const [host, end] of [['[::1]', 'localhost'], ['[::1]:81', 'localhost:81'], ['localhost', 'localhost']])
    assert.equal((await ask('GET', box.at, undefined, { headers: { Host: host } })).json.routes[0].url, `http://1-${box.session.id}.${end}`);
  const wrong = [
    ['/v3/sandboxes', { ports: [0] }], ['/v3/sandboxes', { ports: Array(16).fill(80) }], ['/v3/sandboxes', { ports: 'x' }],
    ['/v3/sandboxes', { timeout: -1 }], ['/v3/sandboxes', { timeout: 1e15 }], ['/v3/sandboxes', { resources: { vcpus: 0 } }],
    ['/v3/sandboxes', { env: [] }], ['/v3/sandboxes', { env: { 'A=B': 'x' } }], ['/v3/sandboxes', { env: { A: 5 } }],
    ['/v3/sandboxes', { tags: { a: 5 } }], ['/v3/sandboxes', { tags: Object.fromEntries('abcdef'.split('').map((k) => [k, k])) }],
    ['/v3/sandboxes', { name: '' }], ['/v3/sandboxes', { name: 'x'.repeat(101) }], ['/v3/sandboxes', { name: 'a\nb' }], ['/v3/sandboxes', { name: 'sessions' }],
    ['/v3/sandboxes', { image: 'no-such-image' }], ['/v3/sandboxes', { mounts: { '/d': { drive: 'd' } } }], ['/v3/sandboxes', { networkId: 'n' }],
    ['/v3/sandboxes', { source: { type: 'ftp', url: 'ftp://x' } }], ['/v3/sandboxes', { source: 'x' }], ['/v3/sandboxes', { networkPolicy: { mode: 'custom' } }],
    ['/v3/sandboxes', { networkPolicy: { allow: { 'a.com': [{ transform: [{ headers: { 'x-y': '${ANTHROPIC_API_KEY}' } }] }] } } }],
    ['/v3/sandboxes', '{'], ['/v3/sandboxes', '[]'], ['/v3/sandboxes', { name: '..' }], ['/v3/sandboxes', { name: '.' }],
    ...[{ transform: 5 }, { transform: [5] }, { transform: [{}] }, { transform: [{ headers: { a: 'b' }, path: '/x' }] }].map((rule) => ['/v3/sandboxes', { networkPolicy: { allow: { 'a.com': [rule] } } }]),
    ...[5, { deny: 5 }, { deny: [5] }, { allow: 'all' }].map((subnets) => ['/v3/sandboxes', { networkPolicy: { allow: ['a.com'], subnets } }]),
    ...[{ revision: 'x'.repeat(900_000) }, { username: 'x', password: 'x'.repeat(900_000) }, { revision: '--upload-pack=id' }].map((more) => ['/v3/sandboxes', { source: { type: 'git', url: 'https://a.com/x', ...more } }]),
    ...['ext::sh -c id', '--upload-pack=id', 'file:///etc', 'https://me:you@a.com/x', 'ssh://a.com/x', 'https://a.com/x y'].map((url) => ['/v3/sandboxes', { source: { type: 'git', url } }]),
    [`${box.at}/cmd`, {}], [`${box.at}/cmd`, { command: '', args: [] }], [`${box.at}/cmd`, { command: 'x', args: 'y' }], [`${box.at}/cmd`, { command: 'x', args: [5] }],
    [`${box.at}/cmd`, { command: 'x', args: [], timeout: 0 }], [`${box.at}/cmd`, { command: 'x', args: [], env: 5 }], [`${box.at}/fs/read`, {}], [`${box.at}/fs/mkdir`, { path: '' }],
    [`${box.at}/extend-timeout`, {}], [`${box.at}/extend-timeout`, { duration: 'x' }], [`${box.at}/network-policy`, { allow: 5 }],
  ];
  for (const [path, body] of wrong) {
    const answer = await ask('POST', path, body);
    assert.ok([400, 403, 422].includes(answer.status), `${path} ${JSON.stringify(body)}: ${answer.status} ${answer.raw}`);
    assert.ok(answer.json.error.message, String(answer.raw));
  }
  const large = { env: { A: 'x'.repeat(70_000) } };
  assert.equal((await ask('POST', '/v3/sandboxes', large)).status, 413);
  assert.ok((await ask('POST', `${box.at}/extend-timeout`, { duration: 1e11 })).status >= 400);
  assert.equal((await ask('GET', '/v2/sandboxes?limit=x')).status, 400);
  // What could not be resumed with is not kept either.
  for (const body of [{ networkPolicy: { allow: 5 } }, { env: { A: 5 } }, { env: { 'A=B': 'x' } }]) assert.equal((await ask('PATCH', `/v2/sandboxes/${box.sandbox.name}`, body)).status, 400, JSON.stringify(body));
  const many = await ask('POST', '/v3/sandboxes', { persistent: false, name: 'many', resources: { vcpus: 1024 } });
  assert.ok(many.json.session.vcpus <= availableParallelism(), 'it has what the machine has');
  await ask('DELETE', '/v2/sandboxes/many');
  await until(async () => (await living()) === 1, 'the other');
  await box.stop();
});

test('credentials of a policy, and of a source, are told to nobody', async () => {
  const secret = 'sesame-7731';
  const { json } = await ask('POST', '/v3/sandboxes', {
    persistent: false,
    name: 'keys',
    networkPolicy: { allow: { 'api.example.com': [{ transform: [{ headers: { authorization: `Bearer ${secret}` } }] }] } },
  });
  const texts = [json, (await ask('GET', '/v2/sandboxes/keys')).json, (await ask('GET', '/v2/sandboxes')).json, (await request(cay, `/v1/sandboxes/${json.session.id}`, { headers: { Authorization: `Bearer ${cay.key}` } })).json()];
  for (const text of texts) assert.ok(!JSON.stringify(text).includes(secret));
  const inside = await ask('POST', `/v2/sandboxes/sessions/${json.session.id}/cmd`, { command: 'sh', args: ['-c', 'env; cat /proc/*/environ 2>/dev/null'], wait: true, logs: true });
  assert.ok(!String(inside.raw).includes(secret));
  assert.ok(!cay.stdout().includes(secret) && !cay.stderr().includes(secret));
  await ask('DELETE', '/v2/sandboxes/keys');
});

test('so many names, and no more', async (t) => {
  const own = await startCay({ config: { require_key: true } });
  await own.halt();
  const fill = (persistent) =>
    withStore(own.dataDir, (db) => {
      db.exec("DELETE FROM records WHERE kind = 'vercel'");
      const put = db.prepare("INSERT INTO records (kind, id, owner, parent, status, created_ms, ended_ms, bytes, doc) VALUES ('vercel', ?, ?, ?, 'known', 1, 1, 0, ?)");
      db.exec('BEGIN');
      for (let i = 0; i < 1000; i++) put.run(makeId('vsb', 1000, i), own.project, `vn_${i}`, JSON.stringify({ name: `n${i}`, config: { persistent }, session: 'sbx_none', sessions: [], snapshots: [] }));
      db.exec('COMMIT');
    });
  const tryOne = async () => {
    const again = await startCay({ config: { require_key: false }, dataDir: own.dataDir, listen: ['127.0.0.1:0'] });
    try {
      const answer = await request(again, '/api/v3/sandboxes', { method: 'POST', headers: { Authorization: `Bearer ${own.key}` }, body: '{"persistent":false}' });
      const list = (await request(again, '/api/v2/sandboxes?limit=1000', { headers: { Authorization: `Bearer ${own.key}` } })).json();
      return [answer.status, list.sandboxes.length];
    } finally {
      await again.stop();
    }
  };
  t.after(() => own.clean());
  fill(true);
  assert.deepEqual(await tryOne(), [429, 1000]);
  fill(false);
  assert.deepEqual(await tryOne(), [200, 1000]);
});

test('a list by name, in both versions', async () => {
  const names = ['sort-b', 'sort-a', 'sort-c'];
  const boxes = [];
  for (const name of names) boxes.push(await create({ name }));
  const list = async (path) => (await ask('GET', path)).json.sandboxes;
  assert.deepEqual((await list('/v2/sandboxes?sortBy=name&namePrefix=sort-')).map((s) => s.name), ['sort-c', 'sort-b', 'sort-a']);
  assert.deepEqual((await list('/v2/sandboxes?sortBy=name&sortOrder=asc&namePrefix=sort-')).map((s) => s.name), ['sort-a', 'sort-b', 'sort-c']);
  assert.deepEqual((await list('/v1/sandboxes?sortBy=name&namePrefix=sort-')).map((s) => s.id), [boxes[2], boxes[0], boxes[1]].map((b) => b.session.id));
  for (const name of names) await ask('DELETE', `/v2/sandboxes/${name}`);
});

test('no text of a request holds a NUL, and the answer names the place', async () => {
  const box = await create({ name: 'nul' });
  const tries = [
    ['POST', '/v3/sandboxes', { tags: { a: 'x\0y' } }, 'tags.a'],
    ['POST', '/v3/sandboxes', { name: 'x\0y' }, 'name'],
    ['POST', '/v3/sandboxes', { runtime: 'x\0y' }, 'runtime'],
    ['POST', '/v3/sandboxes', { env: { A: '\0' } }, 'env.A'],
    ['POST', '/v3/sandboxes', { networkPolicy: { allow: ['example.com\0.evil.com'] } }, 'networkPolicy.allow[0]'],
    ['POST', '/v3/sandboxes', { source: { type: 'git', url: 'https://a.com/x\0' } }, 'source.url'],
    ['PATCH', '/v2/sandboxes/nul', { tags: { a: '\0' } }, 'tags.a'],
    ['POST', '/v2/sandboxes/nul/fork', { tags: { a: '\0' } }, 'tags.a'],
    ['POST', `${box.at}/cmd`, { command: 'echo', args: ['a', 'b\0c'] }, 'args[1]'],
    ['POST', `${box.at}/fs/read`, { path: '/etc/passwd\0x' }, 'path'],
    ['POST', `${box.at}/network-policy`, { allow: { 'a.com': [{ transform: [{ headers: { 'x-a': 'b\0c' } }] }] } }, 'allow.a.com[0].transform[0].headers.x-a'],
  ];
  for (const [method, path, body, place] of tries) {
    const answer = await ask(method, path, body);
    assert.equal(answer.status, 400, `${path} ${JSON.stringify(body)}: ${answer.raw}`);
    assert.equal(answer.json.error.message, `"${place}" must not hold a NUL character`);
  }
  assert.deepEqual((await ask('GET', '/v2/sandboxes?namePrefix=nul')).json.sandboxes.map((s) => s.name), ['nul']);
  await ask('DELETE', '/v2/sandboxes/nul');
});

test('a record that cannot be read is listed, says so, and can be deleted', async (t) => {
  const own = await startCay({ config: { require_key: true } });
  t.after(() => own.clean());
  const headers = { Authorization: `Bearer ${own.key}` };
  const post = (server, path, body) => request(server, `/api${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
  for (const name of ['one', 'two']) assert.equal((await post(own, '/v3/sandboxes', { name, persistent: false })).status, 200);
  await own.halt();
  withStore(own.dataDir, (db) => db.exec(`UPDATE records SET doc = '{"name":"one' WHERE kind = 'vercel'`));
  const again = await startCay({ dataDir: own.dataDir });
  try {
    const get = (path) => request(again, `/api${path}`, { headers });
    const names = async (query = '') => (await get(`/v2/sandboxes${query}`)).json().sandboxes.map((s) => s.name);
    const listed = (await get('/v2/sandboxes?namePrefix=vsb_&sortBy=name')).json().sandboxes;
    assert.deepEqual(listed.map((s) => s.status), ['failed', 'failed']);
    assert.deepEqual(await names('?namePrefix=one'), []);
    assert.equal((await get('/v1/sandboxes?sortBy=name')).json().sandboxes.length, 2);
    for (const path of ['/v2/sandboxes/one', `/v2/sandboxes/${listed[0].name}`, '/v2/sandboxes/one?resume=true']) {
      const answer = await get(path);
      assert.equal(answer.status, 500, path);
      assert.match(answer.json().error.message, /^the record of sandbox "\w+" cannot be read: delete it$/);
    }
    assert.equal((await post(again, '/v3/sandboxes', { name: 'one', persistent: false })).status, 500);
    const remove = (name) => request(again, `/api/v2/sandboxes/${name}`, { method: 'DELETE', headers });
    assert.equal((await remove('one')).status, 200); // by the name that it had
    const [left] = await names();
    assert.equal((await remove(left)).status, 200); // by the id that it is listed with
    assert.deepEqual(await names(), []);
    assert.equal((await get('/v2/sandboxes/one')).status, 404);
  } finally {
    await again.stop();
  }
});

test('what was deleted while it was kept is not given to the next of its name', async () => {
  const seen = { stop: 0, snapshot: 0, resume: 0 };
  for (let i = 0; i < 60 && Math.min(...Object.values(seen)) === 0; i++) {
    const what = ['stop', 'snapshot', 'resume'][i % 3];
    const box = await create({ persistent: true, name: 'heir' });
    await box.cmd('sh', '-c', 'echo secret >secret; head -c 50000000 /dev/urandom >big');
    let over = false;
    const kept = ask('POST', `${box.at}/${what === 'snapshot' ? 'snapshot' : 'stop'}`).finally(() => (over = true));
    let state = 'running';
    while (state === 'running') state = (await ask('GET', box.at)).json.session.status;
    const resumed = what === 'resume' ? ask('GET', '/v2/sandboxes/heir?resume=true') : null;
    await ask('DELETE', `/v2/sandboxes/heir${what === 'snapshot' ? '?deleteOrphanSnapshots=true' : ''}`);
    const heir = await ask('POST', '/v3/sandboxes', { name: 'heir', persistent: true });
    assert.equal(heir.status, 200, String(heir.raw));
    const met = !over; // the name belongs to another before the end
    if (met) seen[what]++;
    const answer = await kept;
    if (met) assert.equal(answer.status, what === 'snapshot' ? 409 : 200, String(answer.raw));
    if (resumed) assert.equal((await resumed).status, 404);
    const now = (await ask('GET', '/v2/sandboxes/heir')).json.sandbox;
    assert.equal(now.currentSnapshotId, undefined, what);
    assert.equal(now.currentSessionId, heir.json.session.id);
    assert.deepEqual((await ask('GET', '/v2/sandboxes/snapshots?name=heir')).json.snapshots, [], what);
    assert.equal((await ask('GET', box.at)).status, 404, 'a session of the former one is not of this one');
    const looked = await ask('POST', `/v2/sandboxes/sessions/${heir.json.session.id}/cmd`, { command: 'ls', args: [], wait: true, logs: true });
    assert.equal(lines(looked).length, 2, String(looked.raw));
    await ask('DELETE', '/v2/sandboxes/heir?deleteOrphanSnapshots=true');
  }
  assert.ok(Math.min(...Object.values(seen)) > 0, `each was met: ${JSON.stringify(seen)}`);
  await until(async () => (await living()) === 0, 'none');
});

test('a command with sudo that is refused leaves nothing in the server', { skip: isSanitized && 'it keeps what is freed' }, async () => {
  const box = await create({ name: 'sudo' });
  const body = JSON.stringify({ command: 'id', sudo: true, args: 5 });
  const one = `POST /api${box.at}/cmd HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${cay.key}\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const some = async (n) => {
    for (let i = 0; i < n; i += 500) {
      const got = await raw(cay, one.repeat(500), { ms: 60_000, isDone: (text) => statuses(text).length === 500 });
      assert.deepEqual([...new Set(statuses(got.text))], [400]);
    }
  };
  await some(2000);
  const before = rss();
  await some(20_000);
  assert.ok(rss() - before < 4 * MiB, `${rss() - before} bytes more`);
  await ask('DELETE', '/v2/sandboxes/sudo');
});

test('a page of another site resumes nothing', async () => {
  const box = await create({ name: 'asleep', persistent: true });
  await box.stop();
  const get = (headers, key) => ask('GET', '/v2/sandboxes/asleep?resume=true', undefined, { headers, key });
  const state = async () => (await ask('GET', '/v2/sandboxes/asleep')).json.sandbox.status;
  for (const site of ['cross-site', 'same-site']) assert.equal((await get({ 'Sec-Fetch-Site': site })).status, 403, site);
  assert.equal((await get({ Origin: 'http://evil.example' })).status, 403);
  assert.equal(await state(), 'stopped');
  assert.equal((await get({})).json.resumed, true); // a program, as the SDK sends it
  assert.equal(await state(), 'running');
  await ask('DELETE', '/v2/sandboxes/asleep?deleteOrphanSnapshots=true');
});

test('without keys too: what a link or an image of a page can send resumes nothing', async (t) => {
  const own = await startCay({});
  t.after(() => own.stop());
  const send = (method, path, { body, ...headers } = {}) => request(own, `/api/v2/sandboxes${path}`, { method, headers, body });
  const made = await request(own, '/api/v3/sandboxes', { method: 'POST', body: '{"name":"asleep"}' });
  await send('POST', `/sessions/${made.json().session.id}/stop`);
  for (const headers of [{}, { 'Sec-Fetch-Site': 'cross-site' }, { 'Sec-Fetch-Site': 'cross-site', Authorization: 'Bearer x.y.operator' }]) {
    for (const method of ['GET', 'HEAD']) assert.equal((await send(method, '/asleep?resume=1', headers)).status, 403, JSON.stringify(headers));
    assert.equal((await send('GET', '/asleep', headers)).json().sandbox.status, 'stopped');
  }
  const resumed = await send('GET', '/asleep?resume=1', { Authorization: 'Bearer x.y.operator' });
  assert.equal(resumed.json().resumed, true);
});

test('snapshots of a deleted sandbox are not listed as those of the next of its name', async () => {
  const listed = async () => (await ask('GET', '/v2/sandboxes/snapshots?name=line')).json.snapshots.length;
  const box = await create({ persistent: true, name: 'line' });
  await box.cmd('sh', '-c', 'echo secret >secret');
  assert.equal((await ask('POST', `${box.at}/snapshot`)).status, 200);
  assert.equal(await listed(), 1);
  assert.equal((await ask('DELETE', '/v2/sandboxes/line')).status, 200);
  assert.equal((await ask('POST', '/v3/sandboxes', { name: 'line', persistent: true })).status, 200);
  assert.equal(await listed(), 0);
  await ask('DELETE', '/v2/sandboxes/line');
});
