// Clients that do not read, and clients that do not finish sending: what they cost is bounded, and others go on.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { isSanitized, raw, request, sleep, startCay, statuses, until, withCay } from '../lib/cay.mjs';

const MiB = 1 << 20;
const memory = (cay) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${cay.pid}/status`, 'latin1'))[1]) * 1024;
/** A sanitizer keeps what was freed, and counts several times what is used. */
const bound = (isSanitized ? 400 : 64) * MiB;
const sha = (bytes) => createHash('sha256').update(bytes).digest('hex');

const worker = `
let calls = 0, last = '';
export default {
  async fetch(request) {
    const { pathname } = new URL(request.url);
    if (pathname === '/endless') {
      return new Response(new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(1 << 20)); } }));
    }
    if (pathname === '/count') return new Response(String(++calls));
    if (pathname === '/last') return new Response(last);
    if (pathname === '/whole') return new Response(new Uint8Array(20 << 20).fill(7));
    if (pathname === '/ignore') return new Response('not read');
    if (pathname === '/slow') {
      let n = 0;
      for await (const piece of request.body) {
        n += piece.length;
        await new Promise((r) => setTimeout(r, 20));
      }
      return new Response(String(n));
    }
    if (pathname === '/broken') {
      try { await request.arrayBuffer(); } catch (e) { last = e.message; }
      return new Response('');
    }
    if (pathname === '/echo') return new Response(request.body);
    const bytes = new Uint8Array(await request.arrayBuffer());
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
    return new Response([...digest].map((b) => b.toString(16).padStart(2, '0')).join(''));
  },
};`;

async function deploy(cay, id, code = worker, headers = {}) {
  const put = await request(cay, `/v1/workers/${id}`, { method: 'PUT', headers, body: JSON.stringify({ code }) });
  assert.equal(put.status, 200, put.body);
}
const get = (cay, id, path, options = {}) => request(cay, path, { ...options, headers: { Host: `${id}.localhost`, ...options.headers } });

describe('workers and bodies that are large', () => {
  let cay;
  before(async () => {
    cay = await startCay();
    await deploy(cay, 'big');
  });
  after(() => cay.stop());

  test('a client that does not read fills its own pipe, and others are served', async () => {
    const sockets = Array.from({ length: 4 }, () => {
      const socket = connect(cay.port, '127.0.0.1');
      socket.pause();
      socket.write('GET /endless HTTP/1.1\r\nHost: big.localhost\r\n\r\n');
      return socket;
    });
    const until_ms = Date.now() + 1500;
    let most = 0;
    while (Date.now() < until_ms) {
      most = Math.max(most, memory(cay));
      assert.match((await get(cay, 'big', '/count')).body, /^\d+$/, 'the same isolate goes on with others');
      await sleep(50);
    }
    sockets.forEach((s) => s.destroy());
    assert.ok(most < bound, `the front has ${(most / MiB) | 0} MiB`);
    assert.ok(Number((await get(cay, 'big', '/count')).body) > 1, 'the worker has kept its state');
  });

  test('a large answer comes whole, with its length', async () => {
    const got = await get(cay, 'big', '/whole');
    assert.equal(got.status, 200);
    assert.equal(got.headers['content-length'], String(20 * MiB));
    assert.equal(sha(got.raw), sha(Buffer.alloc(20 * MiB, 7)));
    assert.equal((await get(cay, 'big', '/whole', { method: 'HEAD' })).headers['content-length'], String(20 * MiB));
  });

  test('a large body arrives as it was sent, whole or in chunks', async () => {
    for (const size of [0, 1, 65_536, 65_537, 262_144, 5 * MiB + 3]) {
      const bytes = randomBytes(size);
      assert.equal((await get(cay, 'big', '/hash', { method: 'POST', body: bytes, headers: { 'Content-Length': String(size) } })).body, sha(bytes), `${size} bytes`);
      const chunked = await get(cay, 'big', '/hash', { method: 'POST', body: bytes, headers: { 'Transfer-Encoding': 'chunked' } });
      assert.equal(chunked.body, sha(bytes), `${size} bytes in chunks`);
    }
    const bytes = randomBytes(3 * MiB);
    assert.equal(sha((await get(cay, 'big', '/echo', { method: 'POST', body: bytes })).raw), sha(bytes), 'through and back');
  });

  test('a program that reads slowly slows its client down', async () => {
    let sent = 0;
    let most = 0;
    const req = httpRequest({ port: cay.port, host: '127.0.0.1', path: '/slow', method: 'POST', headers: { Host: 'big.localhost' } });
    const answer = new Promise((resolve, reject) => {
      req.on('error', reject);
      req.on('response', (res) => {
        let text = '';
        res.on('data', (d) => (text += d)).on('end', () => resolve(text));
      });
    });
    const piece = Buffer.alloc(64 << 10);
    for (let i = 0; i < 64; i++) {
      sent += piece.length;
      if (!req.write(piece)) await new Promise((r) => req.once('drain', r));
      most = Math.max(most, memory(cay));
    }
    req.end();
    assert.equal(await answer, String(sent));
    assert.ok(most < bound, `the front has ${(most / MiB) | 0} MiB`);
  });

  test('an answer to a body that nobody reads comes all the same', async () => {
    const head = 'POST /ignore HTTP/1.1\r\nHost: big.localhost\r\nContent-Length: 50000000\r\n\r\n';
    const got = await raw(cay, [head, Buffer.alloc(MiB)], { isDone: (t) => t.includes('not read') });
    assert.match(got.text, /200 OK[\s\S]*not read/);
  });

  test('a body that breaks off is an error to the program, and the worker goes on', async () => {
    const socket = connect(cay.port, '127.0.0.1');
    socket.on('error', () => {});
    socket.write(`POST /broken HTTP/1.1\r\nHost: big.localhost\r\nContent-Length: 5000000\r\n\r\n${'x'.repeat(300_000)}`);
    await sleep(100);
    socket.destroy();
    await until(async () => /broke off/.test((await get(cay, 'big', '/last')).body), 'the error');
  });
});

describe('bodies before anything is known of who sends them', () => {
  test('a worker that is not there, or not for the caller, is refused before the body', async (t) => {
    const cay = await withCay(t, { config: { require_key: true } });
    const { status } = await request(cay, '/v1/workers/mine', {
      method: 'PUT', headers: { Authorization: `Bearer ${cay.key}` }, body: JSON.stringify({ code: worker }),
    });
    assert.equal(status, 200);
    const label = `mine-${cay.keyId.slice(-10)}`;
    for (const host of ['nothing.localhost', `${label}.localhost`]) {
      const before_bytes = memory(cay);
      const sockets = Array.from({ length: 40 }, () => {
        const socket = connect(cay.port, '127.0.0.1');
        socket.on('error', () => {});
        socket.got = '';
        socket.setEncoding('latin1').on('data', (d) => (socket.got += d));
        socket.write(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${16 * MiB}\r\n\r\n`);
        socket.write(Buffer.alloc(MiB));
        return socket;
      });
      await until(() => sockets.every((s) => /HTTP\/1\.1 40[14]/.test(s.got)), 'the answers');
      assert.ok(memory(cay) - before_bytes < bound / 2);
      sockets.forEach((s) => s.destroy());
    }
  });

  test('a body that comes a byte at a time is cut off; one that comes slowly is not', async (t) => {
    const cay = await withCay(t, { config: { limits: { body_pace_bytes: 1000 } } });
    const head = 'POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n';
    const send = async (bytes, every_ms, done) => {
      const socket = connect(cay.port, '127.0.0.1');
      let got = '';
      socket.on('error', () => {});
      socket.setEncoding('latin1').on('data', (d) => (got += d));
      socket.write(head);
      const timer = setInterval(() => socket.write(bytes), every_ms);
      await until(() => done(got), 'its end').finally(() => clearInterval(timer));
      socket.destroy();
      return got;
    };
    const start = Date.now();
    const [trickled] = await Promise.all([
      send('x', 200, (got) => got !== ''),
      send('x'.repeat(500), 200, (got) => Date.now() - start > 8000 || got !== '').then((got) => assert.equal(got, '')),
    ]);
    assert.match(trickled, /^HTTP\/1\.1 408 /);
  });

  test('bodies that are not whole have a bound together; small requests pass', async (t) => {
    const cay = await withCay(t, { config: { limits: { held_bytes: 4 * MiB } } });
    const sockets = Array.from({ length: 20 }, () => {
      const socket = connect(cay.port, '127.0.0.1');
      socket.on('error', () => {});
      socket.got = '';
      socket.setEncoding('latin1').on('data', (d) => (socket.got += d));
      socket.write(`POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${2 * MiB}\r\n\r\n`);
      socket.write(Buffer.alloc(MiB, 'x'));
      return socket;
    });
    await until(() => sockets.filter((s) => s.got).length >= 16, 'the refusals');
    for (const s of sockets.filter((one) => one.got)) assert.match(s.got, /503 [\s\S]*held_bytes/);
    const { status, body } = await request(cay, '/v1/run', { method: 'POST', body: '{"code":"export default () => 1"}' });
    assert.equal(status, 200, body);
    sockets.forEach((s) => s.destroy());
    await until(async () => {
      const { text } = await raw(cay, `POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${2 * MiB}\r\nConnection: close\r\n\r\n${' '.repeat(2 * MiB)}`);
      return statuses(text)[0] === 400;
    }, 'room again');
  });
});

