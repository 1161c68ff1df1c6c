// What cannot be compiled says what is wrong and where, and costs no more than its size.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeJsc, compile, jsc } from "./lib.js";

after(closeJsc);

// Both engines must agree on the error.
async function failing(modules, main, more) {
  const a = compile(modules, main, more);
  const b = await jsc().compile(modules, main ?? Object.keys(modules)[0], more);
  assert.deepEqual(a, b);
  assert.equal(a.ok, false);
  return a.error;
}

test("a syntax error has a line, a column and an excerpt", async () => {
  assert.deepEqual(await failing({ "main.js": "let ok = 1;\n\tlet x = ;\n" }), {
    name: "SyntaxError",
    message: "Unexpected token",
    module: "main.js",
    line: 2,
    column: 10,
    excerpt: "\tlet x = ;\n\t        ^",
  });
  const long = await failing({ "m.js": "x".repeat(500) + " +* " + "y".repeat(500) });
  assert.equal(long.column, 503);
  assert.ok(long.excerpt.length < 250);
});

test("the first broken module in import order is the one reported", async () => {
  const e = await failing({ "m.js": 'import "a.js"; import "b.js";', "a.js": 'import "c.js"', "b.js": "let 1;", "c.js": "\nlet 2;" });
  assert.equal(`${e.module}:${e.line}`, "c.js:2");
});

test("specifiers that lead nowhere say why", async () => {
  const cases = {
    "./x.js": "Cannot find module './x.js' imported from 'lib/main.js'",
    "./Util.js": "Cannot find module './Util.js' imported from 'lib/main.js'; did you mean 'lib/util.js'?",
    "node:fs": /Node\.js built-in modules are not available here/,
    "fs/promises": /Node\.js built-in modules are not available here/,
    "https://esm.sh/lodash": /not loaded from URLs; add the source/,
    lodash: /npm packages are not available here; bundle/,
    "npm:zod": /packages are not installed/,
    "cloudflare:email": /only cloudflare:workers and cloudflare:sockets exist here/,
    "weird:thing": /scheme is not supported/,
  };
  for (const [specifier, message] of Object.entries(cases)) {
    const e = await failing({ "lib/main.js": `\n import x from ${JSON.stringify(specifier)};`, "lib/util.js": "" }, "lib/main.js");
    assert.equal(e.name, "Error");
    if (typeof message === "string") assert.equal(e.message, message);
    else assert.match(e.message, message);
    assert.equal(`${e.line}:${e.column}`, "2:16");
  }
});

test("names resolve exactly, then as paths, then with the usual endings", async () => {
  const modules = { "a/main.ts": 'import "./x.js"; import "../b/y"; import "z.js"; import "/b/y.js"; import "./dir"; import "b/y.js"; import "w.js"; import "./q.mjs"' };
  for (const n of ["a/x.ts", "b/y.js", "z.js", "a/dir/index.ts", "a/w.js", "a/q.mts"]) modules[n] = "";
  const p = compile(modules, "a/main.ts");
  assert.ok(p.ok, JSON.stringify(p.error));
  assert.deepEqual(
    p.modules[0].deps.map((i) => p.modules[i].name),
    ["a/x.ts", "b/y.js", "z.js", "b/y.js", "a/dir/index.ts", "b/y.js", "a/w.js", "a/q.mts"],
  );
});

test("missing exports are found before anything runs", async () => {
  const e = await failing({ "m.js": 'import a from "./a.js";\nimport { b,\n  c as d } from "./a.js";', "a.js": "export default 1; export const b = 2;" });
  assert.equal(e.message, "The requested module './a.js' does not provide an export named 'c'");
  assert.equal(`${e.name} ${e.module}:${e.line}:${e.column}`, "SyntaxError m.js:3:3");
  const r = await failing({ "m.js": 'export { nope } from "./a.js"', "a.js": 'export * from "./m.js"' });
  assert.match(r.message, /does not provide an export named 'nope'/);
  const w = await failing({ "m.js": 'import { Nope } from "cloudflare:workers"' });
  assert.match(w.message, /'cloudflare:workers' does not provide an export named 'Nope'/);
  const j = await failing({ "m.js": 'import { k } from "./j.json"', "j.json": '{"k":1}' });
  assert.match(j.message, /'.\/j.json' does not provide an export named 'k'/);
});

