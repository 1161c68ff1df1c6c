// `cay code --dir D --apply`: an agent that may do anything in its sandbox, and a server that lies, get nothing onto this machine but
// files of the folder, and nothing of theirs is run here.
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, linkSync, lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, renameSync, statSync, symlinkSync, unlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { buildDir, request, runCay, slow, startCay, tempDir, until } from '../lib/cay.mjs';

const agent = { title: 'script', description: 'does what the spec says', program: 'sh', find: 'setting', mount: '/opt/script', arguments: ['-c', '${spec}'], stdin: 'none', dialects: ['anthropic'], lines: 'text', demo: true };

/** A folder with these files, and a folder for what commands keep. */
function place(t, files = {}) {
  const top = tempDir(t);
  const dir = join(top, 'd');
  mkdirSync(dir);
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(join(dir, name, '..'), { recursive: true });
    writeFileSync(join(dir, name), content);
  }
  return { dir, top, env: { XDG_STATE_HOME: join(top, 'state'), HOME: top } };
}

/** All that lies in a folder: {path: content, or what it is}. */
function tree(dir, prefix = '', out = {}) {
  for (const name of readdirSync(join(dir, prefix), { encoding: 'latin1' })) {
    const path = prefix ? `${prefix}/${name}` : name;
    const full = Buffer.from(`${dir}/${path}`, 'latin1');
    const st = lstatSync(full);
    if (st.isDirectory()) tree(dir, path, out);
    else out[path] = st.isSymbolicLink() ? `-> ${readlinkSync(full)}` : readFileSync(full, 'latin1');
  }
  return out;
}

