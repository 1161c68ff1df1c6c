// Isolates beside workerd, over HTTP, in one run: the same program, new in every cold run, in turns.
//
//   tools/node bench/isolate.bench.mjs [runs]
//
// cold   a program that no process has seen: compile, start, one query, console line, timer, result, record
// warm   the same program again by id
// query  round trips of env.db.query inside one run, and inserts
// compute  the same long computation in an isolate and in node
import { execFileSync, spawn } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { cpus, tmpdir } from 'node:os';
import path from 'node:path';
import { startCay } from '../tests/lib/cay.mjs';
import { Client, isMain } from './lib.mjs';

const root = path.resolve(import.meta.dirname, '..');
const RUNS = Number(process.argv[2] ?? 300);
const COLD_WORKERD_MAX = 1800; // it keeps every isolate and gives up after some 2,046
const harness = `import { WorkerEntrypoint } from "cloudflare:workers";
import run from "user-code.js";
export default class extends WorkerEntrypoint {
  verify() {}
  async run() { return await run(this.env); }
}
`;
const columns = '(id INTEGER PRIMARY KEY, name TEXT, email TEXT, tier TEXT, region TEXT)';
const insertInto = (table, tier = "'Gold'") => `INSERT INTO ${table} (name, email, tier, region) VALUES ('x', 'y', ${tier}, 'West')`;
/** The eight customers that every program reads, and a table for rows that are added. */
const seed = `export default async (env) => {
  for (const name of ['customers', 'visitors']) await env.db.execute('CREATE TABLE IF NOT EXISTS ' + name + ' ${columns}');
  for (let i = 0; i < 8; i++) await env.db.execute("${insertInto('customers', '?')}", ['Gold', 'Silver', 'Bronze'][i % 3]);
}`;
let counter = Math.floor(Math.random() * 1e9);

/** New text every time: names and numbers that have not been seen. */
function program() {
  const n = counter++;
  return `export default async function (env) {
  const rows${n} = await env.db.query("SELECT id, name, tier FROM customers WHERE id > ${n % 5}");
  const byTier${n} = {};
  for (const { tier } of rows${n}) byTier${n}[tier] = (byTier${n}[tier] ?? 0) + 1;
  console.log("tiers ${n}", byTier${n});
  await new Promise((resolve) => setTimeout(resolve, 0));
  return Object.entries(byTier${n}).map(([k, v]) => k + ":" + v).sort().join(",") + ":${n}";
}
`;
}

class Cay {
  constructor(name, isolation) {
    this.name = name;
    this.isolation = isolation;
  }
  async run(code, id) {
    const body = {
      mainModule: 'harness.js',
      modules: { 'harness.js': harness, 'user-code.js': code },
      verify: true,
      env: { db: { $facet: 'bench' } },
    };
    if (id) body.id = id;
    else if (this.isolation) body.isolation = this.isolation;
    const { ms, json } = await this.client.post('/v1/run', JSON.stringify(body));
    if (json.status !== 'done') throw new Error(JSON.stringify(json.error ?? json));
    return { ms, result: json.result, usage: json.usage };
  }
}

class Workerd {
  name = 'workerd';
  cold = 0;
  async start() {
    this.dir = mkdtempSync(path.join(tmpdir(), 'cay-bench-'));
    for (const f of ['config.capnp', 'server.js']) cpSync(path.join(root, 'bench/workerd', f), path.join(this.dir, f));
    cpSync(path.join(root, 'bench/workerd/config.capnp'), path.join(this.dir, 'data/.keep'), { recursive: true });
    this.port = await freePort();
    this.client = new Client(this.port);
    const bin = path.join(root, 'bench/workerd/node_modules/@cloudflare/workerd-linux-64/bin/workerd');
    this.child = spawn(bin, ['serve', 'config.capnp', '--experimental', `--socket-addr=http=127.0.0.1:${this.port}`], {
      cwd: this.dir,
      stdio: 'ignore',
    });
    for (let i = 0; ; i++) {
      try {
        await this.run('export default async () => 1', 'up');
        return;
      } catch (e) {
        if (i > 100) throw e;
        await new Promise((r) => setTimeout(r, 100));
      }
    }
  }
  async stop() {
    this.client.close();
    this.child.kill('SIGKILL');
    await new Promise((r) => this.child.once('exit', r));
    rmSync(this.dir, { recursive: true, force: true });
  }
  async run(code, id) {
    if (!id && ++this.cold % COLD_WORKERD_MAX === 0) {
      await this.stop();
      await this.start();
    }
    const { ms, json } = await this.client.post('/', JSON.stringify({ code, id }));
    if (!('result' in json)) throw new Error(JSON.stringify(json));
    return { ms, result: json.result };
  }
}

