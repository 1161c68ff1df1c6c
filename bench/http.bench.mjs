// GET /health of cay beside nginx (a fixed answer of the same size) and node's http, taken in turns on
// this machine: requests a second, and processor time a request as the kernel counts it for the server.
// Then the latency of cay's health while hostile clients do their worst.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { cpus, release, setPriority, totalmem } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { request, startCay, tempDir, until } from '../tests/lib/cay.mjs';
import { isMain } from './lib.mjs';

const run = promisify(execFile);
const seconds = Number(process.env.BENCH_SECONDS ?? 3);
const rounds = Number(process.env.BENCH_ROUNDS ?? 3);
const connections = Number(process.env.BENCH_CONNECTIONS ?? 32);
const ticks = 100; // USER_HZ of Linux, whatever the machine

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Processor seconds of a process so far: user and system. */
function cpuSeconds(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / ticks;
}

async function startNginx(body) {
  const nginx = ['/usr/sbin/nginx', '/usr/bin/nginx'].find((path) => existsSync(path));
  assert.ok(nginx, 'nginx is not installed: make bench installs it');
  const dir = tempDir(null);
  const port = await freePort();
  const temps = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((t) => `${t}_temp_path ${dir}/${t};`).join(' ');
  writeFileSync(
    join(dir, 'nginx.conf'),
    `daemon off; master_process off; pid ${dir}/pid; error_log ${dir}/error.log; worker_processes 1;
     events { worker_connections 1024; }
     http { access_log off; keepalive_requests 1000000000; ${temps}
       server { listen 127.0.0.1:${port}; location /health { default_type application/json; return 200 '${body}'; } } }`,
  );
  const child = spawn(nginx, ['-p', dir, '-c', join(dir, 'nginx.conf'), '-e', join(dir, 'error.log')], { stdio: 'inherit' });
  return { name: 'nginx', port, pid: child.pid, stop: () => (child.kill('SIGKILL'), rmSync(dir, { recursive: true, force: true })) };
}

async function startNode() {
  const script = `const { createServer } = require('node:http');
    createServer((req, res) => {
      res.setHeader('content-type', 'application/json');
      res.end(JSON.stringify({ status: 'healthy', service: 'sandbox-executor', timestamp: new Date().toISOString(), version: '0.1.0' }));
    }).listen(0, '127.0.0.1', function () { console.log(this.address().port); });`;
  const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  const port = await new Promise((resolve) => child.stdout.once('data', (data) => resolve(Number(data))));
  return { name: 'node', port, pid: child.pid, stop: () => child.kill('SIGKILL') };
}

/** wrk for some seconds: requests, requests a second, processor microseconds a request. */
async function measure(server) {
  const before = cpuSeconds(server.pid);
  const { stdout } = await run('wrk', ['-t1', `-c${connections}`, `-d${seconds}s`, `http://127.0.0.1:${server.port}/health`]);
  const cpu = cpuSeconds(server.pid) - before;
  const [, requests, elapsed] = /(\d+) requests in ([\d.]+)s/.exec(stdout);
  assert.doesNotMatch(stdout, /Non-2xx|Socket errors/, `${server.name}: ${stdout}`);
  return { rate: requests / elapsed, micros: (cpu * 1e6) / requests };
}

const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];

async function sideBySide(cay) {
  const body = (await request(cay, '/health')).body;
  const servers = [{ name: 'cay', port: cay.port, pid: cay.pid, stop() {} }, await startNginx(body), await startNode()];
  try {
    for (const server of servers) {
      await until(() => request(server, '/health').catch(() => null), server.name);
      server.results = [];
    }
    const bytes = (await request(servers[1], '/health')).raw.length;
    console.log(`GET /health, ${body.length} bytes (nginx ${bytes}), ${connections} connections, ${rounds} rounds of ${seconds} s in turns, medians:`);
    for (let i = 0; i < rounds; i++) for (const server of servers) server.results.push(await measure(server));
    const [, nginx] = servers;
    const base = median(nginx.results.map((r) => r.micros));
    for (const { name, results } of servers) {
      const rate = median(results.map((r) => r.rate));
      const micros = median(results.map((r) => r.micros));
      console.log(`  ${name.padEnd(6)} ${rate.toFixed(0).padStart(8)} requests/s  ${micros.toFixed(2).padStart(7)} us CPU/request  ${(micros / base).toFixed(2)} x nginx`);
    }
  } finally {
    for (const server of servers) server.stop();
  }
}

