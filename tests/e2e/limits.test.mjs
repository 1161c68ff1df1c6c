// How often callers may come, and what keys may spend.
import assert from 'node:assert/strict';
import { readdirSync, writeFileSync } from 'node:fs';
import { createServer, request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { bearer, createKey, procText, request, runCay, sleep, startCay, tempDir, until, withCay } from '../lib/cay.mjs';
import { say, scripted, tool } from '../lib/model.mjs';

describe('rates', () => {
  let cay;
  before(async () => {
    cay = await startCay({
      config: { proxies: ['127.0.0.1'], limits: { address_per_minute: 6, key_per_minute: 5 } },
    });
  });
  after(() => cay.stop());

  const from = (address, more = {}) => ({ headers: { 'X-Forwarded-For': address, ...more } });
  const ask = async (options) => (await request(cay, '/v1/runs', options)).status;

  test('who is on this machine has none', async () => {
    for (let i = 0; i < 20; i++) {
      const answer = await request(cay, '/v1/runs');
      assert.equal(answer.status, 200);
      assert.equal(answer.headers.ratelimit, undefined);
    }
  });

  test('who comes through a proxy is not on this machine, and has one by address', async () => {
    const seen = [];
    for (let i = 0; i < 7; i++) seen.push(await request(cay, '/v1/runs', from('203.0.113.1')));
    assert.deepEqual(seen.map((a) => a.status), [401, 401, 401, 401, 401, 401, 429]);
    assert.equal(seen[0].headers['ratelimit-policy'], '"address";q=6;w=60');
    assert.match(seen[0].headers.ratelimit, /^"address";r=5;t=\d+$/);
    const last = seen[6];
    assert.match(last.headers.ratelimit, /^"address";r=0;t=\d+$/);
    assert.ok(Number(last.headers['retry-after']) >= 1 && Number(last.headers['retry-after']) <= 11);
    assert.equal(last.json().error.code, 'rate_limited');
    assert.equal(await ask(from('203.0.113.2')), 401, 'another has its own');
    assert.equal((await request(cay, '/healthz', from('203.0.113.1'))).status, 429, 'what is open counts too');
  });

  test('what is before the address that the proxy saw changes nothing', async () => {
    for (let i = 0; i < 6; i++) await ask(from(`10.9.8.${i}, 203.0.113.3`));
    assert.equal(await ask(from('10.9.8.77, 203.0.113.3')), 429);
  });

  test('a client that says it is this machine is not believed, whichever way the proxy adds its own', async () => {
    const lies = ['127.0.0.1', '::1', '127.0.0.1, 127.0.0.1', 'unknown', ''];
    for (const lie of lies) assert.equal(await ask(from([lie, '203.0.113.66'])), 401, `two fields: ${lie}`);
    assert.equal(await ask(from('203.0.113.67:4711')), 401, 'with a port');
    for (const what of ['unknown', 'unix:', '203.0.113.68, unknown', ',']) assert.equal(await ask(from(what)), 401, `no address: ${what}`);
  });

  test('the addresses of an IPv6 network are one', async () => {
    for (let i = 0; i < 6; i++) await ask(from(`2001:db8:5:5::${i}`));
    assert.equal(await ask(from('2001:db8:5:5:ffff::1')), 429);
    assert.equal(await ask(from('2001:db8:5:6::1')), 401);
  });

  test('keys cannot be guessed at, and a valid one is held to its own', async () => {
    const key = await createKey(cay.dataDir, { name: 'k' });
    const wrong = bearer(`${key.text.slice(0, -4)}0000`);
    for (let i = 0; i < 6; i++) assert.equal(await ask(from('203.0.113.4', wrong)), 401);
    assert.equal(await ask(from('203.0.113.4', wrong)), 429);
    for (let i = 0; i < 5; i++) assert.equal(await ask(from('203.0.113.4', bearer(key.text))), 200);
    const over = await request(cay, '/v1/runs', from('203.0.113.4', bearer(key.text)));
    assert.equal(over.status, 429);
    assert.equal(over.headers['ratelimit-policy'], '"key";q=5;w=60');
    const own = await createKey(cay.dataDir, { name: 'own', rate: 7 });
    const answer = await request(cay, '/v1/runs', { headers: bearer(own.text) });
    assert.equal(answer.headers['ratelimit-policy'], '"key";q=7;w=60', 'its own goes before');
  });
});

test('nobody else is believed about where they come from', async (t) => {
  const cay = await startCay({ config: { limits: { address_per_minute: 1 } } });
  t.after(() => cay.stop());
  for (let i = 0; i < 5; i++) {
    const answer = await request(cay, '/v1/runs', { headers: { 'X-Forwarded-For': '203.0.113.1' } });
    assert.equal(answer.status, 200);
  }
});

// A model of $1 a token, so that sums are easy: 1 token in, n out.
const models = {
  defaults: { anthropic: 'pricey' },
  models: [
    { id: 'claude-pricey', provider: 'anthropic', aliases: ['pricey', 'sonnet'], usd_per_million: { input: 0, output: 1_000_000 }, max_output: 300 },
    { id: 'claude-dear', provider: 'anthropic', usd_per_million: { input: 0, output: 1_000_000 }, max_output: 300 },
  ],
};

async function startPriced(t, answers, more = {}) {
  const model = await scripted(t, answers);
  const dataDir = more.dataDir ?? tempDir(t);
  const file = join(dataDir, 'models.json');
  writeFileSync(file, JSON.stringify(models));
  const cay = await startCay({ dataDir, env: model.env, config: { models_file: file, execute: { max: 64, ...more.execute } } });
  if (!more.dies) t.after(() => cay.stop());
  return { cay, model };
}

const sdk = (cay, key, options = {}) =>
  request(cay, '/execute/sdk', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...bearer(key.text) },
    body: JSON.stringify({ prompt: 'go', options: { allowed_tools: [], ...options } }),
  });

