// A service manager starts the server: notifications, the watchdog, sockets that it hands over.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { buildDir, procText, request, root, tempDir, until } from '../lib/cay.mjs';

/** The server below tests/lib/manager.py: what the manager saw is in `lines()`. */
function managed(t, mode, { env = {}, args = [] } = {}) {
  const child = spawn('python3', [join(root, 'tests/lib/manager.py'), mode, join(buildDir, 'cay'), 'serve', '--data-dir', tempDir(t), ...args], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const it = { out: '', err: '', over: false };
  child.stdout.on('data', (d) => (it.out += d));
  child.stderr.on('data', (d) => (it.err += d));
  it.lines = (word) => [...it.out.matchAll(new RegExp(`^${word} ?(.*)$`, 'gm'))].map((m) => m[1]);
  it.see = (word, what) => until(() => it.lines(word).find((l) => l.includes(what)) ?? (it.over && assert.fail(it.out + it.err)), `${word} ${what}`);
  it.signal = (name) => child.kill(name);
  // Not before all that it said has been read.
  it.ended = new Promise((resolve) => child.once('close', () => resolve((it.over = true))));
  t.after(async () => {
    child.kill('SIGTERM');
    await it.ended;
  });
  return it;
}

test('it says when it is ready, reloads and stops, and lives in between', async (t) => {
  const it = managed(t, 'notify', { env: { WATCHDOG_MS: '300' }, args: ['--listen', '127.0.0.1:0'] });
  await it.see('NOTE', 'READY=1');
  const url = await until(() => /listening {2}http:\/\/127\.0\.0\.1:(\d+)/.exec(it.out)?.[1], 'the address');
  assert.equal((await request({ port: Number(url) }, '/health')).status, 200); // ready means ready
  await until(() => it.lines('NOTE').filter((l) => l === 'WATCHDOG=1').length >= 3, 'signs of life');
  it.signal('SIGHUP');
  await it.see('NOTE', 'RELOADING=1');
  await until(() => it.lines('NOTE').filter((l) => l === 'READY=1').length === 2, 'ready again');
  it.signal('SIGTERM');
  await it.see('NOTE', 'STOPPING=1');
  await it.see('END', '0');
});

test('it takes the socket that it is handed, and leaves the others', async (t) => {
  const it = managed(t, 'notify,listen', { args: ['--listen', '127.0.0.1:1'] });
  await it.see('NOTE', 'READY=1');
  const port = Number(it.lines('PORT')[0]);
  assert.match(it.out, new RegExp(`listening {2}http://127\\.0\\.0\\.1:${port}\n`));
  assert.equal((await request({ port }, '/health')).status, 200);
  it.signal('SIGTERM');
  await it.see('END', '0');
});

test('the path of a socket that it was handed stays', async (t) => {
  const it = managed(t, 'notify,unix');
  await it.see('NOTE', 'READY=1');
  const path = it.lines('PATH')[0];
  assert.equal((await request({}, '/health', { socketPath: path })).status, 200);
  it.signal('SIGTERM');
  await it.see('END', '0');
  assert.deepEqual(it.lines('LEFT'), ['True']);
});

test('a descriptor that nobody can listen on is refused, with what to do', async (t) => {
  const it = managed(t, 'datagram');
  await it.see('END', '');
  await it.ended;
  assert.match(it.err, /descriptor 3 of the service manager is no listening stream socket: use ListenStream= in its socket unit/);
});

test('what is meant for another process is left alone, and no child sees any of it', async (t) => {
  const it = managed(t, 'notify', { env: { LISTEN_FDS: '1', LISTEN_PID: '1', WATCHDOG_USEC: '1000', WATCHDOG_PID: '1' }, args: ['--listen', '127.0.0.1:0'] });
  await it.see('NOTE', 'READY=1');
  const port = Number(/http:\/\/127\.0\.0\.1:(\d+)/.exec(it.out)[1]);
  const { children } = (await request({ port }, '/v1/status')).json();
  assert.ok(children.length > 0);
  for (const { pid } of children) assert.doesNotMatch(procText(pid, 'environ'), /NOTIFY_SOCKET|LISTEN_/);
  assert.deepEqual(it.lines('NOTE'), ['READY=1']);
});
