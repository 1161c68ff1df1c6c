// A server of git repositories on a loopback port: git's own http-backend behind node's HTTP server.
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { dirname, join } from 'node:path';
import { tempDir } from './cay.mjs';

const env = { ...process.env, GIT_CONFIG_NOSYSTEM: '1', GIT_CONFIG_GLOBAL: '/dev/null', GIT_AUTHOR_NAME: 't', GIT_AUTHOR_EMAIL: 't@t', GIT_COMMITTER_NAME: 't', GIT_COMMITTER_EMAIL: 't@t', GIT_ALLOW_PROTOCOL: 'file:http' };

/** git in a folder; its output. */
export const git = (cwd, ...args) => execFileSync('git', args, { cwd, env, encoding: 'utf8', stdio: ['pipe', 'pipe', 'pipe'] });
/** The same with an input. */
export const gitWith = (cwd, input, ...args) => execFileSync('git', args, { cwd, env, input, encoding: 'utf8' });

/** Writes files into a folder: {path: text}. */
export function writeFiles(dir, files) {
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(dir, path)), { recursive: true });
    writeFileSync(join(dir, path), content);
  }
}

/** http-backend's answer is a head as of CGI, then the body. */
function passOn(cgi, res) {
  let head = Buffer.alloc(0);
  let begun = false;
  cgi.stdout.on('data', (data) => {
    if (begun) return void res.write(data);
    head = Buffer.concat([head, data]);
    const at = head.indexOf('\r\n\r\n');
    if (at < 0) return;
    begun = true;
    for (const line of head.subarray(0, at).toString().split('\r\n')) {
      const [name, value] = [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)];
      if (name === 'Status') res.statusCode = Number.parseInt(value, 10);
      else res.setHeader(name, value);
    }
    res.write(head.subarray(at + 4));
  });
  cgi.stdout.on('end', () => res.end());
}

/**
 * {url, host, asked, add(name, make)}: add() makes a repository out of what make(dir) leaves in a folder. Those whose
 * name begins with "private" want the header `authorization: Basic letmein`.
 */
export async function startGit(t) {
  const root = tempDir(t);
  const asked = [];
  const server = createServer((req, res) => {
    const url = new URL(req.url, 'http://x');
    asked.push({ method: req.method, path: url.pathname, query: url.search, authorization: req.headers.authorization });
    if (url.pathname.startsWith('/private') && req.headers.authorization !== 'Basic letmein') {
      res.writeHead(401, { 'WWW-Authenticate': 'Basic realm="git"' }).end();
      return;
    }
    if (url.pathname.startsWith('/moved')) {
      res.writeHead(301, { Location: `http://example.com${url.pathname}${url.search}` }).end();
      return;
    }
    const cgi = spawn('git', ['http-backend'], {
      env: {
        ...env,
        GIT_PROJECT_ROOT: root,
        GIT_HTTP_EXPORT_ALL: '1',
        GIT_CONFIG_COUNT: '2',
        GIT_CONFIG_KEY_0: 'uploadpack.allowAnySHA1InWant',
        GIT_CONFIG_VALUE_0: 'true',
        GIT_CONFIG_KEY_1: 'safe.directory',
        GIT_CONFIG_VALUE_1: '*',
        REQUEST_METHOD: req.method,
        PATH_INFO: decodeURIComponent(url.pathname),
        QUERY_STRING: url.search.slice(1),
        CONTENT_TYPE: req.headers['content-type'] ?? '',
        HTTP_CONTENT_ENCODING: req.headers['content-encoding'] ?? '',
        GIT_PROTOCOL: req.headers['git-protocol'] ?? '',
      },
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    cgi.on('error', () => res.writeHead(500).end());
    cgi.stdin.on('error', () => {});
    req.pipe(cgi.stdin);
    passOn(cgi, res);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const host = `127.0.0.1:${server.address().port}`;
  const url = `http://${host}`;
  /** A repository; its address. */
  const add = (name, make) => {
    const work = join(root, `${name}.work`);
    mkdirSync(work);
    git(work, '-c', 'init.defaultBranch=main', 'init', '-q');
    writeFileSync(join(work, '.git/info/attributes'), '* -text -filter -ident -working-tree-encoding\n'); // files as they are
    if (typeof make === 'function') make(work);
    else writeFiles(work, make);
    git(work, 'add', '-A');
    git(work, 'commit', '-qm', 'first', '--allow-empty');
    git(root, 'clone', '-q', '--bare', work, name);
    rmSync(work, { recursive: true, force: true });
    return `${url}/${name}`;
  };
  return { url, host, root, asked, add };
}
