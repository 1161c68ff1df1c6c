// Budgets of tokens and money against guests that hang up, race and lie. The server of these tests bills the worst: for
// each request that reaches it, its input and as much output as the request lets it write.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { test } from 'node:test';
import { post, startEgress, startServer, startTcp } from './lib.mjs';

const KEY = 'sk-ant-operator-0123456789';
const PRICES = { 'claude-x': { input: 3000, output: 15000, cache_read: 300, cache_write: 3750 }, 'gpt-x': { input: 1000, output: 2000, cache_read: 100 } };
const INPUT = 10;

const event = (type, data) => `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
const chunk = (data) => `data: ${JSON.stringify({ object: 'chat.completion.chunk', ...data })}\n\n`;

/** The most that a server could read a request to allow. */
function outputOf(body) {
  const asked = JSON.parse(body);
  const numbers = (o) => Object.entries(o ?? {}).flatMap(([k, v]) => (typeof v === 'object' ? numbers(v) : /tok|len|predict/i.test(k) ? [Number(v)] : []));
  const limits = numbers({ ...asked, messages: undefined, tools: undefined });
  return (limits.length > 0 ? Math.max(...limits) : 1e9) * Number(asked.n ?? 1);
}

async function start(t, { handler = () => {}, anthropic = {}, openai = {}, caps, prices = PRICES, asks } = {}) {
  const server = await startServer(t, handler);
  const egress = await startEgress(t, { private: [`localhost:${server.port}`] });
  const routes = {
    claude: { url: `http://localhost:${server.port}`, api: 'anthropic', headers: { 'x-api-key': '${KEY}' }, models: ['claude-x'], ...anthropic },
    gpt: { url: `http://localhost:${server.port}/v1`, api: 'openai', headers: { authorization: 'Bearer ${KEY}' }, models: ['gpt-x'], ...openai },
  };
  const port = await egress.open('a', { routes, prices, caps, asks }, { secrets: { KEY } });
  server.billed = () => server.requests.reduce((sum, r) => sum + INPUT + outputOf(r.body), 0);
  const usage = () => egress.seen.findLast((l) => l.type === 'usage');
  return { server, egress, port, usage };
}

const message = (rest = {}) => ({ model: 'claude-x', max_tokens: 100, messages: [{ role: 'user', content: 'hello' }], ...rest });
const chat = (rest = {}) => ({ model: 'gpt-x', messages: [{ role: 'user', content: 'hello' }], ...rest });

/** A POST that is left when `leave` says so: with a reset, as a guest that lies would. */
async function leave(port, path, body, until) {
  const socket = net.connect(port, '127.0.0.1');
  socket.on('error', () => {});
  await once(socket, 'connect');
  const text = JSON.stringify(body);
  socket.write(`POST ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`);
  await until(socket);
  socket.resetAndDestroy();
}

const until = async (done) => {
  while (!done()) await new Promise((next) => { setTimeout(next, 2); });
};

for (const [path, body] of [['/v1/messages', message({ max_tokens: 2000 })], ['/v1/chat/completions', chat({ max_tokens: 2000 })], ['/v1/messages', message({ max_tokens: 2000, stream: true })]]) {
  test(`a guest that hangs up before the answer pays for what was set aside: ${path}${body.stream ? ', a stream' : ''}`, async (t) => {
    const { server, egress, port, usage } = await start(t, { caps: { tokens: 3000 } });
    for (let i = 0; i < 10; i += 1) {
      const reached = server.requests.length;
      const ended = egress.seen.length;
      await leave(port, path, body, (socket) => until(() => server.requests.length > reached || socket.bytesRead > 0));
      await egress.event((e) => e.state === 'ended' || e.state === 'refused', ended);
    }
    assert.ok(server.billed() <= 3000 + 3 * INPUT, `${server.billed()} of 3000`);
    await egress.wait((l) => l.type === 'usage' && l.tokens_out >= 2000);
    assert.equal(usage().estimated, true);
    assert.equal((await post(port, path, body)).status, 429);
    const [ended] = egress.events('a').filter((e) => e.state === 'ended');
    assert.ok(ended.tokens_out === 2000 && ended.tokens_in > 0, JSON.stringify(ended));
    const { input, output, cache_write = 0 } = PRICES[body.model];
    assert.equal(ended.cost_nusd, ended.tokens_in * Math.max(input, cache_write) + 2000 * output);
  });
}

