// Large bodies, which are read beside the loop.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { isSanitized, procText, raw, request, root, startCay, statuses, until, withCay } from '../lib/cay.mjs';

test('large arguments come to a program as they were sent, whoever else sends some', { timeout: 120_000 }, async (t) => {
  const cay = await startCay();
  t.after(() => cay.stop());
  const run = (body) => request(cay, '/v1/run', { method: 'POST', body });
  const code = 'export default (env, ...args) => args.map((a) => (typeof a === "string" ? [a.length, a.slice(-4)] : [a.length, a.at(-1)]))';
  const texts = ['x"\\\n\u00e4\u{1f600}'.repeat(60_000), Array.from({ length: 80_000 }, (_, i) => ({ i }))];
  const all = await Promise.all(
    [0, 1, 2, 3].map((k) => run(JSON.stringify({ code, args: [texts[k % 2], `end${k}`] }))),
  );
  all.forEach((got, k) => {
    assert.equal(got.status, 200, got.body.slice(0, 300));
    const sent = texts[k % 2];
    const last = typeof sent === 'string' ? sent.slice(-4) : sent.at(-1);
    assert.deepEqual(got.json().result, [[sent.length, last], [4, `end${k}`]]);
  });
  const cut = await run(JSON.stringify({ code, args: [texts[0]] }).slice(0, -1));
  assert.deepEqual([cut.status, cut.json().error.code], [400, 'bad_request']);
  const many = await run(`{"code":"x","args":[${'1,'.repeat(1_000_000)}1]}`);
  assert.deepEqual([many.status, many.json().error.code], [413, 'too_large']);
  const unknown = await run(JSON.stringify({ code, arg: texts }));
  assert.match(unknown.json().error.message, /did you mean "args"/);
});

test('who leaves while a large body is read takes nothing along', { timeout: 120_000 }, async (t) => {
  const cay = await startCay();
  t.after(() => cay.stop());
  const body = JSON.stringify({ code: 'export default () => 1', args: [Array.from({ length: 200_000 }, (_, i) => i)] });
  const head = `POST /v1/run HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${body.length}\r\n\r\n`;
  await Promise.all(
    Array.from({ length: 12 }, () => new Promise((resolve) => {
      const socket = connect(cay.port, '127.0.0.1', () => socket.write(head + body, () => socket.destroy()));
      socket.on('error', () => {}).on('close', resolve);
    })),
  );
  let got;
  await until(async () => (got = await request(cay, '/v1/run', { method: 'POST', body })).status !== 429, 'there is room');
  assert.equal(got.status, 200, got.body.slice(0, 300));
});

