import { expect, test } from 'vitest';
import { highlight, highlightLines, rulesFor } from './highlight.ts';

const cut = (code: string, language: string) => highlight(code, rulesFor(language)!);
/** Only what is coloured, with its colour. */
const seen = (code: string, language = 'js') =>
  cut(code, language)
    .filter(({ kind }) => kind !== '')
    .map(({ text, kind }) => `${kind.slice(4)}:${text}`);

test.each([
  ['const a = 1.5e3; // b', ['keyword:const', 'definition:a', 'number:1.5e3', 'comment:// b']],
  ['return /[/]"/g.test(`a\n${b}`)', ['keyword:return', 'string:/[/]"/g', 'string:`a\n${b}`']],
  ['a / b / c; x[1] / 2 / y', ['number:1', 'number:2']],
  [
    'const { Foo: a } = new Foo("x\\"y")',
    ['keyword:const', 'typeName:Foo', 'keyword:new', 'typeName:Foo', 'string:"x\\"y"'],
  ],
  ['/* half', ['comment:/* half']],
  ['let s = "half', ['keyword:let', 'definition:s', 'string:"half']],
  ['class Ärger extends B {}', ['keyword:class', 'definition:Ärger', 'keyword:extends']],
])('%s', (code, expected) => expect(seen(code)).toEqual(expected));

test('other languages have rules of their own', () => {
  expect(seen('def f(): # no\n  """x\ny"""', 'a/b.PY')).toEqual([
    'keyword:def',
    'definition:f',
    'comment:# no',
    'string:"""x\ny"""',
  ]);
  expect(seen("Select 'it''s' -- c", 'sql')).toEqual([
    'keyword:Select',
    "string:'it''s'",
    'comment:-- c',
  ]);
  expect(seen('{"a": [true, -1]}', 'json')).toEqual(['string:"a"', 'keyword:true', 'number:1']);
  for (const name of ['', 'txt', 'constructor', '__proto__', 'x.toString'])
    expect(rulesFor(name)).toBe(null);
});

test('no letter is lost or made up, whatever the text is', () => {
  const bits = [
    '"',
    "'",
    '`',
    '/',
    '*',
    '\\',
    '\n',
    '[',
    ']',
    '#',
    '<!--',
    '\ud800',
    '🙂',
    'a',
    '1',
    ' ',
    '--',
    '$',
  ];
  let seed = 7;
  const random = (n: number) => (seed = (seed * 48_271) % 2_147_483_647) % n;
  for (let round = 0; round < 300; round++) {
    const code = Array.from({ length: 60 }, () => bits[random(bits.length)]).join('');
    for (const language of [
      'js',
      'py',
      'c',
      'rs',
      'go',
      'sh',
      'sql',
      'json',
      'css',
      'html',
      'yaml',
    ]) {
      const pieces = cut(code, language);
      expect(pieces.map(({ text }) => text).join('')).toBe(code);
      const lines = highlightLines(code, rulesFor(language)!);
      expect(lines.map((line) => line.map(({ text }) => text).join('')).join('\n')).toBe(code);
    }
  }
});

test('a text made to be slow is not', { timeout: 20_000 }, () => {
  const lines = [
    '/[',
    '/',
    '/a',
    '"\\',
    "'",
    '`',
    '/*',
    '"""',
    '<!--',
    '1e',
    '_1',
    '\\',
    '[/',
    '  ',
  ];
  for (const bit of lines)
    for (const language of ['js', 'py', 'sql', 'html', 'sh']) {
      const began = performance.now();
      cut(bit.repeat(60_000 / bit.length), language);
      expect(performance.now() - began, `${bit} ${language}`).toBeLessThan(1_500);
    }
});
