// Servers inside sandboxes, at PORT-SANDBOX.localhost: an origin of their own that our keys never reach.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { after, before, test } from 'node:test';
import { bearer, createKey, raw, request, sleep, slow, startCay, statuses, until, withCay } from '../lib/cay.mjs';
import { call, make } from '../lib/sandbox.mjs';

// Answers with what it was sent; some paths misbehave.
const server = `
import base64, hashlib, http.server, json, socketserver, sys, threading
go = threading.Event()
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *a): pass
    def reply(self):
        n = int(self.headers.get('content-length') or 0)
        body = b''
        if self.headers.get('transfer-encoding') == 'chunked':
            while True:
                size = int(self.rfile.readline(), 16)
                body += self.rfile.read(size)
                self.rfile.readline()
                if size == 0: break
        elif n:
            body = self.rfile.read(n)
        p = self.path
        if p.startswith('/raw/'):
            self.wfile.write(base64.urlsafe_b64decode(p[5:]))
            self.close_connection = True
            return
        if p == '/ws':
            key = self.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
            self.wfile.write(('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: '
              + base64.b64encode(hashlib.sha1(key.encode()).digest()).decode() + '\\r\\nX-App: yes\\r\\n\\r\\nhello').encode())
            while True:
                data = self.connection.recv(65536)
                if not data: break
                self.connection.sendall(data)
            self.close_connection = True
            return
        if p == '/go':
            go.set()
        if p == '/slow':
            self.send_response(200)
            self.send_header('Transfer-Encoding', 'chunked')
            self.end_headers()
            for i in range(4):
                self.wfile.write(b'2\\r\\n%d\\n\\r\\n' % i)
                if i == 0: go.wait() # until somebody asks for /go
            self.wfile.write(b'0\\r\\n\\r\\n')
            return
        if p == '/big':
            self.send_response(200)
            self.send_header('Content-Length', '20000000')
            self.end_headers()
            for i in range(200): self.wfile.write(bytes([i]) * 100000)
            return
        if p == '/sum':
            out = hashlib.sha256(body).hexdigest().encode()
        else:
            out = json.dumps({'method': self.command, 'path': p, 'headers': [[k.lower(), v] for k, v in self.headers.items()], 'body': body.decode('latin1')}).encode()
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(out)))
        self.send_header('Set-Cookie', 'app=1; Path=/')
        self.send_header('Set-Cookie', 'cay_session=stolen')
        self.send_header('Set-Cookie', '=cay_session=stolen')
        self.send_header('Set-Cookie', 'wide=1; Domain=localhost')
        self.send_header('X-App', 'yes')
        self.send_header('Connection', 'X-Hop')
        self.send_header('X-Hop', 'secret')
        self.send_header('Proxy-Authenticate', 'Basic')
        self.send_header('Trailer', 'X-Late')
        self.end_headers()
        if self.command != 'HEAD': self.wfile.write(out)
    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_PATCH = reply
class S(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128
S(('127.0.0.1', int(sys.argv[1])), H).serve_forever()
`;

let cay;
let box;
let host;
before(async () => {
  cay = await startCay({ config: { sandboxes: { pool: 1, connections: 20 } } });
  box = await make(cay, { files: [{ path: '/work/server.py', content: server }] });
  await box.run(['/usr/bin/python3', 'server.py', '8000'], { background: true });
  host = `8000-${box.id}.localhost:${cay.port}`;
  await until(async () => (await ask('/')).status === 200, 'the server inside');
});
after(() => cay.stop());

const ask = (path, { method, headers = {}, body, at } = {}) => request(cay, path, { method, headers: { Host: at ?? host, ...headers }, body });

test('who needs no key gets a plain link', async () => {
  const { url } = (await request(cay, `/v1/sandboxes/${box.id}/ports/8000/pass`, { method: 'POST' })).json();
  assert.equal(url, `http://${host}/`);
});

