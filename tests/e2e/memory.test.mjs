// What a run took of memory is told as the kernel sees it from outside, and its limit holds.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { isSanitized, request, startCay, until } from '../lib/cay.mjs';

const KiB = 1024;
const MiB = KiB * KiB;
const ownPages = (pid) => {
  try {
    return Number(/^Private_Dirty:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'latin1'))[1]) * KiB;
  } catch {
    return null; // it has ended, or is not ours to look at
  }
};

/** Looks at the pages of a process without a pause, in a thread, from start() to stop(), which gives the most that were seen. */
function watcher(pid) {
  const shared = new Int32Array(new SharedArrayBuffer(8)); // 0: waits, 1: looks, 2: is over; the most in KiB
  const thread = new Worker(
    `const { workerData: { shared, pid } } = require('node:worker_threads'); const { readFileSync } = require('node:fs');
    Atomics.wait(shared, 0, 0);
    while (Atomics.load(shared, 0) === 1) try {
      shared[1] = Math.max(shared[1], Number(/^Private_Dirty:\\s+(\\d+)/m.exec(readFileSync('/proc/' + pid + '/smaps_rollup', 'latin1'))[1]));
    } catch { break } // the process has ended`,
    { eval: true, workerData: { shared, pid } },
  );
  const set = (state) => (Atomics.store(shared, 0, state), Atomics.notify(shared, 0));
  const over = new Promise((resolve, reject) => thread.on('exit', resolve).on('error', reject));
  return { ready: new Promise((resolve) => thread.on('online', resolve)), start: () => set(1), stop: async () => (set(2), await over, shared[1] * KiB) };
}

