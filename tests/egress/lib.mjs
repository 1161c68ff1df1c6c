// What the tests of the way out share: the real program behind a front for tests, certificates made for the occasion,
// servers on the loopback, and a client that sends exactly the bytes it is told to.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import readline from 'node:readline';

const { CAY_EGRESS, CAY_EGRESS_CLI } = process.env;
assert.ok(CAY_EGRESS && CAY_EGRESS_CLI, 'CAY_EGRESS and CAY_EGRESS_CLI name the programs');

export function makeCertificate(altName) {
  const dir = mkdtempSync(join(tmpdir(), 'cay-egress-'));
  execFileSync('openssl', [
    'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', '/CN=test',
    '-addext', `subjectAltName=${altName}`, '-keyout', join(dir, 'key.pem'), '-out', join(dir, 'cert.pem'),
  ], { stdio: 'ignore' });
  return {
    key: readFileSync(join(dir, 'key.pem')),
    cert: readFileSync(join(dir, 'cert.pem')),
    file: join(dir, 'cert.pem'),
    remove: () => rmSync(dir, { recursive: true }),
  };
}

/** The program and its front. Every wait ends: the test runner has a limit. */
export async function startEgress(t, config = {}) {
  const child = spawn(CAY_EGRESS_CLI, { stdio: ['pipe', 'pipe', 'pipe'], env: { PATH: process.env.PATH, CAY_EGRESS } });
  const emitter = new EventEmitter();
  const seen = [];
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text) => (stderr += text));
  child.stdin.on('error', () => {});
  readline.createInterface({ input: child.stdout }).on('line', (line) => {
    seen.push(JSON.parse(line));
    emitter.emit('line');
  });
  emitter.setMaxListeners(100);
  let n = 0;
  const self = {
    seen,
    send: (command) => child.stdin.write(`${JSON.stringify(command)}\n`),
    /** The first line, from number `from` on, that fits. */
    async wait(fits, from = 0) {
      for (;;) {
        const found = seen.slice(from).find(fits);
        if (found) return found;
        await once(emitter, 'line');
      }
    },
    async ask(command) {
      n += 1;
      self.send({ ...command, n });
      const answer = await self.wait((l) => l.n === n && (l.type === 'done' || l.type === 'failed'));
      return answer;
    },
    async ok(command) {
      const answer = await self.ask(command);
      assert.equal(answer.type, 'done', JSON.stringify(answer));
    },
    /** The port of a new sandbox's listener. */
    async open(id, policy = {}, rest = {}) {
      await self.ok({ cmd: 'open', id, policy, ...rest });
      return (await self.wait((l) => l.type === 'listening' && l.id === id)).port;
    },
    async pid() {
      const from = seen.length;
      self.send({ cmd: 'pid' });
      return (await self.wait((l) => l.type === 'pid', from)).pid;
    },
    event: (fits, from = 0) => self.wait((l) => l.type === 'event' && fits(l), from),
    events: (id) => seen.filter((l) => l.type === 'event' && l.sandbox === id),
  };
  t.after(async () => {
    child.stdin.end();
    const [status] = child.exitCode === null ? await once(child, 'exit') : [child.exitCode];
    assert.equal(status, 0, stderr);
    assert.ok(!/Sanitizer|runtime error/.test(stderr), stderr);
  });
  await self.ok({ cmd: 'config', ...config });
  return self;
}

async function listen(t, server, host = '127.0.0.1') {
  const sockets = new Set();
  server.on('connection', (s) => {
    sockets.add(s);
    s.on('error', () => {});
    s.on('close', () => sockets.delete(s));
  });
  server.on('secureConnection', (s) => s.on('error', () => {}));
  server.on('tlsClientError', () => {});
  server.listen(0, host);
  await once(server, 'listening');
  t.after(() => {
    server.close();
    for (const s of sockets) s.destroy();
  });
  server.port = server.address().port;
  return server;
}

/** `handler(request, response, body)`; requests are kept. */
export function startServer(t, handler, tls) {
  const requests = [];
  const on = async (request, response) => {
    const pieces = [];
    request.on('error', () => {});
    for await (const piece of request) pieces.push(piece);
    const body = Buffer.concat(pieces).toString();
    requests.push({ method: request.method, url: request.url, headers: request.headers, rawHeaders: request.rawHeaders, body });
    handler(request, response, body);
  };
  const server = tls ? https.createServer(tls, on) : http.createServer(on);
  server.requests = requests;
  return listen(t, server);
}

export const startTcp = (t, handler) => listen(t, net.createServer(handler));

/** Sends the bytes and gives all that comes until the end. */
export async function raw(port, bytes, { end = false } = {}) {
  const socket = net.connect(port, '127.0.0.1');
  let text = '';
  socket.setEncoding('latin1').on('data', (d) => (text += d));
  socket.on('error', () => {});
  await once(socket, 'connect');
  socket.write(bytes);
  if (end) socket.end();
  if (!socket.closed) await once(socket, 'close');
  return text;
}

/** One request at the origin of a sandbox. */
export async function ask(port, path, options = {}) {
  const request = http.request({ host: '127.0.0.1', port, path, agent: false, ...options });
  request.end(options.body);
  const [response] = await once(request, 'response');
  const pieces = [];
  for await (const piece of response) pieces.push(piece);
  const text = Buffer.concat(pieces).toString();
  let json;
  try {
    json = JSON.parse(text);
  } catch {
    json = undefined;
  }
  return { status: response.statusCode, headers: response.headers, text, json };
}

export const post = (port, path, body, headers = {}) =>
  ask(port, path, {
    method: 'POST',
    body: typeof body === 'string' ? body : JSON.stringify(body),
    headers: { 'content-type': 'application/json', ...headers },
  });

/** CONNECT: the socket after the answer, and the answer. */
export async function connect(port, target, early = '') {
  const socket = net.connect(port, '127.0.0.1');
  socket.on('error', () => {});
  await once(socket, 'connect');
  socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n${early}`);
  let text = '';
  while (!text.includes('\r\n\r\n')) {
    const [data] = await Promise.race([once(socket, 'data'), once(socket, 'close').then(() => [null])]);
    if (data === null || data === false) break;
    text += data.toString('latin1');
  }
  const status = Number(text.split(' ')[1]);
  return { socket, status, text };
}
