// The way out of sandboxes, through the front: what is handed to them works, and nothing else does.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readlinkSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { createKey, runCay, startCay, tempDir, until, withCay } from '../lib/cay.mjs';
import { call, make } from '../lib/sandbox.mjs';

const SECRET = 'a-credential-that-no-guest-may-see';
const listen = (server) => new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server.address().port)));
const dir = tempDir(null);
const seen = [];
let upstream;
let tls;
let ports;
let cay;

/** A git repository behind git's own HTTP program. */
function gitBackend(req, res) {
  const url = new URL(req.url, 'http://x');
  const child = spawn('git', ['http-backend'], {
    env: {
      PATH: process.env.PATH,
      GIT_PROJECT_ROOT: join(dir, 'git'),
      GIT_HTTP_EXPORT_ALL: '1',
      PATH_INFO: url.pathname.replace(/^\/git/, ''),
      QUERY_STRING: url.search.slice(1),
      REQUEST_METHOD: req.method,
      CONTENT_TYPE: req.headers['content-type'] ?? '',
      HTTP_CONTENT_ENCODING: req.headers['content-encoding'] ?? '',
      GIT_PROTOCOL: req.headers['git-protocol'] ?? '',
      REMOTE_ADDR: '127.0.0.1',
    },
  });
  req.pipe(child.stdin);
  child.stdin.on('error', () => {});
  let head = Buffer.alloc(0);
  let begun = false;
  child.stdout.on('data', (chunk) => {
    if (begun) return void res.write(chunk);
    head = Buffer.concat([head, chunk]);
    const end = head.indexOf('\r\n\r\n');
    if (end < 0) return;
    begun = true;
    let status = 200;
    for (const line of head.subarray(0, end).toString().split('\r\n')) {
      const [name, value] = [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()];
      if (name.toLowerCase() === 'status') status = parseInt(value, 10);
      else res.setHeader(name, value);
    }
    res.writeHead(status);
    res.write(head.subarray(end + 4));
  });
  child.stdout.on('end', () => res.end());
}

/** Packages as a registry shows them: one, made here. */
let tarball;
function registry(req, res, base) {
  if (req.url === '/tiny-thing') {
    const dist = { tarball: `${base}/tiny-thing/-/tiny-thing-1.2.3.tgz`, shasum: createHash('sha1').update(tarball).digest('hex') };
    res.setHeader('content-type', 'application/json');
    res.end(JSON.stringify({ name: 'tiny-thing', 'dist-tags': { latest: '1.2.3' }, versions: { '1.2.3': { name: 'tiny-thing', version: '1.2.3', dist } } }));
  } else if (req.url.endsWith('.tgz')) {
    res.end(tarball);
  } else {
    res.statusCode = 404;
    res.end('{}');
  }
}

/** A model's answer, as its API streams it. */
function messages(req, res) {
  const events = [
    { type: 'message_start', message: { id: 'msg_1', type: 'message', role: 'assistant', model: 'claude-test', content: [], usage: { input_tokens: 21, output_tokens: 1 } } },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'hello from the model' } },
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 9 } },
    { type: 'message_stop' },
  ];
  req.resume().on('end', () => {
    res.setHeader('content-type', 'text/event-stream');
    for (const e of events) res.write(`event: ${e.type}\ndata: ${JSON.stringify(e)}\n\n`);
    res.end();
  });
}

function handler(secure) {
  return (req, res) => {
    seen.push({ secure, url: req.url, headers: req.headers });
    if (req.url.startsWith('/git/')) return gitBackend(req, res);
    if (req.url === '/v1/messages') return messages(req, res);
    if (req.url.startsWith('/tiny-thing') || req.url.startsWith('/-/')) return registry(req, res, `${secure ? 'https' : 'http'}://localhost:${secure ? ports.tls : ports.http}`);
    res.setHeader('content-type', 'text/plain');
    return res.end(`you asked for ${req.url}`);
  };
}

