// Snippets put together at random, with line breaks and comments after any of their tokens: our output against TypeScript's.
//   node typescript-fuzz.js <count> <seed>
import ts from "typescript";
import { random } from "./lib.js";
import { CASES, JSX_CASES, TSX_CASES } from "./typescript-cases.js";
import { compare } from "./typescript-compare.js";

const count = Number(process.argv[2] ?? 2000);
const seed = Number(process.argv[3] ?? 1);
const r = random(seed);

const pools = [
  ["ts", Object.values(CASES).flat()],
  ["tsx", [...TSX_CASES.tsx, ...CASES.namespaces, ...CASES.enums, ...CASES.classes]],
  ["jsx", [...JSX_CASES.jsx, ...TSX_CASES.tsx.filter((s) => !/: T|<T|<const|\b(as|satisfies|namespace|enum)\b|!/.test(s))]],
];

// What TypeScript itself gets wrong.
function again(source, kind, why) {
  // `declare` and anything that no declaration begins with: it takes them for two statements on one line.
  if (/\bdeclare\b/.test(source) && why.startsWith("refused: Unexpected token")) return { verdict: "unknown" };
  // It leaves an object, function or class with type arguments, and a class after an assertion, without the parentheses it
  // needs as a statement.
  if (/\}\s*<\s*\w+\s*>|>[^<>;]*\bclass\b/.test(source)) return { verdict: "unknown" };
  // It reads statements with an await at the top level twice, and may leave one behind that was part of another.
  if (!/\bawait\b/.test(source)) return null;
  return /\b(import|export)\b/.test(source) ? { verdict: "unknown" } : compare(`async function w() {\n${source}\n}`, kind);
}

const FILL = ["\n", "\n", "\n", "\n\n", "\r\n", " ", "/*c*/", "/*\n*/", "//c\n", "\t\n", "\u2028"];

// The ends of all tokens, but of those within JSX text.
function tokenEnds(source, kind) {
  const file = ts.createSourceFile(`m.${kind}`, source, ts.ScriptTarget.ESNext, true);
  const ends = new Set();
  const walk = (n) => {
    const inner = n.getChildren(file);
    if (inner.length) for (const c of inner) walk(c);
    else if (n.kind !== ts.SyntaxKind.JsxText && n.end > 0 && n.end < source.length) ends.add(n.end);
  };
  walk(file);
  return [...ends].sort((a, b) => b - a);
}

// One token less, twice, or in the place of another.
function mutate(source, kind) {
  const ends = tokenEnds(source, kind);
  if (ends.length < 3) return source;
  const piece = () => {
    const i = r(ends.length - 1);
    return [ends[i + 1], ends[i]];
  };
  const [from, to] = piece();
  const [otherFrom, otherTo] = piece();
  const other = source.slice(otherFrom, otherTo);
  return source.slice(0, from) + r.pick(["", source.slice(from, to) + other, other]) + source.slice(to);
}

function generate() {
  const [kind, pool] = pools[r(10) < 7 ? 0 : 1 + r(2)];
  let source = r.pick(pool);
  for (let k = r(3); k > 0; k--) {
    const next = r.pick(pool);
    const isModule = /\b(import|export)\b/.test(next);
    source += r.pick(["\n", "\n", ";\n", ";"]) + (!isModule && r.chance(40) ? `{ ${next} }` : next);
  }
  if (source.startsWith("#!")) return { kind, source };
  if (r.chance(30)) source = mutate(source, kind);
  const percent = r.pick([0, 5, 20, 100]);
  for (const at of tokenEnds(source, kind)) if (r.chance(percent)) source = source.slice(0, at) + r.pick(FILL) + source.slice(at);
  return { kind, source };
}

const verdicts = { same: 0, refused: 0, unknown: 0, different: 0 };
for (let i = 0; i < count && verdicts.different < 5; i++) {
  const { kind, source } = generate();
  const first = compare(source, kind);
  const { verdict, why } = (first.verdict === "different" && again(source, kind, first.why)) || first;
  verdicts[verdict]++;
  if (verdict === "different") console.log(`seed ${seed} case ${i} (${kind}): ${JSON.stringify(source)}\n${why}`);
}
console.log(`${count} combinations from seed ${seed}: ${JSON.stringify(verdicts)}`);
process.exitCode = verdicts.different ? 1 : 0;
