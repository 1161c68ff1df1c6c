// Models: granted endpoints and models only, nothing that makes the server reach out, and every token counted.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { test } from 'node:test';
import { ask, post, raw, startEgress, startServer } from './lib.mjs';

const KEY = 'sk-ant-operator-0123456789';
const PRICES = { 'claude-x': { input: 3000, output: 15000, cache_read: 300, cache_write: 3750 }, 'gpt-x': { input: 1000, output: 2000, cache_read: 100 } };

const event = (type, data) => `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
const chunk = (data) => `data: ${JSON.stringify({ object: 'chat.completion.chunk', ...data })}\n\n`;

function answer(request, response, body) {
  const asked = body ? JSON.parse(body) : {};
  if (request.url.startsWith('/v1/models')) {
    response.setHeader('content-type', 'application/json');
    response.end('{"data":[]}');
  } else if (request.url === '/v1/messages/count_tokens') {
    response.end('{"input_tokens":7}');
  } else if (request.url === '/v1/messages' && !asked.stream) {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({
      type: 'message', content: [{ type: 'text', text: 'hi' }],
      usage: { input_tokens: 10, output_tokens: 20, cache_read_input_tokens: 100, cache_creation_input_tokens: 1 },
    }));
  } else if (request.url === '/v1/messages') {
    response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
    response.write(event('message_start', { message: { usage: { input_tokens: 11, output_tokens: 1 } } }));
    response.write(event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: 'my "usage" is' } }));
    response.write(event('message_delta', { delta: {}, usage: { output_tokens: 22 } }));
    response.end(event('message_stop', {}));
  } else if (!asked.stream) {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ choices: [], usage: { prompt_tokens: 50, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 20 } } }));
  } else {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(chunk({ choices: [{ delta: { content: 'hi' } }], usage: null }));
    if (asked.stream_options?.include_usage) response.write(chunk({ choices: [], usage: { prompt_tokens: 30, completion_tokens: 3 } }));
    response.end('data: [DONE]\n\n');
  }
}

async function start(t, { handler = answer, anthropic = {}, openai = {}, policy = {} } = {}) {
  const server = await startServer(t, handler);
  const egress = await startEgress(t, { private: [`localhost:${server.port}`] });
  const routes = {
    claude: { url: `http://localhost:${server.port}`, api: 'anthropic', headers: { 'x-api-key': '${KEY}' }, models: ['claude-x', 'haiku-*'], ...anthropic },
    gpt: { url: `http://localhost:${server.port}/v1`, api: 'openai', headers: { authorization: 'Bearer ${KEY}' }, models: ['gpt-x'], ...openai },
  };
  const port = await egress.open('a', { routes, prices: PRICES, ...policy }, { secrets: { KEY } });
  return { server, egress, port };
}

const message = (rest = {}) => ({ model: 'claude-x', max_tokens: 100, messages: [{ role: 'user', content: 'hello' }], ...rest });
const chat = (rest = {}) => ({ model: 'gpt-x', messages: [{ role: 'user', content: 'hello' }], ...rest });
const block = (b) => message({ messages: [{ role: 'user', content: [b] }] });
const part = (b) => chat({ messages: [{ role: 'user', content: [b] }] });

