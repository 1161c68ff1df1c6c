// Programs of plain modules: what src/compile/quick.c makes of them beside what src/compile/js does. It must be the
// same, byte for byte, or nothing at all.
//   node plain.js <count> <seed>      random modules, and mutations of real ones
import { spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { compileText, here, random, top } from "./lib.js";

const program = path.join(process.env.CAY_BUILD ?? path.join(top, "build"), "tests/quick-compile");

export class Quick {
  constructor() {
    this.child = spawn(program, { stdio: ["pipe", "pipe", "inherit"] });
    this.child.stdin.on("error", () => {});
    this.waiting = [];
    this.parts = [];
    this.size = 0;
    this.need = -1; // bytes of the answer that is coming in
    this.child.stdout.on("data", (d) => {
      this.parts.push(d);
      this.size += d.length;
      if (this.size >= this.need) this.drain();
    });
    this.child.on("exit", (code, signal) => {
      this.gone = `quick-compile ended: ${signal ?? code}`;
      for (const w of this.waiting.splice(0)) w.reject(new Error(this.gone));
    });
  }
  drain() {
    let all = Buffer.concat(this.parts);
    for (;;) {
      const line = all.indexOf(10);
      this.need = line < 0 ? -1 : line + 1 + Number(all.subarray(0, line).toString());
      if (line < 0 || all.length < this.need) break;
      this.waiting.shift().resolve(all.subarray(line + 1, this.need).toString());
      all = all.subarray(this.need);
    }
    this.parts = [all];
    this.size = all.length;
  }
  // The response, or "" for a program that is not plain.
  compile(request) {
    if (this.gone) return Promise.reject(new Error(this.gone));
    const body = Buffer.from(request);
    return new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject });
      this.child.stdin.write(Buffer.concat([Buffer.from(`${body.length}\n`), body]));
    });
  }
  close() {
    this.child.stdin.end();
    return new Promise((r) => (this.child.exitCode !== null || this.child.signalCode ? r() : this.child.on("exit", r)));
  }
}

// Compares many at a time. `requests` yields texts; returns how many there were, how many were plain, and what differs.
export async function compare(requests) {
  const quick = new Quick();
  const result = { count: 0, plain: 0, valid: 0, different: [] };
  const one = async (request) => {
    const got = await quick.compile(request);
    const want = compileText(request);
    result.count++;
    if (want.startsWith('{"ok":true')) result.valid++;
    if (got === "") return;
    result.plain++;
    if (got !== want && result.different.length < 5) result.different.push({ request, got, want });
  };
  let batch = [];
  for (const request of requests) {
    batch.push(one(request));
    if (batch.length < 200) continue;
    await Promise.all(batch);
    batch = [];
    if (result.different.length) break;
  }
  await Promise.all(batch);
  await quick.close();
  return result;
}

export const requestOf = (modules, mainModule = Object.keys(modules)[0]) => JSON.stringify({ mainModule, modules });

export function describe({ request, got, want }) {
  const { modules } = JSON.parse(request);
  return `${Object.entries(modules).map(([n, t]) => `--- ${n}\n${t}`).join("\n")}\n--- quick\n${got}\n--- js\n${want}`;
}

// ---- random modules ----

