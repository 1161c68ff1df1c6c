// What the TypeScript compiler makes of one module, and syntax trees to compare it by.
import path from "node:path";
import ts from "typescript";
import { jsDir } from "./lib.js";
const { Parser } = await import(path.join(jsDir, "node_modules/acorn/dist/acorn.mjs"));

const options = {
  target: ts.ScriptTarget.ESNext,
  module: ts.ModuleKind.ESNext,
  moduleDetection: ts.ModuleDetectionKind.Force,
  isolatedModules: true,
  removeComments: true,
  jsx: ts.JsxEmit.React,
};

// The JavaScript, or null with the first error.
export function transpile(source, kind) {
  let result;
  try {
    result = ts.transpileModule(source, { compilerOptions: options, fileName: `m.${kind}`, reportDiagnostics: true });
  } catch {
    return { code: "it threw" }; // no JavaScript
  }
  const { outputText, diagnostics } = result;
  // Types in JavaScript are let through.
  const errors = diagnostics.filter((d) => d.code < 8000 || d.code > 8999);
  return errors.length ? { code: null, error: ts.flattenDiagnosticMessageText(errors[0].messageText, " ") } : { code: outputText };
}

// Whether the checker, which transpileModule leaves out, finds fault with the grammar: the output is then of no account.
export function isUngrammatical(source, kind) {
  const name = `m.${kind}`;
  const setExternalModuleIndicator = (f) => {
    f.externalModuleIndicator = true;
  };
  const file = ts.createSourceFile(name, source, { languageVersion: ts.ScriptTarget.ESNext, setExternalModuleIndicator }, true);
  const program = ts.createProgram([name], { ...options, noLib: true, noResolve: true, types: [], allowJs: true, checkJs: true }, {
    ...ts.createCompilerHost({}),
    getSourceFile: (f) => (f === name ? file : undefined),
    fileExists: (f) => f === name,
    readFile: () => undefined,
    writeFile() {},
  });
  return program.getSemanticDiagnostics(file).some((d) => (d.code >= 1000 && d.code < 2000) || GRAMMAR.has(d.code));
}
// What acorn refuses, too, and TypeScript numbers among its other errors.
const GRAMMAR = new Set([
  2300, // duplicate identifier
  2364, // the left-hand side of an assignment
  2357, // the operand of an increment
  2392, // two constructors
  2393, // duplicate function
  2451, // redeclared
  2480, // let as a name
  2481,
  2528, // two default exports
  2588, // assignment to a constant
  2632, // assignment to an import
  2714, // the expression of an export assignment
  2779, // optional chain on the left
  2440, // an import and a declaration of one name
  2487, // for-of target
  2406, // for-in target
  2819, // namespace name
  2369, // parameter property where there is no body
  2398,
  2377, // super() is missing
  17009, // this before super()
  18016, // #x outside a class
  18030,
]);

// What is wrong with it as JavaScript, or null.
export function syntaxError(code) {
  try {
    Parser.parse(code, { ecmaVersion: "latest", sourceType: "module" });
    return null;
  } catch (e) {
    return e.message;
  }
}

// The tree without positions, and without what means nothing: empty statements and `export {}`.
export function tree(code) {
  const ast = Parser.parse(code, { ecmaVersion: "latest", sourceType: "module" });
  return JSON.stringify(ast, (key, value) => {
    if (key === "start" || key === "end" || key === "raw" || key === "directive") return undefined;
    if (typeof value === "bigint") return `${value}n`;
    if (value instanceof RegExp) return String(value);
    if (Array.isArray(value)) return value.filter((n) => !isNothing(n));
    // (a?.b)?.c is a?.b?.c
    if (value?.optional && value.object?.type === "ChainExpression") return { ...value, object: value.object.expression };
    if (value?.optional && value.callee?.type === "ChainExpression") return { ...value, callee: value.callee.expression };
    return value;
  });
}

function isNothing(n) {
  if (n?.type === "EmptyStatement") return true;
  return n?.type === "ExportNamedDeclaration" && !n.declaration && !n.specifiers.length && !n.source;
}
