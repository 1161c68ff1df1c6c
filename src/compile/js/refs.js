// Rewrites the references to some top-level names (imports that must be read through a getter).
import { tick } from "./budget.js";
import { skipTrivia } from "./edits.js";
import { isFunction, patternIds, pushChildren } from "./tree.js";

const LEXICAL = new Set(["let", "const", "using", "await using"]);

function lexicalNames(statements, names, live) {
  for (const s of statements) {
    if (s.type === "VariableDeclaration" && LEXICAL.has(s.kind)) {
      const ids = [];
      for (const d of s.declarations) patternIds(d.id, ids);
      for (const id of ids) if (live.has(id.name)) names.add(id.name);
    } else if ((s.type === "FunctionDeclaration" || s.type === "ClassDeclaration") && s.id && live.has(s.id.name))
      names.add(s.id.name);
  }
}

// var declarations anywhere in a function, not in functions inside it
function varNames(body, names, live) {
  const nodes = Array.isArray(body) ? [...body] : [body];
  const contexts = nodes.map(() => 0);
  while (nodes.length) {
    const n = nodes.pop();
    contexts.pop();
    if (isFunction(n) || n.type === "ClassBody") continue;
    if (n.type === "VariableDeclaration" && n.kind === "var") {
      const ids = [];
      for (const d of n.declarations) patternIds(d.id, ids);
      for (const id of ids) if (live.has(id.name)) names.add(id.name);
    }
    pushChildren(n, 0, nodes, contexts);
  }
}

class Scope {
  constructor(up, names) {
    this.up = up;
    this.names = names;
  }
}

const hidden = (scope, name) => {
  for (let s = scope; s; s = s.up) if (s.names.has(name)) return true;
  return false;
};