before(async () => {
  execFileSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost', '-keyout', join(dir, 'key.pem'), '-out', join(dir, 'cert.pem')], { stdio: 'ignore' });
  const work = join(dir, 'work');
  mkdirSync(work);
  mkdirSync(join(dir, 'git'));
  const git = (...args) => execFileSync('git', ['-C', work, '-c', 'user.name=t', '-c', 'user.email=t@t', ...args], { stdio: 'ignore' });
  git('init', '-b', 'main');
  writeFileSync(join(work, 'README'), 'cloned through the proxy\n');
  git('add', '.');
  git('commit', '-m', 'first');
  execFileSync('git', ['clone', '--bare', work, join(dir, 'git', 'repo.git')], { stdio: 'ignore' });
  mkdirSync(join(dir, 'package'));
  writeFileSync(join(dir, 'package', 'package.json'), JSON.stringify({ name: 'tiny-thing', version: '1.2.3', main: 'index.js' }));
  writeFileSync(join(dir, 'package', 'index.js'), 'module.exports = "installed";\n');
  tarball = execFileSync('tar', ['-C', dir, '-czf', '-', 'package']);
  writeFileSync(join(dir, 'wrong.json'), JSON.stringify({ sandboxes: { caps: { requests_per_hour: 1 } } }));
  upstream = createServer(handler(false));
  tls = createTlsServer({ key: readFileSync(join(dir, 'key.pem')), cert: readFileSync(join(dir, 'cert.pem')) }, handler(true));
  ports = { http: await listen(upstream), tls: await listen(tls) };
  cay = await startCay({
    env: { UPSTREAM_TOKEN: SECRET },
    config: {
      sandboxes: {
        pool: 1,
        events: 50,
        allow: [`localhost:${ports.tls}`, `tcp://localhost:${ports.http}`, '*.example.com', 'example.org:8443'],
        private: [`localhost:${ports.http}`, `localhost:${ports.tls}`, `127.0.0.1:${ports.http}`],
        routes: {
          api: { url: `http://127.0.0.1:${ports.http}/prefix`, headers: { authorization: 'Bearer ${UPSTREAM_TOKEN}' }, methods: ['GET', 'POST'] },
          model: { url: `http://127.0.0.1:${ports.http}`, api: 'anthropic', headers: { 'x-api-key': '${UPSTREAM_TOKEN}' }, models: ['claude-*'] },
        },
      },
    },
  });
});
after(async () => {
  await cay.stop();
  upstream.close();
  tls.close();
  rmSync(dir, { recursive: true, force: true });
});

// The proxy's own exceptions would let these names pass it by.
const direct = { NO_PROXY: '', no_proxy: '' };
const total = (events, state) => events.filter((e) => e.state === state).reduce((n, e) => n + e.count, 0);
const last = async (box) => (await box.call('GET', '/network/events')).json.events.at(-1);

/** Every way to write an address of this machine that some resolver or parser takes. */
const spellings = ['127.0.0.1', 'localhost', 'LOCALHOST', 'LocalHost', 'localhost.', '127.0.0.1.', '[::1]', '[0:0:0:0:0:0:0:1]', '[::ffff:127.0.0.1]', '[::FFFF:7f00:1]', '[::127.0.0.1]',
  '[64:ff9b::127.0.0.1]', '[::]', '2130706433', '0x7f000001', '0X7F000001', '0x7f.0.0.1', '0177.0.0.1', '017700000001', '127.1', '127.0.1', '0', '0.0.0.0', '127.0.0.2'];

