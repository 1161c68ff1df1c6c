// Sources that a stranger may send to make the compiler slow: each of about `n` bytes.
const fill = (unit, n, head = "", tail = "") => head + unit.repeat(Math.ceil(n / unit.length)) + tail;
const list = (one, n) => {
  const out = [];
  for (let i = 0, length = 0; length < n; i++) {
    const text = one(i);
    out.push(text);
    length += text.length;
  }
  return out.join("");
};
// Nesting up to a depth that is allowed, again and again.
const nested = (open, middle, close, depth, n) => fill(open.repeat(depth) + middle + close.repeat(depth) + ";\n", n);

const js = {
  "one word": (n) => fill("abcdef0123456789", n, "export default x"),
  "one word in a string": (n) => fill("abcdef0123456789", n, 'export default "', '"'),
  "one word in a comment": (n) => fill("abcdef0123456789", n, "/* ", " */"),
  "one word in a template": (n) => fill("abcdef0123456789", n, "x = `", "`"),
  "one word with a dollar at its end": (n) => fill("abcdef0123456789", n, "import.meta; x", "$"),
  "dollars": (n) => fill("$", n, "import.meta; "),
  "dollars and letters": (n) => fill("a$", n, "import.meta; "),
  "dollars apart": (n) => fill("a $ ", n, "import.meta; /*", "*/"),
  "dollars in escapes": (n) => fill("\\u0024a", n, 'import.meta; "', '"'),
  "escapes that end nowhere": (n) => fill("\\\\u{", n, "'", "'"),
  "non-ASCII word": (n) => fill("é", n, "import.meta; x"),
  "backslashes": (n) => fill("\\\\", n, '"', '"'),
  "long string": (n) => fill("a b ", n, 'export default "', '"'),
  "one line of statements": (n) => fill("a;", n),
  "lines": (n) => fill("\n", n),
  "carriage returns": (n) => fill("\r", n),
  "white space": (n) => fill(" \t", n, "export default", "1"),
  "white space of Unicode": (n) => fill("\u00a0\u3000", n, "export default", "1"),
  "comments before an export's value": (n) => fill("/**/", n, "export default ", "function(){}"),
  "line comments before an export's value": (n) => fill("//\n", n, "export default ", "function(){}"),
  "html comments": (n) => fill("x<!--y;", n),
  "html comments in line comments": (n) => fill("// <!--\n", n, "", "x<!--y"),
  "slashes": (n) => fill("a / b / c;", n),
  "regular expressions": (n) => fill("/a[b]{2,}(?<n>c)/v;", n),
  "one regular expression": (n) => fill("(?:a|b)*", n, "/", "/"),
  "one regular expression with names": (n) => list((i) => `(?<n${i}>a)`, n).replace(/^/, "/") + "/",
  "one regular expression with one name": (n) => fill("(?<n>a)|", n, "/", "/"),
  "one regular expression with references": (n) => fill("\\k<n>", n, "/(?<n>a)", "/"),
  "one regular expression with numbers": (n) => fill("\\1", n, "/(a)", "/"),
  "one regular expression with classes": (n) => fill("[a-z&&[b]]", n, "/", "/v"),
  "parentheses": (n) => nested("(", "a", ")", 150, n),
  "brackets": (n) => nested("[", "a", "]", 150, n),
  "braces": (n) => fill("{".repeat(150) + "}".repeat(150) + "\n", n),
  "arrows": (n) => nested("a=>(", "1", ")", 100, n),
  "arrows with patterns": (n) => nested("({a})=>(", "1", ")", 80, n),
  "arrows in defaults": (n) => nested("(a=", "1", ")=>1", 80, n),
  "patterns in assignments": (n) => fill("[".repeat(80) + "a" + "]".repeat(80) + "=b;\n", n),
  "assignments in patterns": (n) => fill("[".repeat(80) + "a" + "=1]".repeat(80) + "=b;\n", n),
  "templates": (n) => nested("`${", "a", "}`", 100, n),
  "template pieces": (n) => fill("${a}b", n, "`", "`"),
  "functions": (n) => fill("(function f(){".repeat(60) + "})".repeat(60) + ";\n", n),
  "functions with live imports": (n) => fill("(function f(){var q;".repeat(60) + "a" + "})".repeat(60) + ";\n", n, 'import {a} from "./d.js";'),
  "vars in nested functions": (n) => fill("(()=>{var b; {".repeat(60) + "var a" + "}})".repeat(60) + ";\n", n, 'import {a} from "./d.js";'),
  "blocks that hide a live import": (n) => fill("{let a;".repeat(100) + "a" + "}".repeat(100) + "\n", n, 'import {a} from "./d.js";'),
  "deep reads of live imports": (n) => fill("{let b;".repeat(100) + "a;".repeat(100) + "}".repeat(100) + "\n", n, 'import {a, b} from "./d.js";'),
  "live imports on one line": (n) => fill("a;", n, 'import {a} from "./d.js";'),
  "classes": (n) => fill("(class {x=".repeat(60) + "1" + "})".repeat(60) + ";\n", n),
  "class members": (n) => list((i) => `m${i}(){}`, n).replace(/^/, "class A {") + "}",
  "private names": (n) => list((i) => `#p${i};`, n).replace(/^/, "class A {") + "}",
  "private names used": (n) => "class A {" + list((i) => `#p${i};m${i}(){this.#p${i}}`, n) + "}",
  "private names used inside": (n) => "class A {" + list((i) => `#p${i} = class { m(){x.#p${i}} };`, n) + "}",
  "declarations": (n) => list((i) => `let v${i};`, n),
  "vars": (n) => "{{{{" + list((i) => `var v${i};`, n) + "}}}}",
  "vars in blocks": (n) => list((i) => `{var v${i}}`, n),
  "functions in blocks": (n) => list((i) => `{function v${i}(){}}`, n),
  "parameters": (n) => "function f(" + list((i) => `p${i},`, n) + "z){}",
  "labels": (n) => list((i) => `l${i}: for(;;) break l${i};`, n),
  "cases": (n) => "switch (a) {" + list((i) => `case ${i}: let v${i};`, n) + "}",
  "properties": (n) => "x = {" + list((i) => `p${i}:1,`, n) + "}",
  "imports": (n) => list((i) => `import {a as a${i}} from "./d.js";`, n),
  "imports of namespaces": (n) => list((i) => `import * as a${i} from "./d.js";`, n),
  "imports in one statement": (n) => "import {" + list((i) => `a as a${i},`, n) + '} from "./d.js";',
  "imports that are read": (n) => list((i) => `import {a as a${i}} from "./d.js";a${i};`, n),
  "imports that are assigned": (n) => list((i) => `import {a as a${i}} from "./d.js";a${i}=1;`, n),
  "imports that dollars collide with": (n) => list((i) => `import {a as a${i}} from "./d.js";a${i}$;$${i};`, n),
  "exports": (n) => list((i) => `export const v${i}=1;`, n),
  "an export list": (n) => "const v=1;export {" + list((i) => `v as v${i},`, n) + "};",
  "exports of another": (n) => list((i) => `export {a as a${i}} from "./d.js";`, n),
  "an export list of what is nowhere": (n) => "export {" + list((i) => `v${i},`, n) + "};",
  "dynamic imports": (n) => fill('import("./d.js");', n),
  "dynamic imports of what is nowhere": (n) => list((i) => `import("./x${i}.js");`, n),
  "import.meta": (n) => fill("import.meta;", n),
  "arguments": (n) => fill("typeof arguments;", n),
  "top-level await": (n) => fill("await 1;", n),
  "calls": (n) => nested("f(", "a", ")", 150, n),
  "a chain of calls": (n) => fill(".f()", n, "x"),
  "a chain of members": (n) => fill(".f", n, "x"),
  "an optional chain": (n) => fill("?.f", n, "x"),
  "operators": (n) => fill("a+".repeat(500) + "a;\n", n),
  "conditionals": (n) => fill("a?b:".repeat(100) + "c;\n", n),
  "sequences": (n) => fill("a,", n, "x=(", "a)"),
  "array elements": (n) => fill("a,", n, "x=[", "a]"),
  "arguments of a call": (n) => fill("a,", n, "f(", "a)"),
  "arguments that may be parameters": (n) => fill("a,", n, "async(", "a)"),
  "numbers": (n) => fill("1234567890", n, "x="),
  "big integers": (n) => fill("1234567890", n, "x=", "n"),
  "number separators": (n) => fill("1_", n, "x=", "1"),
  "sourceURL comments": (n) => fill("//# sourceURL=x\n", n),
  "an error at the end": (n) => fill("a;", n, "", "let let"),
  "an error at the end of many lines": (n) => fill("a;\n", n, "", "let let"),
  "strict-mode octal at the end": (n) => fill('"\\0";', n, "", "010"),
};

