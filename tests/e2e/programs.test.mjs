// Programs over HTTP: what a client of /v1/run and /v1/workers sees, and what hostile programs do not get.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { closeSync, existsSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import http, { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { bearer, createKey, request, startCay, until, withCay } from '../lib/cay.mjs';

const build = process.env.CAY_BUILD ?? path.resolve(import.meta.dirname, '../../build');
let cay;
before(async () => {
  cay = await startCay({ config: { limits: { run_memory_bytes: 67108864, run_wall_ms: 20000 } } });
});
after(() => cay.stop());

const run = async (body, options = {}) => {
  const res = await request(cay, '/v1/run', { method: 'POST', body: JSON.stringify(body), ...options });
  return { status: res.status, ...res.json() };
};
const code = (text, rest = {}) => run({ code: text, ...rest });

test('a program: console lines, result, record', async () => {
  const r = await code('export default async (env, a, b) => { console.log("hi", {a: 1}, [1, "x"]); console.warn("w"); return {sum: a + b, e: env.K} }', {
    env: { K: 'v' },
    args: [1, 2],
  });
  assert.equal(r.status, 'done');
  assert.equal(r.output, 'hi {"a":1} [1,"x"]\nw');
  assert.deepEqual(r.result, { sum: 3, e: 'v' });
  assert.deepEqual(r.logs.map((l) => l.level), ['log', 'warn']);
  assert.equal(r.error, null);
  const record = (await request(cay, `/v1/runs/${r.id}`)).json();
  assert.equal(record.status, 'done');
  assert.equal(record.detail.output, r.output);
  assert.match(record.detail.code, /export default/);
});

test('the engines keep quiet about their options', () => assert.doesNotMatch(cay.stderr(), /gigacage/i));

test('console shows what JSON cannot', async () => {
  const r = await code(`export default () => { console.log(new Map([[1, 2]]), new Set(["a"]), undefined, 10n, Symbol("s")); const o = {}; o.o = o; console.log(o) }`);
  assert.match(r.output, /Map/);
  assert.match(r.output, /10n/);
  assert.match(r.output, /undefined/);
  assert.match(r.output, /[Cc]ircular/);
});

test('an error names the line and column of the source', async () => {
  const r = await code('export default async () => {\n  const x = null;\n  return x.foo;\n}');
  assert.equal(r.status, 'failed');
  assert.equal(r.error.name, 'TypeError');
  assert.equal(r.error.module, 'main.js');
  assert.equal(r.error.line, 3);
  assert.match(r.error.stack, /^TypeError: .*\n {4}at .*main\.js:3:\d+/);
  const ts = await run({ mainModule: 'a.ts', modules: { 'a.ts': 'interface T { x: number }\nexport default (): T => {\n  throw new RangeError("no" as string);\n}' } });
  assert.equal(ts.error.name, 'RangeError');
  assert.equal(ts.error.line, 3);
});

test('an error has its own name, message and code, and one word for every limit', async () => {
  const errorOf = async (...args) => (await code(...args)).error;
  const dom = await errorOf('export default () => { throw new DOMException("gone", "AbortError") }');
  assert.deepEqual([dom.name, dom.message, dom.kind], ['AbortError', 'gone', 'error']);
  assert.equal((await errorOf('export default () => { throw Object.assign(new Error("x"), { code: "E_MINE" }) }')).code, 'E_MINE');
  const env = { db: { $facet: 'kinds' } };
  assert.equal((await errorOf('export default (env) => env.db.query("SELECT nope")', { env })).code, 'SQLITE_ERROR');
  for (const [source, rest] of [
    ['for (;;);', { limits: { wall_ms: 200 } }],
    ['for (;;);', { limits: { cpu_ms: 100 } }],
    ['const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1))'],
    ['for (;;) await env.db.query("SELECT 1")', { limits: { binding_calls: 2 } }],
    ['env.db.query("SELECT 1"); env.db.query("SELECT 1")', { limits: { binding_calls: 1 } }],
    ['await env.db.query("SELECT ?", "x".repeat(5e6))'],
    ['await env.db.query("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c")'],
    ['return "x".repeat(2e6)'],
  ]) {
    const e = await errorOf(`export default async (env) => { ${source} }`, { env, ...rest });
    assert.deepEqual([e.name, e.kind, /limit|larger/.test(e.message), e.stack.startsWith('LimitError: ')], ['LimitError', 'limit', true, true], JSON.stringify(e));
  }
});

test('usage tells the processor time and the memory of a run that was ended by its time limit', async () => {
  const r = await code('export default () => { const a = new Uint8Array(20 << 20).fill(1); for (;;) a[0]++; }', { limits: { wall_ms: 2500 } });
  assert.ok(r.usage.cpu_ms > 10 && r.usage.cpu_ms < 2700, JSON.stringify(r.usage));
  assert.ok(r.usage.peak_memory_bytes > 20 << 20 && r.usage.peak_memory_bytes < 64 << 20, JSON.stringify(r.usage));
});

test('an empty first line is a line', async () => {
  assert.equal((await code('export default () => { console.log(""); console.log("a"); console.log("") }')).output, '\na\n');
});

test('what does not compile is an error with a position', async () => {
  const r = await code('export default () => {\n  const x = ;\n}');
  assert.equal(r.error.name, 'SyntaxError');
  assert.equal(r.error.line, 2);
  const missing = await run({ mainModule: 'a.js', modules: { 'a.js': 'import { nope } from "./b.js";\nexport default nope', 'b.js': 'export const yes = 1' } });
  assert.equal(missing.error.name, 'SyntaxError');
  assert.match(missing.error.message, /nope/);
  for (const name of ['node:fs', 'https://x.example/m.js', 'lodash']) {
    const e = await code(`import x from ${JSON.stringify(name)}; export default x`);
    assert.match(e.error.message, new RegExp(name.slice(0, 6)));
  }
  for (const kind of ['wasm', 'py']) {
    const e = await run({ mainModule: 'a.js', modules: { 'a.js': 'import x from "./m"; export default x', m: { [kind]: 'AA==' } } });
    assert.match(e.error.message, /not supported/);
  }
});

