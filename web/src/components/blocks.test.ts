import { expect, test } from 'vitest';
import { addTo, blockChars, type Block } from './blocks.ts';

const textOf = (blocks: readonly Block[]) =>
  blocks.flatMap(({ parts }) => parts.map(({ text }) => text)).join('');

test('lines stay whole, whatever pieces they come in', () => {
  const text = Array.from({ length: 20_000 }, (_, i) => `${i}\n`).join('');
  let blocks: Block[] = [];
  for (let at = 0; at < text.length; at += 777)
    blocks = addTo(blocks, {
      stream: at % 2 ? 'stdout' : 'stderr',
      text: text.slice(at, at + 777),
    });
  expect(textOf(blocks)).toBe(text);
  expect(blocks.length).toBeLessThan(text.length / blockChars + 2);
  for (const { parts } of blocks) expect(parts.at(-1)?.text.endsWith('\n')).toBe(true);
  expect(blocks.reduce((sum, { lines }) => sum + lines, 0)).toBe(20_000);
});

test('a block that is full is the same object ever after', () => {
  const one = addTo([], { stream: 'stdout', text: `${'a'.repeat(blockChars)}\n` });
  const two = addTo(one, { stream: 'stdout', text: 'b' });
  expect(two[0]).toBe(one[0]);
  expect(two).toHaveLength(2);
});

test('a line without end is cut, and nothing is lost', () => {
  const text = 'x'.repeat(100_000);
  const blocks = addTo(addTo([], { stream: 'stdout', text }), { stream: 'stdout', text });
  expect(textOf(blocks)).toBe(text + text);
  for (const { chars } of blocks) expect(chars).toBeLessThanOrEqual(4 * blockChars);
});