test('uploads that do not end have a bound together, and others upload', async (t) => {
  const cay = await withCay(t);
  const made = await request(cay, '/v1/sandboxes', { method: 'POST', body: '{}' });
  assert.equal(made.status, 201, made.body);
  const files = `/v1/sandboxes/${JSON.parse(made.body).id}/files`;
  const before = memory(cay);
  const sockets = [];
  for (let i = 0; i < 300; i++) {
    const socket = connect(cay.port, '127.0.0.1');
    socket.on('error', () => {});
    socket.write(`PUT ${files}?path=/work/f${i} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${4 * MiB}\r\n\r\n`);
    socket.write(Buffer.alloc(255 * 1024, 'x'));
    sockets.push(socket);
  }
  const put = async (n) => {
    const bytes = randomBytes(n);
    const { status, body } = await request(cay, `${files}?path=/work/mine`, { method: 'PUT', body: bytes });
    assert.equal(status, 200, body);
    const got = await fetch(`http://127.0.0.1:${cay.port}${files}?path=/work/mine`);
    assert.equal(sha(Buffer.from(await got.arrayBuffer())), sha(bytes));
  };
  await until(() => sockets.every((s) => s.writableLength === 0), 'what they send');
  await put(3 * MiB);
  const most = isSanitized ? 400 : 40;
  assert.ok(memory(cay) - before < most * MiB, `${(memory(cay) - before) / MiB} MiB more`);
  sockets.forEach((s) => s.destroy());
  await put(3 * MiB);
});
