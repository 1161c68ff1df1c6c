// Random module graphs: our compiler and loader against the engine's own modules (vm.SourceTextModule).
//   node --experimental-vm-modules fuzz.js <count> <seed>
import vm from "node:vm";
import { compile, Jsc, runInNode } from "./lib.js";

const count = Number(process.argv[2] ?? 300);
const firstSeed = Number(process.argv[3] ?? 1);

function random(seed) {
  let s = (seed * 2654435761) >>> 0 || 1;
  const next = () => {
    s ^= s << 13;
    s >>>= 0;
    s ^= s >>> 17;
    s ^= s << 5;
    s >>>= 0;
    return s / 4294967296;
  };
  const r = (n) => Math.floor(next() * n);
  r.chance = (p) => next() < p;
  r.pick = (list) => list[r(list.length)];
  return r;
}

// Every module exports some of these; importers mostly ask for names that exist.
export function generate(seed) {
  const r = random(seed);
  const n = 1 + r(7);
  const names = Array.from({ length: n }, (_, i) => `m${i}.js`);
  const awaits = r.chance(0.5);
  const cyclic = r.chance(0.6);
  const faults = r.chance(0.25);
  const plans = names.map((name, i) => {
    const exports = [];
    for (const e of ["c", "l", "v", "f", "k"]) if (r.chance(0.5)) exports.push(`${e}${i}`);
    if (r.chance(0.15)) exports.push("shared");
    return { name, i, exports, hasDefault: r.chance(0.5), stars: [], reexports: [] };
  });
  const modules = {};
  for (const p of plans) {
    const { i } = p;
    const lines = [];
    const tail = [];
    const locals = [];
    const targets = plans.filter((q) => (cyclic ? r.chance(0.4) : q.i > i && r.chance(0.5)));
    for (let t = targets.length - 1; t > 0; t--) {
      const k = r(t + 1);
      [targets[t], targets[k]] = [targets[k], targets[t]];
    }
    for (const q of targets) {
      const from = `"./${q.name}"`;
      const u = `${i}_${q.i}`;
      const some = q.exports.filter(() => r.chance(0.6));
      switch (r(7)) {
        case 0:
          lines.push(`import ${from};`);
          break;
        case 1:
          lines.push(`import * as ns${u} from ${from};`);
          if (r.chance(0.3)) tail.push(`export { ns${u} as nsx${u} };`);
          locals.push(`ns${u}.${q.exports[0] ?? "none"}`, `Object.keys(ns${u}).join("+")`);
          break;
        case 2:
          lines.push(`export * from ${from};`);
          break;
        case 3:
          lines.push(`export * as star${u} from ${from};`);
          break;
        case 4:
          if (some.length) lines.push(`export { ${some.map((e) => `${e} as re${u}_${e}`).join(", ")} } from ${from};`);
          else lines.push(`import {} from ${from};`);
          break;
        default: {
          const list = some.map((e) => `${e} as ${e}_${u}`);
          locals.push(...some.map((e) => `${e}_${u}`));
          if (q.hasDefault && r.chance(0.6)) {
            list.push(`default as d_${u}`);
            locals.push(`d_${u}`);
          }
          if (faults && r.chance(0.05)) list.push(`missing as mi_${u}`);
          if (r.chance(0.2)) list.push(`shared as sh_${u}`);
          lines.push(`import { ${list.join(", ")} } from ${from};`);
          if (some.length && r.chance(0.3)) tail.push(`export { ${some[0]}_${u} as via${u} };`);
        }
      }
    }
    const show = (e) => `try { log("${p.name}", ${JSON.stringify(e)}, show(${e})) } catch (e) { log("${p.name}", ${JSON.stringify(e)}, e.name) }`;
    const look = locals.map(show);
    const body = [`log("${p.name} start");`, ...look];
    for (const e of p.exports) {
      if (e === "shared") body.push(`export const shared = "shared${i}";`);
      else if (e[0] === "c") body.push(`export const ${e} = "${e}";`);
      else if (e[0] === "l") body.push(`export let ${e} = 1; ${r.chance(0.7) ? `const up${i} = () => { ${e}++; }; up${i}();` : ""}`);
      else if (e[0] === "v") body.push(`export var ${e} = "${e}";`);
      else if (e[0] === "f")
        body.push(`export function ${e}() { ${locals.length && r.chance(0.5) ? `try { return "f:" + show(${r.pick(locals)}) } catch (e) { return "f!" + e.name }` : `return "${e}"`} }`);
      else body.push(`export class ${e} { static n = "${e}" }`);
    }
    if (p.hasDefault)
      body.push(
        r.pick([
          `export default function () { return "def${i}" }`,
          `export default class { static n = 1 }`,
          `export default "def${i}" + (1, 2)`,
          `export default (() => "arrow${i}")`,
          `export default function named${i}() { return named${i}.name }`,
          `export default async function () {}`,
        ]) + ";",
      );
    if (awaits) for (let k = r(4); k > 0; k--) if (r.chance(0.6)) body.splice(r(body.length + 1), 0, `await ${r.pick(["0", "null", "Promise.resolve(1)", "new Promise((r) => r())"])}; log("${p.name} awaited");`);
    if (faults && r.chance(0.12)) body.splice(r(body.length + 1), 0, `throw new Error("thrown by ${p.name}");`);
    if (r.chance(0.3)) body.push(...look);
    body.push(`log("${p.name} end");`);
    modules[p.name] = [...lines, ...body, ...tail].join("\n");
  }
  if (r.chance(0.3)) {
    // Last of all, one after the other: how many turns import() takes is the host's affair.
    const again = [r.pick(names), r.pick(names)];
    modules["main.js"] =
      `import * as ns from "./m0.js"; log("main", Object.keys(ns).join());\n` +
      again.map((a) => `try { const n = await import("./${a}"); log("dynamic", Object.keys(n).join(), n === ns) } catch (e) { log("dynamic", e.name, e.name === "SyntaxError" || e.message) }`).join("\n");
    return { main: "main.js", modules };
  }
  return { main: "m0.js", modules };
}

