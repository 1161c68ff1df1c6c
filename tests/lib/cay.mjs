// Starts the real server for a test, and ends it whatever happens. No port is fixed: the server
// takes a free one and says which.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

export const root = fileURLToPath(new URL('../../', import.meta.url));
export const buildDir = process.env.CAY_BUILD ?? join(root, 'build');
export const isSanitized = /asan/.test(buildDir);

/** Sanitized programs are slower; waits for them are longer. */
export const slow = isSanitized ? 4 : 1;

const open = new Set();
process.on('exit', () => {
  for (const child of open) child.kill('SIGKILL');
});

/** Reports go to standard error, which tests read: a server that changed its user cannot write ours. */
function environment(extra = {}) {
  const env = { PATH: process.env.PATH ?? '/usr/bin:/bin', LANG: 'C.UTF-8', CAY_STRICT: '1' };
  for (const name of ['ASAN_OPTIONS', 'UBSAN_OPTIONS', 'ASAN_SYMBOLIZER_PATH', 'CAY_TEST_PHASE'])
    if (process.env[name]) env[name] = process.env[name].replace(/:?log_path=[^:]*/, '');
  return { ...env, ...extra };
}

/** A folder of its own that goes at the end of the test (`t` may be null: then the caller's). */
export function tempDir(t) {
  const dir = mkdtempSync(join(tmpdir(), 'cay-test-'));
  chmodSync(dir, 0o755); // a server that is started as root becomes somebody else
  t?.after(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** Runs `cay ARGS...` to its end: {code, signal, stdout, stderr}. */
export async function runCay(args, { env, cwd, build = buildDir, timeout = 60_000 * slow } = {}) {
  try {
    const done = await promisify(execFile)(join(build, 'cay'), args, {
      // LeakSanitizer cannot look into a process that forbids to be traced.
      env: environment({ ...leakless(), ...env }),
      cwd,
      timeout,
      maxBuffer: 64 << 20,
    });
    return { code: 0, signal: null, ...done };
  } catch (error) {
    if (error.stdout === undefined) throw error;
    return { code: error.code, signal: error.signal, stdout: error.stdout, stderr: error.stderr };
  }
}

function leakless() {
  if (!process.env.ASAN_OPTIONS) return {};
  return { ASAN_OPTIONS: `${environment().ASAN_OPTIONS}:detect_leaks=0` };
}

let projects = 0;

/**
 * A key as `cay key create` makes it: {text, id, project}. Of a project of its own unless `project` names one: "default", or
 * that of another key. An admin is one of the server, and so of the default project, unless `project` says otherwise.
 */
export async function createKey(dataDir, { name = 'test', scope, rate, build, project, more = [] } = {}) {
  if (!project && scope !== 'admin') {
    const made = await runCay(['project', 'create', `project ${process.pid} ${projects++}`, '--data-dir', dataDir, '--json'], { build });
    assert.equal(made.code, 0, made.stderr);
    project = JSON.parse(made.stdout).id;
  }
  const args = ['key', 'create', '--name', name, '--data-dir', dataDir, ...more];
  if (project) args.push('--project', project);
  if (scope) args.push('--scope', scope);
  if (rate) args.push('--rate', String(rate));
  const done = await runCay(args, { build });
  assert.equal(done.code, 0, done.stderr);
  return { text: done.stdout.trim(), id: /Key (key_\w+)/.exec(done.stderr)[1], project: project ?? 'default' };
}

class Program {
  constructor(child) {
    this.child = child;
    this.pid = child.pid;
    this.out = '';
    this.err = '';
    child.stdout.setEncoding('utf8').on('data', (text) => (this.out += text));
    child.stderr.setEncoding('utf8').on('data', (text) => (this.err += text));
    open.add(child);
    this.ended = new Promise((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (code, signal) => {
        open.delete(child);
        resolve({ code, signal });
      });
    });
    this.ended.catch(() => {});
  }

  stdout() {
    return this.out;
  }

  stderr() {
    return this.err;
  }

  isRunning() {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  /** Waits for a line of standard output. */
  async line(pattern, ms = 60_000 * slow) {
    const until = Date.now() + ms;
    for (;;) {
      const found = pattern.exec(this.out);
      if (found) return found;
      if (!this.isRunning()) {
        await this.ended;
        throw new Error(`the server ended: ${this.out}\n${this.err}`);
      }
      if (Date.now() > until) throw new Error(`no line ${pattern} came: ${this.out}\n${this.err}`);
      await sleep(10);
    }
  }

  signal(name) {
    this.child.kill(name);
  }

  /** Ends it as an operator would; fails if it does not end well. */
  async stop(ms = 60_000 * slow) {
    if (this.isRunning()) {
      this.child.kill('SIGTERM');
      const timer = setTimeout(() => this.child.kill('SIGKILL'), ms);
      await this.ended;
      clearTimeout(timer);
    }
    const { code, signal } = await this.ended;
    this.checkReports();
    assert.deepEqual({ code, signal }, { code: 0, signal: null }, `the server ended badly: ${this.err}`);
  }

  checkReports() {
    assert.doesNotMatch(this.err, /Sanitizer|runtime error:/, this.err);
  }

  async kill9() {
    this.child.kill('SIGKILL');
    await this.ended;
    this.checkReports();
  }

  async finish() {
    if (this.isRunning()) await this.stop();
    else await this.ended.then(() => this.checkReports());
  }
}

/**
 * `cay serve` with a data folder of its own.
 *   args     further arguments
 *   config   the content of cay.json
 *   env      further environment
 *   dotenv   the content of .env beside cay.json
 *   listen   the addresses; one free port of loopback unless said otherwise
 *   dataDir  an existing data folder (stays when the server goes)
 *   wrap     a command and its arguments that start the program by exec
 *   key      true: a key is made first (as it is with require_key); or what createKey() takes
 */
export async function startCay(options = {}) {
  const { args = [], config = {}, env = {}, dotenv, build = buildDir } = options;
  const dir = tempDir(null);
  const dataDir = options.dataDir ?? join(dir, 'data');
  const clean = () => rmSync(dir, { recursive: true, force: true });
  try {
    let key = null;
    if (options.key || config.require_key)
      key = await createKey(dataDir, { build, ...(typeof options.key === 'object' ? options.key : {}) });
    writeFileSync(join(dir, 'cay.json'), typeof config === 'string' ? config : JSON.stringify(config));
    if (dotenv !== undefined) writeFileSync(join(dir, '.env'), dotenv, { mode: 0o600 });
    const listen = (options.listen ?? ['127.0.0.1:0']).flatMap((address) => ['--listen', address]);
    const [program, ...more] = [...(options.wrap ?? []), join(build, 'cay')];
    const child = spawn(program, [...more, 'serve', ...listen, '--data-dir', dataDir, ...args], {
      cwd: dir,
      env: environment({ HOME: dir, ...leakless(), ...env }),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const cay = new Program(child);
    try {
      const [, address] = await cay.line(/^ {2}listening {2}(\S+)$/m);
      await cay.line(/^ {2}data .*$/m);
      cay.url = address.startsWith('http') ? address : null;
      cay.port = cay.url ? Number(new URL(cay.url).port) : null;
    } catch (error) {
      child.kill('SIGKILL');
      await cay.ended;
      throw error;
    }
    cay.dir = dir;
    cay.dataDir = dataDir;
    cay.key = key?.text ?? null;
    cay.keyId = key?.id ?? null;
    cay.project = key?.project ?? 'default';
    const { stop, kill9 } = cay;
    cay.stop = async (...rest) => {
      try {
        await stop.apply(cay, rest);
      } finally {
        clean();
      }
    };
    cay.kill9 = async () => {
      try {
        await kill9.apply(cay);
      } finally {
        clean();
      }
    };
    /** Ends the server but leaves its folder, for a second life. */
    cay.halt = () => stop.apply(cay);
    cay.clean = clean;
    return cay;
  } catch (error) {
    clean();
    throw error;
  }
}

/** A server for one test: it ends with the test. */
export async function withCay(t, options) {
  const cay = await startCay(options);
  t.after(async () => {
    try {
      await cay.finish();
    } finally {
      cay.clean();
    }
  });
  return cay;
}

/** The HTTP server of tests/server/: the front's server with other routes. */
export async function startHttpServer(t, args = []) {
  const path = join(buildDir, 'tests', 'http-server');
  assert.ok(existsSync(path), `${path} is not built`);
  const child = spawn(path, args, { env: environment(), stdio: ['pipe', 'pipe', 'pipe'] });
  const server = new Program(child);
  const [, port] = await server.line(/^listening (\d+)$/m);
  server.port = Number(port);
  server.url = `http://127.0.0.1:${port}`;
  t?.after(() => server.finish());
  return server;
}

/** What /proc says of a process (`status`, `environ`, ...); '' if it has gone, which may be at any moment. */
export function procText(pid, file) {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'latin1');
  } catch (error) {
    if (error.code === 'ENOENT' || error.code === 'ESRCH') return '';
    throw error;
  }
}

/** Whether it runs: what has ended and is not buried yet does not. */
export const isAlive = (pid) => /^State:\t[^ZX]/m.test(procText(pid, 'status'));

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until `check` gives something true. How long that takes depends on what else the machine does; the limit is for
 * what never comes. */
export async function until(check, what = 'it', ms = 60_000 * slow) {
  const end = Date.now() + ms;
  for (;;) {
    const value = await check();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what} did not come to be`);
    await sleep(15);
  }
}

/** One request with node's client, on a connection of its own: {status, headers, body, json}. */
export function request(server, path, options = {}) {
  const { method = 'GET', headers = {}, body, agent = false, socketPath } = options;
  return new Promise((resolve, reject) => {
    const where = socketPath ? { socketPath } : { host: '127.0.0.1', port: server.port };
    const req = httpRequest({ ...where, path, method, headers, agent, setHost: !headers.Host && !headers.host });
    req.once('error', reject);
    req.once('response', (res) => {
      const chunks = [];
      res.on('data', (chunk) => chunks.push(chunk));
      res.once('error', reject);
      res.once('aborted', () => reject(new Error('the answer broke off')));
      res.once('end', () => {
        const raw = Buffer.concat(chunks);
        resolve({
          status: res.statusCode,
          headers: res.headers,
          raw,
          body: raw.toString(),
          json: () => JSON.parse(raw.toString()),
        });
      });
    });
    req.end(body);
  });
}

export const bearer = (key) => ({ Authorization: `Bearer ${key}` });

/**
 * Sends bytes as they are and gathers the answer until the server closes, `isDone(text)` is true, or
 * the time is over. halfClose: our side is shut after the bytes.
 */
export function raw(server, bytes, { ms = 5_000 * slow, isDone, halfClose = false, socketPath } = {}) {
  return new Promise((resolve, reject) => {
    const where = socketPath ? { path: socketPath } : { host: '127.0.0.1', port: server.port };
    const socket = connect({ ...where, allowHalfOpen: halfClose });
    const chunks = [];
    const done = (how) => {
      clearTimeout(timer);
      socket.destroy();
      resolve({ text: Buffer.concat(chunks).toString('latin1'), ended: how });
    };
    const timer = setTimeout(() => done('timeout'), ms);
    socket.on('data', (chunk) => {
      chunks.push(chunk);
      if (isDone?.(Buffer.concat(chunks).toString('latin1'))) done('done');
    });
    socket.once('end', () => done('end'));
    socket.once('error', (error) => (chunks.length ? done(error.code) : (clearTimeout(timer), reject(error))));
    socket.once('connect', () => {
      for (const piece of [bytes].flat()) socket.write(piece);
      if (halfClose) socket.end();
    });
  });
}

/** The status codes of the answers in a piece of raw text. */
export const statuses = (text) => [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map((m) => Number(m[1]));
