// Connections to servers: one sandbox and one route each. Servers that lie about where answers end, policies that would
// lie about where requests end, and two sandboxes at once that must see nothing of each other.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import { test } from 'node:test';
import { ask, makeCertificate, post, raw, startEgress, startServer, startTcp } from './lib.mjs';

const certificate = makeCertificate('DNS:localhost');
process.on('exit', () => certificate.remove());

const route = (server, headers = {}, scheme = 'http') => ({ url: `${scheme}://localhost:${server.port}`, headers, methods: ['GET', 'POST'] });
const open = (t, server) => startEgress(t, { ca_file: certificate.file, private: [`localhost:${server.port}`] });

/** Which requests came over which connection. */
function watch(users) {
  return (request, response) => {
    const socket = request.stream?.session ?? request.socket;
    if (!users.has(socket)) users.set(socket, []);
    users.get(socket).push(`${request.headers['x-who']} ${request.headers.authorization}`);
    response.end(`for ${request.headers['x-who']}`);
  };
}

/** One after the other, so that a connection is free when the next is asked for; then all at once. */
async function askInTurns(lines) {
  const inTurns = async (job) => {
    for (const line of lines) await job(line);
  };
  const atOnce = (job) => Promise.all(lines.map(job));
  for (const all of [inTurns, inTurns, atOnce, inTurns]) {
    await all(async ([port, path, who]) => {
      const answer = await ask(port, path, { headers: { 'x-who': who, ...(path.startsWith('http') ? { host: new URL(path).host } : {}) } });
      assert.equal(answer.text, `for ${who}`);
    });
  }
}

function checkUsers(users, lines) {
  const seen = [...users.values()].map((list) => new Set(list));
  for (const set of seen) assert.equal(set.size, 1, [...set].join(', '));
  assert.equal(new Set(seen.flatMap((set) => [...set])).size, lines.length);
  // And they are reused: not one for each request.
  assert.ok(users.size < lines.length * 4, `${users.size} connections`);
}

test('a connection serves one sandbox, one route and one credential', async (t) => {
  const users = new Map();
  const server = await startServer(t, watch(users));
  const egress = await open(t, server);
  const policy = {
    allow: [`tcp://localhost:${server.port}`],
    routes: { one: route(server, { authorization: '1' }), two: route(server, { authorization: '2' }), same: route(server, { authorization: '1' }) },
  };
  const a = await egress.open('a', policy);
  const b = await egress.open('b', policy);
  const lines = ['a', 'b'].flatMap((who) => {
    const port = who === 'a' ? a : b;
    return [[port, '/_/one/', `${who}-one`], [port, '/_/two/', `${who}-two`], [port, '/_/same/', `${who}-same`],
      [port, `http://localhost:${server.port}/`, `${who}-plain`]];
  });
  await askInTurns(lines);
  checkUsers(users, lines);
});

test('nor does a connection of HTTP/2', async (t) => {
  const users = new Map();
  const secure = http2.createSecureServer({ key: certificate.key, cert: certificate.cert }, watch(users));
  secure.listen(0, '127.0.0.1');
  await once(secure, 'listening');
  const sessions = new Set();
  secure.on('session', (s) => sessions.add(s));
  t.after(() => {
    for (const s of sessions) s.destroy();
    secure.close();
  });
  const server = { port: secure.address().port };
  const egress = await open(t, server);
  const policy = { routes: { one: route(server, { authorization: '1' }, 'https'), two: route(server, { authorization: '2' }, 'https') } };
  const lines = [];
  for (const who of ['a', 'b']) {
    const port = await egress.open(who, policy);
    lines.push([port, '/_/one/', `${who}-one`], [port, '/_/two/', `${who}-two`]);
  }
  await askInTurns(lines);
  checkUsers(users, lines);
});

test('a new policy, or the end of the sandbox, ends the connections of the former', async (t) => {
  const users = new Map();
  const server = await startServer(t, watch(users));
  const egress = await open(t, server);
  const policy = (token) => ({ routes: { one: route(server, { authorization: token }) } });
  const port = await egress.open('a', policy('old'));
  await ask(port, '/_/one/', { headers: { 'x-who': 'a' } });
  const [first] = users.keys();
  const firstClosed = once(first, 'close');
  await egress.ok({ cmd: 'policy', id: 'a', policy: policy('new') });
  await firstClosed;
  await ask(port, '/_/one/', { headers: { 'x-who': 'a' } });
  const second = [...users.keys()][1];
  assert.deepEqual([...users.values()], [['a old'], ['a new']]);
  const secondClosed = once(second, 'close');
  await egress.ok({ cmd: 'close', id: 'a' });
  await secondClosed;
});

const NAMES = ['Content-Length', 'Transfer-Encoding', 'Connection', 'Keep-Alive', 'TE', 'Trailer', 'Trailers', 'Upgrade', 'Expect', 'Host',
  'Proxy-Authorization', 'Proxy-Connection', 'proxy-anything', 'HTTP2-Settings'];
