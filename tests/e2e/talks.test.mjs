// Programs that talk with a facet by shared memory (docs/internals/isolates.md, Taking turns), while either side, or the client,
// is stopped, killed or gone.
import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { connect } from 'node:net';
import { test } from 'node:test';
import { request, slow, until, withCay } from '../lib/cay.mjs';

const config = { limits: { run_wall_ms: 60000 * slow, run_cpu_ms: 30000, run_binding_calls: 1_000_000 } };

/** The processes of this name below the server, with what they have run (ns). */
function processes(cay, name) {
  const all = new Map();
  for (const pid of readdirSync('/proc').filter((d) => /^\d+$/.test(d))) {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
      const [state, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      const ran = Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[0]);
      all.set(Number(pid), { pid: Number(pid), name: stat.slice(stat.indexOf('(') + 1, stat.lastIndexOf(')')), state, parent: Number(parent), ran });
    } catch {
      // gone
    }
  }
  const ours = (p) => p && (p.parent === cay.pid || ours(all.get(p.parent)));
  return [...all.values()].filter((p) => p.name === name && p.state !== 'Z' && ours(p));
}

async function start(t) {
  const cay = await withCay(t, { config });
  cay.run = async (code, rest = {}, options = {}) => {
    const body = { code: `export default async (env) => { ${code} }`, env: { db: { $facet: 'talks' } }, ...rest };
    const res = await request(cay, '/v1/run', { method: 'POST', body: JSON.stringify(body), ...options });
    return { http: res.status, ...res.json() };
  };
  cay.ask = async (sql) => {
    const r = await cay.run(`return (await env.db.query(${JSON.stringify(sql)}))[0].n`);
    assert.equal(r.status, 'done', JSON.stringify(r.error));
    return r.result;
  };
  const made = await cay.run('await env.db.execute("CREATE TABLE rows (n INTEGER PRIMARY KEY, who)"); await env.db.execute("CREATE TABLE c (n)"); await env.db.execute("INSERT INTO c VALUES (0)"); await env.db.execute("CREATE TABLE over (x)")');
  assert.equal(made.status, 'done', JSON.stringify(made.error));
  /** The facet, when it has worked for some milliseconds of processor time from now on. */
  cay.talking = async (ms = 5) => {
    const [facet] = processes(cay, 'cay-facet');
    await until(() => processes(cay, 'cay-facet').some((p) => p.pid === facet.pid && p.ran > facet.ran + ms * 1e6), 'the talk');
    return facet.pid;
  };
  /** Programs hear of a facet's end by their sockets, the server when it has buried it. */
  cay.buried = (pid) => until(() => !existsSync(`/proc/${pid}`), 'the end of the facet');
  return cay;
}

// Inserts so many, or until it is told that it cannot: how many were acknowledged, and what it was told.
const insert = (most = Infinity) => `let n = 0; try { for (; n < ${most}; n++) await env.db.execute("INSERT INTO rows (who) VALUES (?)", who); } catch (e) { return { n, told: String(e) }; } return { n };`;
// Counts until somebody has put a row into `over`: how often.
const COUNT = 'let n = 0; do { for (let i = 0; i < 100; i++, n++) await env.db.execute("UPDATE c SET n = n + 1"); } while ((await env.db.query("SELECT 1 FROM over")).length === 0); return n;';
const END = 'await env.db.execute("INSERT INTO over VALUES (1)")';

test('programs that count together miss nothing', async (t) => {
  const cay = await start(t);
  const count = 'for (let i = 0; i < 400; i++) { const r = await env.db.execute("UPDATE c SET n = n + 1"); if (r.changes !== 1) throw new Error(JSON.stringify(r)); } return "counted"';
  const runs = await Promise.all(Array.from({ length: 8 }, () => cay.run(count)));
  for (const r of runs) assert.equal(r.result, 'counted', JSON.stringify(r.error));
  assert.equal(await cay.ask('SELECT n FROM c'), 8 * 400);
});

test('a hundred programs talk with one facet at once', async (t) => {
  const cay = await start(t);
  const count = 'for (let i = 0; i < 20; i++) await env.db.execute("UPDATE c SET n = n + 1"); return "counted"';
  const runs = await Promise.all(Array.from({ length: 100 }, () => cay.run(count)));
  const counted = runs.filter((r) => r.result === 'counted').length;
  // What is not started for want of room says so; what is started ends well.
  for (const r of runs) assert.ok(r.result === 'counted' || [429, 503].includes(r.http) || /has 64 open grants/.test(r.error?.message), JSON.stringify(r));
  assert.ok(counted > 0);
  assert.equal(await cay.ask('SELECT n FROM c'), counted * 20);
});

test('a facet that is killed in the middle of talks: told, nothing acknowledged is lost, the next run works', async (t) => {
  const cay = await start(t);
  for (const programs of [1, 4]) {
    const before = await cay.ask('SELECT count(*) AS n FROM rows');
    const runs = Array.from({ length: programs }, (_, i) => cay.run(`const who = ${i}; ${insert()}`));
    const facet = await cay.talking();
    process.kill(facet, 'SIGKILL');
    let acknowledged = 0;
    for (const r of await Promise.all(runs)) {
      // One of several may not have begun to talk.
      assert.match(r.result?.told ?? r.error?.message ?? 'nothing', programs > 1 ? /env\.db was withdrawn|process ended/ : /env\.db was withdrawn/);
      acknowledged += r.result?.n ?? 0;
    }
    await cay.buried(facet);
    const kept = (await cay.ask('SELECT count(*) AS n FROM rows')) - before;
    assert.ok(kept >= acknowledged && kept <= acknowledged + programs, `${acknowledged} acknowledged, ${kept} kept`);
  }
});

