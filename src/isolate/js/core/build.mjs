// Bundles the core prelude into one script: an expression whose value is a function (host, loader, installWeb, webHost)
// => prelude. The modules are joined into one scope, so that nothing of them is left at run time. Names that begin with
// ISOLATE_ are the constants of the headers given, and stand for themselves.
//
//   node build.mjs <output file> <header>...
import { build } from "esbuild";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const [output, ...headers] = process.argv.slice(2);

// A number as C writes it: 12, 0x1f, 256u << 10, (1 << 3).
function number(text) {
  const plain = text.replace(/\b(0x[0-9a-f]+|\d+)u?l*\b/gi, "$1").trim();
  return /^[-\d\sxa-f()<|]+$/i.test(plain) ? Function(`return ${plain}`)() : undefined;
}

// The values of enums and of macros that are numbers.
function constants(text) {
  const found = {};
  const code = text.replace(/\/\*[^]*?\*\//g, "");
  for (const [, name, value] of code.matchAll(/^#define (ISOLATE_\w+)[ \t]+(.+)$/gm)) found[name] = number(value);
  for (const [, body] of code.matchAll(/^enum \w+ \{([^}]*)\}/gm)) {
    let next = 0;
    for (const [, name, value] of body.matchAll(/(\w+)(?:\s*=\s*([^,]+))?/g)) {
      const own = value === undefined ? next : number(value);
      if (own === undefined) throw new Error(`${name}: cannot read "${value}"`);
      found[name] = own;
      next = own + 1;
    }
  }
  return found;
}

const define = {};
for (const header of headers)
  for (const [name, value] of Object.entries(constants(readFileSync(header, "utf8"))))
    if (name.startsWith("ISOLATE_") && value !== undefined) define[name] = `${value}`;

await build({
  entryPoints: [join(here, "main.js")],
  outfile: output,
  bundle: true,
  format: "esm",
  platform: "neutral",
  target: "esnext",
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
  define,
  banner: { js: '(function (host, loader, installWeb, webHost) {\n"use strict";\nlet prelude;' },
  footer: { js: "return prelude;\n})" },
});
