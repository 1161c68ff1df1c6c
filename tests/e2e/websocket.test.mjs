// WebSocket, on the front's HTTP server with the echo route of tests/server/: with the client of npm's
// `ws`, and with frames made by hand where that client is too well-behaved.
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import WebSocket from 'ws';
import { raw, request, startHttpServer, statuses, until } from '../lib/cay.mjs';

let server;
before(async () => {
  server = await startHttpServer(null, ['ws_message_bytes=100000']);
});
after(() => server.stop());

const counts = async () => (await request(server, '/counts')).json();

async function open(path = '/ws') {
  const ws = new WebSocket(`ws://127.0.0.1:${server.port}${path}`, { perMessageDeflate: false });
  ws.inbox = [];
  ws.on('message', (data, isBinary) => ws.inbox.push(isBinary ? data : data.toString()));
  ws.closed = new Promise((resolve) => ws.once('close', (code, reason) => resolve({ code, reason: reason.toString() })));
  await new Promise((resolve, reject) => {
    ws.once('open', resolve);
    ws.once('error', reject);
  });
  ws.on('error', () => {});
  return ws;
}

const handshake = (more = '', path = '/ws') =>
  `GET ${path} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n` +
  `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n${more}\r\n`;

/** One frame; masked with a key of zeros unless said otherwise. */
function frame(opcode, payload = '', { fin = true, masked = true, rsv = 0, length } = {}) {
  const data = Buffer.from(payload);
  const n = length ?? data.length;
  const head = [(fin ? 0x80 : 0) | rsv | opcode];
  const mask = masked ? 0x80 : 0;
  if (n < 126) head.push(mask | n);
  else if (n < 65536) head.push(mask | 126, n >> 8, n & 255);
  else head.push(mask | 127, 0, 0, 0, 0, (n >>> 24) & 255, (n >>> 16) & 255, (n >>> 8) & 255, n & 255);
  return Buffer.concat([Buffer.from(head), masked ? Buffer.alloc(4) : Buffer.alloc(0), data]);
}

/** The frames of the answer after the handshake: [{opcode, data}]. */
function frames(text) {
  const bytes = Buffer.from(text, 'latin1');
  let at = bytes.indexOf('\r\n\r\n') + 4;
  const found = [];
  while (at + 2 <= bytes.length) {
    const opcode = bytes[at] & 15;
    let n = bytes[at + 1] & 127;
    assert.equal(bytes[at + 1] & 128, 0, 'a server does not mask');
    at += 2;
    if (n === 126) {
      n = bytes.readUInt16BE(at);
      at += 2;
    } else if (n === 127) {
      n = Number(bytes.readBigUInt64BE(at));
      at += 8;
    }
    found.push({ opcode, data: bytes.subarray(at, at + n) });
    at += n;
  }
  return found;
}

/** Sends frames after a handshake; the code of the close frame that comes back. */
async function closeCode(...sent) {
  const { text, ended } = await raw(server, [handshake(), ...sent]);
  assert.notEqual(ended, 'timeout', 'the connection was not closed');
  const close = frames(text).find((f) => f.opcode === 8);
  return close && close.data.length >= 2 ? close.data.readUInt16BE(0) : null;
}

test('the handshake of RFC 6455', async () => {
  const { text } = await raw(server, [handshake(), frame(8, '\x03\xe8')]);
  assert.deepEqual(statuses(text), [101]);
  assert.match(text, /Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK\+xOo=\r\n/);
  assert.doesNotMatch(text, /Content-Length|chunked/);
});

test('handshakes that are refused', async () => {
  const change = (from, to) => raw(server, handshake().replace(from, to), { isDone: (t) => statuses(t).length > 0 });
  assert.deepEqual(statuses((await change('Version: 13', 'Version: 8')).text), [400]);
  assert.match((await change('Version: 13', 'Version: 8')).text, /Sec-WebSocket-Version: 13/);
  assert.deepEqual(statuses((await change('dGhlIHNhbXBsZSBub25jZQ==', 'short')).text), [400]);
  assert.deepEqual(statuses((await change('dGhlIHNhbXBsZSBub25jZQ==', '!'.repeat(24))).text), [400]);
  assert.deepEqual(statuses((await change('Upgrade: websocket', 'Upgrade: h2c')).text), [400]);
  assert.deepEqual(statuses((await change('keep-alive, Upgrade', 'keep-alive')).text), [400]);
  assert.deepEqual(statuses((await change('GET', 'POST')).text), [405]);
  assert.deepEqual(statuses((await change('HTTP/1.1', 'HTTP/1.0')).text), [400]);
  assert.deepEqual(statuses((await change('GET /ws', 'GET /hello')).text), [200]);
});

test('text and binary come back as they were', async () => {
  const ws = await open();
  const sent = ['', 'a', 'ä€😀', 'x'.repeat(125), 'y'.repeat(126), 'z'.repeat(70_000), Buffer.from([0, 255, 1]), Buffer.alloc(0)];
  for (const message of sent) ws.send(message);
  await until(() => ws.inbox.length === sent.length);
  assert.deepEqual(ws.inbox, sent);
  ws.close(1000, 'done');
  assert.equal((await ws.closed).code, 1000);
});

test('fragments make one message, with control frames between them', async () => {
  const { text } = await raw(
    server,
    [
      handshake(),
      frame(1, 'one ', { fin: false }),
      frame(9, 'ping'),
      frame(0, 'two ', { fin: false }),
      frame(0, '', { fin: false }),
      frame(0, 'three'),
      frame(8, Buffer.from([0x03, 0xe8])),
    ],
  );
  const got = frames(text).map((f) => [f.opcode, f.opcode === 8 ? f.data.readUInt16BE(0) : f.data.toString()]);
  assert.deepEqual(got, [[10, 'ping'], [1, 'one two three'], [8, 1000]]);
});

