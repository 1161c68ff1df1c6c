// Bodies that go out as they come: of any length, in little memory, at the pace of the slower side.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';
import { test } from 'node:test';
import { ask, makeCertificate, post, raw, startEgress } from './lib.mjs';

const certificate = makeCertificate('DNS:localhost');
process.on('exit', () => certificate.remove());
const MIB = 1 << 20;
const STEP = 512; // from one byte that tells its place to the next
const mark = (at) => ((at / STEP) * 31 + (at >> 16)) % 251;
const sanitized = /asan/.test(process.env.CAY_EGRESS);

async function listen(t, server) {
  const sockets = new Set();
  for (const event of ['connection', 'secureConnection']) server.on(event, (s) => { sockets.add(s); s.on('error', () => {}); });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    for (const s of sockets) s.destroy();
  });
  return server.address().port;
}

/** A server whose handler sees the request before its body. */
async function start(t, handler, { make = http.createServer, scheme = 'http', config = {}, policy = {} } = {}) {
  const port = await listen(t, make(handler));
  const egress = await startEgress(t, { ca_file: certificate.file, private: [`localhost:${port}`], ...config });
  const routes = {
    r: { url: `${scheme}://localhost:${port}`, headers: { authorization: 'Bearer secret-of-the-operator' }, methods: ['GET', 'POST', 'PUT'] },
    claude: { url: `${scheme}://localhost:${port}`, api: 'anthropic', models: ['claude-x'] },
  };
  return { egress, upstream: port, port: await egress.open('a', { routes, allow: [`tcp://localhost:${port}`], ...policy }) };
}

/** Sums what comes, and checks that it is the sequence that was sent. */
function counter(request, onEnd) {
  let size = 0;
  let good = true;
  request.on('error', () => {});
  request.on('data', (d) => {
    for (let i = (STEP - (size % STEP)) % STEP; i < d.length; i += STEP) good &&= d[i] === mark(size + i);
    size += d.length;
  });
  request.on('end', () => onEnd(size, good));
  return () => size;
}

const piece = (at, length) => {
  const out = Buffer.alloc(length);
  for (let i = 0; i < length; i += STEP) out[i] = mark(at + i);
  return out;
};

const open = (port, path, headers = {}, method = 'POST') => {
  const request = http.request({ host: '127.0.0.1', port, path, method, agent: false, headers });
  request.on('error', () => {});
  return request;
};

const answer = async (request) => {
  const [response] = await once(request, 'response');
  let text = '';
  for await (const d of response) text += d;
  return { status: response.statusCode, text, headers: response.headers };
};

const rss = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
const until = async (done) => {
  while (!done()) await new Promise((next) => { setTimeout(next, 5); });
};

const kinds = [
  ['a route, its length known', '/_/r/x', {}, true],
  ['a route, in chunks', '/_/r/x', {}, false],
  ['plain http through the proxy', null, {}, true],
  ['a route over TLS', '/_/r/x', { make: (on) => http2.createSecureServer({ ...certificate, allowHTTP1: true }, on), scheme: 'https' }, true],
  ['a route over HTTP/2, in chunks', '/_/r/x', { make: (on) => http2.createSecureServer(certificate, on), scheme: 'https' }, false],
];

for (const [name, path, options, known] of kinds) {
  test(`a long body goes out while it comes, whole and in order: ${name}`, async (t) => {
    let got = () => 0;
    const { egress, port, upstream } = await start(t, (request, response) => {
      got = counter(request, (size, good) => response.end(`${request.headers['content-length'] ?? 'chunked'} ${size} ${good}`));
    }, options);
    const size = 8 * MIB;
    const request = open(port, path ?? `http://localhost:${upstream}/x`, { ...(path ? {} : { host: `localhost:${upstream}` }), ...(known ? { 'content-length': size } : {}) });
    request.write(piece(0, MIB));
    await until(() => got() >= MIB / 2); // long before its end
    for (let at = MIB; at < size; at += MIB) request.write(piece(at, MIB));
    request.end();
    const { status, text } = await answer(request);
    assert.equal(status, 200);
    assert.equal(text, `${known ? size : 'chunked'} ${size} true`);
    const ended = await egress.event((e) => e.state === 'ended');
    assert.equal(ended.bytes_out, size);
    assert.equal(ended.reason, '');
  });
}