test('an endpoint that is named for routes is open to routes alone', async (t) => {
  // The same for the models' servers, whose addresses the environment names.
  const model = createServer(handler(false));
  t.after(() => model.close());
  const open = { api: ports.http, anthropic: ports.tls, openai: await listen(model) };
  const at = Object.fromEntries(Object.entries(open).map(([name, port]) => [name, `127.0.0.1:${port}`]));
  const env = { ANTHROPIC_API_KEY: 'sk-ant-x', ANTHROPIC_BASE_URL: `https://${at.anthropic}`, OPENAI_API_KEY: 'sk-x', OPENAI_BASE_URL: `http://${at.openai}/v1` };
  const other = await withCay(t, {
    env, key: true, config: { require_key: true, sandboxes: { pool: 0, private: [at.api, `localhost:${open.api}`, `[::1]:${open.api}`], routes: { api: { url: `http://${at.api}` } } } },
  });
  const poor = await createKey(other.dataDir, { name: 'poor', more: ['--route', 'none'] });
  const named = await createKey(other.dataDir, { name: 'named', more: ['--route', 'api'] });
  const before = seen.length;
  for (const key of [other.key, poor.text, named.text]) {
    // What a policy may hold at all: the rest is refused where it is written.
    const wanted = Object.values(open).flatMap((port) => spellings.map((host) => `${host}:${port}`));
    const box = await make(other, {}, key);
    const taken = [];
    for (const host of wanted) {
      const { status } = await box.call('PUT', '/network', { allow: [host] });
      assert.ok(status === 200 || status === 400, `${host}: ${status}`);
      if (status === 200) taken.push(host);
      assert.equal((await box.call('PUT', '/network', { allow: [`tcp://${host}`] })).status, status === 200 ? 403 : 400, host);
    }
    for (const host of Object.values(at)) assert.ok(taken.includes(host), host);
    assert.equal((await box.call('PUT', '/network', { allow: taken })).status, 200);
    // A tunnel and a plain request to each spelling, allowed or not, by the bytes that a client would not send.
    const program = `
      const net = require('node:net');
      const ask = (text) => new Promise((resolve) => {
        let got = '';
        const s = net.connect(3128, '127.0.0.1', () => s.write(text));
        const end = () => { s.destroy(); resolve(Number(got.split(' ')[1])); };
        s.on('data', (d) => { got += d; if (got.includes('\\r\\n\\r\\n')) end(); }).on('close', end).on('error', end);
      });
      (async () => {
        const all = {};
        for (const host of ${JSON.stringify(wanted)}) all[host] = [
          await ask('CONNECT ' + host + ' HTTP/1.1\\r\\nHost: ' + host + '\\r\\n\\r\\n'),
          await ask('GET http://' + host + '/reached HTTP/1.1\\r\\nHost: ' + host + '\\r\\nConnection: close\\r\\n\\r\\n')];
        console.log(JSON.stringify(all));
      })();`;
    const done = await box.run(['node', '-e', program], { timeout_s: 60 });
    const answers = JSON.parse(done.stdout || '{}');
    assert.equal(Object.keys(answers).length, wanted.length, done.stderr);
    for (const [host, [tunnel, plain]] of Object.entries(answers)) {
      assert.ok([400, 403].includes(tunnel), `CONNECT ${host}: ${tunnel}`);
      assert.ok([400, 403].includes(plain), `GET ${host}: ${plain}`);
    }
    for (const host of taken) assert.equal(answers[host][0], 403, `CONNECT ${host}`);
    await box.end();
  }
  assert.equal(seen.length, before, 'nothing arrived');
  assert.equal((await call(other, 'POST', '/v1/sandboxes', { network: { routes: ['api'] } }, poor)).status, 403);
  for (const key of [other.key, named.text]) {
    const box = await make(other, { network: { routes: ['api'] } }, key);
    assert.equal((await box.run('curl -s http://127.0.0.1:3128/_/api/x')).stdout, 'you asked for /x');
    assert.equal((await box.run(`curl -s -o /dev/null -w "%{http_code}" -x http://127.0.0.1:3128 http://${at.api}/x`, { env: direct })).stdout, '403', 'the route opens no tunnel');
    await box.end();
  }
});

