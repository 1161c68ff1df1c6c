// `cay exec` on the real kernel, as root and as an ordinary user: status, streams, signals, limits,
// folders, a terminal, and what is said when it cannot be.
import assert from 'node:assert/strict';
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { buildDir, isAlive, slow, tempDir, until } from '../lib/cay.mjs';
import { program as cay, startProgram as start } from '../lib/program.mjs';

const isRoot = process.getuid() === 0;
const users = isRoot ? [['as root', {}], ['as an ordinary user', { uid: 12345, gid: 12345 }]] : [['as an ordinary user', {}]];
const limit = { timeout: 60_000 * slow };
const exec = (t, args, options = {}) => start(t, ['exec', ...args], { input: '', ...options });

async function run(t, args, options) {
  const it = exec(t, args, options);
  const { code, signal } = await it.ended;
  assert.doesNotMatch(it.err, /Sanitizer|runtime error:/);
  assert.equal(signal, null);
  return { ...it, code, bytes: Buffer.concat(it.raw) };
}

/** With a terminal of its own, whose name is the first line of what it prints. */
function terminal(t, args, { cols = 100, rows = 40, ...user } = {}) {
  const words = [cay, 'exec', '-t', ...args].map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');
  const line = `tty; stty cols ${cols} rows ${rows}; ${words}; echo "status $?"; stty -a`;
  return start(t, ['-qefc', line, '/dev/null'], { command: 'script', ...user });
}

