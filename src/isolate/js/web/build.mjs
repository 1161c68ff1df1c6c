// Bundles the web globals into one script: an expression whose value is a function (host, core) => web.
// Each file is a CommonJS module that esbuild wraps in a function, so that nothing but entry.js and
// primordials.js runs (or is compiled) before a program first touches the global that needs it.
//
//   node build.mjs <output file>
import { build } from "esbuild";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));

// The names that packages look up globally at their first use, which may come after a program has
// replaced them. They are constants of the function around the bundle instead.
const captured = [
  "Array", "ArrayBuffer", "BigInt", "BigInt64Array", "BigUint64Array", "Boolean", "DataView", "Date",
  "Error", "EvalError", "Float32Array", "Float64Array", "Function", "Int8Array", "Int16Array",
  "Int32Array", "JSON", "Map", "Math", "Number", "Object", "Promise", "Proxy", "RangeError",
  "ReferenceError", "Reflect", "RegExp", "Set", "String", "Symbol", "SyntaxError", "TypeError",
  "URIError", "Uint8Array", "Uint8ClampedArray", "Uint16Array", "Uint32Array", "WeakMap", "WeakRef",
  "WeakSet", "decodeURIComponent", "encodeURIComponent", "isFinite", "isNaN", "parseFloat", "parseInt",
];

// whatwg-url asks SharedArrayBuffer, which JSC does not have here, whether a value is one: never.
const absent = "class SharedArrayBuffer{get byteLength(){throw new TypeError}}";

// What the packages need of the platform is ours: UTF-8 and UTS 46 are native.
const replaced = {
  "tr46": "shim/tr46.js",
  "webidl-conversions": "shim/webidl-conversions.js",
  "./encoding": "shim/encoding.js",
  "@exodus/bytes/encoding.js": "shim/empty.js",
  "@exodus/bytes/whatwg.js": "shim/exodus-bytes.js",
};
const replace = {
  name: "replace",
  setup(b) {
    b.onResolve({ filter: /./ }, (args) =>
      args.importer.includes("/whatwg-url/") && replaced[args.path] !== undefined
        ? { path: join(here, replaced[args.path]) } : undefined);
  },
};

await build({
  entryPoints: [join(here, "entry.js")],
  outfile: process.argv[2],
  bundle: true,
  format: "iife",
  globalName: "__web",
  platform: "neutral",
  mainFields: ["main"],
  target: "es2022",
  minifyWhitespace: true,
  minifySyntax: true,
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
  plugins: [replace],
  banner: { js: `(function(host,core){"use strict";const{${captured}}=globalThis;${absent}` },
  footer: { js: "return __web(host,core)})" },
});
