// Keys over the API: made, listed and revoked by an admin; what everybody gets who asks for them is in matrix.test.mjs.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { bearer, createKey, request, runCay, startCay } from '../lib/cay.mjs';

const MAX = 12;
let cay;
let first;
let admin;

before(async () => {
  first = cay = await startCay({ config: { require_key: true, limits: { keys: MAX } } });
  admin = await createKey(cay.dataDir, { name: 'admin', scope: 'admin' });
});
after(async () => {
  await cay?.finish();
  first?.clean();
});

const ask = (method, path, body, key = admin.text) =>
  request(cay, path, { method, headers: bearer(key), body: body && JSON.stringify(body) });
const make = async (body, key) => {
  const made = await ask('POST', '/v1/keys', body, key);
  assert.equal(made.status, 201, made.body);
  return { ...made.json(), headers: made.headers };
};
const revoke = async (id) => assert.equal((await ask('DELETE', `/v1/keys/${id}`)).status, 204);
const statusOf = async (key) => (await ask('GET', '/v1/runs', undefined, key)).status;
const list = async (query = '') => (await ask('GET', `/v1/keys${query}`)).json();
const clear = async () => {
  for (const key of (await list('?limit=100')).keys) if (!key.revoked_at && key.id !== admin.id && key.name !== 'test') await revoke(key.id);
};

function* filesIn(dir) {
  for (const name of readdirSync(dir)) {
    const path = join(dir, name);
    if (statSync(path).isDirectory()) yield* filesIn(path);
    else if (statSync(path).isFile()) yield path;
  }
}

test('a key is made, shown once, good at once, and after it was revoked no more', async () => {
  const key = await make({ name: 'für dich', scope: 'read', rate_per_minute: 600 });
  assert.match(key.key, /^cay_[0-9a-z]+_[0-9a-f]{40}$/i);
  assert.equal(key.headers.location, `/v1/keys/${key.id}`);
  assert.equal(key.headers['cache-control'], 'no-store');
  assert.equal(await statusOf(key.key), 200);
  assert.equal((await ask('POST', '/v1/run', { code: 'export default 1' }, key.key)).status, 403);
  const seen = (await list()).keys.find(({ id }) => id === key.id);
  const { key: text, headers, ...rest } = key;
  assert.deepEqual(seen, rest);
  assert.deepEqual([seen.name, seen.scope, seen.rate_per_minute, seen.grants, seen.revoked_at], ['für dich', 'read', 600, null, null]);

  // The secret is nowhere but in the answer.
  const secret = text.split('_')[2];
  assert.ok(!(await ask('GET', '/v1/keys')).body.includes(secret));
  for (const path of filesIn(cay.dataDir)) assert.ok(!readFileSync(path).includes(secret), path);
  assert.ok(!(cay.stdout() + cay.stderr()).includes(secret), 'the log');

  // `cay key` sees what the API made, and the other way round.
  const { stdout } = await runCay(['key', 'list', '--json', '--data-dir', cay.dataDir]);
  assert.equal(JSON.parse(stdout).find(({ id }) => id === key.id).revoked, false);
  await revoke(key.id);
  assert.equal(await statusOf(key.key), 401);
  await revoke(key.id); // again, which changes nothing
  const [gone] = (await list()).keys.filter(({ id }) => id === key.id);
  assert.ok(Math.abs(Date.parse(gone.revoked_at) - Date.now()) < 60_000);
  const other = await make({ name: 'by both' });
  assert.equal(other.scope, 'run');
  assert.equal((await runCay(['key', 'revoke', other.id, '--data-dir', cay.dataDir])).code, 0);
  assert.equal(await statusOf(other.key), 401);
  const unknown = await ask('DELETE', '/v1/keys/key_0123456789abcdefghjkmnpqrs');
  assert.equal(unknown.status, 404, unknown.body);
});

test('a revoked session, a revoked admin and one that revokes itself are out', async () => {
  const key = await make({ name: 'other admin', scope: 'admin' });
  const signIn = await request(cay, '/v1/session', { method: 'POST', headers: bearer(key.key) });
  const cookie = signIn.headers['set-cookie'][0].split(';')[0];
  const asPage = () => request(cay, '/v1/keys', { headers: { cookie } });
  assert.equal((await asPage()).status, 200);
  assert.equal((await ask('DELETE', `/v1/keys/${key.id}`, undefined, key.key)).status, 204);
  assert.equal((await asPage()).status, 401);
  assert.equal((await ask('POST', '/v1/keys', { name: 'late' }, key.key)).status, 401);
});

