// The databases of an owner: listed, queried, exported, imported, copied, migrated and removed, by nobody else. Uploads are
// looked at inside a cay-facet of their own: each hostile one here is refused for its own reason, and leaves what was there.
import assert from 'node:assert/strict';
import { request as httpRequest } from 'node:http';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, test } from 'node:test';
import { bearer, createKey, request, runCay, startCay, tempDir, until, withCay } from '../lib/cay.mjs';

let cay;
let files;
const keys = {};
before(async () => {
  cay = await startCay({ config: { limits: { run_binding_calls: 1 << 30, run_wall_ms: 600_000, run_cpu_ms: 600_000 } } });
  files = tempDir(null);
  for (const name of ['ann', 'bob']) keys[name] = await createKey(cay.dataDir, { name });
  keys.reader = await createKey(cay.dataDir, { name: 'reader', scope: 'read' });
});
after(async () => {
  rmSync(files, { recursive: true, force: true });
  await cay.stop();
});

const send = (path, { method = 'GET', key, body, server = cay, headers = {} } = {}) =>
  request(server, `/v1/facets${path}`, {
    method,
    headers: { ...(key ? bearer(key.text) : {}), ...headers },
    body: body === undefined || Buffer.isBuffer(body) ? body : JSON.stringify(body),
  });
const json = async (path, options, status = 200) => {
  const got = await send(path, options);
  assert.equal(got.status, status, `${options?.method ?? 'GET'} ${path}: ${got.body}`);
  return got.json();
};
const refusal = async (path, options, status, message) => {
  const got = await send(path, options);
  assert.equal(got.status, status, `${options?.method ?? 'GET'} ${path}: ${got.body}`);
  assert.match(got.json().error.message, message);
};
const put = (name, body, more) => send(`/${name}`, { method: 'PUT', body, ...more });
const query = (name, body, more) => json(`/${name}/query`, { method: 'POST', body, ...more });
const rows = async (name, sql, more) => (await query(name, { sql, readonly: true }, more)).rows;
const importFile = (name, body, more) => send(`/${name}/import`, { method: 'PUT', body, ...more });
/** What the server keeps under temporary names: nothing, when nothing goes on. */
const leftovers = (dataDir = cay.dataDir) =>
  readdirSync(join(dataDir, 'facets')).flatMap((owner) => readdirSync(join(dataDir, 'facets', owner))).filter((name) => name.startsWith('.tmp-'));
const run = async (code, name, more = {}) => {
  const got = await request(cay, '/v1/run', {
    method: 'POST',
    headers: more.key ? bearer(more.key.text) : {},
    body: JSON.stringify({ code, env: { db: { $facet: name } } }),
  });
  return got.json();
};

/** The bytes of a SQLite file that `make(db)` fills. */
let made = 0;
function sqliteFile(make, path = join(files, `${made++}.db`)) {
  const db = new DatabaseSync(path, { allowExtension: true });
  try {
    make(db);
  } finally {
    db.close();
  }
  return readFileSync(path);
}
/** Puts an entry into the schema that SQLite itself would not take. */
const forge = (db, from, to) => {
  db.exec('PRAGMA writable_schema = ON');
  const done = db.prepare('UPDATE sqlite_schema SET sql = replace(sql, ?, ?)').run(from, to);
  assert.ok(done.changes > 0);
};
const patched = (bytes, changes) => {
  const copy = Buffer.from(bytes);
  for (const [at, value] of Object.entries(changes)) copy.set(value, Number(at));
  return copy;
};

test('a database is created, described, queried and listed', async () => {
  const created = await put('life', { limits: { rows: 50 } });
  assert.equal(created.status, 201, created.body);
  assert.equal((await put('life')).status, 200);
  await query('life', { sql: 'CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE); CREATE INDEX i ON t(name)' });
  const added = await query('life', { sql: 'INSERT INTO t(name) VALUES (?), (?)', params: ['Ann', 'Bob'] });
  assert.deepEqual(added, { success: true, changes: 2, lastInsertRowid: 2 });
  const both = await query('life', {
    batch: [{ sql: 'INSERT INTO t(name) VALUES (?)', params: ['Cid'] }, { sql: 'SELECT count(*) AS n FROM t' }],
  });
  assert.equal(both.results[0].changes, 1);
  assert.deepEqual(both.results[1], { columns: ['n'], rows: [[3]] });
  assert.deepEqual(await query('life', { sql: 'SELECT * FROM t WHERE id < ?', params: [3], readonly: true }), {
    columns: ['id', 'name'],
    rows: [
      [1, 'Ann'],
      [2, 'Bob'],
    ],
  });
  const shown = await json('/life');
  assert.equal(shown.name, 'life');
  assert.deepEqual(shown.tables, [
    { name: 't', type: 'table', rows: 3, sql: 'CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)' },
  ]);
  assert.deepEqual(shown.indexes, [{ name: 'i', table: 't', sql: 'CREATE INDEX i ON t(name)' }]);
  assert.equal(shown.limits.rows, 50);
  assert.equal(shown.limits.disk_bytes, 256 << 20);
  assert.equal(shown.user_version, 0);
  assert.equal(shown.complete, true);
  assert.ok(shown.bytes >= 3 * 4096);
  const [entry] = (await json('')).facets.filter(({ name }) => name === 'life');
  assert.equal(entry.open, true);
  assert.ok(entry.bytes > 0);
  assert.ok(Date.parse(entry.modified_at) >= Date.parse(entry.created_at ?? entry.modified_at));
});

