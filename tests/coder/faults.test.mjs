// Models that are busy, broken, cut off or hostile, replies that are no actions, and ends from outside: each ends
// cleanly, and says why.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync, readFileSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { DIALECTS, answerOf, done, finished, readLines, runCoder, sh, startCoder, startModel, tempDir, tool } from './lib.mjs';

const FAST = ['--retry-wait-ms', '1'];
const status = (code, body = {}, headers = {}) => (response) => {
  response.writeHead(code, { 'content-type': 'application/json', ...headers });
  response.end(typeof body === 'string' ? body : JSON.stringify(body));
};
const answer = (dialect, text, more) => status(200, answerOf(dialect, text, more));
const json = (value) => JSON.stringify(value);

test('a reply that is no action is repaired once, and is no step', async (t) => {
  for (const bad of [
    'I will now run ls.', '```json\n{"tool":"list_files","args":{}}\n```', 'Sure! {"tool":"list_files","args":{}}', '{"tool":"list_files","args":{}} I hope that helps.',
    '{"tool":"list_files"}', '{"tool":"list_files","args":[]}', '{"done":false,"summary":""}', '{"done":true}', '{"tool":"a","args":{},"done":true,"summary":""}',
    '{"tool":"list_files","args":{},"extra":1}', '{"tool":"","args":{}}', '{"tool":"list_files\\u0000x","args":{}}', '[]', '"x"', '{', '', '{"tool":"a","tool":"b","args":{}}', '{}', '{"tool":"list_files","args":{}}\n{"done":true,"summary":""}',
    '{"thought":5,"tool":"list_files","args":{}}', '\0', "{'tool':'list_files','args':{}}", '['.repeat(100000),
  ]) {
    const model = await startModel(t, 'anthropic', [bad, tool('list_files', {}), done()]);
    const r = await runCoder(t, model, { args: ['--max-steps', '1'] });
    assert.equal(r.last.type, 'done', `${bad}: ${json(r.last)}`);
    assert.equal(r.of('repair').length, 1);
    assert.ok(r.of('repair')[0].text.startsWith(bad.slice(0, 20)));
    assert.equal(r.of('step_begin').length, 1);
    const [, said, asked] = model.requests[1].messages;
    assert.equal(said.role, 'assistant');
    assert.ok(said.content.length > 0 && said.content.length <= 4096);
    assert.ok(JSON.parse(asked.content).why.length > 5);
    assert.equal(model.requests[2].messages.length, 3, 'what was repaired is not kept');
  }
});

test('white space around a reply is no fault', async (t) => {
  const model = await startModel(t, 'anthropic', [' \n{"done": true, "summary": "ok"}\r\n\t']);
  assert.equal((await runCoder(t, model)).last.summary, 'ok');
});

test('two replies in a row that are no actions end it, with the text that was at fault', async (t) => {
  for (const dialect of DIALECTS) {
    const model = await startModel(t, dialect, ['Let me think.', '```\n{"done":true,"summary":"x"}\n```']);
    const r = await runCoder(t, model, { dialect });
    assert.equal(r.code, 1);
    assert.equal(r.last.reason, 'malformed');
    assert.match(r.last.message, /fenced in Markdown/);
    assert.equal(r.last.text, '```\n{"done":true,"summary":"x"}\n```');
    assert.equal(r.last.steps, 0);
    assert.equal(model.requests.length, 2);
  }
});

test('each reply may be repaired once', async (t) => {
  const model = await startModel(t, 'anthropic', ['no', sh('true'), 'no', sh('true'), 'no', done()]);
  const r = await runCoder(t, model);
  assert.equal(r.last.type, 'done');
  assert.equal(r.of('repair').length, 3);
});

test('busy and broken servers are asked again', async (t) => {
  for (const fault of [status(429), status(500), status(503), status(529), status(429, {}, { 'retry-after': '0' }), (response) => response.destroy(),
    (response) => { response.writeHead(200, { 'content-length': '1000' }); response.write('{"a"'); setTimeout(() => response.destroy(), 5); },
    (response) => { response.writeHead(200); response.write('{"type":'); setTimeout(() => response.destroy(), 5); }]) {
    const model = await startModel(t, 'anthropic', [fault, fault, done()]);
    const r = await runCoder(t, model, { args: FAST });
    assert.equal(r.last.type, 'done', json(r.last));
    assert.equal(r.of('retry').length, 2);
    assert.equal(r.of('model_end')[0].attempts, 3);
  }
});

