// Sockets and streams whose clients do not read: what they cost is bounded, and readers beside them are served.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { test } from 'node:test';

import { isSanitized, request } from '../lib/cay.mjs';
import { Raw, slow, TYPE, until, withCay } from './support.mjs';

const MiB = 1 << 20;
/** The most that the front has ever held. A sanitizer keeps what was freed. */
const peak = (cay) => Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${cay.pid}/status`, 'latin1'))[1]) * 1024;
const most = (isSanitized ? 800 : 200) * MiB;

const handshake = (name) =>
  `GET /agents/${TYPE}/${name} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
  'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n';

/** A client that sends this and then reads nothing. */
function deaf(t, cay, head) {
  const socket = connect(cay.port, '127.0.0.1');
  socket.pause();
  socket.on('error', () => {});
  socket.write(head);
  t.after(() => socket.destroy());
  return socket;
}
const gauge = async (cay, name) => Number(new RegExp(`^${name} (\\d+)`, 'm').exec((await request(cay, '/metrics')).body)[1]);
const state = (n) => ({ type: 'cf_agent_state', state: { n, text: 'x'.repeat(500_000) } });
const last = (raw) => raw.frames.findLast((f) => f.type === 'cf_agent_state')?.state.n;

for (const count of [200, 2000])
  test(`${count} sockets that do not read hold little, and a reader hears every end`, { timeout: 120_000 * slow }, async (t) => {
    const cay = await withCay(t);
    const writer = await Raw.ready(cay, 'busy');
    const reader = await Raw.ready(cay, 'busy');
    for (let at = 0; at < count; at += 100) {
      for (let i = 0; i < 100; i++) deaf(t, cay, handshake('busy'));
      await until(async () => (await gauge(cay, 'cay_http_websockets')) >= at + 102, 'the sockets');
    }
    const states = count > 1000 ? 6 : 30;
    for (let n = 1; n <= states; n++) {
      writer.send(state(n));
      await until(() => last(reader) === n, `state ${n}`);
    }
    assert.equal((await request(cay, '/health')).status, 200);
    assert.ok(peak(cay) < most, `${Math.round(peak(cay) / MiB)} MiB`);
    reader.close();
    writer.close();
  });

test('a socket that did not read for a while hears the newest state, and few of those before it', async (t) => {
  const cay = await withCay(t);
  const writer = await Raw.ready(cay, 'late');
  const reader = await Raw.ready(cay, 'late');
  const late = deaf(t, cay, handshake('late'));
  await until(async () => (await gauge(cay, 'cay_http_websockets')) === 3, 'the sockets');
  for (let n = 1; n <= 60; n++) {
    writer.send(state(n));
    await until(() => last(reader) === n, `state ${n}`);
  }
  let text = '';
  late.on('data', (data) => (text += data.toString('latin1').replace(/x{9,}/g, '')));
  late.resume();
  await until(() => text.includes('"n":60,') || late.closed, 'the newest');
  assert.ok(text.includes('"n":60,'), 'it was cut off');
  assert.ok([...text.matchAll(/"n":\d+,/g)].length < 50);
});
