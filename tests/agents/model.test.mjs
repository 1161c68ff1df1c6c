// Real provider APIs, as an independent mock plays them: tools, steps, thinking, budgets, faults.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';

import { createKey, request } from '../lib/cay.mjs';
import { environment, PROVIDERS, toolResults, withModel } from './mock.mjs';
import { checkAccount, agentsDir, Raw, slow, TYPE, user, withCay } from './support.mjs';

const call = (id, name, input) => ({ id, name, arguments: JSON.stringify(input) });
const program = (body) => `export default async function (env) {\n${body}\n}\n`;

for (const provider of PROVIDERS) {
  test(`${provider}: tools run, their results go back, the answer comes`, async (t) => {
    const { mock, requests, cay } = await withModel(t, provider);
    mock.on({ userMessage: 'work', turnIndex: 0 }, {
      content: 'I will look.',
      toolCalls: [
        call('call_1', 'queryDatabase', { sql: "SELECT name FROM customers WHERE tier = 'Gold' ORDER BY id" }),
        call('call_2', 'executeCode', { code: program('console.log("a", 1, { b: [2] }); console.log("second");') }),
      ],
    });
    mock.on({ userMessage: 'work', turnIndex: 1 }, {
      toolCalls: [call('call_3', 'executeCode', { code: program('console.log("before"); throw new TypeError("oh no");') })],
    });
    mock.on({ userMessage: 'work', turnIndex: 2 }, {
      toolCalls: [
        call('call_4', 'executeCode', { code: 'this is not JavaScript' }),
        call('call_5', 'executeCode', { code: program('') }),
        call('call_6', 'queryDatabase', { sql: 'SELECT x FROM nowhere' }),
        call('call_7', 'queryDatabase', { sql: "INSERT INTO customers (name, email) VALUES ('X', 'x')" }),
      ],
    });
    mock.on({ userMessage: 'work', turnIndex: 3 }, {
      toolCalls: [call('call_8', 'nosuch', { x: 1 }), call('call_9', 'executeCode', { sql: 'SELECT 1' })],
    });
    mock.on({ userMessage: 'work', turnIndex: 4 }, { content: 'Done.' });
    const a = await Raw.ready(cay, 'tools');
    const frames = await a.turn('t', [user('u1', 'work')], { ms: 60_000 * slow });
    assert.equal(frames.at(-1).outcome, undefined, JSON.stringify(frames.slice(-3)));
    assert.match(a.text('t'), /I will look\..*Done\./s);
    const outputs = a.chunks('t').filter((c) => /^tool-output/.test(c.type));
    const by = (id) => outputs.find((c) => c.toolCallId === id);
    assert.deepEqual(by('call_1').output, {
      rowCount: 3, rows: [{ name: 'Alice Chen' }, { name: 'Dave Kim' }, { name: 'Grace Lee' }],
    });
    assert.deepEqual(by('call_2').output, { output: 'a 1 {"b":[2]}\nsecond', error: null });
    const thrown = by('call_3').output;
    assert.match(thrown.error, /^TypeError: oh no\n +at .*user-code\.js/);
    assert.equal(thrown.output, `before\n\nError: ${thrown.error}`, 'lines, a blank line, the error with its stack');
    const unloadable = by('call_4').output;
    assert.equal(unloadable.output, '');
    assert.match(unloadable.error, /^SyntaxError: /);
    assert.deepEqual(by('call_5').output, { output: '(no output)', error: null });
    assert.match(by('call_6').output.error, /no such table: nowhere/);
    assert.match(by('call_7').output.error, /./);
    assert.match(by('call_8').errorText, /there is no tool "nosuch"/);
    assert.match(by('call_9').errorText, /needs a text "code"/);

    const { executions, customers } = a.frames.findLast((f) => f.type === 'cf_agent_state').state;
    assert.equal(customers.length, 8);
    assert.deepEqual(executions.map((e) => e.output), ['(no output)', '', thrown.output, 'a 1 {"b":[2]}\nsecond'], 'newest first');
    assert.equal(executions[1].error, unloadable.error, 'what could not be loaded is stored too');

    assert.equal(requests.length, 5);
    const results = toolResults(requests.at(-1).body);
    assert.deepEqual(results.map((r) => r.id), ['call_1', 'call_2', 'call_3', 'call_4', 'call_5', 'call_6', 'call_7', 'call_8', 'call_9']);
    assert.deepEqual(JSON.parse(results[0].content), by('call_1').output);
    assert.deepEqual(JSON.parse(results[2].content), thrown);
    const [{ headers, body, path }] = requests;
    const tools = body.tools.map((tool) => tool.name ?? tool.function.name);
    assert.deepEqual(tools, ['executeCode', 'queryDatabase']);
    assert.equal(body.stream, true);
    if (provider === 'anthropic') {
      assert.equal(path, '/v1/messages');
      assert.equal(headers['x-api-key'], 'sk-test-anthropic');
      assert.equal(headers['anthropic-version'], '2023-06-01');
      assert.match(JSON.stringify(body.system), /customer database/);
    } else {
      assert.equal(path, '/v1/chat/completions');
      assert.equal(headers.authorization, 'Bearer sk-test-openai');
      assert.equal(body.messages[0].role, 'system');
    }
    // The next turn reads all of it again, from the history.
    mock.on({ userMessage: 'more' }, { content: 'Yes.' });
    const stored = (await request(cay, `/agents/${TYPE}/tools/get-messages`)).json();
    await a.turn('t2', [...stored, user('u2', 'more')]);
    assert.deepEqual(toolResults(requests.at(-1).body).map((r) => r.content), results.map((r) => r.content));
    a.close();
  });

  test(`${provider}: max_steps ends the turn after five`, async (t) => {
    const { mock, requests, cay } = await withModel(t, provider);
    mock.on({ userMessage: 'forever' }, { toolCalls: [{ name: 'queryDatabase', arguments: '{"sql":"SELECT 1 AS one"}' }] });
    const a = await Raw.ready(cay, 'steps');
    const frames = await a.turn('t', [user('u1', 'forever')], { ms: 60_000 * slow });
    assert.equal(requests.length, 5);
    assert.equal(a.chunks('t').filter((c) => c.type === 'tool-output-available').length, 5);
    const { type, messageMetadata } = a.chunks('t').at(-1);
    assert.equal(type, 'finish');
    assert.deepEqual(checkAccount(messageMetadata), { finishReason: 'tool-calls', limit: 'the turn has had its 5 steps (max_steps)' });
    assert.equal(frames.at(-1).outcome, undefined);
    const [, message] = (await request(cay, `/agents/${TYPE}/steps/get-messages`)).json();
    assert.deepEqual(checkAccount(message.metadata), { limit: 'the turn has had its 5 steps (max_steps)' });
    const ids = message.parts.filter((p) => p.toolCallId).map((p) => p.toolCallId);
    assert.equal(new Set(ids).size, 5);
    a.close();
  });

  test(`${provider}: budgets of tokens, cost and time end a turn with an error that names them`, async (t) => {
    const wall = 1000 * slow; // enough for a first word
    const agent = (budget) => ({ agent: { model: provider === 'anthropic' ? 'sonnet' : 'gpt', max_steps: 50, budget, facets: { db: {} }, tools: [{ name: 'q', kind: 'query', facet: 'db', description: 'query' }] } });
    const { mock, requests, cay } = await withModel(t, provider, {
      agents: { tokens: agent({ tokens: 3000 }), cost: agent({ cost_usd: 0.02 }), wall: agent({ wall_ms: wall }), short: agent({ tokens: 500 }) },
    });
    const usage = { input_tokens: 1000, output_tokens: 200, prompt_tokens: 1000, completion_tokens: 200, total_tokens: 1200 };
    const toolCalls = [{ name: 'q', arguments: '{"sql":"SELECT 1"}' }];
    mock.on({ userMessage: 'spend' }, { toolCalls, usage });
    mock.on({ userMessage: 'slow' }, { content: 'x'.repeat(10_000) }, { latency: 30, chunkSize: 10 });
    mock.on({ userMessage: 'short' }, { content: 'cut', finishReason: 'length', usage });
    const run = async (type, text) => {
      const a = await Raw.ready(cay, 'b', { type });
      const frames = await a.turn('t', [user('u', text)], { ms: 60_000 * slow });
      a.close();
      assert.equal(frames.at(-1).outcome, 'error', type);
      assert.deepEqual(frames.at(-1).messageIds, ['u']);
      const { body, error, messageIds } = frames.at(-2);
      assert.equal(error, true);
      assert.deepEqual(messageIds, ['u']);
      const stored = (await request(cay, `/agents/${type}/b/get-messages`)).json();
      assert.equal(stored.at(-1).metadata.error, body);
      return body;
    };
    assert.match(await run('tokens', 'spend'), /has used 3600 tokens; its budget is 3000/);
    assert.match(await run('cost', 'spend'), /has cost \$0\.0\d+; its budget is \$0\.0200/);
    assert.match(await run('wall', 'slow'), new RegExp(`took longer than ${wall} ms \\(budget wall_ms\\)`));
    assert.match(await run('short', 'short'), /has used 1200 tokens; its budget is 500/);
    const asked = requests.map((r) => r.body.max_tokens ?? r.body.max_completion_tokens);
    assert.ok(asked[0] <= 3000 && asked[1] <= 1800 && asked[2] <= 600, 'no more is asked for than is left');
  });

  for (const [name, chaos, fixture, expected] of [
    ['every answer is a 500', { dropRate: 1 }, {}, /500|internal/i],
    ['answers that are no JSON', { malformedRate: 1 }, {}, /./],
    ['rate limits with Retry-After', { rateLimitRate: 1 }, {}, /429|rate/i],
    ['the connection drops at once', { disconnectRate: 1 }, {}, /./],
    ['the stream is cut after some chunks', {}, { truncateAfterChunks: 4, chunkSize: 5 }, /./],
    ['the connection drops in the middle', {}, { disconnectAfterMs: 150, latency: 20, chunkSize: 5 }, /./],
  ])
    test(`${provider}: ${name}: an error in the chat, then it works again`, { timeout: 120_000 }, async (t) => {
      const { mock, cay } = await withModel(t, provider);
      const content = 'A long answer, in many pieces, that will not come to its end. '.repeat(8);
      mock.on({ userMessage: 'try' }, { content }, fixture);
      mock.on({ userMessage: 'again' }, { content: 'All is well.' });
      mock.setChaos(chaos);
      const a = await Raw.ready(cay, 'fault');
      const frames = await a.turn('t', [user('u1', 'try')], { ms: 60_000 * slow });
      assert.equal(frames.at(-1).outcome, 'error');
      const failure = frames.find((f) => f.error);
      assert.match(failure.body, expected);
      assert.doesNotMatch(failure.body, /sk-test/);
      const said = a.text('t');
      const stored = (await request(cay, `/agents/${TYPE}/fault/get-messages`)).json();
      if (said) assert.equal(stored[1].parts.filter((p) => p.type === 'text').map((p) => p.text).join(''), said);
      mock.clearChaos();
      const next = await a.turn('t2', [...stored, user('u2', 'again')]);
      assert.equal(next.at(-1).outcome, undefined, JSON.stringify(next));
      assert.match(a.text('t2'), /All is well\./);
      a.close();
    });

  test(`${provider}: a 429 and a 500 that pass are not seen`, async (t) => {
    const { mock, requests, cay } = await withModel(t, provider);
    mock.on({ userMessage: 'try' }, { content: 'Here I am.' });
    mock.nextRequestError(429, { message: 'slow down', type: 'rate_limit_error' });
    const a = await Raw.ready(cay, 'retry');
    assert.equal((await a.turn('t', [user('u1', 'try')], { ms: 60_000 * slow })).at(-1).outcome, undefined);
    assert.equal(requests.length, 2);
    mock.nextRequestError(500);
    assert.equal((await a.turn('t2', [user('u2', 'try')], { ms: 60_000 * slow })).at(-1).outcome, undefined);
    assert.equal(requests.length, 4);
    a.close();
  });

  test(`${provider}: a long conversation is cut at its old end, and says so`, async (t) => {
    const { mock, requests, cay } = await withModel(t, provider, { config: { limits: { agent_context_bytes: 4096 } } });
    mock.onMessage(/.*/, { content: 'Noted.' });
    const a = await Raw.ready(cay, 'long');
    for (let i = 0; i < 6; i++) await a.turn(`t${i}`, [user(`u${i}`, `${i} ${'x'.repeat(1000)}`)]);
    const text = JSON.stringify(requests.at(-1).body.messages);
    assert.match(text, /its earlier messages are left out/);
    assert.doesNotMatch(text, /"0 x/);
    assert.match(text, /5 x/);
    assert.ok(text.length < 6000);
    assert.equal((await request(cay, `/agents/${TYPE}/long/get-messages`)).json().length, 12, 'all is kept');
    a.close();
  });
}

test('thinking goes back unchanged, in the turn and in the next', async (t) => {
  const { mock, requests, cay } = await withModel(t, 'anthropic');
  mock.on({ userMessage: 'think', turnIndex: 0 }, {
    reasoning: 'Let me see: 2 + 2.', reasoningSignature: 'c2lnbmF0dXJl/+==', redactedThinking: ['b3BhcXVl'],
    toolCalls: [call('call_1', 'queryDatabase', { sql: 'SELECT 4 AS four' })],
  });
  mock.on({ userMessage: 'think', turnIndex: 1 }, { content: 'Four.' });
  mock.on({ userMessage: 'and' }, { content: 'Still four.' });
  const a = await Raw.ready(cay, 'think');
  const frames = await a.turn('t', [user('u1', 'think')]);
  assert.equal(frames.at(-1).outcome, undefined);
  assert.ok(a.chunks('t').some((c) => c.type === 'reasoning-delta'));
  const thinking = (r) =>
    r.body.messages.flatMap((m) => (m.role === 'assistant' ? m.content.filter((c) => /thinking/.test(c.type)) : []));
  const expected = [
    { type: 'redacted_thinking', data: 'b3BhcXVl' },
    { type: 'thinking', thinking: 'Let me see: 2 + 2.', signature: 'c2lnbmF0dXJl/+==' },
  ];
  const sorted = (list) => [...list].sort((x, y) => (x.type < y.type ? -1 : 1));
  assert.deepEqual(sorted(thinking(requests[1])), expected);
  const first = requests[1].body.messages.find((m) => m.role === 'assistant').content;
  const stored = (await request(cay, `/agents/${TYPE}/think/get-messages`)).json();
  await a.turn('t2', [...stored, user('u2', 'and')]);
  assert.deepEqual(requests[2].body.messages.find((m) => m.role === 'assistant').content, first, 'the very same blocks');
  a.close();
});

/** A server that sends what no provider should. */
async function withBytes(t, answer) {
  const server = createServer((req, res) => {
    req.resume();
    req.on('end', () => answer(res));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

const stream = (...events) => (res) => {
  res.writeHead(200, { 'content-type': 'text/event-stream' });
  for (const event of events) res.write(event);
  res.end();
};
const sse = (data, event) => `${event ? `event: ${event}\n` : ''}data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`;

for (const [provider, name, answer] of [
  ['anthropic', 'an empty body', (res) => res.writeHead(200).end()],
  ['anthropic', 'an error event', stream(sse({ type: 'error', error: { type: 'invalid_request_error', message: 'bad \u{1f600} thing '.repeat(100) } }, 'error'))],
  ['anthropic', 'bytes that are no UTF-8', stream(Buffer.from('data: {"type":"error","error":{"type":"x","message":"\xff\xfe"}}\n\n', 'latin1'))],
  ['anthropic', 'an error body that is no UTF-8', (res) => res.writeHead(400, { 'content-type': 'application/json' }).end(Buffer.from('{"error":{"message":"\xff\xc3"}}', 'latin1'))],
  ['anthropic', 'a stop without a start', stream(sse({ type: 'message_stop' }))],
  ['openai', 'only [DONE]', stream(sse('[DONE]'))],
  ['openai', 'HTML', (res) => res.writeHead(502, { 'content-type': 'text/html' }).end('<script>alert(1)</script>')],
  ['openai', 'a tool call that never ends', stream(sse({ choices: [{ index: 0, delta: { tool_calls: [{ index: 0, id: 'c', type: 'function', function: { name: 'executeCode', arguments: '{"code":"' } }] } }] }))],
  ['openai', 'invalid JSON for the tool, again and again', stream(
    sse({ choices: [{ index: 0, delta: { tool_calls: [{ index: 0, id: 'c', type: 'function', function: { name: 'executeCode', arguments: '{"code":' } }] } }] }),
    sse({ choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls' }] }), sse('[DONE]'))],
])
  test(`${provider}: ${name}`, { timeout: 120_000 }, async (t) => {
    const url = await withBytes(t, answer);
    const cay = await withCay(t, { env: environment(provider, url) });
    const a = await Raw.ready(cay, 'odd');
    const frames = await a.turn('t', [user('u1', 'x')], { ms: 60_000 * slow });
    if (/invalid JSON/.test(name)) {
      assert.equal(frames.at(-1).outcome, undefined);
      assert.equal(a.chunks('t').filter((c) => c.type === 'tool-output-error').length, 5, 'the model is told each time');
    } else {
      assert.equal(frames.at(-1).outcome, 'error');
      assert.ok(frames.find((f) => f.error).body.length > 5);
    }
    a.close();
  });

test('a model that fails is 502 over HTTP, whatever its server said; when to come again is passed on', async (t) => {
  let next;
  const url = await withBytes(t, (res) => next(res));
  const cay = await withCay(t, { env: environment('anthropic', url) });
  const fails = (status, type, headers = {}) => (res) =>
    res.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify({ type: 'error', error: { type, message: 'no' } }));
  for (const [answer, again] of [
    [fails(401, 'authentication_error'), undefined],
    [fails(429, 'rate_limit_error', { 'retry-after': '77' }), '77'],
    [fails(529, 'overloaded_error', { 'retry-after': '50' }), '50'],
    [fails(400, 'invalid_request_error'), undefined],
  ]) {
    next = answer;
    for (const headers of [{ Accept: 'application/json' }, { Accept: 'text/event-stream' }, {}]) {
      const got = await request(cay, `/v1/agents/${TYPE}/http/messages`, { method: 'POST', body: JSON.stringify({ text: 'x' }), headers });
      assert.equal(got.status, 502, got.body);
      assert.equal(got.json().error.code, 'upstream_error');
      assert.equal(got.headers['retry-after'], again);
    }
  }
});

test('a stream whose model fails after its first word says so in the stream', async (t) => {
  const event = (type, more) => `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`;
  const url = await withBytes(t, (res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    res.write(event('message_start', { message: { id: 'm', type: 'message', role: 'assistant', content: [], model: 'x', usage: { input_tokens: 1, output_tokens: 1 } } }));
    res.write(event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }));
    res.write(event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: 'One' } }));
    res.end(event('error', { error: { type: 'invalid_request_error', message: 'no' } }));
  });
  const cay = await withCay(t, { env: environment('anthropic', url) });
  const got = await request(cay, `/v1/agents/${TYPE}/late/messages`, { method: 'POST', body: JSON.stringify({ text: 'x' }) });
  assert.equal(got.status, 200, got.body);
  const types = got.body.split('\n').filter((l) => l.startsWith('data: {')).map((l) => JSON.parse(l.slice(6)).type);
  assert.deepEqual(types, ['start', 'start-step', 'text-start', 'text-delta', 'error'], got.body);
});

test('a turn whose model is silent can be stopped by the id that its client chose', async (t) => {
  let asked;
  const silent = new Promise((resolve) => (asked = resolve));
  const url = await withBytes(t, () => asked());
  const cay = await withCay(t, { env: environment('anthropic', url) });
  const post = (turn) => request(cay, `/v1/agents/${TYPE}/silent/messages`, { method: 'POST', body: JSON.stringify({ text: 'x' }), headers: { 'X-Cay-Turn': turn } });
  for (const bad of ['', 'x', 'turn_x', 'run_01arz3ndektsv4rrffq69g5fav']) assert.equal((await post(bad)).status, 400, bad);
  const turn = 'turn_01arz3ndektsv4rrffq69g5fav';
  const answer = post(turn);
  await silent;
  assert.equal((await post(turn)).status, 409);
  assert.equal((await request(cay, `/v1/agents/${TYPE}/silent/turns/${turn}`, { method: 'DELETE' })).status, 204);
  const { status, headers, body } = await answer;
  assert.equal(status, 200);
  assert.equal(headers['x-cay-turn'], turn);
  assert.match(body, /"start".*"start-step".*"abort"\}\n\ndata: \[DONE\]/s);
});

test('a stream begins after 15 seconds, whatever its model does', { timeout: 60_000 * slow }, async (t) => {
  const url = await withBytes(t, () => {});
  const cay = await withCay(t, { env: environment('anthropic', url) });
  const response = await fetch(`http://127.0.0.1:${cay.port}/v1/agents/${TYPE}/slow/messages`, {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ text: 'x' }),
  });
  assert.equal(response.status, 200);
  const turn = response.headers.get('x-cay-turn');
  assert.equal((await request(cay, `/v1/agents/${TYPE}/slow/turns/${turn}`, { method: 'DELETE' })).status, 204);
  assert.match(await response.text(), /^data: \{"type":"start".*"abort"/s);
});

