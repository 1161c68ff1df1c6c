// Every endpoint that streams, in one table: silence is filled with comment lines, proxies are asked not to gather, and
// all of them end when the key that opened them is revoked.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { bearer, createKey, procText, request, runCay, startCay, tempDir, until } from '../lib/cay.mjs';
import { make } from '../lib/sandbox.mjs';
import { say, scripted } from '../lib/model.mjs';

const shell = {
  title: 'shell', description: 'Runs its task.', program: 'shell', find: 'setting', mount: '/opt/shell', arguments: ['-c', '${spec}'],
  options: { plan: [], work: [] }, stdin: 'none', dialects: ['anthropic'], lines: 'text', demo: true,
};
const waits = 'export default () => new Promise((done) => setTimeout(done, 300_000))';
const streams = `export default { fetch() {
  const body = new ReadableStream({ async pull(c) { c.enqueue(new TextEncoder().encode('piece\\n')); await new Promise((done) => setTimeout(done, 200)); } });
  return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
} }`;
const inside = `import socket, threading, time
def serve(c):
    head = c.recv(65536)
    if b'pgrade' in head:
        c.sendall(b'HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n\\r\\nhello')
    else:
        c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Type: text/plain\\r\\n\\r\\nhello')
    time.sleep(300)
s = socket.create_server(('127.0.0.1', 8000))
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`;

const ends = [];
const t = { after: (f) => ends.push(f) };
let cay;
let admin;
before(async () => {
  const dir = tempDir(t);
  chmodSync(dir, 0o755);
  mkdirSync(join(dir, 'coders'), { mode: 0o755 });
  writeFileSync(join(dir, 'coders/shell.json'), JSON.stringify(shell));
  const model = await scripted(t, Array.from({ length: 20 }, () => ({ ...say('well'), hold: true })));
  const config = {
    require_key: true, coders_dir: join(dir, 'coders'), coders: { shell: '/bin/sh' }, limits: { keys: 20, run_wall_ms: 300_000, write_timeout_ms: 300_000 }, // some are left unread while others are silent
    sandboxes: { max: 16, max_per_key: 12 },
  };
  cay = await startCay({ config, env: model.env });
  admin = await createKey(cay.dataDir, { name: 'admin', scope: 'admin' });
});
after(async () => {
  await cay?.stop();
  for (const end of ends) await end();
});

/** A connection with one request on it: {text, over}. */
function open({ method, path, headers = {}, body, held, host = '127.0.0.1' }, key) {
  const all = { Host: `${host}:${cay.port}`, ...bearer(key), ...headers };
  if (body !== undefined && !held) all['Content-Length'] = Buffer.byteLength(body);
  if (held) all['Transfer-Encoding'] = 'chunked';
  const head = `${method} ${path} HTTP/1.1\r\n${Object.entries(all).map(([k, v]) => `${k}: ${v}\r\n`).join('')}\r\n`;
  const socket = connect(cay.port, '127.0.0.1');
  const stream = { text: '', over: false, socket };
  socket.on('data', (d) => (stream.text += d.toString('latin1')));
  for (const end of ['end', 'close', 'error']) socket.on(end, () => (stream.over = true));
  socket.write(head + (held ? `${held.length.toString(16)}\r\n${held}\r\n` : body ?? ''));
  return stream;
}

const events = { Accept: 'text/event-stream' };
const upgrade = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': randomBytes(16).toString('base64') };

