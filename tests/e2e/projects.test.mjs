// Projects own data, keys only open doors: what the keys of a project share, what stays when one goes, what none of
// another project sees; secrets that change, keys that expire, admins of one project, limits over all keys.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createKey, request, runCay, startCay, until } from '../lib/cay.mjs';
import { call, make } from '../lib/sandbox.mjs';

let cay;
let root; // an admin of the server
before(async () => {
  cay = await startCay({ config: { require_key: true }, key: { scope: 'admin', name: 'root' } });
  root = cay.key;
});
after(() => cay.stop());

const project = async (body) => (await call(cay, 'POST', '/v1/projects', body, root)).json;
const makeKey = async (body, by = root) => {
  const { status, json, raw } = await call(cay, 'POST', '/v1/keys', { name: 'k', ...body }, by);
  assert.equal(status, 201, raw.toString());
  return { ...json, text: json.key };
};
let names = 0;
/** A project with some keys. */
async function shop(n, more = {}) {
  const made = await project({ name: `shop ${names++}`, ...more });
  return [made, ...(await Promise.all(Array.from({ length: n }, () => makeKey({ project: made.id }))))];
}
const run = (code, env, key) => call(cay, 'POST', '/v1/run', { code, env }, key);
const store = (key) => run('export default (env) => env.db.execute("CREATE TABLE IF NOT EXISTS t (x); INSERT INTO t VALUES (7)")', { db: { $facet: 'shop' } }, key);
const load = async (key) => (await run('export default (env) => env.db.query("SELECT x FROM t")', { db: { $facet: 'shop' } }, key)).json;

/** Everything of one key that has a name: what others of its project see, and nobody else. */
async function things(key) {
  await store(key);
  const first = await run('export default () => 1', {}, key);
  const task = await call(cay, 'POST', '/v1/tasks', { type: 'run', input: { code: 'export default () => 2' } }, key);
  assert.equal(task.status, 202, task.raw.toString());
  assert.equal((await call(cay, 'PUT', '/v1/workers/hello', { code: 'export default { fetch: () => new Response("hi") }' }, key)).status, 200);
  const box = await make(cay, { name: 'mine' }, key);
  return { run: `/v1/runs/${first.json.id}`, task: `/v1/tasks/${task.json.id}`, worker: '/v1/workers/hello', sandbox: `/v1/sandboxes/${box.id}` };
}

test('what a project has is there for all its keys, stays when one is revoked, and is not there for others', async () => {
  const [, ann, bob] = await shop(2);
  const [, eve] = await shop(1);
  const all = await things(ann);
  const seen = async (key) => Object.fromEntries(await Promise.all(Object.entries(all).map(async ([what, path]) => [what, (await call(cay, 'GET', path, undefined, key)).status])));
  const found = { run: 200, task: 200, worker: 200, sandbox: 200 };
  const missing = { run: 404, task: 404, worker: 404, sandbox: 404 };
  assert.deepEqual(await seen(bob), found);
  assert.deepEqual(await seen(eve), missing);
  assert.deepEqual((await load(bob)).result, [{ x: 7 }]);
  assert.match(JSON.stringify((await load(eve)).error), /no such table/);
  assert.equal((await call(cay, 'DELETE', `/v1/keys/${ann.id}`, undefined, root)).status, 204);
  assert.equal((await call(cay, 'GET', '/v1/runs', undefined, ann)).status, 401);
  assert.deepEqual(await seen(bob), found);
  assert.deepEqual((await load(bob)).result, [{ x: 7 }]);
  assert.equal((await call(cay, 'DELETE', all.sandbox, undefined, bob)).status, 204);
});