test('pages of the list', async () => {
  for (const name of ['p3', 'p1', 'p2', 'P0']) assert.equal((await put(name, undefined, { key: keys.ann })).status, 201);
  const seen = [];
  let cursor = '';
  do {
    const page = await json(`?limit=3${cursor && `&cursor=${cursor}`}`, { key: keys.ann });
    assert.ok(page.facets.length <= 3);
    seen.push(...page.facets.map(({ name }) => name));
    cursor = page.next_cursor ?? '';
  } while (cursor);
  assert.deepEqual(seen, ['P0', 'p1', 'p2', 'p3']);
  await refusal('?limit=0', {}, 400, /limit/);
  await refusal('?cursor=../x', {}, 400, /cursor/);
  await refusal('?curser=x', {}, 400, /curser/);
});

test('a name that is none, or that is not there', async () => {
  for (const name of ['..', '%2e%2e', '..%2Fx', 'a%2F..%2Fb', 'a.b', '%00', 'a%00b', '%ff', '%C3%A9', 'x'.repeat(65), 'none'])
    for (const [path, method] of [['', 'GET'], ['', 'DELETE'], ['/export', 'GET'], ['/query', 'POST'], ['/copy', 'POST']]) {
      const got = await send(`/${name}${path}`, { method, body: method === 'POST' ? { sql: 'SELECT 1', to: 'x' } : undefined });
      assert.ok([400, 404].includes(got.status), `${method} ${name}${path}: ${got.status} ${got.body}`);
    }
  for (const name of ['a.b', 'a%2F..%2Fb', '..%2Fx', '%C3%A9', 'x'.repeat(65)]) {
    assert.equal((await put(name)).status, 400, name);
    assert.equal((await importFile(name, Buffer.from('x'))).status, 400, name);
  }
  await refusal('/life/copy', { method: 'POST', body: { to: '../x' } }, 400, /letters, digits/);
  await refusal('/life/copy', { method: 'POST', body: { to: 'a\0b' } }, 400, /NUL/);
  assert.deepEqual(
    readdirSync(join(cay.dataDir, 'facets', 'operator')).filter((name) => !/^[\w-]{1,64}$/.test(name)),
    [],
  );
  assert.ok(!existsSync(join(cay.dataDir, 'facets', 'operator', 'none')), 'asking makes nothing');
});

test('two keys have databases of one name, and each its own', async () => {
  for (const [who, key] of [['ann', keys.ann], ['bob', keys.bob]]) {
    assert.equal((await put('same', undefined, { key })).status, 201);
    await query('same', { batch: [{ sql: 'CREATE TABLE who(name)' }, { sql: 'INSERT INTO who VALUES (?)', params: [who] }] }, { key });
  }
  assert.deepEqual(await rows('same', 'SELECT name FROM who', { key: keys.ann }), [['ann']]);
  assert.deepEqual(await rows('same', 'SELECT name FROM who', { key: keys.bob }), [['bob']]);
  await json('/same', { method: 'DELETE', key: keys.bob });
  await refusal('/same', { key: keys.bob }, 404, /no database "same"/);
  await refusal('/same', {}, 404, /no database "same"/);
  assert.deepEqual(await rows('same', 'SELECT name FROM who', { key: keys.ann }), [['ann']]);
  assert.deepEqual((await json('', { key: keys.bob })).facets, []);
});

test('a key that is granted some names sees and uses those alone', async () => {
  const key = await createKey(cay.dataDir, { name: 'few', more: ['--facet', 'mine', '--facet', 'also'] });
  await until(async () => (await send('', { key })).status === 200, 'the key to be known');
  assert.equal((await put('mine', undefined, { key })).status, 201);
  mkdirSync(join(cay.dataDir, 'facets', key.project, 'hidden'));
  assert.deepEqual((await json('', { key })).facets.map(({ name }) => name), ['mine']);
  for (const [path, method] of [['', 'GET'], ['', 'PUT'], ['', 'DELETE'], ['/export', 'GET'], ['/import', 'PUT']])
    await refusal(`/hidden${path}`, { key, method }, 403, /may not use the facet "hidden"/);
  await refusal('/mine/copy', { key, method: 'POST', body: { to: 'hidden' } }, 403, /hidden/);
  assert.equal((await json('/mine/copy', { key, method: 'POST', body: { to: 'also' } }, 201)).name, 'also');
});

