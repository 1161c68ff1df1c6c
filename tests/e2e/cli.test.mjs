// The command line: help, keys, doctor, and what is said about wrong words.
import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { createKey, runCay, tempDir } from '../lib/cay.mjs';

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
    [['serve', '--nonsense'], /cay serve: unknown option\n`cay serve --help`/],
    [['serve', 'word'], /it takes no further words/],
    [['serve', '--listen'], /cay serve/],
    [['serve', '--listen', 'nowhere'], /"nowhere" is no address/],
    [['serve', '--listen', '127.0.0.1:99999'], /is no address/],
    [['serve', '--listen', 'unix:'], /needs a path/],
    [['serve', '--log-level', 'loud'], /--log-level is debug/],
    [['key'], /say create, list or revoke/],
    [['key', 'make'], /say create, list or revoke/],
    [['key', 'create'], /--name NAME/],
    [['key', 'create', 'word', '--name', 'x'], /no further words/],
    [['key', 'revoke'], /say which key/],
    [['key', 'create', '--name', 'x', '--rate', 'fast'], /--rate needs a number/],
    [['doctor', 'word'], /no further words/],
    [['doctor', '--nonsense'], /cay doctor/],
  ];
  for (const [args, pattern] of wrong) {
    const done = await runCay(args);
    assert.equal(done.code, 2, args.join(' '));
    assert.match(done.stderr, pattern);
    assert.equal(done.stdout, '');
  }
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
      { id: one.id, name: 'first ä', scope: 'admin', rate_per_minute: 10, max_jobs: 0, tokens_per_day: 0, usd_per_day: 0, revoked: false },
      { id: two.id, name: 'second', scope: 'run', rate_per_minute: 0, max_jobs: 0, tokens_per_day: 0, usd_per_day: 0, revoked: false },
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
