// Specifier -> module name, among the modules that were given and nothing else.
//
// The loader runs this after user code has run, so it touches nothing that user code can replace: only string
// indexing, length and concatenation, and dictionaries without a prototype.

const SUFFIXES = [".ts", ".tsx", ".js", ".mjs", ".jsx", ".cjs", ".json", "/index.ts", "/index.js"];
const SUFFIX_COUNT = 9;

// "./a/../b.js" seen from "lib/main.js" -> "lib/b.js". Steps above the root stay at the root.
export function normalize(path, base) {
  let parts = null; // linked list of segments, last first
  const push = (text) => {
    for (let i = 0, from = 0; i <= text.length; i++) {
      if (i < text.length && text[i] !== "/") continue;
      let part = "";
      for (let k = from; k < i; k++) part += text[k];
      from = i + 1;
      if (part === "..") parts = parts && parts.up;
      else if (part !== "" && part !== ".") parts = { __proto__: null, part, up: parts };
    }
  };
  if (base !== "" && path[0] !== "/") {
    let end = base.length;
    while (end > 0 && base[end - 1] !== "/") end--;
    let dir = "";
    for (let k = 0; k < end; k++) dir += base[k];
    push(dir);
  }
  push(path);
  if (!parts) return "";
  let out = parts.part;
  for (let p = parts.up; p; p = p.up) out = p.part + "/" + out;
  return out;
}

function endsWith(text, tail) {
  if (text.length < tail.length) return false;
  for (let i = 1; i <= tail.length; i++) if (text[text.length - i] !== tail[tail.length - i]) return false;
  return true;
}

// `table` is a dictionary without prototype from normalized names to anything but undefined.
function find(table, path) {
  if (path === "") return undefined;
  if (table[path] !== undefined) return path;
  // TypeScript's convention: "./x.js" may mean x.ts.
  if (endsWith(path, ".js") || endsWith(path, ".mjs") || endsWith(path, ".jsx")) {
    let stem = "";
    let end = path.length - 1;
    while (path[end] !== ".") end--;
    for (let k = 0; k < end; k++) stem += path[k];
    const m = path[end + 1] === "m" ? ".mts" : ".ts";
    if (table[stem + m] !== undefined) return stem + m;
    if (table[stem + ".tsx"] !== undefined) return stem + ".tsx";
  }
  for (let i = 0; i < SUFFIX_COUNT; i++) if (table[path + SUFFIXES[i]] !== undefined) return path + SUFFIXES[i];
  return undefined;
}

// Returns the key in `table`, or undefined. Names match exactly first ("user-code.js", "cloudflare:workers");
// then as a path relative to the importer.
export function resolve(table, specifier, from) {
  if (specifier === "") return undefined;
  if (table[specifier] !== undefined) return specifier;
  const relative = specifier[0] === "." || specifier[0] === "/";
  if (!relative) {
    const whole = find(table, normalize(specifier, ""));
    if (whole !== undefined) return whole;
  }
  return find(table, normalize(specifier, from));
}
