// Commands in sandboxes: answers, streams that can be taken up at any byte, input, signals, terminals.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { request as httpRequest } from 'node:http';
import { request, slow, startCay, tempDir, until, withCay } from '../lib/cay.mjs';
import { bytesOf, call, events, initsOf, make } from '../lib/sandbox.mjs';

let cay;
let box;
before(async () => {
  cay = await startCay({ config: { sandboxes: { pool: 1, output_mb: 2, execs: 40, timeout_s: 600, pids: 300 } } });
  box = await make(cay);
});
after(() => cay.stop());

const shown = ['command', 'ended_at', 'error', 'exit_code', 'id', 'oom', 'sandbox', 'signal', 'started_at', 'status', 'stderr', 'stderr_bytes', 'stdout', 'stdout_bytes', 'timed_out', 'truncated', 'usage'];

test('one answer with everything', async () => {
  const done = await box.run('echo out; echo err >&2; exit 3');
  assert.deepEqual(Object.keys(done).sort(), shown);
  assert.match(done.id, /^exec_/);
  assert.equal(done.sandbox, box.id);
  assert.equal(done.status, 'exited');
  assert.equal(done.exit_code, 3);
  assert.equal(done.signal, null);
  assert.equal(done.stdout, 'out\n');
  assert.equal(done.stderr, 'err\n');
  assert.equal(done.stdout_bytes, 4);
  assert.equal(done.truncated, false);
  assert.ok(done.usage.max_rss_bytes > 0);
  const { stdout, stderr, ...rest } = done;
  assert.deepEqual((await box.call('GET', `/execs/${done.id}`)).json, rest);
});