// It goes into the ledger in pieces, over many turns: the log of the file grows meanwhile.
test('who leaves while a large task or worker is written has it all the same', { timeout: 120_000 }, async (t) => {
  let cay;
  const code = `export default () => 1 // ${'x'.repeat(1_500_000)}`;
  const written = () => statSync(`${cay.dataDir}/ledger.db-wal`).size;
  const leave = async (method, path, body) => {
    let over = false; // the log began anew, and did not grow
    const end = () => (over = true);
    const socket = connect(cay.port, '127.0.0.1').on('error', () => {}).on('close', end).on('data', end);
    const before = written();
    socket.write(`${method} ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    while (!over && written() - before < 300_000) await new Promise(setImmediate);
    socket.resetAndDestroy(); // one who only shuts his side is answered
  };
  const done = async () => (await request(cay, '/v1/tasks')).json().tasks.filter((task) => task.state === 'done').length;
  const worker = (i) => request(cay, `/v1/workers/left${i}`);
  for (let i = 0; i < 3; i++) {
    cay = await withCay(t); // in which nothing that was deleted still makes the log grow
    await leave('PUT', `/v1/workers/left${i}`, JSON.stringify({ code }));
    await until(async () => (await worker(i)).status === 200, 'the worker is there');
    assert.equal((await worker(i)).json().code.code, code);
    await leave('POST', '/v1/tasks', JSON.stringify({ type: 'run', input: { code } }));
    await until(async () => (await done()) === 1, 'the task is done');
  }
});

const padded = (body) => ' '.repeat(200_000) + body;

test('a large body is answered as a small one is, whatever it is for', { timeout: 120_000 }, async (t) => {
  const cay = await withCay(t);
  const run = { code: 'export default (env, x) => x', args: [7] };
  const bodies = [
    ['POST', '/v1/run', run],
    ['POST', '/v1/run', { ...run, unknown: 1 }],
    ['PUT', '/v1/workers/w', { code: 'export default () => 1' }],
    ['PUT', '/v1/workers/w', { code: 1 }],
    ['POST', '/v1/tasks', { type: 'run', input: run }],
    ['POST', '/v1/tasks', { type: 'none', input: {} }],
    ['POST', '/v1/keys', { name: 'k', scope: 'none' }],
    ['POST', '/v1/sandboxes', { unknown: 1 }],
    ['POST', '/v1/sandboxes/none/exec', { argv: ['true'] }],
    ['POST', '/v1/code', { spec: 1 }],
    ['POST', '/execute', { task: 1 }],
    ['POST', '/execute/sdk', { prompt: 1 }],
    ['POST', '/v1/agents/none/one/messages', { text: 'x' }],
    ['POST', '/v1/agents/sandbox-agent/one/messages', { unknown: 1 }],
    ['POST', '/v1/agents/sandbox-agent/one/rename', { name: '' }],
    ['POST', '/api/v2/sandboxes', { name: '..' }],
  ];
  const brief = (got) => [got.status, /^\{/.test(got.body) && (got.json().error?.message ?? Object.keys(got.json()).sort())];
  for (const [method, path, body] of bodies)
    for (const text of [JSON.stringify(body), `${JSON.stringify(body)}}`, '[]']) {
      const small = await request(cay, path, { method, body: text });
      const large = await request(cay, path, { method, body: padded(text) });
      const message = `${method} ${path} ${text}`;
      assert.ok(small.status < 500 && large.status < 500, message);
      // The place of an error in the text is another one, with the padding before it.
      const plain = (b) => JSON.stringify(b).replace(/column \d+/, 'column');
      assert.equal(plain(brief(large)), plain(brief(small)), message);
    }
});

test('requests behind a large body on one connection are answered in their order', { timeout: 120_000 }, async (t) => {
  const cay = await withCay(t);
  const send = (method, path, body = '') => `${method} ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
  const large = padded(JSON.stringify({ code: 'export default () => 1' }));
  const all = [
    send('PUT', '/v1/workers/first', large),
    send('GET', '/v1/workers/first'),
    send('POST', '/v1/run', `${large}{`),
    send('DELETE', '/v1/workers/first'),
    send('PUT', '/v1/workers/second', large),
    send('GET', '/v1/workers/first'),
    send('GET', '/v1/workers/second'),
  ].join('');
  const expected = [200, 200, 400, 204, 200, 404, 200];
  const got = await raw(cay, all, { ms: 30_000, isDone: (text) => statuses(text).length >= expected.length });
  assert.deepEqual(statuses(got.text), expected, got.text.slice(0, 2000));
  // One who shuts his side after it still gets his answer.
  const shut = await raw(cay, send('PUT', '/v1/workers/third', large), { ms: 30_000, halfClose: true });
  assert.deepEqual(statuses(shut.text), [200], shut.text);
});

test('the same large task is taken once, and another under its name refused', { timeout: 120_000 }, async (t) => {
  const cay = await withCay(t);
  const submit = (body) => request(cay, '/v1/tasks', { method: 'POST', body, headers: { 'Idempotency-Key': 'one' } });
  const body = padded(JSON.stringify({ type: 'run', input: { code: 'export default () => 1' } }));
  const [first, second, other] = [await submit(body), await submit(body), await submit(` ${body}`)];
  assert.deepEqual([first.status, second.status, second.headers['idempotent-replayed']], [202, 202, 'true']);
  assert.equal(second.json().id, first.json().id);
  assert.equal(other.status, 409, other.body);
});

test('a storm of large bodies is answered or told to come again, and ends with the server', { timeout: 240_000 }, async (t) => {
  const cay = await withCay(t);
  const body = JSON.stringify({ code: 'export default () => 1', env: { v: Array.from({ length: 40_000 }, (_, i) => ({ i })) } });
  const put = (i) => request(cay, `/v1/workers/w${i % 4}`, { method: 'PUT', body });
  const all = await Promise.all(Array.from({ length: 100 }, (_, i) => put(i)));
  for (const got of all) assert.ok(got.status === 200 || (got.status === 429 && got.headers['retry-after']), got.body.slice(0, 300));
  assert.ok(all.some((got) => got.status === 200));
  assert.equal((await put(0)).status, 200); // there is room again
  const late = Promise.allSettled(Array.from({ length: 12 }, (_, i) => put(i)));
  await until(async () => Number(/^cay_http_requests (\d+)$/m.exec((await request(cay, '/metrics')).body)[1]) > 1, 'some are there');
  await cay.stop();
  for (const { value } of await late) assert.ok(!value || [200, 429, 503].includes(value.status), value?.body);
});

/** A socket of an agent: what it heard, as objects. */
async function open(t, cay, name) {
  const ws = new WebSocket(`ws://127.0.0.1:${cay.port}/agents/sandbox-agent/${name}`);
  const heard = [];
  ws.addEventListener('message', (m) => heard.push(JSON.parse(m.data)));
  await new Promise((resolve, reject) => {
    ws.addEventListener('open', resolve);
    ws.addEventListener('error', reject);
  });
  t.after(() => ws.close());
  return { ws, heard, say: (frame) => ws.send(JSON.stringify(frame)) };
}

test('frames behind a large one are handled after it, in their order', { timeout: 120_000 }, async (t) => {
  const cay = await withCay(t);
  const { heard, say, ws } = await open(t, cay, 'order');
  const large = Array.from({ length: 60_000 }, (_, i) => ({ i }));
  const ids = Array.from({ length: 24 }, (_, i) => `${i}`);
  for (const id of ids) say({ type: 'rpc', id, method: 'none', args: Number(id) % 3 === 0 ? large : [] });
  ws.send(`{"type":"rpc","id":"broken",${' '.repeat(200_000)}`);
  say({ type: 'rpc', id: 'last', method: 'none', args: [] });
  const answers = () => heard.filter((f) => f.type === 'rpc').map((f) => f.id);
  await until(() => answers().includes('last'), 'the last answer');
  assert.deepEqual(answers(), [...ids, 'last']);
});

test('a large state is told to others, and one too large refused', { timeout: 120_000 }, async (t) => {
  const cay = await withCay(t);
  const [one, other] = [await open(t, cay, 'state'), await open(t, cay, 'state')];
  // What a new agent's databases say takes the place of what was set before it is known.
  for (const { heard } of [one, other]) await until(() => heard.some((f) => f.type === 'cf_agent_state'), 'the first state');
  const state = { text: 'x\u0000\u00e4'.repeat(60_000) };
  one.say({ type: 'cf_agent_state', state });
  await until(() => other.heard.some((f) => f.type === 'cf_agent_state' && f.state.text === state.text), 'the state');
  one.say({ type: 'cf_agent_state', state: { text: 'x'.repeat(2_000_000) } });
  await until(() => one.heard.some((f) => f.type === 'cf_agent_state_error' && /exceeds/.test(f.error)), 'the refusal');
  one.say({ type: 'cf_agent_state', state: [...Array(100_000).keys()] });
  await until(() => one.heard.some((f) => f.type === 'cf_agent_state_error' && /object/.test(f.error)), 'the refusal');
});

test('a turn that a large message asked for begins also if who asked has gone', { timeout: 120_000 }, async (t) => {
  const cay = await withCay(t);
  const { say, ws } = await open(t, cay, 'left');
  const text = 'hello '.repeat(60_000);
  const body = JSON.stringify({ messages: [{ id: 'm1', role: 'user', parts: [{ type: 'text', text }] }] });
  say({ type: 'cf_agent_use_chat_request', id: 't1', init: { method: 'POST', body } });
  ws.close();
  const messages = async () => (await request(cay, '/v1/agents/sandbox-agent/left/messages')).json().messages;
  await until(async () => (await messages()).some((m) => m.role === 'assistant'), 'the answer');
  assert.equal((await messages())[0].parts[0].text, text);
});

test('sockets that send large frames end with the server, and one that breaks takes nothing along', { timeout: 120_000 }, async (t) => {
  const cay = await withCay(t);
  const large = JSON.stringify({ type: 'rpc', id: 'x', method: 'none', args: Array.from({ length: 200_000 }, (_, i) => i) });
  for (let i = 0; i < 4; i++) {
    // A frame of a client with its mask, and the connection cut behind it.
    const bytes = Buffer.from(large);
    const head = Buffer.alloc(14);
    head.set([0x81, 0xff]);
    head.writeBigUInt64BE(BigInt(bytes.length), 2);
    const upgrade = `GET /agents/sandbox-agent/cut HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${Buffer.alloc(16).toString('base64')}\r\n\r\n`;
    await new Promise((resolve) => {
      const socket = connect(cay.port, '127.0.0.1', () => socket.write(Buffer.concat([Buffer.from(upgrade), head, bytes]), () => socket.destroy()));
      socket.on('error', () => {}).on('close', resolve);
    });
  }
  const sockets = await Promise.all(Array.from({ length: 6 }, (_, i) => open(t, cay, `end${i}`)));
  for (const { ws } of sockets) ws.send(large);
  for (const { ws } of sockets) ws.send(large);
  await until(() => sockets.some((s) => s.heard.some((f) => f.type === 'rpc')), 'an answer');
  await cay.stop();
});

test('a large env comes to a program as it was sent, in its order, whatever the program runs in', { timeout: 120_000 }, async (t) => {
  const cay = await withCay(t);
  const code = 'export default (env) => [Object.keys(env).join(), JSON.stringify(env.b).length, env.many?.k999 ?? env.k999, typeof env.db?.query, env.n]';
  const many = Object.fromEntries(Array.from({ length: 20_000 }, (_, i) => [`k${i}`, i]));
  const env = { a: 'x"\\\n\u00e4\u0000'.repeat(40_000), db: { $facet: 'large' }, b: [{ deep: [[[]]] }, many], other: { $facet: 'large' }, n: null, many };
  const expected = ['a,db,b,other,n,many', JSON.stringify(env.b).length, 999, 'function', null];
  const run = async (more) => (await request(cay, '/v1/run', { method: 'POST', body: JSON.stringify({ code, env, ...more }) })).json();
  for (const more of [{}, { isolation: 'reset' }, { isolation: 'reset' }, { id: 'warm' }, { id: 'warm' }])
    assert.deepEqual((await run(more)).result, expected, JSON.stringify(more));
  for (const more of [{ isolation: 'reset' }, { id: 'warm' }])
    assert.equal((await run({ ...more, env: { ...env, n: 2 } })).result[4], 2); // another env is another program
  const wide = Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`db${i}`, { $facet: 'large' }]));
  assert.match((await run({ env: { ...env, ...wide } })).error.message, /at most 8 facets and workers/);
  assert.match((await run({ env: [env] })).error.message, /"env" must be an object/);
});

