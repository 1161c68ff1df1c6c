// How long the largest bodies that are allowed hold the loop, for which everybody waits: each endpoint in several
// shapes, on a server of its own, by the processor time of the longest turn of the loop (turns.c). The best of ROUNDS
// servers. Exits with 1 if one takes longer than BOUND_MS. BENCH_ONLY: an expression for the names of those to measure.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { request, startCay, tempDir, until } from '../tests/lib/cay.mjs';
import { built, isMain } from './lib.mjs';

const BOUND_MS = 5;
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 3);
const ONLY = process.env.BENCH_ONLY ? new RegExp(process.env.BENCH_ONLY) : /./;
const MB = 1 << 20;

const text = (bytes) => 'a"\\\n\u00e4 text '.repeat(bytes / 14).slice(0, bytes);
const keys = (bytes) => Object.fromEntries(Array.from({ length: bytes / 20 }, (_, i) => [`key${i}`, i]));
const rows = (bytes) => Array.from({ length: bytes / 20 }, (_, i) => ({ i, b: [] }));
const deep = (bytes) => Array.from({ length: Math.min(bytes, 1.9 * MB) / 404 }, () => JSON.parse('['.repeat(200) + ']'.repeat(200)));
const modules = (bytes) => ({ 'main.js': 'export default () => 1', ...Object.fromEntries(Array.from({ length: bytes / 64 }, (_, i) => [`m${i}.js`, `export default ${i}; // ${'x'.repeat(20)}`])) });
const code = 'export default (env, ...args) => 1';
const shapes = { text, keys, rows, deep };

async function ask(cay, method, path, body, expected = [200, 201, 202]) {
  const sent = typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
  const got = await request(cay, path, { method, body: sent, headers: { accept: 'application/json' } });
  if (!expected.includes(got.status)) throw new Error(`${method} ${path}: ${got.status} ${got.body.slice(0, 200)}`);
  return got;
}

const post = (path, make, expected) => (cay) => ask(cay, 'POST', path, make(), expected);

/** A task, to its end. */
const task = (make) => async (cay) => {
  const got = await ask(cay, 'POST', '/v1/tasks', make(), [202, 400, 413]);
  if (got.status !== 202) return;
  const path = `/v1/tasks/${JSON.parse(got.body).id}`;
  await until(async () => !/queued|running/.test(JSON.parse((await ask(cay, 'GET', path)).body).state), 'its end', 60_000);
};

async function talk(cay, frames, name = 'one', agent = 'sandbox-agent') {
  const ws = new WebSocket(`ws://127.0.0.1:${cay.port}/agents/${agent}/${name}`);
  let heard = 0;
  ws.onmessage = () => heard++;
  await new Promise((resolve, reject) => ((ws.onopen = resolve), (ws.onerror = reject)));
  for (const frame of frames) ws.send(frame);
  ws.send(JSON.stringify({ type: 'rpc', id: 'last', method: 'nothing', args: [] }));
  const waits = new Set(['last', ...frames.filter((f) => f.includes('"r1"')).map(() => 'r1')]); // the answers to come
  ws.onmessage = (m) => {
    const { type, id, success, error } = JSON.parse(m.data);
    if (type === 'rpc') waits.delete(id);
    if (id === 'r1' && !success) console.log(error);
  };
  await until(() => waits.size === 0, 'the last answer', 60_000);
  ws.close();
}

/** Asks a real API, not the built-in script. says: how it answers, if not in a word; more: { times } that it does, { hangs }
 *  when it has, { events } of the other API instead. */
const asks = (act, says, more = {}) => Object.assign(act, { asks: true, says, ...more });
const delta = (content) => ({ content });
const cut = (all, n) => Array.from({ length: Math.ceil(all.length / n) }, (_, i) => all.slice(i * n, (i + 1) * n));
// As much as the budget of the agent allows.
const SAID = 0.7 * MB;
const pieces = (n, bytes = SAID) => () => cut(text(bytes), n).map(delta);
const called = (n, bytes = SAID) => () => {
  const call = (more) => ({ tool_calls: [{ index: 0, ...more }] });
  const input = cut(JSON.stringify({ sql: 'SELECT 1', v: rows(bytes) }), n);
  return [call({ id: 'c1', type: 'function', function: { name: 'queryDatabase', arguments: '' } }), ...input.map((json) => call({ function: { arguments: json } }))];
};