test('not for ever', async (t) => {
  for (const code of [429, 500]) {
    const model = await startModel(t, 'anthropic', () => status(code, { error: { type: 'overloaded_error', message: 'Too\nbusy' } }));
    const r = await runCoder(t, model, { args: FAST });
    assert.equal(r.code, 1);
    assert.equal(r.last.reason, 'model_error');
    assert.equal(r.last.message, `after 6 tries: the model's server answered ${code}: Too busy`);
    assert.equal(model.requests.length, 6);
    assert.deepEqual(r.of('retry').map((e) => [e.attempt, e.wait_ms, e.status]), [[1, 1, code], [2, 2, code], [3, 4, code], [4, 8, code], [5, 16, code]]);
  }
});

test('a wait that the server asks for is kept, or not begun if it is too long', async (t) => {
  const one = await startModel(t, 'anthropic', [status(429, {}, { 'retry-after': '1' }), done()]);
  const kept = await runCoder(t, one, { args: FAST });
  assert.equal(kept.last.type, 'done');
  assert.equal(kept.of('retry')[0].wait_ms, 1000);
  assert.ok(kept.of('model_end')[0].ms >= 1000);
  const two = await startModel(t, 'anthropic', [status(429, { error: { message: 'x' } }, { 'retry-after': '3600' })]);
  const long = await runCoder(t, two, { args: FAST });
  assert.equal(long.last.reason, 'model_error');
  assert.match(long.last.message, /asks to wait for 3600 s/);
  assert.equal(two.requests.length, 1);
});

test('refusals of the server are not asked again', async (t) => {
  for (const [code, headers] of [[400, {}], [401, {}], [403, {}], [404, {}], [413, {}], [500, { 'x-should-retry': 'false' }], [302, { location: '/' }]]) {
    const model = await startModel(t, 'anthropic', [status(code, { error: { message: 'policy' } }, headers)]);
    const r = await runCoder(t, model, { args: FAST });
    assert.equal(r.last.reason, 'model_error');
    assert.equal(r.last.message, `the model's server answered ${code}: policy`);
    assert.equal(model.requests.length, 1);
  }
});

for (const dialect of DIALECTS) {
  test(`${dialect}: a refusal, a cut, an empty answer end it and say why`, async (t) => {
    const refusals = dialect === 'anthropic'
      ? [answer(dialect, 'I cannot help with that.', { stop: 'refusal' })]
      : [answer(dialect, null, { refusal: 'I cannot help with that.' }), answer(dialect, 'I cannot help with that.', { stop: 'content_filter' })];
    for (const refusal of refusals) {
      const model = await startModel(t, dialect, [refusal]);
      const r = await runCoder(t, model, { dialect });
      assert.equal(r.last.reason, 'model_error');
      assert.match(r.last.message, /the model refused to answer/);
      assert.equal(r.last.text, 'I cannot help with that.');
      assert.equal(model.requests.length, 1);
    }
    const cut = answer(dialect, '{"tool":"write_file","args":{"path":"a","content":"xx', { stop: dialect === 'anthropic' ? 'max_tokens' : 'length' });
    const one = await startModel(t, dialect, [cut, cut]);
    const r1 = await runCoder(t, one, { dialect });
    assert.equal(r1.last.reason, 'model_error');
    assert.match(r1.last.message, /cut off after 16000 tokens/);
    assert.match(one.last().at(-1).content, /do less in one reply/);
    const two = await startModel(t, dialect, [null, null]);
    const r2 = await runCoder(t, two, { dialect });
    assert.equal(r2.last.reason, 'model_error');
    assert.match(r2.last.message, /the reply is empty/);
    const whole = await startModel(t, dialect, [answer(dialect, json(done('whole')), { stop: dialect === 'anthropic' ? 'max_tokens' : 'length' })]);
    assert.equal((await runCoder(t, whole, { dialect })).last.summary, 'whole', 'a reply that is whole all the same is used');
  });

  test(`${dialect}: what is no answer of a model`, async (t) => {
    for (const body of ['<html>hello</html>', '', '[]', '{}', 'null', '{"choices":[]}', '{"content":{}}', '{"choices":[{"message":null}],"content":5}', '\xff', `[${'1,'.repeat(200000)}1]`]) {
      const model = await startModel(t, dialect, [status(200, body)]);
      const r = await runCoder(t, model, { dialect, args: FAST });
      assert.equal(r.last.reason, 'model_error', body.slice(0, 20));
      assert.match(r.last.message, /answer/);
      assert.equal(model.requests.length, 1);
    }
  });
}