/** Everything that streams, for a key: [name, request, what it is]. */
async function table(key) {
  const send = async (method, path, body) => {
    const got = await request(cay, path, { method, headers: bearer(key), body: body && JSON.stringify(body) });
    assert.ok(got.status < 300, `${path}: ${got.status} ${got.body}`);
    return got.json();
  };
  const box = await make(cay, { files: [{ path: '/work/server.py', content: inside }] }, key);
  const exec = (more) => send('POST', `${box.at}/exec`, { background: true, ...more });
  const sleeping = await exec({ argv: ['sleep', '300'] });
  const tty = await exec({ argv: ['sleep', '300'], tty: true });
  const reading = await exec({ argv: ['cat'], stdin: true });
  await exec({ argv: ['python3', '/work/server.py'] });
  await box.run('head -c 60000000 /dev/zero >/work/large');
  await until(async () => (await box.run('python3 -c "import socket; socket.create_connection((\'127.0.0.1\', 8000))"')).exit_code === 0, 'the server inside');
  const task = await send('POST', '/v1/tasks', { type: 'run', input: { code: waits }, timeout_ms: 300_000 });
  const worker = await send('PUT', '/v1/workers/streams', { code: streams });
  const name = `v${box.id.slice(-8)}`;
  const vercel = await send('POST', '/api/v3/sandboxes', { name, persistent: false });
  const at = `/api/v2/sandboxes/sessions/${vercel.session.id}`;
  const slow = { command: 'sleep', args: ['300'] };
  const cmd = await send('POST', `${at}/cmd`, slow);
  const json = (body, headers = events) => ({ method: 'POST', headers, body: JSON.stringify(body) });
  const first = open({ path: '/v1/run', ...json({ code: waits }) }, key);
  let run;
  await until(async () => (run = (await send('GET', '/v1/runs?kind=run&status=running')).runs[0]), 'a run');
  return {
    opened: { 'POST /v1/run': first },
    sse: {
      'GET /v1/runs/{id}/events': { method: 'GET', path: `/v1/runs/${run.id}/events`, headers: events },
      'GET /v1/tasks/{id}/events': { method: 'GET', path: `/v1/tasks/${task.id}/events`, headers: events },
      'POST /v1/sandboxes/{id}/exec': { path: `${box.at}/exec`, ...json({ argv: ['sleep', '300'] }) },
      'GET /v1/sandboxes/{id}/execs/{exec}/output': { method: 'GET', path: `${box.at}/execs/${sleeping.id}/output`, headers: events },
      'POST /v1/code': { path: '/v1/code', ...json({ spec: 'sleep 300', agent: 'shell' }) },
      'POST /execute': { path: '/execute', ...json({ task: 'sleep 300', options: { agent: 'shell' } }) },
      'POST /execute/sdk': { path: '/execute/sdk', ...json({ prompt: 'x' }) },
      'POST /v1/agents/{agent}/{name}/messages': { path: `/v1/agents/sandbox-agent/${name}/messages`, ...json({ text: 'x' }) },
    },
    other: {
      'GET /v1/status': { method: 'GET', path: '/v1/status', headers: events },
      'POST cmd': { path: `${at}/cmd`, ...json({ ...slow, wait: true, logs: true }, {}) },
      'GET cmd?wait': { method: 'GET', path: `${at}/cmd/${cmd.command.id}?wait=true` },
      'GET cmd/logs': { method: 'GET', path: `${at}/cmd/${cmd.command.id}/logs` },
      'a worker': { method: 'GET', path: '/', host: `${worker.host}.localhost` },
      'a port of a sandbox': { method: 'GET', path: '/', host: `8000-${box.id}.localhost` },
    },
    length: { // nobody reads them to the end
      'GET files': { method: 'GET', path: `${box.at}/files?path=/work/large`, stuck: true },
      'GET tar': { method: 'GET', path: `${box.at}/tar?path=/work`, stuck: true },
    },
    socket: {
      'GET execs/{exec}/tty': { method: 'GET', path: `${box.at}/execs/${tty.id}/tty`, headers: upgrade },
      'GET /agents/{agent}/{name}': { method: 'GET', path: `/agents/sandbox-agent/${name}`, headers: upgrade },
      'an upgrade at a port': { method: 'GET', path: '/', host: `8000-${box.id}.localhost`, headers: upgrade },
    },
    body: {
      'POST execs/{exec}/stdin': { method: 'POST', path: `${box.at}/execs/${reading.id}/stdin`, held: 'typed\n' },
      'PUT files': { method: 'PUT', path: `${box.at}/files?path=/work/new`, held: 'a part' },
    },
    reading: `${box.at}/execs/${reading.id}/stdout`,
  };
}

