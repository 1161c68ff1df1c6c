// Clients that are gone in the middle of anything: what an answer's own first bytes find out must not bring the server down.
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { request, startCay } from '../lib/cay.mjs';
import { make } from '../lib/sandbox.mjs';

let cay;
before(async () => {
  cay = await startCay({ config: { sandboxes: { pool: 0, timeout_s: 600 } } });
});
after(() => cay.stop());

/** Sends a request and resets the connection, at once or after some milliseconds. */
const reset = (text, ms) =>
  new Promise((resolve) => {
    const socket = connect(cay.port, '127.0.0.1');
    socket.on('error', () => {});
    socket.on('close', resolve);
    socket.on('connect', () => {
      socket.write(text, () => (ms === 0 ? socket.resetAndDestroy() : setTimeout(() => socket.resetAndDestroy(), ms)));
    });
  });

/** Many of them, side by side; the server must be there afterwards. */
async function resets(texts, times) {
  let left = times;
  const lane = async () => {
    while (left-- > 0 && cay.isRunning()) await reset(texts[left % texts.length], left % 3 === 0 ? 0 : (left * 7) % 40);
  };
  await Promise.all(Array.from({ length: 12 }, lane));
  assert.ok(cay.isRunning(), cay.stderr().slice(-4000));
  assert.equal((await request(cay, '/v1/runs')).status, 200);
}

const stream = 'Accept: text/event-stream\r\n';
const get = (path, host = 'localhost', more = '') => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`;
const post = (path, body) => `POST ${path} HTTP/1.1\r\nHost: localhost\r\n${stream}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;

test('turns of agents, and runs', async () => {
  const code = 'export default async () => { for (let i = 0; i < 10; i++) { console.log(i); await new Promise((r) => setTimeout(r, 1)); } }';
  const turns = Array.from({ length: 8 }, (_, i) => post(`/v1/agents/todo-agent/r${i}/messages`, '{"text":"add milk"}'));
  await resets([...turns, post('/v1/run', JSON.stringify({ code }))], 120);
});

test('answers of workers that stream', async () => {
  const code = `export default { fetch() { let n = 0; return new Response(new ReadableStream({ async pull(c) {
    await new Promise((r) => setTimeout(r, 1)); c.enqueue(new TextEncoder().encode('z'.repeat(3000))); if (++n > 20) c.close(); } })); } }`;
  assert.equal((await request(cay, '/v1/workers/resets', { method: 'PUT', body: JSON.stringify({ code }) })).status, 200);
  await resets([get('/', 'resets.localhost')], 400);
});

test('commands, files and archives of sandboxes', async () => {
  const box = await make(cay);
  const run = await box.run('while :; do echo xxxxxxxxxxxxxxxx; sleep 0.01; done', { background: true });
  const { at } = box;
  await resets([post(`${at}/exec`, '{"command":"echo a; sleep 0.01; echo b"}'), get(`${at}/execs/${run.id}/output`), get(`${at}/execs/${run.id}/stdout`), get(`${at}/files?path=/bin/sh`), get(`${at}/tar?path=/etc`), get(at)], 200);
  assert.equal((await box.run('echo still')).stdout, 'still\n');
  await box.end();
});