test('what is allowed can be reached, what is not is refused and told', async () => {
  const box = await make(cay, { network: { allow: [`localhost:${ports.tls}`, `tcp://localhost:${ports.http}`] } });
  assert.deepEqual(box.network, { allow: [`localhost:${ports.tls}`, `tcp://localhost:${ports.http}`], routes: [] });
  const env = (await box.run('env')).stdout;
  for (const name of ['HTTP_PROXY', 'HTTPS_PROXY', 'http_proxy', 'https_proxy']) assert.match(env, new RegExp(`^${name}=http://127.0.0.1:3128$`, 'm'));
  const ok = await box.run(`curl -sk https://localhost:${ports.tls}/hello; curl -s http://localhost:${ports.http}/plain`, { env: direct });
  assert.equal(ok.stdout, 'you asked for /helloyou asked for /plain', ok.stderr);
  const no = await box.run('curl -sk -o /dev/null -w "%{http_connect}" https://example.com/; curl -s -o /dev/null -w " %{http_code}" http://example.com/', { env: direct });
  assert.equal(no.stdout, '403 403');
  // They are told when they happen, which is when the other side has ended too.
  const events = await until(async () => {
    const all = (await box.call('GET', '/network/events')).json.events;
    return total(all, 'refused') === 2 && total(all, 'ended') === 2 && all;
  }, 'all that happened');
  for (const event of events.filter((e) => e.state === 'refused')) {
    assert.equal(event.host, 'example.com');
    assert.ok(event.reason);
  }
  assert.ok(events.filter((e) => e.state === 'ended').every((e) => e.host === 'localhost'), JSON.stringify(events));
  const after = events.at(-2).seq;
  assert.deepEqual((await box.call('GET', `/network/events?after=${after}`)).json.events.map((e) => e.seq), [events.at(-1).seq]);
  const used = await until(async () => {
    const { usage } = await box.get();
    return usage.network.requests >= 2 && usage.network.refused >= 2 && usage.network.bytes_in > 0 && usage.network;
  });
  assert.equal(used.tokens_in, 0);
  await box.end();
  assert.ok((await box.get()).usage.network.requests >= 2, 'kept after its end');
});

test('a name of this machine that is allowed is reached by it, without further settings', async () => {
  const box = await make(cay, { network: { allow: [`localhost:${ports.tls}`] } });
  const done = await box.run(`curl -sk https://localhost:${ports.tls}/hello; echo; env | grep -i no_proxy`);
  assert.match(done.stdout, /^you asked for \/hello/, done.stderr);
  assert.match(done.stdout, /^no_proxy=127\.0\.0\.1,::1$/m);
  await box.end();
  const other = await make(cay, { network: { allow: ['a.example.com'] } });
  assert.match((await other.run('env')).stdout, /^NO_PROXY=127\.0\.0\.1,localhost,::1$/m);
  await other.end();
});

test('nothing by default, and a change holds at once, both ways', async () => {
  const box = await make(cay);
  const code = async () => (await box.run(`curl -sk -o /dev/null -w "%{http_connect}" -x http://127.0.0.1:3128 https://localhost:${ports.tls}/`, { env: direct })).stdout;
  assert.equal(await code(), '403');
  const put = await box.call('PUT', '/network', { allow: [`localhost:${ports.tls}`] });
  assert.equal(put.status, 200, put.raw.toString());
  assert.deepEqual(put.json.network, { allow: [`localhost:${ports.tls}`], routes: [] });
  assert.equal(await code(), '200');
  assert.match((await box.run('env')).stdout, /HTTPS_PROXY/);
  assert.equal((await box.call('PUT', '/network', {})).status, 200);
  assert.equal(await code(), '403');
  for (const body of [{ allow: 'x' }, { allow: [5] }, { allow: ['a b'] }, { deny: [] }, { routes: {} }]) assert.equal((await box.call('PUT', '/network', body)).status, 400, JSON.stringify(body));
  await box.end();
});

test('no more than the operator lets sandboxes have', async () => {
  for (const [allow, code] of [
    [['other.example.net'], 403],
    [['example.com'], 403],
    [['a.example.com'], 201],
    [['*.b.example.com'], 201],
    [['*.com'], 400],
    [['*.example.net'], 403],
    [['example.org'], 403],
    [['example.org:8443'], 201],
    [['tcp://example.org:8443'], 403],
  ]) {
    const answer = await call(cay, 'POST', '/v1/sandboxes', { network: { allow } });
    assert.equal(answer.status, code, `${allow}: ${answer.raw}`);
    if (code === 201) await call(cay, 'DELETE', `/v1/sandboxes/${answer.json.id}`);
  }
});

