// What the tests of the models share: the program under test and a server that sends exactly the
// bytes it is told to.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';

const program = process.env.CAY_MODEL_CLI;
assert.ok(program, 'CAY_MODEL_CLI names the program model-cli');

export const demoScript = JSON.parse(
  readFileSync(new URL('../../agents/sandbox-agent/demo.json', import.meta.url), 'utf8'),
);

export const tools = [
  {
    name: 'executeCode',
    description: 'Runs code.',
    input_schema: { type: 'object', properties: { code: { type: 'string' } }, required: ['code'] },
  },
  {
    name: 'queryDatabase',
    description: 'Runs a query.',
    input_schema: { type: 'object', properties: { sql: { type: 'string' } }, required: ['sql'] },
  },
];

/** Runs model-cli; its events, its exit status and what it wrote to standard error. */
export async function runCli(input, env = {}) {
  const child = spawn(program, {
    env: { PATH: process.env.PATH, ...sanitizer(), ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  let out = '';
  let err = '';
  child.stdout.setEncoding('utf8').on('data', (text) => (out += text));
  child.stderr.setEncoding('utf8').on('data', (text) => (err += text));
  child.stdin.on('error', () => {});
  child.stdin.end(JSON.stringify(input));
  const limit = setTimeout(() => child.kill('SIGKILL'), 25_000);
  const [status, signal] = await once(child, 'close');
  clearTimeout(limit);
  assert.equal(signal, null, `model-cli ended by ${signal}: ${out.slice(-500)} ${err.slice(-3000)}`);
  assert.ok(!/Sanitizer|runtime error/.test(err), err.slice(-3000));
  const events = out.split('\n').filter(Boolean).map((line) => JSON.parse(line));
  return { events, status, stdout: out, stderr: err };
}

function sanitizer() {
  const kept = ['ASAN_OPTIONS', 'UBSAN_OPTIONS', 'LSAN_OPTIONS', 'ASAN_SYMBOLIZER_PATH'];
  return Object.fromEntries(kept.filter((k) => process.env[k]).map((k) => [k, process.env[k]]));
}

/** One stream whose ending is checked to be exactly one of done, error, cancelled. */
export async function stream(request, { env, options, ...rest } = {}) {
  const result = await runCli(
    { request, options: { retry_base_ms: 1, retry_wait_ms: 50, ...options }, ...rest },
    env,
  );
  const ends = result.events.filter((e) => ['done', 'error', 'cancelled', 'refused'].includes(e.event));
  assert.equal(ends.length, 1, result.stdout + result.stderr);
  const of = (name) => result.events.filter((e) => e.event === name);
  return {
    ...result,
    of,
    end: ends[0],
    text: of('text_delta').map((e) => e.text).join(''),
    retries: of('retry').length,
  };
}

export const ask = (content, rest = {}) => ({ messages: [{ role: 'user', content }], ...rest });

/**
 * A server on a raw socket. `answer(socket, {head, body, number})` is called for each request.
 */
export async function rawServer(answer) {
  const sockets = new Set();
  const requests = [];
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => sockets.delete(socket));
    let data = Buffer.alloc(0);
    socket.on('data', (chunk) => {
      data = Buffer.concat([data, chunk]);
      for (;;) {
        const at = data.indexOf('\r\n\r\n');
        if (at < 0) return;
        const head = data.subarray(0, at).toString('latin1');
        const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
        if (data.length < at + 4 + length) return;
        const body = data.subarray(at + 4, at + 4 + length).toString();
        data = data.subarray(at + 4 + length);
        requests.push({ head, body });
        answer(socket, { head, body, number: requests.length });
      }
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${server.address().port}`;
  return {
    url,
    requests,
    connections: () => connections,
    open: () => sockets.size,
    anthropic: { ANTHROPIC_API_KEY: 'key-for-tests-1', ANTHROPIC_BASE_URL: url },
    openai: { OPENAI_API_KEY: 'key-for-tests-2', OPENAI_BASE_URL: `${url}/v1` },
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

/** Runs `use` with a raw server and closes it in any case. */
export async function withServer(answer, use) {
  const server = await rawServer(answer);
  try {
    return await use(server);
  } finally {
    await server.close();
  }
}

export const sseHead =
  'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n';
export const chunk = (data) => {
  const bytes = Buffer.from(data);
  return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from('\r\n')]);
};
export const lastChunk = '0\r\n\r\n';
export const whole = (data) => Buffer.concat([Buffer.from(sseHead), chunk(data), Buffer.from(lastChunk)]);
export const plain = (status, type, body, headers = '') =>
  `HTTP/1.1 ${status} X\r\ncontent-type: ${type}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n${headers}\r\n${body}`;

export const sse = (...events) =>
  events.map((e) => (typeof e === 'string' ? e : `event: ${e.type}\ndata: ${JSON.stringify(e)}\n\n`)).join('');
export const data = (...chunks) =>
  chunks.map((c) => `data: ${typeof c === 'string' ? c : JSON.stringify(c)}\n\n`).join('');

/** A whole answer of the Messages API from its blocks. */
export function anthropicAnswer(blocks, stop = 'end_turn') {
  const events = [
    {
      type: 'message_start',
      message: {
        id: 'msg_1', type: 'message', role: 'assistant', content: [],
        usage: { input_tokens: 10, output_tokens: 1, cache_read_input_tokens: 4, cache_creation_input_tokens: 2 },
      },
    },
    { type: 'ping' },
  ];
  blocks.forEach((block, index) => {
    const { deltas = [], ...start } = block;
    events.push({ type: 'content_block_start', index, content_block: start });
    for (const delta of deltas) events.push({ type: 'content_block_delta', index, delta });
    events.push({ type: 'content_block_stop', index });
  });
  events.push(
    { type: 'message_delta', delta: { stop_reason: stop, stop_sequence: null }, usage: { output_tokens: 7 } },
    { type: 'message_stop' },
  );
  return events;
}

export const textBlock = (...pieces) => ({
  type: 'text', text: '', deltas: pieces.map((text) => ({ type: 'text_delta', text })),
});
export const toolBlock = (id, name, ...pieces) => ({
  type: 'tool_use', id, name, input: {},
  deltas: pieces.map((partial_json) => ({ type: 'input_json_delta', partial_json })),
});
export const chunkOf = (delta, finish_reason = null, more = {}) => ({
  id: 'c1', object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason }], ...more,
});