test('modules: ts, json, text, cjs, data, cycles, top-level await', async () => {
  const r = await run({
    mainModule: 'main.ts',
    modules: {
      'main.ts': 'import j from "./d.json" with { type: "json" }; import t from "./t.txt"; import c from "./c.cjs"; import d from "./d"; import { even } from "./even.js";\nconst later: number = await Promise.resolve(4);\nexport default () => ({ j, t, c: c.x, d: [...new Uint8Array(d)], even: even(10), later, url: typeof import.meta.url })',
      'd.json': { json: { a: 1 } },
      't.txt': { text: 'hello' },
      'c.cjs': { cjs: 'exports.x = 5' },
      d: { data: 'AQID' },
      'even.js': 'import { odd } from "./odd.js"; export const even = (n) => n === 0 || odd(n - 1)',
      'odd.js': 'import { even } from "./even.js"; export const odd = (n) => n !== 0 && even(n - 1)',
    },
  });
  assert.deepEqual(r.result, { j: { a: 1 }, t: 'hello', c: 5, d: [1, 2, 3], even: true, later: 4, url: 'string' }, JSON.stringify(r.error));
});

test("the example's harness and user code run unchanged", async () => {
  const r = await run({
    mainModule: 'harness.js',
    modules: {
      'harness.js': 'import { WorkerEntrypoint } from "cloudflare:workers";\nimport run from "user-code.js";\nexport default class extends WorkerEntrypoint {\nverify() { console.log("not shown") }\nasync run() {\nawait run(this.env);\n}\n}\n',
      'user-code.js': 'export default async function(env) { await env.db.execute("CREATE TABLE IF NOT EXISTS t (n)"); await env.db.execute("INSERT INTO t VALUES (1)"); console.log("rows", await env.db.query("SELECT n FROM t LIMIT 1")) }',
    },
    env: { db: { $facet: 'harness' } },
    globalOutbound: null,
    verify: true,
  });
  assert.equal(r.output, 'rows [{"n":1}]', JSON.stringify(r.error));
});

test('entrypoints: named classes, props, objects, waitUntil', async () => {
  const source = 'import { WorkerEntrypoint } from "cloudflare:workers";\nexport class Admin extends WorkerEntrypoint { async hello(x) { this.ctx.waitUntil(new Promise((r) => setTimeout(r, 5)).then(() => console.log("later"))); return [x, this.ctx.props.who, this.env.K] } }\nexport default { add(a, b) { return a + b } }';
  const named = await code(source, { entrypoint: 'Admin', method: 'hello', args: [1], props: { who: 'me' }, env: { K: 2 } });
  assert.deepEqual(named.result, [1, 'me', 2]);
  assert.equal(named.output, 'later');
  assert.equal((await code(source, { method: 'add', args: [1, 2] })).result, 3);
  assert.match((await code(source, { method: 'nope' })).error.message, /no method 'nope'/);
});

test('facets: rows, blobs, big integers, methods that were not granted', async () => {
  const env = { db: { $facet: 'types' } };
  const r = await code(
    'export default async (env) => { await env.db.execute("CREATE TABLE IF NOT EXISTS t (b BLOB, i INTEGER, s TEXT)"); await env.db.execute("INSERT INTO t VALUES (?, ?, ?)", new Uint8Array([1, 2]), 9007199254740993n, "x"); const [row] = await env.db.query("SELECT *, CAST(i AS TEXT) AS digits FROM t"); return [row.b instanceof Uint8Array, [...row.b], row.i, row.digits, row.s] }',
    { env },
  );
  assert.deepEqual(r.result, [true, [1, 2], 9007199254740992, '9007199254740993', 'x'], JSON.stringify(r.error));
  const only = await code('export default async (env) => { await env.db.execute("DELETE FROM t") }', { env: { db: { $facet: 'types', methods: ['query'] } } });
  assert.equal(only.status, 'failed');
  const write = await code('export default async (env) => env.db.query("DELETE FROM t")', { env });
  assert.match(write.error.message, /only reads/);
  const returning = 'export default (env) => env.db.query("INSERT INTO t (s) VALUES (?), (?) RETURNING s", "a", "b")';
  assert.deepEqual((await code(returning, { env })).result, [{ s: 'a' }, { s: 'b' }]);
  assert.equal((await code(returning, { env: { db: { $facet: 'types', methods: ['query'] } } })).error.code, 'READ_ONLY');
  assert.deepEqual((await code('export default (env) => env.db.query("SELECT count(*) AS n FROM t")', { env })).result, [{ n: 3 }]);
});

test('facets: a list of methods that was granted before gives no more the next time', async () => {
  const program = (methods, id) =>
    run({ code: 'export default async (env) => { const [{ n }] = await env.db.query("SELECT 1 AS n"); let why = null; try { await env.db.execute("CREATE TABLE IF NOT EXISTS x (y)"); } catch (e) { why = e.message; } return [n, why]; }', env: { db: { $facet: 'lists', ...(methods && { methods }) } }, ...(id && { id }) });
  // A program that stays holds the facet: it must not be ended by what others ask for.
  assert.deepEqual((await program(undefined, 'holds-lists')).result, [1, null]);
  for (let i = 0; i < 3; i++) {
    assert.deepEqual((await program(['query', 'execute'])).result, [1, null]);
    const less = (await program(['query'])).result;
    assert.equal(less[0], 1);
    assert.match(less[1], /execute/);
  }
  // Names that look like the list that was granted last.
  for (const methods of [['query\nexecute'], ['query', 'execute', 'nope'], ['query\0execute'], ['nope'], []])
    for (let i = 0; i < 2; i++) {
      const r = await program(methods);
      assert.notDeepEqual(r.result, [1, null], JSON.stringify(methods));
      await program(['query', 'execute']);
    }
  const held = await program(undefined, 'holds-lists');
  assert.deepEqual([held.result, held.error], [[1, null], null]);
  assert.equal(held.usage.started_ms, 0, 'the isolate with its grant is still there');
});