// Functions may call each other in circles through imports: three levels are enough.
const HEAD = `let depth = 0; globalThis.show = (x) => { if (depth > 2) return "deep"; depth++; try { return typeof x === "function" ? "fn " + x.name + (/^class/.test(String(x)) ? "" : "=" + String(x())) : typeof x === "object" ? "obj " + Object.keys(x) : String(x) } catch (e) { return "!" + e.name } finally { depth-- } };
globalThis.log = (...a) => print(a.map(String).join(" "));`;

async function oracle({ main, modules }) {
  const lines = [];
  const context = vm.createContext({ print: (...a) => lines.push(a.join(" ")) });
  vm.runInContext(HEAD, context);
  const table = new Map();
  const get = (specifier) => {
    const name = specifier.replace(/^\.\//, "");
    if (!table.has(name))
      table.set(
        name,
        new vm.SourceTextModule(modules[name], {
          context,
          identifier: name,
          importModuleDynamically: async (s) => {
            const m = get(s);
            if (m.status === "unlinked") await m.link(get);
            await m.evaluate();
            return m;
          },
        }),
      );
    return table.get(name);
  };
  let end;
  try {
    const m = get(main);
    await m.link(get);
    try {
      await m.evaluate();
      end = "DONE";
    } catch (e) {
      end = `FAIL ${e.name}: ${e.message}`;
    }
  } catch (e) {
    return `LINK ${e.name}`;
  }
  await new Promise((r) => setImmediate(r)); // modules beside a failed one run on
  return [...lines, end].join("\n");
}

// Without frames, and with the end at the end.
const trim = (text) => {
  const lines = text.replace(/^ {4}at .*$\n?/gm, "").trim().split("\n");
  const isEnd = (l) => /^(DONE$|FAIL )/.test(l);
  return [...lines.filter((l) => !isEnd(l)), ...lines.filter(isEnd)].join("\n");
};

async function ours(p, engine) {
  const program = await engine.compile(p.modules, p.main);
  if (!program.ok) return `LINK ${program.error.name}`;
  return trim(await engine.run(program, "null"));
}

const jsc = new Jsc();
const inNode = {
  compile: (m, main) => compile(m, main),
  run: (program) => runInNode(withHead(program)),
};
const inJsc = {
  compile: (m, main) => jsc.compile(m, main),
  run: (program) => jsc.run(withHead(program)),
};
// The first thing that any body does is to see that the helpers exist.
function withHead(program) {
  const head = `"use strict";globalThis.log||(()=>{${HEAD.replace(/\n/g, "")}})();`;
  const modules = program.modules.map((m) => (m.code ? { ...m, code: m.code.replace('"use strict";', head) } : m));
  return { ...program, modules };
}

let failed = 0;
let links = 0;
let fails = 0;
for (let seed = firstSeed; seed < firstSeed + count && failed < 5; seed++) {
  const p = generate(seed);
  const want = await oracle(p);
  if (want.startsWith("LINK")) links++;
  if (/^FAIL/m.test(want)) fails++;
  for (const [where, engine] of [["JavaScriptCore", inJsc], ["node", inNode]]) {
    let got;
    try {
      got = await ours(p, engine);
    } catch (e) {
      got = `CRASH ${e.stack}`;
    }
    if (got !== want) {
      failed++;
      console.log(`seed ${seed} in ${where}:\n== modules`);
      for (const [n, s] of Object.entries(p.modules)) console.log(`-- ${n}\n${s}`);
      console.log(`== want\n${want}\n== got\n${got}`);
      break;
    }
  }
}
await jsc.close();
console.log(`${count} graphs from seed ${firstSeed}: ${failed} differ (${links} do not link, ${fails} throw)`);
process.exitCode = failed ? 1 : 0;
