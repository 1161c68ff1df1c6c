// cay-coder as the one that tells what changed: its diff makes of the old files the new ones, as git sees them, and whatever lies in
// the folder, nothing of it is run, followed or left out without a word.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, lstatSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

const { CAY_CODER } = process.env;
const KIND = { entry: 1, change: 2, content: 3, diff: 4, left: 5, end: 6 };

function run(args, input = '') {
  const done = spawnSync(CAY_CODER, args, { input, maxBuffer: 128 << 20 });
  return { code: done.status, out: done.stdout, err: String(done.stderr) };
}

function records(bytes) {
  const list = [];
  for (let at = 0; at < bytes.length; ) {
    const n = bytes.readUInt32LE(at + 1);
    list.push({ kind: bytes[at], data: bytes.subarray(at + 5, at + 5 + n) });
    at += 5 + n;
  }
  return list;
}
const path = (r) => r.data.subarray(4, 4 + r.data.readUInt32LE(0)).toString('latin1');
const diffOf = (list) => Buffer.concat(list.filter((r) => r.kind === KIND.diff).map((r) => r.data));
const paths = (list, kind) => list.filter((r) => r.kind === kind).map(path);

function remember(dir) {
  const got = run(['remember', dir]);
  assert.equal(got.code, 0, got.err);
  return got.out;
}
function changes(dir, base, ...more) {
  const got = run(['changes', dir, ...more], base);
  assert.equal(got.code, 0, got.err);
  return records(got.out);
}