test('facets: a call of plain values means the same as one that is put together with care', async () => {
  // query(sql, v) and query(sql, [v]) are made and answered by the host; where the list cannot be read so, it is the prelude's.
  const r = await code(
    String.raw`const values = ["", "x", "a\"b\\c\n\u0000\u001f\u007f", "é€😀", "\ud800", "a\udc00b", "\ud83d", "x".repeat(20000), "'; DROP TABLE t; --",
      0, -0, 1, -1, 1.5, 0.1, 1 / 3, 5e-324, 1e-7, 123456789.123, 1e17, 1e21, 2 ** 53 - 1, 2 ** 53, -(2 ** 53), 1.7976931348623157e308, NaN, Infinity, true, false, null, undefined,
      10n, 2n ** 70n, new Date(0), new Uint8Array([1, 2]), {}, [], [[1]], Symbol.iterator, () => 1];
    const shown = async (f) => { try { return JSON.stringify(await f(), (k, v) => typeof v === "bigint" ? v + "n" : v); } catch (e) { return [e.name, e.code, e.message].join(); } };
    const careful = (list) => new Proxy(list, {});
    export default async (env) => {
      const out = [];
      for (const v of values) {
        const sql = "SELECT ? AS v, typeof(?1) AS t", two = "SELECT ?1 AS v, typeof(?2) AS t", three = "SELECT ?1 AS v, typeof(?2) AS t, ?3 AS u";
        const want = await shown(() => env.db.query(sql, careful([v])));
        if (!Array.isArray(v)) out.push([await shown(() => env.db.query(sql, v)), want]);
        out.push([await shown(() => env.db.query(sql, [v])), want]);
        out.push([await shown(() => env.db.query(two, [v, v])), await shown(() => env.db.query(two, careful([v, v])))]);
        out.push([await shown(() => env.db.query(three, [v, v, v])), await shown(() => env.db.query(three, careful([v, v, v])))]);
        out.push([await shown(() => env.db.query(two, v, v)), await shown(() => env.db.query(two, careful([v, v])))]);
      }
      const queries = ["SELECT 1 a, 2 a, 3 AS __proto__, 4 AS '1', 5 AS 'toString', 6 AS 'q\"\\'", "SELECT 1 a WHERE 0", "SELECT x'00ff' b", "SELECT 9007199254740993 big", "SELECT 1e300 * 1e300 inf",
        "SELECT 'é😀' t, char(0) z", "SELECT value v FROM json_each('[1,[2],\"[\",null]')", "nonsense", "SELECT ?", "SELECT 1; SELECT 2", "SELECT '\ud800'", "", "SELECT " + Array.from({ length: 80 }, (_, i) => i + " c" + i).join(),
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) SELECT i, 'text ' || i AS t FROM n", "CREATE TABLE IF NOT EXISTS q (a)", "INSERT INTO q VALUES (1) RETURNING a"];
      for (const q of queries) for (const m of ["query", "execute", "batch", "nosuch"]) {
        const want = await shown(() => env.db[m](q, careful([])));
        out.push([await shown(() => env.db[m](q)), m === "batch" ? await shown(() => env.db[m](q)) : want], [await shown(() => env.db[m](q, [])), want]);
      }
      return out;
    }`,
    { env: { db: { $facet: 'plain' } } },
  );
  assert.equal(r.error, null);
  assert.equal(r.result.length, 40 * 4 + 38 + 16 * 8);
  for (const [quick, careful] of r.result) assert.equal(quick.replace(/"lastInsertRowid":\d+/, ''), careful.replace(/"lastInsertRowid":\d+/, ''));
  assert.ok(r.result.some(([quick]) => quick === '[{"v":"a�b","t":"text"}]'), JSON.stringify(r.result));
});

test('facets: more calls at once than the host has places for, setters in the way, answers after the result', async () => {
  const r = await code(
    `export default async (env) => {
      await env.db.execute("CREATE TABLE IF NOT EXISTS many (a)");
      for (const name of ["n", "0", "a"]) Object.defineProperty(Object.prototype, name, { set() { throw new Error("seen"); }, configurable: true });
      const all = await Promise.all(Array.from({ length: 300 }, (_, i) => env.db.query("SELECT ? AS n, 'x' AS a", i)));
      const mixed = await Promise.allSettled([env.db.query("SELECT 1 AS a"), env.db.query("nope"), env.db.nosuch(1), env.db.query("SELECT ? AS a", [2])]);
      for (let i = 0; i < 100; i++) env.db.execute("INSERT INTO many VALUES (?)", i);
      return [all.every(([row], i) => row.n === i && row.a === "x"), mixed.map((m) => m.value?.[0].a ?? m.reason.name)];
    }`,
    { env: { db: { $facet: 'places' } } },
  );
  assert.equal(r.error, null);
  assert.deepEqual(r.result, [true, [1, 'SqliteError', 'TypeError', 2]]);
  const after = await code('export default async (env) => (await env.db.query("SELECT count(*) AS n FROM many"))[0].n', { env: { db: { $facet: 'places' } } });
  assert.equal(after.result, 100);
});

test('isolates of the same facet see each other\'s data, of another facet not', async () => {
  await code('export default (env) => env.db.execute("CREATE TABLE s (x)")', { env: { db: { $facet: 'one' } } });
  assert.equal((await code('export default (env) => env.db.query("SELECT * FROM s")', { env: { db: { $facet: 'one' } } })).status, 'done');
  assert.match((await code('export default (env) => env.db.query("SELECT * FROM s")', { env: { db: { $facet: 'two' } } })).error.message, /no such table/);
});