test('a stream beyond its limit ends the turn and says which', async (t) => {
  const demo = { scripts: [{ when: '.', steps: [{ say: 'many words and more of them. ', repeat: 900 }] }] };
  const dir = agentsDir(t, { talker: { agent: { state: { a: 1 } }, demo } });
  const cay = await withCay(t, { args: ['--agents-dir', dir], config: { limits: { agent_stream_bytes: 4096 } } });
  const a = await Raw.ready(cay, 'x', { type: 'talker' });
  const frames = await a.turn('t', [user('u', 'go')], { ms: 60_000 * slow });
  assert.match(frames.find((f) => f.error).body, /exceeds 4096 bytes \(limit agent_stream_bytes\)/);
  assert.ok(a.text('t').length > 1000, 'deltas are joined, so that most of it is text');
  a.close();
});

test('a tool result beyond its limit is an error that the model reads', async (t) => {
  const { mock, requests, cay } = await withModel(t, 'anthropic', { config: { limits: { agent_tool_bytes: 1024 } } });
  const sql = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) SELECT i FROM n';
  mock.on({ userMessage: 'much', turnIndex: 0 }, { toolCalls: [call('c1', 'queryDatabase', { sql })] });
  mock.on({ userMessage: 'much', turnIndex: 1 }, { content: 'Too much.' });
  const a = await Raw.ready(cay, 'much');
  await a.turn('t', [user('u', 'much')]);
  assert.match(toolResults(requests[1].body)[0].content, /may have 1024 \(limit agent_tool_bytes\): select fewer rows/);
  a.close();
});