describe('memory of programs', { skip: isSanitized || process.getuid() !== 0 ? 'needs root and the usual isolates' : false }, () => {
  let cay;
  before(async () => (cay = await startCay({ config: { limits: { ready_isolates: 4 } } })));
  after(() => cay.stop());

  /** The isolates of this server, with the pages that each has of its own. */
  function isolates() {
    const found = new Map();
    for (const name of readdirSync('/proc').filter((n) => /^\d+$/.test(n))) {
      try {
        const text = readFileSync(`/proc/${name}/status`, 'latin1');
        if (!/^Name:\tcay-isolate$/m.test(text)) continue;
        let pid = Number(name);
        for (let i = 0; i < 8 && pid > 1 && pid !== cay.pid; i++) pid = Number(/^PPid:\t(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))[1]);
        const own = pid === cay.pid && ownPages(name);
        if (own) found.set(Number(name), own);
      } catch {
        // it has just ended
      }
    }
    return found;
  }

  /** The isolates that are there; the one that a run will get is among them. */
  async function atFirst() {
    await until(async () => (await request(cay, '/v1/status')).json().isolates.ready >= 4, 'isolates that are ready');
    return isolates();
  }

  /** A run that says when it holds what it takes; then we look, and the isolate that grew most is `whose`. */
  async function watch(body, earlier, onHeld = () => {}) {
    let held = false;
    let grown = 0;
    let whose = 0;
    const record = await new Promise((resolve, reject) => {
      const req = httpRequest({ port: cay.port, path: '/v1/run', method: 'POST', headers: { accept: 'text/event-stream', 'content-type': 'application/json' } }, (res) => {
        let text = '';
        res.setEncoding('utf8');
        res.on('data', (piece) => {
          text += piece;
          if (held || !/event: log/.test(text)) return;
          held = true;
          for (const [pid, was] of earlier) {
            const more = (ownPages(pid) ?? 0) - was;
            if (more > grown) [grown, whose] = [more, pid];
          }
          onHeld(whose);
        });
        res.on('end', () => resolve(JSON.parse(/event: result\ndata: (.*)/.exec(text)[1])));
      });
      req.on('error', reject);
      req.end(JSON.stringify(body));
    });
    return { record, told: record.usage.peak_memory_bytes, grown, whose };
  }

  async function measure(code, more = {}) {
    const body = { code: `export default async () => { ${code}; console.log('held'); await new Promise((r) => setTimeout(r, 1000)); return k.length }`, ...more };
    const got = await watch(body, await atFirst());
    assert.equal(got.record.status, 'done', JSON.stringify(got.record.error));
    return got;
  }
  const isNear = ({ told, grown }, what) => assert.ok(Math.abs(told - grown) <= Math.max(grown / 10, MiB), `${what}: told ${told >> 10} KiB, grown by ${grown >> 10} KiB`);

  const programs = {
    'a buffer of 4 MiB': 'const k = new Uint8Array(4 << 20).fill(1)',
    'a buffer of 40 MiB': 'const k = new Uint8Array(40 << 20).fill(1)',
    objects: 'const k = []; for (let i = 0; i < 150000; i++) k.push({ a: i, b: [i] })',
    // Nothing of it is garbage: when the engine collects is its own affair, and we look once.
    texts: 'const k = []; for (let i = 0; i < 8000; i++) k.push(String.fromCharCode(97 + i % 26).repeat(1500 + i % 3))',
    'an array of numbers': 'const k = Array.from({ length: 1 << 20 }, (_, i) => i * 1.5)',
  };
  for (const [name, code] of Object.entries(programs)) {
    test(`fresh: ${name}`, async () => isNear(await measure(code), name));
    test(`reset: ${name}`, async () => {
      // The first run starts the process; what is measured is one that was put back.
      await measure('const k = []', { isolation: 'reset' });
      const got = await measure(code, { isolation: 'reset' });
      isNear(got, name);
    });
  }

  const trivial = 'const k = [1, 2, 3]';
  test('a small run after a large one is small, and never nothing', async () => {
    for (const more of [{}, { isolation: 'reset' }]) {
      await measure(programs['a buffer of 40 MiB'], more);
      const got = await measure(trivial, more);
      assert.ok(got.told > 0 && got.told < 12 * MiB, `${got.told} bytes`);
      // The engine may collect while it waits, which takes the pages that it shared until then.
      if (got.told >= 2 * MiB) isNear(got, `${more.isolation ?? 'fresh'} after a large one`);
    }
  });

  test('a warm program: what it holds counts in each call, the peak of another does not', async () => {
    const post = async (args) =>
      (await request(cay, '/v1/run', { method: 'POST', body: JSON.stringify({ id: 'warm-memory', code: 'let kept; export default (env, what) => { if (what === "keep") kept = new Uint8Array(20 << 20).fill(1); if (what === "drop") { kept = null; new Uint8Array(30 << 20).fill(2); } return 1 }', args }) })).json().usage.peak_memory_bytes;
    assert.ok((await post(['none'])) < 3 * MiB);
    const between = (n, low, high) => assert.ok(n >= low * MiB && n <= high * MiB, `${n >> 10} KiB`);
    between(await post(['keep']), 20, 24);
    between(await post(['none']), 20, 24);
    between(await post(['drop']), 50, 56); // both, until the first is collected
    between(await post(['none']), 0, 20); // the peak of the call before is not this one's, and what it left is collected
  });

  // Calls that the server ends itself: the program computes, or waits, until its time is over.
  const taker = (end) => `let k; export default async (env, mib) => { k = null; for (let i = 0; i < 200 && mib === 1; i++) new Uint8Array(1 << 20).fill(i); k = new Uint8Array(mib << 20).fill(1); if (mib === 20) { console.log('held'); ${end} } return 1 }`;
  const ends = { 'in a loop': 'while (true) {}', 'while it waits': 'await new Promise((r) => setTimeout(r, 1e6))' };
  const late = { wall_ms: 1000, cpu_ms: 10_000 };
  for (const [how, end] of Object.entries(ends))
    for (const mode of ['fresh', 'reset', 'warm'])
      test(`${mode}: what a call took that is ended ${how} by its time`, async () => {
        const more = mode === 'reset' ? { isolation: 'reset' } : mode === 'warm' ? { id: `late-${how.replaceAll(' ', '-')}` } : {};
        let earlier = await atFirst();
        // What was taken before in the same process, and is collected, is not this call's.
        for (const mib of mode === 'fresh' ? [] : mode === 'reset' ? [50] : [50, 1, 1])
          await request(cay, '/v1/run', { method: 'POST', body: JSON.stringify({ code: taker(end), args: [mib], ...more }) });
        if (mode === 'reset') {
          await measure(trivial, more);
          earlier = await atFirst();
        }
        const got = await watch({ code: taker(end), args: [20], limits: late, ...more }, earlier);
        assert.equal(got.record.status, 'failed');
        assert.match(got.record.error.message, /^time limit of 1000 ms exceeded/);
        assert.ok(got.told >= 20 * MiB, `${got.told} bytes`);
        // Garbage of earlier calls may go before we look; the peak in one call is looked at below.
        if (mode === 'warm') assert.ok(got.told <= got.grown + 12 * MiB, `told ${got.told >> 10} KiB, grown by ${got.grown >> 10} KiB`);
        else isNear(got, `${mode}, ${how}`);
      });

  // Nobody waits for the end of a run that is cancelled, but what it took is in its record.
  for (const [how, end] of Object.entries(ends))
    for (const mode of ['fresh', 'reset', 'warm'])
      test(`${mode}: what a call took that is cancelled ${how}`, async () => {
        const more = mode === 'reset' ? { isolation: 'reset' } : mode === 'warm' ? { id: `left-${how.replaceAll(' ', '-')}` } : {};
        if (mode === 'reset') await measure(trivial, more);
        const got = await watch({ code: taker(end), args: [20], limits: { wall_ms: 10_000, cpu_ms: 1000 }, ...more }, await atFirst(), async () => {
          const running = (await request(cay, '/v1/runs?status=running')).json().runs;
          await request(cay, `/v1/runs/${running[0].id}/cancel`, { method: 'POST' });
        });
        assert.equal(got.record.status, 'cancelled', JSON.stringify(got.record));
        isNear(got, `${mode}, ${how}`);
        assert.ok(got.record.usage.cpu_ms > 0, JSON.stringify(got.record.usage));
      });

  test('the first life of a process that is put back counts what its program took', async () => {
    for (const [name, code] of Object.entries(programs)) {
      const more = { isolation: 'reset', env: { first: name } }; // another env: another process
      await measure('const k = []', { isolation: 'reset', env: { first: `before ${name}` } });
      isNear(await measure(code, more), name);
    }
  });

  test('a warm program that has collected garbage: each call is as large as it looks from outside', async () => {
    const takes = {
      buffers: 'for (let i = 0; i < 60; i++) k = new Uint8Array(1 << 20).fill(i); k = new Uint8Array(24 << 20).fill(1)',
      objects: 'for (let j = 0; j < 20; j++) { k = []; for (let i = 0; i < 30000; i++) k.push({ a: i, b: [i] }) }',
      texts: 'for (let j = 0; j < 60; j++) k = "x".repeat(100000 + j).split("").join("y")',
    };
    for (const [name, take] of Object.entries(takes)) {
      const code = `export default async (env) => { console.log('begin'); await new Promise((r) => setTimeout(r, 100)); let k; ${take}; await new Promise((r) => setTimeout(r, 100)); return k.length }`;
      const earlier = await atFirst();
      const body = { id: `warm-${name}`, code };
      const { whose } = await watch(body, earlier); // the first call tells which isolate it is
      for (let i = 0; i < 4; i++) {
        const look = watcher(whose);
        await look.ready;
        const { record, told } = await watch(body, new Map(), look.start);
        const grown = (await look.stop()) - earlier.get(whose);
        assert.equal(record.status, 'done', JSON.stringify(record.error));
        isNear({ told, grown }, `${name}, call ${i}`);
      }
    }
  });

  test('calls that are ended at once are told apart from what they took', async () => {
    const body = JSON.stringify({ id: 'late-pair', code: taker(ends['while it waits']), args: [20], limits: late });
    await request(cay, '/v1/run', { method: 'POST', body: JSON.stringify({ id: 'late-pair', code: taker(ends['while it waits']), args: [1] }) });
    const records = await Promise.all([1, 2].map(async () => (await request(cay, '/v1/run', { method: 'POST', body })).json()));
    for (const r of records) assert.ok(r.status === 'failed' && r.usage.peak_memory_bytes >= 20 * MiB, JSON.stringify(r));
  });

  for (const mode of ['fresh', 'reset'])
    test(`${mode}: what a program took whose isolate was killed from outside`, async () => {
      const more = mode === 'reset' ? { isolation: 'reset' } : {};
      if (mode === 'reset') await measure(trivial, more);
      const got = await watch({ code: taker(ends['in a loop']), args: [20], ...more }, await atFirst(), (pid) => process.kill(pid, 'SIGKILL'));
      assert.match(got.record.error.message, /killed from outside/);
      assert.ok(got.told >= 20 * MiB, `${got.told} bytes`);
      if (mode === 'fresh') isNear(got, 'killed'); // of one that was put back the kernel knows only the most it ever had
    });

  const endless = {
    buffers: 'const k = []; while (true) k.push(new Uint8Array(300000).fill(1))',
    'large buffers': 'const k = []; while (true) k.push(new Uint8Array(3 << 20).fill(1))',
    objects: 'const k = []; while (true) k.push({ a: 1, b: [1] })',
    texts: 'let k = "x"; const all = []; while (true) all.push((k += Math.random()).split("").join(""))',
    'a map': 'const k = new Map(); for (let i = 0; ; i++) k.set(i, { i })',
  };
  for (const mib of [16, 32, 64, 128])
    for (const [name, code] of Object.entries(endless))
      test(`a limit of ${mib} MiB holds: ${name}`, async () => {
        const r = (await request(cay, '/v1/run', { method: 'POST', body: JSON.stringify({ code: `export default () => { ${code} }`, limits: { memory_bytes: mib * MiB } }) })).json();
        assert.equal(r.status, 'failed');
        assert.match(r.error.message, new RegExp(`memory limit of ${mib} MiB|[Oo]ut of memory`));
        const peak = r.usage.peak_memory_bytes;
        assert.ok(peak <= mib * MiB + Math.max((mib * MiB) / 10, 8 * MiB) && peak >= (mib * MiB) / 2, `${peak >> 10} KiB`);
      });

  for (const [name, code] of Object.entries(endless))
    test(`a limit of 48 MiB as it looks from outside: ${name}`, async () => {
      const program = `export default async (env, go) => { console.log('begin'); if (!go) { const some = new Uint8Array(4 << 20).fill(1); console.log('held'); await new Promise((r) => setTimeout(r, 100)); return some.length } await new Promise((r) => setTimeout(r, 100)); ${code} }`;
      const body = { id: `endless-${name.replaceAll(' ', '-')}`, code: program, limits: { memory_bytes: 48 * MiB } };
      const earlier = await atFirst();
      const { whose } = await watch(body, earlier);
      const look = watcher(whose);
      await look.ready;
      const { record, told } = await watch({ ...body, args: [1] }, new Map(), look.start);
      const grown = (await look.stop()) - earlier.get(whose);
      assert.equal(record.status, 'failed');
      assert.ok(grown <= 56 * MiB && grown >= 24 * MiB, `${grown >> 10} KiB`);
      assert.ok(told >= grown - Math.max(grown / 10, MiB), `told ${told >> 10} KiB, grown by ${grown >> 10} KiB`);
    });

  test('what calls of a warm program left behind costs no later call its memory', async () => {
    const peer = `import { WorkerEntrypoint } from 'cloudflare:workers'; export default class extends WorkerEntrypoint { size(text) { return text.length } }`;
    assert.equal((await request(cay, '/v1/workers/peer', { method: 'PUT', body: JSON.stringify({ code: peer }) })).status, 200);
    for (let i = 0; i < 6; i++) {
      const r = (await request(cay, '/v1/run', { method: 'POST', body: JSON.stringify({ code: 'export default (env) => env.peer.size("x".repeat(15e6))', env: { peer: { $worker: 'peer' } } }) })).json();
      assert.equal(r.result, 15e6, JSON.stringify(r.error));
    }
  });

  test('a program may have what its limit says, garbage beside it, and survives what it is refused', async () => {
    const run = async (code) => (await request(cay, '/v1/run', { method: 'POST', body: JSON.stringify({ code: `export default () => { ${code} }`, limits: { memory_bytes: 32 * MiB } }) })).json();
    assert.equal((await run('return new Uint8Array(30 << 20).fill(1).length')).result, 30 << 20);
    assert.equal((await run('let n = 0; for (let i = 0; i < 300; i++) n += new Uint8Array(1 << 20).fill(i).length; return n')).result, 300 << 20);
    assert.equal((await run('let n = 0; for (let i = 0; i < 3000; i++) n += new Array(10000).fill(i).length; return n')).result, 30000000);
    const refused = await run('try { new Uint8Array(200 << 20) } catch (e) { return e.name + [1, 2].map((x) => x * 2) }');
    assert.equal(refused.result, 'RangeError2,4', JSON.stringify(refused));
  });
});
