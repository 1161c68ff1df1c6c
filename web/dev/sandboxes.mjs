// Made-up sandboxes for the mock: everything the pages ask for, nothing that runs. A command "prints"
// its own text; a terminal echoes what is typed.
import { createHash, randomBytes } from 'node:crypto';

/**
 * @typedef {import('node:http').IncomingMessage} Request
 * @typedef {import('node:http').ServerResponse} Response
 * @typedef {{ stream: 'stdout' | 'stderr', text: string }} Piece
 * @typedef {{ record: Record<string, unknown>, pieces: Piece[], tty: boolean }} Exec
 * @typedef {{
 *   record: Record<string, any>, execs: Map<string, Exec>, files: Map<string, Buffer>,
 *   dirs: Set<string>, events: unknown[], busy: number,
 * }} Box
 */

const newId = (/** @type {string} */ kind) =>
  `${kind}_${randomBytes(16).toString('hex').slice(0, 26)}`;
const iso = (ms = Date.now()) => new Date(ms).toISOString();
const parent = (/** @type {string} */ path) => path.slice(0, path.lastIndexOf('/')) || '/';

/** @param {Record<string, any>} body @returns {Box} */
function makeBox(body) {
  const now = Date.now();
  const files = new Map([
    ['/work/hello.py', Buffer.from('print("Hello from a sandbox")\n')],
    ['/work/notes/todo.md', Buffer.from('# To do\n\n- measure\n- write it down\n')],
    ['/work/data.bin', randomBytes(3000)],
  ]);
  for (const { path, content, content_base64 } of body.files ?? [])
    files.set(
      path,
      Buffer.from(content ?? content_base64, content === undefined ? 'base64' : 'utf8'),
    );
  return {
    record: {
      id: newId('sbx'),
      name: body.name ?? '',
      status: 'running',
      created_at: iso(now),
      expires_at: iso(now + (body.timeout_s ?? 1800) * 1000),
      stopped_at: null,
      root: body.root ?? '',
      network: { allow: body.network?.allow ?? [], routes: body.network?.routes ?? [] },
      limits: { memory_mb: body.memory_mb ?? 1024, disk_mb: body.disk_mb ?? 512 },
      usage: { memory_bytes: 0, memory_peak_bytes: 0, cpu_ms: 0, pids: 1 },
      metadata: {},
      error: null,
    },
    execs: new Map(),
    files,
    dirs: new Set(['/', '/work', '/work/notes', '/tmp', '/home']),
    events: [
      {
        time: iso(now - 9000),
        host: 'packages.example.org',
        port: 443,
        state: 'ended',
        method: 'CONNECT',
        path: '',
        status: 200,
        bytes_in: 52_000,
        bytes_out: 900,
      },
      {
        time: iso(now - 4000),
        host: 'evil.example',
        port: 443,
        state: 'refused',
        reason: 'not in the allow list',
      },
    ],
    busy: Math.random(),
  };
}