test('requests and answers go through', async () => {
  const answer = await ask('/a%20b?x=1&y=%2F', { method: 'POST', headers: { 'X-Own': 'v', 'Content-Type': 'text/plain' }, body: 'text' });
  assert.equal(answer.status, 200);
  assert.equal(answer.headers['x-app'], 'yes');
  assert.equal(answer.headers['content-type'], 'application/json');
  const seen = answer.json();
  const fields = Object.fromEntries(seen.headers);
  assert.equal(seen.method, 'POST');
  assert.equal(seen.path, '/a%20b?x=1&y=%2F');
  assert.equal(seen.body, 'text');
  assert.equal(fields.host, host);
  assert.equal(fields['x-own'], 'v');
  assert.equal(fields['x-forwarded-for'], '127.0.0.1');
  assert.equal(fields['x-forwarded-host'], host);
  assert.equal(fields['x-forwarded-proto'], 'http');
  for (const method of ['GET', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']) assert.equal((await ask('/m', { method })).json().method, method);
  const head = await ask('/', { method: 'HEAD' });
  assert.equal(head.status, 200);
  assert.equal(head.body, '');
});

test('keys and sessions of ours stop here, and so do fields of one hop', async () => {
  const key = await createKey(cay.dataDir, { scope: 'admin' });
  const sent = {
    Authorization: `Bearer ${key.text}`,
    Cookie: 'a=1; cay_session=deadbeef; b=2; CAY_other=3',
    Connection: 'keep-alive, X-Mine',
    'X-Mine': 'one hop',
    'Keep-Alive': 'timeout=5',
    'Proxy-Authorization': 'Basic eDp5',
    'X-Forwarded-For': '6.6.6.6',
    Forwarded: 'for=6.6.6.6',
    TE: 'trailers',
  };
  const answer = await ask('/', { headers: sent });
  const fields = Object.fromEntries(answer.json().headers);
  assert.ok(!answer.body.includes(key.text) && !answer.body.includes('deadbeef'));
  assert.equal(fields.authorization, undefined);
  assert.equal(fields.cookie, 'a=1; b=2');
  for (const name of ['x-mine', 'keep-alive', 'proxy-authorization', 'forwarded', 'te']) assert.equal(fields[name], undefined, name);
  assert.equal(fields['x-forwarded-for'], '127.0.0.1');
  assert.equal(fields.connection, 'close');
  for (const value of [`Bearer  ${key.text}`, `bearer \t ${key.text}`, `Bearer\t${key.text}`]) {
    const spaced = await ask('/', { headers: { Authorization: value } });
    assert.equal(spaced.status, 200, JSON.stringify(value));
    assert.ok(!spaced.body.includes(key.text), JSON.stringify(value));
  }
  // What an application uses itself is its own.
  assert.equal(Object.fromEntries((await ask('/', { headers: { Authorization: 'Basic YTpi' } })).json().headers).authorization, 'Basic YTpi');
  // And back: no cookie of ours, none beyond its host, nothing of one hop.
  assert.deepEqual(answer.headers['set-cookie'], ['app=1; Path=/']);
  for (const name of ['x-hop', 'proxy-authenticate', 'trailer']) assert.equal(answer.headers[name], undefined, name);
});

test('bodies stream both ways', async () => {
  const big = randomBytes(8_000_000);
  const sum = createHash('sha256').update(big).digest('hex');
  assert.equal((await ask('/sum', { method: 'POST', body: big })).body, sum);
  const chunked = await new Promise((resolve, reject) => {
    const req = httpRequest({ host: '127.0.0.1', port: cay.port, path: '/sum', method: 'POST', headers: { Host: host }, agent: false });
    req.once('error', reject).once('response', (res) => res.setEncoding('utf8').on('data', resolve));
    for (let i = 0; i < big.length; i += 100_000) req.write(big.subarray(i, i + 100_000));
    req.end();
  });
  assert.equal(chunked, sum);
  const down = await ask('/big');
  assert.equal(down.raw.length, 20_000_000);
  assert.equal(down.raw[10_050_000], 100);
  const text = await new Promise((resolve, reject) => {
    const req = httpRequest({ host: '127.0.0.1', port: cay.port, path: '/slow', headers: { Host: host }, agent: false });
    req.once('error', reject).once('response', (res) => {
      let all = '';
      res.once('data', () => ask('/go').catch(reject)); // the first piece has not waited for the others
      res.on('data', (d) => (all += d)).on('end', () => resolve(all));
    }).end();
  });
  assert.equal(text, '0\n1\n2\n3\n');
});

test('a client that does not read holds up its own request only', async () => {
  const req = httpRequest({ host: '127.0.0.1', port: cay.port, path: '/big', headers: { Host: host }, agent: false });
  const res = await new Promise((resolve) => req.once('response', resolve).end());
  res.pause();
  assert.equal((await ask('/')).status, 200);
  req.on('error', () => {});
  res.on('error', () => {});
  req.destroy();
});

const upgrade = (path, headers = {}) =>
  new Promise((resolve, reject) => {
    const req = httpRequest({
      host: '127.0.0.1',
      port: cay.port,
      path,
      agent: false,
      headers: { Host: host, Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': randomBytes(16).toString('base64'), ...headers },
    });
    req.once('error', reject);
    req.once('response', (res) => (res.resume(), resolve({ status: res.statusCode })));
    req.once('upgrade', (res, socket, rest) => {
      const it = { status: res.statusCode, headers: res.headers, socket, data: rest, closed: false };
      socket.on('data', (d) => (it.data = Buffer.concat([it.data, d]))).on('close', () => (it.closed = true)).on('error', () => {});
      resolve(it);
    });
    req.end();
  });

test('WebSockets: the bytes go through both ways', async () => {
  const it = await upgrade('/ws');
  assert.equal(it.status, 101);
  assert.equal(it.headers['x-app'], 'yes');
  assert.ok(it.headers['sec-websocket-accept']);
  await until(() => it.data.toString() === 'hello');
  const big = randomBytes(3_000_000);
  it.data = Buffer.alloc(0);
  it.socket.write(big);
  await until(() => it.data.length === big.length, 'the echo');
  assert.ok(it.data.equals(big));
  it.socket.end();
  await until(() => it.closed);
  // An upgrade that the program does not want is an answer like any other.
  assert.equal((await upgrade('/')).status, 200);
});

test('answers that are none become an error, and never a head of ours', async () => {
  const at = (text) => `/raw/${Buffer.from(text, 'latin1').toString('base64url')}${'='.repeat((4 - (Buffer.from(text, 'latin1').toString('base64url').length % 4)) % 4)}`;
  for (const bad of ['', 'nonsense\r\n\r\n', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde', 'HTTP/1.1 999 X\r\n\r\n', 'HTTP/1.1 200 OK\r\nA b: c\r\n\r\n', `HTTP/1.1 200 OK\r\nX: ${'y'.repeat(70000)}\r\n\r\n`, `HTTP/1.1 200 OK\r\n${'X: y\r\n'.repeat(200)}\r\n`, 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n']) {
    if (bad.length > 8000) continue; // too long for a path
    const answer = await ask(at(bad));
    assert.equal(answer.status, 502, JSON.stringify(bad.slice(0, 60)));
    assert.equal(answer.json().error.code, 'upstream_error');
  }
  // Broken off in the middle: the client must not take it for whole.
  await assert.rejects(ask(at('HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf')));
  assert.equal((await ask(at('HTTP/1.1 200 OK\r\n\r\nuntil the end'))).body, 'until the end');
  assert.equal((await ask(at('HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'))).body, 'ok');
  assert.equal((await ask(at('HTTP/1.1 204 No Content\r\n\r\n'))).status, 204);
  // What an interim answer calls its body is never put on the wire as it is: it would be read as our head.
  const head = 'HTTP/1.1 200 OK\r\nSet-Cookie: cay_session=stolen; Domain=localhost\r\nContent-Length: 4\r\n\r\nevil';
  for (const status of [99, 100, 102, 103, 199])
    for (const [field, body] of [[`Content-Length: ${head.length}`, head], ['Transfer-Encoding: chunked', `${head.length.toString(16)}\r\n${head}\r\n0\r\n\r\n`]]) {
      const answer = await ask(at(`HTTP/1.1 ${String(status).padStart(3, '0')} X\r\n${field}\r\n\r\n${body}`));
      assert.ok(answer.headers['x-request-id'], `${status} ${field}`);
      assert.equal(answer.headers['set-cookie'], undefined, `${status} ${field}`);
    }
});

test('ports and hosts that are none', async () => {
  assert.equal((await ask('/', { at: `9999-${box.id}.localhost` })).status, 502);
  const none = `8000-sbx_${'0'.repeat(26)}.localhost`;
  for (const at of [none, `0-${box.id}.localhost`, `65536-${box.id}.localhost`, `08000-${box.id}.localhost`, `x-${box.id}.localhost`, `${box.id}.localhost`, `8000-${box.id}.x.localhost`, `8000-${box.id}x.localhost`])
    assert.equal((await ask('/', { at })).status, 404, at);
  // Never the page, never the API.
  for (const path of ['/health', '/v1/sandboxes', '/v1/status', '/openapi.json', '/index.html']) {
    const answer = await ask(path);
    assert.equal(answer.json().path, path, 'it is the guest that answers');
  }
});

test('no more connections than one sandbox may have', async () => {
  const many = await Promise.all(Array.from({ length: 20 }, () => upgrade('/ws')));
  assert.ok(many.every((m) => m.status === 101));
  const over = await ask('/');
  assert.equal(over.status, 429);
  assert.match(over.json().error.message, /sandboxes\.connections/);
  many.forEach((m) => m.socket.destroy());
  await until(async () => (await ask('/')).status === 200);
});

test('when the sandbox goes, its connections go; paused, it says so', async () => {
  const other = await make(cay, { files: [{ path: '/work/server.py', content: server }] });
  await other.run(['/usr/bin/python3', 'server.py', '8080'], { background: true });
  const at = `8080-${other.id}.localhost`;
  await until(async () => (await ask('/', { at })).status === 200);
  const it = await upgrade('/ws', { Host: at });
  await other.call('POST', '/pause');
  assert.equal((await ask('/', { at })).status, 409);
  await other.call('POST', '/resume');
  assert.equal((await ask('/', { at })).status, 200);
  await other.end();
  await until(() => it.closed, 'the end of its WebSocket');
  assert.equal((await ask('/', { at })).status, 404);
});

test('where keys are needed, a port needs its owner', async () => {
  const guarded = await startCay({ config: { require_key: true, sandboxes: { pool: 0 } }, key: { name: 'a' } });
  try {
    const other = await createKey(guarded.dataDir, { name: 'b' });
    const admin = await createKey(guarded.dataDir, { name: 'c', scope: 'admin' });
    const mine = await make(guarded, { files: [{ path: '/work/server.py', content: server }] }, guarded.key);
    await mine.run(['/usr/bin/python3', 'server.py', '8000'], { background: true });
    const Host = `8000-${mine.id}.localhost`;
    const code = async (headers) => (await request(guarded, '/', { headers: { Host, ...headers } })).status;
    await until(async () => (await code(bearer(guarded.key))) === 200);
    assert.equal(await code({}), 404);
    assert.equal(await code(bearer(other.text)), 404);
    assert.equal(await code(bearer('cay_wrong_key')), 404);
    assert.equal(await code({ Authorization: 'Basic eDp5' }), 404);
    assert.equal(await code(bearer(admin.text)), 200);
    const { text } = await raw(guarded, `GET /ws HTTP/1.1\r\nHost: ${Host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n`, { isDone: (s) => s.includes('\r\n\r\n') });
    assert.deepEqual(statuses(text), [404]);
    assert.equal((await call(guarded, 'GET', `/v1/sandboxes/${mine.id}`, undefined, other)).status, 404);

    // A browser sends no key: a link, once, becomes a cookie at that host and no other.
    const pass = (port, key) => request(guarded, `/v1/sandboxes/${mine.id}/ports/${port}/pass`, { method: 'POST', headers: key ? bearer(key) : {} });
    assert.equal((await pass(8000)).status, 401);
    assert.equal((await pass(8000, other.text)).status, 404);
    for (const bad of ['0', '70000', 'x', '080']) assert.equal((await pass(bad, guarded.key)).status, 400, bad);
    const { url } = (await pass(8000, guarded.key)).json();
    assert.match(url, new RegExp(`^http://${Host}:${guarded.port}/\\?cay_pass=[0-9a-f]{48}$`));
    const { search } = new URL(url);
    const enter = (path, host = Host) => request(guarded, path + search, { headers: { Host: host } });
    assert.equal((await enter('/', `8001-${mine.id}.localhost`)).status, 404, 'at another host');
    const entered = await enter('//evil.example/');
    assert.equal(entered.status, 303);
    assert.equal(entered.headers.location, '/');
    assert.equal((await enter('/')).status, 404, 'a second time');
    const [cookie] = entered.headers['set-cookie'][0].split(';');
    assert.match(entered.headers['set-cookie'][0], /^cay_pass=[0-9a-f]{48}; Path=\/; HttpOnly; SameSite=Lax; Max-Age=\d+$/);
    assert.notEqual(cookie, search.slice(1), 'what was in the link is not in the cookie');
    const seen = await request(guarded, '/', { headers: { Host, Cookie: `a=1; ${cookie}` } });
    assert.equal(seen.status, 200);
    assert.equal(Object.fromEntries(seen.json().headers).cookie, 'a=1', 'the guest does not see it');
    assert.equal(await code({ Cookie: cookie, Host: `8001-${mine.id}.localhost` }), 404);
    assert.equal(await code({ Cookie: cookie, Origin: 'http://evil.example' }), 404);
    assert.equal(await code({ Cookie: cookie, 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'no-cors' }), 404);
    assert.equal(await code({ Cookie: cookie, 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'navigate' }), 200);
    assert.equal(await code({ Cookie: cookie, Origin: `http://${Host}`, 'Sec-Fetch-Site': 'same-origin' }), 200);
    for (const name of ['cay_session', 'cay_pass'])
      assert.equal((await request(guarded, '/v1/sandboxes', { headers: { Cookie: cookie.replace('cay_pass', name) } })).status, 401, name);
    assert.equal((await request(guarded, '/?cay_pass=short', { headers: { Host, ...bearer(guarded.key) } })).json().path, '/?cay_pass=short', 'a query of its own');
  } finally {
    await guarded.stop();
  }
});

// Takes connections and says nothing; a second port answers.
const silent = `
import socket, threading, http.server
class H(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        self.send_response(200); self.send_header('Content-Length', '2'); self.end_headers(); self.wfile.write(b'ok')
    def do_POST(self):
        n = int(self.headers['content-length'])
        while n > 0: n -= len(self.rfile.read1(min(n, 65536)))
        self.do_GET()
s = socket.create_server(('127.0.0.1', 8001), backlog=256)
held = []
def take():
    while True: held.append(s.accept())
threading.Thread(target=take, daemon=True).start()
http.server.ThreadingHTTPServer(('127.0.0.1', 8002), H).serve_forever()
`;

test('clients that shut their side hold no place, and a server that is silent no client', async (t) => {
  const own = await withCay(t, { config: { sandboxes: { pool: 0, connections: 8, answer_s: 5 } } });
  const inside = await make(own, { files: [{ path: '/work/s.py', content: silent }] });
  await inside.run('python3 s.py', { background: true });
  const ask = (port, options = {}) => request(own, '/', { ...options, headers: { Host: `${port}-${inside.id}.localhost:${own.port}` } });
  await until(async () => (await ask(8002)).status === 200);
  const waiting = Array.from({ length: 20 }, () =>
    raw(own, `GET / HTTP/1.1\r\nHost: 8001-${inside.id}.localhost\r\n\r\n`, { halfClose: true, ms: 20_000 * slow }));
  const begun = Date.now();
  await until(async () => (await ask(8002)).status === 200); // the last of them has shut its side
  for (let i = 0; i < 10; i++) assert.equal((await ask(8002)).status, 200);
  assert.ok(Date.now() - begun < 4500 * slow);
  // Those made room, or waited until the time was over.
  const codes = (await Promise.all(waiting)).map(({ text }) => statuses(text)[0]);
  assert.ok(codes.every((code) => code === 429 || code === 502), String(codes));
  assert.ok(codes.filter((code) => code === 502).length <= 8, String(codes));
  // Clients that are there are not sent away for others, and are told in time.
  const silentOnes = Array.from({ length: 8 }, () => ask(8001));
  await until(async () => (await ask(8002)).status === 429);
  for (const answer of await Promise.all(silentOnes)) {
    assert.equal(answer.status, 502);
    assert.match(answer.json().error.message, /answer_s/);
  }
  assert.equal((await ask(8002)).status, 200);
  // A body that takes longer than that is no silence.
  const slowly = httpRequest({ host: '127.0.0.1', port: own.port, method: 'POST', path: '/', agent: false, headers: { Host: `8002-${inside.id}.localhost:${own.port}`, 'Content-Length': 6 } });
  const answered = new Promise((resolve, reject) => slowly.once('response', resolve).once('error', reject));
  for (let i = 0; i < 6; i++) {
    slowly.write('x');
    await sleep(1000);
  }
  slowly.end();
  const response = await answered;
  response.resume();
  assert.equal(response.statusCode, 200);
});
