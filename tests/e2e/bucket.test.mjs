// Copies of artifacts in an S3 bucket, on a server that checks signatures.
import assert from 'node:assert/strict';
import { createServer, request as httpRequest } from 'node:http';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { request, runCay, startCay, tempDir, until, withCay } from '../lib/cay.mjs';
import { KEY, missing, startS3 } from '../lib/s3.mjs';

const env = { AWS_ACCESS_KEY_ID: KEY, AWS_SECRET_ACCESS_KEY: KEY };
const config = (url, more = {}) => ({ store: { bucket: { url }, ...more } });

/** A job with an artifact of its own: the artifact's hash. */
async function leave(cay, text, times = 1) {
  const got = await request(cay, '/v1/code', { method: 'POST', body: JSON.stringify({ command: `for i in $(seq ${times}); do echo "${text} $i"; done > made` }) });
  const { id } = got.json();
  const [artifact] = (await request(cay, `/v1/runs/${id}/artifacts`)).json().artifacts;
  return { id, hash: artifact.sha256 ?? artifact.hash, bytes: artifact.bytes };
}
const metric = async (cay, name) => Number(new RegExp(`^cay_bucket_${name} (\\d+)$`, 'm').exec((await request(cay, '/metrics')).body)?.[1]);
const quiet = (cay) => until(async () => (await metric(cay, 'waiting')) === 0, 'all to be sent');

