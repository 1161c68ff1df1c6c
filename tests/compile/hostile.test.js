// User code that replaces everything it can reach: the loader must neither break nor be seen.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeJsc, run } from "./lib.js";

after(closeJsc);

// Replaces or booby-traps what user code can reach, and says so when the loader steps on it.
const SABOTAGE = `
const say = print, seen = { __proto__: null };
let armed = false; // what this script itself uses does not count
const trap = (what) => { if (armed && !seen[what]) { seen[what] = true; say("seen: " + what); } };
const { defineProperty, getOwnPropertyDescriptor, entries } = Object;
const names = Reflect.ownKeys;
const watch = (label, object, key, value) => {
  const what = label + "." + (typeof key === "symbol" ? key.description : key);
  defineProperty(object, key, { __proto__: null, configurable: true, get() { trap("get " + what); return value }, set(v) { trap("set " + what) } });
};
const protos = { Array: Array.prototype, Map: Map.prototype, Set: Set.prototype, String: String.prototype, Function: Function.prototype, RegExp: RegExp.prototype, WeakMap: WeakMap.prototype,
  Generator: Object.getPrototypeOf(function* () {}).prototype, AsyncGenerator: Object.getPrototypeOf(async function* () {}).prototype };
for (const label in protos) {
  const keys = names(protos[label]);
  for (let i = 0; i < keys.length; i++) {
    const d = getOwnPropertyDescriptor(protos[label], keys[i]);
    if (d.configurable && keys[i] !== "constructor") watch(label, protos[label], keys[i], d.value);
  }
}
for (const [label, o] of [["Reflect", Reflect], ["JSON", JSON], ["Object", Object], ["Promise", Promise], ["Promise.prototype", Promise.prototype]]) {
  const keys = names(o);
  for (let i = 0; i < keys.length; i++) {
    const d = getOwnPropertyDescriptor(o, keys[i]);
    // await itself reads a promise's constructor: that is the language, not the loader.
    if (d.configurable && keys[i] !== "constructor") watch(label, o, keys[i], () => { throw new RangeError("sabotaged") });
  }
}
for (let i = 0; i < 40; i++) { watch("Object.prototype", Object.prototype, "" + i); watch("Array.prototype", Array.prototype, "" + i); }
for (const key of ["get", "set", "value", "writable", "configurable", "enumerable", "next", "done", "length", "status", "error", "failed", "deps", "record", "with", "cells", "values", "fn", "kind", "exports", "mutable", "then"])
  watch("Object.prototype", Object.prototype, key);
for (const name of ["Promise", "Proxy", "Error", "TypeError", "SyntaxError", "Uint8Array", "JSON", "Reflect", "Object"]) watch("global", globalThis, name);
armed = true;
say("sabotaged");
`;

test("import(), top-level await, cycles, CommonJS and namespaces work after sabotage", async () => {
  const out = await run(
    {
      "main.js": `import { before, tag } from "./before.js"; import "./sabotage.js"; import * as later from "./later.js"; import { x } from "./cycle.js";
print("main", x, later.v, typeof later);
const data = await import("./data.json", { with: { __proto__: null, type: "json" } });
const cjs = await import("./c.cjs");
const dyn = await import("./dyn" + ".js");
print(data.default.k, cjs.default.c, dyn.d, dyn.e, before(later, "v").value, before(later, tag).value);
try { await import("./none.js") } catch (e) { print("none", e.message) }
try { await import("./bad.js") } catch (e) { print("bad", e) }
export const ok = 1; export { main2 } from "./cycle.js"; export function hoisted() { return ok }`,
      "before.js": "export const before = Object.getOwnPropertyDescriptor, tag = Symbol.toStringTag;",
      "sabotage.js": SABOTAGE,
      "later.js": "await 0; export let v = 1; v = 2;",
      "cycle.js": 'import { hoisted } from "./main.js"; export let x = typeof hoisted; await 0; export const main2 = 2;',
      "data.json": '{"k":1}',
      "c.cjs": 'exports.c = require("./c2.cjs").c; ',
      "c2.cjs": "exports.c = 3;",
      "dyn.js": 'import { b } from "./dynb.js"; export const d = b(); export const e = await 5;',
      "dynb.js": 'import * as up from "./dyn.js"; export function b() { return "b" }',
      "bad.js": "await 0; throw 7",
    },
    // What V8's async functions and proxies read is V8's affair; JavaScriptCore is what counts.
    { same: false, then: "p => { print(p.get('ok'), p.namespace.main2) }" },
  );
  assert.equal(
    out,
    ["sabotaged", "main function 2 object", "1 3 b 5 2 Module", "none Cannot find module './none.js' imported from 'main.js'", "bad 7", "1 2", "DONE"].join("\n"),
  );
});

test("helper functions that a module gets are of no use to others", async () => {
  // The names are fresh, the functions are closures without properties; arguments and caller give nothing away.
  const out = await run({
    "main.js": `import { live } from "./d.js"; function f() { return f.caller } try { f(); print("caller") } catch (e) { print(e.name) } print(live, typeof import.meta.constructor, Object.keys(import.meta).join());
print(Object.getOwnPropertyNames(globalThis).filter((n) => /^\\$|loader|link|module/i.test(n)).join() || "clean");`,
    "d.js": "export let live = 1; live = 2;",
  }, { same: false });
  assert.equal(out, "TypeError\n2 undefined url,main\n__loaderPath,__loader\nDONE");
});