/** An answer that says to come again when the day of UTC is over. */
function checkNextDay(answer) {
  const wait = Number(answer.headers['retry-after']);
  const left = 86_400 - (Math.floor(Date.now() / 1000) % 86_400);
  assert.ok(wait >= 1 && wait <= 86_400, `Retry-After: ${answer.headers['retry-after']}`);
  assert.ok(Math.abs(wait - left) < 120 || wait < 120 || left < 120, `${wait} for ${left}`);
}

const today = async (cay, key) => (await request(cay, '/v1/usage', { headers: bearer(key.text) })).json().today[0] ?? {};

/** A model that answers when it is let, and a key of which three calls of 300 tokens fit, and one of 260. */
async function startHeld(t) {
  let release;
  const go = new Promise((resolve) => (release = resolve));
  const answer = async () => {
    await go;
    return { ...say('done'), usage: { input_tokens: 1, output_tokens: 20 } };
  };
  const { cay, model } = await startPriced(t, Array.from({ length: 60 }, () => answer));
  const key = await createKey(cay.dataDir, { name: 'k', more: ['--usd-per-day', '1160'] });
  return { cay, model, key, release };
}

test('forty at once wait for what the others hold, and none fails for money that is not spent', { timeout: 120_000 }, async (t) => {
  const { cay, model, key, release } = await startHeld(t);
  const all = Array.from({ length: 40 }, () => sdk(cay, key));
  await until(async () => (await today(cay, key)).held_usd === 900, 'three hold what they may need');
  await until(() => model.requests.length >= 3, 'the model is asked');
  assert.deepEqual(model.requests.map((r) => r.max_tokens), [300, 300, 300]);
  release();
  for (const { status, body } of await Promise.all(all)) assert.equal(status, 200, body);
  await until(async () => (await today(cay, key)).held_usd === 0, 'nothing is set aside any more');
  assert.equal((await today(cay, key)).charged_usd, 800);
});

test('what is held for long is told as that, and never exceeds what the key has', { timeout: 120_000 }, async (t) => {
  const { cay, model, key, release } = await startHeld(t);
  const all = Array.from({ length: 20 }, () => sdk(cay, key));
  await until(async () => (await today(cay, key)).held_usd === 1160, 'all of it is set aside');
  const refused = await Promise.any(all);
  assert.equal(refused.status, 429, refused.body);
  assert.equal(refused.json().error.code, 'rate_limited');
  assert.match(refused.json().error.message, /other calls of this key hold the money/);
  assert.equal(refused.headers['retry-after'], '1');
  await until(() => model.requests.length >= 4, 'the last of those that were let out'); // it left with the refusal
  assert.deepEqual(model.requests.map((r) => r.max_tokens).sort(), [260, 300, 300, 300]);
  release();
  const statuses = (await Promise.all(all)).map((a) => a.status);
  assert.equal(statuses.filter((s) => s === 200).length, 4);
  await until(async () => (await today(cay, key)).held_usd === 0, 'nothing is set aside any more');
  assert.equal((await today(cay, key)).charged_usd, 80);
  assert.equal((await sdk(cay, key)).status, 200, 'there is room again');
});

test('many at the limit minus one: one is admitted', { timeout: 120_000 }, async (t) => {
  const { cay, model } = await startPriced(t, Array.from({ length: 30 }, () => ({ ...say('x'), usage: { input_tokens: 0, output_tokens: 256 } })));
  const key = await createKey(cay.dataDir, { name: 'k', more: ['--usd-per-day', '257'] });
  const answers = await Promise.all(Array.from({ length: 20 }, () => sdk(cay, key)));
  assert.equal(answers.filter((a) => a.status === 200).length, 1);
  assert.equal(answers.filter((a) => a.status === 429).length, 19);
  assert.equal(model.requests.length, 1);
  assert.equal((await sdk(cay, key)).status, 429, 'one dollar is too little for another');
  assert.equal((await today(cay, key)).charged_usd, 256);
});

test('an answer that goes on beyond what was set aside is cut off', { timeout: 120_000 }, async (t) => {
  const { cay } = await startPriced(t, [{ blocks: [{ type: 'text', text: 'x'.repeat(40_000) }], pieces: 400, pause: 5, usage: { input_tokens: 1, output_tokens: 10_000 } }]);
  const key = await createKey(cay.dataDir, { name: 'k', more: ['--usd-per-day', '400'] });
  const got = await sdk(cay, key);
  assert.equal(got.status, 429, got.body);
  assert.equal(got.json().error.code, 'quota_exceeded');
  const spent = await today(cay, key);
  assert.ok(spent.charged_usd >= 300 && spent.charged_usd < 1000, JSON.stringify(spent));
  assert.equal(spent.held_usd, 0);
});