describe('what an agent changed is written to the folder', () => {
  let cay, config;
  before(async () => {
    config = tempDir(null);
    mkdirSync(join(config, 'coders'), { mode: 0o755 });
    writeFileSync(join(config, 'coders/script.json'), JSON.stringify(agent));
    cay = await startCay({ config: { coders_dir: join(config, 'coders') } });
  });
  after(() => cay.stop());

  const url = () => `http://127.0.0.1:${cay.port}`;
  const code = (p, script, more = []) => runCay(['code', '--url', url(), '--agent', 'script', '--dir', p.dir, ...more, script], { env: p.env, timeout: 90_000 * slow });
  const apply = (p, script, more = []) => code(p, script, ['--apply', '--yes', ...more]);
  const undo = (p) => runCay(['code', '--undo', '--dir', p.dir], { env: p.env });

  /** Runs the command; `change` is called when the agent is at work, which goes on after it. */
  async function meanwhile(p, script, change, more = []) {
    const running = apply(p, `until [ -e /tmp/go ]; do sleep 0.05; done; ${script}`, more);
    const run = await until(async () => (await request(cay, '/v1/runs?kind=code&limit=1')).json().runs.find((r) => r.status === 'running'), 'the run');
    const sandbox = await until(async () => (await request(cay, '/v1/sandboxes')).json().sandboxes.find((s) => s.status === 'running' && s.metadata?.run === run.id), 'its sandbox');
    await until(async () => (await request(cay, `/v1/sandboxes/${sandbox.id}/execs`)).json().execs.some((e) => e.argv?.[0]?.includes('/opt/script') && e.status === 'running'), 'the agent');
    await change();
    await request(cay, `/v1/sandboxes/${sandbox.id}/files?path=/tmp/go`, { method: 'PUT', body: 'x' });
    return running;
  }

  test('files are changed, added and removed, with their modes, and undo takes it back', async (t) => {
    const p = place(t, { 'a.txt': 'one\ntwo\n', 'sub/gone': 'x\n', run: '#!/bin/sh\n', 'same': 'same\n', 'private.txt': 'p\n' });
    chmodSync(join(p.dir, 'private.txt'), 0o640);
    const old = tree(p.dir);
    const done = await apply(p, "printf 'one\\n2\\n' >a.txt; rm sub/gone; chmod 755 run; mkdir -p n/m; printf '\\000\\377' >n/m/bytes; printf 'th\\351' >latin; echo q >>private.txt; ln -s a.txt inside; install -m 4777 /dev/null suid");
    assert.equal(done.code, 0, done.stderr);
    assert.match(done.stderr, /change +a\.txt[\s\S]*add +inside: a\.txt/);
    assert.deepEqual(tree(p.dir), { 'a.txt': 'one\n2\n', run: '#!/bin/sh\n', same: 'same\n', 'n/m/bytes': '\0\xff', latin: 'th\xe9', 'private.txt': 'p\nq\n', inside: '-> a.txt', suid: '' });
    assert.equal(statSync(join(p.dir, 'run')).mode & 0o7777, 0o755);
    assert.equal(statSync(join(p.dir, 'private.txt')).mode & 0o7777, 0o640, 'its permissions are its owner’s');
    assert.equal(statSync(join(p.dir, 'suid')).mode & 0o7000, 0);
    assert.equal(existsSync(join(p.dir, 'sub')), false, 'an empty folder goes');
    const back = await undo(p);
    assert.equal(back.code, 0, back.stderr);
    assert.deepEqual(tree(p.dir), old);
    assert.equal(existsSync(join(p.dir, 'n')), false);
    assert.equal(statSync(join(p.dir, 'run')).mode & 0o777, 0o644);
    assert.equal((await undo(p)).code, 66, 'there is nothing left to take back');
  });

  test('a repository that the agent leaves in the folder is not one, and no filter of any is run', async (t) => {
    const p = place(t, { 'a.txt': 'one\n' });
    const proof = join(p.top, 'proof');
    const bare = `printf '[core]\\n\\tbare=false\\n\\tworktree=.\\n\\tfsmonitor=touch ${proof}\\n[filter "x"]\\n\\tsmudge="touch ${proof}; cat"\\n\\tclean="touch ${proof}; cat"\\n'`;
    const script = `mkdir -p objects refs info; echo 'ref: refs/heads/x' >HEAD; ${bare} >config; : >objects/x; : >refs/x; echo '* filter=x' >info/attributes; echo two >>a.txt`;
    const done = await apply(p, script);
    assert.equal(done.code, 3, done.stderr);
    assert.match(done.stderr, /not written .*a git repository/);
    assert.equal((await apply(p, 'echo three >>a.txt')).code, 0);
    assert.equal(readFileSync(join(p.dir, 'a.txt'), 'utf8'), 'one\ntwo\nthree\n');
    spawnSync('git', ['-C', p.dir, 'status'], { env: { PATH: process.env.PATH, GIT_CEILING_DIRECTORIES: p.top } });
    assert.equal(existsSync(proof), false, 'neither by us nor by the user’s own git');
    // Some of it is there already; and by way of commondir.
    for (const [have, add] of [[{ HEAD: 'ref: refs/heads/x\n', 'objects/x': '' }, `mkdir refs; : >refs/x; ${bare} >config`], [{}, `mkdir -p x/objects x/refs; : >x/objects/x; : >x/refs/x; ${bare} >x/config; echo x >commondir; echo 'ref: refs/heads/x' >HEAD`]]) {
      const q = place(t, have);
      assert.equal((await apply(q, add)).code, 3);
      spawnSync('git', ['-C', q.dir, 'status'], { env: { PATH: process.env.PATH, GIT_CEILING_DIRECTORIES: q.top } });
      assert.equal(existsSync(proof), false);
    }
    // One that is a repository already is not changed.
    const own = place(t, { HEAD: 'ref: refs/heads/x\n', 'objects/x': '', 'refs/x': '', config: '' });
    const into = await apply(own, `${bare} >config; mkdir hooks; echo x >hooks/post-checkout`);
    assert.equal(into.code, 3);
    assert.equal(readFileSync(join(own.dir, 'config'), 'utf8'), '');
    assert.equal(existsSync(join(own.dir, 'hooks')), false);
  });

  test('a folder with a hostile .git of its own runs nothing', async (t) => {
    const p = place(t, { 'a.txt': 'one\n', '.gitattributes': '* filter=x diff=x\n' });
    const proof = join(p.top, 'proof');
    execFileSync('git', ['init', '-q', p.dir]);
    writeFileSync(join(p.dir, '.git/config'), `[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch ${proof}\n\tpager = touch ${proof}\n\tsshCommand = touch ${proof}\n[filter "x"]\n\tsmudge = touch ${proof}\n\tclean = touch ${proof}\n\trequired = true\n[diff "x"]\n\ttextconv = touch ${proof}\n\tcommand = touch ${proof}\n[diff]\n\texternal = touch ${proof}\n`);
    for (const hook of ['post-checkout', 'applypatch-msg', 'pre-commit', 'fsmonitor-watchman']) writeFileSync(join(p.dir, '.git/hooks', hook), `#!/bin/sh\ntouch ${proof}\n`, { mode: 0o755 });
    const done = await apply(p, 'echo two >>a.txt');
    assert.equal(done.code, 0, done.stderr);
    assert.equal(readFileSync(join(p.dir, 'a.txt'), 'utf8'), 'one\ntwo\n');
    assert.equal(existsSync(proof), false);
  });

  test('no git setting, attribute, driver or repository of the agent shapes what comes back', async (t) => {
    const secret = join(tempDir(t), 'secret');
    writeFileSync(secret, 'of the host\n');
    const p = place(t, { 'a.txt': 'one\n', 'b.txt': 'b\n' });
    const forged = `diff --git a/x b/stolen\\nsimilarity index 100%%\\ncopy from ${secret}\\ncopy to stolen\\n`;
    const done = await apply(p, `set -e; git init -q; git config diff.external 'printf "${forged}"'; git config diff.submodule log; git config core.attributesFile /work/attr; echo '* diff=x filter=x' >.gitattributes; cp .git/config ~/.gitconfig
      mkdir -p ~/.cay/base; cp -r .git/. ~/.cay/base; git config --global filter.x.clean 'printf "${forged}"'; git config --global user.email a@b; git config --global user.name a
      echo two >>a.txt; git add -f a.txt; git commit -qm x; mkdir sub; git -C sub init -q; echo deep >sub/deep; git -C sub add deep; git -C sub -c user.name=x -c user.email=x@y commit -qm y; git -C sub config filter.x.smudge "touch /tmp/x"; ls /work`);
    assert.equal(done.code, 3, done.stdout + done.stderr);
    assert.match(done.stderr, /sub\/\.git \(the data of a git repository\)/);
    assert.deepEqual(Object.keys(tree(p.dir)).sort(), ['.gitattributes', 'a.txt', 'b.txt', 'sub/deep']);
    assert.equal(readFileSync(join(p.dir, 'a.txt'), 'utf8'), 'one\ntwo\n');
    assert.doesNotMatch(done.stdout, /copy from/);
  });

  test('nothing is written to .git, whatever its name looks like', async (t) => {
    const p = place(t, { 'a.txt': 'one\n' });
    execFileSync('git', ['init', '-q', p.dir]);
    const old = tree(join(p.dir, '.git'));
    const done = await apply(p, "mkdir -p .git/hooks sub/.GIT/hooks x/.git git~1; for d in .git sub/.GIT x/.git git~1; do echo '[core]' >$d/config; done; echo x >.git/hooks/pre-commit; echo 'gitdir: /tmp' >x/.gIt; echo ok >ok");
    assert.equal(done.code, 3, done.stderr);
    for (const name of ['sub/.GIT', 'x/.git', 'x/.gIt', 'git~1']) assert.ok(done.stderr.includes(`${name} (the data`), done.stderr);
    assert.deepEqual(tree(join(p.dir, '.git')), old);
    assert.deepEqual(Object.keys(tree(p.dir)).filter((n) => !n.startsWith('.git/')).sort(), ['a.txt', 'ok']);
    // One that the folder has is not copied, and named as that.
    writeFileSync(join(p.dir, 'git~1'), 'x');
    assert.match((await code(p, 'true')).stderr, /not copied, a nested git repository, or a name that git may take for \.git: git~1\n/);
  });

  test('files that a server reads settings from are written on request only', async (t) => {
    const p = place(t, { 'a.txt': 'one\n', 'cay.json': '{}\n' });
    const script = "for f in .env sub/.env cay.json; do mkdir -p sub; echo 'ANTHROPIC_BASE_URL=http://x' >$f; done; ln -sf a.txt sub/cay.json; echo A= >.env.example";
    const old = readFileSync(join(p.dir, 'cay.json'), 'utf8');
    const done = await apply(p, script);
    assert.equal(done.code, 3, done.stderr);
    for (const name of ['.env', 'sub/.env', 'cay.json', 'sub/cay.json']) assert.ok(done.stderr.includes(`not written ${name}: \`cay serve\` reads settings from a file of this name; --include-secrets writes it`), done.stderr);
    assert.deepEqual(tree(p.dir), { 'a.txt': 'one\n', 'cay.json': old, '.env.example': 'A=\n' });
    const asked = await apply(p, 'echo x >.env; echo y >cay.json', ['--include-secrets']);
    assert.equal(asked.code, 0, asked.stderr);
    assert.deepEqual(tree(p.dir), { 'a.txt': 'one\n', 'cay.json': 'y\n', '.env': 'x\n', '.env.example': 'A=\n' });
  });

  test('links: those that lead out are named, those in the folder are never followed', async (t) => {
    const p = place(t, { 'a.txt': 'one\n', 'real/x': 'x\n' });
    const outside = join(p.top, 'outside');
    mkdirSync(outside);
    writeFileSync(join(outside, 'file'), 'mine\n');
    symlinkSync(outside, join(p.dir, 'docs'));
    symlinkSync(join(outside, 'file'), join(p.dir, 'link'));
    linkSync(join(outside, 'file'), join(p.dir, 'hard'));
    const first = await code(p, 'ls -A');
    assert.match(first.stderr, /not copied, a link: .*docs|not copied, a link: .*link/);
    const done = await apply(p, 'mkdir docs; echo x >docs/new; echo x >docs/file; echo more >>hard; ln -s /etc/passwd out; ln -s ../../x up; mkdir d; ln -s ../real/x d/in; ln -s .git/config g; ln -s real/../../x sly');
    assert.equal(done.code, 3, done.stderr);
    for (const name of ['docs/new', 'docs/file', 'out', 'up', 'g', 'sly']) assert.match(done.stderr, new RegExp(`not written ${name}:`));
    assert.deepEqual(tree(outside), { file: 'mine\n' }, 'neither through a folder nor through a hard link');
    assert.equal(readFileSync(join(p.dir, 'hard'), 'utf8'), 'mine\nmore\n');
    assert.equal(readlinkSync(join(p.dir, 'd/in')), '../real/x');
    assert.deepEqual(readdirSync(p.dir).sort(), ['a.txt', 'd', 'docs', 'hard', 'link', 'real']);
    // A link where the agent makes a file is a conflict.
    const over = await apply(p, 'echo x >link');
    assert.equal(over.code, 75, over.stderr);
    assert.match(over.stderr, /conflict link: it is in the folder, and the agent did not get it/);
    assert.deepEqual(tree(outside), { file: 'mine\n' });
  });

  test('a folder that becomes a link while the agent works is not gone through', async (t) => {
    const p = place(t, { 'sub/x': 'x\n', 'a.txt': 'a\n' });
    const outside = join(p.top, 'outside');
    const done = await meanwhile(p, 'echo y >>sub/x; echo n >sub/n; echo b >>a.txt', () => {
      renameSync(join(p.dir, 'sub'), outside);
      symlinkSync(outside, join(p.dir, 'sub'));
    });
    assert.equal(done.code, 3, done.stderr);
    assert.match(done.stderr, /not written sub\/n: "sub" is not a folder, but a link/);
    assert.deepEqual(tree(outside), { x: 'x\n' });
    assert.equal(readFileSync(join(p.dir, 'a.txt'), 'utf8'), 'a\nb\n');
  });

  test('what changed in the folder meanwhile is a conflict: named, and nothing is written', async (t) => {
    const p = place(t, { 'a.txt': 'a\n', 'b.txt': 'b\n', 'c.txt': 'c\n', touched: 't\n' });
    const script = 'for f in a.txt b.txt touched; do echo agent >>$f; done; rm c.txt; echo agent >new; echo same >same';
    const change = () => {
      writeFileSync(join(p.dir, 'a.txt'), 'mine\n');
      writeFileSync(join(p.dir, 'new'), 'mine\n');
      writeFileSync(join(p.dir, 'same'), 'same\n');
      unlinkSync(join(p.dir, 'b.txt'));
      utimesSync(join(p.dir, 'touched'), 1, 1);
    };
    const done = await meanwhile(p, script, change);
    assert.equal(done.code, 75, done.stderr);
    assert.match(done.stderr, /conflict a\.txt: it was changed/);
    assert.match(done.stderr, /conflict b\.txt: it was removed/);
    assert.match(done.stderr, /conflict new: it is in the folder/);
    assert.match(done.stderr, /3 files are not as the agent got them; nothing was written/);
    const mine = { 'a.txt': 'mine\n', 'c.txt': 'c\n', new: 'mine\n', same: 'same\n', touched: 't\n' };
    assert.deepEqual(tree(p.dir), mine);
    // Unless the user says so; and that can be taken back, too.
    writeFileSync(join(p.dir, 'b.txt'), 'b\n');
    const forced = await meanwhile(p, script, () => writeFileSync(join(p.dir, 'a.txt'), 'newer\n'), ['--overwrite']);
    assert.equal(forced.code, 0, forced.stderr);
    assert.match(forced.stderr, /overwrite a\.txt/);
    assert.equal(readFileSync(join(p.dir, 'a.txt'), 'utf8'), 'mine\nagent\n');
    assert.equal((await undo(p)).code, 0);
    assert.deepEqual(tree(p.dir), { ...mine, 'a.txt': 'newer\n', 'b.txt': 'b\n' });
  });

  test('pipes, sockets and what cannot be read are named, and what was there before stays', async (t) => {
    const p = place(t, { 'a.txt': 'a\n', 'b.txt': 'b\n', 'd/x': 'x\n' });
    const done = await apply(p, `rm a.txt; mkfifo a.txt pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'; rm -r d; mkfifo d; echo ok >ok`);
    assert.equal(done.code, 3, done.stderr);
    for (const name of ['a.txt', 'pipe', 'sock', 'd']) assert.ok(done.stderr.includes(`${name} (a pipe, socket or device)`), done.stderr);
    assert.deepEqual(tree(p.dir), { 'a.txt': 'a\n', 'b.txt': 'b\n', 'd/x': 'x\n', ok: 'ok\n' });
  });

  test('names of any bytes: control characters are refused, others written as they are', async (t) => {
    const p = place(t, { 'a.txt': 'a\n' });
    const done = await apply(p, `printf x >"$(printf 'new\\nline')"; printf x >"$(printf 'esc\\033[2J')"; printf x >"$(printf 'tab\\t')"; printf x >"$(printf 'b\\351')"; printf x >-rf; printf x >'spaces at the end  '; printf x >'"quoted\\'; printf x >README; printf y >readme; printf x >"$(printf 'rtl\\342\\200\\256txt.exe')"; mkdir ...; echo x >.../x`);
    assert.equal(done.code, 3, done.stderr);
    assert.equal(done.stderr.match(/not written .*\n?.*: its name has control characters/g).length, 3);
    assert.deepEqual(tree(p.dir), { 'a.txt': 'a\n', 'b\xe9': 'x', '-rf': 'x', 'spaces at the end  ': 'x', '"quoted\\': 'x', README: 'x', readme: 'y', 'rtl\xe2\x80\xaetxt.exe': 'x', '.../x': 'x\n' });
  });

  test('a file becomes a folder, a folder a file, and undo knows the way', async (t) => {
    const p = place(t, { f: 'file\n', 'd/x': 'x\n', 'd/y': 'y\n' });
    const done = await apply(p, 'rm f; mkdir f; echo in >f/in; rm -r d; echo now >d');
    assert.equal(done.code, 0, done.stderr);
    assert.deepEqual(tree(p.dir), { 'f/in': 'in\n', d: 'now\n' });
    assert.equal((await undo(p)).code, 0);
    assert.deepEqual(tree(p.dir), { f: 'file\n', 'd/x': 'x\n', 'd/y': 'y\n' });
  });

  test('a failure in the middle says what was written, and undo takes that back', async (t) => {
    const p = place(t, { 'a.txt': 'a\n', 'keep/x': 'x\n', 'keep/.gitignore': 'own\n', 'keep/own': 'ignored, and not copied\n', 'z.txt': 'z\n' });
    const old = tree(p.dir);
    const done = await apply(p, 'echo 2 >>a.txt; echo 2 >>z.txt; rm -r keep; echo file >keep');
    assert.notEqual(done.code, 0);
    assert.match(done.stderr, /[1-9] of 5 files were written \(`cay code --undo --dir DIR` takes them back\)/);
    assert.equal(readFileSync(join(p.dir, 'keep/own'), 'utf8'), 'ignored, and not copied\n');
    assert.equal((await undo(p)).code, 0);
    assert.deepEqual(tree(p.dir), old);
  });

  test('undo leaves what was changed since, and says where the earlier version is', async (t) => {
    const p = place(t, { 'a.txt': 'a\n', 'b.txt': 'b\n' });
    assert.equal((await apply(p, 'echo 2 >>a.txt; echo 2 >>b.txt; echo n >new')).code, 0);
    writeFileSync(join(p.dir, 'a.txt'), 'later\n');
    const back = await undo(p);
    assert.equal(back.code, 75, back.stderr);
    assert.match(back.stdout, /stays a\.txt: it was changed since/);
    assert.deepEqual(tree(p.dir), { 'a.txt': 'later\n', 'b.txt': 'b\n' });
    const kept = /versions are in (\S+)/.exec(back.stderr)[1];
    assert.ok(readdirSync(kept).some((f) => readFileSync(join(kept, f), 'utf8') === 'a\n'));
  });

  test('ten thousand files come, and one of 70 MB is named', async (t) => {
    const p = place(t, { 'a.txt': 'a\n' });
    const done = await apply(p, 'mkdir m; for i in $(seq 100); do mkdir m/$i; for k in $(seq 100); do echo $i.$k >m/$i/$k; done; done; yes line | head -c 73400320 >large.txt; yes text | head -c 5000000 >medium.txt');
    assert.equal(done.code, 3, done.stderr.slice(-2000));
    assert.match(done.stderr, /large\.txt \(larger than 16 MiB\)/);
    assert.match(done.stdout, /medium\.txt[\s\S]{1,200}GIT binary patch/, 'over 4 MiB is told as binary');
    const now = tree(p.dir);
    assert.equal(Object.keys(now).length, 10_002);
    assert.equal(now['m/37/42'], '37.42\n');
    assert.equal(now['medium.txt'], 'text\n'.repeat(1_000_000));
    assert.equal((await undo(p)).code, 0);
    assert.deepEqual(tree(p.dir), { 'a.txt': 'a\n' });
  });

  test('asks at a terminal, and without one it wants --yes before anything is run', async (t) => {
    const p = place(t, { 'a.txt': 'a\n' });
    const before = (await request(cay, '/v1/runs?kind=code&limit=1')).json().runs[0]?.id;
    const none = await code(p, 'echo 2 >>a.txt', ['--apply']);
    assert.equal(none.code, 2);
    assert.match(none.stderr, /no terminal to ask at: add --yes/);
    assert.equal((await request(cay, '/v1/runs?kind=code&limit=1')).json().runs[0]?.id, before);
    const atTerminal = async (answer) => {
      const child = spawn('script', ['-qec', `${join(buildDir, 'cay')} code --url ${url()} --agent script --dir ${p.dir} --apply 'echo 2 >>a.txt; printf "rtl\\342\\200\\256x" >u.txt'`, '/dev/null'], { env: { ...p.env, PATH: process.env.PATH, TERM: 'xterm', ...(process.env.ASAN_OPTIONS ? { ASAN_OPTIONS: 'detect_leaks=0' } : {}) } });
      let out = '';
      child.stdout.setEncoding('latin1').on('data', (d) => {
        if (!out.includes('[y/N]') && (out + d).includes('[y/N]')) child.stdin.write(`${answer}\n`);
        out += d;
      });
      await new Promise((resolve) => child.on('close', resolve));
      return out;
    };
    const no = await atTerminal('n');
    assert.match(no, /change +a\.txt[\s\S]*Write 2 files to[\s\S]*nothing was written/);
    assert.match(no, /rtl\\u202ex/, 'what turns the line around is shown, not obeyed');
    assert.doesNotMatch(no, /\xe2\x80\xae/);
    assert.deepEqual(tree(p.dir), { 'a.txt': 'a\n' });
    assert.match(await atTerminal('y'), /2 files written to/);
    assert.equal(readFileSync(join(p.dir, 'a.txt'), 'utf8'), 'a\n2\n');
  });

  test('the earlier versions are out of an agent’s reach, also where they lie in the folder', async (t) => {
    const p = place(t, { 'a.txt': 'a\n' });
    p.env.XDG_STATE_HOME = join(p.dir, 'state');
    assert.equal((await apply(p, 'echo 2 >>a.txt')).code, 0);
    const done = await apply(p, 'mkdir -p state/cay/undo/x; echo x >state/cay/undo/x/journal; for f in $(find state -name journal); do echo forged >$f; done; echo 3 >>a.txt');
    assert.equal(done.code, 3, done.stderr);
    assert.match(done.stderr, /not written state\/cay\/undo\/.*cay keeps earlier versions there/);
    assert.equal((await undo(p)).code, 0);
    assert.equal(readFileSync(join(p.dir, 'a.txt'), 'utf8'), 'a\n2\n');
  });

  test('they are, too, where a link leads to that place', async (t) => {
    const p = place(t, { 'a.txt': 'a\n' });
    symlinkSync(p.dir, join(p.top, 'home'));
    p.env.XDG_STATE_HOME = join(p.top, 'home/state');
    const done = await apply(p, 'mkdir -p state/cay/undo/x; echo x >state/cay/undo/x/journal; echo 2 >>a.txt');
    assert.equal(done.code, 3, done.stderr);
    assert.match(done.stderr, /not written state\/cay\/undo\/x\/journal: cay keeps earlier versions there/);
    assert.equal(existsSync(join(p.dir, 'state/cay/undo/x')), false);
  });

  test('undo puts back a link of the user’s own, wherever it leads', async (t) => {
    const p = place(t, { 'a.txt': 'a\n' });
    for (const [name, to] of [['data', '/usr/share'], ['up', '../elsewhere'], ['hooks', '.git/hooks']]) symlinkSync(to, join(p.dir, name));
    const old = tree(p.dir);
    const done = await apply(p, 'for f in data up hooks; do echo agent >$f; done; rm a.txt', ['--overwrite']);
    assert.equal(done.code, 0, done.stderr);
    assert.deepEqual(tree(p.dir), { data: 'agent\n', up: 'agent\n', hooks: 'agent\n' });
    const back = await undo(p);
    assert.equal(back.code, 0, back.stderr);
    assert.deepEqual(tree(p.dir), old);
  });

  test('the agent gets no secret, nothing ignored, and the user is told what stayed', async (t) => {
    const p = place(t, { 'a.txt': 'a\n', '.env': 'S=1', '.env.example': 'S=', 'sub/.env.local': 'S=1', id_ed25519: 'k', 'id_ed25519.pub': 'k', 'key.txt': '-----BEGIN RSA PRIVATE KEY-----\n', closed: 'c', '.gitignore': '*.log\n/build/\n!keep.log\n', 'x.log': 'x', 'keep.log': 'x', 'build/o': 'o', 'sub/build/o': 'o', '.aws/config': 'x', 'n/.git/config': 'x' });
    chmodSync(join(p.dir, 'closed'), 0o600);
    execFileSync('mkfifo', [join(p.dir, 'pipe')]);
    symlinkSync('a.txt', join(p.dir, 'link'));
    writeFileSync(Buffer.from(`${p.dir}/b\xe9`, 'latin1'), 'x');
    const listing = async (more) => {
      const done = await code(p, 'find . -type f | sort', ['-o', 'json', ...more]);
      assert.equal(done.code, 0, done.stderr);
      const run = JSON.parse(done.stdout);
      const { events } = (await request(cay, `/v1/runs/${run.id}`)).json();
      return [events.filter((e) => e.type === 'text').map((e) => e.data.text.slice(2)), run.not_copied, done.stderr];
    };
    const [got, left, told] = await listing([]);
    assert.deepEqual(got, ['.env.example', '.gitignore', 'a.txt', 'id_ed25519.pub', 'keep.log', 'sub/build/o']);
    assert.deepEqual(left.secrets.paths.sort(), ['.aws', '.env', 'closed', 'id_ed25519', 'key.txt', 'sub/.env.local']);
    assert.deepEqual(left.ignored.paths.sort(), ['build', 'x.log']);
    assert.deepEqual([left.links.count, left.special.count, left.names.count, left.repositories.count], [1, 1, 1, 1]);
    assert.match(told, /not copied, looks like a secret \(--include-secrets copies them\): /);
    const [all] = await listing(['--include-secrets', '--include-ignored']);
    for (const name of ['.env', 'closed', 'key.txt', '.aws/config', 'x.log', 'build/o']) assert.ok(all.includes(name), name);
    // One that stayed here is not written over; what the agent's side ignores does not come back.
    const over = await apply(p, 'echo S=2 >key.txt; mkdir -p build; echo o >build/o2; echo l >y.log');
    assert.equal(over.code, 75, over.stderr);
    assert.match(over.stderr, /conflict key\.txt: it is in the folder, and the agent did not get it/);
    assert.equal(existsSync(join(p.dir, 'build/o2')), false);
    const more = place(t, Object.fromEntries(['prod.env', '.env~', '..env.swp', '.env_local', 'terraform.tfstate.backup', 'prod.tfvars', 'putty.ppk', 'kubeconfig', 'environment'].map((n) => [n, 'x'])));
    const named = JSON.parse((await code(more, 'true', ['-o', 'json'])).stdout).not_copied.secrets;
    assert.deepEqual([named.count, named.paths.includes('environment')], [8, false]);
    // Rules that are too many to be followed are not passed over.
    const rules = place(t, { '.gitignore': `${'x\n'.repeat(20001)}token\n`, token: 't' });
    const many = await code(rules, 'true');
    assert.match(many.stderr, /the \.gitignore files have more than 20000 rules/);
    assert.notEqual(many.code, 0);
    // A folder in a repository has its rules, too.
    const q = place(t, { '.gitignore': 'skip.*\n/inner/top\n', 'inner/a': 'a', 'inner/skip.me': 's', 'inner/top': 't', 'inner/deep/top': 't', '.git/info/exclude': 'inner/deep/ex\n', 'inner/deep/ex': 'e' });
    q.dir = join(q.dir, 'inner');
    const done = await code(q, 'find . -type f | sort', ['-o', 'json']);
    assert.deepEqual(JSON.parse(done.stdout).not_copied.ignored.paths.sort(), ['deep/ex', 'skip.me', 'top']);
  });

  test('a large folder is copied, one that is too large is refused with what to do', async (t) => {
    const files = Object.fromEntries(Array.from({ length: 3000 }, (_, i) => [`d${i % 30}/f${i}`, `${i}\n`]));
    const p = place(t, files);
    const done = await apply(p, 'find . -type f | wc -l >/tmp/n; cp /tmp/n count');
    assert.equal(done.code, 0, done.stderr);
    assert.equal(readFileSync(join(p.dir, 'count'), 'utf8'), '3000\n');
    const large = place(t, { big: Buffer.alloc(13 << 20) });
    const refused = await code(large, 'true');
    assert.equal(refused.code, 65);
    assert.match(refused.stderr, /big has more than 12 MiB: put it into \.gitignore/);
  });

  test('a diff that is not whole says so, and so does the exit status', async (t) => {
    const p = place(t, { 'a.txt': 'a\n' });
    const done = await code(p, 'mkdir n; git -C n init -q; echo x >n/x; echo 2 >>a.txt');
    assert.equal(done.code, 3);
    assert.match(done.stderr, /the diff is not all that changed: 1 paths are not in the diff: n\/\.git/);
    assert.match(done.stdout, /\+\+\+ b\/n\/x/);
    // The agent cannot end what collects without it being told.
    const killed = await code(p, '(while :; do for p in /proc/[0-9]*; do case "$(tr "\\0" " " <$p/cmdline 2>/dev/null)" in */cay-coder\\ changes*) kill -9 ${p#/proc/};; esac; done; done) >/dev/null 2>&1 & echo 2 >>a.txt');
    if (killed.code !== 0) assert.match(killed.stderr, /could not be read/);
  });
});

