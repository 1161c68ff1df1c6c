// POST /v1/code and /execute: from the request to the agent's first question to its model, what a step adds to the
// model's own time, a repository, and many at once. The model is a mock in this process that answers at once.
import { createServer, request } from 'node:http';

import { startCay } from '../tests/lib/cay.mjs';
import { startGit } from '../tests/lib/git.mjs';
import { isMain } from './lib.mjs';

const now = () => performance.now();
const at = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * q))];
const ms = (n) => `${n.toFixed(2)} ms`;
const say = (name, value, note = '') => console.log(`  ${name.padEnd(52)} ${value.padStart(14)}  ${note}`);
const spread = (list) => `p10 ${ms(at(list, 0.1))}, p90 ${ms(at(list, 0.9))}, n=${list.length}`;

const ACTIONS = {
  nothing: () => ({ done: true, summary: 'x' }),
  files: (turn) => (turn < 20 ? { tool: 'write_file', args: { path: 'a', content: 'x' } } : { done: true, summary: 'x' }),
  commands: (turn) => (turn < 20 ? { tool: 'run_command', args: { command: ':' } } : { done: true, summary: 'x' }),
};
const asked = new Map(); // task: when each of its requests came, and was answered

const mock = createServer((req, res) => {
  const chunks = [];
  req.on('data', (c) => chunks.push(c));
  req.on('end', () => {
    const came = now();
    const { messages } = JSON.parse(Buffer.concat(chunks));
    const task = typeof messages[0].content === 'string' ? messages[0].content : messages[0].content[0].text;
    const times = asked.get(task) ?? [];
    asked.set(task, times);
    const text = JSON.stringify(ACTIONS[task.split(' ')[0]](times.length));
    res.setHeader('content-type', 'application/json');
    res.end(JSON.stringify({ id: 'm', type: 'message', role: 'assistant', model: 'x', content: [{ type: 'text', text }], stop_reason: 'end_turn', usage: { input_tokens: 1, output_tokens: 1 } }));
    times.push({ came, went: now() });
  });
});

function post(port, path, body) {
  return new Promise((resolve, reject) => {
    const sent = now();
    const req = request({ host: '127.0.0.1', port, path, method: 'POST', headers: { 'content-type': 'application/json' } }, (res) => {
      let text = '';
      res.setEncoding('utf8').on('data', (d) => (text += d));
      res.on('end', () => resolve({ sent, ended: now(), json: JSON.parse(text) })).on('error', reject);
    });
    req.on('error', reject);
    req.end(JSON.stringify(body));
  });
}

/** POST /execute as a stream: when its first and its last event came, and whether it went well. */
function stream(port, body) {
  return new Promise((resolve, reject) => {
    const sent = now();
    let first = 0;
    let text = '';
    const req = request({ host: '127.0.0.1', port, path: '/execute', method: 'POST', headers: { accept: 'text/event-stream' } }, (res) => {
      res.setEncoding('utf8').on('data', (d) => {
        first ||= now();
        text += d;
      });
      res.on('end', () => (/"success":true/.test(text) ? resolve({ sent, first, ended: now() }) : reject(new Error(text.slice(-500))))).on('error', reject);
    });
    req.on('error', reject);
    req.end(JSON.stringify(body));
  });
}

let count = 0;
/** One job: when it was sent, its requests to the model, its end. */
async function job(cay, kind, more = {}) {
  const task = `${kind} ${(count += 1)}`;
  const path = more.task === undefined ? '/v1/code' : '/execute';
  const body = path === '/execute' ? { ...more, task } : { spec: task, max_steps: 40, ...more };
  const got = await post(cay.port, path, body);
  if (got.json.status !== 'done' && got.json.success !== true) throw new Error(JSON.stringify(got.json).slice(0, 500));
  return { ...got, times: asked.get(task) };
}

export async function measure({ rounds = 60, many = 20, streams = 50 } = {}) {
  const ends = [];
  await new Promise((resolve) => mock.listen(0, '127.0.0.1', 4096, resolve));
  const git = await startGit({ after: (f) => ends.push(f) });
  const repo = git.add('repo', Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`f${i}`, `${i}\n`.repeat(100)])));
  const cay = await startCay({ config: { sandboxes: { private: [git.host], max_per_key: 64 } }, env: { ANTHROPIC_API_KEY: 'sk-test', ANTHROPIC_BASE_URL: `http://127.0.0.1:${mock.address().port}` } });
  try {
    const first = [];
    const whole = [];
    const task = [];
    const withFile = [];
    for (let i = -10; i < rounds; i++) {
      const a = await job(cay, 'nothing');
      const b = await job(cay, 'nothing', { task: '' });
      const c = await job(cay, 'nothing', { files: [{ path: 'a', content: 'x' }] });
      if (i < 0) continue;
      first.push(a.times[0].came - a.sent);
      whole.push(a.ended - a.sent);
      task.push(b.times[0].came - b.sent);
      withFile.push(c.times[0].came - c.sent);
    }
    say('/v1/code: request to the first model call, median', ms(at(first, 0.5)), `aim: below 20 ms; ${spread(first)}`);
    say('/v1/code with a file: to the first model call', ms(at(withFile, 0.5)), spread(withFile));
    say('/v1/code: a job of no steps, whole', ms(at(whole, 0.5)), spread(whole));
    say('/execute without a diff: to the first model call', ms(at(task, 0.5)), spread(task));
    const steps = {};
    for (const kind of ['files', 'commands']) {
      steps[kind] = [];
      for (let i = 0; i < 5; i++) {
        const { times } = await job(cay, kind);
        for (let k = 1; k < times.length; k++) steps[kind].push(times[k].came - times[k - 1].went);
      }
      say(`a step (${kind}): answer to the next model call`, ms(at(steps[kind], 0.5)), `aim: below 5 ms; ${spread(steps[kind])}`);
    }
    const cloned = [];
    const beyond = [];
    for (let i = 0; i < Math.ceil(rounds / 4); i++) {
      const got = await job(cay, 'nothing', { repo });
      const clone = got.json.events.find((e) => e.type === 'cloned').data.ms;
      cloned.push(clone);
      beyond.push(got.times[0].came - got.sent - clone);
    }
    say('a repository of 50 files: beyond the clone', ms(at(beyond, 0.5)), `aim: below 50 ms; the clone itself ${ms(at(cloned, 0.5))}`);
    const begun = now();
    const all = await Promise.all(Array.from({ length: many }, () => job(cay, 'commands')));
    const firsts = all.map((a) => a.times[0].came - a.sent);
    say(`${many} at once, of 20 steps each`, `${((now() - begun) / 1000).toFixed(2)} s`, `first model call: median ${ms(at(firsts, 0.5))}, worst ${ms(Math.max(...firsts))}`);
    const from = now();
    const told = await Promise.all(Array.from({ length: streams }, (_, i) => stream(cay.port, { task: `commands of a stream ${i}` })));
    const waited = told.map((s) => s.first - s.sent);
    say(`${streams} streams of /execute at once, of 20 steps each`, `${((now() - from) / 1000).toFixed(2)} s`, `first event: median ${ms(at(waited, 0.5))}, worst ${ms(Math.max(...waited))}`);
    return { first: at(first, 0.5), step: at(steps.commands, 0.5) };
  } finally {
    await cay.stop();
    for (const end of ends) await end();
    mock.closeAllConnections();
    mock.close();
  }
}

if (isMain(import.meta)) await measure();