const NAMES = ["a", "b", "c", "x", "rows", "i", "get", "set", "from", "as", "$", "_", "of", "async", "static", "let", "name", "constructor", "undefined", "target", "meta", "$0", "type"];
const WORDS = ["await", "yield", "arguments", "eval", "new.target", "import.meta", "super", "super()", "super.x", "this", "null", "enum", "class", "in", "delete", "__proto__", "var"];
const PATTERNS = ["a", "[a-z]+", "\\d{2,3}?", "(a|b)*", "(?:x)", "^$", "[^\\]/]", "\\/", "(?=a)b", "[\\w.-]", "a{2}", "a{3,2}", "[z-a]", "(?<n>a)", "\\1", "a**", "(?=a)*", "(", "a]", "{", "\\u0041", "\\p{L}", "[\\d-x]", "é", "+", "a|", "(?<!a)b", "\\cA", "[a-\\d]", "\\k<n>", "x{1", "\\b+", "[]", "[^]", "(?i:a)"];
const STRINGS = ['"a"', "'b'", '"\\n"', '"\\u0041"', '"\\u{1F600}"', '"\\x41"', '"\\0"', '"\\01"', '"\\8"', '"\\u00"', '"é😀"', '"use strict"', '"__proto__"', '"\u2028"', "'it\\'s'", '"<!--"', '"$0"', '"\\\n"', '"\\u{110000}"', '"\\u{0041}"', '"', "''"];
const NUMBERS = ["0", "1", "1.5", ".5", "1.", "1e3", "1e", "0x1f", "0xg", "1_000", "1__0", "0b1", "010", "09", "1n", "5..toString()", "1e+3", "0.0", "3in []", "0_1", "1_"];
const BINARY = ["+", "-", "*", "/", "%", "**", "<", ">", "<=", ">=", "==", "===", "!=", "!==", "&&", "||", "??", "&", "|", "^", "<<", ">>", ">>>", "in", "instanceof", ",", "-->", "<!--"];
const ASSIGN = ["=", "=", "=", "+=", "-=", "||=", "&&=", "??=", "**=", "/=", ">>>="];
const UNARY = ["!", "-", "+", "~", "typeof ", "void ", "delete ", "++", "--", "await ", "yield "];

