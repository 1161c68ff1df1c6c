// test262 in JavaScriptCore through our compiler and loader.
//   node test262.js [--all] [--verbose] [filter]
// Without --all: the tests flagged "module". With it, also every strict-mode language test as the body of a module,
// and each that fails is tried as a plain strict script: what the engine itself fails is not ours.
// Exit status 1 when a test fails that test262-expected.txt does not name, or one passes that it does name.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { here, Jsc, top } from "./lib.js";

const root = process.env.CAY_TEST262 ?? path.join(top, "build/test262");
const args = process.argv.slice(2);
const all = args.includes("--all");
const verbose = args.includes("--verbose");
const filter = args.find((a) => !a.startsWith("--")) ?? "";

function* files(dir) {
  for (const e of readdirSync(dir, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const p = path.join(dir, e.name);
    if (e.isDirectory()) yield* files(p);
    else if (e.name.endsWith(".js") && !e.name.includes("_FIXTURE")) yield p;
  }
}

function metadata(source) {
  const text = /\/\*---([\s\S]*?)---\*\//.exec(source)?.[1] ?? "";
  const listOf = (key) => {
    const inline = new RegExp(`^${key}:\\s*\\[([^\\]]*)\\]`, "m").exec(text)?.[1];
    if (inline !== undefined) return inline.split(",").map((s) => s.trim()).filter(Boolean);
    const block = new RegExp(`^${key}:\\s*\\n((?:\\s+-.*\\n?)+)`, "m").exec(text)?.[1] ?? "";
    return [...block.matchAll(/-\s*(\S+)/g)].map((m) => m[1]);
  };
  const negative = /^negative:\s*\n((?:\s+.*\n?)+?)(?=^\S|$(?![\s\S]))/m.exec(text)?.[1] ?? "";
  return {
    flags: listOf("flags"),
    includes: listOf("includes"),
    features: listOf("features"),
    negative: negative && { phase: /phase:\s*(\w+)/.exec(negative)?.[1], type: /type:\s*(\w+)/.exec(negative)?.[1] },
  };
}

const harness = new Map();
const include = (name) => {
  if (!harness.has(name)) harness.set(name, readFileSync(path.join(root, "harness", name), "utf8"));
  return harness.get(name);
};
const js = (text) => JSON.stringify(text).replace(/[\u2028\u2029]/g, (c) => "\\u" + c.charCodeAt(0).toString(16));

function setup(meta) {
  const names = ["assert.js", "sta.js", ...(meta.flags.includes("async") ? ["doneprintHandle.js"] : []), ...meta.includes];
  return names.map((n) => `evalScript(${js(include(n))}, ${js("cay:" + n)});`).join("\n");
}

// Tests import each other, too.
function modulesFor(file) {
  const dir = path.dirname(file);
  const modules = {};
  for (const name of readdirSync(dir))
    if (name.endsWith(".js")) modules[name] = readFileSync(path.join(dir, name), "utf8");
  return modules;
}

async function runModule(jsc, file, meta, modules) {
  const main = path.basename(file);
  const program = await jsc.compile(modules, main, { limits: { modules: 5000 } });
  const { negative } = meta;
  if (!program.ok) {
    // This edition still calls errors of linking "runtime".
    if (negative && program.error.name === negative.type) return null;
    return `compile: ${program.error.name}: ${program.error.message}`;
  }
  if (negative && negative.phase !== "runtime") return `compiled, but should be a ${negative.type} (${negative.phase})`;
  const text = js(JSON.stringify(program));
  const output = await jsc.job(
    "F",
    `${setup(meta)}
(() => { const say = print, f = __loader.formatStack; let p;
try { p = __loader.link(JSON.parse(${text}), evalScript, {}) } catch (e) { say("LINK " + f(e)); return }
p.evaluate(() => say("DONE"), (e) => say("FAIL " + f(e) + " " + (e && e.constructor && e.constructor.name))) })()`,
  );
  return verdict(output, meta);
}

function verdict(output, { negative, flags }) {
  if (negative) {
    const ok = new RegExp(`^(FAIL|LINK|UNCAUGHT) ${negative.type}\\b`, "m").test(output) || new RegExp(`^(FAIL|UNCAUGHT).* ${negative.type}$`, "m").test(output);
    return ok ? null : `should throw ${negative.type}: ${output}`;
  }
  if (/^(FAIL|LINK|UNCAUGHT)/m.test(output)) return output;
  if (flags.includes("async")) return output.includes("Test262:AsyncTestComplete") ? null : output || "never done";
  return output.includes("DONE") ? null : `no end: ${output}`;
}

async function runScript(jsc, source, meta) {
  const output = await jsc.job("F", `${setup(meta)}\nevalScript(${js('"use strict";\n' + source)}, "test.js");\nprint("DONE")`);
  return verdict(output, meta);
}

export async function run() {
  if (!existsSync(path.join(root, "test/language"))) return null;
  const expected = new Map();
  for (const line of readFileSync(path.join(here, "test262-expected.txt"), "utf8").split("\n")) {
    const m = /^(\S+)\s+(.+)$/.exec(line);
    if (m && !line.startsWith("#")) expected.set(m[1], m[2]);
  }
  let jsc = new Jsc();
  const result = { passed: 0, failed: [], expectedFailures: 0, unexpectedPasses: [], engine: [], tailCalls: 0, skipped: 0 };
  for (const file of files(path.join(root, "test/language"))) {
    const name = path.relative(path.join(root, "test"), file);
    if (!name.includes(filter)) continue;
    const source = readFileSync(file, "utf8");
    const meta = metadata(source);
    const isModule = meta.flags.includes("module");
    if (!isModule && !all) continue;
    // The runner turns proper tail calls off, for the sake of stacks: that is our choice, not the engine's failure.
    if (meta.features.includes("tail-call-optimization")) {
      result.tailCalls++;
      continue;
    }
    if (!isModule && (meta.flags.includes("noStrict") || meta.flags.includes("raw") || /\$262|realm/i.test(source))) {
      result.skipped++;
      continue;
    }
    let why;
    try {
      why = await runModule(jsc, file, meta, isModule ? modulesFor(file) : { [path.basename(file)]: source });
      // Not ours, if the engine does the same with it as a script.
      if (why !== null && !isModule && (await runScript(jsc, source, meta)) !== null) {
        result.engine.push([name, why]);
        continue;
      }
    } catch (e) {
      why = `crash: ${e.message}`;
      await jsc.close();
      jsc = new Jsc();
    }
    if (why === null) {
      result.passed++;
      if (expected.has(name)) result.unexpectedPasses.push(name);
    } else if (expected.has(name)) result.expectedFailures++;
    else result.failed.push([name, why]);
  }
  await jsc.close();
  return result;
}

if (process.argv[1] === path.join(here, "test262.js")) {
  const r = await run();
  if (!r) {
    console.log("test262 is not here: run tests/compile/get-test262.sh");
    process.exit(77);
  }
  for (const [name, why] of r.failed) console.log(`${name} ${verbose ? why : why.split("\n")[0].slice(0, 150)}`);
  for (const name of r.unexpectedPasses) console.log(`passes, but is expected to fail: ${name}`);
  // What is left out of the figure can be seen: a regression of ours must not hide there.
  if (verbose) for (const [name, why] of r.engine) console.log(`engine: ${name} ${why.split("\n")[0].slice(0, 120)}`);
  const total = r.passed + r.failed.length + r.expectedFailures;
  console.log(
    `test262: ${r.passed} of ${total} pass (${total ? ((100 * r.passed) / total).toFixed(2) : 0} %), ${r.expectedFailures} fail as expected, ` +
      `${r.failed.length} fail otherwise; left out: ${r.engine.length} that fail as a plain script, too, ` +
      `${r.tailCalls} of tail calls, which are turned off, ${r.skipped} of sloppy mode or realms`,
  );
  process.exitCode = r.failed.length || r.unexpectedPasses.length ? 1 : 0;
}
