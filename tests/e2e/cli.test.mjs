// The command line: help, keys, doctor, and what is said about wrong words.
import assert from 'node:assert/strict';
import { chmodSync, existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createKey, runCay, tempDir, withCay } from '../lib/cay.mjs';

const ok = async (...args) => {
  const done = await runCay(args);
  assert.equal(done.code, 0, done.stderr);
  return done.stdout;
};

test('help names every command, and each has its own', async () => {
  const help = await ok('--help');
  assert.equal(await ok('help'), help);
  assert.equal(await ok('-h'), help);
  const verbs = [...help.matchAll(/^ {2}(\w+) +\S/gm)].map((m) => m[1]);
  for (const verb of ['serve', 'doctor', 'key', 'version', 'help']) assert.ok(verbs.includes(verb), verb);
  for (const verb of verbs.filter((v) => v !== 'help' && v !== 'version')) {
    const text = await ok(verb, '--help');
    assert.match(text, new RegExp(`^usage: cay ${verb}`));
    assert.equal(await ok('help', verb), text);
    for (const line of text.split('\n')) assert.ok(line.length <= 100, line);
  }
  for (const option of ['--listen', '--data-dir', '--config', '--web-dir', '--log-level']) assert.ok((await ok('serve', '--help')).includes(option));
});

test('the version', async () => {
  assert.match(await ok('version'), /^cay \d+\.\d+\.\d+\n$/);
  assert.equal(await ok('--version'), await ok('version'));
});

test('wrong words get exit status 2 and a line that helps', async () => {
  const wrong = [
    [[], /usage: cay COMMAND/],
    [['nonsense'], /there is no command "nonsense"; `cay help`/],
    [['serve', '--nonsense'], /cay serve: unknown option --nonsense\n`cay serve --help`/],
    [['serve', 'word'], /unexpected argument "word"/],
    [['serve', '--listen'], /cay serve: --listen needs a value/],
    [['serve', '--listen', 'nowhere'], /"nowhere" is no address/],
    [['serve', '--listen', '127.0.0.1:99999'], /is no address/],
    [['serve', '--listen', 'unix:'], /needs a path/],
    [['serve', '--log-level', 'loud'], /--log-level is debug/],
    [['key'], /say create, list, revoke or rotate/],
    [['key', 'make'], /say create, list, revoke or rotate/],
    [['key', 'rotate'], /say which key/],
    [['project'], /say create, list, show or edit/],
    [['project', 'create'], /a project needs a name/],
    [['project', 'edit'], /say which project/],
    [['project', 'list', 'word'], /unexpected argument "word"/],
    [['key', 'create'], /--name NAME/],
    [['key', 'create', 'word', '--name', 'x'], /unexpected argument "word"/],
    [['key', 'revoke'], /say which key/],
    [['key', 'create', '--name', 'x', '--rate', 'fast'], /--rate needs a number/],
    [['doctor', 'word'], /unexpected argument "word"/],
    [['doctor', '--nonsense'], /cay doctor: unknown option --nonsense/],
    [['help', 'nope'], /there is no command "nope"/],
    [['srve'], /there is no command "srve"; did you mean "serve"\?/],
    [['key', 'lst'], /there is no "lst": did you mean "list"\?/],
    [['serve', '--lisen', 'x'], /unknown option --lisen: did you mean --listen\?/],
    [['doctor', '-z'], /unknown option -z/],
    [['doctor', '--json=yes'], /--json takes no value/],
    [['key', 'list', '--output', 'xml'], /--output needs "json"/],
  ];
  for (const [args, pattern] of wrong) {
    const done = await runCay(args);
    assert.equal(done.code, 2, args.join(' '));
    assert.match(done.stderr, pattern);
    assert.equal(done.stdout, '');
  }
});

const migrations = tempDir(null);
const migration = join(migrations, '1_table.sql');
writeFileSync(migration, 'CREATE TABLE t(a)');
after(() => rmSync(migrations, { recursive: true }));

