// Requests as bytes: what two parsers could read in two ways is refused, what grows is bounded, plain http is passed on.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { test } from 'node:test';
import { ask, raw, startEgress, startServer, startTcp } from './lib.mjs';

const hello = (request, response) => response.end('hello');

/** A plain server that a sandbox may reach by "http://localhost:PORT/" and as the route "r". */
async function start(t, { handler = hello, config = {}, policy = {}, route = {} } = {}) {
  const server = await startServer(t, handler);
  const egress = await startEgress(t, { private: [`localhost:${server.port}`], ...config });
  const port = await egress.open('a', {
    allow: [`tcp://localhost:${server.port}`],
    routes: {
      r: { url: `http://localhost:${server.port}`, methods: ['GET', 'POST'], ...route },
      claude: { url: `http://localhost:${server.port}`, api: 'anthropic', models: ['claude-x'] },
    },
    ...policy,
  });
  return { server, egress, port, origin: `http://localhost:${server.port}` };
}

test('requests that two parsers could read differently are refused, and nothing goes out', async (t) => {
  const { server, egress, port } = await start(t);
  const head = 'POST /_/r/x HTTP/1.1\r\nHost: 127.0.0.1\r\n';
  const bad = {
    'length and encoding': `${head}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    'two lengths': `${head}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!`,
    'the same length twice': `${head}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello`,
    'a list of lengths': `${head}Content-Length: 5, 5\r\n\r\nhello`,
    'a signed length': `${head}Content-Length: +5\r\n\r\nhello`,
    'a length in hex': `${head}Content-Length: 0x5\r\n\r\nhello`,
    'another encoding': `${head}Transfer-Encoding: gzip\r\n\r\n`,
    'chunked and more': `${head}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n`,
    'chunked twice': `${head}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    'a misspelt encoding': `${head}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n`,
    'space before the colon': `${head}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n`,
    'a folded line': `${head}X: a\r\n b\r\n\r\n`,
    'bare line feeds': 'POST /_/r/x HTTP/1.1\nHost: 127.0.0.1\n\n',
    'one bare line feed': `${head}X: a\nContent-Length: 5\r\n\r\nhello`,
    'a bare carriage return': `${head}X: a\rContent-Length: 5\r\n\r\nhello`,
    'a NUL': `${head}X: a\x00b\r\n\r\n`,
    'no name': `${head}: a\r\n\r\n`,
    'a bad chunk size': `${head}Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n`,
    'two hosts': 'GET /_/r/ HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil\r\n\r\n',
    'no host': 'GET /_/r/ HTTP/1.1\r\n\r\n',
    'an absolute target with another host': 'GET http://localhost/ HTTP/1.1\r\nHost: evil\r\n\r\n',
    'a user name in the target': `GET http://a@localhost:${server.port}/ HTTP/1.1\r\nHost: localhost:${server.port}\r\n\r\n`,
    'https without CONNECT': 'GET https://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n',
    'another scheme': 'GET ftp://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n',
    'a fragment': 'GET /_/r/x#y HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n',
    'HTTP/2': 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    'an encoding in HTTP/1.0': 'POST /_/r/x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    'another expectation': `${head}Expect: 200-ok\r\nContent-Length: 5\r\n\r\nhello`,
  };
  for (const [name, bytes] of Object.entries(bad)) {
    const answer = await raw(port, bytes);
    assert.match(answer, /^HTTP\/1\.1 400 /, `${name}: ${answer.slice(0, 200)}`);
    assert.equal(answer.match(/HTTP\/1\.1 \d/g).length, 1, name);
  }
  assert.equal(server.requests.length, 0);
  assert.equal(egress.seen.filter((l) => l.state === 'begun').length, 0);
});

