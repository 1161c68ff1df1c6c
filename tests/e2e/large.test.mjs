// Large bodies of runs, which are read beside the loop.
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import { request, startCay, until } from '../lib/cay.mjs';

test('large arguments come to a program as they were sent, whoever else sends some', { timeout: 120_000 }, async (t) => {
  const cay = await startCay();
  t.after(() => cay.stop());
  const run = (body) => request(cay, '/v1/run', { method: 'POST', body });
  const code = 'export default (env, ...args) => args.map((a) => (typeof a === "string" ? [a.length, a.slice(-4)] : [a.length, a.at(-1)]))';
  const texts = ['x"\\\n\u00e4\u{1f600}'.repeat(60_000), Array.from({ length: 80_000 }, (_, i) => ({ i }))];
  const all = await Promise.all(
    [0, 1, 2, 3].map((k) => run(JSON.stringify({ code, args: [texts[k % 2], `end${k}`] }))),
  );
  all.forEach((got, k) => {
    assert.equal(got.status, 200, got.body.slice(0, 300));
    const sent = texts[k % 2];
    const last = typeof sent === 'string' ? sent.slice(-4) : sent.at(-1);
    assert.deepEqual(got.json().result, [[sent.length, last], [4, `end${k}`]]);
  });
  const cut = await run(JSON.stringify({ code, args: [texts[0]] }).slice(0, -1));
  assert.deepEqual([cut.status, cut.json().error.code], [400, 'bad_request']);
  const many = await run(`{"code":"x","args":[${'1,'.repeat(1_000_000)}1]}`);
  assert.deepEqual([many.status, many.json().error.code], [413, 'too_large']);
  const unknown = await run(JSON.stringify({ code, arg: texts }));
  assert.match(unknown.json().error.message, /did you mean "args"/);
});

test('who leaves while a large body is read takes nothing along', { timeout: 120_000 }, async (t) => {
  const cay = await startCay();
  t.after(() => cay.stop());
  const body = JSON.stringify({ code: 'export default () => 1', args: [Array.from({ length: 200_000 }, (_, i) => i)] });
  const head = `POST /v1/run HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${body.length}\r\n\r\n`;
  await Promise.all(
    Array.from({ length: 12 }, () => new Promise((resolve) => {
      const socket = connect(cay.port, '127.0.0.1', () => socket.write(head + body, () => socket.destroy()));
      socket.on('error', () => {}).on('close', resolve);
    })),
  );
  let got;
  await until(async () => (got = await request(cay, '/v1/run', { method: 'POST', body })).status !== 429, 'there is room');
  assert.equal(got.status, 200, got.body.slice(0, 300));
});
