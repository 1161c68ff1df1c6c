import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { curl, quote, type Call } from './curl.ts';

/** The words as a shell sees them. */
const words = (call: Call, needsKey = false) =>
  execFileSync(
    'sh',
    ['-c', curl(call, 'http://127.0.0.1:1', needsKey).replace('curl', "printf '%s\\n'")],
    { env: { CAY_API_KEY: 'secret' }, encoding: 'utf8' },
  ).split('\n');

test('a word that needs no quotes has none, any other survives a shell', () => {
  expect(quote('http://a:1/b?c=d')).toBe("'http://a:1/b?c=d'");
  expect(quote('/work/a-b_c.txt')).toBe('/work/a-b_c.txt');
  for (const word of [`'`, `a'b"c`, '$(id)', '`id`', '', ' ', '\\', '!!', '*'])
    expect(execFileSync('sh', ['-c', `printf %s ${quote(word)}`], { encoding: 'utf8' })).toBe(word);
});

test('the method is said where curl would choose another', () => {
  expect(words({ path: '/a' })).not.toContain('-X');
  expect(words({ path: '/a', body: {} })).not.toContain('-X');
  expect(curl({ path: '/a', method: 'POST', body: {} }, 'http://h', false)).not.toContain('-X');
  expect(curl({ path: '/a', method: 'DELETE' }, 'http://h', false)).toContain('-X DELETE');
  expect(curl({ path: '/a', method: 'POST' }, 'http://h', false)).toContain('-X POST');
  expect(curl({ path: '/a', method: 'PUT', from: 'f' }, 'http://h', false)).not.toContain('-X');
});

test('the key is named, never shown, and only this server is told it', () => {
  expect(curl({ path: '/a' }, 'http://h', true)).toContain('$CAY_API_KEY');
  expect(words({ path: '/a' }, true)).toContain('Authorization: Bearer secret');
  const elsewhere = 'http://8000-x.localhost:1/';
  expect(words({ path: elsewhere }, true).join()).not.toContain('secret');
  expect(words({ path: elsewhere, keyed: true }, true).join()).toContain('secret');
});

test('a hostile name of a file stays a word', () => {
  const path = `/v1/x?${new URLSearchParams({ path: "/work/'; rm -rf ~ #" })}`;
  expect(words({ path, to: "'; rm -rf ~ #" })).toEqual([
    '-f',
    `http://127.0.0.1:1${path}`,
    '-o',
    "'; rm -rf ~ #",
    '',
  ]);
});

test('no control character gets onto a clipboard, and a shell still reads the word', () => {
  const name = "a\nrm -rf ~\r\x1b[200~b'c\\d\x7f\u009b31m\u202e0 é";
  const text = quote(name);
  expect(text).not.toMatch(/[\x00-\x1f\x7f-\x9f\u202a-\u202e]/);
  expect(execFileSync('bash', ['-c', `printf %s ${text}`], { encoding: 'utf8' })).toBe(name);
  const line = curl({ path: '/a', to: 'x\n\x1b]0;y' }, 'http://h', false);
  expect(line.replaceAll(' \\\n', '')).not.toMatch(/[\x00-\x1f]/);
  expect(line).toContain("-o 'x__]0;y'");
});
