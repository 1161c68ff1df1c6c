// Every field of every JSON body, every part of a path and every parameter that openapi.json names, wrong in every way: each
// is refused with an error that has the shape of one, none is a fault of the server, and none takes long. The table is the
// document: a new field is tried without a word here. The wire of @vercel/sandbox, which is not in it, is taken from the
// tables that read it (JSON_SHAPE), which test_shapes prints. What was accepted can be listed afterwards.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { buildDir, request, root, slow, startCay, until } from '../lib/cay.mjs';

const api = JSON.parse(readFileSync(join(root, 'src/front/api/openapi.json'), 'utf8'));
/** What each table reads: by the name of a schema of the document, or by a method and path of the other wire. */
const shapes = JSON.parse(execFileSync(join(buildDir, 'tests/test_shapes'), ['--print'], { encoding: 'utf8' }));
const TIMEOUT = 20_000 * slow;

/** The schema itself, whatever it refers to. */
function resolve(schema) {
  let s = schema;
  while (s?.$ref) s = s.$ref.slice(2).split('/').reduce((at, name) => at[name], api);
  if (s?.allOf) s = s.allOf.map(resolve).reduce((a, b) => ({ ...a, ...b, properties: { ...a.properties, ...b.properties } }), {});
  return s ?? {};
}

const branches = (schema) => ((s) => s.oneOf ?? s.anyOf ?? [s])(resolve(schema)).map(resolve);
const typesOf = (schema) => new Set(branches(schema).flatMap((s) => [s.type ?? (s.properties ? 'object' : s.enum ? s.enum.map((v) => typeof v) : [])].flat()));

/** Values that JSON.stringify() cannot write: bytes that are no UTF-8, and a number beyond 64 bits. */
const RAW = { '@invalid@': Buffer.from('"a\xff\xc3("', 'latin1'), '@2^63@': Buffer.from('9223372036854775808') };
const HOSTILE = ['', '\u202egnp.exe', 'a\u0000b', 'x'.repeat(65_536), '../../etc/passwd', '-1', '9223372036854775808', '\ufffd\u0007\u001b[2J'];

/** A key that nobody knows, which the wire of @vercel/sandbox leaves alone. */
const STRANGE = '{"a":"\ud800"}';

/** JSON with those in their places. */
function bytesOf(body) {
  let parts = [Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))];
  for (const [name, bytes] of Object.entries(RAW))
    parts = parts.flatMap((part) => {
      const at = part.indexOf(`"${name}"`);
      return at < 0 ? [part] : [part.subarray(0, at), bytes, part.subarray(at + name.length + 2)];
    });
  return Buffer.concat(parts);
}

const samples = { string: 'x', number: 1.5, integer: 7, boolean: true, array: [], object: {} };
/* A whole number is a number too. */
const isOf = (types, kind) => types.size === 0 || types.has(kind) || (kind === 'integer' && types.has('number'));

/** [what is wrong, the value, whether it must be refused] of a field. */
function* wrong(schema) {
  const types = typesOf(schema);
  for (const [kind, value] of Object.entries(samples)) if (!isOf(types, kind)) yield [`${kind} instead of ${[...types]}`, value, true];
  yield ['null', null, false];
  yield ['not UTF-8', '@invalid@', true];
  yield ['2^63', '@2^63@', !types.has('number') && types.size > 0];
  yield ['-1', -1, false];
  yield ['an empty list', [], false];
  yield ['turned around', '\u202egnp.exe', false];
  for (const s of branches(schema).flatMap((b) => (Array.isArray(b.type) ? b.type.map((type) => ({ ...b, type })) : [b]))) {
    if (s.enum) yield ['no such word', 'no-such-word', true];
    if (s.const !== undefined) yield ['another constant', 'no-such-word', true];
    if (s.type === 'string') {
      yield ['empty', '', s.minLength > 0];
      yield ['with NUL', 'a\u0000b', false];
      yield ['long', 'x'.repeat(300_000), s.maxLength < 300_000];
      if (s.maxLength) yield ['too long', 'x'.repeat(s.maxLength + 1), true];
    }
    if (s.type === 'integer' || s.type === 'number') {
      yield ['negative', -1, s.minimum >= 0];
      yield ['huge', 2 ** 53, s.maximum < 2 ** 53];
      yield ['beyond 64 bits', 1e30, true];
      if (s.minimum !== undefined) yield ['below its least', s.minimum - 1, true];
      if (s.maximum !== undefined) yield ['above its most', s.maximum + 1, true];
      if (s.type === 'integer') yield ['a fraction', 1.5, true];
    }
    if (s.type === 'array') {
      yield ['a list of what it has none of', [{ 'no-such': 1 }, 5, null], false];
      yield ['very many', Array(5000).fill('x'), false];
    }
    if (s.type === 'object' || s.properties) yield ['an object of what it has none of', { 'no-such-key': 1 }, s.additionalProperties === false];
  }
}

