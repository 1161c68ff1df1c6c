// Conversations that are too large to be read on the loop: what is kept, what the model reads, and who is
// told of it are the same as with small ones.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { request, tempDir } from '../lib/cay.mjs';
import { PROVIDERS, withModel } from './mock.mjs';
import { Raw, startCay, TYPE, until, user, withAgents, withCay } from './support.mjs';

/** So many bytes as JSON. */
const text = (id, bytes) => `${id} ${'a"\\\n\u00e4\u0001 '.repeat(bytes / 16)}`;
const large = (id, bytes = 200_000) => user(id, text(id, bytes));
const ids = (list) => list.map((m) => m.id);

async function stored(cay, name) {
  const got = await request(cay, `/v1/agents/${TYPE}/${name}/messages`);
  assert.equal(got.status, 200, got.body.slice(0, 300));
  const plain = await request(cay, `/agents/${TYPE}/${name}/get-messages`);
  assert.deepEqual(plain.json(), got.json().messages);
  return got.json().messages;
}

for (const provider of PROVIDERS)
  test(`${provider}: a model reads a large message as it was sent, and what was before it`, async (t) => {
    const { mock, requests, cay } = await withModel(t, provider);
    mock.onMessage(/.*/, { content: 'Noted.' });
    const a = await Raw.ready(cay, 'large');
    const b = await Raw.ready(cay, 'large');
    await a.turn('t1', [large('u1')]);
    const first = await stored(cay, 'large');
    const forged = first.map((m) => (m.role === 'assistant' ? { ...m, parts: [{ type: 'text', text: 'forged' }] } : m));
    await a.turn('t2', [...forged, large('u2', 300_000)]);
    const read = JSON.stringify(requests.at(-1).body.messages);
    assert.ok(read.includes('Noted.') && !read.includes('forged'), 'what the assistant said is ours to keep');
    for (const id of ['u1', 'u2']) assert.ok(read.includes(JSON.stringify(text(id, id === 'u1' ? 200_000 : 300_000)).slice(1, -1)), id);
    const all = await stored(cay, 'large');
    assert.deepEqual([all[0], all[2]], [large('u1'), large('u2', 300_000)]);
    assert.equal(all.length, 4);
    // Who listens hears what is kept; so does the next one, and over HTTP.
    await until(() => b.frames.findLast((f) => f.type === 'cf_agent_chat_messages')?.messages.length === 4, 'all messages');
    assert.deepEqual(b.frames.findLast((f) => f.type === 'cf_agent_chat_messages').messages, all);
    const got = await request(cay, `/v1/agents/${TYPE}/large/messages`, { method: 'POST', headers: { accept: 'application/json' }, body: JSON.stringify({ message: large('u3') }) });
    assert.equal(got.status, 200);
    assert.ok(JSON.stringify(requests.at(-1).body.messages).includes('u3 a'));
    assert.equal((await stored(cay, 'large')).length, 6);
    a.close();
    b.close();
  });

test('turns with much to read come in their order, and stop whenever they are told to', async (t) => {
  const cay = await withCay(t);
  const a = await Raw.ready(cay, 'order');
  const b = await Raw.ready(cay, 'order');
  a.chat('t1', [large('u1')]);
  a.chat('t2', [large('u2')]);
  a.send({ type: 'cf_agent_chat_request_cancel', id: 't2' });
  a.chat('t3', [user('u3', 'hello')]);
  await a.done('t3');
  assert.deepEqual(['t1', 't2', 't3'].map((id) => a.of(id).at(-1).outcome), [undefined, 'aborted', undefined]);
  assert.deepEqual(ids(await stored(cay, 'order')).filter((id) => /^u/.test(id)), ['u1', 'u2', 'u3']);
  // Told to stop while it is read, cleared, and left by who asked.
  for (let i = 0; i < 5; i++) {
    a.chat(`c${i}`, [large(`x${i}`)]);
    a.send({ type: 'cf_agent_chat_request_cancel', id: `c${i}` });
    a.chat(`d${i}`, [large(`y${i}`)]);
    if (i % 2) a.send({ type: 'cf_agent_chat_clear' });
  }
  a.close();
  await b.done('d4');
  assert.deepEqual(ids(await stored(cay, 'order')).filter((id) => /^[xy]/.test(id)), ['x4', 'y4']);
  b.close();
});

