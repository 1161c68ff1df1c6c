// ES module semantics, each program in node and in JavaScriptCore.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeJsc, compile, run } from "./lib.js";

after(closeJsc);

const prints = async (modules, expected, options) => assert.equal(await run(modules, options), expected.join("\n"));

test("a single module with a default async function runs", async () => {
  await prints(
    { "main.js": "export default async function(env) {\n  return env.x + 1;\n}" },
    ["default 42", "DONE"],
    { then: "async p => { const f = p.get('default'); print(f.name, await f({x: 41})); }" },
  );
});

test("the harness pair runs", async () => {
  const harness = `
import { WorkerEntrypoint } from "cloudflare:workers";
import run from "user-code.js";
export default class extends WorkerEntrypoint {
verify() {}
async run() {
await run(this.env);
}
}
`;
  const user = 'export default async function(env) {\n  const rows = await env.db.query("q");\n  print("rows", rows.length);\n}';
  await prints({ "harness.js": harness, "user-code.js": user }, ["default", "rows 2", "DONE"], {
    then: "async p => { const C = p.get('default'); print(C.name); await new C({}, {db: {query: async () => [1, 2]}}).run(); }",
  });
});

test("bindings are live, through re-exports and namespaces", async () => {
  await prints(
    {
      "main.js": `import { n, up } from "./counter.js"; import * as ns from "./again.js"; import { m } from "./again.js";
print(n, ns.m, m); up(); print(n, ns.m, m); export { n as out } from "./counter.js";`,
      "again.js": `export { n as m } from "./counter.js"; export * from "./counter.js";`,
      "counter.js": "export let n = 1; export function up() { n++; }",
    },
    ["1 1 1", "2 2 2", "2", "DONE"],
    { then: "p => print(p.get('out'))" },
  );
});

test("imports cannot be assigned, in any form", async () => {
  const forms = ["x = 1", "x++", "[x] = [1]", "({x} = {x: 1})", "({y: x} = {y: 1})", "for (x of [1]);", "x += 1", "x &&= 1", "x ??= 1"];
  for (const dep of ["export const x = 1;", "export let x = 1; export function set() { x = 2 }"]) {
    const body = forms
      .map((f) => `try { ${f}; print("no"); } catch (e) { print(e instanceof TypeError ? "ok" : e); }`)
      .join("\n");
    const lines = forms.map((f) => (f === "x ??= 1" ? "no" : "ok"));
    await prints({ "main.js": `import { x } from "./dep.js";\n${body}`, "dep.js": dep }, [...lines, "DONE"]);
  }
});

test("cycles: hoisted functions are there, the rest is in its dead zone", async () => {
  await prints(
    {
      "main.js": `import { b, callA } from "./b.js"; export function a() { return "a"; } export const c = 1; export class K {} export default 5;
print(callA(), b);`,
      "b.js": `import d, { a, c, K } from "./main.js"; export const b = "b"; export const callA = () => a();
print(a()); for (const f of [() => c, () => K, () => d, () => typeof c]) try { f(); print("no") } catch (e) { print(e instanceof ReferenceError) }`,
    },
    ["a", "true", "true", "true", "true", "a b", "DONE"],
  );
});

test("cycles: an anonymous default function is hoisted and is named default", async () => {
  await prints(
    {
      "main.js": `import "./b.js"; export default function () { return 1 }`,
      "b.js": `import f from "./main.js"; print(f(), f.name, JSON.stringify(Object.getOwnPropertyDescriptor(f, "name")));`,
    },
    ['1 default {"value":"default","writable":false,"enumerable":false,"configurable":true}', "DONE"],
  );
});

test("a module outside a cycle is usable by a function hoisted inside it", async () => {
  await prints(
    {
      "main.js": `import "./j.js"; import { k, v } from "./k.js"; export function f() { return k(); } export function g() { return v; }`,
      "j.js": `import { f, g } from "./main.js"; print(f()); try { g() } catch (e) { print(e instanceof ReferenceError) }`,
      "k.js": `export function k() { return "k"; } export const v = 1;`,
    },
    ["k", "true", "DONE"],
  );
});