test('a large worker is loaded once for all who call it, and is replaced and deleted meanwhile', { timeout: 240_000 }, async (t) => {
  const cay = await withCay(t);
  const put = (n) => request(cay, '/v1/workers/big', {
    method: 'PUT',
    body: JSON.stringify({ code: 'export default { fetch: (req, env) => new Response(`${env.n} ${env.rows.length}`) }', env: { n, rows: Array.from({ length: 60_000 }, (_, i) => ({ i })) } }),
  });
  const get = () => request(cay, '/', { headers: { Host: `big.localhost:${cay.port}` } });
  assert.equal((await put(0)).status, 200);
  const shown = (await request(cay, '/v1/workers/big')).json();
  assert.deepEqual([shown.id, shown.host, shown.warm, shown.code.env.n, shown.code.env.rows.at(-1).i], ['big', 'big', false, 0, 59_999]);
  const all = await Promise.all(Array.from({ length: 8 }, get));
  assert.deepEqual(all.map((got) => got.body), Array(8).fill('0 60000'));
  for (let n = 1; n <= 5; n++) {
    assert.equal((await put(n)).status, 200);
    const early = Promise.all(Array.from({ length: 4 }, get));
    if (n % 2) {
      // Put again while the last one is read: who called before gets this one or that one, who calls after gets this one.
      assert.equal((await put(n + 100)).status, 200);
      assert.equal((await get()).body, `${n + 100} 60000`);
      for (const got of await early) assert.match(got.body, new RegExp(`^(${n}|${n + 100}) 60000$|stopped|replaced|deleted|again|ended`), got.body);
    } else {
      assert.equal((await request(cay, '/v1/workers/big', { method: 'DELETE' })).status, 204);
      assert.equal((await get()).status, 404);
      await early; // each is answered
    }
  }
});

