import { expect, test } from 'vitest';
import { render } from '../../test/render.tsx';
import { plainText } from './ansi.ts';
import { Markdown, safeUrl } from './Markdown.tsx';
import { splitOutput } from './Output.tsx';
import { Tree } from './Tree.tsx';

test('escapes of terminals go, the text stays', () => {
  expect(plainText('\x1b[1;31mred\x1b[0m and \x1b[38;5;12mblue\x1b[m')).toBe('red and blue');
  expect(plainText('\x1b]8;;javascript:x\x07link\x1b]8;;\x1b\\ end')).toBe('link end');
  expect(plainText('\x1b]0;title without an end')).toBe('');
  expect(plainText('a\x00b\x07c\x7f\u0085d\x9b31me')).toBe('abcde');
  expect(plainText('one\r\ntwo\rthree\tfour\n')).toBe('one\ntwo\nthree\tfour\n');
  expect(plainText('abc\u202edef')).toBe('abc\ufffddef');
  expect(plainText('naïve 😀 漢字 العربية')).toBe('naïve 😀 漢字 العربية');
});

test('links lead to http, https and mail, and nowhere else', () => {
  for (const url of ['http://a.example/', 'https://a.example/x?y#z', 'mailto:a@b.example'])
    expect(safeUrl(url)).toBe(url);
  for (const url of [
    'javascript:alert(1)',
    'JavaScript:alert(1)',
    ' javascript:alert(1)',
    'java\nscript:alert(1)',
    'data:text/html,x',
    'vbscript:x',
    'file:///etc/passwd',
    '/v1/session',
    '//evil.example/',
    '#top',
    '',
  ])
    expect(safeUrl(url), url).toBe('');
});

test('markdown makes no element that could do anything', () => {
  const host = render(
    <Markdown
      text={[
        '# Title <img src=x onerror=alert(1)>',
        '<script>alert(1)</script>',
        '[a](javascript:alert(1)) [b](https://b.example/) ![c](https://c.example/c.png)',
        '**bold** `code` ~~gone~~',
        '```js\nconst a = "<b>";\n```',
      ].join('\n\n')}
    />,
  );
  expect(host.querySelectorAll('img, script, h1, h2')).toHaveLength(0);
  expect([...host.querySelectorAll('a')].map((it) => it.getAttribute('href'))).toEqual([
    'https://b.example/',
    'https://c.example/c.png',
  ]);
  for (const link of host.querySelectorAll('a')) {
    expect(link.target).toBe('_blank');
    expect(link.rel).toBe('noopener noreferrer nofollow');
  }
  expect(host.querySelector('h3')?.textContent).toBe('Title <img src=x onerror=alert(1)>');
  expect(host.textContent).toContain('<script>alert(1)</script>');
  expect(host.querySelector('pre code')?.textContent).toBe('const a = "<b>";');
  expect(host.querySelector('strong')?.textContent).toBe('bold');
});

test('an error that the output ends with is told once', () => {
  const error = 'TypeError: x\n    at main.js:1:1';
  expect(splitOutput(`before\n\nError: ${error}`, error)).toBe('before');
  expect(splitOutput(`Error: ${error}`, error)).toBe('');
  expect(splitOutput('all', null)).toBe('all');
  expect(splitOutput('all', error)).toBe('all');
});

test('a tree shows values, and builds what is open only', () => {
  const host = render(
    <Tree value={{ a: 1, b: 'two', c: null, d: [], e: { f: { g: 'deep' } }, h: '<b>' }} />,
  );
  expect(host.textContent).toContain('a: 1');
  expect(host.textContent).toContain('b: "two"');
  expect(host.textContent).toContain('c: null');
  expect(host.textContent).toContain('d: []');
  expect(host.textContent).toContain('h: "<b>"');
  expect(host.textContent).not.toContain('deep');
  expect(render(<Tree value={7} />).textContent).toBe('7');
});

test('a list of tasks says which are done', () => {
  const host = render(<Markdown text={'- [ ] one\n- [x] two'} />);
  const labels = [...host.querySelectorAll('input')].map((it) => it.getAttribute('aria-label'));
  expect(labels).toEqual(['to do', 'done']);
});
