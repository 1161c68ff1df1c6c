// The settings: mistakes told with their lines, values with their sources, changes while the server runs.
import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { bearer, createKey, request, runCay, tempDir, until, withCay } from '../lib/cay.mjs';

const put = (dir, name, text) => {
  writeFileSync(join(dir, name), typeof text === 'string' ? text : JSON.stringify(text));
  return join(dir, name);
};
const check = (file, cwd) => runCay(['config', 'check', ...(file ? [file] : [])], { cwd });
const reload = (cay, options = {}) => request(cay, '/v1/config/reload', { method: 'POST', ...options });
/** The file that the server was started with. */
const fileOf = (cay) => join(cay.dir, 'cay.json');
/** 413 or 204, by the limit of bodies. */
const send = async (cay, n) => (await request(cay, '/v1/session', { method: 'POST', body: ' '.repeat(n) })).status;

test('check tells every mistake with its line and what may have been meant', async (t) => {
  const dir = tempDir(t);
  const file = put(dir, 'x.json', `{
  "limts": {},
  "limits": {
    "run_wal_ms": 5,
    "run_wall_ms": -1,
    "held_bytes": 67108864
  },
  "sandboxes": {"max": 20, "routes": {"a\\"}{": {}}, "timout_s": 5,
    "timeout_s": 100, "max_timeout_s": 50},
  "log_level": "loud",
  "listen": ["nonsense"]
}`);
  const done = await check(file);
  assert.equal(done.code, 1);
  const lines = done.stdout.replaceAll(file, 'F').trim().split('\n');
  for (const [at, words] of [
    ['F:2: limts', 'did you mean "limits"'], ['F:4: limits.run_wal_ms', 'did you mean "run_wall_ms"'],
    ['F:5: limits.run_wall_ms', 'must be an integer from 1 to'], ['F:8: sandboxes.timout_s', 'did you mean "timeout_s"'],
    ['F:9: sandboxes.', '"timeout_s" must not exceed "max_timeout_s"'], ['F:10: log_level', 'debug, info'], ['F:11: listen', 'HOST:PORT'],
  ]) assert.ok(lines.some((l) => l.startsWith(at) && l.includes(words)), `${at}: ${words}\n${done.stdout}`);
  assert.equal(lines.length, 8, done.stdout);
  assert.equal(lines.at(-1), '7 mistakes');
  // What is right only together is no mistake.
  assert.match((await check(put(dir, 'both.json', { sandboxes: { timeout_s: 50, max_timeout_s: 50 } }))).stdout, /no mistakes/);
});

test('check of what is no file, no JSON and no object', async (t) => {
  const dir = tempDir(t);
  assert.match((await check(null, dir)).stdout, /there is no cay\.json here/);
  assert.notEqual((await check(join(dir, 'none.json'))).code, 0);
  for (const [text, words] of [['', /not valid JSON/], ['{"a":', /line 1/], ['{"a":1,"a":2}', /duplicate/], ['[]', /must be a JSON object/], ['[[[[[', /not valid JSON/]]) {
    const done = await check(put(dir, 'bad.json', text));
    assert.equal(done.code, 1, text);
    assert.match(done.stdout, words);
  }
  assert.equal((await runCay(['config'])).code, 2);
  assert.equal((await runCay(['config', 'chek'])).code, 2);
});

test('show tells where each value comes from', async (t) => {
  const dir = tempDir(t);
  const file = put(dir, 'x.json', '{\n "limits": {\n  "run_wall_ms": 1234 },\n "hosts": ["a.example"],\n "sandboxes": {"cpus": 2}\n}');
  const done = await runCay(['config', 'show', file, '--json'], { env: { MAX_EXECUTION_TIME: '777' } });
  assert.equal(done.code, 0, done.stderr);
  const all = JSON.parse(done.stdout);
  assert.deepEqual(all['limits.run_wall_ms'], { value: 1234, source: `${file}:3` });
  assert.deepEqual(all.hosts, { value: ['a.example'], source: `${file}:4` });
  assert.deepEqual(all['sandboxes.cpus'], { value: 2, source: `${file}:5` });
  assert.deepEqual(all['limits.run_cpu_ms'], { value: 10000, source: 'default' });
  assert.deepEqual(all['execute.timeout_ms'], { value: 777, source: 'MAX_EXECUTION_TIME in the environment' });
  assert.equal(all.listen.source, 'default');
  const text = await runCay(['config', 'show', file]);
  assert.match(text.stdout, /^limits\.run_wall_ms +1234 +.*x\.json:3$/m);
  const wrong = await runCay(['config', 'show', put(dir, 'y.json', '{"hots":[]}')]);
  assert.notEqual(wrong.code, 0);
  assert.match(wrong.stderr, /did you mean "hosts"[\s\S]*cay config check/);
});

