// TypeScript and JSX: programs that run. What the compiler makes of single constructs is compared in typescript.test.js.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeJsc, compile, erase, run } from "./lib.js";
import { syntaxError } from "./typescript-reference.js";

after(closeJsc);

const prints = async (modules, expected, options) => assert.equal(await run(modules, options), [...expected, "DONE"].join("\n"));

test("erasing keeps every line and column", () => {
  const source = `import type { A } from "a"; import { type B, c } from "c";
interface X<T> { y: T }
export const f = async <T,>(a: T, b?: number): Promise<T> => a as unknown as T;
class K<T> extends c<T> implements X<T> { private readonly y!: T; declare z: string; static override m?(): void {} }
let v = f<number>(1)!, w = <any>v; label: for (const x of v satisfies any) { break label }
abstract class Q { abstract n(): void; o(this: Q): this is Q { return true } [k: string]: any }
function o(a: string): void; function o(a: any) {}`;
  const { code, map } = erase(source, "ts");
  assert.deepEqual(map, []);
  assert.equal(code.length, source.length);
  assert.equal(code.split("\n").length, source.split("\n").length);
  for (const word of ["f = async", "=> a", "extends c", "break label", "function o(a     ) {}"]) assert.ok(code.includes(word), word);
  assert.equal(syntaxError(code), null);
});

test("enums: numbers, strings, computed, references, merging, const", async () => {
  const expected = {};
  for (const [k, v] of Object.entries({ X: 0, Y: 5, Z: 6, "q-r": 7, S: "s", T: 5, U: "t", V: 1, W: 12, More: 100 })) {
    expected[k] = v;
    if (typeof v === "number") expected[v] = k;
  }
  await prints(
    {
      "main.ts": `enum A { X, Y = 5, Z, "q-r", S = "s", T = X | Y, U = \`t\`, V = "a".length, W = A.Z << 1 }
enum A { More = 100 }
const enum C { One = 1, Two = One * 2 }
export enum E { P = "p" } declare enum D { No }
print(JSON.stringify(A), A[5], A.T, A.V, A.W, C.Two, E.P, (E as any)[0]);
function f() { enum In { A = -1, B } return In.B + In[-1] } print(f());`,
    },
    [JSON.stringify(expected) + " T 5 1 12 2 p undefined", "0A"],
  );
});

test("namespaces: values, functions, nesting, merging with classes, types alone", async () => {
  await prints(
    {
      "main.ts": `namespace N { export const a = 1; export function f() { return typeof a0 } const a0 = 2; export let n = 1; export const up = () => ++n; export class K {} export namespace In { export const d = a + 1 } export enum E { A } export type T = string; export interface I {} }
namespace A.B.C { export const deep = 1 } namespace A.B { export const more = 2 }
class M { static own = 1 } namespace M { export const added = 2 }
namespace Types { export type T = 1 } export namespace X { export const { p, q: [r] } = { p: 1, q: [2] } }
N.up(); print(N.f(), N.a, N.n, N.In.d, new N.K() instanceof N.K, N.E.A, A.B.C.deep, A.B.more, M.own + M.added, X.p + X.r, typeof (globalThis as any).Types); import In = N.In; print(In.d);`,
    },
    ["number 1 2 2 true 0 1 2 3 3 undefined", "2"],
  );
});

test("a namespace's last statement need not end with a semicolon", async () => {
  await prints(
    {
      "main.ts": `namespace N { let b = 2; b++ }
namespace O { export let n = 1; n++ } namespace P { export namespace Q { export const q = O.n; q } } namespace R { print("R") /* so */ }
namespace S.T { export let s = 1
s++ } print(O.n, P.Q.q, S.T.s);`,
    },
    ["R", "2 2 2"],
  );
});

test("members of an enum are known in its other parts, also in those of another part of a namespace", async () => {
  await prints(
    {
      "main.ts": `enum A { X = 1, S = "s" } enum A { Y = X + 1, Z = A.X << 3, W, T = S }
print(A.Y, A.Z, A.W, A.T, JSON.stringify(A)); enum B { Y = "y" } enum B { Q = A.Y } print(B.Q, B[2]);
namespace N { export enum E { X = 1 } enum Own { X = 7 } export namespace In { export const a = 1; export enum D { P = 3 } } }
namespace N { export enum E { Y = X + 1, Z } enum Own { Y = 2 } print(JSON.stringify(Own)); export namespace In { export const b = 2; export enum D { Q = P * 2 } } }
namespace N.In { export enum D { R = Q + P } } print(N.E.X, N.E.Z, N.In.a + N.In.b, N.In.D.R, N.In.D[9]);
function f() { enum A { X = 5 } enum A { Y = X } return A.Y } print(f());`,
    },
    ['2 8 9 s {"1":"X","2":"Y","8":"Z","9":"W","X":1,"S":"s","Y":2,"Z":8,"W":9,"T":"s"}', "2 Q", '{"2":"Y","Y":2}', "1 3 3 9 R", "5"],
  );
});