test('whose a run and a task are, and by which key, is told and can be asked for', async () => {
  const [made, ann, bob] = await shop(2);
  const byAnn = (await run('export default () => 1', {}, ann)).json.id;
  const byBob = (await run('export default () => 1', {}, bob)).json.id;
  const list = async (query, key) => (await call(cay, 'GET', `/v1/runs?${query}`, undefined, key)).json.runs.map((r) => r.id);
  assert.deepEqual(await list('', ann), [byBob, byAnn]);
  assert.deepEqual(await list(`key=${ann.id}`, bob), [byAnn]);
  assert.deepEqual(await list(`project=${made.id}`, root), [byBob, byAnn]);
  assert.equal((await call(cay, 'GET', '/v1/runs?project=default', undefined, ann)).status, 403);
  const { key, project: of } = (await call(cay, 'GET', `/v1/runs/${byAnn}`, undefined, bob)).json;
  assert.deepEqual([key, of], [ann.id, made.id]);
});

test('the default project is the one of keys that name none, and of the operator', async () => {
  const key = await makeKey({ name: 'plain' });
  assert.equal(key.project, 'default');
  assert.equal(key.server, false);
  await store(key);
  const other = await makeKey({ name: 'plain too', project: 'default' });
  assert.deepEqual((await load(other)).result, [{ x: 7 }]);
  assert.deepEqual((await load(root)).result, [{ x: 7 }]);
  // Not an admin of the server: the runs of other projects stay theirs.
  const [, ann] = await shop(1);
  const id = (await run('export default () => 1', {}, ann)).json.id;
  assert.equal((await call(cay, 'GET', `/v1/runs/${id}`, undefined, key)).status, 404);
});

test('a new secret: the old one works for as long as was asked for', async () => {
  const [, key] = await shop(1);
  const works = async (text) => (await call(cay, 'GET', '/v1/runs', undefined, { text })).status;
  const rotate = async (body) => {
    const { status, json, raw } = await call(cay, 'POST', `/v1/keys/${key.id}/rotate`, body, root);
    assert.equal(status, 200, raw.toString());
    return json;
  };
  const second = await rotate({ grace_s: 3600 });
  assert.equal(second.id, key.id);
  assert.deepEqual([await works(key.text), await works(second.key)], [200, 200]);
  assert.ok(Date.parse(second.old_secret_until) > Date.now());
  const third = await rotate({});
  assert.deepEqual([await works(key.text), await works(second.key), await works(third.key)], [401, 401, 200]);
  assert.equal(third.old_secret_until, null);
  for (const body of [{ grace_s: -1 }, { grace_s: 1e9 }, { grace: 1 }, []]) assert.equal((await call(cay, 'POST', `/v1/keys/${key.id}/rotate`, body, root)).status, 400, JSON.stringify(body));
  assert.equal((await call(cay, 'POST', '/v1/keys/key_01jd3v00000000000000000000/rotate', {}, root)).status, 404);
  assert.equal(await works(third.key), 200);
});

test('a key that expires lets nobody in any more, and ends what it has open', async () => {
  const [made] = await shop(0);
  const key = await makeKey({ project: made.id, expires_at: new Date(Date.now() + 4000).toISOString() });
  assert.equal((await call(cay, 'GET', '/v1/runs', undefined, key)).status, 200);
  const ws = new WebSocket(`ws://127.0.0.1:${cay.port}/agents/sandbox-agent/one`, { headers: { Authorization: `Bearer ${key.text}` } });
  const closed = new Promise((resolve) => ws.addEventListener('close', (e) => resolve(e.code)));
  await new Promise((resolve, reject) => (ws.addEventListener('open', resolve), ws.addEventListener('error', reject)));
  assert.equal(await closed, 1008);
  assert.equal((await call(cay, 'GET', '/v1/runs', undefined, key)).status, 401);
  for (const expires_at of ['yesterday', '2001-01-01T00:00:00Z', 5]) assert.equal((await call(cay, 'POST', '/v1/keys', { name: 'k', expires_at }, root)).status, 400, String(expires_at));
});