test('a reload applies what can change and names what cannot', async (t) => {
  const cay = await withCay(t, { config: { limits: { body_bytes: 5000 }, log_level: 'info' } });
  const file = fileOf(cay);
  assert.ok(existsSync(file));
  const big = () => send(cay, 8000);
  assert.equal(await big(), 413);
  assert.deepEqual((await reload(cay)).json(), { file: 'cay.json', applied: [], needs_restart: [], service: null });
  const next = { limits: { body_bytes: 100000, isolates: 7 }, sandboxes: { max: 3, routes: {} }, hosts: ['cay.example'], model: 'demo', log_level: 'info' };
  writeFileSync(file, JSON.stringify(next));
  const done = (await reload(cay)).json();
  assert.deepEqual(done.applied.map((c) => c.key).sort(), ['hosts', 'limits.body_bytes', 'sandboxes.max', 'sandboxes.max_per_key']);
  assert.deepEqual(done.needs_restart.map((c) => c.key).sort(), ['limits.isolates', 'model', 'sandboxes.routes']);
  assert.deepEqual(done.applied.find((c) => c.key === 'limits.body_bytes'), { key: 'limits.body_bytes', from: '5000', to: '100000' });
  assert.equal(await big(), 204);
  assert.equal((await request(cay, '/health', { headers: { Host: 'cay.example' } })).status, 200);
  assert.equal((await request(cay, '/health', { headers: { Host: 'other.example' } })).status, 421);
  // A mistake changes nothing.
  writeFileSync(file, JSON.stringify({ ...next, limits: { body_bytes: 6000, run_wall_ms: 0 } }));
  const refused = await reload(cay);
  assert.equal(refused.status, 400);
  assert.match(refused.json().error.message, /run_wall_ms/);
  assert.equal(await big(), 204);
  // A signal does the same, and the log says it.
  writeFileSync(file, JSON.stringify({ ...next, limits: { body_bytes: 5000, isolates: 7 } }));
  process.kill(cay.pid, 'SIGHUP');
  await until(() => /config\.changed.*limits\.body_bytes.*100000.*5000/.test(cay.stderr()), 'the log');
  assert.equal(await big(), 413);
  const cli = await runCay(['config', 'reload', '--url', `http://127.0.0.1:${cay.port}`]);
  assert.deepEqual(cli.stdout.trim().split('\n').sort(), [
    'needs restart  limits.isolates: 7, was 32', 'needs restart  model: "demo", was its default', 'needs restart  sandboxes.routes: {}, was its default',
  ]);
});

test('credentials in the file are neither logged nor told, by a reload, a mistake or show', async (t) => {
  const secret = 'sesame-4711';
  const config = (more) => ({
    log_level: 'info',
    sandboxes: { routes: { hub: { url: 'https://hub.example', headers: { authorization: `Bearer ${secret}`, 'x-other': 'Bearer ${HUB_TOKEN}' } } } },
    ...more,
  });
  const cay = await withCay(t, { config: { log_level: 'info' } });
  writeFileSync(fileOf(cay), JSON.stringify(config()));
  const done = await reload(cay);
  assert.equal(done.status, 200, done.body);
  assert.deepEqual(JSON.parse(done.json().needs_restart[0].to), { hub: { url: 'https://hub.example', headers: { authorization: '(hidden)', 'x-other': 'Bearer ${HUB_TOKEN}' } } });
  const shown = await runCay(['config', 'show', fileOf(cay)]);
  assert.match(shown.stdout, /sandboxes\.routes .*\(hidden\)/);
  // A file that cannot be read is not quoted either.
  writeFileSync(fileOf(cay), `{"sandboxes":{"routes":{"hub":{"headers":{"authorization":"Bearer ${secret}" 5}}}}}`);
  const broken = await reload(cay);
  assert.equal(broken.status, 400);
  assert.match(broken.json().error.message, /line 1, column \d+/);
  writeFileSync(fileOf(cay), `{"x": ${secret}`);
  const odd = await reload(cay);
  assert.equal(odd.status, 400);
  for (const text of [done.body, broken.body, odd.body, shown.stdout, cay.stdout(), cay.stderr()]) assert.doesNotMatch(text, new RegExp(`${secret}|sesame`));
});

test('only an admin may reload', async (t) => {
  const cay = await withCay(t, { config: { require_key: true } });
  const run = await createKey(cay.dataDir, { name: 'run' });
  const admin = await createKey(cay.dataDir, { name: 'admin', scope: 'admin' });
  assert.equal((await reload(cay)).status, 401);
  assert.equal((await reload(cay, { headers: bearer(run.text) })).status, 403);
  assert.equal((await reload(cay, { headers: bearer(admin.text) })).status, 200);
});

