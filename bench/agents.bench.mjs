// What cay adds to a conversation: to a turn with one tool call, to the first token, per idle connection,
// and with many streams at once. The model is a mock in this process that answers at once, so that what
// is left is cay's (and this client's) own.
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { sleep, startCay } from '../tests/lib/cay.mjs';
import { isMain } from './lib.mjs';

const now = () => performance.now();
const at = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * q))];
const ms = (n) => `${n.toFixed(2)} ms`;
const say = (name, value, note = '') => console.log(`  ${name.padEnd(52)} ${value.padStart(14)}  ${note}`);

// --- a model that answers at once ---

const CODE = 'export default async function (env) {\n  const rows = await env.db.query("SELECT tier, COUNT(*) AS n FROM customers GROUP BY tier");\n  for (const row of rows) console.log(row.tier, row.n);\n}\n';
const event = (data) => `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;
const marks = {};

function answer(res, text, tool) {
  res.write(event({ type: 'message_start', message: { id: 'm', type: 'message', role: 'assistant', content: [], model: 'x', usage: { input_tokens: 10, output_tokens: 1 } } }));
  const block = tool ? { type: 'tool_use', id: `toolu_${Math.random()}`, name: tool.name, input: {} } : { type: 'text', text: '' };
  res.write(event({ type: 'content_block_start', index: 0, content_block: block }));
  if (tool) res.write(event({ type: 'content_block_delta', index: 0, delta: { type: 'input_json_delta', partial_json: JSON.stringify(tool.input) } }));
  else for (const piece of text) res.write(event({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: piece } }));
  res.write(event({ type: 'content_block_stop', index: 0 }));
  res.write(event({ type: 'message_delta', delta: { stop_reason: tool ? 'tool_use' : 'end_turn' }, usage: { output_tokens: 5 } }));
  res.end(event({ type: 'message_stop' }));
}

async function trickle(res, count, gap) {
  res.write(event({ type: 'message_start', message: { id: 'm', type: 'message', role: 'assistant', content: [], model: 'x', usage: { input_tokens: 1, output_tokens: 1 } } }));
  res.write(event({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } }));
  for (let i = 0; i < count; i++) {
    res.write(event({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: `word${i} ` } }));
    await sleep(gap);
  }
  res.write(event({ type: 'content_block_stop', index: 0 }));
  res.write(event({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: count } }));
  res.end(event({ type: 'message_stop' }));
}

const mock = createServer((req, res) => {
  marks.connected = now();
  const chunks = [];
  req.on('data', (chunk) => chunks.push(chunk));
  req.on('end', () => {
    marks.asked = now();
    const { messages } = JSON.parse(Buffer.concat(chunks));
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    const last = messages.at(-1);
    const results = Array.isArray(last.content) && last.content.some((c) => c.type === 'tool_result');
    const texts = messages.filter((m) => m.role === 'user').flatMap((m) => (typeof m.content === 'string' ? [m.content] : m.content.map((c) => c.text ?? '')));
    const text = texts.findLast((t) => t) ?? '';
    marks.said = now();
    if (results) answer(res, ['Done.']);
    else if (/code/.test(text)) answer(res, null, { name: 'executeCode', input: { code: CODE } });
    else if (/query/.test(text)) answer(res, null, { name: 'queryDatabase', input: { sql: 'SELECT COUNT(*) AS n FROM customers' } });
    else if (/stream/.test(text)) void trickle(res, 60, 50);
    else answer(res, ['Hello.']);
  });
});
mock.keepAliveTimeout = 60_000;
await new Promise((resolve) => mock.listen(0, '127.0.0.1', 4096, resolve));
const url = `http://127.0.0.1:${mock.address().port}`;

// --- processes ---

function family(pid) {
  const parents = new Map();
  for (const entry of readdirSync('/proc'))
    if (/^\d+$/.test(entry))
      try {
        const stat = readFileSync(`/proc/${entry}/stat`, 'utf8');
        parents.set(Number(entry), Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]));
      } catch {
        /* gone */
      }
  const all = [pid];
  for (let i = 0; i < all.length; i++) for (const [child, parent] of parents) if (parent === all[i]) all.push(child);
  return all;
}