test('a server that is killed in the middle of calls makes nobody richer', { timeout: 120_000 }, async (t) => {
  const dataDir = tempDir(t);
  const first = await startPriced(t, [{ ...say('never'), hold: true }], { dataDir, dies: true });
  const key = await createKey(dataDir, { name: 'k', more: ['--usd-per-day', '700', '--tokens-per-day', '100000'] });
  const cut = sdk(first.cay, key).catch(() => 'cut');
  await until(() => first.model.requests.length === 1, 'the model is asked');
  const { held_usd: held, held_tokens: tokens } = await today(first.cay, key);
  assert.equal(held, 300);
  await first.cay.kill9();
  assert.equal(await cut, 'cut');
  const second = await startPriced(t, [{ ...say('yes'), usage: { input_tokens: 2, output_tokens: 7 } }, { ...say('never'), hold: true }], { dataDir, dies: true });
  await until(async () => (await today(second.cay, key)).held_usd === 0, 'what was set aside is');
  const lost = await today(second.cay, key);
  assert.deepEqual([lost.charged_usd, lost.tokens], [300, tokens], 'it counts as spent');
  const rows = (await request(second.cay, '/v1/usage', { headers: bearer(key.text) })).json().jobs;
  assert.equal(rows.find((r) => r.kind === 'interrupted')?.charged_usd, 300, 'and is shown as what it is');
  assert.equal((await sdk(second.cay, key)).status, 200);
  const row = await today(second.cay, key);
  assert.deepEqual([row.charged_usd, row.tokens, row.held_usd, row.held_tokens], [307, tokens + 9, 0, 0]);
  const again = sdk(second.cay, key).catch(() => 'cut');
  await until(() => second.model.requests.length === 2, 'the model is asked');
  await second.cay.kill9();
  assert.equal(await again, 'cut');
  const third = await startPriced(t, [say('too much')], { dataDir });
  const over = await sdk(third.cay, key);
  assert.equal(over.status, 429, over.body);
  checkNextDay(over);
  assert.equal(third.model.requests.length, 0);
});

test('what a key used is told by day and kind, and with each run', { timeout: 120_000 }, async (t) => {
  const { cay } = await startPriced(t, [{ ...say('a'), usage: { input_tokens: 3, output_tokens: 4 } }, { ...say('b'), usage: { input_tokens: 1, output_tokens: 2 } }]);
  const key = await createKey(cay.dataDir, { name: 'k' });
  assert.equal((await sdk(cay, key)).status, 200);
  assert.equal((await sdk(cay, key, { model: 'claude-unheard-of' })).status, 200);
  const ran = await request(cay, '/v1/run', { method: 'POST', headers: { 'Content-Type': 'application/json', ...bearer(key.text) }, body: '{"code":"export default () => 1"}' });
  assert.equal(ran.status, 200, ran.body);
  const usage = async () => (await request(cay, '/v1/usage', { headers: bearer(key.text) })).json().jobs;
  await until(async () => (await usage()).length === 2 && (await usage()).every((r) => r.jobs > 0), 'the jobs are counted');
  const [run, done] = (await usage()).toSorted((a, b) => a.kind.localeCompare(b.kind));
  assert.deepEqual([run.kind, run.jobs, run.done, run.cost_usd], ['run', 1, 1, 0]);
  assert.deepEqual(
    [done.kind, done.jobs, done.done, done.input_tokens, done.output_tokens, done.cost_usd, done.charged_usd],
    ['sdk', 2, 2, 4, 6, 4, 6], 'the price that is not known counts as the dearest, and is not told as cost');
  const { runs } = (await request(cay, '/v1/runs?kind=sdk', { headers: bearer(key.text) })).json();
  assert.deepEqual(runs.map((r) => [r.usage.cost_usd, r.usage.price_known]), [[0, false], [4, true]]);
  assert.match(cay.stderr(), /account.price/);
  const shown = await runCay(['usage', '--url', `http://127.0.0.1:${cay.port}`]);
  assert.match(shown.stdout, new RegExp(`${key.id} +sdk +2 +2 .* 4 +6 +4\\.0000\\+`));
});

test('what a key without limits used is told at once, and outlives the server', { timeout: 120_000 }, async (t) => {
  const dataDir = tempDir(t);
  const answers = () => Array.from({ length: 9 }, () => ({ ...say('a'), usage: { input_tokens: 3, output_tokens: 4 } }));
  const used = async (cay, key) => (await request(cay, '/v1/usage', { headers: bearer(key.text) })).json();
  const start = async () => (await startPriced(t, answers(), { dataDir, dies: true })).cay;
  let cay = await start();
  const key = await createKey(dataDir, { name: 'k' });
  for (let i = 1; i <= 3; i++) {
    assert.equal((await sdk(cay, key)).status, 200);
    const { jobs, today: [day] } = await used(cay, key);
    assert.deepEqual([jobs[0].output_tokens, jobs[0].charged_usd, day.tokens, day.charged_usd], [4 * i, 4 * i, 7 * i, 4 * i]);
  }
  await cay.kill9(); // what was told is kept
  cay = await start();
  assert.equal((await used(cay, key)).jobs[0].output_tokens, 12);
  assert.equal((await sdk(cay, key)).status, 200);
  await cay.stop(); // and what was not told yet, by one that stops
  cay = await start();
  t.after(() => cay.stop());
  assert.equal((await used(cay, key)).jobs[0].output_tokens, 16);
});

