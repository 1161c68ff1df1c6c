// The same expressions in node and in JavaScriptCore with our globals; every difference is a failure
// unless it is listed, with its reason, in diff.known.mjs.
//
//   node diff.mjs <globals-run> <web.js> [only]
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { cases } from "./diff.cases.mjs";
import { known } from "./diff.known.mjs";

if (!process.version.startsWith("v22.")) {
  console.log(`the excuses are for node 22, this is ${process.version}`);
  process.exit(77);
}
const here = dirname(fileURLToPath(import.meta.url));
const describe = readFileSync(join(here, "diff.describe.js"), "utf8");
const [run, bundle, only] = process.argv.slice(2);
const list = only ? cases.filter((c) => c.includes(only)) : cases;

const dir = mkdtempSync(join(tmpdir(), "globals-diff-"));
let ours, theirs;
try {
  const script = join(dir, "cases.js");
  writeFileSync(script, `${describe}
;(async () => { for (const c of ${JSON.stringify(list)}) print(JSON.stringify(await evaluate(c))); testsFailed = false; })();
globalThis.testsFailed = true;`);
  const r = spawnSync(run, [bundle, script], { encoding: "utf8", maxBuffer: 1 << 28, timeout: 300000 });
  ours = r.stdout.trim().split("\n").map((line) => JSON.parse(line));
  if (r.status !== 0) {
    console.log(`stopped (status ${r.status}, ${r.signal}) at ${list[ours.length] ?? "the end"}\n${r.stderr}`);
    process.exit(1);
  }
  const evaluate = new Function(`${describe}; return evaluate;`)();
  theirs = [];
  process.once("exit", () => {
    if (theirs.length < list.length) console.log(`node stopped at ${list[theirs.length]}`);
  });
  const alive = setInterval(() => {}, 1000); // AbortSignal.timeout() does not keep node alive
  for (const c of list) theirs.push(await evaluate(c));
  clearInterval(alive);
} finally {
  rmSync(dir, { recursive: true });
}

let bad = 0, excused = 0;
const used = new Set();
for (let i = 0; i < list.length; i++) {
  if (ours[i] === theirs[i]) continue;
  const reason = known.find((k) => k.test(list[i], ours[i], theirs[i]));
  if (reason) {
    excused++;
    used.add(reason);
    continue;
  }
  if (++bad <= 40) console.log(`DIFFERENT ${list[i]}\n   here: ${ours[i]}\n   node: ${theirs[i]}`);
}
for (const k of known) if (!only && !used.has(k)) console.log(`unused excuse: ${k.why}`), bad++;
console.log(`${list.length} expressions, ${bad} different, ${excused} known differences`);
if (ours.length !== list.length) throw new Error(`${ours.length} answers`);
process.exitCode = bad ? 1 : 0;