test("anonymous defaults are named default, others keep their names", async () => {
  const cases = {
    "export default function () {}": "default",
    "export default async () => {}": "default",
    "export default class {}": "default",
    "export default class { static name = 'own' }": "own",
    "export default (class {})": "default",
    "export default (function () {})": "default",
    "export default function* () {}": "default",
    "export default function named() {}": "named",
    "export default class Named {}": "Named",
    "const a = () => {}; export default a": "a",
  };
  for (const [source, name] of Object.entries(cases)) {
    await prints({ "main.js": source }, [name, "DONE"], { then: "p => print(p.get('default').name)" });
  }
});

test("export * skips default, hides nothing local, drops ambiguous names", async () => {
  await prints(
    {
      "main.js": `import * as ns from "./hub.js"; print(Object.keys(ns).join());`,
      "hub.js": `export * from "./a.js"; export * from "./b.js"; export * from "./hub.js"; export const own = 1; export const inA = "hub";`,
      "a.js": `export const both = 1, inA = 2, same = 1; export default 3; export * from "./c.js";`,
      "b.js": `export const both = 2, inB = 2; export * from "./c.js";`,
      "c.js": `export const deep = 1;`,
    },
    ["deep,inA,inB,own,same", "DONE"],
  );
  const bad = compile({
    "main.js": `\nimport { both } from "./hub.js";`,
    "hub.js": `export * from "./a.js"; export * from "./b.js";`,
    "a.js": "export const both = 1;",
    "b.js": "export const both = 2;",
  });
  assert.equal(bad.error.name, "SyntaxError");
  assert.match(bad.error.message, /conflicting star exports for the name 'both'/);
  assert.equal(bad.error.line, 2);
});

test("namespace objects are exotic", async () => {
  await prints(
    {
      "main.js": `import * as ns from "./dep.js"; import * as again from "./dep.js";
const t = (f) => { try { return String(f()) } catch (e) { return e.constructor.name } };
print(Reflect.ownKeys(ns).map(String).join());
print(Object.getPrototypeOf(ns), Object.isExtensible(ns), Object.isFrozen(ns), Object.isSealed(ns), ns === again);
print(JSON.stringify(Object.getOwnPropertyDescriptor(ns, "b")), Object.prototype.toString.call(ns));
print(t(() => { ns.b = 1 }), t(() => { ns.nope = 1 }), t(() => delete ns.b), t(() => delete ns.nope), t(() => Reflect.set(ns, "b", 1)));
print(Reflect.defineProperty(ns, "b", { value: 2 }), Reflect.defineProperty(ns, "b", { value: 1, writable: true, enumerable: true, configurable: false }), Reflect.defineProperty(ns, "b", {}), Reflect.defineProperty(ns, "z", { value: 1 }));
print("b" in ns, "then" in ns, ns.missing, ns[Symbol.toStringTag], Reflect.setPrototypeOf(ns, null), Reflect.setPrototypeOf(ns, {}), t(() => "" + ns));
print(JSON.stringify(Object.entries(ns)), t(() => Object.freeze(ns)), t(() => Object.assign({}, ns).b));`,
      "dep.js": `export const b = 1; export { b as "10", b as "9", b as $, b as A }; export { b as "a-b" }; export default 7;`,
    },
    [
      "$,10,9,A,a-b,b,default,Symbol(Symbol.toStringTag)",
      "null false false true true",
      '{"value":1,"writable":true,"enumerable":true,"configurable":false} [object Module]',
      "TypeError TypeError TypeError true false",
      "false true true false",
      "true false undefined Module true false TypeError",
      '[["$",1],["10",1],["9",1],["A",1],["a-b",1],["b",1],["default",7]] TypeError 1',
      "DONE",
    ],
  );
});

