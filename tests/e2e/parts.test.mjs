// How the parts behind a run work together: compiler, zygotes, isolates and the processors they share.
import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { cpus } from 'node:os';
import { after, before, test } from 'node:test';
import { request, slow, startCay, until } from '../lib/cay.mjs';

let cay;
before(async () => {
  cay = await startCay({ config: { limits: { run_binding_calls: 1_000_000 } } });
});
after(() => cay.stop());

async function run(code, more = {}) {
  const { status, body } = await request(cay, '/v1/run', { method: 'POST', body: JSON.stringify({ code, env: { db: { $facet: 'f' } }, ...more }) });
  assert.equal(status, 200, body);
  return JSON.parse(body);
}

/** The processes below the server with this name. */
function below(name, server = cay) {
  const all = readdirSync('/proc')
    .filter((d) => /^\d+$/.test(d))
    .flatMap((pid) => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
        const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
        return [{ pid: Number(pid), ppid: Number(fields[1]), began: Number(fields[19]), name: stat.slice(stat.indexOf('(') + 1, stat.lastIndexOf(')')) }];
      } catch {
        return []; // gone
      }
    });
  const found = [];
  for (let parents = [server.pid]; parents.length; ) {
    const children = all.filter((p) => parents.includes(p.ppid));
    found.push(...children.filter((p) => p.name === name));
    parents = children.map((p) => p.pid);
  }
  return found;
}

const zygotes = (server = cay) => below('cay-isolate', server).filter((p) => p.ppid === server.pid);

/** How many of the isolates may run on one processor only. */
function bound() {
  return below('cay-isolate').filter(({ pid }) => {
    try {
      return /^Cpus_allowed_list:\t\d+$/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
    } catch {
      return false;
    }
  }).length;
}

test('runs that come together, right after the start, are compiled one after the other', async () => {
  const all = await Promise.all(Array.from({ length: 6 }, (_, i) => run(`export default () => ${i}`)));
  const late = all.map((r) => r.usage.compiled_ms).sort((a, b) => a - b);
  // The compiler warms up for seconds, while nobody asks.
  assert.ok(late.at(-1) - late[0] < 1500 * slow, `${late}`);
});

test('a zygote that knows where its heap is written follows the first, and no run is lost', async (t) => {
  const levers = async () => JSON.parse((await request(cay, '/v1/status')).body).isolates?.features?.levers;
  let runs = 0;
  const end = Date.now() + 60_000 * slow; // the scout has what processors the runs leave it
  while (!(await levers())?.gather) {
    assert.ok(Date.now() < end, 'it never came');
    const all = await Promise.all(Array.from({ length: 4 }, () => run(`export default () => ${runs++}`)));
    assert.ok(all.every((r) => r.status === 'done'), JSON.stringify(all));
  }
  assert.ok(runs > 0);
  await until(() => zygotes().length === 1, 'the first to leave');
  assert.equal((await run('export default () => 7')).result, 7);
  t.diagnostic(`after ${runs} runs`);
});

test('a scout that dies is not sent again', async () => {
  const server = await startCay();
  try {
    const [first, scout] = await until(() => {
      const all = zygotes(server).sort((a, b) => a.began - b.began || a.pid - b.pid);
      return all.length === 2 && all;
    }, 'the scout');
    process.kill(scout.pid, 'SIGKILL');
    const { body } = await request(server, '/v1/run', { method: 'POST', body: JSON.stringify({ code: 'export default () => 8' }) });
    assert.equal(JSON.parse(body).result, 8);
    await until(() => zygotes(server).length === 1, 'its end');
    await new Promise((resolve) => setTimeout(resolve, 4500)); // as long as it takes to send one
    assert.deepEqual(zygotes(server).map((p) => p.pid), [first.pid]);
    assert.equal(JSON.parse((await request(server, '/v1/status')).body).isolates.features.levers.gather, false);
  } finally {
    await server.stop();
  }
});

