// src/compile/quick.c beside src/compile/js: the same answer, or none. Longer, and with another seed each time, when
// CAY_SOAK is set.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { compileText, top } from "./lib.js";
import { compare, describe, generated, mutations, parserTests, Quick, requestOf, sources } from "./plain.js";

const soak = Boolean(process.env.CAY_SOAK);
const seed = soak ? Math.floor(Date.now() / 1000) % 1000000 : 1;
const count = soak ? 100000 : 2500;

async function check(t, requests) {
  const r = await compare(requests);
  assert.equal(r.different.map(describe).join("\n"), "", `seed ${seed}`);
  t.diagnostic(`seed ${seed}: ${r.count} programs, ${r.valid} of them good, ${r.plain} plain`);
  assert.ok(r.plain > r.count / 50, "hardly one is plain");
}

const several = (t, modules) => check(t, modules.map((m) => requestOf(typeof m === "string" ? { "main.js": m } : m)));

test("the parser tests of test262 compile the same", (t) => check(t, parserTests()));
test("random modules compile the same", (t) => check(t, generated(count, seed)));
test("mutated modules compile the same", (t) => check(t, mutations(count, seed, sources())));

// The text of a C string, piece by piece.
const tool = readFileSync(path.join(top, "src/front/tool/execute_code.c"), "utf8").split("harness[] =")[1].split('";\n')[0] + '"';
const harness = [...tool.matchAll(/"(?:[^"\\]|\\.)*"/g)].map((m) => JSON.parse(m[0])).join("");

test("the programs that agents write are plain", async () => {
  const user = [
    "export default async function (env) {\n  const rows = await env.db.query(`SELECT ${1}`);\n  const by = {};\n  for (const { tier } of rows) by[tier] = (by[tier] ?? 0) + 1;\n  console.log('tiers', by);\n  return Object.entries(by).map(([k, v]) => k + ':' + v).sort().join();\n}\n",
    "export default async (env, { limit = 10, ...rest } = {}) => {\n  try {\n    for (let i = 0; i < limit; i++) if (i % 2) continue; else await env.db.execute('INSERT INTO t VALUES (?)', i);\n  } catch (e) {\n    console.error(`failed: ${e?.message ?? e}`);\n    throw new Error('no', { cause: e });\n  } finally { delete rest.x }\n};",
    "const clean = (s) => s.replace(/[^a-z0-9]+/gi, '-').trim();\nexport default clean;",
    "class Stack { constructor(list) { this.list = list } push(x) { this.list.push(x); return this } static async of(...xs) { return new Stack(xs) } }\nexport default async function main(env) { const s = await Stack.of(1, 2, 3); switch (s.list.length) { case 3: return 'three 😀'; default: return s } }",
    "export default { async fetch(request, env, ctx) { const url = new URL(request.url); return new Response(JSON.stringify({ path: url.pathname }), { headers: { 'content-type': 'application/json' } }) } };",
  ];
  const quick = new Quick();
  for (const code of user)
    for (const modules of [{ "harness.js": harness, "user-code.js": code }, { "main.js": code }]) {
      const request = requestOf(modules);
      assert.equal(await quick.compile(request), compileText(request));
    }
  await quick.close();
});

// Each of these was, or could be, taken for something else than it is.
const NOT_PLAIN = {
  "names that are declared twice, as js/ sees it": ["let a; let a;", "function f() {} function f() {}", "import { a } from './b.js'; function a() {}", "import { a } from './b.js'; { var a; }", "function f(a, a) {}", "try {} catch (e) { let e; }", "class a {} const [a] = [];", "(a, a) => 1", "const f = ({ a, b: a }) => 1;"],
  "statements out of place": ["return 1;", "break;", "if (1) let a = 1;", "if (1) function f() {}", "while (1) async function f() {}", "switch (1) { default: default: }", "for (const a of b, c) ;", "const a;", "let { a };", "try {}", "throw\n1", "label: 1", "() => { continue }", "for (const a = 1 of b) ;"],
  "await and yield": ["await 1;", "function f() { await (1) }", "async function f(a = await 1) {}", "async (a = await 1) => 1", "const f = () => await (1);", "for await (const a of b) ;", "function* f() { yield 1 }", "class A { async f() { return () => await 1 } }"],
  "words": ["arguments", "eval('1')", "({ eval })", "new.target", "function f() { new.target }", "import.meta.url", "import('./b.js')", "super.x", "class A { constructor() { super() } }", "({ f() { super() } })", "enum", "implements = 1", "({ class })", "using a = b;", "with (a) b", "debugger"],
  "targets": ["a + b = 1", "f() = 1", "a?.b = 1", "a?.b.c = 1", "(a) = 1", "[a] = b", "({ a } = b)", "this = 1", "++a.b++", "delete a", "for (a of b) ;", "1 = 1", "`a` = 1", "new A = 1", "({ a = 1 })", "({ __proto__: 1, __proto__: 2 })"],
  "operators": ["-a ** b", "a ?? b || c", "a && b ?? c", "() => {} ? 1 : 2", "async () => {} || 1", "for (let a = b in c;;) ;", "a\n=> 1", "new a?.b()", "a?.`b`", "a?.b`c`", "(a)\n=> 1", "x<!--y", "x <<!--y", "x\n-->y", "({[a,b]: 0})", "a ? b", "import {} from './b.js', 1"],
  "tokens": ["\\u0061", "é", "#x", "01", "1_", "1__0", "3in []", "0x", "1n", '"\\8"', '"\\u00"', "`\\u{110000}`", '"\u2028"', "/a/u", "/(/", "/[z-a]/", "/a**/", "/a{2,1}/", "/(?<a>b)/", "/a/gg", "/\\1/", "@d class {}", "#!x", "a\u00a0b", "\ufeffa", "a\fb", "/* ", "`${", "'a\n'", "//# sourceURL=x", "\r"],
  "classes": ["class A { x = 1 }", "class A { #x }", "class A { get x() {} }", "class A { static {} }", "class A { constructor() {} constructor() {} }", "class A { static prototype() {} }", "class A { async constructor() {} }", "class A { 'constructor'() {} }", "class A { async\nx() {} }"],
  "imports and exports": ["import * as a from './b.js';", "import './b.js';", "import a from './none.js';", "import { none } from './b.js';", "import { a } from './b.js'; a = 1;", "import { a } from './b.js'; () => { a++ };", "import a from './b.js' with { type: 'json' };", "import a from './b.js'\nwith ({}) ;", "import a from '.\\x2fb.js';", "import a from './main.js'; export default 1", "export let a = 1; a = 2;", "export function f() { f = 1 }", "let a; export { a };", "export * from './b.js';", "export default 1; export default 2;", "export\ndefault 1;", "export /**/ default 1;", "{ import a from './b.js'; }", "export default 1; '$0'", "export default 1; '\\u0024'", "export default 1; '\\u00300'", "export default 1, 2;", "export default function* () {}", "import/* é */a from './b.js';"],
  "directives": ["function f(a = 1) { 'use strict' }", "'use strict'"],
  "what the parser of js/ gets wrong": ["x = `${async function ({}, [{}]) {}}`", "(async function ({ a }) {})", "(async function (a) {} / (b => /c/))", "x = {} / 1", "if (a) /b/.c"],
};

