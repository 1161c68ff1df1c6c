// The frames of protocol "cf-websocket", one by one, as the original server sends them.
import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { bearer, createKey, request, sleep } from '../lib/cay.mjs';
import { checkAccount, Raw, slow, startCay, TYPE, until, user, withCay } from './support.mjs';

let cay;
before(async () => {
  cay = await startCay();
});
after(() => cay.stop());

const types = (chunks) => chunks.map((c) => c.type).filter((type, i, all) => type !== all[i - 1]);

test('greets with identity, state and an empty list of MCP servers, in this order', async () => {
  const a = await Raw.ready(cay, 'greet');
  assert.deepEqual(a.texts[0], '{"type":"cf_agent_identity","name":"greet","agent":"sandbox-agent","stateFollows":true}');
  assert.equal(a.frames[1].type, 'cf_agent_state');
  assert.deepEqual(Object.keys(a.frames[1].state), ['customers', 'executions']);
  assert.equal(a.frames[1].state.customers.length, 8);
  assert.deepEqual(a.frames[1].state.customers[0], {
    id: 1, name: 'Alice Chen', email: 'alice@example.com', tier: 'Gold', region: 'West',
  });
  assert.deepEqual(a.frames[1].state.executions, []);
  assert.equal(a.texts[2], '{"mcp":{"prompts":[],"resources":[],"servers":{},"tools":[]},"type":"cf_agent_mcp_servers"}');
  assert.equal(a.frames.length, 3);
  a.close();
});

test('a turn with a tool call streams in the order of the original', async () => {
  const a = await Raw.ready(cay, 'order');
  const frames = await a.turn('QHi0xc5U', [user('u1', 'Count customers by tier')]);
  assert.deepEqual(types(a.chunks('QHi0xc5U')), [
    'start', 'start-step', 'text-start', 'text-delta', 'text-end', 'tool-input-start', 'tool-input-delta',
    'tool-input-available', 'tool-output-available', 'finish-step', 'start-step', 'text-start', 'text-delta',
    'text-end', 'finish-step', 'finish',
  ]);
  const body = frames.slice(0, -1);
  assert.deepEqual(body.map((f) => f.seq), body.map((_, i) => i), 'seq counts from 0 without a gap');
  assert.deepEqual(Object.keys(body[0]), ['body', 'done', 'id', 'type', 'seq']);
  assert.match(JSON.parse(body[0].body).messageId, /^assistant_\d{13}_[0-9a-z]+$/);
  const { type, messageMetadata } = JSON.parse(body.at(-1).body);
  assert.equal(type, 'finish');
  assert.deepEqual(checkAccount(messageMetadata), { finishReason: 'stop' });
  assert.deepEqual(frames.at(-1), {
    body: '', done: true, id: 'QHi0xc5U', type: 'cf_agent_use_chat_response', messageIds: ['u1'],
  });
  const state = a.frames.findLastIndex((f) => f.type === 'cf_agent_state');
  const output = a.frames.findIndex((f) => f.body?.includes('"tool-output-available"'));
  assert.ok(state > 2 && state < output, 'the state is told before the output');
  const [execution] = a.frames[state].state.executions;
  assert.deepEqual(Object.keys(execution), ['id', 'code', 'output', 'error', 'timestamp']);
  assert.match(execution.timestamp, /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/);
  assert.equal(execution.output, 'Gold: 3\nSilver: 3\nBronze: 2');
  assert.equal(execution.error, null);
  assert.deepEqual(a.chunks('QHi0xc5U').find((c) => c.type === 'tool-output-available').output, {
    output: 'Gold: 3\nSilver: 3\nBronze: 2', error: null,
  });
  assert.ok(!a.frames.some((f) => f.type === 'cf_agent_chat_messages'), 'who asked is not told the messages');

  const stored = (await request(cay, `/agents/${TYPE}/order/get-messages?_pk=x`)).json();
  assert.deepEqual(stored.map((m) => m.role), ['user', 'assistant']);
  assert.deepEqual(stored[1].parts.map((p) => p.type), ['step-start', 'text', 'tool-executeCode', 'step-start', 'text']);
  assert.equal(stored[1].id, JSON.parse(body[0].body).messageId);
  const { toolCallId, input, ...tool } = stored[1].parts[2];
  assert.deepEqual(tool, {
    type: 'tool-executeCode', toolName: 'executeCode', state: 'output-available',
    output: { output: 'Gold: 3\nSilver: 3\nBronze: 2', error: null },
  });
  assert.match(toolCallId, /./);
  assert.match(input.code, /export default async function/);
  assert.deepEqual(checkAccount(stored[1].metadata), {});
  const run = (await request(cay, `/v1/runs/${execution.id}`)).json();
  assert.equal(run.detail.code, input.code, 'an execution is known by the UUID of its run');
  a.close();
});

