// Tunnels: who may be reached, at which address, and what may be spoken inside.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import tls from 'node:tls';
import { connect, makeCertificate, raw, startEgress, startServer, startTcp } from './lib.mjs';

const certificate = makeCertificate('DNS:localhost,IP:127.0.0.1');
process.on('exit', () => certificate.remove());

const hello = (request, response) => response.end('hello from inside');

async function getInside(socket, servername) {
  const inside = tls.connect({ socket, servername, ca: certificate.cert, checkServerIdentity: () => undefined });
  inside.on('error', () => {});
  let text = '';
  inside.setEncoding('utf8').on('data', (d) => (text += d));
  inside.write(`GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
  await once(inside, 'close');
  return text;
}

test('an allowed host is reached through a tunnel', async (t) => {
  const server = await startServer(t, hello, certificate);
  const egress = await startEgress(t, { private: [`localhost:${server.port}`] });
  const port = await egress.open('a', { allow: [`localhost:${server.port}`] });
  const { socket, status } = await connect(port, `localhost:${server.port}`);
  assert.equal(status, 200);
  assert.match(await getInside(socket, 'localhost'), /hello from inside/);
  const ended = await egress.event((e) => e.state === 'ended');
  assert.equal(ended.kind, 'connect');
  assert.equal(ended.host, 'localhost');
  assert.equal(ended.port, server.port);
  assert.equal(ended.reason, '');
  assert.ok(ended.bytes_in > 500 && ended.bytes_out > 200, JSON.stringify(ended));
});

test('a sandbox with an empty policy reaches nothing', async (t) => {
  const server = await startServer(t, hello, certificate);
  const egress = await startEgress(t, { private: [`localhost:${server.port}`] });
  const port = await egress.open('a');
  const { status, text } = await connect(port, `localhost:${server.port}`);
  assert.equal(status, 403);
  assert.match(text, /network\.allow/);
  const event = await egress.event((e) => e.state === 'refused');
  assert.equal(event.host, 'localhost');
  assert.match(event.reason, /not allowed/);
});
