// Runs and their cursors, and what belongs to whom.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { bearer, createKey, request, startCay } from '../lib/cay.mjs';
import { addRun, makeId, withStore } from '../lib/store.mjs';

const base = 1_700_000_000_000;
const ids = Array.from({ length: 45 }, (_, i) => makeId('run', base + i, i));
let cay;
let first;
let keys;

before(async () => {
  // A first life makes the database; then rows go in while nobody runs.
  first = await startCay();
  keys = {
    a: await createKey(first.dataDir, { name: 'a' }),
    b: await createKey(first.dataDir, { name: 'b' }),
    admin: await createKey(first.dataDir, { name: 'admin', scope: 'admin' }),
  };
  await first.halt();
  withStore(first.dataDir, (db) => {
    ids.forEach((id, i) =>
      addRun(db, {
        id,
        owner: [keys.a.project, keys.b.project, ''][i % 3],
        key: [keys.a.id, keys.b.id, ''][i % 3],
        kind: i % 5 ? 'run' : 'chat',
        title: `run "${i}" ä\n`,
        created_ms: base + i,
        finished_ms: i === 44 ? 0 : base + i + 7,
        status: i === 44 ? 'running' : i % 2 ? 'failed' : 'done',
        error_code: i % 2 ? 'timeout' : null,
        error_message: i % 2 ? 'too slow' : null,
        detail: i ? null : '{"a":[1,2]}',
      }),
    );
    const add = db.prepare('INSERT INTO events (run_id, seq, time_ms, type, data) VALUES (?,?,?,?,?)');
    for (let seq = 1; seq <= 3; seq++) add.run(ids[0], seq, base + seq, 'log', JSON.stringify({ seq }));
  });
  cay = await startCay({ dataDir: first.dataDir, config: { store: { keep_s: 3_000_000_000 } } });
});
after(async () => {
  await cay.stop();
  first.clean();
});

const list = async (query = '', key) => {
  const answer = await request(cay, `/v1/runs${query}`, key ? { headers: bearer(key.text) } : {});
  assert.equal(answer.status, 200, answer.body);
  return answer.json();
};

test('newest first, page by page, nothing twice, nothing left out', async () => {
  for (const limit of [1, 7, 44, 45, 100]) {
    const seen = [];
    let cursor = null;
    do {
      const page = await list(`?limit=${limit}${cursor ? `&cursor=${cursor}` : ''}`);
      assert.ok(page.runs.length <= limit && page.runs.length > 0);
      seen.push(...page.runs.map((r) => r.id));
      cursor = page.next_cursor;
    } while (cursor && seen.length < 100);
    assert.deepEqual(seen, ids.toReversed(), `limit ${limit}`);
  }
  assert.equal((await list()).runs.length, 20);
});

test('a run as it is shown', async () => {
  const run = (await request(cay, `/v1/runs/${ids[0]}`)).json();
  assert.deepEqual(run, {
    id: ids[0],
    kind: 'chat',
    status: 'done',
    title: 'run "0" ä\n',
    key: keys.a.id,
    project: keys.a.project,
    created_at: '2023-11-14T22:13:20.000Z',
    finished_at: '2023-11-14T22:13:20.007Z',
    duration_ms: 7,
    usage: null,
    error: null,
    detail: { a: [1, 2] },
    events: [1, 2, 3].map((seq) => ({ seq, time: `2023-11-14T22:13:20.00${seq}Z`, type: 'log', data: { seq } })),
  });
  const failed = (await request(cay, `/v1/runs/${ids[1]}`)).json();
  assert.deepEqual(failed.error, { code: 'timeout', message: 'too slow' });
});

test('a run that was running when the server ended is interrupted', async () => {
  const run = (await request(cay, `/v1/runs/${ids[44]}`)).json();
  assert.equal(run.status, 'interrupted');
  assert.equal(run.error.code, 'interrupted');
  assert.ok(run.finished_at);
  assert.match(cay.stderr(), /"event":"runs.interrupted","count":1/);
});

test('a filter by kind', async () => {
  const { runs } = await list('?kind=chat&limit=100');
  assert.equal(runs.length, 9);
  assert.ok(runs.every((r) => r.kind === 'chat'));
  assert.deepEqual((await list("?kind=' OR 1=1 --".replaceAll(' ', '%20'))).runs, []);
});

