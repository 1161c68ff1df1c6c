// Stacks name the user's own lines and columns, and hostile errors do no harm.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeJsc, compile, jsc } from "./lib.js";

after(closeJsc);

async function stackOf(modules, main = Object.keys(modules)[0]) {
  const program = await jsc().compile(modules, main);
  assert.ok(program.ok, JSON.stringify(program.error));
  return jsc().run(program, "p => { const f = p.get('default'); return typeof f === 'function' ? f() : undefined }");
}

// Where `marker` stands in the source; the engine points at the call's parenthesis or the property.
function place(source, marker) {
  const at = source.indexOf(marker);
  assert.ok(at >= 0, marker);
  const before = source.slice(0, at).split("\n");
  return `${before.length}:${before[before.length - 1].length + 1}`;
}

test("a throw in the default function is at its line and column", async () => {
  const source = 'export default async function(env) {\n  await null;\n  throw new TypeError("boom");\n}';
  assert.equal(await stackOf({ "main.js": source }), `FAIL TypeError: boom\n    at main.js:${place(source, '("boom")')}`);
});

test("everything on line 1 keeps its column", async () => {
  const source = 'export default function named() { const o = null; return o.x; }';
  assert.equal(
    await stackOf({ "main.js": source }),
    `FAIL TypeError: null is not an object (evaluating 'o.x')\n    at named (main.js:${place(source, ".x")})`,
  );
});

test("frames of several modules, natives between them, hosts hidden", async () => {
  const main = 'import { go } from "./lib/a.js";\nexport default function start() {\n  return [1].map(function each() { return go(); });\n}';
  const a = "export const go = () => inner();\nfunction inner() {\n\tthrow new RangeError('deep');\n}";
  assert.equal(
    await stackOf({ "main.js": main, "lib/a.js": a }),
    [
      "FAIL RangeError: deep",
      `    at inner (lib/a.js:${place(a, "('deep')")})`,
      `    at go (lib/a.js:${place(a, "();")})`,
      `    at each (main.js:${place(main, "();")})`,
      "    at map (native)",
      `    at start (main.js:${place(main, "(function each")})`,
    ].join("\n"),
  );
});

test("columns after rewritten references are put back", async () => {
  const dep = "export let live = { f() {} }; export function up() { live = null }";
  const main =
    'import { live, up } from "./d.js";\nexport default function go() { live.f(); up(); const a = live, b = live; { live } live.nope(); }';
  assert.equal(
    await stackOf({ "main.js": main, "d.js": dep }),
    `FAIL TypeError: null is not an object (evaluating 'live$().nope')\n    at go (main.js:${place(main, ".nope")})`,
  );
});

test("top-level code, also in a cycle and after await", async () => {
  const main = 'import "./b.js";\nawait 0; const x = 1; x.y.z;';
  const b = 'import { nope } from "./main.js";\n';
  assert.equal(
    await stackOf({ "main.js": main + "\nexport let nope = 1", "b.js": b }),
    `FAIL TypeError: undefined is not an object (evaluating 'x.y.z')\n    at main.js:${place(main, ".z")}`,
  );
});

test("TypeScript positions are those of the TypeScript source", async () => {
  const source = `interface A { x: string }
enum Color { Red = 1, Green } const before: A = { x: "1" } as A; function thrower<T>(this: void, value: T, n?: number): never { throw new Error("ts " + value); }
class P { constructor(private readonly a: number, public b = thrower<number>(a)) {} }
namespace N { export const inner = (x: number) => x; } export default function go(): void { Color.Red; N.inner(1); new P(Color.Green); }`;
  assert.equal(
    await stackOf({ "main.ts": source }),
    [
      "FAIL Error: ts 2",
      `    at thrower (main.ts:${place(source, '("ts "')})`,
      `    at P (main.ts:${place(source, "<number>(a)")})`,
      `    at go (main.ts:${place(source, "P(Color").replace(/\d+$/, (n) => Number(n) + 1)})`,
    ].join("\n"),
  );
});

test("JSX positions", async () => {
  const source = `const React = { createElement: (t, p, ...c) => (typeof t === "function" ? t(p) : c) };
function Bad({ label }) { return label.nope.x; }
export default () => <div title="a &amp; b" data-x={1}>
  text {1 + 1} <Bad label="l" /> more
</div>;`;
  assert.equal(
    await stackOf({ "main.jsx": source }),
    [
      "FAIL TypeError: undefined is not an object (evaluating 'label.nope.x')",
      `    at Bad (main.jsx:${place(source, ".x; }")})`,
      `    at createElement (main.jsx:${place(source, "(p) : c")})`,
      // The call that was put in stands before the name.
      `    at default (main.jsx:${place(source, 'Bad label="l"')})`,
    ].join("\n"),
  );
});

test("the raw stack of the engine has the right line, too", async () => {
  const out = await jsc().run(
    await jsc().compile({ "main.js": "export default function f() {\n  print(new Error('x').stack.split('\\n')[0]);\n}" }, "main.js"),
    "p => { p.get('default')() }",
  );
  assert.equal(out, "f@main.js:2:18\nDONE");
});

