// Keys are checked where work is admitted, not only where a connection is: the rate of a key holds for what comes
// over its WebSockets and to its workers, and a revoked key can do nothing any more.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, describe, test } from 'node:test';
import { bearer, buildDir, createKey, request, runCay, startCay, until, withCay } from '../lib/cay.mjs';

const RATE = 6;

/** An agent's WebSocket that keeps its frames. */
async function open(cay, key, name, type = 'quiet') {
  const ws = new WebSocket(`ws://127.0.0.1:${cay.port}/agents/${type}/${name}`, { headers: bearer(key.text) });
  const socket = { frames: [], closed: null, send: (frame) => ws.send(JSON.stringify(frame)), close: () => ws.close() };
  ws.addEventListener('message', (event) => socket.frames.push(JSON.parse(event.data)));
  ws.addEventListener('close', (event) => (socket.closed = event));
  await new Promise((resolve, reject) => {
    ws.addEventListener('open', resolve);
    ws.addEventListener('error', () => reject(new Error('no WebSocket')));
  });
  await until(() => socket.frames.some((f) => f.type === 'cf_agent_mcp_servers'), 'the greeting');
  return socket;
}
const rpc = (id) => ({ type: 'rpc', id, method: 'nosuch', args: [] });
const chat = (id, text) => ({
  type: 'cf_agent_use_chat_request',
  id,
  init: { method: 'POST', body: JSON.stringify({ messages: [{ id: `u-${id}`, role: 'user', parts: [{ type: 'text', text }] }] }) },
});
const revoke = (cay, key) => runCay(['key', 'revoke', key.id, '--data-dir', cay.dataDir]);

describe('a key', () => {
  let cay;
  const agents = mkdtempSync(join(tmpdir(), 'cay-agents-'));
  const script = (say, repeat) => JSON.stringify({ scripts: [{ when: '.', steps: [{ say, repeat }] }] });
  before(async () => {
    for (const [name, demo] of [['quiet', script('ok', 1)], ['talker', script('on and on and on and on and on and on, ', 1000)]]) {
      mkdirSync(join(agents, name));
      writeFileSync(join(agents, name, 'agent.json'), '{}');
      writeFileSync(join(agents, name, 'demo.json'), demo);
    }
    cay = await startCay({ config: { require_key: true }, args: ['--agents-dir', agents] });
  });
  after(async () => {
    await cay?.stop();
    rmSync(agents, { recursive: true });
  });
  const makeKey = (rate) => createKey(cay.dataDir, { name: 'k', rate });
  const deploy = async (key, id, more = {}) => {
    const code = 'export default { fetch() { return new Response("served"); } }';
    const put = await request(cay, `/v1/workers/${id}`, { method: 'PUT', body: JSON.stringify({ code, ...more }), headers: bearer(key.text) });
    assert.equal(put.status, 200, put.body);
    return new URL(put.json().url).hostname;
  };
  // One comes back every ten seconds, which a busy machine may take.
  const assertRate = (codes) => {
    assert.ok(codes.slice(0, RATE - 1).every((c) => c === 200), codes.join());
    assert.ok(codes.filter((c) => c === 429).length >= 3, codes.join());
  };
  const visit = (host, key) => request(cay, '/', { headers: { Host: host, ...(key ? bearer(key.text) : {}) } });

  test('has its rate over a WebSocket too', async () => {
    const key = await makeKey(RATE);
    const s = await open(cay, key, 'rate'); // the first of them
    for (let i = 0; i < RATE + 4; i++) s.send(rpc(`r${i}`));
    const answers = await until(() => {
      const all = s.frames.filter((f) => f.type === 'rpc');
      return all.length === RATE + 4 && all;
    }, 'the answers');
    const refused = answers.filter((f) => /6 requests a minute/.test(f.error));
    assert.deepEqual(refused.map((f) => f.id), ['r5', 'r6', 'r7', 'r8', 'r9'], 'the others do not exist');
    s.send(chat('t1', 'hello'));
    const end = await until(() => s.frames.find((f) => f.id === 't1' && f.done), 'the end');
    assert.equal(end.outcome, 'error');
    assert.match(s.frames.find((f) => f.id === 't1' && f.error).body, /6 requests a minute/);
    s.send({ type: 'cf_agent_state', state: {} });
    assert.match((await until(() => s.frames.find((f) => f.type === 'cf_agent_state_error'), 'the refusal')).error, /6 requests a minute/);
    assert.equal((await request(cay, '/v1/runs', { headers: bearer(key.text) })).status, 429, 'one rate for all');
    // What stops work and what has no answer of its own.
    s.send({ type: 'cf_agent_chat_request_cancel', id: 't1' });
    s.send({ type: 'cf_agent_stream_resume_request' });
    await until(() => s.frames.some((f) => f.type === 'cf_agent_stream_resume_none'), 'an answer');
    s.send({ type: 'cf_agent_chat_clear' });
    assert.equal((await until(() => s.closed, 'the close')).code, 1013);
  });

  test('that has no rate has none', async () => {
    const key = await makeKey();
    const s = await open(cay, key, 'free');
    for (let i = 0; i < 100; i++) s.send(rpc(`r${i}`));
    await until(() => s.frames.filter((f) => f.type === 'rpc').length === 100, 'the answers');
    assert.ok(s.frames.every((f) => f.type !== 'rpc' || /does not exist/.test(f.error)));
    s.close();
  });

  test('that is revoked has no open WebSocket', async () => {
    const key = await makeKey();
    const [asks, talks, listens] = await Promise.all(['asks', 'talks', 'talks'].map((name) => open(cay, key, name)));
    talks.send(chat('t1', 'hello there, is anybody'));
    await until(() => listens.frames.some((f) => f.id === 't1' || f.type === 'cf_agent_chat_messages'), 'the turn');
    assert.equal((await revoke(cay, key)).code, 0);
    asks.send(rpc('late'));
    talks.send(chat('t2', 'hello again'));
    for (const s of [asks, talks]) assert.equal((await until(() => s.closed, 'the close')).code, 1008);
    assert.ok(!asks.frames.some((f) => f.id === 'late'), 'it gets no answer');
    assert.ok(!talks.frames.some((f) => f.id === 't2'));
    await assert.rejects(open(cay, key, 'asks'));
  });

  test('that is revoked hears no more of what goes on', async () => {
    const key = await makeKey();
    const s = await open(cay, key, 'hears', 'talker');
    s.send(chat('t1', 'talk'));
    await until(() => s.frames.some((f) => f.id === 't1'), 'the turn');
    assert.equal((await revoke(cay, key)).code, 0);
    assert.equal((await until(() => s.closed, 'the close')).code, 1008);
    assert.ok(!s.frames.some((f) => f.id === 't1' && f.done), 'the turn goes on without it');
  });

  test('has its rate at the host of its worker', async () => {
    const key = await makeKey(RATE);
    const host = await deploy(key, 'mine'); // the first of them
    const codes = [];
    for (let i = 0; i < RATE + 4; i++) codes.push((await visit(host, key)).status);
    assertRate(codes);
    const refused = await visit(host, key);
    assert.match(refused.headers['retry-after'], /^[1-9]\d*$/);
    assert.match(refused.body, /6 requests a minute/);
  });

  test('pays for strangers at the host of a public worker, and not for other keys', async () => {
    const key = await makeKey(RATE);
    const other = await makeKey();
    const host = await deploy(key, 'everybodys', { public: true });
    for (let i = 0; i < 10; i++) assert.equal((await visit(host, other)).status, 200);
    const codes = [];
    for (let i = 0; i < RATE + 4; i++) codes.push((await visit(host)).status);
    assertRate(codes);
    assert.match((await visit(host)).headers['retry-after'], /^[1-9]\d*$/);
    assert.equal((await visit(host, other)).status, 200);
  });

  test('that is revoked serves nobody', async () => {
    const key = await makeKey();
    const other = await makeKey();
    const hosts = [await deploy(key, 'open', { public: true }), await deploy(key, 'closed')];
    assert.equal((await visit(hosts[0])).status, 200);
    assert.equal((await visit(hosts[1], key)).status, 200);
    assert.equal((await revoke(cay, key)).code, 0);
    for (const host of hosts)
      for (const who of [undefined, key, other]) assert.equal((await visit(host, who)).status, 404, host);
  });
});

