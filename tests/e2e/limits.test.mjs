// How often callers may come: by their key, and without one by their address.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { bearer, createKey, request, startCay } from '../lib/cay.mjs';

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
