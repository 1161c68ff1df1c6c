// What cay-coder adds to a model's own time. The model is a socket of this process that
// answers at once; measured are the time from starting the program to its first request, and, for each tool, from the
// answer to the next request. Both include this process's share. CAY_BUILD names the build folder.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const steps = Number(process.env.BENCH_STEPS ?? 200);
const runs = Number(process.env.BENCH_RUNS ?? 50);
const program = join(process.env.CAY_BUILD ?? join(import.meta.dirname, '../build'), 'cay-coder');

function statistics(times) {
  const sorted = times.toSorted((a, b) => a - b);
  const at = (q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))].toFixed(2);
  return `p50 ${at(0.5)} ms, p95 ${at(0.95)} ms, max ${at(1)} ms (n=${sorted.length})`;
}

/** Runs the agent over the actions; the times at which requests came and answers went. */
async function run(actions) {
  const dir = mkdtempSync(join(tmpdir(), 'cay-bench-'));
  const came = [];
  const went = [];
  const server = net.createServer((socket) => {
    let got = Buffer.alloc(0);
    socket.on('error', () => {});
    socket.on('data', (data) => {
      got = Buffer.concat([got, data]);
      const end = got.indexOf('\r\n\r\n');
      const length = end < 0 ? Infinity : Number(/content-length: (\d+)/i.exec(got.toString('latin1', 0, end))[1]);
      if (got.length < end + 4 + length) return;
      came.push(performance.now());
      const action = actions[came.length - 1] ?? { done: true, summary: '' };
      const body = JSON.stringify({ content: [{ type: 'text', text: JSON.stringify(action) }], stop_reason: 'end_turn', usage: {} });
      socket.end(`HTTP/1.1 200 OK\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
      went.push(performance.now());
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const args = ['--dir', dir, '--model', 'm', '--spec', 'x', '--base-url', `http://127.0.0.1:${server.address().port}`, '--max-steps', String(Math.max(1, actions.length))];
  const began = performance.now();
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  child.stdout.resume();
  const [code] = await once(child, 'close');
  server.close();
  rmSync(dir, { recursive: true });
  if (code !== 0) throw new Error(`exit status ${code}`);
  return { first: came[0] - began, each: went.slice(0, -1).map((t, i) => came[i + 1] - t) };
}

const first = [];
for (let i = 0; i < runs; i++) first.push((await run([])).first);
console.log(`start to first request   ${statistics(first)}`);
const tools = {
  write_file: { tool: 'write_file', args: { path: 'a.txt', content: 'x'.repeat(1000) } },
  list_files: { tool: 'list_files', args: {} },
  run_command: { tool: 'run_command', args: { command: ':' } },
};
for (const [name, action] of Object.entries(tools)) {
  const { each } = await run(Array.from({ length: steps }, () => action));
  console.log(`${name.padEnd(24)} ${statistics(each)}`);
}
