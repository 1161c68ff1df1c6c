// Cuts the power: everything that was acknowledged must be there afterwards. The data folder is on an ext4 file system
// in a file. At the cut every process of the server is stopped where it is, and the file is copied: the copy has what was
// flushed to the "disk", and nothing of what only the kernel's memory held. A server that is started on the copy is asked
// for everything. Needs root (loop devices); run it in a mount namespace of its own, so that nothing is left mounted.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bearer, request, sleep, startCay } from './cay.mjs';
import { scripted } from './model.mjs';

const run = (program, ...args) => execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] }).trim();

/** An agent whose database is flushed at each commit. */
function writeAgent(dir) {
  const agent = join(dir, 'agents', 'careful');
  mkdirSync(agent, { recursive: true });
  writeFileSync(join(agent, 'prompt.md'), 'You keep numbers.\n');
  writeFileSync(join(agent, 'database.sql'), 'CREATE TABLE IF NOT EXISTS numbers (n INTEGER PRIMARY KEY);\n');
  writeFileSync(join(agent, 'agent.json'), JSON.stringify({
    facets: {
      numbers: {
        schema: 'database.sql', durability: 'full',
        methods: { list: 'SELECT n FROM numbers', add: { kind: 'execute', sql: 'INSERT INTO numbers VALUES (?)' } },
      },
    },
    rpc: { add: { facet: 'numbers', method: 'add' }, list: { facet: 'numbers', method: 'list' } },
  }));
  return join(dir, 'agents');
}

/** Calls of the agent's methods, over its WebSocket. */
async function connectAgent(cay) {
  const ws = new WebSocket(`ws://127.0.0.1:${cay.port}/agents/careful/one`);
  const waiting = new Map();
  await new Promise((resolve, reject) => {
    ws.addEventListener('open', resolve);
    ws.addEventListener('error', () => reject(new Error('no WebSocket')));
  });
  ws.addEventListener('message', ({ data }) => {
    const frame = JSON.parse(data);
    if (frame.type === 'rpc') waiting.get(frame.id)?.(frame);
  });
  let next = 0;
  return {
    call: (method, ...args) => new Promise((resolve, reject) => {
      const id = String(++next);
      waiting.set(id, (frame) => (frame.success ? resolve(frame.result) : reject(new Error(frame.error))));
      ws.send(JSON.stringify({ type: 'rpc', id, method, args }));
    }),
    close: () => ws.close(),
  };
}

const post = (cay, path, body) => request(cay, path, { method: 'POST', body: JSON.stringify(body) });
const created = (answer, ...want) => (assert.ok(want.includes(answer.status), answer.body), answer.json());

const TOKENS = 15; // that the model says each answer took

/** Asks for things in a loop until it is over, and notes what was acknowledged. */
const clients = {
  async tasks(cay, acked, n) {
    const body = { type: 'run', input: { code: `export default () => ${n}` }, run_at: new Date(Date.now() + 86_400_000).toISOString() };
    const { id } = created(await post(cay, '/v1/tasks', body), 202);
    acked.tasks.set(id, 'queued');
    if (n % 3) return;
    acked.tasks.set(id, null); // either, until it is answered
    created(await post(cay, `/v1/tasks/${id}/cancel`, {}), 200, 202);
    acked.tasks.set(id, 'cancelled');
  },
  async keys(cay, acked, n) {
    const { id, key } = created(await post(cay, '/v1/keys', { name: `k${n}` }), 201);
    acked.keys.set(id, { key, valid: true });
    if (n % 2) return;
    acked.keys.set(id, { key, valid: null });
    const gone = await request(cay, `/v1/keys/${id}`, { method: 'DELETE' });
    assert.ok(gone.status < 300, gone.body);
    acked.keys.set(id, { key, valid: false });
  },
  async workers(cay, acked, n) {
    const name = `w${n % 20}`;
    acked.workers.set(name, null);
    const put = await request(cay, `/v1/workers/${name}`, { method: 'PUT', body: JSON.stringify({ code: `export default () => ${n}` }) });
    assert.ok(put.status < 300, put.body);
    acked.workers.set(name, n);
  },
  /** A call of a model by a key with a budget: when it is answered, its tokens are charged. */
  async spend(cay, acked) {
    const answer = await request(cay, '/execute/sdk', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', ...bearer(acked.spent.key) },
      body: JSON.stringify({ prompt: 'go', options: { allowed_tools: [] } }),
    });
    created(answer, 200);
    acked.spent.tokens += TOKENS;
    acked.spent.calls++;
  },
  async facet(cay, acked, n, agent) {
    await agent.call('add', n);
    acked.numbers.add(n);
  },
};

function processesOf(pid) {
  const found = [pid];
  for (const at of found)
    try {
      for (const thread of readdirSync(`/proc/${at}/task`))
        for (const child of readFileSync(`/proc/${at}/task/${thread}/children`, 'utf8').split(' ').filter(Boolean)) found.push(Number(child));
    } catch (error) {
      if (!GONE.includes(error.code)) throw error; // it, or a thread of it, has ended since
    }
  return found;
}

const GONE = ['ENOENT', 'ESRCH'];
function signalAll(pids, signal) {
  for (const pid of pids)
    try {
      process.kill(pid, signal);
    } catch (error) {
      if (!GONE.includes(error.code)) throw error;
    }
}

/** The device has been written to so often. */
const writesTo = (device) => Number(readFileSync(`/sys/block/${device.replace('/dev/', '')}/stat`, 'utf8').trim().split(/\s+/)[4]);