test('wrong requests say what is wrong', async () => {
  for (const [body, text] of [
    [{}, /"code"/],
    [{ code: 1 }, /"code" must be a string/],
    [{ code: 'x', modules: {} }, /either/],
    [{ code: 'x', nope: 1 }, /unknown key "nope"/],
    [{ code: 'x', globalOutbound: 'y' }, /globalOutbound/],
    [{ code: 'x', limits: { wall_ms: 1e9 } }, /wall_ms/],
    [{ code: 'x', limits: { nope: 1 } }, /unknown key/],
    [{ code: 'x', env: { d: { $facet: '../x' } } }, /\$facet/],
    [{ code: 'x', env: { d: { $worker: 'none' } } }, /no worker/],
    [{ code: 'x', id: 'Not Valid' }, /"id"/],
    [{ code: 'x', args: 1 }, /"args"/],
    [{ code: 'x', isolation: 'none' }, /"isolation"/],
    [{ code: 'x', tails: [{ url: 'http://x' }] }, /tail/],
  ]) {
    const res = await request(cay, '/v1/run', { method: 'POST', body: JSON.stringify(body) });
    assert.ok(res.status >= 400 && res.status < 600, `${JSON.stringify(body)}: ${res.status}`);
    assert.match(res.json().error.message, text);
  }
});

test('log lines stream as they happen', async () => {
  // It goes on when the first line has been seen.
  const env = { db: { $facet: 'stream' } };
  await code('export default (env) => env.db.execute("CREATE TABLE seen (x)")', { env });
  const goOn = () => code('export default (env) => env.db.execute("INSERT INTO seen VALUES (1)")', { env });
  const seen = await new Promise((resolve, reject) => {
    const events = [];
    const req = http.request({ port: cay.port, host: '127.0.0.1', path: '/v1/run', method: 'POST', headers: { accept: 'text/event-stream' } }, (res) => {
      let text = '';
      res.setEncoding('utf8').on('data', (d) => {
        text += d;
        for (let i; (i = text.indexOf('\n\n')) >= 0; text = text.slice(i + 2)) {
          if (text.startsWith(':')) continue; // a comment
          const event = /^event: (.*)$/m.exec(text.slice(0, i))[1];
          events.push({ event, data: JSON.parse(/^data: (.*)$/m.exec(text.slice(0, i))[1]) });
          if (events.length === 1) goOn().catch(reject);
        }
      });
      res.on('end', () => resolve(events));
    });
    req.on('error', reject);
    const wait = 'while ((await env.db.query("SELECT x FROM seen")).length === 0) await new Promise((r) => setTimeout(r, 20));';
    req.end(JSON.stringify({ env, code: `export default async (env) => { console.log("one"); ${wait} console.log("two"); return 3 }` }));
  });
  assert.deepEqual(seen.map((e) => e.event), ['log', 'log', 'result']);
  assert.equal(seen[0].data.message, 'one');
  assert.equal(seen[2].data.result, 3);
});

test('by id the isolate stays warm; another program under the id replaces it', async () => {
  const counter = 'let n = 0; export default () => ++n';
  assert.equal((await code(counter, { id: 'warm' })).result, 1);
  assert.equal((await code(counter, { id: 'warm' })).result, 2);
  assert.equal((await code('let n = 10; export default () => ++n', { id: 'warm' })).result, 11);
  assert.equal((await code(counter)).result, 1);
});

test('a rejection nobody awaits fails the run, also when the program returns at once', async () => {
  const lost = await code('export default async () => { Promise.reject(new Error("lost")) }');
  assert.equal(lost.status, 'failed', JSON.stringify(lost));
  assert.equal(lost.error.kind, 'unhandled');
  assert.match(lost.error.message, /lost/);
  const handled = await code('export default async () => { const p = Promise.reject(new Error("found")); queueMicrotask(() => p.catch(() => {})); return 1 }');
  assert.equal(handled.result, 1, JSON.stringify(handled.error));
});

test('binding calls that nobody awaits are settled before the run is done', async () => {
  const env = { db: { $facet: 'unawaited' } };
  const many = await code('export default async (env) => { await env.db.execute("CREATE TABLE t (x)"); for (let i = 0; i < 1000; i++) env.db.execute("INSERT INTO t VALUES (1)"); return "now" }', { env });
  assert.deepEqual([many.status, many.result], ['done', 'now'], JSON.stringify(many.error));
  const chain = await code('export default (env) => { (async () => { for (let i = 0; i < 3; i++) await env.db.execute("INSERT INTO t VALUES (2)"); console.log("all") })() }', { env });
  assert.equal(chain.output, 'all', JSON.stringify(chain.error));
  const thrown = await code('export default (env) => { for (let i = 0; i < 100; i++) env.db.execute("INSERT INTO t VALUES (3)"); throw new Error("after") }', { env });
  assert.match(thrown.error.message, /after/);
  const { result } = await code('export default (env) => env.db.query("SELECT x, count(*) AS n FROM t GROUP BY x ORDER BY x")', { env });
  assert.deepEqual(result, [{ x: 1, n: 1000 }, { x: 2, n: 3 }, { x: 3, n: 100 }]);
  const wrong = await code('export default (env) => { env.db.query("SELEC"); return 1 }', { env });
  assert.equal(wrong.status, 'failed');
  assert.match(wrong.error.message, /syntax error/);
});

