// The heart of cay-compile: a request (a main module and a table of modules) in, a linked program out.
//
// Runs in bare JavaScriptCore: no web globals, no node. Pure: the same request gives the same response.
import cjsLexer from "cjs-module-lexer";
import { CompileError } from "./errors.js";
import { Edits, excerpt, composeMaps, originalColumn, position } from "./edits.js";
import { TooComplex } from "./guard.js";
import { parseModule, parseCommonJs } from "./parse.js";
import { scan } from "./scan.js";
import { AMBIGUOUS, Graph, NAMESPACE } from "./graph.js";
import { emit, isMutable } from "./emit.js";
import { normalize, resolve } from "./resolve.js";
import { BUILTINS, notFound } from "./specifiers.js";
import { checkBase64, checkJson } from "./values.js";

// The engine takes 65,535 arguments to a function, and imports are arguments.
export const LIMITS = { modules: 500, bytes: 4 << 20, name: 512, imports: 10000 };

const KINDS = ["js", "ts", "tsx", "jsx", "mjs", "mts", "cjs", "json", "text", "data", "wasm", "py"];
const EXTENSIONS = {
  __proto__: null,
  js: "js",
  mjs: "js",
  ts: "ts",
  mts: "ts",
  tsx: "tsx",
  jsx: "jsx",
  cjs: "cjs",
  json: "json",
  txt: "text",
  wasm: "wasm",
  py: "py",
};
const ALIASES = { __proto__: null, mjs: "js", mts: "ts" };

const REFUSED = {
  wasm: "WebAssembly modules are not supported: isolates run without a WebAssembly compiler",
  py: "Python modules are not supported: isolates run JavaScript and TypeScript",
};

function refuse(message, module = null) {
  const error = new CompileError("Error", message, undefined);
  error.module = module;
  throw error;
}

function utf8Length(text) {
  let n = text.length;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c > 0x7ff && (c < 0xd800 || c > 0xdfff)) n += 2;
    else if (c > 0x7f) n += 1; // also each half of a pair: four bytes for two units
  }
  return n;
}

// Trees of short modules that came more than once: agents wrap each program into the same few. A tree is only read.
const KEPT_MAX = 64;
const KEPT_LENGTH_MAX = 4096;
const kept = new Map(); // source -> its tree, null when it was seen once

function parseAgain(source) {
  if (source.length > KEPT_LENGTH_MAX) return parseModule(source);
  const seen = kept.get(source);
  const ast = seen ?? parseModule(source);
  kept.delete(source); // the newest is last
  kept.set(source, seen === undefined ? null : ast);
  if (kept.size > KEPT_MAX) kept.delete(kept.keys().next().value);
  return ast;
}

class Compilation {
  constructor(request) {
    this.request = request;
    this.limits = { ...LIMITS, ...request.limits };
    this.modules = []; // in the order of loading: main is 0
    this.given = Object.create(null); // normalized name -> {name, kind, text}
    this.loaded = new Map(); // normalized name -> module
    this.builtins = Object.create(null);
    const builtins = request.builtins ?? BUILTINS;
    for (const name of Object.keys(builtins)) this.builtins[name] = builtins[name];
  }

  readModules() {
    const { modules, mainModule } = this.request;
    if (modules === null || typeof modules !== "object") refuse("'modules' must be an object of module name to source");
    if (typeof mainModule !== "string") refuse("'mainModule' must be the name of a module");
    const names = Object.keys(modules);
    if (names.length > this.limits.modules)
      refuse(`${names.length} modules were given; the limit is ${this.limits.modules}`);
    let bytes = 0;
    for (const name of names) {
      if (name.length > this.limits.name) refuse(`A module name is longer than ${this.limits.name} characters`);
      // Stack frames are lines: a name must not be able to end one.
      if (/[\x00-\x1f\x7f\u2028\u2029]/.test(name)) refuse(`Module name ${JSON.stringify(name)} has a control character`);
      const key = normalize(name, "");
      if (this.builtins[key] !== undefined || key.startsWith("cay:")) refuse(`Module name '${name}' is reserved`, name);
      if (key === "") refuse(`Module name ${JSON.stringify(name)} is empty`);
      if (this.given[key]) refuse(`Modules '${this.given[key].name}' and '${name}' have the same path`, name);
      const entry = this.readModule(name, modules[name]);
      bytes += utf8Length(entry.text);
      if (bytes > this.limits.bytes) refuse(`The modules are larger than ${this.limits.bytes} bytes together`);
      this.given[key] = entry;
    }
    const main = resolve(this.given, mainModule, "");
    if (main === undefined) refuse(`The main module '${mainModule}' is not among the modules given`);
    return main;
  }

