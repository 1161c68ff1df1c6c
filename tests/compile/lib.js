// Builds the bundles and the JavaScriptCore runner, and runs programs in both engines.
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import vm from "node:vm";

export const here = path.dirname(fileURLToPath(import.meta.url));
export const top = path.resolve(here, "../..");
export const jsDir = path.join(top, "src/compile/js");
export const out = process.env.CAY_BUILD_DIR ?? path.join(top, "build", "compile-tests");

const newest = (files) => Math.max(...files.map((f) => statSync(f).mtimeMs));

function build() {
  mkdirSync(out, { recursive: true });
  const names = ["compile.js", "erase.mjs", "loader.js"];
  const bundles = names.map((f) => path.join(out, f));
  const sources = readdirSync(jsDir)
    .filter((f) => f.endsWith(".js") || f === "package-lock.json")
    .map((f) => path.join(jsDir, f));
  if (!bundles.every(existsSync) || Math.min(...bundles.map((f) => statSync(f).mtimeMs)) < newest(sources))
  {
    // Test files run side by side: nobody may see half a bundle.
    const temporary = path.join(out, `bundles.${process.pid}`);
    execFileSync(process.execPath, [path.join(jsDir, "build.js"), temporary, "--erase"], { stdio: ["ignore", "inherit", "inherit"] });
    for (const f of names) renameSync(path.join(temporary, f), path.join(out, f));
    rmSync(temporary, { recursive: true });
  }
  const runner = path.join(out, "jscrun");
  const source = path.join(here, "jscrun.c");
  if (!existsSync(runner) || statSync(runner).mtimeMs < statSync(source).mtimeMs) {
    const flags = execFileSync("pkg-config", ["--cflags", "--libs", "javascriptcoregtk-4.1"], { encoding: "utf8" });
    const warn = "-Wall -Wextra -Wshadow -Wconversion -Wvla -Wstrict-prototypes -Werror".split(" ");
    const temporary = `${runner}.${process.pid}`;
    execFileSync(process.env.CC ?? "gcc", ["-std=gnu17", "-O2", ...warn, source, "-o", temporary, ...flags.trim().split(/\s+/)]);
    renameSync(temporary, runner);
  }
}
build();

export const { erase } = await import(path.join(out, "erase.mjs"));

export const compileSource = readFileSync(path.join(out, "compile.js"), "utf8");
export const loaderSource = readFileSync(path.join(out, "loader.js"), "utf8");
export const jscrun = path.join(out, "jscrun");

// ---- node ----

const nodeCompiler = vm.createContext({});
vm.runInContext(compileSource, nodeCompiler, { filename: "compile.js" });

export const compileText = (request) => nodeCompiler.__compile(request);

export function compile(modules, mainModule = Object.keys(modules)[0], more = {}) {
  return JSON.parse(nodeCompiler.__compile(JSON.stringify({ mainModule, modules, ...more })));
}

// What the isolate's prelude would hand over.
export const BUILTINS = `({"cloudflare:workers":{WorkerEntrypoint:class WorkerEntrypoint{constructor(ctx,env){this.ctx=ctx;this.env=env}},
DurableObject:class{},RpcPromise:class{},RpcProperty:class{},RpcStub:class{},RpcTarget:class{},ServiceStub:class{},WorkflowEntrypoint:class{},
env:{},exports:{},waitUntil(){},withEnv(){},withExports(){},withEnvAndExports(){}},"cloudflare:sockets":{connect(){},internalNewHttpClient(){}}})`;

// Runs in both engines: links, evaluates, calls `then` (source of a function of the linked program), prints the end.
const RUN = `(function(program, loader, then, builtins) {
  var say = print, format = loader.formatStack, linked;
  try { linked = loader.link(program, evalScript, builtins); }
  catch (e) { say("LINK " + format(e)); return; }
  linked.evaluate(function (p) {
    if (!then) { say("DONE"); return; }
    try {
      var r = then(p, loader);
      if (r && typeof r === "object" && r.then) r.then(function () { say("DONE"); }, function (e) { say("FAIL " + format(e)); });
      else say("DONE");
    } catch (e) { say("FAIL " + format(e)); }
  }, function (e) { say("FAIL " + format(e)); });
})`;

export async function runInNode(program, then = "null") {
  const lines = [];
  const context = vm.createContext({ print: (...a) => lines.push(a.map(String).join(" ")) }, { microtaskMode: "afterEvaluate" });
  context.evalScript = vm.runInContext("(f) => (code, url) => f(code, url)", context)((code, url) =>
    vm.runInContext(code, context, { filename: url }),
  );
  // V8 has no Uint8Array.fromBase64 before version 13.
  context.__b64 = (s) => [...Buffer.from(s, "base64")];
  vm.runInContext("Uint8Array.fromBase64??=(f=>s=>new Uint8Array(f(s)))(__b64);delete globalThis.__b64", context);
  context.console = { log: (...a) => lines.push(a.map((x) => (typeof x === "string" ? x : JSON.stringify(x))).join(" ")) };
  const loader = vm.runInContext(loaderSource, context, { filename: "cay:loader" });
  context.__program = JSON.stringify(program);
  context.__loader = loader;
  vm.runInContext(`${RUN}(JSON.parse(__program),__loader,${then},${BUILTINS})`, context, { filename: "job.js" });
  await new Promise((r) => setImmediate(r));
  return lines.join("\n");
}

