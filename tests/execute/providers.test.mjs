// Both providers as an independent mock plays them, with its faults.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LLMock } from '@copilotkit/aimock';
import { request, slow, withCay } from '../lib/cay.mjs';

const post = async (cay, body) => {
  const got = await request(cay, '/execute/sdk', { method: 'POST', body: JSON.stringify(body) });
  return { status: got.status, ...got.json() };
};

async function withModel(t, provider) {
  const mock = new LLMock({ port: 0, logLevel: 'silent' });
  await mock.start();
  t.after(() => mock.stop());
  const env = provider === 'anthropic'
    ? { ANTHROPIC_BASE_URL: mock.url, ANTHROPIC_API_KEY: 'sk-test' }
    : { OPENAI_BASE_URL: `${mock.url}/v1`, OPENAI_API_KEY: 'sk-test' };
  return { mock, cay: await withCay(t, { env }) };
}

const todos = [{ content: 'Look', status: 'in_progress', activeForm: 'Looking' }];

for (const provider of ['anthropic', 'openai']) {
  const model = { anthropic: 'claude-sonnet-5-5', openai: 'gpt-5.5' }[provider];

  test(`${provider}: tools, steps and usage`, async (t) => {
    const { mock, cay } = await withModel(t, provider);
    mock.on({ userMessage: 'work', turnIndex: 0 }, { content: 'I will.', toolCalls: [
      { id: 'call_1', name: 'TodoWrite', arguments: JSON.stringify({ todos }) },
      { id: 'call_2', name: 'RunCode', arguments: JSON.stringify({ code: 'export default async () => console.log(6 * 7)' }) },
      { id: 'call_3', name: 'TodoWrite', arguments: '{"todos": "no list"}' },
    ] });
    mock.on({ userMessage: 'work', turnIndex: 1 }, { content: 'It is 42.' });
    const got = await post(cay, { prompt: 'work', options: { allowed_tools: ['TodoWrite', 'RunCode'] } });
    assert.equal(got.result, 'It is 42.', JSON.stringify(got.error));
    assert.equal(got.messages[0].model, model);
    assert.equal(got.metadata.model, provider === 'anthropic' ? 'sonnet' : model);
    const results = got.messages.filter((m) => m.type === 'user').flatMap((m) => m.message.content);
    assert.deepEqual(results.map((r) => r.is_error), [false, false, true]);
    assert.deepEqual(JSON.parse(results[1].content), { output: '42', error: null });
    assert.match(results[2].content, /"todos" must be a list/);
    const { usage, modelUsage, num_turns: turns } = got.messages.at(-1);
    assert.equal(turns, 2);
    assert.ok(usage.input_tokens > 0 && usage.output_tokens > 0);
    assert.equal(modelUsage[model].outputTokens, usage.output_tokens);
  });

  test(`${provider}: faults are failures that are told, or are got over`, { timeout: 60_000 * slow }, async (t) => {
    const { mock, cay } = await withModel(t, provider);
    mock.on({ userMessage: 'fine' }, { content: 'Fine.' });
    mock.nextRequestError(400, { message: 'not like that', type: 'invalid_request_error' });
    const refused = await post(cay, { prompt: 'fine' });
    assert.equal(refused.status, 502, JSON.stringify(refused));
    assert.equal(refused.success, false);
    assert.match(refused.error.message, /not like that/);
    assert.deepEqual([refused.messages.at(-1).subtype, refused.messages.at(-1).is_error], ['success', true]);
    mock.nextRequestError(529, { message: 'busy', type: 'overloaded_error' });
    assert.equal((await post(cay, { prompt: 'fine' })).result, 'Fine.', 'tried again');
    const none = await post(cay, { prompt: 'nobody has written an answer to this' });
    assert.equal(none.success, false);
    assert.ok(none.error.code && none.error.message);
    mock.on({ userMessage: 'cut' }, { content: 'This answer is cut off in its middle.' }, { chunkSize: 4, truncateAfterChunks: 3 });
    const cut = await post(cay, { prompt: 'cut' });
    assert.equal(cut.success, false, JSON.stringify(cut));
    assert.equal(cut.messages.at(-1).is_error, true);
  });
}