  readModule(name, value) {
    if (typeof value === "string") {
      const dot = name.lastIndexOf(".");
      const kind = EXTENSIONS[dot < 0 ? "" : name.slice(dot + 1)] ?? "js";
      return { name, kind, text: value };
    }
    const kinds = value !== null && typeof value === "object" ? Object.keys(value) : [];
    if (kinds.length !== 1 || !KINDS.includes(kinds[0]))
      refuse(`Module '${name}' must be a string or an object with one of: ${KINDS.join(", ")}`, name);
    const kind = ALIASES[kinds[0]] ?? kinds[0];
    let text = value[kinds[0]];
    if (kind === "json" && typeof text !== "string") text = JSON.stringify(text) ?? "null";
    if (typeof text !== "string") refuse(`Module '${name}': '${kinds[0]}' must be a string`, name);
    return { name, kind, text };
  }

  // The module record for a key of `given` or a built-in, parsed; its own errors are kept in it.
  load(key) {
    let module = this.loaded.get(key);
    if (module) return module;
    const { name, kind, text } = this.given[key] ?? { name: key, kind: "builtin", text: "" };
    module = { index: this.modules.length, key, name, kind, text, deps: [], stars: null, bindings: new Map() };
    module.namespaceBinding = { module, slot: NAMESPACE };
    module.error = null;
    this.modules.push(module);
    this.loaded.set(key, module);
    try {
      this.read(module);
    } catch (e) {
      this.fail(module, e);
    }
    return module;
  }

  fail(module, e) {
    module.error = e instanceof CompileError && e.final ? e : this.locate(module, e);
    module.deps = [];
    module.stars = null;
    module.bindings = new Map();
  }

  // Turns what a parser threw into an error with a position in the module's own source.
  locate(module, e) {
    if (e instanceof RangeError && !(e instanceof CompileError)) {
      e = new CompileError("SyntaxError", "Source is nested too deeply", 0);
    } else if (e instanceof TooComplex || (e instanceof SyntaxError && typeof e.pos === "number")) {
      e = new CompileError("SyntaxError", e.message.replace(/ \(\d+:\d+\)$/, ""), e.pos);
    } else if (!(e instanceof CompileError)) throw e;
    e.final = true;
    e.module = module.name;
    if (e.pos !== undefined) {
      const at = position(module.script ?? module.text, Math.min(e.pos, (module.script ?? module.text).length));
      const column = 1 + (module.eraseMap ? originalColumn(module.eraseMap, at.line, at.column - 1) : at.column - 1);
      e.at = { line: at.line, column, excerpt: excerpt(module.text, at.line, column) };
    }
    return e;
  }

  read(module) {
    switch (module.kind) {
      case "js":
        return this.readScript(module, module.text);
      case "ts":
      case "tsx":
      case "jsx": {
        // Not before it is needed: TypeScript's parser takes 20 ms and 6 MB to start.
        // eslint-disable-next-line no-undef -- esbuild's: the module runs when it is first asked for
        const { erase } = require("./typescript.js");
        const erased = erase(module.text, module.kind);
        module.types = erased.types;
        module.typeStar = erased.typeStar;
        module.eraseMap = erased.map;
        module.script = erased.code;
        return this.readScript(module, erased.code, erased.settled);
      }
      case "cjs":
        return this.readCommonJs(module);
      case "json":
        checkJson(module.text);
        return this.bind(module, ["default"]);
      case "text":
        return this.bind(module, ["default"]);
      case "data":
        checkBase64(module.text);
        return this.bind(module, ["default"]);
      case "builtin":
        return this.bind(module, this.builtins[module.key]);
      default:
        throw new CompileError("Error", REFUSED[module.kind], undefined);
    }
  }