test("a namespace in its dead zone throws on every read", async () => {
  await prints(
    {
      "main.js": `import "./b.js"; export let x = 1;`,
      "b.js": `import * as ns from "./main.js";
for (const f of [() => ns.x, () => Object.keys(ns), () => Object.getOwnPropertyDescriptor(ns, "x"), () => ({ ...ns })]) try { f(); print("no") } catch (e) { print(e instanceof ReferenceError) }
print("x" in ns, Reflect.ownKeys(ns).length);`,
    },
    ["true", "true", "true", "true", "true 2", "DONE"],
  );
});

test("import() of literals, computed names, json with attributes, and failures", async () => {
  await prints(
    {
      "main.js": `const name = "./" + ["de", "p"].join("") + ".js";
const ns = await import(name); print(ns.v, ns === await import("./dep.js"));
print((await import("./data.json", { with: { type: "json" } })).default.k);
const bad = async (f) => { try { await f(); print("no") } catch (e) { print(e.constructor.name + ": " + e.message) } };
await bad(() => import("./none.js"));
await bad(() => import("./dep.js", { with: { type: "json" } }));
await bad(() => import("./dep.js", 5));
await bad(() => import("./dep.js", { with: { nope: "x" } }));
await bad(() => import({ toString() { throw new RangeError("str") } }));
await bad(() => import("./broken.js"));
await bad(() => import("./throws.js"));
await bad(() => import("./throws.js"));
await bad(() => import(Symbol()).catch((e) => { throw new Error(e.constructor.name) }));
print(typeof import("./dep.js").then);`,
      "dep.js": `export const v = 1;`,
      "data.json": '{"k": [1, 2]}',
      "broken.js": "let x = ;",
      "throws.js": `print("once"); throw new Error("mine");`,
    },
    [
      "1 true",
      "1,2",
      "Error: Cannot find module './none.js' imported from 'main.js'",
      "TypeError: Module './dep.js' is imported with type 'json' but is not a json module",
      "TypeError: The second argument of import() must be an object",
      "TypeError: Import attribute 'nope' is not supported; only 'type' is",
      "RangeError: str",
      "SyntaxError: Unexpected token (broken.js:1:9)",
      "once",
      "Error: mine",
      "Error: mine",
      "Error: TypeError",
      "function",
      "DONE",
    ],
  );
});

test("a module that exports then is thenable for import() and for nobody else", async () => {
  await prints(
    {
      "main.js": `print(await import("./t.js")); export function then(f) { f("hijacked") }`,
      "t.js": `export function then(resolve) { resolve("from then") }`,
    },
    ["from then", "true", "DONE"],
    { then: "p => p.evaluate().then((q) => print(q === p))" },
  );
});

test("import.meta", async () => {
  await prints(
    {
      "lib/main.js": `import { m } from "./o.js"; print(import.meta.url, import.meta.main, Object.getPrototypeOf(import.meta), m.url, m.main, m === import.meta,
import . meta === import/* */.meta, typeof import.meta); import.meta.x = 1; print(import
.meta.x);`,
      "lib/o.js": "export const m = import.meta;",
    },
    ["file:///bundle/lib/main.js true null file:///bundle/lib/o.js false false true object", "1", "DONE"],
  );
});

test("top level: this, strict mode, arguments, helper names", async () => {
  await prints(
    {
      "main.js": `import { $0 as $1, live, live as l2, set } from "./d.js"; const l2$ = "l2$"; print(this, typeof arguments, (() => typeof arguments)(), (function () { return arguments.length })(1, 2));
try { undeclared = 1 } catch (e) { print(e.name) } try { arguments } catch (e) { print(e.name) } try { ({ arguments }) } catch (e) { print(e.name) }
let $0 = "mine", __i = 1, \\u00242 = "esc"; print($0, $1, __i, \\u00242, live, l2, l2$); set(); print(live, typeof $3, typeof $4, typeof $5, typeof $6); var eval1 = eval; print(eval1("typeof live"));`,
      "d.js": `export const $0 = "theirs"; export let live = 0; export const set = () => { live = 1 }`,
    },
    ["undefined undefined undefined 2", "ReferenceError", "ReferenceError", "ReferenceError", "mine theirs 1 esc 0 0 l2$", "1 undefined undefined undefined undefined", "undefined", "DONE"],
  );
});

