// Many sandboxes in a row: what is left behind would show. Usage: node sandboxes.mjs COUNT
import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { startCay } from '../lib/cay.mjs';
import { measure } from './measure.mjs';

const count = Number(process.argv[2] ?? 5000);
const KEPT = 100; // stopped ones that the server remembers
const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
const cay = await startCay({ args: ['--log-level', 'warn'], config: { sandboxes: { keep: KEPT } } });

function ask(method, url, body) {
  return new Promise((resolve, reject) => {
    const text = body === undefined ? '' : JSON.stringify(body);
    const req = http.request({ host: '127.0.0.1', port: cay.port, path: url, method, agent, headers: { 'content-length': Buffer.byteLength(text) } }, (res) => {
      let out = '';
      res.setEncoding('utf8').on('data', (d) => (out += d));
      res.on('end', () => resolve({ status: res.statusCode, json: out ? JSON.parse(out) : null }));
    });
    req.on('error', reject).end(text);
  });
}

/** Every group of ours in every hierarchy. */
function groups(dir = '/sys/fs/cgroup', depth = 0) {
  let n = 0;
  for (const e of readdirSync(dir, { withFileTypes: true }))
    if (e.isDirectory()) n += (e.name.startsWith('cay.') || path.basename(dir).startsWith('cay.') ? 1 : 0) + (depth < 4 ? groups(path.join(dir, e.name), depth + 1) : 0);
  return n;
}

function look() {
  const folder = path.join(cay.dataDir, 'sandboxes');
  return {
    ...measure(cay.pid),
    groups: existsSync('/sys/fs/cgroup') ? groups() : 0,
    mounts: readFileSync('/proc/self/mountinfo', 'utf8').split('\n').length,
    folders: existsSync(folder) ? readdirSync(folder).length : 0,
  };
}

let done = 0;
let failed = 0;
async function one(n) {
  const made = await ask('POST', '/v1/sandboxes', { files: [{ path: '/work/n', content: String(n) }], ...(n % 5 === 0 ? { disk_mb: 64 } : {}) });
  if (made.status !== 201) return made;
  const url = `/v1/sandboxes/${made.json.id}`;
  const ran = await ask('POST', `${url}/exec`, { command: n % 7 === 0 ? 'cat n; sleep 60 & sleep 60 &' : 'cat n' });
  const gone = await ask('DELETE', url);
  return ran.json?.stdout === String(n) && gone.status < 300 ? null : { ran: ran.json, gone };
}
async function round(upTo) {
  await Promise.all(
    Array.from({ length: 6 }, async () => {
      while (done < upTo) {
        const wrong = await one(done++);
        if (wrong && ++failed < 5) console.log(JSON.stringify(wrong).slice(0, 400));
      }
    }),
  );
}

const start = performance.now();
try {
  await round(Math.max(200, Math.floor(count / 10)));
  await new Promise((r) => setTimeout(r, 2000));
  const before = look();
  await round(count);
  await new Promise((r) => setTimeout(r, 4000));
  // What is remembered of ended ones is cut to size once a minute.
  for (let i = 0; i < 90 && look().folders > KEPT; i++) await new Promise((r) => setTimeout(r, 1000));
  const after = look();
  console.log(`${done} sandboxes in ${((performance.now() - start) / 1000).toFixed(0)} s, ${failed} failed`, { before, after });
  assert.equal(failed, 0);
  assert.ok(after.processes <= before.processes + 4, 'processes grew');
  assert.ok(after.descriptors <= before.descriptors + 8, 'descriptors grew');
  assert.ok(after.frontKiB < before.frontKiB + 16 * 1024, 'memory grew');
  assert.ok(after.groups <= before.groups + 32, 'cgroups grew');
  assert.ok(after.mounts <= before.mounts, 'mounts grew');
  assert.ok(after.folders <= KEPT, 'folders grew');
} finally {
  await cay.stop();
}