test('routes: the credential is put on outside, and no guest sees it', async () => {
  const box = await make(cay, { network: { routes: ['api', 'model'] } });
  const done = await box.run('curl -s http://127.0.0.1:3128/_/api/things?x=1; env; cat /proc/*/environ 2>/dev/null | tr "\\0" "\\n"');
  assert.match(done.stdout, /^you asked for \/prefix\/things\?x=1/);
  assert.ok(!done.stdout.includes(SECRET));
  assert.equal(seen.at(-1).headers.authorization, `Bearer ${SECRET}`);
  assert.match(done.stdout, /^ANTHROPIC_BASE_URL=http:\/\/127\.0\.0\.1:3128$/m);
  assert.match(done.stdout, /^ANTHROPIC_API_KEY=sk-ant-placeholder/m);
  assert.ok(!JSON.stringify(await box.get()).includes(SECRET));
  await until(async () => (await last(box))?.state === 'ended', 'what is told of it');
  assert.equal((await last(box)).kind, 'route');
  await box.end();
  // A key with grants has the routes that they name.
  const some = await createKey(cay.dataDir, { name: 'some', more: ['--route', 'api'] });
  const none = await createKey(cay.dataDir, { name: 'none', more: ['--facet', 'x'] });
  assert.equal((await call(cay, 'POST', '/v1/sandboxes', { network: { routes: ['api'] } }, some)).status, 201);
  assert.equal((await call(cay, 'POST', '/v1/sandboxes', { network: { routes: ['model'] } }, some)).status, 403);
  assert.equal((await call(cay, 'POST', '/v1/sandboxes', { network: { routes: ['api'] } }, none)).status, 403);
  // The server's own environment does not show it either.
  assert.ok(!readFileSync(`/proc/${cay.pid}/cmdline`, 'latin1').includes(SECRET));
});

test('a model is asked from inside: the key is put on outside, tokens are counted, other models are refused', async () => {
  const box = await make(cay, { network: { routes: ['model'] } });
  const ask = (body) =>
    box.run(['curl', '-sN', 'http://127.0.0.1:3128/v1/messages', '-H', 'x-api-key: sk-ant-of-the-guest', '-H', 'anthropic-version: 2023-06-01', '-H', 'content-type: application/json', '-d', JSON.stringify(body)]);
  const body = { model: 'claude-test', max_tokens: 50, stream: true, messages: [{ role: 'user', content: 'hi' }] };
  const done = await ask(body);
  assert.match(done.stdout, /hello from the model/);
  assert.equal(seen.at(-1).headers['x-api-key'], SECRET);
  const before = seen.length;
  for (const bad of [{ ...body, model: 'gpt-4' }, { ...body, tools: [{ type: 'web_search_20250305', name: 'web_search' }] }, { ...body, mcp_servers: [{ type: 'url', url: 'https://x', name: 'x' }] }]) {
    const refused = JSON.parse((await ask(bad)).stdout);
    assert.equal(refused.type, 'error', JSON.stringify(refused));
  }
  assert.equal(seen.length, before, 'what is refused does not leave');
  let network;
  await until(async () => ({ network } = (await box.get()).usage).network.refused === 3);
  assert.equal(network.tokens_in, 21, JSON.stringify(network));
  assert.equal(network.tokens_out, 9);
  await box.end();
});

test('git clone through the proxy', async () => {
  const box = await make(cay, { network: { allow: [`localhost:${ports.tls}`] } });
  const done = await box.run(`git clone https://localhost:${ports.tls}/git/repo.git && cat repo/README`, { env: { ...direct, GIT_SSL_NO_VERIFY: '1' }, timeout_s: 60 });
  assert.equal(done.exit_code, 0, done.stderr);
  assert.equal(done.stdout, 'cloned through the proxy\n');
  await box.end();
});