test('without caps a guest that hangs up pays for what it sent', async (t) => {
  const { server, egress, port } = await start(t);
  await leave(port, '/v1/messages', message({ system: 'word '.repeat(4000) }), () => until(() => server.requests.length > 0));
  const ended = await egress.event((e) => e.state === 'ended');
  assert.ok(ended.tokens_in >= 4000 && ended.cost_nusd >= 4000 * 3000, JSON.stringify(ended));
  assert.equal((await egress.wait((l) => l.type === 'usage' && l.tokens_in > 0)).estimated, true);
});

test('a request that did not go out, or that the server refused, costs nothing', async (t) => {
  const silent = await startTcp(t, () => {});
  const egress = await startEgress(t, { private: [`localhost:${silent.port}`, 'localhost:1'] });
  // No request goes out before the handshake, which this server does not do.
  const routes = { claude: { url: `https://localhost:${silent.port}`, api: 'anthropic', models: ['claude-x'] }, gone: { url: 'http://localhost:1', api: 'openai', models: ['gpt-x'] } };
  const port = await egress.open('a', { routes, prices: PRICES, caps: { tokens: 3000 } });
  await leave(port, '/v1/messages', message(), () => once(silent, 'connection'));
  const left = await egress.event((e) => e.state === 'ended');
  assert.deepEqual([left.tokens_in, left.tokens_out, left.cost_nusd], [0, 0, 0]);
  assert.equal((await post(port, '/v1/chat/completions', chat())).status, 502);
  const unreached = await egress.event((e) => e.state === 'ended' && e.model === 'gpt-x');
  assert.deepEqual([unreached.tokens_in, unreached.tokens_out, unreached.cost_nusd], [0, 0, 0]);
});

test('a server that breaks off without an answer is paid for, since it may have done the work', async (t) => {
  const { egress, port } = await start(t, { handler: (request) => request.socket.destroy(), caps: { tokens: 3000 } });
  assert.equal((await post(port, '/v1/messages', message())).status, 502);
  assert.equal((await egress.event((e) => e.state === 'ended')).tokens_out, 100);
});

const spellings = [
  ['/v1/chat/completions', chat({ max_tokens: 1, max_completion_tokens: 900_000 })],
  ['/v1/chat/completions', chat({ max_tokens: 900_000, max_completion_tokens: 1 })],
  ['/v1/chat/completions', chat({ max_tokens: null, max_completion_tokens: 900_000 })],
  ['/v1/chat/completions', chat({ max_tokens: 900_000.5 })],
  ['/v1/chat/completions', chat({ max_tokens: '900000', max_completion_tokens: 5 })],
  ['/v1/chat/completions', chat({ max_tokens: -1, max_completion_tokens: 0 })],
  ['/v1/chat/completions', chat({ max_tokens: { max_tokens: 900_000 } })],
  ['/v1/chat/completions', chat({ max_tokens: 1, max_output_tokens: 900_000 })],
  ['/v1/chat/completions', chat({ max_tokens: 1, stream_options: { max_tokens: 900_000 } })],
  ['/v1/chat/completions', chat({ max_tokens: 1, prediction: { type: 'content', content: 'x', maxNewTokens: 900_000 } })],
  ['/v1/chat/completions', chat({ max_tokens: 1, tool_choice: [{ a: [{ 'MAX-COMPLETION-TOKENS': 900_000 }] }] })],
  ['/v1/chat/completions', chat({ max_tokens: 1, extra: { options: { num_predict: 900_000 } } })],
  ['/v1/chat/completions', chat({ max_tokens: 1, max_new_tokens: 900_000 })],
  ['/v1/chat/completions', chat({ max_tokens: 1, maxTokens: 900_000 })],
  ['/v1/chat/completions', chat({ max_tokens: 1, max_length: 900_000 })],
  ['/v1/chat/completions', chat({ max_tokens: 100, n: 50 })],
  ['/v1/chat/completions', chat({ max_tokens: 100, n: '50' })],
  ['/v1/chat/completions', chat({ max_tokens: 100, n: 50.0001 })],
  ['/v1/chat/completions', chat({ max_tokens: 100, n: 1e9 })],
  ['/v1/messages', message({ max_tokens: 900_000 })],
  ['/v1/messages', message({ max_tokens: 1, max_completion_tokens: 900_000 })],
  ['/v1/messages', message({ max_tokens: 1, max_tokens_to_sample: 900_000 })],
  ['/v1/messages', message({ max_tokens: 2000, thinking: { type: 'enabled', budget_tokens: 900_000 } })],
  ['/v1/messages', message({ max_tokens: 2000, thinking: { type: 'enabled', budget_tokens: '900000' } })],
  ['/v1/messages', message({ max_tokens: 2000, thinking: { type: 'enabled', max_thinking_tokens: 900_000 } })],
  ['/v1/messages', message({ max_tokens: 1, output_config: { effort: 'high', max_tokens: 900_000 } })],
  ['/v1/messages', '{"model":"claude-x","messages":[],"max_tokens":1,"max_tokens":900000}'],
  ['/v1/messages', '{"model":"claude-x","messages":[],"max_tokens":1,"max\\u005ftokens":900000}'],
  ['/v1/messages', '{"model":"claude-x","messages":[],"max_tokens":1,"thinking":{"budget_tokens":1,"budget_tokens":900000}}'],
  ['/v1/messages', '{"model":"claude-x","messages":[],"max_tokens":1e6}'],
];