test('an admin of a project has that project, and nothing of others', async () => {
  const [mine, ann] = await shop(1);
  const [other, eve] = await shop(1);
  const boss = await makeKey({ project: mine.id, scope: 'admin' });
  assert.equal(boss.server, false);
  const made = await makeKey({}, boss);
  assert.equal(made.project, mine.id);
  const as = (method, path, body) => call(cay, method, path, body, boss);
  assert.deepEqual((await as('GET', '/v1/keys')).json.keys.map((k) => k.id).sort(), [ann.id, boss.id, made.id].sort());
  assert.deepEqual((await as('GET', `/v1/keys?project=${other.id}`)).json.keys, []);
  assert.equal((await as('POST', '/v1/keys', { name: 'x', project: other.id })).status, 403);
  assert.equal((await as('POST', '/v1/keys', { name: 'x', project: 'default', scope: 'admin' })).status, 403);
  assert.equal((await as('DELETE', `/v1/keys/${eve.id}`)).status, 404);
  assert.equal((await as('PATCH', `/v1/keys/${eve.id}`, { name: 'mine' })).status, 404);
  assert.equal((await as('POST', `/v1/keys/${eve.id}/rotate`, {})).status, 404);
  assert.equal((await as('PATCH', `/v1/keys/${ann.id}`, { name: 'renamed', rate_per_minute: 9 })).json.rate_per_minute, 9);
  assert.equal((await as('GET', `/v1/projects/${mine.id}`)).status, 200);
  for (const [method, path, body] of [['GET', `/v1/projects/${other.id}`], ['GET', '/v1/projects/default']]) assert.equal((await as(method, path, body)).status, 404, path);
  for (const [method, path, body] of [['GET', '/v1/projects'], ['POST', '/v1/projects', { name: 'more' }], ['PATCH', `/v1/projects/${mine.id}`, { max_jobs: 0 }]]) assert.equal((await as(method, path, body)).status, 403, path);
  const id = (await run('export default () => 1', {}, eve)).json.id;
  assert.equal((await as('GET', `/v1/runs/${id}`)).status, 404);
  assert.equal((await call(cay, 'GET', '/v1/runs', undefined, eve)).status, 200, 'nothing of it was changed');
});

test('limits of a project hold over all its keys together', async () => {
  const [made, ann, bob] = await shop(2, { max_jobs: 1, rate_per_minute: 30 });
  const waits = call(cay, 'POST', '/v1/run', { code: 'export default () => new Promise((done) => setTimeout(done, 2500))' }, ann);
  await until(async () => (await call(cay, 'GET', '/v1/runs', undefined, root)).json.runs.some((r) => r.project === made.id && r.status === 'running'), 'a run');
  const second = await run('export default () => 1', {}, bob);
  assert.equal(second.status, 429);
  assert.match(second.json.error.message, /this project may have 1 jobs at a time/);
  assert.equal((await waits).status, 200);
  const codes = [];
  for (let i = 0; i < 40; i++) codes.push((await call(cay, 'GET', '/v1/runs?limit=1', undefined, i % 2 ? ann : bob)).status);
  assert.ok(codes.includes(429), codes.join());
  assert.ok(codes.filter((c) => c === 200).length <= 32, codes.join());
  assert.equal((await call(cay, 'PATCH', `/v1/projects/${made.id}`, { rate_per_minute: 0 }, root)).json.rate_per_minute, 0);
  assert.equal((await call(cay, 'GET', '/v1/runs', undefined, ann)).status, 200);
  assert.equal((await call(cay, 'GET', `/v1/projects/${made.id}`, undefined, root)).json.max_jobs, 1, 'what was left out stays');
});