/** Each command, with the words that it needs at least. */
const COMMANDS = {
  run: ['x.js'], exec: ['true'], code: ['x'], execute: ['x'], chat: ['x'], usage: [], doctor: [], prune: [], version: [],
  vercel: ['env'], config: ['show'], key: ['list'], project: ['list'],
  'task submit': ['{}'], 'task ls': [], 'task show': ['x'], 'task logs': ['x'], 'task wait': ['x'], 'task cancel': ['x'],
  'db ls': [], 'db show': ['x'], 'db create': ['x'], 'db query': ['x', 'SELECT 1'], 'db shell': ['x'], 'db export': ['x', '-'],
  'db import': ['x', '/dev/null'], 'db copy': ['x', 'y'], 'db rm': ['--yes', 'x'], 'db limits': ['x'],
  'db migrate': ['x', migration],
  'sandbox create': [], 'sandbox ls': [], 'sandbox exec': ['x', 'true'], 'sandbox cp': ['x:/y', 'z'], 'sandbox logs': ['x'],
  'sandbox pause': ['x'], 'sandbox resume': ['x'], 'sandbox extend': ['x', '1m'], 'sandbox snapshot': ['x'], 'sandbox rm': ['x'],
  'sandbox port': ['x', '80'], 'sandbox inspect': ['x'],
};
const plainError = (done) => JSON.parse(done.stderr).error;

test('every command: help, an option that there is not, and errors as JSON', async () => {
  const verbs = [...(await ok('help')).matchAll(/^ {2}(\w+) +\S/gm)].map((m) => m[1]);
  const known = new Set(Object.keys(COMMANDS).map((name) => name.split(' ')[0]));
  assert.deepEqual(verbs.filter((verb) => !known.has(verb)), ['serve', 'help']);
  const sandbox = [...(await ok('sandbox', '--help')).matchAll(/^ {2}(\w+) +\S/gm)].map((m) => m[1]);
  assert.deepEqual(sandbox.filter((verb) => !COMMANDS[`sandbox ${verb}`]), ['sh']);
  for (const [name, words] of Object.entries(COMMANDS)) {
    const command = name.split(' ');
    assert.match(await ok(...command, '--help'), new RegExp(`^usage: cay ${command[0]}`));
    const wrong = await runCay([...command, '--nosuch-option', ...words]);
    assert.deepEqual([wrong.code, wrong.stdout], [2, ''], name);
    assert.match(wrong.stderr, /^cay [a-z ]+: unknown option --nosuch-option(;|\n)/, name);
    const near = await runCay([...command, '--halp', ...words]);
    assert.match(near.stderr, /unknown option --halp: did you mean --help\?/, name);
    const json = await runCay([...command, '--nosuch-option', '--json', ...words]);
    assert.deepEqual([json.code, json.stdout, plainError(json).code], [2, '', 'bad_request'], name);
    assert.match(plainError(json).message, /unknown option --nosuch-option/, name);
  }
});

test('without a server each command that needs one says so, also as JSON', async () => {
  for (const name of Object.keys(COMMANDS).filter((n) => /^(task|db|sandbox|usage|config|code|execute)/.test(n))) {
    const words = name === 'config' ? ['reload'] : COMMANDS[name];
    const args = [...name.split(' '), '--url', 'http://127.0.0.1:1', '--json', ...words];
    const done = await runCay(args);
    assert.deepEqual([done.code, done.stdout], [69, ''], args.join(' '));
    assert.equal(plainError(done).code, 'unavailable', name);
    assert.match(plainError(done).message, /is `cay serve` running there/, name);
  }
});