test('the guest waits for a server that does not read, and little is held meanwhile', { skip: sanitized && 'its memory is the sanitizer\'s' }, async (t) => {
  const requests = [];
  const { egress, port } = await start(t, (request, response) => {
    requests.push(request);
    request.pause();
    counter(request, (size) => response.end(String(size))); // makes it flow
    request.pause();
  });
  const pid = await egress.pid();
  const before = rss(pid);
  const size = 24 * MIB;
  const all = Array.from({ length: 8 }, () => {
    const request = open(port, '/_/r/x', { 'content-length': size });
    let sent = 0;
    const more = () => {
      while (sent < size) {
        sent += MIB;
        if (!request.write(piece(sent - MIB, MIB))) return;
      }
      request.end();
    };
    request.on('drain', more);
    more();
    return { answered: answer(request), sent: () => sent };
  });
  await until(() => requests.length === 8);
  let last = -1;
  for (let same = 0; same < 10;) { // until nothing moves
    await new Promise((done) => { setTimeout(done, 20); });
    const now = all.reduce((n, r) => n + r.sent(), 0);
    same = now === last ? same + 1 : 0;
    last = now;
  }
  assert.ok(last < 8 * size, 'all of it was taken although nobody read');
  assert.ok(rss(pid) - before < 24 * MIB, `${(rss(pid) - before) / MIB} MiB`);
  for (const r of requests) r.resume();
  for (const { answered } of all) assert.equal((await answered).text, String(size));
  assert.ok(rss(pid) - before < 32 * MIB, `${(rss(pid) - before) / MIB} MiB`);
});

test('a guest that leaves in the middle, or says nonsense, leaves no whole request behind', async (t) => {
  const ends = [];
  let got = 0;
  const { egress, port } = await start(t, (request, response) => {
    request.on('error', () => {});
    request.on('data', (d) => (got += d.length));
    request.on('end', () => ends.push('whole'));
    request.on('close', () => { if (!request.complete) ends.push('broken'); });
    response.on('error', () => {});
  });
  const begin = async (text) => {
    const socket = net.connect(port, '127.0.0.1');
    socket.on('error', () => {});
    await once(socket, 'connect');
    got = 0;
    socket.write(text);
    await until(() => got > 200_000);
    return socket;
  };
  const part = 'x'.repeat(400_000);
  const head = 'POST /_/r/x HTTP/1.1\r\nHost: 127.0.0.1\r\n';
  const one = await begin(`${head}Content-Length: 900000\r\n\r\n${part}`);
  one.resetAndDestroy();
  await until(() => ends.length === 1);
  const two = await begin(`${head}Transfer-Encoding: chunked\r\n\r\n${(400_000).toString(16)}\r\n${part}\r\n`);
  two.end(); // its end is not the body's
  await until(() => ends.length === 2);
  const three = await begin(`${head}Transfer-Encoding: chunked\r\n\r\n${(400_000).toString(16)}\r\n${part}\r\n`);
  three.write('zz\r\n');
  const [data] = await once(three, 'data');
  assert.match(String(data), /^HTTP\/1\.1 400 .*malformed body/s);
  await until(() => ends.length === 3);
  assert.deepEqual(ends, ['broken', 'broken', 'broken']);
  await until(() => egress.events('a').filter((e) => e.state === 'ended').length === 3);
});

