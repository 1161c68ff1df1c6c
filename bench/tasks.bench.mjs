// Tasks: how many are accepted a second, beside a bare loop of SQLite with the same settings and the same body, in turns;
// how long one waits until it starts; a hundred at once; and what one costs when a million have ended before it.
import { closeSync, fdatasyncSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

import { sleep, startCay, tempDir } from '../tests/lib/cay.mjs';
import { makeId } from '../tests/lib/store.mjs';
import { isMain } from './lib.mjs';

const now = () => performance.now();
const at = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * q))];
const ms = (n) => `${n.toFixed(2)} ms`;
const say = (name, value, note = '') => console.log(`  ${name.padEnd(52)} ${value.padStart(14)}  ${note}`);
const agent = new Agent({ keepAlive: true, maxSockets: 256 });
const input = { code: 'export default () => 42' };
const later = () => new Date(Date.now() + 3600_000).toISOString();

function call(cay, path, body, method = body ? 'POST' : 'GET') {
  return new Promise((resolve, reject) => {
    const req = request({ host: '127.0.0.1', port: cay.port, path, method, agent, headers: { 'content-type': 'application/json' } }, (res) => {
      let text = '';
      res.setEncoding('utf8').on('data', (d) => (text += d));
      res.on('end', () => (res.statusCode < 300 ? resolve(JSON.parse(text)) : reject(new Error(`${res.statusCode} ${text}`)))).on('error', reject);
    });
    req.on('error', reject);
    req.end(body && JSON.stringify(body));
  });
}

async function ended(cay, id, every = 5) {
  for (;;) {
    const t = await call(cay, `/v1/tasks/${id}`);
    if (t.finished_at) return t;
    await sleep(every);
  }
}

/** One transaction for each row, as a plain program would keep a queue. */
function plainLoop(path) {
  const db = new DatabaseSync(path);
  db.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE tasks (id TEXT PRIMARY KEY, state INTEGER, created_ms INTEGER, body TEXT)');
  const add = db.prepare('INSERT INTO tasks VALUES (?, 0, ?, ?)');
  const body = JSON.stringify(input);
  let serial = 0;
  return {
    rows(n) {
      const begun = now();
      for (let i = 0; i < n; i++) add.run(makeId('task', Date.now(), serial++), Date.now(), body);
      return n / ((now() - begun) / 1000);
    },
    close: () => db.close(),
  };
}

/** What it takes to write 4 KiB and flush them: what one acknowledgement costs at least. */
function flushes(path, n) {
  const fd = openSync(path, 'w');
  const page = Buffer.alloc(4096, 1);
  const took = [];
  for (let i = 0; i < n; i++) {
    const begun = now();
    writeSync(fd, page);
    fdatasyncSync(fd);
    took.push(now() - begun);
  }
  closeSync(fd);
  return took;
}

/** n submissions with so many under way at a time: a second. They are due in an hour. */
async function accepted(cay, n, width) {
  const begun = now();
  let left = n;
  const run_at = later();
  await Promise.all(Array.from({ length: width }, async () => {
    while (left-- > 0) await call(cay, '/v1/tasks', { type: 'run', input, run_at });
  }));
  return n / ((now() - begun) / 1000);
}

async function rate(cay, folder, rounds) {
  const plain = plainLoop(join(folder, 'plain.db'));
  const got = { plain: [], one: [], many: [], most: [] };
  const flush = [];
  for (let i = -1; i < rounds; i++) {
    flush.push(...flushes(join(folder, 'flush'), 50));
    const r = { plain: plain.rows(200), one: await accepted(cay, 200, 1), many: await accepted(cay, 1500, 16), most: await accepted(cay, 4000, 128) };
    if (i >= 0) for (const k of Object.keys(got)) got[k].push(r[k]);
  }
  plain.close();
  const per = (list) => `${Math.round(at(list, 0.5))}/s`;
  say('4 KiB written and flushed', ms(at(flush, 0.5)), 'what an acknowledgement costs at least');
  say('rows of a bare SQLite loop, one transaction each', per(got.plain), 'flushed at each commit, as tasks are');
  say('tasks accepted, one client', per(got.one), 'each waits for its answer');
  for (const [name, list] of [['16', got.many], ['128', got.most]])
    say(`tasks accepted, ${name} clients`, per(list), `${(at(list, 0.5) / at(got.plain, 0.5)).toFixed(1)} times the bare loop`);
}