/** Opens all of a table: {group: {name: stream}}. */
async function openAll(key) {
  const { opened, reading, body, ...groups } = await table(key);
  const all = { sse: opened };
  for (const [group, requests] of Object.entries(groups))
    for (const [name, what] of Object.entries(requests)) {
      const stream = open(what, key);
      if (what.stuck) stream.socket.once('data', () => stream.socket.pause());
      (all[group] ??= {})[name] = stream;
    }
  for (const group of ['sse', 'other', 'length', 'socket'])
    for (const [name, s] of Object.entries(all[group])) {
      await until(() => s.text.includes('\r\n\r\n') || s.over, name);
      assert.match(s.text, group === 'socket' ? /^HTTP\/1\.1 101/ : /^HTTP\/1\.1 200/, `${name}: ${s.text}`);
      assert.ok(!s.over, `${name} ended: ${s.text}`);
    }
  /** Bodies that never end; later than the rest, because a body has to keep a pace. */
  const openBodies = async () => {
    all.body = Object.fromEntries(Object.entries(body).map(([name, what]) => [name, open(what, key)]));
    await until(async () => (await request(cay, reading, { headers: bearer(key) })).body === 'typed\n', 'the input');
  };
  return { all, openBodies };
}

const each = (all) => Object.entries(all).flatMap(([group, streams]) => Object.entries(streams).map(([name, s]) => [group, name, s]));

test('streams say something now and then, are not gathered by proxies, and end with their key', { timeout: 180_000 }, async () => {
  const [mine, other] = [await createKey(cay.dataDir, { name: 'mine' }), await createKey(cay.dataDir, { name: 'other' })];
  const stays = open({ method: 'GET', path: '/v1/status', headers: events }, other.text);
  const { all, openBodies } = await openAll(mine.text);
  for (const [group, name, s] of each(all))
    if (group === 'sse' || group === 'other') assert.match(s.text, /^x-accel-buffering: no\r$/im, name);
  // The part after the head, as chunks: a comment is a chunk of its own.
  for (const [name, s] of Object.entries(all.sse)) {
    await until(() => s.text.includes('\r\n3\r\n:\n\n\r\n') || s.over, `a comment line of ${name}`);
    assert.ok(!s.over, `${name} ended: ${s.text}`);
  }
  await openBodies();
  for (const [, name, s] of each(all)) assert.ok(!s.over, `${name} ended: ${s.text}`);
  assert.equal((await request(cay, `/v1/keys/${mine.id}`, { method: 'DELETE', headers: bearer(admin.text) })).status, 204);
  for (const s of Object.values(all.length)) s.socket.resume();
  for (const [group, name, s] of each(all)) {
    await until(() => s.over || (group === 'socket' && s.text.includes('\x03\xf0the key is not valid')), `the end of ${name}`);
    assert.ok(!s.text.endsWith('0\r\n\r\n'), `${name} did not come to a proper end`);
  }
  assert.ok(!stays.over, 'streams of others go on');
  const seen = stays.text.length;
  await until(() => stays.text.length > seen, 'another event');
  for (const [, , s] of each(all)) s.socket.destroy();
  stays.socket.destroy();
});

test('`cay key revoke` beside the server ends them as well', async () => {
  const key = await createKey(cay.dataDir, { name: 'third' });
  const stream = open({ method: 'GET', path: '/v1/status', headers: events }, key.text);
  await until(() => stream.text.includes('event: status'), 'an event');
  assert.equal((await runCay(['key', 'revoke', key.id, '--data-dir', cay.dataDir])).code, 0);
  await until(() => stream.over, 'the end');
});