/** Processor time of the process with those of its children that have ended, and of those that live. */
function cpuMs(pid) {
  let ticks = 0;
  for (const one of family(pid))
    try {
      const stat = readFileSync(`/proc/${one}/stat`, 'utf8');
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      ticks += fields.slice(11, 15).reduce((sum, n) => sum + Number(n), 0);
    } catch {
      /* gone */
    }
  return ticks * 10;
}

const pssKiB = (pid) => Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))[1]);

// --- clients ---

async function post(cay, name, text, onChunk = () => {}) {
  const sent = now();
  const response = await fetch(`${cay.url}/v1/agents/sandbox-agent/${name}/messages`, {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ text }),
  });
  let first = 0;
  let tail = '';
  const decoder = new TextDecoder();
  for await (const bytes of response.body) {
    const text2 = decoder.decode(bytes, { stream: true });
    tail = (tail + text2).slice(-4000);
    if (!first && tail.includes('"text-delta"')) first = now();
    onChunk(now(), text2);
  }
  if (!tail.includes('"finish"')) throw new Error(`a turn did not end well: ${tail.slice(-500)}`);
  return { sent, first, ended: now() };
}

/** The same two requests straight to the mock. */
async function direct(text, tool) {
  const sent = now();
  const ask = async (messages) => {
    const response = await fetch(`${url}/v1/messages`, { method: 'POST', body: JSON.stringify({ messages }) });
    await response.text();
  };
  await ask([{ role: 'user', content: text }]);
  if (tool) await ask([{ role: 'user', content: [{ type: 'tool_result' }] }]);
  return now() - sent;
}

async function measureTurns(cay, kind, count) {
  for (let i = 0; i < 20; i++) await post(cay, 'warm', kind);
  const own = [];
  const plain = [];
  const cpu = cpuMs(cay.pid);
  for (let i = 0; i < count; i++) {
    // A conversation of ten turns each, so that histories are as they are.
    const { sent, ended } = await post(cay, `${kind}-${Math.floor(i / 10)}`, kind);
    own.push(ended - sent);
  }
  const used = (cpuMs(cay.pid) - cpu) / count;
  for (let i = 0; i < count; i++) plain.push(await direct(kind, kind !== 'hello'));
  return { turn: at(own, 0.5), p99: at(own, 0.99), plain: at(plain, 0.5), cpu: used };
}

const env = { ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: 'x' };

async function turns() {
  const cay = await startCay({ env });
  await sleep(6000); // the compiler warms up while nobody asks
  console.log('a turn, with a model that answers at once (median of 200; two model calls where there is a tool)');
  for (const [kind, name] of [['hello', 'text only'], ['query', 'one queryDatabase'], ['code', 'one executeCode in a fresh isolate']]) {
    const { turn, p99, plain, cpu } = await measureTurns(cay, kind, 200);
    say(name, ms(turn), `p99 ${ms(p99)}; the mock alone ${ms(plain)}: cay adds ${ms(turn - plain)}, ${ms(cpu)} of processor time in all its processes`);
  }
  const added = [];
  const into = [];
  for (let i = 0; i < 300; i++) {
    const { sent, first } = await post(cay, `ttft-${Math.floor(i / 10)}`, 'hello');
    into.push(marks.asked - sent);
    added.push(first - sent - (marks.said - marks.asked));
  }
  const plain = [];
  for (let i = 0; i < 300; i++) {
    const sent = now();
    const response = await fetch(`${url}/v1/messages`, { method: 'POST', body: JSON.stringify({ messages: [{ role: 'user', content: 'hello' }] }) });
    const reader = response.body.getReader();
    await reader.read();
    plain.push(now() - sent - (marks.said - marks.asked));
    while (!(await reader.read()).done);
  }
  say('first token through cay', ms(at(added, 0.5)), `straight from the mock ${ms(at(plain, 0.5))}: cay adds ${ms(at(added, 0.5) - at(plain, 0.5))}`);
  await cay.stop();
}