test('what only reads cannot write', async () => {
  const key = keys.reader;
  await put('ro', { migrations: [{ number: 1, sql: 'CREATE TABLE t(a); INSERT INTO t VALUES (1)' }] });
  for (const sql of ['DELETE FROM t', 'INSERT INTO t VALUES (2) RETURNING a', 'DROP TABLE t', 'PRAGMA user_version = 5', 'CREATE TABLE u(a)'])
    await refusal('/ro/query', { method: 'POST', body: { sql, readonly: true } }, 403, /READ_ONLY|SQLITE_AUTH/);
  await refusal('/ro/query', { method: 'POST', body: { batch: [{ sql: 'DELETE FROM t' }], readonly: true } }, 403, /only reads/);
  assert.deepEqual(await rows('ro', 'SELECT a FROM t'), [[1]]);
  // A key with the scope "read" has none here; what it may not do is told before that.
  await refusal('/ro/query', { method: 'POST', body: { sql: 'SELECT 1' }, key }, 403, /readonly/);
  await refusal('/ro/query', { method: 'POST', body: { sql: 'SELECT 1', readonly: true }, key }, 404, /no database/);
});

test('errors of SQL have SQLite\'s message and code', async () => {
  await put('errors', { limits: { rows: 10 } });
  const ask = (body, status, message) => refusal('/errors/query', { method: 'POST', body }, status, message);
  await query('errors', { sql: 'CREATE TABLE t(a UNIQUE)' });
  await ask({ sql: 'SELEC 1' }, 400, /near "SELEC": syntax error \(SQLITE_ERROR\)/);
  await ask({ batch: [{ sql: 'INSERT INTO t VALUES (1)' }, { sql: 'INSERT INTO t VALUES (1)' }] }, 409, /SQLITE_CONSTRAINT_UNIQUE/);
  assert.deepEqual(await rows('errors', 'SELECT count(*) FROM t'), [[0]]);
  await ask({ sql: "ATTACH 'x' AS y" }, 403, /ATTACH.*SQLITE_AUTH/);
  await ask({ sql: 'SELECT ?', params: [] }, 400, /1 parameter.*SQLITE_RANGE/);
  const many = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20) SELECT i FROM n';
  await ask({ sql: many }, 422, /row limit of 10 exceeded.*ORDER BY rowid LIMIT.*LIMIT_ROWS/);
  for (const body of [{}, { sql: 'SELECT 1', batch: [] }, { sql: 1 }, { sql: 'SELECT 1', params: {} }, { batch: [{}] }, { sql: 'SELECT 1', x: 1 }])
    assert.equal((await send('/errors/query', { method: 'POST', body })).status, 400, JSON.stringify(body));
});

test('a large result comes whole', async () => {
  await put('large');
  await query('large', { sql: 'CREATE TABLE t(a TEXT)' });
  await query('large', {
    sql: "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000) INSERT INTO t SELECT printf('%01000d', i) FROM n",
  });
  const all = await rows('large', 'SELECT a FROM t');
  assert.equal(all.length, 2000);
  assert.equal(Number(all[1999][0]), 2000);
});

test('limits lower the server\'s, survive, and hold at the next open when it is in use', async () => {
  await put('limits', { limits: { disk_bytes: 65536, rows: 5 } });
  await query('limits', { sql: 'CREATE TABLE t(a)' });
  await refusal('/limits/query', { method: 'POST', body: { sql: 'INSERT INTO t VALUES (zeroblob(200000))' } }, 422, /LIMIT_DISK/);
  for (const limits of [{ rows: 10_001 }, { disk_bytes: (256 << 20) + 1 }, { rows: 0 }, { rows: 'x' }, { nosuch: 1 }, 5])
    assert.equal((await put('limits', { limits })).status, 400, JSON.stringify(limits));
  assert.equal((await json('/limits')).limits.rows, 5);
  const changed = (await put('limits', { limits: { rows: 7 } })).json();
  assert.deepEqual([changed.limits.rows, changed.limits.disk_bytes, changed.limits_pending], [7, 256 << 20, false]);
  // While a program holds it, it stays open.
  const holder = run(
    `export default async (env) => { while ((await env.db.query('SELECT count(*) AS n FROM t'))[0].n === 0); return 'seen' }`,
    'limits',
  );
  await until(async () => (await put('limits', { limits: { rows: 6 } })).json().limits_pending, 'the program to hold it');
  assert.equal((await json('/limits')).limits.rows, 7);
  await query('limits', { sql: 'INSERT INTO t VALUES (1)' });
  assert.equal((await holder).result, 'seen');
  await until(async () => !(await put('limits', { limits: null })).json().limits_pending, 'the program to let go');
  assert.equal((await json('/limits')).limits.rows, 10_000);
});

