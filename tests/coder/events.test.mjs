// The whole path: the task of the seed, in both dialects, and what is told while it goes.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { DIALECTS, done, finished, readLines, runCoder, sh, startCoder, startModel, tempDir, tool } from './lib.mjs';

const HELLO = [
  tool('write_file', { path: 'hello.sh', content: 'echo "Hello, world"\n' }, 'A script first.'),
  sh('sh hello.sh > out.txt; cat out.txt'),
  tool('read_file', { path: 'out.txt' }),
  done('Wrote hello.sh; it prints Hello, world.'),
];

for (const dialect of DIALECTS) {
  test(`${dialect}: writes a script, runs it, reads what came of it, is done`, async (t) => {
    const model = await startModel(t, dialect, HELLO);
    const env = dialect === 'openai' ? { OPENAI_API_KEY: 'sk-x' } : { ANTHROPIC_API_KEY: 'sk-x' };
    const r = await runCoder(t, model, { dialect, spec: 'Create a hello world script and run it', env });
    assert.equal(r.code, 0);
    assert.equal(readFileSync(join(r.dir, 'hello.sh'), 'utf8'), 'echo "Hello, world"\n');
    assert.deepEqual(r.events.map((e) => e.type), [
      'start', 'model_begin', 'model_end', 'thought', 'step_begin', 'output', 'step_end',
      'model_begin', 'model_end', 'step_begin', 'output', 'step_end',
      'model_begin', 'model_end', 'step_begin', 'output', 'step_end', 'model_begin', 'model_end', 'done',
    ]);
    const start = r.events[0];
    assert.deepEqual({ ...start, at: 0 }, {
      type: 'start', at: 0, v: 1, agent: 'cay-coder', version: start.version, model: 'm', dir: r.dir, max_steps: 5, dialect, timeout_ms: 300000,
    });
    assert.equal(r.output(2), 'Hello, world\n');
    assert.equal(r.output(3), 'Hello, world\n');
    assert.deepEqual(r.of('step_end').map((e) => [e.ok, e.exit_code]), [[true, undefined], [true, 0], [true, undefined]]);
    assert.equal(r.last.summary, 'Wrote hello.sh; it prints Hello, world.');
    assert.deepEqual(r.last.usage, { input_tokens: 400, output_tokens: 40, model_calls: 4, cache_read_tokens: 12 });
    assert.equal(r.last.steps, 3);
    assert.deepEqual(model.result(2), { step: 2, tool: 'run_command', ok: true, exit_code: 0, output: 'Hello, world\n', steps_left: 3 });
    const head = model.heads[0];
    assert.equal(head.url, dialect === 'openai' ? '/v1/chat/completions' : '/v1/messages');
    assert.equal(dialect === 'openai' ? head.headers.authorization : head.headers['x-api-key'], dialect === 'openai' ? 'Bearer sk-x' : 'sk-x');
    const asked = model.requests[0];
    const system = dialect === 'openai' ? asked.messages[0].content : asked.system;
    assert.match(system, /exactly one JSON object/);
    assert.match(system, new RegExp(`folder ${r.dir},`));
    assert.match(system, /You have 5 steps/);
    assert.equal(asked.messages.at(-1).content, 'Create a hello world script and run it');
  });
}

test('an action is told before it is done, and its output while it runs', async (t) => {
  const wait = (name) => `while [ ! -e ${name} ]; do sleep 0.02; done`;
  const model = await startModel(t, 'anthropic', [sh(`${wait('a')}; echo one; ${wait('b')}; echo two`), done()]);
  const it = startCoder(t, model, {});
  await it.wait((e) => e.type === 'step_begin' && e.step === 1);
  writeFileSync(join(it.dir, 'a'), '');
  await it.wait((e) => e.type === 'output' && e.text === 'one\n');
  writeFileSync(join(it.dir, 'b'), '');
  const { code } = await it.ended;
  assert.deepEqual(finished(it, code).of('output').map((e) => e.text), ['one\n', 'two\n']);
});

test('the task may come from a file or from standard input', async (t) => {
  const dir = tempDir(t);
  writeFileSync(join(dir, 'spec.txt'), 'from a file');
  const one = await startModel(t, 'anthropic', [done()]);
  await runCoder(t, one, { spec: null, args: ['--spec-file', join(dir, 'spec.txt')] });
  assert.equal(one.last()[0].content, 'from a file');
  const two = await startModel(t, 'anthropic', [done()]);
  await runCoder(t, two, { spec: null, args: ['--spec-file', '-'], input: 'from standard input' });
  assert.equal(two.last()[0].content, 'from standard input');
});

test('a prompt of one\'s own takes the place of ours', async (t) => {
  const dir = tempDir(t);
  writeFileSync(join(dir, 'p.md'), 'Work in {{dir}}, {{max_steps}} steps, {{other}} stays.');
  const model = await startModel(t, 'anthropic', [done()]);
  const r = await runCoder(t, model, { args: ['--prompt-file', join(dir, 'p.md')] });
  assert.equal(model.requests[0].system, `Work in ${r.dir}, 5 steps, {{other}} stays.`);
});

