// What a well-behaved mock never does: odd splits, broken streams, hostile and half-compatible servers.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  anthropicAnswer, ask, chunk, chunkOf, data, lastChunk, plain, runCli, sse, sseHead, stream, textBlock,
  toolBlock, tools, whole, withServer,
} from './lib.mjs';

const claude = { model: 'claude-haiku-4-5' };
const gpt = { model: 'openai/local-model' };

/** Runs one stream against a server that always answers with these bytes. */
async function against(answer, request, { provider = 'anthropic', ...rest } = {}) {
  const respond = typeof answer === 'function' ? answer : (socket) => socket.write(answer);
  return withServer(respond, async (server) => {
    const model = provider === 'anthropic' ? claude : gpt;
    const result = await stream({ ...model, tools, ...request }, { env: server[provider], ...rest });
    return { ...result, server, sent: server.requests.map((r) => ({ ...r, json: JSON.parse(r.body) })) };
  });
}

const answerBytes = sse(...anthropicAnswer(
  [
    { type: 'thinking', thinking: '', signature: '', deltas: [{ type: 'thinking_delta', thinking: 'hm é' }, { type: 'signature_delta', signature: 'c2ln' }] },
    { type: 'redacted_thinking', data: 'b3BhcXVl' },
    textBlock('Hé', 'llo \u{1f600}'),
    toolBlock('toolu_1', 'executeCode', '{"co', 'de":"1\\u00e9"}'),
  ],
  'tool_use',
));
const expected = {
  role: 'assistant',
  content: [
    { type: 'reasoning', text: 'hm é', provider: 'anthropic', raw: { type: 'thinking', thinking: 'hm é', signature: 'c2ln' } },
    { type: 'reasoning', text: '', provider: 'anthropic', raw: { type: 'redacted_thinking', data: 'b3BhcXVl' } },
    { type: 'text', text: 'Héllo \u{1f600}' },
    { type: 'tool_call', id: 'toolu_1', name: 'executeCode', input: { code: '1é' } },
  ],
};

describe('the event stream', () => {
  test('counts that are none are estimated, and an hour of cache has its own price', async () => {
    const told = async (usage) => {
      const events = anthropicAnswer([textBlock('some words')], 'end_turn');
      for (const e of events) {
        if (e.message?.usage) e.message.usage = { output_tokens: 1, ...usage };
        if (e.type === 'message_delta') e.usage = { output_tokens: 3, ...(usage.output_tokens === undefined ? {} : { output_tokens: usage.output_tokens }) };
      }
      const r = await against(whole(sse(...events)), ask('x'));
      return { ...r.of('usage').at(-1), cost: r.of('end')[0].cost_nusd };
    };
    for (const odd of ['12', 1.5, -1, [], {}, true, 2 ** 53]) {
      for (const usage of [{ input_tokens: odd }, { input_tokens: 5, output_tokens: odd }, { input_tokens: 5, cache_read_input_tokens: odd }]) {
        const u = await told(usage);
        assert.ok(u.estimated && u.input > 10 && u.output >= 3, JSON.stringify([usage, u]));
      }
    }
    const hour = { input_tokens: 10, cache_creation_input_tokens: 5, cache_creation: { ephemeral_1h_input_tokens: 2, ephemeral_5m_input_tokens: 3 } };
    // haiku: 1 and 5 dollars for a million, written to the cache 1.25 for five minutes and 2 for an hour.
    assert.equal((await told(hour)).cost, 10 * 1000 + 3 * 5000 + 3 * 1250 + 2 * 2000);
  });

  test('whole in one packet', async () => {
    const r = await against(whole(answerBytes), ask('x'));
    assert.deepEqual(r.end.message, expected);
    assert.equal(r.end.stop, 'tool-calls');
    const { event, ...usage } = r.of('usage').at(-1);
    assert.deepEqual(usage, { input: 10, output: 7, cache_read: 4, cache_write: 2, estimated: false });
    assert.equal(event, 'usage');
    // haiku: 1, 5, 0.1 and 1.25 dollars for a million.
    assert.equal(r.of('end')[0].cost_nusd, 10 * 1000 + 7 * 5000 + 4 * 100 + 2 * 1250);
  });

  for (const [name, convert] of [['LF', (s) => s], ['CRLF', (s) => s.replaceAll('\n', '\r\n')], ['CR', (s) => s.replaceAll('\n', '\r')]]) {
    test(`cut into single bytes, lines ending in ${name}`, async () => {
      const bytes = Buffer.from(`\ufeff: comment\n\n${answerBytes}`.replace(/^.*$/s, convert));
      const r = await against((socket) => {
        socket.setNoDelay(true);
        socket.write(sseHead);
        for (const byte of bytes) socket.write(chunk(Buffer.from([byte])));
        socket.write(lastChunk);
      }, ask('x'));
      assert.deepEqual(r.end.message, expected);
    });
  }

  test('characters split between events, and halves without another half', async () => {
    const deltas = ['a\ud83d', '\ude00b', 'c\ud83d', 'd', '\ude00', '\ud83d\ude00', 'x\ud83dy', '\\ud83d'];
    const r = await against(whole(sse(...anthropicAnswer([textBlock(...deltas)]))), ask('x'));
    assert.equal(r.text, 'a\u{1f600}bcd\u{1f600}\u{1f600}x\ufffdy\\ud83d');
  });

  test('unknown events, blocks, deltas and fields are ignored', async () => {
    const events = anthropicAnswer([
      { type: 'server_tool_use', id: 's', name: 'web_search', input: {}, deltas: [{ type: 'input_json_delta', partial_json: '{"q":1}' }] },
      { ...textBlock('fine'), citations: null, deltas: [{ type: 'citations_delta', citation: {} }, { type: 'text_delta', text: 'fine' }, { type: 'new_delta', x: 1 }] },
    ]);
    events.splice(3, 0, { type: 'brand_new_event', x: { y: 1 } });
    const r = await against(whole(sse(...events)), ask('x'));
    assert.equal(r.end.event, 'done');
    assert.deepEqual(r.end.message.content, [{ type: 'text', text: 'fine' }]);
  });

  test('the end is not waited for when the content is whole', async () => {
    const r = await against((socket) => {
      socket.write(sseHead);
      socket.write(chunk(answerBytes)); // and the connection stays open
    }, ask('x'));
    assert.equal(r.end.event, 'done');
  });

  test('a missing message_stop is forgiven', async () => {
    const events = anthropicAnswer([textBlock('whole')]).slice(0, -1);
    const r = await against(whole(sse(...events)), ask('x'));
    assert.equal(r.end.event, 'done');
    assert.equal(r.text, 'whole');
  });

  test('an error event before the first token is tried again, after it not', async () => {
    const overloaded = { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } };
    const early = await against((socket, { number }) =>
      socket.write(number < 3 ? whole(sse({ type: 'message_start', message: {} }, overloaded)) : whole(answerBytes)), ask('x'));
    assert.equal(early.retries, 2);
    assert.deepEqual(early.end.message, expected);
    const late = await against(whole(sse(...anthropicAnswer([textBlock('par', 'tial')]).slice(0, 4), overloaded)), ask('x'));
    assert.equal(late.retries, 0);
    assert.equal(late.end.event, 'error');
    assert.equal(late.end.code, 'unavailable');
    assert.match(late.end.message, /Overloaded/);
    assert.equal(late.end.partial.content[0].text, 'par');
  });

  test('an event that is too large is an error', async () => {
    const r = await against(whole(sse(...anthropicAnswer([textBlock('x'.repeat(5000))]))), ask('x'), { options: { event_bytes: 4096 } });
    assert.equal(r.end.code, 'limit_exceeded');
    assert.match(r.end.message, /4096 bytes/);
  });

  test('an answer that is too large is an error', async () => {
    const piece = 'y'.repeat(100);
    for (const blocks of [[textBlock(...Array(60).fill(piece))], Array(60).fill(textBlock(piece))]) {
      const r = await against(whole(sse(...anthropicAnswer(blocks))), ask('x'), { options: { reply_bytes: 5000 } });
      assert.equal(r.end.code, 'limit_exceeded');
      assert.match(r.end.message, /5000 bytes/);
    }
  });

  test('an answer that comes at once is read in turns with what else the loop does', async () => {
    const piece = 'z'.repeat(1000);
    const r = await against(whole(sse(...anthropicAnswer([textBlock(...Array(900).fill(piece))]))), ask('x'));
    assert.equal(r.end.message.content[0].text.length, 900_000);
    const { most_pieces: most } = r.of('end').at(-1);
    // 32 KiB are a turn's, and what was on its way when they were full.
    assert.ok(most > 0 && most < 100, `${most} pieces in one turn`);
  });

  test('an answer of too many parts is an error', async () => {
    const blocks = Array.from({ length: 300 }, (_, i) => toolBlock(`t${i}`, 'executeCode', '{}'));
    const r = await against(whole(sse(...anthropicAnswer(blocks))), ask('x'));
    assert.equal(r.end.code, 'limit_exceeded');
  });
});

