// Tasks of every type while the server and its programs are killed at random: what must be true afterwards. The long one
// is tests/soak/tasks, the short one in tests/e2e/tasks.test.mjs.
import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { bearer, createKey, request, sleep, slow, startCay, tempDir, until } from './cay.mjs';
import { startMock } from './mock.mjs';

/** The launcher has others of its name below it: what binds, what cleans up, and the first process of each sandbox. */
const isLauncher = (p, all) => p.name === 'cay-sandbox' && all.filter((q) => q.ppid === p.pid && q.name === p.name).length > 1;
const called = (name) => (p) => p.name === name;
/** What can be killed: which of the server's processes. The server is started again; its programs are, by it. */
const WHICH = {
  server: null,
  launcher: isLauncher,
  zygote: (p, all) => p.name === 'cay-isolate' && all.some((q) => q.ppid === p.pid && q.name === p.name),
  egress: called('cay-egress'),
  facet: called('cay-facet'),
  'a part of the launcher': called('cay-sandbox'),
  'an isolate': (p, all) => p.name === 'cay-isolate' && !all.some((q) => q.ppid === p.pid),
};
export const KINDS = Object.keys(WHICH);
const secret = `whsec_${Buffer.alloc(24, 7).toString('base64')}`;

/** The folder of Claude Code, or null. */
function claudeFolder() {
  try {
    const require = createRequire(new URL('../claude/package.json', import.meta.url));
    return dirname(require.resolve(`@anthropic-ai/claude-code-linux-${process.arch}/package.json`));
  } catch {
    return null;
  }
}

const program = (n) => `export default async (env) => {
  console.log("begun ${n}");
  await env.db.query("SELECT 1");
  await new Promise((r) => setTimeout(r, ${20 + ((n * 37) % 300)}));
  return (await env.db.query("SELECT ${n} AS n"))[0].n;
}`;

/** Task n: what it is, and whether its result is right. */
const bodies = {
  run: (n) => [{ code: program(n), env: { db: { $facet: `chaos${n % 7}` } } }, (t) => t.result.result === n],
  code: (n) => [{ command: `sleep 0.${n % 5}; echo task ${n} > made` }, (t) => t.result.detail.diff.includes(`+task ${n}\n`)],
  'code by its model': (n) => [{ spec: `Say hello to task ${n}`, max_steps: 4 }, (t) => JSON.stringify(t.result).includes('Hello from the model')],
  execute: (n) => [{ task: `Say hello to task ${n}` }, (t) => JSON.stringify(t.result).includes('Hello from the model')],
  'execute/sdk': (n) => [{ prompt: `Say hello to task ${n}` }, (t) => JSON.stringify(t.result).includes('Hello from the model')],
  'claude-code': (n) => [{ spec: `Say hello to task ${n}`, max_steps: 4 }, (t) => JSON.stringify(t.result).includes('Hello from the model')],
};

/* Of a process: {ppid, name, began}; null when it is gone. */
function lookAt(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const rest = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { pid: Number(pid), ppid: Number(rest[1]), name: stat.slice(stat.indexOf('(') + 1, stat.lastIndexOf(')')), state: rest[0], began: rest[19] };
  } catch {
    return null;
  }
}

/** The server and all that came of it, also of what has lost its parent since it was seen. */
function family(front, seen) {
  const all = readdirSync('/proc').filter((d) => /^\d+$/.test(d)).map(lookAt).filter(Boolean);
  const pids = new Set([front, ...all.filter((p) => seen.has(`${p.pid} ${p.began}`)).map((p) => p.pid)]);
  for (let grown = true; grown; ) {
    grown = false;
    for (const p of all) if (pids.has(p.ppid) && !pids.has(p.pid)) grown = !!pids.add(p.pid);
  }
  return all.filter((p) => pids.has(p.pid));
}