test('frames in any pieces, right behind the handshake', async () => {
  const bytes = Buffer.concat([Buffer.from(handshake()), frame(1, 'hello'), frame(8, Buffer.from([0x03, 0xe8]))]);
  for (const path of ['/ws', '/ws-later?ms=20'])
    for (const size of [1, 5, bytes.length]) {
      const all = Buffer.concat([Buffer.from(handshake('', path)), frame(1, 'hello'), frame(8, Buffer.from([0x03, 0xe8]))]);
      const pieces = [];
      for (let at = 0; at < all.length; at += size) pieces.push(all.subarray(at, at + size));
      const { text } = await raw(server, pieces);
      assert.deepEqual(frames(text).map((f) => f.opcode), [1, 8], path);
    }
});

test('pings are answered, pongs are not', async () => {
  const ws = await open();
  const pong = new Promise((resolve) => ws.once('pong', (data) => resolve(data.toString())));
  ws.pong('unasked');
  ws.ping('are you there');
  assert.equal(await pong, 'are you there');
  ws.close();
  assert.equal((await ws.closed).code, 1005);
});

test('the server can close, with a code and a reason', async () => {
  const ws = await open();
  ws.send('please close');
  assert.deepEqual(await ws.closed, { code: 4001, reason: 'as asked' });
});

const broken = [
  ['an unmasked frame', 1002, frame(1, 'x', { masked: false })],
  ['a reserved bit', 1002, frame(1, 'x', { rsv: 0x40 })],
  ['a reserved opcode', 1002, frame(3, 'x')],
  ['a reserved control opcode', 1002, frame(11, 'x')],
  ['a fragmented ping', 1002, frame(9, 'x', { fin: false })],
  ['a long ping', 1002, frame(9, 'x'.repeat(126))],
  ['a continuation of nothing', 1002, frame(0, 'x')],
  ['a new message inside a fragmented one', 1002, Buffer.concat([frame(1, 'a', { fin: false }), frame(1, 'b')])],
  ['a close code that is not for the wire', 1002, frame(8, Buffer.from([0x03, 0xed]))],
  ['text that is not UTF-8', 1007, frame(1, Buffer.from([0xff, 0xfe]))],
  ['text that ends inside a character', 1007, frame(1, Buffer.from([0xe2, 0x82]))],
  ['text with a surrogate', 1007, frame(1, Buffer.from([0xed, 0xa0, 0x80]))],
  ['a close reason that is not UTF-8', 1007, frame(8, Buffer.from([0x03, 0xe8, 0xff]))],
  ['a message over the limit', 1009, frame(2, 'x'.repeat(100_001))],
  ['a message that says it is huge', 1009, frame(2, 'x', { length: 2 ** 31 })],
  ['fragments over the limit', 1009, Buffer.concat(Array.from({ length: 11 }, (_, i) => frame(i ? 0 : 2, 'x'.repeat(10_000), { fin: i === 10 })))],
];
for (const [what, code, bytes] of broken)
  test(`closed with ${code}: ${what}`, async () => {
    const got = await closeCode(bytes);
    assert.equal(got, code);
  });

test('a close frame of one byte ends it too', async () => {
  assert.ok([1002, null].includes(await closeCode(frame(8, 'x'))));
});

test('a character that is cut by a fragment is fine', async () => {
  const { text } = await raw(server, [
    handshake(),
    frame(1, Buffer.from([0xe2, 0x82]), { fin: false }),
    frame(0, Buffer.from([0xac])),
    frame(8, Buffer.from([0x03, 0xe8])),
  ]);
  assert.equal(frames(text)[0].data.toString(), '€');
});

test('a client that vanishes is noticed', async () => {
  const { ws_closed: before } = await counts();
  const ws = await open();
  await until(async () => (await counts()).websockets >= 1);
  ws.terminate();
  await until(async () => (await counts()).ws_closed === before + 1);
  assert.equal((await counts()).ws_code, 1006);
});

test('a client that sends and reads nothing is held back', async () => {
  const socket = connect(server.port, '127.0.0.1');
  socket.on('error', () => {});
  socket.pause();
  socket.write(handshake());
  const message = frame(2, 'x'.repeat(50_000));
  let sent = 0;
  // More than the sockets of both sides hold: it must come to a stop.
  for (; sent < 2000; sent++)
    if (!socket.write(message)) {
      const drained = await Promise.race([
        new Promise((resolve) => socket.once('drain', () => resolve(true))),
        new Promise((resolve) => setTimeout(resolve, 700, false)),
      ]);
      if (!drained) break;
    }
  assert.ok(sent < 2000, 'all was taken');
  socket.destroy();
});

test('the gauge goes back to where it was', async () => {
  await until(async () => (await counts()).websockets === 0);
  const all = await Promise.all(Array.from({ length: 30 }, () => open()));
  assert.equal((await counts()).websockets, 30);
  for (const ws of all) ws.close();
  await Promise.all(all.map((ws) => ws.closed));
  await until(async () => (await counts()).websockets === 0);
});

test('a drain closes WebSockets with 1001', async (t) => {
  const other = await startHttpServer(t, ['drain_ms=60000']);
  const ws = new WebSocket(`ws://127.0.0.1:${other.port}/ws`);
  const closed = new Promise((resolve) => ws.once('close', (code) => resolve(code)));
  await new Promise((resolve) => ws.once('open', resolve));
  const began = Date.now();
  other.signal('SIGTERM');
  assert.equal(await closed, 1001);
  await other.ended;
  assert.ok(Date.now() - began < 50_000, 'it does not wait for the end of its time');
});
