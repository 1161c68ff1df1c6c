// @vitest-environment node
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const css = readFileSync(new URL('../src/styles/tokens.css', import.meta.url), 'utf8');
const pairs = css.matchAll(/--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)/g);
const tokens = new Map([...pairs].map(([, name, light, dark]) => [name, { light, dark }]));

function luminance(hex: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((at) => {
    const c = parseInt(hex.slice(at, at + 2), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: string, b: string): number {
  const [x, y] = [luminance(a), luminance(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}

/** WCAG 2: 4.5 for text, 3 for marks and for the ring around what has the focus. */
const wanted: [string, string[], number][] = [
  ['ink', ['ground', 'raised', 'sunken', 'warn-wash', 'bad-wash', 'added-wash'], 4.5],
  ['ink-quiet', ['ground', 'raised', 'sunken', 'warn-wash'], 4.5],
  ['accent-ink', ['ground', 'raised'], 4.5],
  ['on-fill', ['fill'], 4.5],
  ['warn-ink', ['raised'], 4.5],
  ['bad-ink', ['raised', 'bad-wash'], 4.5],
  ['code-keyword', ['sunken', 'raised', 'added-wash', 'bad-wash'], 4.5],
  ['code-string', ['sunken', 'raised', 'added-wash', 'bad-wash'], 4.5],
  ['code-number', ['sunken', 'raised', 'added-wash', 'bad-wash'], 4.5],
  ['code-type', ['sunken', 'raised', 'added-wash', 'bad-wash'], 4.5],
  ['code-name', ['sunken', 'raised', 'added-wash', 'bad-wash'], 4.5],
  ['focus', ['ground', 'raised', 'sunken'], 3],
  ['ok', ['raised'], 3],
  ['bad', ['raised'], 3],
  ['accent', ['raised'], 3],
  ['ink-faint', ['raised'], 3],
];

test.each(['light', 'dark'] as const)(
  'text and marks can be told from what is behind them: %s',
  (mode) => {
    for (const [front, backs, least] of wanted) {
      for (const back of backs) {
        const value = contrast(tokens.get(front)![mode]!, tokens.get(back)![mode]!);
        expect(value, `${front} on ${back}`).toBeGreaterThanOrEqual(least);
      }
    }
  },
);
