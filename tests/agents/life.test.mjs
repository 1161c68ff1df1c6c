// What happens to a conversation when things end: the server, the socket, the table, the instance.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { request, sleep } from '../lib/cay.mjs';
import { environment, withMock } from './mock.mjs';
import { checkAccount, chunksOf, Raw, slow, TYPE, until, user, withAgents, withCay } from './support.mjs';

const messages = async (server, name, type = TYPE) => (await request(server, `/agents/${type}/${name}/get-messages`)).json();
const post = (server, name, body, headers = {}) =>
  request(server, `/v1/agents/${TYPE}/${name}/messages`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
const json = { Accept: 'application/json' };
const say = async (server, name, text) => (await post(server, name, { text }, json)).json();

test('after kill -9 in the middle of a turn the conversation is whole, marked, and goes on', async (t) => {
  const { mock, url, requests } = await withMock(t);
  const env = environment('anthropic', url);
  const first = await withCay(t, { env });
  mock.on({ userMessage: 'short' }, { content: 'Short answer.' });
  mock.on({ userMessage: 'long' }, { content: 'All the words of a long answer. '.repeat(2000) }, { latency: 20, chunkSize: 20 });
  mock.on({ userMessage: 'tool' }, {
    toolCalls: [{ id: 'c1', name: 'executeCode', arguments: JSON.stringify({ code: 'export default async (env) => {\n  await env.db.execute("DELETE FROM customers WHERE id = 1");\n  while (true) {}\n}' }) }],
  });
  const a = await Raw.ready(first, 'cut');
  await a.turn('t1', [user('u1', 'short')]);
  a.chat('t2', [...(await messages(first, 'cut')), user('u2', 'long')]);
  a.chat('t3', [user('u3', 'waits')]);
  await until(() => a.text('t2').length > 1500, 'text'); // more than a second of it
  const b = await Raw.ready(first, 'cuttool');
  b.chat('t1', [user('u1', 'tool')]);
  await b.wait((f) => f.body?.includes('tool-input-available'));
  await until(async () => {
    b.send({ type: 'rpc', id: crypto.randomUUID(), method: 'getAllCustomers', args: [] });
    await sleep(30);
    return b.frames.findLast((f) => f.type === 'rpc')?.result?.length === 7;
  }, 'the program');
  first.child.kill('SIGKILL');
  await first.ended;

  const second = await withCay(t, { env, dataDir: first.dataDir });
  const list = await messages(second, 'cut');
  assert.deepEqual(list.map((m) => m.role), ['user', 'assistant', 'user', 'assistant', 'user']);
  assert.deepEqual(list.slice(0, 2).map((m) => m.parts.at(-1).text), ['short', 'Short answer.']);
  assert.deepEqual(list[3].metadata, { interrupted: true });
  assert.match(list[3].parts[1].text, /^All the words of a long answer\./, 'what was said until then');
  assert.match(list[3].parts.at(-1).text, /cut off: the server ended while it was running/);
  const c = await Raw.ready(second, 'cut');
  assert.equal(c.frames[0].type, 'cf_agent_identity', 'nothing runs any more');
  await c.turn('t4', [...list, user('u4', 'short')]);
  assert.match(c.text('t4'), /Short answer/);
  assert.match(JSON.stringify(requests.at(-1).body.messages), /All the words.*cut off/);

  const cut = await messages(second, 'cuttool');
  assert.equal(cut[1].parts.find((p) => p.toolCallId).state, 'output-error');
  const d = await Raw.ready(second, 'cuttool');
  assert.equal(d.frames[1].state.customers.length, 7, 'the state is read afresh');
  await d.turn('t2', [...cut, user('u2', 'short')]);
  assert.match(d.text('t2'), /Short answer/);
  const runs = (await request(second, '/v1/runs')).json();
  assert.ok(runs.runs.some((r) => r.kind === 'chat' && r.status === 'interrupted'));
  c.close();
  d.close();
});

test('an end in order tells the turn, and the history says so', async (t) => {
  const first = await withCay(t);
  const a = await Raw.ready(first, 'end');
  a.chat('t1', [user('u1', 'Talk for a while')]);
  a.chat('t2', [user('u2', 'hello')]);
  const plain = post(first, 'end2', { text: 'Talk for a while' }).catch((error) => error);
  await until(() => a.text('t1').length > 50, 'text');
  await first.halt();
  await plain;
  const second = await withCay(t, { dataDir: first.dataDir });
  const [, answer] = await messages(second, 'end');
  assert.match(answer.metadata.error, /shutting down/);
  assert.match(answer.parts.find((p) => p.type === 'text').text, /sentence number 1/);
});

test('a turn goes on when its socket drops', async (t) => {
  const cay = await withCay(t);
  const a = await Raw.ready(cay, 'drop');
  a.chat('t1', [user('u1', 'Count customers by tier')]);
  await a.wait((f) => f.seq === 0);
  a.close();
  const list = await until(async () => {
    const all = await messages(cay, 'drop');
    return /Gold: 3/.test(all[1]?.parts.at(-1).text ?? '') ? all : null;
  }, 'the answer');
  assert.equal(list[1].parts.length, 5);
});

test('a dropped table is an error to see, not the end', async (t) => {
  const first = await withCay(t);
  const a = await Raw.ready(first, 'drop');
  await a.turn('t1', [user('u1', 'Drop the customers table')]);
  const { state } = a.frames.findLast((f) => f.type === 'cf_agent_state');
  assert.deepEqual(state.customers, []);
  assert.match(state.errors.customers, /no such table: customers/);
  assert.equal(state.executions[0].output, 'dropped');
  const failed = await a.turn('t2', [user('u2', 'Count customers by tier')]);
  assert.equal(failed.at(-1).outcome, undefined);
  assert.match(a.text('t2'), /The program failed/);
  await a.turn('t3', [user('u3', 'List all customers')]);
  assert.match(a.text('t3'), /no such table/);
  await first.halt();
  const second = await withCay(t, { dataDir: first.dataDir });
  const b = await Raw.ready(second, 'drop');
  assert.equal(b.frames[1].state.executions.length, 2);
  // The next turn opens the database again, which makes the table again as at first.
  await b.turn('t4', [user('u4', 'Count customers by tier')]);
  const now = b.frames.findLast((f) => f.type === 'cf_agent_state').state;
  assert.equal(now.customers.length, 8);
  assert.equal(now.errors, undefined);
  b.close();
});

test('only the twenty newest executions are in the state', async (t) => {
  const code = 'export default async () => console.log({{user|json}})';
  const cay = await withAgents(t, {
    runner: {
      agent: { tools: [{ name: 'run', kind: 'code', description: 'runs' }], state: { executions: { executions: 20 } }, max_steps: 3 },
      demo: { scripts: [{ when: '.', steps: [{ call: { tool: 'run', input: { code } } }, { say: 'ok' }] }] },
    },
  });
  const a = await Raw.ready(cay, 'x', { type: 'runner' });
  for (let i = 0; i < 23; i++) await a.turn(`t${i}`, [user(`u${i}`, `${i}`)]);
  const { executions } = a.frames.findLast((f) => f.type === 'cf_agent_state').state;
  assert.deepEqual(executions.map((e) => e.output), Array.from({ length: 20 }, (_, i) => String(22 - i)));
  a.close();
});

test('an execution that ends while the state is being read is in the next one', async (t) => {
  const slowly = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) SELECT COUNT(*) AS n FROM n';
  const cay = await withAgents(t, {
    slow: {
      agent: {
        facets: { db: { schema: 's.sql', methods: { slowly, touch: { kind: 'execute', sql: 'INSERT INTO t VALUES (1)' } } } },
        tools: [{ name: 'run', kind: 'code', description: 'runs' }],
        state: { executions: { executions: 5 }, rows: { facet: 'db', method: 'slowly' } },
        rpc: { touch: { facet: 'db', method: 'touch' } },
      },
      files: { 's.sql': 'CREATE TABLE IF NOT EXISTS t (x);' },
      demo: { scripts: [{ when: '.', steps: [{ call: { tool: 'run', input: { code: 'export default async () => console.log(1)' } } }, { say: 'ok' }] }] },
    },
  });
  const a = await Raw.ready(cay, 'x', { type: 'slow' });
  await a.turn('t0', [user('u0', 'go')]);
  const stop = setInterval(() => a.send({ type: 'rpc', id: crypto.randomUUID(), method: 'touch', args: [] }), 20);
  t.after(() => clearInterval(stop));
  a.send({ type: 'rpc', id: 'first', method: 'touch', args: [] });
  await a.wait((f) => f.id === 'first'); // the state is being read now
  await a.turn('t1', [user('u1', 'go')], { ms: 60_000 * slow });
  clearInterval(stop);
  const output = a.frames.findLastIndex((f) => f.body?.includes('"tool-output-available"'));
  const { state } = a.frames.slice(0, output).findLast((f) => f.type === 'cf_agent_state');
  assert.equal(state.executions.length, 2);
  a.close();
});