test('npm install of a package from an allowed registry', async () => {
  const box = await make(cay, { network: { allow: [`localhost:${ports.tls}`] } });
  const done = await box.run(`npm install --registry https://localhost:${ports.tls}/ --strict-ssl=false --no-audit --no-fund tiny-thing && node -p 'require("tiny-thing")'`, {
    env: { ...direct, npm_config_noproxy: '', npm_config_update_notifier: 'false' },
    timeout_s: 120,
  });
  assert.equal(done.exit_code, 0, done.stderr + done.stdout);
  assert.match(done.stdout, /installed\n$/);
  await box.end();
});

const egressPid = () =>
  readdirSync('/proc').find((name) => {
    try {
      return /^\d+$/.test(name) && readFileSync(`/proc/${name}/status`, 'utf8').includes(`PPid:\t${cay.pid}\n`) && readFileSync(`/proc/${name}/comm`, 'utf8') === 'cay-egress\n';
    } catch {
      return false;
    }
  });

test('a sandbox without network is not known to the proxy until it knocks', { skip: process.getuid() !== 0 && 'only root sees the descriptors of the proxy' }, async () => {
  const pid = egressPid();
  const listeners = () => {
    const ids = new Set(readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`)));
    return [...ids].filter((name) => name.startsWith('socket:')).length;
  };
  const knock = (box) => box.run(`curl -sk -o /dev/null -w "%{http_connect}" -x http://127.0.0.1:3128 https://localhost:${ports.tls}/`, { env: direct });
  let idle;
  await until(() => {
    const now = listeners();
    const same = now === idle;
    idle = now;
    return same;
  });
  const quiet = await make(cay);
  const loud = await make(cay);
  const open = await make(cay, { network: { allow: [`localhost:${ports.tls}`] } });
  await until(() => listeners() === idle + 1, 'the one that may reach something');
  assert.equal((await knock(loud)).stdout, '403');
  await until(() => listeners() === idle + 2, 'the one that has knocked');
  await until(async () => (await loud.call('GET', '/network/events')).json.events.length === 1);
  // Two at once are both answered, and the proxy's death in between changes nothing.
  process.kill(Number(pid), 'SIGKILL');
  await until(() => egressPid() && egressPid() !== pid, 'another proxy');
  await until(async () => (await Promise.all([knock(quiet), knock(loud)])).every((r) => r.stdout === '403'));
  for (const box of [quiet, loud, open]) await box.end();
});

test('kill -9 of the proxy: it is started again, with the same policies and counts', async () => {
  const box = await make(cay, { network: { allow: [`localhost:${ports.tls}`] } });
  const ask = async () => (await box.run(`curl -sk https://localhost:${ports.tls}/x`, { env: direct })).stdout;
  assert.equal(await ask(), 'you asked for /x');
  const before = await until(async () => {
    const { network } = (await box.get()).usage;
    return network.requests >= 1 && network;
  });
  const pid = egressPid();
  process.kill(Number(pid), 'SIGKILL');
  await until(async () => (await ask()) === 'you asked for /x', 'the way out again');
  await until(async () => (await box.get()).usage.network.requests > before.requests);
  assert.equal((await box.run('echo alive')).stdout, 'alive\n');
  await box.end();
});

test('caps: requests a minute, and a wrong one is told by name', async (t) => {
  const own = await startCay({
    config: { sandboxes: { pool: 0, caps: { requests_per_minute: 3 }, private: [`127.0.0.1:${ports.http}`], routes: { api: { url: `http://127.0.0.1:${ports.http}` } } } },
  });
  t.after(() => own.stop());
  const box = await make(own, { network: { routes: ['api'] } });
  const { stdout } = await box.run('for i in 1 2 3 4 5; do curl -s -o /dev/null -w "%{http_code} " http://127.0.0.1:3128/_/api/x; done');
  assert.equal(stdout, '200 200 200 429 429 ');
  const wrong = await runCay(['serve', '--listen', '127.0.0.1:0', '--config', join(dir, 'wrong.json')]);
  assert.notEqual(wrong.code, 0);
  assert.match(wrong.stderr, /requests_per_hour/);
});

test('events are bounded, what was let out apart from what was refused', async () => {
  const box = await make(cay, { network: { routes: ['api'] } });
  await box.run('for i in 1 2 3 4 5; do curl -s -o /dev/null http://127.0.0.1:3128/_/api/kept; done');
  await box.run("curl -s -x http://127.0.0.1:3128 'http://x[1-460].example.net/' -o /dev/null", { env: direct, timeout_s: 60 });
  const { refused } = await until(async () => {
    const { network } = (await box.get()).usage;
    return network.refused === 460 && network;
  });
  assert.equal(refused, 460);
  const { events, lost } = await until(async () => {
    const { json } = await box.call('GET', '/network/events');
    return json.events.some((e) => e.host === '*') && json.lost > 0 && json;
  });
  assert.equal(events.filter((e) => e.state === 'ended' && e.path === '/kept' && e.count === 1).length, 5);
  assert.equal(events.filter((e) => e.state === 'refused').length, 50);
  assert.equal(lost, events.at(-1).seq - events.length);
  const seqs = events.map((e) => e.seq);
  assert.deepEqual(seqs, seqs.toSorted((a, b) => a - b));
  const page = (await box.call('GET', `/network/events?after=${seqs[2]}&limit=3`)).json.events;
  assert.deepEqual(page.map((e) => e.seq), seqs.slice(3, 6));
  assert.deepEqual((await box.call('GET', '/network/events?limit=2')).json.events.map((e) => e.seq), seqs.slice(-2));
  assert.equal((await box.call('GET', '/network/events?limit=x')).status, 400);
  await box.end();
  assert.ok((await box.call('GET', '/network/events')).json.events.length >= 60, 'kept after its end');
});

test('what a sandbox did is still told when it has ended, and by the next server', async (t) => {
  const data = tempDir(null);
  t.after(() => rmSync(data, { recursive: true, force: true }));
  const config = { sandboxes: { pool: 0, allow: [`tcp://localhost:${ports.http}`], private: [`localhost:${ports.http}`, `127.0.0.1:${ports.http}`], routes: { api: { url: `http://127.0.0.1:${ports.http}` } } } };
  let own = await startCay({ config, dataDir: join(data, 'data') });
  try {
    const box = await make(own, { network: { allow: [`tcp://localhost:${ports.http}`], routes: ['api'] } });
    await box.run('curl -s http://127.0.0.1:3128/_/api/credentialed; curl -s -o /dev/null -x http://127.0.0.1:3128 http://refused.example.net/', { env: direct });
    // A tunnel that is open when the sandbox ends.
    const target = `localhost:${ports.http}`;
    await box.run(['bash', '-c', `exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT ${target} HTTP/1.1\\r\\nHost: ${target}\\r\\n\\r\\n' >&3; sleep 100`], { background: true });
    await until(async () => (await box.call('GET', '/network/events')).json.events.some((e) => e.state === 'begun' && e.kind === 'connect'));
    await box.end();
    const told = await until(async () => {
      const { events } = (await box.call('GET', '/network/events')).json;
      return events.some((e) => e.state === 'ended' && e.kind === 'connect') && total(events, 'begun') === total(events, 'ended') && events;
    }, 'the end of its tunnel');
    assert.match(told.find((e) => e.state === 'ended' && e.kind === 'connect').reason, /closed|hung up/);
    assert.ok(told.some((e) => e.path === '/credentialed' && e.state === 'ended'));
    assert.equal(total(told, 'refused'), 1);
    const live = await make(own, { network: { routes: ['api'] } });
    await live.run('curl -s http://127.0.0.1:3128/_/api/before-the-crash');
    await until(async () => (await live.call('GET', '/network/events')).json.events.some((e) => e.state === 'ended'));
    await own.kill9();
    own = await startCay({ config, dataDir: join(data, 'data') });
    assert.deepEqual((await call(own, 'GET', `/v1/sandboxes/${box.id}/network/events`)).json.events, told);
    const kept = (await call(own, 'GET', `/v1/sandboxes/${live.id}/network/events`)).json.events;
    assert.deepEqual(kept.map((e) => [e.path, e.state]), [['/before-the-crash', 'begun'], ['/before-the-crash', 'ended']]);
  } finally {
    await own.stop();
  }
});
