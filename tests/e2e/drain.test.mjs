// SIGTERM: what was accepted is done, nothing new begins, a load balancer can see it, and nothing is done twice.
import assert from 'node:assert/strict';
import { createServer, request as httpRequest } from 'node:http';
import { test } from 'node:test';
import { request, startCay, until, withCay } from '../lib/cay.mjs';

const limit = { timeout: 180_000 };
const wait = (ms, value) => `export default async () => { await new Promise((r) => setTimeout(r, ${ms})); return ${JSON.stringify(value)} }`;
const post = (cay, path, body, headers = {}) => request(cay, path, { method: 'POST', headers, body: JSON.stringify(body) });
const submit = async (cay, code) => (await post(cay, '/v1/tasks', { type: 'run', input: { code } })).json().id;
const task = async (cay, id) => (await request(cay, `/v1/tasks/${id}`)).json();

test('requests, streams and tasks that were accepted finish; /ready says no; new work is refused', limit, async (t) => {
  const cay = await startCay({ config: { limits: { drain_timeout_ms: 60_000 } } });
  t.after(() => cay.clean());
  assert.deepEqual((await request(cay, '/ready')).json(), { status: 'ready' });
  const plain = Array.from({ length: 8 }, (_, i) => post(cay, '/v1/run', { code: wait(6000, i) }));
  const streams = Array.from({ length: 4 }, (_, i) => post(cay, '/v1/run', { code: wait(6000, i) }, { accept: 'text/event-stream' }));
  const tasks = await Promise.all(Array.from({ length: 4 }, (_, i) => submit(cay, wait(6000, i))));
  for (const id of tasks) await until(async () => (await task(cay, id)).state === 'running', 'a task at work');
  await until(async () => (await request(cay, '/v1/runs?status=running&limit=100')).json().runs.length >= 16, 'everything at work');
  cay.signal('SIGTERM');
  const ready = await until(async () => {
    const answer = await request(cay, '/ready');
    return answer.status !== 200 && answer;
  }, 'a server that is not ready');
  assert.equal(ready.status, 503);
  assert.deepEqual(ready.json(), { status: 'draining' });
  assert.ok(ready.headers['retry-after']);
  for (const [path, body] of [['/v1/run', { code: wait(0, 1) }], ['/v1/tasks', { type: 'run', input: { code: wait(0, 1) } }], ['/v1/sandboxes', {}]]) {
    const refused = await post(cay, path, body);
    assert.equal(refused.status, 503, path);
    assert.equal(refused.json().error.code, 'unavailable');
    assert.match(refused.json().error.message, /shutting down/);
    assert.equal(refused.headers['retry-after'], '1');
    assert.equal(refused.headers.connection, 'close');
  }
  assert.equal((await task(cay, tasks[0])).state, 'running', 'what runs can be looked at');
  for (const [i, answer] of (await Promise.all(plain)).entries()) assert.equal(answer.json().result, i, answer.body);
  for (const [i, answer] of (await Promise.all(streams)).entries()) assert.match(answer.body, new RegExp(`"result":${i}\\b`));
  assert.deepEqual(await cay.ended, { code: 0, signal: null });
  const next = await withCay(t, { dataDir: cay.dataDir });
  for (const id of tasks) {
    const { state, attempt } = await task(next, id);
    assert.deepEqual({ state, attempt }, { state: 'done', attempt: 1 });
  }
});

test('what takes longer than drain_timeout_ms is handed back and done by the next server', limit, async (t) => {
  const cay = await startCay({ config: { limits: { drain_timeout_ms: 500 } } });
  t.after(() => cay.clean());
  const id = await submit(cay, wait(8000, 'late'));
  await until(async () => (await task(cay, id)).state === 'running', 'a task at work');
  cay.signal('SIGTERM');
  assert.deepEqual(await cay.ended, { code: 0, signal: null });
  assert.match(cay.stderr(), /server\.drain/);
  const next = await withCay(t, { dataDir: cay.dataDir });
  const done = await until(async () => {
    const now = await task(next, id);
    return now.state === 'done' && now;
  }, 'the end of the task', 60_000);
  assert.equal(done.result.result, 'late');
});

