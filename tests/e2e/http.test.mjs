// HTTP/1.1 to the letter, on the real server: what is accepted, what is refused, and with which status.
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { raw, request, sleep, slow, startCay, startHttpServer, statuses, until } from '../lib/cay.mjs';

let cay;
before(async () => {
  cay = await startCay({ config: { limits: { head_bytes: 4096, body_bytes: 4096 } } });
});
after(() => cay.stop());

const get = (more = '') => `GET /health HTTP/1.1\r\nHost: localhost\r\n${more}\r\n`;
const post = (more, body = '') => `POST /v1/session HTTP/1.1\r\nHost: localhost\r\n${more}\r\n${body}`;
const close = 'Connection: close\r\n';

test('a connection is kept and used again', async () => {
  const count = (text) => statuses(text).length;
  const socket = connect(cay.port, '127.0.0.1');
  let text = '';
  socket.on('data', (chunk) => (text += chunk));
  for (let i = 1; i <= 5; i++) {
    socket.write(get());
    await until(() => count(text) === i);
  }
  socket.write(get(close));
  await new Promise((resolve) => socket.once('close', resolve));
  assert.equal(count(text), 6);
  assert.equal([...text.matchAll(/Connection: close/g)].length, 1);
});

test('pipelined requests are answered in order', async () => {
  const paths = ['/health', '/v1/none', '/openapi.json', '/v1/runs', '/health'];
  const bytes = paths.map((path) => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`).join('') + get(close);
  for (const size of [bytes.length, 100, 17]) {
    const { text } = await raw(cay, bytes.match(new RegExp(`[^]{1,${size}}`, 'g')));
    assert.deepEqual(statuses(text), [200, 404, 200, 200, 200, 200]);
  }
  const many = await raw(cay, get().repeat(500) + get(close));
  assert.equal(statuses(many.text).length, 501);
});

test('HTTP/1.0 closes, unless it asks not to', async () => {
  const one = await raw(cay, 'GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n');
  assert.deepEqual([statuses(one.text), one.ended], [[200], 'end']);
  const two = await raw(
    cay,
    'GET /health HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n' +
      'GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n',
  );
  assert.deepEqual([statuses(two.text), two.ended], [[200, 200], 'end']);
  assert.match(two.text, /Connection: keep-alive/);
});

test('a target may be absolute if it names the same host', async () => {
  const absolute = (target, host) => raw(cay, `GET ${target} HTTP/1.1\r\nHost: ${host}\r\n${close}\r\n`);
  assert.deepEqual(statuses((await absolute('http://localhost/health', 'localhost')).text), [200]);
  assert.deepEqual(statuses((await absolute('http://LOCALHOST/health?x', 'localhost')).text), [200]);
  assert.deepEqual(statuses((await absolute('http://other/health', 'localhost')).text), [400]);
  assert.deepEqual(statuses((await absolute('http://x.localhost/health', 'localhost')).text), [400]);
});

const refused = [
  ['a folded header line', get('X: a\r\n b\r\n'), 400],
  ['a line that begins with a tab', get('\tX: a\r\n'), 400],
  ['no Host', 'GET /health HTTP/1.1\r\n\r\n', 400],
  ['two Hosts', get('Host: localhost\r\n'), 400],
  ['a Host with a path', 'GET /health HTTP/1.1\r\nHost: localhost/x\r\n\r\n', 400],
  ['both lengths', post('Content-Length: 3\r\nTransfer-Encoding: chunked\r\n', '0\r\n\r\n'), 400],
  ['both lengths, the other way', post('Transfer-Encoding: chunked\r\nContent-Length: 3\r\n', '0\r\n\r\n'), 400],
  ['both lengths behind an empty field', post('X:\r\nContent-Length: 3\r\nX:\r\nTransfer-Encoding: chunked\r\n', '0\r\n\r\n'), 400],
  ['two lengths', post('Content-Length: 3\r\nContent-Length: 3\r\n', 'abc'), 400],
  ['a length with a sign', post('Content-Length: +3\r\n', 'abc'), 400],
  ['another encoding', post('Transfer-Encoding: gzip, chunked\r\n', '0\r\n\r\n'), 501],
  ['a bare line feed', 'GET /health HTTP/1.1\nHost: localhost\n\n', 400],
  ['one bare line feed', get('X: a\nY: b\r\n'), 400],
  ['a bare carriage return', get('X: a\rY: b\r\n'), 400],
  ['a NUL in a value', get('X: a\0b\r\n'), 400],
  ['a NUL in the target', 'GET /he\0alth HTTP/1.1\r\nHost: localhost\r\n\r\n', 400],
  ['a space before the colon', get('X : a\r\n'), 400],
  ['a field without a name', get(': a\r\n'), 400],
  ['a fragment in the target', 'GET /health#x HTTP/1.1\r\nHost: localhost\r\n\r\n', 400],
  ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400],
  ['HTTP/0.9', 'GET /health\r\n\r\n', 400],
  ['CONNECT', 'CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n', 400],
  ['TLS', Buffer.from('16030100a5010000a10303', 'hex').toString('latin1') + '\r\n\r\n', 400],
  ['garbage', '\x01\x02\x03\xff\xfe\r\n\r\n', 400],
  ['a chunk size that is none', post('Transfer-Encoding: chunked\r\n', 'zz\r\nabc\r\n0\r\n\r\n'), 400],
  ['a chunk size with a sign', post('Transfer-Encoding: chunked\r\n', '+3\r\nabc\r\n0\r\n\r\n'), 400],
  ['a chunk size that overflows', post('Transfer-Encoding: chunked\r\n', 'ffffffffffffffffff\r\nabc\r\n0\r\n\r\n'), 400],
  ['a chunk that is longer than it says', post('Transfer-Encoding: chunked\r\n', '3\r\nabcd\r\n0\r\n\r\n'), 400],
  ['a chunk line that ends in a bare line feed', post('Transfer-Encoding: chunked\r\n', '3\nabc\n0\n\n'), 400],
  ['a large head', get(`X: ${'a'.repeat(5000)}\r\n`), 431],
  ['a large head without end', `GET /health HTTP/1.1\r\nHost: localhost\r\nX: ${'a'.repeat(5000)}`, 431],
  ['a large target', `GET /${'a'.repeat(5000)} HTTP/1.1\r\nHost: localhost\r\n\r\n`, 431],
  ['too many fields', get('A: b\r\n'.repeat(150)), 431],
  ['a large body by its length', post('Content-Length: 5000\r\n', 'b'.repeat(5000)), 413],
  ['a huge body by its length', post('Content-Length: 999999999999999\r\n', 'b'), 413],
  ['a large body in chunks', post('Transfer-Encoding: chunked\r\n', `1388\r\n${'b'.repeat(5000)}\r\n0\r\n\r\n`), 413],
  ['an expectation nobody knows', get('Expect: miracles\r\n'), 400],
];
for (const [what, bytes, status] of refused)
  test(`refused with ${status}: ${what}`, async () => {
    // What follows must not be taken for a second request.
    const { text, ended } = await raw(cay, [Buffer.from(bytes, 'latin1')]);
    assert.deepEqual(statuses(text), [status], text);
    assert.equal(ended, 'end');
    assert.match(text, /Connection: close\r\n/);
    const body = JSON.parse(text.slice(text.indexOf('\r\n\r\n') + 4));
    assert.deepEqual(Object.keys(body.error), ['code', 'message', 'request_id']);
  });

test('nothing after a refused request is looked at', async () => {
  const { text } = await raw(cay, get('X: a\r\n b\r\n') + get());
  assert.deepEqual(statuses(text), [400]);
});

test('100-continue is sent for a body that is wanted, and only then', async () => {
  const wanted = connect(cay.port, '127.0.0.1');
  let text = '';
  wanted.on('data', (chunk) => (text += chunk));
  wanted.write(post(`Content-Length: 3\r\nExpect: 100-continue\r\n${close}`));
  await until(() => text.includes('100 Continue\r\n\r\n'));
  wanted.write('abc');
  await new Promise((resolve) => wanted.once('close', resolve));
  assert.deepEqual(statuses(text), [100, 204]);
  const large = await raw(cay, post('Content-Length: 5000\r\nExpect: 100-continue\r\n'));
  assert.deepEqual(statuses(large.text), [413]);
  const none = await raw(cay, `POST /v1/none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n`);
  assert.deepEqual(statuses(none.text), [404]);
});

test('empty lines before a request are skipped', async () => {
  const { text } = await raw(cay, `\r\n\r\n${get()}\r\n${get(close)}`);
  assert.deepEqual(statuses(text), [200, 200]);
});

test('a half-closed client gets its answers', async () => {
  const { text, ended } = await raw(cay, get() + get(), { halfClose: true });
  assert.deepEqual(statuses(text), [200, 200]);
  assert.equal(ended, 'end');
});

test('time limits: head, body, idle', async (t) => {
  const server = await startHttpServer(t, ['header_timeout_ms=1000', 'body_timeout_ms=1100', 'idle_timeout_ms=1200']);
  const timed = async (bytes) => {
    const began = Date.now();
    const answer = await raw(server, bytes, { ms: 20_000 });
    return { ...answer, ms: Date.now() - began };
  };
  const host = 'Host: a\r\n';
  const [nothing, head, body, idle, stream] = await Promise.all([
    timed(''),
    timed('GET /hello HTTP/1.1\r\nHos'),
    timed(`POST /echo HTTP/1.1\r\n${host}Content-Length: 10\r\n\r\nabc`),
    timed(`GET /hello HTTP/1.1\r\n${host}\r\n`),
    timed(`POST /upload HTTP/1.1\r\n${host}Content-Length: 10\r\n\r\nabc`),
  ]);
  assert.deepEqual([nothing.text, nothing.ended], ['', 'end']);
  assert.deepEqual(statuses(head.text), [408]);
  assert.deepEqual(statuses(body.text), [408]);
  assert.deepEqual(statuses(stream.text), [408]);
  assert.match(body.text, /the body of the request did not come in time/);
  assert.deepEqual([statuses(idle.text), idle.ended], [[200], 'end']);
  for (const { ms } of [nothing, head, body, idle, stream]) assert.ok(ms > 950 && ms < 15_000 * slow, `${ms} ms`); // of two clocks, each in whole milliseconds
  await until(async () => (await request(server, '/counts')).json().gone === 1, 'the word to the streaming handler');
});

test('a head that trickles in is over when its time is', async (t) => {
  const server = await startHttpServer(t, ['header_timeout_ms=500']);
  const socket = connect(server.port, '127.0.0.1');
  let text = '';
  let closed = false;
  socket.on('data', (chunk) => (text += chunk));
  socket.on('close', () => (closed = true));
  socket.on('error', () => {});
  const bytes = `GET /hello HTTP/1.1\r\nHost: a\r\nX: ${'a'.repeat(1000)}`;
  for (let i = 0; i < bytes.length && !closed && !text; i++) {
    socket.write(bytes[i]);
    await sleep(20);
  }
  await until(() => closed);
  assert.deepEqual(statuses(text), [408]);
});

test('a stream waits for a slow reader, and one that reads nothing is dropped', async (t) => {
  let server = await startHttpServer(t); // which waits for longer than a busy machine keeps us waiting
  const n = 60_000_000;
  const socket = connect(server.port, '127.0.0.1');
  socket.write(`GET /stream?n=${n} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`);
  let seen = 0;
  let pauses = 0;
  for await (const chunk of socket) {
    seen += chunk.length;
    if (pauses < 10 && seen > pauses * 500_000) {
      pauses++;
      await sleep(50);
    }
  }
  assert.ok(seen > n, `${seen} of ${n}`);
  assert.ok((await request(server, '/counts')).json().paused > 0);

  server = await startHttpServer(t, ['write_timeout_ms=600']);
  const stuck = connect(server.port, '127.0.0.1');
  stuck.on('error', () => {});
  stuck.pause();
  stuck.write(`GET /stream?n=500000000 HTTP/1.1\r\nHost: a\r\n\r\n`);
  await until(async () => (await request(server, '/counts')).json().gone === 1, 'the drop');
  stuck.destroy();
});

test('memory for a reader that reads nothing is bounded', async (t) => {
  const { readFileSync } = await import('node:fs');
  const server = await startHttpServer(t);
  const rss = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.pid}/status`, 'utf8'))[1]);
  await request(server, '/hello');
  const before = rss();
  const sockets = Array.from({ length: 20 }, () => {
    const socket = connect(server.port, '127.0.0.1');
    socket.on('error', () => {});
    socket.pause();
    socket.write('GET /stream?n=100000000 HTTP/1.1\r\nHost: a\r\n\r\n');
    return socket;
  });
  await until(async () => (await request(server, '/counts')).json().paused >= 20);
  await sleep(200);
  const grown = rss() - before;
  for (const socket of sockets) socket.destroy();
  assert.ok(grown < 20 * 1024 * slow, `${grown} KiB for 20 readers`);
});