const post = (cay, name, body, headers = {}) =>
  request(cay, `/v1/agents/${TYPE}/${name}/messages`, {
    method: 'POST', headers: { 'Content-Type': 'application/json', Accept: 'application/json', ...headers }, body: JSON.stringify(body),
  });

test('a client chooses the model of a turn: it is asked, and its price counts', async (t) => {
  const { mock, requests, cay } = await withModel(t, 'openai');
  const usage = { prompt_tokens: 1000, completion_tokens: 1000, total_tokens: 2000 };
  mock.on({ userMessage: 'hi' }, { content: 'Hello.', usage });
  const offer = (await request(cay, '/v1/models')).json();
  assert.equal(offer.default, 'gpt-5.5');
  assert.deepEqual([...new Set(offer.models.map((m) => m.provider))], ['openai', 'demo'], 'none without a key');
  const mini = offer.models.find((m) => m.aliases?.includes('gpt-mini'));
  assert.deepEqual(Object.keys(mini), ['id', 'provider', 'aliases', 'usd_per_million', 'context', 'max_output']);

  // Over the WebSocket; two that wait keep their own.
  const a = await Raw.ready(cay, 'chosen');
  const u = (n) => Array.from({ length: n }, (_, i) => user(`u${i + 1}`, 'hi'));
  a.chat('t1', u(1), { model: 'gpt-mini' });
  a.chat('t2', u(2), { model: 'openai/gpt-5.4-nano' });
  a.chat('t3', u(3), { model: null });
  for (const id of ['t1', 't2', 't3']) await a.done(id, 60_000 * slow);
  assert.deepEqual(requests.map((r) => r.body.model), ['gpt-5.4-mini', 'gpt-5.4-nano', 'gpt-5.5']);
  const stored = (await request(cay, `/agents/${TYPE}/chosen/get-messages`)).json().filter((m) => m.role === 'assistant');
  assert.deepEqual(stored.map((m) => [m.metadata.model, m.metadata.cost_usd]),
    [['gpt-5.4-mini', 0.00225], ['gpt-5.4-nano', 0.00045], ['gpt-5.5', 0.01125]]);
  a.close();

  // Over HTTP, and in the record of the run.
  const { message } = (await post(cay, 'plain', { text: 'hi', model: 'gpt-5.4-nano' })).json();
  assert.equal(message.metadata.model, 'gpt-5.4-nano');
  const run = (await request(cay, `/v1/runs/${message.metadata.run}`)).json();
  assert.equal(run.detail.model, 'gpt-5.4-nano');
  assert.equal((await post(cay, 'plain', { text: 'hi', model: '' })).json().message.metadata.model, 'gpt-5.5');
});

