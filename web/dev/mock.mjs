// A stand-in for the cay server, for work on the pages: the same addresses and the same JSON, with
// made-up programs, load and runs. Given `dir` it also serves a built UI the way cay does, under the
// same Content-Security-Policy.
//
//   npm run mock -- --port 8787 --key secret --dir ../build/web
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { mockSandboxes } from './sandboxes.mjs';

export const contentSecurityPolicy =
  "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
  "connect-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'; " +
  "object-src 'none'";

/** @type {Record<string, string>} */
const mediaTypes = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/**
 * @typedef {import('node:http').IncomingMessage} Request
 * @typedef {import('node:http').ServerResponse} Response
 * @typedef {{ seq: number, time: string, type: string, data: unknown }} MockEvent
 * @typedef {{
 *   id: string, kind: string, status: string, title: string, created_at: string,
 *   finished_at: string | null, duration_ms: number | null,
 *   error: { code: string, message: string } | null, detail: unknown, events: MockEvent[],
 * }} MockRun
 */

const features = [
  ['user namespaces', 'ok', 'unprivileged clone works', ''],
  ['seccomp', 'ok', 'filters with notifications', ''],
  ['landlock', 'ok', 'ABI 2', ''],
  [
    'cgroup v2',
    'degraded',
    'memory is delegated, pids is not',
    'Start cay as a systemd unit with Delegate=yes, so that it may limit the number of processes.',
  ],
  [
    'kvm',
    'missing',
    '/dev/kvm does not exist',
    'Only virtual-machine sandboxes need it: load the module kvm_intel or kvm_amd.',
  ],
].map(([name, status, detail, advice]) => ({ name, status, detail, advice }));

const children = [
  ['cay-compile', 'running', 0, 48.2],
  ['cay-isolate', 'running', 1, 121.5],
  ['cay-egress', 'running', 0, 6.1],
  ['cay-sandbox', 'running', 0, 3.4],
  ['cay-facet', 'backoff', 4, null],
];

const titles = [
  ['isolate', 'How many customers are there in each region?'],
  ['sandbox', 'npm test'],
  [
    'isolate',
    'const rows = await env.db.query("SELECT tier, count(*) FROM customers GROUP BY tier")',
  ],
  ['coder', 'Write a command-line calculator with tests'],
  ['executor', 'git clone, task, diff'],
];

const newId = () => `run_${randomBytes(9).toString('base64url')}`;

/** @param {number} created @param {number} n @returns {MockRun} */
function pastRun(created, n) {
  const [kind = '', title = ''] = titles[n % titles.length] ?? [];
  const status =
    ['done', 'done', 'failed', 'done', 'cancelled', 'done', 'interrupted'][n % 7] ?? '';
  const duration = status === 'interrupted' ? null : 3 + ((n * 7919) % 4000);
  const at = (/** @type {number} */ ms) => new Date(created + ms).toISOString();
  return {
    id: newId(),
    kind,
    status,
    title,
    created_at: at(0),
    finished_at: duration === null ? null : at(duration),
    duration_ms: duration,
    error:
      status === 'failed'
        ? { code: 'limit_time', message: 'The program ran longer than 2000 ms' }
        : null,
    detail: {
      code: 'const rows = await env.db.query(\n  "SELECT region FROM customers",\n);\nreturn rows.length;\n',
      isolation: 'fresh',
      limits: { time_ms: 2000, memory_bytes: 134217728 },
    },
    events: [
      { seq: 1, time: at(0), type: 'started', data: null },
      { seq: 2, time: at(1), type: 'console', data: 'West: 3\nEast: 3\nCentral: 2' },
      {
        seq: 3,
        time: at(2),
        type: 'call',
        data: {
          capability: 'db',
          method: 'query',
          arguments: [
            'SELECT region, count(*) AS n FROM customers GROUP BY region ORDER BY n DESC',
          ],
          rows: 3,
        },
      },
      {
        seq: 4,
        time: at(duration ?? 3),
        type: status === 'done' ? 'result' : status,
        data: status === 'done' ? { value: 8 } : null,
      },
    ],
  };
}

/**
 * @param {{ port?: number, key?: string | null, dir?: string | null, runs?: number }} [options]
 */
