import { expect, test } from 'vitest';
import { attach, fenced } from './attach.ts';

const file = (name: string, ...parts: BlobPart[]) => new File(parts, name);

test('a file stands between fences that it cannot close', () => {
  expect(fenced('a.py', 'print(1)')).toBe('File a.py:\n```py\nprint(1)\n```\n');
  expect(fenced('x', 'a\n````\nb\n')).toContain('`````\na\n````\nb\n`````\n');
  expect(fenced('a`b\n<c>.md', '')).toMatch(/^File a_b_c_\.md:/);
});

test('what is said comes first', async () => {
  expect(await attach('Read this', [file('a.txt', 'x')])).toEqual({
    text: 'Read this\n\nFile a.txt:\n```txt\nx\n```\n',
  });
});

test('what no model could read is refused', async () => {
  for (const bytes of [new Uint8Array([0xff, 0xfe]), new Uint8Array([65, 0, 66])])
    expect(await attach('', [file('b.bin', bytes)])).toHaveProperty('problem');
  expect(await attach('', [file('big', 'x'.repeat(100_001))])).toHaveProperty('problem');
  const half = 'x'.repeat(60_000);
  expect(await attach('', [file('a', half), file('b', half)])).toHaveProperty('problem');
});
