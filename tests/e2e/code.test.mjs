// An agent that works in a sandbox: it is made, watched, stopped, and leaves nothing behind but what it was asked for.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { bearer, createKey, isSanitized, procText, request, runCay, slow, startCay, until, withCay } from '../lib/cay.mjs';
import { code, nothingLeft as noneLeft } from '../lib/code.mjs';
import { initsOf } from '../lib/sandbox.mjs';

describe('the coder', () => {
  let cay;
  before(async () => {
    cay = await startCay();
  });
  after(() => cay.stop());

  const nothingLeft = () => noneLeft(cay);

  test('the demo writes a script, runs it, reads it back, and is done', async () => {
    const seen = code(cay, { spec: 'Create a hello world Python script and run it' });
    await seen.ended;
    assert.equal(seen.status, 200);
    assert.deepEqual(seen.of('step_begin').map((s) => s.tool), ['write_file', 'run_command', 'read_file']);
    assert.match(seen.of('output').map((o) => o.text).join(''), /Hello, world!/);
    assert.match(seen.of('done')[0].summary, /demo played this/);
    const end = seen.of('end')[0];
    assert.equal(end.status, 'done');
    assert.equal(end.kind, 'code');
    const run = (await request(cay, `/v1/runs/${end.id}`)).json();
    assert.match(run.detail.diff, /\+\+\+ b\/hello\.py\n@@ -0,0 \+1 @@\n\+print\('Hello, world!'\)/);
    assert.equal(run.detail.diff_is_whole, true);
    assert.deepEqual(run.events.map((e) => e.seq), run.events.map((_, i) => i + 1), 'each event is kept');
    await nothingLeft();
  });

  test('each step is told before it is done, and while the agent goes on', async () => {
    const seen = code(cay, { spec: 'Make a small web page and serve it' });
    await until(() => seen.of('step_begin').some((s) => s.tool === 'run_command'), 'the step');
    assert.equal(seen.of('step_end').length, 1, 'it takes a second, and has not ended');
    await seen.ended;
    assert.match(seen.of('output').map((o) => o.text).join(''), /Hello from a sandbox/);
    await nothingLeft();
  });

  test('it works on the files it is given, and the answer can be one JSON object', async () => {
    const files = [
      { path: 'sum.sh', content: 'echo $(($1 - $2))\n' },
      { path: 'test.sh', content: '[ "$(sh sum.sh 2 3)" = 5 ] && echo passed || { echo failed; exit 1; }\n' },
    ];
    const got = await request(cay, '/v1/code', { method: 'POST', body: JSON.stringify({ spec: 'Fix the failing test', files }) });
    assert.equal(got.status, 200, got.body);
    const run = got.json();
    assert.equal(run.status, 'done', got.body);
    assert.match(run.detail.diff, /-echo \$\(\(\$1 - \$2\)\)\n\+echo \$\(\(\$1 \+ \$2\)\)/);
    await nothingLeft();
  });

  test('a spec without a script is answered honestly, and a wrong request clearly', async () => {
    const run = (await request(cay, '/v1/code', { method: 'POST', body: JSON.stringify({ spec: 'Prove a theorem' }) })).json();
    assert.match(run.detail.result.summary, /not a language model/);
    const bad = async (body, pattern) => {
      const got = await request(cay, '/v1/code', { method: 'POST', body: JSON.stringify(body) });
      assert.ok(got.status >= 400 && got.status < 500, `${got.status} ${got.body}`);
      assert.match(got.json().error.message, pattern);
    };
    await bad({}, /"spec"/);
    await bad({ spec: '' }, /"spec"/);
    await bad({ spec: 1 }, /spec/);
    await bad({ spec: 'x', agent: 'nobody' }, /agent/);
    await bad({ spec: 'x', max_steps: 0 }, /max_steps/);
    await bad({ spec: 'x', model: 'claude-nothing' }, /ANTHROPIC_API_KEY|key/);
    await bad({ spec: 'x', nonsense: 1 }, /nonsense/);
    await bad({ spec: 'x', files: [{ path: 'a' }] }, /content/);
    await bad({ spec: 'x', network: { routes: ['nothing'] } }, /route/);
    await bad({ command: 'true', files: [{ path: 'a\0b', content: '' }] }, /NUL/);
    await bad({ command: 'x'.repeat(131073) }, /"command" exceeds 131072/);
    await bad({ spec: 'x', timeout_ms: 86_400_000 }, /"timeout_ms" may be 86340000 at most/);
    await bad({ spec: 'x', files: Array(10001).fill({ path: 'a', content: '' }) }, /"files" must be a list of at most 10000 values/);
    await nothingLeft();
  });

  test('an agent of the user’s own: agent.js, tools.js, llm.js and spec.txt', { skip: !existsSync('/usr/bin/node') && 'no node where sandboxes see it' }, async () => {
    const files = [
      { path: 'spec.txt', content: 'Create a hello world Python script and run it' },
      {
        path: 'llm.js',
        content: `module.exports = async (messages) => {
  const answer = await fetch(process.env.ANTHROPIC_BASE_URL + '/v1/messages', {
    method: 'POST', headers: { 'content-type': 'application/json', 'x-api-key': process.env.ANTHROPIC_API_KEY, 'anthropic-version': '2023-06-01' },
    body: JSON.stringify({ model: 'demo', max_tokens: 1000, messages }),
  });
  return JSON.parse((await answer.json()).content[0].text);
};`,
      },
      {
        path: 'tools.js',
        content: `const fs = require('fs');
module.exports = {
  write_file: ({ path, content }) => (fs.writeFileSync(path, content), 'written'),
  read_file: ({ path }) => fs.readFileSync(path, 'utf8'),
  run_command: ({ command }) => require('child_process').execSync(command, { encoding: 'utf8' }),
};`,
      },
      {
        path: 'agent.js',
        content: `const ask = require('./llm.js'), tools = require('./tools.js'), fs = require('fs');
(async () => {
  const messages = [{ role: 'user', content: fs.readFileSync('spec.txt', 'utf8') }];
  for (let step = 1; step <= 5; step++) {
    const action = await ask(messages);
    if (action.done) return console.log('done: ' + action.summary);
    console.log('step ' + step + ': ' + action.tool);
    const result = tools[action.tool](action.args);
    messages.push({ role: 'assistant', content: JSON.stringify(action) }, { role: 'user', content: String(result) });
  }
})();`,
      },
    ];
    const seen = code(cay, { command: 'node agent.js', files });
    await seen.ended;
    const lines = seen.of('text').map((t) => t.text);
    assert.deepEqual(lines.slice(0, 3), ['step 1: write_file', 'step 2: run_command', 'step 3: read_file']);
    assert.match(lines[3], /^done: .*demo played this/);
    const run = (await request(cay, `/v1/runs/${seen.of('end')[0].id}`)).json();
    assert.equal(run.status, 'done');
    assert.match(run.detail.diff, /\+\+\+ b\/hello\.py/);
    await nothingLeft();
  });

  test('one that is cancelled ends soon, says so, and leaves nothing', async () => {
    const seen = code(cay, { command: 'echo begun; sleep 1000' });
    await until(() => seen.of('text').length > 0, 'its first word');
    const [{ id: sandbox }] = seen.of('sandbox');
    const [run] = (await request(cay, '/v1/runs?kind=code&limit=1')).json().runs;
    assert.equal(run.status, 'running');
    assert.equal((await request(cay, `/v1/runs/${run.id}/cancel`, { method: 'POST' })).status, 202);
    await seen.ended;
    assert.equal(seen.of('end')[0].status, 'cancelled');
    assert.notEqual((await request(cay, `/v1/sandboxes/${sandbox}`)).json().status, 'running');
    await nothingLeft();
  });

  test('one that is cancelled before its sandbox is ready is over at once', async () => {
    const files = Array.from({ length: 300 }, (_, i) => ({ path: `f${i}`, content: 'x'.repeat(1000) }));
    for (let i = 0; i < 10; i++) {
      const seen = code(cay, { command: 'sleep 1000', files });
      const run = await until(async () => (await request(cay, '/v1/runs?kind=code&limit=1')).json().runs.find((r) => r.status === 'running'), 'the job');
      await request(cay, `/v1/runs/${run.id}/cancel`, { method: 'POST' });
      await seen.ended;
      assert.equal(seen.of('end')[0].status, 'cancelled');
    }
    await nothingLeft();
  });

  test('one that takes too long is ended, and what it did until then is there', async () => {
    const seen = code(cay, { command: 'echo early > early.txt; sleep 1000', timeout_ms: isSanitized ? 10_000 : 6000 });
    await seen.ended;
    const end = seen.of('end')[0];
    assert.equal(end.status, 'failed');
    assert.equal(end.error.code, 'timeout');
    assert.match((await request(cay, `/v1/runs/${end.id}`)).json().detail.diff, /\+early/);
    await nothingLeft();
  });

  test('a client that leaves can come back; the agent goes on', async () => {
    const seen = code(cay, { command: 'for i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done' });
    await until(() => seen.of('text').length >= 2, 'words');
    seen.stop();
    const [run] = (await request(cay, '/v1/runs?kind=code&limit=1')).json().runs;
    const last = seen.events.at(-1).id;
    const rest = await request(cay, `/v1/runs/${run.id}/events`, { headers: { 'Last-Event-ID': String(last) } });
    const ids = [...rest.body.matchAll(/^id: (\d+)$/gm)].map((m) => Number(m[1]));
    assert.deepEqual(ids, ids.map((_, i) => last + 1 + i));
    assert.match(rest.body, /"text":"6"[\s\S]*event: end[\s\S]*"status":"done"/);
    await nothingLeft();
  });

  test('no key is inside, and no way out but the model', async () => {
    const seen = code(cay, {
      command: `env; cat /proc/*/environ 2>/dev/null | tr "\\0" "\\n"; python3 probe.py`,
      files: [{
        path: 'probe.py',
        content: `import json, urllib.request as u
ask = json.dumps({"model": "demo", "max_tokens": 100, "messages": [{"role": "user", "content": "hello world"}]}).encode()
head = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
other = ask.replace(b'"demo"', b'"claude-opus"')
for name, r in [("model", u.Request("http://127.0.0.1:3128/v1/messages", ask, head)), ("another", u.Request("http://127.0.0.1:3128/v1/messages", other, head)),
                ("route", "http://127.0.0.1:3128/_/other/"), ("host", "http://example.com/")]:
    try: print(name, u.urlopen(r, timeout=5).status)
    except Exception as e: print(name, e)
`,
      }],
    });
    await seen.ended;
    const text = seen.of('text').map((t) => t.text).join('\n');
    assert.doesNotMatch(text, /x-api-key|[0-9a-f]{48}/, 'the token of the demo is outside');
    assert.match(text, /^model 200$/m);
    assert.match(text, /^another HTTP Error 403/m);
    assert.match(text, /^route HTTP Error 40[34]/m);
    assert.match(text, /^host .*not known/m);
  });
});

