// What clients have not read, on the front's HTTP server with the routes of tests/server/: a bound for a connection,
// for a key and for all of them; who has taken nothing for the longest time makes room.
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import { request, startHttpServer, until } from '../lib/cay.mjs';

const MiB = 1 << 20;
const counts = async (server) => (await request(server, '/counts')).json();

/** A client that asks and does not read, until read() is called: then what came. */
function client(t, server, path, key = '') {
  const socket = connect(server.port, '127.0.0.1');
  let bytes = 0;
  socket.pause();
  socket.on('data', (data) => (bytes += data.length));
  socket.on('error', () => {});
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\nX-Key: ${key}\r\n\r\n`);
  t.after(() => socket.destroy());
  return {
    closed,
    async read(least) {
      socket.resume();
      await until(() => bytes >= least || socket.closed, 'the rest');
      return bytes;
    },
  };
}
// More than the sockets of both sides hold, so that some megabytes of each wait in the server.
const size = 12 * MiB;

test('answers that nobody reads have a bound together', async (t) => {
  const server = await startHttpServer(t, [`held_bytes=${32 * MiB}`]);
  for (let i = 0; i < 16; i++) {
    client(t, server, `/bytes?n=${size}`);
    await until(async () => (await counts(server)).connections > 1);
    assert.ok((await counts(server)).unread <= 32 * MiB);
  }
  await until(async () => (await counts(server)).cut > 0, 'somebody to be cut off');
  assert.ok((await counts(server)).unread <= 32 * MiB);
  // Whoever reads is served.
  const reader = client(t, server, `/bytes?n=${size}`);
  assert.ok((await reader.read(size)) > size);
});

test('a key that reads nothing takes no room of another', async (t) => {
  const server = await startHttpServer(t, [`held_bytes=${32 * MiB}`]);
  const patient = client(t, server, `/bytes?n=${size}`, 'a');
  await until(async () => (await counts(server)).unread > 0, 'its queue');
  for (let i = 0; i < 16; i++) client(t, server, `/bytes?n=${size}`, 'b');
  await until(async () => (await counts(server)).cut > 5, 'others to be cut off');
  assert.ok((await counts(server)).unread <= 32 * MiB);
  // It had taken nothing for longer than all of them.
  assert.ok((await patient.read(size)) > size);
});

test('a producer that does not wait fills no more than one queue', async (t) => {
  const server = await startHttpServer(t);
  const deaf = client(t, server, `/drip?n=${256 << 10}`);
  await until(async () => (await counts(server)).gone === 1, 'it to be cut off');
  assert.ok((await counts(server)).unread < MiB);
  await deaf.read(Infinity);
});

test('what the server adds is not taken for reading', async (t) => {
  const server = await startHttpServer(t, ['write_timeout_ms=1000']);
  const deaf = client(t, server, `/drip?first=${12 * MiB}&n=1`);
  await until(async () => (await counts(server)).unread > 0, 'its queue');
  await until(async () => (await counts(server)).gone === 1, 'it to be cut off');
  await deaf.read(Infinity);
});

test('a long answer comes whole to who reads it late', async (t) => {
  const server = await startHttpServer(t, ['held_bytes=1048576']);
  const late = client(t, server, `/bytes?n=${24 * MiB}`);
  await until(async () => (await counts(server)).unread > MiB, 'its queue');
  assert.ok((await late.read(24 * MiB)) > 24 * MiB);
});