test('what a client sets while the state is being read is not undone', async (t) => {
  const slowly = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000) SELECT COUNT(*) AS n FROM n';
  const cay = await withAgents(t, {
    slow: {
      agent: {
        facets: { db: { schema: 's.sql', methods: { slowly, touch: { kind: 'execute', sql: 'INSERT INTO t VALUES (1)' } } } },
        state: { mood: { value: 'calm' }, rows: { facet: 'db', method: 'slowly' } },
        rpc: { touch: { facet: 'db', method: 'touch' } },
      },
      files: { 's.sql': 'CREATE TABLE IF NOT EXISTS t (x);' },
    },
  });
  const a = await Raw.ready(cay, 'x', { type: 'slow' });
  a.send({ type: 'rpc', id: 'first', method: 'touch', args: [] });
  await a.wait((f) => f.id === 'first'); // the state is being read now
  const before = a.frames.length;
  a.send({ type: 'cf_agent_state', state: { mood: 'new', rows: [] } });
  await until(() => a.frames.slice(before).some((f) => f.type === 'cf_agent_state' && f.state.rows.length > 0), 'the state that was read');
  assert.equal(a.frames.findLast((f) => f.type === 'cf_agent_state').state.mood, 'new');
  a.close();
});

const slowState = (ms = 1) => ({
  agent: {
    facets: {
      db: {
        schema: 's.sql',
        methods: { slowly: `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${ms} * 10000) SELECT COUNT(*) AS n FROM n` },
      },
      other: { schema: 's.sql', methods: { count: 'SELECT COUNT(*) AS n FROM t' } },
    },
    env: { other: { facet: 'other' } },
    tools: [{ name: 'run', kind: 'code', description: 'runs' }],
    state: { executions: { executions: 5 }, count: { facet: 'other', method: 'count' }, rows: { facet: 'db', method: 'slowly' } },
    max_steps: 9,
  },
  files: { 's.sql': 'CREATE TABLE IF NOT EXISTS t (x);' },
});
const running = (id, text) => ({ id, name: 'run', arguments: JSON.stringify({ code: `export default async (env) => {\n  await env.other.execute("INSERT INTO t VALUES (1)");\n  console.log("${text}");\n}` }) });