describe('broken answers', () => {
  const cases = {
    'an empty body': [(s) => s.write(whole('')), /empty answer/],
    'no body at all': [(s) => s.end('HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n'), /empty answer/],
    'a closed connection': [(s) => s.destroy(), /cannot reach/],
    'no HTTP': [(s) => s.end('SSH-2.0-OpenSSH\r\n'), /protocol|reach/],
    'a cut inside an event': [(s) => s.end(Buffer.concat([Buffer.from(sseHead), chunk('event: message_start\ndata: {"ty')])), /broke off/],
    'JSON that is none': [(s) => s.write(whole('data: {"type": nope}\n\n')), /cannot be read/],
    'bad UTF-8': [(s) => s.write(whole(Buffer.concat([Buffer.from('data: {"type":"'), Buffer.from([0xff, 0xfe]), Buffer.from('"}\n\n')]))), /cannot be read/],
    'a web page': [(s) => s.write(plain(200, 'text/html', '<html><b>Welcome</b></html>')), /web page; is the base URL right/],
    'a web page as error': [(s) => s.write(plain(502, 'text/html', '<html>Bad gateway</html>')), /\(502\).*web page/],
    'JSON instead of a stream': [(s) => s.write(plain(200, 'application/json', '{"content":[]}')), /no event stream/],
    'an error with status 200': [(s) => s.write(plain(200, 'application/json', '{"error":{"message":"quota gone","type":"x"}}')), /quota gone/],
    'an error as text': [(s) => s.write(plain(404, 'text/plain', 'no such thing')), /refused the request \(404\): no such thing/],
    'an Ollama error': [(s) => s.write(plain(404, 'application/json', '{"error":"model not found"}')), /model not found/],
    'an error without a body': [(s) => s.write(plain(400, 'application/json', '')), /refused the request \(400\)/],
    'an error of many megabytes': [(s) => { s.write('HTTP/1.1 400 X\r\ncontent-length: 100000000\r\n\r\n'); const b = Buffer.alloc(65536, 120); const more = () => { while (!s.destroyed && s.write(b)); s.once('drain', more); }; more(); }, /refused the request \(400\): x+/],
    'a redirect': [(s) => s.write(plain(302, 'text/plain', '', 'location: http://127.0.0.1:1/\r\n')), /refused the request \(302\)/],
  };
  for (const provider of ['anthropic', 'openai'])
    for (const [name, [answer, message]] of Object.entries(cases))
      test(`${name} (${provider})`, async () => {
        const r = await against(answer, ask('x'), { provider, options: { retries: 1 } });
        assert.equal(r.end.event, 'error', r.stdout);
        assert.match(r.end.message, message);
        assert.ok(r.end.message.length < 500);
        assert.ok(!/127\.0\.0\.1/.test(r.end.message), 'no address');
        assert.equal(r.status, 0);
      });

  test('nobody listens', async () => {
    const env = await withServer(() => {}, (server) => server.anthropic);
    const r = await stream({ ...claude, ...ask('x') }, { env, options: { retries: 1 } });
    assert.equal(r.retries, 1);
    assert.equal(r.end.code, 'unavailable');
    assert.equal(r.end.message, 'cannot reach the model server of anthropic', 'the address is for the log');
    assert.match(r.stderr, /127\.0\.0\.1/);
  });

  test('control characters of a server do not come through', async () => {
    const r = await against((s) => s.write(plain(400, 'application/json', JSON.stringify({ error: { message: 'a\u001b[31mred\u0007\nb' } }))), ask('x'));
    assert.match(r.end.message, /a {1}\[31mred {2}b/);
  });

  test('secrets and things like keys are taken out of what a server says', async () => {
    const body = JSON.stringify({ error: { message: 'key key-for-tests-1 and sk-proj-other_key-42, at http://127.0.0.1 not' } });
    const r = await against((s) => s.write(plain(400, 'application/json', body)), ask('x'));
    assert.match(r.end.message, /key \[redacted\] and \[redacted\], at/);
    assert.ok(!r.stdout.includes('key-for-tests-1') && !r.stderr.includes('key-for-tests-1'));
  });
});

describe('time', () => {
  test('silence ends a stream', async () => {
    const r = await against((s) => s.write(Buffer.concat([Buffer.from(sseHead), chunk(answerBytes.slice(0, 300))])), ask('x'), { options: { idle_timeout_ms: 200, retries: -1 } });
    assert.equal(r.end.code, 'timeout');
    assert.equal(r.end.retryable, true);
  });

  test('a server that never answers', async () => {
    const began = Date.now();
    const r = await against(() => {}, ask('x'), { options: { idle_timeout_ms: 150, retries: 1 } });
    assert.equal(r.retries, 1);
    assert.equal(r.end.code, 'timeout');
    assert.ok(Date.now() - began < 5000);
  });

  test('a server that drips pings for ever meets the total limit', async () => {
    const r = await against((s) => {
      s.write(sseHead);
      const timer = setInterval(() => s.destroyed ? clearInterval(timer) : s.write(chunk(sse({ type: 'ping' }))), 20);
      s.on('close', () => clearInterval(timer));
    }, ask('x'), { options: { total_timeout_ms: 400, idle_timeout_ms: 5000 } });
    assert.equal(r.end.code, 'timeout');
  });

  test('a Retry-After in words, in milliseconds and as a date', async () => {
    for (const header of ['retry-after: 0', 'retry-after-ms: 30', `retry-after: ${new Date(Date.now() - 5000).toUTCString()}`]) {
      const r = await against((s, { number }) =>
        s.write(number === 1 ? plain(529, 'application/json', '{"error":{"type":"overloaded_error","message":"busy"}}', `${header}\r\n`) : whole(answerBytes)), ask('x'));
      assert.equal(r.retries, 1, header);
      assert.equal(r.end.event, 'done');
      if (header.includes('ms')) assert.ok(r.of('retry')[0].wait_ms >= 30);
    }
    const far = await against((s) => s.write(plain(429, 'application/json', '{}', `retry-after: ${new Date(Date.now() + 60000).toUTCString()}\r\n`)), ask('x'));
    assert.equal(far.retries, 0);
    assert.equal(far.end.code, 'rate_limited');
  });

  test('waits grow and are bounded', async () => {
    const r = await against((s) => s.write(plain(503, 'text/plain', 'no')), ask('x'), { options: { retries: 5, retry_base_ms: 8, retry_wait_ms: 40 } });
    const waits = r.of('retry').map((e) => e.wait_ms);
    assert.equal(waits.length, 5);
    waits.forEach((w, i) => {
      const most = Math.min(8 * 2 ** i, 40);
      assert.ok(w <= most && w >= Math.floor(most / 2), `${waits}`);
    });
  });

  test('x-should-retry is obeyed, an empty wallet is not tried again', async () => {
    const no = await against((s) => s.write(plain(500, 'text/plain', 'x', 'x-should-retry: false\r\n')), ask('x'));
    assert.equal(no.retries, 0);
    const quota = await against((s) => s.write(plain(429, 'application/json', '{"error":{"code":"insufficient_quota","message":"pay"}}')), ask('x'), { provider: 'openai' });
    assert.equal(quota.retries, 0);
    assert.equal(quota.end.retryable, false);
  });
});

describe('cancel', () => {
  for (const at of ['text_start', 'text_delta', 'text_end', 'reasoning_start', 'reasoning_delta', 'reasoning_end', 'tool_start', 'tool_delta', 'tool_end', 'usage'])
    test(`cancel inside ${at}`, async () => {
      const r = await against(whole(answerBytes), ask('x'), { cancel_at: at });
      assert.equal(r.end.event, 'cancelled');
      const after = r.events.slice(r.events.findIndex((e) => e.event === 'cancelled') + 1);
      assert.deepEqual(after.map((e) => e.event), ['end'], 'nothing comes after it');
      assert.equal(r.status, 0);
    });

  test('cancel inside a retry, and while it waits', async () => {
    const fail = (s) => s.write(plain(503, 'text/plain', 'no'));
    const inside = await against(fail, ask('x'), { cancel_at: 'retry' });
    assert.equal(inside.end.event, 'cancelled');
    const waiting = await against(fail, ask('x'), { cancel_after_ms: 2000, options: { retry_base_ms: 20000, retry_wait_ms: 30000 } });
    assert.equal(waiting.end.event, 'cancelled');
    assert.equal(waiting.server.requests.length, 1);
  });

  test('cancel before anything came closes the connection', async () => {
    let closed;
    const r = await against((s) => { closed = new Promise((done) => s.on('close', done)); }, ask('x'), { cancel_after_ms: 50 });
    assert.equal(r.end.event, 'cancelled');
    await closed;
  });

  test('cancel while the name is being looked up does not wait for it', async (t) => {
    // In namespaces of its own, with a name server that never answers.
    const inside = `
import ctypes, fcntl, os, socket, struct, subprocess, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(s, 0x8914, struct.pack('16sh', b'lo', 1 | 64))
s.bind(('127.0.0.1', 53))
path = sys.argv[1] + '/resolv.conf'
open(path, 'w').write('nameserver 127.0.0.1\\n')
if ctypes.CDLL(None).mount(path.encode(), os.path.realpath('/etc/resolv.conf').encode(), None, 4096, None):
    sys.exit('mount')
began = time.monotonic()
out = subprocess.run([os.environ['CAY_MODEL_CLI']], input=sys.argv[2].encode(), stdout=subprocess.PIPE,
                     env={'OPENAI_BASE_URL': 'http://never.example/v1'}, timeout=20).stdout
print(time.monotonic() - began, out.decode())
`;
    const can = spawnSync('unshare', ['-rmn', 'python3', '-c', 'pass']);
    if (can.status !== 0) return t.skip('no user namespaces here');
    const dir = mkdtempSync(join(tmpdir(), 'cay-dns-'));
    const input = JSON.stringify({ request: { ...gpt, ...ask('x') }, cancel_after_ms: 300 });
    const r = spawnSync('unshare', ['-rmn', 'python3', '-c', inside, dir, input], { encoding: 'utf8', timeout: 25_000 });
    rmSync(dir, { recursive: true });
    assert.equal(r.status, 0, r.stderr);
    assert.match(r.stdout, /"cancelled"/);
    assert.ok(Number.parseFloat(r.stdout) < 4, r.stdout);
  });
});

describe('what is sent', () => {
  const history = [
    { role: 'user', content: 'first' },
    { ...expected },
    { role: 'tool', content: [
      { type: 'tool_result', id: 'nobody', name: 'x', output: 'orphan' },
      { type: 'tool_result', id: 'toolu_1', name: 'executeCode', output: { output: 'é', error: null }, is_error: false },
    ] },
    { role: 'assistant', content: [{ type: 'text', text: '' }, { type: 'tool_call', id: 'toolu_2', name: 'queryDatabase', input: {} }, { type: 'tool_call', id: 'toolu_3', name: 'queryDatabase', input: { sql: 'x' } }] },
    { role: 'user', content: [{ type: 'text', text: 'stopped you' }, { type: 'text', text: '' }] },
  ];

  test('Anthropic: headers, caching, thinking unchanged, missing results', async () => {
    const r = await against(whole(answerBytes), { messages: history, system: 'Sys "é"', max_tokens: 99, temperature: 0.5 });
    const [{ head, json }] = r.sent;
    assert.match(head, /^POST \/v1\/messages HTTP\/1\.1/);
    assert.match(head, /x-api-key: key-for-tests-1/i);
    assert.match(head, /anthropic-version: 2023-06-01/i);
    assert.match(head, /content-type: application\/json/i);
    assert.ok(!/expect:/i.test(head));
    assert.deepEqual(
      { ...json, messages: 0, tools: 0 },
      { model: 'claude-haiku-4-5', max_tokens: 99, stream: true, temperature: 0.5, system: [{ type: 'text', text: 'Sys "é"', cache_control: { type: 'ephemeral' } }], messages: 0, tools: 0 });
    assert.deepEqual(json.tools, [tools[0], { ...tools[1], cache_control: { type: 'ephemeral' } }]);
    const stopped = 'No result: the turn was stopped before this tool had run.';
    assert.deepEqual(json.messages, [
      { role: 'user', content: [{ type: 'text', text: 'first' }] },
      { role: 'assistant', content: [
        { type: 'thinking', thinking: 'hm é', signature: 'c2ln' },
        { type: 'redacted_thinking', data: 'b3BhcXVl' },
        { type: 'text', text: 'Héllo \u{1f600}' },
        { type: 'tool_use', id: 'toolu_1', name: 'executeCode', input: { code: '1é' } },
      ] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: '{"output":"é","error":null}' }] },
      { role: 'assistant', content: [{ type: 'tool_use', id: 'toolu_2', name: 'queryDatabase', input: {} }, { type: 'tool_use', id: 'toolu_3', name: 'queryDatabase', input: { sql: 'x' } }] },
      { role: 'user', content: [
        { type: 'tool_result', tool_use_id: 'toolu_2', content: stopped, is_error: true },
        { type: 'tool_result', tool_use_id: 'toolu_3', content: stopped, is_error: true },
      ] },
      { role: 'user', content: [{ type: 'text', text: 'stopped you', cache_control: { type: 'ephemeral' } }] },
    ]);
  });

  test('Anthropic: a token goes as bearer', async () => {
    await withServer((s) => s.write(whole(answerBytes)), async (server) => {
      await stream({ ...claude, ...ask('x') }, { env: { ...server.anthropic, ANTHROPIC_AUTH_TOKEN: 'token-1' } });
      assert.match(server.requests[0].head, /authorization: Bearer token-1/i);
      assert.ok(!/x-api-key/i.test(server.requests[0].head));
    });
  });

  test('Chat Completions: the same conversation', async () => {
    const bytes = whole(data(chunkOf({ content: 'ok' }), chunkOf({}, 'stop'), '[DONE]'));
    const r = await against(bytes, { messages: history, system: 'Sys', max_tokens: 99 }, { provider: 'openai' });
    const [{ head, json }] = r.sent;
    assert.match(head, /^POST \/v1\/chat\/completions HTTP\/1\.1/);
    assert.match(head, /authorization: Bearer key-for-tests-2/i);
    assert.deepEqual({ ...json, messages: 0, tools: 0 }, { model: 'local-model', stream: true, stream_options: { include_usage: true }, max_tokens: 99, messages: 0, tools: 0 });
    assert.deepEqual(json.tools[0], { type: 'function', function: { name: 'executeCode', description: 'Runs code.', parameters: tools[0].input_schema } });
    assert.deepEqual(json.messages.slice(0, 4), [
      { role: 'system', content: 'Sys' },
      { role: 'user', content: 'first' },
      { role: 'assistant', content: 'Héllo \u{1f600}', tool_calls: [{ id: 'toolu_1', type: 'function', function: { name: 'executeCode', arguments: '{"code":"1é"}' } }] },
      { role: 'tool', tool_call_id: 'toolu_1', content: '{"output":"é","error":null}' },
    ]);
    assert.deepEqual(json.messages.slice(4).map((m) => m.role), ['assistant', 'tool', 'tool', 'user']);
    assert.equal(json.messages[4].content, null);
  });

  test('no key, no authorization: a local server needs none', async () => {
    await withServer((s) => s.write(whole(data(chunkOf({ content: 'ok' }, 'stop'), '[DONE]'))), async (server) => {
      const r = await stream({ model: 'llama3.2', ...ask('x') }, { env: { OPENAI_BASE_URL: `${server.url}/v1/` } });
      assert.equal(r.text, 'ok');
      assert.match(server.requests[0].head, /^POST \/v1\/chat\/completions/);
      assert.ok(!/authorization/i.test(server.requests[0].head));
    });
  });

  test('proxies of the environment are ignored', async () => {
    await withServer((s) => s.write(plain(500, 'text/plain', 'proxy')), async (proxy) => {
      await withServer((s) => s.write(whole(answerBytes)), async (server) => {
        const env = { ...server.anthropic, http_proxy: proxy.url, HTTP_PROXY: proxy.url, ALL_PROXY: proxy.url, all_proxy: proxy.url };
        const r = await stream({ ...claude, ...ask('x') }, { env });
        assert.equal(r.end.event, 'done');
        assert.equal(proxy.requests.length, 0);
      });
    });
  });

  test('connections are used again, at once and when the end comes late', async () => {
    for (const [late_ms, gap_ms] of [[0, 0], [10, 1000]])
      await withServer((s) => {
        s.write(Buffer.concat([Buffer.from(sseHead), chunk(answerBytes), Buffer.from(late_ms ? '' : lastChunk)]));
        if (late_ms) setTimeout(() => s.write(lastChunk), late_ms);
      }, async (server) => {
        const r = await runCli({ request: { ...claude, ...ask('x') }, times: 5, gap_ms, quiet: true }, server.anthropic);
        assert.equal(r.events.at(-1).streams, 5);
        assert.equal(server.requests.length, 5);
        assert.equal(server.connections(), 1);
      });
  });

  test('a key that breaks the header is refused before anything is sent', async () => {
    await withServer((s) => s.write(whole(answerBytes)), async (server) => {
      const r = await runCli({ request: { ...claude, ...ask('x') } }, { ...server.anthropic, ANTHROPIC_API_KEY: 'a\r\nx-evil: 1' });
      assert.equal(r.events[0].event, 'refused');
      assert.match(r.events[0].message, /control character/);
      assert.equal(server.requests.length, 0);
      assert.ok(!r.stdout.includes('x-evil'));
    });
  });

  test('only http and https, no user in the address', async () => {
    for (const url of ['file:///etc/passwd', 'ftp://127.0.0.1/', 'gopher://127.0.0.1:1/'])  {
      const r = await runCli({ request: { ...claude, ...ask('x') } }, { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: url });
      assert.equal(r.events[0].event, 'refused', url);
      assert.match(r.events[0].message, /only http and https/);
    }
    await withServer((s) => s.write(whole(answerBytes)), async (server) => {
      const r = await stream({ ...claude, ...ask('x') }, { env: { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url.replace('//', '//user:hunter2@') } });
      assert.equal(r.end.event, 'error');
      assert.equal(server.requests.length, 0);
      assert.ok(!r.stdout.includes('hunter2') && !r.stderr.includes('hunter2'));
    });
  });
});

