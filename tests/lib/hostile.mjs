// Clients that mean no good, for the test and for the benchmark.
import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import { sleep } from './cay.mjs';

const quiet = (socket) => socket.on('error', () => {});
const open = (port) => quiet(connect(port, '127.0.0.1'));
const closed = (socket) => new Promise((resolve) => (socket.destroyed ? resolve() : socket.once('close', resolve)));

/** Heads that come a byte at a time and never end; a new one for each that is thrown out. */
export async function slowloris(port, count, signal) {
  const one = async () => {
    while (!signal.aborted) {
      const socket = open(port);
      socket.resume();
      socket.write('GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ');
      while (!signal.aborted && !socket.destroyed) {
        socket.write('a');
        await sleep(200);
      }
      socket.destroy();
    }
  };
  await Promise.all(Array.from({ length: count }, one));
}

/** A body of so many bytes, by its length or in chunks; how many the server let us send. */
export async function hugeBody(port, bytes, { chunked = false } = {}) {
  const socket = open(port);
  socket.resume();
  let isOver = false;
  socket.once('end', () => (isOver = true)).once('close', () => (isOver = true));
  const length = chunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${bytes}`;
  socket.write(`POST /v1/session HTTP/1.1\r\nHost: localhost\r\n${length}\r\n\r\n`);
  const block = Buffer.alloc(1 << 20, 'x');
  const piece = chunked ? Buffer.concat([Buffer.from('100000\r\n'), block, Buffer.from('\r\n')]) : block;
  let sent = 0;
  while (sent < bytes && !isOver) {
    if (!socket.write(piece)) {
      await Promise.race([new Promise((resolve) => socket.once('drain', resolve)), closed(socket)]);
    }
    sent += block.length;
  }
  socket.destroy();
  return sent;
}

/** Bytes that are no request at all. */
export async function garbage(port, count) {
  for (let i = 0; i < count; i++) {
    const socket = open(port);
    socket.resume();
    socket.write(i % 2 ? randomBytes(1 + ((i * 977) % 20_000)) : `GET /${'%'.repeat(i % 300)} HTTP/1.${i % 10}\r\n`.repeat(i % 50));
    if (i % 3) await Promise.race([closed(socket), sleep(20)]);
    socket.destroy();
  }
}

/** Clients that shut their side, with and without a request, and stay. */
export async function halfClosed(port, count, signal) {
  const sockets = Array.from({ length: count }, (_, i) => {
    const socket = quiet(connect({ port, host: '127.0.0.1', allowHalfOpen: true }));
    if (i % 2) socket.write('GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(1 + (i % 20)));
    if (i % 3) socket.write('GET /health HT');
    socket.end();
    socket.pause();
    return socket;
  });
  while (!signal.aborted) await sleep(50);
  for (const socket of sockets) socket.destroy();
}

/** Connections that are opened and dropped, some with a part of a request, some with a reset. */
export async function openAndDrop(port, count) {
  let left = count;
  const lane = async () => {
    while (left-- > 0) {
      const i = left;
      const socket = open(port);
      await Promise.race([new Promise((resolve) => socket.once('connect', resolve)), closed(socket)]);
      if (i % 2) socket.write('POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\npart');
      if (i % 4 === 0) socket.resetAndDestroy();
      else socket.destroy();
    }
  };
  await Promise.all(Array.from({ length: 50 }, lane));
}

/** Requests for much whose answers nobody reads. */
export async function readsNothing(port, count, signal) {
  const sockets = Array.from({ length: count }, () => {
    const socket = open(port);
    socket.pause();
    socket.write('GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(2000));
    return socket;
  });
  while (!signal.aborted) await sleep(50);
  for (const socket of sockets) socket.destroy();
}

/** All of it at once, until everything bounded is done. */
export async function hostileMix(port, { connections = 10_000, bytes = 1 << 30 } = {}) {
  const controller = new AbortController();
  const { signal } = controller;
  const lasting = [slowloris(port, 200, signal), halfClosed(port, 100, signal), readsNothing(port, 50, signal)];
  const sent = await Promise.all([
    hugeBody(port, bytes),
    hugeBody(port, bytes, { chunked: true }),
    garbage(port, 500),
    openAndDrop(port, connections),
  ]);
  controller.abort();
  await Promise.all(lasting);
  return { sentByLength: sent[0], sentInChunks: sent[1] };
}