test('a server that answers or breaks off early is heard, and the connection is not used again', async (t) => {
  let how;
  const make = () => net.createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => {});
    socket.once('data', () => {
      const head = `HTTP/1.1 413 Too Large\r\nContent-Length: 8\r\n${how === 'close' ? 'Connection: close\r\n' : ''}\r\ntoo long`;
      if (how === 'break') socket.destroy();
      else if (how === 'close') socket.end(head);
      else socket.write(head);
    });
    socket.resume(); // one that closes without having read takes its answer back
  });
  const { egress, port } = await start(t, null, { make });
  const head = `POST /_/r/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${64 * MIB}\r\n\r\n${'x'.repeat(600_000)}`;
  for (how of ['close', 'stay']) {
    const began = Date.now();
    assert.match(await raw(port, head), /^HTTP\/1\.1 413 .*too long$/s, how);
    assert.ok(Date.now() - began < 10_000);
  }
  how = 'break';
  assert.match(await raw(port, head), /^HTTP\/1\.1 502 /);
  await egress.wait(() => egress.events('a').filter((e) => e.state === 'ended').length === 3); // told apart from the answer
  assert.equal(egress.events('a').filter((e) => e.state === 'begun').length, 3);
});

test('a body that stops is cut, and one that is refused is not sent', async (t) => {
  let reached = 0;
  const { egress, port } = await start(t, (request) => {
    reached += 1;
    request.on('error', () => {}).resume();
  }, { config: { body_timeout_ms: 500 } });
  const big = 'x'.repeat(600_000);
  assert.equal(await raw(port, `POST /_/r/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900000\r\n\r\n${big}`), '');
  assert.match((await egress.event((e) => e.state === 'ended')).reason, /did not come in time/);
  const other = await egress.open('b', { caps: { requests: 1 }, routes: {} });
  assert.match(await raw(other, `POST /_/r/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 600000\r\n\r\n${big}`), /^HTTP\/1\.1 403/);
  assert.equal(reached, 1);
});

test('bytes are capped while they go out', async (t) => {
  let got = 0;
  const { egress, port } = await start(t, (request) => request.on('error', () => {}).on('data', (d) => (got += d.length)), { policy: { caps: { bytes: MIB } } });
  const request = open(port, '/_/r/x', { 'content-length': 8 * MIB });
  for (let i = 0; i < 8; i += 1) request.write(piece(0, MIB));
  const ended = await egress.event((e) => e.state === 'ended');
  assert.match(ended.reason, /all the bytes/);
  assert.equal(ended.cut, true);
  assert.ok(got <= MIB, String(got));
});

test('a policy that changes cuts a body on its way', async (t) => {
  let got = 0;
  const { egress, port } = await start(t, (request) => request.on('error', () => {}).on('data', (d) => (got += d.length)));
  const request = open(port, '/_/r/x', { 'content-length': 8 * MIB });
  request.write(piece(0, MIB));
  await until(() => got > 0);
  await egress.ok({ cmd: 'policy', id: 'a', policy: {} });
  assert.match((await egress.event((e) => e.state === 'ended')).reason, /policy/);
});

test('what must be read as a whole is bounded, of one sandbox and of all together', async (t) => {
  const { egress, port } = await start(t, (request, response) => request.on('end', () => response.end('{}')).resume(), { config: { body_bytes: 3 * MIB, held_all_bytes: 4 * MIB } });
  const message = (n) => JSON.stringify({ model: 'claude-x', max_tokens: 1, messages: [{ role: 'user', content: 'x'.repeat(n) }] });
  const too = await post(port, '/v1/messages', message(3 * MIB));
  assert.equal(too.status, 413);
  assert.match(too.text, /limit body_bytes/);
  assert.equal((await ask(port, '/_/r/x', { method: 'POST', body: 'x'.repeat(5 * MIB) })).status, 200);
  // Others hold what is left: one more each time, since any of them may be the one that is refused.
  const held = [];
  let refused;
  while (refused?.status !== 429) {
    const other = await egress.open(`b${held.length}`, { routes: { claude: { url: 'http://localhost:1', api: 'anthropic', models: ['claude-x'] } } });
    const socket = net.connect(other, '127.0.0.1');
    socket.on('error', () => {});
    socket.write(`POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:${other}\r\nContent-Length: ${2 * MIB}\r\n\r\n${'x'.repeat(MIB)}`);
    held.push(socket);
    refused = await post(port, '/v1/messages', message(MIB));
  }
  assert.match(refused.text, /limit held_all_bytes/);
  for (const socket of held) socket.destroy();
  let again;
  while (again?.status !== 200) again = await post(port, '/v1/messages', message(MIB));
});
