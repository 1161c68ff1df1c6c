// A store with very many runs. Usage: node million.mjs COUNT
import assert from 'node:assert/strict';
import { bearer, createKey, request, startCay } from '../lib/cay.mjs';
import { makeId, withStore } from '../lib/store.mjs';

const count = Number(process.argv[2] ?? 1_000_000);
const first = await startCay();
const few = await createKey(first.dataDir, { name: 'few' });
const many = await createKey(first.dataDir, { name: 'many' });
await first.halt();

/** The median of some calls, in milliseconds. */
async function median(n, call) {
  const took = [];
  for (let i = 0; i < n; i++) {
    const start = performance.now();
    await call();
    took.push(performance.now() - start);
  }
  return took.sort((a, b) => a - b)[n >> 1];
}

async function measure(name, id) {
  let cay;
  const started = await median(1, async () => (cay = await startCay({ dataDir: first.dataDir, args: ['--log-level', 'warn'] })));
  const get = (path, key) => async () => assert.equal((await request(cay, path, { headers: key ? bearer(key.text) : {} })).status, 200);
  const took = {
    started,
    all: await median(51, get('/v1/runs?limit=100')),
    chats: await median(51, get('/v1/runs?kind=chat')),
    few: await median(51, get('/v1/runs', few)),
    'few chats': await median(51, get('/v1/runs?kind=chat', few)),
    'many chats': await median(51, get('/v1/runs?kind=chat', many)),
    deep: await median(51, get(`/v1/runs?cursor=${id}`)),
    get: await median(51, get(`/v1/runs/${id}`)),
    run: await median(51, async () => assert.equal((await request(cay, '/v1/run', { method: 'POST', body: '{"code":"export default () => 1"}' })).json().result, 1)),
  };
  await cay.stop();
  console.log(name, Object.fromEntries(Object.entries(took).map(([k, v]) => [k, Number(v.toFixed(2))])));
  return took;
}

/** Ids of one moment, the last 16 digits of which count. */
const stem = makeId('run', Date.now() - 3_600_000).slice(0, -16);
function fill(from, to) {
  withStore(first.dataDir, (db) =>
    db.exec(`INSERT INTO runs (id, owner, kind, status, title, created_ms, finished_ms, bytes, detail)
      WITH RECURSIVE n(i) AS (SELECT ${from} UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ${to})
      SELECT '${stem}' || printf('%016d', i), CASE WHEN i < 5 THEN '${few.id}' ELSE '${many.id}' END,
        CASE WHEN i = 7 THEN 'chat' ELSE 'run' END, 'done', 'run ' || i, ${Date.now()}, ${Date.now()}, 1000,
        json_object('code', printf('%.*c', 500, 'x')) FROM n;
      INSERT OR IGNORE INTO run_watch SELECT max(rowid) FROM runs`), // as the caretaker does every two seconds
  );
}

try {
  const id = `${stem}${'150'.padStart(16, '0')}`;
  fill(0, 300);
  const before = await measure('300 runs', id);
  fill(300, count);
  const after = await measure(`${count} runs`, id);
  for (const [what, ms] of Object.entries(after))
    assert.ok(ms < 3 * before[what] + 5, `${what}: ${ms.toFixed(1)} ms instead of ${before[what].toFixed(1)}`);
} finally {
  first.clean();
}