  bind(module, names) {
    module.exportNames = names;
    names.forEach((name, slot) => module.bindings.set(name, { module, slot }));
  }

  readScript(module, source, settled) {
    const comments = source.includes("sourceURL=") ? [] : undefined;
    module.ast = comments ? parseModule(source, comments) : parseAgain(source);
    const m = (module.scan = scan(module.ast, source, settled));
    if (m.imports.size > this.limits.imports)
      throw new CompileError("SyntaxError", `The module imports more than ${this.limits.imports} names`, 0);
    for (const at of sourceUrls(comments)) m.edits.replace(at, at + 1, " ");
    module.stars = m.stars;
    m.slots = new Map();
    module.mutable = [];
    for (const e of m.exports) {
      if (e.local === undefined) {
        module.bindings.set(e.name, e);
        continue;
      }
      let slot = m.slots.get(e.local);
      if (slot === undefined) {
        slot = { module, slot: m.slots.size };
        m.slots.set(e.local, slot);
        module.mutable.push(isMutable(m, e.local));
      }
      module.bindings.set(e.name, slot);
    }
  }

  readCommonJs(module) {
    const comments = module.text.includes("sourceURL=") ? [] : undefined;
    const ast = parseCommonJs(module.text, comments);
    const edits = new Edits(module.text);
    for (const at of sourceUrls(comments)) edits.replace(at, at + 1, " ");
    if (module.text.startsWith("#!")) edits.replace(0, 2, "//");
    module.commonJs = edits.apply("(function(exports,require,module,__filename,__dirname){", "\n})");
    let names = [];
    let reexports = [];
    try {
      const found = cjsLexer.parse(module.text);
      names = found.exports;
      reexports = found.reexports;
    } catch {
      // The lexer gives up on some valid files: then only the default export is known.
    }
    module.reexports = reexports;
    const own = new Set(names);
    own.delete("default");
    own.delete("__esModule");
    if (names.includes("__esModule")) own.add("__esModule");
    this.bind(module, ["default", ...own]);
    module.requires = requiredSpecifiers(ast);
  }

  find(module, specifier) {
    return this.builtins[specifier] !== undefined ? specifier : resolve(this.given, specifier, module.key);
  }

  resolveRequest(module, specifier, pos, type) {
    const key = this.find(module, specifier);
    if (key === undefined) throw new CompileError("Error", notFound(specifier, module, this.given), pos);
    const kind = this.given[key]?.kind ?? "builtin";
    const wanted = { json: "json", text: "text", bytes: "data" }[type];
    if (wanted && kind !== wanted)
      throw new CompileError(
        "TypeError",
        `Module '${specifier}' is imported with type '${type}' but is not a ${wanted} module`,
        pos,
      );
    return key;
  }

  // Loads everything that can be reached, static imports first; then what import() or require() may ask for.
  loadAll(mainKey) {
    const main = this.load(mainKey);
    let all = false;
    for (let i = 0; i < this.modules.length; i++) {
      const module = this.modules[i];
      if (module.error) continue;
      try {
        if (module.scan) {
          for (const r of module.scan.requests)
            module.deps.push(this.load(this.resolveRequest(module, r.specifier, r.pos, r.type)).index);
          for (const d of module.scan.dynamics) {
            if (d.source.type === "Literal" && typeof d.source.value === "string") this.loadMaybe(module, d.source.value);
            else all = true;
          }
        } else if (module.requires) {
          for (const s of module.requires.literals) this.loadMaybe(module, s);
          if (module.requires.computed) all = true;
        }
      } catch (e) {
        this.fail(module, e);
      }
      if (all && i === this.modules.length - 1) {
        all = false;
        for (const key of Object.keys(this.given)) this.load(key);
        for (const key of Object.keys(this.builtins)) this.load(key);
      }
    }
    return main;
  }

  // What only runs if the program gets there fails there, not here.
  loadMaybe(module, specifier) {
    const key = this.find(module, specifier);
    if (key !== undefined) this.load(key);
  }