/** What the other API says: a block, in one event or in many. */
const block = (content_block, deltas) => () => [
  { type: 'message_start', message: { usage: { input_tokens: 1, output_tokens: 1 } } },
  { type: 'content_block_start', index: 0, content_block },
  ...deltas().map((delta) => ({ type: 'content_block_delta', index: 0, delta })),
  { type: 'content_block_stop', index: 0 },
  { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 1 } },
  { type: 'message_stop' },
];
const thoughts = (n) => block({ type: 'thinking', thinking: '', signature: '' }, () => cut(text(SAID / 2), n).map((thinking) => ({ type: 'thinking_delta', thinking })));
const texts = (n) => block({ type: 'text', text: '' }, () => cut(text(SAID / 2), n).map((piece) => ({ type: 'text_delta', text: piece })));
const found = () => block({ type: 'web_search_tool_result', content: rows(0.9 * MB) }, () => []);
const query = (sql) => () => [{ tool_calls: [{ index: 0, id: 'c1', type: 'function', function: { name: 'queryDatabase', arguments: JSON.stringify({ sql }) } }] }];
const todos = () => [{ tool_calls: [{ index: 0, id: 'c1', type: 'function', function: { name: 'TodoWrite', arguments: JSON.stringify({ todos: rows(0.8 * MB) }) } }] }];

/** A turn, asked for by a socket and heard by n others; one who comes meanwhile or later reads it again. */
async function turn(cay, { n = 0, joins = false }) {
  const open = async (hears = () => {}) => {
    const ws = new WebSocket(`ws://127.0.0.1:${cay.port}/agents/sandbox-agent/one`);
    ws.onmessage = (m) => hears(JSON.parse(m.data), ws);
    await new Promise((resolve, reject) => ((ws.onopen = resolve), (ws.onerror = reject)));
    return ws;
  };
  const others = await Promise.all(Array.from({ length: n }, () => open()));
  let seen = 0;
  let over = false;
  const first = await open((f) => {
    if (f.type !== 'cf_agent_use_chat_response') return;
    seen += f.body.length;
    over ||= f.done;
  });
  first.send(chat(JSON.stringify({ messages: [message(14)] })));
  await until(() => over || (joins && seen > 600_000), 'the turn', 60_000);
  if (joins) {
    let read = false;
    others.push(await open((f, ws) => {
      if (f.type === 'cf_agent_stream_resuming') ws.send(JSON.stringify({ type: 'cf_agent_stream_resume_ack', id: f.id }));
      read ||= f.replayComplete === true;
    }));
    await until(() => read, 'the replay', 60_000);
  }
  for (const ws of [first, ...others]) ws.close();
}

/** An answer of several steps, and what is kept of it, in each form. */
async function recorded(cay) {
  const got = JSON.parse((await ask(cay, 'POST', '/execute/sdk', { prompt: 'x' })).body);
  await ask(cay, 'GET', `/v1/runs/${got.request_id}`);
  await ask(cay, 'GET', `/v1/runs/${got.request_id}/events`);
}

/** An agent whose methods answer with as much as a facet may. */
const count = (n, columns) => `WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ${n}) SELECT ${columns} FROM c`;
const wide = Array.from({ length: 60 }, (_, k) => `i + ${k} AS c${k}`).join(', ');
const hoarder = (state) => ({
  title: 'Hoarder', max_steps: 2, tools: [], state,
  facets: { db: { schema: 'database.sql', methods: { many: count(10_000, wide), texts: count(5, "replace(hex(zeroblob(500000)), '00', 'a\"') AS t"), touch: { kind: 'execute', sql: 'INSERT INTO t VALUES (1)' } } } },
  rpc: Object.fromEntries(['many', 'texts', 'touch'].map((m) => [m, { facet: 'db', method: m }])),
});
const owns = (state, act) => Object.assign(act, { agent: hoarder(state) });
const rpc = (method) => JSON.stringify({ type: 'rpc', id: 'r1', method, args: [] });
const calls = (bytes) => ({ id: 'a1', role: 'assistant', parts: [{ type: 'tool-q', toolCallId: 'c1', toolName: 'q', state: 'output-available', input: { v: rows(bytes / 2) }, output: { v: rows(bytes / 2) } }] });