/** All places of a body: [path, schema]. */
function* places(schema, path = []) {
  for (const s of branches(schema)) {
    for (const [name, field] of Object.entries(s.properties ?? {})) {
      yield [[...path, name], field];
      if (path.length < 3) yield* places(field, [...path, name]);
    }
    if (s.items && path.length > 0 && path.length < 4) {
      yield [[...path, 0], s.items];
      yield* places(s.items, [...path, 0]);
    }
    // A map: the values under a name of the caller's.
    if (s.additionalProperties && path.length > 0 && path.length < 4) {
      const value = s.additionalProperties === true ? {} : s.additionalProperties;
      yield [[...path, 'A_NAME'], value];
      yield* places(value, [...path, 'A_NAME']);
    }
  }
}

/** All maps of a body, whose names are the caller's: [path, a right value]. */
function* maps(schema, path = []) {
  for (const s of branches(schema)) {
    for (const [name, field] of Object.entries(s.properties ?? {})) if (path.length < 4) yield* maps(field, [...path, name]);
    if (s.items && path.length > 0 && path.length < 4) yield* maps(s.items, [...path, 0]);
    if (!s.additionalProperties || path.length === 0) continue;
    const [kind = 'string'] = typesOf(s.additionalProperties === true ? {} : s.additionalProperties);
    yield [path, samples[kind] ?? null];
  }
}

/** The body with a value at a place; what lies on the way is made. */
function put(body, path, value) {
  const copy = structuredClone(body);
  let at = copy;
  for (const [i, key] of path.slice(0, -1).entries()) {
    if (at[key] === null || typeof at[key] !== 'object') at[key] = typeof path[i + 1] === 'number' ? [] : {};
    at = at[key];
  }
  at[path.at(-1)] = value;
  return copy;
}