test('both apis answer at the origin and by their route, with the operator\'s key', async (t) => {
  const { server, egress, port } = await start(t);
  for (const path of ['/v1/messages', '/_/claude/v1/messages']) {
    const { status, json } = await post(port, path, message(), { 'x-api-key': 'guest', 'anthropic-version': '2023-06-01', authorization: 'Bearer guest' });
    assert.equal(status, 200);
    assert.equal(json.content[0].text, 'hi');
    assert.equal(server.requests.at(-1).url, '/v1/messages');
    assert.equal(server.requests.at(-1).headers['x-api-key'], KEY);
    assert.equal(server.requests.at(-1).headers.authorization, undefined);
    assert.equal(server.requests.at(-1).headers['anthropic-version'], '2023-06-01');
  }
  for (const path of ['/v1/chat/completions', '/_/gpt/v1/chat/completions']) {
    assert.equal((await post(port, path, chat(), { authorization: 'Bearer guest', 'openai-organization': 'theirs' })).status, 200);
    assert.equal(server.requests.at(-1).url, '/v1/chat/completions');
    assert.equal(server.requests.at(-1).headers.authorization, `Bearer ${KEY}`);
    assert.equal(server.requests.at(-1).headers['openai-organization'], undefined);
  }
  assert.equal((await ask(port, '/v1/models', { headers: { 'anthropic-version': '2023-06-01' } })).status, 200);
  assert.equal(server.requests.at(-1).headers['x-api-key'], KEY);
  assert.equal((await ask(port, '/v1/models/gpt-x', { headers: { authorization: 'Bearer guest' } })).status, 200);
  assert.equal(server.requests.at(-1).headers.authorization, `Bearer ${KEY}`);
  assert.equal((await post(port, '/v1/messages/count_tokens', message({ max_tokens: undefined }))).json.input_tokens, 7);
  const seen = await egress.event((e) => e.state === 'ended' && e.model === 'claude-x');
  assert.equal(seen.kind, 'model');
  assert.equal(seen.route, 'claude');
});

test('tokens and money are counted, of whole answers and of streams', async (t) => {
  const { server, egress, port } = await start(t);
  const told = async (path, body, model) => {
    const from = egress.seen.length;
    assert.equal((await post(port, path, body)).status, 200);
    return egress.event((e) => e.state === 'ended' && e.model === model, from);
  };
  let e = await told('/v1/messages', message(), 'claude-x');
  assert.deepEqual([e.tokens_in, e.tokens_out, e.cost_nusd], [111, 20, 10 * 3000 + 20 * 15000 + 100 * 300 + 3750]);
  e = await told('/v1/messages', message({ stream: true }), 'claude-x');
  assert.deepEqual([e.tokens_in, e.tokens_out, e.cost_nusd], [11, 22, 11 * 3000 + 22 * 15000]);
  e = await told('/v1/chat/completions', chat(), 'gpt-x');
  assert.deepEqual([e.tokens_in, e.tokens_out, e.cost_nusd], [50, 5, 30 * 1000 + 20 * 100 + 5 * 2000]);
  // A guest that does not ask for the usage is asked for it all the same.
  e = await told('/v1/chat/completions', chat({ stream: true, stream_options: { include_usage: false } }), 'gpt-x');
  assert.deepEqual([e.tokens_in, e.tokens_out, e.cost_nusd], [30, 3, 30 * 1000 + 3 * 2000]);
  assert.deepEqual(JSON.parse(server.requests.at(-1).body).stream_options, { include_usage: true });
  const usage = await egress.wait((l) => l.type === 'usage' && l.tokens_in === 202);
  assert.deepEqual([usage.tokens_out, usage.estimated], [50, false]);
});

test('an answer that does not say what it used is estimated', async (t) => {
  const { egress, port } = await start(t, { handler: (request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(chunk({ choices: [{ delta: { content: 'x'.repeat(4000) } }] }));
  } });
  await post(port, '/v1/chat/completions', chat({ stream: true, messages: [{ role: 'user', content: 'y'.repeat(4000) }] }));
  const usage = await egress.wait((l) => l.type === 'usage' && l.tokens_in > 0);
  assert.equal(usage.estimated, true);
  assert.ok(usage.tokens_in >= 1000 && usage.tokens_out >= 100, JSON.stringify(usage));
});