test('the settings of databases hold: each is reached, and nothing is by default', { timeout: 120_000 }, async (t) => {
  const n = (most, what) => `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${most}) SELECT ${what} FROM n`;
  const reach = {
    rows: [`db.query(${JSON.stringify(n(30, 'i'))})`, 'LIMIT_ROWS', /\b20\b/],
    time: [`db.query(${JSON.stringify(n(1_000_000, 'count(*) AS c'))})`, 'LIMIT_TIME', /\b10 ms/],
    disk: ['db.execute("CREATE TABLE d (x)"), await db.execute("INSERT INTO d VALUES (zeroblob(1900000))")', 'LIMIT_DISK', /\b1048576\b/],
    memory: [`db.query(${JSON.stringify(n(1500, 'count(DISTINCT hex(randomblob(10000))) AS c'))})`, 'LIMIT_MEMORY', /\b8388608\b/],
  };
  const settings = { rows: { facet_rows: 20 }, time: { facet_time_ms: 10 }, disk: { facet_disk_bytes: 1 << 20 }, memory: { facet_memory_bytes: 8 << 20 } };
  const ask = async (server, name) => {
    const code = `export default async ({ db }) => { try { await ${reach[name][0]}; return null } catch (e) { return { code: e.code, message: e.message } } }`;
    const got = (await request(server, '/v1/run', { method: 'POST', body: JSON.stringify({ code, env: { db: { $facet: name } } }) })).json();
    assert.equal(got.status, 'done', JSON.stringify(got.error));
    return got.result;
  };
  const usual = await withCay(t);
  for (const [name, limits] of Object.entries(settings)) {
    assert.equal(await ask(usual, name), null, `${name} by default`);
    const own = await startCay({ config: { limits } });
    t.after(() => own.stop());
    const [, code, number] = reach[name];
    const refused = await ask(own, name);
    assert.equal(refused?.code, code, `${name}: ${JSON.stringify(refused)}`);
    assert.match(refused.message, number);
  }
});

test('limits are those of each call, also on an isolate that stays', async (t) => {
  const own = await startCay({ config: { limits: { run_cpu_ms: 1000, run_wall_ms: 20000 } } });
  t.after(() => own.stop());
  const warm = async (method, args, limits) => {
    const res = await request(own, '/v1/run', {
      method: 'POST',
      body: JSON.stringify({
        id: 'warm', method, args, limits, env: { db: { $facet: 'limits' } },
        code: 'let n = 0; export default { burn(ms) { const t = Date.now(); while (Date.now() - t < ms); return ++n }, forever() { for (;;); }, print(k) { for (let i = 0; i < k; i++) console.log("0123456789"); return ++n }, ask(env) { return env.db.query("SELECT 1 AS x") } }',
      }),
    });
    return res.json();
  };
  // Together far more than one call may use: neither a limit nor the wall behind it counts them together.
  for (let i = 1; i <= 8; i++) {
    const r = await warm('burn', [400]);
    assert.equal(r.result, i, JSON.stringify(r.error));
  }
  assert.match((await warm('forever', [], { cpu_ms: 200 })).error.message, /processor time limit of 200 ms/);
  // What ended the isolate is not told to the next call, which gets another.
  assert.equal((await warm('burn', [1])).result, 1);
  const cut = await warm('print', [1000], { output_bytes: 1024 });
  assert.equal(cut.result, 2);
  assert.ok(cut.output.length < 3000, String(cut.output.length));
  assert.equal((await warm('print', [1000])).output.length, 10999);
  assert.match((await warm('ask', [], { binding_calls: 0 })).error.message, /binding call limit of 0/);
  assert.equal((await warm('ask', [])).status, 'done');
});

test('a call after one that ended its isolate is not told of it', async (t) => {
  await request(cay, '/v1/workers/dies', {
    method: 'PUT',
    body: JSON.stringify({ code: 'export default { fetch(req) { if (req.method === "PUT") { const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1)) } return new Response("fine") } }' }),
  });
  t.after(() => request(cay, '/v1/workers/dies', { method: 'DELETE' }));
  const headers = { host: `dies.localhost:${cay.port}` };
  for (let i = 0; i < 5; i++) {
    assert.match((await request(cay, '/', { method: 'PUT', headers })).body.toString(), /memory limit/);
    const next = await request(cay, '/', { headers });
    assert.equal(String(next.body), 'fine');
  }
});

test('reset isolates begin as new every time', async () => {
  const source = 'globalThis.n = (globalThis.n ?? 0) + 1; Array.prototype.map = null; setInterval(() => {}, 1e6); export default () => [globalThis.n, Math.random()]';
  const seen = new Set();
  for (let i = 0; i < 20; i++) {
    const r = await code(`${source} // ${i}`, { isolation: 'reset', limits: { wall_ms: 5000 } });
    assert.equal(r.status, 'done', JSON.stringify(r.error));
    assert.equal(r.result[0], 1);
    seen.add(r.result[1]);
  }
  assert.equal(seen.size, 20, 'random numbers differ');
});

test('workers answer at their own host, and not with our origin', async () => {
  const put = await request(cay, '/v1/workers/hello', {
    method: 'PUT',
    body: JSON.stringify({
      code: 'let n = 0; export default { async fetch(req, env) { n++; return new Response(JSON.stringify({ n, m: req.method, p: new URL(req.url).pathname, b: await req.text(), cookie: req.headers.get("cookie"), auth: req.headers.get("authorization"), v: env.V }), { status: 201, headers: { "content-type": "application/json", "x-own": "1" } }) } }',
      env: { V: 7 },
    }),
  });
  assert.equal(put.status, 200);
  assert.match(put.json().url, /^http:\/\/hello\.localhost:/);
  const host = { host: `hello.localhost:${cay.port}` };
  const res = await request(cay, '/a/b?c', { method: 'POST', body: 'body', headers: { ...host, cookie: 'cay_session=x', authorization: 'Bearer cay_x_y' } });
  assert.equal(res.status, 201);
  assert.equal(res.headers['x-own'], '1');
  assert.deepEqual(res.json(), { n: 1, m: 'POST', p: '/a/b', b: 'body', cookie: null, auth: null, v: 7 });
  assert.equal((await request(cay, '/', { headers: host })).json().n, 2);
  for (const at of ['/health', '/v1/status', '/']) assert.equal((await request(cay, at, { headers: { host: `nobody.localhost:${cay.port}` } })).status, 404);
  const both = await code('export default async (env) => (await env.w.fetch("http://x/y", { method: "POST", body: "z" })).json()', { env: { w: { $worker: 'hello' } } });
  assert.equal(both.result.b, 'z', JSON.stringify(both.error));
  assert.equal((await request(cay, '/v1/workers/hello', { method: 'DELETE' })).status, 204);
  assert.equal((await request(cay, '/', { headers: host })).status, 404);
});