test('every spelling of how long an answer may get is bounded, or refused', async (t) => {
  // Also where the operator let keys pass that are none of the api's.
  const fields = ['max_*', 'maxTokens', 'extra', 'max_output_tokens'];
  for (const [path, body] of spellings) {
    const { server, port } = await start(t, { caps: { tokens: 3000 }, anthropic: { fields }, openai: { fields }, handler: (request, response) => response.end('{"usage":{}}') });
    const { status } = await post(port, path, body);
    assert.ok([200, 400, 403].includes(status), `${JSON.stringify(body)}: ${status}`);
    assert.equal(server.requests.length, status === 200 ? 1 : 0);
    assert.ok(server.billed() <= 3000 + INPUT, `${JSON.stringify(body)}: ${server.requests[0]?.body}`);
  }
});

// Usage that is none: nothing, texts, fractions, less than nothing, more than there is.
const ODD = [null, {}, [], 'much', 7, { input_tokens: null, output_tokens: null }, { input_tokens: '900', output_tokens: '90' }, { input_tokens: 0.5, output_tokens: 1.5 },
  { input_tokens: -900, output_tokens: -5 }, { input_tokens: 6148914691236518000, output_tokens: 1 }, { input_tokens: 1e300, output_tokens: 1 }, { input_tokens: true, output_tokens: [] },
  { input_tokens: 0, output_tokens: 0 }, { input_tokens: 5, output_tokens: 5, cache_read_input_tokens: '1' }, { input_tokens: 5, output_tokens: 5, cache_creation: { ephemeral_1h_input_tokens: -1 } }];
const asChat = (usage) => (usage && typeof usage === 'object' && !Array.isArray(usage) ? { prompt_tokens: usage.input_tokens, completion_tokens: usage.output_tokens, ...(usage.cache_read_input_tokens ?? usage.cache_creation ? { prompt_tokens_details: { cached_tokens: '1' } } : {}) } : usage);
const whole = (usage) => JSON.stringify({ content: 'x'.repeat(400), usage });

