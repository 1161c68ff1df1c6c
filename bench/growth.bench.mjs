// How cost grows. For each thing that clients can have more of, n and ten times n, in turns: what one of them costs may
// not grow with their number. Programs by their time (the best of some, which a busy machine changes little), what stands
// around by the processor time of the front's loop for the same request beside n and beside 10 n of them. Exits with 1 if
// something grows faster than its number by more than BOUND.
import { readFileSync } from 'node:fs';
import http from 'node:http';
import { connect } from 'node:net';
import { startCay, tempDir } from '../tests/lib/cay.mjs';
import { addRun, makeId, withStore } from '../tests/lib/store.mjs';
import { isMain } from './lib.mjs';

const BOUND = 1.6;
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 7);
const agent = new http.Agent({ keepAlive: true });

function ask(cay, method, path, body) {
  const text = body === undefined ? '' : JSON.stringify(body);
  return new Promise((resolve, reject) => {
    const req = http.request({ host: '127.0.0.1', port: cay.port, path, method, agent, headers: { 'content-length': Buffer.byteLength(text) } }, (res) => {
      let out = '';
      res.setEncoding('utf8').on('data', (d) => (out += d));
      res.on('end', () => (res.statusCode < 300 ? resolve(out) : reject(new Error(`${method} ${path}: ${res.statusCode} ${out.slice(0, 300)}`))));
    });
    req.on('error', reject).end(text);
  });
}

const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
/** Microseconds that the loop's thread has run. */
const loopUs = (cay) => Number(readFileSync(`/proc/${cay.pid}/task/${cay.pid}/schedstat`, 'utf8').split(' ')[0]) / 1e3;
let salt = 0;

// --- programs: one server, one larger program ---

async function run(cay, modules, env) {
  const out = JSON.parse(await ask(cay, 'POST', '/v1/run', { mainModule: 'main.js', modules, env }));
  if (out.status !== 'done') throw new Error(JSON.stringify(out).slice(0, 500));
  return out;
}

const db = { db: { $facet: 'growth' } };
const entry = (body, before = '') => `import { WorkerEntrypoint } from "cloudflare:workers";\n${before}\nexport default class extends WorkerEntrypoint { async run() { const { env } = this; ${body}; return ${salt++}; } }\n`;
const loop = (n, body) => ({ 'main.js': entry(body.replaceAll('$n', n)) });
const programs = [
  { name: 'source bytes', n: 30_000, once: (cay, n) => run(cay, { 'main.js': entry('', Array.from({ length: n / 30 }, (_, i) => `const f${String(i).padStart(6, '0')} = (a) => a * ${i % 10} + 10;`).join('\n')) }) },
  { name: 'modules', n: 40, once: (cay, n) => run(cay, { 'main.js': entry('m0', Array.from({ length: n }, (_, i) => `import m${i} from "./m${i}.js";`).join('\n')), ...Object.fromEntries(Array.from({ length: n }, (_, i) => [`m${i}.js`, `export default ${i};`])) }) },
  { name: 'rows', n: 1000, once: (cay, n) => run(cay, loop(n, 'const rows = await env.db.query("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < $n) SELECT x FROM c"); if (rows.length !== $n) throw new Error("rows")'), db) },
  { name: 'queries', n: 300, once: (cay, n) => run(cay, loop(n, 'for (let i = 0; i < $n; i++) await env.db.query("SELECT 1")'), db) },
  { name: 'console lines', n: 300, once: (cay, n) => run(cay, loop(n, 'for (let i = 0; i < $n; i++) console.log("line", i)')) },
];

async function measurePrograms(cay, { n, once }) {
  const best = [Infinity, Infinity];
  for (let round = -1; round < ROUNDS; round++)
    for (const [k, count] of [n, 10 * n].entries()) {
      const start = performance.now();
      await once(cay, count);
      if (round >= 0) best[k] = Math.min(best[k], performance.now() - start);
    }
  return best.map((ms, k) => (ms * 1e3) / (k ? 10 * n : n));
}

// --- what stands around: two servers, the same request ---