/** Its port, and what it does with each connection: a server that is cut off in the middle. */
async function startProxy(t, target, onData) {
  const { createServer: listen, connect } = await import('node:net');
  const server = listen((a) => {
    const b = connect(target, '127.0.0.1');
    a.on('error', () => b.destroy()).on('close', () => b.destroy());
    b.on('error', () => a.destroy()).on('close', () => a.destroy());
    a.on('data', (d) => onData(d, () => b.write(d), a));
    b.pipe(a);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const sockets = new Set();
  server.on('connection', (s) => sockets.add(s));
  t.after(() => { server.close(); for (const s of sockets) s.destroy(); });
  return server.address().port;
}

test('artifacts are sent, once each, and removed there when their records go', { skip: missing }, async (t) => {
  const s3 = await startS3(tempDir(t));
  t.after(() => s3.stop());
  const cay = await withCay(t, { config: config(`${s3.url}/of/this/server`, { keep_runs: 1000 }), env });
  const [a, b, again] = [await leave(cay, 'one'), await leave(cay, 'two', 40_000), await leave(cay, 'one')];
  assert.equal(a.hash, again.hash);
  assert.ok(b.bytes > 300_000);
  await quiet(cay);
  assert.deepEqual(s3.objects(), [a.hash, b.hash].sort());
  assert.deepEqual(s3.hashes(), s3.objects(), 'as they are called');
  assert.equal(await metric(cay, 'sent_total'), 2);
  assert.equal(await metric(cay, 'failures_total'), 0);
  const pruned = await runCay(['prune', '--keep-runs', '1', '--data-dir', cay.dataDir, '--config', join(cay.dir, 'cay.json')]);
  assert.equal(pruned.code, 0, pruned.stderr);
  await until(() => s3.objects().length === 1, 'the removal');
  assert.deepEqual(s3.objects(), [a.hash], 'what another job has stays');
  assert.equal((await request(cay, `/v1/runs/${again.id}/artifacts/changes.diff`)).status, 200);
  await until(async () => (await metric(cay, 'waiting')) === 0, 'nothing to be left');
  const back = await leave(cay, 'two', 40_000);
  await quiet(cay);
  assert.deepEqual(s3.objects(), [a.hash, back.hash].sort(), 'one that comes again is sent again');
});

test('a wrong secret, a bucket that is gone, a server that is down: said, and made good afterwards', { skip: missing }, async (t) => {
  const directory = tempDir(t);
  let s3 = await startS3(directory);
  const { port } = s3;
  t.after(() => s3.stop());
  const dataDir = join(tempDir(t), 'data');
  let cay = await startCay({ dataDir, config: config(s3.url), env: { ...env, AWS_SECRET_ACCESS_KEY: 'wrong' } });
  const a = await leave(cay, 'first');
  await until(() => cay.stderr().includes('SignatureDoesNotMatch'), 'the refusal');
  assert.match(cay.stderr(), /bucket\.failed.*403 SignatureDoesNotMatch: look at AWS_ACCESS_KEY_ID/);
  assert.ok(!cay.stderr().includes('wrong'), 'the secret is not shown');
  assert.equal(await metric(cay, 'up'), 0);
  assert.deepEqual(s3.objects(), []);
  await cay.stop();

  cay = await startCay({ dataDir, config: config(`http://127.0.0.1:${port}/nowhere`), env });
  await until(() => cay.stderr().includes('NoSuchBucket'), 'the other refusal');
  assert.match(cay.stderr(), /404 NoSuchBucket: there is no such bucket/);
  await cay.stop();

  await s3.stop();
  cay = await startCay({ dataDir, config: config(s3.url), env });
  try {
    const b = await leave(cay, 'second');
    await until(async () => (await metric(cay, 'failures_total')) > 0, 'a failure');
    assert.equal((await request(cay, `/v1/runs/${b.id}/artifacts/changes.diff`)).status, 200, 'the local one is there');
    assert.equal(await metric(cay, 'waiting'), 2);
    s3 = await startS3(directory, { port });
    await quiet(cay);
    assert.deepEqual(s3.objects(), [a.hash, b.hash].sort());
    assert.equal(await metric(cay, 'up'), 1);
  } finally {
    await cay.stop();
  }
});

test('one whose end could not be noted is sent once more', { skip: missing }, async (t) => {
  const s3 = await startS3(tempDir(t));
  t.after(() => s3.stop());
  const cay = await withCay(t, { config: config(s3.url), env });
  const made = [];
  for (const text of ['one', 'two', 'three']) made.push(await leave(cay, text));
  await quiet(cay);
  const sent = await metric(cay, 'sent_total');
  // What a write that fails leaves: it is said to be on its way, and is not.
  const db = new DatabaseSync(join(cay.dataDir, 'cay.db'), { timeout: 5000 });
  db.exec('UPDATE blobs SET stored = 3 WHERE stored = 1');
  db.close();
  await until(async () => (await metric(cay, 'sent_total')) === sent + made.length, 'the others to be sent');
  await quiet(cay);
  assert.deepEqual(s3.hashes(), made.map((m) => m.hash).sort());
});

test('kill -9 in the middle of a transfer: it is sent again, and is whole', { skip: missing }, async (t) => {
  const directory = tempDir(t);
  const s3 = await startS3(directory);
  t.after(() => s3.stop());
  const dataDir = join(tempDir(t), 'data');
  let held = 0;
  let open = false;
  const port = await startProxy(t, s3.port, (data, pass) => {
    held += data.length;
    if (open || held < 100_000) pass(); // the rest waits for ever
  });
  const url = `http://127.0.0.1:${port}/cay`;
  let cay = await startCay({ dataDir, config: config(url), env });
  const { hash } = await leave(cay, 'much', 60_000);
  await until(() => held >= 100_000, 'the middle');
  await cay.kill9();
  assert.notDeepEqual(s3.hashes(), [hash]); // this server keeps the half that it got; Amazon's keeps nothing
  open = true;
  cay = await startCay({ dataDir, config: config(url), env });
  try {
    await quiet(cay);
    assert.deepEqual(s3.objects(), [hash]);
    assert.deepEqual(s3.hashes(), [hash]);
  } finally {
    await cay.stop();
  }
});

test('what is lost or damaged here is got from there, whole or not at all', { skip: missing }, async (t) => {
  const s3 = await startS3(tempDir(t));
  t.after(() => s3.stop());
  const dataDir = join(tempDir(t), 'data');
  const cay = await withCay(t, { dataDir, config: config(s3.url), env });
  const a = await leave(cay, 'one', 30_000);
  await quiet(cay);
  const file = (hash) => join(dataDir, 'artifacts', hash.slice(0, 2), hash);
  const read = (run) => request(cay, `/v1/runs/${run.id}/artifacts/changes.diff`);
  const sha = (answer) => createHash('sha256').update(answer.raw).digest('hex');

  rmSync(file(a.hash));
  for (const answer of await Promise.all([read(a), read(a), read(a)])) assert.deepEqual([answer.status, sha(answer)], [200, a.hash]);
  assert.ok(existsSync(file(a.hash)), 'it is here again');
  assert.ok((await metric(cay, 'recalled_total')) >= 1);

  const whole = readFileSync(file(a.hash));
  writeFileSync(file(a.hash), Buffer.concat([whole.subarray(0, 99), Buffer.from([whole[99] ^ 1]), whole.subarray(100)]));
  await assert.rejects(read(a), 'half of it is not an answer');
  const mended = await read(a);
  assert.deepEqual([mended.status, sha(mended)], [200, a.hash]);

  // One that lies: the file stays away, and that is said.
  rmSync(file(a.hash));
  s3.damage(a.hash);
  const lied = await read(a);
  assert.equal(lied.status, 500);
  assert.match(lied.json().error.message, /not what was put there/);
  assert.ok(!existsSync(file(a.hash)));
  s3.remove(a.hash);
  assert.match((await read(a)).json().error.message, /404: it has no copy/);
  await s3.stop();
  assert.match((await read(a)).json().error.message, /its copy cannot be got/);
  assert.deepEqual(readdirSync(join(dataDir, 'artifacts')).filter((n) => n.startsWith('new')), [], 'nothing half is left');
});

test('where it is not right it is not begun with, and without keys that is said', async (t) => {
  for (const bucket of [5, {}, { url: 'ftp://x/y' }, { url: 'https://x' }, { url: 'https://x/' }, { url: 'https://x/a b' }, { url: 'https://x/a?b' }, { url: 'https://u@x/a' }, { url: 'https://x/a', region: 'EU West' }, { url: 'https://x/../a' }, { url: 'https://x/a', more: 1 }])
    await assert.rejects(startCay({ config: { store: { bucket } } }), /bucket/, JSON.stringify(bucket));
  const cay = await withCay(t, { config: config('https://127.0.0.1:1/x') });
  await until(() => cay.stderr().includes('AWS_SECRET_ACCESS_KEY'), 'the word about the key');
  assert.equal((await request(cay, '/metrics')).body.includes('cay_bucket'), false);
});

test('a server that never ends its answer holds nobody up', async (t) => {
  const server = createServer((req, res) => {
    req.resume();
    res.writeHead(500);
    const timer = setInterval(() => res.write('x'.repeat(65536)), 5);
    res.on('close', () => clearInterval(timer));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => { server.closeAllConnections(); server.close(); });
  const cay = await withCay(t, { config: config(`http://127.0.0.1:${server.address().port}/x`), env });
  await leave(cay, 'x');
  await until(async () => (await metric(cay, 'failures_total')) > 0, 'a failure');
  assert.equal((await request(cay, '/health')).status, 200);
});

test('who does not wait for what comes from there leaves nothing behind, nor does a server that stops', async (t) => {
  let asked = 0;
  const server = createServer((req, res) => {
    req.resume().on('end', () => {
      if (req.method !== 'GET') return res.end();
      asked++;
      res.writeHead(200);
      return res.write('half'); // and no more
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => { server.closeAllConnections(); server.close(); });
  const dataDir = join(tempDir(t), 'data');
  const cay = await startCay({ dataDir, config: { limits: { drain_timeout_ms: 300 }, ...config(`http://127.0.0.1:${server.address().port}/x`) }, env });
  try {
    const { id, hash } = await leave(cay, 'x');
    await quiet(cay);
    rmSync(join(dataDir, 'artifacts', hash.slice(0, 2), hash));
    const ask = () => {
      const req = httpRequest({ host: '127.0.0.1', port: cay.port, path: `/v1/runs/${id}/artifacts/changes.diff` });
      req.on('error', () => {}).end();
      return req;
    };
    const half = () => readdirSync(join(dataDir, 'artifacts')).filter((n) => n.startsWith('new')).length;
    const many = Array.from({ length: 20 }, ask);
    await until(() => asked > 0 && half() === 16, 'as many as may be got at a time');
    for (const one of many) one.socket.resetAndDestroy();
    await until(() => half() === 0, 'nothing half is left');
    ask();
    await until(() => half() === 1, 'another');
  } finally {
    await cay.stop();
  }
  assert.deepEqual(readdirSync(join(dataDir, 'artifacts')).filter((n) => n.startsWith('new')), []);
});
