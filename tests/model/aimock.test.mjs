// Both provider APIs against an independent mock, with its faults.
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { LLMock } from '@copilotkit/aimock';
import { ask, stream, tools } from './lib.mjs';

let mock;
before(async () => {
  mock = new LLMock({ port: 0, host: '127.0.0.1', logLevel: 'silent' });
  await mock.start();
});
after(() => mock.stop());
beforeEach(() => {
  mock.clearFixtures();
  mock.clearRequests();
  mock.clearChaos();
});

// Each API reads its own names.
const counts = { input_tokens: 12, output_tokens: 8, prompt_tokens: 12, completion_tokens: 8, total_tokens: 20 };

const providers = {
  anthropic: {
    model: 'claude-haiku-4-5',
    env: () => ({ ANTHROPIC_API_KEY: 'sk-ant-test-123456', ANTHROPIC_BASE_URL: mock.url }),
  },
  openai: {
    model: 'gpt-4.1-mini',
    env: () => ({ OPENAI_API_KEY: 'sk-test-abcdef', OPENAI_BASE_URL: `${mock.url}/v1` }),
  },
};

for (const [name, { model, env }] of Object.entries(providers)) {
  describe(name, () => {
    const run = (request, rest = {}) => stream({ model, tools, system: 'Be brief.', ...request }, { env: env(), ...rest });

    test('streams text, usage and cost', async () => {
      mock.onMessage('hello', { content: 'Hi there, how are you today? \u{1f600} é', usage: counts }, { chunkSize: 5 });
      const r = await run(ask('hello'));
      assert.equal(r.end.event, 'done');
      assert.equal(r.end.stop, 'stop');
      assert.equal(r.text, 'Hi there, how are you today? \u{1f600} é');
      assert.ok(r.of('text_delta').length > 3, 'in pieces');
      assert.deepEqual(r.end.message, { role: 'assistant', content: [{ type: 'text', text: r.text }] });
      const usage = r.of('usage').at(-1);
      assert.deepEqual(usage, { event: 'usage', input: 12, output: 8, cache_read: 0, cache_write: 0, estimated: false });
      assert.ok(r.of('end')[0].cost_nusd > 0);
      assert.equal(r.status, 0);
    });

    test('streams a tool call, then an answer to its result', async () => {
      const args = JSON.stringify({ code: 'export default async () => console.log("é")' });
      mock.on({ userMessage: 'count', hasToolResult: false }, { content: 'I will run code.', toolCalls: [{ name: 'executeCode', arguments: args, id: 'call_abc' }] }, { chunkSize: 7 });
      mock.on({ toolCallId: 'call_abc' }, { content: 'Done: 3 tiers.' });
      const first = await run(ask('count'));
      assert.equal(first.end.stop, 'tool-calls');
      assert.equal(first.text, 'I will run code.');
      assert.equal(first.of('tool_start')[0].name, 'executeCode');
      assert.equal(first.of('tool_start')[0].id, 'call_abc');
      assert.equal(first.of('tool_delta').map((e) => e.text).join(''), args);
      assert.deepEqual(first.of('tool_end')[0].input, JSON.parse(args));
      const names = first.events.map((e) => e.event);
      assert.ok(names.indexOf('text_end') < names.indexOf('tool_start'));
      const second = await run({
        messages: [
          { role: 'user', content: 'count' },
          first.end.message,
          { role: 'tool', content: [{ type: 'tool_result', id: 'call_abc', name: 'executeCode', output: { output: 'Gold: 3', error: null } }] },
        ],
      });
      assert.equal(second.text, 'Done: 3 tiers.');
      const sent = mock.getLastRequest();
      assert.match(JSON.stringify(sent.body), /Gold: 3/);
    });

    test('several tool calls in one answer', async () => {
      mock.onMessage('both', {
        toolCalls: [
          { name: 'queryDatabase', arguments: '{"sql":"SELECT 1"}', id: 'c1' },
          { name: 'executeCode', arguments: '{"code":"x"}', id: 'c2' },
        ],
      }, { chunkSize: 3 });
      const r = await run(ask('both'));
      assert.deepEqual(r.of('tool_end').map((e) => [e.id, e.name, e.input]), [
        ['c1', 'queryDatabase', { sql: 'SELECT 1' }],
        ['c2', 'executeCode', { code: 'x' }],
      ]);
      assert.equal(r.end.stop, 'tool-calls');
    });

    test('reasoning', async () => {
      mock.onMessage('think', { content: 'Answer.', reasoning: 'Let me think about it.', reasoningSignature: 'c2lnbmF0dXJl' });
      const r = await run(ask('think'));
      assert.equal(r.of('reasoning_delta').map((e) => e.text).join(''), 'Let me think about it.');
      assert.equal(r.of('reasoning_end').length, 1);
      assert.equal(r.text, 'Answer.');
      if (name !== 'anthropic') return;
      const block = r.end.message.content[0];
      assert.deepEqual(block.raw, { type: 'thinking', thinking: 'Let me think about it.', signature: 'c2lnbmF0dXJl' });
    });

    test('a 500 is tried again', async () => {
      mock.nextRequestError(500, { message: 'broken', type: 'server_error' });
      mock.onMessage('hello', { content: 'Hi.' });
      const r = await run(ask('hello'));
      assert.equal(r.retries, 1);
      assert.equal(r.text, 'Hi.');
      assert.equal(r.end.event, 'done');
    });

    test('500s without end are given up with a clear error', async () => {
      mock.setChaos({ dropRate: 1 });
      mock.onMessage('hello', { content: 'Hi.' });
      const r = await run(ask('hello'), { options: { retries: 2 } });
      assert.equal(r.retries, 2);
      assert.equal(r.end.event, 'error');
      assert.equal(r.end.code, 'unavailable');
      assert.equal(r.end.retryable, true);
      assert.match(r.end.message, /overloaded or failing \(500\)/);
    });

    test('a rate limit is honoured, and its Retry-After beyond the bound ends it', async () => {
      mock.setChaos({ rateLimitRate: 1 });
      mock.onMessage('hello', { content: 'Hi.' });
      // The mock asks for a second or more; the bound is 50 ms.
      const r = await run(ask('hello'), { options: { retries: 2, retry_wait_ms: 50 } });
      assert.equal(r.retries, 0);
      assert.equal(r.end.code, 'rate_limited');
      assert.equal(r.end.retryable, true);
      const began = Date.now();
      const patient = await run(ask('hello'), { options: { retries: 1, retry_wait_ms: 5000 } });
      assert.equal(patient.retries, 1);
      assert.ok(patient.of('retry')[0].wait_ms >= 1000);
      assert.ok(Date.now() - began >= 1000, 'waited as asked');
    });

    test('malformed answers are an error, not a hang', async () => {
      mock.setChaos({ malformedRate: 1 });
      mock.onMessage('hello', { content: 'Hi.' });
      const r = await run(ask('hello'), { options: { retries: 1 } });
      assert.equal(r.end.event, 'error');
      assert.ok(r.end.message.length > 20);
    });

    test('a connection cut at once is tried again, then an error', async () => {
      mock.setChaos({ disconnectRate: 1 });
      mock.onMessage('hello', { content: 'Hi.' });
      const r = await run(ask('hello'), { options: { retries: 1 } });
      assert.equal(r.retries, 1);
      assert.equal(r.end.event, 'error');
      assert.equal(r.end.code, 'unavailable');
      assert.equal(r.end.retryable, true);
    });

    test('a stream cut in the middle keeps what came', async () => {
      mock.onMessage('hello', { content: 'This is a long answer that will be cut somewhere.' }, { latency: 10, chunkSize: 4, truncateAfterChunks: 5 });
      const r = await run(ask('hello'));
      assert.equal(r.retries, 0, 'not after the first token');
      assert.equal(r.end.event, 'error');
      assert.match(r.end.message, /broke off/);
      assert.equal(r.end.partial.content[0].text, r.text);
      assert.ok('This is a long answer'.startsWith(r.text.slice(0, 8)) && r.text.length > 0);
      assert.equal(r.of('usage').at(-1).estimated, true);
    });

    test('a tool call cut in the middle is left out', async () => {
      mock.onMessage('hello', { toolCalls: [{ name: 'executeCode', arguments: JSON.stringify({ code: 'x'.repeat(200) }), id: 'c9' }] }, { latency: 10, chunkSize: 4, truncateAfterChunks: 6 });
      const r = await run(ask('hello'));
      assert.equal(r.end.event, 'error');
      assert.equal(r.of('tool_end').length, 0);
      assert.deepEqual(r.end.partial?.content ?? [], []);
    });

    test('slow streams can be cancelled', async () => {
      mock.onMessage('slow', { content: 'word '.repeat(40) }, { latency: 50, chunkSize: 5 });
      const r = await run(ask('slow'), { cancel_after_ms: 400 });
      assert.equal(r.end.event, 'cancelled');
      assert.ok(r.text.length < 150, r.text);
      assert.equal(r.status, 0);
    });

    test('no key in any output', async () => {
      mock.nextRequestError(401, { message: `bad key ${Object.values(env())[0]} given`, type: 'authentication_error' });
      const r = await run(ask('hello'));
      assert.equal(r.end.code, 'unauthorized');
      assert.equal(r.end.retryable, false);
      assert.match(r.end.message, /\[redacted\]/);
      const key = Object.values(env())[0];
      assert.ok(!r.stdout.includes(key) && !r.stderr.includes(key));
    });
  });
}
