// TypeScript's own parser, cut out of the package "typescript" while the compiler is bundled.
//
// The package is one file of 9 MB; its sections carry the names of the sources they were made from. Scanner, parser and
// what they need come first, and esbuild drops most of the rest of that. What the cut adds are the guards that untrusted
// input needs (guard.js). Whatever is not found as expected in the file fails the build, so a new version of the package
// cannot lose a guard.
import { readFileSync } from "node:fs";
import path from "node:path";

const PACKAGE = "node_modules/typescript/lib/typescript.js";
const FIRST = "// src/compiler/corePublic.ts\n";
const AFTER = "// src/compiler/commandLineParser.ts\n";
const JSX = "// src/compiler/transformers/jsx.ts\n";
const AFTER_JSX = "// src/compiler/transformers/es2016.ts\n";

const EXPORTS = ["createSourceFile", "entities", "forEachChild", "getLeadingCommentRanges", "idText", "objectAllocator", "skipTrivia", "SyntaxKind"];

// Every way in which one rule of the grammar comes to contain itself goes through one of these.
const NESTED = [
  "parseAssignmentExpressionOrHigher",
  "parseSimpleUnaryExpression",
  "parseNewExpressionOrNewDotTarget",
  "parseJsxElementOrSelfClosingElementOrFragment",
  "parseIdentifierOrPattern",
  "parseStatement",
  "parseModuleOrNamespaceDeclaration",
  "parseType",
  "parseTypeOperatorOrHigher",
];

function once(text, what, replacement) {
  const parts = text.split(what);
  if (parts.length !== 2) throw new Error(`typescript.js has ${parts.length - 1} times, not once: ${what}`);
  return parts[0] + replacement + parts[1];
}

function section(text, from, to) {
  const start = text.indexOf(from);
  const end = text.indexOf(to);
  if (start < 0 || end < start) throw new Error(`typescript.js has no section ${from.trim()} before ${to.trim()}`);
  return text.slice(start, end);
}

function nested(text, name) {
  const [head, args] = new RegExp(`\\n  function ${name}\\(([^)]*)\\) \\{\\n`).exec(text) ?? [`function ${name}(`, ""];
  const names = args.replace(/ = \w+/g, "");
  const body = `enterNesting(scanner2.getTokenStart()); const result = ${name}Inner(${names}); leaveNesting(); return result; }`;
  return once(text, head, `\n  function ${name}(${args}) { ${body}\n  function ${name}Inner(${args}) {\n`);
}

function cutParser(file) {
  const all = readFileSync(file, "utf8");
  let text = section(all, FIRST, AFTER) + section(all, JSX, AFTER_JSX);
  text = once(text, section(text, "// src/compiler/sys.ts\n", "// src/compiler/path.ts\n"), "var sys;\n");
  for (const name of NESTED) text = nested(text, name);
  text = once(text, "return currentToken = scanner2.scan();", "currentToken = scanner2.scan(); spendToken(scanner2); return currentToken;");
  // All we read are modules: `await` is a word of theirs from the first token on. The parser would find out at the end, read
  // such statements again, and now and then leave the rest of one behind as a statement of its own.
  text = once(text, "contextFlags = 524288 /* JavaScriptFile */;", "contextFlags = 524288 | 65536 /* AwaitContext */;");
  text = once(text, "contextFlags = 0 /* None */;\n        break;\n    }\n    parseErrorBefore", "contextFlags = 65536;\n        break;\n    }\n    parseErrorBefore");
  // Its value is not needed, and takes time that is quadratic in its digits.
  text = once(text, "function parsePseudoBigInt(stringValue) {", "function parsePseudoBigInt(stringValue) { return stringValue;");
  // Messages of the checker.
  const used = new Set(text.match(/(?<=\bDiagnostics\.)\w+/g));
  text = text.replace(/^ {2}(\w+): diag\(.*\),?$\n/gm, (line, name) => (used.has(name) ? line : ""));
  // Lists of exports, and what only the checker and the file system need, are never asked for: let esbuild see that.
  text = text.replace(/^__export\(\w+, \{$[\s\S]*?^\}\);$/gm, "");
  text = text.replace(/^var (\w+) = (?=[\w.]+\(|new |\(\()/gm, "var $1 = /* @__PURE__ */ ");
  return `import { enterNesting, leaveNesting, spendToken } from "./guard.js";\n${text}\nexport { ${EXPORTS.join(", ")} };\n`;
}

// The package's own words about copyright, which go where its code goes.
export function licenceOf(dir) {
  return /^\/\*![^]*?\*\//.exec(readFileSync(path.join(dir, PACKAGE), "utf8"))[0];
}

// For esbuild: what `import "typescript-parser"` means.
export const typescriptParser = (dir) => ({
  name: "typescript-parser",
  setup(build) {
    build.onResolve({ filter: /^typescript-parser$/ }, () => ({ path: "typescript-parser", namespace: "cut" }));
    build.onLoad({ filter: /.*/, namespace: "cut" }, () => ({
      contents: cutParser(path.join(dir, PACKAGE)),
      resolveDir: dir,
    }));
  },
});