/** A receiver that is down, slow or in a bad mood now and then; at most twice for a message, since a fourth try comes after minutes. */
async function startReceiver() {
  const got = [];
  const server = createServer((req, res) => {
    let body = '';
    req.on('data', (d) => (body += d));
    req.on('end', async () => {
      const mood = got.length % 11;
      const { data } = JSON.parse(body);
      const failed = got.filter((m) => m.task === data.id && m.status !== 204).length;
      const status = failed >= 2 ? 204 : mood === 3 ? 503 : mood === 7 ? 0 : 204;
      got.push({ id: req.headers['webhook-id'], task: data.id, state: data.state, status });
      if (mood === 5) await sleep(200);
      if (status === 0) return req.socket.destroy();
      return res.writeHead(status).end();
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const host = `127.0.0.1:${server.address().port}`;
  return { got, host, url: `http://${host}/hook`, close: () => { server.close(); server.closeAllConnections(); } };
}

/** What is left in the data folder that nobody has. */
function leftOnDisk(dataDir) {
  const list = (...path) => (existsSync(join(dataDir, ...path)) ? readdirSync(join(dataDir, ...path)) : []);
  return [...list('artifacts').filter((f) => f.startsWith('new_')), ...list('roots'), ...list('staging')];
}

/**
 *   tasks   how many
 *   types   which, in turns
 *   kinds   the programs to be killed, one after the other
 *   pause   the longest time between two of them, in milliseconds
 *   limit   until when all must have ended
 *   usd     what the key of the tasks may spend in a day; 0: there is no key, and no limit
 *   scarce  it is so little that calls wait for what others hold
 */
export async function chaos({ tasks, types = ['run', 'code', 'execute', 'execute/sdk'], claude = 0, kinds, pause = 800, limit = 120_000 * slow, usd = 0, scarce = false, say = () => {} }) {
  const ends = [];
  const { mock, url } = await startMock({ after: (f) => ends.push(f) }, { delay: scarce ? 2000 : 0 });
  mock.on({ predicate: () => true }, { content: '{"done":true,"summary":"Hello from the model."}' }); // as cay-coder wants it
  const hook = await startReceiver();
  const folder = tempDir(null);
  const dataDir = join(folder, 'data');
  const claudeAt = claude > 0 ? claudeFolder() : null;
  const start = () => startCay({
    dataDir,
    args: ['--log-level', 'warn'],
    config: { tasks: { private_webhooks: [hook.host], slots: 12, per_key: 12 }, ...(claudeAt ? { coders: { 'claude-code': claudeAt } } : {}) },
    env: { ANTHROPIC_API_KEY: 'sk-test', ANTHROPIC_BASE_URL: url },
  });
  const seen = new Map(); // processes that were ours, by pid and beginning
  const note = () => {
    const all = family(cay.pid, seen);
    for (const p of all) seen.set(`${p.pid} ${p.began}`, p);
    return all;
  };
  const mountsBefore = readFileSync('/proc/self/mountinfo', 'utf8').split('\n').filter((l) => l.includes(folder)).length;
  const list = [];
  const killed = {};
  let cay = await start();
  const key = usd > 0 ? await createKey(dataDir, { name: 'chaos', more: ['--usd-per-day', String(usd)] }) : null;
  const own = key ? bearer(key.text) : {};
  const submit = async (n) => {
    const type = n < claude && claudeAt ? 'claude-code' : types[n % types.length];
    const [input, isRight] = bodies[type](n);
    const body = JSON.stringify({ type: type.split(' ')[0], input, max_attempts: 10, webhook: { url: hook.url, secret } });
    // The server may be killed while it answers: the key makes one of however many requests.
    const res = await until(async () => {
      try {
        return await request(cay, '/v1/tasks', { method: 'POST', headers: { 'Idempotency-Key': `chaos-${n}`, ...own }, body });
      } catch {
        return null;
      }
    }, 'an answer');
    assert.equal(res.status, 202, res.body);
    const { id } = res.json();
    assert.ok(!list[n] || list[n].id === id, 'nothing that was accepted is forgotten');
    list[n] = { id, type, isRight };
  };
  /** Something is at work, unless it was all too quick for us. */
  const isBusy = () => {
    const end = Date.now() + 5000;
    return until(async () => (await request(cay, '/v1/tasks?state=running')).json().tasks.length > 0 || Date.now() > end, 'work');
  };
  const kill = async (kind) => {
    note();
    killed[kind] = (killed[kind] ?? 0) + 1;
    if (kind === 'server') {
      await cay.kill9();
      cay = await start();
      return;
    }
    // A facet is there as long as somebody uses it; the others are started again within seconds.
    const victims = await until(() => ((all) => ((found) => found.length > 0 && found)(all.filter((p) => WHICH[kind](p, all) && p.state !== 'Z')))(note()), kind);
    try {
      process.kill(victims[Math.floor(Math.random() * victims.length)].pid, 'SIGKILL');
    } catch {
      // it ended by itself
    }
  };
  const get = async (id) => {
    try {
      return (await request(cay, `/v1/tasks/${id}`)).json();
    } catch {
      return null;
    }
  };
  let mostHeld = 0;
  let samples = 0;
  const today = async () => (await request(cay, '/v1/usage', { headers: own })).json().today[0];
  const watch = scarce && setInterval(async () => {
    const day = await today().catch(() => null); // it may be killed just now
    samples += day ? 1 : 0;
    mostHeld = Math.max(mostHeld, day?.held_usd ?? 0);
  }, 200);
  try {
    const share = Math.ceil(tasks / (kinds.length + 1));
    const submitSome = async () => {
      for (let i = 0; i < share && list.length < tasks; i++) await submit(list.length);
    };
    for (const kind of kinds) {
      const submitting = submitSome();
      if (kind === 'server') await isBusy();
      else await sleep(20 + Math.random() * pause);
      await kill(kind);
      say(`killed ${kind}; ${list.length} submitted`);
      await submitting;
      await submit(0);
    }
    await submitSome();
    const until_ = Date.now() + limit;
    const all = [];
    for (const { id, type, isRight } of list) {
      const t = await until(async () => ((v) => v?.finished_at && v)(await get(id)), `the end of ${id} (${type})`, Math.max(until_ - Date.now(), 5000));
      all.push(t);
      t.right = t.state === 'done' && isRight(t);
    }
    const count = {};
    for (const t of all) {
      const key = `${t.type} ${t.state}${t.state === 'done' && !t.right ? ' WRONG' : ''}${t.error ? ` ${t.error.code}: ${t.error.message}` : ''}`;
      count[key] = (count[key] ?? 0) + 1;
      assert.equal(t.attempts.length, t.attempt, JSON.stringify(t));
      const outcomes = t.attempts.map((a) => a.outcome);
      assert.ok(outcomes.slice(0, -1).every((o) => o === 'fault'), JSON.stringify(outcomes));
      assert.ok(outcomes.at(-1) === t.state || (t.state === 'interrupted' && outcomes.at(-1) === 'fault'), JSON.stringify(outcomes));
    }
    say(JSON.stringify({ killed, count, retried: all.filter((t) => t.attempt > 1).length }, null, 2));
    assert.deepEqual(all.filter((t) => t.state === 'done' && !t.right), [], 'a result is wrong');
    if (key) {
      // No task fails for money while less is spent than there is; a kill costs what was in flight, and not more.
      assert.deepEqual(all.filter((t) => ['quota_exceeded', 'rate_limited'].includes(t.error?.code)).map((t) => t.error), []);
      const day = await today();
      if (scarce) say(`held at most $${mostHeld}, in ${samples} looks`);
      if (scarce) assert.ok(mostHeld > 0.75 * usd, 'nobody had to wait'); // a call of /execute/sdk needs a fourth of it
      say(`spent $${day.charged_usd} of $${day.usd_per_day}, held $${day.held_usd}`);
      assert.ok(day.charged_usd < usd && day.held_usd === 0, JSON.stringify(day));
    }
    // A message each, taken at least once, always with the same id and the same word.
    await until(() => new Set(hook.got.filter((m) => m.status === 204).map((m) => m.task)).size === tasks, 'all messages', 90_000 * slow);
    const ids = new Map();
    for (const m of hook.got) ids.set(m.task, (ids.get(m.task) ?? new Set()).add(`${m.id} ${m.state}`));
    assert.ok([...ids.values()].every((s) => s.size === 1), 'one message each, however often it was sent');
    for (const t of all) assert.ok([...ids.get(t.id)][0].endsWith(t.state));
    // Nothing runs any more.
    await until(async () => {
      const s = (await request(cay, '/v1/status')).json();
      return s.isolates.busy === 0 && s.sandboxes.running === 0 && s.sandboxes.execs === 0 && s.sandboxes.starting === 0;
    }, 'quiet');
    for (const state of ['running', 'queued']) assert.deepEqual((await request(cay, `/v1/tasks?state=${state}`)).json().tasks, []);
    note();
    await cay.stop();
    const alive = () => [...seen.values()].filter((p) => ((q) => q && q.began === p.began && q.state !== 'Z')(lookAt(p.pid)));
    await until(() => alive().length === 0, `the end of ${seen.size} processes`).catch(() => assert.deepEqual(alive(), [], 'processes are left'));
    const mounts = readFileSync('/proc/self/mountinfo', 'utf8').split('\n').filter((l) => l.includes(folder)).length;
    assert.equal(mounts, mountsBefore, 'mounts are left');
    assert.deepEqual(leftOnDisk(dataDir), []);
    return { all, killed, count };
  } catch (error) {
    say(cay.stderr().slice(-4000));
    for (const path of ['/v1/status', '/v1/tasks?state=running', '/v1/sandboxes'])
      say((await request(cay, path).catch((e) => e)).body?.slice(0, 6000));
    throw error;
  } finally {
    clearInterval(watch);
    if (cay.isRunning()) await cay.kill9();
    hook.close();
    for (const end of ends) await end();
    rmSync(folder, { recursive: true, force: true });
  }
}
