// What cay does on a stock Debian, over ssh: CAY_VM_SSH is the command that reaches it, CAY_VM_RELEASE what it is. The
// machine is slow, so nothing here is about time; it waits for what has to come.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';

const ssh = process.env.CAY_VM_SSH.split(' ');
const release = process.env.CAY_VM_RELEASE;

const quote = (text) => `'${text.replaceAll("'", `'"'"'`)}'`;

// A login session of its own for each call: what came of it, { code, out, err }.
function session(user, script) {
  return new Promise((resolve) => {
    const child = execFile(ssh[0], [...ssh.slice(1), `${user}@127.0.0.1`, `bash -c ${quote(script)}`], { maxBuffer: 64 << 20 }, (e, out, err) => {
      resolve({ code: e ? e.code : 0, out, err });
    });
    child.stdin.end();
  });
}

async function ok(user, script) {
  const r = await session(user, script);
  assert.equal(r.code, 0, `${user}: ${script}\n${r.code}\n${r.out}${r.err}`);
  return r.out.trim();
}

const json = async (user, script) => JSON.parse(await ok(user, script));

// Functions for scripts inside. `status` prints when the launcher has answered; `left` what of cay is there: processes,
// groups (not the unit's own), mounts and scopes.
const lib = `
api() { curl -sS -H 'content-type: application/json' -H 'host: localhost' "http://127.0.0.1:\${port:-8787}$@"; }
status() {
  for i in $(seq 300); do
    s=$(api /v1/status 2>/dev/null) && [ "$(echo "$s" | field sandboxes cgroups)$(echo "$s" | field sandboxes available)" != NoneTrue ] && { echo "$s"; return; }
    sleep 0.2
  done
  echo "no answer from the server" >&2; return 1
}
field() { python3 -c 'import json,sys
d = json.load(sys.stdin)
for k in sys.argv[1:]: d = d[k]
print(d)' "$@"; }
left() {
  ps -eo comm= | grep '^cay' | sort
  find /sys/fs/cgroup -mindepth 1 -type d \\( -name 'cay.[0-9]*' -o -name cay-main -o -name 'cay-*.scope' \\) -printf '%f\\n'
  grep -c . /proc/1/mountinfo
}
# Waits until there is what there was.
same() { for i in $(seq 150); do [ "$(left)" = "$1" ] && return; sleep 0.2; done; echo "left behind:" >&2; left >&2; return 1; }
group() { cat /proc/self/cgroup; }
`;
const inside = (user, script) => ok(user, `set -eu\n${lib}${script}`);

/* --- what a guest takes, by kind; 64 MiB is what it may --- */

const MB = 1 << 20;
const limit = 80 * MB; // the kernel lets what it kills take a little more while it ends
const hogs = {
  anonymous: 'b = []\nwhile True: b.append(bytearray(1 << 20))',
  'files in memory': 'import os\nfd = os.memfd_create("x")\nwhile True: os.write(fd, bytes(1 << 20))',
  sockets: `import socket
held = []
while True:
    a, b = socket.socketpair()
    a.setblocking(False)
    held += [a, b]
    try:
        while True: a.send(bytes(65536))
    except BlockingIOError: pass`,
  pipes: `import os
held = []
while True:
    r, w = os.pipe()
    os.set_blocking(w, False)
    held += [r, w]
    try:
        while True: os.write(w, bytes(65536))
    except BlockingIOError: pass`,
};
// Cached pages of files are given back: all of them can be read.
const reader = `import os
n = 0
for top, _, names in os.walk("/usr/lib"):
    for name in names:
        try:
            with open(os.path.join(top, name), "rb") as f:
                while piece := f.read(1 << 20): n += len(piece)
        except OSError: pass
        if n > 128 << 20: raise SystemExit(0)
raise SystemExit(1)`;