test('what is not granted is refused in the words of the api', async (t) => {
  const { server, egress, port } = await start(t, { anthropic: { endpoints: ['messages'] } });
  const refusals = [
    ['/v1/messages', message({ model: 'claude-other' }), /"claude-other" is not granted.*"models"/],
    ['/v1/messages', message({ model: undefined }), /model must be a name/],
    ['/v1/messages', message({ tools: [{ type: 'web_search_20250305', name: 'web_search' }] }), /"web_search_20250305".*"server_tools"/],
    ['/v1/messages', message({ tools: [{ name: 'mine', input_schema: {} }, { type: 'code_execution_20250522', name: 'x' }] }), /"code_execution_20250522"/],
    ['/v1/messages', message({ tools: [{ type: 'web_fetch_20250910', name: 'x' }] }), /"web_fetch_20250910"/],
    ['/v1/messages', message({ tools: [{ type: null, name: 'x' }] }), /malformed/],
    ['/v1/messages', message({ tools: { type: 'web_search' } }), /must be a list/],
    ['/v1/messages', message({ tools: [{ type: 'custom\0web_search', name: 'x' }] }), /malformed/],
    ['/v1/messages', block({ type: 'image', source: { type: 'base64\0url', url: 'https://x' } }), /"urls"/],
    ['/v1/messages', message({ mcp_servers: [{ type: 'url', url: 'https://x', name: 'x' }] }), /"mcp_servers".*"fields"/],
    ['/v1/messages', message({ container: 'c1' }), /"container"/],
    ['/v1/messages', message({ service_tier: 'auto' }), /"service_tier"/],
    ['/v1/messages', block({ type: 'image', source: { type: 'url', url: 'https://x/y.png' } }), /"urls"/],
    ['/v1/messages', block({ type: 'document', source: { type: 'url', url: 'https://x/y.pdf' } }), /"urls"/],
    ['/v1/messages', block({ type: 'document', source: { type: 'file', file_id: 'file_1' } }), /"urls"/],
    ['/v1/messages', block({ type: 'container_upload', file_id: 'file_1' }), /"urls"/],
    ['/v1/messages', block({ type: 'tool_result', tool_use_id: 'x', content: [{ type: 'image', source: { type: 'url', url: 'http://x' } }] }), /"urls"/],
    ['/v1/messages', message({ system: [{ type: 'document', source: { type: 'url', url: 'http://x' } }] }), /"urls"/],
    ['/v1/messages', block({ type: 'image', source: [{ type: 'url', url: 'https://x' }] }), /"urls"/],
    ['/v1/messages', block({ type: 'image', source: [[{ type: 'base64', url: 'https://x' }]] }), /"urls"/],
    ['/v1/messages', block({ type: 'image', source: 'https://x/y.png' }), /"urls"/],
    ['/v1/messages', block({ type: 'image', source: 5 }), /"urls"/],
    ['/v1/messages', block({ type: 'image', source: { type: 'base64', url: 'https://x/y.png' } }), /"urls"/],
    ['/v1/messages', block({ type: 'image', source: { type: 'base64', data: 'https://x/y.png', url: ['https://x'] } }), /"urls"/],
    ['/v1/messages', block({ type: 'image', Source: { type: 'url', url: 'https://x/y.png' } }), /"urls"/],
    ['/v1/messages', block({ type: 'document', source: { type: 'content', content: [{ type: 'image', source: { type: ['url'], url: 'http://x' } }] } }), /"urls"/],
    ['/v1/messages', message({ stream: 'true' }), /stream must be/],
    ['/v1/messages/count_tokens', message(), /count_tokens is not granted/],
    ['/v1/messages/batches', message(), /not granted/],
    ['/v1/messages', '{"model":"claude-x","model":"claude-other"}', /duplicate/i],
    ['/v1/messages', '[1]', /JSON object/],
    ['/v1/messages', 'model', /request/],
  ];
  for (const [path, body, words] of refusals) {
    const { status, json, headers } = await post(port, path, body);
    assert.ok(status === 403 || status === 400, `${JSON.stringify(body)}: ${status}`);
    assert.equal(json.type, 'error');
    assert.match(json.error.message, words);
    assert.equal(json.error.type, status === 403 ? 'permission_error' : 'invalid_request_error');
    assert.equal(headers['x-should-retry'], 'false');
  }
  const theirs = [
    ['/v1/chat/completions', chat({ model: 'gpt-y' }), /"gpt-y"/],
    ['/v1/chat/completions', chat({ tools: [{ type: 'web_search' }] }), /"web_search"/],
    ['/v1/chat/completions', chat({ web_search_options: {} }), /"web_search_options"/],
    ['/v1/chat/completions', part({ type: 'image_url', image_url: { url: 'https://x/y.png' } }), /"urls"/],
    ['/v1/chat/completions', part({ type: 'image_url', image_url: 'http://x/y.png' }), /"urls"/],
    ['/v1/chat/completions', part({ type: 'video_url', video_url: { url: 'file:///etc/passwd' } }), /"urls"/],
    ['/v1/chat/completions', part({ type: 'image_url', image_url: ['https://x/y.png'] }), /"urls"/],
    ['/v1/chat/completions', part({ type: 'image_url', image_url: [{ url: 'https://x/y.png' }] }), /"urls"/],
    ['/v1/chat/completions', part({ type: 'image_url', image_url: [{ detail: 'low' }, [{ url: 'https://x/y.png' }]] }), /"urls"/],
    ['/v1/chat/completions', part({ type: 'image_url', image_url: { url: ['https://x/y.png'] } }), /"urls"/],
    ['/v1/chat/completions', part({ type: 'image_url', image_url: { url: { url: 'https://x/y.png' } } }), /"urls"/],
    ['/v1/chat/completions', part({ type: 'image_url', Image_URL: { url: 'https://x/y.png' } }), /"urls"/],
    ['/v1/chat/completions', part({ type: 'image', image: 'https://x/y.png' }), /"urls"/],
    ['/v1/chat/completions', part({ type: 'video', video: ['file:///a', 'file:///b'] }), /"urls"/],
    ['/v1/chat/completions', part({ type: 'file', file: { file_uri: 'gs://x/y' } }), /"urls"/],
    ['/v1/chat/completions', part({ type: 'file', file: { file_data: 'https://x/y.pdf' } }), /"urls"/],
    ['/v1/chat/completions', part({ type: 'file', file: { file_id: 'file-1' } }), /"urls"/],
    ['/v1/responses', chat(), /not granted/],
    ['/v1/embeddings', chat(), /not granted/],
    ['/v1/files', chat(), /not granted/],
  ];
  for (const [path, body, words] of theirs) {
    const { status, json } = await post(port, path, body);
    assert.equal(status, 403, JSON.stringify(body));
    assert.match(json.error.message, words);
    assert.equal(json.error.type, 'permission_error');
    assert.equal(json.error.code, 'forbidden');
  }
  assert.equal((await ask(port, '/v1/messages')).status, 405);
  assert.equal(server.requests.length, 0);
  const refused = await egress.event((e) => e.state === 'refused' && e.model === 'claude-other');
  assert.match(refused.reason, /claude-other/);
  assert.equal(egress.seen.filter((l) => l.state === 'begun').length, 0);
});