test('the model goes on while the state is read; what it says waits for the state', async (t) => {
  const { mock, url, requests } = await withMock(t);
  const cay = await withAgents(t, { slow: slowState(100 * slow) }, { env: environment('anthropic', url) });
  mock.on({ userMessage: 'go', turnIndex: 0 }, { toolCalls: [running('c1', 'one')] });
  mock.on({ userMessage: 'go', turnIndex: 1 }, { toolCalls: [running('c2', 'two')] });
  mock.on({ userMessage: 'go', turnIndex: 2 }, { content: 'That was all.' });
  const a = await Raw.ready(cay, 'x', { type: 'slow' });
  a.chat('t1', [user('u1', 'go')]);
  await until(() => requests.length >= 2, 'the second question');
  assert.equal(a.chunks('t1').filter((c) => c.type === 'tool-output-available').length, 0, 'the model was asked first');
  const b = await Raw.open(cay, 'x', { type: 'slow' }); // who comes now hears each of them once
  await b.wait((f) => f.type === 'cf_agent_stream_resuming');
  b.send({ type: 'cf_agent_stream_resume_ack', id: 't1' });
  await a.done('t1', 60_000 * slow);
  await b.done('t1', 60_000 * slow);
  const at = (fits) => a.frames.findIndex(fits);
  const output = (id) => at((f) => f.body?.includes('"tool-output-available"') && f.body.includes(`"${id}"`));
  const first = at((f) => f.type === 'cf_agent_state' && f.state.executions.length > 0);
  assert.ok(first > 0 && first < output('c1') && output('c1') < output('c2'));
  const known = (id) => a.frames.slice(0, output(id)).findLast((f) => f.type === 'cf_agent_state').state;
  assert.deepEqual([known('c1').executions.length >= 1, known('c1').count[0].n >= 1], [true, true]);
  assert.deepEqual([known('c2').executions.length, known('c2').count[0].n], [2, 2], 'what it changed is told first');
  assert.ok(output('c2') < at((f) => f.body?.includes('"text-delta"')));
  assert.deepEqual(a.chunks('t1').slice(-2).map((c) => c.type), ['finish-step', 'finish']);
  for (const each of [a, b]) {
    assert.equal(each.text('t1'), 'That was all.');
    for (const id of ['c1', 'c2'])
      assert.equal(each.chunks('t1').filter((c) => c.type === 'tool-output-available' && c.toolCallId === id).length, 1);
  }
  const [, message] = await messages(cay, 'x', 'slow');
  assert.deepEqual(message.parts.filter((p) => p.toolCallId).map((p) => p.output.output), ['one', 'two']);
  a.close();
  b.close();
});