test('answers that are too long are not taken', async (t) => {
  const huge = 'x'.repeat(10_000_000);
  const chunks = (response) => {
    response.writeHead(200);
    response.on('error', () => {});
    for (let i = 0; i < 10; i++) response.write(huge.slice(0, 1_000_000));
    response.end();
  };
  for (const fault of [status(200, huge), chunks, answer('anthropic', 'y'.repeat(2_000_000))]) {
    const model = await startModel(t, 'anthropic', [fault]);
    const r = await runCoder(t, model, { args: FAST });
    assert.equal(r.last.reason, 'model_error');
    assert.match(r.last.message, /longer than (4194304|1048576) bytes/);
    assert.equal(model.requests.length, 1);
    assert.ok(r.raw.length < 100_000);
  }
});

test('servers that speak no HTTP, or strange HTTP', async (t) => {
  const ok = json(answerOf('anthropic', json(done('strange'))));
  const chunked = [...ok].map((c) => `${Buffer.byteLength(c).toString(16)};x=y\r\n${c}\r\n`).join('');
  for (const [bytes, fine] of [
    ['SSH-2.0-x\r\n', false], ['HTTP/2 200\r\n\r\n', false], ['HTTP/1.1 20x\r\n\r\n', false], ['HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n', false],
    ['HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n', false], ['HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n', false],
    ['HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n', false], ['HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n', false], ['HTTP/1.1 200 OK\r\n folded\r\n\r\n', false],
    ['HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n', false], ['HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n', false], [`HTTP/1.1 200 OK\r\nX: ${'x'.repeat(40000)}\r\n\r\n`, false],
    [`HTTP/1.1 200 OK\r\n${'A: b\r\n'.repeat(10000)}\r\n`, false], ['HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n', false], ['HTTP/1.1 101 Upgrade\r\n\r\n', false],
    [`HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: ${ok.length}\r\n\r\n${ok}trailing`, true], [`HTTP/1.0 200\n\n${ok}`, true],
    [`HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n${chunked}0\r\nTrailer: x\r\n\r\n`, true],
  ]) {
    const server = net.createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => socket.end(bytes));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const r = await runCoder(t, `http://127.0.0.1:${server.address().port}`, { args: [...FAST, '--retries', '0'] });
    server.close();
    assert.equal(r.last.type, fine ? 'done' : 'failed', `${bytes.slice(0, 80)} ${json(r.last)}`);
    if (!fine) assert.match(r.last.message, /no HTTP|middle of its answer/);
  }
});

