// One parsed ES module -> what linking needs to know about it, and the edits that do not depend on other modules.
import { tick } from "./budget.js";
import { CompileError } from "./errors.js";
import { Edits, skipTrivia } from "./edits.js";
import { patternIds, pushChildren } from "./tree.js";

const IN_FUNCTION = 1; // await here is not top level
const OWN_ARGUMENTS = 2; // arguments here is some function's

const nameOf = (n) => (n.type === "Literal" ? n.value : n.name);

// requests: what the module asks for, in source order, once each: {specifier, type, pos}
// imports:  local name -> {request, name, pos}; name "*" is the namespace
// exports:  [{name, local, pos}] or [{name, request, from, pos}] in source order
// stars:    requests of `export * from`
// settled:  names that top-level code alone sets, once, to a new object: an assignment of one does not count
export function scan(ast, source, settled) {
  const m = {
    edits: new Edits(source),
    requests: [],
    imports: new Map(),
    exports: [],
    stars: [],
    declared: new Map(), // top-level names -> "var" | "let" | "const" | "function" | "class"
    assigned: new Set(), // names that are assigned somewhere after their declaration, in any scope
    awaits: [], // top-level await expressions
    forAwaits: false, // top-level for await
    statements: new Set(), // where top-level expression statements start
    metas: [],
    dynamics: [],
    argumentsRefs: [],
    defaultHolder: null, // the edit points of an `export default` without a name of its own
    opaque: false, // direct eval may read or write any binding
  };
  const index = new Map();
  const request = (node) => {
    let type = "";
    const seen = new Set();
    for (const a of node.attributes ?? []) {
      const key = nameOf(a.key);
      if (seen.has(key)) throw new CompileError("SyntaxError", `Duplicate import attribute '${key}'`, a.start);
      seen.add(key);
      if (key !== "type")
        throw new CompileError("SyntaxError", `Import attribute '${key}' is not supported; only 'type' is`, a.start);
      type = a.value.value;
      if (type !== "json" && type !== "text" && type !== "bytes")
        throw new CompileError("SyntaxError", `Import attribute type '${type}' is not supported`, a.start);
    }
    const key = type + "\0" + node.source.value;
    let i = index.get(key);
    if (i === undefined) {
      index.set(key, (i = m.requests.length));
      m.requests.push({ specifier: node.source.value, type, pos: node.source.start });
    }
    return i;
  };
  for (const node of ast.body) scanTopLevel(node, m, source, request);
  for (const e of m.exports) {
    // `import { x } from "a"; export { x }` is an indirect export: it resolves straight to a's binding.
    const i = e.local !== undefined ? m.imports.get(e.local) : undefined;
    if (!i) continue;
    e.local = undefined;
    e.request = i.request;
    e.from = i.name;
    e.namespace = i.namespace;
  }
  walk(ast, m, settled);
  if (source.includes("<!--")) htmlComments(ast, m, source);
  if (source.startsWith("#!")) m.edits.replace(0, 2, "//");
  return m;
}

function scanTopLevel(node, m, source, request) {
  const { edits } = m;
  switch (node.type) {
    case "ImportDeclaration": {
      const r = request(node);
      for (const s of node.specifiers) {
        const name =
          s.type === "ImportDefaultSpecifier" ? "default" : s.type === "ImportNamespaceSpecifier" ? "*" : nameOf(s.imported);
        m.imports.set(s.local.name, { request: r, name, namespace: s.type === "ImportNamespaceSpecifier", pos: s.start });
      }
      edits.blank(node.start, node.end, ";");
      break;
    }
    case "ExportAllDeclaration": {
      const r = request(node);
      if (node.exported)
        m.exports.push({ name: nameOf(node.exported), request: r, from: "*", namespace: true, pos: node.exported.start });
      else m.stars.push(r);
      edits.blank(node.start, node.end, ";");
      break;
    }
    case "ExportNamedDeclaration":
      if (node.declaration) {
        declare(node.declaration, m);
        for (const id of declaredIds(node.declaration)) m.exports.push({ name: id.name, local: id.name, pos: id.start });
        edits.replace(node.start, node.start + 6, ";");
      } else {
        const r = node.source ? request(node) : undefined;
        for (const s of node.specifiers) {
          const name = nameOf(s.exported);
          const local = nameOf(s.local);
          m.exports.push(r === undefined ? { name, local, pos: s.start } : { name, request: r, from: local, pos: s.start });
        }
        edits.blank(node.start, node.end, ";");
      }
      break;
    case "ExportDefaultDeclaration": {
      const d = node.declaration;
      if ((d.type === "FunctionDeclaration" || d.type === "ClassDeclaration") && d.id) {
        declare(d, m);
        m.exports.push({ name: "default", local: d.id.name, pos: node.start });
        edits.blank(node.start, d.start, ";");
      } else {
        m.defaultHolder = { node, keyword: skipTrivia(source, node.start + 6) };
        m.exports.push({ name: "default", local: "*default*", pos: node.start });
      }
      break;
    }
    default:
      declare(node, m);
  }
}

function declaredIds(d) {
  if (d.type !== "VariableDeclaration") return d.id ? [d.id] : [];
  const ids = [];
  for (const one of d.declarations) patternIds(one.id, ids);
  return ids;
}