for (const [who, user] of users) {
  test(`the status of the command is the status, ${who}`, limit, async (t) => {
    const cases = [
      [['true'], 0],
      [['--', 'sh', '-c', 'exit 3'], 3],
      [['sh', '-c', 'kill -9 $$'], 137],
      [['sh', '-c', 'kill -TERM $$'], 143],
      [['nosuch-command'], 127],
      [['/work/nosuch'], 127],
      [['/etc/passwd'], 126],
      [['-w', '/nosuch', 'true'], 66],
    ];
    for (const [args, code] of cases) {
      const done = await run(t, args, user);
      assert.equal(done.code, code, `${args.join(' ')}: ${done.err}`);
    }
    assert.match((await run(t, ['nosuch-command'], user)).err, /^cay: nosuch-command: not found in the sandbox .*-v/);
    assert.match((await run(t, ['/etc/passwd'], user)).err, /^cay: \/etc\/passwd: .*cannot be executed/);
    assert.match((await run(t, ['-w', '/nosuch', 'true'], user)).err, /\/nosuch: No such file/);
  });

  test(`bytes go in and out as they are, ${who}`, limit, async (t) => {
    const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 7) % 256));
    const done = await run(t, ['cat'], { ...user, input: bytes });
    assert.ok(done.bytes.equals(bytes));
    assert.equal(done.code, 0);
    const both = await run(t, ['sh', '-c', 'echo out; echo err >&2; printf "\\033[31mred"'], user);
    assert.equal(both.out, 'out\n\x1b[31mred');
    assert.equal(both.err, 'err\n');
    const named = await run(t, ['sh', '-c', 'cat /dev/stdin > /dev/stdout; echo err > /dev/stderr'], { ...user, input: 'in' });
    assert.deepEqual([named.out, named.err, named.code], ['in', 'err\n', 0]);
    const file = join(tempDir(t), 'input');
    writeFileSync(file, bytes);
    const from = start(t, ['-c', `exec '${cay}' exec -- cat < '${file}'`], { command: 'sh', ...user });
    await from.ended;
    assert.ok(Buffer.concat(from.raw).equals(bytes), 'a file as the input');
  });

  test(`output comes as it happens, and input may wait for it, ${who}`, limit, async (t) => {
    const it = start(t, ['exec', 'sh', '-c', 'echo ready; read line; echo "got $line"; cat >/dev/null; echo end'], user);
    await until(() => it.out === 'ready\n', 'the first line');
    it.child.stdin.write('something\n');
    await until(() => it.out === 'ready\ngot something\n', 'the second line');
    it.child.stdin.end();
    assert.deepEqual(await it.ended, { code: 0, signal: null });
    assert.equal(it.out, 'ready\ngot something\nend\n');
  });

  test(`it sees nothing but what it was given, ${who}`, limit, async (t) => {
    const dir = tempDir(t);
    chmodSync(dir, 0o755);
    writeFileSync(join(dir, 'file'), 'from outside');
    mkdirSync(join(dir, 'write'));
    chmodSync(join(dir, 'write'), 0o777);
    const env = { SECRET: 'hidden', PASSED: 'shown' };
    const seen = await run(t, ['-e', 'A=1=2', '-e', 'PASSED', '-e', 'UNSET', 'env'], { ...user, env });
    assert.match(seen.out, /^A=1=2$/m);
    assert.match(seen.out, /^PASSED=shown$/m);
    assert.doesNotMatch(seen.out, /SECRET|hidden|UNSET|proxy/i);
    const files = await run(t, ['-v', `${dir}:/work/d`, '-w', '/work/d', 'sh', '-c', 'pwd; cat file; touch new'], user);
    assert.equal(files.out, '/work/d\nfrom outside');
    assert.match(files.err, /Read-only file system/);
    assert.ok(!existsSync(join(dir, 'new')));
    assert.equal((await run(t, ['test', '-e', join(dir, 'file')], user)).code, 1, 'nothing else of the machine');
    const net = await run(t, ['sh', '-c', 'cat /proc/net/dev | wc -l; ls /sys/class/net 2>&1 | wc -l'], user);
    assert.equal(net.out.split('\n')[0], '3', 'loopback only');
  });

  test(`a folder is written only when that was said, ${who}`, limit, async (t) => {
    const dir = tempDir(t);
    if (isRoot) {
      const { chownSync } = await import('node:fs');
      chownSync(dir, 12345, 12345); // root's own are never bound writable
    }
    const done = await run(t, ['-v', `${dir}:/work/d:rw`, 'sh', '-c', 'echo inside > /work/d/new'], user);
    assert.equal(done.code, 0, done.err);
    assert.equal(readFileSync(join(dir, 'new'), 'utf8'), 'inside\n');
    const places = ['-v', `${dir}:/opt/x`, '-v', `${join(dir, 'new')}:/etc/hosts`, '-v', `${join(dir, 'new')}:/srv/a/b`];
    const seen = await run(t, [...places, 'sh', '-c', 'cat /opt/x/new /etc/hosts /srv/a/b; echo tmp > /var/tmp/x'], user);
    assert.deepEqual([seen.code, seen.out], [0, 'inside\n'.repeat(3)], seen.err);
    const hides = await run(t, ['-v', `${dir}:/`, 'true'], user);
    assert.equal(hides.code, 2);
    assert.match(hides.err, /would hide the system.*--root/);
    assert.match((await run(t, ['-v', '/dev/null:/work/x', 'true'], user)).err, /neither a folder nor a file/);
    for (const place of ['/usr/x', '/usr/bin', '/etc', '/proc', '/proc/self', '/dev', '/sys']) {
      const refused = await run(t, ['-v', `${dir}:${place}`, 'true'], user);
      assert.deepEqual([refused.code, refused.err.includes(`'${place}' would hide a part of the system`)], [2, true], refused.err);
    }
  });

  test(`limits: time and memory, ${who}`, limit, async (t) => {
    const begun = Date.now();
    const late = await run(t, ['--timeout', '400ms', 'sh', '-c', 'trap "" TERM INT; while :; do sleep 1; done'], user);
    assert.equal(late.code, 124);
    assert.match(late.err, /longer than 0\.4 s \(--timeout\)/);
    assert.ok(Date.now() - begun < 20_000 * slow);
    const quiet = await run(t, ['-q', '--timeout', '300ms', 'sleep', '60'], user);
    assert.deepEqual([quiet.code, quiet.err], [124, '']);
    const eater = 'import sys\nx=[]\nfor i in range(400): x.append(bytearray(1<<20))\nprint("ate it all")';
    const ate = await run(t, ['-m', '100m', 'python3', '-c', eater], user);
    assert.notEqual(ate.code, 0);
    assert.equal(ate.out, '');
    const keeper = 'import os,time\nfd=os.memfd_create("x")\nfor i in range(400): os.write(fd, bytes(1<<20))\ntime.sleep(3)\nprint("kept it all")';
    const kept = await run(t, ['-m', '100m', 'python3', '-c', keeper], user);
    assert.deepEqual([kept.code, kept.out], [137, '']);
    assert.match(kept.err, /ran out of memory: it has 100 MiB/);
  });

  test(`it is said when memory is watched and not enforced, ${who}`, limit, async (t) => {
    const doctor = start(t, ['doctor', '--json'], { input: '', ...user });
    await doctor.ended;
    const { detail } = JSON.parse(doctor.out).find((feature) => feature.name === 'sandboxes');
    const watched = detail.includes('memory is watched');
    assert.match(detail, watched ? /not enforced/ : /memory.* enforced by cgroups/);
    const remark = /--memory is watched, not enforced/;
    assert.equal(remark.test((await run(t, ['-m', '100m', 'true'], user)).err), watched);
    assert.equal((await run(t, ['true'], user)).err, '');
    assert.equal((await run(t, ['-q', '-m', '100m', 'true'], user)).err, '');
    const record = JSON.parse((await run(t, ['-o', 'json', '-m', '100m', 'true'], user)).out);
    assert.equal(record.memory_limit, watched ? 'watched' : 'enforced');
  });

  test(`signals reach the command, and the third Ctrl-C ends it, ${who}`, limit, async (t) => {
    const trapping = exec(t, ['sh', '-c', 'trap "echo caught; exit 9" INT; echo ready; while :; do sleep 0.05; done'], user);
    await until(() => trapping.out.includes('ready'), 'the command');
    trapping.child.kill('SIGINT');
    assert.deepEqual(await trapping.ended, { code: 9, signal: null });
    assert.match(trapping.out, /caught/);
    const plain = exec(t, ['sh', '-c', 'echo ready; sleep 60'], user);
    await until(() => plain.out.includes('ready'), 'the command');
    plain.child.kill('SIGTERM');
    assert.deepEqual(await plain.ended, { code: 143, signal: null });
    const deaf = exec(t, ['sh', '-c', 'trap "" INT; trap "echo alive" USR1; echo ready; while :; do sleep 0.05; done'], user);
    await until(() => deaf.out.includes('ready'), 'the command');
    for (let i = 1; i < 3; i++) {
      deaf.child.kill('SIGINT');
      deaf.child.kill('SIGUSR1');
      await until(() => deaf.out.split('alive').length > i, 'it to go on');
    }
    deaf.child.kill('SIGINT');
    assert.deepEqual(await deaf.ended, { code: 130, signal: null });
  });

  test(`a reader that has enough ends it, ${who}`, limit, async (t) => {
    const it = start(t, ['-c', `{ '${cay}' exec yes; echo "status $?" >&2; } | head -2`], { command: 'sh', input: '', ...user });
    await it.ended;
    assert.equal(it.out, 'y\ny\n');
    assert.equal(it.err, 'status 141\n');
  });

  test(`one JSON object instead of the output, ${who}`, limit, async (t) => {
    const done = await run(t, ['-o', 'json', 'sh', '-c', 'echo out; echo err >&2; exit 4'], user);
    assert.equal(done.code, 4);
    const record = JSON.parse(done.out);
    assert.deepEqual(
      { ...record, duration_ms: 0, usage: 0 },
      {
        exit_code: 4,
        signal: null,
        status: 4,
        timed_out: false,
        oom: false,
        memory_limit: record.memory_limit,
        stdout: 'out\n',
        stderr: 'err\n',
        stdout_bytes: 4,
        stderr_bytes: 4,
        truncated: false,
        duration_ms: 0,
        usage: 0,
        error: null,
      },
    );
    const killed = JSON.parse((await run(t, ['-o', 'json', 'sh', '-c', 'printf "\\377"; kill -9 $$'], user)).out);
    assert.deepEqual([killed.exit_code, killed.signal, killed.stdout_base64], [null, 'KILL', '/w==']);
    const none = await run(t, ['-o', 'json', 'nosuch'], user);
    assert.equal(none.code, 127);
    assert.match(JSON.parse(none.out).error, /not found/);
    for (const time of ['200ms', '1ms']) {
      // The second is over before there is a sandbox.
      const late = JSON.parse((await run(t, ['-o', 'json', '--timeout', time, 'sleep', '60'], user)).out);
      assert.deepEqual([late.exit_code, late.timed_out, late.status, late.error], [null, true, 124, null]);
    }
  });

  test(`a terminal: size, keys, a change of size, and our own put back, ${who}`, limit, async (t) => {
    const script = `stty size; trap 'echo interrupted' INT
      while :; do read -r line || continue; case $line in quit) exit 5;; size) stty size;; *) echo "<$line>";; esac; done`;
    const it = terminal(t, ['bash', '-c', script], user);
    await until(() => /40 100/.test(it.out), `the size: ${it.out}`);
    const pts = /^(\/dev\/pts\/\d+)/.exec(it.out)[1];
    it.child.stdin.write('hello\r');
    await until(() => it.out.includes('<hello>'), 'the echo');
    it.child.stdin.write('\x03');
    await until(() => it.out.includes('interrupted'), 'Ctrl-C as a key');
    const resized = start(t, ['-F', pts, 'cols', '90', 'rows', '30'], { command: 'stty', ...user });
    assert.equal((await resized.ended).code, 0, resized.err);
    await until(() => {
      it.child.stdin.write('size\r');
      return it.out.includes('30 90');
    }, 'the new size');
    it.child.stdin.write('quit\r');
    await it.ended;
    assert.match(it.out, /status 5\r?\n/);
    const after = it.out.slice(it.out.indexOf('status 5'));
    assert.match(after, /[^-]icanon/, 'our terminal is as it was');
    assert.match(after, /[^-]echo /);
  });
}

