// Many runs in a row: what grows would show. Usage: node runs.mjs COUNT
import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import http from 'node:http';
import { join } from 'node:path';
import { startCay } from '../lib/cay.mjs';
import { measure } from './measure.mjs';

const count = Number(process.argv[2] ?? 20000);
const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });

function run(port, body) {
  return new Promise((resolve, reject) => {
    const text = JSON.stringify(body);
    const req = http.request({ host: '127.0.0.1', port, path: '/v1/run', method: 'POST', agent, headers: { 'content-length': Buffer.byteLength(text) } }, (res) => {
      let out = '';
      res.setEncoding('utf8').on('data', (d) => (out += d));
      res.on('end', () => resolve(JSON.parse(out)));
    });
    req.on('error', reject).end(text);
  });
}

const cay = await startCay({ args: ['--log-level', 'warn'] });
let done = 0;
let failed = 0;
let longest = 0; // the store's log, in bytes
const start = performance.now();
async function round(upTo) {
  const target = Math.min(upTo, count);
  await Promise.all(
    Array.from({ length: 4 }, async () => {
      while (done < target) {
        const n = done++;
        const body = { code: `export default async (env) => { console.log(${n}); return (await env.db.query("SELECT ${n} AS n"))[0].n }`, env: { db: { $facet: 'soak' } } };
        if (n % 2) body.isolation = 'reset';
        const r = await run(cay.port, body);
        if (n % 50 === 0) longest = Math.max(longest, statSync(join(cay.dataDir, 'cay.db-wal')).size);
        if (r.result !== n && ++failed < 5) console.log(JSON.stringify(r).slice(0, 300));
      }
    }),
  );
}
try {
  await round(Math.max(200, Math.floor(count / 10)));
  await new Promise((r) => setTimeout(r, 1000));
  const before = measure(cay.pid);
  await round(count);
  await new Promise((r) => setTimeout(r, 12000)); // resting isolates go
  const after = measure(cay.pid);
  const seconds = (performance.now() - start) / 1000;
  console.log(`${done} runs in ${seconds.toFixed(0)} s, ${failed} failed`, { before, after, longest });
  assert.equal(failed, 0);
  assert.ok(longest > 0 && longest < 64e6, 'the log of the store grew');
  assert.ok(after.processes <= before.processes + 2, 'processes grew');
  assert.ok(after.descriptors <= before.descriptors + 8, 'descriptors grew');
  // The compile cache may fill up to its bound.
  assert.ok(after.frontKiB < before.frontKiB + 48 * 1024, 'memory grew');
} finally {
  await cay.stop();
}