test('messageIds are the trailing messages of the user', async () => {
  const a = await Raw.ready(cay, 'ids');
  await a.turn('t1', [user('u1', 'hello')]);
  const [, answer] = (await request(cay, `/agents/${TYPE}/ids/get-messages`)).json();
  const frames = await a.turn('t2', [user('u1', 'hello'), answer, user('u2', 'hi'), user('u3', 'you')]);
  assert.deepEqual(frames.at(-1).messageIds, ['u2', 'u3']);
  a.close();
});

test('other tabs see the messages, the stream, the messages again and the end', async () => {
  const a = await Raw.ready(cay, 'tabs');
  const b = await Raw.ready(cay, 'tabs');
  await a.turn('t1', [user('u1', 'Count customers by region')]);
  await b.done('t1');
  const seen = b.frames.slice(3).filter((f) => f.type !== 'cf_agent_state');
  assert.equal(seen[0].type, 'cf_agent_chat_messages');
  assert.deepEqual(seen[0].messages, [user('u1', 'Count customers by region')]);
  assert.deepEqual(b.chunks('t1'), a.chunks('t1'));
  assert.equal(seen.at(-2).type, 'cf_agent_chat_messages');
  assert.deepEqual(seen.at(-2).messages.map((m) => m.role), ['user', 'assistant']);
  assert.deepEqual(seen.at(-1), a.of('t1').at(-1));
  const states = (raw) => raw.frames.filter((f) => f.type === 'cf_agent_state').length;
  assert.equal(states(a), states(b));
  a.close();
  b.close();
});

test('state of a client goes to the others, not back, and stays', async () => {
  const a = await Raw.ready(cay, 'state');
  const b = await Raw.ready(cay, 'state');
  const state = { customers: [], executions: [], note: 'é' };
  a.send({ state, type: 'cf_agent_state' });
  const heard = await b.wait((f) => f.type === 'cf_agent_state', { from: 3 });
  assert.deepEqual(heard, { type: 'cf_agent_state', state });
  for (const bad of ['text', 7, null, [], true, undefined]) a.send({ state: bad, type: 'cf_agent_state' });
  await until(() => a.frames.filter((f) => f.type === 'cf_agent_state_error').length === 6, 'refusals');
  assert.deepEqual(a.frames[3], { type: 'cf_agent_state_error', error: 'the state must be an object' });
  a.send({ state: { big: 'x'.repeat(1_100_000) }, type: 'cf_agent_state' });
  assert.match((await a.wait((f) => /agent_message_bytes/.test(f.error))).error, /exceeds 1048576 bytes/);
  assert.equal(a.frames.filter((f) => f.type === 'cf_agent_state').length, 1);
  const c = await Raw.ready(cay, 'state');
  assert.deepEqual(c.frames[1].state, state);
  for (const raw of [a, b, c]) raw.close();
});