test('a key that is held to something makes none that is not', async () => {
  for (const more of [{ rate_per_minute: 1000 }, { max_jobs: 3 }, { tokens_per_day: 1000 }, { usd_per_day: 0.5 }, { grants: {} }]) {
    const held = await make({ name: 'held', scope: 'admin', ...more });
    const seen = (await list()).keys.find(({ id }) => id === held.id);
    assert.deepEqual({ ...seen, ...more, grants: 0 }, { ...seen, grants: 0 });
    const refused = await ask('POST', '/v1/keys', { name: 'free', scope: 'admin' }, held.key);
    assert.equal(refused.status, 403);
    assert.match(refused.json().error.message, /cay key create/);
    assert.equal((await ask('GET', '/v1/keys', undefined, held.key)).status, 200);
    await revoke(held.id);
  }
});

test('grants hold, and what is left out of them is none', async () => {
  const key = await make({ name: 'granted', grants: { facets: ['one'] } });
  assert.deepEqual(key.grants, { facets: ['one'], workers: [], routes: [], binds: [] });
  const use = async (facet) =>
    (await ask('POST', '/v1/run', { code: "export default (e) => e.DB.query('SELECT 1 AS n')", env: { DB: { $facet: facet } } }, key.key)).status;
  assert.deepEqual([await use('one'), await use('two')], [200, 403]);
  await revoke(key.id);
});

test('what is no key is refused by name', async () => {
  const name = 'n';
  for (const [body, status, what] of [
    [{}, 400, /name/],
    [{ name: 'x'.repeat(61) }, 400, /60 bytes/],
    [{ name: 'a\nb' }, 400, /control/],
    [{ name, scope: 'root' }, 400, /read, run or admin/],
    [{ name, scope: 5 }, 400, /scope/],
    [{ name, rate_per_minute: -1 }, 400, /rate_per_minute/],
    [{ name, rate_per_minute: 1.5 }, 400, /rate_per_minute/],
    [{ name, max_jobs: -1 }, 400, /max_jobs/],
    [{ name, tokens_per_day: '5' }, 400, /tokens_per_day/],
    [{ name, usd_per_day: -1 }, 400, /usd|dollars/i],
    [{ name, usd_per_day: '5' }, 400, /usd_per_day/],
    [{ name, key: 'cay_mine' }, 400, /key/],
    [{ name, grants: [] }, 400, /grants/],
    [{ name, grants: { all: true } }, 400, /all/],
    [{ name, grants: { facets: 'all' } }, 400, /facets/],
    [{ name, grants: { facets: [''] } }, 400, /facets/],
    [{ name, grants: { facets: ['a\0b'] } }, 400, /facets|NUL|\\u0000/],
    [{ name, grants: { facets: ['x'.repeat(3000)] } }, 413, /grants/],
    [[], 400, /object/],
  ]) {
    const refused = await ask('POST', '/v1/keys', body);
    assert.equal(refused.status, status, JSON.stringify(body) + refused.body);
    assert.match(refused.json().error.message, what);
  }
  for (const query of ['?limit=0', '?limit=101', '?cursor=x', '?cursor=run_0123456789abcdefghjkmnpqrs'])
    assert.equal((await ask('GET', `/v1/keys${query}`)).status, 400, query);
});

test('there are so many keys and no more, also for many who ask at once', async () => {
  await clear();
  const valid = async () => (await list('?limit=100')).keys.filter(({ revoked_at }) => !revoked_at);
  const room = MAX - (await valid()).length;
  assert.ok(room > 3);
  const all = await Promise.all(Array.from({ length: 2 * MAX }, (_, i) => ask('POST', '/v1/keys', { name: `n${i}` })));
  assert.equal(all.filter(({ status }) => status === 201).length, room);
  const refused = all.filter(({ status }) => status === 409);
  assert.equal(refused.length, 2 * MAX - room);
  assert.match(refused[0].json().error.message, /12 keys already.*revoke/);
  await revoke((await valid())[0].id);
  await make({ name: 'there is room again' });

  // Page by page, each is seen once, newest first.
  const ids = [];
  for (let cursor = ''; cursor !== null; ) {
    const page = await list(`?limit=5${cursor && `&cursor=${cursor}`}`);
    assert.ok(page.keys.length <= 5);
    ids.push(...page.keys.map(({ id }) => id));
    cursor = page.next_cursor;
  }
  assert.deepEqual(ids, (await list('?limit=100')).keys.map(({ id }) => id));
  assert.deepEqual(ids, [...ids].sort().reverse());
  assert.equal(new Set(ids).size, ids.length);
  await clear();
});

test('a key that was made over the API is there after the server died', async () => {
  const key = await make({ name: 'stays' });
  const gone = await make({ name: 'goes' });
  await revoke(gone.id);
  cay.signal('SIGKILL');
  await cay.ended;
  cay = await startCay({ dataDir: cay.dataDir, config: { require_key: true } });
  assert.equal(await statusOf(key.key), 200);
  assert.equal(await statusOf(gone.key), 401);
});
