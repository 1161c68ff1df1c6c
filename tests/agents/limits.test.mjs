// A key that has a limit for a day, in a chat: what it may not spend is said there, and nothing that was said is lost.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { bearer, createKey, request, tempDir } from '../lib/cay.mjs';
import { say, scripted } from '../lib/model.mjs';
import { Raw, TYPE, slow, user, withCay } from './support.mjs';

// A tenth of a cent for a token that is answered, 300 of them at most.
const models = {
  defaults: { anthropic: 'claude-dear' },
  models: [{ id: 'claude-dear', provider: 'anthropic', usd_per_million: { input: 0, output: 1000 }, max_output: 300 }],
};

async function start(t, answers, limit) {
  const model = await scripted(t, answers);
  const file = join(tempDir(t), 'models.json');
  writeFileSync(file, JSON.stringify(models));
  const cay = await withCay(t, { env: model.env, config: { models_file: file } });
  const key = await createKey(cay.dataDir, { name: 'k', more: limit });
  return { cay, model, headers: bearer(key.text) };
}

const messages = async (cay, headers) => (await request(cay, `/agents/${TYPE}/limits/get-messages`, { headers })).json();
const failure = (frames) => frames.find((f) => f.error)?.body ?? '';
const used = async (cay, headers) => (await request(cay, '/v1/usage', { headers })).json().today[0];

test('a turn that reaches the limit in flight is cut off, the next is refused, the history stays', { timeout: 120_000 }, async (t) => {
  const endless = { blocks: [{ type: 'text', text: 'word '.repeat(8000) }], pieces: 400, pause: 5, usage: { input_tokens: 1, output_tokens: 10_000 } };
  const { cay, model, headers } = await start(t, [{ ...say('Hello.'), usage: { input_tokens: 1, output_tokens: 7 } }, endless], ['--usd-per-day', '0.4']);
  const a = await Raw.ready(cay, 'limits', { headers });
  const first = await a.turn('t1', [user('u1', 'hi')]);
  assert.equal(first.at(-1).outcome, undefined, failure(first));

  const cut = await a.turn('t2', [...(await messages(cay, headers)), user('u2', 'talk')], { ms: 60_000 * slow });
  assert.equal(cut.at(-1).outcome, 'error');
  assert.match(failure(cut), /costs more than the key has left for today/);
  assert.match(a.text('t2'), /^word word/, 'what came before is seen');
  const { charged_usd: charged, held_usd: held } = await used(cay, headers);
  assert.ok(charged >= 0.307 && charged < 1, String(charged));
  assert.equal(held, 0);

  const refused = await a.turn('t3', [...(await messages(cay, headers)), user('u3', 'more')]);
  assert.equal(refused.at(-1).outcome, 'error');
  assert.match(failure(refused), /may spend \$0\.4000 a day.*the next day begins at 00:00 UTC/);
  assert.equal(model.requests.length, 2, 'the model was not asked again');

  const kept = await messages(cay, headers);
  assert.deepEqual(kept.filter((m) => m.role === 'user').map((m) => m.id), ['u1', 'u2', 'u3']);
  assert.match(JSON.stringify(kept[1]), /Hello\./);
  assert.match(JSON.stringify(kept[3]), /word word/);
  a.close();
});

test('tokens have a limit of their own in a chat', { timeout: 120_000 }, async (t) => {
  const { cay, model, headers } = await start(t, [say('no')], ['--tokens-per-day', '100']);
  const a = await Raw.ready(cay, 'limits', { headers });
  const refused = await a.turn('t1', [user('u1', 'hi')]);
  assert.equal(refused.at(-1).outcome, 'error');
  assert.match(failure(refused), /may use 100 tokens a day: 0 are used/);
  assert.equal(model.requests.length, 0);
  assert.equal((await messages(cay, headers))[0].id, 'u1');
  a.close();
});