test('worker to worker: values that JSON lacks, errors, props', async () => {
  const put = (id, source) => request(cay, `/v1/workers/${id}`, { method: 'PUT', body: JSON.stringify({ code: source }) });
  await put('maths', 'import { WorkerEntrypoint } from "cloudflare:workers"; export class M extends WorkerEntrypoint { add(a, b) { return new Map([[a, b], ["who", this.ctx.props.who]]) } fail() { throw new RangeError("too far") } }');
  const r = await code('export default async (env) => { const m = await env.m.add(1, new Date(5)); let e; try { await env.m.fail() } catch (x) { e = [x.name, x.message] } return [m instanceof Map, m.get(1) instanceof Date, m.get("who"), e] }', {
    env: { m: { $worker: 'maths', entrypoint: 'M', props: { who: 'caller' } } },
  });
  assert.deepEqual(r.result, [true, true, 'caller', ['RangeError', 'too far']], JSON.stringify(r.error));
});

test('a tail receives the trace of another run', async () => {
  const first = await code('export default () => 1');
  await code('export default () => console.log("traced")', { tails: [{ run: first.id }] });
  const record = (await request(cay, `/v1/runs/${first.id}`)).json();
  assert.equal(record.events.at(-1).type, 'tail');
  assert.equal(record.events.at(-1).data.output, 'traced');
});

test('a trace is posted to an origin the operator listed, and to no other', async (t) => {
  const got = [];
  const server = createServer((req, res) => {
    let text = '';
    req.setEncoding('utf8').on('data', (d) => (text += d));
    req.on('end', () => {
      got.push({ method: req.method, url: req.url, headers: req.headers, record: JSON.parse(text) });
      if (req.url === '/away') res.writeHead(302, { location: '/elsewhere' });
      else res.writeHead(req.url === '/bad' ? 500 : 204);
      res.end();
    });
  });
  await new Promise((r) => server.listen(0, '127.0.0.1', r));
  t.after(() => server.close());
  const origin = `http://127.0.0.1:${server.address().port}`;
  const own = await startCay({ config: { tail_origins: [origin] } });
  t.after(() => own.stop());
  const post = (tails) => request(own, '/v1/run', { method: 'POST', body: JSON.stringify({ code: 'export default () => console.log("traced")', tails }) });
  const sent = async (id) => {
    for (;;) {
      const { events } = (await request(own, `/v1/runs/${id}`)).json();
      const last = events.filter((e) => e.type === 'tail_sent');
      if (last.length) return last.map((e) => e.data);
      await new Promise((r) => setTimeout(r, 20));
    }
  };
  const run = (await post([{ url: `${origin}/hook?x=1` }])).json();
  assert.deepEqual(await sent(run.id), [{ url: `${origin}/hook?x=1`, status: 204 }]);
  assert.equal(got[0].method, 'POST');
  assert.equal(got[0].url, '/hook?x=1');
  assert.equal(got[0].headers['content-type'], 'application/json');
  assert.equal(got[0].record.id, run.id);
  assert.equal(got[0].record.output, 'traced');
  for (const path of ['/bad', '/away']) {
    const bad = (await post([{ url: origin + path }])).json();
    assert.match((await sent(bad.id))[0].error, /refused/);
  }
  assert.deepEqual(got.map((g) => g.url), ['/hook?x=1', '/bad', '/away'], 'a redirect is not followed');
  for (const url of ['http://127.0.0.1:1/', `${origin}@evil.example/`, `${origin}0/`, `${origin}.evil.example/`, 'file:///etc/passwd', 'https://example.org/']) {
    const refused = await post([{ url }]);
    assert.equal(refused.status, 403, url);
    assert.match(refused.json().error.message, /tail_origins/);
  }
  assert.equal((await post([{ nobody: 1 }])).status, 400);
  for (const tail of [{ url: `${origin}/hook\0x` }, { run: `${run.id}\0x` }]) {
    const refused = await post([tail]);
    assert.equal(refused.status, 400, refused.body);
    assert.match(refused.json().error.message, /NUL/);
  }
  assert.equal((await post(Array(9).fill({ run: 'x' }))).status, 400);
});

test('grants bound what a key\'s programs may use', async () => {
  const key = await createKey(cay.dataDir, { name: 'bound', more: ['--facet', 'mine'] });
  const ask = (name) => run({ code: 'export default () => 1', env: { db: { $facet: name } } }, { headers: bearer(key.text) });
  assert.equal((await ask('mine')).status, 'done');
  assert.equal((await request(cay, '/v1/run', { method: 'POST', headers: bearer(key.text), body: JSON.stringify({ code: 'export default 1', env: { db: { $facet: 'other' } } }) })).status, 403);
});

