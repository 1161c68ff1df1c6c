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
