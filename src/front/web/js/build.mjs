// Bundles read.js and its parser into one module, as a request to the compiler.
//   node build.mjs <output file>
import { build } from "esbuild";
import { writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

const { outputFiles } = await build({
  absWorkingDir: dirname(fileURLToPath(import.meta.url)),
  entryPoints: ["read.js"],
  bundle: true,
  format: "esm",
  platform: "neutral",
  target: "es2023",
  legalComments: "none",
  logLevel: "warning",
  minify: true,
  write: false,
});
writeFileSync(process.argv[2], JSON.stringify({ mainModule: "read.js", modules: { "read.js": outputFiles[0].text } }));
