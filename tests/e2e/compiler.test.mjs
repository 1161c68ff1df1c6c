// The compiler is shared by all keys: what one of them sends must not hold up, or fell, what the others send.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createKey, isSanitized, request, startCay, until, withCay } from '../lib/cay.mjs';

const CPU_MS = 700;
let cay, greedy, modest, admin;
before(async () => {
  cay = await startCay({ key: true, config: { require_key: true, limits: { compile_cpu_ms: CPU_MS, compile_small_bytes: 16384 } } });
  [greedy, modest] = [cay.key, (await createKey(cay.dataDir, { name: 'modest' })).text];
  admin = (await createKey(cay.dataDir, { name: 'admin', scope: 'admin' })).text; // who sees processes
});
after(() => cay.stop());

async function run(key, code, more = {}) {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const { status, body } = await request(cay, '/v1/run', { method: 'POST', headers, body: JSON.stringify({ code, ...more }) });
  assert.equal(status, 200, body);
  return JSON.parse(body);
}

async function compilers() {
  const { body } = await request(cay, '/v1/status', { headers: { authorization: `Bearer ${admin}` } });
  return JSON.parse(body).children.filter((c) => c.name.startsWith('cay-compile'));
}

let n = 0;
const small = (key) => run(key, `export default () => ${++n}`);

test('a program that takes long to compile holds up nobody, and is told why it failed', async () => {
  await small(modest);
  const order = [];
  const generics = 'f<a<b<c<d>>>>(1);\n'.repeat(3 << 16); // 3.5 MB: seconds, whatever the machine
  const long = [1, 2].map((i) => run(greedy, `${generics}//${i}`, { language: 'ts' }).then((r) => (order.push('long'), r)));
  for (let i = 0; i < 4; i++) {
    const r = await small(modest);
    assert.equal(r.status, 'done', JSON.stringify(r));
    order.push('small');
  }
  for (const r of await Promise.all(long)) {
    assert.equal(r.status, 'failed');
    assert.match(r.error.message, /^compiling took more than 700 ms of processor time \(limit compile_cpu_ms\)/);
    assert.equal(r.error.name, 'LimitError');
  }
  assert.deepEqual(order, [...Array(4).fill('small'), 'long', 'long']);
  // It kept to its time by itself, and nobody had to be ended.
  for (const c of await compilers()) assert.equal(c.restarts, 0, JSON.stringify(c));
});

test('a small program that takes long is compiled among the large ones', async () => {
  const slow = `${'f<a<b<c<d;\n'.repeat(1400)}export default 1`; // 15 KB, some 150 ms
  const both = run(greedy, slow, { language: 'ts' });
  assert.equal((await small(modest)).status, 'done');
  assert.match((await both).error.message, /Can't find variable: f/);
  for (const c of await compilers()) assert.equal(c.restarts, 0, JSON.stringify(c));
});

test('one word of 100 KB is a program like any other', async () => {
  const r = await run(greedy, `export default () => "${'0123456789abcdef'.repeat(6250)}".length`);
  assert.equal(r.result, 100_000, JSON.stringify(r.error));
});

test('a compiler that is killed from outside costs nobody a run', async () => {
  const victim = async (name) => (await compilers()).find((c) => c.name === name);
  const { pid } = await victim('cay-compile');
  process.kill(pid, 'SIGKILL');
  const runs = Array.from({ length: 8 }, () => small(modest));
  const large = run(greedy, `${'var a = 1;'.repeat(10_000)}\nexport default () => 5`);
  const second = await until(async () => (await victim('cay-compile-large'))?.pid, 'the second process');
  process.kill(second, 'SIGKILL');
  for (const r of await Promise.all(runs)) assert.equal(r.status, 'done', JSON.stringify(r));
  assert.equal((await large).result, 5);
  assert.notEqual((await victim('cay-compile')).pid, pid);
});

test('a program that takes too much memory to compile is told so, and what to do', { timeout: 180_000, skip: isSanitized && 'a sanitizer has no such limit of memory' }, async (t) => {
  const own = await withCay(t, { config: { limits: { compile_cpu_ms: 100_000, compile_timeout_ms: 150_000 } } });
  const code = `export default () => 1; const x: any = [${'x=>x,'.repeat(830_000)}]`;
  const { error } = (await request(own, '/v1/run', { method: 'POST', body: JSON.stringify({ code, language: 'ts' }) })).json();
  assert.match(error.message, /^the compiler needs more than 1024 MiB of memory for this program: make it smaller/);
  const next = (await request(own, '/v1/run', { method: 'POST', body: JSON.stringify({ code: 'const x: number = 2; export default () => x', language: 'ts' }) })).json();
  assert.equal(next.result, 2);
});