/** From its record until the program looks at the clock; and until its end is seen. */
async function delay(cay, rounds) {
  const claim = [];
  const start = [];
  const whole = [];
  for (let i = -20; i < rounds; i++) {
    const begun = now();
    const t = await ended(cay, (await call(cay, '/v1/tasks', { type: 'run', input: { code: 'export default () => Date.now()' } })).id);
    if (t.state !== 'done') throw new Error(JSON.stringify(t));
    if (i < 0) continue;
    claim.push(Date.parse(t.started_at) - Date.parse(t.created_at));
    start.push(t.result.result - Date.parse(t.created_at));
    whole.push(now() - begun);
  }
  say('from submission to the claim, idle: median', ms(at(claim, 0.5)), `p90 ${ms(at(claim, 0.9))}, worst ${ms(Math.max(...claim))}`);
  say('from submission to the program, idle: median', ms(at(start, 0.5)), `p90 ${ms(at(start, 0.9))}, worst ${ms(Math.max(...start))}; aim: below 5 ms`);
  say('from submission to its end seen, idle: median', ms(at(whole, 0.5)), 'looked at every 5 ms');
}

async function together(cay, n) {
  const begun = now();
  const ids = await Promise.all(Array.from({ length: n }, () => call(cay, '/v1/tasks', { type: 'run', input }).then((t) => t.id)));
  const accepted_ = now() - begun;
  const all = await Promise.all(ids.map((id) => ended(cay, id, 50)));
  if (!all.every((t) => t.state === 'done' && t.attempt === 1)) throw new Error('a task failed');
  const took = now() - begun;
  say(`${n} tasks at once, all ended`, ms(took), `accepted in ${ms(accepted_)}; ${(took / n).toFixed(2)} ms each`);
}

/** Ended tasks of another time, as the ledger keeps them. */
function fill(dataDir, from, to) {
  const stem = makeId('task', Date.now() - 3_600_000).slice(0, -16);
  const db = new DatabaseSync(join(dataDir, 'ledger.db'));
  db.exec(`PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 10000; BEGIN;
    CREATE TEMP TABLE n AS WITH RECURSIVE n(i) AS (SELECT ${from} UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ${to})
      SELECT '${stem}' || printf('%016d', i) AS id FROM n;
    INSERT INTO tasks (id, owner, type, state, priority, timeout_ms, max_attempts, attempt, run_at_ms, created_ms, started_ms, finished_ms)
      SELECT id, '', 'run', 2, 0, 3600000, 3, 1, 0, ${Date.now()}, ${Date.now()}, ${Date.now()} FROM n;
    INSERT INTO task_results SELECT id, '{"result":42,"usage":{"cpu_ms":1,"wall_ms":2}}' FROM n;
    INSERT INTO task_attempts SELECT id, 1, 'here', 'run' || id, ${Date.now()}, ${Date.now()}, 'done', NULL, NULL FROM n;
    COMMIT; PRAGMA wal_checkpoint(TRUNCATE)`);
  db.close();
}

async function cost(dataDir, name, n) {
  const began = now();
  const cay = await startCay({ dataDir, config: config() });
  const started = now() - began;
  try {
    await together(cay, 100);
    const took = [];
    const cpu = await busy(cay, async () => {
      for (let i = 0; i < n; i++) {
        const begun = now();
        const { id } = await call(cay, '/v1/tasks', { type: 'run', input });
        await ended(cay, id);
        took.push(now() - begun);
      }
    });
    const list = [];
    for (let i = 0; i < 51; i++) {
      const begun = now();
      await call(cay, '/v1/tasks?state=done&limit=100');
      list.push(now() - begun);
    }
    say(`a task after ${name}: median to its end`, ms(at(took, 0.5)), `${ms((1000 * cpu) / n)} of the front's CPU each; a page of 100: ${ms(at(list, 0.5))}; started in ${ms(started)}`);
  } finally {
    await cay.halt();
  }
}

async function busy(cay, work) {
  const ticks = () => readFileSync(`/proc/${cay.pid}/stat`, 'utf8').split(') ')[1].split(' ').slice(11, 13).reduce((a, b) => a + Number(b), 0);
  const before = ticks();
  await work();
  return (ticks() - before) / 100;
}

const config = () => ({ tasks: { slots: 100, per_key: 100, waiting_per_key: 1_000_000 } });

export async function measure({ rounds = 5, history = Number(process.env.BENCH_HISTORY ?? 1_000_000) } = {}) {
  const folder = tempDir(null);
  const dataDir = join(folder, 'data');
  try {
    const cay = await startCay({ dataDir, config: config() });
    await delay(cay, 200);
    for (let i = 0; i < 3; i++) await together(cay, 100);
    await cay.halt();
    await cost(dataDir, 'a few', 300);
    fill(dataDir, 0, history);
    await cost(dataDir, `${history} that have ended`, 300);
    const other = await startCay({ config: config() });
    await rate(other, folder, rounds);
    await other.stop();
  } finally {
    agent.destroy();
    rmSync(folder, { recursive: true, force: true });
  }
}

if (isMain(import.meta)) await measure();