for (const [name, list] of Object.entries(NOT_PLAIN))
  test(`left to js/: ${name}`, async () => {
    const quick = new Quick();
    for (const source of list) assert.equal(await quick.compile(requestOf({ "main.js": source, "b.js": "export const a = 1, b = 2; export default class {}" })), "", source);
    await quick.close();
  });

test("left to js/: requests of another form", async () => {
  const quick = new Quick();
  const good = requestOf({ "main.js": "1" });
  assert.equal(await quick.compile(good), compileText(good));
  const many = Object.fromEntries(Array.from({ length: 501 }, (_, i) => [`m${i}.js`, "1"]));
  for (const request of ["", "{}", " " + good, good + " ", good.replace("}}", '},"limits":{}}'), good.replace('"1"', '{"js":"1"}'), '{"mainModule":"main.js","modules":{}}', '{"mainModule":"main.js","modules":{"main.js":"1","main.js":"2"}}', requestOf({ "main.ts": "1" }), requestOf({ "a/main.js": "1" }), requestOf({ "main.js": "1" }, "./main.js"), requestOf({ "main.js": "1" }, "cloudflare:workers"), requestOf({ "main.js": "1" }, "async"), requestOf({ "main.js": "1", "data.json": "{}" }), '{"mainModule":"main.js","modules":{"main.js":"\\ud800"}}', requestOf(many)])
    assert.equal(await quick.compile(request), "", request.slice(0, 200));
  await quick.close();
});

test("deep, long and many", (t) =>
  several(t, [
    "(".repeat(40) + "1" + ")".repeat(40), "(".repeat(2000) + "1" + ")".repeat(2000), "!".repeat(400) + "1", "a=>".repeat(200) + "1", "if (1) {} else ".repeat(300) + "{}", "[".repeat(140) + "]".repeat(140),
    Array(900).fill("a").join("+"), Array(5000).fill("a").join("+"), "x(" + Array(4000).fill("a").join() + ")", "{".repeat(130) + "}".repeat(130), "`${".repeat(60) + "1" + "}`".repeat(60), "/" + "(".repeat(30) + ")".repeat(30) + "/", "/" + "(".repeat(60) + ")".repeat(60) + "/",
    Array.from({ length: 3000 }, (_, i) => `export const a${i} = ${i};`).join("\n"), Array.from({ length: 200 }, (_, i) => `export const a${i} = ${i};`).join("\n"), Array.from({ length: 3000 }, (_, i) => `let a${i} = ${i};`).join("\n"), "const f = ({a:[{b:[{c:[{d:[{e:1}]}]}]}]}) => 1;".replace("e:1", "e"),
    { "main.js": Array.from({ length: 400 }, (_, i) => `import m${i} from "./m${i}.js";`).join("\n") + "m0;", ...Object.fromEntries(Array.from({ length: 400 }, (_, i) => [`m${i}.js`, `import a from "./m${Math.min(399, i + 1)}.js"; export default ${i};`.slice(i === 399 ? 36 : 0)])) },
    { "main.js": 'import { a } from "./b.js"; a', "b.js": 'import { c } from "./c.js"; export const a = 1;', "c.js": 'import { a } from "./b.js"; export const c = 2;' },
    { "main.js": 'import { exports, env as e, withEnv, waitUntil } from "cloudflare:workers"; import { connect } from "cloudflare:sockets"; import b, { z } from "./b.js"; import { z as y } from "b.js";\nexport const q = 1, a = 2; export default z;\n', "b.js": 'import { DurableObject, env } from "cloudflare:workers"; export const z = env; export default class B extends DurableObject { }' },
  ]));

test("what is built in is the same in both", async (t) => {
  const text = readFileSync(path.join(top, "src/compile/quick.c"), "utf8");
  const lists = [...text.matchAll(/(\w+)_names\[\] = \{([^}]*)\}/g)];
  const programs = lists.flatMap(([, module, names]) =>
    [...names.matchAll(/"(\w+)"/g)].map(([, name]) => `import { ${name} as it } from "cloudflare:${module}";\nexport default () => it;`));
  assert.ok(programs.length > 10, "they are found");
  await several(t, programs);
});
