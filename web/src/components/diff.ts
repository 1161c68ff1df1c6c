/** A unified diff, as git writes it, read into files and rows that stand side by side. */

export type Cell = { number: number; text: string } | null;
export type Row =
  { kind: 'same' | 'changed'; left: Cell; right: Cell } | { kind: 'hunk' | 'note'; text: string };
export type FileDiff = { path: string; added: number; removed: number; rows: Row[] };

/** "a/x" and "b/x" without their side; /dev/null is the other's. */
const pathOf = (text: string): string => {
  const name = text.replace(/\t.*$/, '');
  return name === '/dev/null' ? '' : unquote(name).replace(/^[ab]\//, '');
};

/** git quotes names with anything unusual in them, byte by byte. */
function unquote(name: string): string {
  if (!name.startsWith('"')) return name;
  const bytes: number[] = [];
  const simple: Record<string, number> = { n: 10, t: 9, r: 13, '"': 34, '\\': 92 };
  const inside = name.slice(1, -1);
  for (let at = 0; at < inside.length; at++) {
    if (inside[at] !== '\\') {
      bytes.push(...new TextEncoder().encode(inside[at]));
      continue;
    }
    const octal = /^[0-7]{3}/.exec(inside.slice(at + 1))?.[0];
    if (octal) bytes.push(parseInt(octal, 8) & 255);
    else bytes.push(simple[inside[at + 1] ?? ''] ?? 63);
    at += octal ? 3 : 1;
  }
  return new TextDecoder().decode(Uint8Array.from(bytes));
}

export function readDiff(diff: string): FileDiff[] {
  const files: FileDiff[] = [];
  let file: FileDiff | null = null;
  let left = 0;
  let right = 0;
  // How many lines of the hunk are still to come: only there does a sign mean anything.
  let leftRest = 0;
  let rightRest = 0;
  let removed: NonNullable<Cell>[] = [];
  let added: NonNullable<Cell>[] = [];

  const pair = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at++)
      file?.rows.push({ kind: 'changed', left: removed[at] ?? null, right: added[at] ?? null });
    removed = [];
    added = [];
  };

  for (const line of diff.split('\n')) {
    const inHunk = leftRest > 0 || rightRest > 0;
    if (file && inHunk && line.startsWith('-')) {
      if (added.length > 0) pair();
      removed.push({ number: left++, text: line.slice(1) });
      leftRest--;
      file.removed++;
    } else if (file && inHunk && line.startsWith('+')) {
      added.push({ number: right++, text: line.slice(1) });
      rightRest--;
      file.added++;
    } else if (file && inHunk && (line.startsWith(' ') || line === '')) {
      pair();
      const text = line.slice(1);
      file.rows.push({
        kind: 'same',
        left: { number: left++, text },
        right: { number: right++, text },
      });
      leftRest--;
      rightRest--;
    } else {
      if (!line.startsWith('\\')) pair();
      const hunk = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)/.exec(line);
      if (line.startsWith('diff --git ')) {
        const path = / b\/(.*)$/.exec(line)?.[1] ?? line.slice(11);
        files.push((file = { path, added: 0, removed: 0, rows: [] }));
      } else if (file && hunk) {
        left = Number(hunk[1]);
        right = Number(hunk[3]);
        leftRest = Number(hunk[2] ?? 1);
        rightRest = Number(hunk[4] ?? 1);
        if (file.rows.some((row) => row.kind !== 'note'))
          file.rows.push({ kind: 'hunk', text: (hunk[5] ?? '').trim() });
      } else if (file && /^(---|\+\+\+) /.test(line)) {
        file.path = pathOf(line.slice(4)) || file.path;
      } else if (
        file &&
        /^(new file|deleted file|rename |Binary files|old mode|new mode)/.test(line)
      )
        file.rows.push({ kind: 'note', text: line });
    }
  }
  pair();
  return files;
}