test("html-like comments are operators in modules", async () => {
  await prints(
    { "main.js": 'let x = 1, y = 3; print(x<!--y, y, "<!--", `-->`, /<!--/.test("<!--")); let z = 5; while (z --> 3); print(z); // <!-- \n/* --> <!-- */ print(`${x<!--y}<!--`)' },
    ["false 2 <!-- --> true", "2", "false<!--", "DONE"],
  );
});

test("top-level await: siblings run side by side, parents wait", async () => {
  await prints(
    {
      "main.js": `import "./a.js"; import "./b.js"; import "./c.js"; print("main");`,
      "a.js": `print("a1"); await 0; print("a2"); await 0; print("a3");`,
      "b.js": `print("b1"); await 0; print("b2");`,
      "c.js": `import "./b.js"; print("c");`,
    },
    ["a1", "b1", "a2", "b2", "a3", "c", "main", "DONE"],
  );
});

test("top-level await in a cycle, and errors that are kept", async () => {
  await prints(
    {
      "main.js": `import "./x.js"; print("main"); const r = await Promise.allSettled([import("./bad.js"), import("./bad.js"), import("./usesbad.js")]); print(r.map((x) => x.reason.message).join(), r[0].reason === r[1].reason, r[0].reason === r[2].reason);`,
      "x.js": `import { y } from "./y.js"; print("x", y); await 0; export const x = 1;`,
      "y.js": `import { x } from "./x.js"; await 0; export const y = 2; try { x } catch (e) { print(e.name) }`,
      "bad.js": `print("bad"); await 0; throw new Error("kept");`,
      "usesbad.js": `import "./bad.js"; print("never");`,
    },
    ["ReferenceError", "x 2", "main", "bad", "kept,kept,kept true true", "DONE"],
  );
});

test("json, text and data modules", async () => {
  await prints(
    {
      "main.js": `import j from "./j.json" with { type: "json" }; import j2 from "./j.json"; import t from "./t.txt"; import d from "./d.bin"; import p from "./p.json";
print(j === j2, j.__proto__.x, Object.keys(j).join(), t, d instanceof ArrayBuffer, new Uint8Array(d).join(), p, 1 / j.z, j.inf);`,
      "j.json": '{"__proto__": {"x": 1}, "z": -0, "inf": 1e999}',
      "t.txt": "hé\u2028llo\n",
      "d.bin": { data: "AQID/w==" },
      "p.json": { json: [1, 2] },
    },
    ["true 1 __proto__,z,inf hé\u2028llo\n true 1,2,3,255 1,2 -Infinity Infinity", "DONE"],
  );
});

test("CommonJS: default, names, require, cycles, ES modules from it", async () => {
  await prints(
    {
      "main.js": `import cjs, { a, b, deep } from "./c.cjs"; import * as ns from "./c.cjs"; import f from "./f.cjs"; print(a, b, deep, cjs.a, Object.keys(ns).join(), f());`,
      "c.cjs": `exports.a = 1; exports.b = 2; Object.defineProperty(exports, "deep", { enumerable: true, value: 3 }); const p = require("./part.cjs"); print(p.sawA, typeof this, this === exports, arguments.length, __filename, module.id);`,
      "part.cjs": `exports.sawA = require("./c.cjs").a; x = 5; print(x, typeof require("./e.js").default, require("./j.json").k, require("./e.js").n);`,
      "e.js": `export default function () {} export const n = 9;`,
      "j.json": '{"k": "json"}',
      "f.cjs": `module.exports = () => { try { require("./tla.js") } catch (e) { return e.message } }; return; print("no");`,
      "tla.js": "await 0;",
    },
    [
      "5 function json 9",
      "1 object true 5 /c.cjs c.cjs",
      "1 2 3 1 a,b,deep,default Cannot require() the ES module './tla.js': it uses top-level await; use import() instead",
      "DONE",
    ],
  );
});