/** A service of settings: say() sets its answer. */
async function service(t) {
  const it = { asked: [], answer: { status: 200, body: '{}', etag: '"0"' } };
  const server = createServer((req, res) => {
    it.asked.push(req.headers);
    const { status, body, etag } = it.answer;
    if (req.headers['if-none-match'] === etag) return res.writeHead(304).end();
    // By hand: node does not send every lie.
    req.socket.end(Buffer.from(`HTTP/1.1 ${status} X\r\nETag: ${etag}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`, 'latin1'));
    return undefined;
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.closeAllConnections() ?? server.close());
  it.url = `http://127.0.0.1:${server.address().port}/settings`;
  it.stop = () => new Promise((resolve) => { server.close(resolve); server.closeAllConnections(); });
  let n = 0;
  it.say = (settings, status = 200) => (it.answer = { status, body: typeof settings === 'string' ? settings : JSON.stringify(settings), etag: `"${++n}"` });
  return it;
}

test('a service hands out limits, within what it may; what it said last outlives it', async (t) => {
  const it = await service(t);
  it.say({ limits: { body_bytes: 5000, run_wall_ms: 4000 } });
  const options = { config: { limits: { run_wall_ms: 3000 } }, env: { CONFIG_SERVICE_URL: it.url, CONFIG_SERVICE_TOKEN: 'secret-token' } };
  const cay = await withCay(t, options);
  await until(async () => (await send(cay, 8000)) === 413, 'the limit of the service');
  assert.equal(it.asked[0].authorization, 'Bearer secret-token');
  assert.ok(!/secret-token/.test(cay.stderr()));
  await until(() => /config\.changed.*limits\.body_bytes/.test(cay.stderr()), 'the log');
  assert.doesNotMatch(cay.stderr(), /config\.changed.*run_wall_ms/, 'the file wins');

  // Not modified: nothing happens. Then wrong answers: each is refused whole, and what was said before stays.
  const asked = it.asked.length;
  await reload(cay);
  await until(() => it.asked.length > asked, 'the question');
  assert.equal(it.asked.at(-1)['if-none-match'], '"1"');
  for (const [wrong, words] of [
    [{ data_dir: '/tmp', limits: { body_bytes: 9000 } }, /may not set \\"data_dir\\"/], [{ sandboxes: { binds: {} } }, /may not set \\"sandboxes\.binds\\"/],
    [{ limits: { body_bytes: 9000, isolates: 1 } }, /may not set \\"limits\.isolates\\"/], [{ limits: { body_bytes: 9 } }, /body_bytes\\" must be/],
    [{ user: 'root' }, /may not set \\"user\\"/], ['[]', /JSON object/], ['{', /not valid JSON/],
  ]) {
    it.say({}); // what is right again lets the next fault be told
    it.say(wrong);
    await reload(cay);
    await until(() => words.test(cay.stderr()), String(words));
    assert.equal(await send(cay, 8000), 413);
    it.say({ limits: { body_bytes: 5000 } });
    const before = it.asked.length;
    await reload(cay);
    await until(() => it.asked.length > before, 'a right one');
  }

  // An ETag that cannot be sent back is not kept: the service is heard again.
  for (const etag of ['a\x01b', '"\xff\xfe"', `"${'x'.repeat(300)}"`]) {
    it.say({ limits: { body_bytes: 6000 } });
    it.answer.etag = etag;
    const before = it.asked.length;
    await reload(cay);
    await until(async () => it.asked.length > before && (await send(cay, 5500)) === 204, 'a lie');
    it.say({ limits: { body_bytes: 5000 } });
    await reload(cay);
    await until(async () => (await send(cay, 5500)) === 413, `a right one after the ETag ${JSON.stringify(etag).slice(0, 20)}`);
    assert.equal(it.asked.at(-1)['if-none-match'], undefined);
  }

  // Down: the kept one is used, also by the next server.
  await it.stop();
  await reload(cay);
  assert.equal(await send(cay, 8000), 413);
  await cay.halt();
  assert.match(readFileSync(join(cay.dataDir, 'config-service.json'), 'utf8'), /5000/);
  const second = await withCay(t, { ...options, dataDir: cay.dataDir });
  await until(async () => (await send(second, 8000)) === 413, 'what was kept');
  await second.halt();
  // Without the service's address nothing of it is used.
  const third = await withCay(t, { dataDir: cay.dataDir });
  assert.equal(await send(third, 8000), 204);
});