test('rpc answers as captured', async () => {
  const a = await Raw.ready(cay, 'rpc');
  const call = async (method, args = []) => {
    const id = crypto.randomUUID();
    a.send({ args, id, method, type: 'rpc' });
    const { id: same, ...frame } = await a.wait((f) => f.id === id);
    return frame;
  };
  const good = await call('getAllCustomers');
  assert.deepEqual(Object.keys(good), ['done', 'result', 'success', 'type']);
  assert.equal(good.result.length, 8);
  assert.deepEqual(await call('nosuch'), { error: 'Method nosuch does not exist', success: false, type: 'rpc' });
  for (const method of ['_executeCode', 'executeCode', 'query', 'execute', 'queryDatabase'])
    assert.deepEqual(await call(method), { error: `Method ${method} is not callable`, success: false, type: 'rpc' });
  const failed = await call('getAllCustomers', ['surplus']);
  assert.equal(failed.success, false);
  assert.match(failed.error, /argument|parameter/i);
  const long = await call('ä'.repeat(400));
  assert.match(long.error, /^Method ä+ does not exist$/);
  a.close();
});

test('frames that are none get no answer and harm nothing', async () => {
  const a = await Raw.ready(cay, 'junk');
  const values = [null, true, 0, -1.5, '', 'x', [], [1], {}, { a: 1 }, '\u0000', '\ud800', 'x'.repeat(70_000)];
  const frames = ['', '{', '[]', 'null', '"x"', '12', '{"type":1}', '{"type":"nosuch"}', 'x'.repeat(100_000)];
  for (const text of frames) a.ws.send(text);
  a.ws.send(new Uint8Array([1, 2, 3]));
  a.ws.send(new TextEncoder().encode('{"type":"cf_agent_chat_clear"}'));
  const shapes = {
    rpc: { id: 'r', method: 'getAllCustomers', args: [] },
    cf_agent_state: { state: {} },
    cf_agent_use_chat_request: { id: 'q', init: { method: 'POST', body: '{"messages":[]}' } },
    cf_agent_chat_request_cancel: { id: 'q' },
    cf_agent_chat_messages: { messages: [] },
    cf_agent_stream_resume_request: { probeId: 'p' },
    cf_agent_stream_resume_ack: { id: 'q' },
    cf_agent_tool_result: { toolCallId: 'x', toolName: 'y', output: 1 },
    cf_agent_tool_approval: { toolCallId: 'x', approved: true },
  };
  for (const [type, shape] of Object.entries(shapes))
    for (const key of Object.keys(shape))
      for (const value of [...values, undefined]) a.send({ type, ...shape, [key]: value });
  const part = { type: 'text', text: 'hi' };
  const message = { id: 'm', role: 'user', parts: [part] };
  for (const value of values) {
    a.chat('bad1', value);
    a.chat('bad2', [value]);
    for (const key of Object.keys(message)) a.chat('bad3', [{ ...message, [key]: value }]);
    a.send({ type: 'cf_agent_use_chat_request', id: 'bad4', init: value });
    a.send({ type: 'cf_agent_use_chat_request', id: 'bad5', init: { body: value } });
    a.send({ type: 'cf_agent_chat_messages', messages: [{ ...message, parts: [value, { ...part, text: value }] }] });
    for (const role of ['assistant', 'system', 'tool'])
      a.chat('bad6', [{ id: 'a', role, parts: [
        { type: 'tool-x', toolCallId: value, input: value, output: value, state: 'output-available' },
        { type: 'dynamic-tool', toolCallId: 'c', toolName: value, input: {}, state: value },
        { type: 'reasoning', text: value, providerMetadata: { cay: value } },
        value,
      ] }, { ...message, id: 'fine' }]);
  }
  a.send({ type: 'cf_agent_chat_clear' });
  a.send({ type: 'rpc', id: 'last', method: 'getAllCustomers', args: [] });
  const last = await a.wait((f) => f.id === 'last', { ms: 60_000 * slow });
  assert.equal(last.success, true);
  assert.ok(a.frames.some((f) => f.error && f.id === 'bad1' && /"messages" must be a list/.test(f.body)));
  const frames2 = await a.turn('works', [user('u9', 'Count customers by tier')], { ms: 60_000 * slow });
  assert.equal(frames2.at(-1).outcome, undefined);
  a.close();
});