/** With others who listen, and one who comes later. */
async function heard(cay, frames, n = 2) {
  const open = () => new WebSocket(`ws://127.0.0.1:${cay.port}/agents/sandbox-agent/one`);
  const others = Array.from({ length: n }, open);
  await Promise.all(others.map((ws) => new Promise((resolve, reject) => ((ws.onopen = resolve), (ws.onerror = reject)))));
  await talk(cay, frames);
  await talk(cay, []);
  for (const ws of others) ws.close();
}

const message = (bytes, said = text(bytes)) => ({ id: 'm1', role: 'user', parts: [{ type: 'text', text: said }] });
const messages = (n, bytes) => Array.from({ length: n }, (_, i) => ({ ...message(bytes), id: `m${i}`, role: i % 2 ? 'assistant' : 'user' }));
const chat = (body) => JSON.stringify({ type: 'cf_agent_use_chat_request', id: 't1', init: { method: 'POST', body } });

async function sandbox(cay) {
  return JSON.parse((await ask(cay, 'POST', '/v1/sandboxes', {})).body).id;
}

/** What each does to a server. What goes before is not measured apart: the longest turn is looked at. */
const cases = {
  'nothing': (cay) => ask(cay, 'GET', '/health'),
  ...Object.fromEntries(Object.entries(shapes).map(([k, make]) => [`run args ${k}`, post('/v1/run', () => ({ code, args: [make(3.7 * MB)] }))])),
  ...Object.fromEntries(Object.entries(shapes).map(([k, make]) => [`run env ${k}`, post('/v1/run', () => ({ code, env: { v: make(3.7 * MB) } }), [200, 413])])),
  'run env many': post('/v1/run', () => ({ code, env: keys(3.7 * MB) }), [200, 413]),
  'run env reset': post('/v1/run', () => ({ code, isolation: 'reset', env: { v: rows(3.7 * MB) } }), [200, 413]),
  'run module text': post('/v1/run', () => ({ code: `${code}//${'x'.repeat(3.7 * MB)}` })),
  'run modules': post('/v1/run', () => ({ mainModule: 'main.js', modules: modules(3.5 * MB) }), [200, 413]),
  'run title': post('/v1/run', () => ({ code, title: text(7 * MB) })),
  'run tails': post('/v1/run', () => ({ code, tails: rows(4 * MB) }), [200, 400]),
  'run id env': post('/v1/run', () => ({ code, id: 'warm', env: { v: rows(3.7 * MB) } }), [200, 413]),
  'run result': post('/v1/run', () => ({ code: 'export default () => "x".repeat(250000)' })),
  'run logs': post('/v1/run', () => ({ code: 'export default () => { for (let i = 0; i < 3000; i++) console.log("x".repeat(60)) }' })),
  'worker text': (cay) => ask(cay, 'PUT', '/v1/workers/w', { code: `${code}//${'x'.repeat(3.7 * MB)}` }),
  'worker modules': (cay) => ask(cay, 'PUT', '/v1/workers/w', { mainModule: 'main.js', modules: modules(3.5 * MB) }),
  'worker env rows': (cay) => ask(cay, 'PUT', '/v1/workers/w', { code, env: { v: rows(4 * MB) } }),
  'worker get': async (cay) => {
    await ask(cay, 'PUT', '/v1/workers/w', { code, env: { v: rows(4 * MB) } });
    await ask(cay, 'GET', '/v1/workers/w');
  },
  'worker call': async (cay) => {
    await ask(cay, 'PUT', '/v1/workers/w', { code: 'export default { fetch: () => new Response("x") }', env: { v: rows(3.5 * MB) }, public: true });
    await request(cay, '/', { headers: { host: `w.localhost:${cay.port}` } });
  },
  'worker often': async (cay) => {
    for (const c of 'abcdefghijkl') await ask(cay, 'PUT', '/v1/workers/w', { code: `${code}//${c.repeat(3.7 * MB)}` });
    await new Promise((r) => setTimeout(r, 1500)); // the ledger's log is put away
  },
  'worker again': async (cay) => {
    for (const c of 'abc') await ask(cay, 'PUT', '/v1/workers/w', { code: `${code}//${c.repeat(3.7 * MB)}` });
    await ask(cay, 'DELETE', '/v1/workers/w', '', [204]);
    await new Promise((r) => setTimeout(r, 200)); // what is left of it goes
  },
  'task run rows': task(() => ({ type: 'run', input: { code, args: [rows(4.5 * MB)] } })),
  'task run text': task(() => ({ type: 'run', input: { code, args: [text(15 * MB)] } })),
  'task code files': task(() => ({ type: 'code', input: { spec: 'x', files: [{ path: 'a', content: text(7 * MB) }] } })),
  'task code base64': task(() => ({ type: 'code', input: { spec: 'x', files: [{ path: 'a', content_base64: Buffer.alloc(7 * MB).toString('base64') }] } })),
  'task cancel': async (cay) => {
    const got = await ask(cay, 'POST', '/v1/tasks', { type: 'run', run_at: new Date(Date.now() + 1e6).toISOString(), input: { code, args: [text(15 * MB)] } });
    await ask(cay, 'POST', `/v1/tasks/${JSON.parse(got.body).id}/cancel`, '');
    await new Promise((r) => setTimeout(r, 200));
  },
  'task code many': task(() => ({ type: 'code', input: { spec: 'x', files: Array.from({ length: 200_000 }, (_, i) => ({ path: `f${i}`, content: 'x' })) } })),
  'task sdk': task(() => ({ type: 'execute/sdk', input: { prompt: text(800_000) } })),
  'execute': post('/execute', () => ({ task: text(3 * MB) }), [200, 400, 413]),
  'execute rows': post('/execute', () => ({ task: 'x', files: rows(3.5 * MB) }), [200, 400, 413]),
  'sdk': post('/execute/sdk', () => ({ prompt: text(900_000) }), [200, 400, 413]),
  'sdk escapes': post('/execute/sdk', () => ({ prompt: 'x' + '\u0001'.repeat(300_000) }), [200, 400, 413]),
  'code base64': post('/v1/code', () => ({ spec: 'x', files: [{ path: 'a', content_base64: Buffer.alloc(7 * MB).toString('base64') }] }), [200, 400, 413]),
  'code file': post('/v1/code', () => ({ spec: 'x', files: [{ path: 'a', content: text(7 * MB) }] }), [200, 400, 413]),
  'code files': post('/v1/code', () => ({ spec: 'x', files: Array.from({ length: 900 }, (_, i) => ({ path: `f${i}`, content: text(8000) })) }), [200, 400, 413]),
  'code refused rows': post('/v1/code', () => ({ spec: 'x', files: rows(4.5 * MB) }), [400, 413]),
  'agent post': post('/v1/agents/sandbox-agent/one/messages', () => ({ messages: [message(800_000)] }), [200, 400, 413]),
  'agent post control': post('/v1/agents/sandbox-agent/one/messages', () => ({ messages: [message(1, '\u0001'.repeat(170_000))] })),
  'agent post many': post('/v1/agents/sandbox-agent/one/messages', () => ({ messages: messages(1499, 800) })),
  'agent post small': post('/v1/agents/sandbox-agent/one/messages', () => ({ messages: messages(1499, 14) })),
  'agent post too many': post('/v1/agents/sandbox-agent/one/messages', () => ({ messages: messages(40_001, 1) }), [422]),
  'agent model': asks(post('/v1/agents/sandbox-agent/one/messages', () => ({ messages: [message(800_000)] }))),
  'agent model many': asks(post('/v1/agents/sandbox-agent/one/messages', () => ({ messages: messages(1499, 250) }))),
  'agent model tools': asks(post('/v1/agents/sandbox-agent/one/messages', () => ({ messages: [calls(550_000), { ...message(14), id: 'm2' }] }))),
  'agent again': async (cay) => {
    const sent = [message(900_000), { ...message(900_000), id: 'm2' }];
    await ask(cay, 'POST', '/v1/agents/sandbox-agent/one/messages', { messages: sent });
    await ask(cay, 'POST', '/v1/agents/sandbox-agent/one/messages', { messages: [...sent, { ...message(10), id: 'm3' }] });
    await ask(cay, 'POST', '/v1/agents/sandbox-agent/one/messages', { text: 'hello' });
    await ask(cay, 'GET', '/v1/agents/sandbox-agent/one/messages');
  },
  'agent again many': async (cay) => {
    for (const n of [1201, 1211]) await ask(cay, 'POST', '/v1/agents/sandbox-agent/one/messages', { messages: messages(n, 800) });
    await ask(cay, 'POST', '/v1/agents/sandbox-agent/one/messages', { messages: messages(1211, 800).map((m) => ({ ...m, more: 1 })) });
    await ask(cay, 'POST', '/v1/agents/sandbox-agent/one/messages', { messages: messages(1, 800) });
  },
  'agent post rows': post('/v1/agents/sandbox-agent/one/messages', () => ({ messages: rows(4.5 * MB) }), [200, 400, 413]),
  'socket chat': (cay) => talk(cay, [chat(JSON.stringify({ messages: [message(900_000)] }))]),
  'socket chat many': (cay) => talk(cay, [chat(JSON.stringify({ messages: messages(1499, 800) }))]),
  'socket chat rows': (cay) => talk(cay, [chat(JSON.stringify({ messages: rows(2.5 * MB) }))]),
  'socket unknown': (cay) => talk(cay, [JSON.stringify({ type: 'unknown', v: rows(3.7 * MB) })]),
  'socket state': (cay) => talk(cay, [JSON.stringify({ type: 'cf_agent_state', state: { v: rows(900_000) } })]),
  'socket state large': (cay) => talk(cay, [JSON.stringify({ type: 'cf_agent_state', state: { v: rows(3.7 * MB) } })]),
  'socket state heard': (cay) => heard(cay, [JSON.stringify({ type: 'cf_agent_state', state: { v: rows(900_000) } })]),
  'socket messages': (cay) => talk(cay, [JSON.stringify({ type: 'cf_agent_chat_messages', messages: [message(900_000), { ...message(900_000), id: 'm2' }] })]),
  'socket messages heard': (cay) => heard(cay, [JSON.stringify({ type: 'cf_agent_chat_messages', messages: [message(900_000), { ...message(900_000), id: 'm2' }] })]),
  'socket messages by 24': (cay) => heard(cay, [JSON.stringify({ type: 'cf_agent_chat_messages', messages: [message(900_000), { ...message(900_000), id: 'm2' }] })], 24),
  'socket state by 24': (cay) => heard(cay, [JSON.stringify({ type: 'cf_agent_state', state: { v: rows(900_000) } })], 24),
  'socket messages many': (cay) => talk(cay, [JSON.stringify({ type: 'cf_agent_chat_messages', messages: messages(1499, 800) })]),
  'rpc many rows': owns({}, (cay) => talk(cay, [rpc('many')], 'one', 'hoarder')),
  'rpc large texts': owns({}, (cay) => talk(cay, [rpc('texts')], 'one', 'hoarder')),
  'rpc state': owns({ rows: { facet: 'db', method: 'many' } }, (cay) => talk(cay, [rpc('touch')], 'one', 'hoarder')),
  'state values': owns({ v: { value: [] } }, (cay) => talk(cay, [JSON.stringify({ type: 'cf_agent_state', state: { v: rows(900_000) } }), rpc('touch')], 'one', 'hoarder')),
  'model text': asks(post('/v1/agents/sandbox-agent/one/messages', () => ({ text: 'hello' })), pieces(200)),
  'model text at once': asks(post('/v1/agents/sandbox-agent/one/messages', () => ({ text: 'hello' })), pieces(700_000)),
  'model call': asks(post('/v1/agents/sandbox-agent/one/messages', () => ({ text: 'hello' })), called(200)),
  'model call at once': asks(post('/v1/agents/sandbox-agent/one/messages', () => ({ text: 'hello' })), called(700_000)),
  'sdk model': asks(post('/execute/sdk', () => ({ prompt: text(900_000) }))),
  'sdk model escapes': asks(post('/execute/sdk', () => ({ prompt: 'x' + '\u0001'.repeat(300_000) }))),
  'sdk model text': asks(post('/execute/sdk', () => ({ prompt: 'x' })), pieces(200, 0.95 * MB)),
  'sdk model at once': asks(post('/execute/sdk', () => ({ prompt: 'x' })), pieces(700_000, 0.95 * MB)),
  'sdk model call': asks(post('/execute/sdk', () => ({ prompt: 'x' })), todos),
  'sdk model record': asks(recorded, todos, { times: 6 }),
  'sdk model found': asks(post('/execute/sdk', () => ({ prompt: 'x' }), [200, 502]), undefined, { events: found() }),
  'model thoughts': asks(post('/v1/agents/sandbox-agent/one/messages', () => ({ text: 'hello' })), undefined, { events: thoughts(200) }),
  'model thought at once': asks(post('/v1/agents/sandbox-agent/one/messages', () => ({ text: 'hello' })), undefined, { events: thoughts(900_000) }),
  'model other at once': asks(post('/v1/agents/sandbox-agent/one/messages', () => ({ text: 'hello' })), undefined, { events: texts(700_000) }),
  'model calls often': asks(post('/v1/agents/sandbox-agent/one/messages', () => ({ text: 'hello' })), called(200_000, SAID / 5), { times: 4 }),
  'model query rows': asks(post('/v1/agents/sandbox-agent/one/messages', () => ({ text: 'hello' })), query(count(18_000, 'i'))),
  'model text by 24': asks((cay) => turn(cay, { n: 24 }), pieces(700_000)),
  'model call by 24': asks((cay) => turn(cay, { n: 24 }), called(700_000)),
  'model text joined': asks((cay) => turn(cay, { joins: true }), pieces(20_000), { hangs: true }),
  'socket rpc': (cay) => talk(cay, [JSON.stringify({ type: 'rpc', id: 'x', method: 'nothing', args: [rows(3.7 * MB)] })]),
  'sandbox files': post('/v1/sandboxes', () => ({ files: [{ path: 'a', content: text(7 * MB) }] }), [201, 400, 413]),
  'sandbox base64': post('/v1/sandboxes', () => ({ files: [{ path: 'a', content_base64: Buffer.alloc(7 * MB).toString('base64') }] }), [201, 400, 413]),
  'sandbox many': post('/v1/sandboxes', () => ({ files: Array.from({ length: 900 }, (_, i) => ({ path: `f${i}`, content: text(8000) })) }), [201, 400, 413]),
  'sandbox rows': post('/v1/sandboxes', () => ({ files: rows(4.5 * MB) }), [400, 413]),
  'exec rows': async (cay) => ask(cay, 'POST', `/v1/sandboxes/${await sandbox(cay)}/exec`, { argv: rows(4.5 * MB) }, [400, 413]),
  'exec stdin': async (cay) => ask(cay, 'POST', `/v1/sandboxes/${await sandbox(cay)}/exec`, { argv: ['true'], stdin: text(7 * MB) }, [200, 400, 413]),
  'exec output': async (cay) => ask(cay, 'POST', `/v1/sandboxes/${await sandbox(cay)}/exec`, { command: 'head -c 20000000 /dev/zero | tr "\\0" "\\n"' }, [200, 400, 413]),
  'exec zeros': async (cay) => ask(cay, 'POST', `/v1/sandboxes/${await sandbox(cay)}/exec`, { command: 'head -c 2000000 /dev/zero; head -c 2000000 /dev/zero >&2' }),
  'exec events': async (cay) => {
    const path = `/v1/sandboxes/${await sandbox(cay)}/exec`;
    for (const command of ['head -c 20000000 /dev/zero | tr "\\0" "\\n"', 'head -c 20000000 /dev/zero'])
      await request(cay, path, { method: 'POST', body: JSON.stringify({ command }), headers: { accept: 'text/event-stream' } });
  },
  'file put': async (cay) => ask(cay, 'PUT', `/v1/sandboxes/${await sandbox(cay)}/files?path=/work/a`, Buffer.alloc(50 * MB, 'x'), [200, 201, 204]),
  'vercel write': async (cay) => {
    const got = JSON.parse((await ask(cay, 'POST', '/api/v2/sandboxes', { name: 'v' }, [200, 201])).body);
    const id = got.session?.id ?? got.sandbox?.currentSessionId ?? got.sandbox?.id;
    const sent = gzipSync(Buffer.alloc(50 * MB));
    const at = await request(cay, `/api/v2/sandboxes/sessions/${id}/fs/write`, { method: 'POST', body: sent, headers: { 'content-type': 'application/gzip', 'x-cwd': '/' } });
    if (at.status === 404) throw new Error(at.body);
  },
  'vercel rows': post('/api/v2/sandboxes', () => ({ name: 'v', env: rows(1_000_000) }), [400, 413]),
  'keys rows': post('/v1/keys', () => ({ name: 'k', grants: rows(4.5 * MB) }), [201, 400, 403, 413]),
  'rename rows': post('/v1/agents/sandbox-agent/one/rename', () => ({ name: rows(4.5 * MB) }), [400, 413]),
};