test('migrations are applied once, in order, and a changed one is an error', async () => {
  const one = { number: 1, name: 'users', sql: 'CREATE TABLE users(id INTEGER PRIMARY KEY)' };
  const two = { number: 2, name: 'more', sql: 'ALTER TABLE users ADD COLUMN name TEXT; INSERT INTO users VALUES (1, \'Ann\'); PRAGMA user_version = 2' };
  const migrate = async (migrations, status, message) => {
    const got = await put('moves', { migrations });
    assert.equal(got.status, status, got.body);
    if (message) assert.match(got.json().error.message, message);
    return got.json();
  };
  assert.equal((await migrate([one], 201)).applied, 1);
  const both = await migrate([one, two], 200);
  assert.equal(both.applied, 1);
  assert.equal(both.user_version, 2);
  assert.deepEqual(both.migrations.map(({ number, name }) => [number, name]), [[1, 'users'], [2, 'more']]);
  assert.equal((await migrate([two], 200)).applied, 0);
  for (const sql of [`${one.sql} `, one.sql.slice(0, -1), one.sql.replace('users', 'USERS')])
    await migrate([{ ...one, sql }, two], 409, /migration 1 was applied with another text/);
  await migrate([one, two, { number: 3, sql: 'CREATE TABLE half(a); INSERT INTO nosuch VALUES (1)' }], 400, /migration 3: .*no such table: nosuch/);
  await migrate([{ number: 3, sql: "ATTACH 'x' AS y" }], 400, /migration 3: .*ATTACH/);
  await migrate([{ number: 4, sql: 'COMMIT' }], 400, /migration 4: .*transactions/);
  assert.deepEqual((await json('/moves')).tables.map(({ name, rows: n }) => [name, n]), [['users', 1]]);
  // What came before the one that fails stays; what cannot go well as a whole changes nothing.
  await migrate([{ number: 5, sql: 'CREATE TABLE five(a)' }, { number: 6, sql: 'BAD' }], 400, /migration 6: .*syntax error/);
  assert.equal((await json('/moves')).migrations.at(-1).number, 5);
  await migrate([{ number: 4, sql: 'CREATE TABLE four(a)' }], 409, /migration 4 was not applied, but the later 5 was/);
  await migrate([{ number: 8, sql: 'CREATE TABLE a(a)' }, { number: 7, sql: 'CREATE TABLE b(a)' }], 400, /migration 7 comes after 8/);
  assert.equal((await json('/moves')).migrations.at(-1).number, 5);
  for (const bad of [[{}], [{ number: 0, sql: '' }], [{ number: 9 }], {}, [{ number: 9, sql: 'a\0b' }], [{ number: 9.5, sql: '' }]])
    await migrate(bad, 400);
  // Nobody but a migration writes the record.
  for (const sql of ['DELETE FROM _cay_migrations', 'DROP TABLE _cay_migrations', "UPDATE _cay_migrations SET sql = ''", 'ALTER TABLE _cay_migrations RENAME TO x', 'CREATE TRIGGER tr AFTER INSERT ON _cay_migrations BEGIN SELECT 1; END', 'CREATE TRIGGER tr AFTER INSERT ON users BEGIN DELETE FROM _cay_migrations; END; INSERT INTO users(name) VALUES (1)'])
    await refusal('/moves/query', { method: 'POST', body: { sql } }, 403, /_cay_migrations/);
  await migrate([{ number: 9, sql: 'DELETE FROM _cay_migrations' }], 400, /migration 9: .*_cay_migrations/);
});

test('an export is whole while a program writes', async () => {
  await put('busy', { migrations: [{ number: 1, sql: 'CREATE TABLE a(n); CREATE TABLE b(n); CREATE TABLE over(n)' }] });
  const writer = run(
    `export default async (env) => {
       let i = 0;
       while ((await env.db.query('SELECT count(*) AS n FROM over'))[0].n === 0 && i < 200000) {
         await env.db.batch([['INSERT INTO a VALUES (?)', i], ['INSERT INTO b VALUES (?)', i]]);
         i++;
       }
       return i;
     }`,
    'busy',
  );
  await until(async () => (await rows('busy', 'SELECT count(*) FROM a'))[0][0] > 50, 'the program to write');
  let last = 0;
  for (let i = 0; i < 5; i++) {
    const got = await send('/busy/export');
    assert.equal(got.status, 200);
    assert.equal(got.headers['content-type'], 'application/vnd.sqlite3');
    assert.match(got.headers['content-disposition'], /filename="busy.db"/);
    assert.equal(Number(got.headers['content-length']), got.raw.length);
    const file = join(files, `busy${i}.db`);
    writeFileSync(file, got.raw);
    const db = new DatabaseSync(file);
    assert.equal(db.prepare('PRAGMA integrity_check').get().integrity_check, 'ok');
    const { a, b } = db.prepare('SELECT (SELECT count(*) FROM a) AS a, (SELECT count(*) FROM b) AS b').get();
    db.close();
    assert.equal(a, b);
    assert.ok(a >= last);
    last = a;
  }
  await query('busy', { sql: 'INSERT INTO over VALUES (1)' });
  const done = await writer;
  assert.ok(done.result >= last, JSON.stringify(done));
  assert.equal((await send('/busy/export', { method: 'HEAD' })).raw.length, 0);
  await until(() => leftovers().length === 0, 'what is not wanted any more to go');
});

