import { expect, test } from 'vitest';
import { readDiff } from './diff.ts';

const diff = `diff --git a/one.py b/one.py
index 1..2 100644
--- a/one.py
+++ b/one.py
@@ -1,4 +1,5 @@
 first
-second
-third
+2nd
 same
+--- not a header
+last
diff --git "a/n\\303\\244me.txt" "b/n\\303\\244me.txt"
new file mode 100644
--- /dev/null
+++ "b/n\\303\\244me.txt"
@@ -0,0 +1 @@
+x
\\ No newline at end of file
`;

test('rows stand side by side, with their numbers', () => {
  const [one, two] = readDiff(diff);
  expect([one?.path, one?.added, one?.removed]).toEqual(['one.py', 3, 2]);
  expect(one?.rows).toEqual([
    { kind: 'same', left: { number: 1, text: 'first' }, right: { number: 1, text: 'first' } },
    { kind: 'changed', left: { number: 2, text: 'second' }, right: { number: 2, text: '2nd' } },
    { kind: 'changed', left: { number: 3, text: 'third' }, right: null },
    { kind: 'same', left: { number: 4, text: 'same' }, right: { number: 3, text: 'same' } },
    { kind: 'changed', left: null, right: { number: 4, text: '--- not a header' } },
    { kind: 'changed', left: null, right: { number: 5, text: 'last' } },
  ]);
  expect(two?.path).toBe('näme.txt');
  expect(two?.rows.at(-1)).toEqual({
    kind: 'changed',
    left: null,
    right: { number: 1, text: 'x' },
  });
});

test('what is no diff, or a part of one, does no harm', () => {
  expect(readDiff('')).toEqual([]);
  expect(readDiff('+++ b/x\n@@ -1 +1 @@\n+y')).toEqual([]);
  expect(readDiff('diff --git a/x b/x\n@@ -1,9 +1,9 @@\n+cut')).toHaveLength(1);
  expect(readDiff('diff --git a/x b/x\nBinary files a/x and b/x differ')[0]?.rows).toHaveLength(1);
});