test('--json prints data as JSON, and -o json is the same', async (t) => {
  const server = await withCay(t);
  const dir = tempDir(t);
  const file = join(dir, 'x.js');
  writeFileSync(file, 'export default () => 7');
  const json = async (args) => {
    const done = await runCay(args, { env: { CAY_URL: server.url } });
    assert.equal(done.stderr, '', args.join(' '));
    return JSON.parse(done.stdout);
  };
  const key = await json(['key', 'create', '--name', 'x', '--json', '--data-dir', dir]);
  assert.match(key.key, /^cay_/);
  assert.deepEqual(await json(['key', 'revoke', key.id, '--json', '--data-dir', dir]), { id: key.id, revoked: true });
  const box = (await json(['sandbox', 'create', '--json'])).id;
  const task = (await json(['task', 'submit', '--json', '{"code":"export default () => 1"}'])).id;
  for (const args of [
    ['version'], ['doctor'], ['usage'], ['vercel', 'env'], ['config', 'check'], ['config', 'show'], ['config', 'reload'],
    ['key', 'list', '--data-dir', dir], ['prune', '--data-dir', server.dataDir ?? dir], ['run', file],
    ['task', 'wait', task], ['task', 'show', task], ['task', 'ls'],
    ['db', 'create', 'shop'], ['db', 'show', 'shop'], ['db', 'query', 'shop', 'SELECT 1'], ['db', 'limits', 'shop'],
    ['db', 'export', '--yes', 'shop', join(dir, 'shop.db')], ['db', 'import', '--yes', 'shop', join(dir, 'shop.db')], ['db', 'ls'],
    ['sandbox', 'exec', box, 'echo', 'hi'], ['sandbox', 'logs', box], ['sandbox', 'ls'], ['sandbox', 'inspect', box], ['sandbox', 'port', box, '80'],
    ['sandbox', 'extend', box, '5m'], ['sandbox', 'pause', box], ['sandbox', 'resume', box],
  ]) {
    const command = args[0] === 'sandbox' ? 2 : 1;
    // One after the other: a database that is being replaced is not replaced again.
    const [one, two] = [['--json'], ['-o', 'json']].map((more) => [...args.slice(0, command), ...more, ...args.slice(command)]);
    assert.deepEqual(Object.keys(await json(one)), Object.keys(await json(two)), args.join(' '));
  }
  assert.equal((await json(['sandbox', 'logs', box, '--json'])).stdout, 'hi\n');
  assert.deepEqual(await json(['sandbox', 'rm', '--json', box]), [{ id: box }]);
  const table = await runCay(['task', 'ls'], { env: { CAY_URL: server.url } });
  assert.match(table.stdout, /^ID +STATE +TYPE +CREATED +TITLE\ntask_\w{26} {2}done +run +/);
});

test('settings that are wrong are named with their file', async (t) => {
  const dir = tempDir(t);
  const file = join(dir, 'cay.json');
  for (const [text, pattern] of [
    ['{"lisden":1}', /unknown key "lisden"/],
    ['{"limits":{"body_bytes":"x"}}', /"body_bytes" must be an integer/],
    ['{', /not valid JSON: line 1/],
  ]) {
    writeFileSync(file, text);
    const done = await runCay(['serve', '--config', file, '--listen', '127.0.0.1:0', '--data-dir', join(dir, 'd')]);
    assert.equal(done.code, 2);
    assert.ok(done.stderr.includes(file));
    assert.match(done.stderr, pattern);
  }
  const missing = await runCay(['serve', '--config', join(dir, 'none.json')]);
  assert.equal(missing.code, 74);
  assert.match(missing.stderr, /none\.json: No such file/);
});

test('keys: create, list, revoke', async (t) => {
  const dir = join(tempDir(t), 'data');
  const one = await createKey(dir, { name: 'first ä', scope: 'admin', rate: 10 });
  const two = await createKey(dir, { name: 'second' });
  assert.match(one.text, /^cay_[0-9a-z]{26}_[0-9a-f]{40}$/);
  assert.notEqual(one.text, two.text);
  const listed = JSON.parse(await ok('key', 'list', '--json', '--data-dir', dir));
  assert.deepEqual(
    listed.map(({ created_at, ...rest }) => rest),
    [
      { id: one.id, project: 'default', name: 'first ä', scope: 'admin', rate_per_minute: 10, max_jobs: 0, tokens_per_day: 0, usd_per_day: 0, revoked: false },
      { id: two.id, project: two.project, name: 'second', scope: 'run', rate_per_minute: 0, max_jobs: 0, tokens_per_day: 0, usd_per_day: 0, revoked: false },
    ],
  );
  const text = await ok('key', 'list', '--data-dir', dir);
  assert.ok(text.includes(one.id) && text.includes('10/min') && !text.includes(one.text.split('_')[2]));
  assert.equal(await ok('key', 'revoke', one.id, '--data-dir', dir), `revoked ${one.id}\n`);
  const again = await runCay(['key', 'revoke', one.id, '--data-dir', dir]);
  assert.equal(again.code, 66);
  assert.match(again.stderr, /no valid key/);
  assert.match(await ok('key', 'list', '--data-dir', dir), /first ä {2}\(revoked\)/);
  for (const bad of [['--name', ''], ['--name', 'x', '--scope', 'root'], ['--name', 'a\nb'], ['--name', 'x', '--rate', '-1']]) {
    const done = await runCay(['key', 'create', '--data-dir', dir, ...bad]);
    assert.equal(done.code, 2, bad.join(' '));
  }
});

