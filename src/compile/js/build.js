// Bundles the compiler and the loader, each into one classic script for bare JavaScriptCore.
//   node build.js [output directory [--erase]]
import { build } from "esbuild";
import { fileURLToPath } from "node:url";
import path from "node:path";
import { licenceOf, typescriptParser } from "./cut.js";

const here = path.dirname(fileURLToPath(import.meta.url));
const out = path.resolve(process.argv[2] ?? path.join(here, "../../../build/js"));
const common = {
  absWorkingDir: here,
  bundle: true,
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
  platform: "neutral",
  mainFields: ["module", "main"],
  target: "es2023",
  // acorn would make a value of each `123n`, in time that is quadratic in its digits. The text is all we need.
  define: { BigInt: "undefined" },
  plugins: [typescriptParser(here)],
  // The package's ES module entry is WebAssembly; this one is the same lexer in JavaScript.
  alias: { "cjs-module-lexer": "./node_modules/cjs-module-lexer/lexer.js" },
};

// For tests of the step from TypeScript to JavaScript alone.
if (process.argv[3] === "--erase")
  await build({ ...common, entryPoints: ["typescript.js"], outfile: path.join(out, "erase.mjs"), format: "esm" });
await build({
  ...common,
  entryPoints: ["compile.js"],
  outfile: path.join(out, "compile.js"),
  format: "iife",
  minifyWhitespace: true,
  minifySyntax: true,
  banner: { js: licenceOf(here) },
});
// The loader's completion value is the loader object: nothing of it becomes a global.
await build({
  ...common,
  entryPoints: ["loader.js"],
  outfile: path.join(out, "loader.js"),
  format: "iife",
  globalName: "loader",
  minifyWhitespace: true,
  minifySyntax: true,
  write: false,
}).then(async ({ outputFiles }) => {
  const { writeFile, mkdir } = await import("node:fs/promises");
  const text = outputFiles[0].text.trim();
  const head = "var loader=";
  if (!text.startsWith(head)) throw new Error("unexpected bundle shape: " + text.slice(0, 40));
  await mkdir(out, { recursive: true });
  await writeFile(path.join(out, "loader.js"), "(" + text.slice(head.length).replace(/;$/, "") + ").default\n");
});