async function underAttack(cay) {
  const lib = fileURLToPath(new URL('../tests/lib/hostile.mjs', import.meta.url));
  const script = `const { hostileMix } = await import(${JSON.stringify(lib)});
    for (;;) await hostileMix(${cay.port}, { connections: 3000, bytes: 2 ** 28 });`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: ['ignore', 'inherit', 'inherit'] });
  setPriority(child.pid, 15); // attackers have machines of their own: they must not starve the server of this one
  try {
    await until(async () => /cay_http_connections [1-9]\d\d/.test((await request(cay, '/metrics')).body), 'the attack');
    const { stdout } = await run('wrk', ['-t1', '-c2', `-d${Math.max(6, seconds * 2)}s`, '--latency', `http://127.0.0.1:${cay.port}/health`]);
    const of = (p) => new RegExp(`^ +${p}% +(\\S+)`, 'm').exec(stdout)?.[1];
    const memory = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${cay.pid}/status`, 'utf8'))[1] / 1024;
    const metrics = (await request(cay, '/metrics')).body;
    const turns = (le) => Number(new RegExp(`^cay_loop_turn_seconds_bucket\\{le="${le}"\\} (\\d+)`, 'm').exec(metrics)[1]);
    console.log(`GET /health of cay with 200 slow heads, huge bodies, garbage and dropped connections beside it:`);
    console.log(`  latency p50 ${of(50)}, p90 ${of(90)}, p99 ${of(99)} (aim: 50ms); memory at most ${memory.toFixed(1)} MiB`);
    console.log(`  of ${turns('\\+Inf')} turns of the loop ${turns('\\+Inf') - turns('0.005')} took more than 5 ms, the longest ${(1e3 * /^cay_loop_longest_turn_seconds (\S+)/m.exec(metrics)[1]).toFixed(1)} ms (with what it waited for a processor)`);
  } finally {
    child.kill('SIGKILL');
  }
}

/** What is measured of one build beside another (against.mjs). */
export async function subject(build) {
  const cay = await startCay({ build });
  const wrk = async () => {
    const { stdout } = await run('wrk', ['-t1', `-c${connections}`, '-d1s', `http://127.0.0.1:${cay.port}/health`]);
    return /(\d+) requests in ([\d.]+)s/.exec(stdout).slice(1).map(Number);
  };
  return {
    figures: [
      {
        name: 'GET /health, processor time', unit: 'us',
        once: async () => {
          const before = onCpuMicros(cay.pid);
          const [requests] = await wrk();
          return (onCpuMicros(cay.pid) - before) / requests;
        },
      },
    ],
    stop: () => cay.stop(),
  };
}

/** Finer than the ticks of cpuSeconds(): one second is short. */
const onCpuMicros = (pid) => Number(readFileSync(`/proc/${pid}/schedstat`, 'latin1').split(' ')[0]) / 1000;

async function main() {
  console.log(`${cpus().length} x ${cpus()[0].model}, ${(totalmem() / 2 ** 30).toFixed(1)} GiB, Linux ${release()}, load ${readFileSync('/proc/loadavg', 'utf8').split(' ')[0]}`);
  const cay = await startCay();
  try {
    await sideBySide(cay);
    await underAttack(cay);
  } finally {
    await cay.stop();
  }
}

if (isMain(import.meta)) await main();