test('ids are not cut at a NUL', async () => {
  const a = await Raw.ready(cay, 'nul');
  a.chat('cut\0x', [user('u1', 'hello')]);
  a.chat('t', [user('u2\0x', 'hello')]);
  assert.match((await a.wait((f) => f.id === 't' && f.error)).body, /"id" must not hold a NUL/);
  a.send({ type: 'rpc', id: 'r', method: 'getAllCustomers\0x', args: [] });
  await a.turn('after', [user('u3', 'hello')], { ms: 60_000 * slow });
  assert.deepEqual(a.frames.filter((f) => f.id === 'cut' || f.id === 'r'), []);
  const { messages } = (await request(cay, `/v1/agents/${TYPE}/nul/messages`)).json();
  assert.deepEqual(messages.filter((m) => m.role === 'user').map((m) => m.id), ['u3']);
  a.close();
});

test('a frame beyond the limit closes the socket and nothing else', async () => {
  const a = await Raw.ready(cay, 'huge');
  const b = await Raw.ready(cay, 'huge');
  a.ws.send('x'.repeat(5 << 20));
  await until(() => a.closed, 'the close');
  assert.ok([1009, 1006].includes(a.closed.code)); // or reset, with so much unread
  await b.turn('t', [user('u', 'hello')]);
  b.close();
});

test('a message and a history beyond their limits are refused with their names', async (t) => {
  const small = await withCay(t, { config: { limits: { agent_message_bytes: 4096, agent_history_bytes: 8192 } } });
  const a = await Raw.ready(small, 'limits');
  const big = await a.turn('t1', [user('u1', 'x'.repeat(5000))]);
  assert.match(big[0].body, /a message exceeds 4096 bytes \(limit agent_message_bytes\)/);
  assert.equal(big[0].error, true);
  assert.deepEqual(big.at(-1), { body: '', done: true, id: 't1', type: 'cf_agent_use_chat_response', outcome: 'error' });
  const many = [1, 2, 3].map((i) => user(`m${i}`, 'x'.repeat(3000)));
  const frames = await a.turn('t2', many);
  assert.match(frames[0].body, /may have 8192 \(limit agent_history_bytes\): clear it, or begin another/);
  assert.deepEqual((await request(small, `/agents/${TYPE}/limits/get-messages`)).json(), [], 'nothing of it is kept');
  assert.equal((await a.turn('t3', [user('u3', 'hello')])).at(-1).outcome, undefined);
  a.close();
});

test('cancel keeps what was said and says aborted', async () => {
  const a = await Raw.ready(cay, 'cancel');
  const b = await Raw.ready(cay, 'cancel');
  a.chat('c1', [user('u1', 'Talk for a while')]);
  await until(() => a.text('c1').length > 100, 'some text');
  a.send({ id: 'c1', type: 'cf_agent_chat_request_cancel' });
  const end = await a.done('c1');
  assert.deepEqual(end, {
    body: '', done: true, id: 'c1', type: 'cf_agent_use_chat_response', outcome: 'aborted', messageIds: ['u1'],
  });
  const said = a.text('c1');
  const stored = (await request(cay, `/agents/${TYPE}/cancel/get-messages`)).json();
  assert.equal(stored.length, 2);
  assert.equal(stored[1].parts.filter((p) => p.type === 'text').map((p) => p.text).join(''), said);
  assert.deepEqual(checkAccount(stored[1].metadata), { aborted: true });
  await b.done('c1');
  assert.deepEqual(b.frames.at(-2).messages, stored);
  const next = await a.turn('c2', [...stored, user('u2', 'Count customers by tier')]);
  assert.equal(next.at(-1).outcome, undefined, 'it goes on from there');
  a.close();
  b.close();
});