/** A model that says this, so many times, and from then on little. */
async function startModel({ says = () => [delta('Noted.')], events, times = 1, hangs = false }) {
  const said = events ? events() : says();
  const say = (more) => `data: ${JSON.stringify(more)}\n\n`;
  const choice = (d, reason = null) => say({ id: 'x', choices: [{ index: 0, delta: d, finish_reason: reason }] });
  const little = { events: block({ type: 'text', text: 'Noted.' }, () => [])(), says: [delta('Noted.')] };
  let left = times;
  const server = createServer((req, res) => {
    req.resume().on('end', () => {
      res.writeHead(200, { 'content-type': 'text/event-stream' });
      const now = left-- > 0 ? said : events ? little.events : little.says;
      if (events) return res.end(now.map(say).join(''));
      const spoken = now.map((d) => choice(d)).join('');
      if (hangs) res.write(spoken);
      else res.end(`${spoken}${choice({}, now.some((d) => d.tool_calls) ? 'tool_calls' : 'stop')}data: [DONE]\n\n`);
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}

function agentsDir(agent) {
  const dir = tempDir();
  mkdirSync(join(dir, 'hoarder'));
  writeFileSync(join(dir, 'hoarder/agent.json'), JSON.stringify(agent));
  writeFileSync(join(dir, 'hoarder/database.sql'), 'CREATE TABLE IF NOT EXISTS t (i)');
  writeFileSync(join(dir, 'hoarder/prompt.md'), 'Keep it.');
  return dir;
}

async function once(preload, act) {
  const file = join(tempDir(), 'turns');
  const model = await startModel(act);
  const url = `http://127.0.0.1:${model.address().port}/v1`;
  const real = act.events ? { ANTHROPIC_API_KEY: 'sk-bench', ANTHROPIC_BASE_URL: url } : { OPENAI_API_KEY: 'sk-bench', OPENAI_BASE_URL: url };
  const cay = await startCay({ args: ['--log-level', 'error', ...(act.agent ? ['--agents-dir', agentsDir(act.agent)] : [])], env: { LD_PRELOAD: preload, TURNS_FILE: file, ...(act.asks ? real : {}) } });
  try {
    await act(cay);
    await request(cay, '/health'); // the turn of the last answer is over
    return readFileSync(file).readDoubleLE(0);
  } finally {
    await cay.stop();
    model.closeAllConnections();
    model.close();
  }
}

async function main() {
  const worse = [];
  const preload = built('bench/libturns.so');
  console.log(`the longest turn of the loop (at most ${BOUND_MS} ms)`);
  for (const [name, act] of Object.entries(cases)) {
    if (!ONLY.test(name)) continue;
    let best = Infinity;
    let failed;
    for (let round = 0; round < ROUNDS && !failed; round++) await once(preload, act).then((ms) => (best = Math.min(best, ms)), (error) => (failed = error));
    if (failed || best > BOUND_MS) worse.push(name);
    console.log(`  ${name.padEnd(20)} ${failed ? `failed: ${failed.message.slice(0, 120)}` : `${best.toFixed(1).padStart(7)} ms${best > BOUND_MS ? '  too long' : ''}`}`);
  }
  if (worse.length > 0) process.exitCode = 1;
}

if (isMain(import.meta)) await main();