test('a data folder that cannot be is named', async (t) => {
  const dir = tempDir(t);
  writeFileSync(join(dir, 'file'), '');
  const done = await runCay(['serve', '--listen', '127.0.0.1:0', '--data-dir', join(dir, 'file/x')]);
  assert.equal(done.code, 74);
  assert.match(done.stderr, /data folder \(choose another with --data-dir\)/);
  mkdirSync(join(dir, 'd'));
  writeFileSync(join(dir, 'd/cay.db'), 'no database at all, but text that is long enough');
  const other = await runCay(['serve', '--listen', '127.0.0.1:0', '--data-dir', join(dir, 'd')]);
  assert.equal(other.code, 74);
  assert.match(other.stderr, /file is not a database/);
});

test('a data folder below one that the server may not pass says what to do', { skip: process.getuid() !== 0 && 'needs root' }, async (t) => {
  const dir = tempDir(t);
  chmodSync(dir, 0o700);
  const done = await runCay(['serve', '--listen', '127.0.0.1:0', '--data-dir', join(dir, 'd')]);
  assert.equal(done.code, 74);
  assert.match(done.stderr, /data folder .*: user \d+, as whom the server runs, may not enter it: .*chmod o\+x/);
});

test('a cay.json of the folder that a command is called in says nothing about the data folder', async (t) => {
  const dir = tempDir(t);
  const trap = join(dir, 'trap');
  writeFileSync(join(dir, 'cay.json'), JSON.stringify({ data_dir: trap }));
  for (const words of [['key', 'create', '--name', 'k'], ['key', 'list'], ['prune']]) {
    const done = await runCay(words, { cwd: dir });
    assert.equal(done.code, 2, done.stderr);
    assert.match(done.stderr, /--config \.\/cay\.json, or --data-dir/);
    assert.ok(!existsSync(trap), words.join(' '));
    const named = await runCay([...words, '--data-dir', join(dir, 'other')], { cwd: dir });
    assert.equal(named.code, 0, named.stderr);
    assert.match(named.stderr, /\.\/cay\.json is not read by `cay (key|prune)`/);
    assert.ok(existsSync(join(dir, 'other')) && !existsSync(trap), words.join(' '));
  }
  const meant = await runCay(['key', 'create', '--name', 'k', '--config', 'cay.json'], { cwd: dir });
  assert.equal(meant.code, 0, meant.stderr);
  assert.ok(existsSync(trap));
});

test('doctor: one line per feature, or JSON', async () => {
  const done = await runCay(['doctor', '--json']);
  const features = JSON.parse(done.stdout);
  for (const name of ['kernel', 'user namespaces', 'seccomp', 'landlock', 'cgroups', 'javascriptcore', 'git', 'kvm', 'programs', 'sandboxes']) {
    const feature = features.find((f) => f.name === name);
    assert.ok(feature, name);
    assert.deepEqual(Object.keys(feature), ['name', 'status', 'detail', 'advice']);
    assert.ok(['ok', 'degraded', 'missing'].includes(feature.status));
    assert.ok(feature.detail.length > 0);
    // What is wrong and cannot be done without says what to do.
    if (feature.status === 'missing') assert.ok(feature.advice.length > 0, name);
  }
  assert.equal(done.code, features.some((f) => f.status === 'missing') ? 1 : 0);
  assert.match(features.find((f) => f.name === 'javascriptcore').detail, /^\d+\.\d+\.\d+$/);
  const text = await runCay(['doctor']);
  const lines = text.stdout.split('\n').filter((line) => /^(ok|degraded|missing|absent) /.test(line));
  assert.equal(lines.length, features.length);
  assert.doesNotMatch(text.stdout, /\x1b/);
});
