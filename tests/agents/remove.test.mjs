// Removing an instance, and clearing it, in every state of its turn: what was asked for is done when the answer
// comes, those who listen hear of it once, and nothing of the old instance reaches into the new one.
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { raw, request, sleep, statuses, tempDir } from '../lib/cay.mjs';
import { agentsDir, Raw, slow, startCay, until, user } from './support.mjs';

const counting = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n';
const call = (tool, input) => ({ call: { tool, input } });
const script = (when, ...steps) => ({ when: `^${when}$`, steps });
const agent = {
  agent: {
    facets: { db: { schema: 's.sql', methods: { rows: 'SELECT x FROM t', add: { kind: 'execute', sql: 'INSERT INTO t VALUES (?)' } } } },
    env: { db: { facet: 'db' } },
    tools: [
      { name: 'run', kind: 'code', description: 'runs' },
      { name: 'ask', kind: 'query', facet: 'db', description: 'asks' },
    ],
    state: { rows: { facet: 'db', method: 'rows' }, executions: { executions: 5 } },
    rpc: { add: { facet: 'db', method: 'add' } },
  },
  files: { 's.sql': 'CREATE TABLE IF NOT EXISTS t (x);' },
  demo: {
    scripts: [
      script('talk', { say: 'One more sentence, and ', repeat: 1000 }),
      script('compile .*', call('run', { code: 'export default async () => console.log({{user|json}})' }), { say: 'ok' }),
      script('run', call('run', { code: 'export default async () => { console.log("begun"); await new Promise((r) => setTimeout(r, 1e5)); }' }), { say: 'ok' }),
      script('write', call('run', { code: 'export default async (env) => { for (;;) await env.db.execute("INSERT INTO t VALUES (1)"); }' }), { say: 'ok' }),
      script('query', call('ask', { sql: counting }), { say: 'ok' }),
      script('short', { say: 'ok' }),
      script('execute', call('run', { code: 'export default async () => {}' }), { say: 'One more sentence, and ', repeat: 1000 }),
    ],
  },
};

