// Prints what compiling costs in a warm JavaScriptCore, and what the loader costs, in processor time.
//   node bench.js
import { Jsc } from "./lib.js";

const HARNESS = `
import { WorkerEntrypoint } from "cloudflare:workers";
import run from "user-code.js";
export default class extends WorkerEntrypoint {
verify() {}
async run() {
await run(this.env);
}
}
`;
const USER = `export default async function(env) {
  const rows = await env.db.query("SELECT * FROM customers WHERE tier = 'Gold'");
  console.log("Gold customers:", rows.length);
  for (const row of rows) {
    console.log(\` - \${row.name} (\${row.region})\`);
  }
  const total = rows.map((r) => r.id).reduce((a, b) => a + b, 0);
  return { total, names: rows.map(({ name }) => name).sort() };
}
`;
const TYPED = USER.replace("(env)", "(env: { db: { query(sql: string): Promise<Row[]> } }): Promise<unknown>") + "\ninterface Row { id: number; name: string; region: string }\n";
const big = Array.from({ length: 400 }, (_, i) => `export function f${i}(a, b = ${i}) {\n  const list = [a, b, ...[1, 2, 3]].map((x) => x * ${i});\n  if (list.length > ${i}) return { a, b, list, text: \`v\${a}\` };\n  return list.filter(Boolean).reduce((x, y) => x + y, 0);\n}\n`).join("");

const cases = {
  "one module": [{ "main.js": USER }, "main.js"],
  "harness pair": [{ "harness.js": HARNESS, "user-code.js": USER }, "harness.js"],
  "one TypeScript module": [{ "main.ts": TYPED }, "main.ts"],
  [`one module of ${(big.length / 1024).toFixed(0)} KB`]: [{ "main.js": big }, "main.js"],
};

const jsc = new Jsc();
const js = (v) => JSON.stringify(JSON.stringify(v));
for (const [name, [modules, mainModule]] of Object.entries(cases)) {
  // New text each time: neither our process nor the engine has seen it.
  const n = name.includes("KB") ? 40 : 2000;
  const out = await jsc.job(
    "P",
    `(() => { const base = JSON.parse(${js({ mainModule, modules })}); const times = []; let size = 0;
for (let i = 0; i < ${n}; i++) { const m = {}; for (const k in base.modules) m[k] = base.modules[k] + "//" + i; const text = JSON.stringify({ ...base, modules: m });
const t = cpuUs(); const r = __compile(text); times.push(cpuUs() - t); size = r.length; }
const first = times[0]; const last = times.slice(times.length >> 1).sort((a, b) => a - b); times.sort((a, b) => a - b); print(JSON.stringify({ first, p50: last[last.length >> 1], p99: times[Math.floor(times.length * 0.99)], size })); })()`,
    60000,
  );
  const r = JSON.parse(out);
  console.log(`compile ${name}: p50 warm ${r.p50.toFixed(0)} us, p99 ${r.p99.toFixed(0)} us, first ${r.first.toFixed(0)} us, ${r.size} bytes out`);
}

// The loader in a context that has run ten other programs, as a warmed zygote has; the code is new.
for (const [name, [modules, mainModule]] of Object.entries(cases).slice(0, 2)) {
  const programs = [];
  for (let i = 0; i < 60; i++)
    programs.push(await jsc.compile(Object.fromEntries(Object.entries(modules).map(([k, v]) => [k, `${v}//${i}`])), mainModule));
  const names = programs[0].modules.find((m) => m.kind === "builtin")?.names ?? [];
  const out = await jsc.job(
    "F",
    `(() => { const builtins = { "cloudflare:workers": {} }; for (const n of ${JSON.stringify(names)}) builtins["cloudflare:workers"][n] = class {};
for (const text of ${JSON.stringify(programs.map((p) => JSON.stringify(p)))}) {
const t0 = cpuUs(); const program = JSON.parse(text); const t1 = cpuUs(); const p = __loader.link(program, evalScript, builtins); const t2 = cpuUs(); p.evaluate(() => {}); const t3 = cpuUs(); p.get("default"); print([t1 - t0, t2 - t1, t3 - t2, cpuUs() - t3].join()) } })()`,
  );
  const times = out.trim().split("\n").map((l) => l.split(",").map(Number));
  const p50 = (k) => times.slice(10).map((t) => t[k]).sort((x, y) => x - y)[25].toFixed(0);
  const first = times[0].reduce((x, y) => x + y).toFixed(0);
  console.log(`run ${name}: parse JSON ${p50(0)} us, link ${p50(1)} us, evaluate ${p50(2)} us, get the export ${p50(3)} us; the first program ${first} us`);
}
await jsc.close();