  // Names that a CommonJS module takes over from others: `module.exports = require("./x")` and its kind.
  bindReexports() {
    for (let round = 0, changed = true; changed && round < 8; round++) {
      changed = false;
      for (const module of this.modules) {
        for (const specifier of module.reexports ?? []) {
          const key = resolve(this.given, specifier, module.key);
          const from = key && this.loaded.get(key);
          if (!from || from.kind !== "cjs" || from.error) continue;
          for (const name of from.exportNames)
            if (!module.bindings.has(name)) {
              module.bindings.set(name, { module, slot: module.exportNames.length });
              module.exportNames.push(name);
              changed = true;
            }
        }
      }
    }
  }

  // The first broken module on the way from main, in source order: one error, always the same one.
  throwFirst(main) {
    const seen = new Set();
    const todo = [main];
    while (todo.length) {
      const m = todo.pop();
      if (seen.has(m)) continue;
      seen.add(m);
      if (m.error) throw m.error;
      for (let i = m.deps.length - 1; i >= 0; i--) todo.push(this.modules[m.deps[i]]);
    }
  }

  // A module that statically needs a broken one is broken by the same error.
  spreadErrors() {
    const users = this.modules.map(() => []);
    for (const m of this.modules) for (const d of m.deps) users[d].push(m);
    const todo = this.modules.filter((m) => m.error);
    while (todo.length) {
      const bad = todo.pop();
      for (const user of users[bad.index])
        if (!user.error) {
          user.error = bad.error;
          todo.push(user);
        }
    }
  }

  link(graph, module) {
    const m = module.scan;
    if (!m) return;
    const check = (request, name, pos) => {
      const target = this.modules[module.deps[request]];
      const binding = graph.resolve(target, name);
      if (binding && binding !== AMBIGUOUS) {
        binding.used = true;
        return binding;
      }
      if (!binding && isType(this.modules, target, name)) return null;
      const { specifier } = m.requests[request];
      const why = binding
        ? `contains conflicting star exports for the name '${name}'`
        : `does not provide an export named '${name}'`;
      throw new CompileError("SyntaxError", `The requested module '${specifier}' ${why}`, pos);
    };
    for (const [, i] of m.imports)
      i.binding = i.namespace ? this.modules[module.deps[i.request]].namespaceBinding : check(i.request, i.name, i.pos);
    for (const e of m.exports) if (e.request !== undefined && !e.namespace) check(e.request, e.from, e.pos);
  }

  run() {
    const mainKey = this.readModules();
    const main = this.loadAll(mainKey);
    this.throwFirst(main);
    this.bindReexports();
    this.spreadErrors();
    const graph = new Graph(this.modules);
    for (const module of this.modules) {
      if (module.error) continue;
      try {
        this.link(graph, module);
      } catch (e) {
        module.error = this.locate(module, e);
      }
    }
    this.throwFirst(main);
    this.spreadErrors();
    graph.findCycles();
    return this.output(graph);
  }

  output(graph) {
    const wanted = new Set([0]);
    let dynamic = false;
    for (const m of this.modules) {
      if (m.scan?.dynamics.length || m.kind === "cjs") dynamic = true;
      if (!m.scan || m.error) continue;
      for (const [, i] of m.scan.imports) if (i.binding?.slot === NAMESPACE) wanted.add(i.binding.module.index);
    }
    const whole = new Set(wanted);
    for (const m of this.modules) for (const star of m.stars ?? []) whole.add(m.deps[star]);
    if (!dynamic) for (const m of this.modules) if (m.kind === "builtin" && !whole.has(m.index)) keepUsed(m);
    const modules = this.modules.map((module) => {
      if (module.error) return { name: module.name, key: module.key, kind: "error", error: report(module.error) };
      const out = { name: module.name, key: module.key, kind: module.kind };
      if (module.scan) {
        const { code, map, args, flags } = emit(module);
        out.kind = "esm";
        out.code = code;
        out.map = module.eraseMap ? composeMaps(map, module.eraseMap) : map;
        out.args = args;
        out.flags = flags;
        out.deps = module.deps;
        out.mutable = module.mutable.some(Boolean) ? module.mutable.map(Number) : null;
      } else if (module.kind === "cjs") {
        out.code = module.commonJs.code;
        out.map = module.commonJs.map;
        out.names = module.exportNames;
      } else if (module.kind === "builtin") out.names = module.exportNames;
      else out.value = module.text;
      return out;
    });
    // Namespaces that nothing can ask for are left out.
    for (const module of this.modules) {
      if (module.error || !(dynamic || wanted.has(module.index))) continue;
      const list = graph.exportsOf(module);
      for (const { binding } of list)
        if (binding.slot === NAMESPACE && !wanted.has(binding.module.index)) {
          wanted.add(binding.module.index);
          if (!dynamic && !modules[binding.module.index].exports)
            modules[binding.module.index].exports = flat(graph.exportsOf(binding.module));
        }
      modules[module.index].exports = flat(list);
    }
    return { ok: true, main: 0, modules };
  }
}