test('a revoked key types nothing more into an open terminal', async () => {
  const key = await createKey(cay.dataDir, { name: 'fourth' });
  const box = await make(cay, {}, key.text);
  const { id } = (await box.call('POST', '/exec', { background: true, tty: true, argv: ['cat'] })).json;
  const stream = open({ method: 'GET', path: `${box.at}/execs/${id}/tty`, headers: upgrade }, key.text);
  const frame = (text) => Buffer.concat([Buffer.from([0x82, 0x80 | text.length, 0, 0, 0, 0]), Buffer.from(text)]);
  await until(() => stream.text.startsWith('HTTP/1.1 101'), 'the terminal');
  stream.socket.write(frame('before\n'));
  await until(() => stream.text.includes('before'), 'the echo');
  assert.equal((await request(cay, `/v1/keys/${key.id}`, { method: 'DELETE', headers: bearer(admin.text) })).status, 204);
  await until(() => stream.text.includes('\x03\xf0'), 'the close frame');
  stream.socket.write(frame('after\n')); // it does not answer the close
  await until(() => stream.over, 'the end');
  const said = (await request(cay, `${box.at}/execs/${id}/stdout`, { headers: bearer(admin.text) })).body;
  assert.match(said, /before/);
  assert.doesNotMatch(said, /after/);
});

test('a HEAD reads no output of a command', async (t) => {
  const own = await startCay();
  t.after(() => own.stop());
  const box = await make(own);
  const done = (await box.call('POST', '/exec', { command: 'head -c 6000000 /dev/zero | tr "\\\\0" "\\\\1"', timeout_s: 60 })).json;
  assert.equal(done.exit_code, 0, JSON.stringify(done).slice(0, 300));
  const used = () => procText(own.pid, 'stat').split(') ')[1].split(' ').slice(11, 13).reduce((sum, n) => sum + Number(n), 0); // hundredths of a second
  const cost = async (method, times) => {
    const before = used();
    for (let i = 0; i < times; i++) assert.equal((await request(own, `${box.at}/execs/${done.id}/output`, { method, headers: { Accept: 'text/event-stream' } })).status, 200);
    return used() - before;
  };
  const get = await cost('GET', 4);
  const head = await cost('HEAD', 4);
  assert.ok(head * 4 < get, `processor time of HEAD ${head}, of GET ${get}`);
});

test('a HEAD of a stream ends at once, and the next request of the connection is answered', async (t) => {
  const own = await startCay();
  t.after(() => own.stop());
  const box = await make(own);
  const exec = (await box.call('POST', '/exec', { command: 'sleep 300', background: true })).json.id;
  const task = (await request(own, '/v1/tasks', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ type: 'run', input: { code: waits } }) })).json().id;
  const run = await until(async () => (await request(own, `/v1/tasks/${task}`)).json().run, 'the run');
  for (const path of [`${box.at}/execs/${exec}/output`, `${box.at}/execs/${exec}/stdout`, `/v1/runs/${run}/events`, `/v1/tasks/${task}/events`]) {
    const socket = connect(own.port, '127.0.0.1');
    t.after(() => socket.destroy());
    let text = '';
    socket.setEncoding('latin1').on('data', (data) => { text += data; });
    const ask = (method, at) => `${method} ${at} HTTP/1.1\r\nHost: 127.0.0.1:${own.port}\r\n\r\n`;
    socket.write(ask('HEAD', path) + ask('GET', '/health'));
    await until(() => text.split('HTTP/1.1 200 ').length === 3 || socket.destroyed, `both answers after HEAD ${path}`);
    assert.equal(text.split('HTTP/1.1 200 ').length, 3, text);
  }
  assert.equal((await request(own, `/v1/tasks/${task}/cancel`, { method: 'POST' })).status, 202);
});