export async function startMock({ port = 0, key = null, dir = null, runs: past = 60 } = {}) {
  const started = Date.now();
  const sessions = new Set();
  const sandboxes = mockSandboxes();
  /** @type {Set<Response>} */
  const streams = new Set();
  /** @type {MockRun[]} newest first */
  const runs = [];
  for (let n = 0; n < past; n++) runs.push(pastRun(started - 40_000 - n * n * 30_000, n));
  let requests = 0;
  let connections = 0;
  let url = '';

  /** @param {Request} req */
  const allowed = (req) => {
    if (key === null) return true;
    if (req.headers.authorization === `Bearer ${key}`) return true;
    const cookie = /(?:^|;\s*)cay_session=([^;]*)/.exec(req.headers.cookie ?? '');
    return cookie !== null && sessions.has(cookie[1]);
  };

  const status = () => {
    const uptime = Date.now() - started;
    const wave = Math.round(20 + 14 * Math.sin(uptime / 5000) + 8 * Math.sin(uptime / 1300));
    requests += wave;
    return {
      version: '0.1.0',
      uptime_ms: uptime,
      pid: process.pid,
      listen: [url],
      data_dir: '/home/ada/.local/share/cay',
      model: { provider: 'demo', name: 'demo' },
      features,
      children: children.map(([name, state, restarts, mib], i) => ({
        name,
        pid: state === 'running' ? 4200 + i : null,
        state,
        restarts,
        memory_bytes: typeof mib === 'number' ? Math.round(mib * 1048576) : null,
        uptime_ms: state === 'running' ? uptime - i * 10 : null,
      })),
      memory_bytes: 18_400_000 + (wave % 7) * 65_536,
      connections,
      requests_total: requests,
      require_key: key !== null,
      key: key === null ? null : { id: 'key_1', name: 'laptop' },
    };
  };

  /** @param {Response} res @param {number} code @param {unknown} body */
  const send = (res, code, body, headers = {}) => {
    res.writeHead(code, {
      'Content-Type': 'application/json',
      'Cache-Control': 'no-store',
      ...headers,
    });
    res.end(code === 204 ? undefined : JSON.stringify(body));
  };
  /** @param {Response} res @param {number} code @param {string} name @param {string} message */
  const refuse = (res, code, name, message) =>
    send(res, code, { error: { code: name, message, request_id: randomBytes(6).toString('hex') } });

  /** @param {Response} res */
  const stream = (res) => {
    res.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
    const tell = () => res.write(`event: status\ndata: ${JSON.stringify(status())}\n\n`);
    tell();
    const timer = setInterval(tell, 1000);
    streams.add(res);
    res.on('close', () => {
      clearInterval(timer);
      streams.delete(res);
    });
  };

  /** @param {MockRun} run */
  const finish = (run) => {
    const now = Date.now();
    run.status = 'done';
    run.finished_at = new Date(now).toISOString();
    run.duration_ms = now - Date.parse(run.created_at);
    run.events.push({ seq: 2, time: run.finished_at, type: 'result', data: { value: 42 } });
  };

  /** @param {string} code */
  const start = (code) => {
    const now = new Date().toISOString();
    /** @type {MockRun} */
    const run = {
      id: newId(),
      kind: 'isolate',
      status: 'running',
      title: code,
      created_at: now,
      finished_at: null,
      duration_ms: null,
      error: null,
      detail: { code },
      events: [{ seq: 1, time: now, type: 'started', data: null }],
    };
    runs.unshift(run);
    return run;
  };

  /** @param {Response} res @param {URLSearchParams} query */
  const listRuns = (res, query) => {
    const limit = Math.min(100, Math.max(1, Number(query.get('limit') ?? 20) || 20));
    const cursor = query.get('cursor');
    const from = cursor === null ? 0 : runs.findIndex((run) => run.id === cursor) + 1;
    const page = runs.slice(from, from + limit);
    const more = from + limit < runs.length;
    send(res, 200, {
      runs: page.map(({ detail: _detail, events: _events, ...run }) => run),
      next_cursor: more ? (page.at(-1)?.id ?? null) : null,
    });
  };

  /** @param {Request} req @param {Response} res */
  const session = (req, res) => {
    if (req.method === 'DELETE') {
      sessions.clear();
      return send(res, 204, null, { 'Set-Cookie': 'cay_session=; Path=/; Max-Age=0' });
    }
    if (key !== null && req.headers.authorization !== `Bearer ${key}`)
      return refuse(res, 401, 'unauthorized', 'The key is not known');
    const id = randomBytes(16).toString('hex');
    sessions.add(id);
    const cookie = `cay_session=${id}; Path=/; HttpOnly; SameSite=Strict`;
    return send(res, 204, null, { 'Set-Cookie': cookie });
  };

  /** @param {Request} req */
  const readBody = async (req) => {
    let text = '';
    for await (const chunk of req) {
      text += chunk;
      if (text.length > 1e6) throw new Error('body is too large');
    }
    return JSON.parse(text);
  };

  /** @param {Request} req @param {Response} res @param {URL} target */
  const answerApi = async (req, res, target) => {
    const { pathname, searchParams } = target;
    if (pathname === '/v1/session') return session(req, res);
    if (!allowed(req)) return refuse(res, 401, 'unauthorized', 'This server asks for a key');
    if (pathname === '/v1/status') {
      if (req.headers.accept?.includes('text/event-stream')) return stream(res);
      return send(res, 200, status());
    }
    if (pathname === '/v1/run' && req.method === 'POST') {
      const run = start(String((await readBody(req)).code));
      finish(run);
      return send(res, 200, { id: run.id, status: run.status, result: 42 });
    }
    if (/^\/v1\/(sandboxes|snapshots)(\/|$)/.test(pathname)) {
      const answered = await sandboxes.answer(req, res, target, (code, body) =>
        send(res, code, body),
      );
      return answered ? undefined : refuse(res, 404, 'not_found', 'There is no such sandbox');
    }
    // The chat needs a real cay: CAY_URL=http://127.0.0.1:8787 npm run dev
    if (pathname === '/v1/agents') return send(res, 200, { agents: [] });
    if (pathname === '/v1/runs') return listRuns(res, searchParams);
    const one = /^\/v1\/runs\/([^/]+)$/.exec(pathname);
    const run = one && runs.find(({ id }) => id === decodeURIComponent(one[1] ?? ''));
    if (run) return send(res, 200, run);
    return refuse(res, 404, 'not_found', 'There is no such thing here');
  };

  /** @param {Response} res @param {string} path */
  const answerFile = async (res, path) => {
    if (dir === null) return refuse(res, 404, 'not_found', 'The mock serves no pages');
    const isFile = extname(path) !== '';
    const name = isFile ? normalize(path) : '/index.html';
    try {
      const body = await readFile(join(dir, name));
      res.writeHead(200, {
        'Content-Type': mediaTypes[extname(name)] ?? 'application/octet-stream',
        'Content-Security-Policy': contentSecurityPolicy,
        'X-Content-Type-Options': 'nosniff',
        'Cache-Control': name.startsWith('/assets/')
          ? 'public, max-age=31536000, immutable'
          : 'no-cache',
      });
      res.end(body);
    } catch {
      refuse(res, 404, 'not_found', 'There is no such file');
    }
  };

  const server = createServer(async (req, res) => {
    requests++;
    try {
      const target = new URL(req.url ?? '/', 'http://mock');
      if (target.pathname === '/health') {
        const timestamp = new Date().toISOString();
        send(res, 200, {
          status: 'healthy',
          service: 'sandbox-executor',
          timestamp,
          version: '0.1.0',
        });
      } else if (target.pathname.startsWith('/v1/')) {
        await answerApi(req, res, target);
      } else {
        await answerFile(res, target.pathname);
      }
    } catch (error) {
      if (!res.headersSent) refuse(res, 400, 'bad_request', String(error));
      else res.destroy();
    }
  });
  server.on('upgrade', (req, socket) => sandboxes.upgrade(req, socket));
  server.on('connection', (socket) => {
    connections++;
    socket.on('close', () => connections--);
  });

  // Life on the page: every few seconds a run begins and, a moment later, ends.
  const life = setInterval(() => {
    const running = runs.find((run) => run.status === 'running');
    if (running) finish(running);
    else start(titles[runs.length % titles.length]?.[1] ?? '');
    runs.length = Math.min(runs.length, 500);
  }, 4000);
  life.unref();

  await new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', () => resolve(undefined));
  });
  const address = server.address();
  url = `http://127.0.0.1:${typeof address === 'object' && address ? address.port : port}`;

  return {
    url,
    key,
    async stop() {
      clearInterval(life);
      sandboxes.stop();
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({
    options: { port: { type: 'string' }, key: { type: 'string' }, dir: { type: 'string' } },
  });
  const mock = await startMock({
    port: Number(values.port ?? 0),
    key: values.key ?? null,
    dir: values.dir ?? null,
  });
  console.log(`mock of cay at ${mock.url}`);
}