test('a turn can be stopped while its last state is read', async (t) => {
  const { mock, url, requests } = await withMock(t);
  const cay = await withAgents(t, { slow: slowState(300 * slow) }, { env: environment('anthropic', url) });
  mock.on({ userMessage: 'go', turnIndex: 0 }, { toolCalls: [running('c1', 'one')] });
  mock.on({ userMessage: 'go', turnIndex: 1 }, { content: 'That was all.' });
  const a = await Raw.ready(cay, 'x', { type: 'slow' });
  a.chat('t1', [user('u1', 'go')]);
  await until(() => requests.length >= 2, 'the second question');
  a.send({ id: 't1', type: 'cf_agent_chat_request_cancel' });
  await a.done('t1');
  const [, message] = await messages(cay, 'x', 'slow');
  assert.equal(message.parts.find((p) => p.toolCallId).output.output, 'one');
  const told = await a.wait((f) => f.type === 'cf_agent_chat_messages'); // its asker has not heard the result
  assert.equal(told.messages.at(-1).parts.find((p) => p.toolCallId).output.output, 'one');
  const state = await a.wait((f) => f.type === 'cf_agent_state' && f.state.executions.length === 1);
  assert.equal(state.state.executions[0].output, 'one', 'the execution is kept');
  a.close();
});

test('after kill -9 all that a client was told of a program is there', { timeout: 120_000 }, async (t) => {
  const { mock, url } = await withMock(t);
  const env = environment('anthropic', url);
  mock.on({ userMessage: 'go', turnIndex: 0 }, { toolCalls: [running('c1', 'one')] });
  mock.on({ userMessage: 'go', turnIndex: 1 }, { content: 'word '.repeat(500) }, { latency: 20, chunkSize: 20 });
  const agents = { slow: slowState() };
  const has = (type) => (f) => f.body?.includes(`"${type}"`);
  const ran = (f) => f.type === 'cf_agent_state' && f.state.executions.length === 1;
  let dataDir;
  for (const [name, fits] of Object.entries({ asked: has('tool-input-available'), state: ran, answered: has('tool-output-available'), went: has('text-delta') })) {
    const cay = await withAgents(t, agents, { env, dataDir });
    dataDir = cay.dataDir;
    const a = await Raw.ready(cay, name, { type: 'slow' });
    a.ws.addEventListener('message', ({ data }) => fits(JSON.parse(data)) && cay.child.kill('SIGKILL')); // at once
    a.chat('t1', [user('u1', 'go')]);
    await cay.ended;
    a.told = a.frames.slice();
    const again = await withAgents(t, agents, { env, dataDir });
    const [said, message] = await messages(again, name, 'slow');
    assert.equal(said.id, 'u1');
    assert.deepEqual(message.metadata, { interrupted: true });
    const part = message.parts.find((p) => p.toolCallId === 'c1');
    assert.ok(part, `${name}: the call is in the history`);
    if (a.told.some(has('tool-output-available'))) assert.equal(part.output.output, 'one', name);
    const b = await Raw.ready(again, name, { type: 'slow' });
    const before = a.told.findLast(ran);
    if (before) assert.deepEqual(b.frames.find((f) => f.type === 'cf_agent_state').state.executions, before.state.executions, name);
    assert.ok(before || name === 'asked', name);
    b.close();
    await again.stop();
  }
});

