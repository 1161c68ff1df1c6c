import assert from 'node:assert/strict';
import { test } from 'node:test';
import { comparePairs, median } from './stats.mjs';

/** A machine whose speed wanders by a factor of two, slowly; each measurement is off by up to 4 % besides. */
function noisy(n, factor) {
  let seed = 7;
  const next = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  return Array.from({ length: n }, (_, i) => {
    const machine = 10 * (1.5 + 0.5 * Math.sin(i / 5));
    return [machine * (0.96 + 0.08 * next()), machine * factor * (0.96 + 0.08 * next())];
  });
}

test('the middle of an odd and of an even list', () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1, 2, 3]), 2.5);
});

test('a change of 5 % is seen on a noisy machine, in either direction', () => {
  const slower = comparePairs(noisy(40, 1.05));
  assert.equal(slower.verdict, 'worse');
  assert.ok(slower.low < 1.05 && slower.high > 1.05 && slower.high - slower.low < 0.06, JSON.stringify(slower));
  assert.equal(comparePairs(noisy(40, 0.95)).verdict, 'better');
  assert.equal(comparePairs(noisy(40, 1.05), { more: true }).verdict, 'better');
  assert.equal(comparePairs(noisy(40, 0.95), { more: true }).verdict, 'worse');
});

test('no change is not taken for one', () => {
  const same = comparePairs(noisy(40, 1));
  assert.equal(same.verdict, 'same', JSON.stringify(same));
  assert.ok(same.wins > 0.25 && same.wins < 0.75);
});

test('a handful of pairs says nothing', () => {
  assert.equal(comparePairs([[1, 2], [1, 2]]).verdict, 'unsure');
});