describe('tool input', () => {
  const broken = { '{"code": ': /could not be read/, '[1]': /not a JSON object/, 'x': /could not be read/, '{} {}': /could not be read/ };
  for (const [text, message] of Object.entries(broken))
    test(`${text} is told to the loop, which can tell the model`, async () => {
      const r = await against(whole(sse(...anthropicAnswer([toolBlock('t1', 'executeCode', text)], 'tool_use'))), ask('x'));
      assert.equal(r.end.event, 'done');
      const [end] = r.of('tool_end');
      assert.equal(end.input, null);
      assert.match(end.error, message);
      assert.deepEqual(r.end.message.content[0].input, {});
      assert.equal(r.end.message.content[0].input_error, end.error);
    });

  test('none at all is {}', async () => {
    const r = await against(whole(sse(...anthropicAnswer([toolBlock('t1', 'executeCode')], 'tool_use'))), ask('x'));
    assert.deepEqual(r.of('tool_end')[0].input, {});
  });

  test('all of it in the block start', async () => {
    const r = await against(whole(sse(...anthropicAnswer([{ type: 'tool_use', id: 't', name: 'executeCode', input: { code: 'x' } }], 'tool_use'))), ask('x'));
    assert.deepEqual(r.of('tool_end')[0].input, { code: 'x' });
  });
});