for (const [who, user] of users) {
  test(`it reaches the hosts that are named and no others, ${who}`, limit, async (t) => {
    const server = createServer((req, res) => res.end(`upstream heard ${req.url}`));
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    t.after(() => server.close());
    const at = `localhost:${server.address().port}`;
    const ask = (...net) => run(t, [...net, 'curl', '-sS', '-m', '10', '-p', '--noproxy', '', `http://${at}/x`], user);
    const named = await ask('--net', `tcp://${at}`);
    assert.deepEqual([named.code, named.out, named.err], [0, 'upstream heard /x', '']);
    const address = await run(
      t,
      ['--net', `example.com,tcp://127.0.0.1:${server.address().port}`, 'curl', '-sS', '-p', '--noproxy', '', `http://127.0.0.1:${server.address().port}/y`],
      user,
    );
    assert.equal(address.out, 'upstream heard /y', address.err);
    const plain = await run(t, ['--net', `tcp://${at}`, 'curl', '-sS', '-m', '10', '-p', `http://${at}/z`], user);
    assert.equal(plain.out, 'upstream heard /z', plain.err);
    const cut = await run(t, ['--net', at, 'curl', '-sS', '-m', '10', '-p', `http://${at}/z`], user);
    assert.equal(cut.out, '');
    assert.match(cut.err, new RegExp(`^cay: cut: ${at}: what is spoken inside is not TLS`, 'm'));
    const other = await ask('--net', 'example.com');
    assert.notEqual(other.code, 0);
    assert.equal(other.out, '');
    assert.match(other.err, new RegExp(`^cay: refused: ${at} is not in --net$`, 'm'));
    const quiet = await ask('-q', '--net', 'example.com');
    assert.doesNotMatch(quiet.err, /cay:/);
    const none = await ask();
    assert.notEqual(none.code, 0, 'without --net there is no way out');
    assert.match(none.err, /connect/i);
  });
}