test('connections over the limit are told so, and room is given back', async (t) => {
  const server = await startHttpServer(t, ['connections=5']);
  const held = Array.from({ length: 5 }, () => connect(server.port, '127.0.0.1'));
  await Promise.all(held.map((s) => new Promise((resolve) => s.once('connect', resolve))));
  held[0].write('GET /counts HTTP/1.1\r\nHost: a\r\n\r\n');
  await new Promise((resolve) => held[0].once('data', resolve));
  for (let i = 0; i < 10; i++) {
    const { text } = await raw(server, 'GET /hello HTTP/1.1\r\nHost: a\r\n\r\n');
    assert.deepEqual(statuses(text), [503]);
    assert.match(text, /Retry-After: 1/);
  }
  for (const socket of held) socket.destroy();
  await until(async () => (await raw(server, 'GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n')).text.includes('200 OK'));
});

test('a handler that answers late meets clients that have left', async (t) => {
  const server = await startHttpServer(t);
  for (let i = 0; i < 20; i++) {
    const socket = connect(server.port, '127.0.0.1');
    socket.write(`GET /later?ms=30&answer=${i % 2} HTTP/1.1\r\nHost: a\r\n\r\n`);
    await new Promise((resolve) => socket.once('connect', resolve));
    if (i % 3 === 0) socket.resetAndDestroy();
    else socket.destroy();
  }
  await until(async () => (await request(server, '/counts')).json().connections === 1);
  assert.equal((await request(server, '/later?ms=1')).body, 'late');
});

test('who asks too early is told when to come again', async (t) => {
  const server = await startHttpServer(t);
  const got = await request(server, '/unavailable');
  assert.equal(got.status, 503);
  assert.equal(got.headers['retry-after'], '1');
});