test('an export comes back by an import, with its migrations; a copy is another one', async () => {
  const one = { number: 1, sql: 'CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, a); CREATE VIRTUAL TABLE f USING fts5(x)' };
  await put('from', { migrations: [one], limits: { rows: 77 } });
  await query('from', { batch: [{ sql: 'INSERT INTO t(a) VALUES (1)' }, { sql: "INSERT INTO f VALUES ('needle')" }, { sql: 'ANALYZE' }] });
  const { raw } = await send('/from/export');
  assert.deepEqual([raw[18], raw[19]], [2, 2], 'it says WAL');
  const back = await importFile('back', raw);
  assert.equal(back.status, 201, back.body);
  assert.equal(back.json().migrations.length, 1);
  assert.equal(back.json().limits.rows, 10_000);
  assert.deepEqual(await rows('back', "SELECT x FROM f('needle')"), [['needle']]);
  assert.equal((await put('back', { migrations: [one] })).json().applied, 0);
  const copy = await json('/from/copy', { method: 'POST', body: { to: 'twin' } }, 201);
  assert.equal(copy.name, 'twin');
  await query('twin', { sql: 'DELETE FROM t' });
  assert.deepEqual(await rows('from', 'SELECT a FROM t'), [[1]]);
  assert.equal((await json('/twin')).limits.rows, 77);
  await refusal('/from/copy', { method: 'POST', body: { to: 'twin' } }, 409, /already/);
  await refusal('/none/copy', { method: 'POST', body: { to: 'y' } }, 404, /no database "none"/);
  for (const body of [{}, { to: 5 }, { to: 'x', more: 1 }])
    assert.equal((await send('/from/copy', { method: 'POST', body })).status, 400);
  await until(() => leftovers().length === 0, 'what is not wanted any more to go');
});

test('an import replaces all, keeps the limits, and cuts off who held the old one', async () => {
  await put('target', { limits: { rows: 33 }, migrations: [{ number: 1, sql: 'CREATE TABLE old(a); INSERT INTO old VALUES (1)' }] });
  const holder = run(
    `export default async (env) => { try { for (;;) await env.db.query('SELECT * FROM old') } catch (e) { return String(e) } }`,
    'target',
  );
  await until(async () => (await put('target', { limits: { rows: 33 } })).json().limits_pending, 'the program to hold it');
  const bytes = sqliteFile((db) => db.exec('PRAGMA page_size = 1024; CREATE TABLE new(a); INSERT INTO new VALUES (2)'));
  const got = await importFile('target', bytes);
  assert.equal(got.status, 200, got.body);
  assert.deepEqual(got.json().tables.map(({ name }) => name), ['new']);
  assert.equal((await holder).result, 'Error: env.db was withdrawn');
  assert.deepEqual(await rows('target', 'SELECT a FROM new'), [[2]]);
  const shown = await json('/target');
  assert.deepEqual([shown.limits.rows, shown.page_size, shown.migrations.length], [33, 1024, 0]);
  await until(() => leftovers().length === 0, 'what is not wanted any more to go');
});

test('whoever opens it while it is replaced has the old one or the new one, and afterwards the new one', async () => {
  const versions = [0, 1].map((n) => sqliteFile((db) => db.exec(`CREATE TABLE v(n); INSERT INTO v VALUES (${n}), (${n})`)));
  assert.equal((await importFile('swap', versions[0])).status, 201);
  let over = false;
  const seen = new Set();
  const readers = Array.from({ length: 6 }, async () => {
    while (!over) {
      const got = await send('/swap/query', { method: 'POST', body: { sql: 'SELECT n FROM v', readonly: true } });
      if (got.status === 200) seen.add(JSON.stringify(got.json().rows));
      else assert.equal(got.status, 503, got.body);
    }
  });
  try {
    for (let i = 1; i <= 30; i++) {
      const got = await importFile('swap', versions[i % 2]);
      assert.equal(got.status, 200, got.body);
      const now = await until(async () => {
        const answer = await send('/swap/query', { method: 'POST', body: { sql: 'SELECT n FROM v' } });
        return answer.status === 200 && answer.json().rows;
      }, 'an answer');
      assert.deepEqual(now, [[i % 2], [i % 2]], `after import ${i}`);
    }
  } finally {
    over = true;
  }
  await Promise.all(readers);
  assert.deepEqual([...seen].filter((text) => !['[[0],[0]]', '[[1],[1]]'].includes(text)), []);
  await until(() => leftovers().length === 0, 'what is not wanted any more to go');
});

test('exports that nobody reads count, and one key has a share of them', async () => {
  await put('slow', undefined, { key: keys.ann });
  await query('slow', { sql: 'CREATE TABLE t(a)' }, { key: keys.ann });
  for (let i = 0; i < 20; i++) await query('slow', { sql: 'INSERT INTO t VALUES (zeroblob(1000000))' }, { key: keys.ann });
  const open = [];
  const begin = () =>
    new Promise((resolve, reject) => {
      const req = httpRequest({ port: cay.port, path: '/v1/facets/slow/export', headers: bearer(keys.ann.text) });
      req.once('error', reject);
      req.once('response', (res) => {
        res.pause();
        res.on('error', () => {});
        open.push(req);
        resolve(res.statusCode);
      });
      req.end();
    });
  const statuses = [];
  for (let i = 0; i < 13; i++) statuses.push(await begin());
  assert.deepEqual(statuses, [...Array(12).fill(200), 429]);
  assert.equal((await put('quick', undefined, { key: keys.bob })).status, 201);
  assert.equal((await send('/quick/export', { key: keys.bob })).status, 200);
  for (const req of open) req.destroy();
  await until(async () => (await send('/slow/export', { key: keys.ann })).status === 200, 'the room of those who left');
});