// Source text by the grammar, most of it plain; `odd` is the share, in percent, of what may well not be.
class Writer {
  constructor(r, odd) {
    this.r = r;
    this.odd = odd;
    this.left = 60;
    this.names = 0;
    this.place = { function: false, async: false, loop: false };
  }
  // Runs `f` where statements stand in something else.
  inside(place, f) {
    const outer = this.place;
    this.place = place;
    const text = f();
    this.place = outer;
    return text;
  }
  // A name to read.
  name() {
    const { r } = this;
    return r.chance(this.odd) ? r.pick(NAMES) : r.pick(NAMES.slice(0, 6)) + (r.chance(50) ? r(this.names + 1) : "");
  }
  // A name to declare, new most often.
  fresh() {
    const { r } = this;
    return r.chance(3) ? this.name() : r.pick(NAMES.slice(0, 6)) + ++this.names;
  }
  gap() {
    const { r } = this;
    return r.chance(94) ? " " : r.pick(["\n", "  ", "/* c */", "// c\n", "\t", "\r\n", "/*\n*/", "/* é */", "\u00a0", "\n\n"]);
  }
  end() {
    return this.r.chance(80) ? ";\n" : this.r.pick(["\n", ";", "", "; ", "\n\n", "\r\n"]);
  }
  many(n, f, between = ", ") {
    return Array.from({ length: this.r(n + 1) }, f).join(between);
  }
  string() {
    return this.r.chance(this.odd) ? this.r.pick(STRINGS) : this.r.pick(STRINGS.slice(0, 3));
  }
  number() {
    return this.r.chance(this.odd) ? this.r.pick(NUMBERS) : this.r.pick(NUMBERS.slice(0, 6));
  }
  regex() {
    const { r } = this;
    return r.chance(this.odd * 2) ? `/${r.pick(PATTERNS)}${r.pick(PATTERNS)}/${r.pick(["", "g", "gi", "u", "v", "gg", "y", "x", "ds"])}` : `/${r.pick(PATTERNS.slice(0, 11))}/${r.pick(["", "g", "i"])}`;
  }
  template() {
    return "`" + this.many(3, () => this.r.pick(["a", "\\n", " $ ", "{", "é", "$0", this.r.chance(this.odd) ? "\\u00" : "b"]) + (this.r.chance(50) ? "${" + this.expression() + "}" : ""), "") + "`";
  }
  key() {
    const { r } = this;
    return r.pick([() => this.name(), () => this.name(), () => this.string(), () => this.number(), () => `[${this.assign()}]`, () => (r.chance(this.odd) ? r.pick(WORDS) : "default")])();
  }
  property() {
    const { r } = this;
    const prefix = r.chance(20) ? r.pick(["async ", "async ", "async ", "async\n", "get ", "set ", "*", "static ", "async *"]) : "";
    return r.pick([
      () => `${this.key()}: ${this.assign()}`,
      () => this.name(),
      () => `...${this.assign()}`,
      () => `${prefix}${this.key()}${this.params()} ${this.body(prefix === "async ")}`,
      () => (r.chance(this.odd) ? `${this.name()} = ${this.assign()}` : this.name()),
      () => (r.chance(this.odd) ? `#${this.name()}: 1` : `${this.name()}: ${this.number()}`),
    ])();
  }
  pattern() {
    const { r } = this;
    if (--this.left < 0 || r.chance(55)) return this.fresh();
    const value = () => (r.chance(25) ? ` = ${this.assign()}` : "");
    const rest = r.chance(15) ? `...${this.pattern()}${r.chance(this.odd) ? "," : ""}` : "";
    if (r.chance(40)) return `[${[this.many(3, () => (r.chance(90) ? this.pattern() + value() : "")), rest].filter(Boolean).join(", ")}]`;
    return `{ ${[this.many(3, () => (r.chance(60) ? this.fresh() : `${this.key()}: ${this.pattern()}`) + value()), rest].filter(Boolean).join(", ")} }`;
  }
  params() {
    return `(${[this.many(2, () => this.pattern() + (this.r.chance(20) ? ` = ${this.assign()}` : "")), this.r.chance(8) ? `...${this.pattern()}` : ""].filter(Boolean).join(", ")}${this.r.chance(3) ? "," : ""})`;
  }
  block() {
    return `{${this.gap()}${this.statements(3)}}`;
  }
  body(async = false) {
    return this.inside({ function: true, async, loop: false }, () => this.block());
  }
  loop() {
    return this.inside({ ...this.place, loop: true }, () => this.statement());
  }
  arrow() {
    const { r } = this;
    const head = r.chance(30) ? this.fresh() : this.params();
    const async = r.chance(40);
    const body = r.chance(50) ? this.body(async) : this.inside({ function: true, async, loop: false }, () => this.assign());
    return `${async ? "async " : ""}${head}${r.chance(98) ? " =>" : "\n=>"} ${body.startsWith("{") && r.chance(50) ? `(${body})` : body}`;
  }
  function(named = this.r.chance(60)) {
    const { r } = this;
    const async = r.chance(50);
    return `${async ? "async " : ""}function${r.chance(this.odd) ? "*" : ""} ${named ? this.fresh() : ""}${this.params()} ${this.body(async)}`;
  }
  class(named = this.r.chance(50)) {
    const { r } = this;
    const member = () => {
      const prefix = r.chance(30) ? r.pick(r.chance(80) ? ["static ", "async ", "static async "] : ["get ", "set ", "*", "async\n"]) : "";
      if (r.chance(this.odd)) return r.pick(["x = 1;", "#p = 1;", "static { }", "constructor() {}", "static prototype() {}", "'constructor'() {}", "get constructor() {}", ";", "async constructor() {}", "static x;"]);
      return `${prefix}${r.chance(10) ? "constructor" : this.key()}${this.params()} ${this.body(prefix.includes("async "))}`;
    };
    return `class ${named ? this.fresh() : ""} ${r.chance(40) ? `extends ${this.unary()} ` : ""}{ ${this.many(3, member, " ")} }`;
  }
  primary() {
    const { r } = this;
    if (--this.left < 0) return this.name();
    return r.pick([
      () => this.name(), () => this.name(), () => this.name(), () => this.number(), () => this.string(), () => this.regex(), () => this.template(),
      () => `(${this.expression()})`, () => `[${this.many(3, () => (r.chance(10) ? "" : (r.chance(10) ? "..." : "") + this.assign()))}]`, () => `{ ${this.many(3, () => this.property())} }`,
      () => this.function(), () => this.class(), () => `new ${r.chance(70) ? this.name() : this.primary()}${r.chance(70) ? `(${this.many(2, () => this.assign())})` : ""}`,
      () => (r.chance(this.odd) ? r.pick(WORDS) : "this"), () => `(${this.arrow()})`, () => (r.chance(this.odd) ? `import(${this.string()})` : "null"),
    ])();
  }
  chain() {
    const { r } = this;
    let text = this.primary();
    for (let n = r(3); n > 0; n--)
      text += r.pick([() => `.${r.chance(10) ? "class" : this.name()}`, () => `[${this.expression()}]`, () => `(${this.many(2, () => (r.chance(10) ? "..." : "") + this.assign())})`, () => `?.${this.name()}`, () => `?.(${this.assign()})`, () => `?.[${this.number()}]`, () => this.template(), () => `\n.${this.name()}`, () => (r.chance(this.odd) ? `?.5:1` : "")])();
    return text;
  }
  unary() {
    const { r } = this;
    const awaits = this.place.async && r.chance(10) ? "await " : "";
    const sign = r.chance(12) ? r.pick(r.chance(this.odd) ? UNARY : UNARY.slice(0, 6)) : "";
    return awaits + sign + (r.chance(4) ? `${this.name()}++` : this.chain()) + (r.chance(1) ? r.pick(["++", "--", "\n++"]) : "");
  }
  operators() {
    let text = this.unary();
    for (let n = this.r(3); n > 0 && --this.left > 0; n--) text += `${this.gap()}${this.r.pick(this.r.chance(this.odd) ? BINARY : BINARY.slice(0, 16).concat(BINARY.slice(17, 25)))} ${this.unary()}`;
    return text;
  }
  assign() {
    const { r } = this;
    if (--this.left < 0) return this.name();
    return r.pick([() => this.operators(), () => this.operators(), () => this.operators(), () => this.arrow(), () => `${this.operators()} ? ${this.assign()} : ${this.assign()}`, () => `${r.chance(70) ? this.name() : r.chance(90) ? `${this.chain()}.${this.name()}` : this.chain()} ${r.pick(ASSIGN)} ${this.assign()}`])();
  }
  expression() {
    return this.assign() + (this.r.chance(6) ? ", " + this.assign() : "");
  }
  declaration() {
    const { r } = this;
    const kind = r.chance(this.odd) ? r.pick(["var", "using", "await using"]) : r.pick(["let", "const"]);
    return `${kind} ${this.pattern()}${r.chance(95) ? ` = ${this.assign()}` : ""}${r.chance(10) ? `, ${this.pattern()} = ${this.assign()}` : ""}`;
  }
  statement() {
    const { r } = this;
    if (--this.left < 0) return `${this.name()};`;
    const { place } = this;
    const sure = (holds, f) => (holds || r.chance(3) ? f : () => `${this.name()}.x(${this.assign()});\n`);
    return r.pick([
      () => `${this.name()}.${this.name()}(${this.expression()})${this.end()}`, () => this.expression() + this.end(), () => this.declaration() + this.end(), () => this.declaration() + this.end(),
      () => `if (${this.expression()}) ${this.statement()}${r.chance(40) ? `else ${this.statement()}` : ""}`,
      () => `for (${r.pick([`const ${this.pattern()} of ${this.assign()}`, `let ${this.fresh()} = 0; ${this.expression()}; ${this.name()}++`, `const ${this.fresh()} in ${this.expression()}`, `${this.expression()}; ; `, ";;", r.chance(this.odd) ? `${this.pattern()} of ${this.assign()}` : ";;", `${this.declaration()}; ${this.name()};`])}) ${this.loop()}`,
      () => `${place.async && r.chance(50) ? "for await" : "for"} (const ${this.pattern()} of ${this.assign()}) ${this.loop()}\n`,
      () => `while (${this.expression()}) ${this.loop()}`, () => `do ${this.loop()} while (${this.expression()})${this.end()}`,
      sure(place.function, () => `return${r.chance(80) ? " " + this.expression() : ""}${this.end()}`), () => `throw ${this.expression()}${this.end()}`, sure(place.loop, () => r.pick(["break", "continue"]) + this.end()),
      () => `try ${this.block()} ${r.chance(80) ? `catch ${r.chance(70) ? `(${this.pattern()}) ` : ""}${this.block()}` : "finally {}"}${r.chance(30) ? ` finally ${this.block()}` : ""}\n`,
      () => `switch (${this.expression()}) { ${this.many(3, () => (r.chance(85) ? `case ${this.expression()}: ` : "default: ") + this.statements(2), "")}}\n`,
      () => `${this.block()}\n`, () => `${this.function(true)}\n`, () => `${this.class(true)}\n`, () => (r.chance(this.odd) ? `${this.name()}: ${this.statement()}` : ";"), sure(place.async, () => `await ${this.assign()}${this.end()}`),
      () => `${this.gap()}${this.gap()}`, () => (r.chance(this.odd) ? r.pick(['"use strict";', "debugger;", "with (a) b;", "//# sourceURL=x\n", "#!x\n", "\\u0061;", "é;", "@d class {}\n"]) : "// note\n"),
    ])();
  }
  statements(n) {
    return this.many(n, () => this.statement(), "");
  }
  import() {
    const { r } = this;
    const names = this.many(2, () => `${r.pick(["a", "b", "default", "c", "missing"].slice(0, r.chance(this.odd) ? 5 : 3))} as ${this.fresh()}`);
    const from = r.pick(["./b.js", "b.js", "./c.js", "./b.js", r.chance(this.odd) ? "./d.js" : "./c.js", r.chance(this.odd) ? "./main.js" : "./b.js"]);
    if (r.chance(20)) return `import { ${r.pick(["WorkerEntrypoint", "env, RpcTarget", "RpcTarget as T, env", "nothing"])} } from "cloudflare:workers"${this.end()}`;
    const list = names;
    return r.pick([`import { ${list}${r.chance(10) ? "," : ""} } from "${from}"`, `import ${this.fresh()} from "${from}"`, `import ${this.fresh()}, {${list}} from '${from}'`, r.chance(this.odd) ? `import "${from}"` : `import {${list}}${this.gap()}from "${from}"`, r.chance(this.odd) ? `import * as ${this.fresh()} from "${from}"` : ""]) + this.end();
  }
  export() {
    const { r } = this;
    const gap = r.chance(95) ? " " : this.gap();
    return r.pick([
      () => `export${gap}default ${this.function()}${r.chance(50) ? "\n" : this.end()}`, () => `export default ${this.assign()}${this.end()}`, () => `export default${gap}${this.class()}\n`, () => `export${gap}${this.declaration()}${this.end()}`,
      () => `export ${this.function(true)}\n`, () => `export ${this.class(true)}\n`, () => `export default {${this.gap()}${this.many(3, () => this.property())} }${this.end()}`, () => `export default async ${this.params()} => ${this.body(true)}${this.end()}`,
      () => (r.chance(this.odd) ? r.pick(["export * from './b.js';", `export { ${this.name()} };`, "export { a } from './b.js';", "export default 1;"]) : ""),
    ])();
  }
  module() {
    const { r } = this;
    const parts = [this.many(2, () => this.import(), ""), this.statements(3), r.chance(85) ? this.export() : this.export() + this.export(), this.statements(2)];
    if (r.chance(10)) parts.reverse();
    return parts.join("");
  }
}