/** A WebSocket just good enough: short frames, both ways. @param {import('node:stream').Duplex} socket */
function serveTty(socket, /** @type {string} */ key) {
  const accept = createHash('sha1')
    .update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
    .digest('base64');
  socket.write(
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
      `Sec-WebSocket-Accept: ${accept}\r\n\r\n`,
  );
  const send = (/** @type {string} */ text, binary = true) => {
    const data = Buffer.from(text);
    const head = data.length < 126 ? [data.length] : [126, data.length >> 8, data.length & 255];
    socket.write(Buffer.concat([Buffer.from([binary ? 0x82 : 0x81, ...head]), data]));
  };
  const prompt = '\x1b[1;32mcay@sandbox\x1b[0m:\x1b[1;34m/work\x1b[0m$ ';
  send(
    `\x1b[38;2;200;120;40mA made-up shell:\x1b[0m it echoes. \x1b[4mexit\x1b[0m ends it.\r\n${prompt}`,
  );
  let line = '';
  let have = Buffer.alloc(0);
  socket.on('error', () => socket.destroy());
  socket.on('data', (chunk) => {
    have = Buffer.concat([have, chunk]);
    while (have.length >= 6) {
      const small = (have[1] ?? 0) & 127;
      const at = small === 126 ? 4 : 2;
      if (have.length < at + 4) return;
      const size = small === 126 ? have.readUInt16BE(2) : small;
      if (have.length < at + 4 + size) return;
      const mask = have.subarray(at, at + 4);
      const data = Buffer.from(
        have.subarray(at + 4, at + 4 + size).map((byte, i) => byte ^ (mask[i % 4] ?? 0)),
      );
      const opcode = (have[0] ?? 0) & 15;
      have = have.subarray(at + 4 + size);
      if (opcode === 8) return void socket.end();
      if (opcode !== 2) continue;
      for (const char of data.toString()) {
        if (char !== '\r') {
          line += char;
          send(char);
        } else if (line === 'exit') {
          send('\r\n');
          send(JSON.stringify({ type: 'exit', status: 'exited', exit_code: 0 }), false);
        } else {
          send(`\r\n${line ? `\x1b[31m${line}\x1b[0m: not really run\r\n` : ''}${prompt}`);
          line = '';
        }
      }
    }
  });
}

export function mockSandboxes() {
  /** @type {Map<string, Box>} */
  const boxes = new Map();
  /** @type {Record<string, unknown>[]} */
  const snapshots = [];
  const add = (/** @type {Record<string, any>} */ body) => {
    const box = makeBox(body);
    boxes.set(box.record.id, box);
    return box;
  };
  add({ name: 'build', timeout_s: 3500 });
  add({
    name: 'a much longer name, of the kind that agents give to what they make',
    memory_mb: 256,
  });
  const done = add({});
  Object.assign(done.record, { status: 'stopped', stopped_at: iso(), expires_at: null });

  const life = setInterval(() => {
    for (const { record, busy } of boxes.values()) {
      if (record.status !== 'running') continue;
      const wave = 0.5 + 0.5 * Math.sin(Date.now() / 3000 + busy * 6);
      record.usage.memory_bytes = Math.round((20 + 60 * busy + 12 * wave) * 1048576);
      record.usage.cpu_ms += Math.round(500 * wave * busy);
      record.usage.pids = 2 + Math.round(4 * wave);
    }
  }, 500);
  life.unref();

  /** @param {Box} box @param {Record<string, any>} body */
  const start = (box, body) => {
    const command = body.command ?? body.argv.join(' ');
    const fails = /false|nosuch/.test(command);
    /** @type {Exec} */
    const exec = {
      tty: body.tty === true,
      pieces: [
        { stream: 'stdout', text: `$ ${command}\nThe mock runs nothing.\n` },
        { stream: 'stderr', text: 'a line of \x1b[31merrors\x1b[0m <b>as it is</b>\n' },
      ],
      record: {
        id: newId('exe'),
        status: body.tty ? 'running' : 'exited',
        command,
        tty: body.tty === true,
        exit_code: body.tty ? null : fails ? 1 : 0,
        signal: null,
        started_at: iso(),
        ended_at: body.tty ? null : iso(Date.now() + 40),
      },
    };
    box.execs.set(String(exec.record.id), exec);
    return exec.record;
  };

  /** @param {Response} res @param {Exec} exec @param {URLSearchParams} query */
  const output = (res, exec, query) => {
    res.writeHead(200, { 'Content-Type': 'text/event-stream' });
    for (const { stream, text } of exec.pieces)
      if (Number(query.get(stream) ?? 0) === 0)
        res.write(`event: ${stream}\ndata: ${JSON.stringify({ offset: 0, data: text })}\n\n`);
    if (exec.record.status !== 'running')
      res.end(`event: exit\ndata: ${JSON.stringify(exec.record)}\n\n`);
  };

  /** @param {Box} box @param {string} path */
  const listing = (box, path) => {
    const entry = (/** @type {string} */ name, /** @type {string} */ kind, size = 0) => ({
      name,
      kind,
      mode: kind === 'dir' ? '0755' : '0644',
      size,
      mtime: iso(),
    });
    const inside = (/** @type {string} */ it) => it !== '/' && parent(it) === path;
    const base = (/** @type {string} */ it) => it.slice(it.lastIndexOf('/') + 1);
    return {
      entries: [
        ...[...box.dirs].filter(inside).map((it) => entry(base(it), 'dir')),
        ...[...box.files]
          .filter(([it]) => inside(it))
          .map(([it, data]) => entry(base(it), 'file', data.length)),
      ],
      more: false,
    };
  };

  return {
    stop: () => clearInterval(life),

    /** @param {Request} req @param {import('node:stream').Duplex} socket */
    upgrade(req, socket) {
      if (!/\/tty$/.test(req.url ?? '')) return void socket.destroy();
      serveTty(socket, String(req.headers['sec-websocket-key']));
    },

    /**
     * @param {Request} req @param {Response} res @param {URL} target
     * @param {(code: number, body: unknown) => void} send
     * @returns {Promise<boolean>} whether there was an answer
     */
    async answer(req, res, target, send) {
      const { pathname, searchParams } = target;
      const method = req.method ?? 'GET';
      const chunks = [];
      for await (const chunk of req) chunks.push(chunk);
      const raw = Buffer.concat(chunks);
      const json = () => JSON.parse(raw.toString() || '{}');
      if (pathname === '/v1/snapshots') return (send(200, { snapshots }), true);
      if (pathname === '/v1/sandboxes' && method === 'POST')
        return (send(201, add(json()).record), true);
      if (pathname === '/v1/sandboxes') {
        const all = [...boxes.values()].map(({ record }) => record).reverse();
        return (send(200, { sandboxes: all }), true);
      }
      const [, id = '', rest = ''] = /^\/v1\/sandboxes\/([^/]+)(\/.*)?$/.exec(pathname) ?? [];
      const box = boxes.get(id);
      if (!box) return false;
      const { record, execs, files, dirs } = box;
      const path = searchParams.get('path') ?? '';
      const [, execId = '', what = ''] = /^\/execs\/([^/]+)(?:\/(\w+))?$/.exec(rest) ?? [];
      const exec = execs.get(execId);
      const key = `${method} ${rest}`;
      if (key === 'GET ') send(200, record);
      else if (key === 'DELETE ') send(204, boxes.delete(id) && null);
      else if (key === 'POST /extend')
        send(200, Object.assign(record, { expires_at: iso(Date.now() + json().timeout_s * 1000) }));
      else if (key === 'POST /pause') send(200, Object.assign(record, { status: 'paused' }));
      else if (key === 'POST /resume') send(200, Object.assign(record, { status: 'running' }));
      else if (key === 'POST /snapshots') {
        const made = {
          id: newId('snp'),
          name: json().name ?? '',
          created_at: iso(),
          size_bytes: 1e6,
        };
        snapshots.push(made);
        send(201, made);
      } else if (key === 'PUT /network') send(200, Object.assign(record, { network: json() }));
      else if (key === 'GET /network/events') send(200, { events: box.events });
      else if (key === 'POST /exec') send(202, start(box, json()));
      else if (key === 'GET /execs')
        send(200, { execs: [...execs.values()].map((it) => it.record) });
      else if (exec && what === 'output') output(res, exec, searchParams);
      else if (exec && what === 'signal') {
        Object.assign(exec.record, { status: 'exited', signal: json().signal, ended_at: iso() });
        send(200, {});
      } else if (key === 'GET /files/list') send(200, listing(box, path));
      else if (key === 'POST /files/mkdir')
        send(201, { path: dirs.add(json().path) && json().path });
      else if (key === 'GET /files' && files.has(path)) {
        res.writeHead(200, {
          'Content-Type': 'application/octet-stream',
          'Content-Disposition': 'attachment',
        });
        res.end(files.get(path));
      } else if (key === 'PUT /files') send(200, { bytes: files.set(path, raw) && raw.length });
      else if (key === 'DELETE /files') {
        for (const one of [...files.keys(), ...dirs])
          if (one === path || one.startsWith(`${path}/`)) (files.delete(one), dirs.delete(one));
        send(204, null);
      } else return false;
      return true;
    },
  };
}