test('a server that is killed leaves no sandbox, and what the agent had said', async (t) => {
  const first = await withCay(t);
  const seconds = String(100_000 + process.pid); // nobody else's
  const seen = code(first, { command: `echo up; exec sleep ${seconds}` });
  await until(() => seen.of('text').length > 0, 'its first word');
  const sleeps = () => readdirSync('/proc').filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/cmdline`, 'latin1') === `sleep\u0000${seconds}\u0000`;
    } catch {
      return false;
    }
  });
  await until(() => sleeps().length >= 1, 'its command');
  first.child.kill('SIGKILL');
  await first.ended;
  await until(() => sleeps().length === 0, 'the end of the sandbox');
  const second = await withCay(t, { dataDir: first.dataDir });
  const [run] = (await request(second, '/v1/runs?kind=code')).json().runs;
  assert.equal(run.status, 'interrupted');
  assert.match((await request(second, `/v1/runs/${run.id}/events`)).body, /"text":"up"[\s\S]*event: end/);
});

test('a sandbox that goes while its command is begun is no fault of the command', { skip: process.getuid() !== 0 && 'its first process is root’s' }, async (t) => {
  const cay = await withCay(t, { config: { sandboxes: { pool: 0 } } });
  const ask = async (body) => (await request(cay, '/v1/code', { method: 'POST', body: JSON.stringify(body) })).json();
  const { detail } = await ask({ command: 'true', keep: true });
  const inits = initsOf(cay);
  assert.ok(inits.length > 0, 'its first process');
  for (const pid of inits) process.kill(pid, 'SIGSTOP');
  const job = ask({ command: 'echo here', sandbox: detail.sandbox });
  const execs = async () => (await request(cay, `/v1/sandboxes/${detail.sandbox}/execs`)).json().execs;
  await until(async () => (await execs()).some((e) => e.status === 'running'), 'a command that is begun');
  for (const pid of inits) process.kill(pid, 'SIGKILL');
  const { status, error } = await job;
  assert.deepEqual([status, error.code, error.message], ['failed', 'unavailable', 'the sandbox ended before its command did']);
});

test('a real provider is asked through the route, with the key put on outside', async (t) => {
  const asked = [];
  const steps = ['{"tool":"write_file","args":{"path":"a.txt","content":"one\\n"}}', '{"done":true,"summary":"written"}'];
  const model = createServer((req, res) => {
    let text = '';
    req.on('data', (d) => (text += d)).on('end', () => {
      asked.push({ path: req.url, key: req.headers['x-api-key'] ?? req.headers.authorization, body: JSON.parse(text) });
      const say = steps[(asked.length - 1) % 2];
      res.setHeader('content-type', 'application/json');
      res.end(JSON.stringify(req.url.includes('chat')
        ? { id: 'x', object: 'chat.completion', model: 'm', choices: [{ index: 0, message: { role: 'assistant', content: say }, finish_reason: 'stop' }], usage: { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 } }
        : { id: 'x', type: 'message', role: 'assistant', model: 'm', content: [{ type: 'text', text: say }], stop_reason: 'end_turn', usage: { input_tokens: 5, output_tokens: 3 } }));
    });
  });
  await new Promise((resolve) => model.listen(0, '127.0.0.1', resolve));
  t.after(() => model.close());
  const url = `http://127.0.0.1:${model.address().port}`;
  for (const [env, name, key] of [
    [{ ANTHROPIC_API_KEY: 'sk-ant-secret', ANTHROPIC_BASE_URL: url }, 'claude-sonnet-4-5', 'sk-ant-secret'],
    [{ OPENAI_API_KEY: 'sk-secret', OPENAI_BASE_URL: `${url}/v1` }, 'gpt-4.1', 'Bearer sk-secret'],
  ]) {
    asked.length = 0;
    const cay = await withCay(t, { env });
    const run = (await request(cay, '/v1/code', { method: 'POST', body: JSON.stringify({ spec: 'Write a file', model: name }) })).json();
    assert.equal(run.status, 'done', JSON.stringify(run));
    assert.match(run.detail.diff, /\+one/);
    assert.equal(asked.length, 2);
    assert.ok(asked.every((a) => a.key === key), JSON.stringify(asked.map((a) => a.key)));
    assert.doesNotMatch(JSON.stringify(run), /secret/);
  }
});