describe('what is large', () => {
  const text = 'a"\\\n\u00e4\ud83d\ude00 text '.repeat(15_000); // some 200 KiB
  const input = { code: 'x', v: Array.from({ length: 9000 }, (_, i) => ({ i, s: 'é"' })) };
  const json = JSON.stringify(input);
  const isCut = (r, name) => {
    const sizes = r.of(name).map((e) => Buffer.byteLength(e.text));
    assert.ok(sizes.length > 20 && Math.max(...sizes) <= 8192, `${sizes.length} pieces of ${Math.max(...sizes)} bytes at most`);
    assert.equal(r.of('end').at(-1).most_pieces, 1, 'one in a turn of the loop');
  };
  const openai = (...chunks) => against(whole(data(...chunks)), ask('x'), { provider: 'openai' });
  const anthropic = (...blocks) => against(whole(sse(...anthropicAnswer(blocks))), ask('x'));
  const openaiCall = (args) => ({ index: 0, id: 'a', type: 'function', function: { name: 'executeCode', arguments: args } });

  test('text in one event comes in pieces, and what is behind it in its place', async () => {
    const r = await openai(chunkOf({ content: 'before ' }), chunkOf({ reasoning_content: text }), chunkOf({ content: text, refusal: null }), chunkOf({ content: ' behind' }, 'stop'), '[DONE]');
    assert.deepEqual(r.end.message.content.map((b) => b.text), ['before ', text, `${text} behind`]);
    assert.equal(r.text, `before ${text} behind`);
    isCut(r, 'text_delta');
  });

  test('everything of one event, with the reason and the usage', async () => {
    const r = await openai(chunkOf({ content: text, tool_calls: [openaiCall(json), { ...openaiCall(input), index: 1, id: 'b' }] }, 'tool_calls', { usage: { prompt_tokens: 5, completion_tokens: 6 } }), '[DONE]');
    assert.equal(r.end.stop, 'tool-calls');
    assert.equal(r.end.message.content[0].text, text);
    assert.deepEqual(r.of('tool_end').map((e) => [e.id, e.input]), [['a', input], ['b', input]]);
    assert.deepEqual(r.end.message.content.slice(1).map((b) => b.input), [input, input]);
    assert.equal(r.of('usage').at(-1).output, 6);
    isCut(r, 'tool_delta');
  });

  test('input in many pieces is read when it is whole, and may be no JSON', async () => {
    const pieces = json.match(/[^]{1,100}/g);
    const r = await openai(chunkOf({ tool_calls: [openaiCall('')] }), ...pieces.map((p) => chunkOf({ tool_calls: [{ index: 0, function: { arguments: p } }] })), chunkOf({}, 'tool_calls'), '[DONE]');
    assert.deepEqual(r.of('tool_end').map((e) => e.input), [input]);
    assert.deepEqual(r.end.message.content[0].input, input);
    const bad = await openai(chunkOf({ tool_calls: [openaiCall(json.slice(0, -1))] }), chunkOf({}, 'tool_calls'), '[DONE]');
    assert.match(bad.of('tool_end')[0].error, /could not be read/);
    assert.match(bad.end.message.content[0].input_error, /could not be read/);
  });

  test('blocks of the other API: deltas, and content in the beginning', async () => {
    const r = await anthropic(textBlock(text, ' behind'), { type: 'thinking', thinking: text, signature: 's', deltas: [] }, { ...toolBlock('t1', 'executeCode'), input }, toolBlock('t2', 'executeCode', json));
    const [said, thought, one, two] = r.end.message.content;
    assert.equal(said.text, `${text} behind`);
    assert.equal(thought.text, text);
    assert.equal(thought.raw.thinking, text);
    assert.equal(thought.raw.signature, 's');
    assert.deepEqual([one.input, two.input], [input, input]);
    assert.deepEqual(r.of('tool_end').map((e) => e.id), ['t1', 't2']);
    isCut(r, 'text_delta');
  });

  test('a connection that ends behind it, with and without a last word', async () => {
    for (const more of [[chunkOf({}, 'stop')], []]) {
      const r = await openai(chunkOf({ content: text }), ...more);
      assert.equal(r.end.event, more.length > 0 ? 'done' : 'error', r.stdout.slice(-300));
      assert.equal((r.end.message?.content ?? r.end.partial.content)[0].text, text);
    }
  });

  test('an event that cannot be read, and one with too much', async () => {
    const r = await openai(chunkOf({ content: 'x' }), `{"choices":[${text}`);
    assert.match(r.end.message, /cannot be read/);
    const much = await against(whole(data(chunkOf({ content: text }))), ask('x'), { provider: 'openai', options: { reply_bytes: 50_000 } });
    assert.match(much.end.message, /exceeds 50000 bytes/);
    assert.ok(much.text.length > 0);
  });

  test('it can be stopped at any time', async () => {
    const body = whole(data(chunkOf({ content: text, tool_calls: [openaiCall(json)] }, 'tool_calls'), '[DONE]'));
    for (const cancel_at of ['text_start', 'text_delta', 'tool_start', 'tool_delta', 'tool_end', 'usage']) {
      const r = await against(body, ask('x'), { provider: 'openai', cancel_at });
      assert.equal(r.end.event, 'cancelled', cancel_at);
    }
    for (const cancel_after_ms of [1, 3, 5, 10]) await against(body, ask('x'), { provider: 'openai', cancel_after_ms });
  });

  test('a request is written as a small one is', async () => {
    const messages = [
      { role: 'user', content: text },
      { role: 'assistant', content: [{ type: 'tool_call', id: 'c', name: 'executeCode', input }] },
      { role: 'tool', content: [{ type: 'tool_result', id: 'c', output: input }] },
    ];
    for (const provider of ['openai', 'anthropic']) {
      const answer = provider === 'openai' ? data(chunkOf({ content: 'x' }, 'stop'), '[DONE]') : sse(...anthropicAnswer([textBlock('x')]));
      const r = await against(whole(answer), { messages, system: 's', tools }, { provider });
      assert.equal(r.end.event, 'done');
      const sent = r.sent[0].json;
      assert.ok(JSON.stringify(sent).includes(JSON.stringify(text)));
      assert.equal(sent.tools.length, tools.length);
      const calls = provider === 'openai' ? JSON.parse(sent.messages.find((m) => m.tool_calls).tool_calls[0].function.arguments) : sent.messages[1].content[0].input;
      assert.deepEqual(calls, input);
    }
  });
});