function freePort() {
  return new Promise((resolve) => {
    const s = createServer().listen(0, '127.0.0.1', () => {
      const { port } = s.address();
      s.close(() => resolve(port));
    });
  });
}

const at = (list, q) => list[Math.min(list.length - 1, Math.floor(list.length * q))];

async function series(server, n, concurrency, one) {
  const ms = [];
  const usages = [];
  let left = n;
  const start = performance.now();
  await Promise.all(
    Array.from({ length: concurrency }, async () => {
      while (left-- > 0) {
        const r = await one(server);
        ms.push(r.ms);
        if (r.usage) usages.push(r.usage);
      }
    }),
  );
  return { ms, usages, seconds: (performance.now() - start) / 1000 };
}

/** Runs the servers in turns, a slice at a time, so that a busy moment hits all of them. */
async function compare(title, servers, n, concurrency, one) {
  const sums = servers.map(() => ({ ms: [], usages: [], seconds: 0 }));
  const slices = 6;
  for (let s = 0; s < slices; s++)
    for (let i = 0; i < servers.length; i++) {
      const r = await series(servers[i], Math.ceil(n / slices), concurrency, one);
      sums[i].ms.push(...r.ms);
      sums[i].usages.push(...r.usages);
      sums[i].seconds += r.seconds;
    }
  const rows = servers.map((server, i) => {
    const ms = sums[i].ms.sort((a, b) => a - b);
    return { server: server.name, p50: at(ms, 0.5), p99: at(ms, 0.99), rate: ms.length / sums[i].seconds, usages: sums[i].usages };
  });
  const peer = rows.find((r) => r.server === 'workerd');
  console.log(`\n${title}, concurrency ${concurrency} (${n} each)`);
  for (const r of rows)
    console.log(
      `  ${r.server.padEnd(12)} p50 ${r.p50.toFixed(2).padStart(7)} ms  p99 ${r.p99.toFixed(2).padStart(7)} ms  ` +
        `${r.rate.toFixed(0).padStart(6)}/s` +
        (r === peer ? '' : `   ${(peer.p50 / r.p50).toFixed(1)}x p50, ${(r.rate / peer.rate).toFixed(1)}x rate`),
    );
  return rows;
}

function stages(row) {
  const avg = (f) => (row.usages.reduce((a, u) => a + f(u), 0) / row.usages.length).toFixed(2);
  console.log(
    `  ${row.server}: compiled after ${avg((u) => u.compiled_ms)} ms, isolate at hand after ${avg((u) => u.started_ms)} ms, ` +
      `done after ${avg((u) => u.wall_ms)} ms (processor ${avg((u) => u.cpu_ms)} ms); the rest is HTTP and the client`,
  );
}

/** Numbers, objects, strings and sorting; returns milliseconds, timed by itself. */
function computation() {
  const start = performance.now();
  let x = 0.5;
  let sum = 0;
  for (let i = 0; i < 2e7; i++) {
    x = x * 3.9 * (1 - x);
    sum += x > 0.5 ? i & 7 : -(i & 3);
  }
  const sieve = new Uint8Array(4e6);
  let primes = 0;
  for (let i = 2; i < sieve.length; i++) {
    if (sieve[i]) continue;
    primes++;
    for (let k = i * 2; k < sieve.length; k += i) sieve[k] = 1;
  }
  const words = new Map();
  for (let i = 0; i < 400000; i++) {
    const key = 'w' + ((i * 7919) % 5003);
    words.set(key, (words.get(key) ?? 0) + 1);
  }
  const people = Array.from({ length: 200000 }, (_, i) => ({ id: i, rank: (i * 48271) % 65537 }));
  people.sort((a, b) => a.rank - b.rank || a.id - b.id);
  const text = JSON.stringify(people.slice(0, 20000).map(({ id, rank }) => ({ id, rank, name: `n${id}` })));
  const back = JSON.parse(text);
  return { ms: performance.now() - start, check: [Math.round(sum), primes, words.size, people[9].id, back.length].join() };
}