const hostile = {
  'an endless loop': ['export default () => { while (true) {} }', /time limit of 700 ms/, { limits: { wall_ms: 700 } }],
  'an endless loop at the top': ['while (true) {}', /time limit of 700 ms/, { limits: { wall_ms: 700 } }],
  'endless microtasks': ['export default async () => { while (true) await null }', /time limit of 700 ms/, { limits: { wall_ms: 700 } }],
  'endless queries': ['export default async (env) => { while (true) await env.db.query("SELECT 1") }', /limit/, { limits: { wall_ms: 700 }, env: { db: { $facet: 'loop' } } }],
  'too many calls': ['export default async (env) => { for (let i = 0; i < 100; i++) await env.db.query("SELECT 1") }', /10 binding calls|binding/, { limits: { binding_calls: 10 }, env: { db: { $facet: 'loop' } } }],
  'a catastrophic pattern': ['export default () => /^(a+)+$/.test("a".repeat(40) + "b")', /limit/, { limits: { wall_ms: 200 } }],
  'processor time': ['export default () => { while (true) {} }', /processor time limit of 300 ms|limit of 300 ms/, { limits: { cpu_ms: 300 } }],
  'arrays without end': ['export default () => { const a = []; while (true) a.push(new Array(1000).fill(1)) }', /memory/i],
  'objects without end': ['export default () => { const a = []; while (true) a.push({ x: 1, y: [1, 2] }) }', /memory/i],
  'buffers without end': ['export default () => { const a = []; while (true) a.push(new ArrayBuffer(1 << 20).slice(1)) }', /memory/i],
  'strings without end': ['export default () => { let s = "x"; while (true) s += s + Math.random() }', /memory/i],
  'a map without end': ['export default () => { const m = new Map(); for (let i = 0; ; i++) m.set(i, { i }) }', /memory/i],
  'deep recursion': ['const f = (n) => f(n + 1) + 1; export default () => f(0)', /call stack/i],
  'a rejection nobody handles': ['export default async () => { Promise.reject(new Error("lost")); await new Promise((r) => setTimeout(r, 50)); return 1 }', /lost/],
  'a thrown text': ['export default () => { throw "just text" }', /just text/],
  'a thrown nothing': ['export default () => { throw undefined }', /undefined/],
  'a promise that never settles': ['export default () => new Promise(() => {})', /never settled/],
  'a result that cannot be sent': ['export default () => { const o = {}; o.o = o; return o }', /circular|cyclic|cannot/i],
  'a proxy as argument': ['export default (env) => env.db.query(new Proxy({}, { get() { throw new Error("trap") } }))', /./, { env: { db: { $facet: 'loop' } } }],
  eval: ['export default () => eval("1")', /eval/],
  'new Function': ['export default () => new Function("return 1")()', /Function|eval/],
  fetch: ['export default () => fetch("http://127.0.0.1/")', /no network/],
  connect: ['import { connect } from "cloudflare:sockets"; export default () => connect("127.0.0.1:80")', /no network/],
};
for (const [name, [source, error, rest]] of Object.entries(hostile))
  test(`hostile: ${name}`, async () => {
    const neighbour = code('export default async () => { await new Promise((r) => setTimeout(r, 200)); return 7 }');
    const bad = code(source, { limits: { wall_ms: 15000 }, ...rest });
    const health = await request(cay, '/health');
    assert.equal(health.status, 200);
    const r = await bad;
    assert.equal(r.status, 'failed', JSON.stringify(r));
    assert.match(`${r.error.name}: ${r.error.message}`, error);
    assert.equal((await neighbour).result, 7);
  });

test('hostile: floods of output are bounded and say so', async () => {
  for (const source of ['export default () => { const s = "x".repeat(1 << 16); for (let i = 0; i < 800; i++) console.log(s) }', 'export default () => { for (let i = 0; i < 200000; i++) console.log(i) }']) {
    const r = await code(source);
    assert.equal(r.status, 'done', JSON.stringify(r.error));
    assert.ok(r.output.length < 600_000, String(r.output.length));
    assert.match(r.output, /bytes left out/);
  }
});

test('hostile: getters that throw inside console.log', async () => {
  const r = await code('export default () => { console.log({ get x() { throw new Error("boom") } }, new Proxy({}, { ownKeys() { throw 1 } })); console.log("still here") }');
  assert.equal(r.status, 'done', JSON.stringify(r.error));
  assert.match(r.output, /still here$/);
});

test('hostile: replaced intrinsics neither break nor hijack a binding', async () => {
  const r = await code(
    `const stolen = []; const trap = function (...a) { stolen.push(a.length); throw new Error("hijacked") };
     Promise.prototype.then = trap; Array.prototype[Symbol.iterator] = trap; JSON.parse = trap; JSON.stringify = trap; Map.prototype.get = trap;
     Object.defineProperty(Object.prototype, "columns", { set: trap, get: trap, configurable: true });
     export default async (env) => { const r = await env.db.query("SELECT 1 AS x"); return r[0].x + stolen.length }`,
    { env: { db: { $facet: 'loop' } } },
  );
  assert.equal(r.result, 1, JSON.stringify(r.error));
});

test('hostile: timers without end, and a hundred thousand of them', async () => {
  const r = await code('export default async () => { setInterval(() => {}, 1); for (let i = 0; i < 100000; i++) setTimeout(() => {}, 1e6); return 5 }', { limits: { wall_ms: 10000 } });
  assert.ok(r.result === 5 || /timers/.test(r.error?.message), JSON.stringify(r));
});

test('the title of a run tells it from others', async () => {
  const head = 'export default async function (env) {';
  const long = 'ä'.repeat(60);
  const titles = [
    [`${head}\n  // one\n\n\t return 1;\n}`, '// one return 1; }'],
    [`${head}  \n${long}`, 'ä'.repeat(40)],
    [`${head}\n ${'x'.repeat(79)}ä`, 'x'.repeat(79)],
    [`  ${head}`, head],
    ['// what it does\nexport default () => {\n}', '// what it does'],
    ['export default () => 1;\n2;', 'export default () => 1;'],
  ];
  for (const [code, title] of titles) {
    await request(cay, '/v1/run', { method: 'POST', body: JSON.stringify({ code }) });
    const [run] = (await request(cay, '/v1/runs?kind=run&limit=1')).json().runs;
    assert.equal(run.title, title);
  }
});

test('a client that leaves takes its run along', async () => {
  const id = await new Promise((resolve) => {
    const req = http.request({ port: cay.port, host: '127.0.0.1', path: '/v1/run', method: 'POST', headers: { accept: 'text/event-stream' } }, (res) => {
      res.once('data', () => {
        req.destroy();
        resolve();
      });
    });
    req.on('error', () => {});
    req.end(JSON.stringify({ code: 'export default async () => { console.log("up"); await new Promise((r) => setTimeout(r, 15000)) }', title: 'left alone' }));
  });
  assert.equal(id, undefined);
  await until(async () => {
    const { runs } = (await request(cay, '/v1/runs?limit=10')).json();
    return runs.find((r) => r.title === 'left alone')?.status === 'cancelled';
  }, 'its end');
});