test('a task that is no text, too long or empty is refused before a model is asked', async (t) => {
  const model = await startModel(t, 'anthropic', [done()]);
  const dir = tempDir(t);
  for (const [content, why] of [[Buffer.from('a\0b'), /NUL/], [Buffer.from([0x61, 0xff]), /UTF-8/], [' \n', /empty/], ['x'.repeat(70_000), /longer than 65536/]]) {
    writeFileSync(join(dir, 's'), content);
    const r = await runCoder(t, model, { spec: null, args: ['--spec-file', join(dir, 's')] });
    assert.equal(r.code, 1);
    assert.equal(r.last.reason, 'error');
    assert.match(r.last.message, why);
  }
  const gone = await runCoder(t, model, { spec: null, args: ['--spec-file', join(dir, 'gone')] });
  assert.match(gone.last.message, /the task: open .*No such file/);
  assert.equal(model.requests.length, 0);
});

test('called wrongly it says so on standard error', async (t) => {
  for (const [args, why] of [
    [['--max-steps', '0'], /--max-steps must be a number from 1/], [['--nonsense', '1'], /no such option/], [['--dialect', 'latin'], /anthropic or openai/],
    [['--model', ''], /--model/], [['--spec'], /a value is missing/], [['left'], /not an option/],
  ]) {
    const it = startCoder(t, 'http://127.0.0.1:1', { args });
    assert.equal((await it.ended).code, 2);
    assert.match(it.err, why);
    assert.equal(it.raw, '');
  }
});

test('only an address without TLS is a base URL', async (t) => {
  for (const url of ['https://127.0.0.1', 'http://example.com', 'http://127.0.0.1:0', 'http://127.0.0.1:99999', 'http://u@127.0.0.1', 'http://[::1', 'http://127.0.0.1:80x/v1', 'http://127.0.0.1/ x']) {
    const r = await runCoder(t, url);
    assert.equal(r.last.reason, 'error', url);
    assert.match(r.last.message, /base-url/);
  }
});

test('many turns: the oldest results are shortened first, the task and the last stay', async (t) => {
  const big = (n) => sh(`printf '%020000d' ${n}`);
  const model = await startModel(t, 'anthropic', [...Array.from({ length: 8 }, (_, i) => big(i + 1)), done()]);
  const r = await runCoder(t, model, { spec: 'the task', args: ['--max-steps', '20', '--context-bytes', '70000'] });
  assert.equal(r.last.type, 'done');
  const messages = model.last();
  assert.equal(messages[0].content, 'the task');
  assert.ok(JSON.stringify(messages).length < 75_000);
  const results = messages.filter((m, i) => i > 0 && m.role === 'user').map((m) => JSON.parse(m.content));
  assert.equal(results.length, 8);
  assert.match(results[0].output, /^0+ \[shortened: 20002 bytes\]$/);
  assert.equal(results[7].output.length, 20000);
  assert.equal(results[6].output.length, 20000);
  assert.equal(results[0].ok, true);
});

test('when shortening is not enough the oldest turns go', async (t) => {
  const steps = 60;
  const model = await startModel(t, 'anthropic', [...Array.from({ length: steps }, (_, i) => sh(`printf '%0500d' ${i}`)), done()]);
  const r = await runCoder(t, model, { args: ['--max-steps', '100', '--context-bytes', '16384'] });
  assert.equal(r.last.type, 'done');
  assert.match(model.last()[0].content, /^Do it\.\n\n\[the first \d+ steps are left out here\]$/);
  assert.ok(JSON.stringify(model.last()).length < 30_000);
  const order = model.last().map((m) => m.role);
  assert.deepEqual(order, order.map((_, i) => (i % 2 ? 'assistant' : 'user')));
});

const CODERS = new URL('../../coders/', import.meta.url);
const KNOWN = ['dir', 'spec', 'model', 'dialect', 'max_steps', 'timeout_ms', 'system_prompt', 'append_system_prompt'];

test('the definitions of agents have the keys and the placeholders that there are', () => {
  const files = readdirSync(CODERS).filter((f) => f.endsWith('.json'));
  assert.deepEqual(files, ['claude-code.json', 'coder.json']);
  for (const file of files) {
    const d = JSON.parse(readFileSync(new URL(file, CODERS), 'utf8'));
    assert.deepEqual(Object.keys(d).filter((k) => k !== 'demo' && k !== 'options'), ['title', 'description', 'program', 'find', 'mount', 'arguments', 'environment', 'stdin', 'dialects', 'lines', 'memory_mb']);
    const values = [...d.arguments, ...Object.values(d.environment), ...Object.values(d.options).flat()];
    for (const [, name] of values.join(' ').matchAll(/\$\{(\w+)\}/g)) assert.ok(KNOWN.includes(name), name);
    assert.ok(values.every((v) => typeof v === 'string'));
    assert.ok(d.dialects.every((x) => DIALECTS.includes(x)) && ['own', 'setting'].includes(d.find) && ['none', 'spec'].includes(d.stdin));
    assert.equal(readLines(d.lines, '').at(-1).type, 'failed', 'a kind of lines that is known');
  }
});

test('our own definition starts it', async (t) => {
  const d = JSON.parse(readFileSync(new URL('coder.json', CODERS), 'utf8'));
  const model = await startModel(t, 'openai', [done('started')]);
  const dir = tempDir(t);
  const fill = { dir, model: 'm', dialect: 'openai', max_steps: 7, timeout_ms: 10_000 };
  const args = d.arguments.map((a) => a.replace(/\$\{(\w+)\}/g, (_, name) => fill[name]));
  const r = await runCoder(t, model, { dir, dialect: 'openai', spec: null, args, input: 'the task', env: { OPENAI_BASE_URL: model.url } });
  assert.equal(r.last.summary, 'started');
  assert.equal(r.events[0].max_steps, 7);
  assert.equal(model.last().at(-1).content, 'the task');
});
