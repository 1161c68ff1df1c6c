// Routes: the operator's credential in place of the guest's, rules on methods and paths, and nothing that leads back.
import assert from 'node:assert/strict';
import { closeSync, openSync, readFileSync, readSync } from 'node:fs';
import { test } from 'node:test';
import { ask, makeCertificate, post, raw, startEgress, startServer } from './lib.mjs';

const certificate = makeCertificate('DNS:localhost');
process.on('exit', () => certificate.remove());
const TOKEN = 'ghp_the-operators-token-0123456789';

async function start(t, { handler = (request, response) => response.end('hello'), route = {}, config = {} } = {}) {
  const server = await startServer(t, handler, certificate);
  const egress = await startEgress(t, { ca_file: certificate.file, private: [`localhost:${server.port}`], ...config });
  const routes = {
    hub: {
      url: `https://localhost:${server.port}/api/v3/`,
      headers: { Authorization: 'Bearer ${TOKEN}', 'x-fixed': 'yes' },
      methods: ['GET', 'POST'],
      paths: ['/repos/me/*', '/repos/me/cay/**', '/user'],
      ...route,
    },
  };
  const secrets = { TOKEN };
  const port = await egress.open('a', { routes }, { secrets });
  return { server, egress, port, routes, secrets };
}

test('the credential is put on outside, over TLS, and the guest\'s own is taken off', async (t) => {
  const { server, egress, port } = await start(t);
  const answer = await post(port, '/_/hub/repos/me/cay/issues?state=open', { a: 1 }, {
    authorization: 'Bearer guest', 'x-api-key': 'guest', cookie: 'a=b', 'proxy-authorization': 'Basic x', 'x-fixed': 'no',
    'x-http-method-override': 'DELETE', 'x-forwarded-for': '1.2.3.4', 'x-original-url': '/admin', 'x-mine': 'kept',
    connection: 'keep-alive, x-gone', 'x-gone': '1', 'api-key': 'guest',
  });
  assert.equal(answer.status, 200);
  const [seen] = server.requests;
  assert.equal(seen.method, 'POST');
  assert.equal(seen.url, '/api/v3/repos/me/cay/issues?state=open');
  assert.equal(seen.body, '{"a":1}');
  assert.equal(seen.headers.authorization, `Bearer ${TOKEN}`);
  assert.equal(seen.rawHeaders.filter((h) => /^authorization$/i.test(h)).length, 1);
  assert.equal(seen.headers['x-fixed'], 'yes');
  assert.equal(seen.headers['x-mine'], 'kept');
  assert.equal(seen.headers.host, `localhost:${server.port}`);
  for (const name of ['x-api-key', 'cookie', 'proxy-authorization', 'x-http-method-override', 'x-forwarded-for', 'x-original-url',
    'x-gone', 'api-key', 'accept-encoding']) {
    assert.equal(seen.headers[name], undefined, name);
  }
  const event = await egress.event((e) => e.state === 'ended');
  assert.equal(event.kind, 'route');
  assert.equal(event.route, 'hub');
  assert.equal(event.host, 'localhost');
  assert.equal(event.path, '/repos/me/cay/issues');
  assert.equal(event.status, 200);
  assert.ok(!JSON.stringify(egress.seen).includes(TOKEN));
});

test('fields that mean another method, path or credential are taken off in every spelling', async (t) => {
  const { server, port } = await start(t);
  const spellings = ['X_HTTP_METHOD_OVERRIDE', 'x_http-method_override', 'X.HTTP.Method.Override', 'X-HTTP-METHOD', 'x_method_override', 'X_Original_URL',
    'X_Rewrite_Url', 'X_API_KEY', 'Api_Key', 'X_Forwarded_For', 'X_FIXED', 'X_AMZ_Date', 'Proxy_Authorization', 'Content_Length', 'Transfer_Encoding', 'X_HTTP_Method',
    'Private_Token', 'x~auth~token'];
  for (const name of spellings) {
    const answer = await raw(port, `GET /_/hub/user HTTP/1.1\r\nHost: 127.0.0.1\r\n${name}: DELETE\r\nX_Mine: kept\r\nConnection: close\r\n\r\n`);
    assert.match(answer, /^HTTP\/1\.1 200 /, name);
    const seen = server.requests.at(-1);
    assert.equal(seen.headers[name.toLowerCase()], undefined, name);
    assert.equal(seen.headers.x_mine, 'kept');
    assert.equal(seen.headers['x-fixed'], 'yes');
  }
});

