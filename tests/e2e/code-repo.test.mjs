// A repository is cloned inside the sandbox, and what the agent changes comes out as a diff that applies.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { chmodSync, closeSync, openSync, symlinkSync, writeFileSync, writeSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { pipeline, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { bearer, createKey, request, startCay, tempDir, until, withCay } from '../lib/cay.mjs';
import { code, nothingLeft, runCode } from '../lib/code.mjs';
import { git, gitWith, startGit, writeFiles } from '../lib/git.mjs';

describe('a repository', () => {
  let cay, server;
  const ends = [];
  before(async () => {
    server = await startGit({ after: (f) => ends.push(f) });
    const config = {
      sandboxes: {
        private: [server.host],
        allow: [`tcp://${server.host}`, '169.254.169.254:80', '127.0.0.1:1'], // the latter two are not private endpoints
        routes: {
          hub: { url: `${server.url}/`, headers: { authorization: 'Basic ${HUB}' } },
          elsewhere: { url: `${server.url}/else`, headers: { authorization: 'Basic ${HUB}' } },
        },
      },
    };
    cay = await startCay({ config, dotenv: 'HUB=letmein\n' });
  });
  after(async () => {
    await cay.stop();
    for (const end of ends) await end();
  });

  /** What the lines of its command were. */
  const said = async (run) => (await request(cay, `/v1/runs/${run.id}`)).json().events.filter((e) => e.type === 'text').map((e) => e.data.text);

  test('is there, whole, and its host is out of reach when the agent works', async () => {
    const repo = server.add('plain', { 'README.md': 'hello\n', 'src/a.c': 'int a;\n' });
    const seen = code(cay, {
      repo,
      keep: true,
      command: 'git status --short; git log --format=%s; cat README.md src/a.c; git remote get-url origin; git fetch -q origin 2>&1; ls .git/hooks 2>&1; echo changed >>README.md',
    });
    await seen.ended;
    assert.deepEqual(seen.of('clone'), [{ repo, ref: null }]);
    assert.match(seen.of('cloned')[0].commit, /^[0-9a-f]{40}$/);
    const lines = seen.of('text').map((e) => e.text);
    assert.deepEqual(lines.slice(0, 4), ['first', 'hello', 'int a;', repo]);
    assert.match(lines[4], /unable to access/);
    assert.match(lines[5], /No such file/, 'no hooks');
    const run = (await request(cay, `/v1/runs/${seen.of('end')[0].id}`)).json();
    assert.equal(run.detail.repo, repo);
    assert.match(run.detail.diff, /^ hello\n\+changed$/m);
    // The very route is closed, not only unknown to the agent.
    const before = server.asked.length;
    const tried = await request(cay, `/v1/sandboxes/${run.detail.sandbox}/exec`, {
      method: 'POST',
      body: JSON.stringify({ command: `curl -s -o /dev/null -w %{http_code} "http://127.0.0.1:3128/_/clone-${run.id}/info/refs?service=git-upload-pack"` }),
    });
    assert.equal(tried.json().stdout, '403', tried.body);
    assert.equal(server.asked.length, before);
    // A further task in it works on the same, and tells what it changed by itself.
    const next = await runCode(cay, { sandbox: run.detail.sandbox, command: 'echo more >>README.md', keep: false });
    assert.match(next.detail.diff, /^ changed\n\+more$/m);
    await nothingLeft(cay);
  });

  test('cannot be pushed to during the clone, or asked for anything else', async () => {
    const repo = server.add('narrow', { a: 'a\n' });
    server.asked.length = 0;
    await runCode(cay, { repo, command: 'true' });
    assert.deepEqual([...new Set(server.asked.map((a) => `${a.method} ${a.path}${a.query}`))], ['GET /narrow/info/refs?service=git-upload-pack', 'POST /narrow/git-upload-pack']);
  });

  test('has a branch, a tag or a commit that is asked for', async () => {
    const repo = server.add('refs', (dir) => {
      writeFiles(dir, { v: '1\n' });
      git(dir, 'add', '-A');
      git(dir, 'commit', '-qm', 'one');
      git(dir, 'tag', 'v1');
      git(dir, 'checkout', '-qb', 'feature/x');
      writeFiles(dir, { v: '2\n' });
      git(dir, 'commit', '-qam', 'two');
      git(dir, 'checkout', '-q', 'main');
      writeFiles(dir, { v: '3\n' });
    });
    const commit = git(join(server.root, 'refs'), 'rev-parse', 'feature/x').trim();
    for (const [ref, expected] of [[undefined, '3'], ['v1', '1'], ['feature/x', '2'], ['refs/heads/main', '3'], [commit, '2']])
      assert.deepEqual(await said(await runCode(cay, { repo, ref, command: 'cat v; git log --oneline | wc -l' })), [expected, '1'], ref);
    const none = await runCode(cay, { repo, ref: 'nothing', command: 'true' });
    assert.equal(none.error.code, 'not_found');
    assert.match(none.error.message, /no such "ref"/);
    await nothingLeft(cay);
  });

  test('that is not there, is private, has moved or may not be reached says so', async () => {
    const fails = async (body, status, pattern) => {
      const run = await runCode(cay, { command: 'true', ...body });
      assert.equal(run.status, 'failed');
      assert.equal(run.error.code, status, run.error.message);
      assert.match(run.error.message, pattern);
    };
    server.add('private-one', { secret: 'inside\n' });
    await fails({ repo: `${server.url}/none` }, 'not_found', /there is no such repository/);
    await fails({ repo: `${server.url}/private-one` }, 'forbidden', /asks for credentials.*"credential"/);
    await fails({ repo: `${server.url}/moved` }, 'bad_request', /at another address/);
    await fails({ repo: 'http://169.254.169.254/latest/meta-data' }, 'forbidden', /may not reach/);
    await fails({ repo: 'http://127.0.0.1:1/x' }, 'forbidden', /may not reach/);
    const refused = async (body, pattern, headers) => {
      const got = await request(cay, '/v1/code', { method: 'POST', headers, body: JSON.stringify({ command: 'true', ...body }) });
      assert.ok(got.status === 400 || got.status === 403, `${got.status} ${got.body}`);
      assert.match(got.json().error.message, pattern);
    };
    for (const repo of ['git@github.com:a/b', 'https://me:secret@example.com/a', '', 'ssh://example.com/a', 'file:///etc', 'ext::sh -c true', '/etc', 'https://example.com', 'https://example.com/a b', 'https://example.com/a/../b', 'https://example.com/a?b', `https://example.com/${'a'.repeat(1100)}`])
      await refused({ repo }, /"repo"/);
    for (const ref of ['--upload-pack=sh', '-x', 'a..b', '+main', 'a:b', 'a b', '', 'HEAD@{1}']) await refused({ repo: `${server.url}/plain`, ref }, /"ref"/);
    await refused({ ref: 'main' }, /are of a "repo"/);
    await refused({ repo: `${server.url}/plain`, files: [{ path: 'a', content: '' }] }, /"files" go into a new/);
    await refused({ repo: `${server.url}/private-one`, credential: 'nothing' }, /"credential": there is no route "nothing"/);
    await refused({ repo: `${server.url}/private-one`, credential: 'elsewhere' }, /does not lead to this repository/);
    await nothingLeft(cay);
  });

  test('that is private is cloned with a credential that is never inside', async () => {
    server.asked.length = 0;
    const run = await runCode(cay, { repo: `${server.url}/private-one`, credential: 'hub', command: 'cat secret; grep -rs let[m]ein /work /home /tmp /proc/*/environ /proc/*/cmdline ; env' });
    assert.equal(run.status, 'done', JSON.stringify(run.error));
    const lines = (await said(run)).join('\n');
    assert.match(lines, /^inside$/m);
    assert.doesNotMatch(lines, /Basic|letmein$/m);
    assert.ok(server.asked.every((a) => a.authorization === 'Basic letmein'));
    assert.doesNotMatch(JSON.stringify(run), /letmein/);
  });

  test('hostile: links, filters, submodules, hooks, settings and names do nothing', async () => {
    const canary = join(tempDir({ after: (f) => ends.push(f) }), 'canary');
    writeFileSync(canary, 'canary of the host\n');
    const repo = server.add('hostile', (dir) => {
      writeFiles(dir, {
        '.gitattributes': '* filter=evil diff=evil text eol=crlf working-tree-encoding=UTF-16\nlib/** ident\n',
        '.gitmodules': `[submodule "a"]\n\tpath = a\n\turl = file://${server.root}/plain\n[submodule "b"]\n\tpath = b\n\turl = http://169.254.169.254/x\n\tupdate = !touch /tmp/owned\n`,
        '.gitconfig': '[core]\n\thooksPath = hooks\n\tfsmonitor = touch /tmp/owned\n[filter "evil"]\n\tsmudge = touch /tmp/owned\n\tclean = touch /tmp/owned\n[diff "evil"]\n\ttextconv = touch /tmp/owned\n',
        'hooks/post-checkout': '#!/bin/sh\ntouch /tmp/owned\n',
        'lib/id': '$Id$\n',
        'Case': 'upper\n',
        'case': 'lower\n',
      });
      chmodSync(join(dir, 'hooks/post-checkout'), 0o755);
      symlinkSync(canary, join(dir, 'link'));
      symlinkSync('/opt/cay-changes', join(dir, 'base'));
      symlinkSync('.git/hooks', join(dir, 'inside'));
      const commit = git(join(server.root, 'plain'), 'rev-parse', 'HEAD').trim();
      git(dir, 'add', '-A');
      git(dir, 'update-index', '--add', '--cacheinfo', `160000,${commit},a`);
      git(dir, 'update-index', '--add', '--cacheinfo', `160000,${commit},b`);
      git(dir, 'commit', '-qm', 'hostile');
    });
    server.asked.length = 0;
    const run = await runCode(cay, { repo, command: 'ls /tmp/owned 2>&1; cat link 2>&1; cat Case case; od -c lib/id | head -1; ls a b; git status --short; echo done >new' });
    const lines = await said(run);
    assert.match(lines[0], /owned.*No such file/);
    assert.match(lines[1], /link.*No such file/);
    assert.deepEqual(lines.slice(2, 4), ['upper', 'lower']);
    assert.match(lines[4], /\$ +I +d +\$ +\\n/, 'as the repository has it');
    assert.ok(server.asked.every((a) => a.path.startsWith('/hostile/')), 'no submodule was asked for');
    assert.equal(run.status, 'done');
    assert.match(run.detail.diff, /^diff --git a\/new b\/new\nnew file mode 100644\nindex \S+\n--- \/dev\/null\n\+\+\+ b\/new\n@@ -0,0 \+1 @@\n\+done\n$/, 'and the diff is of what was done');
    await nothingLeft(cay);
  });

  test('what changes comes out as a diff that makes the same of a clone', async () => {
    const repo = server.add('changes', {
      'gone.txt': 'gone\n',
      'old name.txt': `${'a line\n'.repeat(20)}`,
      'crlf.txt': 'one\r\ntwo\r\nthree\r\n',
      'mode.sh': '#!/bin/sh\n',
      'latin.txt': Buffer.from('caf\xe9\n', 'latin1'),
      'bytes.bin': Buffer.from([0, 1, 2, 3, 255]),
      'no-end': 'no newline at the end',
      'sub/kept': 'kept\n',
      '.gitattributes': '*.bat text eol=crlf\n',
      'a.bat': 'echo one\necho two\n',
      '.gitignore': 'ignored/\n*.log\n',
      'was-link': 'plain\n',
    });
    const command = `set -e
      rm gone.txt; mv 'old name.txt' 'new "name"\té.txt'; printf 'one\\r\\nTWO\\r\\nthree\\r\\n' >crlf.txt; chmod +x mode.sh
      printf 'th\\351\\n' >>latin.txt; printf '\\000\\377\\001' >bytes.bin; printf ' more' >>no-end; : >empty; mkdir -p ignored d/e; echo x >ignored/x; echo x >x.log
      printf '\\351' >"$(printf 'n\\351me')"; echo '-- a/b' >d/e/--; printf 'echo one\\necho 2\\n' >a.bat; rm was-link; ln -s sub/kept was-link; rm -r sub
      printf 'new\\r\\n' >'trailing '; mkdir nested; git -C nested init -q; rm -rf nested/.git; echo n >nested/n
      git commit -qam 'the agent commits too' --no-verify || true
      git add -A; git write-tree`;
    const seen = code(cay, { repo, command: `git config user.name x; git config user.email x@y; ${command}` });
    await seen.ended;
    const tree = seen.of('text').at(-1).text;
    assert.match(tree, /^[0-9a-f]{40}$/, JSON.stringify(seen.of('text')));
    const { detail } = (await request(cay, `/v1/runs/${seen.of('end')[0].id}`)).json();
    assert.equal(detail.diff_is_whole, true);
    assert.match(detail.diff, /GIT binary patch/);
    assert.match(detail.diff, /old mode 100644\nnew mode 100755/);
    const patch = detail.diff_base64 ? Buffer.from(detail.diff_base64, 'base64') : Buffer.from(detail.diff);
    const dir = tempDir({ after: (f) => ends.push(f) });
    git(dir, 'clone', '-q', join(server.root, 'changes'), 'clone');
    const clone = join(dir, 'clone');
    gitWith(clone, patch, 'apply', '--index', '--whitespace=nowarn', '-');
    assert.equal(git(clone, 'write-tree').trim(), tree);
    // Without the index, too: onto a folder of files.
    git(dir, 'clone', '-q', join(server.root, 'changes'), 'files');
    gitWith(join(dir, 'files'), patch, 'apply', '--whitespace=nowarn', '-');
    git(join(dir, 'files'), 'add', '-A');
    assert.equal(git(join(dir, 'files'), 'write-tree').trim(), tree);
  });

  test('a diff that is too long is cut, and says so', async () => {
    const repo = server.add('long', { a: 'a\n' });
    const run = await runCode(cay, { repo, command: 'seq 200000 | head -c 1000000 >f1; for i in $(seq 2 50); do cp f1 f$i; done' });
    assert.equal(run.status, 'done');
    assert.equal(run.detail.diff_is_whole, false);
    assert.ok(run.detail.diff.length > (4 << 20) - 4 && run.detail.diff.length <= 4 << 20);
    assert.match(run.detail.diff_note, /longer than 4194304 bytes.*keep the sandbox/);
    assert.deepEqual((await request(cay, `/v1/runs/${run.id}/artifacts`)).json(), { artifacts: [] }, '50 MB are too much for an artifact too');
    await nothingLeft(cay);
  });

  test('a long diff is whole as an artifact, which goes with its job', async () => {
    const repo = server.add('artifact', { a: 'a\n' });
    const run = await runCode(cay, { repo, command: 'seq 2000000 | head -c 8000000 >f1' });
    assert.match(run.detail.diff_note, /the artifact "changes\.diff" is all of it/);
    const { artifacts } = (await request(cay, `/v1/runs/${run.id}/artifacts`)).json();
    assert.deepEqual(artifacts.map((a) => [a.name, a.type]), [['changes.diff', 'text/x-diff']]);
    const at = `http://127.0.0.1:${cay.port}/v1/runs/${run.id}/artifacts/changes.diff`;
    const got = await fetch(at);
    const bytes = Buffer.from(await got.arrayBuffer());
    assert.equal(got.headers.get('etag'), `"${artifacts[0].sha256}"`);
    assert.equal(createHash('sha256').update(bytes).digest('hex'), artifacts[0].sha256);
    assert.equal(bytes.length, artifacts[0].bytes);
    assert.ok(bytes.toString().startsWith('diff --git a/f1 b/f1') && bytes.length > 8_000_000);
    assert.equal((await fetch(at, { headers: { 'If-None-Match': got.headers.get('etag') } })).status, 304);
    assert.equal((await fetch(at.replace('changes.diff', 'none'))).status, 404);
    // A client that leaves in the middle, and a file that was damaged: it breaks off before its end.
    for (let i = 0; i < 5; i++) {
      const cut = new AbortController();
      const begun = await fetch(at, { signal: cut.signal });
      await begun.body.getReader().read();
      cut.abort();
    }
    const file = join(cay.dataDir, 'artifacts', artifacts[0].sha256.slice(0, 2), artifacts[0].sha256);
    const fd = openSync(file, 'r+');
    writeSync(fd, 'XX', 100);
    closeSync(fd);
    await assert.rejects(async () => (await fetch(at)).arrayBuffer());
    assert.equal((await request(cay, '/health')).status, 200);
    await nothingLeft(cay);
  });

  test('a clone that takes for ever ends with its time, or when it is cancelled, and leaves nothing', async (t) => {
    const silent = createServer((req, res) => {
      if (req.url.startsWith('/page')) res.setHeader('content-type', 'text/html').end('<h1>Not git</h1>');
    });
    await new Promise((resolve) => silent.listen(0, '127.0.0.1', resolve));
    t.after(() => {
      silent.closeAllConnections();
      silent.close();
    });
    const host = `127.0.0.1:${silent.address().port}`;
    const other = await withCay(t, { config: { sandboxes: { private: [host, '127.0.0.1:1'], allow: [`tcp://${host}`, 'tcp://127.0.0.1:1'] } } });
    const late = await runCode(other, { repo: `http://${host}/x`, command: 'true', timeout_ms: 2000 });
    assert.equal(late.error.code, 'timeout');
    assert.match(late.error.message, /not cloned within 2 s/);
    const away = await runCode(other, { repo: 'http://127.0.0.1:1/x', command: 'true' });
    assert.deepEqual([away.error.code, away.error.message], ['upstream_error', 'http://127.0.0.1:1/x: its server cannot be reached']);
    const page = await runCode(other, { repo: `http://${host}/page`, command: 'true' });
    assert.match(page.error.message, /it is empty, or no repository/);
    const seen = code(other, { repo: `http://${host}/x`, command: 'true' });
    await until(() => seen.of('clone').length > 0, 'the clone');
    const run = (await request(other, '/v1/runs?kind=code')).json().runs.find((r) => r.status === 'running');
    await request(other, `/v1/runs/${run.id}/cancel`, { method: 'POST' });
    await seen.ended;
    assert.equal(seen.of('end')[0].status, 'cancelled');
    await nothingLeft(other);
  });

  test('one that is small and has a hundred million files ends at the sandbox’s memory', async (t) => {
    const repo = server.add('bomb', { a: 'x' });
    const dir = join(server.root, 'bomb');
    let entry = `100644 blob ${gitWith(dir, 'boom', 'hash-object', '-w', '--stdin').trim()}`;
    for (let level = 0; level < 8; level++)
      entry = `040000 tree ${gitWith(dir, Array.from({ length: 10 }, (_, i) => `${entry}\td${i}\n`).join(''), 'mktree').trim()}`;
    git(dir, 'update-ref', 'refs/heads/main', git(dir, 'commit-tree', entry.split(' ')[2], '-m', 'x').trim());
    const other = await withCay(t, { config: { sandboxes: { private: [server.host], allow: [`tcp://${server.host}`], memory_mb: 64 } } });
    const run = await runCode(other, { repo, command: 'true' });
    assert.equal(run.error.code, 'limit_exceeded', JSON.stringify(run.error));
    assert.match(run.error.message, /more memory than the sandbox has/);
    await nothingLeft(other);
  });

  /** A server that speaks git and never ends what it says: its refs, its progress, a line of that, or a file. */
  async function startLiar(t) {
    const line = (data) => Buffer.concat([Buffer.from((data.length + 4).toString(16).padStart(4, '0')), Buffer.from(data)]);
    const id = 'ab'.repeat(20);
    const band = (n, data) => line(Buffer.concat([Buffer.from([n]), data]));
    const refs = (from) => Buffer.concat(Array.from({ length: 500 }, (_, i) => line(`${id} refs/heads/branch-${from * 500 + i}\n`)));
    const lines = Buffer.from(`${'x'.repeat(63)}\n`.repeat(256));
    const dots = Buffer.alloc(16_384, 'x');
    // One blob of a terabyte, in blocks that are stored as they are.
    const stored = () => Buffer.concat([Buffer.from([0, 0xff, 0x3f, 0, 0xc0]), randomBytes(0x3fff)]);
    const pack = Buffer.concat([Buffer.from('PACK'), Buffer.from([0, 0, 0, 2, 0, 0, 0, 1]), Buffer.from([0xb0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01]), Buffer.from([0x78, 0x01])]);
    const endless = {
      refs: (n) => refs(n),
      progress: () => band(2, lines),
      line: () => band(2, dots),
      file: (n) => band(1, n ? stored() : pack),
    };
    const server = createServer(async (req, res) => {
      const which = /^\/(\w+)/.exec(req.url)[1];
      const words = async function* () {
        for (let n = 0; ; n++) {
          yield endless[which](n);
          await new Promise(setImmediate); // the others have their turn
        }
      };
      const pour = () => pipeline(Readable.from(words()), res, () => {});
      if (req.url.includes('/info/refs')) {
        res.setHeader('content-type', 'application/x-git-upload-pack-advertisement');
        res.write(Buffer.concat([line('# service=git-upload-pack\n'), Buffer.from('0000'), line(`${id} HEAD\0side-band-64k shallow symref=HEAD:refs/heads/main\n`), line(`${id} refs/heads/main\n`)]));
        return void (which === 'refs' ? pour() : res.end('0000'));
      }
      res.setHeader('content-type', 'application/x-git-upload-pack-result');
      res.write(Buffer.concat([line(`shallow ${id}\n`), Buffer.from('0000')]));
      if (!(await text(req)).includes('done')) return void res.end();
      res.write(line('NAK\n'));
      pour();
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    t.after(() => {
      server.closeAllConnections();
      server.close();
    });
    return `127.0.0.1:${server.address().port}`;
  }

  test('one whose server never ends its refs, its progress, a line or a file ends at a limit', async (t) => {
    const host = await startLiar(t);
    const other = await withCay(t, { config: { sandboxes: { private: [host], allow: [`tcp://${host}`], memory_mb: 64, disk_mb: 16 } } });
    const ends = { refs: 'limit_exceeded', progress: 'timeout', line: 'limit_exceeded', file: 'limit_exceeded' };
    const got = await Promise.all(Object.keys(ends).map((which) => runCode(other, { repo: `http://${host}/${which}`, command: 'true', timeout_ms: which === 'progress' ? 3000 : 60_000 })));
    Object.values(ends).forEach((end, i) => assert.equal(got[i].error.code, end, JSON.stringify(got[i].error)));
    await nothingLeft(other);
  });

  test('one that is too large for the sandbox, a key without the route, an operator who forbids the host', async (t) => {
    const repo = server.add('huge', { bytes: randomBytes(20 << 20) }); // zeros would be a hole, which fits
    const routes = { hub: { url: `${server.url}/`, headers: { authorization: 'Basic x' } } };
    const other = await withCay(t, { config: { sandboxes: { private: [server.host], disk_mb: 16, routes, allow: ['example.com'] }, require_key: true } });
    const own = bearer(other.key);
    const full = await runCode(other, { repo, credential: 'hub', command: 'true' }, own);
    assert.equal(full.error.code, 'limit_exceeded', full.error.message);
    assert.match(full.error.message, /does not fit/);
    const forbidden = await request(other, '/v1/code', { method: 'POST', headers: own, body: JSON.stringify({ repo, command: 'true' }) });
    assert.equal(forbidden.status, 403);
    assert.match(forbidden.json().error.message, /"repo": the operator does not let sandboxes reach/);
    const poor = await createKey(other.dataDir, { name: 'poor', more: ['--route', 'other'] });
    const without = await request(other, '/v1/code', { method: 'POST', headers: bearer(poor.text), body: JSON.stringify({ repo, credential: 'hub', command: 'true' }) });
    assert.equal(without.status, 403, without.body);
    await nothingLeft(other, own);
  });
});