/** Stops the server and copies its disk; false if the kernel wrote to it meanwhile, which no cut does. */
async function cut(cay, device, from, to) {
  signalAll(processesOf(cay.pid), 'SIGSTOP');
  let before = -1;
  while (before !== writesTo(device)) { // a flush that has begun goes on
    before = writesTo(device);
    await sleep(50);
  }
  copyFileSync(from, to);
  return writesTo(device) === before;
}

/** Mounts the file system of a file while `use(device)` lasts. */
async function mounted(file, at, use) {
  mkdirSync(at, { recursive: true });
  run('mount', '-o', 'loop,commit=300', file, at);
  try {
    return await use(run('findmnt', '-n', '-o', 'SOURCE', at));
  } finally {
    run('umount', '-l', at);
  }
}

async function checkAll(cay, acked) {
  let seen = 0;
  for (const [id, state] of acked.tasks) {
    const got = await request(cay, `/v1/tasks/${id}`);
    assert.equal(got.status, 200, `task ${id} is lost: ${got.body}`);
    if (state) assert.equal(got.json().state ?? got.json().status, state, got.body);
    seen++;
  }
  for (const [id, { key, valid }] of acked.keys) {
    const { status } = await request(cay, '/v1/tasks', { headers: bearer(key) });
    if (valid !== null) assert.equal(status, valid ? 200 : 401, `key ${id}`);
    seen++;
  }
  for (const [name, n] of acked.workers) {
    const got = await request(cay, `/v1/workers/${name}`);
    if (n === null) continue;
    assert.equal(got.status, 200, `worker ${name} is lost`);
    assert.match(got.body, new RegExp(`=> ${n}"`), `worker ${name} is an old one`);
    seen++;
  }
  const { key, tokens, calls } = acked.spent;
  const usage = await request(cay, '/v1/usage', { headers: bearer(key) });
  assert.equal(usage.status, 200, `the key that spends is lost: ${usage.body}`);
  const [today = { tokens: 0 }] = usage.json().today;
  // What was not answered is charged with what it may have used, so there may be more.
  assert.ok(today.tokens >= tokens, `${today.tokens} tokens are charged of ${tokens} in ${calls} calls`);
  const agent = await connectAgent(cay);
  const rows = new Set((await agent.call('list')).map((row) => row.n));
  agent.close();
  for (const n of acked.numbers) assert.ok(rows.has(n), `row ${n} of the facet is lost`);
  return seen + acked.numbers.size + calls;
}

/** Works for some time, then cuts: whether the copy is one that a cut may leave. */
async function workAndCut(dir, device, ms, config, acked, model) {
  let failure = null;
  let over = false;
  const cay = await startCay({ dataDir: join(dir, 'before', 'data'), config, env: model.env });
  try {
    acked.spent.key = created(await post(cay, '/v1/keys', { name: 'spends', scope: 'run', tokens_per_day: 1_000_000_000 }), 201).key;
    const agent = await connectAgent(cay);
    const loops = Object.values(clients).flatMap((client) => [0, 1].map(async (part) => {
      for (let n = part; !over; n += 2)
        await client(cay, acked, n, agent).catch((error) => {
          failure ??= over ? null : error;
          over = true;
        });
    }));
    await sleep(ms);
    assert.equal(failure, null, failure?.stack);
    over = true;
    const whole = await cut(cay, device, join(dir, 'disk.img'), join(dir, 'after.img'));
    // Without another word: what a server says that goes on after the copy was made is no acknowledgement.
    signalAll(processesOf(cay.pid).reverse(), 'SIGKILL');
    await cay.kill9();
    agent.close();
    await Promise.race([Promise.allSettled(loops), sleep(1000)]); // calls over the socket have no end
    return whole;
  } finally {
    over = true;
    if (cay.isRunning()) await cay.kill9();
  }
}

async function cutOnce(dir, ms, agents, model) {
  const disk = join(dir, 'disk.img');
  const config = { agents_dir: agents, store: { workers: 100 } };
  const acked = { tasks: new Map(), keys: new Map(), workers: new Map(), numbers: new Set(), spent: { key: null, tokens: 0, calls: 0 } };
  rmSync(disk, { force: true });
  run('truncate', '-s', '256M', disk);
  run('mke2fs', '-q', '-t', 'ext4', '-E', 'lazy_itable_init=0,lazy_journal_init=0', disk);
  const whole = await mounted(disk, join(dir, 'before'), (device) => workAndCut(dir, device, ms, config, acked, model));
  if (!whole) return null;
  return mounted(join(dir, 'after.img'), join(dir, 'after'), async () => {
    const cay = await startCay({ dataDir: join(dir, 'after', 'data'), config });
    try {
      return await checkAll(cay, acked);
    } finally {
      await cay.stop();
    }
  });
}

/** `cuts` of them, each on a new disk: how many acknowledged things were looked for. */
export async function powerCuts({ cuts, say = () => {} }) {
  const dir = mkdtempSync(join(tmpdir(), 'cay-power-'));
  chmodSync(dir, 0o755);
  let seen = 0;
  const ends = [];
  try {
    const agents = writeAgent(dir);
    const model = await scripted({ after: (end) => ends.push(end) }, []);
    for (let n = 0, tries = 0; n < cuts; tries++) {
      assert.ok(tries < 3 * cuts + 5, 'the kernel writes to the disk all the time');
      const found = await cutOnce(dir, 500 + ((n * 733) % 2500), agents, model);
      if (found === null) continue;
      seen += found;
      n++;
      say(`cut ${n}: ${found} acknowledged things are there`);
    }
  } finally {
    for (const end of ends) end();
    rmSync(dir, { recursive: true, force: true });
  }
  return seen;
}