test('a credential that comes back cannot be read in pieces', async (t) => {
  const handler = (request, response) => {
    const text = `you sent ${request.headers.authorization}`;
    const range = /bytes=(\d+)-(\d+)/.exec(request.headers.range ?? '');
    if (range) response.writeHead(206, { 'content-range': `bytes ${range[1]}-${range[2]}/${text.length}` }).end(text.slice(Number(range[1]), Number(range[2]) + 1));
    else response.end(text);
  };
  const { server, port, egress, routes } = await start(t, { handler });
  for (const name of ['Range', 'range', 'Request-Range', 'x_range']) {
    const text = await raw(port, `GET /_/hub/user HTTP/1.1\r\nHost: 127.0.0.1\r\n${name}: bytes=20-30\r\nIf-Range: "x"\r\nConnection: close\r\n\r\n`);
    assert.ok(!text.includes(TOKEN.slice(4, 12)), text);
    assert.equal(server.requests.at(-1).headers.range, undefined);
    assert.equal(server.requests.at(-1).headers['if-range'], undefined);
  }
  // Without a credential there is nothing to read.
  await egress.ok({ cmd: 'policy', id: 'a', policy: { routes: { hub: { ...routes.hub, headers: undefined } } }, secrets: {} });
  assert.match((await ask(port, '/_/hub/user', { headers: { range: 'bytes=0-2' } })).text, /^you$/);
});

test('methods and paths that the route does not grant are refused, however they are spelt', async (t) => {
  const { server, port } = await start(t);
  const refused = [
    '/_/hub/', '/_/hub', '/_/hub/admin', '/_/hub/repos/you/cay', '/_/hub/repos/me', '/_/hub/repos/me/other/issues', '/_/hub/userx',
    '/_/hub/repos/me/cay/../../../admin', '/_/hub/repos/me/cay/%2e%2e/%2e%2e/admin', '/_/hub/repos/me/cay/.%2E/x',
    '/_/hub/repos/me/cay/..;/x', '/_/hub/repos/me/cay//x', '/_/hub//admin', '/_/hub/repos/me/cay/..%2fadmin', '/_/hub/repos/me/cay/x%5c..%5cy',
    '/_/hub/repos/me/cay\\x', '/_/hub/repos/me/cay/%00', '/_/hub/repos/me/cay/%zz', '/_/hub/repos/me/cay/%', '/_/hub/repos/me/cay/%252e%252e/x',
    '/_/hub/./user', '/_/hub/../hub/user', '/_/other/user', '/_/', '/_', '/_/hub/USER',
  ];
  for (const path of refused) {
    const answer = await raw(port, `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n`);
    assert.match(answer, /^HTTP\/1\.1 (400|403|404) /, path);
  }
  for (const method of ['DELETE', 'PUT', 'PATCH', 'OPTIONS', 'HEAD', 'TRACE', 'PROPFIND']) {
    const answer = await raw(port, `${method} /_/hub/user HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n`);
    assert.match(answer, /^HTTP\/1\.1 (403|405) /, method);
  }
  assert.equal(server.requests.length, 0);
  for (const path of ['/_/hub/user', '/_/hub/%75ser', '/_/hub/repos/me/x', '/_/hub/repos/me/cay/a/b', '/_/hub/repos/me/cay/a%20b']) {
    assert.equal((await ask(port, path)).status, 200, path);
  }
  assert.deepEqual(server.requests.map((r) => r.url).slice(0, 2), ['/api/v3/user', '/api/v3/user']);
  const { json } = await ask(port, '/_/hub/admin');
  assert.match(json.error.message, /"paths"/);
  assert.equal(json.error.code, 'forbidden');
});

test('nothing of the credential comes back, not even cut in two', async (t) => {
  const handler = (request, response) => {
    if (request.url.endsWith('/header')) {
      response.writeHead(200, { 'x-echo': `you sent ${request.headers.authorization}`, 'set-cookie': 'session=operators', 'x-b': 'c' });
      response.end('fine');
    } else if (request.url.endsWith('/whole')) {
      response.end(`you sent ${request.headers.authorization}`);
    } else if (request.url.endsWith('/near')) {
      response.end(`${TOKEN.slice(0, -1)} is not it`);
    } else {
      const text = `before ${request.headers.authorization} after`;
      response.writeHead(200);
      let at = 0;
      const more = () => {
        if (at === text.length) response.end();
        else response.write(text[at++], () => setTimeout(more, 1));
      };
      more();
    }
  };
  const { egress, port } = await start(t, { handler, route: { paths: undefined } });
  const head = await ask(port, '/_/hub/header');
  assert.equal(head.text, 'fine');
  assert.equal(head.headers['x-echo'], undefined);
  assert.equal(head.headers['set-cookie'], undefined);
  assert.equal(head.headers['x-b'], 'c');
  assert.equal((await ask(port, '/_/hub/near')).text, `${TOKEN.slice(0, -1)} is not it`);
  for (const path of ['/whole', '/pieces']) {
    const from = egress.seen.length;
    const text = await raw(port, `GET /_/hub${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n`);
    assert.ok(!text.includes(TOKEN.slice(0, 12)), text);
    assert.match((await egress.event((e) => e.state === 'ended' && e.path === path, from)).reason, /credential/);
  }
});