test("require() of an ES module that waits for its caller is refused", async () => {
  await prints(
    {
      "main.js": `import "./a.cjs"; export const x = 1; print("main");`,
      "a.cjs": `for (const m of ["./b.js", "./main.js"]) try { require(m) } catch (e) { print(e.message) }`,
      "b.js": `import { x } from "./main.js"; print("never", x);`,
    },
    [
      "Cannot require() the ES module './b.js': 'main.js' is being evaluated and requires it",
      "Cannot require() the ES module './main.js': 'main.js' is being evaluated and requires it",
      "main",
      "DONE",
    ],
  );
});

test("a CommonJS main module, and __esModule", async () => {
  await prints(
    { "main.cjs": `const { x } = require("./m.cjs"); print(x); const go = 1; module.exports = { go }`, "m.cjs": `Object.defineProperty(exports, "__esModule", { value: true }); exports.x = "x";` },
    ["x", "1 1", "DONE"],
    { then: "p => print(p.get('default').go, p.get('go'))" },
  );
});

test("string names, default as a name, re-exported namespaces", async () => {
  await prints(
    {
      "main.js": `import { "a b" as ab, default as d, ns } from "./m.js"; export { ab as "☿" }; export { default as "x y" } from "./m.js"; print(ab, d, ns.k);`,
      "m.js": `const v = 1; export { v as "a b", v as default }; export * as ns from "./n.js"; export * as "n s" from "./n.js";`,
      "n.js": "export const k = 'k';",
    },
    ["1 1 k", "1 1", "DONE"],
    { then: "p => print(p.get('☿'), p.namespace['x y'])" },
  );
});

test("live references in every position", async () => {
  await prints(
    {
      "main.js": `import { F, tag, o, up } from "./m.js";
print(new F(1).v, new F, new F.G(2).v, new (F)(3).v, new o.K(4).v, new o["K"](5).v, tag\`x\`, { F }.F === F, [F].length, \`\${o.n}\`, F?.name, o?.n, typeof F);
{ let F = 1; print(F) } (function F() { print(typeof F) })(); (function () { var F = 2; print(F) })(); ((F) => print(F))(3); ((x, y = F) => { var F = 9; print(typeof y, F) })();
try { throw 4 } catch (F) { print(F) } for (const F of [5]) print(F); for (let F = 6; F < 7; F++) print(F); switch (1) { case 1: let F = 7; print(F) } class C { F() { return typeof F } [o.n] = o.n; static { var F = 8; print(F) } } print(new C().F(), new C()[1]);
label: for (;;) { break label } const { a = F, [o.n]: b } = {}; print(typeof a); ({ F() { return 1 } }).F(); o.F = 1; print(o.F, this?.F); export { F as again }; print(class F {}.name, (class { static F = typeof F }).F);
const z = o\nconst y = o\n;[1].map((x) => print(x)); up(); print(F);`,
      "m.js": `export let F = function (v) { this.v = v }; F.G = class { constructor(v) { this.v = v } }; export let o = { K: F, n: 1 }; export let tag = function () { return this }; export function up() { F = "up"; o = 0; tag = 0 }`,
    },
    ["1 [object Object] 2 3 4 5 undefined true 1 1 F 1 function", "1", "function", "2", "3", "function 9", "4", "5", "6", "7", "8", "function 1", "function", "1 undefined", "F function", "1", "up", "DONE"],
  );
});

test("hashbang, directives, odd spacing around export default", async () => {
  await prints({ "main.js": "#!/usr/bin/env node\nprint(1)\nexport /* a */ default // b\n  /* default */ (1, 2)\n;[3].map((x) => print(x))" }, ["1", "3", "2", "DONE"], {
    then: "p => print(p.get('default'))",
  });
  await prints({ "main.js": "export default function () { return 1 }\n(print('called'))" }, ["called", "function", "DONE"], { then: "p => print(typeof p.get('default'))" });
  await prints({ "main.js": "let a = 1\nexport { a }\n(print('x'))\nexport default a\nimport 'b.js'\n;[a]", "b.js": "" }, ["x", "1", "DONE"], { then: "p => print(p.get('default'))" });
});