test('a program that is too slow, too big or too loud is an error in the chat', { timeout: 120_000 }, async (t) => {
  const programs = {
    loop: 'export default async () => { console.log("start"); while (true) {} }',
    memory: 'export default async () => { const a = []; for (;;) a.push(new Array(100000).fill(1.5)); }',
    loud: 'export default async () => { for (let i = 0; i < 20000; i++) console.log("x".repeat(100)); }',
    network: 'export default async () => { try { await fetch("https://example.com"); } catch (e) { console.log("refused"); } }',
    escape: 'export default async (env) => console.log(Object.keys(env).length, typeof process, typeof require)',
    reject: 'export default async () => { throw "only a text"; }',
    missing: 'import x from "nosuch"; export default async () => {}',
  };
  const scripts = Object.entries(programs).map(([when, code]) => ({ when: `^${when}$`, steps: [{ call: { tool: 'run', input: { code } } }, { say: 'ok' }] }));
  const cay = await withAgents(
    t,
    { runner: { agent: { tools: [{ name: 'run', kind: 'code', description: 'runs' }], state: { executions: { executions: 20 } } }, demo: { scripts } } },
    { config: { limits: { run_wall_ms: 10_000, run_cpu_ms: 1000 } } },
  );
  const a = await Raw.ready(cay, 'x', { type: 'runner' });
  const run = async (name) => {
    const frames = await a.turn(name, [user(`u-${name}`, name)], { ms: 60_000 * slow });
    assert.equal(frames.at(-1).outcome, undefined, name);
    return a.chunks(name).find((c) => c.type === 'tool-output-available').output;
  };
  assert.equal((await run('network')).output, 'refused'); // and from now on there are isolates
  const loop = await run('loop');
  assert.match(loop.error, /limit of \d+ ms exceeded$/);
  assert.equal(loop.output, `start\n\nError: ${loop.error}`);
  assert.match((await run('memory')).error, /memory|LimitError|RangeError/);
  const loud = await run('loud');
  assert.ok(loud.output.length < 300_000);
  const { executions } = a.frames.findLast((f) => f.type === 'cf_agent_state').state;
  assert.ok(executions[0].output.length < 40_000, 'the state shows the beginning');
  assert.match(executions[0].output, /more bytes\)$/);
  assert.equal((await run('escape')).output, '0 undefined undefined');
  const rejected = await run('reject');
  assert.match(rejected.error, /only a text/);
  assert.equal(rejected.output, `Error: ${rejected.error}`);
  const missing = await run('missing');
  assert.equal(missing.output, '');
  assert.match(missing.error, /nosuch/);
  a.close();
});