test('what carries its content inside passes, and so does what is granted', async (t) => {
  const { server, port } = await start(t, {
    anthropic: { server_tools: ['web_search_*'], fields: ['service_tier'], urls: false },
    openai: { urls: true },
  });
  const good = [
    ['/v1/messages', message({ model: 'haiku-5' })],
    ['/v1/messages', message({ tools: [{ name: 'a', input_schema: {} }, { type: 'custom', name: 'b', input_schema: {} }, { type: 'web_search_20250305', name: 'c' }] })],
    ['/v1/messages', message({ service_tier: 'auto', temperature: 0.7, thinking: { type: 'enabled', budget_tokens: 10 }, mcp_servers: null })],
    ['/v1/messages', block({ type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } })],
    // The input of a tool is the guest's own business.
    ['/v1/messages', message({ messages: [{ role: 'assistant', content: [{ type: 'tool_use', id: '1', name: 'x', input: { source: { type: 'url' }, image_url: 'http://x' } }] }] })],
    // What was cited or found is not fetched again, and what is only a name is none.
    ['/v1/messages', block({ type: 'search_result', source: 'https://x/y', title: 'y', content: [{ type: 'text', text: 'https://x' }] })],
    ['/v1/messages', message({ messages: [{ role: 'assistant', content: [
      { type: 'web_search_tool_result', tool_use_id: '1', content: [{ type: 'web_search_result', url: 'https://x', title: 'x', encrypted_content: 'e' }] },
      { type: 'text', text: 'x', citations: [{ type: 'web_search_result_location', url: 'https://x', cited_text: 'x' }] },
    ] }] })],
    ['/v1/chat/completions', chat({ messages: [{ role: 'assistant', content: 'x', annotations: [{ type: 'url_citation', url_citation: { url: 'https://x', title: 'x' } }] }] })],
    ['/v1/chat/completions', chat({ messages: [{ role: 'assistant', audio: { id: 'audio_1' }, tool_calls: [{ id: '1', type: 'function', function: { name: 'f', arguments: '{"url":"https://x"}' } }] }] })],
    ['/v1/chat/completions', part({ type: 'image_url', image_url: { url: 'https://x/y.png' } })],
    ['/v1/chat/completions', chat({ tools: [{ type: 'function', function: { name: 'f' } }] })],
  ];
  for (const [path, body] of good) assert.equal((await post(port, path, body)).status, 200, JSON.stringify(body));
  assert.equal(JSON.parse(server.requests[2].body).temperature, 0.7);
  const { port: strict } = await start(t);
  assert.equal((await post(strict, '/v1/chat/completions', part({ type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }))).status, 200);
});

