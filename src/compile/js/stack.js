// Error -> "Name: message" and "    at fn (module:line:col)" lines in the user's own source.
//
// The error is hostile: any read may run user code, throw, or return something absurd. Nothing here throws.
import { apply, create, indexOf, slice } from "./primordials.js";

const HEAD_MAX = 4096;
const NAME_MAX = 128;
const FRAMES_MAX = 32;
const STACK_MAX = 65536; // of the engine's own text, read at most
const CAUSES_MAX = 3;

const cut = (text, from, to) => apply(slice, text, { __proto__: null, length: 2, 0: from, 1: to });
const find = (text, what, from) => apply(indexOf, text, { __proto__: null, length: 2, 0: what, 1: from });
const limit = (text, max) => (text.length > max ? cut(text, 0, max) + "…" : text);

// Reads a property; anything but a string counts as absent.
function readString(object, key) {
  try {
    const v = object[key];
    return typeof v === "string" ? v : undefined;
  } catch {
    return undefined;
  }
}

function headOf(error) {
  const name = readString(error, "name");
  const message = readString(error, "message");
  if (name === undefined && message === undefined) return undefined;
  const n = limit(name === undefined || name === "" ? "Error" : name, NAME_MAX);
  return message === undefined || message === "" ? n : n + ": " + limit(message, HEAD_MAX);
}

function describeThrown(value) {
  switch (typeof value) {
    case "string":
      return limit(value, HEAD_MAX);
    case "object":
      return value === null ? "null" : "[object]";
    case "function":
      return "[function]";
    case "symbol":
      return "[symbol]";
    case "bigint":
      return limit(`${value}`, NAME_MAX) + "n";
    default:
      return `${value}`;
  }
}

const isDigit = (c) => c >= "0" && c <= "9";

// The number that ends at `end`, after a colon: returns the index of the colon or -1.
function colonBefore(text, end) {
  let i = end;
  while (i > 0 && isDigit(text[i - 1])) i--;
  return i < end && end - i < 10 && i > 0 && text[i - 1] === ":" ? i - 1 : -1;
}

function numberAt(text, from, to) {
  let n = 0;
  for (let i = from; i < to; i++) n = n * 10 + (text[i] - "0");
  return n;
}

export function makeFormatter() {
  const maps = create(null); // module name -> map, or null

  function add(name, map) {
    maps[name] = map;
  }

  function original(map, line, column) {
    let delta = 0;
    let end = Infinity; // text that was put in is all at the end of what it replaced
    if (map)
      for (let i = 0; i < map.length && map[i] <= line; i += 3) {
        if (map[i] !== line) continue;
        if (map[i + 1] >= column) {
          end = map[i + 1] - map[i + 2] + 1;
          break;
        }
        delta = map[i + 2];
      }
    const c = column - delta;
    return c < 1 ? 1 : c > end ? end : c;
  }

  // One line of the engine's stack: "fn@url:line:column" or "fn@[native code]".
  // Returns the text to show, "" for a frame of the host, or undefined for native code (`native` then has its name).
  function frameOf(text) {
    const colon2 = colonBefore(text, text.length);
    const colon1 = colon2 < 0 ? -1 : colonBefore(text, colon2);
    if (colon1 < 0) return undefined;
    // Names of functions and of modules may both hold an @: take the first split whose right side is a module.
    for (let at = find(text, "@", 0), tries = 0; at >= 0 && at < colon1 && tries < 16; at = find(text, "@", at + 1), tries++) {
      const url = cut(text, at + 1, colon1);
      if (maps[url] === undefined) continue;
      const line = numberAt(text, colon1 + 1, colon2);
      const column = original(maps[url], line, numberAt(text, colon2 + 1, text.length));
      const where = `${url}:${line}:${column}`;
      const fn = limit(cut(text, 0, at), NAME_MAX);
      return fn === "" || fn === "global code" ? `    at ${where}` : `    at ${fn} (${where})`;
    }
    return "";
  }

  function framesOf(stack) {
    let out = "";
    let shown = 0;
    let native = ""; // native frames wait until the frame that called them is known to be the user's
    const text = cut(stack, 0, STACK_MAX);
    for (let from = 0; from < text.length && shown < FRAMES_MAX; ) {
      let to = find(text, "\n", from);
      if (to < 0) to = text.length;
      const line = cut(text, from, to);
      from = to + 1;
      const frame = frameOf(line);
      if (frame === undefined) {
        const at = find(line, "@[native code]", 0);
        if (at > 0) native += `\n    at ${limit(cut(line, 0, at), NAME_MAX)} (native)`;
      } else if (frame === "") native = "";
      else {
        out += native + "\n" + frame;
        native = "";
        shown++;
      }
    }
    return out;
  }

  // A SyntaxError of the engine has its place in properties, not in frames.
  function placeOf(error) {
    const url = readString(error, "sourceURL");
    if (url === undefined || maps[url] === undefined) return "";
    let line;
    try {
      line = error.line;
    } catch {
      return "";
    }
    return typeof line === "number" ? `\n    at ${url}:${line}` : "";
  }

  function one(error) {
    const head = headOf(error);
    const stack = readString(error, "stack");
    if (head === undefined && stack === undefined) return describeThrown(error);
    let frames = stack === undefined ? "" : framesOf(stack);
    if (frames === "") frames = placeOf(error);
    return (head === undefined ? "Error" : head) + frames;
  }

  function format(error) {
    try {
      if ((typeof error !== "object" || error === null) && typeof error !== "function") return describeThrown(error);
      let out = one(error);
      let cause = error;
      for (let n = 0; n < CAUSES_MAX; n++) {
        let next;
        try {
          next = cause.cause;
        } catch {
          break;
        }
        if (next === undefined || next === null || next === error) break;
        out += "\nCaused by: " + (typeof next === "object" ? one(next) : describeThrown(next));
        if (typeof next !== "object") break;
        cause = next;
      }
      return out;
    } catch {
      return "Error"; // for instance, no stack left
    }
  }

  return { __proto__: null, add, format };
}