// `live` maps names to the text that reads them; `readonly` is the name of a constant, to stand where one is assigned.
// Returns whether `readonly` was used.
export function rewriteReferences(ast, edits, live, readonly) {
  const nodes = [];
  const scopes = [];
  let assigns = false;
  const visit = (n, scope) => {
    if (n) {
      nodes.push(n);
      scopes.push(scope);
    }
  };
  const open = (scope, fill) => {
    const names = new Set();
    fill(names);
    return names.size ? new Scope(scope, names) : scope;
  };
  const add = (names, ids) => {
    for (const id of ids) if (live.has(id.name)) names.add(id.name);
  };
  const isLive = (n, scope) => n.type === "Identifier" && live.has(n.name) && !hidden(scope, n.name);
  const assign = (id) => {
    assigns = true;
    edits.replace(id.start, id.end, readonly);
  };
  // A target of an assignment: identifiers in it are written, everything else in it is read.
  const target = (pattern, scope) => {
    const todo = [pattern];
    while (todo.length) {
      const n = todo.pop();
      if (!n) continue;
      switch (n.type) {
        case "Identifier":
          if (isLive(n, scope)) assign(n);
          break;
        case "ObjectPattern":
          for (const p of n.properties) todo.push(p);
          break;
        case "ArrayPattern":
          for (const p of n.elements) todo.push(p);
          break;
        case "RestElement":
          todo.push(n.argument);
          break;
        case "AssignmentPattern":
          todo.push(n.left);
          visit(n.right, scope);
          break;
        case "Property": {
          if (n.computed) visit(n.key, scope);
          const id = n.value.type === "AssignmentPattern" ? n.value.left : n.value;
          if (n.shorthand && isLive(id, scope)) {
            assigns = true;
            edits.replace(id.start, id.end, `${id.name}:${readonly}`);
            if (n.value.type === "AssignmentPattern") visit(n.value.right, scope);
          } else todo.push(n.value);
          break;
        }
        default:
          visit(n, scope);
      }
    }
  };
  // A declared pattern: its names are bound here, its defaults and computed keys are read.
  const binding = (pattern, scope) => {
    const todo = [pattern];
    while (todo.length) {
      const n = todo.pop();
      if (!n) continue;
      if (n.type === "ObjectPattern") for (const p of n.properties) todo.push(p);
      else if (n.type === "ArrayPattern") for (const p of n.elements) todo.push(p);
      else if (n.type === "RestElement") todo.push(n.argument);
      else if (n.type === "AssignmentPattern") {
        todo.push(n.left);
        visit(n.right, scope);
      } else if (n.type === "Property") {
        if (n.computed) visit(n.key, scope);
        todo.push(n.value);
      }
    }
  };

  visit(ast, null);
  while (nodes.length) {
    tick();
    const n = nodes.pop();
    const scope = scopes.pop();
    switch (n.type) {
      case "Identifier":
        if (isLive(n, scope)) edits.replace(n.start, n.end, live.get(n.name));
        continue;
      case "ImportDeclaration":
      case "ExportAllDeclaration":
      case "MetaProperty":
        continue;
      case "FunctionDeclaration":
      case "FunctionExpression":
      case "ArrowFunctionExpression": {
        let outer = scope;
        if (n.type === "FunctionExpression" && n.id) outer = open(outer, (s) => add(s, [n.id]));
        const inner = open(outer, (s) => {
          for (const p of n.params) add(s, patternIds(p, []));
          if (n.body.type === "BlockStatement") {
            varNames(n.body.body, s, live);
            lexicalNames(n.body.body, s, live);
          }
        });
        // Parameter expressions do not see the body's variables, but a shadowed name there is shadowed for them by a
        // parameter or not at all; telling the two apart needs a scope of its own.
        const params = open(outer, (s) => {
          for (const p of n.params) add(s, patternIds(p, []));
        });
        for (const p of n.params) binding(p, params);
        if (n.body.type === "BlockStatement") for (const b of n.body.body) visit(b, inner);
        else visit(n.body, inner);
        continue;
      }
      case "ClassDeclaration":
      case "ClassExpression": {
        const inner = n.id ? open(scope, (s) => add(s, [n.id])) : scope;
        visit(n.superClass, inner);
        for (const e of n.body.body) {
          if (e.type === "StaticBlock") {
            const block = open(inner, (s) => {
              varNames(e.body, s, live);
              lexicalNames(e.body, s, live);
            });
            for (const b of e.body) visit(b, block);
            continue;
          }
          if (e.computed) visit(e.key, inner);
          visit(e.value, inner);
        }
        continue;
      }
      case "BlockStatement": {
        const inner = open(scope, (s) => lexicalNames(n.body, s, live));
        for (const b of n.body) visit(b, inner);
        continue;
      }
      case "SwitchStatement": {
        visit(n.discriminant, scope);
        const inner = open(scope, (s) => {
          for (const c of n.cases) lexicalNames(c.consequent, s, live);
        });
        for (const c of n.cases) visit(c, inner);
        continue;
      }
      case "ForStatement":
      case "ForInStatement":
      case "ForOfStatement": {
        const head = n.type === "ForStatement" ? n.init : n.left;
        const inner = open(scope, (s) => {
          if (head && head.type === "VariableDeclaration") lexicalNames([head], s, live);
        });
        if (n.type === "ForStatement") {
          visit(n.init, inner);
          visit(n.test, inner);
          visit(n.update, inner);
        } else {
          if (n.left.type === "VariableDeclaration") visit(n.left, inner);
          else target(n.left, inner);
          visit(n.right, inner);
        }
        visit(n.body, inner);
        continue;
      }
      case "CatchClause": {
        const inner = open(scope, (s) => {
          if (n.param) add(s, patternIds(n.param, []));
        });
        if (n.param) binding(n.param, inner);
        visit(n.body, inner);
        continue;
      }
      case "VariableDeclarator":
        binding(n.id, scope);
        visit(n.init, scope);
        continue;
      case "AssignmentExpression":
        if (n.left.type === "Identifier" && isLive(n.left, scope) && /^(\|\||&&|\?\?)=$/.test(n.operator)) {
          // Short circuits: read it, and only then fail to write it.
          assigns = true;
          let at = skipTrivia(edits.source, n.left.end);
          while (edits.source[at] === ")") at = skipTrivia(edits.source, at + 1);
          edits.replace(n.left.start, n.left.end, live.get(n.left.name));
          edits.replace(at, at + n.operator.length, `${n.operator.slice(0, -1)}(${readonly}=`);
          edits.insert(n.end, ")");
        } else target(n.left, scope);
        visit(n.right, scope);
        continue;
      case "UpdateExpression":
        target(n.argument, scope);
        continue;
      case "Property":
        if (n.computed) visit(n.key, scope);
        if (n.shorthand && isLive(n.value, scope))
          edits.replace(n.value.start, n.value.end, `${n.value.name}:${live.get(n.value.name)}`);
        else visit(n.value, scope);
        continue;
      case "NewExpression":
        newCallee(n.callee, scope, isLive, live, edits, visit);
        for (const a of n.arguments) visit(a, scope);
        continue;
      case "ExportNamedDeclaration":
      case "ExportDefaultDeclaration":
        visit(n.declaration, scope);
        continue;
    }
    pushChildren(n, scope, nodes, scopes);
  }
  return assigns;
}

// `new f(x)` -> `new (g())(x)`: a call at the head of the callee would take the arguments for itself.
function newCallee(callee, scope, isLive, live, edits, visit) {
  let head = callee;
  const rest = [];
  while (head.type === "MemberExpression" || head.type === "TaggedTemplateExpression") {
    if (head.type === "MemberExpression") {
      if (head.computed) rest.push(head.property);
      head = head.object;
    } else {
      rest.push(head.quasi);
      head = head.tag;
    }
  }
  for (const r of rest) visit(r, scope);
  if (isLive(head, scope)) edits.replace(head.start, head.end, `(${live.get(head.name)})`);
  else visit(head, scope);
}
