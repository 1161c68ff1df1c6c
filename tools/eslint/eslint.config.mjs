// What is wrong in any JavaScript of ours, whatever it is for. How it looks is nobody's business here.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../", import.meta.url));

const names = (text, how = "readonly") => Object.fromEntries(text.split(/\s+/).filter(Boolean).map((n) => [n, how]));
const web = names(`AbortController AbortSignal Blob Event EventTarget File FormData Headers MessageChannel ReadableStream
  Request Response TextDecoder TextEncoder TransformStream URL URLSearchParams WebSocket WritableStream atob btoa
  clearInterval clearTimeout console crypto fetch navigator performance queueMicrotask setInterval setTimeout
  structuredClone CompressionStream DecompressionStream DOMException`);
const node = { ...web, ...names("Buffer clearImmediate global process setImmediate") };
const commonjs = { ...names("require"), ...names("exports module", "writable") };
// The numbers that js/core/build.mjs takes out of these headers.
const numbers = names(["src/wire/isolate.h", "src/isolate/isolate.h"]
  .flatMap((file) => readFileSync(root + file, "utf8").match(/\bISOLATE_\w+/g)).join(" "));

const rules = Object.fromEntries(`constructor-super for-direction getter-return no-class-assign no-compare-neg-zero
  no-const-assign no-constant-binary-expression no-debugger no-delete-var no-dupe-args no-dupe-class-members no-dupe-else-if
  no-dupe-keys no-duplicate-case no-duplicate-imports no-ex-assign no-func-assign no-import-assign no-invalid-regexp
  no-loss-of-precision no-new-native-nonconstructor no-obj-calls no-redeclare no-self-assign no-setter-return
  no-shadow-restricted-names no-this-before-super no-undef no-unreachable no-unreachable-loop
  no-unsafe-finally no-unsafe-negation no-unused-labels no-unused-private-class-members no-useless-catch no-var prefer-const
  require-yield use-isnan valid-typeof`.split(/\s+/).map((rule) => [rule, "error"]));
rules["no-unused-vars"] = ["error", { args: "none", caughtErrors: "none", ignoreRestSiblings: true }];
rules["prefer-const"] = ["error", { destructuring: "all" }];
rules["eqeqeq"] = ["error", "always", { null: "ignore" }];

export default [
  { linterOptions: { reportUnusedDisableDirectives: "error" } },
  { files: ["**/*.js", "**/*.mjs"], rules, languageOptions: { ecmaVersion: "latest", sourceType: "module", globals: node } },
  {
    files: ["src/isolate/js/core/*.js"],
    languageOptions: { globals: { ...numbers, ...names("host installWeb loader webHost"), ...names("prelude", "writable") } },
  },
  {
    files: ["src/isolate/js/web/**/*.js"],
    languageOptions: { sourceType: "commonjs", globals: { ...commonjs, ...names("core host") } },
  },
  // What runs in a page, also as the text of a function that a test sends there.
  {
    files: ["tests/agents/dom.mjs", "tests/browser/*.mjs", "web/**/*.js"],
    languageOptions: {
      globals: names(`PopStateEvent dispatchEvent document getComputedStyle history localStorage location sessionStorage
        window`),
    },
  },
  { files: ["bench/isolate/*.js"], languageOptions: { globals: names("__N__") } },
  // Programs for the engine alone, of which each harness has its own globals.
  {
    files: ["tests/globals/*.js", "tests/isolate/js/*.js", "tests/compile/prelude.js"],
    rules: { "no-undef": "off", "no-unused-vars": "off", "no-var": "off" },
  },
  { files: ["tests/globals/*.js"], languageOptions: { sourceType: "script" } },
  { files: ["tests/isolate/js/intl.js"], languageOptions: { sourceType: "commonjs" } }, // the body of a function
];