// How many processes it may have, and no more afterwards.
const forks = 'import os, time\nn = 0\ntry:\n    while True:\n        if os.fork() == 0: time.sleep(1000)\n        n += 1\nexcept OSError: print(n)\nos.kill(-1, 9)';

// `run PROGRAM SECONDS`: in the sandbox $box of the server at $port.
const runInside = `run() { python3 -c 'import json,sys; print(json.dumps({"argv": ["python3", "-c", sys.argv[1]], "timeout_s": int(sys.argv[2])}))' "$1" "$2" | api /v1/sandboxes/$box/exec -d @-; echo; }`;

async function checkExec(user) {
  const run = (options, command) => session(user, `cay exec -o json ${options} -- ${command}`).then((r) => {
    assert.ok(r.out, `${r.code} ${r.err}`);
    return JSON.parse(r.out);
  });
  for (const [kind, program] of Object.entries(hogs)) {
    const r = await run('-m 64m', `python3 -c ${quote(program)}`);
    assert.equal(r.memory_limit, 'enforced', kind);
    assert.notEqual(r.status, 0, `${kind}: ${JSON.stringify(r)}`);
    assert.ok(r.usage.memory_peak_bytes > 4 * MB && r.usage.memory_peak_bytes <= limit, `${kind}: ${JSON.stringify(r)}`);
  }
  const read = await run('-m 64m', `python3 -c ${quote(reader)}`);
  assert.equal(read.status, 0, JSON.stringify(read));
  assert.ok(read.usage.memory_peak_bytes <= limit, JSON.stringify(read));
  const late = await run('--timeout 2s', 'sleep 1000');
  assert.equal(late.status, 124, JSON.stringify(late));
}

/* --- the machine --- */

test(`it is Debian ${release}, with systemd and cgroups v2`, async () => {
  assert.match(await ok('root', 'cat /etc/debian_version'), new RegExp(`^${release}\\.`));
  assert.equal(await ok('root', 'ps -p 1 -o comm='), 'systemd');
  assert.equal(await ok('root', 'stat -f -c %T /sys/fs/cgroup'), 'cgroup2fs');
});

/* --- the package --- */

const installed = 'systemctl show -P ActiveState,UnitFileState cay | paste -sd" "';

test('the older package is installed by apt, and the service starts with it', async () => {
  assert.match(await ok('root', 'apt-get install -y --no-install-recommends /opt/cay-older.deb 2>&1'), /Setting up cay \(0\.0\.1\)/);
  await inside('root', 'status >/dev/null');
  assert.equal(await ok('root', installed), 'active enabled');
  assert.equal(await ok('root', 'stat -c "%U %a" /var/lib/cay'), 'cay 700');
  assert.match(await ok('root', 'ps -o user=,comm= -p $(systemctl show -P MainPID cay)'), /^cay +cay$/);
  // Manuals and documents are left out of this system: the package has them.
  assert.match(await ok('root', 'dpkg-deb -c /opt/cay.deb'), /usr\/share\/doc\/cay\/README[^]*man1\/cay\.1\.gz[^]*man5\/cay\.json\.5\.gz/);
});

test('a newer one takes over the data, and the settings that were changed', async () => {
  await inside('root', `
api /v1/run -d '{"code":"export default (env) => env.db.execute(\\"CREATE TABLE t (n); INSERT INTO t VALUES (42)\\")","env":{"db":{"$facet":"kept"}}}' | field status | grep -x done
cay key create --name before --data-dir /var/lib/cay >/root/key
sed -i 's|"listen": "127.0.0.1:8787"|"listen": ["127.0.0.1:8787", "127.0.0.1:8788"]|' /etc/cay/cay.json
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends /opt/cay.deb 2>&1 | grep 'Setting up cay'
for i in $(seq 300); do curl -sf -o /dev/null http://127.0.0.1:8788/health && break; sleep 0.2; done
port=8788
status >/dev/null
api /v1/run -d '{"code":"export default (env) => env.db.query(\\"SELECT n FROM t\\")","env":{"db":{"$facet":"kept"}}}' | grep -q '"n":42'
curl -sf -H "authorization: Bearer $(cat /root/key)" http://127.0.0.1:8787/v1/status >/dev/null
sed -i 's|\\["127.0.0.1:8787", "127.0.0.1:8788"\\]|"127.0.0.1:8787"|' /etc/cay/cay.json
systemctl restart cay
port=8787
status >/dev/null`);
});

