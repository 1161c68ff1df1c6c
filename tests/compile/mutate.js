// Broken and odd source: the compiler must answer, and what it accepts the engine must parse.
//   node mutate.js <count> <seed>
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import vm from "node:vm";
import { compile, here, random } from "./lib.js";

const count = Number(process.argv[2] ?? 2000);
const seed = Number(process.argv[3] ?? 1);
const r = random(seed);

const seeds = [];
for (const dir of ["node_modules/rxjs/src/internal/operators", "node_modules/zod/src/v4/core"])
  for (const f of readdirSync(path.join(here, dir)).filter((n) => n.endsWith(".ts")).slice(0, 60)) {
    const text = readFileSync(path.join(here, dir, f), "utf8");
    if (text.length < 20000) seeds.push(["m.ts", text]);
  }
for (const f of readdirSync(here).filter((n) => n.endsWith(".test.js"))) {
  const text = readFileSync(path.join(here, f), "utf8");
  for (let i = 0; i + 2000 < text.length && i < 20000; i += 2000) seeds.push(["m.js", text.slice(text.indexOf("\n", i), text.indexOf("\n", i + 1500))]);
}
seeds.push(["m.tsx", "enum A { B, C = 1 } namespace N { export let x = 1 } const e = <div a='1' {...b}>t {x} <B.C/></div>; class K<T> { constructor(private a: T) {} } export default <T,>(x: T) => <></>;"]);
seeds.push(["m.js", "import a, * as b from './m.js'; export * from './m.js'; export default class { static x = await 1 } for await (const q of a) b.c; a ||= 1; new a.b(c); `${a}`; export { a as 'x y' }; import('x'); import.meta.url; x<!--y"]);
const bits = ["export ", "default ", "import ", "await ", "(", ")", "{", "}", "[", "]", "=>", "async ", "function", "*", "class ", " as T", "<T>", ": any", "?", "!", "`", "${", "/", "//", "/*", "*/", "\n", ";", ",", "enum E {A}", "namespace N {", "<a>", "</a>", "arguments", "this", "\u2028", "\\u0061", "#!", "yield ", "static ", "abstract ", "declare ", "type X = ", "from './m.js'", "...", "=", "0", "'", '"', "<!--", "-->", "with {type:'json'}"];

let ok = 0;
let bad = 0;
for (let i = 0; i < count && bad < 5; i++) {
  let [name, text] = seeds[r(seeds.length)];
  for (let k = 1 + r(4); k > 0; k--) {
    const at = r(text.length + 1);
    const kind = r(4);
    if (kind === 0) text = text.slice(0, at) + text.slice(at + 1 + r(12));
    else if (kind === 1) text = text.slice(0, at) + bits[r(bits.length)] + text.slice(at);
    else if (kind === 2) {
      const from = r(text.length + 1);
      text = text.slice(0, at) + text.slice(from, from + r(40)) + text.slice(at);
    } else text = text.replace(/\b(export|import|const|let|function|class)\b/, bits[r(bits.length)]);
  }
  let result;
  try {
    // Whatever it imports, it gets: from one module that grows the exports asked for, constant and changing ones.
    const source = text.replace(/from\s*(['"])[^'"\n]*\1/g, 'from "./dep.js"').replace(/import\s*(['"])[^'"\n]*\1/g, 'import "./dep.js"');
    const names = [];
    for (let tries = 0; tries < 60; tries++) {
      const live = names.filter((_, k) => (k + i) % 2).map((n, k) => `let v${k} = 1; v${k}++; export { v${k} as ${JSON.stringify(n)} };`);
      const fixed = names.filter((_, k) => !((k + i) % 2)).map((n, k) => `const c${k} = 1; export { c${k} as ${JSON.stringify(n)} };`);
      result = compile({ [name]: source, "dep.js": [...live, ...fixed].join("") + (i % 3 ? "" : `import "./${name}";`) }, name);
      const missing = /does not provide an export named '(.*)'/.exec(result.error?.message)?.[1];
      if (missing === undefined || names.includes(missing)) break;
      names.push(missing);
    }
  } catch (e) {
    bad++;
    console.log(`seed ${seed} case ${i}: the compiler threw ${e.stack}\n${name}\n${text.slice(0, 3000)}`);
    continue;
  }
  if (!result.ok) continue;
  ok++;
  for (const m of result.modules)
    if (m.code)
      try {
        new vm.Script(m.code);
      } catch (e) {
        // Regular expressions and syntax newer than this V8 are not our affair.
        if (/regular expression|Invalid group/.test(e.message)) continue;
        bad++;
        console.log(`seed ${seed} case ${i}: accepted, but ${e.stack.split("\n").slice(0, 5).join("\n")}\n${name}\n${text.slice(0, 3000)}`);
      }
}
console.log(`${count} mutations from seed ${seed}: ${ok} compile, ${bad} wrong`);
process.exitCode = bad ? 1 : 0;