test('plain HTTP: a stream of events, JSON, and errors with a status', async (t) => {
  const cay = await withCay(t);
  const streamed = await post(cay, 'plain', { text: 'Count customers by tier' });
  assert.equal(streamed.status, 200);
  assert.equal(streamed.headers['content-type'], 'text/event-stream');
  assert.equal(streamed.headers['x-vercel-ai-ui-message-stream'], 'v1');
  assert.equal(streamed.headers['cache-control'], 'no-cache');
  assert.equal(streamed.headers['x-accel-buffering'], 'no');
  assert.match(streamed.headers['x-cay-turn'], /^turn_/);
  const chunks = chunksOf(streamed.body);
  assert.equal(chunks.at(-1), '[DONE]');
  const { messageMetadata, ...finish } = JSON.parse(chunks.at(-2));
  assert.deepEqual(finish, { type: 'finish', finishReason: 'stop' });
  assert.deepEqual(checkAccount(messageMetadata), {});
  assert.equal(JSON.parse(chunks[0]).type, 'start');
  const answer = await post(cay, 'plain', { text: 'hello' }, json);
  assert.equal(answer.status, 200);
  assert.deepEqual(Object.keys(answer.json()), ['message']);
  assert.equal(answer.json().message.role, 'assistant');
  const all = (await request(cay, `/v1/agents/${TYPE}/plain/messages`)).json().messages;
  assert.deepEqual(all.map((m) => m.role), ['user', 'assistant', 'user', 'assistant']);
  assert.deepEqual(all.at(-1), answer.json().message);
  for (const [body, status, text] of [
    [{}, 400, /send \\"messages\\"/],
    [[], 400, /must be an object/],
    [{ text: 7 }, 400, /text/],
    [{ messages: [] }, 400, /the last message must be the user's/],
    [{ messages: [{ id: 'x', role: 'assistant', parts: [] }] }, 400, /must be the user's/],
    [{ messages: [{ id: 'x\0y', role: 'user', parts: [] }] }, 400, /id.*NUL/],
    [{ message: { id: 'x\0y', role: 'user', parts: [] } }, 400, /id.*NUL/],
    [{ messages: [{ id: 'x', role: 'user\0y', parts: [] }] }, 400, /role.*NUL/],
    [{ text: 'x'.repeat(1_200_000) }, 413, /agent_message_bytes/],
  ]) {
    const refused = await post(cay, 'plain', body);
    assert.equal(refused.status, status, JSON.stringify(body).slice(0, 80));
    assert.match(refused.body, text);
  }
  const unknown = await request(cay, '/v1/agents/nosuch/x/messages', { method: 'POST', body: '{"text":"x"}', headers: { 'Content-Type': 'application/json' } });
  assert.equal(unknown.status, 404);
  assert.equal((await request(cay, `/v1/agents/${TYPE}/plain/messages`, { method: 'DELETE' })).status, 204);
  assert.deepEqual(await messages(cay, 'plain'), []);
});

test('plain HTTP: a turn can be stopped by its id; two clients get each their own answer', async (t) => {
  const cay = await withCay(t);
  const response = await fetch(`http://127.0.0.1:${cay.port}/v1/agents/${TYPE}/stop/messages`, {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ text: 'Talk for a while' }),
  });
  const waiting = say(cay, 'stop', 'Count customers by tier');
  const turn = response.headers.get('x-cay-turn');
  const path = `/v1/agents/${TYPE}/stop/turns/`;
  assert.equal((await request(cay, `${path}nosuch`, { method: 'DELETE' })).status, 404);
  assert.equal((await request(cay, path + turn, { method: 'DELETE' })).status, 204);
  const chunks = chunksOf(await response.text());
  assert.deepEqual(chunks.slice(-2), ['{"type":"abort"}', '[DONE]']);
  const { message } = await waiting;
  assert.match(message.parts.at(-1).text, /Gold: 3/);
  assert.equal((await request(cay, path + turn, { method: 'DELETE' })).status, 404);
});

test('plain HTTP: a client that leaves does not stop its turn', async (t) => {
  // Its program waits for a row.
  const code = 'export default async (env) => { while ((await env.db.query("DELETE FROM t RETURNING x")).length === 0) await new Promise((r) => setTimeout(r, 20)); console.log("on"); }';
  const cay = await withAgents(t, {
    waits: {
      agent: {
        facets: { db: { schema: 's.sql', methods: { add: { kind: 'execute', sql: 'INSERT INTO t VALUES (1)' } } } },
        env: { db: { facet: 'db' } },
        tools: [{ name: 'run', kind: 'code', description: 'runs' }],
        rpc: { add: { facet: 'db', method: 'add' } },
      },
      files: { 's.sql': 'CREATE TABLE IF NOT EXISTS t (x);' },
      demo: { preface: '', scripts: [{ when: '.', steps: [{ call: { tool: 'run', input: { code } } }, { say: 'It went on.' }] }] },
    },
  });
  const a = await Raw.ready(cay, 'gone', { type: 'waits' });
  for (const [round, headers] of [{}, json].entries()) {
    const stop = new AbortController();
    const gone = fetch(`http://127.0.0.1:${cay.port}/v1/agents/waits/gone/messages`, {
      method: 'POST', signal: stop.signal, headers: { 'Content-Type': 'application/json', ...headers },
      body: JSON.stringify({ text: 'go' }),
    }).then((r) => r.text());
    await until(() => a.frames.filter((f) => f.body?.includes('"tool-input-available"')).length > round, 'the turn');
    stop.abort();
    await assert.rejects(gone);
    a.send({ type: 'rpc', id: `r${round}`, method: 'add', args: [] });
    const list = await until(async () => {
      const all = await messages(cay, 'gone', 'waits');
      return all.length === 2 * (round + 1) && all.at(-1).parts.at(-1).text === 'It went on.' && all;
    }, 'the answer');
    assert.equal(list.at(-1).parts.find((p) => p.toolCallId).output.output, 'on');
  }
  a.close();
});