test('a model that is not offered is refused, and nothing is stored', async (t) => {
  const { mock, requests, cay } = await withModel(t, 'openai', { agents: { own: { agent: { model: 'openai/of-the-house' } } } });
  mock.on({ userMessage: 'hi' }, { content: 'Hello.' });
  const wrong = ['of-the-house', 'opus', 'anthropic/gpt-5.5', 'openai/', '../demo', 'x'.repeat(100_000), '\u0000', 'a\u2028b'];
  for (const model of [...wrong, 5, ['demo'], { id: 'demo' }]) {
    const got = await post(cay, 'refused', { text: 'hi', model });
    assert.equal(got.status, 400, JSON.stringify(model).slice(0, 100));
    assert.match(got.json().error.message, typeof model === 'string' ? /GET \/v1\/models lists|NUL|\\u0000/ : /"model"/);
  }
  const a = await Raw.ready(cay, 'refused');
  const frames = await a.turn('t', [user('u1', 'hi')], { model: 'nosuch' });
  assert.match(frames[0].body, /no model "nosuch"/);
  assert.equal(frames.at(-1).outcome, 'error');
  a.close();
  assert.deepEqual((await request(cay, `/agents/${TYPE}/refused/get-messages`)).json(), []);
  assert.equal(requests.length, 0);
  // Names that were refused leave nothing behind: the limit on names that are not listed is far.
  for (let i = 0; i < 300; i++) await post(cay, 'refused', { text: 'hi', model: `m${i}` });
  const own = (body) => request(cay, '/v1/agents/own/x/messages', {
    method: 'POST', headers: { 'Content-Type': 'application/json', Accept: 'application/json' }, body: JSON.stringify(body),
  });
  // The agent's own is one of them, though models.json does not list it.
  assert.equal((await own({ text: 'hi', model: 'of-the-house' })).json().message.metadata.model, 'of-the-house');
});

test('what a key may spend follows the model that was chosen', async (t) => {
  const { mock, requests, cay } = await withModel(t, 'openai');
  mock.on({ userMessage: 'hello' }, { content: 'Hello.' });
  const key = await createKey(cay.dataDir, { name: 'k', more: ['--usd-per-day', '0.001'] });
  const headers = { Authorization: `Bearer ${key.text}` };
  const dear = await post(cay, 'spend', { text: 'hello' }, headers);
  assert.match(dear.json().error?.message ?? '', /may spend \$0\.001/, dear.body);
  assert.equal(requests.length, 0);
  const free = await post(cay, 'spend', { text: 'hello', model: 'demo' }, headers);
  assert.equal(free.status, 200, free.body);
  assert.equal(free.json().message.metadata.model, 'demo');
});
