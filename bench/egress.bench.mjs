// The way out of a sandbox beside the same thing without it, on the loopback: what a route adds to a request, what a
// tunnel carries, and what the process holds when nobody uses it.
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { join } from 'node:path';
import { buildDir } from '../tests/lib/cay.mjs';
import { built, isMain } from './lib.mjs';

const requests = Number(process.env.BENCH_REQUESTS ?? 3000);
const megabytes = Number(process.env.BENCH_MEGABYTES ?? 1024);
const median = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];

async function latency(port, path, n = requests) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const times = [];
  for (let i = 0; i < n; i += 1) {
    const began = performance.now();
    const request = http.get({ host: '127.0.0.1', port, path, agent });
    const [response] = await once(request, 'response');
    response.resume();
    await once(response, 'end');
    times.push(performance.now() - began);
  }
  agent.destroy();
  return median(times);
}

async function throughput(socket, mib = megabytes) {
  let got = 0;
  const began = performance.now();
  socket.write('go');
  await new Promise((done) => {
    socket.on('data', (d) => {
      got += d.length;
      if (got >= mib * 2 ** 20) done();
    });
  });
  socket.destroy();
  return got / 2 ** 20 / ((performance.now() - began) / 1000);
}

const memory = (pid) =>
  Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))[1]) / 1024;

/** The program of a build, with a server and a source of bytes behind it. */
async function start(build) {
  process.env.CAY_EGRESS = join(build, 'cay-egress');
  process.env.CAY_EGRESS_CLI = built('tests/egress/egress-cli');
  // A module of its own for each build: it reads the environment once.
  const { connect, startEgress, startServer, startTcp } = await import(`../tests/egress/lib.mjs?${build}`);
  const cleanups = [];
  const t = { after: (f) => cleanups.unshift(f) };
  const web = await startServer(t, (request, response) => response.end('hello'));
  const piece = Buffer.alloc(1 << 20);
  const source = await startTcp(t, (s) => {
    const more = () => s.writable && s.write(piece, more);
    s.once('data', more);
  });
  const egress = await startEgress(t, { private: [`127.0.0.1:${web.port}`, `127.0.0.1:${source.port}`], events_per_second: 1 });
  const idle = memory(await egress.pid());
  const port = await egress.open('a', {
    allow: [`tcp://127.0.0.1:${source.port}`],
    routes: { r: { url: `http://127.0.0.1:${web.port}`, headers: { authorization: 'Bearer 0123456789' } } },
  });
  const stop = async () => {
    for (const cleanup of cleanups) await cleanup();
  };
  return { web, source, egress, idle, port, connect, stop };
}

async function main() {
  const { web, source, egress, idle, port, connect, stop } = await start(buildDir);
  await latency(web.port, '/');
  const direct = await latency(web.port, '/');
  const routed = await latency(port, '/_/r/');
  console.log(`a request, direct / by a route: ${direct.toFixed(3)} / ${routed.toFixed(3)} ms (median of ${requests})`);
  const plain = net.connect(source.port, '127.0.0.1');
  await once(plain, 'connect');
  const without = await throughput(plain);
  const { socket } = await connect(port, `127.0.0.1:${source.port}`);
  const within = await throughput(socket);
  console.log(`a tunnel, direct / through it: ${without.toFixed(0)} / ${within.toFixed(0)} MiB/s (${megabytes} MiB)`);
  console.log(`memory, at the start / after that (PSS): ${idle.toFixed(1)} / ${memory(await egress.pid()).toFixed(1)} MiB`);
  await stop();
}

/** What is measured of one build beside another (against.mjs). */
export async function subject(build) {
  const { source, port, connect, stop } = await start(build);
  return {
    figures: [
      { name: 'a request by a route', unit: 'ms', once: () => latency(port, '/_/r/', 200) },
      {
        name: 'a tunnel', unit: 'MiB/s', more: true,
        once: async () => throughput((await connect(port, `127.0.0.1:${source.port}`)).socket, 128),
      },
    ],
    stop,
  };
}

if (isMain(import.meta)) await main();