const ts = {
  "one word": js["one word"],
  "one word in a string": js["one word in a string"],
  "dollars": js.dollars,
  "nested generics": (n) => fill("f<a<b<c<d>>>>(1);\n", n),
  "deep generics": (n) => fill("f<" + "a<".repeat(60) + "b" + ">".repeat(60) + ">(1);\n", n),
  "a long string within speculation": (n) => "x = " + "f<".repeat(12) + '"' + "a".repeat(n) + '";',
  "comparisons that look like generics": (n) => fill("f<a<b<c<d;\n", n),
  "comparisons that look like generics, in a row": (n) => fill("(a < b, c);", n),
  "shifts": (n) => fill("a<b>>c;\n", n),
  "types": (n) => fill("var x: Array<Map<string,{a:number}[]>>;\n", n),
  "parenthesized types": (n) => fill("var x: " + "(".repeat(60) + "a" + ")".repeat(60) + ";\n", n),
  "arrows": (n) => fill("x = (a: number): string => a;\n", n),
  "arrows in arrows": (n) => nested("(a: number) => (", "1", ")", 60, n),
  "parentheses": (n) => nested("(", "a", ")", 100, n),
  "parentheses that may be arrows": (n) => nested("(a, ", "b", ")", 60, n),
  "conditionals that may be arrows": (n) => fill("a ? (b) : c;\n", n),
  "async calls": (n) => fill("async(a);", n),
  "async generics": (n) => fill("async<T>(a);", n),
  "templates": js.templates,
  "assertions": (n) => fill("<any>a;", n),
  "as": (n) => fill("x = a as any as b;", n),
  "a chain of as": (n) => fill(" as any".repeat(100) + ";a", n, "a"),
  "non-null": (n) => fill("a!!!;", n),
  "non-null on one": (n) => fill("!".repeat(100) + ";a", n, "a"),
  "enum members": (n) => "enum E {" + list((i) => `A${i},`, n) + "}",
  "enum members of others": (n) => "enum E { A," + list((i) => `A${i} = A | ${i},`, n) + "}",
  "enums": (n) => list((i) => `enum E${i} { A }`, n),
  "merged enums": (n) => fill("enum E { A = 1 }", n),
  "merged enums with references": (n) => list((i) => `enum E { A${i} = 1 + ${i} }`, n),
  "namespaces": (n) => list((i) => `namespace N${i} { export const a = 1; a; }`, n),
  "merged namespaces": (n) => fill("namespace N { export const a = 1 }", n),
  "nested namespaces": (n) => fill("namespace N {".repeat(50) + "export const a = 1" + "}".repeat(50) + "\n", n),
  "a namespace's exports": (n) => "namespace N {" + list((i) => `export let a${i} = ${i}; a${i}++;`, n) + "}",
  "a namespace of long names": (n) => list((i) => `namespace ${"n".repeat(n / 40)}${i % 2} {`, n) + "export enum E { A }" + "}".repeat(40),
  "aliases": (n) => "namespace N { export const a = 1 }" + list((i) => `export import a${i} = N.a;`, n),
  "aliases of aliases that are used": (n) => "namespace N { export const a = 1 } import a0 = N;" + list((i) => `import a${i + 1} = a${i};a${i};`, n),
  "patterns that a namespace exports": (n) => `namespace N { export const {${list((i) => `a${i},b:[b${i}],`, n)}} = x }`,
  "names in a namespace that are its own": (n) => list((i) => `namespace N { export const N = ${i} }`, n),
  "references into a namespace": (n) => `namespace N { export const a = 1; ${fill("a;{a}(a)=>a;", n)} }`,
  "one enum, seen from its end": (n) => `function f() { enum F { A = E.Z } } enum E { ${list((i) => `A${i},`, n)} Z }`,
  "one enum, each member of the one before": (n) => `enum E { A = 1, ${list((i) => `A${i} = A${i - 1 < 0 ? "" : i - 1} + 1,`, n)} }`,
  "one enum of what is not constant": (n) => `enum E { A = f(), ${list((i) => `A${i} = A + g(A),`, n)} }`,
  "constants of constants": (n) => `const a0 = 1;${list((i) => `const a${i + 1} = a${i} + a${i};enum E${i} { A = a${i} }`, n)}`,
  "awaits at the top": (n) => fill("await a;b;", n),
  "hexadecimal digits": (n) => fill("f", n, "x = 0x", "n"),
  "assertions over lines": (n) => fill("x = <T>\n<T>y;", n),
  "aliases of merged namespaces": (n) => list((i) => `namespace N { export const a${i} = 1 }`, n) + list((i) => `import b${i} = N.a${i};b${i};`, n),
  "aliases of aliases": (n) => "namespace N { export const a = 1 } import a0 = N;" + list((i) => `import a${i + 1} = a${i};`, n) + "a0;",
  "interfaces": (n) => fill("interface I<T> extends A<T> { a: T; (b: string): void }\n", n),
  "overloads": (n) => fill("function f(a: string): void;", n, "", "function f(a) {}"),
  "class members": (n) => "class A {" + list((i) => `private readonly m${i}?: string = "a";`, n) + "}",
  "methods": (n) => "class A {" + list((i) => `public m${i}<T>(a: T): T { return a }`, n) + "}",
  "parameter properties": (n) => "class A { constructor(" + list((i) => `private p${i}: any,`, n) + "z) {} }",
  "types in imports": (n) => list((i) => `import {type T${i}} from "./d.js";`, n),
  "types in one import": (n) => "import {" + list((i) => `type T${i},`, n) + "} from './d.js';",
  "imports never used": (n) => list((i) => `import {a as a${i}} from "./d.js";`, n),
  "an export list of types": (n) => list((i) => `type T${i} = 1;`, n) + "const v = 1; export { v," + list((i) => `T${i},`, n / 4) + "};",
  "a key far from its bracket": (n) => "class A { [" + " ".repeat(n) + "a" + " ".repeat(n) + "]: any = 1 }",
  "return types over lines": (n) => fill("x = (a): Array<\nb> => a;\n", n),
  "a return type far away": (n) => fill("x = (a " + " ".repeat(500) + "): Array<\nb> => a;\n", n),
  "patterns with types": (n) => fill("var {a, b}: any = c;\n", n),
  "one pattern with a type": (n) => "var {" + list((i) => `a${i},`, n) + "}: any = c;",
  "comments before a brace": (n) => "class A<T> " + "/**/".repeat(n / 4) + " implements B {}",
  "type predicates": (n) => fill("x = (a): a is b => true;\n", n),
  "declares": (n) => list((i) => `declare const a${i}: number;\n`, n),
  "an error at the end of many lines": js["an error at the end of many lines"],
};

