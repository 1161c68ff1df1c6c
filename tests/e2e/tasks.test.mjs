// Tasks: jobs in the durable queue. They survive kill -9 at any moment, end once, and say so to their webhooks.
import assert from 'node:assert/strict';
import { createHmac, randomBytes } from 'node:crypto';
import { createServer, request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { bearer, createKey, request, runCay, slow, startCay, tempDir, until, withCay } from '../lib/cay.mjs';
import { KINDS, chaos } from '../lib/chaos.mjs';

const secret = `whsec_${randomBytes(24).toString('base64')}`;
const run = (code, more = {}) => ({ type: 'run', input: { code, ...more } });
const answer42 = run('export default () => { console.log("hello"); return 42; }');
const sleeps = (ms) => run(`export default async () => { console.log("begun"); await new Promise((r) => setTimeout(r, ${ms})); return 1; }`);

/** Sleeps, unless it has been begun before: then it ends at once. */
const secondTime = (facet) =>
  run(
    `export default async (env) => {
      await env.db.execute("CREATE TABLE IF NOT EXISTS begun (x)");
      const before = await env.db.query("SELECT x FROM begun");
      await env.db.execute("INSERT INTO begun VALUES (1)");
      console.log("begun");
      if (before.length === 0) await new Promise((r) => setTimeout(r, 25_000));
      return 1;
    }`,
    { env: { db: { $facet: facet } } },
  );

const api = (cay, key) => ({
  submit: (body, headers = {}) =>
    request(cay, '/v1/tasks', { method: 'POST', headers: { ...(key ? bearer(key) : {}), ...headers }, body: typeof body === 'string' ? body : JSON.stringify(body) }),
  get: async (id) => (await request(cay, `/v1/tasks/${id}`, { headers: key ? bearer(key) : {} })).json(),
  call: (path, method = 'GET') => request(cay, `/v1/tasks${path}`, { method, headers: key ? bearer(key) : {} }),
});
const over = (t) => !['queued', 'running'].includes(t.state);
const ended = (tasks, id, timeout) => until(async () => ((t) => over(t) && t)(await tasks.get(id)), `the end of ${id}`, timeout);
const running = (tasks, id) => until(async () => (await tasks.get(id)).state === 'running', 'its start');

/** Follows a task: {events, ended, stop()}. */
function follow(cay, id, { headers = {}, query = '' } = {}) {
  const seen = { events: [], status: 0, body: '' };
  const req = httpRequest({ port: cay.port, host: '127.0.0.1', path: `/v1/tasks/${id}/events${query}`, headers });
  seen.ended = new Promise((resolve, reject) => {
    req.on('error', reject);
    req.on('response', (res) => {
      let text = '';
      seen.status = res.statusCode;
      res.setEncoding('utf8').on('data', (d) => {
        text += d;
        seen.body += d;
        for (let at; (at = text.indexOf('\n\n')) >= 0; text = text.slice(at + 2)) {
          const fields = Object.fromEntries(text.slice(0, at).split('\n').map((l) => [l.slice(0, l.indexOf(':')), l.slice(l.indexOf(':') + 2)]));
          if (fields.data) seen.events.push({ id: fields.id, type: fields.event, data: JSON.parse(fields.data) });
        }
      });
      res.on('end', resolve).on('error', resolve);
    });
  });
  seen.ended.catch(() => {});
  seen.stop = () => req.destroy();
  req.end();
  return seen;
}

/** A receiver of webhooks: what came, and how it answers. */
async function receiver(answer = () => 204) {
  const got = [];
  const server = createServer((req, res) => {
    let body = '';
    req.on('data', (d) => (body += d));
    req.on('end', async () => {
      const status = await answer(got.length, req);
      got.push({ headers: req.headers, body, url: req.url, status, time: Date.now() });
      if (status === 0) return req.socket.destroy();
      res.writeHead(status, status === 302 ? { Location: '/elsewhere' } : {});
      return res.end();
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  return {
    got,
    url: `http://127.0.0.1:${port}/hook`,
    host: `127.0.0.1:${port}`,
    down: () => new Promise((resolve) => { server.close(resolve); server.closeAllConnections(); }),
    up: () => new Promise((resolve) => server.listen(port, '127.0.0.1', resolve)),
    close: () => { server.close(); server.closeAllConnections(); },
  };
}

const verify = (m) => {
  const mac = createHmac('sha256', Buffer.from(secret.slice(6), 'base64'));
  mac.update(`${m.headers['webhook-id']}.${m.headers['webhook-timestamp']}.${m.body}`);
  assert.equal(m.headers['webhook-signature'], `v1,${mac.digest('base64')}`);
  assert.ok(Math.abs(Date.now() / 1000 - Number(m.headers['webhook-timestamp'])) < 60);
};

describe('tasks', () => {
  let cay;
  let tasks;
  before(async () => {
    cay = await startCay({ config: { require_key: true, tasks: { slots: 4, per_key: 2, waiting_per_key: 20 } } });
    tasks = api(cay, cay.key);
  });
  after(() => cay.stop());
  const cancel = async (id) => {
    assert.equal((await tasks.call(`/${id}/cancel`, 'POST')).status, 202);
    await ended(tasks, id);
  };
  const otherKey = async () => api(cay, (await createKey(cay.dataDir, { name: 'other' })).text);

  test('a task is accepted, runs, and has its result', async () => {
    const res = await tasks.submit({ ...answer42, title: 'the answer' });
    assert.equal(res.status, 202, res.body);
    const { id } = res.json();
    assert.equal(res.headers.location, `/v1/tasks/${id}`);
    const t = await ended(tasks, id);
    assert.equal(t.state, 'done');
    assert.equal(t.result.result, 42);
    assert.equal(t.attempt, 1);
    assert.equal(t.title, 'the answer');
    assert.equal(t.attempts.length, 1);
    assert.equal(t.attempts[0].outcome, 'done');
    const job = await request(cay, `/v1/runs/${t.run}`, { headers: bearer(cay.key) });
    assert.equal(job.json().detail.result, 42);
    assert.ok(Date.parse(t.finished_at) >= Date.parse(t.started_at) && Date.parse(t.started_at) >= Date.parse(t.created_at));
  });

  test('each type has its own work: an agent in a sandbox, a task of the executor, a prompt', async () => {
    const bodies = [
      { type: 'code', input: { command: 'echo from the sandbox; touch made' } },
      { type: 'execute', input: { task: 'say hello' } },
      { type: 'execute/sdk', input: { prompt: 'hello' } },
    ];
    for (const body of bodies) {
      const res = await tasks.submit(body);
      assert.equal(res.status, 202, res.body);
      const t = await ended(tasks, res.json().id);
      assert.ok(['done', 'failed'].includes(t.state), JSON.stringify(t));
      assert.equal(t.attempt, 1, JSON.stringify(t.attempts));
      assert.ok(t.result, `${body.type} has a result`);
      if (body.type === 'code') {
        assert.equal(t.state, 'done', JSON.stringify(t.error));
        assert.match(t.result.detail.diff, /made/);
        const seen = follow(cay, t.id, { headers: bearer(cay.key) });
        await seen.ended;
        assert.ok(seen.events.some((e) => JSON.stringify(e.data).includes('from the sandbox')));
      }
    }
  });

  test('the result of a task is what the endpoint of its type answers', async () => {
    const result = async (body) => {
      const res = await tasks.submit(body);
      assert.equal(res.status, 202, res.body);
      const t = await ended(tasks, res.json().id);
      assert.equal(t.result_omitted, false);
      return [t.result, t.run];
    };
    const post = async (path, body, headers = {}) => (await request(cay, path, { method: 'POST', headers: { ...bearer(cay.key), ...headers }, body: JSON.stringify(body) })).json();
    const keys = (o) => Object.keys(o);

    const [ran] = await result(answer42);
    const direct = await post('/v1/run', answer42.input);
    assert.deepEqual(keys(ran), keys(direct));
    assert.deepEqual({ ...ran, id: 0, usage: 0, logs: 0 }, { ...direct, id: 0, usage: 0, logs: 0 });

    const [coded, run] = await result({ type: 'code', input: { command: 'touch made' } });
    assert.deepEqual(coded, (await request(cay, `/v1/runs/${run}`, { headers: bearer(cay.key) })).json());
    assert.deepEqual(keys(coded), keys(await post('/v1/code', { command: 'touch made' })));

    // One that comes back with the id of an event is answered as the first would have been.
    for (const [path, input] of [['/execute', { task: 'say hello', options: { include_diff: true } }], ['/execute/sdk', { prompt: 'hello' }]]) {
      const [got] = await result({ type: path.slice(1), input });
      assert.deepEqual(got, await post(path, {}, { 'Last-Event-ID': `${got.request_id}.0` }), path);
      assert.deepEqual(keys(got), keys(await post(path, input)), path);
      assert.equal(got.success, true, JSON.stringify(got));
      if (path === '/execute') assert.equal(got.diff_is_whole, true);
      else assert.equal(got.messages.at(-1).type, 'result');
    }
  });

  test('a time limit that is longer than the type has is refused and named', async () => {
    const most = async (body, ms, pattern) => {
      const longer = await tasks.submit({ ...body, timeout_ms: ms + 1 });
      assert.equal(longer.status, 400, longer.body);
      assert.match(longer.json().error.message, new RegExp(`"timeout_ms" may be ${ms} at most: a task of type ${body.type} .*${pattern}`));
      const run_at = new Date(Date.now() + 3600_000).toISOString();
      for (const timeout_ms of [ms, undefined]) {
        const res = await tasks.submit({ ...body, timeout_ms, run_at });
        assert.equal(res.status, 202, res.body);
        assert.equal(res.json().timeout_ms, ms, 'what holds is what is shown');
        assert.equal((await tasks.call(`/${res.json().id}/cancel`, 'POST')).status, 202);
      }
    };
    await most(answer42, 90_000, 'run_wall_ms');
    await most(run('export default () => 1', { limits: { wall_ms: null } }), 90_000, 'run_wall_ms');
    await most(run('export default () => 1', { limits: { wall_ms: 1000 } }), 61_000, 'wall_ms');
    await most({ type: 'execute/sdk', input: { prompt: 'x' } }, 360_000, 'MAX_EXECUTION_TIME');
    await most({ type: 'execute', input: { task: 'x' } }, 360_000, 'MAX_EXECUTION_TIME');
    await most({ type: 'execute', input: { task: 'x', options: { timeout_ms: 5000 } } }, 65_000, 'options');
    await most({ type: 'code', input: { command: 'true' } }, 360_000, 'five minutes');
    await most({ type: 'code', input: { command: 'true', timeout_ms: 7_200_000 } }, 7_260_000, 'timeout_ms');
  });

  test('what the program did is its result, and is not tried again', async () => {
    const { id } = (await tasks.submit(run('export default () => { throw new TypeError("no"); }'))).json();
    const t = await ended(tasks, id);
    assert.equal(t.state, 'failed');
    assert.deepEqual(t.error, { code: 'TypeError', message: 'no' });
    assert.equal(t.attempt, 1);
    const wide = (await tasks.submit(run('export default () => { for (;;); }', { limits: { cpu_ms: 200 } }))).json();
    const limit = await ended(tasks, wide.id);
    assert.equal(limit.state, 'failed');
    assert.equal(limit.attempt, 1);
  });

  test('an Idempotency-Key makes one task of two requests, and refuses another body', async () => {
    const headers = { 'Idempotency-Key': 'once-1' };
    const [a, b] = await Promise.all([tasks.submit(answer42, headers), tasks.submit(answer42, headers)]);
    assert.equal(a.json().id, b.json().id);
    assert.equal([a, b].filter((r) => r.headers['idempotent-replayed'] === 'true').length, 1);
    const other = await tasks.submit(run('export default () => 1'), headers);
    assert.equal(other.status, 409);
    assert.match(other.body, /Idempotency-Key/);
    const stranger = await (await otherKey()).submit(run('export default () => 1'), headers);
    assert.equal(stranger.status, 202, 'another key has its own');
    await ended(tasks, a.json().id);
    assert.equal((await tasks.submit(answer42, headers)).json().state, 'done', 'also when it has ended');
  });

  test('tasks of one key are not there for another', async () => {
    const { id } = (await tasks.submit(answer42)).json();
    const other = await otherKey();
    assert.equal((await other.call(`/${id}`)).status, 404);
    assert.equal((await other.call(`/${id}/cancel`, 'POST')).status, 404);
    assert.equal((await other.call(`/${id}/events`)).status, 404);
    assert.deepEqual((await other.call('')).json().tasks, []);
    await ended(tasks, id);
  });

  test('one that waits is cancelled at once, one that runs soon, one that has ended not at all', async () => {
    const later = (await tasks.submit({ ...answer42, run_at: new Date(Date.now() + 3600_000).toISOString() })).json();
    assert.equal(later.state, 'queued');
    const cancelled = await tasks.call(`/${later.id}/cancel`, 'POST');
    assert.equal(cancelled.status, 202);
    assert.equal(cancelled.json().state, 'cancelled');
    assert.equal((await tasks.call(`/${later.id}/cancel`, 'POST')).status, 409);
    const { id } = (await tasks.submit(sleeps(20_000))).json();
    await running(tasks, id);
    assert.equal((await tasks.call(`/${id}/cancel`, 'POST')).status, 202);
    assert.equal((await ended(tasks, id)).state, 'cancelled');
    assert.equal((await tasks.call(`/${id}/cancel`, 'POST')).status, 409);
  });

  test('a time limit ends it', async () => {
    const { id } = (await tasks.submit({ ...sleeps(20_000), timeout_ms: 300 })).json();
    const t = await ended(tasks, id);
    assert.equal(t.state, 'failed');
    assert.equal(t.error.code, 'timeout');
    assert.equal(t.attempt, 1);
  });

  test('run_at is kept to, and priority among those of a key', async () => {
    const at = Date.now() + 700;
    const { id } = (await tasks.submit({ ...answer42, run_at: new Date(at).toISOString() })).json();
    assert.ok(Date.parse((await ended(tasks, id)).started_at) >= at);
    // Both places of the key are taken until the others wait.
    const blockers = (await Promise.all([tasks.submit(sleeps(25_000)), tasks.submit(sleeps(25_000))])).map((b) => b.json().id);
    for (const b of blockers) await running(tasks, b);
    const low = (await tasks.submit({ ...answer42, priority: -5 })).json();
    const high = (await tasks.submit({ ...answer42, priority: 5 })).json();
    await cancel(blockers[0]);
    const [l, h] = [await ended(tasks, low.id), await ended(tasks, high.id)];
    assert.ok(Date.parse(h.started_at) <= Date.parse(l.started_at), 'the important one first');
    await cancel(blockers[1]);
  });

  test('a key has no more at work than it may, and others are not kept waiting', async () => {
    const mine = (await Promise.all(Array.from({ length: 5 }, () => tasks.submit(sleeps(25_000))))).map((m) => m.json().id);
    await until(async () => (await tasks.call('?state=running')).json().tasks.length === 2, 'two');
    const other = await otherKey();
    const { id } = (await other.submit(answer42)).json();
    assert.equal((await ended(other, id)).state, 'done');
    assert.equal((await tasks.call('?state=running')).json().tasks.length, 2);
    for (const m of mine.reverse()) await cancel(m);
  });

  test('how many may wait is bounded', async () => {
    const other = await otherKey();
    const run_at = new Date(Date.now() + 3600_000).toISOString();
    const codes = [];
    for (let i = 0; i < 21; i++) codes.push((await other.submit({ ...answer42, run_at })).status);
    assert.deepEqual(codes, [...Array(20).fill(202), 429]);
  });

  test('its events can be followed, left, and gone on with', async () => {
    const code = 'export default async () => { for (let i = 0; i < 12; i++) { console.log("tick", i); await new Promise((r) => setTimeout(r, 40)); } }';
    const { id } = (await tasks.submit(run(code))).json();
    const first = follow(cay, id, { headers: bearer(cay.key) });
    await until(() => first.events.length >= 3, 'events');
    first.stop();
    const last = first.events.at(-1).id;
    assert.match(last, /^1\.\d+$/);
    const second = follow(cay, id, { headers: { ...bearer(cay.key), 'Last-Event-ID': last } });
    await second.ended;
    const ticks = [...first.events, ...second.events].filter((e) => e.type === 'log').map((e) => e.data.message);
    assert.deepEqual(ticks, Array.from({ length: 12 }, (_, i) => `tick ${i}`));
    assert.equal(second.events.at(-1).type, 'end');
    assert.equal(second.events.at(-1).data.state, 'done');
    const late = follow(cay, id, { headers: bearer(cay.key) });
    await late.ended;
    assert.equal(late.events.length, 13, 'the same when it has ended');
    assert.equal((await tasks.call(`/${id}/events?after=x`)).status, 400);
  });

  test('what tasks used is accounted for, per key', async () => {
    const key = await createKey(cay.dataDir, { name: 'counted' });
    const other = api(cay, key.text);
    for (const body of [answer42, answer42, run('export default () => { throw 1; }')]) await ended(other, (await other.submit(body)).json().id);
    const usage = async (query = '', text = key.text) => request(cay, `/v1/usage${query}`, { headers: bearer(text) });
    const [row, ...rest] = (await usage()).json().usage;
    assert.deepEqual(rest, []);
    assert.deepEqual({ ...row, wall_ms: 0, day: '' }, { project: key.project, key: key.id, day: '', type: 'run', tasks: 3, done: 2, attempts: 3, wall_ms: 0 });
    assert.match(row.day, /^\d{4}-\d{2}-\d{2}$/);
    assert.deepEqual((await usage('?since=2999-01-01')).json().usage, []);
    for (const bad of ['x', '2026-1-1', '2026-01-01x', '2026-01-0']) assert.equal((await usage(`?since=${bad}`)).status, 400, bad);
    const admin = await createKey(cay.dataDir, { name: 'admin', scope: 'admin' });
    assert.ok((await usage('', admin.text)).json().usage.some((r) => r.key === key.id));
    const shown = await runCay(['usage', '--url', cay.url], { env: { CAY_API_KEY: key.text } });
    assert.match(shown.stdout, new RegExp(`${key.id} +run +3 +2 `), shown.stderr);
  });

  test('lists have pages and states', async () => {
    const ids = [];
    for (let i = 0; i < 3; i++) ids.push((await tasks.submit(answer42)).json().id);
    for (const id of ids) await ended(tasks, id);
    const page = (await tasks.call('?limit=2')).json();
    assert.deepEqual(page.tasks.map((t) => t.id), [ids[2], ids[1]]);
    assert.equal((await tasks.call(`?limit=1&cursor=${page.next_cursor}`)).json().tasks[0].id, ids[0]);
    assert.ok((await tasks.call('?state=done')).json().tasks.every((t) => t.state === 'done'));
    for (const query of ['?limit=0', '?limit=x', '?state=asleep', '?cursor=x', '?type=walk', '?typ=run', '?state=done&staet=x', '?%zz=1']) assert.equal((await tasks.call(query)).status, 400, query);
    assert.match((await tasks.call('?typ=run')).json().error.message, /^unknown query parameter "typ"; there are: limit, cursor, state, type$/);
    const code = (await tasks.submit({ type: 'code', input: { spec: 'x', network: { routes: ['none'] } } })).json().id;
    await ended(tasks, code);
    assert.deepEqual((await tasks.call('?type=code&limit=1')).json().tasks.map((t) => [t.id, t.type]), [[code, 'code']]);
    assert.ok((await tasks.call('?type=run')).json().tasks.every((t) => t.type === 'run'));
    assert.deepEqual((await tasks.call('?type=claude-code')).json(), { tasks: [], next_cursor: null });
    const admin = api(cay, (await createKey(cay.dataDir, { name: 'sees all', scope: 'admin' })).text);
    assert.equal((await admin.call('?limit=1')).json().tasks[0].key, cay.keyId);
    for (const path of ['/v1/runs', '/v1/sandboxes', '/v1/snapshots', '/v1/usage']) assert.equal((await request(cay, `${path}?nothing=1`, { headers: bearer(cay.key) })).status, 400, path);
  });

  test('what is wrong is refused and named', async () => {
    const deep = `${'['.repeat(1000)}${']'.repeat(1000)}`;
    const bad = [
      ['', /empty/], ['[]', /object/], ['{}', /"type"/], [deep, /.*/],
      [{ type: 'walk', input: {} }, /walk/], [{ type: 'run' }, /"input"/], [{ type: 'run', input: [] }, /"input"/],
      [{ type: 'run', input: {} }, /"input"/], [{ type: 7, input: {} }, /"type"/], [{ ...answer42, priority: 101 }, /"priority"/],
      [{ ...answer42, priority: 'x' }, /"priority"/], [{ ...answer42, timeout_ms: 0 }, /"timeout_ms"/], [{ ...answer42, max_attempts: 11 }, /"max_attempts"/],
      [{ ...answer42, run_at: 'soon' }, /"run_at"/], [{ ...answer42, run_at: '2999-01-01T00:00:00Z' }, /year/], [{ ...answer42, run_at: 5 }, /"run_at"/], [{ ...answer42, run_at: '2026-01-31T12:00:00Z\0x' }, /"run_at".*NUL/],
      [{ ...answer42, title: 'x'.repeat(201) }, /"title"/], [{ ...answer42, nonsense: 1 }, /nonsense/], [{ type: 'code', input: {} }, /"input"/],
      [{ ...answer42, webhook: 'http://x/' }, /"webhook"/], [{ ...answer42, webhook: { url: 'http://x/' } }, /"secret"/],
      [{ ...answer42, webhook: { url: 'ftp://x/', secret } }, /"url"/], [{ ...answer42, webhook: { url: 'http://a@x/', secret } }, /"url"/],
      [{ ...answer42, webhook: { url: 'http://x/', secret: 'whsec_AA==' } }, /"secret"/], [{ ...answer42, webhook: { url: 'http://x/', secret: 'plain' } }, /"secret"/],
      [{ type: 'run', input: { code: 'export default () => 1', tails: [] } }, /tails/],
      [{ type: 'execute', input: {} }, /"task"/], [{ type: 'execute', input: { task: 'x', more: 1 } }, /"more"/],
      [{ type: 'execute', input: { task: 'x', options: { permission_mode: 'root' } } }, /"permission_mode"/],
      [{ type: 'execute', input: { task: 'x', options: { max_turns: 0 } } }, /"max_turns"/],
      [{ type: 'execute', input: { task: 'x', options: { agent: 'nobody' } } }, /nobody/],
      [{ type: 'execute', input: { task: 'x', options: { model: 'no-such-model' } } }, /no-such-model/],
      [{ type: 'execute/sdk', input: {} }, /"prompt"/], [{ type: 'execute/sdk', input: { prompt: 'x', options: { allowed_tools: ['Bash'] } } }, /"allowed_tools"/],
      [{ type: 'execute/sdk', input: { prompt: 'x', options: { max_budget_usd: -1 } } }, /"max_budget_usd"/],
      [{ type: 'claude-code', input: { spec: '' } }, /"spec"|claude-code/],
    ];
    for (const [body, message] of bad) {
      const res = await tasks.submit(body);
      assert.equal(res.status, 400, `${JSON.stringify(body).slice(0, 80)}: ${res.status} ${res.body}`);
      assert.match(res.json().error.message, message);
    }
    assert.equal((await tasks.submit(answer42, { 'Idempotency-Key': 'x'.repeat(201) })).status, 400);
    for (const id of ['task_x', '..', 'task_00000000000000000000000000'])
      for (const [path, method] of [['', 'GET'], ['/cancel', 'POST'], ['/events', 'GET']])
        assert.equal((await tasks.call(`/${encodeURIComponent(id)}${path}`, method)).status, 404, id);
  });

  test('a key that is revoked has no tasks any more', async () => {
    const key = await createKey(cay.dataDir, { name: 'gone' });
    const other = api(cay, key.text);
    // Both places of the key are taken until it is revoked.
    const blockers = [];
    for (let i = 0; i < 2; i++) blockers.push((await other.submit(sleeps(25_000))).json().id);
    for (const blocker of blockers) await running(other, blocker);
    const { id } = (await other.submit(answer42)).json();
    const admin = api(cay, (await createKey(cay.dataDir, { name: 'admin', scope: 'admin' })).text);
    assert.equal((await runCay(['key', 'revoke', key.id, '--data-dir', cay.dataDir])).code, 0);
    for (const blocker of blockers) await admin.call(`/${blocker}/cancel`, 'POST'); // unless that has ended it
    const t = await ended(admin, id);
    assert.equal(t.state, 'failed');
    assert.equal(t.error.code, 'unauthorized');
  });
});

describe('webhooks', () => {
  test('a message is signed, and comes again with the same id until it is taken', async () => {
    let take;
    const taken = new Promise((resolve) => (take = resolve));
    const hook = await receiver(async (n) => [0, 503][n] ?? (await taken, 204));
    const cay = await startCay({ config: { tasks: { private_webhooks: [hook.host] } } });
    try {
      const tasks = api(cay);
      const { id } = (await tasks.submit({ ...answer42, webhook: { url: hook.url, secret } })).json();
      await ended(tasks, id);
      await until(() => hook.got.length >= 2, 'two tries');
      assert.equal((await tasks.get(id)).webhook.state, 'pending');
      take();
      for (const m of hook.got) verify(m);
      assert.equal(new Set(hook.got.map((m) => m.headers['webhook-id'])).size, 1);
      const data = JSON.parse(hook.got[0].body);
      assert.equal(data.type, 'task.finished');
      assert.equal(data.data.id, id);
      assert.equal(data.data.state, 'done');
      await until(async () => (await tasks.get(id)).webhook.state === 'delivered', 'the delivery');
      assert.ok(!JSON.stringify(await tasks.get(id)).includes(secret), 'the secret is not shown');
    } finally {
      await cay.stop();
      hook.close();
    }
  });

  test('a receiver that is down, redirects, is slow and is up again gets each message in the end, with one id', async () => {
    let moods = [];
    const hook = await receiver(async () => {
      const mood = moods.shift() ?? 204;
      if (mood === 'slow') await new Promise((resolve) => setTimeout(resolve, 500));
      return mood === 'slow' ? 204 : mood;
    });
    const cay = await startCay({ config: { tasks: { private_webhooks: [hook.host] } } });
    try {
      const tasks = api(cay);
      await hook.down();
      const ids = [];
      for (let i = 0; i < 3; i++) ids.push((await tasks.submit({ ...answer42, webhook: { url: hook.url, secret } })).json().id);
      await until(async () => (await Promise.all(ids.map((id) => tasks.get(id)))).every((t) => t.webhook.error), 'a first try of each');
      moods = [302, 0, 'slow'];
      await hook.up();
      for (const id of ids) await until(async () => (await tasks.get(id)).webhook.state === 'delivered', `the message about ${id}`);
      const seen = new Map();
      for (const m of hook.got) {
        verify(m);
        assert.equal(m.url, '/hook');
        const { id } = JSON.parse(m.body).data;
        seen.set(id, [...(seen.get(id) ?? []), m]);
      }
      assert.deepEqual([...seen.keys()].sort(), [...ids].sort());
      for (const list of seen.values()) {
        assert.equal(new Set(list.map((m) => m.headers['webhook-id'])).size, 1);
        assert.equal(list.filter((m) => m.status === 204).length, 1);
        assert.equal(list.at(-1).status, 204, 'nothing comes after it was taken');
        assert.deepEqual(list.map((m) => m.time), list.map((m) => m.time).sort());
      }
    } finally {
      await cay.stop();
      hook.close();
    }
  });

  test('redirects are not followed, slow receivers hold up nobody, private addresses are refused', async () => {
    const redirecting = await receiver((n) => (n === 0 ? 302 : 204));
    let release;
    const late = await receiver((n) => (n === 0 ? new Promise((r) => (release = () => r(204))) : 204));
    const secretPlace = await receiver();
    const cay = await startCay({ config: { tasks: { private_webhooks: [redirecting.host, late.host] } } });
    try {
      const tasks = api(cay);
      const send = async (hook) => (await tasks.submit({ ...answer42, webhook: { url: hook.url, secret } })).json().id;
      const ids = [await send(late), await send(secretPlace), await send(redirecting)];
      await until(async () => (await tasks.get(ids[2])).webhook.state === 'delivered', 'the second try');
      assert.deepEqual(redirecting.got.map((m) => m.url), ['/hook', '/hook']);
      const refused = await until(async () => ((t) => t.webhook.state === 'failed' && t)(await tasks.get(ids[1])), 'the refusal');
      assert.match(refused.webhook.error, /loopback.*private_webhooks/);
      assert.equal(secretPlace.got.length, 0);
      assert.equal((await tasks.get(ids[0])).webhook.state, 'pending');
      await until(() => release, 'the first try of the slow one');
      release();
      await until(async () => (await tasks.get(ids[0])).webhook.state === 'delivered', 'the slow one');
    } finally {
      await cay.stop();
      for (const h of [redirecting, late, secretPlace]) h.close();
    }
  });
});

describe('a server that is killed', () => {
  test('what it ran is tried again, what had ended stays so, and webhooks come', async () => {
    const hook = await receiver();
    const dataDir = join(tempDir(null), 'data');
    const config = { tasks: { private_webhooks: [hook.host], slots: 8, per_key: 8 } };
    const webhook = { url: hook.url, secret };
    let cay = await startCay({ dataDir, config });
    const done = (await api(cay).submit({ ...answer42, webhook })).json().id;
    await ended(api(cay), done);
    const late = (await api(cay).submit({ ...answer42, webhook, run_at: new Date(Date.now() + 2500).toISOString() })).json().id;
    const cut = (await api(cay).submit({ ...secondTime('cut'), webhook })).json().id;
    const once = (await api(cay).submit({ ...sleeps(25_000), webhook, max_attempts: 1 })).json().id;
    await running(api(cay), cut);
    await running(api(cay), once);
    const { run: id } = await api(cay).get(cut);
    await until(async () => (await request(cay, `/v1/runs/${id}`)).json().events.length > 0, 'its output');
    await cay.kill9();
    cay = await startCay({ dataDir, config });
    try {
      const tasks = api(cay);
      const t = await ended(tasks, cut);
      assert.equal(t.state, 'done');
      assert.equal(t.attempt, 2);
      assert.deepEqual(t.attempts.map((a) => a.outcome), ['fault', 'done']);
      const first = await request(cay, `/v1/runs/${t.attempts[0].run}`);
      assert.equal(first.json().status, 'interrupted', 'what it had done is told');
      assert.deepEqual(first.json().events.map((e) => e.data.message), ['begun'], 'and its output stays');
      const seen = follow(cay, cut);
      await seen.ended;
      assert.deepEqual(seen.events.map((e) => e.id ?? e.type), ['1.1', '2.1', 'end']);
      const o = await ended(tasks, once);
      assert.equal(o.state, 'interrupted');
      assert.equal((await ended(tasks, late)).state, 'done');
      const d = await tasks.get(done);
      assert.equal(d.attempt, 1);
      assert.equal(d.result.result, 42);
      await until(() => new Set(hook.got.map((m) => JSON.parse(m.body).data.id)).size === 4, 'all messages');
      for (const m of hook.got) verify(m);
    } finally {
      await cay.stop();
      hook.close();
    }
  });

  // Such a body goes into the ledger in pieces, over many turns of the loop.
  test('while a task of megabytes is submitted: it is there whole or not at all', async () => {
    const dataDir = join(tempDir(null), 'data');
    const text = 'x\u00e4"'.repeat(1_000_000);
    const body = (i) => JSON.stringify({ ...run('export default (env, text) => text.length', { args: [text] }), title: `try ${i}`, max_attempts: 10 });
    let cay = await startCay({ dataDir });
    const known = [];
    for (let i = 0; i < 4; i++) {
      const sent = api(cay).submit(body(i)).then((r) => r.status === 202 && known.push(JSON.parse(r.body).id), () => {});
      await new Promise((r) => setTimeout(r, (50 * i + 50) * slow)); // any moment
      await cay.kill9();
      await sent;
      cay = await startCay({ dataDir });
    }
    const tasks = api(cay);
    known.push(JSON.parse((await tasks.submit(body(9))).body).id);
    const listed = JSON.parse((await tasks.call('')).body).tasks;
    for (const id of known) assert.ok(listed.some((t) => t.id === id), `${id} was acknowledged`);
    for (const t of listed) {
      const end = await ended(tasks, t.id);
      assert.deepEqual([end.state, end.result?.result], ['done', text.length], JSON.stringify(end).slice(0, 300));
    }
    await cay.stop();
  });

  test('chaos: it and each of its programs are killed at any moment, and every task is accounted for once', async () => {
    const { all, killed } = await chaos({ tasks: 35, kinds: KINDS, pause: 300 });
    assert.deepEqual(Object.keys(killed).sort(), [...KINDS].sort());
    assert.ok(all.some((t) => t.attempt > 1), 'some were cut off');
    assert.deepEqual(all.filter((t) => t.state !== 'done'), []);
  });

  test('one that is stopped in order gives back what it ran, and that does not count', async () => {
    const dataDir = join(tempDir(null), 'data');
    let cay = await startCay({ dataDir });
    const { id } = (await api(cay).submit({ ...secondTime('given-back'), max_attempts: 1 })).json();
    await running(api(cay), id);
    const { run: first } = await api(cay).get(id);
    await until(async () => (await request(cay, `/v1/runs/${first}`)).json().events.length > 0, 'its output');
    await cay.stop();
    cay = await startCay({ dataDir });
    try {
      const t = await ended(api(cay), id);
      assert.equal(t.state, 'done');
      assert.equal(t.attempt, 2);
    } finally {
      await cay.stop();
    }
  });
});

test('cay task: submit, ls, show, logs, wait, cancel', async () => {
  const cay = await startCay();
  const cli = (args, env = {}) => runCay(['task', ...args, '--url', cay.url], { env });
  const input = (code) => JSON.stringify({ code });
  try {
    const first = await cli(['submit', '--title', 'first', input('export default () => { console.log("\\x1b[31mhi"); return 7; }')]);
    assert.equal(first.code, 0, first.stderr);
    const id = first.stdout.trim();
    assert.match(id, /^task_/);
    const waited = await cli(['wait', id]);
    assert.equal(waited.code, 0, waited.stderr);
    assert.match(waited.stderr, /: done/);
    assert.equal(waited.stdout, '7\n', 'what it returned');
    const unsigned = await cli(['submit', '--webhook', 'https://example.org/', input('export default () => 1')]);
    assert.equal(unsigned.code, 2);
    assert.match(unsigned.stderr, /CAY_WEBHOOK_SECRET/);
    assert.match((await cli(['ls'])).stdout, new RegExp(`${id} +done +run .* first`));
    assert.equal(JSON.parse((await cli(['show', id])).stdout).result.result, 7);
    assert.match((await cli(['logs', id])).stdout, /hi/);
    const failed = await cli(['submit', '--wait', input('export default () => { throw new Error("no luck"); }')]);
    assert.equal(failed.code, 1);
    assert.match(failed.stderr, /failed: no luck/);
    const twice = ['submit', '--idempotency-key', 'k', '--at', new Date(Date.now() + 3600_000).toISOString(), input('export default () => 1')];
    const [a, b] = [await cli(twice), await cli(twice)];
    assert.equal(a.stdout, b.stdout);
    assert.match((await cli(['cancel', a.stdout.trim()])).stdout, /cancelled/);
    const again = await cli(['cancel', a.stdout.trim()]);
    assert.notEqual(again.code, 0);
    assert.match(again.stderr, /ended already/);
    assert.equal(JSON.parse((await cli(['ls', '--state', 'cancelled', '-o', 'json'])).stdout).length, 1);
    for (const args of [[], ['walk'], ['show'], ['submit'], ['submit', 'x', 'y'], ['submit', '--timeout', 'x', '{}']])
      assert.equal((await cli(args)).code, 2, args.join(' '));
    assert.match((await cli(['submit', 'no json'])).stderr, /INPUT/);
    assert.match((await cli(['show', 'task_nope'])).stderr, /no task/);
  } finally {
    await cay.stop();
  }
});

test('what tasks of a key take while they wait is bounded, in bytes too', async (t) => {
  const cay = await startCay({ config: { tasks: { slots: 0, waiting_mb_per_key: 1 } } });
  t.after(() => cay.stop());
  const tasks = api(cay);
  const big = run(`export default () => 1 // ${'x'.repeat(600_000)}`);
  const first = await tasks.submit(big);
  assert.equal(first.status, 202, first.body);
  const second = await tasks.submit(big);
  assert.equal(second.status, 429, second.body);
  assert.match(second.json().error.message, /1 MiB together \("waiting_mb_per_key"\)/);
  assert.ok(second.headers['retry-after']);
  assert.equal((await tasks.submit(answer42)).status, 202);
  assert.equal((await tasks.call(`/${first.json().id}/cancel`, 'POST')).status, 202);
  assert.equal((await tasks.submit(big)).status, 202, 'there is room again');
});

test('receivers that never answer leave room for those of another key, and for others of the same key', async (t) => {
  let open = 0;
  let most = 0;
  const never = createServer((req) => {
    most = Math.max(most, ++open);
    req.socket.on('close', () => open--);
  });
  await new Promise((resolve) => never.listen(0, '127.0.0.1', resolve));
  const good = await receiver();
  t.after(() => (never.closeAllConnections(), never.close(), good.close()));
  const host = `127.0.0.1:${never.address().port}`;
  const cay = await startCay({ config: { require_key: true, tasks: { private_webhooks: [host, good.host] } } });
  t.after(() => cay.stop());
  const theirs = api(cay, cay.key);
  const mine = api(cay, (await createKey(cay.dataDir, { name: 'other' })).text);
  for (let i = 0; i < 30; i++) assert.equal((await theirs.submit({ ...answer42, webhook: { url: `http://${host}/`, secret } })).status, 202);
  await until(() => open >= 4, 'as many as may be');
  const { id } = (await mine.submit({ ...answer42, webhook: { url: good.url, secret } })).json();
  await until(async () => (await mine.get(id)).webhook.state === 'delivered', 'the message of the other');
  const own = (await theirs.submit({ ...answer42, webhook: { url: good.url, secret } })).json();
  await until(async () => (await theirs.get(own.id)).webhook.state === 'delivered', 'another one of the same key');
  assert.equal(most, 4, 'of twelve that a key may have under way');
});

test('two keys hold all slots they can get with long tasks, and the task of a third begins at once', async (t) => {
  // A key may have all slots, so that nothing but what is kept for others holds it back.
  const cay = await withCay(t, { config: { require_key: true, limits: { run_wall_ms: 600_000, drain_timeout_ms: 0 }, tasks: { slots: 4, per_key: 4 } } });
  const [a, b, c] = await Promise.all(['a', 'b', 'c'].map(async (name) => api(cay, (await createKey(cay.dataDir, { name })).text)));
  const atWork = async () => (await Promise.all([a, b].map(async (key) => (await key.call('?state=running')).json().tasks.map((x) => x.id).toSorted())));
  const hold = async (key, which, least) => {
    for (let i = 0; i < 6; i += 1) assert.equal((await key.submit(sleeps(500_000))).status, 202);
    await until(async () => (await atWork())[which].length >= least, 'what it holds');
  };
  await hold(a, 0, 2);
  await hold(b, 1, 1);
  const before = await atWork();
  const { id } = (await c.submit(answer42)).json();
  assert.equal((await ended(c, id)).state, 'done');
  assert.deepEqual(await atWork(), before, 'nobody had to end for it');
  assert.deepEqual(before.map((ids) => ids.length), [2, 1]);
});

test('an error message that is cut inside a character holds up nobody', async (t) => {
  const hook = await receiver();
  t.after(() => hook.close());
  const cay = await withCay(t, { config: { require_key: true, tasks: { slots: 4, per_key: 2, private_webhooks: [hook.host] } } });
  const first = api(cay, cay.key);
  const second = api(cay, (await createKey(cay.dataDir, { name: 'second' })).text);
  // Of the route's name 64 bytes are told: in each of these another byte of a character would be the last.
  const names = ['é', 'x€', 'xx€', '😀', 'x😀', 'xx😀', 'xxx😀', 'xé'].map((n) => n.slice(0, n.search(/[^x]/)) + n.replace(/x/g, '').repeat(40));
  const sent = [];
  for (const key of [first, second])
    for (const route of names) {
      const res = await key.submit({ type: 'code', input: { spec: 'x', network: { routes: [route] } }, webhook: { url: hook.url, secret } });
      assert.equal(res.status, 202, res.body);
      sent.push([key, res.json().id]);
    }
  for (const [key, id] of sent) {
    const task = await ended(key, id);
    assert.equal(task.state, 'failed', JSON.stringify(task));
    assert.match(task.error.message, /^there is no route "x{0,3}[é€😀]+" for this key$/u);
  }
  const after42 = (await second.submit(answer42)).json();
  assert.equal((await ended(second, after42.id)).result.result, 42, 'the queue goes on');
  await until(() => hook.got.length === sent.length, 'the messages');
  for (const m of hook.got) assert.match(JSON.parse(m.body).data.error.message, /^there is no route "x{0,3}[é€😀]+" for this key$/u);
});

test('a key with a limit for a day uses its own databases in tasks, as in runs', async (t) => {
  const cay = await withCay(t, { config: { require_key: true } });
  const { text } = await createKey(cay.dataDir, { name: 'limited', more: ['--tokens-per-day', '1000'] });
  const tasks = api(cay, text);
  const input = { code: 'export default async (env) => (await env.db.query("SELECT 1 AS x"))[0].x', env: { db: { $facet: 'own' } } };
  const direct = await request(cay, '/v1/run', { method: 'POST', headers: bearer(text), body: JSON.stringify(input) });
  assert.equal(direct.json().result, 1, direct.body);
  const task = await ended(tasks, (await tasks.submit({ type: 'run', input })).json().id);
  assert.equal(task.state, 'done', JSON.stringify(task.error));
});
