// A linked ES module -> the text of one function expression, and how the loader is to call it.
//
// Imports are parameters, so most modules keep every column. An import is a plain value when nothing can change it
// after this module starts; otherwise it is a getter, and references to it become calls.
import { NAMESPACE } from "./graph.js";
import { rewriteReferences } from "./refs.js";
import { skipTrivia } from "./edits.js";

// What a parameter gets; the loader has the same numbers.
export const ARG = { VALUE: 0, GETTER: 1, NAMESPACE: 2, META: 3, IMPORT: 4, ARGUMENTS: 5, EXPORT: 6, HOLDER: 7 };
export const FLAG = { ASYNC: 1, HOISTS: 2, DRIVEN: 4 };

// Names that the module cannot mean, however it may spell its own: with a `$`, and not among those it has. A hint makes
// the name readable where the engine quotes the source: "evaluating 'rows$().map'".
// Only from the start of a word: within a long one, each letter would be tried as a start.
const DOLLAR = /(?<![\w$\x80-\uffff])[\w$\x80-\uffff]*\$[\w$\x80-\uffff]*/g;

function helperNames(source) {
  const used = new Set(source.match(DOLLAR));
  if (source.includes("\\u")) {
    const plain = source.replace(/\\u(?:\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{4}))/g, (all, a, b) => {
      const code = parseInt(a ?? b, 16);
      return code <= 0x10ffff ? String.fromCodePoint(code) : all;
    });
    for (const name of plain.match(DOLLAR) ?? []) used.add(name);
  }
  let n = 0;
  return (hint) => {
    let name = hint + "$";
    if (hint === undefined || used.has(name)) {
      while (used.has("$" + n)) n++;
      name = "$" + n++;
    }
    used.add(name);
    return name;
  };
}

export function isMutable(m, local) {
  if (local === "*default*" || m.declared.get(local) === "const") return false;
  return m.opaque || m.assigned.has(local);
}

export function emit(module) {
  const { scan: m, hoists } = module;
  const { edits } = m;
  const fresh = helperNames(edits.source);
  const params = [];
  const args = [];
  let consts = "";
  const param = (name, kind, index = 0, slot = 0) => {
    params.push(name);
    args.push(kind, index, slot);
    return name;
  };

  const live = new Map();
  for (const [local, { binding }] of m.imports) {
    if (!binding) continue; // a type
    const { module: from, slot } = binding;
    if (slot !== NAMESPACE && (hoists || from.mutable?.[slot])) {
      live.set(local, param(fresh(local), ARG.GETTER, from.index, slot) + "()");
      continue;
    }
    const kind = slot === NAMESPACE ? ARG.NAMESPACE : ARG.VALUE;
    // A parameter could be assigned; an import cannot.
    if (m.assigned.has(local) || m.opaque) consts += `const ${local}=${param(fresh(), kind, from.index, slot)};`;
    else param(local, kind, from.index, slot);
  }
  if (live.size) {
    const readonly = fresh();
    if (rewriteReferences(module.ast, edits, live, readonly)) consts += `const ${readonly}=0;`;
  }
  if (m.metas.length) {
    const name = param(fresh(), ARG.META);
    for (const n of m.metas) edits.replace(n.start, n.end, name);
  }
  if (m.dynamics.length) {
    const name = param(fresh(), ARG.IMPORT);
    for (const n of m.dynamics) edits.replace(n.start, n.start + 6, name);
  }
  if (m.argumentsRefs.length) {
    const name = param(fresh(), ARG.ARGUMENTS);
    const text = { typeof: `${name}(1)`, shorthand: `arguments:${name}()`, undefined: `${name}()` };
    for (const n of m.argumentsRefs) edits.replace(n.start, n.end, text[n.kind]);
  }
  let holder = null;
  let unnamed = null;
  if (m.defaultHolder) {
    const { node, keyword } = m.defaultHolder;
    const d = node.declaration;
    if (hoists && d.type === "FunctionDeclaration") {
      unnamed = fresh();
      edits.blank(node.start, d.start, ";");
      edits.insert(afterFunctionKeyword(edits.source, d), " " + unnamed);
    } else {
      holder = hoists ? fresh() : param(fresh(), ARG.HOLDER);
      edits.replace(node.start, keyword + 7, hoists ? `;const ${holder}={default:` : `;${holder}={default:`);
      // The expression may stand in parentheses that belong to no node: close at the end of the statement.
      if (edits.source[node.end - 1] === ";" && !/Declaration$/.test(d.type)) edits.insert(node.end - 1, "}");
      else edits.insert(node.end, "};");
    }
  }
  const value = (local) => (local === "*default*" ? (unnamed ?? holder + ".default") : local);
  const slots = [];
  for (const [local] of m.slots) slots.push(hoists || isMutable(m, local) ? "()=>" + value(local) : value(local));

  const async = m.awaits.length > 0 || m.forAwaits;
  // An async generator cannot start in the turn it is told to, so a module that hoists and awaits is a plain generator
  // that the loader drives. Only `for await` cannot be said that way.
  const driven = hoists && async && !m.forAwaits;
  if (driven) for (const n of m.awaits) awaitToYield(edits, n, m.statements);
  const flags = (async ? FLAG.ASYNC : 0) | (hoists ? FLAG.HOISTS : 0) | (driven ? FLAG.DRIVEN : 0);
  const list = slots.length ? `[${slots}]` : "";
  let suffix = "\n})";
  if (hoists) {
    if (list) consts += `${param(fresh(), ARG.EXPORT)}(${list}${unnamed ? "," + unnamed : ""});`;
    consts += "yield;";
  } else if (list) suffix = async ? `\n;${param(fresh(), ARG.EXPORT)}(${list})})` : `\n;return${list}})`;
  const head = `(${async && !driven ? "async " : ""}function${hoists ? "*" : ""}(${params}){"use strict";${consts}`;
  const { code, map } = edits.apply(head, suffix);
  return { code, map, args, flags };
}

// await x -> (yield(x)); a statement must not begin with a parenthesis, or it would continue the one before.
function awaitToYield(edits, n, statements) {
  edits.insert(n.start, statements.has(n.start) ? "0,(" : "(");
  edits.replace(n.start, n.start + 5, "yield(");
  edits.insert(n.end, "))");
}

function afterFunctionKeyword(source, d) {
  let i = d.start;
  if (d.async) i = skipTrivia(source, i + 5);
  i += 8;
  return d.generator ? skipTrivia(source, i) + 1 : i;
}