test('cay run: files, arguments, database, errors with an excerpt', () => {
  const dir = mkdtempSync(path.join(tmpdir(), 'cay-run-'));
  try {
    writeFileSync(path.join(dir, 'main.ts'), 'import { add } from "./lib.ts";\nexport default async (env: any, x: string) => {\n  console.log("n", await env.db.query("SELECT 2 AS n"), env.K, x);\n  return add(1, 2);\n}\n');
    writeFileSync(path.join(dir, 'lib.ts'), 'export const add = (a: number, b: number): number => a + b;\n');
    const cli = (args, input) => {
      try {
        return { status: 0, out: execFileSync(path.join(build, 'cay'), ['run', ...args], { input, encoding: 'utf8', stdio: 'pipe', timeout: 60000 }) };
      } catch (e) {
        return { status: e.status, out: e.stdout, err: e.stderr };
      }
    };
    const r = cli(['--db', path.join(dir, 'x.sqlite'), '--create', '--env', 'K=v', path.join(dir, 'main.ts'), 'arg']);
    assert.equal(r.out, 'n [{"n":2}] v arg\n3\n', r.err);
    const bad = cli(['-'], 'export default () => {\n  throw new Error("mine");\n}\n');
    assert.equal(bad.status, 1);
    assert.match(bad.err, /Error: mine/);
    assert.match(bad.err, /> {4}2 \| {3}throw new Error/);
    assert.equal(JSON.parse(cli(['--json', '-'], 'export default () => 5').out).result, 5);
    assert.equal(cli(['-q', '-'], 'export default () => 5').out, '');
    assert.match(cli(['--timeout', '300ms', '-'], 'export default () => { while (true) {} }').err, /time limit of 300 ms/);
    assert.equal(cli([]).status, 2);
    // Options are cay's wherever they stand, up to `--`; what comes after it is the program's.
    const after = cli([path.join(dir, 'main.ts'), '--db', path.join(dir, 'y.sqlite'), '--create', 'arg', '--env=K=w']);
    assert.equal(after.out, 'n [{"n":2}] w arg\n3\n', after.err);
    assert.ok(existsSync(path.join(dir, 'y.sqlite')));
    const args = 'export default (env, ...args) => args';
    assert.deepEqual(JSON.parse(cli(['-', 'a', '--timeout', '9s', '--', '--db', 'x', '--', '-q'], args).out), ['a', '--db', 'x', '--', '-q']);
    const unknown = cli(['-', '--mine'], args);
    assert.equal(unknown.status, 2);
    assert.match(unknown.err, /after --/);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
});

test('a worker sees its own cookies and credentials, none of ours, and sets none for others', async (t) => {
  const server = await withCay(t);
  const code = `export default { fetch(request) {
    const headers = new Headers({ 'x-seen': JSON.stringify([request.headers.get('cookie'), request.headers.get('authorization')]) });
    for (const c of ['own=1; Path=/', 'wide=1; Domain=localhost', 'cay_session=stolen', '=cay_pass=1']) headers.append('set-cookie', c);
    headers.set('strict-transport-security', 'max-age=9');
    return new Response('', { headers });
  } }`;
  assert.equal((await request(server, '/v1/workers/cookies', { method: 'PUT', body: JSON.stringify({ code }) })).status, 200);
  const get = async (headers) => {
    const got = await request(server, '/', { headers: { Host: 'cookies.localhost', ...headers } });
    assert.deepEqual(got.headers['set-cookie'], ['own=1; Path=/']);
    assert.equal(got.headers['strict-transport-security'], undefined);
    return JSON.parse(got.headers['x-seen']);
  };
  assert.deepEqual(await get({ Cookie: 'a=1; cay_session=x; b=2', Authorization: 'Basic dTpw' }), ['a=1; b=2', 'Basic dTpw']);
  assert.deepEqual(await get({ Cookie: 'cay_pass=x' }), [null, null]);
  assert.deepEqual(await get({ Authorization: 'Bearer token-of-the-worker' }), [null, 'Bearer token-of-the-worker']);
});

test('a command whose output cannot be written fails and says so', () => {
  // One that its reader ends leaves at once, with what it has: that is no leak.
  const env = { ...process.env, ASAN_OPTIONS: `${process.env.ASAN_OPTIONS ?? ''}:detect_leaks=0` };
  const cli = (args, input = '') => {
    const full = openSync('/dev/full', 'w');
    try {
      return spawnSync(path.join(build, 'cay'), args, { env, input, encoding: 'utf8', stdio: ['pipe', full, 'pipe'], timeout: 60000 });
    } finally {
      closeSync(full);
    }
  };
  for (const [args, input] of [
    [['run', '-'], 'export default () => 5'],
    [['run', '-'], 'export default () => { console.log("early"); }'],
    [['run', '--json', '-'], 'export default () => 5'],
    [['exec', '--', 'echo', 'hi']],
    [['exec', '-o', 'json', '--', 'echo', 'hi']],
    [['version']],
  ]) {
    const r = cli(args, input);
    assert.notEqual(r.status, 0, args.join(' '));
    assert.match(r.stderr, /standard output/, args.join(' '));
  }
  const sh = (text) => spawnSync('bash', ['-c', text, path.join(build, 'cay')], { env, encoding: 'utf8', timeout: 60000 });
  const closed = sh('echo "export default () => 5" | "$0" run - >&-');
  assert.equal(closed.status, 1, closed.stderr);
  assert.match(closed.stderr, /standard output could not be written/);
  // A reader that has seen enough (of more than a pipe holds) is told nothing; the status is that of a command that it ended.
  const head = sh('echo "export default () => { for (let i = 0; i < 300; i++) console.log(\'x\'.repeat(500)) }" | "$0" run - | head -n 1; exit ${PIPESTATUS[1]}');
  assert.deepEqual([head.status, head.stdout, head.stderr], [141, `${'x'.repeat(500)}\n`, '']);
  // Nothing to say, nothing lost.
  assert.equal(cli(['run', '-q', '-'], 'export default () => 5').status, 0);
});