test('cay code needs no server, shows the steps, and works on a copy', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'cay-code-'));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  writeFileSync(join(dir, 'sum.sh'), 'echo $(($1 - $2))\n');
  writeFileSync(join(dir, 'test.sh'), '[ "$(sh sum.sh 2 3)" = 5 ] && echo passed || { echo failed; exit 1; }\n');
  const done = await runCay(['code', '--dir', dir, 'Fix the failing test'], { timeout: 60_000 * slow });
  assert.equal(done.code, 0, done.stderr);
  assert.match(done.stdout, /edit_file[\s\S]*passed[\s\S]*done {2}[\s\S]*\+echo/);
  const json = await runCay(['code', '-o', 'json', 'hello world'], { timeout: 60_000 * slow });
  assert.equal(JSON.parse(json.stdout).status, 'done');
  assert.equal((await runCay(['code'])).code, 2);
  assert.equal((await runCay(['code', '--max-steps', 'x', 'y'])).code, 2);
  const nowhere = await runCay(['code', '--dir', join(dir, 'none'), 'x']);
  assert.notEqual(nowhere.code, 0);
  assert.match(nowhere.stderr, /No such file/);
  // A script that does not fit the folder does not say that it helped; a step that failed says why.
  writeFileSync(join(dir, 'sum.sh'), 'echo 7\n');
  const other = await runCay(['code', '--dir', dir, 'Fix the failing test'], { timeout: 60_000 * slow });
  assert.match(other.stdout, /\n {4}failed, \d+ ms: \S[\s\S]*done {2}It did not come right/);
  assert.doesNotMatch(other.stdout, /passes now/);
  // What ends with the command cannot be kept by it.
  for (const args of [['--keep'], ['--sandbox', 'sbx_1']]) {
    const kept = await runCay(['code', ...args, 'x']);
    assert.equal(kept.code, 2);
    assert.match(kept.stderr, /--url or CAY_URL/);
  }
});