test('a cancelled program is stored, and what it changed is in the state', async () => {
  const a = await Raw.ready(cay, 'cancelrun');
  a.chat('c1', [user('u1', 'Run forever')]);
  await a.wait((f) => f.body?.includes('"tool-input-available"'));
  await sleep(50); // it runs, or is about to
  a.send({ id: 'c1', type: 'cf_agent_chat_request_cancel' });
  await a.done('c1');
  const state = await a.wait((f) => f.type === 'cf_agent_state' && f.state.executions.length === 1);
  assert.match(state.state.executions[0].error, /cancelled/);
  const [, message] = (await request(cay, `/agents/${TYPE}/cancelrun/get-messages`)).json();
  assert.equal(message.parts.at(-1).state, 'output-error');
  a.close();
});

test('turns of one instance wait for each other, in order, and can be cancelled while they wait', async () => {
  const a = await Raw.ready(cay, 'queue');
  a.chat('q1', [user('u1', 'Talk for a while')]);
  await until(() => a.text('q1'), 'the first');
  a.chat('q2', [user('u2', 'Count customers by tier')]);
  a.chat('q3', [user('u3', 'hello')]);
  a.chat('q4', [user('u4', 'Count customers by region')]);
  a.chat('q4', [user('u4', 'again')]);
  await a.wait((f) => f.id === 'q4' && f.error);
  assert.match(a.of('q4')[0].body, /a turn with this id already/);
  a.send({ id: 'q3', type: 'cf_agent_chat_request_cancel' });
  await a.done('q3');
  assert.equal(a.of('q3').length, 1);
  assert.equal(a.chunks('q2').length, 0, 'it has not begun');
  a.send({ id: 'q1', type: 'cf_agent_chat_request_cancel' });
  await until(() => a.of('q4').some((f) => f.seq === 0), 'the last');
  await a.wait((f) => f.id === 'q4' && f.body?.includes('"finish"'));
  const order = a.frames.filter((f) => f.seq !== undefined || f.done).map((f) => f.id);
  assert.ok(order.lastIndexOf('q1') < order.indexOf('q2'));
  assert.ok(order.lastIndexOf('q2') < a.frames.filter((f) => f.seq !== undefined || f.done).findIndex((f) => f.id === 'q4' && f.seq === 0));
  const stored = (await request(cay, `/agents/${TYPE}/queue/get-messages`)).json();
  assert.deepEqual(stored.map((m) => m.role + (m.role === 'user' ? m.id : '')), [
    'useru1', 'assistant', 'useru3', 'useru2', 'assistant', 'useru4', 'assistant',
  ]);
  a.close();
});

test('text with NUL goes through whole, there and back', async () => {
  const a = await Raw.ready(cay, 'nul-text');
  await a.turn('t1', [user('u1', 'a\u0000b')]);
  const stored = (await request(cay, `/agents/${TYPE}/nul-text/get-messages`)).json();
  assert.equal(stored[0].parts[0].text, 'a\u0000b');
  const next = await a.turn('t2', [...stored, user('u2', 'hello')]);
  assert.equal(next.at(-1).outcome, undefined);
  a.close();
});

test('the queue has an end', async (t) => {
  const small = await withCay(t, { config: { limits: { agent_turns: 2 } } });
  const a = await Raw.ready(small, 'q');
  a.chat('q1', [user('u1', 'Talk for a while')]);
  a.chat('q2', [user('u2', 'hello')]);
  const frames = await a.turn('q3', [user('u3', 'hello')]);
  assert.match(frames[0].body, /2 turns are waiting already \(limit agent_turns\)/);
  a.send({ type: 'cf_agent_chat_clear' });
  await a.done('q1');
  await a.done('q2');
  assert.equal(a.chunks('q2').length, 0);
  a.close();
});

