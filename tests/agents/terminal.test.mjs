// `cay chat` against a real server: piped, on a terminal of its own, stopped and cleared.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';

import { buildDir, request, runCay } from '../lib/cay.mjs';
import { checkAccount, TYPE, until, withAgents, withCay } from './support.mjs';

function chat(t, server, args = [], { tty = false, env = {} } = {}) {
  const cay = join(buildDir, 'cay');
  const own = ['chat', '--url', server.url, ...args];
  const quoted = ['exec', cay, ...own].map((a, i) => (i ? `'${a}'` : a)).join(' ');
  // script(1) gives it a terminal.
  const child = tty
    ? spawn('script', ['-qefc', quoted, '/dev/null'], { env: { PATH: process.env.PATH, TERM: 'xterm', ASAN_OPTIONS: 'detect_leaks=0', ...env } })
    : spawn(cay, own, { env: { PATH: process.env.PATH, ASAN_OPTIONS: 'detect_leaks=0', ...env } });
  const it = { child, out: '', err: '', code: null };
  child.stdout.setEncoding('utf8').on('data', (text) => (it.out += text));
  child.stderr.setEncoding('utf8').on('data', (text) => (it.err += text));
  it.ended = new Promise((resolve) => child.once('close', (code) => resolve((it.code = code))));
  t.after(() => child.kill('SIGKILL'));
  return it;
}