test("requests that are not requests", async () => {
  const cases = [
    [{ modules: {} }, /mainModule/],
    [{ mainModule: "x", modules: null }, /modules/],
    [{ mainModule: "x", modules: {} }, /'x' is not among/],
    [{ mainModule: "x", modules: { x: 5 } }, /must be a string or an object/],
    [{ mainModule: "x", modules: { x: { js: "", ts: "" } } }, /must be a string or an object/],
    [{ mainModule: "x", modules: { x: { js: 5 } } }, /must be a string/],
    [{ mainModule: "x", modules: { x: { wasm: "AA==" } } }, /WebAssembly modules are not supported/],
    [{ mainModule: "x.py", modules: { "x.py": "print()" } }, /Python modules are not supported/],
    [{ mainModule: "x", modules: { x: "", "./x": "" } }, /same path/],
    [{ mainModule: "x\ny", modules: { "x\ny": "" } }, /control character/],
    [{ mainModule: "x", modules: { x: "", "": "" } }, /empty/],
    [{ mainModule: "x", modules: { x: "", "cloudflare:workers": "" } }, /reserved/],
    [{ mainModule: "cay:loader", modules: { "cay:loader": "" } }, /reserved/],
    [{ mainModule: "x", modules: { x: "", ["y".repeat(600)]: "" } }, /longer than 512/],
  ];
  for (const [request, message] of cases) {
    const text = JSON.stringify(JSON.stringify(request));
    const out = JSON.parse(await jsc().job("P", `print(__compile(${text}))`));
    assert.equal(out.ok, false);
    assert.match(out.error.message, message);
  }
  for (const text of ["{", "5", "null"]) {
    const out = JSON.parse(await jsc().job("P", `print(__compile(${JSON.stringify(text)}))`));
    assert.equal(out.ok, false);
  }
});

test("limits on modules and bytes have names, defaults and settings", async () => {
  const many = Object.fromEntries(Array.from({ length: 501 }, (_, i) => [`m${i}.js`, ""]));
  assert.match((await failing(many, "m0.js")).message, /501 modules were given; the limit is 500/);
  assert.ok(compile(many, "m0.js", { limits: { modules: 501 } }).ok);
  assert.match((await failing({ "m.js": "//" + "x".repeat(5 << 20) }, "m.js")).message, /larger than 4194304 bytes/);
  assert.match((await failing({ "m.js": "12345" }, "m.js", { limits: { bytes: 4 } })).message, /larger than 4 bytes/);
  const names = (n) => Array.from({ length: n }, (_, i) => `a as a${i}`).join();
  const imports = (n) => ({ "m.js": `import { ${names(n)} } from "./d.js"; print(a${n - 1})`, "d.js": "export const a = 1;" });
  assert.match((await failing(imports(10001), "m.js")).message, /imports more than 10000 names/);
  assert.equal(await jsc().run(await jsc().compile(imports(10000), "m.js")), "1\nDONE");
  const four = "'é€😀'"; // 2 quotes and 2 + 3 + 4 bytes
  assert.ok(compile({ "m.js": four }, "m.js", { limits: { bytes: 11 } }).ok);
  assert.equal(compile({ "m.js": four }, "m.js", { limits: { bytes: 10 } }).ok, false);
});

test("values are checked: json and data", async () => {
  const j = await failing({ "m.js": 'import "./j.json"', "j.json": '{\n  "a": 1,\n  "b": [1, }\n' });
  assert.equal(`${j.name} ${j.module}:${j.line}:${j.column}`, "SyntaxError j.json:3:12");
  for (const [text, at] of [["", "1:1"], ["{", "1:2"], ["[1 2]", "1:4"], ['{"a" 1}', "1:6"], ["nul", "1:1"], ['"a\nb"', "1:1"], ["1 2", "1:3"], ['{"a":1,}', "1:8"], ["[1,]", "1:4"], ["01", "1:2"]]) {
    const e = await failing({ "m.js": 'import "./j.json"', "j.json": text });
    assert.equal(`${e.line}:${e.column}`, at, text);
  }
  assert.match((await failing({ "m.js": 'import "./d"', d: { data: "A*==" } })).message, /base64/);
  assert.match((await failing({ "m.js": 'import "./d"', d: { data: "AAA" } })).message, /base64/);
});

test("import attributes are checked", async () => {
  assert.match((await failing({ "m.js": 'import "./a.js" with { type: "json" }', "a.js": "" })).message, /is not a json module/);
  assert.match((await failing({ "m.js": 'import "./a.js" with { lazy: "1" }', "a.js": "" })).message, /'lazy' is not supported/);
  assert.match((await failing({ "m.js": 'import "./a.js" with { type: "css" }', "a.js": "" })).message, /type 'css' is not supported/);
});

test("what the engine cannot do is refused with a reason", async () => {
  assert.match((await failing({ "m.js": "{ using x = null }" })).message, /'using' declarations are not supported/);
  assert.match((await failing({ "m.ts": "@dec class A {}" })).message, /Decorators are not supported/);
  assert.match((await failing({ "m.ts": "class A { @dec x = 1 }" })).message, /Decorators are not supported/);
  assert.match((await failing({ "m.ts": "export = 5" })).message, /'export =' is not supported/);
  assert.match((await failing({ "m.ts": 'import x = require("y"); x()' })).message, /'import x = require\(\)' is not supported/);
});

// With the processor time it took: the machine may be busy with other things.
async function timed(modules) {
  const text = JSON.stringify(JSON.stringify({ mainModule: Object.keys(modules)[0], modules }));
  const answer = await jsc().job("P", `{ const text = ${text}, t = cpuUs(), r = __compile(text); print(cpuUs() - t); print(r) }`);
  const end = answer.indexOf("\n");
  return { ms: Number(answer.slice(0, end)) / 1000, out: JSON.parse(answer.slice(end + 1)) };
}