test("names with an @ and functions with odd names", async () => {
  const source = 'const f = { ["a@b:1:2"]() { throw new Error("q") } };\nexport default () => f["a@b:1:2"]();';
  assert.match(await stackOf({ "@scope/m@1.js": source }), /\(?@scope\/m@1\.js:1:\d+\)?\n.*@scope\/m@1\.js:2:\d+/);
});

test("a sourceURL comment does not rename a module", async () => {
  for (const [name, source] of [
    ["m.js", "export default function f() { throw new Error('x') }\n//# sourceURL=other.js\n/*@ sourceURL=b.js */"],
    ["m.cjs", "module.exports = function f() { throw new Error('x') }\n//@ sourceURL=other.js"],
  ])
    assert.match(await stackOf({ [name]: source }), new RegExp(`^FAIL Error: x\\n {4}at f \\(${name}:1:`));
});

test("causes are shown, three deep at most", async () => {
  const source = 'export default () => { let e = new Error("0"); for (let i = 1; i < 9; i++) e = new Error("" + i, { cause: e }); throw e; }';
  const out = await stackOf({ "m.js": source });
  assert.equal(out.match(/Caused by/g).length, 3);
  assert.match(out, /^FAIL Error: 8\n.*\nCaused by: Error: 7\n/);
});

test("hostile errors are formatted without throwing, within bounds", async () => {
  const hostile = [
    "null",
    "undefined",
    '"text"',
    "Symbol('s')",
    "10n ** 50n",
    "Object.create(null)",
    "{ get name() { throw 1 }, get message() { throw 2 }, get stack() { throw 3 } }",
    "new Proxy({}, { get() { throw new Error('trap') } })",
    "new Proxy(new Error('p'), { getPrototypeOf() { throw 1 }, ownKeys() { throw 2 } })",
    "Object.assign(new Error('m'), { stack: 5, name: {}, message: Symbol() })",
    "Object.assign(new Error(), { message: 'x'.repeat(1e6), stack: 'f@main.js:1:1\\n'.repeat(1e5) })",
    "Object.assign(new Error('evil'), { stack: 'a\\n@main.js:999999999999:1\\n@@@@:1:1\\nmain.js:1:1\\n:::\\n@main.js:1:99999999' })",
    "(() => { const e = new Error('self'); e.cause = e; return e })()",
    "Object.defineProperty(new Error('c'), 'cause', { get() { throw 1 } })",
    "(() => { String.prototype.slice = String.prototype.indexOf = () => { throw 1 }; Object.defineProperty(Object.prototype, 'map', { get() { throw 2 } }); return new Error('patched') })()",
    "function () {}",
    "new (class extends Error { get name() { return 'N'.repeat(1e5) } })('m')",
  ];
  for (const value of hostile) {
    const program = compile({ "main.js": `export default (${value});` });
    assert.ok(program.ok, value);
    const out = await jsc().run(program, "(p, l) => { const s = l.formatStack(p.get('default')); print(typeof s, s.length < 20000, s.slice.call ? 1 : 1) }");
    assert.match(out, /^string true 1\nDONE$/, value);
  }
  const deep = compile({ "main.js": "export default function f(n) { try { return f(n + 1) } catch (e) { return e } }" });
  const out = await jsc().run(deep, "(p, l) => { const s = l.formatStack(p.get('default')(0)); print(s.split('\\n')[0], s.split('\\n').length < 40) }");
  assert.match(out, /^RangeError: Maximum call stack size exceeded\.? true\nDONE$/);
});

test("natives that the loader calls are hidden with it", async () => {
  const out = await stackOf({
    "main.cjs": 'function load() {\n  return require("./a.js");\n}\nload();',
    "a.js": 'import "./b.js"; export const a = 1;\nnull.x;',
    "b.js": 'import { a } from "./a.js";',
  });
  assert.equal(out, "FAIL TypeError: null is not an object (evaluating 'null.x')\n    at a.js:2:5\n    at load (main.cjs:2:17)\n    at main.cjs:4:5");
});

test("what can be read of a hostile error is shown", async () => {
  const show = async (value) =>
    jsc().run(compile({ "main.js": `export default (${value});` }), "(p, l) => print(l.formatStack(p.get('default')))");
  assert.equal(await show("{ get name() { throw 1 }, get message() { throw 2 }, get stack() { throw 3 } }"), "[object]\nDONE");
  assert.equal(await show("{ name: 'N', message: 'm', get stack() { throw 3 } }"), "N: m\nDONE");
  assert.equal(await show("{ get name() { throw 1 }, message: 'm', stack: 'f@main.js:1:27' }"), "Error: m\n    at f (main.js:1:1)\nDONE");
});

test("an error of the engine's own parser names the module and line", async () => {
  // Syntax that acorn knows and the engine may not: broken on purpose after compiling.
  const program = compile({ "main.js": "let a = 1;\nlet b = 2;" });
  program.modules[0].code = program.modules[0].code.replace("let b", "let b let");
  assert.match(await jsc().run(program), /^LINK SyntaxError: .*\n {4}at main\.js:2$/);
});