test('clear empties the history, stops what runs, and is told to the others', async () => {
  const a = await Raw.ready(cay, 'clear');
  const b = await Raw.ready(cay, 'clear');
  await a.turn('t1', [user('u1', 'hello')]);
  a.chat('t2', [user('u2', 'Talk for a while')]);
  await until(() => a.text('t2'), 'text');
  a.send({ type: 'cf_agent_chat_clear' });
  assert.deepEqual(await b.wait((f) => f.type === 'cf_agent_chat_clear'), { type: 'cf_agent_chat_clear' });
  assert.equal((await a.done('t2')).outcome, 'aborted');
  assert.deepEqual((await request(cay, `/agents/${TYPE}/clear/get-messages`)).json(), []);
  assert.ok(!a.frames.some((f) => f.type === 'cf_agent_chat_clear'));
  a.close();
  b.close();
});

test('a client may replace the history', async () => {
  const a = await Raw.ready(cay, 'replace');
  const b = await Raw.ready(cay, 'replace');
  await a.turn('t1', [user('u1', 'hello')]);
  await b.done('t1');
  const messages = [user('n1', 'one'), { id: 'n2', role: 'assistant', parts: [{ type: 'text', text: 'two' }] }];
  const from = b.frames.length;
  a.send({ type: 'cf_agent_chat_messages', messages });
  assert.deepEqual(await b.wait((f) => f.type === 'cf_agent_chat_messages', { from }), {
    messages, type: 'cf_agent_chat_messages',
  });
  assert.deepEqual((await request(cay, `/agents/${TYPE}/replace/get-messages`)).json(), messages);
  a.send({ type: 'cf_agent_chat_messages', messages: [user('x', 'kept?'), { id: 'bad' }] });
  a.send({ type: 'rpc', id: 'r', method: 'nosuch', args: [] });
  await a.wait((f) => f.id === 'r');
  assert.deepEqual((await request(cay, `/agents/${TYPE}/replace/get-messages`)).json(), messages, 'all or nothing');
  a.close();
  b.close();
});

test('regenerate answers the last message again; an edit goes on from there', async () => {
  const a = await Raw.ready(cay, 'again');
  await a.turn('t1', [user('u1', 'hello')]);
  const get = async () => (await request(cay, `/agents/${TYPE}/again/get-messages`)).json();
  const [u1, first] = await get();
  await a.turn('t2', [u1], { trigger: 'regenerate-message' });
  const [, second, ...rest] = await get();
  assert.notEqual(second.id, first.id);
  assert.deepEqual(rest, []);
  await a.turn('t3', [u1, second, user('u2', 'List all customers')]);
  assert.equal((await get()).length, 4);
  await a.turn('t4', [user('u1', 'Count customers by tier')]);
  const edited = await get();
  assert.deepEqual(edited.map((m) => m.role), ['user', 'assistant']);
  assert.equal(edited[0].parts[0].text, 'Count customers by tier');
  a.close();
});

