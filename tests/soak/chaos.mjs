// Kills children of the server at random for some seconds while programs run. Usage: node chaos.mjs SECONDS
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { request, startCay } from '../lib/cay.mjs';

const seconds = Number(process.argv[2] ?? 60);
const cay = await startCay({ args: ['--log-level', 'error'] });

function children() {
  const out = [];
  for (const d of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const stat = readFileSync(`/proc/${d}/stat`, 'utf8');
      if (Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]) === cay.pid) out.push(Number(d));
    } catch {
      // gone
    }
  }
  return out;
}

const run = async (n) => (await request(cay, '/v1/run', { method: 'POST', body: JSON.stringify({ code: `export default async (env) => (await env.db.query("SELECT ${n} AS n"))[0].n`, env: { db: { $facet: 'chaos' } } }) })).json();
const until = Date.now() + seconds * 1000;
const seen = { done: 0, failed: 0, killed: 0 };
try {
  await Promise.all([
    (async () => {
      while (Date.now() < until) {
        const list = children();
        if (list.length) {
          try {
            process.kill(list[Math.floor(Math.random() * list.length)], 'SIGKILL');
            seen.killed++;
          } catch {
            // gone
          }
        }
        await new Promise((r) => setTimeout(r, 300 + Math.random() * 700));
      }
    })(),
    ...Array.from({ length: 4 }, async () => {
      for (let n = 0; Date.now() < until; n++) {
        const r = await run(n);
        assert.ok(r.result === n || r.error, JSON.stringify(r)); // never a wrong answer
        seen[r.error ? 'failed' : 'done']++;
        assert.equal((await request(cay, '/health')).status, 200);
      }
    }),
  ]);
  // It gets well again.
  for (let i = 0; ; i++) {
    if ((await run(7)).result === 7) break;
    assert.ok(i < 40, 'programs do not run any more');
    await new Promise((r) => setTimeout(r, 500));
  }
  console.log(`${seconds} s:`, seen);
  assert.ok(seen.killed > 0 && seen.done > 0);
} finally {
  await cay.stop();
}