test('Ctrl-C at a terminal is for the command, not for the programs that hold it', limit, async (t) => {
  const script = 'trap "echo caught; exit 9" INT; echo ready; while :; do sleep 0.05; done';
  const line = `trap : INT; '${cay}' exec sh -c '${script}'; echo "status $?"`;
  const it = start(t, ['-qefc', line, '/dev/null'], { command: 'script' });
  await until(() => it.out.includes('ready'), 'the command');
  it.child.stdin.write('\x03');
  await it.ended;
  assert.match(it.out, /caught\r\nstatus 9/);
});

test('nothing is left behind, also when cay is killed', limit, async (t) => {
  const children = (pid) => {
    try {
      return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
    } catch {
      return [];
    }
  };
  const it = exec(t, ['sh', '-c', 'echo ready; sleep 1000 & sleep 1000']);
  await until(() => it.out.includes('ready'), 'the command');
  const below = children(it.child.pid);
  const all = [...below, ...below.flatMap(children)];
  assert.ok(all.length >= 2, 'the launcher and its sandbox');
  it.child.kill('SIGKILL');
  await until(() => !all.some(isAlive), 'their end');
});

test('what cannot be done is said, with what to do next', limit, async (t) => {
  const dir = tempDir(t);
  symlinkSync(cay, join(dir, 'link'));
  const wrong = [
    [[], 2, /say which command to run/],
    [['--nosuch', 'true'], 2, /`cay exec --help`/],
    [['-v', 'nocolon', 'true'], 2, /HOSTPATH:GUESTPATH/],
    [['-v', '/tmp:relative', 'true'], 2, /HOSTPATH:GUESTPATH/],
    [['-v', '/nosuch:/work/x', 'true'], 74, /\/nosuch: No such file/],
    [['-v', '/tmp:/etc/../x', 'true'], null, /./],
    [['-e', '=x', 'true'], 2, /NAME=VALUE/],
    [['-m', '1k', 'true'], 2, /at least 16m/],
    [['--timeout', 'soon', 'true'], 2, /10s/],
    [['-o', 'xml', 'true'], 2, /json/],
    [['-o', 'json', '-t', 'true'], 2, /do not go together/],
    [['--net', 'user@host', 'true'], 2, /--net/],
    [['--root', '/nosuch', 'true'], 74, /--root \/nosuch/],
    [['--root', 'nosuch', 'true'], 2, /cay\.json has no root "nosuch"/],
  ];
  for (const [args, code, text] of wrong) {
    const done = await run(t, args);
    if (code === null) assert.notEqual(done.code, 0, args.join(' '));
    else assert.equal(done.code, code, `${args.join(' ')}: ${done.err}`);
    assert.match(done.err, text, args.join(' '));
  }
  // A copy of cay alone has no cay-sandbox beside it.
  const { copyFileSync } = await import('node:fs');
  copyFileSync(cay, join(dir, 'cay'));
  chmodSync(join(dir, 'cay'), 0o755);
  const alone = start(t, ['exec', 'true'], { command: join(dir, 'cay'), input: '' });
  assert.equal((await alone.ended).code, 69);
  assert.match(alone.err, /cay-sandbox is missing beside cay \(run `make`/);
});

test('without user namespaces it says so', { ...limit, skip: !isRoot && 'only root can take them away' }, async (t) => {
  // A user namespace of our own, in which no further ones may be made.
  const line = `echo 0 > /proc/sys/user/max_user_namespaces && exec '${cay}' exec true`;
  const it = start(t, ['--user', '--map-root-user', 'sh', '-c', `${line}`], {
    command: 'unshare',
    input: '',
    uid: 12345,
    gid: 12345,
  });
  const { code } = await it.ended;
  assert.equal(code, 69, it.err);
  assert.match(it.err, /sandboxes cannot be made on this machine: .*namespace/);
  assert.match(it.err, /cay doctor/);
});

test('another system as the root: a folder, and an archive that is unpacked once', limit, async (t) => {
  const dir = tempDir(t);
  const root = join(dir, 'root');
  for (const name of ['bin', 'etc']) mkdirSync(join(root, name), { recursive: true });
  const busybox = ['/bin/busybox', '/usr/bin/busybox'].find((path) => existsSync(path));
  const { copyFileSync } = await import('node:fs');
  if (busybox) {
    copyFileSync(busybox, join(root, 'bin/sh'));
  } else {
    // A static program is needed; cay-sandbox is one, and says so.
    copyFileSync(join(buildDir, 'cay-sandbox'), join(root, 'bin/sh'));
  }
  chmodSync(join(root, 'bin/sh'), 0o755);
  writeFileSync(join(root, 'etc/mark'), 'of the root');
  const cache = { HOME: dir, XDG_CACHE_HOME: join(dir, 'cache') };
  const user = isRoot ? { uid: 12345, gid: 12345 } : {};
  mkdirSync(cache.XDG_CACHE_HOME);
  chmodSync(cache.XDG_CACHE_HOME, 0o777);
  const folder = await run(t, ['--root', root, 'ls'], { ...user, env: cache });
  assert.equal(folder.code, 127, 'there is no ls in it');
  assert.match(folder.err, /it has the --root/);
  const shell = await run(t, ['--root', root, '/bin/sh', '-c', 'true'], { ...user, env: cache });
  assert.notEqual(shell.code, 127, shell.err);
  writeFileSync(join(dir, 'cay.json'), JSON.stringify({ sandboxes: { roots: { other: root } } }));
  const named = await run(t, ['--root', 'other', '--config', 'cay.json', '/bin/sh', '-c', 'true'], { ...user, env: cache, cwd: dir });
  assert.equal(named.code, shell.code, named.err);
  const strange = await run(t, ['--root', 'other', '/bin/sh', '-c', 'true'], { ...user, env: cache, cwd: dir });
  assert.equal(strange.code, 2, 'a folder that may be anybody\'s does not say what a root is');
  assert.match(strange.err, /\.\/cay\.json is not read by `cay exec`/);
  const tar = start(t, ['-C', root, '-cf', join(dir, 'root.tar'), '.'], { command: 'tar', input: '' });
  assert.equal((await tar.ended).code, 0);
  for (let i = 0; i < 2; i++) {
    const archive = await run(t, ['--root', join(dir, 'root.tar'), '/bin/sh', '-c', 'true'], { ...user, env: cache });
    assert.equal(archive.code, shell.code, archive.err);
    assert.equal(readdirSync(join(cache.XDG_CACHE_HOME, 'cay/roots')).length, 1);
  }
});