// They are told one by one, over turns of the loop: what comes after it waits for the last of them.
test('many who listen to a large conversation hear everything once, in its order', async (t) => {
  const cay = await withCay(t);
  const a = await Raw.ready(cay, 'many');
  const others = await Promise.all(Array.from({ length: 20 }, () => Raw.ready(cay, 'many')));
  const put = [large('u1', 800_000), large('u2', 800_000)];
  a.send({ type: 'cf_agent_chat_messages', messages: put });
  a.chat('t1', [...put, user('u3', 'hello')]);
  // Some ask for the stream meanwhile, and one leaves.
  const answers = { cf_agent_chat_messages: 'cf_agent_stream_resume_request', cf_agent_stream_resuming: 'cf_agent_stream_resume_ack' };
  for (const b of others.slice(0, 6))
    b.ws.addEventListener('message', (m) => {
      const type = answers[JSON.parse(m.data).type];
      if (type) b.send({ type, id: 't1' });
    });
  others.pop().close();
  await Promise.all([a, ...others].map((b) => b.done('t1')));
  const all = await stored(cay, 'many');
  const said = (chunks) => chunks.map((f) => JSON.parse(f.body)).filter((c) => c.type === 'text-delta').map((c) => c.delta).join('');
  const answer = all.at(-1).parts.find((p) => p.type === 'text').text;
  for (const [i, b] of others.entries()) {
    const heard = b.frames.filter((f) => f.type === 'cf_agent_chat_messages' || (f.type === 'cf_agent_use_chat_response' && f.id === 't1'));
    const chunks = heard.filter((f) => f.body && !f.done);
    assert.deepEqual(ids(heard[0].messages ?? []), ['u1', 'u2'], `${i} hears the messages before the turn`);
    if (i >= 6) assert.deepEqual(chunks.map((f) => f.seq), chunks.map((_, n) => chunks[0].seq + n), `${i}: each chunk once`);
    if (i >= 6 || chunks.some((f) => f.replay)) assert.equal(said(chunks.slice(chunks.findLastIndex((f) => f.body.includes('"start"')))), answer);
    await b.wait((f) => f.type === 'cf_agent_chat_messages' && f.messages.length === all.length);
  }
  for (const b of [a, ...others]) b.close();
});

test('a client that goes on from an earlier place leaves what it has, in its order', async (t) => {
  const cay = await withCay(t);
  const a = await Raw.ready(cay, 'rewind');
  const all = Array.from({ length: 70 }, (_, i) => (i % 2 ? { ...user(`m${i}`, `answer ${i}`), role: 'assistant' } : user(`m${i}`, `question ${i}`)));
  const put = async (list) => {
    a.send({ type: 'cf_agent_chat_messages', messages: list });
    await until(async () => (await stored(cay, 'rewind')).length === list.length);
  };
  const after = async (list, more) => {
    const turn = crypto.randomUUID();
    const frames = await a.turn(turn, list, more);
    assert.equal(frames.at(-1).outcome, undefined);
    const kept = await stored(cay, 'rewind');
    assert.equal(kept.at(-1).role, 'assistant');
    return kept.slice(0, -1);
  };
  await put(all);
  assert.deepEqual(await stored(cay, 'rewind'), all);
  assert.deepEqual(await after(all.slice(0, 41)), all.slice(0, 41), 'the end makes way');
  await put(all);
  const without = all.slice(0, 41).toSpliced(5, 3);
  assert.deepEqual(await after(without), without, 'so does what is missing amid it');
  await put(all);
  const edited = all.slice(0, 41).map((m) => (m.id === 'm10' ? { ...m, parts: [{ type: 'text', text: 'another' }] } : m));
  assert.deepEqual(await after(edited), edited, "an edit of the user's");
  await put(all);
  const forged = all.slice(0, 41).map((m) => (m.id === 'm11' ? { ...m, parts: [{ type: 'text', text: 'forged' }] } : m));
  assert.deepEqual(await after(forged), all.slice(0, 41), "an assistant's is ours to keep");
  await put(all.slice(0, 40));
  const more = [...all.slice(0, 10), user('new', 'new')];
  assert.deepEqual(await after(more), [...all.slice(0, 40), user('new', 'new')], 'with something new, nothing goes');
  await put(all);
  assert.deepEqual(await after(all.slice(0, 21), { trigger: 'regenerate-message' }), all.slice(0, 21));
  await put(all);
  const turned = [all[2], all[0]];
  assert.deepEqual(await after(turned), [all[0], all[2]], 'the order is ours');
  const twice = [user('w', 'one'), user('w', 'two')];
  await put(all);
  assert.deepEqual(await after(twice), [...all, user('w', 'two')], 'the last of two with one id');
  a.close();
});

