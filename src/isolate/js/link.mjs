// Compiles modules at build time. The first is the main one; a module's name is its file's.
//   node link.mjs <compile.js> <output> <module>...
import { readFileSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import vm from "node:vm";

const [compiler, output, ...files] = process.argv.slice(2);
const context = vm.createContext({});
vm.runInContext(readFileSync(compiler, "utf8"), context);
const modules = Object.fromEntries(files.map((f) => [basename(f), readFileSync(f, "utf8")]));
const linked = context.__compile(JSON.stringify({ mainModule: basename(files[0]), modules }));
if (!JSON.parse(linked).ok) throw new Error(linked);
writeFileSync(output, linked);
