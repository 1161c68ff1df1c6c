// What our compiler makes of TypeScript has the syntax tree that the TypeScript compiler gives it: over snippets of every
// construct, over packages, and over random combinations with line breaks anywhere. What cannot be compiled says where.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { closeJsc, compile, erase, here, jsc, run } from "./lib.js";
import { CASES, JSX_CASES, REFUSED, RUN, TSX_CASES } from "./typescript-cases.js";
import { compare } from "./typescript-compare.js";
import { syntaxError, transpile } from "./typescript-reference.js";

after(closeJsc);

const soak = Boolean(process.env.CAY_SOAK);

function compareAll(cases, kind) {
  const different = [];
  const counts = { same: 0, refused: 0, unknown: 0, different: 0 };
  for (const source of cases) {
    const { verdict, why } = compare(source, kind);
    counts[verdict]++;
    if (verdict === "different") different.push(`${JSON.stringify(source)}: ${why}`);
  }
  assert.deepEqual(different.slice(0, 10), []);
  return counts;
}

let same = 0;
for (const [kind, groups] of [["ts", CASES], ["tsx", TSX_CASES], ["jsx", JSX_CASES]])
  for (const [name, cases] of Object.entries(groups))
    test(`${name} in ${kind} come out as from the TypeScript compiler`, () => {
      const counts = compareAll(cases, kind);
      same += counts.same;
      assert.ok(counts.same > cases.length * 0.8, JSON.stringify(counts));
    });

test("there are enough of them", () => {
  assert.ok(same >= 1500, `${same} snippets are the same`);
});

for (const [name, cases] of Object.entries(REFUSED))
  test(`what is not supported of ${name} is refused with a line and a column`, () => {
    for (const [source, message] of cases) {
      const { ok, error } = compile({ "main.ts": `\n  ${source}`, x: "export default 1; export const a = 1, b = 1;" });
      assert.equal(ok, false, source);
      assert.match(error.message, message, source);
      assert.ok(error.line >= 2 && error.column >= 1, `${source}: ${error.line}:${error.column}`);
    }
  });

test("where the shape differs, the program does the same", async () => {
  for (const source of RUN) {
    const want = transpile(source, "tsx").code;
    assert.equal(await run({ "main.tsx": source }), await run({ "main.js": want }), source);
  }
});

test("a module that is refused leaves nothing behind for the next", async () => {
  // The parser remembers places that begin no arrow function, until a file ends.
  const good = { "m.ts": "export default ((a) => a + 1)(1)" };
  const want = JSON.stringify(await jsc().compile(good));
  assert.match(want, /"ok":true/);
  for (const bad of ["export default ((a) + " + "(".repeat(2000), "export default ((a) + " + "async (".repeat(300), "(".repeat(2000), "x = `${"]) {
    assert.equal((await jsc().compile({ "m.ts": bad })).ok, false);
    assert.equal(JSON.stringify(await jsc().compile(good)), want, bad.slice(0, 30));
  }
});

function* sources(dir, wanted) {
  for (const e of readdirSync(dir, { withFileTypes: true })) {
    const p = path.join(dir, e.name);
    if (e.isDirectory()) yield* sources(p, wanted);
    else if (wanted.test(e.name)) yield p;
  }
}
const read = (dir, wanted) => [...sources(path.join(here, "node_modules", dir), wanted)].map((file) => readFileSync(file, "utf8"));

for (const [dir, least] of [["rxjs", 200], ["zod", 250]])
  test(`every module of ${dir} comes out as from the TypeScript compiler`, () => {
    const texts = read(dir, /(?<!\.d)\.tsx?$/);
    const counts = compareAll(texts, "ts");
    assert.ok(counts.same === texts.length && texts.length > least, JSON.stringify(counts));
  });

// Of types nothing is left but imports and exports. An export list may name what is only declared (`declare const _null;
// export { _null as null }`): that is no JavaScript, whoever makes it, and for the same name.
for (const [dir, least, fewUnknown] of [["rxjs", 240, 0], ["zod", 90, 5]])
  test(`every declaration file of ${dir} comes out as from the TypeScript compiler`, () => {
    const texts = read(dir, /\.d\.ts$/);
    const counts = compareAll(texts, "ts");
    assert.deepEqual([counts.same + counts.unknown, counts.unknown], [texts.length, fewUnknown], JSON.stringify(counts));
    assert.ok(texts.length > least, `${texts.length} files`);
    const undefinedExport = (code) => /^Export '.*' is not defined/.exec(syntaxError(code))?.[0];
    const leaves = /^(?:\s|;|(?:import|export)\b(?:[^;"'{}]*\{[^}]*\}|[^;"']*)(?:\s*from)?\s*(?:"[^"]*"|'[^']*')?|\/\/[^\n]*|\/\*[^]*?\*\/)*$/;
    for (const source of texts) {
      const { code } = erase(source, "ts");
      assert.match(code, leaves);
      assert.equal(undefinedExport(code), undefinedExport(transpile(source, "ts").code));
    }
  });

test("random combinations, with line breaks after any token, come out as from the TypeScript compiler", async () => {
  const script = path.join(here, "typescript-fuzz.js");
  const seed = soak ? Math.floor(Date.now() / 1000) % 1000000 : 1;
  const { stdout } = await promisify(execFile)(process.execPath, [script, String(soak ? 100000 : 4000), String(seed)], { maxBuffer: 1 << 26 }).catch(
    (e) => assert.fail(`${e.stdout}\n${e.stderr}`.slice(0, 20000)),
  );
  console.log("# " + stdout.trim());
});