test("export import and import aliases: values stay, types and what is not used go", async () => {
  await prints(
    {
      "main.ts": `import * as ext from "./ext";
namespace N { export const v = 1; export namespace M { export const w = 2; export type T = 1 } export namespace Types { export type U = 2 } export interface I {} }
namespace Only { export type T = 1; export namespace Deep { export type D = 1 } }
export import V = N.M
;[1].length
export import Gone = Only.T; import Deep = Only.Deep.D; import U = N.Types.U; export import I = N.I; import E = ext.Missing.Type; let t: Deep | U | E = 1 as any;
import a = N; import b = a.M; import c = b.w; export { Only };
namespace O { export import y = N.v; import M = N.M; export const z = M.w; export import T2 = N.Types.U }
print(V.w, c, O.y, O.z, Object.keys(O).join());`,
      "ext.ts": `export type Missing = 1; print("loaded")`,
    },
    ["2 2 1 2 y,z", "V"],
    { then: "p => print(Object.keys(p.namespace).join())" },
  );
});

test("parameter properties, fields, accessors, overloads", async () => {
  await prints(
    {
      "main.ts": `class B { constructor(readonly n: number) {} }
class P extends B { x!: string; y?: number; z = 1; constructor(private a: number, public b = a + 1, protected readonly c?: string) { super(a); print(this.a, this.b, this.n) } get v(): number { return this.b } set v(q: number) { this.b = q } m(): this; m(x?: any) { return this } static #p: number = 3; static p = () => P.#p }
const p = new P(1); p.v = 9; print(p.v, p.m() === p, P.p(), Object.keys(p).join());`,
    },
    ["1 2 1", "9 true 3 n,a,b,c,x,y,z"],
  );
});

test("types vanish from imports and exports, also across modules", async () => {
  await prints(
    {
      "main.ts": `import { T, v, type U } from "./t"; import Def, { I } from "./t.js"; import type { Gone } from "nowhere"; import { OnlyType } from "also-nowhere"; import * as all from "./t"; import Both from "./both";
const x: T | U | I | Gone | OnlyType = v as any; print(x, Def, Object.keys(all).join(), new Both().q); export { T, I as J }; export type { U }; export * from "./t"; let y: typeof Both;`,
      "t.ts": `export type T = string; export interface I {} export type U = 1; export const v = 5; export default "def"; export declare const no: number; interface L {} export { L }; export type * from "./none"`,
      "both.ts": `export default class { q = 1 } `,
    },
    ["5 def default,v 1", "v"],
    { then: "p => print(Object.keys(p.namespace).join())" },
  );
});

test("a line break where a type was does not join statements", async () => {
  await prints(
    { "main.ts": "let f = (x: any) => print('called')\nlet a = f as any\n(1)\nlet b = f satisfies any\n[1].length\nlet c: any\n;(2)\nconst g = (x: number): Array<\n number> => [x]\nprint(g(1).length)\nclass K { private a = 1\n public ['b'] = 2; c?: number\n static d = 3 }\nprint(new K().b)" },
    ["1", "2"],
  );
});

test("JSX: classic, pragmas, automatic, text, entities, spread", async () => {
  const h = "const h = (t, p, ...c) => `<${typeof t === 'function' ? 'F' : t} ${JSON.stringify(p)}>` + c.join('|') + '</>';";
  await prints(
    {
      "main.jsx": `/** @jsx h @jsxFrag Frag */ ${h} const Frag = "frag", Comp = () => 1, o = { Deep: "deep" }, sp = { a: 1 };
print(<div a="x &amp; &quot;y&quot;" b={1} {...sp} data-c d:e='q'>
  one
  two {1 + 1}   {"s"} {/* none */}
  <Comp/> <o.Deep k={<i/>}/>
</div>);
print(<></>, <>x{...[1, 2]}</>, <a b="multi
 line"/>); const t = (x) => <p>{x}</p>; print(t(<b/>)); print(<my-el/>, (1 < 2) ? <x/> : 0);`,
    },
    [
      '<div {"a":"x & \\"y\\"","b":1,"a":1,"data-c":true,"d:e":"q"}>one two |2|   |s| |<F null></>| |<deep {"k":"<i null></>"}></></>'.replace('"a":"x & \\"y\\"","b":1,"a":1', '"a":1,"b":1'),
      "<frag null></> <frag null>x|1|2</> <a {\"b\":\"multi\\n line\"}></>",
      "<p null><b null></></>",
      "<my-el null></> <x null></>",
    ],
  );
  await prints(
    {
      "main.tsx": `/** @jsxImportSource my */\nconst C = (p: { n: number }) => null; print(<C n={1} key={2}>a</C>, <b/>, <i>{1}{2}</i>, <></>); const g = <T,>(x: T) => x, k = <T extends object>(x: T): x is T => true;`,
      "my/jsx-runtime.js": `export const jsx = (t, p, k) => "one" + (t.name ?? t) + JSON.stringify(p) + k; export const jsxs = (t, p, k) => "many" + t + JSON.stringify(p) + k; export const Fragment = "frag";`,
    },
    ['oneC{"n":1,"children":"a"}2 oneb{}undefined manyi{"children":[1,2]}undefined onefrag{}undefined'],
  );
  const e = compile({ "m.jsx": "/** @jsxImportSource react */ x = <a/>" });
  assert.match(e.error.message, /Cannot find module 'react\/jsx-runtime'/);
});