test('large tasks run, are cancelled while they are read, and are tried again by the next server', { timeout: 240_000 }, async (t) => {
  const first = await startCay();
  let cay = first;
  const args = [Array.from({ length: 150_000 }, (_, i) => i)];
  const submit = async (code) => {
    const got = await request(cay, '/v1/tasks', { method: 'POST', body: JSON.stringify({ type: 'run', input: { code, args } }) });
    assert.equal(got.status, 202, got.body);
    return got.json().id;
  };
  const task = async (id) => (await request(cay, `/v1/tasks/${id}`)).json();
  const ended = (id) => until(async () => /done|failed|cancelled/.test((await task(id)).state) && task(id), 'the end');
  const good = await Promise.all(Array.from({ length: 6 }, () => submit('export default (env, list) => list.length')));
  for (const id of good) {
    const end = await ended(id);
    assert.deepEqual([end.state, end.result.result], ['done', 150_000], JSON.stringify(end).slice(0, 500));
  }
  assert.equal((await request(cay, '/v1/tasks', { method: 'POST', body: JSON.stringify({ type: 'run', input: { code: 1, args } }) })).status, 400);
  const stopped = await Promise.all(Array.from({ length: 6 }, () => submit('export default () => new Promise((r) => setTimeout(r, 1e6))')));
  for (const id of stopped) await request(cay, `/v1/tasks/${id}/cancel`, { method: 'POST' });
  for (const id of stopped) assert.equal((await ended(id)).state, 'cancelled');
  const late = await Promise.all(Array.from({ length: 6 }, () => submit('export default (env, list) => list.at(-1)')));
  await first.halt();
  cay = await startCay({ dataDir: first.dataDir });
  t.after(() => cay.stop().finally(first.clean));
  for (const id of late) {
    const end = await ended(id);
    assert.deepEqual([end.state, end.result.result], ['done', 149_999], JSON.stringify(end).slice(0, 500));
  }
});