test('hostile files are refused, each for its reason, and leave what was there', async () => {
  await put('safe', { migrations: [{ number: 1, sql: 'CREATE TABLE kept(a); INSERT INTO kept VALUES (42)' }] });
  const plain = sqliteFile((db) => {
    db.exec('CREATE TABLE t(a TEXT); CREATE INDEX i ON t(a)');
    const add = db.prepare('INSERT INTO t VALUES (?)');
    for (let i = 0; i < 2000; i++) add.run(`row ${i} ${'x'.repeat(100)}`);
  });
  const pages = plain.length / 4096;
  assert.equal(pages, plain.readUInt32BE(28));
  const u32 = (n) => [(n >>> 24) & 255, (n >>> 16) & 255, (n >>> 8) & 255, n & 255];
  const forged = (sql, from, to) =>
    sqliteFile((db) => {
      db.exec(sql);
      forge(db, from, to);
    });
  const hostile = {
    'zero bytes': [Buffer.alloc(0), /it is empty/],
    'not SQLite': [Buffer.from('PK\x03\x04'.padEnd(5000, 'x')), /not a SQLite 3 database/],
    'a header alone': [plain.subarray(0, 100), /not a SQLite 3 database/],
    'a page cut off': [plain.subarray(0, plain.length - 4096), /truncated/],
    'half a page cut off': [plain.subarray(0, plain.length - 2000), /truncated/],
    'a huge page count': [patched(plain, { 28: u32(0x7fffffff) }), /2147483647 pages/],
    'a page size that is none': [patched(plain, { 16: [0, 3] }), /page size/],
    'more reserved than a page has': [patched(plain, { 16: [2, 0], 20: [200] }), /reserves too much/],
    'a newer format': [patched(plain, { 18: [3] }), /newer version/],
    'a damaged header': [patched(plain, { 21: [65] }), /header is damaged/],
    'an unknown schema format': [patched(plain, { 44: u32(9) }), /unknown format/],
    'UTF-16': [sqliteFile((db) => db.exec("PRAGMA encoding = 'UTF-16le'; CREATE TABLE t(a); INSERT INTO t VALUES ('x')")), /UTF-16/],
    'an unknown encoding': [patched(plain, { 56: u32(7) }), /text encoding/],
    'a page of noise': [patched(plain, { [4096 * (pages - 3)]: Buffer.alloc(4096, 0xa7) }), /integrity check|malformed/],
    'a page number out of range': [patched(plain, { 32: u32(0x00ffffff), 36: u32(5) }), /integrity check|malformed/],
    'an index without its rows': [
      sqliteFile((db) => {
        db.exec('CREATE TABLE t(a); CREATE INDEX i ON t(a); INSERT INTO t VALUES (1)');
        db.exec("PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 't') WHERE name = 'i'");
      }),
      /integrity check|malformed/,
    ],
    'a trigger that loads a library': [
      sqliteFile((db) => db.exec("CREATE TABLE t(a); CREATE TRIGGER tr AFTER INSERT ON t BEGIN SELECT load_extension('x.so'); END")),
      /table "t" is refused: .*load_extension/,
    ],
    'a trigger on UPDATE OF one column': [
      sqliteFile((db) => db.exec("CREATE TABLE t(a, b); CREATE TRIGGER tr AFTER UPDATE OF b ON t BEGIN SELECT load_extension('x.so'); END")),
      /load_extension/,
    ],
    'a view with INSTEAD OF': [
      sqliteFile((db) =>
        db.exec("CREATE TABLE t(a); CREATE VIEW v AS SELECT a FROM t; CREATE TRIGGER tr INSTEAD OF DELETE ON v BEGIN SELECT load_extension('x.so'); END"),
      ),
      /view "v" is refused: .*load_extension/,
    ],
    'a view that loads a library': [
      sqliteFile((db) => db.exec("CREATE VIEW v AS SELECT load_extension('x.so')")),
      /view "v" is refused: .*load_extension/,
    ],
    'a trigger that attaches a file': [
      forged("CREATE TABLE t(a); CREATE TRIGGER tr AFTER INSERT ON t BEGIN DELETE FROM t; END", 'DELETE FROM t;', "ATTACH '/x' AS y;"),
      /malformed database schema|ATTACH/,
    ],
    'a virtual table of another module': [
      forged('CREATE VIRTUAL TABLE v USING fts5(a)', 'fts5(a)', 'evil(a)'),
      /module/,
    ],
    'an R-tree': [sqliteFile((db) => db.exec('CREATE VIRTUAL TABLE v USING rtree(id, a, b)')), /module/],
    'a default that loads a library': [forged("CREATE TABLE t(a, b DEFAULT (abs('x.so')))", 'abs', 'load_extension'), /load_extension/],
    'a check by a function that is not there': [
      sqliteFile((db) => db.exec("CREATE TABLE t(a CHECK (json_patch(a, '{}') <> ''))")),
      /json_patch/,
    ],
    'a check by a function that tells of the build': [
      sqliteFile((db) => db.exec('CREATE TABLE t(a CHECK (a <> sqlite_source_id()))')),
      /table "t" is refused: .*sqlite_source_id/,
    ],
    'an index by such a function': [sqliteFile((db) => db.exec("CREATE TABLE t(a); CREATE INDEX i ON t(json_patch(a, '{}'))")), /json_patch/],
    'a table under a name of SQLite\'s': [
      sqliteFile((db) => {
        db.exec("CREATE TABLE t(a DEFAULT (load_extension('x.so'))); PRAGMA writable_schema = ON");
        db.exec("UPDATE sqlite_schema SET name = 'sqlite_t', tbl_name = 'sqlite_t', sql = replace(sql, 'TABLE t(', 'TABLE sqlite_t(')");
      }),
      /sqlite_t/,
    ],
    'a schema entry of no type': [
      sqliteFile((db) => {
        db.exec("CREATE TABLE t(a); PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES ('spell', 's', 's', 0, 'SELECT 1')");
      }),
      /no object|malformed/,
    ],
    'more columns than here': [sqliteFile((db) => db.exec(`CREATE TABLE t(${Array.from({ length: 600 }, (_, i) => `c${i}`)})`)), /too many columns/],
  };
  for (const [what, [bytes, message]] of Object.entries(hostile)) {
    const got = await importFile('safe', bytes);
    assert.ok([400, 422].includes(got.status), `${what}: ${got.status} ${got.body}`);
    assert.match(got.json().error.message, message, what);
    assert.deepEqual(await rows('safe', 'SELECT a FROM kept'), [[42]], what);
    await until(() => leftovers().length === 0, what);
  }
  assert.equal((await importFile('new', hostile['UTF-16'][0])).status, 400);
  await refusal('/new', {}, 404, /no database/);
  // What they were made of is fine.
  assert.equal((await importFile('safe', plain)).status, 200);
  assert.deepEqual(await rows('safe', 'SELECT count(*) FROM t'), [[2000]]);
});