describe('half-compatible Chat Completions', () => {
  const run = (body, request = ask('x')) => against(whole(body), request, { provider: 'openai' });
  const call = (index, id, name, args) => ({ ...(index === undefined ? {} : { index }), ...(id === undefined ? {} : { id }), type: 'function', function: { ...(name ? { name } : {}), ...(args === undefined ? {} : { arguments: args }) } });

  test('no usage: it is estimated', async () => {
    const r = await run(data(chunkOf({ role: 'assistant', content: '' }), chunkOf({ content: 'four' }), chunkOf({ content: null }, 'stop'), '[DONE]'));
    assert.equal(r.text, 'four');
    assert.equal(r.end.stop, 'stop');
    const usage = r.of('usage').at(-1);
    assert.equal(usage.estimated, true);
    assert.ok(usage.input > 10 && usage.output === 1);
  });

  test('a server that counts nothing does not make it free', async () => {
    const usage = { prompt_tokens: 0, completion_tokens: 0 };
    const r = await run(data(chunkOf({ content: 'some words' }, 'stop'), { choices: [], usage }, '[DONE]'));
    const told = r.of('usage').at(-1);
    assert.ok(told.estimated && told.input > 10 && told.output === 3, JSON.stringify(told));
  });

  test('counts that are none are estimated', async () => {
    for (const odd of ['12', 1.5, -1, [], {}, true, 2 ** 53]) {
      for (const usage of [{ prompt_tokens: odd, completion_tokens: 5 }, { prompt_tokens: 5, completion_tokens: odd }]) {
        const r = await run(data(chunkOf({ content: 'some words' }, 'stop'), { choices: [], usage }, '[DONE]'));
        const told = r.of('usage').at(-1);
        assert.ok(told.estimated && told.input > 10 && told.output >= 3, JSON.stringify([usage, told]));
      }
    }
  });

  test('usage with cached tokens in a chunk without choices', async () => {
    const usage = { prompt_tokens: 100, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 60 } };
    const r = await run(data(chunkOf({ content: 'a' }, 'stop'), { choices: [], usage }, '[DONE]'));
    const { event, ...told } = r.of('usage').at(-1);
    assert.deepEqual(told, { input: 40, output: 5, cache_read: 60, cache_write: 0, estimated: false }, event);
  });

  test('calls without ids, each whole, all with index 0', async () => {
    const r = await run(data(
      chunkOf({ content: null, tool_calls: [call(0, undefined, 'queryDatabase', '{"sql":"1"}')] }),
      chunkOf({ tool_calls: [call(0, '', 'queryDatabase', '{"sql":"2"}')] }, 'stop'), '[DONE]'));
    assert.deepEqual(r.of('tool_end').map((e) => e.input), [{ sql: '1' }, { sql: '2' }]);
    const ids = r.of('tool_start').map((e) => e.id);
    assert.equal(new Set(ids).size, 2);
    assert.ok(ids.every((id) => /^call_[0-9a-z]{20,}$/.test(id)));
    assert.equal(r.end.stop, 'tool-calls', 'though it said stop');
  });

  test('calls with other ids and the same index', async () => {
    const r = await run(data(
      chunkOf({ tool_calls: [call(0, 'a', 'queryDatabase', '{}')] }),
      chunkOf({ tool_calls: [call(0, 'b', 'queryDatabase', '{}')] }, 'tool_calls'), '[DONE]'));
    assert.deepEqual(r.of('tool_end').map((e) => e.id), ['a', 'b']);
  });

  test('a call without an index, and input as an object', async () => {
    const r = await run(data(chunkOf({ tool_calls: [call(undefined, 'a', 'executeCode', { code: 'x' }), call(undefined, 'b', 'executeCode', '{"code":"y"}')] }, 'tool_calls'), '[DONE]'));
    assert.deepEqual(r.of('tool_end').map((e) => e.input), [{ code: 'x' }, { code: 'y' }]);
  });

  test('name and id repeated in each piece', async () => {
    const r = await run(data(
      chunkOf({ tool_calls: [call(0, 'a', 'executeCode', '{"code"')] }),
      chunkOf({ tool_calls: [call(0, 'a', 'executeCode', ':"x"}')] }),
      chunkOf({}, 'tool_calls'), '[DONE]'));
    assert.deepEqual(r.of('tool_end').map((e) => e.input), [{ code: 'x' }]);
  });

  test('calls whose pieces interleave', async () => {
    const r = await run(data(
      chunkOf({ tool_calls: [call(0, 'a', 'executeCode', '')] }), chunkOf({ tool_calls: [call(1, 'b', 'queryDatabase', '')] }),
      chunkOf({ tool_calls: [call(0, undefined, null, '{"code":')] }), chunkOf({ tool_calls: [call(1, undefined, null, '{"sql":')] }),
      chunkOf({ tool_calls: [call(0, undefined, null, '"x"}')] }), chunkOf({ tool_calls: [call(1, undefined, null, '"y"}')] }),
      chunkOf({}, 'tool_calls'), '[DONE]'));
    assert.deepEqual(r.of('tool_end').map((e) => [e.id, e.input]), [['a', { code: 'x' }], ['b', { sql: 'y' }]]);
  });

  test('an id that the conversation has already is replaced', async () => {
    const messages = [
      { role: 'user', content: 'x' },
      { role: 'assistant', content: [{ type: 'tool_call', id: 'call_0', name: 'executeCode', input: {} }] },
      { role: 'tool', content: [{ type: 'tool_result', id: 'call_0', output: 'fine' }] },
    ];
    const r = await run(data(chunkOf({ tool_calls: [call(0, 'call_0', 'executeCode', '{}')] }, 'tool_calls'), '[DONE]'), { messages });
    assert.notEqual(r.of('tool_start')[0].id, 'call_0');
    assert.equal(r.of('tool_start')[0].id, r.end.message.content[0].id);
  });

  test('no [DONE], no finish reason, comments between', async () => {
    const noDone = await run(data(chunkOf({ content: 'a' }), chunkOf({}, 'length')));
    assert.equal(noDone.end.stop, 'length');
    const noReason = await run(`: OPENROUTER PROCESSING\n\n${data(chunkOf({ content: 'b' }), '[DONE]')}`);
    assert.equal(noReason.end.stop, 'stop');
    const neither = await run(data(chunkOf({ content: 'c' })));
    assert.equal(neither.end.event, 'error');
    assert.match(neither.end.message, /broke off/);
  });

  test('refusal, content filter, reasoning fields', async () => {
    const refusal = await run(data(chunkOf({ refusal: 'I will not.' }), chunkOf({}, 'stop'), '[DONE]'));
    assert.equal(refusal.text, 'I will not.');
    assert.equal(refusal.end.stop, 'content-filter');
    const filter = await run(data(chunkOf({ content: 'x' }), chunkOf({}, 'content_filter'), '[DONE]'));
    assert.equal(filter.end.stop, 'content-filter');
    const reasoning = await run(data(chunkOf({ reasoning_content: 'mm' }), chunkOf({ reasoning: 'hm' }), chunkOf({ content: 'y' }, 'stop'), '[DONE]'));
    assert.equal(reasoning.of('reasoning_delta').map((e) => e.text).join(''), 'mmhm');
    assert.deepEqual(reasoning.end.message.content.map((b) => b.type), ['reasoning', 'text']);
  });

  test('an error inside the stream', async () => {
    const early = await against((s, { number }) => s.write(whole(number === 1 ? data({ error: { message: 'Provider returned error', code: 502 } }) : data(chunkOf({ content: 'ok' }, 'stop'), '[DONE]'))), ask('x'), { provider: 'openai' });
    assert.equal(early.retries, 1);
    assert.equal(early.text, 'ok');
    const late = await run(data(chunkOf({ content: 'a' }), { error: { message: 'boom', type: 'server_error' } }));
    assert.equal(late.end.event, 'error');
    assert.match(late.end.message, /boom/);
  });
});

