// POST /execute: the seed's fields, options and errors; what a permission mode allows is held by the sandbox.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { isSanitized, request, runCay, slow, startCay, tempDir, until, withCay } from '../lib/cay.mjs';
import { code, nothingLeft } from '../lib/code.mjs';
import { git, gitWith, startGit } from '../lib/git.mjs';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

const post = async (cay, body, headers = {}) => {
  const got = await request(cay, '/execute', { method: 'POST', headers: { 'Content-Type': 'application/json', ...headers }, body: typeof body === 'string' ? body : JSON.stringify(body) });
  return { http: got.status, headers: got.headers, ...got.json() };
};

/** An agent whose task is a script for sh. */
const shell = {
  title: 'shell', description: 'Runs its task.', program: 'shell', find: 'setting', mount: '/opt/shell', arguments: ['-c', '${spec}'],
  options: { plan: [], work: [], system_prompt: ['--', '${system_prompt}'], append_system_prompt: ['--', '${append_system_prompt}'] },
  stdin: 'none', dialects: ['anthropic'], lines: 'text', demo: true,
};

describe('a task', () => {
  let cay, server;
  const ends = [];
  const t = { after: (f) => ends.push(f) };
  before(async () => {
    const { chmodSync, mkdirSync, writeFileSync } = await import('node:fs');
    server = await startGit(t);
    const dir = tempDir(t);
    chmodSync(dir, 0o755);
    mkdirSync(join(dir, 'coders'), { mode: 0o755 });
    writeFileSync(join(dir, 'coders/shell.json'), JSON.stringify(shell));
    writeFileSync(join(dir, 'coders/bare.json'), JSON.stringify({ ...shell, options: {} }));
    writeFileSync(join(dir, 'coders/lines.json'), JSON.stringify({ ...shell, lines: 'cay' }));
    const config = {
      coders_dir: join(dir, 'coders'),
      coders: { shell: '/bin/sh', bare: '/bin/sh', lines: '/bin/sh' },
      sandboxes: { private: [server.host], allow: ['example.invalid', `tcp://${server.host}`], routes: { hub: { url: server.url }, gpt: { url: server.url, api: 'openai', models: ['x'] } } },
    };
    cay = await startCay({ config });
  });
  after(async () => {
    await cay.stop();
    for (const end of ends) await end();
  });

  test('of the seed’s first example: a script is made, for real', async () => {
    const got = await post(cay, { task: 'Create a hello world Python script', options: { permission_mode: 'acceptEdits' } });
    assert.equal(got.http, 200, JSON.stringify(got));
    const { http, headers, ...json } = got;
    assert.deepEqual(Object.keys(json), ['success', 'request_id', 'timestamp', 'logs', 'metadata']);
    assert.equal(json.success, true);
    assert.match(json.request_id, UUID);
    assert.match(json.timestamp, /^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
    assert.match(json.logs, /^1 write_file \{"path":"hello\.py"[\s\S]*Hello, world!\n[\s\S]*demo played this/m);
    assert.deepEqual(Object.keys(json.metadata), ['execution_time_ms', 'sandbox_id']);
    assert.ok(Number.isInteger(json.metadata.execution_time_ms) && json.metadata.sandbox_id.startsWith('sbx_'));
    const run = (await request(cay, `/v1/runs/${json.request_id}`)).json();
    assert.equal(run.kind, 'execute');
    assert.equal(run.status, 'done');
    assert.equal(headers.location, `/v1/runs/${json.request_id}`);
    const withDiff = await post(cay, { task: 'Create a hello world Python script', options: { include_diff: true } });
    assert.match(withDiff.diff, /^\+print\('Hello, world!'\)$/m);
    await nothingLeft(cay);
  });

  test('a NUL in what the agent says takes nothing away from the answer', async () => {
    const usage = { input_tokens: 0, output_tokens: 0, model_calls: 0 };
    const lines = [
      { type: 'start', at: 0, v: 1, agent: 'x', version: '1', model: 'm', dir: '/work', max_steps: 5 },
      { type: 'text', at: 1, text: 'said\0this' },
      { type: 'done', at: 1, reason: 'done', summary: 'all\0done', steps: 0, ms: 1, usage },
    ];
    const script = `echo new >new.txt; cat <<'EOF'\n${lines.map((l) => JSON.stringify(l)).join('\n')}\nEOF`;
    const got = await post(cay, { task: script, options: { agent: 'lines', include_diff: true } });
    assert.equal(got.success, true, JSON.stringify(got));
    assert.match(got.diff, /^\+new$/m);
    assert.match(got.metadata.sandbox_id, /^sbx_/);
    assert.match(got.logs, /said\0this\nall\0done\n/);
  });

  test('of the seed’s second example: a repository is cloned, and the diff applies', async () => {
    const repo = server.add('seed', { 'README.md': '# A thing\n', 'a.js': '1\n' });
    const got = await post(cay, { repo, task: 'Add a comment to the README explaining what this repo does', options: { include_diff: true } });
    assert.equal(got.success, true, JSON.stringify(got));
    assert.equal(got.metadata.repo, repo);
    assert.match(got.logs, /^clone http/);
    const dir = tempDir(t);
    git(dir, 'clone', '-q', join(server.root, 'seed'), 'c');
    gitWith(join(dir, 'c'), got.diff, 'apply', '-');
    assert.match(git(join(dir, 'c'), 'diff'), /\+<!-- This repository holds: README\.md a\.js/);
    const usual = await post(cay, { repo, task: 'Add a comment to the README' });
    assert.equal(usual.diff, got.diff, 'with a repository the diff is there unless it is not wanted');
    const without = await post(cay, { repo, task: 'Add a comment to the README', options: { include_diff: false } });
    assert.equal(without.diff, undefined);
    await nothingLeft(cay);
  });

  test('plan: nothing can be changed, whatever the agent tries', async () => {
    const repo = server.add('plan', { a: 'as it was\n' });
    const tries = ['echo x >a', 'echo x >new', 'rm a', 'mv a b', 'mkdir d', 'ln -s a l', 'ln a /tmp/h', ': >a', 'echo x >>/proc/self/cwd/a', 'setsid sh -c "echo y >a"', 'find / -samefile /work/a ! -path "/proc/*" ! -path /work/a 2>/dev/null | grep .', 'python3 -c "import mmap; mmap.mmap(open(\'a\').fileno(), 0)[0:1] = b\'x\'"', 'git worktree add /tmp/w', 'chmod 600 a', 'touch a', 'touch -d @1 a', 'truncate -s 0 a', 'chown :$(id -g) a', 'python3 -c "import os; os.open(\'a\', os.O_RDONLY | os.O_TRUNC)"', 'chmod 700 .', 'python3 -c "import os; os.open(\'/proc/self/fd/%d\' % os.open(\'a\', os.O_PATH), os.O_WRONLY)"', 'echo x >>/proc/self/root/work/a', 'git -c user.name=x -c user.email=x@y commit -qm x --allow-empty', 'python3 -c "open(\'a\', \'r+\')"'];
    const task = `for c in ${tries.map((c) => `'${c.replaceAll("'", "'\\''")}'`).join(' ')}; do sh -c "$c" 2>/dev/null && echo "DID $c"; done; cat a; ls -A; echo x >/tmp/x && echo tmp`;
    const got = await post(cay, { repo, task, options: { agent: 'shell', permission_mode: 'plan' } });
    assert.equal(got.success, true, JSON.stringify(got));
    assert.doesNotMatch(got.logs, /DID/);
    assert.match(got.logs, /^as it was\n\.git\na\ntmp$/m);
    assert.equal(got.diff, undefined);
    const coder = await post(cay, { task: 'Create a hello world Python script', options: { permission_mode: 'plan' } });
    assert.match(coder.logs, /there is no tool "write_file"; there are read_file and list_files/);
    assert.match((await post(cay, { repo, task: 'echo x >a; cat a', options: { agent: 'shell' } })).diff, /-as it was\n\+x/, 'acceptEdits may');
    await nothingLeft(cay);
  });

  test('acceptEdits reaches its model alone, bypassPermissions what the operator lets out', async () => {
    const task = `curl -s -o /dev/null -w '%{http_code}\\n' http://127.0.0.1:3128/_/hub/x; curl -s -o /dev/null -w '%{http_code}\\n' http://127.0.0.1:3128/v1/chat/completions -d '{"model":"x","messages":[]}'; env | grep -ci https_proxy`;
    const closed = await post(cay, { task, options: { agent: 'shell' } });
    assert.match(closed.logs, /^403\n403\n/, closed.logs);
    const open = await post(cay, { task, options: { agent: 'shell', permission_mode: 'bypassPermissions' } });
    assert.match(open.logs, /^(404|403)\n403\n[12]$/m, open.logs);
    assert.ok(server.asked.some((a) => a.path === '/x'), 'the route leads out');
    await nothingLeft(cay);
  });

  test('system prompts reach the agent as one argument', async () => {
    const got = await post(cay, { task: 'printf "<%s>" "$@"', options: { agent: 'shell', system_prompt: 'be; $(brief)\n"so"', append_system_prompt: 'and kind' } });
    assert.match(got.logs, /<be; \$\(brief\)\n"so"><--><and kind>/, got.logs);
    const none = await post(cay, { task: 'true', options: { agent: 'bare', system_prompt: 'x' } });
    assert.equal(none.http, 400);
    assert.match(none.error.message, /"bare" cannot be given a system prompt/);
  });

  test('that cannot be taken says why, in the seed’s shape', async () => {
    const bad = async (body, status, pattern) => {
      const got = await post(cay, body);
      assert.equal(got.http, status, JSON.stringify(got));
      assert.deepEqual(Object.keys(got).slice(2), ['success', 'request_id', 'timestamp', 'error']);
      assert.equal(got.success, false);
      assert.match(got.request_id, UUID);
      assert.match(got.error.message, pattern);
    };
    await bad('{', 400, /./);
    await bad({}, 400, /"task"/);
    await bad({ task: '' }, 400, /"task"/);
    await bad({ task: 1 }, 400, /task/);
    await bad({ task: 'x'.repeat(65537) }, 413, /exceeds/);
    await bad({ task: 'x', other: 1 }, 400, /"other"/);
    await bad({ task: 'x', options: [] }, 400, /options/);
    await bad({ task: 'x', options: { other: 1 } }, 400, /"other"/);
    await bad({ task: 'x', options: { permission_mode: 'yolo' } }, 400, /permission_mode/);
    await bad({ task: 'x', options: { max_turns: 0 } }, 400, /max_turns/);
    await bad({ task: 'x', options: { max_budget_usd: -1 } }, 400, /max_budget_usd/);
    await bad({ task: 'x', options: { timeout_ms: 10 } }, 400, /timeout_ms/);
    await bad({ task: 'x', options: { timeout_ms: 300001 } }, 400, /timeout_ms/);
    await bad({ task: 'x', options: { model: 'gpt-nothing' } }, 400, /no model "gpt-nothing" here.*OPENAI_API_KEY/);
    await bad({ task: 'x', options: { max_budget_usd: 10001 } }, 400, /at most 10000/);
    await bad({ task: '', options: null }, 400, /"task"/);
    await bad({ task: 'x', options: { agent: 'nobody' } }, 400, /no agent/);
    await bad({ task: 'x', options: { system_prompt: 'x'.repeat(65537) } }, 413, /system_prompt/);
    await bad({ task: 'x', repo: 'ftp://x' }, 400, /"repo"/);
  });

  test('that fails has what came of it until then', async () => {
    const none = await post(cay, { task: 'x', repo: `${server.url}/nothing` });
    assert.equal(none.http, 404);
    assert.equal(none.error.code, 'not_found');
    assert.match(none.logs, /^clone/);
    const many = await post(cay, { task: 'Create a hello world Python script', options: { max_turns: 1, include_diff: true } });
    assert.equal(many.http, 200);
    assert.equal(many.success, false);
    assert.equal(many.error.code, 'max_turns');
    assert.match(many.diff, /hello\.py/);
    const late = await post(cay, { task: 'echo early; sleep 100', options: { agent: 'shell', timeout_ms: isSanitized ? 10_000 : 6000 } });
    assert.equal(late.http, 504);
    assert.equal(late.error.code, 'timeout');
    assert.match(late.logs, /early/);
    const loud = await post(cay, { task: 'for i in $(seq 100); do head -c 20000 /dev/zero | tr "\\0" x; echo; done', options: { agent: 'shell' } });
    assert.match(loud.logs, /\[the log is longer than 1048576 bytes: .*\]\n$/);
    assert.ok(loud.logs.length < 1_200_000);
    await nothingLeft(cay);
  });

  test('cay execute shows the steps and the diff, with a server and without one', async () => {
    const env = { CAY_URL: cay.url };
    const repo = server.add('cli', { 'README.md': '# x\n' });
    const done = await runCay(['execute', '--repo', repo, '--ref', 'main', 'Add a comment to the README'], { env, timeout: 60_000 * slow });
    assert.equal(done.code, 0, done.stderr);
    assert.match(done.stdout, /run_command[\s\S]*done {2}[\s\S]*\+<!-- This repository holds[\s\S]*\d s\n$/);
    const json = await runCay(['execute', '-o', 'json', '--mode', 'plan', '--agent', 'shell', '--timeout', '20s', 'echo x >a || echo no'], { env, timeout: 60_000 * slow });
    assert.match(JSON.parse(json.stdout).logs, /no/);
    const failed = await runCay(['execute', '--max-turns', '1', '--diff', 'Create a hello world Python script'], { env, timeout: 60_000 * slow });
    assert.equal(failed.code, 1);
    assert.match(failed.stdout, /\+print[\s\S]*failed/);
    const own = await runCay(['execute', 'Create a hello world Python script'], { timeout: 60_000 * slow });
    assert.equal(own.code, 0, own.stderr);
    assert.match(own.stdout, /Hello, world!/);
    for (const args of [[], ['--sdk', '--repo', repo, 'x'], ['--tools', 'RunCode', 'x'], ['--timeout', 'x', 'y']]) assert.equal((await runCay(['execute', ...args], { env })).code, 2, args.join(' '));
  });

  test('can be followed, resumed and cancelled; a plain call ends with its client', async () => {
    const seen = code(cay, { task: 'Create a hello world Python script' }, {}, '/execute');
    await seen.ended;
    const end = seen.events.at(-1);
    assert.equal(end.type, 'end');
    assert.equal(end.data.success, true);
    assert.equal(end.data.logs, undefined);
    assert.match(end.data.request_id, UUID);
    assert.ok(seen.events.some((e) => e.type === 'step_begin'));
    const rest = await request(cay, '/execute', { method: 'POST', headers: { Accept: 'text/event-stream', 'Last-Event-ID': `${end.data.request_id}.3` } });
    assert.match(rest.body, new RegExp(`^id: ${end.data.request_id}\\.4$`, 'm'));
    assert.doesNotMatch(rest.body, /\.3$/m);
    const gone = new AbortController();
    const left = fetch(`${cay.url}/execute`, { method: 'POST', signal: gone.signal, body: JSON.stringify({ task: 'echo up; sleep 1000', options: { agent: 'shell' } }) }).catch(() => {});
    const run = await until(async () => (await request(cay, '/v1/runs?kind=execute')).json().runs.find((r) => r.status === 'running'), 'the run');
    gone.abort();
    await left;
    await until(async () => (await request(cay, `/v1/runs/${run.id}`)).json().status === 'cancelled', 'its end');
    await nothingLeft(cay);
  });
});

test('a budget is held by the way out; MAX_EXECUTION_TIME bounds a task', async (t) => {
  const { createServer } = await import('node:http');
  const asked = [];
  const model = createServer((req, res) => {
    req.resume().on('end', () => {
      asked.push(req.url);
      res.setHeader('content-type', 'application/json');
      res.end(JSON.stringify({ id: 'x', type: 'message', role: 'assistant', model: 'm', content: [{ type: 'text', text: '{"tool":"list_files","args":{}}' }], stop_reason: 'end_turn', usage: { input_tokens: 1_000_000, output_tokens: 10 } }));
    });
  });
  await new Promise((resolve) => model.listen(0, '127.0.0.1', resolve));
  t.after(() => model.close());
  const cay = await withCay(t, { env: { ANTHROPIC_API_KEY: 'sk-ant-x', ANTHROPIC_BASE_URL: `http://127.0.0.1:${model.address().port}`, MAX_EXECUTION_TIME: '20000' } });
  const got = await post(cay, { task: 'spend', options: { model: 'sonnet', max_budget_usd: 1 } });
  assert.equal(got.success, false);
  assert.equal(got.http, 200, JSON.stringify(got));
  assert.equal(got.error.code, 'max_budget_usd');
  assert.match(got.error.message, /budget/);
  assert.equal(asked.length, 1, 'the second request was not let out');
  const unpriced = await post(cay, { task: 'x', options: { model: 'claude-unknown-9', max_budget_usd: 1 } });
  assert.equal(unpriced.http, 400);
  assert.match(unpriced.error.message, /the price of "claude-unknown-9" is not known/);
  assert.match((await post(cay, { task: 'x', options: { timeout_ms: 20001 } })).error.message, /timeout_ms/);
  await nothingLeft(cay);
});