for (const usage of ODD)
  test(`usage that is none is counted by our own estimate: ${JSON.stringify(usage)}`, async (t) => {
    for (const [path, body, answer] of [
      ['/v1/messages', message(), whole(usage)],
      ['/v1/chat/completions', chat({ max_tokens: 100 }), whole(asChat(usage))],
      ['/v1/messages', message({ stream: true }), event('message_start', { message: { usage } }) + event('content_block_delta', { delta: { text: 'x'.repeat(3000) } }) + event('message_delta', { delta: { stop_reason: 'end_turn' }, usage })],
    ]) {
      const handler = (request, response) => {
        if (body.stream) response.setHeader('content-type', 'text/event-stream');
        response.end(answer);
      };
      const text = 'hello '.repeat(100); // about 300 tokens
      const { port, egress } = await start(t, { caps: { tokens: 3000 }, handler });
      let last;
      for (let i = 0; i < 12 && last !== 429; i += 1) last = (await post(port, path, { ...body, messages: [{ role: 'user', content: text }] })).status;
      assert.equal(last, 429, `${path}: twelve calls passed`);
      const told = await egress.wait((l) => l.type === 'usage' && l.tokens_in > 300);
      assert.equal(told.estimated, true);
    }
  });

test('what stays in the cache for an hour has a price of its own', async (t) => {
  const prices = { 'claude-x': { ...PRICES['claude-x'], cache_write_1h: 6000 } };
  const answers = [
    [{ cache_creation_input_tokens: 1000, cache_creation: { ephemeral_5m_input_tokens: 400, ephemeral_1h_input_tokens: 600 } }, 10 * 3000 + 400 * 3750 + 600 * 6000 + 2 * 15000],
    [{ cache_creation_input_tokens: 1000 }, 10 * 3000 + 1000 * 3750 + 2 * 15000],
    [{ cache_creation: { ephemeral_1h_input_tokens: 50 } }, 10 * 3000 + 50 * 6000 + 2 * 15000],
    [{ cache_creation_input_tokens: null, cache_creation: null }, 10 * 3000 + 2 * 15000],
  ];
  for (const [more, cost] of answers) {
    const { egress, port } = await start(t, { prices, handler: (request, response) => response.end(whole({ input_tokens: 10, output_tokens: 2, ...more })) });
    assert.equal((await post(port, '/v1/messages', message())).status, 200);
    const told = await egress.wait((l) => l.type === 'usage' && l.cost_nusd > 0);
    assert.deepEqual([told.cost_nusd, told.estimated], [cost, false], JSON.stringify(more));
  }
  // One that is left is paid as what it may have been.
  const { egress, port, server } = await start(t, { prices, caps: { tokens: 100_000 } });
  const cached = [{ role: 'user', content: [{ type: 'text', text: 'hello', cache_control: { type: 'ephemeral', ttl: '1h' } }] }];
  await leave(port, '/v1/messages', message({ messages: cached }), () => until(() => server.requests.length === 1));
  const told = await egress.wait((l) => l.type === 'usage' && l.cost_nusd > 0);
  assert.equal(told.cost_nusd, told.tokens_in * 6000 + told.tokens_out * 15000);
});

test('texts and schemas that name a limit are the guest\'s own business', async (t) => {
  const { port } = await start(t, { caps: { tokens: 3000 }, handler: (request, response) => response.end('{"usage":{"input_tokens":1,"output_tokens":1,"prompt_tokens":1,"completion_tokens":1}}') });
  const schema = { type: 'object', properties: { max_tokens: { type: 'integer', maximum: 900_000 } } };
  for (const [path, body] of [
    ['/v1/messages', message({ tools: [{ name: 'a', input_schema: schema }], metadata: { max_tokens: '5' } })],
    ['/v1/messages', message({ messages: [{ role: 'assistant', content: [{ type: 'tool_use', id: '1', name: 'a', input: { max_tokens: 900_000 } }] }] })],
    ['/v1/messages', message({ output_config: { effort: 'low', format: { type: 'json_schema', schema } } })],
    ['/v1/messages', message({ max_tokens: 2048, thinking: { type: 'enabled', budget_tokens: 1024 } })],
    ['/v1/chat/completions', chat({ max_completion_tokens: 5, n: 1, response_format: { type: 'json_schema', json_schema: { name: 'x', schema } }, functions: [{ name: 'f', parameters: schema }] })],
  ]) {
    const { status, text } = await post(port, path, body);
    assert.equal(status, 200, `${JSON.stringify(body)}: ${text}`);
  }
});