function declare(node, m) {
  if (node.type === "VariableDeclaration") for (const id of declaredIds(node)) m.declared.set(id.name, node.kind);
  else if (node.type === "FunctionDeclaration") m.declared.set(node.id.name, "function");
  else if (node.type === "ClassDeclaration") m.declared.set(node.id.name, "class");
}

function walk(ast, m, settled) {
  const nodes = [ast];
  const contexts = [0];
  const ids = [];
  while (nodes.length) {
    tick();
    const n = nodes.pop();
    let context = contexts.pop();
    switch (n.type) {
      case "Identifier":
        if (n.name === "arguments" && !(context & OWN_ARGUMENTS)) m.argumentsRefs.push(n);
        continue;
      case "Literal":
      case "ThisExpression":
        continue;
      case "UnaryExpression":
        if (n.operator === "typeof" && n.argument.type === "Identifier" && n.argument.name === "arguments") {
          if (!(context & OWN_ARGUMENTS)) m.argumentsRefs.push({ ...n.argument, kind: "typeof" });
          continue;
        }
        break;
      case "Property":
        if (n.shorthand && n.value.type === "Identifier" && n.value.name === "arguments") {
          if (!(context & OWN_ARGUMENTS)) m.argumentsRefs.push({ ...n.value, kind: "shorthand" });
          continue;
        }
        break;
      case "VariableDeclaration":
        if (n.kind === "using" || n.kind === "await using")
          throw new CompileError("SyntaxError", `'${n.kind}' declarations are not supported by this engine yet`, n.start);
        break;
      case "FunctionDeclaration":
      case "FunctionExpression":
        context = IN_FUNCTION | OWN_ARGUMENTS;
        break;
      case "ArrowFunctionExpression":
        context |= IN_FUNCTION;
        break;
      case "StaticBlock":
        context = IN_FUNCTION | OWN_ARGUMENTS;
        break;
      case "PropertyDefinition":
        // The key is evaluated outside, the value like a method; arguments is an early error in it.
        if (n.computed) {
          nodes.push(n.key);
          contexts.push(context);
        }
        if (n.value) {
          nodes.push(n.value);
          contexts.push(IN_FUNCTION | OWN_ARGUMENTS);
        }
        continue;
      case "AwaitExpression":
        if (!(context & IN_FUNCTION)) m.awaits.push(n);
        break;
      case "ExpressionStatement":
        if (!(context & IN_FUNCTION)) m.statements.add(n.start);
        break;
      case "ForOfStatement":
        if (n.await && !(context & IN_FUNCTION)) m.forAwaits = true;
      // falls through
      case "ForInStatement":
        if (n.left.type !== "VariableDeclaration") patternIds(n.left, ids);
        break;
      case "AssignmentExpression":
        if (settled?.has(n.left.name) && !(context & IN_FUNCTION) && n.right.properties?.length === 0) break;
        patternIds(n.left, ids);
        break;
      case "UpdateExpression":
        patternIds(n.argument, ids);
        break;
      case "CallExpression":
        if (n.callee.type === "Identifier" && n.callee.name === "eval") m.opaque = true;
        break;
      case "ImportExpression":
        m.dynamics.push(n);
        break;
      case "MetaProperty":
        if (n.meta.name === "import") m.metas.push(n);
        continue;
    }
    if (ids.length) {
      for (const id of ids) m.assigned.add(id.name);
      ids.length = 0;
    }
    pushChildren(n, context, nodes, contexts);
  }
}

// `<!--` is three operators in a module but a comment in the script the engine gets: a space parts it. (`-->` is a
// comment only at the start of a line, where no module can have it.)
function htmlComments(ast, m, source) {
  // Text where they mean nothing: strings, templates, regular expressions, comments. Only operators need care, and
  // an operator is never inside a leaf of the tree.
  const leaves = [];
  const nodes = [ast];
  const contexts = [0];
  while (nodes.length) {
    const n = nodes.pop();
    contexts.pop();
    if (n.type === "Literal") leaves.push([n.start, n.end]);
    if (n.type === "TemplateLiteral") for (const q of n.quasis) leaves.push([q.start, q.end]);
    pushChildren(n, 0, nodes, contexts);
    if ((n.type === "Property" || n.type === "MethodDefinition" || n.type === "PropertyDefinition") && !n.computed)
      leaves.push([n.key.start, n.key.end]);
  }
  for (const n of ast.body) if (/^(Import|ExportAll)/.test(n.type) || n.source) leaves.push([n.start, n.end]);
  leaves.sort((a, b) => a[0] - b[0]);
  let leaf = 0;
  for (let i = 0; i < source.length; i++) {
    while (leaf < leaves.length && leaves[leaf][1] <= i) leaf++;
    if (leaf < leaves.length && leaves[leaf][0] <= i) {
      i = leaves[leaf][1] - 1;
      continue;
    }
    const c = source[i];
    if (c === "/" && source[i + 1] === "*") i = source.indexOf("*/", i + 2) + 1;
    else if (c === "/" && source[i + 1] === "/") {
      while (i < source.length && !/[\n\r\u2028\u2029]/.test(source[i])) i++;
    } else if (c === "<" && source.startsWith("<!--", i)) m.edits.insert(i + 1, " ");
  }
}

