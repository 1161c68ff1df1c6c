// Every field of every JSON body that openapi.json names, wrong in every way: each is refused with an error that has the
// shape of one, none is a fault of the server, and none takes long. The table is the document: a new field is tried
// without a word here.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { request, root, slow, startCay } from '../lib/cay.mjs';

const api = JSON.parse(readFileSync(join(root, 'src/front/api/openapi.json'), 'utf8'));
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
const samples = { string: 'x', number: 1.5, integer: 7, boolean: true, array: [], object: {} };
/* A whole number is a number too. */
const isOf = (types, kind) => types.size === 0 || types.has(kind) || (kind === 'integer' && types.has('number'));

/** [what is wrong, the value, whether it must be refused] of a field. */
function* wrong(schema) {
  const types = typesOf(schema);
  for (const [kind, value] of Object.entries(samples)) if (!isOf(types, kind)) yield [`${kind} instead of ${[...types]}`, value, true];
  yield ['null', null, false];
  for (const s of branches(schema)) {
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
    fill.exec = (await post(`/v1/sandboxes/${fill.id}/exec`, { command: 'sleep 600', background: true, tty: true })).id;
  });
  after(() => cay.stop());

  /** The least that each takes, so that a mistake is met where it is. */
  const bases = {
    'post /v1/code': { command: 'true' },
    'post /execute/sdk': { prompt: 'hello' },
    'post /execute': { task: 'hello' },
    'post /v1/run': { code: 'export default () => 1' },
    'put /v1/workers/{id}': { code: 'export default { fetch() { return new Response("x"); } }' },
    'post /v1/agents/{agent}/{name}/messages': { text: 'hello' },
    'post /v1/agents/{agent}/{name}/rename': { title: 'x' },
    'post /v1/sandboxes': { timeout_s: 5 },
    'post /v1/sandboxes/{id}/extend': { timeout_s: 60 },
    'put /v1/sandboxes/{id}/network': {},
    'post /v1/sandboxes/{id}/exec': { command: 'true' },
    'post /v1/sandboxes/{id}/execs/{exec}/signal': { signal: 'CONT' },
    'post /v1/sandboxes/{id}/execs/{exec}/resize': { cols: 80, rows: 24 },
    'post /v1/sandboxes/{id}/files/mkdir': { path: '/work/d' },
    'post /v1/sandboxes/{id}/files/move': { from: '/work/a', to: '/work/b' },
    'post /v1/sandboxes/{id}/snapshots': {},
    'post /v1/keys': { name: 'x' },
    'post /v1/tasks': { type: 'run', input: { code: 'export default () => 1' } },
  };
  const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, o]) => o.requestBody?.content?.['application/json'])
      .map(([method, o]) => ({ name: `${method} ${path}`, method: method.toUpperCase(), path, schema: o.requestBody.content['application/json'].schema, required: o.requestBody.required })),
  );

  const send = async ({ method, path }, body) => {
    const parts = { agent: 'notebook', name: 'bad', ...fill, ...(path.startsWith('/v1/workers') ? { id: 'bad' } : {}) };
    const url = path.replace(/\{(\w+)\}/g, (_, name) => parts[name] ?? 'x');
    let timer;
    const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error('no answer')), TIMEOUT)));
    const res = await Promise.race([request(cay, url, { method, headers: { 'Content-Type': 'application/json' }, body }), late]).finally(() => clearTimeout(timer));
    return res;
  };

  /** What is the matter with an answer to a bad body, or null. */
  function complaint(res, mustFail) {
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
    assert.ok(operations.length >= 15);
  });

  for (const op of operations)
    test(op.name, async () => {
      const bad = [];
      let tried = 0;
      const attempt = async (what, body, mustFail) => {
        tried++;
        const res = await send(op, typeof body === 'string' ? body : JSON.stringify(body)).catch((e) => e);
        const why = res instanceof Error ? res.message : complaint(res, mustFail);
        if (why) bad.push(`${what}: ${why} ${res.body?.slice(0, 200) ?? ''}`);
      };
      const base = bases[op.name];
      const jobs = [];
      for (const [path, schema] of places(op.schema))
        for (const [what, value, mustFail] of wrong(schema)) jobs.push([`${path.join('.')} is ${what}`, put(base, path, value), mustFail]);
      const whole = ['', '{', '[]', '"x"', '5', 'null', '{"a":1,"a":2}', '{"a":\u0001}', `${'['.repeat(1000)}${']'.repeat(1000)}`, `{"a":`.repeat(1000) + '1' + '}'.repeat(1000), '\ufeff{}', '{"a":"\ud800"}'];
      for (const text of whole) jobs.push([`the body is ${JSON.stringify(text).slice(0, 30)}`, text, text !== '' || op.required === true]);
      const many = 4;
      await Promise.all(Array.from({ length: many }, async () => {
        for (let job; (job = jobs.pop()); ) await attempt(...job);
      }));
      assert.ok(tried > 12);
      assert.deepEqual(bad, []);
    });

  test('afterwards it works as before', async () => {
    assert.equal((await request(cay, '/v1/run', { method: 'POST', body: '{"code":"export default () => 6 * 7"}' })).json().result, 42);
    assert.ok(cay.isRunning());
  });
});