for (const isolation of ['fresh', 'reset'])
  test(`an isolate stays on a processor only while it takes turns with its facet, ${isolation}`, { skip: cpus().length < 2 && 'one processor' }, async () => {
    await run('export default async (env) => { await env.db.execute("CREATE TABLE IF NOT EXISTS seen (x)"); await env.db.execute("DELETE FROM seen"); }');
    // Until it was seen; then it has something else to do.
    const talk = 'do { for (let i = 0; i < 500; i++) await env.db.query("SELECT 1"); } while ((await env.db.query("SELECT x FROM seen")).length === 0);';
    const compute = 'const end = Date.now() + 1500; while (Date.now() < end);';
    const talking = run(`export default async (env) => { ${talk} ${compute} return "done" }`, { isolation, limits: { wall_ms: 30_000 } });
    await until(() => bound() === 1, 'the isolate to stay');
    await run('export default (env) => env.db.execute("INSERT INTO seen VALUES (1)")');
    await until(() => bound() === 0, 'the isolate to leave');
    assert.equal((await talking).result, 'done');
    // And what has been put back does not stay where it was.
    assert.equal((await run(`export default async (env) => { for (let i = 0; i < 300; i++) await env.db.query("SELECT 1"); return "done" }`, { isolation })).result, 'done');
    await until(() => bound() === 0, 'all to be free');
  });

/** The control groups of a process that bound memory: [folder, file of the limit]. */
function memoryGroup(pid) {
  const lines = readFileSync(`/proc/${pid}/cgroup`, 'utf8').trim().split('\n').map((l) => l.split(':'));
  const v1 = lines.find(([, names]) => names.split(',').includes('memory'));
  const all = readFileSync('/proc/self/mountinfo', 'utf8').split('\n').map((l) => l.split(' '));
  const mount = all.find((m) => (v1 ? m.includes('cgroup') && m.at(-1).split(',').includes('memory') : m.includes('cgroup2')));
  const group = (v1 ?? lines.find(([id]) => id === '0'))?.[2];
  return mount && group ? [mount[4] + group.replace(mount[3] === '/' ? '' : mount[3], ''), v1 ? 'memory.limit_in_bytes' : 'memory.max'] : null;
}

test('all isolates together have a control group, where there is one to have', async (t) => {
  const limit = 256 << 20;
  const server = await startCay({ config: { limits: { isolates_memory_bytes: limit, run_memory_bytes: 200 << 20 } } });
  const status = async () => JSON.parse((await request(server, '/v1/status')).body);
  const post = async (code) => JSON.parse((await request(server, '/v1/run', { method: 'POST', body: JSON.stringify({ code }) })).body);
  try {
    const { isolates } = await status();
    if (isolates.memory_max_bytes === null) return t.skip('no control group for us');
    assert.equal(isolates.memory_max_bytes, limit);
    assert.equal((await post('export default () => 1')).result, 1);
    const zygote = (await status()).children.find((c) => c.name === 'cay-isolate').pid;
    const [folder, file] = memoryGroup(zygote);
    assert.match(folder, new RegExp(`/cay\\.${server.pid}\\.`));
    assert.equal(Number(readFileSync(`${folder}/${file}`, 'utf8')), limit);
    // Each stays below its own limit; together they do not.
    const hog = (i) => post(`export default async () => { const a = []; for (let i = 0; i < 120; i++) a.push(new Uint8Array(1 << 20).fill(${i + 1})); await new Promise((r) => setTimeout(r, 1500)); return a.length }`);
    const all = await Promise.all([0, 1, 2, 3].map(hog));
    const failed = all.filter((r) => r.status === 'failed');
    assert.ok(failed.length > 0, 'the group held nothing');
    for (const r of failed) assert.match(r.error.message, /memory/);
    assert.equal((await post('export default () => 2')).result, 2);
    await server.stop();
    assert.equal(existsSync(folder), false, 'the group is left behind');
  } finally {
    await server.stop();
  }
});