const tsx = {
  "elements": (n) => fill("<a b='c'>{d}</a>;\n", n),
  "nested elements": (n) => fill("<a>".repeat(60) + "</a>".repeat(60) + ";\n", n),
  "attributes": (n) => fill(" b='c'", n, "<a", "/>"),
  "children": (n) => fill("{d}", n, "<a>", "</a>"),
  "text": (n) => fill("abc ", n, "<a>", "</a>"),
  "lines of text": (n) => fill("abc\n", n, "<a>", "</a>"),
  "blank lines of text": (n) => fill(" \n", n, "<a>", "</a>"),
  "blanks in text": (n) => fill(" ", n, "<a>x", "y\n</a>"),
  "blanks in an attribute": (n) => fill(" ", n, "<a b='x", "y'/>"),
  "tabs in text": (n) => fill("\t", n, "<a>x", "y\n</a>"),
  "entities": (n) => fill("&amp;", n, "<a>", "</a>"),
  "entities that end nowhere": (n) => fill("&", n, "<a>", "</a>"),
  "pragma comments": (n) => fill("/* @jsx  */", n),
  "blanks in a pragma": (n) => fill(" ", n, "/* @jsx", "*/ <a/>"),
  "dots in a pragma": (n) => fill("a.", n, "/* @jsx ", "- */ <a/>"),
  "names of helpers taken": (n) => fill("_jsx", n, "/** @jsxImportSource x */ /*", "*/"),
  "underscores after names of helpers": (n) => fill("_", n, "/** @jsxImportSource x */ /*_jsx", "*/"),
  "member names": (n) => fill("<a.b.c/>;", n),
  "one member name": (n) => fill(".b", n, "<a", "/>"),
};