test('a reload and a socket unit do what they say', async () => {
  await inside('root', `
systemctl reload cay
systemctl is-active cay
systemctl stop cay
systemctl start cay.socket
curl -sf http://127.0.0.1:8787/health >/dev/null
systemctl is-active cay
# Whoever comes while it restarts waits, and is served.
(sleep 0.1; systemctl restart cay) &
for i in $(seq 20); do curl -sf http://127.0.0.1:8787/health >/dev/null || exit 1; done
wait
systemctl stop cay.socket cay`); // for the tests of sessions, which look at everything there is
});

test('a root login session stays in its group whatever is started from it', async () => {
  const out = await inside('root', `
port=9000
before=$(left); a=$(group)
cay doctor >/tmp/doctor || true
b=$(group)
cay exec -- true
c=$(group)
cay serve --listen 127.0.0.1:9000 --data-dir /var/lib/cay-session >/tmp/serve.log 2>&1 &
s=$(status)
d=$(group)
test "$a$a$a" = "$b$c$d"
grep -q session- /proc/self/cgroup
grep '^ok *sandboxes.*enforced by cgroups v2' /tmp/doctor >&2
grep '^ok *cgroups' /tmp/doctor >&2
kill %1; wait %1
same "$before"
echo "$s"`);
  const s = JSON.parse(out);
  assert.equal(s.sandboxes.available, true);
  assert.equal(s.sandboxes.detail, '');
  assert.ok(s.isolates.memory_max_bytes > 0);
});

test('a server of a root session that is killed leaves nothing behind', () =>
  inside('root', `
port=9000
before=$(left)
cay serve --listen 127.0.0.1:9000 --data-dir /var/lib/cay-session >/dev/null 2>&1 &
status >/dev/null
api /v1/sandboxes -d '{}' >/dev/null
kill -9 %1; wait %1 || true
same "$before"`));

for (const user of ['root', 'alice']) {
  test(`${user}: a sandbox has what it may have, by exec`, () => checkExec(user));
  test(`${user}: some at once, from one session`, () =>
    inside(user, 'before=$(left); for i in 1 2 3 4; do cay exec -- sh -c "echo $i; sleep 1" & done; wait; same "$before"'));
}

test('an ordinary user has a server with sandboxes, and is told what it lacks', async () => {
  const out = await inside('alice', `
port=9000
cay serve --listen 127.0.0.1:9000 --data-dir ~/data >~/serve.log 2>/dev/null &
status
kill %1; wait %1
cat ~/serve.log`);
  const [line, ...banner] = out.split('\n');
  const s = JSON.parse(line);
  assert.match(banner.join('\n'), /^ {2}cgroups {4}degraded: .*isolates have no common limit of memory: .*Delegate=yes$/m);
  assert.match(banner.join('\n'), /^ {2}sandboxes {2}(ok|degraded): memory/m);
  assert.equal(s.sandboxes.available, true);
  assert.equal(s.sandboxes.detail, '');
  assert.equal(s.isolates.memory_max_bytes, null);
  const cgroups = s.features.find((f) => f.name === 'cgroups');
  assert.equal(cgroups.status, 'degraded');
  assert.match(cgroups.detail, /isolates have no common limit of memory: other processes share/);
  assert.match(cgroups.advice, /Delegate=yes/);
});

