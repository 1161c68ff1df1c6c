// 200 slow heads, bodies of 1 GiB, garbage, half-closed sockets, clients that read nothing, and 10,000
// connections opened and dropped, all at once: health keeps answering and memory stays small.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { setPriority } from 'node:os';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { isSanitized, request, sleep, slow, until, withCay } from '../lib/cay.mjs';

const lib = fileURLToPath(new URL('../lib/hostile.mjs', import.meta.url));

test('health answers within a second while others do their worst', { timeout: 150_000 }, async (t) => {
  const cay = await withCay(t);
  const memory = () => Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${cay.pid}/status`, 'utf8'))[1]) / 1024;
  // In a process of its own: what is measured is the server, not this client under load.
  const script = `const { hostileMix } = await import(${JSON.stringify(lib)});
    console.log(JSON.stringify(await hostileMix(${cay.port}, { connections: 10000 })));`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  setPriority(child.pid, 15); // what is tested is the server, not who wins the processor
  let out = '';
  child.stdout.on('data', (chunk) => (out += chunk));
  let isDone = false;
  const ended = new Promise((resolve) => child.once('close', (code) => ((isDone = true), resolve(code))));

  // Time in which the server, or this client, was ready but had no processor says nothing about the server: the
  // kernel counts it, and on a busy machine it is most of the time.
  const waited = (pid) => Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[1]) / 1e6;
  const waits = () => waited(cay.pid) + waited(process.pid);
  const times = [];
  const wall = [];
  while (!isDone) {
    const before = waits();
    const began = performance.now();
    const answer = await request(cay, '/health');
    assert.equal(answer.status, 200);
    const elapsed = performance.now() - began;
    wall.push(elapsed);
    times.push(Math.max(0, elapsed - (waits() - before)));
    await sleep(20);
  }
  assert.equal(await ended, 0);
  times.sort((a, b) => a - b);
  t.diagnostic(`health: ${times.length} requests, median ${times[times.length >> 1].toFixed(1)} ms, worst ${times.at(-1).toFixed(1)} ms (${Math.max(...wall).toFixed(1)} ms with waits for a processor)`);
  t.diagnostic(`memory: at most ${memory().toFixed(1)} MiB`);
  assert.ok(times.length > 20, `${times.length} answers`);
  assert.ok(times.at(-1) < 1000 * slow, `${times.at(-1)} ms`);
  assert.ok(memory() < (isSanitized ? 1024 : 64), `${memory()} MiB`);
  t.diagnostic(`bodies of 1 GiB: ${out.trim()} bytes went out before they were cut off`);
  // And nothing of it stays.
  const left = async () => (await request(cay, '/metrics')).body;
  await until(async () => ((body) => /cay_http_connections 1\n/.test(body) && /cay_http_requests 1\n/.test(body))(await left()), 'one connection, and its request');
});