async function compute(cay) {
  const best = { cay: Infinity, node: Infinity };
  let check;
  for (let i = 0; i < 5; i++) {
    const here = JSON.parse(execFileSync(process.execPath, ['-e', `console.log(JSON.stringify((${computation})()))`], { encoding: 'utf8' }));
    const code = `${computation}\nexport default async () => computation(); // ${counter++}`;
    const there = (await cay.run(code)).result;
    if (here.check !== there.check || (check ??= here.check) !== here.check) throw new Error(`results differ: ${here.check} and ${there.check}`);
    best.node = Math.min(best.node, here.ms);
    best.cay = Math.min(best.cay, there.ms);
  }
  console.log(`\ncompute: cay ${best.cay.toFixed(0)} ms, node ${best.node.toFixed(0)} ms: ${(best.cay / best.node).toFixed(2)} of node's time`);
}

/** Live isolates that wait in the middle of a run, so that as many as asked for are there at once. */
async function liveMemory(cay, pid, n) {
  const wait = 'export default async (env) => { await env.db.query("SELECT 1"); console.log("here"); await new Promise((r) => setTimeout(r, 4000)); }';
  const runs = Array.from({ length: n }, () => cay.run(`${wait} // ${counter++}`));
  await new Promise((r) => setTimeout(r, 2500));
  isolateMemory(pid, `memory per isolate with ${n} at work`);
  await Promise.all(runs);
}

function isolateMemory(front, title = 'memory per waiting isolate') {
  // Processes forked ahead that wait: children of the zygotes, which are children of the front.
  const parents = new Map();
  for (const d of readdirSync('/proc').filter((d) => /^\d+$/.test(d))) {
    try {
      const stat = readFileSync(`/proc/${d}/stat`, 'utf8');
      const ppid = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
      const name = stat.slice(stat.indexOf('(') + 1, stat.lastIndexOf(')'));
      parents.set(Number(d), { ppid, name });
    } catch {
      // gone
    }
  }
  const zygotes = [...parents].filter(([, p]) => p.ppid === front && p.name.startsWith('cay-isolate')).map(([pid]) => pid);
  const pss = [];
  const dirty = [];
  for (const [pid, p] of parents) {
    if (!zygotes.includes(p.ppid) || p.name === 'cay-isolate-ini') continue;
    try {
      const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
      pss.push(Number(/^Pss:\s+(\d+)/m.exec(text)[1]));
      dirty.push(Number(/^Private_Dirty:\s+(\d+)/m.exec(text)[1]));
    } catch {
      // gone, or not ours to read
    }
  }
  const mib = (l) => (l.reduce((a, b) => a + b, 0) / l.length / 1024).toFixed(2);
  if (pss.length) console.log(`\n${title} (${pss.length} processes): PSS ${mib(pss)} MiB, private dirty ${mib(dirty)} MiB`);
}

