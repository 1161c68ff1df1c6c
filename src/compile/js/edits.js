// Text edits that keep every line where it is, and the map of the columns that had to move.
//
// A map is a flat array [line, column, delta, ...] in order: on that line (1-based), from that output column on
// (0-based), the original column is the output column minus delta, until the next entry of the same line.

const LINE = /\r\n|[\n\r\u2028\u2029]/g;
export const NEWLINE = /[\n\r\u2028\u2029]/;
const NOT_LINE = /[^\n\r\u2028\u2029]/g;

const spaces = (text) => text.replace(NOT_LINE, " ");

export class Edits {
  constructor(source) {
    this.source = source;
    this.list = [];
  }
  // `text` is one line. Line breaks in what it replaces stay, after it.
  replace(start, end, text) {
    const rest = this.source.slice(start, end).search(NEWLINE);
    const first = rest < 0 ? end : start + rest;
    this.list.push({ start, end: first, text: text.padEnd(first - start) });
    if (rest >= 0) this.blank(first, end);
  }
  insert(at, text) {
    this.list.push({ start: at, end: at, text });
  }
  // `lead` stands at the start of the blanked range.
  blank(start, end, lead = "") {
    const room = this.source.slice(start, start + lead.length);
    const rest = room.length < lead.length || NEWLINE.test(room) ? start : start + lead.length;
    this.list.push({ start, end, text: lead + spaces(this.source.slice(rest, end)) });
  }
  apply(prefix = "", suffix = "") {
    const { source, list } = this;
    // Stable: insertions at one place keep the order in which they were made.
    list.sort((a, b) => a.start - b.start || a.end - b.end);
    const map = [];
    let out = prefix;
    let at = 0;
    let line = 1;
    let lineStart = 0; // in the source
    let delta = prefix.length; // output column minus source column, on this line
    if (delta) map.push(1, 0, delta);
    LINE.lastIndex = 0;
    let next = LINE.exec(source);
    for (const e of list) {
      while (next && next.index + next[0].length <= e.start) {
        line++;
        lineStart = next.index + next[0].length;
        delta = 0;
        next = LINE.exec(source);
      }
      out += source.slice(at, e.start) + e.text;
      at = e.end;
      const grown = e.text.length - (e.end - e.start);
      if (grown === 0) continue;
      const column = e.end - lineStart + delta + grown;
      delta += grown;
      if (map.length && map[map.length - 3] === line && map[map.length - 2] === column) map[map.length - 1] = delta;
      else map.push(line, column, delta);
    }
    return { code: out + source.slice(at) + suffix, map };
  }
}

// The map of two steps: `outer` was applied to the output of `inner`.
export function composeMaps(outer, inner) {
  if (!inner.length) return outer;
  if (!outer.length) return inner;
  const lines = new Map();
  const add = (map, k) => {
    for (let i = 0; i < map.length; i += 3) {
      let entry = lines.get(map[i]);
      if (!entry) lines.set(map[i], (entry = [[], []]));
      entry[k].push(map[i + 1], map[i + 2]);
    }
  };
  add(outer, 0);
  add(inner, 1);
  const result = [];
  for (const line of [...lines.keys()].sort((a, b) => a - b)) {
    const [o, n] = lines.get(line);
    // Every output column where either delta changes.
    let oi = 0;
    let ni = 0;
    let od = 0;
    let nd = 0;
    while (oi < o.length || ni < n.length) {
      const fromOuter = oi < o.length ? o[oi] : Infinity;
      // An inner breakpoint at middle column m appears at output column m + od while that is inside the segment.
      const fromInner = ni < n.length ? n[ni] + od : Infinity;
      let column;
      if (fromOuter <= fromInner) {
        column = fromOuter;
        od = o[oi + 1];
        oi += 2;
        // The middle column may have jumped over inner breakpoints, or back before them.
        while (ni < n.length && n[ni] <= column - od) {
          nd = n[ni + 1];
          ni += 2;
        }
      } else {
        column = fromInner;
        nd = n[ni + 1];
        ni += 2;
      }
      const k = result.length;
      if (k && result[k - 3] === line && result[k - 2] === column) result[k - 1] = od + nd;
      else result.push(line, column, od + nd);
    }
  }
  return result;
}

export function position(source, offset) {
  let line = 1;
  let start = 0;
  LINE.lastIndex = 0;
  for (let m = LINE.exec(source); m && m.index + m[0].length <= offset; m = LINE.exec(source)) {
    line++;
    start = m.index + m[0].length;
  }
  return { line, column: offset - start + 1, lineStart: start };
}

// For errors after a first step: the original column of a column of its output, both 0-based.
export function originalColumn(map, line, column) {
  let delta = 0;
  let end = Infinity; // text that was put in is all at the end of what it replaced
  for (let i = 0; i < map.length && map[i] <= line; i += 3) {
    if (map[i] !== line) continue;
    if (map[i + 1] > column) {
      end = map[i + 1] - map[i + 2];
      break;
    }
    delta = map[i + 2];
  }
  return Math.max(0, Math.min(column - delta, end));
}

const EXCERPT_MAX = 120;

// The line with a caret under the column, cut to a window around it.
export function excerpt(source, line, column) {
  LINE.lastIndex = 0;
  let start = 0;
  for (let k = 1; k < line; k++) {
    const m = LINE.exec(source);
    if (!m) return "";
    start = m.index + m[0].length;
  }
  LINE.lastIndex = start;
  const m = LINE.exec(source);
  const text = source.slice(start, m ? m.index : source.length);
  let from = 0;
  if (text.length > EXCERPT_MAX) from = Math.max(0, Math.min(column - 1 - EXCERPT_MAX / 2, text.length - EXCERPT_MAX));
  const shown = text.slice(from, from + EXCERPT_MAX);
  const pad = shown.slice(0, Math.max(0, column - 1 - from)).replace(/[^\t]/g, " ");
  return shown + "\n" + pad + "^";
}

// The next offset that is neither white space nor a comment.
export function skipTrivia(source, i) {
  for (; i < source.length; i++) {
    if (source.startsWith("/*", i)) i = source.indexOf("*/", i + 2) + 1;
    else if (source.startsWith("//", i)) {
      LINE.lastIndex = i;
      const m = LINE.exec(source);
      if (!m) return source.length;
      i = m.index;
    } else if (!/\s/.test(source[i])) return i;
  }
  return i;
}