function open(cay, type, name) {
  return new Promise((resolve, reject) => {
    const ws = new WebSocket(`ws://127.0.0.1:${cay.port}/agents/${type}/${name}`);
    ws.onerror = () => reject(new Error('no WebSocket'));
    ws.onmessage = ({ data }) => data.includes('cf_agent_mcp_servers') && resolve(ws);
  });
}

async function idle() {
  const dir = mkdtempSync(join(tmpdir(), 'cay-bench-'));
  mkdirSync(join(dir, 'plain-agent'));
  writeFileSync(join(dir, 'plain-agent', 'agent.json'), JSON.stringify({ state: { executions: { executions: 20 }, mood: 'calm' } }));
  for (const [title, type, count, args] of [
    ['1,000 idle conversations, each its own', 'plain-agent', 1000, ['--agents-dir', dir]],
    ['200 idle conversations with a database each', 'sandbox-agent', 200, []],
  ]) {
    const cay = await startCay({ env, args });
    (await open(cay, type, 'first')).close();
    await sleep(500);
    const before = pssKiB(cay.pid);
    const sockets = [];
    for (let i = 0; i < count; i += 50)
      sockets.push(...(await Promise.all(Array.from({ length: 50 }, (_, k) => open(cay, type, `c${i + k}`)))));
    const busy = pssKiB(cay.pid);
    await sleep(type === 'sandbox-agent' ? 14_000 : 4000);
    const rest = pssKiB(cay.pid);
    say(title, `${((rest - before) / count).toFixed(1)} KiB each`, `${((busy - before) / count).toFixed(1)} KiB each at first; the server has ${(rest / 1024).toFixed(1)} MiB`);
    for (const ws of sockets) ws.close();
    await cay.stop();
  }
  rmSync(dir, { recursive: true, force: true });
}

async function streams() {
  const cay = await startCay({ env });
  await sleep(6000); // the compiler warms up while nobody asks
  const gaps = [];
  const firsts = [];
  const cpu = cpuMs(cay.pid);
  const began = now();
  const bare = [];
  let tick = now();
  const timer = setInterval(() => {
    bare.push(now() - tick);
    tick = now();
  }, 10);
  await Promise.all(
    Array.from({ length: 200 }, async (_, i) => {
      let last = 0;
      const { sent, first } = await post(cay, `s${i}`, 'stream', (when, text) => {
        if (!text.includes('text-delta')) return;
        if (last) gaps.push(when - last);
        last = when;
      });
      firsts.push(first - sent);
    }),
  );
  clearInterval(timer);
  const took = (now() - began) / 1000;
  say('200 streaming turns at once, a word every 50 ms', `${took.toFixed(2)} s`, `gap p50 ${ms(at(gaps, 0.5))}, p99 ${ms(at(gaps, 0.99))}, longest ${ms(Math.max(...gaps))} (this process itself was late by up to ${ms(Math.max(...bare) - 10)}); first word p99 ${ms(at(firsts, 0.99))}; cay used ${((cpuMs(cay.pid) - cpu) / 10 / took).toFixed(0)} % of a core`);
  await cay.stop();
}

/** What is measured of one build beside another (against.mjs). */
export async function subject(build) {
  const cay = await startCay({ build, env });
  await sleep(6000); // as in turns()
  let n = 0;
  const turn = (kind, name) => ({
    name, unit: 'ms',
    once: async () => {
      const name2 = `${kind}-${n++}`;
      const took = [];
      for (let i = 0; i < 10; i++) {
        const { sent, ended } = await post(cay, name2, kind);
        took.push(ended - sent);
      }
      return at(took, 0.5);
    },
  });
  return { figures: [turn('hello', 'a turn of text'), turn('query', 'with queryDatabase'), turn('code', 'with executeCode')], stop: () => cay.stop() };
}

if (isMain(import.meta))
  try {
    await turns();
    await idle();
    await streams();
  } finally {
    mock.closeAllConnections();
    mock.close();
  }