// Servers that make variables of fields take all of these for the same.
const SPELLINGS = [(n) => n, (n) => n.toLowerCase(), (n) => n.toUpperCase(), (n) => n.replace(/-/g, '_'), (n) => n.replace(/-/g, '.'), (n) => n.replace(/-/g, '~')];
const FRAMING = [...new Set(NAMES.flatMap((n) => SPELLINGS.map((spell) => spell(n))))];
// No names at all, though some reader might trim, fold or translate them to one.
const DISGUISES = [(n) => ` ${n}`, (n) => `${n} `, (n) => `\t${n}`, (n) => `${n}\t`, (n) => `${n}:`, (n) => `\r\n${n}`, (n) => `${n}\r\n`, (n) => `x-a\n${n}`,
  (n) => `x-a: b\r\n${n}`, (n) => `${n}\r\n `, (n) => `${n}\x7f`, (n) => `"${n}"`, (n) => `${n}\u00a0`, (n) => `\ufeff${n}`, (n) => n.replace(/e/i, '\u0435'),
  (n) => n.replace(/[A-Za-z]/g, (c) => String.fromCharCode(c.charCodeAt(0) + 0xfee0)), (n) => n.replace(/s/i, '\u017f'), (n) => n.replace(/k/i, '\u212a'), (n) => n.replace('-', '\u2010')];
const VALUES = ['b\r\ncontent-length: 0', 'b\nc', 'b\rc', 'b\r\n c', 'b\n\tc', '\r\n', 'b\n', '\x01', 'b\x7f', 'b\tc'];

test('fields that frame a request cannot be set by a route', async (t) => {
  const server = await startServer(t, (request, response) => response.end('ok'));
  const egress = await open(t, server);
  const refused = async (headers, why) => {
    const told = await egress.ask({ cmd: 'open', id: 'x', policy: { routes: { one: route(server, headers) } } });
    assert.equal(told.type, 'failed', JSON.stringify(headers));
    assert.match(told.message, why);
    // A front that would let it pass is not believed.
    const forced = await egress.ask({ cmd: 'open', id: 'x', policy: { routes: { one: route(server) }, forced: { one: headers } } });
    assert.equal(forced.type, 'failed', JSON.stringify(headers));
    assert.match(forced.message, why);
  };
  for (const name of FRAMING) await refused({ [name]: '0' }, new RegExp(`headers\\.${name.replace(/[.]/g, '\\.')} cannot be set`, 'i'));
  for (const name of NAMES) {
    for (const disguise of DISGUISES.filter((d) => d(name) !== name)) await refused({ [disguise(name)]: '0' }, /is no name of a header field/);
  }
  for (const value of VALUES) await refused({ 'x-a': value }, /headers\.x-a holds a control character/);
  for (const name of ['x-a\r\nb', 'x a', 'x-a:', '']) await refused({ [name]: 'c' }, /is no name of a header field/);
  const cut = await egress.ask({ cmd: 'open', id: 'x', policy: { routes: { one: route(server, { 'x-a': 'b\0c' }) } } });
  assert.equal(cut.type, 'failed', 'a NUL');
  const secret = await egress.ask({ cmd: 'open', id: 'x', policy: { routes: { one: route(server, { 'x-a': '${S}' }) } }, secrets: { S: 'b\r\ncontent-length: 0' } });
  assert.equal(secret.type, 'failed', 'a secret on two lines');
  const port = await egress.open('x', { routes: { one: route(server) } });
  const told = await egress.ask({ cmd: 'policy', id: 'x', policy: { routes: { one: route(server) }, forced: { one: { 'content-length': '0' } } } });
  assert.equal(told.type, 'failed');
  assert.equal((await ask(port, '/_/one/')).text, 'ok', 'the former policy holds');
  assert.equal(server.requests.length, 1);
});

test('a guest cannot set them either, in any spelling', async (t) => {
  const server = await startServer(t, (request, response, body) => response.end(`${request.method} ${body.length}`));
  const egress = await open(t, server);
  const port = await egress.open('a', { allow: [`tcp://localhost:${server.port}`], routes: { one: route(server) } });
  for (const target of ['/_/one/', `http://localhost:${server.port}/`]) {
    for (const name of FRAMING.filter((n) => !/^(content-length|transfer-encoding|connection|upgrade|host|expect|proxy-.*|http2.*)$/i.test(n))) {
      const host = target.startsWith('/') ? '127.0.0.1' : `localhost:${server.port}`;
      const text = await raw(port, `POST ${target} HTTP/1.1\r\nHost: ${host}\r\n${name}: 1\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello`);
      assert.match(text, /\r\n\r\nPOST 5$/, `${name} ${text}`);
      const seen = server.requests.at(-1).headers;
      assert.equal(seen[name.toLowerCase()], name.toLowerCase() === 'connection' ? 'keep-alive' : undefined, name);
    }
  }
});