// The isolate is asked only for those exports of a built-in module that the program uses.
function keepUsed(module) {
  module.exportNames = [];
  for (const [name, binding] of module.bindings) {
    if (!binding.used) continue;
    binding.slot = module.exportNames.length;
    module.exportNames.push(name);
  }
}

// [name, module, slot, ...]
function flat(list) {
  const out = [];
  for (const { name, binding } of list) out.push(name, binding.module.index, binding.slot);
  return out;
}

// Whether `name` is only a type there: an import of it means nothing when the program runs.
function isType(modules, target, name) {
  const seen = new Set();
  const todo = [[target, name]];
  while (todo.length) {
    const [m, n] = todo.pop();
    const key = m.index + "\0" + n;
    if (seen.has(key)) continue;
    seen.add(key);
    if (m.types?.has(n) || m.typeStar) return true;
    const e = m.bindings.get(n);
    if (e?.request !== undefined && !e.namespace) todo.push([modules[m.deps[e.request]], e.from]);
    else if (!e) for (const s of m.stars ?? []) todo.push([modules[m.deps[s]], n]);
  }
  return false;
}

// A comment `//# sourceURL=x` would rename the script in stacks: where its mark stands.
function sourceUrls(comments = []) {
  return comments.filter((c) => /^[#@]\s*sourceURL=/.test(c.value)).map((c) => c.start + 2);
}

function requiredSpecifiers(ast) {
  const literals = new Set();
  let computed = false;
  const nodes = [ast];
  while (nodes.length) {
    const n = nodes.pop();
    if (n.type === "CallExpression" && n.callee.type === "Identifier" && n.callee.name === "require") {
      const a = n.arguments[0];
      if (a?.type === "Literal" && typeof a.value === "string") literals.add(a.value);
      else computed = true;
    }
    for (const key in n) {
      const v = n[key];
      if (Array.isArray(v)) {
        for (const c of v) if (c && typeof c.type === "string") nodes.push(c);
      } else if (v && typeof v.type === "string") nodes.push(v);
    }
  }
  return { literals, computed };
}

function report({ name, message, module = null, at }) {
  return { name, message, module, line: at?.line ?? null, column: at?.column ?? null, excerpt: at?.excerpt ?? null };
}

export function compile(request) {
  try {
    return new Compilation(request).run();
  } catch (e) {
    if (e instanceof CompileError) return { ok: false, error: report(e) };
    if (e instanceof RangeError)
      return { ok: false, error: report(new CompileError("SyntaxError", "Source is nested too deeply")) };
    throw e;
  }
}

// Speculative parsing throws a lot, and nobody reads these stacks.
Error.stackTraceLimit = 0;

globalThis.__compile = (text) => {
  let request;
  try {
    request = JSON.parse(text);
  } catch (e) {
    return JSON.stringify({ ok: false, error: report(new CompileError("Error", "The request is not JSON: " + e.message)) });
  }
  if (request === null || typeof request !== "object")
    return JSON.stringify({ ok: false, error: report(new CompileError("Error", "The request is not an object")) });
  return JSON.stringify(compile(request));
};
