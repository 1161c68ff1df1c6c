// POST /execute/sdk: the seed's fields, options and errors, as a job that can be followed, resumed and cancelled.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { bearer, createKey, request, runCay, slow, startCay, tempDir, until, withCay } from '../lib/cay.mjs';
import { scripted, say, tool } from '../lib/model.mjs';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

export async function sdk(cay, body, headers = {}) {
  const got = await request(cay, '/execute/sdk', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  return { status: got.status, headers: got.headers, ...got.json() };
}

/** The same as a stream: {status, events: [{id, type, data}], ended, stop()}. */
export function stream(cay, body, headers = {}) {
  const seen = { events: [], status: 0, text: '' };
  const req = httpRequest({
    host: '127.0.0.1', port: cay.port, path: '/execute/sdk', method: 'POST', agent: false,
    headers: { Accept: 'text/event-stream', ...headers },
  });
  seen.ended = new Promise((resolve, reject) => {
    req.on('error', reject);
    req.on('response', (res) => {
      seen.status = res.statusCode;
      seen.location = res.headers.location;
      res.setEncoding('utf8').on('data', (d) => {
        seen.text += d;
        for (let at; (at = seen.text.indexOf('\n\n')) >= 0; seen.text = seen.text.slice(at + 2)) {
          if (seen.text.startsWith(':')) continue; // a comment
          const fields = Object.fromEntries(seen.text.slice(0, at).split('\n').map((l) => [l.slice(0, l.indexOf(':')), l.slice(l.indexOf(':') + 2)]));
          seen.events.push({ id: fields.id, type: fields.event, data: JSON.parse(fields.data) });
        }
      });
      res.on('end', resolve).on('error', resolve);
    });
  });
  seen.ended.catch(() => {});
  seen.stop = () => req.destroy();
  req.end(JSON.stringify(body));
  return seen;
}

/** An id of a run as the UUID that it is. */
function uuidOf(id) {
  let n = 0n;
  for (const digit of id.slice(id.indexOf('_') + 1)) n = n * 32n + BigInt('0123456789abcdefghjkmnpqrstvwxyz'.indexOf(digit));
  return n.toString(16).padStart(32, '0').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

const types = (messages) => messages.map((m) => (m.subtype ? `${m.type}/${m.subtype}` : m.type));

function isFailure(got, status, code, pattern) {
  assert.equal(got.status, status, JSON.stringify(got));
  assert.equal(got.success, false);
  assert.match(got.request_id, UUID);
  assert.match(got.timestamp, TIME);
  assert.deepEqual(Object.keys(got.error), ['code', 'message']);
  assert.equal(got.error.code, code);
  assert.match(got.error.message, pattern);
}

describe('with the demo model', () => {
  let cay;
  before(async () => {
    cay = await startCay();
  });
  after(() => cay.stop());

  test('the example of the documentation, field by field', async () => {
    const got = await sdk(cay, { prompt: 'What is 2 + 2? Just give me the number.', options: { max_turns: 1 } });
    const { status, headers, ...answer } = got;
    assert.equal(status, 200);
    assert.match(headers['content-type'], /^application\/json/);
    assert.deepEqual(Object.keys(answer), ['success', 'request_id', 'timestamp', 'result', 'messages', 'metadata']);
    assert.equal(answer.success, true);
    assert.match(answer.request_id, UUID);
    assert.match(answer.timestamp, TIME);
    assert.equal(answer.result, '4');
    assert.deepEqual(types(answer.messages), ['system/init', 'assistant', 'result/success']);
    const [init, assistant, result] = answer.messages;
    assert.equal(init.model, 'demo');
    assert.match(assistant.message.content[0].thinking, /demo: a fixed script, not a language model/);
    assert.equal(assistant.message.content[1].text, '4');
    assert.equal(assistant.message.stop_reason, 'end_turn');
    assert.equal(result.result, '4');
    assert.equal(result.is_error, false);
    assert.equal(result.num_turns, 1);
    for (const message of answer.messages) {
      assert.match(message.uuid, UUID);
      assert.equal(message.session_id, answer.request_id);
    }
    assert.deepEqual(Object.keys(answer.metadata), ['execution_time_ms', 'total_cost_usd', 'num_turns', 'model']);
    const { execution_time_ms: ms, ...rest } = answer.metadata;
    assert.ok(Number.isInteger(ms) && ms >= 0);
    assert.deepEqual(rest, { total_cost_usd: 0, num_turns: 1, model: 'demo' });
    assert.equal((await sdk(cay, { prompt: 'What is 17 * 3?' })).result, '51', 'it is reckoned, not remembered');
  });

  test('the tools that are offered are exactly the named ones', async () => {
    const tools = async (options) => (await sdk(cay, { prompt: '1 + 1', options })).messages[0].tools;
    assert.deepEqual(await tools(undefined), ['WebFetch', 'WebSearch', 'TodoWrite']);
    assert.deepEqual(await tools(null), ['WebFetch', 'WebSearch', 'TodoWrite']);
    assert.deepEqual(await tools({ allowed_tools: [] }), []);
    assert.deepEqual(await tools({ allowed_tools: ['RunCode', 'TodoWrite', 'RunCode'] }), ['RunCode', 'TodoWrite']);
  });

  test('TodoWrite: the list is in the messages', async () => {
    const got = await sdk(cay, { prompt: 'Plan how to write a hello world program' });
    assert.deepEqual(types(got.messages), ['system/init', 'assistant', 'user', 'assistant', 'result/success']);
    const [, call, told] = got.messages;
    const use = call.message.content.find((b) => b.type === 'tool_use');
    const [result] = told.message.content;
    assert.equal(result.tool_use_id, use.id);
    assert.equal(result.is_error, false);
    assert.deepEqual(told.tool_use_result, { oldTodos: [], newTodos: use.input.todos });
    assert.equal(got.metadata.num_turns, 2);
  });

  test('RunCode runs for real, when it is named', async () => {
    const prompt = 'Run this: console.log(6 * 7)';
    const got = await sdk(cay, { prompt, options: { allowed_tools: ['RunCode'] } });
    assert.equal(got.result, '42');
    assert.deepEqual(got.messages[2].tool_use_result, { output: '42', error: null });
    assert.doesNotMatch((await sdk(cay, { prompt })).result, /^42$/);
  });

  test('wrong requests are refused clearly', async () => {
    const bad = async (body, pattern, code = 'bad_request', status = 400) => isFailure(await sdk(cay, body), status, code, pattern);
    await bad({}, /"prompt"/);
    await bad({ prompt: '' }, /"prompt"/);
    await bad({ prompt: ' \n' }, /"prompt"/);
    await bad({ prompt: 5 }, /prompt/);
    await bad('{"prompt": ', /JSON|request body/);
    await bad('', /empty/);
    await bad('[]', /object/);
    await bad({ prompt: 'x', nonsense: 1 }, /nonsense/);
    await bad({ prompt: 'x', options: [] }, /options/);
    await bad({ prompt: 'x', options: { nonsense: 1 } }, /nonsense/);
    await bad({ prompt: 'x', options: { max_turns: 0 } }, /max_turns/);
    await bad({ prompt: 'x', options: { max_turns: 201 } }, /max_turns/);
    await bad({ prompt: 'x', options: { max_turns: '1' } }, /max_turns/);
    await bad({ prompt: 'x', options: { model: 'no-such-model' } }, /no model "no-such-model".*opus, sonnet, haiku/);
    await bad({ prompt: 'x', options: { model: 'claude-sonnet-5-5' } }, /ANTHROPIC_API_KEY/);
    await bad({ prompt: 'x', options: { system_prompt: 1 } }, /system_prompt/);
    await bad({ prompt: 'x', options: { append_system_prompt: 1 } }, /append_system_prompt/);
    await bad({ prompt: 'x', options: { allowed_tools: 'WebFetch' } }, /allowed_tools/);
    await bad({ prompt: 'x', options: { allowed_tools: ['Bash'] } }, /no tool "Bash".*WebFetch, WebSearch, TodoWrite, RunCode.*\/execute/);
    await bad({ prompt: 'x', options: { allowed_tools: [1] } }, /no tool/);
    await bad({ prompt: 'x', options: { allowed_tools: ['RunCode\0x'] } }, /allowed_tools.*NUL/);
    for (const usd of [0, -1, '1', 10001]) await bad({ prompt: 'x', options: { max_budget_usd: usd } }, /max_budget_usd/);
    await bad({ prompt: 'x'.repeat((1 << 20) + 1) }, /1048576 bytes/, 'too_large', 413);
    await bad({ prompt: 'x'.repeat(5 << 20) }, /body exceeds/, 'too_large', 413);
  });

  test('a stream, and the same from any event on', async () => {
    const seen = stream(cay, { prompt: 'Plan how to write a hello world program' });
    await seen.ended;
    assert.equal(seen.status, 200);
    assert.deepEqual(seen.events.map((e) => e.type), ['system', 'assistant', 'user', 'assistant', 'result', 'end']);
    const end = seen.events.at(-1).data;
    assert.deepEqual(Object.keys(end), ['success', 'request_id', 'timestamp', 'result', 'metadata']);
    assert.equal(seen.location, `/v1/runs/${end.request_id}`);
    assert.deepEqual(seen.events.slice(0, -1).map((e) => e.id), [1, 2, 3, 4, 5].map((n) => `${end.request_id}.${n}`));
    const again = stream(cay, {}, { 'Last-Event-ID': seen.events[2].id });
    await again.ended;
    assert.deepEqual(again.events, seen.events.slice(3));
    const plain = await sdk(cay, 'anything', { 'Last-Event-ID': seen.events[4].id });
    assert.deepEqual(plain.messages, seen.events.slice(0, -1).map((e) => e.data));
    for (const id of ['x', `${end.request_id}`, `${end.request_id}.`, `${end.request_id}.1x`])
      isFailure(await sdk(cay, {}, { 'Last-Event-ID': id }), 400, 'bad_request', /Last-Event-ID/);
    isFailure(await sdk(cay, {}, { 'Last-Event-ID': '01a1e14b-985b-7f35-ba77-db41e24d491f.1' }), 404, 'not_found', /no run/);
    await request(cay, '/v1/run', { method: 'POST', body: JSON.stringify({ code: 'export default () => 1' }) });
    const [other] = (await request(cay, '/v1/runs?limit=1')).json().runs;
    isFailure(await sdk(cay, {}, { 'Last-Event-ID': `${uuidOf(other.id)}.0` }), 404, 'not_found', /no run of \/execute\/sdk/);
  });

  test('it is a run as every other, by its UUID', async () => {
    const got = await sdk(cay, { prompt: '40 + 2', options: { append_system_prompt: 'Be brief.' } });
    const run = (await request(cay, `/v1/runs/${got.request_id}`)).json();
    assert.equal(run.id, got.request_id);
    assert.equal(run.kind, 'sdk');
    assert.equal(run.status, 'done');
    assert.equal(run.title, '40 + 2');
    assert.equal(run.detail.prompt, '40 + 2');
    assert.deepEqual(run.detail.options, { append_system_prompt: 'Be brief.' });
    assert.deepEqual(run.detail.answer.metadata, got.metadata);
    assert.deepEqual(run.events.map((e) => e.data), got.messages);
    const page = (await request(cay, '/v1/runs?kind=sdk&limit=1')).json();
    assert.equal(page.runs[0].id, got.request_id, 'newest first');
    const next = (await request(cay, `/v1/runs?kind=sdk&limit=1&cursor=${page.next_cursor}`)).json();
    assert.notEqual(next.runs[0].id, got.request_id);
    const events = await request(cay, `/v1/runs/${got.request_id}/events?after=1`);
    assert.match(events.body, /event: result/);
    assert.equal((await request(cay, `/v1/runs/${got.request_id}/cancel`, { method: 'POST' })).status, 409);
  });
});

test('cay execute --sdk, with a server and without one', async (t) => {
  const cay = await withCay(t);
  const env = { CAY_URL: cay.url };
  const prompt = 'Plan how to write a hello world program';
  const done = await runCay(['execute', '--sdk', prompt], { env });
  assert.equal(done.code, 0, done.stderr);
  assert.match(done.stdout, /^model {2}demo\n.*\n {2}> TodoWrite \{.*\n {2}< The list is written.*\nThere are two steps.*\ndone {2}2 turns, \$0\.0000/s);
  const failed = await runCay(['execute', '--sdk', '--max-turns', '1', prompt], { env });
  assert.equal(failed.code, 1);
  assert.match(failed.stdout, /failed {2}Reached maximum number of turns \(1\)/);
  const json = await runCay(['execute', '--sdk', '-o', 'json', '--tools', 'RunCode', '--model', 'haiku', '--append', 'x', '--max-budget', '0.5', '6 * 7'], { env });
  assert.equal(json.code, 0, json.stderr);
  const answer = JSON.parse(json.stdout);
  assert.equal(answer.result, '42');
  assert.deepEqual(answer.messages[0].tools, ['RunCode']);
  const run = (await request(cay, `/v1/runs/${answer.request_id}`)).json();
  assert.deepEqual(run.detail.options, { allowed_tools: ['RunCode'], model: 'haiku', append_system_prompt: 'x', max_budget_usd: 0.5 });
  const own = await runCay(['execute', '--sdk', '1 + 2']);
  assert.equal(own.code, 0, own.stderr);
  assert.match(own.stdout, /\n3\n/);
  for (const args of [[], ['--sdk'], ['--sdk', 'a', 'b'], ['--sdk', '--max-turns', 'x', 'a'], ['--sdk', '--nonsense', 'a'], ['--sdk', '-o', 'xml', 'a']])
    assert.equal((await runCay(['execute', ...args], { env })).code, 2, args.join(' '));
  const refused = await runCay(['execute', '--sdk', '--tools', 'Bash', 'x'], { env });
  assert.notEqual(refused.code, 0);
  assert.match(refused.stderr, /no tool "Bash"/);
});

describe('with a model that the test plays', () => {
  const answering = async (t, answers, options = {}) => {
    const model = await scripted(t, answers);
    return { model, cay: await withCay(t, { ...options, env: { ...model.env, ...options.env } }) };
  };

  test('the request that the model gets: prompt, system, tools, model', async (t) => {
    const { model, cay } = await answering(t, [say('one'), say('two'), say('three')]);
    const got = await sdk(cay, { prompt: 'Explain', options: { model: 'haiku', system_prompt: 'S', append_system_prompt: 'A', allowed_tools: ['TodoWrite'] } });
    assert.equal(got.result, 'one');
    assert.equal(got.metadata.model, 'haiku');
    assert.equal(got.messages[0].model, 'claude-haiku-5-5');
    assert.equal(got.messages[0].apiKeySource, 'ANTHROPIC_API_KEY');
    const [first] = model.requests;
    assert.equal(first.model, 'claude-haiku-5-5');
    assert.equal(first.system[0].text, 'S\n\nA');
    assert.deepEqual(first.tools.map((x) => x.name), ['TodoWrite']);
    assert.equal(first.messages[0].content[0].text, 'Explain');
    await sdk(cay, { prompt: 'x' });
    assert.equal(model.requests[1].model, 'claude-sonnet-5-5');
    assert.match(model.requests[1].system[0].text, /^You are a coding assistant/);
    const full = await sdk(cay, { prompt: 'x', options: { model: 'claude-opus-4-5', append_system_prompt: 'Z' } });
    assert.equal(full.metadata.model, 'claude-opus-4-5');
    assert.match(model.requests[2].system[0].text, /^You are a coding assistant[^]*\n\nZ$/);
  });

  test('usage and cost are added up', async (t) => {
    const { cay } = await answering(t, [
      { ...tool('t1', 'TodoWrite', { todos: [] }), usage: { input_tokens: 1000, output_tokens: 100 } },
      { ...say('done'), usage: { input_tokens: 2000, output_tokens: 50, cache_read_input_tokens: 10 } },
    ]);
    const got = await sdk(cay, { prompt: 'x', options: { model: 'sonnet' } });
    const result = got.messages.at(-1);
    const cost = (3000 * 3 + 150 * 15 + 10 * 0.3) / 1e6;
    assert.ok(Math.abs(result.total_cost_usd - cost) < 1e-9, `${result.total_cost_usd}`);
    assert.equal(got.metadata.total_cost_usd, result.total_cost_usd);
    assert.equal(result.usage.input_tokens, 3000);
    assert.equal(result.usage.output_tokens, 150);
    assert.equal(result.usage.cache_read_input_tokens, 10);
    assert.equal(result.modelUsage['claude-sonnet-5-5'].inputTokens, 3000);
    assert.equal(got.messages[1].message.usage.input_tokens, 1000);
  });

  test('max_turns reached', async (t) => {
    const { cay } = await answering(t, Array.from({ length: 12 }, (_, i) => tool(`t${i}`, 'TodoWrite', { todos: [] })));
    const got = await sdk(cay, { prompt: 'x', options: { max_turns: 2 } });
    isFailure(got, 200, 'max_turns', /maximum number of turns \(2\)/);
    const result = got.messages.at(-1);
    assert.deepEqual([result.subtype, result.is_error, result.num_turns], ['error_max_turns', true, 3]);
    assert.deepEqual(result.errors, ['Reached maximum number of turns (2)']);
    assert.equal(result.terminal_reason, 'max_turns');
    assert.ok(!('result' in result));
    assert.equal((await sdk(cay, { prompt: 'x' })).metadata.num_turns, 11, 'ten by default, and the one that was not taken');
  });

  test('the budget is reached in the middle of an answer', async (t) => {
    let left = false;
    const { cay } = await answering(t, [
      { ...say('word '.repeat(3000)), pieces: 300, pause: 5, hold: true, onClose: () => (left = true), usage: { input_tokens: 10, output_tokens: 1 } },
      { ...say('x'), usage: { input_tokens: 10_000_000, output_tokens: 1 } },
      // So much that its price would be below zero, if it were counted so.
      { ...say('x'), usage: { input_tokens: 9e18, output_tokens: 1 } },
      { ...say('x'), usage: { input_tokens: 1, output_tokens: 1, server_tool_use: { web_search_requests: 9e18 } } },
    ]);
    const options = { max_budget_usd: 0.01, model: 'sonnet' };
    const got = await sdk(cay, { prompt: 'x', options });
    isFailure(got, 200, 'max_budget_usd', /maximum budget \(\$0\.01\)/);
    assert.equal(got.messages.at(-1).subtype, 'error_max_budget_usd');
    await until(() => left, 'the stream is cut');
    const cost = got.metadata.total_cost_usd;
    assert.ok(cost > 0.009 && cost < 0.012, `${cost}`);
    isFailure(await sdk(cay, { prompt: 'x', options }), 200, 'max_budget_usd', /budget/);
    for (let i = 0; i < 2; i++) { // nobody can have used that: it is counted by our own estimate
      const odd = await sdk(cay, { prompt: 'x', options });
      assert.equal(odd.success, true, JSON.stringify(odd));
      assert.ok(odd.metadata.total_cost_usd > 0 && odd.metadata.total_cost_usd < 0.01, JSON.stringify(odd.metadata));
    }
  });

  test('a budget for a model without a price is refused', async (t) => {
    const { cay } = await answering(t, []);
    isFailure(await sdk(cay, { prompt: 'x', options: { model: 'claude-new', max_budget_usd: 1 } }), 400, 'bad_request', /price/);
  });

  test('a model that fails: success comes from is_error, not from subtype', async (t) => {
    const { cay } = await answering(t, [{ status: 400, error: 'prompt is too long' }]);
    const got = await sdk(cay, { prompt: 'x' });
    isFailure(got, 502, 'upstream_error', /prompt is too long/);
    const result = got.messages.at(-1);
    assert.deepEqual([result.subtype, result.is_error], ['success', true]);
    assert.match(result.result, /prompt is too long/);
    assert.equal((await request(cay, `/v1/runs/${got.request_id}`)).json().status, 'failed');
  });

  test('a model that fails is 502, whatever its server said; when to come again is passed on', async (t) => {
    const failures = [
      [{ status: 401, type: 'authentication_error', error: 'no' }, 'unauthorized', undefined],
      [{ status: 403, type: 'permission_error', error: 'no' }, 'unauthorized', undefined],
      [{ status: 404, type: 'not_found_error', error: 'no' }, 'upstream_error', undefined],
      [{ status: 413, type: 'request_too_large', error: 'no' }, 'too_large', undefined],
      [{ status: 429, type: 'rate_limit_error', error: 'no', headers: { 'retry-after': '77' } }, 'rate_limited', '77'],
      [{ status: 503, type: 'overloaded_error', error: 'no', headers: { 'retry-after': '50' } }, 'unavailable', '50'],
      [{ status: 429, type: 'rate_limit_error', error: 'no', headers: { 'x-should-retry': 'false' } }, 'rate_limited', undefined],
    ];
    const { cay } = await answering(t, failures.map(([answer]) => answer));
    for (const [answer, code, again] of failures) {
      const got = await sdk(cay, { prompt: 'x' });
      isFailure(got, 502, code, /model server/);
      assert.equal(got.headers['retry-after'], again, JSON.stringify(answer));
      assert.equal(got.headers['www-authenticate'], undefined);
    }
  });

  test('MAX_EXECUTION_TIME', async (t) => {
    const { cay } = await answering(t, [{ ...say('never'), hold: true }], { env: { MAX_EXECUTION_TIME: '300' } });
    const got = await sdk(cay, { prompt: 'x' });
    isFailure(got, 504, 'timeout', /longer than 300 ms \(MAX_EXECUTION_TIME\)/);
    assert.equal(got.messages.at(-1).subtype, 'error_during_execution');
    assert.ok(got.metadata.execution_time_ms >= 290, `${got.metadata.execution_time_ms}`);
    await assert.rejects(startCay({ env: { MAX_EXECUTION_TIME: 'soon' } }), /MAX_EXECUTION_TIME must be/);
  });

  test('a plain call is cancelled when its client leaves; a stream goes on', async (t) => {
    const closed = [];
    const holding = (n) => ({ ...say('well'), hold: true, onClose: () => closed.push(n) });
    const { model, cay } = await answering(t, [holding(1), holding(2)]);
    const running = async (n) => until(async () => (await request(cay, '/v1/runs?kind=sdk')).json().runs.filter((r) => r.status === 'running').length === n, `${n} run`);
    const req = httpRequest({ host: '127.0.0.1', port: cay.port, path: '/execute/sdk', method: 'POST', agent: false });
    req.on('error', () => {});
    req.end(JSON.stringify({ prompt: 'x' }));
    await until(() => model.requests.length === 1, 'the model is asked');
    req.destroy();
    await until(() => closed.includes(1), 'the model is left');
    await running(0);
    const [run] = (await request(cay, '/v1/runs?kind=sdk')).json().runs;
    assert.equal(run.status, 'cancelled');
    const full = (await request(cay, `/v1/runs/${run.id}`)).json();
    assert.equal(full.events.at(-1).data.subtype, 'error_during_execution');

    const seen = stream(cay, { prompt: 'x' });
    await until(() => seen.events.length === 1 && model.requests.length === 2, 'it has begun');
    seen.stop();
    const { session_id: id } = seen.events[0].data;
    await running(1);
    const again = stream(cay, {}, { 'Last-Event-ID': seen.events[0].id });
    await until(() => again.status === 200, 'it is followed');
    const waiting = httpRequest({ host: '127.0.0.1', port: cay.port, path: '/execute/sdk', method: 'POST', agent: false, headers: { 'Last-Event-ID': seen.events[0].id } });
    waiting.on('error', () => {});
    waiting.end();
    await once(waiting, 'finish');
    for (let i = 0; i < 3; i++) await request(cay, '/health'); // what was sent before these has been read
    waiting.destroy();
    for (let i = 0; i < 3; i++) await request(cay, '/health');
    await running(1);
    assert.equal((await request(cay, `/v1/runs/${id}/cancel`, { method: 'POST' })).status, 202);
    await again.ended;
    assert.deepEqual(again.events.map((e) => e.type), ['result', 'end']);
    assert.equal(again.events[1].data.error.code, 'cancelled');
    await until(() => closed.includes(2), 'the model is left');
  });

  test('what one key did is not there for another; one key does not take every place', async (t) => {
    const model = await scripted(t, Array.from({ length: 8 }, () => ({ ...say('x'), hold: true })));
    const cay = await withCay(t, { key: true, config: { require_key: true, execute: { max: 4 } }, env: model.env });
    const other = await createKey(cay.dataDir, { name: 'other' });
    const mine = bearer(cay.key);
    const held = [1, 2, 3].map(() => stream(cay, { prompt: 'x' }, mine));
    await until(() => held.every((s) => s.events.length > 0), 'three run');
    isFailure(await sdk(cay, { prompt: 'x' }, mine), 429, 'rate_limited', /"max" of "execute"/);
    const theirs = stream(cay, { prompt: 'x' }, bearer(other.text));
    await until(() => theirs.events.length > 0, 'another key has room');
    isFailure(await sdk(cay, {}, { ...bearer(other.text), 'Last-Event-ID': held[0].events[0].id }), 404, 'not_found', /no run/);
    isFailure(await sdk(cay, { prompt: 'x' }), 401, 'unauthorized', /key/);
    for (const s of [...held, theirs]) s.stop();
  });

  test('a server that ends, or dies, leaves no run behind', async (t) => {
    const model = await scripted(t, [1, 2, 3].map(() => ({ ...say('x'), hold: true })));
    const dataDir = `${tempDir(t)}/data`;
    const lives = { halt: 'cancelled', kill9: 'interrupted' };
    for (const [end, status] of Object.entries(lives)) {
      const cay = await startCay({ env: model.env, dataDir, config: { limits: { drain_timeout_ms: 100 } } });
      const seen = stream(cay, { prompt: 'x' });
      await until(() => seen.events.length > 0, 'it runs');
      await cay[end]();
      const next = await startCay({ dataDir });
      const id = seen.events[0].data.session_id;
      assert.equal((await request(next, `/v1/runs/${id}`)).json().status, status);
      const again = stream(next, {}, { 'Last-Event-ID': seen.events[0].id });
      await again.ended;
      assert.equal(again.events.at(-1).data.error.code, status);
      await next.halt();
    }
  });

  test('a transcript has an end', { timeout: 120_000 * slow }, async (t) => {
    const big = 'x'.repeat(2000);
    const todos = Array.from({ length: 200 }, () => ({ content: big, status: 'pending', activeForm: 'x' }));
    const { cay } = await answering(t, Array.from({ length: 20 }, (_, i) => tool(`t${i}`, 'TodoWrite', { todos })));
    const got = await sdk(cay, { prompt: 'x', options: { max_turns: 20 } });
    isFailure(got, 422, 'limit_exceeded', /messages exceed 6291456 bytes/);
    assert.equal(got.messages.at(-1).type, 'result');
  });
});