test('what nobody needs a key for takes no room from those who have one', { timeout: 120_000 }, async (t) => {
  const cay = await withCay(t, { config: { require_key: true } });
  const body = `[${'1,'.repeat(200_000)}1]`;
  for (const [method, path, status] of [['DELETE', '/v1/session', 204], ['GET', '/health', 200]]) {
    // More than are read at a time, of all keys together.
    const ask = () => request(cay, path, { method, body, headers: { 'Content-Length': body.length } });
    const all = await Promise.all(Array.from({ length: 90 }, ask));
    assert.deepEqual([...new Set(all.map((got) => got.status))], [status], `${method} ${path}`);
  }
});

test('a request that waits for its answer does not keep what was made of its body', { timeout: 120_000 }, async (t) => {
  const model = createServer(() => {}).listen(0, '127.0.0.1'); // takes what it is asked, and never answers
  await once(model, 'listening');
  const cay = await withCay(t, { env: { ANTHROPIC_API_KEY: 'sk-ant-x', ANTHROPIC_BASE_URL: `http://127.0.0.1:${model.address().port}` } });
  t.after(() => model.close().closeAllConnections());
  let asked = 0;
  model.on('request', () => asked++);
  const memory = () => Number(/^VmRSS:\s+(\d+) kB$/m.exec(procText(cay.pid, 'status'))[1]) / 1024;
  const body = JSON.stringify({ text: 'x', more: Array.from({ length: 300_000 }, (_, i) => i % 10) });
  const waiting = [];
  const post = async (i) => {
    const path = `/v1/agents/sandbox-agent/wait${i}/messages`;
    const socket = connect(cay.port, '127.0.0.1');
    t.after(() => socket.destroy());
    socket.on('error', () => {}).on('data', (text) => waiting.push(`${text}`));
    socket.write(`POST ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    await until(() => asked > i, `the model is asked: ${waiting}`);
  };
  for (let i = 0; i < 4; i++) await post(i); // what it keeps of a first few, and of threads
  const before = memory();
  for (let i = 4; i < 16; i++) await post(i);
  const grown = memory() - before;
  if (!isSanitized) assert.ok(grown < 48, `12 requests that wait take ${grown} MiB`); // a tree has 12 MiB
});

test('a large answer comes whole to one who reads slowly, and goes with one who leaves', { timeout: 120_000 }, async (t) => {
  const cay = await withCay(t);
  const code = `export default () => 1 // ${'x"\\\u00e4'.repeat(400_000)}`;
  assert.equal((await request(cay, '/v1/workers/w', { method: 'PUT', body: JSON.stringify({ code }) })).status, 200);
  const ask = 'GET /v1/workers/w HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n';
  for (let i = 0; i < 3; i++)
    await new Promise((resolve) => {
      const socket = connect(cay.port, '127.0.0.1', () => socket.write(ask)).on('error', () => {}).on('close', resolve);
      socket.once('data', () => socket.destroy());
    });
  const pieces = [];
  const socket = connect(cay.port, '127.0.0.1', () => socket.write(ask));
  for await (const piece of socket) {
    pieces.push(piece);
    if (pieces.length % 8 === 0) await new Promise(setImmediate);
  }
  const text = Buffer.concat(pieces).toString();
  assert.equal(JSON.parse(text.slice(text.indexOf('\r\n\r\n') + 4)).code.code, code);
});

/** What the kernel has of a connection: sent and not acknowledged, or come and not read. */
const queued = (from, to) => {
  const hex = (port) => `0100007F:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const line = readFileSync('/proc/net/tcp', 'utf8').split('\n').find((l) => l.includes(`${hex(from)} ${hex(to)}`)) ?? '';
  const [, tx, rx] = / ([0-9A-F]{8}):([0-9A-F]{8}) /.exec(line) ?? [null, '0', '0'];
  return { tx: parseInt(tx, 16), rx: parseInt(rx, 16) };
};

/** So many clients ask for an answer of about so many bytes and read nothing of it. */
async function unread(t, bytes, clients) {
  const cay = await withCay(t, { config: { limits: { run_module_bytes: 16 << 20, body_bytes: 33 << 20 } } });
  const memory = () => Number(/^VmRSS:\s+(\d+) kB$/m.exec(procText(cay.pid, 'status'))[1]) * 1024;
  const code = `export default () => 1 // ${'x'.repeat(bytes)}`;
  assert.equal((await request(cay, '/v1/workers/w', { method: 'PUT', body: JSON.stringify({ code }) })).status, 200);
  const whole = (await request(cay, '/v1/workers/w')).body.length;
  const before = memory();
  const sockets = [];
  let taken = 0;
  for (let i = 0; i < clients; i++) {
    const socket = connect(cay.port, '127.0.0.1', () => socket.pause().write('GET /v1/workers/w HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'));
    sockets.push(socket);
    await once(socket, 'connect');
    await until(() => queued(socket.localPort, cay.port).rx > 0, 'the answer begins');
    await request(cay, '/healthz'); // in a later turn of the loop
    taken += queued(socket.localPort, cay.port).rx + queued(cay.port, socket.localPort).tx;
  }
  const grown = memory() - before;
  for (const socket of sockets) socket.destroy();
  return { grown, left: clients * whole - taken, taken };
}

test('an answer that the kernel has most of is not kept whole', { timeout: 120_000 }, async (t) => {
  const { left, taken } = await unread(t, 12_000_000, 1);
  if (isSanitized) return t.skip("a sanitizer's memory says nothing of ours");
  if (left < 1_000_000) return t.skip('the kernel takes nearly all of the answer');
  const { grown, left: unsent } = await unread(t, taken + 150_000, 24);
  assert.ok(grown < 4 * Math.max(unsent, 0) + (16 << 20), `${grown >> 20} MiB for ${unsent >> 20} that are not sent`);
});

test('large files come to a sandbox as they were sent, and large output back', { timeout: 120_000 }, async (t) => {
  const cay = await withCay(t);
  const bytes = Buffer.from(Array.from({ length: 700_001 }, (_, i) => (i * 7) % 256));
  const create = (files) => request(cay, '/v1/sandboxes', { method: 'POST', body: JSON.stringify({ files }) });
  const base64 = bytes.toString('base64');
  const made = await create([{ path: 'a', content_base64: base64 }, { path: 'b', content: '\u00e4\0'.repeat(300_000) }, { path: 'c', content_base64: '' }]);
  assert.equal(made.status, 201, made.body);
  const box = `/v1/sandboxes/${made.json().id}`;
  const read = async (path) => (await fetch(`http://127.0.0.1:${cay.port}${box}/files?path=/work/${path}`)).arrayBuffer().then(Buffer.from);
  assert.ok((await read('a')).equals(bytes));
  assert.ok((await read('b')).equals(Buffer.from('\u00e4\0'.repeat(300_000))));
  assert.equal((await read('c')).length, 0);
  for (const wrong of [`${base64}!===`, base64.slice(0, -1), '?'])
    assert.match((await create([{ path: 'a', content_base64: wrong }])).body, /files\[0\]: \\"content_base64\\" is no base64/);
  assert.match((await create([{ path: 'a', content: 'x', content_base64: base64 }])).body, /either/);
  // Each byte is six in JSON: the answer is made beside the loop.
  const exec = (command) => request(cay, `${box}/exec`, { method: 'POST', body: JSON.stringify({ command }) });
  const both = 'head -c 900000 /dev/zero; yes "" | head -c 400000 >&2';
  for (const got of await Promise.all([exec(both), exec(both), exec('head -c 3000000 /dev/zero')])) {
    const { stdout, stderr, truncated, exit_code: code } = got.json();
    assert.deepEqual([stdout, stderr, truncated ?? false, code], truncated ? ['\0'.repeat(1 << 20), '', true, 0] : ['\0'.repeat(900_000), '\n'.repeat(400_000), false, 0]);
  }
  const body = JSON.stringify({ command: both });
  const socket = connect(cay.port, '127.0.0.1', () => socket.write(`POST ${box}/exec HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${body.length}\r\n\r\n${body}`));
  socket.once('data', () => socket.destroy()); // in the middle of the answer
  await once(socket, 'close');
  assert.equal((await exec('echo hi')).json().stdout, 'hi\n');
});

/** What is said to a body of that length, of which only the head is sent. */
async function refusal(cay, method, path, length) {
  const { text } = await raw(cay, `${method} ${path} HTTP/1.1\r\nHost: 127.0.0.1:${cay.port}\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n{`, { isDone: (got) => got.includes('"message"') });
  assert.deepEqual(statuses(text), [413], `${path}: ${text}`);
  return JSON.parse(text.slice(text.indexOf('\r\n\r\n') + 4)).error.message;
}

test('a body that is too large is told the limit, and which setting it is', { timeout: 60_000 }, async (t) => {
  const manual = readFileSync(join(root, 'man/cay.json.5.scd'), 'utf8').replace(/\s+/g, ' ');
  const [, usual, own] = /\*body_bytes\* \((\d+): ([^)]*)\)/.exec(manual);
  const ends = [['PUT', '/v1/workers/w'], ['POST', '/v1/run'], ['POST', '/v1/agents/sandbox-agent/x/messages']];
  const cay = await startCay();
  t.after(() => cay.stop());
  for (const [method, path] of ends)
    assert.equal(await refusal(cay, method, path, Number(usual) + 1), `the body exceeds ${usual} bytes (limits.body_bytes in cay.json)`);
  const most = await request(cay, '/v1/run', { method: 'POST', body: '{"code":"export default () => 42"}'.padEnd(Number(usual)) });
  assert.deepEqual([most.status, most.json().result], [200, 42], most.body);
  // Endpoints with a bound of their own: the manual has each, and the answer does not name the setting.
  const bounds = own.replace(/.*instead: /, '').split(', ').map((one) => /^(.*) (\d+)$/.exec(one));
  assert.equal(bounds.length, 5);
  for (const [, paths, bytes] of bounds)
    for (const path of paths.split(' and '))
      assert.equal(await refusal(cay, 'POST', path, Number(bytes) + 1), `the body exceeds ${bytes} bytes (the most that this endpoint takes)`, path);
  const small = await startCay({ config: { limits: { body_bytes: 2000 } } });
  t.after(() => small.stop());
  for (const [method, path] of ends) assert.match(await refusal(small, method, path, 2001), /exceeds 2000 bytes \(limits\.body_bytes in cay\.json\)/, path);
});