const FIXED = { "b.js": "export const a = 1; export function b() {} export default class {}", "c.js": 'import { a as z } from "./b.js";\nexport let a = z, b = [a]; export default function c() {}' };

export function generate(seed) {
  const r = random(seed);
  const writer = new Writer(r, r.pick([0, 0, 0, 2, 5, 20]));
  writer.left = r.pick([5, 15, 40]);
  return requestOf({ "main.js": writer.module(), ...FIXED });
}

// ---- mutations ----

const root = (dir) => path.join(top, dir);
function* sourcesIn(dir, ends) {
  for (const e of readdirSync(dir, { withFileTypes: true })) {
    const p = path.join(dir, e.name);
    if (e.isDirectory() && e.name !== "node_modules") yield* sourcesIn(p, ends);
    else if (e.isFile() && ends.test(e.name)) yield readFileSync(p, "utf8");
  }
}

// Real modules: the project's own, those of its documentation, those of two libraries.
export function sources() {
  const list = [];
  for (const dir of ["src/compile/js", "src/isolate/js", "tests/compile", "tests/lib", "tests/e2e", "bench", "agents"]) list.push(...sourcesIn(root(dir), /\.m?js$/));
  for (const text of [...sourcesIn(root("docs"), /\.md$/), readFileSync(root("README.md"), "utf8")])
    for (const m of text.matchAll(/```(?:js|javascript|ts)\n([\s\S]*?)```/g)) list.push(m[1]);
  for (const dir of ["rxjs/dist/esm/internal/operators", "zod/v4/core"]) list.push(...sourcesIn(path.join(here, "node_modules", dir), /\.js$/));
  return list.filter((t) => t.length < 12000).map((t) => t.replace(/^(?:import|export [{*])[^;]*;$/gm, ""));
}

const TOKEN = /\s+|\/\/[^\n]*|\/\*[\s\S]*?\*\/|[\w$]+|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|=>|\.\.\.|[=!]==?|\?\?=?|\?\.|&&=?|\|\|=?|\*\*=?|\+\+|--|[-+*/%<>]=|[\s\S]/g;
const BITS = [...WORDS, ...NAMES, ...BINARY, ...ASSIGN, ...UNARY, ...STRINGS, ...NUMBERS, "(", ")", "{", "}", "[", "]", "=>", "...", "?", ":", ";", ",", ".", "?.", "`", "${", "/", "//", "/*", "*/", "\n", "\r", "\u2028", "\u00a0", "\ufeff", "#", "@", "\\", "function", "function*", "async", "await", "return", "export", "export default", "import", "class", "extends", "static", "for", "of", "if", "else", "do", "while", "switch", "case", "default", "break", "try", "catch", "finally", "throw", "let", "const", "var", "new", "get", "set", "label:", "debugger", "with", "using", "from", "as", "\u{1F600}", "\\u0061", "0n", "/a/g", "a => {}", "() => 1", "{}", "[]"];

export function mutate(text, r) {
  const tokens = text.match(TOKEN) ?? [];
  for (let n = 1 + r(2); n > 0; n--) {
    const at = r(tokens.length + 1);
    const from = r(tokens.length + 1);
    r.pick([
      () => tokens.splice(at, 1 + r(2)),
      () => tokens.splice(at, 0, r.pick(BITS), r.chance(50) ? " " : ""),
      () => tokens.splice(at, 1, r.pick(BITS)),
      () => tokens.splice(at, 0, ...tokens.slice(from, from + 1 + r(6))),
      () => tokens.splice(at, 1, tokens[from] ?? ""),
      () => ([tokens[at], tokens[from]] = [tokens[from] ?? "", tokens[at] ?? ""]),
    ])();
  }
  return tokens.join("");
}

// Some declarations of a source, whole ones, so that a mutation is the only error there is.
function pieceOf(text, r) {
  const lines = text.split("\n");
  const starts = [...lines.keys()].filter((i) => /^[\w/]/.test(lines[i]) && (i === 0 || /^(?:[}\])].*|)$/.test(lines[i - 1])));
  if (!starts.length) return text;
  const from = r(starts.length);
  return lines.slice(starts[from], starts[from + 1 + r(3)]).join("\n");
}

