// What the tests of cay-coder share: a model that follows a script, in both dialects, and the program in a folder of
// its own. Every line it prints goes through the front's reader.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import readline from 'node:readline';

const { CAY_CODER, CAY_CODER_LINES } = process.env;
assert.ok(CAY_CODER && CAY_CODER_LINES, 'CAY_CODER and CAY_CODER_LINES name the programs');

export const isSanitized = CAY_CODER.includes('sanitized');
export const tool = (name, args, thought) => ({ ...(thought ? { thought } : {}), tool: name, args });
export const sh = (command, more = {}) => tool('run_command', { command, ...more });
export const done = (summary = 'done') => ({ done: true, summary });
export const DIALECTS = ['anthropic', 'openai'];

export function answerOf(dialect, text, { stop, refusal = null } = {}) {
  if (dialect === 'anthropic') {
    return {
      id: 'msg_1', type: 'message', role: 'assistant', model: 'm', content: text === null ? [] : [{ type: 'text', text }],
      stop_reason: stop ?? 'end_turn', usage: { input_tokens: 100, output_tokens: 10, cache_read_input_tokens: 3, cache_creation_input_tokens: 0 },
    };
  }
  return {
    id: 'c', object: 'chat.completion', choices: [{ index: 0, message: { role: 'assistant', content: text, refusal }, finish_reason: stop ?? 'stop' }],
    usage: { prompt_tokens: 103, completion_tokens: 10, prompt_tokens_details: { cached_tokens: 3 } },
  };
}

/** A model that gives its script's answers in turn: objects are replies, texts too, functions write the response. */
export async function startModel(t, dialect, script) {
  const model = { requests: [], heads: [], events: new EventEmitter() };
  const server = http.createServer(async (request, response) => {
    let body = '';
    for await (const piece of request) body += piece;
    model.requests.push(JSON.parse(body));
    model.heads.push({ url: request.url, method: request.method, headers: request.headers });
    const n = model.requests.length;
    const item = typeof script === 'function' ? script(JSON.parse(body), n) : script[n - 1];
    model.events.emit('request', n);
    if (typeof item === 'function') {
      item(response, n);
      return;
    }
    response.setHeader('content-type', 'application/json');
    if (item === undefined) {
      response.statusCode = 400;
      response.end(JSON.stringify({ error: { message: 'the script has no more answers' } }));
      return;
    }
    const text = typeof item === 'string' || item === null ? item : JSON.stringify(item);
    response.end(JSON.stringify(answerOf(dialect, text)));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  model.port = server.address().port;
  model.url = `http://127.0.0.1:${model.port}${dialect === 'openai' ? '/v1' : ''}`;
  /** The messages of the last request, parsed where they are JSON. */
  model.last = () => model.requests.at(-1).messages;
  model.result = (n) => JSON.parse(model.requests[n].messages.at(-1).content);
  return model;
}

export function tempDir(t) {
  const dir = mkdtempSync(join(tmpdir(), 'cay-coder-'));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** Starts cay-coder; {child, events, ended, wait(fits)}. */
export function startCoder(t, model, { dir, dialect = 'anthropic', spec = 'Do it.', args = [], env = {}, input, command = [], stdout = 'pipe' } = {}) {
  const work = dir ?? tempDir(t);
  const specArgs = spec === null ? [] : ['--spec', spec];
  const all = [...command, CAY_CODER, '--dir', work, '--model', 'm', '--dialect', dialect, '--base-url', model.url ?? model, ...specArgs, ...args];
  const environment = { PATH: process.env.PATH, LANG: 'C.UTF-8', ...env };
  for (const name of ['ASAN_OPTIONS', 'UBSAN_OPTIONS', 'ASAN_SYMBOLIZER_PATH', 'CAY_TEST_PHASE'])
    if (process.env[name]) environment[name] = process.env[name];
  const child = spawn(all[0], all.slice(1), { env: environment, stdio: [input === undefined ? 'ignore' : 'pipe', stdout, 'pipe'] });
  const emitter = new EventEmitter();
  const it = { child, dir: work, events: [], raw: '', err: '' };
  if (child.stdout) readline.createInterface({ input: child.stdout }).on('line', (line) => {
    it.raw += `${line}\n`;
    try {
      it.events.push(JSON.parse(line));
    } catch {
      it.events.push({ type: 'unreadable', line }); // the last one of a program that was ended while nobody read
    }
    emitter.emit('line');
  });
  child.stderr.setEncoding('utf8').on('data', (text) => (it.err += text));
  child.stdin?.on('error', () => {});
  if (input !== undefined) child.stdin.end(input);
  it.wait = async (fits) => {
    for (;;) {
      const found = it.events.find(fits);
      if (found) return found;
      await once(emitter, 'line');
    }
  };
  it.ended = once(child, 'close').then(([code, signal]) => ({ code, signal }));
  t.after(() => child.kill('SIGKILL'));
  return it;
}

/** Runs it to its end and checks that what it printed keeps the contract. */
export async function runCoder(t, model, options) {
  const it = startCoder(t, model, options);
  const { code, signal } = await it.ended;
  assert.equal(signal, null, it.err);
  return finished(it, code);
}

export function finished(it, code) {
  assert.equal(it.err, '', 'nothing on standard error');
  const told = execFileSync(CAY_CODER_LINES, ['cay', String(code)], { input: it.raw, encoding: 'utf8', maxBuffer: 1 << 28 });
  assert.deepEqual(told.trimEnd().split('\n').map((l) => JSON.parse(l)), it.events, 'the front reads every line');
  const of = (type) => it.events.filter((e) => e.type === type);
  return { ...it, code, of, last: it.events.at(-1), output: (step) => of('output').filter((e) => e.step === step).map((e) => e.text).join('') };
}

export const readLines = (kind, text, ...args) =>
  execFileSync(CAY_CODER_LINES, [kind, ...args], { input: text, encoding: 'utf8', stdio: ['pipe', 'pipe', 'pipe'], maxBuffer: 1 << 28 })
    .trimEnd().split('\n').map((l) => JSON.parse(l));