test('a server that is not there, or silent', async (t) => {
  const server = net.createServer((socket) => socket.on('error', () => {}).resume()).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  const silent = await runCoder(t, `http://127.0.0.1:${port}`, { args: [...FAST, '--retries', '1', '--model-timeout-ms', '100'] });
  assert.equal(silent.last.reason, 'model_error');
  assert.match(silent.last.message, /after 2 tries: the model did not answer in time/);
  await new Promise((resolve) => server.close(resolve));
  const gone = await runCoder(t, `http://127.0.0.1:${port}`, { args: FAST });
  assert.equal(gone.last.reason, 'model_error');
  assert.match(gone.last.message, /after 6 tries: connect to the model's route .*refused/);
});

test('after the last step the model can only be done', async (t) => {
  const one = await startModel(t, 'anthropic', [sh('true'), sh('true'), done('just so')]);
  const fits = await runCoder(t, one, { args: ['--max-steps', '2'] });
  assert.equal(fits.last.type, 'done');
  assert.equal(one.result(2).steps_left, 0);
  const two = await startModel(t, 'anthropic', () => sh('echo x >> count'));
  const r = await runCoder(t, two, { args: ['--max-steps', '3'] });
  assert.equal(r.code, 1);
  assert.equal(r.last.reason, 'max_steps');
  assert.match(r.last.message, /not done after 3 steps/);
  assert.equal(readFileSync(join(r.dir, 'count'), 'utf8'), 'x\nx\nx\n');
  assert.equal(two.requests.length, 4);
});

test('the run\'s time ends a command, a model\'s call and a wait', async (t) => {
  for (const script of [[sh('sleep 1000')], [() => {}], [status(429, {}, { 'retry-after': '20' })]]) {
    const model = await startModel(t, 'anthropic', script);
    const r = await runCoder(t, model, { args: ['--timeout-ms', '300'] });
    assert.equal(r.code, 124);
    assert.equal(r.last.reason, 'timeout');
    assert.match(r.last.message, /the run's time was up while/);
    assert.ok(r.last.ms >= 300 && r.last.ms < 15_000); // and not as long as any of them
  }
});

for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) {
  test(`${signal} in the middle of a command ends it, and says so`, async (t) => {
    const model = await startModel(t, 'anthropic', [sh('echo $$ > pid; echo up; setsid sleep 1000 & sleep 1000'), done()]);
    const it = startCoder(t, model, {});
    await it.wait((e) => e.type === 'output' && e.text === 'up\n');
    it.child.kill(signal);
    const { code } = await it.ended;
    const r = finished(it, code);
    assert.equal(r.code, 130);
    assert.deepEqual(r.events.slice(-2).map((e) => e.type), ['step_end', 'failed']);
    assert.equal(r.of('step_end')[0].ok, false);
    assert.equal(r.last.reason, 'cancelled');
    assert.match(r.last.message, /while a command ran, which was ended/);
    assert.ok(!existsSync(`/proc/${readFileSync(join(r.dir, 'pid'), 'utf8').trim()}`));
    assert.equal(model.requests.length, 1);
  });
}

test('SIGTERM while the model is asked, and while it is waited to ask again', async (t) => {
  const one = await startModel(t, 'anthropic', [() => {}]);
  const it = startCoder(t, one, {});
  await once(one.events, 'request');
  it.child.kill('SIGTERM');
  const r = finished(it, (await it.ended).code);
  assert.equal(r.code, 130);
  assert.equal(r.last.reason, 'cancelled');
  assert.deepEqual(r.events.slice(-2).map((e) => e.type), ['model_end', 'failed']);
  const two = await startModel(t, 'anthropic', [status(429, {}, { 'retry-after': '20' })]);
  const waiting = startCoder(t, two, {});
  await waiting.wait((e) => e.type === 'retry');
  waiting.child.kill('SIGTERM');
  assert.equal(finished(waiting, (await waiting.ended).code).last.reason, 'cancelled');
});

test('nobody reads: the run ends, and its command with it', async (t) => {
  const model = await startModel(t, 'anthropic', [sh('echo $$ > pid; while :; do echo line; sleep 0.01; done'), done()]);
  const it = startCoder(t, model, {});
  await it.wait((e) => e.type === 'output');
  it.child.stdout.destroy();
  const [code] = await once(it.child, 'exit');
  assert.equal(code, 130);
  assert.ok(!existsSync(`/proc/${readFileSync(join(it.dir, 'pid'), 'utf8').trim()}`));
});

test('a reader that stops reading does not keep it from being ended', async (t) => {
  const fifo = join(tempDir(t), 'fifo');
  execFileSync('mkfifo', [fifo]);
  const stdout = openSync(fifo, 'r+');
  t.after(() => closeSync(stdout));
  const model = await startModel(t, 'anthropic', () => tool('nothing', { a: 'x'.repeat(2000) }, 't'.repeat(30_000)));
  const it = startCoder(t, model, { args: ['--max-steps', '300'], stdout });
  // The pipe is full when the model is not asked any more.
  let seen = -1;
  while (seen !== model.requests.length || seen === 0) {
    seen = model.requests.length;
    await new Promise((resolve) => setTimeout(resolve, 150));
  }
  assert.ok(seen < 10);
  it.child.kill('SIGTERM');
  const [code] = await once(it.child, 'exit');
  assert.equal(code, 130);
});

test('the front\'s last word for an agent that was killed', async (t) => {
  // The shell's own children would outlive it here; in a sandbox they end with that.
  const model = await startModel(t, 'anthropic', [sh('exec sleep 1000')]);
  const it = startCoder(t, model, { dir: tempDir(t) });
  await it.wait((e) => e.type === 'step_begin');
  it.child.kill('SIGKILL');
  await it.ended;
  for (const [how, reason] of [['', 'error'], ['cancelled', 'cancelled'], ['timed_out', 'timeout']])
    assert.equal(readLines('cay', it.raw, '137', how).at(-1).reason, reason);
});