test('a key that is revoked has no open terminal', async (t) => {
  const cay = await withCay(t, { config: { require_key: true } });
  const key = await createKey(cay.dataDir, { name: 'terminal' });
  const post = async (path, body) => (await request(cay, path, { method: 'POST', headers: bearer(key.text), body: JSON.stringify(body) })).json();
  const box = await post('/v1/sandboxes', {});
  const run = await post(`/v1/sandboxes/${box.id}/exec`, { argv: ['sh', '-c', 'while :; do echo tick; sleep 0.1; done'], tty: true, background: true });
  const ws = new WebSocket(`ws://127.0.0.1:${cay.port}/v1/sandboxes/${box.id}/execs/${run.id}/tty`, { headers: bearer(key.text) });
  let heard = 0;
  let closed = null;
  ws.addEventListener('message', () => heard++);
  ws.addEventListener('close', (event) => (closed = event));
  await until(() => heard > 2, 'its output');
  assert.equal((await revoke(cay, key)).code, 0);
  await until(() => closed, 'its end');
  assert.equal(closed.code, 1008);
});

test('a name that would trick a terminal is refused, and one of an earlier version is shown harmlessly', async (t) => {
  const cay = await withCay(t);
  for (const name of ['a\u202eb', 'a\u009bb', 'a\u0085b', 'a\u2066b', 'a\u200fb', 'a\u001bb', 'a\u2028b', '\ufeffa']) {
    const answer = await request(cay, '/v1/keys', { method: 'POST', body: JSON.stringify({ name, scope: 'run' }) });
    assert.equal(answer.status, 400, JSON.stringify(name));
    assert.match(answer.json().error.message, /control characters/);
  }
  for (const name of ['Zoë’s key', '日本語', 'a\u00a0b', 'клю́ч']) await createKey(cay.dataDir, { name });
  const db = new DatabaseSync(join(cay.dataDir, 'ledger.db'), { timeout: 60_000 });
  db.prepare('UPDATE keys SET name = ? WHERE name = ?').run('a\u202eb\u009bc', '日本語');
  db.close();
  const shown = spawnSync('script', ['-qec', `${join(buildDir, 'cay')} key list --data-dir ${cay.dataDir}`, '/dev/null'], { encoding: 'utf8', env: { PATH: process.env.PATH, TERM: 'xterm', ...(process.env.ASAN_OPTIONS ? { ASAN_OPTIONS: 'detect_leaks=0' } : {}) } }).stdout;
  assert.ok(shown.includes('a\\u202eb\\u009bc') && shown.includes('Zoë’s key'), shown);
  assert.ok(!shown.includes('\u202e') && !shown.includes('\u009b'));
});