async function main() {
  console.log(`${cpus().length} x ${cpus()[0].model}, node ${process.version}`);
  const server = await startCay({ args: ['--log-level', 'error'] });
  const fresh = new Cay('cay fresh');
  const reset = new Cay('cay reset', 'reset');
  const workerd = new Workerd();
  fresh.client = reset.client = new Client(server.port);
  try {
    await workerd.start();
    await fresh.run(seed);
    await new Promise((r) => setTimeout(r, 7000)); // the compiler warms up while nobody asks, and a planned zygote takes over
    isolateMemory(server.pid);
    await liveMemory(fresh, server.pid, 32);
    await reset.run(program());
    await new Promise((r) => setTimeout(r, 1000));
    const cold = (s) => s.run(program());
    const all = [fresh, reset, workerd];
    for (const s of all) await series(s, 20, 1, cold);
    const rows = await compare('cold', all, RUNS, 1, cold);
    stages(rows[0]);
    stages(rows[1]);
    await compare('cold', all, RUNS, 8, cold);
    await compare('cold', all, RUNS, 32, cold);
    const same = program();
    await compare('warm by id', [fresh, workerd], RUNS * 2, 1, (s) => s.run(same, 'bench-warm'));
    const loops = 1000;
    for (const [title, statement, method] of [
      ['env.db.query', 'SELECT id, name, tier FROM customers WHERE id = 3', 'query'],
      ['insert', insertInto('customers'), 'execute'], // the last to be measured: workerd has no other table
    ]) {
      const us = {};
      for (let i = 0; i < 15; i++)
        for (const s of [fresh, workerd]) {
          // From outside, since not every program has a clock, with the start taken off.
          const body = `export default async (env) => { for (let i = 0; i < ${loops}; i++) await env.db.${method}(${JSON.stringify(statement)}); return ${counter++}; }`;
          const empty = `export default async (env) => ${counter++}`;
          const r = await s.run(body);
          const e = await s.run(empty);
          (us[s.name] ??= []).push(((r.ms - e.ms) / loops) * 1000);
        }
      const p50 = (n) => at(us[n].sort((a, b) => a - b), 0.5);
      console.log(
        `\n${title}: cay ${p50('cay fresh').toFixed(1)} us, workerd ${p50('workerd').toFixed(1)} us: ${(p50('workerd') / p50('cay fresh')).toFixed(1)}x`,
      );
    }
    await compute(fresh);
  } finally {
    fresh.client.close();
    await workerd.stop();
    await server.stop();
  }
}

/** What is measured of one build beside another (against.mjs). */
export async function subject(build) {
  const server = await startCay({ build, args: ['--log-level', 'error'] });
  const fresh = new Cay('cay fresh');
  const reset = new Cay('cay reset', 'reset');
  fresh.client = reset.client = new Client(server.port);
  await fresh.run(seed);
  await new Promise((r) => setTimeout(r, 7000)); // as in main()
  const p50 = async (n, concurrency, one) => at((await series(fresh, n, concurrency, one)).ms.sort((a, b) => a - b), 0.5);
  const rate = async (server, n, concurrency) => n / (await series(server, n, concurrency, () => server.run(program()))).seconds;
  const loop = (n, method, statement) =>
    `export default async (env) => { for (let i = 0; i < ${n}; i++) await env.db.${method}(${JSON.stringify(statement)}); return ${counter++}; }`;
  const calls = async (method, statement) => {
    const n = 300;
    const r = await fresh.run(loop(n, method, statement));
    return ((r.ms - (await fresh.run(`export default async (env) => ${counter++}`)).ms) / n) * 1000;
  };
  const query = 'SELECT id, name, tier FROM customers WHERE id = 3';
  const insert = insertInto('visitors'); // what the programs read must not grow
  const together = async (method, statement) => 16 / (await series(fresh, 16, 8, () => fresh.run(loop(1000, method, statement)))).seconds;
  const same = program();
  return {
    figures: [
      { name: 'cold, fresh', unit: 'ms', once: () => p50(20, 1, () => fresh.run(program())) },
      { name: 'cold, reset', unit: 'ms', once: () => p50(20, 1, () => reset.run(program())) },
      { name: 'cold, fresh, 8 at once', unit: '/s', more: true, once: () => rate(fresh, 48, 8) },
      { name: 'cold, reset, 8 at once', unit: '/s', more: true, once: () => rate(reset, 48, 8) },
      { name: 'cold, fresh, 32 at once', unit: '/s', more: true, once: () => rate(fresh, 96, 32) },
      { name: 'cold, reset, 32 at once', unit: '/s', more: true, once: () => rate(reset, 96, 32) },
      { name: 'warm by id', unit: 'ms', once: () => p50(60, 1, () => fresh.run(same, 'bench-warm')) },
      { name: 'env.db.query', unit: 'us', once: () => calls('query', query) },
      { name: 'insert', unit: 'us', once: () => calls('execute', insert) },
      { name: '8 programs of 1,000 queries', unit: '/s', more: true, once: () => together('query', query) },
      { name: '8 programs of 1,000 inserts', unit: '/s', more: true, once: () => together('execute', insert) },
    ],
    stop: () => (fresh.client.close(), server.stop()),
  };
}

if (isMain(import.meta)) await main();