describe('an instance that is removed or cleared', () => {
  let cay;
  const cleanups = [];
  before(async () => {
    const dir = agentsDir({ after: (f) => cleanups.push(f) }, { busy: agent });
    cay = await startCay({ args: ['--agents-dir', dir], config: { limits: { run_wall_ms: 60_000, run_cpu_ms: 20_000 } } });
  });
  after(async () => {
    await cay?.stop();
    for (const f of cleanups) f();
  });

  const path = (name, rest = '') => `/v1/agents/busy/${name}${rest}`;
  const remove = async (name, rest) => (await request(cay, path(name, rest), { method: 'DELETE' })).status;
  const folder = (name) => join(cay.dataDir, 'agents', 'busy', name);
  const say = (name, words, headers = { Accept: 'application/json' }) =>
    request(cay, path(name, '/messages'), { method: 'POST', body: JSON.stringify({ text: words }), headers });
  const input = (a) => until(() => a.chunks('t1').find((c) => c.type === 'tool-input-available'), 'the tool call');

  const compiler = () =>
    Number(readdirSync('/proc').find((pid) => {
      try {
        const [, name, parent] = /^\d+ \((.*)\) . (\d+) /.exec(readFileSync(`/proc/${pid}/stat`, 'utf8'));
        return name === 'cay-compile' && Number(parent) === cay.child.pid;
      } catch {
        return false;
      }
    }));

  // How a turn comes into each of its states.
  const states = {
    'before its turn has begun': async (a) => a.chat('t1', [user('u1', 'talk')]),
    'while the model speaks': async (a) => {
      a.chat('t1', [user('u1', 'talk')]);
      await until(() => a.text('t1').length > 30, 'text');
    },
    'while its program is compiled': async (a, t) => {
      const pid = compiler();
      process.kill(pid, 'SIGSTOP');
      t.after(() => process.kill(pid, 'SIGCONT'));
      a.chat('t1', [user('u1', `compile ${Math.random()}`)]);
      await input(a);
      return () => process.kill(pid, 'SIGCONT');
    },
    'while its program runs': async (a) => {
      a.chat('t1', [user('u1', 'run')]);
      await input(a);
      await until(async () => (await request(cay, '/v1/runs?limit=5')).json().runs.some((r) => r.kind === 'execution' && r.status === 'running'), 'the run');
      await sleep(50);
    },
    'while its program writes': async (a) => {
      a.chat('t1', [user('u1', 'write')]);
      await input(a);
      await sleep(100);
    },
    'while a query runs': async (a) => {
      a.chat('t1', [user('u1', 'query')]);
      await input(a);
      await sleep(50);
    },
    'while its state is read': async (a) => {
      a.chat('t1', [user('u1', 'execute')]);
      await input(a);
      for (let i = 0; i < 50; i++) a.send({ type: 'rpc', id: `r${i}`, method: 'add', args: [i] });
    },
  };

  for (const [when, lead] of Object.entries(states)) {
    for (const [word, what] of [['removed', ''], ['cleared', '/messages'], ['reset', '/reset']]) {
      test(`${word} ${when}`, { timeout: 60_000 * slow }, async (t) => {
        const name = `i${Math.random()}`;
        const a = await Raw.ready(cay, name, { type: 'busy' });
        const b = await Raw.ready(cay, name, { type: 'busy' });
        const goOn = await lead(a, t);
        // Behind it one that waits as JSON, one as a stream, one over the socket.
        const waiting = [say(name, 'short'), say(name, 'short', {})];
        a.chat('t2', [user('u2', 'short')]);
        await until(async () => (await request(cay, path(name, '/messages'))).json().messages.filter((m) => m.role === 'user').length === 4, 'the queue');
        const method = word === 'reset' ? 'POST' : 'DELETE';
        assert.equal((await request(cay, path(name, what), { method })).status, 204);
        const [asJson, asStream] = await Promise.all(waiting);
        goOn?.();
        if (what) {
          assert.deepEqual(asJson.json(), { message: null, outcome: 'aborted' });
          assert.match(asStream.body, /"abort"\}\n\ndata: \[DONE\]/);
          if (word === 'cleared') await a.wait((f) => f.type === 'cf_agent_chat_clear');
          assert.equal((await a.done('t1')).outcome, 'aborted');
          assert.equal((await a.done('t2')).outcome, 'aborted');
        } else {
          assert.equal(asJson.status, 502, asJson.body);
          assert.equal(asStream.status, 502, asStream.body);
          for (const raw of [a, b]) await until(() => raw.closed, 'the close');
          assert.equal(a.closed.code, 1012);
          assert.equal((await a.done('t1')).outcome, 'error');
          assert.ok(!existsSync(folder(name)), 'nothing is left of it');
        }
        for (const id of ['t1', 't2']) {
          await b.done(id);
          assert.equal(b.of(id).filter((f) => f.done).length, 1, 'each end is told once');
        }
        // The next one is whole, and has nothing of the last.
        const again = await say(name, 'short');
        assert.equal(again.json().message?.parts.at(-1).text.endsWith('ok'), true, again.body);
        const messages = (await request(cay, path(name, '/messages'))).json().messages;
        if (word === 'reset') assert.equal(messages.filter((m) => m.role === 'user').length, 5, 'what was said stays');
        else assert.deepEqual(messages.map((m) => m.role), ['user', 'assistant']);
        a.close();
        b.close();
        assert.equal(await remove(name), 204);
        assert.ok(!existsSync(folder(name)));
        await until(async () => !(await request(cay, '/v1/runs?limit=20')).json().runs.some((r) => r.status === 'running'), 'the end of its programs');
        assert.ok(!existsSync(folder(name)), 'what ended later made nothing anew');
      });
    }
  }

  /** Requests in one write; the statuses of their answers. */
  async function together(...requests) {
    const text = [...requests, ['GET', '/health', undefined, 'Connection: close\r\n']]
      .map(([method, where, body, more = '']) =>
        `${method} ${where} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n${more}` +
        (body ? `Content-Length: ${body.length}\r\n\r\n${body}` : '\r\n'))
      .join('');
    const { text: got, ended } = await raw(cay, text, { ms: 30_000 * slow });
    assert.equal(ended, 'end', got);
    return statuses(got);
  }
  const message = (name, words) => ['POST', path(name, '/messages'), JSON.stringify({ text: words })];
  const del = (name, rest) => ['DELETE', path(name, rest)];

  test('removals and clears on one connection do as if they came one by one', async () => {
    for (const words of ['talk', 'run', 'query', 'write']) {
      const name = `p${words}`;
      const a = await Raw.ready(cay, name, { type: 'busy' });
      a.chat('t1', [user('u1', words)]);
      await until(() => a.chunks('t1').length > 2, 'the stream');
      assert.deepEqual(await together(del(name), del(name)), [204, 404, 200]);
      await until(() => a.closed, 'the close');
      const b = await Raw.ready(cay, name, { type: 'busy' });
      b.chat('t1', [user('u1', words)]);
      await until(() => b.chunks('t1').length > 2, 'the stream');
      assert.deepEqual(await together(del(name, '/messages'), del(name), del(name, '/messages'), del(name)), [204, 204, 204, 404, 200]);
      await until(() => b.closed, 'the close');
      assert.ok(!existsSync(folder(name)));
    }
    // Each message waits for its answer, so the removal behind it finds nothing to stop.
    assert.deepEqual(
      await together(message('q', 'short'), del('q', '/messages'), message('q', 'short'), del('q'), del('q'), message('q', 'short'), del('q')),
      [200, 204, 200, 204, 404, 200, 204, 200],
    );
  });

  test('a turn that is stopped twice, from two sides', async () => {
    const a = await Raw.ready(cay, 'twice', { type: 'busy' });
    for (const words of ['talk', 'run', 'query']) {
      const id = `t-${words}`;
      a.chat(id, [user(`u-${words}`, words)]);
      await until(() => a.chunks(id).length > 2, 'the stream');
      assert.deepEqual(await together(del('twice', `/turns/${id}`), del('twice', `/turns/${id}`)), [204, 404, 200]);
      a.send({ type: 'cf_agent_chat_request_cancel', id });
      assert.equal((await a.done(id)).outcome, 'aborted');
    }
    assert.equal(a.frames.filter((f) => f.done && f.outcome === 'aborted').length, 3);
    a.close();
  });

  test('frames that come behind a removal find nobody', async () => {
    for (let round = 0; round < 8; round++) {
      const a = await Raw.ready(cay, 'late', { type: 'busy' });
      a.chat('t1', [user('u1', 'talk')]);
      const gone = remove('late');
      for (let i = 0; i < 20; i++) {
        a.send({ type: 'rpc', id: `r${i}`, method: 'add', args: [i] });
        a.send({ type: 'cf_agent_state', state: { i } });
        a.send({ type: 'cf_agent_chat_clear' });
        a.chat(`c${i}`, [user(`u${i}`, 'talk')]);
        a.send({ type: 'cf_agent_stream_resume_request' });
      }
      assert.equal(await gone, 204);
      await until(() => a.closed, 'the close');
    }
    assert.equal((await request(cay, '/health')).status, 200);
    await remove('late');
  });

  const names = async () => (await request(cay, '/v1/agents')).json().agents[0].names;
  const command = (name, rest, body) =>
    request(cay, path(name, rest), { method: 'POST', ...(body ? { body: JSON.stringify(body) } : {}) });

  test('one that is only looked at is no instance, and leaves nothing', { timeout: 30_000 * slow }, async (t) => {
    const dataDir = join(tempDir(t), 'data');
    const other = await startCay({ dataDir, args: ['--agents-dir', agentsDir(t, { busy: agent })] });
    t.after(() => other.stop());
    const looker = await Raw.ready(other, 'looked', { type: 'busy' });
    const user1 = await Raw.ready(other, 'used', { type: 'busy' });
    user1.send({ type: 'rpc', id: 'r', method: 'add', args: [1] });
    await user1.wait((f) => f.type === 'rpc');
    const listed = (await request(other, '/v1/agents')).json().agents[0].names;
    assert.deepEqual(listed, ['used']);
    looker.close?.();
    await other.stop();
    const folders = readdirSync(join(dataDir, 'agents', 'busy'));
    assert.deepEqual(folders, ['used'], 'what nobody used is gone');
  });

  test('databases are put back, and what was said stays', { timeout: 30_000 * slow }, async () => {
    const a = await Raw.ready(cay, 'back', { type: 'busy' });
    await say('back', 'short');
    a.send({ type: 'rpc', id: 'r', method: 'add', args: ['x'] });
    await a.wait((f) => f.type === 'cf_agent_state' && f.state.rows.length === 1);
    assert.equal((await command('back', '/reset')).status, 204);
    await a.wait((f) => f.type === 'cf_agent_state' && f.state.rows.length === 0);
    assert.equal((await request(cay, path('back', '/messages'))).json().messages.length, 2);
    assert.equal((await command('nobody', '/reset')).status, 404);
  });

  test('another name, with everything, unless it is taken or at work', { timeout: 30_000 * slow }, async () => {
    await say('first', 'short');
    await say('taken', 'short');
    assert.equal((await command('first', '/rename', { name: 'taken' })).status, 409);
    assert.equal((await command('first', '/rename', { name: '' })).status, 400);
    assert.equal((await command('first', '/rename', { name: 'a\nb' })).status, 400);
    assert.equal((await command('nobody', '/rename', { name: 'x' })).status, 404);
    assert.equal((await command('first', '/rename', {})).status, 400);
    const a = await Raw.ready(cay, 'first', { type: 'busy' });
    a.chat('t1', [user('u9', 'talk')]);
    await until(() => a.text('t1').length > 30, 'text');
    assert.equal((await command('first', '/rename', { name: 'other name' })).status, 409, 'it has a turn');
    a.send({ type: 'cf_agent_chat_request_cancel', id: 't1' });
    await a.done('t1');
    // Somebody looks at the other name already: that is nobody's conversation yet.
    const looker = await Raw.ready(cay, 'other%20name', { type: 'busy' });
    assert.equal((await command('first', '/rename', { name: 'other name' })).status, 204);
    await until(() => a.closed && looker.closed, 'the close');
    const { messages } = (await request(cay, path('other%20name', '/messages'))).json();
    assert.equal(messages.length, 4);
    assert.ok((await names()).includes('other name') && !(await names()).includes('first'));
    assert.equal((await request(cay, path('first', '/messages'))).json().messages.length, 0);
  });
});

test('a turn can be cancelled by the id of its record, as every job is', async (t) => {
  const cay = await startCay();
  t.after(() => cay.stop());
  const post = request(cay, '/v1/agents/sandbox-agent/job/messages', {
    method: 'POST', headers: { Accept: 'application/json' }, body: JSON.stringify({ text: 'Talk for a while' }),
  });
  const run = await until(async () => (await request(cay, '/v1/runs?kind=chat&limit=1')).json().runs.find((r) => r.status === 'running'), 'the turn');
  assert.equal((await request(cay, `/v1/runs/${run.id}/cancel`, { method: 'POST' })).status, 202);
  assert.equal((await post).json().outcome, 'aborted');
  assert.equal((await request(cay, `/v1/runs/${run.id}`)).json().status, 'cancelled');
  assert.equal((await request(cay, `/v1/runs/${run.id}/cancel`, { method: 'POST' })).status, 409);
});