test('what is changed of a key holds at once, and what is left out stays', async () => {
  const [, key] = await shop(1);
  const change = async (body) => (await call(cay, 'PATCH', `/v1/keys/${key.id}`, body, root)).json;
  assert.deepEqual((await change({ grants: { facets: ['only'] }, usd_per_day: 2.5 })).grants.facets, ['only']);
  assert.equal((await store(key)).status, 403);
  const now = await change({ grants: null });
  assert.deepEqual([now.grants, now.usd_per_day, now.name], [null, 2.5, 'k']);
  assert.equal((await store(key)).status, 200);
  for (const body of [{ name: '' }, { name: 'a\nb' }, { scope: 'admin' }, { project: 'default' }, { usd_per_day: -1 }, { grants: { x: [] } }]) assert.equal((await call(cay, 'PATCH', `/v1/keys/${key.id}`, body, root)).status, 400, JSON.stringify(body));
  await call(cay, 'DELETE', `/v1/keys/${key.id}`, undefined, root);
  assert.equal((await call(cay, 'PATCH', `/v1/keys/${key.id}`, { name: 'back' }, root)).status, 404);
});

test('projects: names, pages, wrong requests', async () => {
  const made = await project({ name: 'Ünïque ⚓' });
  assert.equal((await call(cay, 'POST', '/v1/projects', { name: 'Ünïque ⚓' }, root)).status, 409);
  assert.equal((await call(cay, 'PATCH', `/v1/projects/${made.id}`, { name: 'default' }, root)).status, 409);
  for (const name of ['', 'a\u0000b', 'x\u202ey', 'prj_x', 'key_x', 'n'.repeat(61), 5, null]) assert.equal((await call(cay, 'POST', '/v1/projects', { name }, root)).status, 400, JSON.stringify(name));
  assert.equal((await call(cay, 'POST', '/v1/keys', { name: 'k', project: 'nowhere' }, root)).status, 404);
  const byName = await makeKey({ project: 'Ünïque ⚓' });
  assert.equal(byName.project, made.id);
  const ids = [];
  for (let cursor = ''; cursor !== null; ) {
    const page = (await call(cay, 'GET', `/v1/projects?limit=3${cursor && `&cursor=${cursor}`}`, undefined, root)).json;
    ids.push(...page.projects.map((p) => p.id));
    cursor = page.next_cursor;
  }
  assert.equal(new Set(ids).size, ids.length);
  assert.ok(ids.includes('default') && ids.includes(made.id));
});

test('on the machine: cay project, and cay key of a project, while the server runs', async () => {
  const at = ['--data-dir', cay.dataDir];
  const ok = async (...args) => {
    const done = await runCay([...args, ...at]);
    assert.equal(done.code, 0, done.stderr);
    return done.stdout;
  };
  const made = JSON.parse(await ok('project', 'create', 'by hand', '--usd-per-day', '3', '--json'));
  assert.equal(made.usd_per_day, 3);
  const key = await createKey(cay.dataDir, { project: 'by hand', name: 'hand' });
  assert.equal((await request(cay, '/v1/runs', { headers: { Authorization: `Bearer ${key.text}` } })).status, 200);
  const rotated = (await ok('key', 'rotate', key.id)).trim();
  assert.equal((await request(cay, '/v1/runs', { headers: { Authorization: `Bearer ${key.text}` } })).status, 401);
  assert.equal((await request(cay, '/v1/runs', { headers: { Authorization: `Bearer ${rotated}` } })).status, 200);
  assert.match(await ok('project', 'edit', 'by hand', '--name', 'by hand 2', '--max-jobs', '4'), /by hand 2 +jobs 4 +\$3\.00\/day/);
  assert.match(await ok('project', 'show', 'by hand 2'), /1 key /);
  assert.match(await ok('key', 'list', '--project', 'by hand 2'), new RegExp(`^${key.id}[^\\n]*hand\\n$`));
  for (const [args, why] of [
    [['project', 'create', 'by hand 2'], /another project has the name/],
    [['project', 'show', 'none'], /there is no project "none"/],
    [['key', 'create', '--name', 'x', '--project', 'none'], /there is no project "none"/],
    [['key', 'create', '--name', 'x', '--expires', 'soon'], /--expires takes a time/],
    [['key', 'rotate', 'key_x'], /there is no key "key_x"/],
  ]) {
    const done = await runCay([...args, ...at]);
    assert.notEqual(done.code, 0);
    assert.match(done.stderr, why);
  }
});