test('a request for another host is not taken for one to the proxy', async (t) => {
  const { server, port, origin } = await start(t);
  // Whoever is named in Host is not believed.
  for (const host of ['api.github.com', 'localhost.evil', `127.0.0.1:${port + 1}`, '127.0.0.2', 'evil@127.0.0.1']) {
    const answer = await raw(port, `GET /_/r/x HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    assert.match(answer, /^HTTP\/1\.1 400 /, host);
  }
  const stolen = await raw(port, `GET ${origin}/x HTTP/1.1\r\nHost: evil\r\n\r\n`);
  assert.match(stolen, /^HTTP\/1\.1 400 /);
  assert.equal(server.requests.length, 0);
  for (const host of ['127.0.0.1', `127.0.0.1:${port}`, `localhost:${port}`, 'LOCALHOST']) {
    assert.equal((await ask(port, '/_/r/x', { headers: { host } })).status, 200, host);
  }
  const self = await raw(port, `GET http://127.0.0.1:${port}/_/r/y HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: close\r\n\r\n`);
  assert.match(self, /^HTTP\/1\.1 200 /);
  assert.equal(server.requests.at(-1).url, '/y');
  assert.equal(server.requests.at(-1).headers.host, `localhost:${server.port}`);
});

test('plain http to an allowed host is passed on, with the host that was asked for', async (t) => {
  const { server, egress, port, origin } = await start(t);
  const answer = await ask(port, `${origin}/a//b/../c?q=1`, {
    headers: { host: `localhost:${server.port}`, authorization: 'Basic bXk6b3du', 'proxy-authorization': 'Basic x', 'x-mine': '1',
      connection: 'x-hop', 'x-hop': '1' },
  });
  assert.equal(answer.text, 'hello');
  const seen = server.requests[0];
  assert.equal(seen.headers.host, `localhost:${server.port}`);
  assert.equal(seen.headers.authorization, 'Basic bXk6b3du');
  assert.equal(seen.headers['x-mine'], '1');
  assert.equal(seen.headers['proxy-authorization'], undefined);
  assert.equal(seen.headers['x-hop'], undefined);
  const event = await egress.event((e) => e.state === 'ended');
  assert.equal(event.kind, 'http');
  assert.equal(event.status, 200);
  assert.ok(!event.path.includes('q=1'));
  // It would send the request back as it went out.
  assert.equal((await ask(port, `${origin}/`, { method: 'TRACE', headers: { host: `localhost:${server.port}` } })).status, 405);
  assert.equal(server.requests.length, 1);
  const refused = await ask(port, 'http://example.com/', { headers: { host: 'example.com' } });
  assert.equal(refused.status, 403);
  assert.match(refused.json.error.message, /"example\.com:80"/);
});

test('a redirect is passed on as it is, and what it names is judged anew', async (t) => {
  const handler = (request, response) => {
    response.writeHead(302, { location: 'http://169.254.169.254/latest/meta-data/' });
    response.end();
  };
  const { server, port, origin } = await start(t, { handler });
  for (const path of [`${origin}/`, '/_/r/']) {
    const headers = path.startsWith('http') ? { host: `localhost:${server.port}` } : {};
    const answer = await ask(port, path, { headers });
    assert.equal(answer.status, 302);
    assert.equal(answer.headers.location, 'http://169.254.169.254/latest/meta-data/');
  }
  assert.equal(server.requests.length, 2);
  const next = await ask(port, 'http://169.254.169.254/latest/meta-data/', { headers: { host: '169.254.169.254' } });
  assert.equal(next.status, 403);
});

test('http to a name with a private address is refused also if the name is allowed', async (t) => {
  const server = await startServer(t, hello);
  const egress = await startEgress(t, {});
  const port = await egress.open('a', {
    allow: [`tcp://localhost:${server.port}`, `tcp://127.0.0.1:${server.port}`],
    routes: { r: { url: `http://localhost:${server.port}` } },
  });
  for (const host of ['localhost', '127.0.0.1']) {
    const answer = await ask(port, `http://${host}:${server.port}/`, { headers: { host: `${host}:${server.port}` } });
    assert.equal(answer.status, 403);
    assert.match(answer.json.error.message, /loopback/);
  }
  const route = await ask(port, '/_/r/');
  assert.equal(route.status, 403);
  assert.match(route.json.error.message, /loopback/);
  assert.equal(server.requests.length, 0);
});

test('heads, fields and bodies are bounded', async (t) => {
  const { server, port } = await start(t, { config: { head_bytes: 4096, headers: 20, body_bytes: 100_000, held_bytes: 150_000 } });
  const long = await raw(port, `GET /_/r/${'x'.repeat(5000)} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
  assert.match(long, /^HTTP\/1\.1 413 .*limit head_bytes/s);
  const endless = await raw(port, `GET /_/r/ HTTP/1.1\r\nX: ${'x'.repeat(20_000)}`);
  assert.match(endless, /^HTTP\/1\.1 413 .*limit head_bytes/s);
  const many = await raw(port, `GET /_/r/ HTTP/1.1\r\nHost: 127.0.0.1\r\n${'X: y\r\n'.repeat(30)}\r\n`);
  assert.match(many, /^HTTP\/1\.1 413 .*limit headers/s);
  const told = await raw(port, `POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Length: 100001\r\n\r\n`);
  assert.match(told, /^HTTP\/1\.1 413 .*limit body_bytes/s);
  const chunk = `4000\r\n${'x'.repeat(0x4000)}\r\n`;
  const untold = await raw(port, `POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nTransfer-Encoding: chunked\r\n\r\n${chunk.repeat(7)}0\r\n\r\n`);
  assert.match(untold, /^HTTP\/1\.1 413 .*limit body_bytes/s);
  assert.equal(server.requests.length, 0);
  const whole = await ask(port, '/_/r/', { method: 'POST', body: 'x'.repeat(100_000) });
  assert.equal(whole.status, 200);
  assert.equal(server.requests[0].body.length, 100_000);
  // Two that are held at once are too many together.
  const one = net.connect(port, '127.0.0.1');
  one.on('error', () => {});
  one.write(`POST /_/r/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 90000\r\n\r\n${'x'.repeat(89_999)}`);
  let refused;
  for (let i = 0; i < 100 && refused?.status !== 429; i += 1) {
    refused = await ask(port, '/_/r/', { method: 'POST', body: 'x'.repeat(90_000) });
  }
  assert.equal(refused.status, 429);
  assert.match(refused.text, /limit held_bytes/);
  one.destroy();
});

test('a head that drips, and a body that stops, end in time', async (t) => {
  const { egress, port } = await start(t, { config: { head_timeout_ms: 500, body_timeout_ms: 500 } });
  const drip = net.connect(port, '127.0.0.1');
  drip.on('error', () => {});
  await once(drip, 'connect');
  drip.write('GET /_/r/ HTTP/1.1\r\n');
  const timer = setInterval(() => drip.write('X: y\r\n'), 50);
  const began = Date.now();
  await once(drip, 'close');
  clearInterval(timer);
  assert.ok(Date.now() - began < 10_000);
  assert.equal(await raw(port, 'POST /_/r/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\nhe'), '');
  assert.equal(await raw(port, ''), '');
  assert.equal(egress.seen.filter((l) => l.state === 'begun').length, 0);
});

test('requests on one connection are answered in order, also when they are sent ahead', async (t) => {
  const { server, port } = await start(t, { handler: (request, response) => response.end(`<${request.url}>`) });
  const get = (path) => `GET /_/r${path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`;
  const post = 'POST /_/r/p HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n';
  const last = 'GET /_/r/z HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n';
  const text = await raw(port, `${get('/a')}${get('/b')}${post}${get('/%2e%2e/x').replace('%2e%2e', 'q')}GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n${last}`);
  assert.deepEqual(text.match(/<[^>]*>|HTTP\/1\.1 404/g), ['</a>', '</b>', '</p>', '</q/x>', 'HTTP/1.1 404', '</z>']);
  assert.equal(server.requests[2].body, 'abc');
});

test('what follows a refused request with a body is not read as a request', async (t) => {
  const { server, port } = await start(t);
  const inner = 'GET /_/r/inner HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n';
  const text = await raw(port, `POST /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${inner.length}\r\n\r\n${inner}`);
  assert.equal(text.match(/HTTP\/1\.1/g).length, 1);
  assert.equal(server.requests.length, 0);
});

test('an answer passes without what belongs to the connection, whatever its framing', async (t) => {
  const handler = (request, response) => {
    if (request.url === '/none') {
      response.writeHead(204).end();
    } else if (request.url === '/length') {
      response.writeHead(200, { 'content-length': 5, 'keep-alive': 'timeout=99', 'x-a': 'b', connection: 'x-secret-hop', 'x-secret-hop': '1' });
      response.end(request.method === 'HEAD' ? undefined : 'hello');
    } else {
      response.writeHead(200, { 'x-a': 'b' });
      response.write('hel');
      response.end('lo');
    }
  };
  const { port } = await start(t, { handler });
  for (const path of ['/length', '/chunks']) {
    const answer = await ask(port, `/_/r${path}`);
    assert.equal(answer.text, 'hello');
    assert.equal(answer.headers['x-a'], 'b');
    assert.equal(answer.headers['x-secret-hop'], undefined);
    assert.notEqual(answer.headers['keep-alive'], 'timeout=99');
  }
  const head = await ask(port, '/_/r/length', { method: 'HEAD', headers: {} }).catch((e) => e);
  assert.equal(head.status, 403); // this route grants GET and POST
  assert.equal((await ask(port, '/_/r/none')).status, 204);
  const old = await raw(port, 'GET /_/r/chunks HTTP/1.0\r\n\r\n');
  assert.match(old, /\r\n\r\nhello$/);
  assert.doesNotMatch(old, /chunked/i);
});

test('a server that breaks off breaks the answer off', async (t) => {
  const server = await startTcp(t, (s) => s.once('data', () => s.end('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf')));
  const egress = await startEgress(t, { private: [`localhost:${server.port}`] });
  const port = await egress.open('a', { routes: { r: { url: `http://localhost:${server.port}` } } });
  const text = await raw(port, 'GET /_/r/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n');
  assert.match(text, /\r\n\r\nhalf$/);
  assert.notEqual((await egress.event((e) => e.state === 'ended')).reason, '');
});

test('a server that cannot be reached is a 502 that does not tell where it is', async (t) => {
  const egress = await startEgress(t, { private: ['127.0.0.1:1'] });
  const port = await egress.open('a', { routes: { r: { url: 'http://127.0.0.1:1' } } });
  const answer = await ask(port, '/_/r/x');
  assert.equal(answer.headers['x-should-retry'], undefined, 'it may come back');
  assert.equal(answer.status, 502);
  assert.doesNotMatch(answer.text, /127\.0\.0\.1/);
  assert.match((await egress.event((e) => e.state === 'ended')).reason, /127\.0\.0\.1/);
});

test('a slow reader slows the server down, and loses nothing', async (t) => {
  const size = 64 * 1024 * 1024;
  let sent = 0;
  const handler = async (request, response) => {
    const piece = Buffer.alloc(65536, 'x');
    response.writeHead(200);
    while (sent < size) {
      sent += piece.length;
      if (!response.write(piece)) await once(response, 'drain');
    }
    response.end();
  };
  const { port } = await start(t, { handler });
  const socket = net.connect({ port, host: '127.0.0.1' });
  socket.write('GET /_/r/ HTTP/1.0\r\n\r\n');
  await once(socket, 'readable');
  let before = -1;
  while (sent !== before) {
    before = sent;
    await new Promise((done) => { setTimeout(done, 300); });
  }
  assert.ok(sent < size, `${sent} bytes were taken from the server while nobody read`);
  let got = 0;
  for await (const piece of socket) got += piece.length;
  assert.ok(got > size && got < size + 1000, got);
});

test('requests are capped in number and in a minute', async (t) => {
  const { port } = await start(t, { policy: { caps: { requests: 3 } } });
  for (const status of [200, 200, 200, 429, 429]) assert.equal((await ask(port, '/_/r/')).status, status);
});

test('requests are capped in a minute', async (t) => {
  const { port } = await start(t, { policy: { caps: { requests_per_minute: 2 } } });
  assert.equal((await ask(port, '/_/r/')).status, 200);
  assert.equal((await ask(port, '/_/r/')).status, 200);
  const refused = await ask(port, '/_/r/');
  assert.equal(refused.status, 429);
  assert.equal(refused.headers['retry-after'], '1');
});