test('more messages than a conversation may have are refused with the name of the limit', async (t) => {
  const cay = await withCay(t, { config: { limits: { agent_messages: 40 } } });
  const a = await Raw.ready(cay, 'many');
  const list = (n) => Array.from({ length: n }, (_, i) => user(`m${i}`, 'hello'));
  const frames = await a.turn('t1', list(41));
  assert.match(frames[0].body, /has 41 messages and may have 40 \(limit agent_messages\)/);
  assert.deepEqual(await stored(cay, 'many'), [], 'nothing of it is kept');
  assert.equal((await a.turn('t2', list(40))).at(-1).outcome, undefined);
  const one = await a.turn('t3', [user('more', 'hello')]);
  assert.match(one[0].body, /may have 40 \(limit agent_messages\): clear it, or begin another/);
  a.send({ type: 'cf_agent_chat_messages', messages: list(41) });
  a.send({ type: 'cf_agent_chat_messages', messages: list(3) });
  await until(async () => (await stored(cay, 'many')).length === 3);
  a.close();
});

test('what a client was told is there after kill -9, large or not', async (t) => {
  const dataDir = tempDir(t);
  const first = await startCay({ dataDir });
  const a = await Raw.ready(first, 'kill');
  const b = await Raw.ready(first, 'kill');
  const state = { v: Array.from({ length: 30_000 }, (_, i) => ({ i })) };
  const list = [large('u1', 800_000), large('u2', 800_000)];
  a.send({ type: 'cf_agent_chat_messages', messages: list });
  a.send({ type: 'cf_agent_state', state });
  await b.wait((f) => f.type === 'cf_agent_state' && f.state.v, { what: 'the state' });
  a.chat('t1', [...list, user('u3', 'Talk for a while')]);
  await until(() => a.text('t1').length > 20, 'some text');
  await first.kill9();
  const second = await startCay({ dataDir });
  t.after(() => second.stop());
  const kept = await stored(second, 'kill');
  assert.deepEqual(kept.slice(0, 3), [...list, user('u3', 'Talk for a while')]);
  assert.equal(kept.length, 4);
  assert.deepEqual(kept[3].metadata, { interrupted: true });
});