/** A server of its own: each request is answered by `answer(who, socket)`; bodies are taken by their length. */
async function startLiar(t, answer, onConnection = () => {}) {
  const server = await startTcp(t, (socket) => {
    let text = '';
    onConnection(socket);
    socket.setEncoding('latin1').on('data', (data) => {
      text += data;
      for (let end; (end = text.indexOf('\r\n\r\n')) >= 0;) {
        const head = text.slice(0, end);
        const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
        if (text.length < end + 4 + length) return;
        text = text.slice(end + 4 + length);
        const who = /x-who: (\S+)/i.exec(head)?.[1] ?? 'nobody';
        socket.users = new Set([...(socket.users ?? []), who]);
        assert.equal(socket.users.size, 1, 'one connection, two sandboxes');
        answer(who, socket);
      }
    });
  });
  return server;
}

const whole = (who) => `HTTP/1.1 200 OK\r\nContent-Length: ${4 + who.length}\r\n\r\nfor ${who}`;

const LIARS = {
  'answers twice': (who, socket) => socket.write(whole(who) + whole(`${who}-again`)),
  'answers twice, the second time later': (who, socket) => {
    socket.write(whole(who));
    setImmediate(() => socket.write(whole(`${who}-again`)));
  },
  'leaves bytes after its answer': (who, socket) => socket.write(`${whole(who)}${'x'.repeat(3)} of ${who}`),
  'tells a length that is too short': (who, socket) => socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nfor ${who}`),
  'tells a length that is too long': (who, socket) => socket.end(`HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nfor ${who}`),
  'tells two lengths': (who, socket) => socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 9\r\n\r\nfor ${who}`),
  'tells a length and chunks': (who, socket) =>
    socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n${(4 + who.length).toString(16)}\r\nfor ${who}\r\n0\r\n\r\n${whole(`${who}-again`)}`),
  'answers with an interim answer too many': (who, socket) => socket.write(`${whole(who)}HTTP/1.1 103 Early Hints\r\nLink: <${who}>\r\n\r\n`),
};

for (const [what, answer] of Object.entries(LIARS)) {
  test(`a server that ${what} answers nobody else`, async (t) => {
    const server = await startLiar(t, answer);
    const egress = await open(t, server);
    const policy = { routes: { one: route(server, { authorization: 'the same' }) } };
    const ports = { a: await egress.open('a', policy), b: await egress.open('b', policy) };
    const one = async (who) => {
      const other = who === 'a' ? 'b' : 'a';
      const answered = await ask(ports[who], '/_/one/', { headers: { 'x-who': who } }).catch(() => ({ text: '' }));
      assert.ok(!answered.text.includes(`for ${other}`) && !answered.text.includes(`of ${other}`), answered.text);
    };
    for (let round = 0; round < 3; round += 1) {
      await one('a');
      await one('b');
      await Promise.all([one('a'), one('b')]);
    }
  });
}

test('a server that talks before it is asked answers nobody else', async (t) => {
  let n = 0;
  const server = await startLiar(t, (who, socket) => socket.write(whole(who)), (socket) => socket.write(whole(`early-${n += 1}`)));
  const egress = await open(t, server);
  const policy = { routes: { one: route(server) } };
  const ports = { a: await egress.open('a', policy), b: await egress.open('b', policy) };
  const seen = { a: new Set(), b: new Set() };
  for (let round = 0; round < 4; round += 1)
    for (const who of ['a', 'b']) seen[who].add((await ask(ports[who], '/_/one/', { headers: { 'x-who': who } }).catch(() => ({ text: '' }))).text);
  assert.ok(!seen.a.has('for b') && !seen.b.has('for a'));
  for (const text of seen.a) if (text.startsWith('for early')) assert.ok(!seen.b.has(text), text);
});

test('a second request inside a body stays with who sent it, also where the server takes it for one', async (t) => {
  // This server knows no lengths: every head that it finds is a request.
  const users = new Map();
  const server = await startTcp(t, (socket) => {
    let text = '';
    users.set(socket, new Set());
    socket.setEncoding('latin1').on('data', (data) => {
      text += data;
      for (let end; (end = text.indexOf('\r\n\r\n')) >= 0;) {
        const who = /x-who: (\S+)/i.exec(text.slice(0, end))?.[1];
        text = text.slice(end + 4);
        if (who) users.get(socket).add(who[0]);
        if (who) socket.write(whole(who));
      }
    });
  });
  const egress = await open(t, server);
  const policy = { routes: { one: route(server, { authorization: 'the same' }) } };
  const ports = { a: await egress.open('a', policy), b: await egress.open('b', policy) };
  const inner = 'GET /secret HTTP/1.1\r\nHost: x\r\nx-who: a-inner\r\n\r\n';
  for (let round = 0; round < 6; round += 1) {
    const [, answered] = await Promise.all([
      post(ports.a, '/_/one/', inner, { 'x-who': 'a' }).catch(() => undefined),
      ask(ports.b, '/_/one/', { headers: { 'x-who': 'b' } }),
    ]);
    assert.equal(answered.text, 'for b');
  }
  for (const set of users.values()) assert.ok(set.size <= 1, [...set].join());
});