test('a refusal tells the agent that it is policy, what is allowed, and not to try again', async (t) => {
  const { server, port } = await start(t, { policy: { allow: ['example.com', '*.example.org:8443', 'tcp://example.net:22'] } });
  const refused = await post(port, '/v1/messages', message({ model: 'claude-other' }));
  assert.equal(refused.status, 403);
  assert.equal(refused.headers['x-should-retry'], 'false');
  assert.match(refused.json.error.message, /claude-other.*policy of the sandbox, not a fault.*may reach: example\.com:443, \*\.example\.org:8443, tcp:\/\/example\.net:22, the model claude-x, the model haiku-\*, the model gpt-x\.$/);
  const text = await raw(port, 'CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n');
  assert.match(text, /^HTTP\/1\.1 403 Forbidden by the policy of this sandbox\r\n[\s\S]*may reach: example\.com/);
  const many = await start(t, { policy: { allow: Array.from({ length: 250 }, (_, i) => `${'h'.repeat(60)}${i}.${'x'.repeat(60)}.${'y'.repeat(60)}.example.com`) } });
  const long = await post(many.port, '/v1/messages', message({ model: 'claude-other' }));
  assert.match(long.json.error.message, /, and more\.$/, 'a long list is cut');
  assert.equal(server.requests.length, 0);
});

test('a policy that allows nothing says so', async (t) => {
  const egress = await startEgress(t, {});
  const port = await egress.open('a', {});
  const { json } = await ask(port, '/_/hub/x');
  assert.match(json.error.message, /may reach: nothing\.$/);
});