const cuts = [
  ['before it said anything', '/v1/messages', message({ stream: true, max_tokens: 2000 }), ': hello\n\n', [null, 2000]],
  ['after it said what it read', '/v1/messages', message({ stream: true, max_tokens: 2000 }), event('message_start', { message: { usage: { input_tokens: 500, output_tokens: 1 } } }), [500, 2000]],
  ['when it had said all', '/v1/messages', message({ stream: true, max_tokens: 2000 }),
    event('message_start', { message: { usage: { input_tokens: 500, output_tokens: 1 } } }) + event('message_delta', { delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 7 } }), [500, 7]],
  ['while it counted on the way', '/v1/messages', message({ stream: true, max_tokens: 2000 }),
    event('message_start', { message: { usage: { input_tokens: 500, output_tokens: 1 } } }) + event('message_delta', { delta: {}, usage: { output_tokens: 7 } }), [500, 2000]],
  ['while it counted on the way, chunk by chunk', '/v1/chat/completions', chat({ stream: true, max_tokens: 2000, stream_options: { continuous_usage_stats: true } }),
    chunk({ choices: [{ delta: { content: 'a' } }], usage: { prompt_tokens: 500, completion_tokens: 1 } }), [500, 2000]],
  ['when the last chunk had said all', '/v1/chat/completions', chat({ stream: true, max_tokens: 2000 }),
    chunk({ choices: [{ delta: { content: 'a' } }] }) + chunk({ choices: [], usage: { prompt_tokens: 500, completion_tokens: 3 } }), [500, 3]],
  ['in the middle of a whole answer', '/v1/messages', message({ max_tokens: 2000 }), '{"type":"message","content":[{"type":"text","text":"a', [null, 2000]],
];

for (const [when, path, body, text, [input, output]] of cuts) {
  test(`an answer that is left ${when} is settled by what was set aside, unless the server said less`, async (t) => {
    const { egress, port } = await start(t, { caps: { tokens: 10_000 }, handler: (request, response) => {
      response.writeHead(200, { 'content-type': body.stream ? 'text/event-stream' : 'application/json' });
      response.write(text);
    } });
    await leave(port, path, body, async (socket) => {
      let got = '';
      while (!got.includes(text.slice(-20))) got += (await once(socket, 'data'))[0];
    });
    const ended = await egress.event((e) => e.state === 'ended');
    assert.equal(ended.tokens_out, output);
    if (input !== null) assert.equal(ended.tokens_in, input);
    else assert.ok(ended.tokens_in > 0 && ended.tokens_in < 100, String(ended.tokens_in));
  });
}

test('a guest that does not read and then leaves pays for what it made the server write', async (t) => {
  const { egress, port } = await start(t, { caps: { tokens: 100_000 }, handler: (request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const more = () => {
      while (!response.destroyed && response.write(event('content_block_delta', { delta: { type: 'text_delta', text: 'x'.repeat(1000) } })));
    };
    response.on('drain', more);
    more();
  } });
  await leave(port, '/v1/messages', message({ stream: true, max_tokens: 60_000 }), async (socket) => {
    await once(socket, 'readable');
    await new Promise((done) => { setTimeout(done, 50); });
  });
  const { tokens_out } = await egress.event((e) => e.state === 'ended');
  assert.ok(tokens_out >= 60_000, String(tokens_out));
});

for (const kind of ['tokens', 'money']) {
  test(`many at once near the cap, some of which leave at any moment: ${kind}`, async (t) => {
    const cap = 5000;
    const price = PRICES['claude-x'];
    const caps = kind === 'tokens' ? { tokens: cap } : { cost_nusd: cap * price.output };
    const { server, egress, port, usage } = await start(t, { caps, handler: (request, response, body) => {
      setTimeout(() => response.end(JSON.stringify({ usage: { input_tokens: 1, output_tokens: outputOf(body) } })), Math.random() * 20);
    } });
    let seed = 7;
    const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
    const one = (i) => (random() < 0.5
      ? post(port, '/v1/messages', message({ max_tokens: 50 + (i % 7) * 100 })).then((a) => a.status)
      : leave(port, '/v1/messages', message({ max_tokens: 50 + (i % 7) * 100 }), () => new Promise((done) => { setTimeout(done, random() * 25); })).then(() => 0));
    const statuses = (await Promise.all(Array.from({ length: 100 }, (_, i) => one(i)))).concat(await Promise.all(Array.from({ length: 100 }, (_, i) => one(i))));
    assert.ok(statuses.every((s) => [0, 200, 429].includes(s)), String(statuses));
    assert.ok(statuses.includes(429));
    assert.ok(server.requests.length >= 8, String(server.requests.length));
    await egress.ok({ cmd: 'close', id: 'a' }); // the last usage is told before
    const billed = server.requests.reduce((sum, r) => sum + outputOf(r.body), 0);
    assert.ok(billed <= cap, `${billed} of ${cap}`);
    assert.ok(usage().tokens_out >= billed, `${usage().tokens_out} counted, ${billed} billed`);
  });
}