function place(t) {
  const dir = mkdtempSync(join(tmpdir(), 'cay-changes-'));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

const env = { PATH: process.env.PATH, HOME: '/nonexistent', GIT_CONFIG_NOSYSTEM: '1' };
function git(dir, args, input) {
  const done = spawnSync('git', ['-C', dir, '-c', 'user.name=x', '-c', 'user.email=x@y', '-c', 'core.autocrlf=false', ...args], { input, env });
  assert.equal(done.status, 0, `${args}: ${done.stderr}`);
  return String(done.stdout).trim();
}

/** The same numbers for the same seed. */
function dice(seed) {
  let s = seed * 2654435761 + 1;
  const next = () => {
    s = (Math.imul(s ^ (s >>> 15), 0x85ebca6b) + 0x9e3779b9) | 0;
    return ((s ^ (s >>> 13)) >>> 0) / 2 ** 32;
  };
  return { below: (n) => Math.floor(next() * n), chance: (p) => next() < p, of: (list) => list[Math.floor(next() * list.length)] };
}

const NAMES = ['a', 'b', 'a.c', 'a-b', 'x y', 'q"t', 't\tb', 'n\nl', '\xe9l', 'd', '-'];
function someContent(d) {
  if (d.chance(0.15)) return Buffer.from(Array.from({ length: d.below(300) }, () => d.below(256)));
  const lines = Array.from({ length: d.below(40) }, () => d.of(['', 'x', 'y', 'same', '\t', 'a b', '-- a', '+++ b', '@@']));
  return Buffer.from(lines.join(d.chance(0.1) ? '\r\n' : '\n') + (d.chance(0.5) ? '\n' : ''));
}
function put(d, root) {
  const parts = Array.from({ length: 1 + d.below(3) }, () => d.of(NAMES));
  const full = Buffer.from([root, ...parts].join('/'), 'latin1');
  try {
    mkdirSync(Buffer.from([root, ...parts.slice(0, -1)].join('/'), 'latin1'), { recursive: true });
    rmSync(full, { recursive: true, force: true });
    if (d.chance(0.1)) symlinkSync(d.of(['a', '/etc/passwd', '../x']), full);
    else writeFileSync(full, someContent(d), { mode: d.of([0o644, 0o755]) });
  } catch (error) {
    if (!['EEXIST', 'ENOTDIR', 'ELOOP', 'ENOENT', 'EACCES', 'ERR_FS_EISDIR'].includes(error.code)) throw error;
  }
}
function change(d, root, dir = root) {
  for (const name of readdirSync(Buffer.from(dir, 'latin1'), { encoding: 'latin1' })) {
    const full = `${dir}/${name}`;
    const bytes = Buffer.from(full, 'latin1');
    const st = lstatSync(bytes);
    if (name === '.git') continue;
    if (st.isDirectory()) change(d, root, full);
    else if (d.chance(0.2)) unlinkSync(bytes);
    else if (st.isFile() && d.chance(0.4)) {
      const lines = readFileSync(bytes, 'latin1').split('\n');
      for (let i = d.below(4); i > 0; i--) lines.splice(d.below(lines.length + 1), d.below(2), ...(d.chance(0.6) ? [`new${d.below(9)}`] : []));
      writeFileSync(bytes, Buffer.from(lines.join('\n'), 'latin1'));
    } else if (st.isFile()) chmodSync(bytes, d.of([0o644, 0o755]));
  }
}

test('the diff of any two trees makes one of the other, by git’s own reading', (t) => {
  const top = place(t);
  for (let seed = 1; seed <= 30; seed++) {
    const d = dice(seed);
    const dir = join(top, `w${seed}`);
    const copy = join(top, `c${seed}`);
    mkdirSync(dir);
    for (let i = d.below(12); i > 0; i--) put(d, dir);
    git(dir, ['init', '-q']);
    git(dir, ['add', '-A']);
    git(dir, ['commit', '-qm', 'x', '--allow-empty']);
    const base = remember(dir);
    git(top, ['clone', '-q', dir, copy]);
    change(d, dir);
    for (let i = d.below(6); i > 0; i--) put(d, dir);
    const diff = diffOf(changes(dir, base));
    git(dir, ['add', '-A']);
    if (diff.length) git(copy, ['apply', '--index', '--whitespace=nowarn', '-'], diff);
    assert.equal(git(copy, ['write-tree']), git(dir, ['write-tree']), `seed ${seed}`);
  }
});

test('a long file with many changes is compared in time, and rightly', (t) => {
  const dir = place(t);
  const lines = Array.from({ length: 300_000 }, (_, i) => `${i % 1000}`);
  writeFileSync(join(dir, 'f'), lines.join('\n'));
  const base = remember(dir);
  writeFileSync(join(dir, 'f'), lines.map((l, i) => (i % 7 ? l : `${l}x`)).reverse().join('\n'));
  const after = readFileSync(join(dir, 'f'));
  const diff = diffOf(changes(dir, base));
  writeFileSync(join(dir, 'f'), lines.join('\n'));
  git(dir, ['apply', '--whitespace=nowarn', '-'], diff);
  assert.ok(readFileSync(join(dir, 'f')).equals(after));
});

test('what cannot be told is named: pipes, repositories, long files, deep folders', (t) => {
  const dir = place(t);
  writeFileSync(join(dir, 'was'), 'x');
  mkdirSync(join(dir, 'n/.git'), { recursive: true });
  writeFileSync(join(dir, 'n/.git/config'), 'x');
  const base = remember(dir);
  unlinkSync(join(dir, 'was'));
  spawnSync('mkfifo', [join(dir, 'was')]);
  writeFileSync(join(dir, 'large'), Buffer.alloc((16 << 20) + 1));
  writeFileSync(join(dir, 'edge'), Buffer.alloc(16 << 20, 'x'));
  mkdirSync(join(dir, ...Array(120).fill('d')), { recursive: true });
  const list = changes(dir, base, '--contents');
  const left = paths(list, KIND.left).map((p) => (p.startsWith('d/') ? 'd' : p));
  assert.deepEqual(left, ['d', 'large', 'n/.git', 'was']);
  assert.deepEqual(paths(list, KIND.change), ['edge'], 'what was a file is not said to be removed');
  assert.equal(list.at(-1).kind, KIND.end);
});

test('a long file is named if it changed, and only then', (t) => {
  const dir = place(t);
  const bytes = Buffer.alloc(17 << 20, 'x');
  for (const name of ['same', 'byte', 'size']) writeFileSync(join(dir, name), bytes);
  const base = remember(dir);
  bytes[bytes.length - 1] = 0;
  writeFileSync(join(dir, 'byte'), bytes);
  writeFileSync(join(dir, 'size'), Buffer.alloc(18 << 20));
  const list = changes(dir, base);
  assert.deepEqual([paths(list, KIND.left), paths(list, KIND.change)], [['byte', 'size'], []]);
});

test('a base that is cut, forged or missing is an error, not a diff', (t) => {
  const dir = place(t);
  writeFileSync(join(dir, 'a'), 'a');
  const base = remember(dir);
  for (const bytes of [base.subarray(0, base.length - 3), base.subarray(0, 10), Buffer.alloc(0), Buffer.from('diff --git a/x b/x\n'), Buffer.concat([base.subarray(0, 20), Buffer.alloc(100, 0xff)])])
    assert.equal(run(['changes', dir], bytes).code, 1, String(bytes.length));
  assert.equal(run(['changes', join(dir, 'none')], base).code, 1);
  symlinkSync(dir, join(dir, 'self'));
  assert.equal(run(['changes', join(dir, 'self')], base).code, 1, 'a link is no work folder');
  assert.equal(run(['remember']).code, 1);
});

test('what .gitignore names is left out only if it is new', (t) => {
  const dir = place(t);
  mkdirSync(join(dir, 'lib'));
  for (const [name, text] of [['.gitignore', 'lib/\n*.o\n'], ['lib/known', 'x\n'], ['k.o', 'x\n']]) writeFileSync(join(dir, name), text);
  const base = remember(dir);
  for (const name of ['lib/known', 'k.o', 'lib/new', 'n.o', 'n.c']) writeFileSync(join(dir, name), 'y\n');
  assert.deepEqual(paths(changes(dir, base, '--ignore'), KIND.change), ['k.o', 'lib/known', 'n.c']);
  assert.deepEqual(paths(changes(dir, base), KIND.change), ['k.o', 'lib/known', 'lib/new', 'n.c', 'n.o']);
});