describe('bad input', () => {
  let cay;
  const fill = {};
  before(async () => {
    cay = await startCay({ args: ['--log-level', 'error'], config: { sandboxes: { max: 8, pool: 0 }, tasks: { waiting_per_key: 100_000, slots: 0 } } });
    const post = async (path, body) => (await request(cay, path, { method: 'POST', body: JSON.stringify(body) })).json();
    fill.id = (await post('/v1/sandboxes', { timeout_s: 600 })).id;
    fill.session = (await post('/api/v2/sandboxes', { name: 'first', timeout: 600_000 })).session?.id;
    assert.ok(fill.session, 'a session of the other wire');
    fill.exec = (await post(`/v1/sandboxes/${fill.id}/exec`, { command: 'sleep 600', background: true, tty: true })).id;
    const code = await post('/v1/code', { command: 'echo hello > made' });
    real.runs = { id: code.id, name: (await request(cay, `/v1/runs/${code.id}/artifacts`)).json().artifacts[0]?.name };
    real.snapshots = { id: (await post(`/v1/sandboxes/${fill.id}/snapshots`, {})).id };
    real.tasks = { id: (await post('/v1/tasks', bases['post /v1/tasks'])).id };
    real.keys = { id: (await post('/v1/keys', { name: 'real' })).id };
    real.projects = { id: (await post('/v1/projects', { name: 'real' })).id };
    const made = await request(cay, '/v1/workers/real', { method: 'PUT', body: JSON.stringify(bases['put /v1/workers/{id}']) });
    assert.equal(made.status, 200, made.body);
    real.workers = { id: 'real' };
    assert.equal((await request(cay, '/v1/facets/real', { method: 'PUT' })).status, 201);
    real.facets = { name: 'real' };
    const agent = (await request(cay, '/v1/agents')).json().agents[0].type;
    const said = await request(cay, `/v1/agents/${agent}/bad/messages`, { method: 'POST', body: '{"text":"hello"}', headers: { accept: 'application/json' } });
    assert.equal(said.status, 200, said.body);
    real.agents = { agent, name: 'bad', chat: 'bad' };
    const run = await post(`/api/v2/sandboxes/sessions/${fill.session}/cmd`, { command: 'true' });
    real['/api/v2/sandboxes/sessions'] = { id: fill.session, cmd: run.command.id };
    assert.ok((await post('/api/v2/sandboxes', { name: 'changed', timeout: 600_000, persistent: false })).session);
    real['/api/v2/sandboxes'] = { name: 'changed' };
  });

  /** What is there of each kind, by the first word of a path. */
  const real = {};
  const wordOf = (path) => Object.keys(real).find((word) => word.startsWith('/api/') && path.startsWith(`${word}/`)) ?? path.replace('/v1', '').split('/')[1];
  const partsOf = (path) => ({ turn: 'x', port: '3000', ...fill, ...real[wordOf(path)] });
  const fillIn = (path) => path.replace(/\{(\w+)\}/g, (_, name) => partsOf(path)[name]);
  after(() => cay.stop());

  /** The least that each takes, so that a mistake is met where it is. */
  const bases = {
    'post /v1/code': { command: 'true' },
    'post /execute/sdk': { prompt: 'hello' },
    'post /execute': { task: 'hello' },
    'post /v1/run': { code: 'export default () => 1' },
    'put /v1/workers/{id}': { code: 'export default { fetch() { return new Response("x"); } }' },
    'post /v1/agents/{agent}/{name}/messages': { text: 'hello' },
    'post /v1/agents/{agent}/{name}/rename': { name: 'other' },
    'post /v1/sandboxes': { timeout_s: 5 },
    'post /v1/sandboxes/{id}/extend': { timeout_s: 60 },
    'put /v1/sandboxes/{id}/network': {},
    'post /v1/sandboxes/{id}/exec': { command: 'true' },
    'post /v1/sandboxes/{id}/execs/{exec}/signal': { signal: 'CONT' },
    'post /v1/sandboxes/{id}/execs/{exec}/resize': { cols: 80, rows: 24 },
    'post /v1/sandboxes/{id}/files/mkdir': { path: '/work/d' },
    'post /v1/sandboxes/{id}/files/move': { from: '/work/a', to: '/work/b' },
    'post /v1/sandboxes/{id}/snapshots': {},
    'put /v1/facets/{name}': {},
    'post /v1/facets/{name}/query': { sql: 'SELECT 1' },
    'post /v1/facets/{name}/copy': { to: 'copy' },
    'post /v1/keys': { name: 'x' },
    'patch /v1/keys/{id}': {},
    'post /v1/keys/{id}/rotate': {},
    'post /v1/projects': { name: 'x' },
    'patch /v1/projects/{id}': {},
    'post /v1/tasks': { type: 'run', input: { code: 'export default () => 1' } },
    'POST /api/v2/sandboxes': { timeout: 5000, persistent: false },
    'POST /api/v2/sandboxes/{name}/fork': { timeout: 5000, persistent: false },
    'PATCH /api/v2/sandboxes/{name}': {},
    'POST /api/v2/sandboxes/sessions/{id}/cmd': { command: 'true' },
    'POST /api/v2/sandboxes/sessions/{id}/cmd/{cmd}/kill': {},
    'POST /api/v2/sandboxes/sessions/{id}/network-policy': { mode: 'deny-all' },
    'POST /api/v2/sandboxes/sessions/{id}/extend-timeout': { duration: 1000 },
    'POST /api/v2/sandboxes/sessions/{id}/fs/mkdir': { path: 'd', cwd: '/work' },
    'POST /api/v2/sandboxes/sessions/{id}/fs/read': { path: 'f', cwd: '/work' },
    'POST /api/v2/sandboxes/sessions/{id}/snapshot': { expiration: 1000 },
  };
  /** Where one field makes the others unread: what it takes instead of the base, by the first word of the place. */
  const said = { id: 'm1', role: 'user', parts: [{ type: 'text', text: 'hello' }] };
  const others = {
    'post /v1/agents/{agent}/{name}/messages': { message: { message: said }, messages: { messages: [said] } },
    'post /v1/facets/{name}/query': { batch: { batch: [{ sql: 'SELECT 1' }] } },
    'put /v1/facets/{name}': { migrations: { migrations: [{ number: 1, sql: 'SELECT 1' }] } },
  };
  const described = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, o]) => o.requestBody?.content?.['application/json'])
      .map(([method, o]) => ({ name: `${method} ${path}`, method: method.toUpperCase(), path, schema: o.requestBody.content['application/json'].schema, required: o.requestBody.required })),
  );
  /** What is in the lists and maps of the other wire, which the tables leave to functions. */
  const inside = {
    env: { additionalProperties: { type: 'string' } },
    tags: { additionalProperties: { type: 'string' } },
    ports: { items: { type: 'integer', minimum: 1, maximum: 65535 } },
    args: { items: { type: 'string' } },
    deny: { items: { type: 'string' } },
  };
  const withInside = (schema) => ({
    ...schema,
    properties: Object.fromEntries(Object.entries(schema.properties).map(([key, field]) => [key, field.properties ? withInside(field) : { ...field, ...inside[key] }])),
  });
  const RENAME = 'post /v1/agents/{agent}/{name}/rename';
  const SNAPSHOT = 'POST /api/v2/sandboxes/sessions/{id}/snapshot';
  const spoils = ['PATCH /api/v2/sandboxes/{name}', SNAPSHOT]; // what others need: they come last
  const vercel = Object.keys(shapes)
    .filter((name) => name.includes(' '))
    .sort((a, b) => spoils.indexOf(a) - spoils.indexOf(b))
    .map((name) => ({ name, method: name.split(' ')[0], path: name.split(' ')[1], schema: withInside(shapes[name]) }));
  const operations = [...described, ...vercel];

  const send = async ({ method, path }, body) => {
    const url = fillIn(path);
    let timer;
    const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error('no answer')), TIMEOUT)));
    const res = await Promise.race([request(cay, url, { method, headers: { 'Content-Type': 'application/json' }, body: bytesOf(body) }), late]).finally(() => clearTimeout(timer));
    return res;
  };

  const session = async () => (await request(cay, '/api/v2/sandboxes', { method: 'POST', body: '{"timeout":600000,"persistent":false}' })).json().session?.id;
  /** What was taken is undone: a sandbox that was made ends, for a session that ended there is another, and names come back. */
  const undo = async (op, res, body) => {
    const { agent, name } = real.agents;
    if (op.name === RENAME) await request(cay, `/v1/agents/${agent}/${encodeURIComponent(body.name)}/rename`, { method: 'POST', body: JSON.stringify({ name }) });
    else if (op.name === SNAPSHOT) real['/api/v2/sandboxes/sessions'].id = await until(session, 'room for a session');
    else if (/^\/api.*\/(sandboxes|fork)$/.test(op.path)) await request(cay, `/api/v2/sandboxes/${encodeURIComponent(res.json().sandbox.name)}`, { method: 'DELETE' });
  };

  /** What is the matter with an answer to a bad body, or null. */
  function complaint(res, mustFail) {
    if (mustFail && [410, 429, 503].includes(res.status)) return `refused for another reason: ${res.status}`;
    if (res.status >= 500 && ![501, 503, 507].includes(res.status)) return `status ${res.status}`;
    if (res.status < 400) return mustFail ? `taken: ${res.status}` : null;
    let json;
    try {
      json = res.json();
    } catch {
      return 'no JSON';
    }
    const error = json.error;
    if (json.success === false) return typeof error === 'string' || typeof error?.message === 'string' ? null : 'no error';
    return typeof error?.code === 'string' && typeof error.message === 'string' && error.message.length > 0 && error.message.length < 2000 ? null : 'no shape of an error';
  }

  test('every operation with a JSON body has a right one here', () => {
    assert.deepEqual(operations.map((o) => o.name).filter((name) => !(name in bases)), []);
    assert.ok(operations.length >= 15 && vercel.length >= 10);
  });

  test('every field that a table reads is tried', () => {
    const tried = new Set(operations.flatMap((op) => [...places(op.schema)].map(([, schema]) => schema)));
    const missed = [];
    const look = (name, shape, schema) => {
      for (const [key, field] of Object.entries(shape.properties)) {
        const told = resolve(schema).properties[key];
        if (!tried.has(told)) missed.push(`${name}.${key}`);
        if (field.properties) look(`${name}.${key}`, field, told);
      }
    };
    for (const [name, shape] of Object.entries(shapes)) if (!name.includes(' ')) look(name, shape, api.components.schemas[name]);
    assert.deepEqual(missed, []);
  });

  for (const op of operations)
    test(op.name, async () => {
      const bad = [];
      let tried = 0;
      const attempt = async (what, body, mustFail) => {
        tried++;
        const res = await send(op, body).catch((e) => e);
        if (res.status === 200) await undo(op, res, body);
        const why = res instanceof Error ? res.message : complaint(res, mustFail);
        if (why) bad.push(`${what}: ${why} ${res.body?.slice(0, 200) ?? ''}`);
      };
      const base = bases[op.name];
      const baseFor = (path) => others[op.name]?.[path[0]] ?? base;
      const jobs = [];
      for (const [path, schema] of places(op.schema))
        for (const [what, value, mustFail] of wrong(schema)) jobs.push([`${path.join('.')} is ${what}`, put(baseFor(path), path, value), mustFail]);
      for (const [path, value] of maps(op.schema))
        for (const name of [...HOSTILE, '@invalid@', '__proto__']) jobs.push([`a name in ${path.join('.')} is ${JSON.stringify(name).slice(0, 30)}`, put(baseFor(path), [...path, name], value), name === '@invalid@']);
      const whole = ['', '{', '[]', '"x"', '5', 'null', '{"a":1,"a":2}', '{"a":\u0001}', `${'['.repeat(1000)}${']'.repeat(1000)}`, `{"a":`.repeat(1000) + '1' + '}'.repeat(1000), '\ufeff{}', STRANGE];
      for (const text of whole) jobs.push([`the body is ${JSON.stringify(text).slice(0, 30)}`, text, text === '' ? op.required === true : text !== STRANGE || !vercel.includes(op)]);
      const right = await send(op, base);
      assert.notEqual(right.status, 400, `the right body: ${right.body}`);
      if (right.status === 200) await undo(op, right, base);
      const many = [SNAPSHOT, RENAME].includes(op.name) ? 1 : 4;
      await Promise.all(Array.from({ length: many }, async () => {
        for (let job; (job = jobs.pop()); ) await attempt(...job);
      }));
      assert.ok(tried > 12);
      assert.deepEqual(bad, []);
    });

  /** A request whose answer has its head: what streams is not read to its end. */
  const head = (method, path) => new Promise((resolve, reject) => {
    const req = httpRequest({ host: '127.0.0.1', port: cay.port, method, path, agent: false, timeout: TIMEOUT }, (res) => {
      resolve(res.statusCode);
      res.destroy();
    });
    req.once('timeout', () => req.destroy(new Error('no answer')));
    req.once('error', reject);
    req.end();
  });

  const METHODS = ['get', 'put', 'post', 'delete', 'patch'];
  const methodsOf = (path) => Object.entries(api.paths[path]).filter(([method]) => METHODS.includes(method));
  const parameters = (path, op, where) => [...(api.paths[path].parameters ?? []), ...(op.parameters ?? [])].filter((p) => p.in === where);

  test('every path leads to something real', async () => {
    const none = [];
    for (const path of Object.keys(api.paths))
      for (const [method, op] of methodsOf(path)) {
        assert.deepEqual([...path.matchAll(/\{(\w+)\}/g)].map((m) => m[1]).sort(), parameters(path, op, 'path').map((p) => p.name).sort(), path);
        assert.doesNotMatch(fillIn(path), /undefined/, path);
        // Files are named by a query, which is not 404 when it is missing; a socket is there for those who ask for one.
        if (method === 'get' && path !== '/agents/{agent}/{name}' && (await head('GET', fillIn(path))) === 404) none.push(path);
      }
    assert.deepEqual(none, []);
  });

  /** One request as it is written, NULs and all: the status of the answer. */
  const raw = (method, path, headers, body) => new Promise((resolve, reject) => {
    const socket = connect(cay.port, '127.0.0.1');
    const lines = [`${method} ${path} HTTP/1.1`, 'Host: localhost', 'Connection: close', 'Content-Type: application/json', `Content-Length: ${Buffer.byteLength(body)}`, ...headers];
    let text = '';
    socket.setTimeout(TIMEOUT, () => socket.destroy(new Error('no answer')));
    socket.on('error', reject);
    socket.on('data', (piece) => {
      text += piece.toString('latin1');
      const found = /^HTTP\/1\.1 (\d+) /.exec(text);
      if (found) resolve(Number(found[1]));
      if (found) socket.destroy();
    });
    socket.on('close', () => reject(new Error(`closed without an answer: ${text}`)));
    socket.write(Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), Buffer.from(body)]));
  });

  test('every header that is read', async () => {
    // Those of the document, and the one that browsers send when they come back to a stream.
    const ways = [];
    for (const path of Object.keys(api.paths))
      for (const [method, op] of methodsOf(path)) {
        for (const { name } of parameters(path, op, 'header')) ways.push([name, method, path]);
        if (method === 'get' && path.endsWith('/events')) ways.push(['Last-Event-ID', method, path]);
      }
    assert.ok(ways.length >= 6 && ways.some(([name]) => name === 'Idempotency-Key'), JSON.stringify(ways));
    const hostile = [...HOSTILE.map((text) => Buffer.from(text).toString('latin1')), '\xff\xfe', '1.2.3.4', '0:0:0', '\t', 'a\rb', 'x'.repeat(200), 'x'.repeat(201)];
    const bad = [];
    for (const [name, method, path] of ways)
      for (const values of [...hostile.map((v) => [v]), ['a', 'b']]) {
        const body = method === 'get' ? '' : JSON.stringify(bases[`${method} ${path}`]);
        const accept = name === 'Last-Event-ID' ? ['Accept: text/event-stream'] : [];
        const status = await raw(method.toUpperCase(), fillIn(path), [...accept, ...values.map((v) => `${name}: ${v}`)], body).catch((error) => error.message);
        const isKey = values.length === 1 && /^[\x21-\x7e]{1,200}$/.test(values[0]);
        const must = name === 'Idempotency-Key' ? (isKey ? [202, 202] : [400, 431]) : [200, 499];
        if (!(status >= must[0] && status <= must[1])) bad.push(`${method} ${path} ${name}: ${JSON.stringify(values).slice(0, 60)}: ${status}`);
      }
    assert.deepEqual(bad, []);
  });

  /** Texts as a path or a query may carry them, also such as are no UTF-8. */
  const coded = [...HOSTILE.map(encodeURIComponent), '%ff%fe', '%', '%zz', '%2e%2e%2f'];

  test('every part of every path and every parameter', async () => {
    const jobs = [];
    for (const path of Object.keys(api.paths))
      for (const [method, op] of methodsOf(path)) {
        const filled = fillIn(path);
        for (const value of coded) {
          for (const { name } of parameters(path, op, 'path')) jobs.push([method, fillIn(path.replace(`{${name}}`, value))]);
          for (const { name } of parameters(path, op, 'query')) jobs.push([method, `${filled}?${name}=${value}`]);
        }
      }
    assert.ok(jobs.length > 500, `${jobs.length}`);
    const bad = [];
    await Promise.all(Array.from({ length: 4 }, async () => {
      for (let job; (job = jobs.pop()); ) {
        const status = await head(job[0].toUpperCase(), job[1]).catch((error) => error.message);
        if (!(status < 500 || [501, 503, 507].includes(status))) bad.push(`${job[0]} ${job[1].slice(0, 100)}: ${status}`);
      }
    }));
    assert.deepEqual(bad, []);
  });

  test('what was accepted can be listed', async () => {
    const lists = ['/v1/runs', '/v1/sandboxes', '/v1/snapshots', '/v1/tasks', '/v1/keys', '/v1/workers', '/v1/agents', '/v1/usage',
      '/api/v2/sandboxes?sortBy=name', '/api/v2/sandboxes?namePrefix=n', '/api/v2/sandboxes/sessions?name=first', '/api/v2/sandboxes/snapshots'];
    for (const path of lists) assert.equal((await request(cay, path)).status, 200, path);
  });

  test('afterwards it works as before', async () => {
    assert.equal((await request(cay, '/v1/run', { method: 'POST', body: '{"code":"export default () => 6 * 7"}' })).json().result, 42);
    assert.ok(cay.isRunning());
  });
});