test('a key has as many jobs at a time as it may', { timeout: 120_000 }, async (t) => {
  let release;
  const go = new Promise((resolve) => (release = resolve));
  const { cay, model } = await startPriced(t, Array.from({ length: 9 }, () => async () => (await go, say('x'))));
  const key = await createKey(cay.dataDir, { name: 'k', more: ['--max-jobs', '2'] });
  const first = [sdk(cay, key), sdk(cay, key)];
  await until(() => model.requests.length === 2, 'two run');
  const third = await sdk(cay, key);
  assert.equal(third.status, 429, third.body);
  assert.match(third.json().error.message, /2 jobs at a time/);
  assert.equal(third.headers['retry-after'], '1');
  const at = `/v1/agents/sandbox-agent/${key.id}/messages`;
  const turn = await request(cay, at, { method: 'POST', headers: { 'Content-Type': 'application/json', ...bearer(key.text) }, body: '{"text":"hello"}' });
  assert.equal(turn.status, 429, turn.body);
  const kept = await request(cay, at, { headers: bearer(key.text) });
  assert.deepEqual(kept.json().messages, [], 'what was refused is not in the history');
  release();
  for (const done of await Promise.all(first)) assert.equal(done.status, 200);
  assert.equal((await sdk(cay, key)).status, 200);
  const listed = await runCay(['key', 'list', '--data-dir', cay.dataDir]);
  assert.match(listed.stdout, /jobs 2/);
});

test('limits over the API: they are shown, and nobody gets rid of them by a new key', async (t) => {
  const cay = await startCay();
  t.after(() => cay.stop());
  const make = (body, headers = {}) =>
    request(cay, '/v1/keys', { method: 'POST', headers: { 'Content-Type': 'application/json', ...headers }, body: JSON.stringify(body) });
  const made = await make({ name: 'a', scope: 'admin', max_jobs: 3, tokens_per_day: 1000, usd_per_day: 2.5 });
  assert.equal(made.status, 201, made.body);
  const limits = ({ max_jobs, tokens_per_day, usd_per_day }) => [max_jobs, tokens_per_day, usd_per_day];
  assert.deepEqual(limits(made.json()), [3, 1000, 2.5]);
  assert.deepEqual(limits((await request(cay, '/v1/keys')).json().keys[0]), [3, 1000, 2.5]);
  assert.equal((await make({ name: 'b' }, bearer(made.json().key))).status, 403);
  for (const bad of [{ max_jobs: -1 }, { tokens_per_day: 1.5 }, { usd_per_day: '1' }, { usd_per_day: -1 }, { usd_per_day: 1e9 }, { max_jobs: 'x' }])
    assert.equal((await make({ name: 'c', ...bad })).status, 400, JSON.stringify(bad));
  for (const bad of ['--max-jobs=-1', '--tokens-per-day=x', '--usd-per-day=', '--usd-per-day=nan'])
    assert.notEqual((await runCay(['key', 'create', '--name', 'd', '--data-dir', cay.dataDir, bad])).code, 0, bad);
});