// ---- JavaScriptCore ----

export class Jsc {
  constructor() {
    const prelude = path.join(out, `prelude.${process.pid}.js`);
    writeFileSync(prelude, `var __loaderPath=${JSON.stringify(path.join(out, "loader.js"))};` + readFileSync(path.join(here, "prelude.js"), "utf8"));
    this.child = spawn(jscrun, ["--serve", path.join(out, "compile.js"), "--", prelude], { stdio: ["pipe", "pipe", "inherit"] });
    this.child.stdin.on("error", () => {});
    this.buffer = Buffer.alloc(0);
    this.waiting = [];
    this.child.stdout.on("data", (d) => {
      this.buffer = Buffer.concat([this.buffer, d]);
      this.drain();
    });
    this.child.on("exit", (code, signal) => {
      rmSync(prelude, { force: true });
      this.gone = `jscrun ended: ${signal ?? code}`;
      for (const w of this.waiting.splice(0)) w.reject(new Error(this.gone));
    });
  }
  drain() {
    for (;;) {
      const nl = this.buffer.indexOf(10);
      if (nl < 0) return;
      const length = Number(this.buffer.subarray(0, nl).toString());
      if (this.buffer.length < nl + 1 + length) return;
      const text = this.buffer.subarray(nl + 1, nl + 1 + length).toString();
      this.buffer = this.buffer.subarray(nl + 1 + length);
      this.waiting.shift().resolve(text);
    }
  }
  job(kind, source, timeoutMs = 120000) {
    if (this.gone) return Promise.reject(new Error(this.gone));
    const body = Buffer.from(source);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.child.kill("SIGKILL");
        reject(new Error(`no answer from JavaScriptCore within ${timeoutMs} ms`));
      }, timeoutMs);
      const end = (f) => (v) => {
        clearTimeout(timer);
        f(v);
      };
      this.waiting.push({ resolve: end(resolve), reject: end(reject) });
      this.child.stdin.write(`${kind} ${body.length}\n`);
      this.child.stdin.write(body);
    });
  }
  async compile(modules, mainModule = Object.keys(modules)[0], more = {}) {
    const request = JSON.stringify(JSON.stringify({ mainModule, modules, ...more }));
    return JSON.parse(await this.job("P", `print(__compile(${request.replace(/[\u2028\u2029]/g, (c) => "\\u" + c.charCodeAt(0).toString(16))}))`));
  }
  async run(program, then = "null") {
    const text = JSON.stringify(JSON.stringify(program)).replace(/[\u2028\u2029]/g, (c) => "\\u" + c.charCodeAt(0).toString(16));
    return (await this.job("F", `${RUN}(JSON.parse(${text}),__loader,${then},${BUILTINS})`)).replace(/\n$/, "");
  }
  close() {
    this.child.stdin.end();
    return new Promise((r) => (this.child.exitCode !== null || this.child.signalCode ? r() : this.child.on("exit", r)));
  }
}

let shared;
export function jsc() {
  return (shared ??= new Jsc());
}
export async function closeJsc() {
  await shared?.close();
  shared = undefined;
}

// Compiles in both engines, runs in both, and wants one answer. Returns the lines.
export async function run(modules, { main = Object.keys(modules)[0], then = "null", same = true, ...more } = {}) {
  const a = compile(modules, main, more);
  const b = await jsc().compile(modules, main, more);
  if (JSON.stringify(a) !== JSON.stringify(b))
    throw new Error(`the engines compile differently:\n${JSON.stringify(a)}\n${JSON.stringify(b)}`);
  if (!a.ok) throw Object.assign(new Error(`compile: ${a.error.message}`), { compileError: a.error });
  const inJsc = await jsc().run(b, then);
  if (same) {
    const inNode = await runInNode(a, then);
    const plain = (t) => t.replace(/^ {4}at .*$\n?/gm, "").trim();
    if (plain(inJsc) !== plain(inNode)) throw new Error(`the engines differ:\n-- JavaScriptCore\n${inJsc}\n-- node\n${inNode}`);
  }
  return inJsc;
}

// Numbers below n, the same for the same seed.
export function random(seed) {
  let s = (seed * 2654435761) >>> 0 || 1;
  const r = (n) => {
    s ^= s << 13;
    s >>>= 0;
    s ^= s >>> 17;
    s ^= s << 5;
    s >>>= 0;
    return s % n;
  };
  r.chance = (percent) => r(100) < percent;
  r.pick = (list) => list[r(list.length)];
  return r;
}