// What a facet answers is read by a thread: rows for a client, and those of the state.
test('large answers of a database come whole, or cut as the state tells', async (t) => {
  const rows = (n) => `WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ${n}) SELECT i, 'a"\u00e4' || i || hex(zeroblob(30)) AS t, NULL AS z FROM c`;
  const agent = {
    title: 'Hoarder', max_steps: 2, tools: [],
    state: { mine: { value: { x: 1 } }, 'a "b"': { value: 1 }, few: { facet: 'db', method: 'few' }, many: { facet: 'db', method: 'many' }, gone: { facet: 'db', method: 'gone' } },
    facets: { db: { schema: 'database.sql', methods: { few: rows(3), many: rows(10_000), wide: `SELECT ${Array.from({ length: 60 }, (_, i) => `i + ${i} AS column_with_a_long_name_${i}`).join(', ')} FROM (${rows(6000)})`, gone: 'SELECT * FROM gone', touch: { kind: 'execute', sql: 'DROP TABLE IF EXISTS gone' } } } },
    rpc: Object.fromEntries(['few', 'many', 'wide', 'touch'].map((m) => [m, { facet: 'db', method: m }])),
  };
  const cay = await withAgents(t, { hoarder: { agent, prompt: 'Keep it.', files: { 'database.sql': 'CREATE TABLE IF NOT EXISTS gone (i);' } } });
  const a = await Raw.ready(cay, 'one', { type: 'hoarder' });
  let n = 0;
  const call = async (method) => {
    const id = `r${n++}`;
    a.send({ type: 'rpc', id, method, args: [] });
    return a.wait((f) => f.type === 'rpc' && f.id === id);
  };
  const want = (count) => Array.from({ length: count }, (_, i) => ({ i: i + 1, t: `a"\u00e4${i + 1}${'0'.repeat(60)}`, z: null }));
  assert.deepEqual((await call('few')).result, want(3));
  assert.deepEqual((await call('many')).result, want(10_000));
  assert.match((await call('wide')).error, /the result has \d+ bytes, and may have/);
  const mine = { list: Array.from({ length: 20_000 }, (_, i) => ({ i, mine: '}' })) };
  const states = () => a.frames.filter((f) => f.type === 'cf_agent_state');
  a.send({ type: 'cf_agent_state', state: { other: [1], mine, 'a "b"': 2 } });
  const before = states().length;
  assert.equal((await call('touch')).success, true);
  await until(() => states().length > before, 'the state');
  const state = states().at(-1).state;
  assert.deepEqual(Object.keys(state), ['few', 'many', 'gone', 'mine', 'a "b"', 'errors']); // values as they are at the end
  assert.deepEqual([state.mine, state['a "b"'], state.few, state.gone], [mine, 2, want(3), []]);
  assert.ok(state.many.length > 1000 && state.many.length < 10_000);
  assert.deepEqual(state.many, want(state.many.length));
  assert.equal(state.errors.many, `only ${state.many.length} of 10000 rows are shown`);
  assert.match(state.errors.gone, /no such table/);
  a.close();
});

test('an agent that is removed while its answers are read answers all calls', async (t) => {
  const many = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 10000) SELECT i, 'x' || i AS t FROM c";
  const agent = { title: 'Hoarder', max_steps: 2, tools: [], state: { rows: { facet: 'db', method: 'many' } }, facets: { db: { schema: 'database.sql', methods: { many } } }, rpc: { many: { facet: 'db', method: 'many' } } };
  const cay = await withAgents(t, { hoarder: { agent, prompt: 'Keep it.', files: { 'database.sql': 'CREATE TABLE IF NOT EXISTS t (i);' } } });
  for (let i = 0; i < 8; i++) {
    const a = await Raw.ready(cay, `n${i}`, { type: 'hoarder' });
    for (let k = 0; k < 10; k++) a.send({ type: 'rpc', id: `r${k}`, method: 'many', args: [] });
    if (i % 2) await a.wait((f) => f.id === `r${i}`);
    const got = await request(cay, `/v1/agents/hoarder/n${i}`, { method: 'DELETE' });
    assert.equal(got.status, 204, got.body);
    await until(() => a.closed, 'the end');
    assert.equal(new Set(a.frames.filter((f) => f.type === 'rpc').map((f) => f.id)).size, 10);
  }
});

test('a frame with more values than a body may have closes its socket, and no other', async (t) => {
  const cay = await withCay(t);
  const other = await Raw.ready(cay, 'values');
  const few = await Raw.ready(cay, 'values');
  few.send(`{"type":"unknown","v":[${'1,'.repeat(900_000)}1]}`);
  for (const text of [`{"type":"unknown","v":[${'1,'.repeat(1_000_001)}1]}`, `{"type":"rpc","id":"1","method":"nothing","args":[${'[],'.repeat(700_000)}[]]}`]) {
    const many = await Raw.ready(cay, 'values');
    many.send(text);
    await until(() => many.closed, 'the end');
    assert.equal(many.closed.code, 1009);
  }
  const body = JSON.stringify({ messages: [user('u1', 'x')] }).replace('"x"', `"x","v":[${'1,'.repeat(1_000_001)}1]`);
  other.send({ id: 't1', init: { method: 'POST', body }, type: 'cf_agent_use_chat_request' });
  await other.done('t1');
  assert.match(JSON.stringify(other.of('t1')), /more than 1000000 JSON values/);
  assert.equal((await other.turn('t2', [user('u2', 'hello')])).at(-1).outcome, undefined);
  assert.equal(few.closed, null);
  for (const b of [few, other]) b.close();
});