/** The records of wire/changes.h, made by hand. */
const record = (kind, payload) => Buffer.concat([Buffer.from([kind]), u32(payload.length), payload]);
const u32 = (n) => Buffer.from(new Uint32Array([n]).buffer);
const u64 = (n) => Buffer.from(new BigUint64Array([BigInt(n)]).buffer);
const str = (s) => Buffer.concat([u32(Buffer.from(s, 'latin1').length), Buffer.from(s, 'latin1')]);
const change = (path, { op = 1, old = op === 1 ? 0 : 0o100644, mode = op === 3 ? 0 : 0o100644, content = 'x', size = content?.length ?? 0 } = {}) => {
  const has = op !== 3 && content !== null;
  return Buffer.concat([record(2, Buffer.concat([str(path), Buffer.from([op]), u32(old), u32(mode), u64(op === 3 ? 0 : size), Buffer.from([has ? 1 : 0])])), ...(has && content.length ? [record(3, Buffer.from(content, 'latin1'))] : [])]);
};
const end = record(6, Buffer.concat([u64(1), u64(0), u64(0), u64(0), u64(0), Buffer.from([0])]));

test('a server that lies writes nothing outside the folder, and nothing of a list that is wrong', async (t) => {
  let stream;
  const server = createServer((req, res) => {
    const run = { id: 'run_1', status: 'done', detail: { diff: '', diff_is_whole: true } };
    if (req.url === '/v1/code') res.setHeader('content-type', 'text/event-stream').end(`event: end\ndata: ${JSON.stringify(run)}\n\n`);
    else if (req.url.endsWith('/changes.files')) res.end(stream);
    else res.setHeader('content-type', 'application/json').end(JSON.stringify(run));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const p = place(t, { 'a.txt': 'a\n' });
  mkdirSync(join(p.dir, '.git'));
  const all = () => JSON.stringify([tree(p.dir), readdirSync(p.top).sort()]);
  const run = async (bytes) => {
    stream = bytes;
    return runCay(['code', '--url', `http://127.0.0.1:${server.address().port}`, '--dir', p.dir, '--apply', '--yes', 'x'], { env: p.env });
  };
  const old = all();
  const wrong = {
    'an absolute path': [change('/etc/x'), end],
    'a path up': [change('../x'), end],
    'a path up in the middle': [change('a/../../x'), end],
    'a path with a dot': [change('./x'), end],
    'an empty part': [change('a//x'), end],
    'an empty path': [change(''), end],
    'a NUL': [change('a\0b'), end],
    'a name of 300 bytes': [change('n'.repeat(300)), end],
    'a path of 5000 bytes': [change('n/'.repeat(2500) + 'x'), end],
    '.git': [change('.git/config'), end],
    '.GIT below': [change('x/.GiT/hooks/post-checkout'), end],
    'git~1': [change('GIT~1/config'), end],
    'a mode with setuid': [change('x', { mode: 0o104755 }), end],
    'a device': [change('x', { mode: 0o060644 }), end],
    'a folder': [change('x', { mode: 0o040000 }), end],
    'an unknown change': [change('x', { op: 7 }), end],
    'more bytes than announced': [change('x', { content: 'xxx', size: 2 }), end],
    'fewer bytes than announced': [change('x', { content: 'x', size: 2 }), end],
    'a file of a terabyte': [change('x', { size: 2 ** 40 }), end],
    'the wrong order': [change('b'), change('a'), end],
    'a name twice': [change('a'), change('a'), end],
    'no end': [change('x')],
    'something after the end': [end, change('x')],
    'an unknown record': [record(9, Buffer.from('x')), end],
    'a record of a gigabyte': [Buffer.from([3, 0, 0, 0, 0x40])],
    'an entry of the other list': [record(1, Buffer.concat([str('x'), u32(0o100644), u64(0), Buffer.alloc(20), Buffer.from([0])])), end],
    'nothing': [],
    'text': [Buffer.from('diff --git a/x b/x\ncopy from /etc/hostname\ncopy to x\n')],
  };
  for (const [name, parts] of Object.entries(wrong)) {
    const got = await run(Buffer.concat(parts));
    assert.ok(got.code !== 0 && got.code !== null, `${name}: ${got.code} ${got.signal}`);
    assert.equal(all(), old, name);
    assert.match(got.stderr, /nothing was written/, name);
  }
  // What is sound and may not be is left out, by name; the rest is written.
  const got = await run(Buffer.concat([change('d/HEAD'), change('d/objects/x'), change('d/refs/x'), change('esc\x1b[2J'), change('link', { mode: 0o120000, content: '/etc' }), change('ok'), end]));
  assert.equal(got.code, 3, got.stderr);
  assert.equal(existsSync(join(p.dir, 'd/refs/x')), false);
  assert.equal(existsSync(join(p.dir, 'link')), false);
  assert.equal(readFileSync(join(p.dir, 'ok'), 'utf8'), 'x');
});
