// Health, metrics, the API description, and the files of the page.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { buildDir, request, root, startCay, tempDir, until, withCay } from '../lib/cay.mjs';

let cay;
before(async () => {
  cay = await startCay();
});
after(() => cay.stop());

test('health has exactly its four fields', async () => {
  const before = Date.now();
  const answer = await request(cay, '/health');
  assert.equal(answer.status, 200);
  assert.equal(answer.headers['content-type'], 'application/json');
  assert.equal(answer.headers['x-content-type-options'], 'nosniff');
  assert.ok(answer.headers.date && answer.headers['x-request-id']);
  const health = answer.json();
  assert.deepEqual(Object.keys(health), ['status', 'service', 'timestamp', 'version']);
  assert.equal(health.status, 'healthy');
  assert.equal(health.service, 'sandbox-executor');
  assert.match(health.timestamp, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assert.ok(Math.abs(Date.parse(health.timestamp) - before) < 60_000);
  assert.match(health.version, /^\d+\.\d+\.\d+$/);
});

test('a server that cannot make sandboxes says so', async (t) => {
  // A copy of the programs with one missing.
  const build = tempDir(t);
  for (const name of ['cay', 'cay-compile', 'cay-isolate', 'cay-facet', 'cay-egress', 'cay-spawn'])
    if (existsSync(join(buildDir, name))) cpSync(join(buildDir, name), join(build, name));
  const server = await withCay(t, { build });
  const health = await request(server, '/health');
  assert.equal(health.status, 200); // everything else works
  assert.equal(health.json().status, 'degraded');
  assert.match(health.json().detail, /^sandboxes are not available: .*`cay doctor`/);
  const { sandboxes } = (await request(server, '/v1/status')).json();
  assert.equal(sandboxes.available, false);
  assert.match(sandboxes.detail, /cay-sandbox is missing beside cay/);
  assert.match(sandboxes.advice, /run `make`/);
  assert.match((await server.line(/^ {2}sandboxes {2}(.*)$/m))[1], /^unavailable: .*cay-sandbox is missing beside cay.*; run `make`/);
  const made = await request(server, '/v1/sandboxes', { method: 'POST', body: '{}' });
  assert.equal(made.status, 503);
  assert.match(made.json().error.message, /cay-sandbox is missing beside cay/);
});

// The lines at the start, those of /v1/status and those of `cay doctor` are the same.
const noGroups = 'mount -t tmpfs none /sys/fs/cgroup; exec "$@"';

test('a server without control groups says what is missing and what to do', { skip: process.getuid() !== 0 && 'needs root' }, async (t) => {
  const wrap = ['unshare', '--mount', 'sh', '-c', noGroups, 'sh'];
  const server = await withCay(t, { wrap });
  const [, cgroups] = await server.line(/^ {2}cgroups {4}(.*)$/m);
  assert.match(cgroups, /^degraded: no controllers; .*Delegate=yes/);
  const [, line] = await server.line(/^ {2}sandboxes {2}(.*)$/m);
  assert.match(line, /^degraded: memory is watched, not enforced: .*; .*in a unit with Delegate=yes$/);
  const { sandboxes, features } = (await request(server, '/v1/status')).json();
  assert.equal(sandboxes.available, true);
  assert.match(sandboxes.detail, /^memory is watched, not enforced/);
  assert.match(sandboxes.advice, /in a unit with Delegate=yes$/);
  assert.ok(line.endsWith(`; ${sandboxes.advice}`), line);
  assert.equal(cgroups.endsWith(`; ${features.find((f) => f.name === 'cgroups').advice}`), true, cgroups);
  const doctor = await promisify(execFile)(wrap[0], [...wrap.slice(1), join(buildDir, 'cay'), 'doctor', '--json']);
  assert.equal(JSON.parse(doctor.stdout).find((f) => f.name === 'sandboxes').advice, sandboxes.advice);
});

test('a server whose launcher refuses says that it has no sandboxes, and why', { skip: process.getuid() !== 0 && 'needs root' }, async (t) => {
  const server = await withCay(t, { config: { sandboxes: { uid_base: 0xfffffff0 } } }); // no uids are left after it
  const [, line] = await server.line(/^ {2}sandboxes {2}(.*)$/m);
  assert.match(line, /^unavailable: sandboxes cannot be made on this machine: .*; /);
  const { sandboxes } = (await request(server, '/v1/status')).json();
  assert.equal(sandboxes.available, false);
  assert.equal(line, `unavailable: ${sandboxes.detail}; ${sandboxes.advice}`);
  assert.notEqual(sandboxes.advice, '');
  assert.equal((await request(server, '/health')).json().status, 'degraded');
});

test('a server that has all says so in a line', async () => {
  const [, line] = await cay.line(/^ {2}sandboxes {2}(.*)$/m);
  const { sandboxes } = (await request(cay, '/v1/status')).json();
  if (/^ok: /.test(line)) assert.equal(sandboxes.advice, '');
  else assert.ok(line.endsWith(`; ${sandboxes.advice}`), line);
});

/** Prometheus text as {name: [{labels, value}]}; fails on what is not. */
function parseMetrics(text) {
  const types = {};
  const samples = {};
  assert.ok(text.endsWith('\n'));
  for (const line of text.trimEnd().split('\n')) {
    const type = /^# TYPE (\w+) (counter|gauge|histogram)$/.exec(line);
    if (type) {
      assert.ok(!(type[1] in types), `two types for ${type[1]}`);
      types[type[1]] = type[2];
      continue;
    }
    if (/^# HELP \w+ .+$/.test(line)) continue;
    const sample = /^(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[\d.e+]+|\+Inf|NaN)$/.exec(line);
    assert.ok(sample, `not a sample: ${line}`);
    const [, name, labels = '', value] = sample;
    assert.ok(types[name] ?? types[name.replace(/_(bucket|sum|count)$/, '')], `no type for ${name}`);
    (samples[name] ??= []).push({
      labels: Object.fromEntries([...labels.matchAll(/(\w+)="([^"]*)"/g)].map((m) => [m[1], m[2]])),
      value: Number(value),
    });
  }
  return samples;
}

test('metrics are Prometheus text that counts', async () => {
  const read = async () => parseMetrics((await request(cay, '/metrics')).body);
  const count = (m, route, status) =>
    m.cay_http_requests_total?.find((s) => s.labels.route === route && s.labels.status === status)?.value ?? 0;
  const first = await read();
  await request(cay, '/health');
  await request(cay, '/health');
  await request(cay, '/v1/runs/run_none');
  // Connections that have had their answer go a moment later.
  const second = await until(async () => ((m) => m.cay_http_connections[0].value === 1 && m)(await read()), 'one connection');
  assert.equal(count(second, '/health', '2xx') - count(first, '/health', '2xx'), 2);
  assert.equal(count(second, '/v1/runs/{id}', '4xx') - count(first, '/v1/runs/{id}', '4xx'), 1);
  assert.ok(second.cay_memory_bytes[0].value > 1_000_000);
  assert.equal(second.cay_http_requests[0].value, 1);
  assert.ok(second.cay_http_bytes_total.find((s) => s.labels.direction === 'in').value > 100);
  const buckets = second.cay_http_request_seconds_bucket.filter((s) => s.labels.route === '/health');
  for (let i = 1; i < buckets.length; i++) assert.ok(buckets[i].value >= buckets[i - 1].value);
  assert.equal(buckets.at(-1).labels.le, '+Inf');
});

test('the API description is valid OpenAPI 3.1', async (t) => {
  const answer = await request(cay, '/openapi.json');
  assert.equal(answer.status, 200);
  const document = answer.json();
  assert.equal(document.openapi, '3.1.0');
  assert.equal(document.info.version, (await request(cay, '/health')).json().version);
  const dir = tempDir(t);
  writeFileSync(join(dir, 'openapi.json'), answer.raw);
  const cli = join(root, 'tests/node_modules/@redocly/cli/bin/cli.js');
  // What it would like to send home stays here: no telemetry, no look for updates.
  const env = { PATH: process.env.PATH, HOME: dir, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true', CI: '1' };
  await promisify(execFile)(process.execPath, [cli, 'lint', '--extends=spec', '--format=stylish', 'openapi.json'], {
    cwd: dir,
    env,
    timeout: 60_000,
  }).catch((error) => assert.fail(error.stdout + error.stderr));
});

test('HEAD is GET without the body', async () => {
  for (const path of ['/health', '/', '/openapi.json', '/v1/runs', '/nothing.txt', '/v1/status']) {
    const head = await request(cay, path, { method: 'HEAD', headers: { accept: 'text/event-stream' } });
    const get = await request(cay, path, path === '/v1/status' ? {} : undefined);
    assert.equal(head.status, get.status, path);
    assert.equal(head.raw.length, 0);
    if (path !== '/v1/status' && path !== '/nothing.txt')
      assert.equal(head.headers['content-length'], String(get.raw.length), path);
  }
});

test('OPTIONS names the methods, and other methods are refused with them', async () => {
  const options = await request(cay, '/v1/session', { method: 'OPTIONS' });
  assert.equal(options.status, 204);
  assert.deepEqual(options.headers.allow.split(', ').sort(), ['DELETE', 'OPTIONS', 'POST']);
  const wrong = await request(cay, '/health', { method: 'DELETE' });
  assert.equal(wrong.status, 405);
  assert.match(wrong.headers.allow, /GET/);
  assert.equal(wrong.json().error.code, 'method_not_allowed');
});

test('errors have one shape, with the id of the request', async () => {
  const answer = await request(cay, '/v1/nothing');
  assert.equal(answer.status, 404);
  const { error } = answer.json();
  assert.deepEqual(Object.keys(error), ['code', 'message', 'request_id']);
  assert.equal(error.code, 'not_found');
  assert.equal(error.request_id, answer.headers['x-request-id']);
});

test('the page: etag, gzip, caching, policy', async () => {
  const plain = await request(cay, '/');
  assert.equal(plain.status, 200);
  assert.match(plain.headers['content-type'], /^text\/html/);
  assert.match(plain.headers['content-security-policy'], /default-src 'self'/);
  assert.equal(plain.headers['cache-control'], 'no-cache');
  assert.match(plain.headers.etag, /^"[\w+/=-]+"$/);
  const again = await request(cay, '/', { headers: { 'if-none-match': `"x", ${plain.headers.etag}` } });
  assert.equal(again.status, 304);
  assert.equal(again.raw.length, 0);
  assert.equal(again.headers.etag, plain.headers.etag);
  const other = await request(cay, '/', { headers: { 'if-none-match': '"x"' } });
  assert.equal(other.status, 200);
  const script = /src="(\/assets\/[^"]+\.js)"/.exec(plain.body)[1];
  const packed = await request(cay, script, { headers: { 'accept-encoding': 'br, gzip' } });
  const unpacked = await request(cay, script);
  assert.equal(packed.headers['content-encoding'], 'gzip');
  assert.equal(packed.headers.vary, 'Accept-Encoding');
  assert.match(packed.headers['cache-control'], /immutable/);
  assert.equal(unpacked.headers['content-encoding'], undefined);
  assert.ok(packed.raw.length < unpacked.raw.length);
  assert.ok(gunzipSync(packed.raw).equals(unpacked.raw));
  for (const refused of ['gzip;q=0', 'gzip; q=0', 'gzip;q=0.0'])
    assert.equal((await request(cay, script, { headers: { 'accept-encoding': refused } })).headers['content-encoding'], undefined);
  assert.equal((await request(cay, script, { headers: { 'accept-encoding': 'gzip;q=0.5' } })).headers['content-encoding'], 'gzip');
});

test('views of the page lead to the page, files that are not there to 404', async () => {
  const page = await request(cay, '/');
  const asPage = { headers: { Accept: 'text/html,*/*;q=0.8' } };
  for (const path of ['/runs', '/nothing.js', '/chat/a/..%2F', '/%2e%2e/x', '/%zz', '/.', '/a%00b'])
    assert.equal((await request(cay, path, asPage)).body, page.body, path);
  for (const path of ['/v1/none', '/agents/none', '/assets/none.js', '/v1/none%2F..'])
    assert.equal((await request(cay, path, asPage)).status, 404, path);
  assert.equal((await request(cay, '/runs')).status, 404, 'to who does not ask for a page');
  for (const path of ['/nothing.js', '/../etc/passwd.txt', '/%2e%2e/x', '/v1/none', '/%zz', '/.'])
    assert.equal((await request(cay, path)).status, 404, path);
});

test('live status as server-sent events', async () => {
  const controller = new AbortController();
  const answer = await fetch(`${cay.url}/v1/status`, {
    headers: { accept: 'text/event-stream' },
    signal: controller.signal,
  });
  assert.equal(answer.headers.get('content-type'), 'text/event-stream');
  assert.equal(answer.headers.get('cache-control'), 'no-store');
  let text = '';
  for await (const chunk of answer.body) {
    text += Buffer.from(chunk).toString();
    if (text.split('\n\n').length > 3) break;
  }
  controller.abort();
  const events = text.split('\n\n').slice(0, 3).map((event) => {
    const [name, data] = event.split('\n');
    assert.equal(name, 'event: status');
    assert.ok(data.startsWith('data: '));
    return JSON.parse(data.slice(6));
  });
  assert.ok(events[2].uptime_ms > events[0].uptime_ms);
  assert.equal(events[0].pid, cay.pid);
  const plain = (await request(cay, '/v1/status')).json();
  assert.deepEqual(Object.keys(plain), Object.keys(events[0]));
  assert.equal(plain.data_dir, cay.dataDir);
  assert.equal(plain.model.provider, 'demo');
  assert.equal(plain.key, null);
});