// Where others share the group and systemd cannot be asked: no limit by the kernel, and nothing is spoilt.
test('without systemd it runs, watched, and says so', async () => {
  const out = await ok('root', `systemd-run -q --wait --pipe -p Delegate=yes -p InaccessiblePaths=/run/systemd/private bash -c '
cay exec -o json -m 64m -- python3 -c "b = bytearray(1 << 20)"
cay doctor | grep -A1 "^[a-z]* *sandboxes "
cat /sys/fs/cgroup/$(cut -d: -f3 /proc/self/cgroup)/cgroup.type
cat /sys/fs/cgroup/$(cut -d: -f3 /proc/self/cgroup)/cgroup.subtree_control
cut -d: -f3 /proc/self/cgroup'`);
  const lines = out.split('\n');
  const r = JSON.parse(lines[0]);
  assert.equal(r.status, 0, lines[0]);
  assert.equal(r.memory_limit, 'watched');
  assert.match(lines[1], /^degraded *sandboxes *memory is watched, not enforced: other processes share the control group .*no systemd answers/);
  assert.match(lines[2], /-> .*Delegate=yes/);
  assert.equal(lines[3], 'domain');
  assert.match(lines[4], /^\/system\.slice\/run-[^/]*\.service$/); // and no controllers before it
});

/* --- as a service --- */

test('the service has sandboxes and limits at each of 20 starts', async () => {
  const out = await inside('root', `
for i in $(seq 20); do
  systemctl restart cay
  status | python3 -c 'import json,sys
d = json.load(sys.stdin)
print(json.dumps([d["sandboxes"]["available"], d["sandboxes"]["detail"], d["isolates"]["memory_max_bytes"] is not None]))'
done
api /health
echo
cat /proc/$(systemctl show -P MainPID cay)/cgroup`);
  const lines = out.split('\n');
  for (let i = 0; i < 20; i++) assert.equal(lines[i], '[true, "", true]', `start ${i + 1}`);
  assert.equal(JSON.parse(lines[20]).status, 'healthy');
  assert.equal(lines[21], '0::/system.slice/cay.service/cay-main');
});

// Units of other people's making: one that stays root, and one of an ordinary user.
const units = {
  'a unit that stays root': { port: 9001, options: '', config: '{"user": "root", "data_dir": "/var/lib/cay-root"}' },
  'a unit of an ordinary user': { port: 9002, options: '-p User=alice', config: '{"data_dir": "/home/alice/unit"}' },
};
for (const [who, { port, options, config }] of Object.entries(units)) {
  const start = `systemd-run -q --collect --unit other -p Delegate=yes -p KillMode=mixed ${options} cay serve --listen 127.0.0.1:${port} --config /etc/other.json`;

  test(`${who} has sandboxes and limits at each of 5 starts`, async () => {
    const out = await inside('root', `
port=${port}
echo ${quote(config)} >/etc/other.json
for i in $(seq 5); do
  ${start}
  status | python3 -c 'import json,sys
d = json.load(sys.stdin)
print(json.dumps([d["sandboxes"]["available"], d["sandboxes"]["detail"], d["isolates"]["memory_max_bytes"] is not None]))'
  ps -o user= -p $(systemctl show -P MainPID other)
  systemctl stop other
done`);
    const user = options ? 'alice' : 'root';
    assert.deepEqual(out.split('\n'), Array.from({ length: 5 }, () => ['[true, "", true]', user]).flat());
  });

  test(`${who} holds a sandbox to its processes, processors and memory`, async () => {
    const out = await inside('root', `
port=${port}
${start}
status >/dev/null
box=$(api /v1/sandboxes -d '{"memory_mb":64,"disk_mb":16,"pids":40,"cpus":0.5}' | field id)
${runInside}
run ${quote(forks)} 300
run ${quote('while True: pass')} 3
run ${quote(hogs.anonymous)} 300
cd /sys/fs/cgroup/system.slice/other.service
for g in $(find . -type d -path '*/cay.*/s*'); do [ "$(cat $g/cpu.max)" != '50000 100000' ] || grep nr_throttled $g/cpu.stat; done
systemctl stop other`);
    const lines = out.split('\n');
    const n = Number(JSON.parse(lines[0]).stdout);
    assert.ok(n > 5 && n <= 40, lines[0]);
    assert.equal(JSON.parse(lines[1]).timed_out, true, lines[1]);
    assert.notEqual(JSON.parse(lines[2]).exit_code, 0, lines[2]);
    assert.ok(Number(lines[3]?.split(' ')[1]) > 0, out);
  });
}