test('input is not made to look small', async (t) => {
  const { server, port } = await start(t, { caps: { tokens: 40_000 }, handler: (request, response) => response.end('{"usage":{"input_tokens":1,"output_tokens":1}}') });
  const content = (b) => message({ messages: [{ role: 'user', content: [b] }] });
  for (const body of [
    // A text beside which a type says that it is data.
    content({ type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'word '.repeat(50_000) } }),
    content({ type: 'text', text: `data:${'word '.repeat(50_000)}` }),
    // Letters that are rare, and signs: about a token each.
    content({ type: 'text', text: '\u{1f9ff}'.repeat(15_000) }),
    content({ type: 'text', text: '7!'.repeat(25_000) }),
    content({ type: 'tool_use', id: '1', name: 'x', input: { ['k'.repeat(100_000)]: 1 } }),
    message({ output_config: { format: { type: 'json_schema', schema: { description: 'word '.repeat(50_000) } } } }),
    content({ type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'A'.repeat(2_000_000) } }),
  ]) {
    const { status } = await post(port, '/v1/messages', body);
    assert.equal(status, 429, JSON.stringify(body).slice(0, 200));
  }
  assert.equal(server.requests.length, 0);
  for (const body of [
    content({ type: 'text', text: 'word '.repeat(10_000) }),
    content({ type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'A'.repeat(2_000_000) } }),
  ]) assert.equal((await post(port, '/v1/messages', body)).status, 200);
});

test('what runs when the program is killed is paid for', async (t) => {
  let first = true;
  const { server, egress, port } = await start(t, { caps: { tokens: 3000 }, handler: (request, response) => {
    if (!first) response.end('{}');
    first = false;
  } });
  const request = http.request({ host: '127.0.0.1', port, path: '/v1/messages', method: 'POST', agent: false });
  request.on('error', () => {});
  request.end(JSON.stringify(message({ max_tokens: 2000 })));
  await until(() => server.requests.length > 0);
  await egress.event((e) => e.state === 'begun');
  const from = egress.seen.length;
  egress.send({ cmd: 'kill' });
  await egress.wait((l) => l.type === 'started', from);
  assert.equal((await post(port, '/v1/messages', message({ max_tokens: 2000 }))).status, 200);
  assert.equal(server.requests.length, 2);
  assert.ok(server.billed() <= 3000 + 2 * INPUT, String(server.billed()));
});