test('the server that cay code and cay execute start reads nothing of the current folder', async (t) => {
  const top = mkdtempSync(join(tmpdir(), 'cay-code-'));
  t.after(() => rmSync(top, { recursive: true, force: true }));
  let asked = 0;
  const stranger = createServer((req, res) => {
    asked++;
    res.writeHead(400).end('{}');
  });
  await new Promise((resolve) => stranger.listen(0, '127.0.0.1', resolve));
  t.after(() => stranger.close());
  const env = `ANTHROPIC_API_KEY=sk-x\nANTHROPIC_BASE_URL=http://127.0.0.1:${stranger.address().port}\n`;
  const [dir, own] = ['d', 'own'].map((name) => join(top, name));
  for (const d of [dir, own]) mkdirSync(d);
  for (const d of [dir, own]) writeFileSync(join(d, '.env'), env, { mode: 0o600 });
  writeFileSync(join(own, 'cay.json'), '{}');
  const calls = [['code', 'hello world'], ['code', '--dir', '.', 'hello world'], ['execute', '--sdk', '1 + 2']];
  for (const args of calls) {
    const done = await runCay(args, { cwd: dir, timeout: 60_000 * slow });
    assert.equal(done.code, 0, done.stdout + done.stderr); // the demo: there is no key in the environment
    assert.match(done.stderr, new RegExp(`\\./\\.env is not read by \`cay ${args[0]}\`.*--config`));
    assert.doesNotMatch(done.stderr, /cay\.json/);
  }
  assert.equal(asked, 0, 'a stranger’s host is asked nothing');
  writeFileSync(join(dir, 'cay.json'), '{"no_such_setting": 1}');
  const second = await runCay(calls[2], { cwd: dir, timeout: 60_000 * slow });
  assert.equal(second.code, 0, second.stderr);
  assert.match(second.stderr, /\.\/cay\.json is not read by `cay execute`/);
  // What the user names is read, with the file beside it, from wherever the command is called.
  for (const args of calls) {
    const before = asked;
    const named = await runCay([args[0], '--config', '../own/cay.json', ...args.slice(1)], { cwd: dir, timeout: 60_000 * slow });
    assert.equal(named.code, 1, named.stdout + named.stderr);
    assert.doesNotMatch(named.stderr, /is not read/);
    assert.ok(asked > before);
  }
  assert.match((await runCay(['code', '--config', 'none.json', 'x'], { cwd: dir })).stderr, /--config none\.json: No such file/);
  for (const verb of [['code'], ['execute', '--sdk']]) assert.match((await runCay([...verb, '--config', 'cay.json', '--url', 'http://127.0.0.1:9', 'x'], { cwd: dir })).stderr, /does not go with --url/);
});