export function* mutations(count, seed, list) {
  const r = random(seed);
  for (let i = 0; i < count; i++) {
    const text = r.chance(30) ? new Writer(r, 0).module() : pieceOf(r.pick(list), r);
    yield requestOf({ "main.js": mutate(text, r), ...FIXED });
  }
}

// ---- test262-parser-tests ----

export function* parserTests() {
  const dir = path.join(here, "node_modules/test262-parser-tests");
  for (const kind of ["pass", "pass-explicit", "fail", "early"])
    for (const text of sourcesIn(path.join(dir, kind), /\.js$/)) {
      yield requestOf({ "main.js": text });
      yield requestOf({ "main.js": `export default async function (a) {\n${text}\n}` });
      yield requestOf({ "main.js": `export const f = () => {${text}}` });
      yield requestOf({ "main.js": `class A extends B { constructor() { while (1) {${text}} } }` });
    }
}

export function* generated(count, seed) {
  for (let i = 0; i < count; i++) yield generate(seed * 1000003 + i);
}

if (process.argv[1] === path.join(here, "plain.js")) {
  const count = Number(process.argv[2] ?? 5000);
  const seed = Number(process.argv[3] ?? 1);
  const list = sources();
  const runs = { "parser tests": parserTests(), sources: list.map((t) => requestOf({ "main.js": t })), generated: generated(count, seed), mutations: mutations(count, seed, list) };
  let failed = false;
  for (const [name, requests] of Object.entries(runs)) {
    const r = await compare(requests);
    for (const d of r.different) console.log(describe(d));
    failed ||= r.different.length > 0;
    console.log(`${name}, seed ${seed}: ${r.count} programs, ${r.valid} of them good, ${r.plain} plain, ${r.different.length} different`);
  }
  process.exitCode = failed ? 1 : 0;
}
