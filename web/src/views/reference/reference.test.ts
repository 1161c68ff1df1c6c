import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { curl } from '../../curl.ts';
import { callOf, isSocket, keyOf } from './call.ts';
import { exampleOf, readSpec, resolve, search, typeWords } from './spec.ts';

const spec = readSpec(JSON.parse(readFileSync('../src/front/api/openapi.json', 'utf8')));
const op = (id: string) => spec.operations.find((it) => it.id === id)!;
const empty = { values: {}, body: '', file: null, stream: false };

test('every operation of the description is there, by a name of its own and under a tag', () => {
  expect(spec.operations.length).toBeGreaterThan(50);
  expect(new Set(spec.operations.map(({ id }) => id)).size).toBe(spec.operations.length);
  const tags = spec.tags.map(({ name }) => name);
  for (const { tag, id } of spec.operations) expect(tags, id).toContain(tag);
});

test('every parameter of an address can be filled in, those it shares too', () => {
  for (const { path, parameters, id } of spec.operations)
    for (const [, name] of path.matchAll(/\{(\w+)\}/g))
      expect(
        parameters.some((it) => it.in === 'path' && it.name === name),
        id,
      ).toBe(true);
});

test('what a form says is a call, whatever is in it', () => {
  const hostile = "../../'; rm -rf ~ #\n";
  const values = { [keyOf({ in: 'path', name: 'id' })]: hostile };
  const call = callOf(op('revokeKey'), { ...empty, values });
  expect(call).toEqual({ method: 'DELETE', path: `/v1/keys/${encodeURIComponent(hostile)}` });
  expect(curl(call as Exclude<typeof call, string>, 'http://h', false)).not.toContain('\n#');
  expect(callOf(op('revokeKey'), empty)).toMatch(/“id” is needed/);
});

test('a body is JSON, a file, or said to be missing', () => {
  expect(callOf(op('createKey'), empty)).toMatch(/body is needed/);
  expect(callOf(op('createKey'), { ...empty, body: '{' })).toMatch(/not JSON/);
  expect(callOf(op('createKey'), { ...empty, body: '{"name":"n"}' })).toMatchObject({
    path: '/v1/keys',
    body: { name: 'n' },
  });
  const values = { 'path id': 'x', 'query path': '/work/a' };
  expect(callOf(op('writeFile'), { ...empty, values, file: { name: 'a.bin' } })).toMatchObject({
    path: '/v1/sandboxes/x/files?path=%2Fwork%2Fa',
    from: 'a.bin',
  });
});

test('a body to begin with has what is required', () => {
  for (const { body, id } of spec.operations) {
    if (!body) continue;
    const example = exampleOf(spec, body.schema);
    for (const key of resolve(spec, body.schema).required ?? [])
      expect(example, id).toHaveProperty(key);
  }
});

test('types are told in words, however deep they are', () => {
  expect(typeWords(spec, { type: ['string', 'null'] })).toBe('string or null');
  expect(typeWords(spec, { type: 'array', items: { $ref: '#/components/schemas/Run' } })).toBe(
    'list of Run',
  );
  const round = { ...spec, schemas: { A: { allOf: [{ $ref: '#/components/schemas/A' }] } } };
  expect(resolve(round, { $ref: '#/components/schemas/A' })).toBeDefined();
  expect(exampleOf(round, { $ref: '#/components/schemas/A' })).toBeDefined();
});

test('a search finds by address and by words; sockets are told apart', () => {
  expect(search(spec.operations, 'post keys make').map(({ id }) => id)).toEqual(['createKey']);
  expect(search(spec.operations, 'post keys').map(({ id }) => id)).toEqual(['createKey', 'rotateKey']);
  expect(search(spec.operations, '')).toHaveLength(spec.operations.length);
  expect(isSocket(op('attachExecTty'))).toBe(true);
});
