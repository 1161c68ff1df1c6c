// Behind what it meets in a sandbox: the way out with a model route, and an independent mock of the model APIs.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LLMock } from '@copilotkit/aimock';
import { startEgress } from '../egress/lib.mjs';
import { DIALECTS, done, runCoder, sh, startModel, tool } from './lib.mjs';

const KEY = 'sk-operator-0123456789';
const HELLO = [tool('write_file', { path: 'hello.sh', content: 'echo Hello\n' }), sh('sh hello.sh'), done('It says Hello.')];

for (const dialect of DIALECTS) {
  const path = dialect === 'openai' ? '/v1' : '';

  test(`${dialect}: a model route takes its requests, with a key that it never had`, async (t) => {
    const model = await startModel(t, dialect, HELLO);
    const egress = await startEgress(t, { private: [`127.0.0.1:${model.port}`] });
    const header = dialect === 'openai' ? { authorization: 'Bearer ${KEY}' } : { 'x-api-key': '${KEY}' };
    const routes = { model: { url: `http://127.0.0.1:${model.port}${path}`, api: dialect, headers: header, models: ['m'] } };
    const port = await egress.open('a', { routes, caps: { tokens: 100_000 } }, { secrets: { KEY } });
    const env = { [dialect === 'openai' ? 'OPENAI_API_KEY' : 'ANTHROPIC_API_KEY']: 'placeholder' };
    const r = await runCoder(t, `http://127.0.0.1:${port}${path}`, { dialect, env });
    assert.equal(r.last.type, 'done', JSON.stringify(r.last));
    assert.equal(r.output(2), 'Hello\n');
    assert.match(JSON.stringify(model.heads[0].headers), new RegExp(KEY));
    assert.ok(!r.raw.includes(KEY));
  });

  test(`${dialect}: what the route refuses ends it at once, in the route's words`, async (t) => {
    const egress = await startEgress(t);
    const routes = { model: { url: 'https://example.com', api: dialect, models: ['another'] } };
    const port = await egress.open('a', { routes });
    const r = await runCoder(t, `http://127.0.0.1:${port}${path}`, { dialect });
    assert.equal(r.last.reason, 'model_error');
    assert.match(r.last.message, /answered 403: the model "m" is not granted/);
    assert.equal(r.of('model_end')[0].attempts, 1);
  });

  test(`${dialect}: an independent mock of the API`, async (t) => {
    const mock = new LLMock({ port: 0, host: '127.0.0.1', logLevel: 'silent' });
    await mock.start();
    t.after(() => mock.stop());
    mock.on({ userMessage: 'a script', turnIndex: 0 }, { content: JSON.stringify(HELLO[0]) });
    mock.on({ userMessage: '"tool":"write_file"' }, { content: JSON.stringify(HELLO[1]) });
    mock.on({ userMessage: 'Hello\\n' }, { content: JSON.stringify(HELLO[2]), usage: { input_tokens: 12, output_tokens: 8, prompt_tokens: 12, completion_tokens: 8 } });
    const r = await runCoder(t, `${mock.url.replace('localhost', '127.0.0.1')}${path}`, { dialect, spec: 'Make a script and run it' });
    assert.equal(r.last.type, 'done', JSON.stringify(r.events.slice(-3)));
    assert.equal(r.last.summary, 'It says Hello.');
    assert.ok(r.last.usage.output_tokens >= 8);
  });
}