test('a facet that stands still for a while is waited for', async (t) => {
  const cay = await start(t);
  const runs = Array.from({ length: 2 }, () => cay.run(COUNT));
  const facet = await cay.talking();
  process.kill(facet, 'SIGSTOP');
  await until(() => processes(cay, 'cay-facet').some((p) => p.pid === facet && p.state === 'T'), 'the stop');
  await new Promise((r) => setTimeout(r, 100));
  process.kill(facet, 'SIGCONT');
  await cay.run(END);
  let counted = 0;
  for (const r of await Promise.all(runs)) {
    assert.ok(r.result > 0, JSON.stringify(r.error));
    counted += r.result;
  }
  assert.equal(await cay.ask('SELECT n FROM c'), counted);
});

test('a program that stands still in its talk holds up nobody else', async (t) => {
  const cay = await start(t);
  const slept = cay.run(COUNT);
  const before = new Map(processes(cay, 'cay-isolate').map((p) => [p.pid, p.ran]));
  await cay.talking();
  const grown = (p) => p.ran - (before.get(p.pid) ?? 0);
  const { pid } = processes(cay, 'cay-isolate').sort((a, b) => grown(b) - grown(a))[0];
  process.kill(pid, 'SIGSTOP');
  const other = await cay.run('for (let i = 0; i < 500; i++) await env.db.query("SELECT 1 AS n"); return "asked"');
  process.kill(pid, 'SIGCONT');
  assert.equal(other.result, 'asked', JSON.stringify(other.error));
  await cay.run(END);
  const { result, error } = await slept;
  assert.ok(result > 0, JSON.stringify(error));
  assert.equal(await cay.ask('SELECT n FROM c'), result);
});

test('a worker whose facet died talks with the next one', async (t) => {
  const cay = await start(t);
  const talk = `const who = "worker"; ${insert(300)}`;
  const call = () => cay.run(talk, { id: 'talker' });
  assert.equal((await call()).result.n, 300);
  const dying = cay.run(`const who = "worker"; ${insert()}`, { id: 'longer' });
  const facet = await cay.talking();
  process.kill(facet, 'SIGKILL');
  const { result } = await dying;
  assert.match(result.told, /env\.db was withdrawn/);
  await cay.buried(facet);
  // What it held is worth nothing any more: it is started again, with a grant of the next one.
  const again = await call();
  assert.equal(again.result?.n, 300, JSON.stringify(again.result ?? again.error));
  const kept = await cay.ask('SELECT count(*) AS n FROM rows');
  assert.ok(kept >= 600 + result.n, `${kept} rows`);
});

test('a client that goes away in the middle of a talk leaves the facet to others', async (t) => {
  const cay = await start(t);
  const body = JSON.stringify({ code: 'export default async (env) => { for (;;) await env.db.execute("UPDATE c SET n = n + 1"); }', env: { db: { $facet: 'talks' } } });
  const gone = connect(cay.port, '127.0.0.1').on('error', () => {});
  gone.write(`POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  await cay.talking();
  gone.resetAndDestroy(); // who shuts his side alone waits for the answer
  const r = await cay.run('for (let i = 0; i < 300; i++) await env.db.query("SELECT 1 AS n"); return "asked"');
  assert.equal(r.result, 'asked', JSON.stringify(r.error));
  await until(async () => (await request(cay, '/v1/runs')).json().runs.some((run) => run.status === 'cancelled'), 'the end of the run');
});

test('large rows and limits in the middle of a talk', async (t) => {
  const cay = await start(t);
  const r = await cay.run(`
    const told = [];
    for (let i = 0; i < 600; i++) {
      const [one] = await env.db.query("SELECT ? AS n", i);
      if (one.n !== i) throw new Error("small " + i);
      if (i % 40 === 0) {
        const [big] = await env.db.query("SELECT printf('%.*c', ?, 'a') AS text", 1000000 - i);
        if (big.text.length !== 1000000 - i) throw new Error("large " + big.text.length);
        const [back] = await env.db.query("SELECT length(?) AS n", big.text);
        if (back.n !== 1000000 - i) throw new Error("there " + back.n);
      }
      if (i % 100 === 50) {
        // At the edges of a place in the tray, and beyond the limits of a result.
        for (const n of [8000, 8064, 8128, 24400, 24448, 24512, 65536]) {
          const [edge] = await env.db.query("SELECT printf('%.*c', ?, 'b') AS text", n);
          if (edge.text.length !== n) throw new Error("edge " + n);
          const [sent] = await env.db.query("SELECT length(?) AS n", edge.text);
          if (sent.n !== n) throw new Error("edge there " + n);
        }
        await env.db.query("WITH RECURSIVE c(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM c WHERE i < 20000) SELECT i FROM c").catch((e) => told.push(String(e)));
      }
    }
    return told;`);
  assert.equal(r.status, 'done', JSON.stringify(r.error));
  assert.equal(r.result.length, 6);
  for (const told of r.result) assert.match(told, /row limit of \d+ exceeded/);
});