test('the service holds a sandbox to its limits', async () => {
  const out = await inside('root', `
box=$(api /v1/sandboxes -d '{"memory_mb":64,"disk_mb":16,"pids":40,"cpus":0.5}' | field id)
${runInside}
${Object.values(hogs).map((p) => `run ${quote(p)} 300`).join('\n')}
run ${quote(reader)} 300
run ${quote(forks)} 300
run ${quote('while True: pass')} 3
api /v1/sandboxes/$box; echo
cd /sys/fs/cgroup/system.slice/cay.service
for g in cay.*/s*; do [ "$(cat $g/cpu.max)" != '50000 100000' ] || grep nr_throttled $g/cpu.stat; done
curl -sS -X DELETE -H 'host: localhost' http://127.0.0.1:8787/v1/sandboxes/$box >/dev/null
api /v1/run -d '{"code":"export default () => 6 * 7"}' | field result`);
  const lines = out.split('\n');
  const kinds = Object.keys(hogs);
  for (let i = 0; i < kinds.length; i++) assert.notEqual(JSON.parse(lines[i]).exit_code, 0, `${kinds[i]}: ${lines[i]}`);
  assert.equal(JSON.parse(lines[4]).exit_code, 0, lines[4]);
  const forked = Number(JSON.parse(lines[5]).stdout);
  assert.ok(forked > 5 && forked <= 40, lines[5]);
  assert.equal(JSON.parse(lines[6]).timed_out, true, lines[6]);
  const { usage } = JSON.parse(lines[7]);
  assert.ok(usage.oom_kills > 0 && usage.memory_peak_bytes > 4 * MB && usage.memory_peak_bytes <= limit, lines[7]);
  assert.ok(Number(lines[8].split(' ')[1]) > 0, lines[8]);
  assert.equal(lines.at(-1), '42');
});

test('a sandbox does not show what the one before it took', async () => {
  const out = await inside('root', `
for i in 1 2 3 4 5 6; do
  box=$(api /v1/sandboxes -d '{}' | field id)
  [ $((i % 2)) = 0 ] || api /v1/sandboxes/$box/exec -d '{"command":"head -c 100m /dev/zero >f"}' >/dev/null
  api /v1/sandboxes/$box | field usage memory_peak_bytes
  curl -sS -X DELETE -H 'host: localhost' http://127.0.0.1:8787/v1/sandboxes/$box >/dev/null
done`);
  out.split('\n').forEach((n, i) => {
    if (i % 2 === 0) assert.ok(Number(n) > 100 * MB, `sandbox ${i + 1}: ${n}`);
    else assert.ok(Number(n) > 0 && Number(n) < 20 * MB, `sandbox ${i + 1}: ${n}`);
  });
});

test('a server that is killed comes back, and nothing of it is left', () =>
  inside('root', `
api /v1/sandboxes -d '{}' >/dev/null
old=$(systemctl show -P MainPID cay)
kill -9 $old
until new=$(systemctl show -P MainPID cay) && [ "$new" != 0 ] && [ "$new" != $old ]; do sleep 0.2; done
status | field sandboxes available | grep -x True
find /sys/fs/cgroup -name "cay.$old.*" | grep . && exit 1
systemctl stop cay
same "$(grep -c . /proc/1/mountinfo)"`));