test('argv, cwd, env, stdin', async () => {
  assert.equal((await box.run(['printf', '%s|', 'a b', '$HOME', ''])).stdout, 'a b|$HOME||');
  assert.equal((await box.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n');
  assert.equal((await box.run('echo $A', { env: { A: 'a=b c' } })).stdout, 'a=b c\n');
  assert.equal((await box.run('cat; echo end', { stdin: 'some\0thing ü' })).stdout, 'some\0thing üend\n');
  assert.equal((await box.run('cat; echo end')).stdout, 'end\n'); // no input is an empty one
  assert.equal((await box.run('exec sh -c "kill -TERM \\$\\$"')).signal, 15);
});

test('what cannot start is said, and no exit is made up', async () => {
  const none = await box.run(['no-such-program']);
  assert.equal(none.status, 'failed');
  assert.equal(none.exit_code, null);
  assert.equal(none.error.code, 'not_found');
  const nowhere = await box.run('true', { cwd: '/nowhere' });
  assert.equal(nowhere.status, 'failed');
  assert.match(nowhere.error.message, /nowhere/);
});

test('wrong requests', async () => {
  const wrong = [{}, { command: 5 }, { command: 'x', argv: ['x'] }, { argv: [] }, { argv: [''] }, { argv: ['a', 5] }, { argv: ['a\0b'] }, { command: 'x', cwd: 5 }, { command: 'x', env: 'A' }, { command: 'x', env: { 'A=': 'b' } }, { command: 'x', stdin: 5 }, { command: 'x', tty: 1 }, { command: 'x', cols: 0 }, { command: 'x', cols: 1e6 }, { command: 'x', timeout_s: 0 }, { command: 'x', user: 'root' }, []];
  for (const body of wrong) assert.equal((await box.call('POST', '/exec', body)).status, 400, JSON.stringify(body));
  assert.equal((await box.call('POST', '/exec', { argv: Array(5000).fill('x') })).status, 400);
  assert.match((await box.call('POST', '/exec', { command: ['true'] })).json.error.message, /a list of words is "argv"/);
  assert.equal((await box.call('POST', '/exec', { command: 'x'.repeat(200_000) })).status, 413);
  const done = await box.run('true');
  for (const [method, path, body, code] of [
    ['GET', '/execs/exec_none', undefined, 404],
    ['GET', '/execs?limit=0', undefined, 400],
    ['GET', '/execs?cursor=x', undefined, 400],
    ['GET', `/execs/${done.id}/output?stdout=x`, undefined, 400],
    ['GET', `/execs/${done.id}/stdout?offset=-1`, undefined, 400],
    ['POST', `/execs/${done.id}/signal`, { signal: 'INT' }, 409],
    ['POST', `/execs/${done.id}/stdin`, 'x', 409],
    ['POST', `/execs/${done.id}/resize`, { cols: 10, rows: 10 }, 409],
    ['GET', `/execs/${done.id}/tty`, undefined, 409],
  ])
    assert.equal((await box.call(method, path, body)).status, code, `${method} ${path}`);
  const other = await make(cay);
  assert.equal((await other.call('GET', `/execs/${done.id}`)).status, 404, 'of another sandbox');
  await other.end();
});

/** Words of a shell that wait for a file, and what makes it. */
const waitFor = (path) => `until [ -e ${path} ]; do sleep 0.02; done`;
const put = async (path) => assert.equal((await box.call('PUT', `/files?path=${path}`, '')).status, 200);

test('events: started, output as it comes, exit', async () => {
  // It goes on when the first line has been seen.
  const seen = await events(cay, 'POST', `${box.at}/exec`, {
    body: { command: `echo one; ${waitFor('/tmp/seen')}; echo two >&2; printf "ü\\377"; exit 4` },
    on: (event) => void (event === 'stdout' && put('/tmp/seen')),
  });
  assert.equal(seen[0].event, 'started');
  assert.deepEqual(seen[1], { event: 'stdout', data: { offset: 0, data: 'one\n' } });
  assert.equal(seen.at(-1).event, 'exit');
  assert.equal(seen.at(-1).data.exit_code, 4);
  assert.equal(seen.at(-1).data.id, seen[0].data.id);
  const out = Buffer.concat(seen.filter((e) => e.event === 'stdout').map((e) => bytesOf(e.data)));
  assert.deepEqual(out, Buffer.concat([Buffer.from('one\nü'), Buffer.from([255])]));
  assert.equal(seen.find((e) => e.event === 'stderr').data.data, 'two\n');
});

test('a character that comes in two pieces is sent whole', async () => {
  const seen = await events(cay, 'POST', `${box.at}/exec`, { body: { command: "printf 'a\\303'; sleep 0.3; printf '\\274b'" } });
  const out = seen.filter((e) => e.event === 'stdout');
  assert.ok(out.every((e) => e.data.data !== undefined), JSON.stringify(out));
  assert.equal(out.map((e) => e.data.data).join(''), 'aüb');
});

test('in the background: 202 at once, then events from any byte', async () => {
  const run = await box.run(`${waitFor('/tmp/go')}; for i in $(seq 1 5); do echo line $i; sleep 0.05; done`, { background: true });
  assert.equal(run.status, 'running');
  assert.equal(run.exit_code, null);
  await put('/tmp/go');
  const all = await events(cay, 'GET', `${box.at}/execs/${run.id}/output`);
  const text = all.filter((e) => e.event === 'stdout').map((e) => e.data.data).join('');
  assert.equal(text, 'line 1\nline 2\nline 3\nline 4\nline 5\n');
  assert.equal(all.at(-1).event, 'exit');
  // After its end: from the middle, and from beyond the end.
  const rest = await events(cay, 'GET', `${box.at}/execs/${run.id}/output?stdout=14`);
  assert.equal(rest.filter((e) => e.event === 'stdout').map((e) => e.data.data).join(''), 'line 3\nline 4\nline 5\n');
  assert.equal(rest.find((e) => e.event === 'stdout').data.offset, 14);
  assert.deepEqual((await events(cay, 'GET', `${box.at}/execs/${run.id}/output?stdout=999999`)).map((e) => e.event), ['started', 'exit']);
  assert.equal((await box.call('GET', `/execs/${run.id}/stdout?offset=28`)).raw.toString(), 'line 5\n');
});

test('a reader that is cut off again and again misses nothing and gets nothing twice', async () => {
  // 30,000 numbered records on each stream while the reader comes and goes.
  const script = 'import sys\nfor i in range(30000):\n    print("o%07d" % i)\n    print("e%07d" % i, file=sys.stderr)\n';
  const run = await box.run(['/usr/bin/python3', '-u', '-c', script], { background: true });
  const parts = { stdout: [], stderr: [] };
  const at = { stdout: 0, stderr: 0 };
  let connections = 0;
  for (let over = false; !over; connections++) {
    assert.ok(connections < 3000);
    let left = connections < 5 ? 1 : 1 + ((connections * 7) % 13);
    await events(cay, 'GET', `${box.at}/execs/${run.id}/output?stdout=${at.stdout}&stderr=${at.stderr}`, {
      on(event, data, stop) {
        if (event === 'exit') over = true;
        if (event !== 'stdout' && event !== 'stderr') return undefined;
        assert.equal(data.offset, at[event], 'no gap, no overlap');
        const bytes = bytesOf(data);
        parts[event].push(bytes);
        at[event] += bytes.length;
        return --left === 0 ? stop : undefined;
      },
    });
  }
  assert.ok(connections > 3, String(connections));
  for (const [name, letter] of [['stdout', 'o'], ['stderr', 'e']]) {
    const want = Array.from({ length: 30000 }, (_, i) => `${letter}${String(i).padStart(7, '0')}\n`).join('');
    assert.equal(Buffer.concat(parts[name]).toString(), want);
    assert.equal((await box.call('GET', `/execs/${run.id}/${name}`)).raw.toString(), want);
  }
});

test('many readers under load all see the same bytes', async () => {
  const run = await box.run('for i in $(seq 1 40); do head -c 30000 /dev/urandom; done', { background: true });
  const hash = (list) => createHash('sha256').update(Buffer.concat(list)).digest('hex');
  const readers = await Promise.all(
    Array.from({ length: 12 }, async () => {
      const list = [];
      await events(cay, 'GET', `${box.at}/execs/${run.id}/output`, { on: (event, data) => void (event === 'stdout' && list.push(bytesOf(data))) });
      return hash(list);
    }),
  );
  const { raw } = await box.call('GET', `/execs/${run.id}/stdout`);
  assert.equal(raw.length, 1_200_000);
  assert.deepEqual([...new Set(readers)], [hash([raw])]);
});

test('a reader that does not read holds up nobody', async () => {
  const run = await box.run('head -c 1500000 /dev/zero; sleep 0.2; echo end >&2', { background: true });
  const req = httpRequest({ host: '127.0.0.1', port: cay.port, path: `${box.at}/execs/${run.id}/output`, agent: false });
  const res = await new Promise((resolve) => req.once('response', resolve).end());
  res.pause();
  const done = await until(async () => {
    const e = (await box.call('GET', `/execs/${run.id}`)).json;
    return e.status === 'exited' && e;
  });
  assert.equal(done.stdout_bytes, 1_500_000);
  req.destroy();
});

test('a gigabyte of output: bounded on the disk, counted, and the command goes on', async () => {
  const began = Date.now();
  const done = await box.run('head -c 1000000000 /dev/zero; echo after >&2; exit 7', { timeout_s: 120 });
  assert.equal(done.exit_code, 7, JSON.stringify(done).slice(0, 300));
  assert.equal(done.stderr, 'after\n');
  assert.equal(done.truncated, true);
  assert.equal(done.stdout_bytes, 1_000_000_000);
  assert.match(done.error.message, /output_mb/);
  assert.equal(done.error.code, 'limit_exceeded');
  assert.ok(done.stdout.length <= 1 << 20);
  const file = join(cay.dataDir, 'sandboxes', box.id, `${done.id}.stdout`);
  assert.equal(statSync(file).size, 2 << 20);
  assert.ok(Date.now() - began < 60_000 * slow);
  // The server is not held up meanwhile.
  const flood = await box.run('yes', { background: true });
  await until(async () => (await box.call('GET', `/execs/${flood.id}`)).json.truncated);
  const start = Date.now();
  assert.equal((await request(cay, '/health')).status, 200);
  assert.ok(Date.now() - start < 5000 * slow);
  assert.equal((await box.call('POST', `/execs/${flood.id}/signal`, { signal: 'KILL' })).status, 204);
  await until(async () => (await box.call('GET', `/execs/${flood.id}`)).json.status === 'exited');
});

test('time of one command', async () => {
  const done = await box.run('echo begun; sleep 100 & sleep 100', { timeout_s: 1 });
  assert.equal(done.timed_out, true);
  assert.equal(done.signal, 9);
  assert.equal(done.exit_code, null);
  assert.equal(done.stdout, 'begun\n');
  // Killed with it; init may take a moment to bury it.
  await until(async () => (await box.run('pgrep -c sleep || true')).stdout === '0\n', 'the end of its group');
});

test('a command does not end with the client that started it', async () => {
  const req = httpRequest({ host: '127.0.0.1', port: cay.port, path: `${box.at}/exec`, method: 'POST', agent: false });
  req.on('error', () => {});
  req.end(JSON.stringify({ command: 'echo begun > /tmp/begun; sleep 0.5; echo finished > /tmp/finished' }));
  await until(async () => (await box.call('GET', '/files?path=/tmp/begun')).status === 200);
  req.destroy();
  await until(async () => (await box.call('GET', '/files?path=/tmp/finished')).status === 200);
  let id;
  await events(cay, 'POST', `${box.at}/exec`, {
    body: { command: 'echo here; sleep 0.5; echo still' },
    on: (event, data, stop) => ((id ??= data.id), event === 'stdout' ? stop : undefined),
  });
  const rest = await events(cay, 'GET', `${box.at}/execs/${id}/output?stdout=5`);
  assert.equal(rest.find((e) => e.event === 'stdout').data.data, 'still\n');
  assert.equal(rest.at(-1).data.exit_code, 0);
});

test('input, piece by piece and large', async () => {
  const run = await box.run('cat', { stdin: true, background: true });
  assert.equal((await box.call('POST', `/execs/${run.id}/stdin`, 'one ')).status, 204);
  assert.equal((await box.call('POST', `/execs/${run.id}/stdin`, 'two')).status, 204);
  await until(async () => (await box.call('GET', `/execs/${run.id}`)).json.stdout_bytes === 7);
  assert.equal((await box.call('POST', `/execs/${run.id}/stdin?eof=1`)).status, 204);
  const seen = await events(cay, 'GET', `${box.at}/execs/${run.id}/output`);
  assert.equal(seen.at(-1).data.exit_code, 0);
  assert.equal((await box.call('GET', `/execs/${run.id}/stdout`)).raw.toString(), 'one two');

  const big = Buffer.alloc(20_000_000, 'abcdefgh');
  const sum = await box.run('sleep 0.3; md5sum', { stdin: true, background: true });
  assert.equal((await box.call('POST', `/execs/${sum.id}/stdin?eof=1`, big)).status, 204);
  const end = await events(cay, 'GET', `${box.at}/execs/${sum.id}/output`);
  assert.equal(end.find((e) => e.event === 'stdout').data.data, `${createHash('md5').update(big).digest('hex')}  -\n`);

  const closed = await box.run('sleep 5', { background: true });
  assert.equal((await box.call('POST', `/execs/${closed.id}/stdin`, 'x')).status, 409);
  assert.equal((await box.call('POST', `/execs/${closed.id}/signal`, { signal: 'KILL' })).status, 204);
  // A command that ends while it is written to.
  const early = await box.run('head -c 10; exit 2', { stdin: true, background: true });
  const answer = await box.call('POST', `/execs/${early.id}/stdin?eof=1`, big);
  assert.ok([204, 409].includes(answer.status), String(answer.status));
});

test('signals by name and number, to the group', async () => {
  for (const [signal, want] of [['INT', 2], ['SIGTERM', 15], [10, 10], ['kill', 9]]) {
    const run = await box.run('sleep 1000; true', { background: true });
    await until(async () => (await box.run('pgrep -c sleep || true')).stdout !== '0\n');
    assert.equal((await box.call('POST', `/execs/${run.id}/signal`, { signal })).status, 204);
    const done = await until(async () => {
      const e = (await box.call('GET', `/execs/${run.id}`)).json;
      return e.status === 'exited' && e;
    });
    assert.equal(done.signal, want);
    await until(async () => (await box.run('pgrep -c sleep || true')).stdout === '0\n');
  }
  const run = await box.run('sleep 1000', { background: true });
  for (const body of [{}, { signal: 'NONE' }, { signal: 0 }, { signal: 65 }, { signal: 9, group: 1 }, { signal: 9, all: true }])
    assert.equal((await box.call('POST', `/execs/${run.id}/signal`, body)).status, 400, JSON.stringify(body));
  await box.call('POST', `/execs/${run.id}/signal`, { signal: 9 });
});

test('what a command leaves running is not waited for', async () => {
  const done = await box.run(`(${waitFor('/tmp/later')}; echo late; echo alive > /tmp/left) & echo now`);
  assert.equal(done.stdout, 'now\n');
  await put('/tmp/later');
  await until(async () => (await box.call('GET', '/files?path=/tmp/left')).status === 200, 'it to write without a broken pipe');
});

test('the pipes that left processes hold are bounded', async () => {
  const other = await make(cay);
  const open = () => readdirSync(`/proc/${cay.pid}/fd`).length;
  const before = open();
  for (let i = 0; i < 150; i++) await other.run('sleep 300 & true');
  assert.ok(open() - before < 64 * 2 + 40, `${open() - before} more`);
  await other.end();
  await until(() => open() - before < 20, 'their end');
});

test('old commands are forgotten, the newest stay', async () => {
  const other = await make(cay);
  const ids = [];
  for (let i = 0; i < 45; i++) ids.push((await other.run(`printf %5000d ${i}`)).id); // more than a record takes
  let listed;
  await until(async () => {
    listed = [];
    for (let cursor = ''; cursor !== null; ) {
      const page = (await other.call('GET', `/execs?limit=30${cursor && `&cursor=${cursor}`}`)).json;
      listed.push(...page.execs.map((e) => e.id));
      cursor = page.next_cursor;
    }
    return listed.length <= 41;
  }, 'fewer commands');
  assert.ok(listed.length >= 40, String(listed.length));
  assert.deepEqual(listed, ids.toReversed().slice(0, listed.length));
  assert.ok(readdirSync(join(cay.dataDir, 'sandboxes', other.id)).length <= 41);
  await other.end();
});

// --- terminals ---

/** A terminal over a WebSocket. */
async function terminal(run, query = '') {
  const ws = new WebSocket(`ws://127.0.0.1:${cay.port}${box.at}/execs/${run.id}/tty${query}`);
  ws.binaryType = 'arraybuffer';
  const it = { ws, text: '', exit: null, code: null };
  ws.onmessage = ({ data }) => {
    if (typeof data === 'string') it.exit = JSON.parse(data);
    else it.text += Buffer.from(data).toString();
  };
  ws.onclose = ({ code }) => (it.code = code);
  await new Promise((resolve, reject) => ((ws.onopen = resolve), (ws.onerror = reject)));
  it.type = (keys) => ws.send(Buffer.from(keys));
  it.see = async (pattern) => {
    try {
      await until(() => pattern.test(it.text));
    } catch {
      assert.match(it.text, pattern);
    }
  };
  return it;
}

test('a size that is set before the terminal exists holds', { skip: process.getuid() !== 0 && 'its first process is root’s' }, async () => {
  const inits = initsOf(cay);
  assert.ok(inits.length > 0, 'its first process');
  for (const set of ['socket', 'POST']) {
    for (const pid of inits) process.kill(pid, 'SIGSTOP');
    let run;
    let tty;
    try {
      run = await box.run('read line; stty size', { tty: true, background: true });
      tty = await terminal(run);
      if (set === 'socket') tty.ws.send(JSON.stringify({ type: 'resize', cols: 123, rows: 45 }));
      else assert.equal((await box.call('POST', `/execs/${run.id}/resize`, { cols: 123, rows: 45 })).status, 204);
      await box.call('GET', `/execs/${run.id}`);
    } finally {
      for (const pid of inits) process.kill(pid, 'SIGCONT');
    }
    tty.type('\r');
    await tty.see(/45 123/);
  }
});

test('a terminal: size, line editing, Ctrl-C, the end', async () => {
  const run = await box.run(['bash', '--norc', '--noprofile', '-i'], { tty: true, background: true, cols: 90, rows: 20, env: { PS1: '$ ' } });
  const tty = await terminal(run);
  await tty.see(/\$ $/);
  tty.type('stty size\r');
  await tty.see(/20 90/);
  tty.ws.send(JSON.stringify({ type: 'resize', cols: 123, rows: 45 }));
  tty.type('stty size\r');
  await tty.see(/45 123/);
  assert.equal((await box.call('POST', `/execs/${run.id}/resize`, { cols: 77, rows: 11 })).status, 204);
  tty.type('stty size\r');
  await tty.see(/11 77/);
  tty.type('echo abX\x7fc-done\r'); // backspace
  await tty.see(/[\r\n]abc-done/);
  tty.type('echo first\r');
  await tty.see(/[\r\n]first/);
  tty.type('\x1b[A\x1b[D\x1b[D+\r'); // up, left, left: history and editing in the line
  await tty.see(/[\r\n]fir\+st/);
  tty.type("sh -c 'echo begun; exec sleep 1000'\r"); // a child of the shell's own may miss a Ctrl-C before it has become sleep
  await tty.see(/[\r\n]begun/);
  tty.type('\x03');
  await tty.see(/\^C[\s\S]*\$ $/); // its prompt: what is typed before that, the shell throws away
  tty.type('echo status=$?\r');
  await tty.see(/status=130/);
  tty.type('exit 5\r');
  await until(() => tty.exit);
  assert.equal(tty.exit.type, 'exit');
  assert.equal(tty.exit.exit_code, 5);
  await until(() => tty.code !== null);
  assert.equal(tty.code, 1000);
});

test('a full-screen program: less moves through a file', async () => {
  await box.run('seq -f "row %g of the file" 1 500 > /tmp/rows');
  const run = await box.run(['less', '/tmp/rows'], { tty: true, background: true, cols: 60, rows: 12, env: { TERM: 'xterm', LESS: '' } });
  const tty = await terminal(run);
  await tty.see(/row 11 of the file/);
  assert.doesNotMatch(tty.text, /row 12 of the file/);
  tty.type('G');
  await tty.see(/row 500 of the file/);
  tty.type('g/row 250\r');
  await tty.see(/row 250/);
  tty.type('q');
  await until(() => tty.exit);
  assert.equal(tty.exit.exit_code, 0);
});

test('a terminal that is left goes on, and is replayed to whoever comes back', async () => {
  const run = await box.run('printf ready; read x; echo "got $x"; read y; echo "and $y"', { tty: true, background: true });
  const first = await terminal(run);
  await first.see(/ready/);
  first.type('one\r');
  await first.see(/got one/);
  first.ws.close();
  await until(() => first.code !== null);
  const bytes = Buffer.byteLength(first.text);
  const second = await terminal(run);
  await second.see(/ready[^]*got one/);
  const third = await terminal(run, `?offset=${bytes}`);
  second.type('two\r');
  await Promise.all([second.see(/and two/), third.see(/and two/)]);
  assert.doesNotMatch(third.text, /ready/);
  await until(() => second.exit && third.exit);
  // Ended ones can be looked at as well.
  const last = await terminal(run);
  await until(() => last.exit);
  assert.equal(last.text, second.text);
});

test('a terminal goes on when more was shown than is kept', async () => {
  // It begins when somebody looks: what was shown before that would be cut already.
  const run = await box.run('stty -echo; echo ready; read go; head -c 3000000 /dev/zero | tr "\\0" x; read a; echo "last $a"', { tty: true, background: true });
  const first = await terminal(run);
  await first.see(/ready\r\n/);
  first.type('go\r');
  await until(() => first.text.length === 3_000_000 + 'ready\r\n'.length, 'all of it');
  first.type('words\r');
  await until(() => first.exit && /last words/.test(first.text));
  const late = await terminal(run);
  await until(() => late.exit);
  assert.ok(late.text.length < 2 << 20);
  assert.match(late.text, /last words\r\n$/);
  const seen = (await box.call('GET', `/execs/${run.id}`)).json;
  assert.equal(seen.truncated, true);
  assert.equal(seen.exit_code, 0);
  const raw = (await box.call('GET', `/execs/${run.id}/stdout`)).raw.toString();
  assert.equal(raw, late.text);
});

test('all commands of a sandbox together keep no more than that', async (t) => {
  const other = await withCay(t, { config: { sandboxes: { pool: 0, output_mb: 2, outputs_mb: 3 } } });
  const mine = await make(other);
  assert.equal((await mine.run('head -c 1900000 /dev/zero')).truncated, true); // only in this answer
  const second = await mine.run('head -c 1900000 /dev/zero; exit 5');
  assert.equal(second.exit_code, 5);
  assert.match(second.error.message, /outputs_mb/);
  assert.equal(second.stdout_bytes, 1_900_000);
  const dir = join(other.dataDir, 'sandboxes', mine.id);
  const kept = readdirSync(dir).reduce((sum, name) => sum + statSync(join(dir, name)).size, 0);
  assert.equal(kept, 3 << 20);
});

test('text that is no command closes the terminal', async () => {
  const run = await box.run('cat', { tty: true, background: true });
  for (const text of ['x', '{"type":"resize"}', '{"type":"other"}', '{"type":"resize","cols":0,"rows":5}']) {
    const tty = await terminal(run);
    tty.ws.send(text);
    await until(() => tty.code !== null);
    assert.equal(tty.code, 1003);
  }
  await box.call('POST', `/execs/${run.id}/signal`, { signal: 'KILL' });
  assert.equal((await box.call('GET', `/execs/${run.id}/tty`)).status, 400, 'without an upgrade');
});

test('the server ends with commands, readers and terminals in the middle of their work', async () => {
  const other = await startCay({ config: { sandboxes: { pool: 0 }, limits: { drain_timeout_ms: 300 } } });
  const mine = await make(other);
  const tty = await mine.run('printf here; sleep 1000', { tty: true, background: true });
  const ws = new WebSocket(`ws://127.0.0.1:${other.port}${mine.at}/execs/${tty.id}/tty`);
  await new Promise((resolve, reject) => ((ws.onmessage = resolve), (ws.onerror = reject)));
  const flood = await mine.run('yes', { background: true });
  const reader = events(other, 'GET', `${mine.at}/execs/${flood.id}/output`).catch(() => {});
  const waiting = mine.run('echo out; sleep 1000').catch(() => {});
  const upload = mine.call('PUT', '/files?path=/work/big', Buffer.alloc(30_000_000)).catch(() => {});
  const tar = mine.call('GET', '/tar?path=/usr/share').catch(() => {});
  await until(async () => (await mine.call('GET', '/execs')).json.execs.length >= 3);
  await other.halt();
  await Promise.all([reader, waiting, upload, tar]);
  const again = await startCay({ dataDir: other.dataDir });
  const { execs } = (await call(again, 'GET', `${mine.at}/execs`)).json;
  assert.ok(execs.length >= 3 && execs.every((e) => e.status === 'interrupted' && e.exit_code === null), JSON.stringify(execs));
  assert.equal((await call(again, 'GET', `${mine.at}/execs/${tty.id}/stdout`)).raw.toString(), 'here');
  await again.stop();
  other.clean();
});

test('little output is in the record, more in a file, and both outlive the server', async (t) => {
  const dataDir = tempDir(t);
  const first = await startCay({ dataDir, config: { sandboxes: { pool: 1 } } });
  const one = await make(first);
  const folder = join(first.dataDir, 'sandboxes', one.id);
  const files = () => (existsSync(folder) ? readdirSync(folder) : []);
  // One that takes longer than a moment, on a busy machine, is given files all the same.
  let short;
  for (let i = 0; i < 50 && (!short || files().includes(`${short.id}.stdout`)); i++) short = await one.run('echo out; echo err >&2');
  assert.ok(!files().includes(`${short.id}.stdout`));
  assert.deepEqual((await one.call('GET', `/execs/${short.id}`)).json.stdout_bytes, 4);
  const long = await one.run('seq 2000');
  const bytes = await one.run("printf '\\377\\0x'");
  const shape = Object.keys(short).sort();
  // What a command has said is on the disk before it ends: when it was read, or a moment later.
  const runs = (await one.call('POST', '/exec', { command: 'echo early; exec sleep 300', background: true })).json;
  await until(() => files().includes(`${runs.id}.stdout`));
  for (const kept of [long, bytes]) assert.ok(files().includes(`${kept.id}.stdout`));
  await first.kill9();
  const second = await withCay(t, { dataDir, config: { sandboxes: { pool: 1 } } });
  const raw = async (exec, stream) => Buffer.from(await (await fetch(`${second.url}/v1/sandboxes/${one.id}/execs/${exec.id}/${stream}`)).arrayBuffer()).toString('latin1');
  assert.equal(await raw(short, 'stdout'), 'out\n');
  assert.equal(await raw(short, 'stderr'), 'err\n');
  assert.equal((await raw(long, 'stdout')).length, 8893);
  assert.equal(await raw(bytes, 'stdout'), '\xff\0x');
  assert.equal(await raw(runs, 'stdout'), 'early\n');
  const again = (await call(second, 'GET', `/v1/sandboxes/${one.id}/execs/${short.id}`)).json;
  assert.deepEqual([...Object.keys(again), 'stderr', 'stdout'].sort(), shape);
});

test('what was answered is there after kill -9, however soon that comes', async (t) => {
  const dataDir = tempDir(t);
  const config = { sandboxes: { pool: 1 } };
  const told = [];
  for (let i = 0; i < 3; i++) {
    const server = await startCay({ dataDir, config });
    const one = await make(server);
    const two = await make(server);
    const done = [await two.run('echo first'), await two.run('echo second >&2; exit 3')];
    await one.end();
    await server.kill9();
    told.push({ one, two, done });
  }
  const last = await withCay(t, { dataDir, config });
  for (const { one, two, done } of told) {
    assert.equal((await call(last, 'GET', `/v1/sandboxes/${one.id}`)).json.status, 'stopped');
    assert.equal((await call(last, 'GET', `/v1/sandboxes/${two.id}`)).json.status, 'interrupted');
    for (const { stdout, stderr, ...exec } of done) {
      assert.deepEqual((await call(last, 'GET', `/v1/sandboxes/${two.id}/execs/${exec.id}`)).json, exec);
      const kept = exec.exit_code ? ['stderr', stderr] : ['stdout', stdout];
      assert.equal((await request(last, `/v1/sandboxes/${two.id}/execs/${exec.id}/${kept[0]}`)).body, kept[1]);
    }
  }
});

test('what is left behind and reads what its command said does not stop the server', { timeout: 120_000 * slow }, async () => {
  // The pipe has a second reader: what was in it when the command ended may be gone when it is read.
  const steals = '(while read line; do :; done </proc/self/fd/1) & printf %060000d 0';
  const one = await make(cay);
  const runs = [];
  for (let i = 0; i < 80; i++) {
    let over = false;
    runs.push(one.run(steals).catch(() => {}).finally(() => (over = true)));
    for (let k = 0; k < 20 && !over; k++) assert.equal((await one.get()).id, one.id);
  }
  await one.end();
  await Promise.all(runs);
});