const execution = (cay) => run(cay, loop(1, 'await env.db.query("SELECT $n")'), db);
const standing = [
  {
    name: 'stored runs', n: 2000,
    before: (dir, n) =>
      withStore(dir, (store) => {
        const start = Date.now() - 3_600_000;
        store.exec('BEGIN');
        for (let i = 0; i < n; i++) addRun(store, { id: makeId('run', start + i), created_ms: start + i, finished_ms: start + i });
        store.exec('COMMIT');
      }),
    once: async (cay) => {
      await execution(cay);
      await ask(cay, 'GET', '/v1/runs?limit=50');
    },
  },
  {
    name: 'facets', n: 6,
    add: (cay, i) => run(cay, loop(1, 'await env.db.query("SELECT $n")'), { db: { $facet: `f${i}` } }),
    once: execution,
  },
  {
    name: 'conversations', n: 20,
    add: (cay, i) => ask(cay, 'POST', `/v1/agents/sandbox-agent/a${i}/messages`, { text: 'hello' }),
    once: (cay) => ask(cay, 'POST', `/v1/agents/sandbox-agent/b${salt++}/messages`, { text: 'hello' }),
    times: 3,
  },
  {
    name: 'sandboxes', n: 10,
    add: async (cay) => (cay.box = JSON.parse(await ask(cay, 'POST', '/v1/sandboxes', {})).id),
    once: (cay) => ask(cay, 'POST', `/v1/sandboxes/${cay.box}/exec`, { argv: ['true'] }),
  },
  {
    name: 'connections', n: 90,
    add: (cay) =>
      new Promise((resolve, reject) => {
        const socket = connect(cay.port, '127.0.0.1', () => socket.write('GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'));
        (cay.sockets ??= []).push(socket.once('data', resolve).once('error', reject));
      }),
    // Close together: twice a second the loop looks at each connection, which is linear but no cost of a request.
    once: (cay) => Promise.all(Array.from({ length: 20 }, () => ask(cay, 'GET', '/health'))),
    times: 20,
    per: 20,
  },
];

async function startWith(thing, n) {
  const dataDir = tempDir();
  const args = ['--log-level', 'error'];
  if (thing.before) {
    const first = await startCay({ dataDir, args });
    await first.halt();
    thing.before(dataDir, n);
  }
  const cay = await startCay({ dataDir, args, config: { sandboxes: { max: 150, max_per_key: 150 } } });
  for (let i = 0; thing.add && i < n; i += 10) await Promise.all(Array.from({ length: Math.min(10, n - i) }, (_, k) => thing.add(cay, i + k)));
  return cay;
}

async function measureStanding(thing) {
  const sides = [];
  const costs = [[], []];
  const times = thing.times ?? 12;
  try {
    for (const n of [thing.n, 10 * thing.n]) sides.push(await startWith(thing, n));
    for (let round = -1; round < ROUNDS; round++)
      for (const [k, cay] of sides.entries()) {
        const start = loopUs(cay);
        for (let i = 0; i < times; i++) await thing.once(cay);
        if (round >= 0) costs[k].push((loopUs(cay) - start) / times / (thing.per ?? 1));
      }
  } finally {
    for (const cay of sides) {
      for (const socket of cay.sockets ?? []) socket.destroy();
      await cay.stop();
    }
  }
  return costs.map(median);
}

async function main() {
  const worse = [];
  const tell = (name, n, [small, large], what) => {
    const ratio = large / small;
    if (ratio > BOUND) worse.push(name);
    console.log(`  ${name.padEnd(16)} ${String(n).padStart(7)} ${small.toFixed(2).padStart(10)} ${String(10 * n).padStart(9)} ${large.toFixed(2).padStart(10)} us ${what.padEnd(24)} ${ratio.toFixed(2)}${ratio > BOUND ? '  too much' : ''}`);
  };
  console.log(`what one costs among n and among 10 n (at most ${BOUND} times as much)`);
  const cay = await startCay({ args: ['--log-level', 'error'] });
  try {
    for (const one of programs) tell(one.name, one.n, await measurePrograms(cay, one), 'each');
  } finally {
    await cay.stop();
  }
  for (const one of standing)
    tell(one.name, one.n, await measureStanding(one), 'of the loop, a request');
  if (worse.length > 0) {
    console.log(`grows faster than its number: ${worse.join(', ')}`);
    process.exitCode = 1;
  }
  agent.destroy();
}

if (isMain(import.meta)) await main();
