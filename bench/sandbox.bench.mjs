// Sandboxes beside a plain process, bubblewrap and crun (bench/sandbox_core.c), then over HTTP: a sandbox made, one command
// run in it and the sandbox removed, each its own request.
//
//   tools/node bench/sandbox.bench.mjs [runs]
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { buildDir, sleep, startCay } from '../tests/lib/cay.mjs';
import { built, Client, isMain } from './lib.mjs';

const RUNS = Number(process.argv[2] ?? 200);
const at = (list, q) => list.sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * q))];

/** One sandbox from its making to its end: the times of the four requests, and of all. */
async function cycle(client) {
  const ask = async (method, url, body) => {
    const { ms, json } = await client.ask(method, url, body && JSON.stringify(body));
    if (json?.error) throw new Error(`${method} ${url}: ${JSON.stringify(json)}`);
    return { ms, json };
  };
  const created = await ask('POST', '/v1/sandboxes', { files: [{ path: '/work/hello.txt', content: 'hello' }] });
  const url = `/v1/sandboxes/${created.json.id}`;
  const first = await ask('POST', `${url}/exec`, { argv: ['cat', 'hello.txt'] });
  const second = await ask('POST', `${url}/exec`, { argv: ['true'] });
  const gone = await ask('DELETE', url);
  if (first.json.stdout !== 'hello' || second.json.exit_code !== 0) throw new Error(JSON.stringify(first.json));
  const each = [created.ms, first.ms, second.ms, gone.ms];
  return [...each, each.reduce((a, b) => a + b)];
}

async function main() {
  execFileSync(built('bench/bench-sandbox'), [path.join(buildDir, 'cay-sandbox')], { stdio: 'inherit' });

  const cay = await startCay({ args: ['--log-level', 'error'] });
  const client = new Client(cay.port);
  try {
    const times = { create: [], exec: [], 'second exec': [], delete: [], 'all four': [] };
    for (let i = -10; i < RUNS; i++) {
      const each = await cycle(client);
      if (i < 0) continue; // the first ones warm up
      Object.values(times).forEach((list, k) => list.push(each[k]));
    }
    console.log(`\nover HTTP, ${RUNS} sandboxes one after the other (a file injected, two commands)`);
    for (const [name, list] of Object.entries(times))
      console.log(`  ${name.padEnd(12)} p50 ${at(list, 0.5).toFixed(2).padStart(6)} ms  p99 ${at(list, 0.99).toFixed(2).padStart(7)} ms`);
  } finally {
    client.close();
    await cay.stop();
  }
}

/** What is measured of one build beside another (against.mjs). */
export async function subject(build) {
  const cay = await startCay({ build, args: ['--log-level', 'error'] });
  const client = new Client(cay.port);
  await sleep(7000); // the compiler warms up while nobody asks
  const cycles = 40;
  const times = [];
  const figure = (name, k) => ({
    name, unit: 'ms',
    once: async () => {
      if (k === 0) times.length = 0;
      for (let i = 0; k === 0 && i < cycles; i++) times.push(await cycle(client));
      return at(times.map((each) => each[k]), 0.5);
    },
  });
  return { figures: ['create', 'exec', 'second exec', 'delete', 'all four'].map(figure), stop: () => (client.close(), cay.stop()) };
}

if (isMain(import.meta)) await main();
