// Agent kinds are files, and a sandbox that was kept can be given another task.
import assert from 'node:assert/strict';
import { chmodSync, copyFileSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { bearer, buildDir, createKey, request, runCay, startCay, tempDir, until, withCay } from '../lib/cay.mjs';
import { code, nothingLeft, runCode } from '../lib/code.mjs';

/** An agent that is a script in a folder, beside something that it needs. */
const parrot = {
  title: 'Parrot',
  description: 'Says what it was started with.',
  program: 'bin/parrot',
  find: 'setting',
  mount: '/opt/parrot',
  arguments: ['--spec=${spec}', '${dir}', '${model}-${dialect}', '${max_steps}/${timeout_ms}'],
  environment: { PARROT: 'sees ${model}' },
  stdin: 'spec',
  dialects: ['openai'],
  lines: 'text',
  memory_mb: 64,
  demo: true,
};

/** A folder of definitions and a folder of programs. */
function makeCoders(t, defs) {
  const dir = tempDir(t);
  const coders = join(dir, 'coders');
  mkdirSync(join(dir, 'parrot/bin'), { recursive: true });
  mkdirSync(coders);
  for (const path of [dir, coders]) chmodSync(path, 0o755);
  writeFileSync(join(dir, 'parrot/beside'), 'the file beside it\n');
  writeFileSync(
    join(dir, 'parrot/bin/parrot'),
    `#!/bin/sh
for a in "$@"; do printf 'arg <%s>\\n' "$a"; done
echo "env $PARROT; base $OPENAI_BASE_URL; \${ANTHROPIC_BASE_URL:-no other}"
echo "stdin $(cat)"
cat /opt/parrot/beside
touch /opt/parrot/mine 2>&1
echo parrot >parrot.txt
`,
    { mode: 0o755 },
  );
  for (const [name, def] of Object.entries(defs)) writeFileSync(join(coders, `${name}.json`), typeof def === 'string' ? def : JSON.stringify(def));
  return { coders, dir, config: { coders_dir: coders, coders: { parrot: join(dir, 'parrot') } } };
}

test('a third agent is a file: its program, arguments, environment, input and lines', async (t) => {
  const { config } = makeCoders(t, { parrot });
  const cay = await withCay(t, { config });
  const list = (await request(cay, '/v1/code/agents')).json().agents;
  assert.deepEqual(list.map((a) => [a.name, a.usable]), [['claude-code', false], ['coder', true], ['parrot', true]]);
  const seen = code(cay, { agent: 'parrot', spec: 'two words; $(date) "${model}"\nand a line', max_steps: 7, timeout_ms: 90_000 });
  await seen.ended;
  const lines = seen.of('text').map((e) => e.text);
  assert.deepEqual(lines.slice(0, 6), [
    'arg <--spec=two words; $(date) "${model}"',
    'and a line>',
    'arg </work>',
    'arg <demo-openai>',
    'arg <7/90000>',
    'env sees demo; base http://127.0.0.1:3128/v1; no other',
  ]);
  assert.match(lines.join('\n'), /stdin two words[\s\S]*the file beside it[\s\S]*Read-only file system/);
  const end = seen.of('end')[0];
  assert.equal(end.status, 'done');
  const run = (await request(cay, `/v1/runs/${end.id}`)).json();
  assert.equal(run.detail.agent, 'parrot');
  assert.match(run.detail.diff, /\+parrot/);
  await nothingLeft(cay);
});

/** An agent as others write them: a loop around the OpenAI API in node, that tells what it does in our lines. */
const nodeAgent = `#!/usr/bin/env node
const { execSync } = require('node:child_process'), fs = require('node:fs');
const [model, steps] = process.argv.slice(2), begun = Date.now();
const tell = (type, more) => process.stdout.write(JSON.stringify({ type, at: Date.now() - begun, ...more }) + '\\n');
const tools = {
  write_file: ({ path, content }) => (fs.writeFileSync(path, content), 'written'),
  read_file: ({ path }) => fs.readFileSync(path, 'utf8'),
  run_command: ({ command }) => execSync(command, { encoding: 'utf8' }),
};
const usage = { input_tokens: 0, output_tokens: 0, model_calls: 0 };
async function ask(messages) {
  const call = ++usage.model_calls, asked = Date.now(), body = JSON.stringify({ model, messages });
  tell('model_begin', { call, bytes: body.length });
  const res = await fetch(process.env.OPENAI_BASE_URL + '/chat/completions', { method: 'POST', headers: { 'content-type': 'application/json', authorization: 'Bearer ' + process.env.OPENAI_API_KEY }, body });
  const got = await res.json();
  usage.input_tokens += got.usage.prompt_tokens;
  usage.output_tokens += got.usage.completion_tokens;
  tell('model_end', { call, ms: Date.now() - asked, ok: res.ok, attempts: 1, input_tokens: got.usage.prompt_tokens, output_tokens: got.usage.completion_tokens });
  return got.choices[0].message.content;
}
(async () => {
  const messages = [{ role: 'user', content: fs.readFileSync(0, 'utf8') }];
  tell('start', { v: 1, agent: 'noddy', version: '1', model, dir: process.cwd(), max_steps: Number(steps) });
  for (let step = 1; ; step++) {
    const text = await ask(messages), action = JSON.parse(text);
    if (action.done) return tell('done', { reason: 'done', summary: action.summary, steps: step - 1, ms: Date.now() - begun, usage });
    tell('step_begin', { step, tool: action.tool, args: action.args });
    const output = tools[action.tool](action.args);
    tell('output', { step, text: output });
    tell('step_end', { step, ok: true, ms: 0 });
    messages.push({ role: 'assistant', content: text }, { role: 'user', content: JSON.stringify({ output }) });
  }
})();
`;

test('a third agent, for real: a loop in node, as a file and a folder', { skip: !existsSync('/usr/bin/node') && 'no node where sandboxes see it' }, async (t) => {
  const noddy = { ...parrot, title: 'Noddy', program: 'noddy', mount: '/opt/noddy', arguments: ['${model}', '${max_steps}'], environment: {}, lines: 'cay', memory_mb: 256 };
  const { config, dir } = makeCoders(t, { noddy });
  mkdirSync(join(dir, 'noddy'));
  writeFileSync(join(dir, 'noddy/noddy'), nodeAgent, { mode: 0o755 });
  const cay = await withCay(t, { config: { ...config, coders: { noddy: join(dir, 'noddy') } } });
  const seen = code(cay, { agent: 'noddy', spec: 'Create a hello world Python script and run it' });
  await seen.ended;
  const { id, status, error } = seen.of('end')[0];
  assert.equal(status, 'done', JSON.stringify([error, seen.events]));
  assert.deepEqual(seen.of('step_begin').map((s) => s.tool), ['write_file', 'run_command', 'read_file']);
  assert.match(seen.of('output').map((o) => o.text).join(''), /Hello, World!/i);
  const run = (await request(cay, `/v1/runs/${id}`)).json();
  assert.equal(run.detail.result.usage.model_calls, 4);
  assert.match(run.detail.diff, /\+\+\+ b\/hello\.py/);
  const task = (await request(cay, '/execute', { method: 'POST', body: JSON.stringify({ task: 'Create a hello world Python script', options: { agent: 'noddy', include_diff: true } }) })).json();
  assert.equal(task.success, true, JSON.stringify(task));
  assert.match(task.diff, /hello\.py/);
  await nothingLeft(cay);
});

test('a definition that is none is named, with what is wrong, and the server does not start', async (t) => {
  const bad = async (name, def, pattern, coders) => {
    const { config } = makeCoders(t, { [name]: def });
    await assert.rejects(startCay({ config: { ...config, coders } }), (e) => (assert.match(e.message, pattern), true));
  };
  const { title, ...untitled } = parrot;
  await bad('a', '{', /a\.json/);
  await bad('a', untitled, /a\.json: "title" is missing/);
  await bad('a', { ...parrot, colour: 1 }, /a\.json: .*unknown key "colour"/);
  await bad('a', { ...parrot, arguments: ['${home}'] }, /\$\{home\}" is no placeholder; there are \$\{dir\}/);
  await bad('a', { ...parrot, environment: { X: '${' } }, /no placeholder/);
  await bad('a', { ...parrot, arguments: [1] }, /arguments\[0\] is no string/);
  await bad('a', { ...parrot, lines: 'xml' }, /"lines" must be "cay"/);
  await bad('a', { ...parrot, dialects: ['french'] }, /"dialects" must be/);
  await bad('a', { ...parrot, find: 'anywhere' }, /"find" must be "setting" or "own"/);
  await bad('a', { ...parrot, program: '../sh' }, /"program" must be/);
  await bad('a', { ...parrot, mount: 'opt' }, /"mount" must be/);
  await bad('A_b', parrot, /an agent's name has up to 40/);
  await bad('a', parrot, /there is no agent "nobody"/, { nobody: '/opt' });
  await bad('a', parrot, /"a" must be an absolute path/, { a: 'opt' });
});

test('an agent that cannot be used says why, and doctor where the others are', async (t) => {
  const { config, dir } = makeCoders(t, { parrot, script: { ...parrot, program: 'script' }, big: { ...parrot, memory_mb: 4096 }, other: { ...parrot, demo: false } });
  mkdirSync(join(dir, 'path'));
  writeFileSync(join(dir, 'path/script'), '#!/bin/sh\n', { mode: 0o755 });
  copyFileSync(join(buildDir, 'coders/cay-coder'), join(dir, 'path/claude'));
  config.coders = { parrot: join(dir, 'parrot'), big: join(dir, 'parrot'), other: join(dir, 'parrot') };
  const env = { PATH: `${join(dir, 'path')}:${process.env.PATH}` };
  const file = join(dir, 'cay.json');
  writeFileSync(file, JSON.stringify(config));
  const doctor = await runCay(['doctor', '--config', file], { env });
  assert.match(doctor.stdout, /^ok +claude-code +coding agent: \S*path\/claude \(in PATH\)$/m);
  assert.match(doctor.stdout, /^ok +coder +coding agent: \S*coders\/cay-coder \(comes with cay\)$/m);
  assert.match(doctor.stdout, /^ok +parrot +coding agent: \S*parrot \(by the setting "coders"\)$/m);
  assert.match(doctor.stdout, /^absent +script .*\n.*path\/script is a script/m);
  const cay = await withCay(t, { config, env });
  const bad = async (body, pattern) => {
    const got = await request(cay, '/v1/code', { method: 'POST', body: JSON.stringify({ spec: 'x', ...body }) });
    assert.ok(got.status >= 400, got.body);
    assert.match(got.json().error.message, pattern);
  };
  await bad({ agent: 'script' }, /"script" cannot be used: .*is a script/);
  await bad({ agent: 'big' }, /needs 4096 MiB/);
  await bad({ agent: 'other' }, /demo model plays .*OPENAI_API_KEY/);
  await bad({ agent: 'claude-code' }, /demo model plays .*ANTHROPIC_API_KEY/);
  await bad({ agent: 'nobody' }, /there is "big", "claude-code", "coder"/);
  await bad({ spec: 'x'.repeat(65537) }, /"spec" exceeds 65536/);
});

test('how many steps a job has, and a task how much time, is the operator’s, also while the server runs', async (t) => {
  const cay = await withCay(t, { config: { limits: { coder_max_steps: 2 }, execute: { timeout_ms: 5000 } } });
  const spec = 'Create a hello world Python script and run it';
  assert.equal((await runCode(cay, { spec })).error.code, 'max_steps');
  assert.equal((await runCode(cay, { spec, max_steps: 3 })).status, 'done', 'one may ask for more');
  const task = async () => (await request(cay, '/execute', { method: 'POST', body: JSON.stringify({ task: spec, options: { timeout_ms: 50_000 } }) })).status;
  assert.equal(await task(), 400);
  writeFileSync(join(cay.dir, 'cay.json'), JSON.stringify({ limits: { coder_max_steps: 4 }, execute: { timeout_ms: 60_000 } }));
  const { applied } = (await request(cay, '/v1/config/reload', { method: 'POST' })).json();
  assert.deepEqual(applied.map((c) => c.key).sort(), ['execute.timeout_ms', 'limits.coder_max_steps']);
  assert.equal((await runCode(cay, { spec })).status, 'done');
  assert.equal(await task(), 200);
});

describe('a sandbox that was kept', () => {
  let cay, own, other;
  before(async () => {
    cay = await startCay({ config: { require_key: true } });
    own = bearer(cay.key);
    other = bearer((await createKey(cay.dataDir, { name: 'other' })).text);
  });
  after(() => cay.stop());

  test('goes on with another task; the diff is of that alone; it stays', async () => {
    const first = await runCode(cay, { command: 'echo one >a; echo keep >b', keep: true }, own);
    assert.equal(first.detail.kept, true);
    const id = first.detail.sandbox;
    const seen = code(cay, { spec: 'Create a hello world Python script and run it', sandbox: id }, own);
    await seen.ended;
    assert.deepEqual(seen.of('sandbox'), [{ id }]);
    assert.deepEqual(seen.of('step_begin').map((s) => s.tool), ['write_file', 'run_command', 'read_file'], 'its model can be reached again');
    const run = (await request(cay, `/v1/runs/${seen.of('end')[0].id}`, { headers: own })).json();
    assert.equal(run.detail.kept, true);
    assert.match(run.detail.diff, /\+\+\+ b\/hello\.py/);
    assert.doesNotMatch(run.detail.diff, /[ab]\/[ab]$/m);
    const third = await runCode(cay, { command: 'cat a b; ls; rm a', sandbox: id, keep: false }, own);
    assert.match(third.detail.diff, /deleted file mode 100644[\s\S]*-one/);
    assert.equal(third.detail.kept, false);
    await nothingLeft(cay, own);
  });

  test('is another key’s to nobody, and one job’s at a time', async () => {
    const first = await runCode(cay, { command: 'true', keep: true }, own);
    const id = first.detail.sandbox;
    const ask = (body, headers) => request(cay, '/v1/code', { method: 'POST', headers, body: JSON.stringify({ spec: 'x', ...body }) });
    assert.equal((await ask({ sandbox: id }, other)).status, 404);
    assert.equal((await ask({ sandbox: 'sbx_none' }, own)).status, 404);
    const busy = code(cay, { command: 'echo up; sleep 1000', sandbox: id }, own);
    await until(() => busy.of('text').length > 0, 'its word');
    const refused = await ask({ sandbox: id }, own);
    assert.equal(refused.status, 409);
    assert.match(refused.json().error.message, /works in this sandbox/);
    const run = (await request(cay, '/v1/runs?kind=code', { headers: own })).json().runs.find((r) => r.status === 'running');
    await request(cay, `/v1/runs/${run.id}/cancel`, { method: 'POST', headers: own });
    await busy.ended;
    assert.equal(busy.of('end')[0].status, 'cancelled');
    const after = await runCode(cay, { command: 'ps -e -o args | grep -c "[s]leep 1000"; true', sandbox: id }, own);
    assert.equal(after.status, 'done', 'it stays when its task is cancelled');
    assert.match((await request(cay, `/v1/runs/${after.id}/events`, { headers: own })).body, /"text":"0"/, 'and nothing of that runs on');
    assert.match((await ask({ sandbox: id, files: [{ path: 'a', content: '' }] }, own)).json().error.message, /"files" go into a new/);
    assert.match((await ask({ sandbox: id, repo: 'https://example.com/a/b' }, own)).json().error.message, /"repo" goes into a new/);
    await request(cay, `/v1/sandboxes/${id}`, { method: 'DELETE', headers: own });
    assert.equal((await ask({ sandbox: id }, own)).status, 409);
    const plain = (await request(cay, '/v1/sandboxes', { method: 'POST', headers: own, body: '{}' })).json();
    assert.match((await ask({ sandbox: plain.id }, own)).json().error.message, /not made by a coding job/);
    await request(cay, `/v1/sandboxes/${plain.id}`, { method: 'DELETE', headers: own });
    await nothingLeft(cay, own);
  });
});