test('a certificate that does not fit is not believed', async (t) => {
  const other = makeCertificate('DNS:elsewhere');
  t.after(() => other.remove());
  const { server, egress, port } = await start(t, { config: { ca_file: other.file } });
  const answer = await ask(port, '/_/hub/user');
  assert.equal(answer.status, 502);
  assert.equal(server.requests.length, 0);
  assert.match((await egress.event((e) => e.state === 'ended')).reason, /certificate/i);
});

test('an answer streams, and a guest that hangs up ends the request', async (t) => {
  let ended;
  const gone = new Promise((done) => { ended = done; });
  const handler = (request, response) => {
    response.writeHead(200, { 'content-type': 'text/plain' });
    response.write('first');
    response.on('close', ended);
  };
  const { egress, port } = await start(t, { handler });
  const { request } = await import('node:http');
  const r = request({ host: '127.0.0.1', port, path: '/_/hub/user', agent: false });
  r.on('error', () => {});
  r.end();
  await new Promise((done) => {
    r.on('response', (response) => {
      response.on('error', () => {});
      response.once('data', (d) => {
        assert.equal(String(d), 'first');
        done();
      });
    });
  });
  r.destroy();
  await gone;
  assert.match((await egress.event((e) => e.state === 'ended')).reason, /guest hung up/);
});

test('a policy can be replaced: the new credential is used, the old one is not', async (t) => {
  const { server, egress, port, routes } = await start(t);
  assert.equal((await ask(port, '/_/hub/user')).status, 200);
  await egress.ok({ cmd: 'policy', id: 'a', policy: { routes }, secrets: { TOKEN: 'another-token-12345' } });
  assert.equal((await ask(port, '/_/hub/user')).status, 200);
  assert.deepEqual(server.requests.map((r) => r.headers.authorization), [`Bearer ${TOKEN}`, 'Bearer another-token-12345']);
  await egress.ok({ cmd: 'policy', id: 'a', policy: {} });
  assert.equal((await ask(port, '/_/hub/user')).status, 403);
  const bad = await egress.ask({ cmd: 'policy', id: 'a', policy: { routes }, secrets: {} });
  assert.match(bad.message, /secret TOKEN is not set/);
});

test('one sandbox does not get the routes of another', async (t) => {
  const { server, egress, port } = await start(t);
  const other = await egress.open('b', { routes: { mine: { url: `https://localhost:${server.port}` } } });
  assert.equal((await ask(other, '/_/hub/user')).status, 403);
  assert.equal((await ask(other, '/_/mine/user')).status, 200);
  assert.equal(server.requests[0].headers.authorization, undefined);
  assert.equal((await ask(port, '/_/mine/user')).status, 403);
});

/** Where the text is in the memory of a process. */
function inMemory(pid, text) {
  const found = [];
  const maps = readFileSync(`/proc/${pid}/maps`, 'utf8').split('\n');
  const mem = openMemory(pid);
  for (const line of maps) {
    const m = /^([0-9a-f]+)-([0-9a-f]+) rw/.exec(line);
    if (!m || /\[v/.test(line)) continue;
    const from = Number.parseInt(m[1], 16);
    const bytes = mem.read(from, Number.parseInt(m[2], 16) - from);
    const at = bytes?.indexOf(text) ?? -1;
    if (at >= 0) found.push(`${line} ${JSON.stringify(bytes.toString('latin1', at - 200, at + 300))}`);
  }
  mem.close();
  return found;
}

function openMemory(pid) {
  const fd = openSync(`/proc/${pid}/mem`, 'r');
  return {
    read(from, size) {
      const out = Buffer.alloc(size);
      try {
        const n = readSync(fd, out, 0, size, from);
        return out.subarray(0, n);
      } catch {
        return undefined;
      }
    },
    close: () => closeSync(fd),
  };
}

test('when a sandbox is closed its credentials are gone from memory', { skip: process.getuid() !== 0 && 'needs root to look' }, async (t) => {
  if (/asan/.test(process.env.CAY_EGRESS)) t.skip('a sanitizer keeps what was freed');
  else {
    const { egress, port } = await start(t);
    assert.equal((await ask(port, '/_/hub/user')).status, 200);
    await egress.event((e) => e.state === 'ended');
    const pid = await egress.pid();
    assert.notEqual(inMemory(pid, TOKEN).length, 0, 'while it is open the credential is there');
    await egress.ok({ cmd: 'close', id: 'a' });
    assert.deepEqual(inMemory(pid, TOKEN), []);
  }
});

test('the process cannot be looked into, can write nothing and start nothing', async (t) => {
  const { egress } = await start(t);
  const pid = await egress.pid();
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  assert.match(status, /^NoNewPrivs:\t1$/m);
  assert.match(status, /^CapEff:\t0+$/m);
  assert.match(status, /^CapBnd:\t0+$/m);
  if (!/asan/.test(process.env.CAY_EGRESS)) assert.match(status, /^Seccomp:\t2$/m);
  const limits = readFileSync(`/proc/${pid}/limits`, 'utf8');
  assert.match(limits, /^Max core file size +0 +0/m);
});
