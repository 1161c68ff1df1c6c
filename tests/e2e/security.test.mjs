// Who may ask, from where, how often; and what nobody may see.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { bearer, createKey, raw, request, runCay, sleep, startCay, statuses, until, withCay } from '../lib/cay.mjs';

const upgrade = {
  Connection: 'Upgrade',
  Upgrade: 'websocket',
  'Sec-WebSocket-Version': '13',
  'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
};
const headerText = (headers) => Object.entries(headers).map(([k, v]) => `${k}: ${v}\r\n`).join('');
const status = async (cay, headers, { path = '/v1/runs', method = 'GET', body = '' } = {}) => {
  const all = { Host: `127.0.0.1:${cay.port}`, Connection: 'close', ...headers };
  const length = method === 'GET' ? '' : `Content-Length: ${body.length}\r\n`;
  const { text } = await raw(cay, `${method} ${path} HTTP/1.1\r\n${headerText(all)}${length}\r\n${body}`, {
    isDone: (t) => t.includes('\r\n\r\n'),
  });
  return statuses(text)[0];
};

describe('pages of others', () => {
  let cay;
  before(async () => {
    cay = await startCay({ config: { hosts: ['cay.example'], origins: ['https://app.example'] } });
  });
  after(() => cay.stop());

  test('only our own host names are answered', async () => {
    const { port } = cay;
    for (const host of ['localhost', `localhost:${port}`, '127.0.0.1', '127.0.0.2', '127.1.2.3:80', '[::1]', `[::1]:${port}`, 'LocalHost', 'cay.example', 'CAY.example:99'])
      assert.equal(await status(cay, { Host: host }), 200, host);
    for (const host of ['evil.example', '127.0.0.1.evil.example', '127.evil.example', '127.0.0.1evil', '127.', '127.0.0', '127.0.0.01', '0127.0.0.1', 'localhost.evil.example', 'notlocalhost', 'localhost.', '[::1]x', '[::2]', '2130706433', '0x7f.1', '0.0.0.0', '192.168.0.1', 'cay.example.evil', '', '[::ffff:127.0.0.1]', '1.127.0.0'])
      assert.equal(await status(cay, { Host: host }), 421, host);
    // The page and health count as well: what they show is ours.
    for (const path of ['/', '/health', '/openapi.json', '/metrics', '/assets/x.js'])
      assert.equal(await status(cay, { Host: 'evil.example' }, { path }), 421, path);
  });

  test('requests of other origins are refused', async () => {
    const host = `127.0.0.1:${cay.port}`;
    for (const Origin of [`http://${host}`, `https://${host}`, 'https://app.example'])
      assert.equal(await status(cay, { Origin }), 200, Origin);
    for (const Origin of ['http://evil.example', 'null', `http://127.0.0.1:${cay.port + 1}`, 'http://localhost', `http://${host}.evil.example`, `http://${host}@evil.example`, `ftp://${host}`, `${host}`, 'https://app.example.evil', 'http://app.example', `http://x.localhost:${cay.port}`, ''])
      assert.equal(await status(cay, { Origin }), 403, Origin);
    assert.equal(await status(cay, { 'X-Empty': '', Origin: 'http://evil.example' }), 403);
  });

  test('pages of listed origins may read the answers, others may not', async () => {
    const ask = (Origin, options = {}) => request(cay, '/v1/status', { headers: { Origin, ...options.headers }, ...options });
    const listed = await ask('https://app.example');
    assert.equal(listed.headers['access-control-allow-origin'], 'https://app.example');
    assert.match(listed.headers.vary, /Origin/);
    assert.equal(listed.headers['access-control-allow-credentials'], undefined);
    assert.equal((await ask('http://evil.example')).headers['access-control-allow-origin'], undefined);
    assert.equal((await ask(`http://127.0.0.1:${cay.port}`)).headers['access-control-allow-origin'], undefined);
    const preflight = (Origin) =>
      request(cay, '/v1/run', { method: 'OPTIONS', headers: { Origin, 'Access-Control-Request-Method': 'POST' } });
    const yes = await preflight('https://app.example');
    assert.equal(yes.status, 204);
    assert.equal(yes.headers['access-control-allow-origin'], 'https://app.example');
    assert.match(yes.headers['access-control-allow-methods'], /POST/);
    assert.match(yes.headers['access-control-allow-headers'], /Authorization/);
    const no = await preflight('http://evil.example');
    assert.equal(no.headers['access-control-allow-origin'], undefined);
    assert.equal(no.headers['access-control-allow-methods'], undefined);
  });

  test('what a browser says about the site counts when there is no Origin', async () => {
    const post = { path: '/v1/session', method: 'POST' };
    for (const site of ['same-origin', 'none']) assert.equal(await status(cay, { 'Sec-Fetch-Site': site }, post), 204, site);
    for (const site of ['cross-site', 'same-site', 'CROSS-SITE']) assert.equal(await status(cay, { 'Sec-Fetch-Site': site }, post), 403, site);
    assert.equal(await status(cay, { 'Sec-Fetch-Site': 'cross-site' }), 200); // a link may lead here
    assert.equal(await status(cay, {}, post), 204); // curl
  });

  test('WebSocket upgrades pass the same checks', async () => {
    // No route here speaks WebSocket: 200 or 404 means that the guard let it pass.
    const passed = async (headers) => (await status(cay, { ...upgrade, ...headers })) === 200;
    assert.ok(await passed({}));
    assert.ok(await passed({ Origin: `http://127.0.0.1:${cay.port}` }));
    assert.equal(await status(cay, { ...upgrade, Origin: 'http://evil.example' }), 403);
    assert.equal(await status(cay, { ...upgrade, Origin: 'null' }), 403);
    assert.equal(await status(cay, { ...upgrade, Host: 'evil.example' }), 421);
    assert.equal(await status(cay, { ...upgrade, 'Sec-Fetch-Site': 'cross-site' }), 403);
    assert.equal(await status(cay, { ...upgrade, 'Sec-Fetch-Site': 'same-site' }), 403);
  });

  test('a text without a type that names it could be any page\'s form', async () => {
    const post = { path: '/v1/run', method: 'POST', body: '{"code":"export default 1"}' };
    for (const type of ['text/plain', 'Text/Plain;charset=utf-8', ' multipart/form-data; boundary=x'])
      assert.equal(await status(cay, { 'Content-Type': type }, post), 403, type);
    assert.equal(await status(cay, { 'Content-Type': 'application/json' }, post), 200);
    assert.equal(await status(cay, { 'Content-Type': 'application/x-www-form-urlencoded' }, post), 200); // curl -d
    assert.equal(await status(cay, { 'Content-Type': 'text/plain', 'Sec-Fetch-Mode': 'cors' }, post), 200); // fetch() of Node
    assert.equal(await status(cay, { 'Content-Type': 'text/plain', Origin: `http://127.0.0.1:${cay.port}` }, post), 200);
  });

  test('a port that is none makes a Host malformed', async () => {
    for (const host of ['127.0.0.1:80.evil.com', 'localhost:x', 'localhost:123456', '[::1]:80x', '127.0.0.1:80:80', '::1'])
      assert.equal(await status(cay, { Host: host }), 400, host);
    for (const host of ['127.0.0.1:', 'localhost:65535']) assert.equal(await status(cay, { Host: host }), 200, host);
  });

  test('answers of ours are not embedded by other sites', async () => {
    for (const path of ['/', '/v1/status', '/health', '/nothing']) assert.equal((await request(cay, path)).headers['cross-origin-resource-policy'], 'same-origin', path);
    assert.equal((await request(cay, '/', { headers: { Host: 'x.localhost' } })).headers['cross-origin-resource-policy'], undefined);
  });

  test('other sites do not drive workers, unless they are public', async () => {
    const code = 'let n = 0; export default { fetch: (r) => new Response(String(r.method === "POST" ? ++n : n)) }';
    for (const [id, open] of [['mine', false], ['open', true]])
      assert.equal((await request(cay, `/v1/workers/${id}`, { method: 'PUT', body: JSON.stringify({ code, public: open }) })).status, 200);
    const call = async (id, headers, method = 'POST') =>
      (await request(cay, '/', { method, headers: { Host: `${id}.localhost:${cay.port}`, ...headers }, body: method === 'POST' ? 'x' : undefined })).status;
    const cross = { 'Sec-Fetch-Site': 'cross-site' };
    const foreign = [
      [{ Origin: 'http://evil.example', ...cross, 'Content-Type': 'text/plain' }],
      [{ Origin: 'null' }],
      [{ Origin: `http://open.localhost:${cay.port}`, 'Sec-Fetch-Site': 'same-site' }], // another guest
      [{ Origin: 'http://evil.example' }, 'GET'],
      [{ ...cross, 'Sec-Fetch-Mode': 'no-cors', 'Sec-Fetch-Dest': 'image' }, 'GET'],
      [{ ...cross, 'Sec-Fetch-Mode': 'navigate', 'Sec-Fetch-Dest': 'iframe' }, 'GET'],
      [{ ...cross, 'Sec-Fetch-Mode': 'navigate', 'Sec-Fetch-Dest': 'document' }], // a form
    ];
    for (const [headers, method] of foreign) {
      assert.equal(await call('mine', headers, method), 404, JSON.stringify(headers));
      assert.equal(await call('open', headers, method), 200, JSON.stringify(headers));
    }
    const own = [
      [{}], // curl
      [{ Origin: `http://mine.localhost:${cay.port}`, 'Sec-Fetch-Site': 'same-origin' }],
      [{ 'Sec-Fetch-Site': 'none', 'Sec-Fetch-Mode': 'navigate' }, 'GET'],
      [{ ...cross, 'Sec-Fetch-Mode': 'navigate', 'Sec-Fetch-Dest': 'document' }, 'GET'], // a link was followed
      [{ Origin: 'https://app.example', ...cross }], // it is in "origins"
    ];
    for (const [headers, method] of own) assert.equal(await call('mine', headers, method), 200, JSON.stringify(headers));
  });

  test('guest hosts get neither the page nor the API', async () => {
    const page = (await request(cay, '/')).body;
    for (const host of ['x.localhost', 'a.b.localhost', 'X.LOCALHOST:80', `run-1.localhost:${cay.port}`])
      for (const path of ['/', '/index.html', '/health', '/v1/runs', '/v1/status', '/v1/session', '/metrics', '/openapi.json']) {
        const { text } = await raw(cay, `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
        assert.deepEqual(statuses(text), [404], host + path);
        assert.ok(!text.includes(page.slice(0, 40)) && !text.includes('sandbox-executor'));
      }
    assert.equal(await status(cay, { Host: 'x.localhost' }, { path: '/v1/session', method: 'POST' }), 404);
  });
});

test('without keys a local client is the operator; with require_key nobody is', async (t) => {
  const cay = await withCay(t, { config: { require_key: true } });
  assert.equal((await request(cay, '/health')).status, 200);
  assert.equal((await request(cay, '/')).status, 200);
  assert.equal((await request(cay, '/openapi.json')).status, 200);
  for (const path of ['/v1/runs', '/v1/status', '/metrics', '/v1/runs/run_x']) {
    const answer = await request(cay, path);
    assert.equal(answer.status, 401, path);
    assert.equal(answer.headers['www-authenticate'], 'Bearer');
    assert.equal(answer.json().error.code, 'unauthorized');
  }
  assert.equal((await request(cay, '/v1/runs', { headers: bearer(cay.key) })).status, 200);
  assert.equal((await request(cay, '/v1/runs', { headers: { Authorization: `bearer   ${cay.key}` } })).status, 200);
  for (const Authorization of [`Bearer ${cay.key}x`, `Bearer ${cay.key.slice(0, -1)}`, 'Bearer', 'Bearer ', `Basic ${cay.key}`, cay.key, `Bearer ${cay.keyId}`, `Bearer cay_${'a'.repeat(2000)}`])
    assert.equal((await request(cay, '/v1/runs', { headers: { Authorization } })).status, 401, Authorization);
  const status = (await request(cay, '/v1/status', { headers: bearer(cay.key) })).json();
  assert.equal(status.require_key, true);
  assert.deepEqual(status.key, { id: cay.keyId, name: 'test', project: cay.project });
  assert.equal(status.data_dir, null); // for the operator's eyes
  const { pid, listen, children, memory_bytes: memory, connections, requests_total: requests, isolates, sandboxes } = status;
  assert.deepEqual([pid, listen, children, memory, connections, requests], [null, [], [], null, null, null]);
  for (const one of [isolates.busy, isolates.started_total, sandboxes.running, sandboxes.created_total]) assert.equal(one, null);
  assert.equal((await request(cay, '/metrics', { headers: bearer(cay.key) })).status, 403);
});

test('a wrong key is refused even where none is needed', async (t) => {
  const cay = await withCay(t, { key: true });
  assert.equal((await request(cay, '/v1/runs')).status, 200);
  assert.equal((await request(cay, '/v1/runs', { headers: bearer('cay_x_y') })).status, 401);
});

test('require_key without a key does not start', async () => {
  await assert.rejects(async () => {
    const { startCay: start } = await import('../lib/cay.mjs');
    // startCay() makes a key for require_key; a listener beyond loopback needs one as well.
    const cay = await start({ listen: ['0.0.0.0:0'] });
    await cay.stop();
  }, /listening beyond this machine needs keys, but there is no key yet.*cay key create/s);
  await assert.rejects(async () => {
    const cay = await startCay({ listen: ['[::]:0'] });
    await cay.stop();
  }, /listening beyond this machine needs keys/);
});

test('beyond loopback everybody needs a key, also from here', async (t) => {
  const cay = await withCay(t, { listen: ['0.0.0.0:0'], key: true });
  assert.equal((await request(cay, '/v1/runs')).status, 401);
  assert.equal((await request(cay, '/v1/runs', { headers: bearer(cay.key) })).status, 200);
  assert.equal((await request(cay, '/health')).status, 200);
});

test('scopes', async (t) => {
  const cay = await withCay(t, { config: { require_key: true } });
  const read = await createKey(cay.dataDir, { name: 'reader', scope: 'read' });
  const admin = await createKey(cay.dataDir, { name: 'boss', scope: 'admin' });
  // A key that is made while the server runs is valid at once.
  assert.equal((await request(cay, '/v1/runs', { headers: bearer(read.text) })).status, 200);
  const seen = (await request(cay, '/v1/status', { headers: bearer(admin.text) })).json();
  assert.equal(seen.data_dir, cay.dataDir);
});

test('a revoked key is refused at once, and its sessions with it', async (t) => {
  const cay = await withCay(t, { config: { require_key: true } });
  const session = await request(cay, '/v1/session', { method: 'POST', headers: bearer(cay.key) });
  const cookie = session.headers['set-cookie'][0].split(';')[0];
  assert.equal((await request(cay, '/v1/runs', { headers: { cookie } })).status, 200);
  const done = await runCay(['key', 'revoke', cay.keyId, '--data-dir', cay.dataDir]);
  assert.equal(done.code, 0, done.stderr);
  assert.equal((await request(cay, '/v1/runs', { headers: bearer(cay.key) })).status, 401);
  assert.equal((await request(cay, '/v1/runs', { headers: { cookie } })).status, 401);
});

test('a session is a cookie that scripts cannot read', async (t) => {
  const cay = await withCay(t, { config: { require_key: true } });
  const answer = await request(cay, '/v1/session', { method: 'POST', headers: bearer(cay.key) });
  assert.equal(answer.status, 204);
  const [set] = answer.headers['set-cookie'];
  assert.match(set, /^cay_session=[0-9a-f]{48}; Path=\/; HttpOnly; SameSite=Strict; Max-Age=\d+$/);
  const cookie = set.split(';')[0];
  const get = async (value) => (await request(cay, '/v1/runs', { headers: { cookie: value } })).status;
  assert.equal(await get(cookie), 200);
  assert.equal(await get(`other=1; ${cookie}; more=2`), 200);
  for (const wrong of [`${cookie}0`, cookie.slice(0, -1), 'cay_session=', `x${cookie}`, cookie.replace(/.$/, (c) => (c === '0' ? '1' : '0')), 'cay_session=' + '0'.repeat(48)])
    assert.equal(await get(wrong), 401, wrong);
  const end = await request(cay, '/v1/session', { method: 'DELETE', headers: { cookie } });
  assert.equal(end.status, 204);
  assert.match(end.headers['set-cookie'][0], /Max-Age=0/);
  assert.equal(await get(cookie), 401);
  // It is of no use from elsewhere.
  assert.equal((await request(cay, '/v1/session', { method: 'POST', headers: { cookie, origin: 'http://evil.example' } })).status, 403);
});

test('a rate limit answers 429 with the time to wait, per key', async (t) => {
  const cay = await withCay(t, { config: { require_key: true } });
  const limited = await createKey(cay.dataDir, { name: 'limited', rate: 60 });
  const codes = [];
  let answer;
  // One comes back each second, which a busy machine may take.
  for (let i = 0; i < 1000 && answer?.status !== 429; i++) {
    answer = await request(cay, '/v1/runs', { headers: bearer(limited.text) });
    codes.push(answer.status);
  }
  assert.ok(codes.length > 60 && codes.slice(0, 60).every((c) => c === 200), codes.join());
  assert.equal(answer.status, 429);
  assert.match(answer.headers['retry-after'], /^[1-9]\d*$/);
  assert.equal(answer.json().error.code, 'rate_limited');
  await sleep(Number(answer.headers['retry-after']) * 1000 + 50);
  assert.equal((await request(cay, '/v1/runs', { headers: bearer(limited.text) })).status, 200);
  assert.equal((await request(cay, '/v1/runs', { headers: bearer(cay.key) })).status, 200); // others have their own
  assert.equal((await request(cay, '/health')).status, 200);
});

test('secrets reach neither logs nor answers', async (t) => {
  const secret = 'sk-test-0123456789abcdef';
  const cay = await withCay(t, {
    config: { require_key: true, log_level: 'debug' },
    env: { OPENAI_API_KEY: secret },
    dotenv: `ANTHROPIC_API_KEY=${secret}2\n`,
  });
  const texts = [];
  for (const path of ['/v1/status', '/metrics', '/v1/runs', '/', '/v1/runs/run_x']) {
    texts.push((await request(cay, path, { headers: bearer(cay.key) })).body);
    texts.push((await request(cay, path, { headers: bearer(`${cay.key}x`) })).body);
  }
  const session = await request(cay, '/v1/session', { method: 'POST', headers: bearer(cay.key) });
  const cookie = session.headers['set-cookie'][0].split(';')[0].split('=')[1];
  await request(cay, '/v1/runs', { headers: { cookie: `cay_session=${cookie}` } });
  await until(() => /http.request/.test(cay.stderr()));
  const all = texts.join('') + cay.stdout() + cay.stderr();
  assert.match(cay.stdout(), /model {6}\S+ \(anthropic\)/);
  for (const hidden of [secret, cay.key, cay.key.split('_').at(-1), cookie]) assert.ok(!all.includes(hidden), hidden);
});

test('a key that makes many sessions logs out itself, and nobody else', async (t) => {
  const cay = await withCay(t, { config: { require_key: true } });
  const other = await createKey(cay.dataDir, { name: 'other', scope: 'read' });
  const enter = async (key) => {
    const made = await request(cay, '/v1/session', { method: 'POST', headers: bearer(key) });
    assert.equal(made.status, 204);
    return made.headers['set-cookie'][0].split(';')[0];
  };
  const valid = async (cookie) => (await request(cay, '/v1/runs', { headers: { Cookie: cookie } })).status === 200;
  const mine = await enter(cay.key);
  const cookies = [];
  for (let i = 0; i < 1100; i++) cookies.push(await enter(other.text));
  assert.ok(await valid(mine), 'another key logged it out');
  assert.ok(await valid(cookies.at(-1)) && await valid(cookies.at(-32)));
  assert.ok(!(await valid(cookies[0])) && !(await valid(cookies.at(-33))));
  // What was ended is free again.
  assert.equal((await request(cay, '/v1/session', { method: 'DELETE', headers: { Cookie: cookies.at(-1) } })).status, 204);
  await enter(other.text);
  assert.ok(await valid(cookies.at(-32)));
});