test('resume replays the running turn and goes on without a gap', async () => {
  const a = await Raw.ready(cay, 'resume');
  a.send({ type: 'cf_agent_stream_resume_request', probeId: 'RojPWyXK' });
  assert.deepEqual(await a.wait((f) => f.probeId), {
    type: 'cf_agent_stream_resume_none', reason: 'idle', probeId: 'RojPWyXK',
  });
  a.chat('r1', [user('u1', 'Talk for a while')]);
  await until(() => a.text('r1').length > 200, 'text');
  a.close(); // the turn goes on
  const b = await Raw.ready(cay, 'resume');
  assert.deepEqual(b.frames[0], { type: 'cf_agent_stream_resuming', id: 'r1' }, 'before the identity');
  assert.equal(b.frames[1].type, 'cf_agent_identity');
  b.send({ type: 'cf_agent_stream_resume_request', probeId: 'M6u-a4et' });
  assert.deepEqual(await b.wait((f) => f.probeId), {
    type: 'cf_agent_stream_resuming', id: 'r1', probeId: 'M6u-a4et',
  });
  b.chat('r2', [user('u2', 'hello')]);
  b.send({ id: 'r2', type: 'cf_agent_chat_request_cancel' });
  await b.done('r2'); // the end of another turn does not end the wait
  await sleep(100);
  assert.equal(b.of('r1').length, 0, 'no live frames before the replay');
  b.send({ type: 'cf_agent_stream_resume_ack', id: 'nosuch' });
  b.send({ type: 'cf_agent_stream_resume_ack', id: 'r1' });
  await b.wait((f) => f.replayComplete);
  await until(() => b.of('r1').some((f) => !f.replay && f.body), 'live frames');
  b.send({ id: 'r1', type: 'cf_agent_chat_request_cancel' });
  await b.done('r1');
  const frames = b.of('r1');
  const complete = frames.findIndex((f) => f.replayComplete);
  assert.ok(frames.slice(0, complete).every((f) => f.replay === true && f.seq !== undefined && f.done === false));
  assert.deepEqual(frames[complete], {
    body: '', done: false, id: 'r1', type: 'cf_agent_use_chat_response', replay: true, replayComplete: true,
  });
  assert.ok(frames.slice(complete + 1).every((f) => !('replay' in f)));
  assert.deepEqual(Object.keys(frames[0]), ['body', 'done', 'id', 'type', 'replay', 'seq']);
  const [, message] = (await request(cay, `/agents/${TYPE}/resume/get-messages`)).json();
  assert.equal(message.parts.find((p) => p.type === 'text').text, b.text('r1'), 'no text is missing or double');
  assert.equal(b.frames.at(-2).type, 'cf_agent_chat_messages');
  b.send({ type: 'cf_agent_stream_resume_ack', id: 'r1' });
  await b.wait((f) => f.replay && f.done, { what: 'the end for a late ack' });
  b.close();
});

test('what is asked before the greeting streams to who asked, from its beginning', async () => {
  // A client that was offline sends what it kept as soon as the socket opens. Reading the state of a
  // new instance takes longer than that.
  const a = await Raw.open(cay, 'early');
  const frames = await a.turn('e1', [user('u1', 'Count customers by tier')]);
  assert.equal(frames.at(-1).done, true);
  const body = frames.slice(0, -1);
  assert.deepEqual(body.map((f) => f.seq), body.map((_, i) => i), 'seq counts from 0 without a gap');
  assert.match(a.chunks('e1').map((c) => c.delta ?? '').join(''), /Gold: 3/);
  assert.ok(!a.frames.some((f) => f.type === 'cf_agent_stream_resuming'), 'there is nothing to resume');
  assert.ok(a.frames.some((f) => f.type === 'cf_agent_identity'));
  a.close();
});

test('HTTP answers as captured', async () => {
  const get = async (path, options) => {
    const { status, body, headers } = await request(cay, path, options);
    return [status, body, headers['content-type']?.split(';')[0]];
  };
  const plain = 'text/plain';
  assert.deepEqual(await get('/agents/nosuch/x'), [400, 'Invalid request', plain]);
  assert.deepEqual(await get('/agents/nosuch/x/get-messages'), [400, 'Invalid request', plain]);
  assert.deepEqual(await get(`/agents/${TYPE}/x`), [404, 'Not implemented', plain]);
  assert.deepEqual(await get(`/agents/${TYPE}/x/other`), [404, 'Not implemented', plain]);
  assert.deepEqual(await get(`/agents/${TYPE}/x/sub/customer-database/database`), [404, 'Not implemented', plain]);
  assert.deepEqual(await get(`/agents/${TYPE}/x`, { method: 'OPTIONS' }), [404, 'Not implemented', plain]);
  assert.deepEqual(await get(`/agents/${TYPE}/x`, { method: 'POST' }), [404, 'Not implemented', plain]);
  assert.deepEqual(await get(`/agents/${TYPE}/x`, { method: 'DELETE' }), [404, 'Not implemented', plain]);
  assert.deepEqual(await get(`/agents/${TYPE}`), [404, 'Not found', plain]);
  assert.deepEqual(await get(`/agents/${TYPE}/`), [404, 'Not found', plain]);
  assert.deepEqual(await get(`/agents/${TYPE}/x/get-messages`), [200, '[]', 'application/json']);
  assert.deepEqual(await get(`/agents/${TYPE}/x/get-messages`, { method: 'OPTIONS' }), [200, '[]', 'application/json']);
  await assert.rejects(Raw.open(cay, 'x/sub/customer-database/database'));
  await assert.rejects(Raw.open(cay, 'x', { type: 'nosuch' }));
  assert.ok(!existsSync(join(cay.dataDir, 'agents', TYPE, 'x')), 'looking makes nothing');
});