test('cay code --apply needs no server either', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'cay-code-'));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  writeFileSync(join(dir, 'sum.sh'), 'echo $(($1 - $2))\n');
  writeFileSync(join(dir, 'test.sh'), '[ "$(sh sum.sh 2 3)" = 5 ] && echo passed || { echo failed; exit 1; }\n');
  const env = { XDG_STATE_HOME: join(dir, 'state') };
  const done = await runCay(['code', '--dir', dir, '--apply', '--yes', 'Fix the failing test'], { env, timeout: 60_000 * slow });
  assert.equal(done.code, 0, done.stderr);
  assert.match(readFileSync(join(dir, 'sum.sh'), 'utf8'), /\+ \$2/);
  assert.equal((await runCay(['code', '--undo', '--dir', dir], { env })).code, 0);
  assert.match(readFileSync(join(dir, 'sum.sh'), 'utf8'), /- \$2/);
  assert.equal((await runCay(['code', '--apply', 'x'])).code, 2);
  assert.equal((await runCay(['code', '--undo'])).code, 2);
});

test('a job that is ending when its key is revoked keeps the end it has come to', async (t) => {
  const cay = await withCay(t, { config: { require_key: true } });
  const key = await createKey(cay.dataDir, { name: 'gone' });
  const admin = bearer((await createKey(cay.dataDir, { name: 'admin', scope: 'admin' })).text);
  const owner = bearer(key.text);
  const pidsOf = (name) => readdirSync('/proc').filter((pid) => /^\d+$/.test(pid) && new RegExp(`^Name:\t${name}$`, 'm').test(procText(pid, 'status')));
  const seconds = `4711.${process.pid}`; // nobody else's
  const sleeps = () => pidsOf('sleep').filter((pid) => procText(pid, 'cmdline').includes(seconds));
  const egress = await until(() => pidsOf('cay-egress').find((pid) => new RegExp(`^PPid:\t${cay.pid}$`, 'm').test(procText(pid, 'status'))), 'the way out');
  const other = code(cay, { command: `exec sleep ${seconds}` }, owner);
  await until(() => sleeps().length > 0, 'another job, which goes on');
  const job = code(cay, { command: 'until [ -e go ]; do sleep 0.05; done; echo made > here', keep: true }, owner);
  await until(() => job.events.some((e) => e.type === 'sandbox'), 'its sandbox');
  const { id } = job.events.find((e) => e.type === 'sandbox').data;
  const execs = async () => (await request(cay, `/v1/sandboxes/${id}/execs`, { headers: owner })).json().execs;
  await until(async () => (await execs()).length > 0, 'its command');
  // A sandbox that is kept loses its way to the model before the job is over: that is held up here.
  process.kill(Number(egress), 'SIGSTOP');
  try {
    const put = await request(cay, `/v1/sandboxes/${id}/files?path=/work/go`, { method: 'PUT', headers: owner, body: 'x' });
    assert.ok(put.status < 300, put.body);
    await until(async () => ((all) => all.length >= 2 && all.every((e) => e.status !== 'running'))(await execs()), 'the end of its commands');
    assert.equal((await runCay(['key', 'revoke', key.id, '--data-dir', cay.dataDir])).code, 0);
    await until(() => sleeps().length === 0, 'the end of the other job');
  } finally {
    process.kill(Number(egress), 'SIGCONT');
  }
  const runs = async () => (await request(cay, '/v1/runs?kind=code', { headers: admin })).json().runs;
  await until(async () => (await runs()).every((r) => r.status !== 'running'), 'both ends');
  const [mine, theirs] = await runs();
  assert.equal(mine.status, 'done', JSON.stringify(mine));
  assert.match((await request(cay, `/v1/runs/${mine.id}`, { headers: admin })).json().detail.diff, /\+made/);
  assert.equal(theirs.status, 'failed');
  other.stop();
  job.stop();
});