test('a policy that asks lets no call out before the front has granted it', async (t) => {
  const { server, egress, port } = await start(t, { asks: true, handler: (request, response) => response.end(whole({ input_tokens: 10, output_tokens: 2 })) });
  const asked = (from) => egress.wait((l) => l.type === 'ask', from);
  const first = post(port, '/v1/messages', message());
  const one = await asked(0);
  assert.deepEqual([one.id, one.tokens_out, one.cost_nusd], ['a', 100, one.tokens_in * 3750 + 100 * 15000]);
  assert.equal(server.requests.length, 0);
  egress.send({ cmd: 'grant', id: 'a', number: one.number });
  assert.equal((await first).status, 200);
  const spent = await egress.wait((l) => l.type === 'spent');
  assert.deepEqual([spent.number, spent.input, spent.output, spent.cost_nusd, spent.estimated], [one.number, 10, 2, 10 * 3000 + 2 * 15000, false]);
  // Less than it asked for: a shorter answer.
  let from = egress.seen.length;
  const second = post(port, '/v1/messages', message());
  const two = await asked(from);
  egress.send({ cmd: 'grant', id: 'a', number: two.number, tokens: two.tokens_in + 40, cost_nusd: two.cost_nusd - 70 * 15000 });
  assert.equal((await second).status, 200);
  assert.equal(outputOf(server.requests[1].body), 30);
  // Refused: for good, or for now.
  for (const [code, retry] of [['quota_exceeded', 'false'], ['rate_limited', undefined]]) {
    from = egress.seen.length;
    const third = post(port, '/v1/messages', message());
    egress.send({ cmd: 'grant', id: 'a', number: (await asked(from)).number, code, message: 'no money' });
    const refused = await third;
    assert.deepEqual([refused.status, refused.json.error.message, refused.headers['x-should-retry'], refused.headers['retry-after']], [429, 'no money', retry, retry ? undefined : '1']);
  }
  // A guest that does not wait has spent nothing, and the front is told so.
  from = egress.seen.length;
  let number;
  await leave(port, '/v1/messages', message(), async () => ({ number } = await asked(from)));
  const none = await egress.wait((l) => l.type === 'spent' && l.number === number);
  assert.deepEqual([none.input, none.output, none.cost_nusd], [0, 0, 0]);
  egress.send({ cmd: 'grant', id: 'a', number }); // too late
  assert.equal(server.requests.length, 2);
  await egress.ok({ cmd: 'close', id: 'a' });
});

test('a guest that calls models without pause does not keep the ledger busy', async (t) => {
  const { egress, port, server } = await start(t, { asks: true });
  const from = egress.seen.length;
  const sent = Array.from({ length: 120 }, () => post(port, '/v1/messages', message()).catch(() => undefined));
  const refused = await Promise.any(sent.map(async (one) => {
    const answer = await one;
    assert.equal(answer?.status, 429);
    return answer;
  }));
  assert.match(refused.json.error.message, /more than 10 times a second/);
  assert.equal(refused.headers['retry-after'], '1');
  assert.ok(egress.seen.slice(from).filter((l) => l.type === 'ask').length < 120);
  assert.equal(server.requests.length, 0);
  await egress.ok({ cmd: 'close', id: 'a' });
  await Promise.all(sent);
});

test('a call that is refused after it was granted has spent nothing, and the front is told so by its number', async (t) => {
  const { server, egress, port } = await start(t, { asks: true });
  const reply = post(port, '/v1/chat/completions', chat({ n: 8, max_tokens: 100 }));
  const { number, tokens_in: input } = await egress.wait((l) => l.type === 'ask');
  egress.send({ cmd: 'grant', id: 'a', number, tokens: input + 4 });
  assert.equal((await reply).headers['x-cay-egress'], 'refused');
  const spent = await egress.wait((l) => l.type === 'spent');
  assert.deepEqual([spent.number, spent.input, spent.output, spent.cost_nusd], [number, 0, 0, 0]);
  assert.equal(server.requests.length, 0);
});

test('a call that waits for its grant does not outlive the policy it was judged by', async (t) => {
  const { server, egress, port } = await start(t, { asks: true, handler: (request, response) => response.end('{}') });
  const reply = post(port, '/v1/messages', message());
  const { number } = await egress.wait((l) => l.type === 'ask');
  const claude = { url: `http://localhost:${server.port}`, api: 'anthropic', headers: { 'x-api-key': '${KEY}' }, models: ['claude-y'] };
  await egress.ok({ cmd: 'policy', id: 'a', policy: { routes: { claude }, prices: PRICES, asks: true }, secrets: { KEY } });
  egress.send({ cmd: 'grant', id: 'a', number });
  const { status, headers } = await reply;
  assert.deepEqual([status, headers['retry-after']], [503, '1']);
  const spent = await egress.wait((l) => l.type === 'spent');
  assert.deepEqual([spent.number, spent.cost_nusd], [number, 0]);
  const again = await post(port, '/v1/messages', message());
  assert.equal(again.status, 403);
  assert.equal(server.requests.length, 0);
});
