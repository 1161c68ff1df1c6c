// Tunnels: who may be reached, at which address, and what may be spoken inside.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { test } from 'node:test';
import tls from 'node:tls';
import { ask, connect, makeCertificate, raw, startEgress, startServer, startTcp } from './lib.mjs';

const certificate = makeCertificate('DNS:localhost,IP:127.0.0.1');
process.on('exit', () => certificate.remove());

const hello = (request, response) => response.end('hello from inside');

async function getInside(socket, servername) {
  const inside = tls.connect({ socket, servername, ca: certificate.cert, checkServerIdentity: () => undefined });
  inside.on('error', () => {});
  let text = '';
  inside.setEncoding('utf8').on('data', (d) => (text += d));
  inside.write('GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
  await once(inside, 'close');
  return text;
}

/** A server over TLS that is exempt by name, and a sandbox that may reach it. */
async function start(t, allow, config = {}) {
  const server = await startServer(t, hello, certificate);
  const egress = await startEgress(t, { private: [`localhost:${server.port}`], ...config });
  const port = await egress.open('a', { allow: allow ? allow(server.port) : [`localhost:${server.port}`] });
  return { server, egress, port, target: `localhost:${server.port}` };
}

test('an allowed host is reached through a tunnel', async (t) => {
  const { server, egress, port, target } = await start(t);
  const { socket, status } = await connect(port, target);
  assert.equal(status, 200);
  assert.match(await getInside(socket, 'localhost'), /hello from inside/);
  const ended = await egress.event((e) => e.state === 'ended');
  assert.equal(ended.kind, 'connect');
  assert.equal(ended.host, 'localhost');
  assert.equal(ended.port, server.port);
  assert.equal(ended.reason, '');
  assert.ok(ended.bytes_in > 500 && ended.bytes_out > 200, JSON.stringify(ended));
  const usage = await egress.wait((l) => l.type === 'usage' && l.bytes_in === ended.bytes_in);
  assert.equal(usage.requests, 1);
});

test('a sandbox with an empty policy reaches nothing', async (t) => {
  const { server, egress, port, target } = await start(t, () => []);
  const { status, text } = await connect(port, target);
  assert.equal(status, 403);
  assert.match(text, /network\.allow/);
  const event = await egress.event((e) => e.state === 'refused');
  assert.equal(event.host, 'localhost');
  assert.match(event.reason, /not allowed/);
  assert.equal(server.requests.length, 0);
});

test('another host, another port and a name around the allowed one are refused', async (t) => {
  const { port, server } = await start(t);
  for (const target of ['example.com:443', 'localhost:1', `xlocalhost:${server.port}`, `localhost.x:${server.port}`,
    `a.localhost:${server.port}`]) {
    assert.equal((await connect(port, target)).status, 403, target);
  }
});

test('a wildcard covers names below it, not itself', async (t) => {
  const { port } = await start(t, () => ['*.example.test:443']);
  assert.equal((await connect(port, 'example.test:443')).status, 403);
  assert.equal((await connect(port, 'xexample.test:443')).status, 403);
  // Allowed, but there is no such name.
  assert.equal((await connect(port, 'a.example.test:443')).status, 502);
});

test('a private endpoint is reached by what was granted it, and one of routes by routes alone', async (t) => {
  const server = await startServer(t, (request, response) => response.end('inside'));
  const name = `localhost:${server.port}`;
  const policy = { allow: [`tcp://${name}`], routes: { one: { url: `http://${name}` } } };
  const plain = { path: `http://${name}/`, headers: { host: name } };
  for (const [config, both] of [[{ private: [name] }, true], [{ private_routes: [name] }, false]]) {
    const egress = await startEgress(t, config);
    const inner = await egress.open('inner', policy);
    const outer = await egress.open('outer', { ...policy, public: true });
    assert.equal((await ask(inner, '/_/one/')).status, 200);
    assert.equal((await connect(inner, name)).status, both ? 200 : 403);
    assert.equal((await ask(inner, plain.path, plain)).status, both ? 200 : 403);
    const before = server.requests.length;
    assert.equal((await ask(outer, '/_/one/')).status, 403);
    assert.equal((await connect(outer, name)).status, 403);
    assert.equal((await ask(outer, plain.path, plain)).status, 403);
    assert.equal(server.requests.length, before);
  }
});

test('a name that leads to a private address is refused unless the operator exempted it', async (t) => {
  const server = await startServer(t, hello, certificate);
  const egress = await startEgress(t, { private: ['localhost:1', `otherhost:${server.port}`] });
  const port = await egress.open('a', { allow: [`localhost:${server.port}`] });
  const { status, text } = await connect(port, `localhost:${server.port}`);
  assert.equal(status, 403);
  assert.match(text, /an address that is loopback/);
  const event = await egress.event((e) => e.state === 'refused');
  assert.match(event.reason, /loopback/);
});

test('an address in any spelling is refused, and in the usual one if it is listed and exempted', async (t) => {
  const server = await startServer(t, hello, certificate);
  const egress = await startEgress(t, { private: [`localhost:${server.port}`] });
  const port = await egress.open('a', { allow: [`localhost:${server.port}`] });
  for (const host of ['127.0.0.1', '127.1', '2130706433', '0x7f000001', '0177.0.0.1', '0x7f.0.0.1', '127.0.0.1.', '[::1]',
    '[::ffff:127.0.0.1]', '[::ffff:7f00:1]', '169.254.169.254', '017700000001', '①②⑦.0.0.1']) {
    const { status } = await connect(port, `${host}:${server.port}`);
    assert.ok(status === 403 || status === 400, `${host}: ${status}`);
  }
  assert.equal(server.requests.length, 0);
  const listed = await egress.open('b', { allow: [`127.0.0.1:${server.port}`] });
  const refused = await connect(listed, `127.0.0.1:${server.port}`);
  assert.equal(refused.status, 403);
  assert.match(refused.text, /loopback/);
  await egress.ok({ cmd: 'config', private: [`127.0.0.1:${server.port}`] });
  const { socket, status } = await connect(listed, `127.0.0.1:${server.port}`);
  assert.equal(status, 200);
  assert.match(await getInside(socket, undefined), /hello from inside/);
});

test('TLS that asks for another host is cut before a byte of it goes out', async (t) => {
  const received = [];
  const server = await startTcp(t, (s) => s.on('data', (d) => received.push(d)));
  const egress = await startEgress(t, { private: [`localhost:${server.port}`] });
  const port = await egress.open('a', { allow: [`localhost:${server.port}`] });
  const { socket, status } = await connect(port, `localhost:${server.port}`);
  assert.equal(status, 200);
  const inside = tls.connect({ socket, servername: 'other.example', rejectUnauthorized: false });
  await once(inside, 'error');
  const event = await egress.event((e) => e.state === 'ended');
  assert.match(event.reason, /asks for "other\.example"/);
  assert.equal(received.length, 0);
});

test('what a server says first is not handed on before the hello, nor what is no TLS after it', async (t) => {
  const server = await startTcp(t, (socket) => {
    socket.on('error', () => {});
    socket.write('SSH-2.0-banner of something that is not TLS\r\n');
  });
  const egress = await startEgress(t, { private: [`localhost:${server.port}`], head_timeout_ms: 3000 });
  const port = await egress.open('a', { allow: [`localhost:${server.port}`] });
  // A guest that only listens; then one that says a proper hello, and is answered by a banner.
  for (const [hello, reason] of [[false, /did not come|too long/], [true, /server does not speak TLS/]]) {
    const from = egress.seen.length;
    const { socket, status } = await connect(port, `localhost:${server.port}`);
    assert.equal(status, 200);
    let got = '';
    socket.on('data', (d) => (got += d.toString('latin1')));
    if (hello) {
      const inside = tls.connect({ socket, servername: 'localhost' });
      inside.on('error', () => {});
    }
    if (!socket.closed) await once(socket, 'close');
    assert.doesNotMatch(got, /banner/);
    const ended = await egress.event((e) => e.state === 'ended', from);
    assert.match(ended.reason, reason);
    assert.equal(ended.cut, hello);
  }
});

test('a client of TLS is told that its tunnel is cut, in its own words', async (t) => {
  const { egress, port, target } = await start(t);
  const { socket } = await connect(port, target);
  const inside = tls.connect({ socket, servername: 'other.example' });
  const [error] = await once(inside, 'error');
  assert.match(error.message, /unrecognized name/i);
  const ended = await egress.event((e) => e.state === 'ended');
  assert.equal(ended.cut, true);
  // One that just leaves was not cut.
  const from = egress.seen.length;
  const other = await connect(port, target);
  other.socket.destroy();
  assert.equal((await egress.event((e) => e.state === 'ended', from)).cut, false);
});

test('an address of IPv6 is written in brackets, as it would be allowed', async (t) => {
  const { egress, port } = await start(t);
  const { text } = await connect(port, '[::1]:8860');
  assert.match(text, /403/);
  const event = await egress.event((e) => e.state === 'refused');
  assert.match(event.reason, /^\[::1\]:8860 is not allowed.*"\[::1\]:8860"/);
  await egress.ok({ cmd: 'policy', id: 'a', policy: { allow: ['[::1]:8860'] } });
  const from = egress.seen.length;
  await connect(port, '[::1]:8860');
  assert.match((await egress.event((e) => e.state === 'refused', from)).reason, /^\[::1\]:8860 leads to/);
});

test('TLS without a name, and what is not TLS, is cut', async (t) => {
  const { egress, port, target } = await start(t);
  const one = await connect(port, target);
  const inside = tls.connect({ socket: one.socket, rejectUnauthorized: false });
  await once(inside, 'error');
  assert.match((await egress.event((e) => e.state === 'ended')).reason, /does not say which host/);
  const from = egress.seen.length;
  const two = await connect(port, target, 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
  if (!two.socket.closed) await once(two.socket, 'close');
  assert.match((await egress.event((e) => e.state === 'ended', from)).reason, /not TLS/);
});

test('a rule with tcp:// lets anything be spoken, both ends close by themselves', async (t) => {
  const server = await startTcp(t, (s) => {
    s.allowHalfOpen = true;
    s.on('data', (d) => s.write(`echo ${d}`));
    s.on('end', () => s.end('bye'));
  });
  server.allowHalfOpen = true;
  const egress = await startEgress(t, { private: [`localhost:${server.port}`] });
  const port = await egress.open('a', { allow: [`tcp://localhost:${server.port}`] });
  const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  let text = '';
  socket.setEncoding('utf8').on('data', (d) => (text += d));
  // The bytes behind the head belong to the tunnel.
  socket.write(`CONNECT localhost:${server.port} HTTP/1.1\r\nHost: localhost:${server.port}\r\n\r\nearly`);
  while (!text.endsWith('early')) await once(socket, 'data');
  socket.end('late');
  await once(socket, 'end');
  assert.match(text, /^HTTP\/1\.1 200 .*\r\n\r\necho earlyecho latebye$/s);
  socket.destroy();
  assert.equal((await egress.event((e) => e.state === 'ended')).reason, '');
});

test('CONNECT with anything but one host and port is malformed', async (t) => {
  const { egress, port, server } = await start(t);
  const p = server.port;
  const bad = [
    `CONNECT user@localhost:${p} HTTP/1.1\r\nHost: localhost:${p}\r\n\r\n`,
    `CONNECT user:pass@localhost:${p} HTTP/1.1\r\nHost: localhost:${p}\r\n\r\n`,
    `CONNECT localhost HTTP/1.1\r\nHost: localhost\r\n\r\n`,
    `CONNECT localhost:0 HTTP/1.1\r\nHost: localhost:0\r\n\r\n`,
    `CONNECT localhost:${p + 65536} HTTP/1.1\r\nHost: localhost:${p}\r\n\r\n`,
    `CONNECT localhost:0${p} HTTP/1.1\r\nHost: localhost:${p}\r\n\r\n`,
    `CONNECT localhost:${p}/ HTTP/1.1\r\nHost: localhost:${p}\r\n\r\n`,
    `CONNECT localhost:${p}?x HTTP/1.1\r\nHost: localhost:${p}\r\n\r\n`,
    `CONNECT localhost:${p}#x HTTP/1.1\r\nHost: localhost:${p}\r\n\r\n`,
    `CONNECT localhost:${p}:${p} HTTP/1.1\r\nHost: localhost:${p}\r\n\r\n`,
    `CONNECT localhost%2eevil:${p} HTTP/1.1\r\nHost: localhost:${p}\r\n\r\n`,
    `CONNECT localhost.:${p} HTTP/1.1\r\nHost: localhost:${p}\r\n\r\n`,
    `CONNECT http://localhost:${p} HTTP/1.1\r\nHost: localhost:${p}\r\n\r\n`,
    `CONNECT localhost:${p} HTTP/1.1\r\nHost: other:${p}\r\n\r\n`,
    `CONNECT localhost:${p} HTTP/1.1\r\nHost: localhost:${p}\r\nHost: other:${p}\r\n\r\n`,
    `CONNECT localhost:${p} HTTP/1.1\r\nHost: localhost:${p}\r\nContent-Length: 5\r\n\r\nhello`,
    `CONNECT localhost:${p} HTTP/1.1\r\nHost: localhost:${p}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    `CONNECT localhost:${p} HTTP/1.1\nHost: localhost:${p}\n\n`,
    `CONNECT localhost:${p}\x00.evil HTTP/1.1\r\nHost: localhost:${p}\r\n\r\n`,
  ];
  for (const bytes of bad) {
    const answer = await raw(port, bytes);
    assert.match(answer, /^HTTP\/1\.1 400 /, JSON.stringify(bytes));
  }
  assert.equal(egress.seen.filter((l) => l.state === 'begun').length, 0);
  assert.equal(server.requests.length, 0);
});

test('a policy that changes cuts what it does not allow any more', async (t) => {
  const { egress, port, target } = await start(t);
  const one = await connect(port, target);
  const inside = tls.connect({ socket: one.socket, servername: 'localhost', ca: certificate.cert });
  await once(inside, 'secureConnect');
  inside.on('error', () => {});
  await egress.ok({ cmd: 'policy', id: 'a', policy: { allow: [target, 'example.com'] } });
  inside.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  await once(inside, 'data'); // still allowed, still open
  await egress.ok({ cmd: 'policy', id: 'a', policy: { allow: ['example.com'] } });
  if (!inside.closed) await once(inside, 'close');
  assert.match((await egress.event((e) => e.state === 'ended')).reason, /policy/);
  assert.equal((await connect(port, target)).status, 403);
  assert.equal((await egress.ask({ cmd: 'policy', id: 'nobody', policy: {} })).code, 'not_found');
});

test('a closed sandbox has no way out, and another is not touched', async (t) => {
  const { egress, port, target } = await start(t);
  const other = await egress.open('b', { allow: [target] });
  const one = await connect(port, target);
  await egress.ok({ cmd: 'close', id: 'a' });
  if (!one.socket.closed) await once(one.socket, 'close');
  assert.match((await egress.event((e) => e.state === 'ended')).reason, /closed/);
  const last = egress.seen.findLast((l) => l.type === 'usage');
  assert.equal(last.sandbox, 'a');
  assert.equal(last.requests, 1);
  const two = await connect(other, target);
  assert.equal(two.status, 200);
  two.socket.destroy();
  await egress.ok({ cmd: 'close', id: 'a' });
});

test('tunnels and connections are bounded for each sandbox', async (t) => {
  const { egress, port, target } = await start(t, null, { tunnels: 2, connections: 4 });
  const open = [await connect(port, target), await connect(port, target)];
  const third = await connect(port, target);
  assert.equal(third.status, 429);
  assert.match(third.text, /limit tunnels/);
  open[0].socket.destroy();
  await egress.event((e) => e.state === 'ended');
  const again = await connect(port, target);
  assert.equal(again.status, 200);
  const other = await egress.open('b', { allow: [target] });
  assert.equal((await connect(other, target)).status, 200);
  // Connections that say nothing count as well.
  const idle = [];
  for (let i = 0; i < 4; i += 1) {
    const s = net.connect(port, '127.0.0.1');
    s.on('error', () => {});
    await once(s, 'connect');
    idle.push(s);
  }
  const answer = await raw(port, 'GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n');
  assert.match(answer, /^HTTP\/1\.1 429 .*limit connections/s);
  for (const s of idle) s.destroy();
});

test('a tunnel that says nothing, and a hello that does not come, end in time', async (t) => {
  const silent = await startTcp(t, () => {});
  const egress = await startEgress(t, { private: [`localhost:${silent.port}`], head_timeout_ms: 300, idle_timeout_ms: 600 });
  const port = await egress.open('a', { allow: [`localhost:${silent.port}`] });
  const plain = await egress.open('b', { allow: [`tcp://localhost:${silent.port}`] });
  for (const [p, early] of [[port, ''], [port, '\x16\x03\x01'], [plain, 'x']]) {
    const { socket, status } = await connect(p, `localhost:${silent.port}`, early);
    assert.equal(status, 200);
    if (!socket.closed) await once(socket, 'close');
  }
  await egress.wait(() => egress.seen.filter((l) => l.state === 'ended' && /too long/.test(l.reason)).length === 3);
});

test('bytes are capped while they pass', async (t) => {
  const server = await startTcp(t, (s) => {
    const piece = Buffer.alloc(65536);
    const more = () => s.writable && s.write(piece, more);
    s.once('data', more);
  });
  const egress = await startEgress(t, { private: [`localhost:${server.port}`] });
  const port = await egress.open('a', { allow: [`tcp://localhost:${server.port}`], caps: { bytes: 1_000_000 } });
  const { socket } = await connect(port, `localhost:${server.port}`, 'go');
  socket.resume();
  if (!socket.closed) await once(socket, 'close');
  const ended = await egress.event((e) => e.state === 'ended');
  assert.match(ended.reason, /all the bytes/);
  assert.ok(ended.bytes_in >= 900_000 && ended.bytes_in < 1_200_000, ended.bytes_in);
  const refused = await connect(port, `localhost:${server.port}`);
  assert.equal(refused.status, 429);
  assert.match(refused.text, /network caps/);
});

test('a killed program comes back with the same listeners and usage', async (t) => {
  const { egress, port, target } = await start(t);
  const before = await connect(port, target);
  const usage = await egress.wait((l) => l.type === 'usage' && l.requests === 1);
  assert.equal(usage.sandbox, 'a');
  const from = egress.seen.length;
  egress.send({ cmd: 'kill' });
  if (!before.socket.closed) await once(before.socket, 'close');
  await egress.wait((l) => l.type === 'started', from);
  const { socket, status } = await connect(port, target);
  assert.equal(status, 200);
  assert.match(await getInside(socket, 'localhost'), /hello from inside/);
  await egress.wait((l) => l.type === 'usage' && l.requests === 2, from);
});

const sum = (events, state) => events.filter((e) => e.state === state).reduce((n, e) => n + e.count, 0);

test('what was let out is told one by one, however much is refused beside it, and refusals are counted', async (t) => {
  const { egress, port, target } = await start(t);
  // Tunnels and plain requests in turn, so that some have a path.
  const refuse = async (n) => {
    for (let i = 0; i < n; i += 1) {
      const host = `x${i % 100}.example.com`;
      await raw(port, i % 2 ? `CONNECT ${host}:443 HTTP/1.1\r\nHost: ${host}:443\r\n\r\n` : `GET http://${host}/p${i} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    }
  };
  const tunnels = async () => {
    for (let i = 0; i < 20; i += 1) {
      const { socket, status } = await connect(port, target);
      assert.equal(status, 200);
      assert.match(await getInside(socket, 'localhost'), /hello from inside/);
    }
  };
  await Promise.all([...Array.from({ length: 8 }, () => refuse(125)), tunnels()]);
  await egress.wait((l) => l.type === 'usage' && l.refused === 1000);
  await egress.wait(() => sum(egress.events('a'), 'refused') === 1000 && sum(egress.events('a'), 'ended') === 20);
  const events = egress.events('a');
  for (const state of ['begun', 'ended']) {
    const told = events.filter((e) => e.state === state);
    assert.equal(told.length, 20, state);
    assert.ok(told.every((e) => e.count === 1 && e.host === 'localhost' && e.number > 0));
  }
  const refused = events.filter((e) => e.state === 'refused');
  assert.ok(refused.length < 400, String(refused.length));
  assert.ok(refused.some((e) => e.host === '*' && e.count > 1 && e.reason), 'what does not fit is told together');
  assert.ok(refused.some((e) => e.host === 'x1.example.com' && e.count === 1));
  assert.equal(egress.seen.findLast((l) => l.type === 'usage').events_lost, 0);
});

test('too much that was let out is told in sums, of which nothing is missing', async (t) => {
  const server = await startServer(t, (request, response) => response.end('hello'));
  const egress = await startEgress(t, { private: [`localhost:${server.port}`], events_per_second: 2 });
  const port = await egress.open('a', { routes: { api: { url: `http://localhost:${server.port}`, methods: ['GET', 'DELETE'] } } });
  for (let i = 0; i < 60; i += 1) assert.equal((await ask(port, i < 40 ? '/_/api/same' : `/_/api/other/${i}`)).status, 200);
  assert.equal((await ask(port, '/_/api/same', { method: 'DELETE' })).status, 200);
  await egress.wait(() => sum(egress.events('a'), 'ended') === 61 && sum(egress.events('a'), 'begun') === 61);
  const ended = egress.events('a').filter((e) => e.state === 'ended');
  assert.equal(ended.reduce((n, e) => n + e.bytes_in, 0), 61 * 5);
  assert.ok(ended.some((e) => e.path === '/same' && e.method === 'GET' && e.count >= 20));
  assert.ok(ended.some((e) => e.path === '*' && e.host === 'localhost'));
  assert.equal(ended.filter((e) => e.method === 'DELETE').length, 1, 'what is not like the rest is not lost in it');
  // Whoever is told to have begun by itself is told to have ended.
  const numbers = (state) => egress.events('a').filter((e) => e.state === state && e.number > 0 && e.count === 1).map((e) => e.number);
  for (const n of numbers('begun').slice(0, 8)) assert.ok(numbers('ended').includes(n), String(n));
});

test('the end of a sandbox tells what was still to be told', async (t) => {
  const { egress, port, target } = await start(t, null, { events_per_second: 1 });
  const { socket } = await connect(port, target);
  for (let i = 0; i < 30; i += 1) await raw(port, 'CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n');
  await egress.ok({ cmd: 'close', id: 'a' });
  assert.equal(sum(egress.events('a'), 'refused'), 30);
  assert.match(egress.events('a').find((e) => e.state === 'ended').reason, /sandbox was closed/);
  socket.destroy();
});