test('an upload over the limit is refused: by its length, by what comes, by the limit of its database', async (t) => {
  const declared = await new Promise((resolve, reject) => {
    const req = httpRequest({ port: cay.port, path: '/v1/facets/huge/import', method: 'PUT', headers: { 'content-length': 556 << 20 } });
    req.once('error', reject);
    req.once('response', (res) => {
      res.resume();
      resolve(res.statusCode);
      req.destroy();
    });
    req.flushHeaders();
  });
  assert.equal(declared, 413);
  const server = await withCay(t, { config: { limits: { facet_disk_bytes: 1 << 20 } } });
  const big = sqliteFile((db) => db.exec('CREATE TABLE t(a); INSERT INTO t VALUES (zeroblob(3000000))'));
  const chunked = await send('/huge/import', { method: 'PUT', body: big, server, headers: { 'transfer-encoding': 'chunked' } });
  assert.equal(chunked.status, 413, chunked.body);
  assert.equal((await send('/huge', { server })).status, 404);
  await until(() => leftovers(server.dataDir).length === 0, 'what came of it to go');
  assert.equal((await put('tight', { limits: { disk_bytes: 1 << 20 } })).status, 201);
  await refusal('/tight/import', { method: 'PUT', body: big }, 413, /disk limit of this database is 1048576/);
});

test('a client that leaves in the middle of an upload leaves nothing', async () => {
  await put('left', { migrations: [{ number: 1, sql: 'CREATE TABLE kept(a)' }] });
  const req = httpRequest({ port: cay.port, path: '/v1/facets/left/import', method: 'PUT', headers: { 'content-length': 10 << 20 } });
  req.on('error', () => {});
  req.write(Buffer.alloc(2 << 20, 1));
  await until(() => leftovers().length > 0, 'the upload to begin');
  req.destroy();
  await until(() => leftovers().length === 0, 'the upload to go');
  assert.deepEqual((await json('/left')).tables.map(({ name }) => name), ['kept']);
});

test('what is removed is gone from the disk, and its holders are cut off', async () => {
  await put('secret');
  await query('secret', { sql: 'CREATE TABLE t(a TEXT)' });
  const word = `needle-${Math.random().toString(36).slice(2)}${Math.random().toString(36).slice(2)}`;
  await query('secret', { sql: 'INSERT INTO t VALUES (?)', params: [word] });
  const grep = () =>
    readdirSync(cay.dataDir, { recursive: true, withFileTypes: true })
      .filter((e) => e.isFile())
      .map((e) => join(e.parentPath, e.name))
      .filter((path) => existsSync(path) && readFileSync(path).includes(word));
  assert.ok(grep().length > 0);
  await json('/secret/copy', { method: 'POST', body: { to: 'secret2' } }, 201);
  await send('/secret/export');
  const holder = run(
    `export default async (env) => { try { for (;;) await env.db.query('SELECT 1') } catch (e) { return String(e) } }`,
    'secret',
  );
  await until(async () => (await put('secret', { limits: {} })).json().limits_pending, 'the program to hold it');
  const removed = await json('/secret', { method: 'DELETE' });
  assert.equal(removed.name, 'secret');
  assert.ok(removed.removed.files >= 1 && removed.removed.bytes > 0, JSON.stringify(removed));
  assert.equal((await holder).result, 'Error: env.db was withdrawn');
  await refusal('/secret', {}, 404, /no database "secret"/);
  await refusal('/secret', { method: 'DELETE' }, 404, /no database "secret"/);
  await json('/secret2', { method: 'DELETE' });
  assert.deepEqual(grep(), []);
  await until(() => leftovers().length === 0, 'what is not wanted any more to go');
  // A program that names it makes a new one, without the old rows.
  const again = await run(`export default async (env) => env.db.query('SELECT name FROM sqlite_schema')`, 'secret');
  assert.deepEqual(again.result, []);
});

