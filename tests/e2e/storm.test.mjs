// Random sequences over every operation of openapi.json and of the Vercel wire, on connections that are pipelined, cut
// into pieces, half closed, given up and never read: the server stays up, answers, and ends in order (under a sanitizer
// too).
// CAY_STORM_S sets how long it blows, CAY_STORM_SEED repeats one.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { request, root, slow, sleep, until, withCay } from '../lib/cay.mjs';

const SECONDS = Number(process.env.CAY_STORM_S ?? 6);
const SEED = Number(process.env.CAY_STORM_SEED ?? (Date.now() ^ (process.pid << 8)) >>> 0);
const CONNECTIONS = 12;

/** mulberry32 */
function generator(seed) {
  let a = seed;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** What @vercel/sandbox says; openapi.json is silent about it. */
const VERCEL = [
  ...['v1', 'v2', 'v3'].map((v) => `POST /api/${v}/sandboxes`),
  ...['', '/sessions', '/drives', '/snapshots', '/snapshots/tree', '/{name}', '/snapshots/{snapshot}'].map((p) => `GET /api/v2/sandboxes${p}`),
  ...['/drives/{drive}', '/{name}', '/snapshots/{snapshot}'].map((p) => `DELETE /api/v2/sandboxes${p}`),
  'POST /api/v2/sandboxes/drives/{drive}', 'POST /api/v2/sandboxes/{name}/fork', 'PATCH /api/v2/sandboxes/{name}',
  'GET /api/v1/sandboxes', 'GET /api/v1/sandboxes/snapshots', 'POST /api/v1/sandboxes/{id}/{cmd}/kill', 'POST /api/v2/sandboxes/sessions/{id}/cmd/{cmd}/kill',
  ...['/api/v2/sandboxes/sessions/{id}', '/api/v1/sandboxes/{id}'].flatMap((base) => [
    ...['', '/cmd/{cmd}', '/cmd/{cmd}/logs'].map((p) => `GET ${base}${p}`),
    ...['/cmd', '/cmd', '/cmd', '/interactive', '/fs/mkdir', '/fs/read', '/fs/write', '/stop', '/snapshot', '/extend-timeout', '/network-policy'].map((p) => `POST ${base}${p}`),
  ]),
].map((line) => ({ method: line.split(' ')[0], path: line.split(' ')[1] }));

class Storm {
  constructor(cay, operations, seed) {
    this.cay = cay;
    this.operations = operations;
    this.random = generator(seed);
    this.ids = { sandbox: [], exec: [], snapshot: [], run: [] };
    this.answers = 0;
    this.connections = 0;
  }

  below(n) {
    return Math.floor(this.random() * n);
  }

  one(list) {
    return list[this.below(list.length)];
  }

  code() {
    const n = this.below(5);
    return this.one([
      `export default () => ${n}`,
      `export default async () => { await new Promise((r) => setTimeout(r, ${n * 40})); console.log("late"); }`,
      'export default async () => { await new Promise((r) => setTimeout(r, 1e5)); }',
      'export default () => { for (;;); }',
      'export default () => { const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1)); }',
      'export default (',
      'throw new Error("at load")',
      `export default (env) => env.db.query("SELECT ${n} AS n")`,
      'export default { fetch(request) { return new Response(request.body) } }',
      'export default { fetch() { return new Response(new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(70000)) } })) } }',
      'export default { async fetch(request) { return new Response(String((await request.arrayBuffer()).byteLength)) } }',
    ]);
  }

  program() {
    return {
      code: this.code(),
      limits: { wall_ms: 50 + this.below(300), cpu_ms: 100 + this.below(200), memory_bytes: 64 << 20 },
      env: this.random() < 0.3 ? { db: { $facet: `f${this.below(3)}` } } : {},
      ...(this.random() < 0.5 ? { id: `w${this.below(3)}` } : {}),
      ...(this.random() < 0.2 ? { isolation: 'reset' } : {}),
    };
  }

  body(path) {
    if (this.random() < 0.05) return this.one(['', '{', '[]', 'null', '{"a":1}', '[['.repeat(2000)]);
    const json = (v) => JSON.stringify(v);
    if (path === '/v1/run' || path.startsWith('/v1/workers')) return json(this.program());
    if (path.endsWith('/messages'))
      return json({ text: this.one(['hello', 'Count customers by tier', 'Add a task', 'Talk for a while', 'Run forever', 'Drop the customers table']) });
    if (path.startsWith('/api/')) return this.vercelBody(path);
    if (path === '/v1/code') {
      const sandbox = this.random() < 0.3 ? { sandbox: this.one([...this.ids.sandbox.slice(-3), 'sbx_none']) } : {};
      const keep = this.random() < 0.3 ? { keep: this.random() < 0.5 } : {};
      return json({ ...this.one([{ spec: 'hello world' }, { command: 'echo a; sleep 3', timeout_ms: 1500 }, { command: 'yes | head -c 2000000' }, { spec: '' }, { spec: 'x', repo: 'http://127.0.0.1:9/none' }]), ...sandbox, ...keep });
    }
    if (path === '/execute') return json({ task: this.one(['Create a hello world Python script', 'Fix the failing test', '']), options: this.one([{}, { permission_mode: 'plan' }, { max_turns: 1 }, { timeout_ms: 1000 }, { nonsense: 1 }]) });
    if (path === '/execute/sdk') return json({ prompt: this.one(['What is 2 + 2? Just give me the number.', 'Make a list of things to do', '']), options: this.one([{}, { max_turns: 1 }, { allowed_tools: ['RunCode'] }, { allowed_tools: [5] }]) });
    if (path === '/v1/sandboxes') return json({ timeout_ms: 20000, ...this.one([{}, { files: { '/home/user/a': 'x' } }, { nonsense: 1 }]) });
    if (path.endsWith('/exec'))
      return json({ command: this.one([['sh', '-c', 'echo hello; sleep 0.2; echo bye'], ['cat'], ['sleep', '30'], ['sh', '-c', 'yes | head -c 3000000'], ['nothing']]), detach: this.random() < 0.5, timeout_ms: 500 + this.below(2000) });
    if (path.endsWith('/signal')) return json({ signal: this.one(['TERM', 'KILL', 'HUP', 'NONE']) });
    if (path.endsWith('/resize')) return json({ rows: 10, cols: 40 });
    if (path.endsWith('/extend')) return json({ timeout_ms: 20000 });
    if (path.endsWith('/mkdir')) return json({ path: `/home/user/d${this.below(3)}` });
    if (path.endsWith('/move')) return json({ from: '/home/user/a', to: '/home/user/b' });
    if (path.endsWith('/network')) return json(this.one([{ policy: 'none' }, {}, { allow: ['example.com:443'] }]));
    return 'x'.repeat(this.below(100_000));
  }

  vercelBody(path) {
    const json = (v) => JSON.stringify(v);
    const policy = () => this.one([{ mode: 'deny-all' }, { mode: 'allow-all' }, { allow: ['example.com'] }, { allow: { 'a.example.com': [{ transform: [{ headers: { authorization: 'k' } }] }] } }, { allow: 5 }]);
    if (/^\/api\/v\d\/sandboxes$/.test(path) || path.endsWith('/fork') || /^\/api\/v2\/sandboxes\/n\d$/.test(path))
      return json({
        timeout: 20000,
        ...this.one([{}, { persistent: false }, { networkPolicy: policy() }, { ports: [3000] }, { source: { type: 'snapshot', snapshotId: this.one([...this.ids.snapshot.slice(-2), 'snap_none']) } }, { source: { type: 'git', url: 'https://127.0.0.1:9/none' } }]),
        ...(this.random() < 0.6 && { name: `n${this.below(4)}` }),
      });
    if (path.endsWith('/cmd'))
      return json({ command: 'sh', args: ['-c', this.one(['echo hello; sleep 0.2; echo bye', 'sleep 30', 'yes | head -c 3000000', 'exit 3'])], wait: this.random() < 0.6, logs: this.random() < 0.7, sudo: this.random() < 0.1, ...(this.random() < 0.3 && { timeout: 300 }) });
    if (path.endsWith('/kill')) return json({ signal: this.one([9, 15, 0, 99]) });
    if (path.endsWith('/network-policy')) return json(policy());
    if (path.endsWith('/extend-timeout')) return json({ duration: this.one([1000, 0, 1e15]) });
    if (path.includes('/fs/m') || path.includes('/fs/r')) return json({ path: this.one(['a', '/etc/passwd', '../../x', 'b/c']) });
    if (path.endsWith('/fs/write')) return 'x'.repeat(this.below(100_000));
    return this.one(['', '{}']);
  }

  fill(path) {
    return path.replace(/\{(\w+)\}/g, (_, name) => {
      if (this.random() < 0.05) return this.one(['nothing', '%00', '..', '%ff', 'x'.repeat(300)]);
      if (path.startsWith('/api/')) return this.vercelName(name);
      if (name === 'agent') return this.one(['sandbox-agent', 'todo-agent']);
      if (name === 'name') return `a${this.below(3)}`;
      if (name === 'turn') return `turn_${this.below(3)}`;
      if (name === 'port') return this.one(['80', '8000', '70000']);
      if (name === 'exec') return this.one([...this.ids.exec.slice(-4), 'exec_none']);
      if (path.startsWith('/v1/sandboxes')) return this.one([...this.ids.sandbox.slice(-3), 'sbx_none']);
      if (path.startsWith('/v1/snapshots')) return this.one([...this.ids.snapshot.slice(-3), 'snap_none']);
      if (path.startsWith('/v1/runs')) return this.one([...this.ids.run.slice(-3), 'run_none']);
      return `w${this.below(3)}`;
    });
  }

  vercelName(name) {
    if (name === 'name') return `n${this.below(4)}`;
    if (name === 'cmd') return this.one([...this.ids.exec.slice(-4), 'exec_none']);
    if (name === 'snapshot') return this.one([...this.ids.snapshot.slice(-3), 'snap_none']);
    return this.one([...this.ids.sandbox.slice(-3), 'sbx_none']);
  }

  text(method, path, host, body, headers = {}) {
    const all = { Host: host, ...headers };
    if (body !== undefined && this.random() < 0.2 && body.length) {
      all['Transfer-Encoding'] = 'chunked';
      const at = this.below(body.length) + 1;
      body = [body.slice(0, at), body.slice(at)].filter(Boolean).map((p) => `${Buffer.byteLength(p).toString(16)}\r\n${p}\r\n`).join('') + '0\r\n\r\n';
    } else if (body !== undefined) {
      all['Content-Length'] = String(Buffer.byteLength(body) + (this.random() < 0.02 ? 50 : 0));
    }
    return `${method} ${path} HTTP/1.1\r\n${Object.entries(all).map(([k, v]) => `${k}: ${v}\r\n`).join('')}\r\n${body ?? ''}`;
  }

  request() {
    const kind = this.random();
    if (kind < 0.2) {
      const method = this.one(['GET', 'POST', 'PUT', 'HEAD']);
      return this.text(method, '/', `w${this.below(3)}.localhost`, method === 'POST' ? 'b'.repeat(this.below(200_000)) : undefined);
    }
    if (kind < 0.25)
      return this.text('GET', `/agents/sandbox-agent/a${this.below(3)}`, 'localhost', undefined, {
        Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
      });
    const { method, path } = this.one(this.operations);
    const filled = this.fill(path);
    const query = path.startsWith('/api/') ? this.one(['', '?teamId=t', '?resume=true', '?wait=true', '?name=n1', '?limit=2&cursor=1'])
      : path.includes('/files') || path.endsWith('/tar') ? `?path=${this.one(['/home/user', '/home/user/a', '/tmp', '/', 'x'])}` : '';
    const headers = this.random() < 0.3 ? { Accept: this.one(['text/event-stream', 'application/json']) } : {};
    return this.text(method, filled + query, 'localhost', ['POST', 'PUT', 'PATCH'].includes(method) ? this.body(filled) : undefined, headers);
  }

  learn(text) {
    for (const [, id] of text.matchAll(/"(?:id|sandbox)":"(sbx_\w+)"/g)) this.ids.sandbox.push(id);
    for (const [, id] of text.matchAll(/"id":"(exec_\w+)"/g)) this.ids.exec.push(id);
    for (const [, id] of text.matchAll(/"id":"(snap_\w+)"/g)) this.ids.snapshot.push(id);
    for (const [, id] of text.matchAll(/"id":"(run_\w+)"/g)) this.ids.run.push(id);
    for (const list of Object.values(this.ids)) list.splice(0, Math.max(0, list.length - 8));
  }

  /** One connection, from its first byte to its end. */
  connection() {
    return new Promise((resolve) => {
      this.connections++;
      const bytes = Buffer.from(Array.from({ length: 1 + this.below(8) }, () => this.request()).join(''), 'latin1');
      const socket = connect({ port: this.cay.port, host: '127.0.0.1', allowHalfOpen: true });
      const mode = this.one(['read', 'read', 'half', 'abort', 'unread', 'pieces']);
      let got = '';
      const end = setTimeout(() => socket.destroy(), mode === 'read' ? 700 : this.below(400));
      socket.on('error', () => {});
      socket.on('close', () => {
        clearTimeout(end);
        this.answers += got.split('HTTP/1.1 ').length - 1;
        this.learn(got);
        resolve();
      });
      socket.on('end', () => socket.destroy());
      if (mode === 'unread') socket.pause();
      else socket.setEncoding('latin1').on('data', (d) => { if (got.length < 1e6) got += d; });
      socket.once('connect', async () => {
        if (mode === 'half') socket.end(bytes);
        else if (mode !== 'pieces') socket.write(bytes);
        else
          for (let at = 0; at < bytes.length && !socket.destroyed;) {
            const n = 1 + this.below(this.one([3, 50, 5000, 100000]));
            socket.write(bytes.subarray(at, at + n));
            at += n;
            if (this.random() < 0.05) await sleep(1);
          }
      });
    });
  }
}

test(`${SECONDS} seconds of anything, in any order`, { timeout: (SECONDS + 90) * 1000 * slow }, async (t) => {
  t.diagnostic(`seed ${SEED}`);
  const cay = await withCay(t, { config: { limits: { isolates: 8, drain_timeout_ms: 1000 }, sandboxes: { max: 6 } } });
  const api = (await request(cay, '/openapi.json')).json();
  const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.keys(methods).filter((m) => /^(get|post|put|delete|patch)$/.test(m)).map((m) => ({ method: m.toUpperCase(), path })));
  assert.ok(operations.length > 50);
  const routes = readdirSync(join(root, 'src/front/vercel')).flatMap((name) => [...readFileSync(join(root, 'src/front/vercel', name), 'utf8').matchAll(/vercel_route\(v, "[A-Z,]+", (?:base )?"([^"]+)"/g)]);
  for (const [, end] of routes) assert.ok(VERCEL.some((o) => o.path.endsWith(end)), `the storm leaves ${end} out`);
  const storm = new Storm(cay, [...operations, ...VERCEL], SEED);
  const until_ms = Date.now() + SECONDS * 1000;
  await Promise.all(Array.from({ length: CONNECTIONS }, async () => {
    while (Date.now() < until_ms && cay.isRunning()) await storm.connection();
  }));
  assert.ok(cay.isRunning(), `seed ${SEED}: the server ended\n${cay.stderr().slice(-4000)}`);
  assert.ok(storm.answers > storm.connections / 4, `${storm.answers} answers on ${storm.connections} connections`);
  await until(async () => (await request(cay, '/v1/status')).json().isolates.busy === 0, `seed ${SEED}: rest`, 45_000 * slow);
  const { body, status } = await request(cay, '/v1/run', { method: 'POST', body: '{"code":"export default () => 42"}' });
  assert.equal(status, 200, body);
  assert.equal(JSON.parse(body).result, 42, `seed ${SEED}: ${body}`);
  t.diagnostic(`${storm.answers} answers on ${storm.connections} connections`);
});