test('the greeting of Claude Code is answered, and nobody hears of it', async (t) => {
  const { server, egress, port } = await start(t);
  const text = await raw(port, 'HEAD /api/hello HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nHEAD /api/hello HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /api/hello HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n');
  assert.deepEqual([...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map((m) => m[1]), ['200', '200', '404'], text);
  assert.equal(server.requests.length, 0);
  assert.deepEqual(egress.events('a').filter((e) => e.method === 'HEAD'), []);
  const other = await egress.open('b', {});
  assert.match(await raw(other, 'HEAD /api/hello HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n'), /^HTTP\/1\.1 404/, 'where there is a model');
});

test('safeguards, by which the server judges what the agent does, are the operator\'s to grant', async (t) => {
  const asked = message({ safeguards: [{ type: 'dangerous_tool_use', classifier_context: { cwd: '/work' } }] });
  const { server, port } = await start(t);
  const refused = await post(port, '/v1/messages', asked);
  assert.equal(refused.status, 403);
  assert.match(refused.json.error.message, /"safeguards" is not granted/);
  assert.equal(server.requests.length, 0);
  const granted = await start(t, { anthropic: { fields: ['safeguards'] } });
  assert.equal((await post(granted.port, '/v1/messages', asked)).status, 200);
  assert.equal(JSON.parse(granted.server.requests[0].body).safeguards.length, 1);
});

test('large requests pass, and are judged as small ones are', async (t) => {
  const { server, egress, port } = await start(t);
  const large = 'x'.repeat(3_000_000);
  assert.equal((await post(port, '/v1/messages', message({ system: large }))).status, 200);
  assert.equal(JSON.parse(server.requests[0].body).system.length, large.length);
  assert.equal((await post(port, '/v1/chat/completions', chat({ stream: true, user: large }))).status, 200);
  assert.equal(JSON.parse(server.requests[1].body).user.length, large.length);
  const refused = await post(port, '/v1/messages', message({ system: large, model: 'claude-other' }));
  assert.equal(refused.status, 403);
  assert.match(refused.json.error.message, /claude-other/);
  assert.equal((await post(port, '/v1/messages', `{"model":"claude-x","system":"${large}`)).status, 400);
  // Each value of a tree takes far more memory than its byte of text.
  const values = await post(port, '/v1/messages', `{"model":"claude-x","messages":[${'0,'.repeat(1_000_000)}0]}`);
  assert.equal(values.status, 413);
  assert.match(values.json.error.message, /200000 values/);
  // A guest that is gone, and a sandbox that is closed, while its request is taken apart.
  for (let i = 0; i < 5; i += 1) {
    const request = http.request({ host: '127.0.0.1', port, path: '/v1/messages', method: 'POST', agent: false });
    request.on('error', () => {});
    request.end(JSON.stringify(message({ system: large })), () => request.destroy());
  }
  await egress.ok({ cmd: 'close', id: 'a' });
  const other = await egress.open('b');
  assert.equal((await ask(other, '/')).status, 404);
});

test('tokens are capped: what is left bounds the answer, then requests are refused', async (t) => {
  const { server, egress, port } = await start(t, { policy: { caps: { tokens: 150 } } });
  assert.equal((await post(port, '/v1/messages', message({ max_tokens: 5000 }))).status, 200);
  assert.ok(JSON.parse(server.requests[0].body).max_tokens < 150, server.requests[0].body);
  // 131 of 150 are used.
  assert.equal((await post(port, '/v1/chat/completions', chat())).status, 200);
  assert.ok(JSON.parse(server.requests[1].body).max_completion_tokens <= 19, server.requests[1].body);
  const refused = await post(port, '/v1/messages', message());
  assert.equal(refused.status, 429);
  assert.equal(refused.headers['x-should-retry'], 'false');
  assert.equal(refused.json.error.type, 'rate_limit_error');
  assert.match(refused.json.error.message, /budget of tokens/);
  assert.equal(server.requests.length, 2);
  await egress.wait((l) => l.type === 'usage' && l.tokens_in + l.tokens_out === 131 + 55);
});

test('money is capped, and a model without a price is refused then', async (t) => {
  const { port } = await start(t, { policy: { caps: { cost_nusd: 400_000 } } });
  const unpriced = await post(port, '/v1/messages', message({ model: 'haiku-5' }));
  assert.equal(unpriced.status, 403);
  assert.match(unpriced.json.error.message, /no price/);
  assert.equal((await post(port, '/v1/messages', message())).status, 200); // 363,750
  assert.equal((await post(port, '/v1/messages', message())).status, 200); // bounded to two tokens
  const refused = await post(port, '/v1/messages', message());
  assert.equal(refused.status, 429);
  assert.match(refused.json.error.message, /budget of money/);
});

test('requests at the same time cannot pass a cap together', async (t) => {
  const waiting = [];
  const { server, port } = await start(t, {
    handler: (request, response) => waiting.push(response),
    policy: { caps: { tokens: 1000 } },
  });
  const asks = Array.from({ length: 4 }, () => post(port, '/v1/messages', message({ max_tokens: 400 })));
  const first = await Promise.race(asks);
  assert.equal(first.status, 429);
  while (server.requests.length < 3) await new Promise((done) => { setTimeout(done, 5); });
  const allowed = server.requests.map((r) => JSON.parse(r.body).max_tokens);
  assert.ok(allowed.reduce((a, b) => a + b) <= 1000, allowed);
  for (const response of waiting) response.end('{"usage":{"input_tokens":1,"output_tokens":1}}');
  const statuses = (await Promise.all(asks)).map((a) => a.status);
  assert.deepEqual(statuses.sort(), [200, 200, 200, 429]);
});

test('caps and usage survive a kill of the program', async (t) => {
  const { egress, port } = await start(t, { policy: { caps: { tokens: 150 } } });
  assert.equal((await post(port, '/v1/messages', message())).status, 200);
  await egress.wait((l) => l.type === 'usage' && l.tokens_out === 20);
  const from = egress.seen.length;
  egress.send({ cmd: 'kill' });
  await egress.wait((l) => l.type === 'started', from);
  assert.equal((await post(port, '/v1/chat/completions', chat())).status, 200);
  assert.equal((await post(port, '/v1/messages', message())).status, 429);
});

test('a stream passes event by event, as it comes', async (t) => {
  let step;
  const handler = (request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.flushHeaders();
    step = (n) => response.write(event('ping', { n }));
  };
  const { port } = await start(t, { handler });
  const request = http.request({ host: '127.0.0.1', port, path: '/v1/messages', method: 'POST', agent: false });
  request.on('error', () => {});
  request.end(JSON.stringify(message({ stream: true })));
  const [response] = await once(request, 'response'); // before any byte of the body
  response.on('error', () => {});
  for (let n = 0; n < 5; n += 1) {
    const began = performance.now();
    step(n);
    const [data] = await once(response, 'data');
    assert.equal(String(data), event('ping', { n }));
    assert.ok(performance.now() - began < 2000);
  }
  request.destroy();
});

test('a stream that the guest leaves is paid for', async (t) => {
  const handler = (request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(event('message_start', { message: { usage: { input_tokens: 500, output_tokens: 1 } } }));
    response.write(event('content_block_delta', { delta: { type: 'text_delta', text: 'x'.repeat(3200) } }));
  };
  const { egress, port } = await start(t, { handler });
  const request = http.request({ host: '127.0.0.1', port, path: '/v1/messages', method: 'POST', agent: false });
  request.on('error', () => {});
  request.end(JSON.stringify(message({ stream: true })));
  const [response] = await once(request, 'response');
  response.on('error', () => {});
  let got = 0;
  for await (const data of response) {
    got += data.length;
    if (got > 3200) break;
  }
  request.destroy();
  const ended = await egress.event((e) => e.state === 'ended');
  assert.equal(ended.tokens_in, 500);
  assert.ok(ended.tokens_out > 50, ended.tokens_out);
  await egress.wait((l) => l.type === 'usage' && l.estimated);
});

test('errors of the model\'s server pass as they are and cost nothing', async (t) => {
  const { egress, port } = await start(t, { handler: (request, response) => {
    response.writeHead(529, { 'content-type': 'application/json', 'retry-after': '7' });
    response.end('{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}');
  } });
  const { status, json, headers } = await post(port, '/v1/messages', message());
  assert.equal(status, 529);
  assert.equal(json.error.type, 'overloaded_error');
  assert.equal(headers['retry-after'], '7');
  const ended = await egress.event((e) => e.state === 'ended');
  assert.deepEqual([ended.status, ended.tokens_in, ended.cost_nusd], [529, 0, 0]);
});

test('without a route there is no model, and the error says what to do', async (t) => {
  const egress = await startEgress(t);
  const port = await egress.open('a');
  const one = await post(port, '/v1/messages', message());
  assert.equal(one.status, 403);
  assert.equal(one.json.type, 'error');
  assert.match(one.json.error.message, /no model is granted.*"api": "anthropic"/);
  const two = await post(port, '/v1/chat/completions', chat());
  assert.match(two.json.error.message, /"api": "openai"/);
  const other = await ask(port, '/');
  assert.equal(other.status, 404);
  assert.match(other.json.error.message, /way out/);
});