const d = { "d.js": "export let a = 1, b = 1; a = 2; b = 2;" };
export const cases = {};
const add = (kind, table) => {
  for (const [name, make] of Object.entries(table)) cases[`${kind}: ${name}`] = (n) => ({ [`main.${kind}`]: make(n), ...d });
};
add("js", js);
add("ts", ts);
add("tsx", tsx);
add("cjs", {
  "one word": (n) => fill("abcdef0123456789", n, "x"),
  "exports": (n) => list((i) => `exports.v${i} = 1;`, n),
  "defineProperty": (n) => list((i) => `Object.defineProperty(exports, "v${i}", { enumerable: true, get: function () { return a.b; } });`, n),
  "requires": (n) => fill('require("./d.js");', n),
  "reexports": (n) => fill('__exportStar(require("./d.js"));', n),
  "module.exports": (n) => "module.exports = {" + list((i) => `v${i},`, n) + "};",
  "templates": js.templates,
  "braces": js.braces,
});
cases["json: arrays, broken at the end"] = (n) => ({ "main.js": 'import "./j.json"', "j.json": fill("[1],", n, "[") });
cases["json: one string, broken at the end"] = (n) => ({ "main.js": 'import "./j.json"', "j.json": fill("a", n, '["') });
cases["json: blanks, broken at the end"] = (n) => ({ "main.js": 'import "./j.json"', "j.json": fill(" ", n, "[", "x") });
cases["json: nested"] = (n) => ({ "main.js": 'import "./j.json"', "j.json": fill("[", n) });
cases["json: digits, broken at the end"] = (n) => ({ "main.js": 'import "./j.json"', "j.json": fill("1", n, "[", "x") });
cases["data: broken at the end"] = (n) => ({ "main.js": 'import d from "./d.bin"', "d.bin": { data: fill("A", n, "", "*") } });
cases["data: equals signs"] = (n) => ({ "main.js": 'import d from "./d.bin"', "d.bin": { data: fill("=", n) } });
cases["graph: a line of modules"] = (n) => {
  const modules = {};
  const count = 100;
  for (let i = 0; i < count; i++)
    modules[`m${i}.js`] = (i < count - 1 ? `export * from "./m${i + 1}.js";` : "") + list((k) => `export const v${i}_${k}=1;`, n / count);
  return { "main.js": 'import * as all from "./m0.js"; all;', ...modules };
};
cases["graph: names through a line of modules"] = (n) => {
  const modules = {};
  const count = 40;
  for (let i = 0; i < count; i++) modules[`m${i}.js`] = i < count - 1 ? `export * from "./m${i + 1}.js";` : list((k) => `export const v${k}=1;`, n);
  return { "main.js": "import {" + list((k) => `v${k},`, n / 3) + '} from "./m0.js";', ...modules };
};
cases["graph: specifiers"] = (n) => ({ "main.js": list((i) => `import "${"./".repeat(i % 50)}d.js";`, n), ...d });
cases["graph: one long specifier"] = (n) => ({ "main.js": `import "${"./".repeat(n / 2)}d.js"`, ...d });
cases["graph: one long specifier of names"] = (n) => ({ "main.js": `import "./${"a/../".repeat(n / 5)}d.js"`, ...d });
cases["graph: one long name that is nowhere"] = (n) => ({ "main.js": `import "./${"a/".repeat(n / 2)}d.js"`, ...d });
cases["graph: dotted name that is nowhere"] = (n) => ({ "main.js": `import "./${".a".repeat(n / 2)}"`, ...d });