test('what a dead server left under a temporary name is swept at the start', async (t) => {
  const first = await startCay();
  assert.equal((await put('stays', undefined, { server: first })).status, 201);
  const stale = join(first.dataDir, 'facets', 'operator', '.tmp-db_dead-1');
  await first.halt();
  mkdirSync(stale);
  writeFileSync(join(stale, 'data.db'), 'x');
  const second = await withCay(t, { dataDir: first.dataDir });
  await until(() => !existsSync(stale), 'the sweep');
  assert.equal((await send('/stays', { server: second })).status, 200);
  t.after(() => first.clean());
});

test('cay db does all of it', async (t) => {
  const dir = tempDir(t);
  const db = async (args, code = 0, cwd = dir) => {
    const done = await runCay(['db', ...args], { env: { CAY_URL: cay.url, CAY_API_KEY: keys.bob.text }, cwd });
    assert.equal(done.code, code, `${args.join(' ')}: ${done.stdout} ${done.stderr}`);
    return done;
  };
  assert.equal((await db(['create', 'shop', '--rows', '50'])).stdout, 'shop\n');
  mkdirSync(join(dir, 'moves'));
  writeFileSync(join(dir, 'moves', '002_rows.sql'), "INSERT INTO t VALUES (1, 'Ann', NULL), (2, 'Bob, \"x\"', x'00ff')");
  writeFileSync(join(dir, 'moves', '1_table.sql'), 'CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, b)');
  assert.equal((await db(['migrate', 'shop', 'moves'])).stdout, 'shop: 2 applied, 2 in all\n');
  assert.equal((await db(['query', 'shop', 'SELECT * FROM t WHERE id > ? AND name <> ?', '0', 'nobody'])).stdout.split('\n')[1], '1   Ann       NULL');
  assert.equal((await db(['query', '--csv', 'shop', 'SELECT * FROM t'])).stdout, 'id,name,b\r\n1,Ann,\r\n2,"Bob, ""x""",AP8=\r\n');
  assert.deepEqual(JSON.parse((await db(['query', '--json', 'shop', 'SELECT ? AS a, ? AS b', '5', 'five'])).stdout).rows, [[5, 'five']]);
  assert.match((await db(['query', '--readonly', 'shop', 'DELETE FROM t'], 77)).stderr, /only reads/);
  assert.match((await db(['show', 'shop'])).stdout, /table +2 +CREATE TABLE t/);
  assert.equal(JSON.parse((await db(['show', '--json', 'shop'])).stdout).limits.rows, 50);
  assert.match((await db(['limits', 'shop', '--rows', '9', '--time', '2s'])).stdout, /rows +9\n[^]*time_ms +2000/);
  assert.match((await db(['limits', 'nosuch', '--rows', '9'], 66)).stderr, /no database "nosuch"/);
  assert.match((await db(['export', 'shop'])).stdout, /^shop\.db: \d+ bytes/);
  assert.match((await db(['export', 'shop'], 75)).stderr, /--yes replaces it/);
  await db(['export', '--yes', 'shop', 'shop.db']);
  assert.equal((await db(['copy', 'shop', 'shop2'])).stdout.split(':')[0], 'shop2');
  assert.match((await db(['import', 'shop2', 'shop.db'], 2)).stderr, /--yes/);
  assert.match((await db(['import', '--yes', 'shop2', 'shop.db'])).stdout, /CREATE TABLE t/);
  writeFileSync(join(dir, 'bad.db'), 'nothing');
  assert.match((await db(['import', '--yes', 'shop2', 'bad.db'], 2)).stderr, /not a SQLite 3 database/);
  const listed = JSON.parse((await db(['ls', '--json'])).stdout).map(({ name }) => name);
  assert.deepEqual(listed.filter((name) => name.startsWith('shop')), ['shop', 'shop2']);
  assert.match((await db(['ls'])).stdout, /^NAME +BYTES +CREATED +MODIFIED +OPEN\n/);
  assert.match((await db(['rm', 'shop2'], 2)).stderr, /Say --yes/);
  assert.match((await db(['rm', '--yes', 'shop', 'shop2'])).stdout, /^shop: removed \d+ bytes in \d files\nshop2: removed/);
  assert.match((await db(['show', 'shop'], 66)).stderr, /no database "shop"/);
  for (const [args, message] of [[['rm'], /say which database/], [['query', 'x'], /one more word/], [['copy', 'a', 'b', 'c'], /unexpected argument "c"/], [['shw', 'x'], /did you mean "show"/], [['migrate', 'x', 'bad.db'], /NUMBER_NAME\.sql/]])
    assert.match((await db(args, 2)).stderr, message);
});