test('a piped line is a message; text, code and output come', async (t) => {
  const cay = await withCay(t);
  const it = chat(t, cay, ['--name', 'pipe']);
  it.child.stdin.end('Count customers by tier\n\nList all customers\n');
  assert.equal(await it.ended, 0, it.err);
  assert.match(it.out, /> executeCode\n {4}export default async function \(env\) \{\n/);
  assert.match(it.out, /< output\n {4}Gold: 3\n {4}Silver: 3\n {4}Bronze: 2\n/);
  assert.match(it.out, /> queryDatabase\n {4}SELECT/);
  assert.doesNotMatch(it.out, /\x1b/);
  assert.equal((await request(cay, `/agents/${TYPE}/pipe/get-messages`)).json().length, 4);
  const clear = chat(t, cay, ['--name', 'pipe']);
  clear.child.stdin.end('/clear\n/nosuch\n/quit\nnever sent\n');
  assert.equal(await clear.ended, 0, clear.err);
  assert.deepEqual((await request(cay, `/agents/${TYPE}/pipe/get-messages`)).json(), []);
});

test('the server is where CAY_URL says, unless an option does', async (t) => {
  const cay = await withCay(t);
  const ask = (args, url) => runCay(['chat', ...args, 'List all customers'], { env: { CAY_URL: url } });
  assert.match((await ask([], cay.url)).stdout, /queryDatabase/);
  assert.match((await ask(['--url', cay.url], 'http://127.0.0.1:1')).stdout, /queryDatabase/);
  assert.notEqual((await ask([], 'http://127.0.0.1:1')).code, 0);
});

test('--model is the one that answers', async (t) => {
  const cay = await withCay(t);
  const it = chat(t, cay, ['--name', 'm', '--model', 'sonnet', 'List all customers']);
  assert.equal(await it.ended, 0, it.err); // without a key the demo answers for it
  const wrong = chat(t, cay, ['--name', 'm', '--model', 'nosuch', 'List all customers']);
  assert.equal(await wrong.ended, 1);
  assert.match(wrong.err, /no model "nosuch".*GET \/v1\/models/);
});

test('a message as an argument, to another agent', async (t) => {
  const cay = await withCay(t);
  const it = chat(t, cay, ['--agent', 'todo-agent', '--name', 'a b/ü', 'Add: tea']);
  assert.equal(await it.ended, 0, it.err);
  assert.match(it.out, /Added number 1; 1 on the list\.\n$/);
});

test('what goes wrong is said, with a status', async (t) => {
  const cay = await withAgents(t, {
    broken: { agent: {}, demo: { scripts: [{ when: '.', steps: [{ say: 'well ', fail: 'the model broke' }] }] } },
  });
  const broken = chat(t, cay, ['--agent', 'broken', 'go']);
  assert.equal(await broken.ended, 1);
  assert.match(broken.err, /the model broke/);
  const none = chat(t, cay, ['--agent', 'nosuch', 'go']);
  assert.equal(await none.ended, 1);
  assert.match(none.err, /there is no agent "nosuch"/);
  const nowhere = chat(t, { url: 'http://127.0.0.1:1' }, ['go']);
  assert.equal(await nowhere.ended, 1);
  assert.match(nowhere.err, /connect|refused/i);
  assert.equal((await runCay(['chat', '--url', 'ftp://x', 'go'])).code, 2);
  assert.equal((await runCay(['chat', 'a', 'b'])).code, 2);
  assert.match((await runCay(['chat', '--help'])).stdout, /Ctrl-C stops/);
});

test('a key is sent, and kept from nobody who needs it', async (t) => {
  const cay = await withCay(t, { config: { require_key: true } });
  const without = chat(t, cay, ['hello']);
  assert.equal(await without.ended, 1);
  assert.match(without.err, /a key is needed/);
  const it = chat(t, cay, ['hello'], { env: { CAY_API_KEY: cay.key } });
  assert.equal(await it.ended, 0, it.err);
});

test('Ctrl-C stops the turn, not the program', async (t) => {
  const cay = await withCay(t);
  const it = chat(t, cay, ['--name', 'stop'], { tty: true });
  await until(() => it.out.includes('you> '), 'the prompt');
  it.child.stdin.write('Talk for a while\n');
  await until(() => it.out.includes('sentence number 3'), 'text');
  it.child.stdin.write('\x03');
  await until(() => it.out.includes('(stopped)'), 'the stop');
  const stored = (await request(cay, `/agents/${TYPE}/stop/get-messages`)).json();
  assert.deepEqual(checkAccount(stored[1].metadata), { aborted: true });
  await until(() => it.out.match(/you> /g).length === 2, 'the prompt');
  it.child.stdin.write('\x03');
  await until(() => it.out.includes('(/quit or Ctrl-D ends)'), 'the hint');
  it.child.stdin.write('Count customers by tier\n');
  await until(() => /Gold: 3/.test(it.out), 'the answer');
  await until(() => it.out.match(/you> /g).length >= 4, 'the prompt');
  it.child.stdin.write('/quit\n');
  assert.equal(await it.ended, 0);
  assert.match(it.out, /\x1b\[1m> executeCode/);
});

test('a pipe is ended by a stop', async (t) => {
  const cay = await withCay(t);
  const it = chat(t, cay, ['--name', 'int', 'Talk for a while']);
  await until(() => it.out.includes('sentence number 2'), 'text');
  it.child.kill('SIGINT');
  assert.equal(await it.ended, 130);
});

test('escape sequences of the model are shown, not obeyed', async (t) => {
  const evil = 'before\u001b]0;owned\u0007\u001b[2J\u009b31m\rafter\u0000';
  const code = `export default async () => console.log(${JSON.stringify(evil)})`;
  const cay = await withAgents(t, {
    evil: {
      agent: { tools: [{ name: 'run', kind: 'code', description: 'runs' }] },
      demo: { preface: '', scripts: [{ when: '.', steps: [{ say: evil.slice(0, -1), call: { tool: 'run', input: { code } } }, { say: 'end', fail: evil.slice(0, -1) }] }] },
    },
  });
  const it = chat(t, cay, ['--agent', 'evil', 'go'], { tty: true });
  await it.ended;
  const own = it.out.replace(/\x1b\[[0-9;]*m/g, '');
  assert.doesNotMatch(own, /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u0080-\u009f]/);
  assert.doesNotMatch(own.replaceAll('\r\n', '\n'), /\r/);
  assert.ok(own.split('before\\x1b]0;owned\\x07\\x1b[2J').length >= 4, own);
});