describe('requests that make no sense', () => {
  const cases = [
    [{ messages: 'x' }, /messages must be a list/],
    [{ messages: [] }, /no message to answer/],
    [{ messages: [{ role: 'robot', content: 'x' }] }, /messages\[0\]: \\"role\\"/],
    [{ messages: [{ role: 'user', content: 7 }] }, /messages\[0\]: \\"content\\"/],
    [{ messages: [{ role: 'user', content: [{ type: 'text' }] }] }, /content\[0\]/],
    [{ ...ask('x'), tools: [{ name: 'x' }] }, /tools\[0\] needs/],
    [{ ...ask('x'), model: 'gpt-4.1-mini' }, /needs a key: set OPENAI_API_KEY/],
    [{ ...ask('x'), model: `openai/${'x'.repeat(300)}` }, /exceeds 200 bytes/],
  ];
  for (const [request, message] of cases)
    test(String(message), async () => {
      const r = await runCli({ request: { model: 'claude-haiku-4-5', ...request } }, { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: 'http://127.0.0.1:1' });
      assert.equal(r.events[0].event, 'refused');
      assert.match(JSON.stringify(r.events[0]), message);
    });
});

test('many at once', async () => {
  await withServer(async (s) => {
    s.write(sseHead);
    for (const event of anthropicAnswer([textBlock('one ', 'two ', 'three')])) {
      s.write(chunk(sse(event)));
      await sleep(5);
    }
    s.write(lastChunk);
  }, async (server) => {
    const r = await runCli({ request: { ...claude, ...ask('x') }, parallel: 200, quiet: true }, server.anthropic);
    assert.equal(r.events.at(-1).streams, 200);
    assert.equal(r.events.at(-1).failed, 0);
    assert.equal(r.events.at(-1).pieces, 600);
  });
});