test('names with odd characters are instances of their own', async () => {
  const names = ['a b', 'ä-日本', 'a..b', '.hidden', 'a%2Fb', "q'u\"o", 'A', 'a', '%25', 'x'.repeat(128), '~!@$&()=+,;'];
  for (const name of names) {
    const path = name.includes('%') ? name : encodeURIComponent(name);
    const a = await Raw.ready(cay, path);
    assert.equal(a.frames[0].name, decodeURIComponent(path));
    await a.turn('t', [user(`u-${name}`, 'hello')]);
    const stored = (await request(cay, `/agents/${TYPE}/${path}/get-messages`)).json();
    assert.deepEqual(stored.map((m) => m.id).slice(0, 1), [`u-${name}`]);
    a.close();
  }
  const { agents } = (await request(cay, '/v1/agents')).json();
  const listed = agents.find((a) => a.type === TYPE).names;
  for (const name of names) assert.ok(listed.includes(name.includes('%') ? decodeURIComponent(name) : name), name);
  for (const entry of readdirSync(join(cay.dataDir, 'agents', TYPE)))
    assert.match(entry, /^[^./\u0000-\u001f\u007f][^/\u0000-\u001f\u007f]*$/);
  for (const bad of ['%00', '%0a', '%ff', 'x'.repeat(129), '%20'.repeat(100)]) {
    const { status } = await request(cay, `/agents/${TYPE}/${bad}/get-messages`);
    assert.equal(status, 400, bad);
    await assert.rejects(Raw.open(cay, bad));
  }
});

test('what belongs to one key is not there for another', async (t) => {
  const server = await withCay(t, { config: { require_key: true } });
  const other = await createKey(server.dataDir, { name: 'other' });
  const headers = bearer(server.key);
  const post = (key) =>
    request(server, `/v1/agents/${TYPE}/mine/messages`, {
      method: 'POST',
      headers: { ...bearer(key), 'Content-Type': 'application/json', Accept: 'application/json' },
      body: JSON.stringify({ text: 'Add a new customer named Zara' }),
    });
  assert.equal((await post(server.key)).status, 200);
  const messages = async (key) =>
    (await request(server, `/agents/${TYPE}/mine/get-messages`, { headers: bearer(key) })).json();
  assert.equal((await messages(server.key)).length, 2);
  assert.deepEqual(await messages(other.text), []);
  const a = await Raw.ready(server, 'mine', { headers });
  const b = await Raw.ready(server, 'mine', { headers: bearer(other.text) });
  assert.equal(a.frames[1].state.customers.length, 9);
  assert.equal(b.frames[1].state.customers.length, 8);
  await a.turn('t', [user('u', 'hello')]);
  assert.equal(b.frames.length, 3, 'nothing is heard');
  for (const id of [server.project, other.project])
    assert.ok(existsSync(join(server.dataDir, 'keys', id, 'agents', TYPE, 'mine', 'agent.db')), id);
  await assert.rejects(Raw.open(server, 'mine'), 'no key');
  a.close();
  b.close();
});
