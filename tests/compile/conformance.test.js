// The longer checks, shortened unless CAY_SOAK is set: random graphs against the engine's own modules, and test262.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { here, top } from "./lib.js";

const soak = Boolean(process.env.CAY_SOAK);
const run = promisify(execFile);
const script = (name, ...args) =>
  run(process.execPath, ["--experimental-vm-modules", "--no-warnings", path.join(here, name), ...args], {
    maxBuffer: 1 << 26,
  }).catch((e) => ({ stdout: `${e.stdout}\n${e.stderr}`, failed: true }));

test("random module graphs behave as the engine's own modules", async () => {
  const seed = soak ? Math.floor(Date.now() / 1000) % 1000000 : 1;
  const { stdout, failed } = await script("fuzz.js", String(soak ? 5000 : 150), String(seed));
  console.log("# " + stdout.trim().split("\n").pop());
  assert.ok(!failed, stdout.slice(0, 20000));
});

test("broken source gets an answer, and what compiles the engine parses", async () => {
  const { stdout, failed } = await script("mutate.js", String(soak ? 20000 : 300), soak ? String(Date.now() % 1000000) : "1");
  console.log("# " + stdout.trim().split("\n").pop());
  assert.ok(!failed, stdout.slice(0, 20000));
});

const suite = process.env.CAY_TEST262 ?? path.join(top, "build/test262");
if (soak && !existsSync(suite)) await run(path.join(here, "get-test262.sh"), [suite]);

test("test262", { skip: existsSync(suite) ? false : "not fetched; tests/compile/get-test262.sh does that" }, async () => {
  const { stdout, failed } = await script("test262.js", ...(soak ? ["--all"] : ["language/module-code/namespace"]));
  console.log("# " + stdout.trim().split("\n").pop());
  assert.ok(!failed, stdout.slice(0, 20000));
});

test("timings", { skip: soak ? false : "printed in the soak run" }, async () => {
  const { stdout } = await script("bench.js");
  for (const line of stdout.trim().split("\n")) console.log("# " + line);
});
