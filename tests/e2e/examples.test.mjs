// The programs of examples/ do what the README says, and the exit statuses are those of the manual.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { buildDir, request, root, runCay, tempDir, withCay } from '../lib/cay.mjs';

const example = (name) => join(root, 'examples', name);

test('examples/hello.js', async () => {
  const done = await runCay(['run', example('hello.js'), '--', 'Ada']);
  assert.deepEqual([done.code, done.stdout], [0, 'Hello, Ada.\n{\n  "letters": 3\n}\n'], done.stderr);
});

test('examples/seed.ts makes the database of examples/report.ts', async (t) => {
  const db = join(tempDir(t), 'shop.sqlite');
  const missing = await runCay(['run', example('report.ts'), '--db', db]);
  assert.equal(missing.code, 66);
  assert.match(missing.stderr, /there is no database .*shop\.sqlite: .*--create/);
  for (let i = 0; i < 2; i++) {
    const seeded = await runCay(['run', example('seed.ts'), '--db', db, '--create']);
    assert.deepEqual([seeded.code, seeded.stdout], [0, '"3 orders"\n'], seeded.stderr);
  }
  const report = await runCay(['run', example('report.ts'), '--db', db]);
  assert.deepEqual([report.code, report.stdout], [0, 'Grace: 1 orders, $49.00\nAda: 2 orders, $15.50\n2\n'], report.stderr);
});

test('examples/worker.js', async (t) => {
  const cay = await withCay(t);
  const put = await request(cay, '/v1/workers/hello', { method: 'PUT', body: JSON.stringify({ code: readFileSync(example('worker.js'), 'utf8') }) });
  assert.equal(put.status, 200, put.body);
  const call = () => request(cay, '/Ada', { headers: { Host: `hello.localhost:${cay.port}` } });
  assert.equal((await call()).body, 'Hello, Ada: call 1\n');
  assert.equal((await call()).body, 'Hello, Ada: call 2\n');
});

test('every example is run here, and every file that README.md names is there', () => {
  const here = readFileSync(new URL(import.meta.url), 'utf8');
  for (const name of readdirSync(join(root, 'examples'))) if (name !== 'README.md') assert.ok(here.includes(`'${name}'`), name);
  const named = [...readFileSync(join(root, 'README.md'), 'utf8').matchAll(/examples\/[\w.]+/g)].map((m) => m[0]);
  assert.ok(named.length > 1);
  for (const file of named) readFileSync(join(root, file));
});

test('a text and a number that look alike are told apart', async (t) => {
  const dir = tempDir(t);
  for (const [source, printed] of [['42', '42\n'], ['"42"', '"42"\n'], ['null', '']]) {
    writeFileSync(join(dir, 'x.js'), `export default () => ${source}`);
    assert.equal((await runCay(['run', join(dir, 'x.js')])).stdout, printed);
  }
});

test('the manual lists every exit status that there is', () => {
  const table = readFileSync(join(root, 'src/base/err.c'), 'utf8').matchAll(/\[(?:ERR_\w+|0)\] = \{"\w+", \d+, (\d+)\}/g);
  const others = readFileSync(join(root, 'src/base/err.h'), 'utf8').matchAll(/^ +EXIT_STATUS_\w+ =\s+(\d+)/gm);
  const statuses = [...new Set([...table, ...others].map((m) => m[1]))];
  assert.ok(statuses.length > 14);
  const manual = readFileSync(join(root, 'man/cay.1.scd'), 'utf8').split('# EXIT STATUS')[1].split('\n# ')[0];
  const listed = [...manual.matchAll(/^\*(\d+)\*$/gm)].map((m) => m[1]);
  assert.deepEqual(listed.sort(), statuses.sort());
});

test('the manual names every setting with its default, and the documentation names no other', async (t) => {
  const all = JSON.parse((await runCay(['config', 'show', '--json'], { cwd: tempDir(t) })).stdout);
  const manual = readFileSync(join(root, 'man/cay.json.5.scd'), 'utf8').replace(/\s+/g, ' ');
  const names = new Set(Object.keys(all).map((key) => key.split('.').at(-1)));
  for (const [key, { value }] of Object.entries(all)) {
    const name = key.split('.').at(-1);
    if (key.startsWith('limits.')) assert.match(manual, new RegExp(`\\*${name}\\* \\(${value}[):;,]`), key);
    else assert.ok(manual.includes(`*${name}*`), key);
  }
  const security = readFileSync(join(root, 'docs/SECURITY.md'), 'utf8');
  for (const [, name] of security.matchAll(/`([a-z_]+_(?:bytes|ms|mb|s|per_key|per_minute))`/g)) assert.ok(names.has(name), `docs/SECURITY.md names ${name}`);
});

test('exit statuses are what the manual says', async (t) => {
  const dir = tempDir(t);
  writeFileSync(join(dir, 'loop.js'), 'export default () => { for (;;); }');
  writeFileSync(join(dir, 'throws.js'), 'export default () => { throw new Error("no"); }');
  writeFileSync(join(dir, 'large.js'), `export default () => 1; // ${'x'.repeat(5 << 20)}`);
  const status = async (...args) => (await runCay(args, { env: { CAY_URL: 'http://127.0.0.1:9' } })).code;
  assert.equal(await status('run', join(dir, 'throws.js')), 1);
  assert.equal(await status('run', '--timeout', '1s', join(dir, 'loop.js')), 124);
  assert.equal(await status('run'), 2);
  assert.equal(await status('run', join(dir, 'large.js')), 65);
  assert.equal(await status('sandbox', 'ls'), 69, 'no server');
  assert.equal(await status('exec', '--timeout', '300ms', '--', 'sleep', '60'), 124);
  assert.equal(await status('exec', '--', 'nosuch'), 127);
  assert.equal(await status('exec', '--', 'sh', '-c', 'kill -9 $$'), 137);
  writeFileSync(join(dir, 'not-a-program'), '');
  assert.equal(await status('exec', '-v', `${dir}:/work/in`, '--', '/work/in/not-a-program'), 126);
  const piped = (command) => spawnSync('bash', ['-o', 'pipefail', '-c', `${command} | head -n 1`], { env: { PATH: process.env.PATH, cay: join(buildDir, 'cay') }, timeout: 60_000 }).status;
  assert.equal(piped('$cay exec -- yes'), 141, 'head has left');
  writeFileSync(join(dir, 'long.js'), 'export default () => Array.from({ length: 100_000 }, (_, i) => i)');
  assert.equal(piped(`$cay run ${dir}/long.js`), 141, 'head has left');
});

test('exit status 3: a folder was copied, but not all of it', async (t) => {
  const cay = await withCay(t);
  const dir = tempDir(t);
  const sandbox = (...args) => runCay(['sandbox', ...args], { env: { CAY_URL: cay.url } });
  assert.equal((await sandbox('create', '--name', 'box')).code, 0);
  writeFileSync(join(dir, 'file'), 'text');
  assert.equal((await sandbox('cp', dir, 'box:/work/in')).code, 0);
  assert.equal(spawnSync('mkfifo', [join(dir, 'fifo')]).status, 0);
  const into = await sandbox('cp', dir, 'box:/work/again');
  assert.equal(into.code, 3, into.stderr);
  assert.match(into.stderr, /fifo/);
  assert.equal((await sandbox('exec', 'box', 'mkfifo', '/work/in/fifo')).code, 0);
  const out = await sandbox('cp', 'box:/work/in', join(dir, 'back'));
  assert.equal(out.code, 3, out.stderr);
  assert.match(out.stderr, /fifo/);
});
