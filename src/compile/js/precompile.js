// Compiles modules at build time, with the bundled compiler.
//   node precompile.js BUNDLE OUTPUT MAIN FILE...
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import vm from "node:vm";

const [bundle, output, mainModule, ...files] = process.argv.slice(2);
vm.runInThisContext(readFileSync(bundle, "utf8"), { filename: bundle });
const modules = Object.fromEntries(files.map((f) => [path.basename(f), readFileSync(f, "utf8")]));
const response = globalThis.__compile(JSON.stringify({ mainModule, modules }));
if (!JSON.parse(response).ok) throw new Error(response);
writeFileSync(output, response);