test('a turn of a chat finishes over its open socket, and no other begins', limit, async (t) => {
  const cay = await startCay({ config: { limits: { drain_timeout_ms: 60_000 } } });
  t.after(() => cay.clean());
  const socket = new WebSocket(`${cay.url.replace('http', 'ws')}/agents/sandbox-agent/drain`);
  const frames = [];
  socket.addEventListener('message', ({ data }) => frames.push(JSON.parse(data)));
  await new Promise((r) => socket.addEventListener('open', r, { once: true }));
  const closed = new Promise((r) => socket.addEventListener('close', r, { once: true }));
  const say = (id, text) =>
    socket.send(
      JSON.stringify({
        id,
        type: 'cf_agent_use_chat_request',
        init: { method: 'POST', body: JSON.stringify({ messages: [{ id: `m${id}`, role: 'user', parts: [{ type: 'text', text }] }] }) },
      }),
    );
  say('1', 'run code: await new Promise((r) => setTimeout(r, 3000)); console.log("late")');
  await until(async () => (await request(cay, '/v1/runs?status=running')).json().runs.some((r) => r.kind === 'chat'), 'a turn');
  cay.signal('SIGTERM');
  await until(async () => (await request(cay, '/ready')).status === 503, 'a server that leaves');
  say('2', 'hello');
  assert.equal((await closed).code, 1001);
  const of = (id) => frames.filter((f) => f.type === 'cf_agent_use_chat_response' && f.id === id);
  assert.ok(of('1').at(-1).done && !of('1').at(-1).error, JSON.stringify(of('1').at(-1)));
  assert.match(of('2').find((f) => f.error).body, /shutting down/);
  assert.deepEqual(await cay.ended, { code: 0, signal: null });
});

/** Sends each request to the first server that takes it, as a load balancer does: 503 and refused connections go to the next. */
async function balancer(t, servers) {
  const dropped = [];
  const server = createServer((req, res) => {
    const pieces = [];
    req.on('data', (d) => pieces.push(d));
    req.on('end', () => {
      const order = [...servers];
      const attempt = () => {
        const to = order.shift();
        if (!to) return res.writeHead(502).end();
        const up = httpRequest({ host: '127.0.0.1', port: to.port, method: req.method, path: req.url, headers: { ...req.headers, host: `127.0.0.1:${to.port}` }, agent: false }, (answer) => {
          if (answer.statusCode === 503 && order.length) return answer.resume(), attempt();
          res.writeHead(answer.statusCode, answer.headers);
          answer.pipe(res);
          answer.on('error', (e) => (dropped.push(e), res.destroy()));
        });
        up.on('error', (e) => (e.code === 'ECONNREFUSED' ? attempt() : (dropped.push(e), res.destroy())));
        up.end(Buffer.concat(pieces));
      };
      attempt();
    });
  });
  await new Promise((r) => server.listen(0, '127.0.0.1', r));
  t.after(() => server.close());
  return { port: server.address().port, url: `http://127.0.0.1:${server.address().port}`, dropped };
}

test('200 requests, 50 streams, 50 tasks, SIGTERM, two servers: nothing fails, nothing is done twice', limit, async (t) => {
  const config = { limits: { drain_timeout_ms: 120_000 } };
  const first = await startCay({ config });
  t.after(() => first.clean());
  const second = await withCay(t, { config });
  const both = await balancer(t, [first, second]);
  // Each adds a row: what is done twice would have two.
  const env = { db: { $facet: 'done' } };
  const run = async (cay, source) => (await post(cay, '/v1/run', { code: `export default (env) => ${source}`, env })).json().result;
  await run(first, 'env.db.execute("CREATE TABLE done (n INTEGER)")');
  const note = (i) => `export default async (env) => { await new Promise((r) => setTimeout(r, 100)); await env.db.execute("INSERT INTO done VALUES (${i})"); return ${i} }`;
  const ids = await Promise.all(Array.from({ length: 50 }, async (_, i) => (await post(first, '/v1/tasks', { type: 'run', input: { code: note(i), env } })).json().id));
  const streams = Array.from({ length: 50 }, (_, i) => post(both, '/v1/run', { code: wait(1500, i) }, { accept: 'text/event-stream' }));
  let sent = 0;
  const answers = [];
  const told = new Promise((r) => setTimeout(r, 400)).then(() => first.signal('SIGTERM'));
  for (; sent < 200; sent++) {
    answers.push(post(both, '/v1/run', { code: wait(50, sent) }));
    if (sent % 4 === 0) await new Promise((r) => setTimeout(r, 10));
  }
  await told;
  for (const [i, answer] of (await Promise.all(answers)).entries()) assert.equal(answer.json().result, i, `${answer.status} ${answer.body}`);
  for (const [i, answer] of (await Promise.all(streams)).entries()) assert.match(answer.body, new RegExp(`"result":${i}\\b`), answer.body);
  assert.deepEqual(both.dropped, []);
  assert.deepEqual(await first.ended, { code: 0, signal: null });
  const again = await withCay(t, { dataDir: first.dataDir });
  for (const [i, id] of ids.entries()) {
    const one = await until(async () => {
      const now = await task(again, id);
      return now.state === 'done' && now;
    }, `task ${i}`, 60_000);
    assert.equal(one.result.result, i);
  }
  const rows = await run(again, 'env.db.query("SELECT count(*) AS n, count(DISTINCT n) AS of FROM done")');
  assert.deepEqual(rows, [{ n: 50, of: 50 }]);
});