test('a service that runs it by a shell has sandboxes, stays in its unit, and is told what it lacks', async () => {
  const s = await json('root', `set -eu\n${lib}
port=9000
systemd-run -q --unit wrapped -p Delegate=yes -p KillMode=mixed bash -c 'cay serve --listen 127.0.0.1:9000 --data-dir /var/lib/cay-session; true'
status
grep -q /system.slice/wrapped.service /proc/$(pgrep -x cay)/cgroup
systemctl stop wrapped
same "$(grep -c . /proc/1/mountinfo)"`);
  assert.equal(s.sandboxes.available, true);
  assert.equal(s.sandboxes.detail, '');
  assert.equal(s.isolates.memory_max_bytes, null);
  assert.equal(s.features.find((f) => f.name === 'cgroups').status, 'degraded');
});

// What differs between kernels: of the tests of sandboxes as a whole one alone takes minutes here.
const differs = [
  'a_read_only_command_changes_nothing',
  'mounts_of_the_host_do_not_come_in',
  'a_bind_that_cannot_be_mapped_says_so',
  'a_full_disk_leaves_room_to_run',
];
const asUnit = (command) => ok('root', `systemd-run -q --wait --pipe -p Delegate=yes bash -c 'cd /opt/cay-tests && ${command}' 2>&1`);

for (const [who, uid] of [['root', '0'], ['an ordinary user', '1000']]) {
  test(`the front's side of sandboxes, as ${who}`, async () => {
    assert.match(await asUnit(`./test-host $PWD/cay-sandbox ${uid}`), /PASSED +\] \d\d test/);
  });
  // Only root maps the owners of what it binds.
  for (const name of differs.filter((n) => uid === '0' || n !== 'a_bind_that_cannot_be_mapped_says_so'))
    test(`${name}, as ${who}`, async () => {
      assert.match(await asUnit(`./test-sandbox $PWD/cay-sandbox $PWD/cay-sandbox-weak $PWD/escape-probe ${uid} ${name}`), /PASSED +\] 1 test/);
    });
}

for (const [who, uid] of [['root', ''], ['an ordinary user', ' 1000']])
  test(`no way out of a sandbox of ${who}`, () =>
    ok('root', `systemd-run -q --wait --pipe -p Delegate=yes bash -c 'cd /opt/cay-tests && ./escape $PWD/cay-sandbox $PWD/cay-sandbox-weak $PWD/escape-probe${uid}'`));

test('after a reboot the service is there with sandboxes and limits', async () => {
  await ok('root', 'systemctl -q enable cay');
  const boot = await ok('root', 'cat /proc/sys/kernel/random/boot_id');
  await session('root', 'systemctl reboot');
  for (;;) {
    const r = await session('root', 'cat /proc/sys/kernel/random/boot_id');
    if (r.code === 0 && r.out.trim() !== boot) break;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  const s = JSON.parse(await inside('root', 'status'));
  assert.equal(s.sandboxes.available, true);
  assert.equal(s.sandboxes.detail, '');
  assert.ok(s.isolates.memory_max_bytes > 0);
});

test('what is removed keeps its data, what is purged does not', async () => {
  await ok('root', 'systemctl stop cay; apt-get remove -y cay');
  assert.match(await ok('root', 'ls /var/lib/cay /etc/cay'), /cay\.json[^]*ledger\.db/);
  assert.equal((await session('root', 'command -v cay')).code, 1);
  await ok('root', 'apt-get install -y --no-install-recommends /opt/cay.deb');
  await inside('root', `status >/dev/null
api /v1/run -d '{"code":"export default (env) => env.db.query(\\"SELECT n FROM t\\")","env":{"db":{"$facet":"kept"}}}' | grep -q '"n":42'`);
  await ok('root', 'apt-get purge -y cay');
  assert.equal(await ok('root', 'ls -d /var/lib/cay /etc/cay /run/cay /usr/libexec/cay 2>/dev/null; getent passwd cay; ps -eo comm= | grep "^cay"; true'), '');
});