test('a coding job sets aside what each call may cost, is held to it, and is settled by what was used', { timeout: 180_000 }, async (t) => {
  let release;
  const go = new Promise((resolve) => (release = resolve));
  let asked = 0;
  const server = createServer((req, res) => {
    req.resume().on('end', async () => {
      asked++;
      await go;
      res.setHeader('content-type', 'application/json');
      res.end(JSON.stringify({
        id: 'x', type: 'message', role: 'assistant', model: 'm', stop_reason: 'end_turn',
        content: [{ type: 'text', text: JSON.stringify({ done: true, summary: 'ok' }) }], usage: { input_tokens: 7, output_tokens: 100 },
      }));
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => (server.closeAllConnections(), server.close()));
  const dir = tempDir(t);
  const file = join(dir, 'models.json');
  writeFileSync(file, JSON.stringify({ models: [{ id: 'claude-coder', provider: 'anthropic', usd_per_million: { input: 0, output: 1000 } }] }));
  const cay = await withCay(t, {
    env: { ANTHROPIC_API_KEY: 'sk-x', ANTHROPIC_BASE_URL: `http://127.0.0.1:${server.address().port}` },
    config: { models_file: file },
  });
  const key = await createKey(cay.dataDir, { name: 'k', more: ['--usd-per-day', '6', '--tokens-per-day', '100000'] });
  const headers = bearer(key.text);
  const ask = (body = {}) => request(cay, '/v1/code', { method: 'POST', headers, body: JSON.stringify({ spec: 'do it', model: 'claude-coder', ...body }) });
  const first = ask();
  await until(() => asked === 1, 'the model is asked');
  assert.equal((await today(cay, key)).held_usd, 6, 'the call may need more than the day has: it gets all of that');
  const [refused, executed] = await Promise.all([
    ask(),
    request(cay, '/execute', { method: 'POST', headers, body: JSON.stringify({ task: 'x', options: { model: 'claude-coder' } }) }),
  ]);
  assert.equal(refused.json().status, 'failed');
  assert.equal(refused.json().error.code, 'rate_limited', refused.body);
  assert.equal(executed.status, 429, executed.body);
  assert.equal(executed.headers['retry-after'], '1');
  release();
  const done = (await first).json();
  assert.equal(done.status, 'done', JSON.stringify(done));
  assert.deepEqual([done.usage.input_tokens, done.usage.output_tokens, done.usage.cost_usd], [7, 100, 0.1]);
  const row = await today(cay, key);
  assert.deepEqual([row.charged_usd, row.tokens, row.held_usd, row.held_tokens], [0.1, 107, 0, 0]);
  // One that is kept works again, and counts what is new.
  const kept = (await ask({ keep: true })).json();
  assert.equal(kept.status, 'done');
  const again = (await ask({ sandbox: kept.detail.sandbox })).json();
  assert.equal(again.status, 'done', JSON.stringify(again));
  assert.equal(again.usage.output_tokens, 100);
  assert.ok(Math.abs((await today(cay, key)).charged_usd - 0.3) < 1e-9);
  // One whose price is not known counts as the dearest, and says so.
  const unpriced = (await ask({ model: 'claude-unheard-of', keep: true })).json();
  assert.equal(unpriced.status, 'done', JSON.stringify(unpriced));
  assert.deepEqual([unpriced.usage.output_tokens, unpriced.usage.cost_usd, unpriced.usage.price_known], [100, 0, false]);
  assert.ok(Math.abs((await today(cay, key)).charged_usd - 0.4) < 1e-9);
  assert.match(cay.stderr(), /account\.price.*claude-unheard-of/);
  // What is kept has no way to the model any more: nothing would count what it spends.
  asked = 0;
  const exec = await request(cay, `/v1/sandboxes/${unpriced.detail.sandbox}/exec`, {
    method: 'POST', headers,
    body: JSON.stringify({ command: `curl -sS -o out -w '%{http_code}' -H 'content-type: application/json' -d '{"model":"claude-unheard-of","max_tokens":9,"messages":[{"role":"user","content":"x"}]}' http://127.0.0.1:3128/v1/messages; cat out` }),
  });
  assert.equal(asked, 0, exec.body);
  assert.match(exec.json().stdout, /^4\d\d/, exec.body);
  // Nor does the end of a job undo what was changed of the sandbox's network meanwhile.
  const narrowed = request(cay, '/v1/code', { method: 'POST', headers, body: JSON.stringify({ sandbox: unpriced.detail.sandbox, model: 'claude-coder', command: 'sleep 3', network: { allow: ['example.org'] } }) });
  await until(async () => (await request(cay, '/v1/runs?limit=1', { headers })).json().runs[0].status === 'running', 'its beginning');
  const box = `/v1/sandboxes/${unpriced.detail.sandbox}`;
  await until(async () => (await request(cay, `${box}/network`, { method: 'PUT', headers, body: '{"allow":[]}' })).status === 200, 'the change');
  assert.equal((await narrowed).json().status, 'done');
  const out = await request(cay, `${box}/exec`, { method: 'POST', headers, body: JSON.stringify({ command: 'curl -sS -x http://127.0.0.1:3128 -o /dev/null -w "%{http_connect}" https://example.org/' }) });
  assert.match(out.json().stdout, /^403/, out.body);
  assert.ok(Math.abs((await today(cay, key)).charged_usd - 0.4) < 1e-9);
});

test('a key with a limit for a day reaches models by nothing that the limit does not hold', async (t) => {
  const model = { url: 'http://127.0.0.1:1', api: 'anthropic', headers: {}, models: ['*'] };
  const cay = await withCay(t, { config: { sandboxes: { private: ['127.0.0.1:1'], routes: { model, plain: { url: 'http://127.0.0.1:1', headers: {} } } } } });
  const limited = await createKey(cay.dataDir, { name: 'limited', more: ['--usd-per-day', '1'] });
  const named = await createKey(cay.dataDir, { name: 'named', more: ['--usd-per-day', '1', '--route', 'model'] });
  const free = await createKey(cay.dataDir, { name: 'free' });
  const make = (key, path, routes, body = {}) => request(cay, path, { method: 'POST', headers: bearer(key.text), body: JSON.stringify({ ...body, network: { routes } }) });
  const refused = await make(limited, '/v1/sandboxes', ['model']);
  assert.equal(refused.status, 403);
  assert.match(refused.json().error.message, /limit for a day/);
  const job = (await make(limited, '/v1/code', ['model'], { spec: 'x' })).json();
  assert.deepEqual([job.status, job.error?.code], ['failed', 'forbidden'], JSON.stringify(job));
  assert.equal((await make(limited, '/v1/sandboxes', ['plain'])).status, 201);
  for (const key of [named, free]) assert.equal((await make(key, '/v1/sandboxes', ['model'])).status, 201);
});

test('who asks for the usage hears of what has just ended', async (t) => {
  const cay = await withCay(t);
  for (let i = 1; i <= 3; i++) {
    assert.equal((await request(cay, '/v1/run', { method: 'POST', body: JSON.stringify({ code: 'export default () => 1' }) })).status, 200);
    assert.equal((await request(cay, '/v1/usage')).json().jobs.find((row) => row.kind === 'run')?.jobs, i);
  }
});

test('a task whose key has no more for the day fails with that, and is not tried again', { timeout: 120_000 }, async (t) => {
  const long = { blocks: [{ type: 'text', text: 'x'.repeat(40_000) }], pieces: 400, pause: 5, usage: { input_tokens: 1, output_tokens: 10_000 } };
  const { cay, model } = await startPriced(t, [long]);
  const key = await createKey(cay.dataDir, { name: 'k', more: ['--usd-per-day', '400'] });
  const headers = { 'Content-Type': 'application/json', ...bearer(key.text) };
  const submit = async () => {
    const answer = await request(cay, '/v1/tasks', { method: 'POST', headers, body: JSON.stringify({ type: 'execute/sdk', input: { prompt: 'go', options: { allowed_tools: [] } } }) });
    assert.equal(answer.status, 202, answer.body);
    const at = answer.headers.location;
    return until(async () => ((task) => !['queued', 'running'].includes(task.state) && task)((await request(cay, at, { headers })).json()), 'its end');
  };
  const cut = await submit(); // in flight
  assert.deepEqual([cut.state, cut.error?.code, cut.attempts.length], ['failed', 'quota_exceeded', 1], JSON.stringify(cut));
  const refused = await submit(); // before it is begun
  assert.deepEqual([refused.state, refused.error?.code, refused.attempts.length], ['failed', 'quota_exceeded', 1], JSON.stringify(refused));
  assert.match(refused.error.message, /may spend \$400\.0000 a day.*next day begins at 00:00 UTC/);
  assert.equal(model.requests.length, 1);
});

test('who leaves before the model answers has asked it all the same', { timeout: 120_000 }, async (t) => {
  const { cay, model } = await startPriced(t, [{ status: 400, error: 'no' }, () => new Promise(() => {})]);
  const key = await createKey(cay.dataDir, { name: 'k', more: ['--tokens-per-day', '100000'] });
  const body = JSON.stringify({ prompt: 'x'.repeat(40_000), options: { allowed_tools: [] } });
  const headers = { 'Content-Type': 'application/json', ...bearer(key.text) };
  assert.notEqual((await request(cay, '/execute/sdk', { method: 'POST', headers, body })).status, 200);
  assert.equal((await today(cay, key)).tokens ?? 0, 0, 'what was refused costs nothing');
  const req = httpRequest({ host: '127.0.0.1', port: cay.port, path: '/execute/sdk', method: 'POST', headers });
  req.on('error', () => {}).end(body);
  await until(() => model.requests.length === 2, 'the model is asked');
  req.socket.resetAndDestroy();
  await until(async () => (await today(cay, key)).held_tokens === 0, 'its end');
  const { tokens } = await today(cay, key);
  assert.ok(tokens >= 10_000 && tokens < 20_000, String(tokens));
});

/** A model server for the coder: `say(n)` answers its n-th call; a promise keeps it waiting. */
async function startCoderModel(t, say) {
  let asked = 0;
  const server = createServer((req, res) => {
    req.resume().on('end', async () => {
      const text = await say(asked++);
      res.setHeader('content-type', 'application/json');
      res.end(JSON.stringify({
        id: 'x', type: 'message', role: 'assistant', model: 'm', stop_reason: 'end_turn', content: [{ type: 'text', text }], usage: { input_tokens: 7, output_tokens: 100 },
      }));
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => (server.closeAllConnections(), server.close()));
  const file = join(tempDir(t), 'models.json');
  writeFileSync(file, JSON.stringify({ models: [{ id: 'claude-coder', provider: 'anthropic', usd_per_million: { input: 0, output: 1000 } }] }));
  const options = { env: { ANTHROPIC_API_KEY: 'sk-x', ANTHROPIC_BASE_URL: `http://127.0.0.1:${server.address().port}` }, config: { models_file: file } };
  return { options, asked: () => asked };
}

const DONE = JSON.stringify({ done: true, summary: 'ok' });

test('a server that is killed charges a coding job what was used and what was in flight', { timeout: 180_000 }, async (t) => {
  const dataDir = tempDir(t);
  const command = (text) => JSON.stringify({ tool: 'run_command', args: { command: text } });
  // The first calls its model once and then runs a command for long; the second waits for an answer.
  const model = await startCoderModel(t, (n) => (n === 0 ? command('sleep 15') : new Promise(() => {})));
  const first = await startCay({ dataDir, ...model.options });
  const key = await createKey(dataDir, { name: 'k', more: ['--usd-per-day', '20'] });
  const ask = () => request(first, '/v1/code', { method: 'POST', headers: bearer(key.text), body: JSON.stringify({ spec: 'do it', model: 'claude-coder' }) }).catch(() => 'cut');
  const jobs = [ask()];
  await until(async () => (await today(first, key)).charged_usd === 0.1, 'the first call is paid');
  assert.equal((await today(first, key)).held_usd, 0, 'a job that does not call its model holds nothing');
  jobs.push(ask());
  await until(() => model.asked() === 2, 'the second call is in flight');
  const { held_usd: flight } = await today(first, key);
  assert.ok(flight > 0 && flight < 19, String(flight));
  await first.kill9();
  await Promise.all(jobs);
  const second = await withCay(t, { dataDir, ...model.options });
  await until(async () => (await today(second, key)).held_usd === 0, 'what was in flight is settled');
  assert.ok(Math.abs((await today(second, key)).charged_usd - (0.1 + flight)) < 1e-9);
});

test('a way out that is killed charges a call that was shortened what it was granted', { timeout: 120_000 }, async (t) => {
  const model = await startCoderModel(t, () => new Promise(() => {}));
  const cay = await withCay(t, model.options);
  const key = await createKey(cay.dataDir, { name: 'k', more: ['--usd-per-day', '3'] });
  const job = request(cay, '/v1/code', { method: 'POST', headers: bearer(key.text), body: JSON.stringify({ spec: 'x', model: 'claude-coder' }) });
  await until(() => model.asked() === 1, 'the call is in flight');
  assert.equal((await today(cay, key)).held_usd, 3);
  const egress = readdirSync('/proc').find((pid) => /^\d+$/.test(pid) && /^Name:\tcay-egress$/m.test(procText(pid, 'status')) && procText(pid, 'status').includes(`\nPPid:\t${cay.pid}\n`));
  process.kill(Number(egress), 'SIGKILL');
  const end = (await job).json();
  assert.notEqual(end.status, 'done');
  await until(async () => (await today(cay, key)).held_usd === 0, 'the call is settled');
  assert.equal((await today(cay, key)).charged_usd, 3, 'all that was held, and not more than the key has');
});

test('tasks wait while money is only held, and fail when it is spent', { timeout: 180_000 }, async (t) => {
  let release;
  const go = new Promise((resolve) => (release = resolve));
  const model = await startCoderModel(t, async () => (await go, DONE));
  const cay = await withCay(t, model.options);
  const submit = async (key) => (await request(cay, '/v1/tasks', { method: 'POST', headers: bearer(key.text), body: JSON.stringify({ type: 'code', max_attempts: 1, input: { spec: 'x', model: 'claude-coder' } }) })).json().id;
  const look = async (key, id) => (await request(cay, `/v1/tasks/${id}`, { headers: bearer(key.text) })).json();
  // One call may need all that the day has: the others wait for their turn, longer than a call waits.
  const key = await createKey(cay.dataDir, { name: 'k', more: ['--usd-per-day', '3'] });
  const ids = [await submit(key)];
  await until(async () => (await today(cay, key)).held_usd === 3, 'the first holds all of it');
  for (let i = 0; i < 5; i++) ids.push(await submit(key));
  await until(async () => (await request(cay, '/v1/runs?kind=code', { headers: bearer(key.text) })).json().runs.some((r) => r.error?.code === 'rate_limited'), 'one was told to wait');
  release();
  for (const id of ids) {
    const task = await until(async () => {
      const seen = await look(key, id);
      return seen.finished_at && seen;
    }, 'the task ends', 90_000);
    assert.equal(task.state ?? task.status, 'done', JSON.stringify(task.error));
  }
  assert.ok(Math.abs((await today(cay, key)).charged_usd - 0.6) < 1e-9);
  const poor = await createKey(cay.dataDir, { name: 'poor', more: ['--usd-per-day', '0.3'] });
  const late = [];
  for (let i = 0; i < 4; i++) late.push(await submit(poor));
  const ends = [];
  for (const id of late) ends.push(await until(async () => {
    const seen = await look(poor, id);
    return seen.finished_at && seen;
  }, 'the task ends', 90_000));
  assert.ok(ends.some((e) => e.error?.code === 'quota_exceeded'), JSON.stringify(ends.map((e) => e.error)));
  assert.ok((await today(cay, poor)).charged_usd <= 0.3 + 1e-9);
});

/** Waits until a task has ended, and then for it to be done. */
async function checkDone(cay, key, id) {
  const task = await until(async () => {
    const seen = (await request(cay, `/v1/tasks/${id}`, { headers: bearer(key.text) })).json();
    return seen.finished_at && seen;
  }, 'the task ends', 90_000);
  assert.equal(task.state ?? task.status, 'done', JSON.stringify(task.error));
}

const heldUp = (cay, key) => until(async () => (await request(cay, '/v1/runs', { headers: bearer(key.text) })).json().runs.find((r) => r.error?.code === 'rate_limited'), 'one was held up', 90_000);

test('a later call of execute/sdk waits for held money as long as it may, and then the task is tried again', { timeout: 180_000 }, async (t) => {
  let release;
  const go = new Promise((resolve) => (release = resolve));
  const usage = { input_tokens: 1, output_tokens: 20 };
  const answer = async (body) => {
    const text = JSON.stringify(body.messages);
    if (text.includes('holder')) await go;
    else if (!text.includes('tool_result')) return { ...tool('t1', 'RunCode', { code: 'export default async function () { await new Promise((r) => setTimeout(r, 4000)); return 1 }' }), usage };
    return { ...say('done'), usage };
  };
  const { cay, model } = await startPriced(t, Array.from({ length: 20 }, () => answer), { execute: { timeout_ms: 20_000 } });
  const key = await createKey(cay.dataDir, { name: 'k', more: ['--usd-per-day', '400'] });
  const headers = { 'Content-Type': 'application/json', ...bearer(key.text) };
  const body = JSON.stringify({ type: 'execute/sdk', max_attempts: 1, input: { prompt: 'go', options: { allowed_tools: ['RunCode'] } } });
  const submitted = await request(cay, '/v1/tasks', { method: 'POST', headers, body });
  assert.equal(submitted.status, 202, submitted.body);
  await until(async () => (await today(cay, key)).charged_usd === 20 && (await today(cay, key)).held_usd === 0, 'its first call is paid');
  const holder = request(cay, '/execute/sdk', { method: 'POST', headers, body: JSON.stringify({ prompt: 'holder', options: { allowed_tools: [] } }) });
  const run = await heldUp(cay, key);
  assert.match(run.error.message, /other calls of this key hold/);
  assert.equal(model.requests.length, 2, 'its second call did not go out');
  release();
  await holder;
  await checkDone(cay, key, submitted.json().id);
});

test('a code task whose time ends while it waits for held money is tried again', { timeout: 180_000 }, async (t) => {
  let release;
  const go = new Promise((resolve) => (release = resolve));
  const answer = async (n) => {
    if (n === 0) return JSON.stringify({ tool: 'run_command', args: { command: 'sleep 4' } });
    if (n === 1) await go;
    return DONE;
  };
  const model = await startCoderModel(t, answer);
  const cay = await withCay(t, model.options);
  const key = await createKey(cay.dataDir, { name: 'k', more: ['--usd-per-day', '3'] });
  const submit = async (timeout_ms) => (await request(cay, '/v1/tasks', { method: 'POST', headers: bearer(key.text), body: JSON.stringify({ type: 'code', max_attempts: 1, input: { spec: 'x', model: 'claude-coder', timeout_ms } }) })).json().id;
  const first = await submit(15_000);
  await until(async () => (await today(cay, key)).charged_usd === 0.1, 'its first call is paid');
  const holder = await submit(120_000);
  const run = await heldUp(cay, key);
  assert.match(run.error.message, /other calls of this key hold/);
  assert.equal(model.asked(), 2, 'its second call did not go out');
  release();
  await checkDone(cay, key, holder);
  await checkDone(cay, key, first);
});

test('a chat whose key has spent its day answers 429 until the next', { timeout: 120_000 }, async (t) => {
  const { cay, model } = await startPriced(t, [{ ...say('x'), usage: { input_tokens: 1, output_tokens: 299 } }]);
  const key = await createKey(cay.dataDir, { name: 'k', more: ['--usd-per-day', '300'] });
  const headers = { 'Content-Type': 'application/json', ...bearer(key.text) };
  const chat = (more) => request(cay, `/v1/agents/sandbox-agent/${key.id}/messages`, { method: 'POST', headers: { ...headers, ...more }, body: '{"text":"hello","model":"claude-pricey"}' });
  assert.equal((await sdk(cay, key)).status, 200);
  const asked = model.requests.length;
  for (const more of [{ Accept: 'application/json' }, { Accept: 'text/event-stream' }, {}]) {
    const spent = await chat(more);
    assert.equal(spent.status, 429, spent.body);
    assert.equal(spent.json().error.code, 'quota_exceeded');
    assert.equal(model.requests.length, asked, 'no model was asked');
    checkNextDay(spent);
  }
});

test('a coding job whose key is revoked ends, and asks no model any more', { timeout: 120_000 }, async (t) => {
  for (const more of [[], ['--usd-per-day', '1000']]) {
    let asked = 0;
    const answer = () => (asked++, { ...say('x'), usage: { input_tokens: 1, output_tokens: 1 } });
    const { cay } = await startPriced(t, Array.from({ length: 1000 }, () => answer), { dies: true });
    const key = await createKey(cay.dataDir, { name: 'k', more });
    const ask = `curl -sS -o /dev/null -H 'content-type: application/json' -d '{"model":"claude-pricey","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"x"}]}' http://127.0.0.1:3128/v1/messages`;
    const job = request(cay, '/v1/code', { method: 'POST', headers: bearer(key.text), body: JSON.stringify({ model: 'claude-pricey', command: `while sleep 0.2; do ${ask}; done`, keep: true }) });
    await until(() => asked >= 2, 'the model is asked');
    assert.equal((await runCay(['key', 'revoke', key.id, '--data-dir', cay.dataDir])).code, 0);
    const done = (await job).json();
    assert.deepEqual([done.status, done.error?.code], ['failed', 'forbidden'], JSON.stringify(done));
    assert.match(done.error.message, /the key was revoked/);
    await sleep(300); // for one that was on its way
    const before = asked;
    await sleep(1000);
    assert.equal(asked, before);
    await cay.stop();
  }
});
