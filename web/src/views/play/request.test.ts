import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { bodyOf, curlOf, playgroundOf, readForm, readShared, type Form } from './request.ts';

const form: Form = { code: 'x', language: 'js', env: '', wallMs: '', memoryMib: '' };

test('what is left empty is left to the server', () => {
  expect(bodyOf(form)).toEqual({ code: 'x', language: 'js' });
  expect(bodyOf({ ...form, env: '{"a":1}', wallMs: ' 1000', memoryMib: '64' })).toEqual({
    code: 'x',
    language: 'js',
    env: { a: 1 },
    limits: { wall_ms: 1000, memory_bytes: 67108864 },
  });
});

test('what is wrong is said', () => {
  expect(bodyOf({ ...form, env: '{' })).toMatch(/not JSON/);
  for (const env of ['[]', '1', 'null', '"x"']) expect(bodyOf({ ...form, env })).toMatch(/object/);
  for (const wallMs of ['-1', '0', '1.5', 'x', '1e3'])
    expect(bodyOf({ ...form, wallMs })).toMatch(/milliseconds/);
  expect(bodyOf({ ...form, memoryMib: 'much' })).toMatch(/MiB/);
});

test('a shell reads the command as it was meant, whatever the program says', () => {
  const code = `'"; $(touch x) \`id\` \\ !! \n'''`;
  const body = bodyOf({ ...form, code });
  if (typeof body === 'string') throw new Error(body);
  const command = curlOf(body, 'http://127.0.0.1:1', true);
  expect(command).toContain('$CAY_API_KEY');
  const words = execFileSync('sh', ['-c', command.replace('curl', "printf '%s\\n'")], {
    env: { CAY_API_KEY: 'secret' },
    encoding: 'utf8',
  }).split('\n');
  expect(words).toContain('Authorization: Bearer secret');
  expect(JSON.parse(words[words.indexOf('-d') + 1] ?? '')).toEqual(body);
});

test('a program of an agent gets databases of its own for the names it uses', () => {
  const hash = playgroundOf('env.db.query("x"); env.db .execute("y"); env.notes.put(1)').slice(5);
  expect(JSON.parse(readForm(readShared(hash), {} as never).env)).toEqual({
    db: { $facet: 'playground-db' },
    notes: { $facet: 'playground-notes' },
  });
});