test("nested source gives a clean error", async () => {
  const n = 500000;
  const cases = {
    parens: "(".repeat(n),
    closed: "(".repeat(n) + ")".repeat(n),
    brackets: "[".repeat(n),
    braces: "{".repeat(n),
    objects: "x = " + "{a:".repeat(n),
    unary: "x = " + "!".repeat(n) + "1",
    news: "x = " + "new ".repeat(n) + "X",
    arrows: "x = " + "a=>".repeat(n) + "1",
    ternary: "x = " + "a?".repeat(n) + "1",
    elses: "if (a) b; " + "else if (a) b; ".repeat(20000),
    plus: "x = " + "1+".repeat(n) + "1",
    power: "x = " + "1**".repeat(n) + "1",
    assign: "x = " + "x=".repeat(n) + "1",
    templates: "x = " + "`${".repeat(n),
    functions: "function f(){".repeat(20000),
    classes: "x = " + "class{a=".repeat(20000),
    labels: Array.from({ length: 20000 }, (_, i) => `l${i}:`).join(""),
    patterns: "let " + "[".repeat(n),
    calls: "f(".repeat(n),
    awaits: "await ".repeat(n) + "1",
    yields: "function* g(){" + "yield ".repeat(n),
    blocks: "if(1)".repeat(n) + ";",
    regexp: "x = /" + "(".repeat(50000) + ")".repeat(50000) + "/",
    classset: "x = /" + "[".repeat(50000) + "]".repeat(50000) + "/v",
  };
  for (const [name, source] of Object.entries(cases)) {
    const { out, ms } = await timed({ "m.js": source });
    assert.equal(out.ok, false, name);
    // The engine's stack limit is the backstop; these are to be met before it.
    const backstop = ["power", "assign", "regexp", "classset"].includes(name);
    assert.match(out.error.message, backstop ? /nested|chains|Invalid|stack/i : name === "plus" ? /chains more than/ : /nested deeper than/, name);
    assert.ok(ms < 4000, `${name} took ${ms} ms`);
  }
  for (const [name, source] of Object.entries({
    types: "let x: " + "(".repeat(n),
    generics: "let x: " + "A<".repeat(n),
    typeargs: "x = " + "f<".repeat(40000) + "1",
    arrows: "x = " + "(a?(".repeat(2000),
    ternaries: "x = " + "a?(b):".repeat(300) + "1",
    ambiguous: "x = " + "a ? (b, c".repeat(300),
    asyncs: "x = " + "async (".repeat(300),
    lts: "x = " + "<T>(a=".repeat(60), // twice the work at each level, but for the guard
    asyncgenerics: "x = " + "async<T>(x=".repeat(60), // three times
    conditional: "type X = " + "A extends B ? ".repeat(3000),
    unions: "type X = " + "| A".repeat(100000),
    namespaces: "namespace A {".repeat(3000),
    tuples: "type X = " + "[".repeat(n),
    objects: "type X = " + "{a:".repeat(n),
    functions: "type X = " + "(a: ".repeat(3000),
  })) {
    const { out, ms } = await timed({ "m.ts": source });
    assert.ok(out.ok || out.error.message, name);
    assert.ok(ms < 5000, `${name} took ${ms} ms`);
  }
  const jsx = await jsc().compile({ "m.jsx": "x = " + "<a>".repeat(100000) }, "m.jsx");
  assert.equal(jsx.ok, false);
});

test("star exports in a knot end, or are refused", async () => {
  const n = 120;
  const knot = {};
  for (let i = 0; i < n; i++) knot[`m${i}.js`] = Array.from({ length: n }, (_, k) => `export * from "./m${k}.js";`).join("") + `export const v${i} = 1;`;
  knot["main.js"] = 'import * as ns from "./m0.js"; ' + Array.from({ length: n }, (_, i) => `import { v${i} } from "./m${(i * 7) % n}.js";`).join("");
  let t = performance.now();
  const ok = await jsc().compile(knot, "main.js");
  assert.ok(performance.now() - t < 60000);
  assert.ok(ok.ok, JSON.stringify(ok.error));
  // Every name is behind every star: 40,000 names by 160,000 edges.
  const hub = Array.from({ length: 400 }, (_, k) => `export * from "./s${k}.js";`).join("");
  const wide = { "main.js": Array.from({ length: 40000 }, (_, i) => `import { n${i} } from "./h.js";`).join("\n"), "h.js": hub + 'export * from "./z.js";' };
  wide["z.js"] = Array.from({ length: 40000 }, (_, i) => `export const n${i} = 1;`).join("\n");
  for (let k = 0; k < 400; k++) wide[`s${k}.js`] = hub;
  t = performance.now();
  const refused = await jsc().compile(wide, "main.js", { limits: { bytes: 1 << 26, imports: 1e6 } });
  assert.ok(performance.now() - t < 60000);
  assert.match(refused.error.message, /The module graph is too complex/);
});
