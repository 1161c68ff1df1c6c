// Request bodies, on the front's HTTP server with the routes of tests/server/.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { raw, request, startHttpServer, statuses } from '../lib/cay.mjs';

let server;
before(async () => {
  server = await startHttpServer(null, ['body_bytes=100000']);
});
after(() => server.stop());

const head = (method, path, more = '') => `${method} ${path} HTTP/1.1\r\nHost: a\r\n${more}\r\n`;
const chunked = 'Transfer-Encoding: chunked\r\n';
const lastLine = (text) => text.split('\r\n').at(-1);

test('a chunked body comes whole, in any fragments', async () => {
  const bytes = head('POST', '/echo', `${chunked}Connection: close\r\n`) + '3\r\nabc\r\n5;x=y\r\ndefgh\r\n0\r\n\r\n';
  for (const size of [1, 2, 3, 7, 1000]) {
    const pieces = bytes.match(new RegExp(`[^]{1,${size}}`, 'g'));
    const { text } = await raw(server, pieces);
    assert.deepEqual(statuses(text), [200]);
    assert.equal(lastLine(text), 'abcdefgh');
  }
});

test('trailer fields after a chunked body are read and dropped', async () => {
  const fields = Array.from({ length: 150 }, (_, i) => `X-${i}: ${'v'.repeat(40)}\r\n`).join('');
  const { text } = await raw(
    server,
    head('POST', '/echo', chunked) + `3\r\nabc\r\n0\r\n${fields}\r\n` + head('GET', '/hello', 'Connection: close\r\n'),
  );
  assert.deepEqual(statuses(text), [200, 200]);
  assert.match(text, /\r\n\r\nabcHTTP/);
  assert.equal(lastLine(text), 'hello');
});

test('a body that is answered early is discarded and the connection closed', async () => {
  const { text, ended } = await raw(server, [head('POST', '/early', 'Content-Length: 5000\r\n'), 'x'.repeat(5000)]);
  assert.deepEqual(statuses(text), [200]);
  assert.match(text, /Connection: close/);
  assert.equal(ended, 'end');
});

test('an upload streams through in order', async () => {
  const answer = await request(server, '/upload', { method: 'POST', body: Buffer.alloc(90_000, 'u') });
  assert.equal(answer.body, '90000');
});

test('a handler may pause a body, later or inside its callback', async () => {
  for (const path of ['/pausing', '/at-once']) {
    const answer = await request(server, path, { method: 'POST', body: Buffer.alloc(90_000, 'p') });
    assert.equal(answer.body, '90000', path);
  }
});

test('an answer can stream while the body comes in', async () => {
  const answer = await request(server, '/duplex', { method: 'POST', body: Buffer.alloc(90_000, 'd') });
  assert.equal(answer.status, 200);
  assert.equal(answer.raw.length, 90_000);
});

test('a body over the limit ends an answer that has begun, without a second head', async () => {
  const { text, ended } = await raw(server, [
    head('POST', '/duplex', chunked),
    `186a0\r\n${'d'.repeat(100_000)}\r\n`,
    `10\r\n${'d'.repeat(16)}\r\n0\r\n\r\n`,
  ]);
  assert.deepEqual(statuses(text), [200]);
  assert.notEqual(ended, 'timeout');
});

test('answers without a known length are chunked', async () => {
  const { text } = await raw(server, head('GET', '/stream?n=5', 'Connection: close\r\n'));
  assert.match(text, /Transfer-Encoding: chunked/);
  assert.ok(text.endsWith('\r\n\r\n5\r\nsssss\r\n0\r\n\r\n'), text);
  const old = await raw(server, 'GET /stream?n=5 HTTP/1.0\r\nHost: a\r\n\r\n');
  assert.doesNotMatch(old.text, /chunked/);
  assert.ok(old.text.endsWith('\r\n\r\nsssss'));
  const none = await raw(server, head('GET', '/stream?n=5&status=204') + head('GET', '/hello', 'Connection: close\r\n'));
  assert.deepEqual(statuses(none.text), [204, 200]);
});

test('clients that leave in the middle of a body leave nothing', async () => {
  const { connect } = await import('node:net');
  const { until } = await import('../lib/cay.mjs');
  for (const path of ['/echo', '/upload', '/pausing', '/duplex']) {
    for (let i = 0; i < 10; i++) {
      const socket = connect(server.port, '127.0.0.1');
      socket.on('error', () => {});
      socket.write(head('POST', path, 'Content-Length: 90000\r\n') + 'x'.repeat(1000 * i));
      await new Promise((resolve) => socket.once('connect', resolve));
      if (i % 2) socket.resetAndDestroy();
      else socket.destroy();
    }
  }
  await until(async () => (await request(server, '/counts')).json().connections === 1);
  // The server ends with this file: a sanitizer tells what is left.
});