test('an instance can be removed, while it is in use too', async (t) => {
  const cay = await withCay(t);
  const remove = async (name) => (await request(cay, `/v1/agents/${TYPE}/${name}`, { method: 'DELETE' })).status;
  assert.equal(await remove('none'), 404);
  const a = await Raw.ready(cay, 'away');
  await a.turn('t1', [user('u1', 'Add a new customer named Zara')]);
  a.chat('t2', [user('u2', 'Talk for a while')]);
  await until(() => a.text('t2'), 'text');
  const waiting = say(cay, 'away', 'hello');
  await until(async () => (await messages(cay, 'away')).length === 4, 'the waiting one');
  a.send({ type: 'rpc', id: 'r', method: 'getAllCustomers', args: [] });
  assert.equal(await remove('away'), 204);
  await waiting;
  await until(() => a.closed, 'the close');
  assert.equal(a.closed.code, 1012);
  assert.match(JSON.stringify(a.frames.filter((f) => f.id === 't2').slice(-3)), /the conversation was deleted/);
  assert.ok(!existsSync(join(cay.dataDir, 'agents', TYPE, 'away')));
  const b = await Raw.ready(cay, 'away');
  assert.equal(b.frames[1].state.customers.length, 8);
  assert.deepEqual(await messages(cay, 'away'), []);
  b.close();
});

test('clients that leave in every moment leave the others whole', { timeout: 120_000 }, async (t) => {
  const cay = await withCay(t);
  const stay = await Raw.ready(cay, 'crowd');
  stay.chat('t1', [user('u1', 'Talk for a while')]);
  for (let round = 0; round < 15; round++) {
    const crowd = await Promise.all(Array.from({ length: 8 }, () => Raw.open(cay, 'crowd')));
    for (const [i, raw] of crowd.entries()) {
      if (i % 3 === 0) raw.send({ type: 'cf_agent_stream_resume_ack', id: 't1' });
      if (i % 3 === 1) raw.send({ type: 'rpc', id: 'x', method: 'getAllCustomers', args: [] });
      if (i % 2 === 0) raw.close();
    }
    await sleep(round);
    for (const raw of crowd) raw.close();
  }
  stay.send({ id: 't1', type: 'cf_agent_chat_request_cancel' });
  await stay.done('t1');
  const numbers = [...stay.text('t1').matchAll(/number (\d+) of/g)].map((m) => Number(m[1]));
  assert.deepEqual(numbers, numbers.map((_, i) => i + 1));
  stay.close();
});

test('the number of instances has a limit', async (t) => {
  const cay = await withCay(t, { config: { limits: { agent_instances: 2 } } });
  await say(cay, 'a', 'hello');
  await say(cay, 'b', 'hello');
  const third = await post(cay, 'c', { text: 'hello' });
  assert.equal(third.status, 422);
  assert.match(third.body, /2 instances of this agent \(limit agent_instances\); remove some with DELETE/);
  await assert.rejects(Raw.open(cay, 'c'));
  await request(cay, `/v1/agents/${TYPE}/a`, { method: 'DELETE' });
  assert.ok((await say(cay, 'c', 'hello')).message);
});