test('filters by status, text, time and key, together and page by page', async () => {
  const at = (i) => new Date(base + i).toISOString();
  const picked = async (query, key) => {
    const seen = [];
    let cursor = null;
    do {
      const page = await list(`?limit=4&${query}${cursor ? `&cursor=${cursor}` : ''}`, key);
      seen.push(...page.runs.map((r) => r.id));
      cursor = page.next_cursor;
    } while (cursor && seen.length < 100);
    return seen;
  };
  const wanted = (test) => ids.filter((_, i) => test(i)).toReversed();
  assert.deepEqual(await picked('status=failed'), wanted((i) => i % 2));
  assert.deepEqual(await picked('text=TOO%20slow&kind=chat'), wanted((i) => i % 2 && i % 5 === 0));
  assert.deepEqual(await picked('text=%224'), wanted((i) => `${i}`.startsWith('4')));
  assert.deepEqual(await picked(`since=${at(10)}&until=${at(20)}`), wanted((i) => i >= 10 && i < 20));
  assert.deepEqual(await picked(`text=${ids[7]}`), [ids[7]]);
  assert.deepEqual(await picked(`key=${keys.b.id}&status=done`), wanted((i) => i % 3 === 1 && i % 2 === 0 && i !== 44));
  assert.deepEqual(await picked(`key=${keys.b.id}`, keys.admin), wanted((i) => i % 3 === 1));
  assert.deepEqual(await picked('key=operator'), wanted((i) => i % 3 === 2));
  assert.deepEqual(await picked(`key=${keys.a.id}`, keys.a), wanted((i) => i % 3 === 0));
  for (const other of [keys.b.id, 'operator']) assert.deepEqual(await picked(`key=${other}`, keys.a), [], other);
  assert.deepEqual(await picked(`project=${keys.b.project}`, keys.admin), wanted((i) => i % 3 === 1));
  assert.deepEqual(await picked(`project=${keys.a.project}&status=done`, keys.a), wanted((i) => i % 3 === 0 && i % 2 === 0 && i !== 44));
  assert.deepEqual(await picked('project=default'), wanted((i) => i % 3 === 2));
  for (const other of [keys.b.project, 'default']) {
    const answer = await request(cay, `/v1/runs?project=${other}`, { headers: bearer(keys.a.text) });
    assert.equal(answer.status, 403, other);
  }
});

test('parameters that are none of ours', async () => {
  for (const query of ['limit=0', 'limit=101', 'limit=-1', 'limit=x', 'limit=', 'limit=1.5', 'limit=+5', 'limit=%2B5', 'cursor=x', 'cursor=run_', `cursor=${ids[0]}x`, 'limit=%zz', 'status=over', 'status=', 'key=x', 'key=key_', 'project=x', 'project=prj_', 'since=', 'since=yesterday', 'until=2026-13-01T00:00:00Z', `text=${'x'.repeat(201)}`]) {
    const answer = await request(cay, `/v1/runs?${query}`);
    assert.equal(answer.status, 400, query);
    assert.equal(answer.json().error.code, 'bad_request');
  }
});

test("what one key made is not there for another", async () => {
  const owned = (n) => ids.filter((_, i) => i % 3 === n).toReversed();
  assert.deepEqual((await list('?limit=100', keys.a)).runs.map((r) => r.id), owned(0));
  assert.deepEqual((await list('?limit=100', keys.b)).runs.map((r) => r.id), owned(1));
  assert.equal((await list('?limit=100', keys.admin)).runs.length, 45);
  const get = async (id, key) => (await request(cay, `/v1/runs/${id}`, { headers: bearer(key.text) })).status;
  assert.equal(await get(ids[0], keys.a), 200);
  assert.equal(await get(ids[0], keys.b), 404);
  assert.equal(await get(ids[2], keys.a), 404);
  assert.equal(await get(ids[2], keys.admin), 200);
  // A cursor of somebody else's run gives nothing away.
  const page = await list(`?cursor=${ids[1]}&limit=100`, keys.a);
  assert.deepEqual(page.runs.map((r) => r.id), [ids[0]]);
});
