// TypeScript and JSX -> JavaScript, by edits that keep every line, and every column but where JavaScript needs more
// room than TypeScript took. Types become spaces; enums, namespaces, parameter properties and JSX become code.
import { tick } from "./budget.js";
import { CompileError } from "./errors.js";
import { Edits, skipTrivia } from "./edits.js";
import { jsxSettings, rewriteElement } from "./jsx.js";
import { parseTypeScript } from "./parse.js";
import { patternIds } from "./tree.js";

// Children that hold types, or names that refer to nothing.
const SKIP = new Set([
  "loc",
  "typeAnnotation",
  "returnType",
  "typeParameters",
  "typeArguments",
  "superTypeParameters",
  "superTypeArguments",
  "implements",
  "label",
  "meta",
]);
const MODIFIERS = /\b(?:public|private|protected|readonly|override|abstract|declare)\b/g;
const NEWLINE = /[\n\r\u2028\u2029]/;

const nameOf = (n) => (n.type === "Literal" ? n.value : n.name);

class Eraser {
  constructor(source, ast, jsx) {
    this.source = source;
    this.edits = new Edits(source);
    this.ast = ast;
    this.jsx = jsx;
    this.nodes = [];
    this.ends = []; // with each node: where its statement ends without a semicolon, or -1
    this.used = new Set(); // names in value positions
    this.types = new Set(); // exported names that are types
    this.typeStar = false;
    this.localTypes = new Set(); // top-level names that are types and nothing else
    this.values = new Map(); // block of statements -> names that already have a value there
    this.targets = new Map(); // an exported declaration in a namespace -> the namespace's name
    this.places = new Map(); // block of statements -> where its declarations merge, see placeOf()
    this.placeIds = new Map();
    this.enums = new Map(); // place of an enum -> its members: name -> constant value
    this.aliases = []; // import a = b.c
  }

  visit(node, end = -1) {
    if (!node) return;
    this.nodes.push(node);
    this.ends.push(end);
  }

  visitAll(nodes, end = -1) {
    for (let i = nodes.length - 1; i >= 0; i--) this.visit(nodes[i], end);
  }

  error(node, message) {
    throw new CompileError("SyntaxError", message, node.start);
  }

  // Removes a range; when a statement would end there by a line break alone, a semicolon keeps it ended.
  blank(start, end, statementEnd = -1) {
    if (start < end) this.edits.blank(start, end, end === statementEnd ? ";" : "");
  }

  blankNode(node) {
    if (node) this.blank(node.start, node.end);
  }

  statement(node) {
    this.edits.blank(node.start, node.end, ";");
  }

  run() {
    this.collectTypes();
    this.statements(this.ast, this.ast.body);
    this.drain();
    this.importAliases();
    this.imports();
    return this;
  }

  drain() {
    while (this.nodes.length) {
      tick();
      const node = this.nodes.pop();
      this.node(node, this.ends.pop());
    }
  }

  // Names that only types have: `export { T }` of one of these exports nothing.
  collectTypes() {
    const values = new Set();
    for (const s of this.ast.body) {
      const d = /^Export(Named|Default)/.test(s.type) && s.declaration ? s.declaration : s;
      if (d.type === "TSImportEqualsDeclaration") continue;
      if (isTypeOnly(d) || (d.type === "TSModuleDeclaration" && !isInstantiated(d))) {
        if (d.id) this.localTypes.add(d.id.name);
        else if (d.declarations) for (const one of d.declarations) for (const id of patternIds(one.id, [])) this.localTypes.add(id.name);
      } else if (d.id) values.add(d.id.name);
      else if (d.declarations) for (const one of d.declarations) for (const id of patternIds(one.id, [])) values.add(id.name);
    }
    for (const name of values) this.localTypes.delete(name);
    for (const s of this.ast.body)
      if (s.type === "TSImportEqualsDeclaration" && this.isTypeAlias(s)) this.localTypes.add(s.id.name);
  }

  // Whether `import a = b.c` can only mean a type, as far as this module tells.
  isTypeAlias(n) {
    const path = [];
    let head = n.moduleReference;
    for (; head.type === "TSQualifiedName"; head = head.left) path.unshift(head.right.name);
    if (head.type !== "Identifier") return false;
    if (this.localTypes.has(head.name)) return true;
    let scope = (this.meanings ??= meaningsOf([this.ast.body]));
    for (const name of [head.name, ...path]) {
      const found = scope.get(name);
      if (!found || found.isValue) return false;
      if (found.isType) return true;
      scope = found.inside ??= meaningsOf(found.bodies);
    }
    return false;
  }

  // Where things of one name merge: in one block, or, if they are exported, in all parts of a namespace.
  placeOf(block) {
    let place = this.places.get(block);
    if (!place) {
      const own = this.place(block);
      this.places.set(block, (place = { own, shared: own }));
    }
    return place;
  }

  place(key) {
    let id = this.placeIds.get(key);
    if (id === undefined) this.placeIds.set(key, (id = this.placeIds.size));
    return id;
  }

  placeFor(n, block) {
    const place = this.placeOf(block);
    return this.targets.has(n) ? place.shared : place.own;
  }

  // Whether `name` already has a value in this block; enums, namespaces and classes of one name merge.
  hasValue(block, name) {
    return this.values.get(block)?.has(name) ?? false;
  }

  markValue(block, node) {
    const d = node.type === "ExportNamedDeclaration" ? node.declaration : node;
    if (!d?.id?.name || !/^(ClassDeclaration|FunctionDeclaration|TSEnumDeclaration|TSModuleDeclaration)$/.test(d.type)) return;
    if (d.declare) return;
    let names = this.values.get(block);
    if (!names) this.values.set(block, (names = new Set()));
    names.add(d.id.name);
  }

  statements(block, list) {
    // In order: what merges depends on what came before.
    for (const s of list) {
      const d = s.type === "ExportNamedDeclaration" && s.declaration ? s.declaration : s;
      if (d.type === "TSEnumDeclaration" && !d.declare) this.enum(d, s, block);
      else if (d.type === "TSModuleDeclaration" && !d.declare && isInstantiated(d)) this.namespace(d, s, block);
      else if (d.type === "FunctionDeclaration" || d.type === "ClassDeclaration") this.markValue(block, s);
    }
    this.visitAll(list);
  }

  node(n, end) {
    if (n.decorators?.length)
      this.error(n.decorators[0], "Decorators are not supported: this engine has none; call the function instead");
    if (n.declare === true) return this.statement(n);
    switch (n.type) {
      case "Identifier":
        this.used.add(n.name);
        return this.annotated(n, this.nameEnd(n), end);
      case "ObjectPattern":
      case "ArrayPattern":
        if (n.typeAnnotation) this.blank(this.patternEnd(n), n.typeAnnotation.end, end);
        return this.children(n, -1);
      case "AssignmentPattern":
      case "RestElement":
        if (n.typeAnnotation) this.blank(n.typeAnnotation.start, n.typeAnnotation.end, end);
        return this.children(n, -1);
      case "Program":
        return;
      case "BlockStatement":
      case "StaticBlock":
        return this.statements(n, n.body);
      case "SwitchCase":
        this.visit(n.test);
        return this.statements(n, n.consequent);
      case "TSInterfaceDeclaration":
      case "TSTypeAliasDeclaration":
      case "TSDeclareFunction":
      case "TSNamespaceExportDeclaration":
      case "TSIndexSignature":
        return this.statement(n);
      case "TSEnumDeclaration":
        return; // done by statements()
      case "TSModuleDeclaration":
        return isInstantiated(n) ? undefined : this.statement(n);
      case "TSExportAssignment":
        return this.error(n, "'export =' is not supported in ES modules; use 'export default'");
      case "TSImportEqualsDeclaration":
        return this.importEquals(n);
      case "ImportDeclaration":
        return; // when all uses are known
      case "ExportNamedDeclaration":
        return this.exportNamed(n);
      case "ExportAllDeclaration":
        if (n.exportKind !== "type") return;
        if (n.exported) this.types.add(nameOf(n.exported));
        else this.typeStar = true;
        return this.statement(n);
      case "ExportDefaultDeclaration":
        if (/^(TSInterfaceDeclaration|TSDeclareFunction)$/.test(n.declaration.type)) {
          this.types.add("default");
          return this.statement(n);
        }
        return this.visit(n.declaration, openEnd(this.source, n));
      case "ClassDeclaration":
      case "ClassExpression":
        return this.class(n);
      case "FunctionDeclaration":
      case "FunctionExpression":
      case "ArrowFunctionExpression":
        return this.function(n, end);
      case "ObjectExpression":
        return this.visitAll(n.properties);
      case "Property":
        this.blankNode(n.typeParameters);
        if (n.computed) this.visit(n.key);
        return this.visit(n.value);
      case "MemberExpression":
        this.visit(n.object);
        if (n.computed) this.visit(n.property);
        return;
      case "CallExpression":
      case "NewExpression":
        this.blankTail(n.typeArguments, end);
        this.visit(n.callee);
        return this.visitAll(n.arguments);
      case "TaggedTemplateExpression":
        this.blankTail(n.typeArguments, -1);
        this.visit(n.tag);
        return this.visit(n.quasi);
      case "TSAsExpression":
      case "TSSatisfiesExpression": {
        let at = skipTrivia(this.source, n.expression.end);
        while (this.source[at] === ")") at = skipTrivia(this.source, at + 1);
        this.blank(at, n.end, end);
        return this.visit(n.expression);
      }
      case "TSNonNullExpression":
        this.blank(n.end - 1, n.end);
        return this.visit(n.expression);
      case "TSTypeAssertion": {
        const close = skipTrivia(this.source, n.typeAnnotation.end);
        this.blank(n.start, close + 1);
        return this.visit(n.expression, end);
      }
      case "TSInstantiationExpression":
        this.blankTail(n.typeArguments, end);
        return this.visit(n.expression);
      case "ExpressionStatement":
      case "VariableDeclaration":
      case "ReturnStatement":
      case "ThrowStatement":
        return this.children(n, openEnd(this.source, n));
      case "VariableDeclarator":
      case "SequenceExpression":
      case "AssignmentExpression":
      case "BinaryExpression":
      case "LogicalExpression":
      case "ConditionalExpression":
      case "UnaryExpression":
      case "AwaitExpression":
      case "YieldExpression":
      case "SpreadElement":
        return this.children(n, end);
      case "JSXElement":
      case "JSXFragment":
        return rewriteElement(this, n);
    }
    this.children(n, -1);
  }

  children(n, end) {
    for (const key in n) {
      if (SKIP.has(key)) continue;
      const v = n[key];
      if (Array.isArray(v)) {
        for (let i = v.length - 1; i >= 0; i--) if (v[i] && typeof v[i].type === "string") this.visit(v[i], end);
      } else if (v && typeof v.type === "string") this.visit(v, end);
    }
  }

  blankTail(node, end) {
    if (node) this.blank(node.start, node.end, end);
  }

  // An identifier's node reaches over its `?`, `!` and type.
  nameEnd(n) {
    if (this.source.startsWith(n.name, n.start)) return n.start + n.name.length;
    let i = n.start; // spelled with escapes
    while (i < n.end && !/[\s?!:/]/.test(this.source[i])) i++;
    return i;
  }

  annotated(n, from, end) {
    if (n.typeAnnotation || n.optional || n.end > from) this.blank(from, Math.max(n.end, n.typeAnnotation?.end ?? 0), end);
  }

  // Where a pattern ends and `?: type` begins.
  patternEnd(n) {
    const last = n.type === "ObjectPattern" ? n.properties : n.elements;
    let i = n.start + 1;
    for (const e of last) if (e) i = Math.max(i, e.end);
    const close = n.type === "ObjectPattern" ? "}" : "]";
    for (i = skipTrivia(this.source, i); this.source[i] !== close; ) i = skipTrivia(this.source, i + 1);
    return i + 1;
  }

  exportNamed(n) {
    const d = n.declaration;
    if (d) {
      if (isTypeOnly(d) || (d.type === "TSModuleDeclaration" && !isInstantiated(d))) {
        if (d.id) this.types.add(nameOf(d.id));
        for (const one of d.declarations ?? []) for (const id of patternIds(one.id, [])) this.types.add(id.name);
        return this.statement(n);
      }
      return this.visit(d);
    }
    const gone = new Set(
      n.specifiers.filter(
        (s) => n.exportKind === "type" || s.exportKind === "type" || (!n.source && this.localTypes.has(nameOf(s.local))),
      ),
    );
    for (const s of gone) this.types.add(nameOf(s.exported));
    if (!n.source) for (const s of n.specifiers) if (!gone.has(s)) this.used.add(nameOf(s.local));
    if (n.exportKind === "type" || (gone.size && gone.size === n.specifiers.length)) return this.statement(n);
    for (const s of gone) this.blankSpecifier(s);
  }

  // With the comma that follows it.
  blankSpecifier(s) {
    const next = skipTrivia(this.source, s.end);
    this.blank(s.start, s.end);
    if (this.source[next] === ",") this.blank(next, next + 1);
  }

  // Imports that are only used as types go; this is TypeScript's default.
  imports() {
    for (const n of this.ast.body) {
      if (n.type !== "ImportDeclaration") continue;
      if (n.importKind === "type") {
        this.statement(n);
        continue;
      }
      if (!n.specifiers.length) continue;
      const kept = n.specifiers.filter((s) => s.importKind !== "type" && this.used.has(s.local.name));
      if (!kept.length) this.statement(n);
      else if (kept.length < n.specifiers.length) this.trimImport(n, new Set(kept));
    }
  }

  trimImport(n, kept) {
    const { source } = this;
    const first = n.specifiers[0];
    if (first.type === "ImportDefaultSpecifier" && !kept.has(first)) {
      // import D, { x } from: the comma goes too
      this.blank(first.start, first.end);
      this.blank(skipTrivia(source, first.end), skipTrivia(source, first.end) + 1);
    }
    const rest = n.specifiers.filter((s) => s.type !== "ImportDefaultSpecifier");
    if (!rest.length || rest.every((s) => kept.has(s))) return;
    if (rest[0].type === "ImportNamespaceSpecifier") {
      const comma = skipTrivia(source, first.end);
      this.blank(comma, rest[0].end);
      return;
    }
    for (const s of rest) if (!kept.has(s)) this.blankSpecifier(s);
  }

  importEquals(n) {
    if (n.importKind === "type") return this.statement(n);
    if (n.moduleReference.type === "TSExternalModuleReference")
      this.error(n, "'import x = require()' is not supported in ES modules; use 'import x from'");
    this.aliases.push(n);
  }

  // When all uses are known, the last first: an alias may be used by a later one. What is only a type goes, as imports do.
  importAliases() {
    for (const n of this.aliases.sort((a, b) => b.start - a.start)) {
      const target = this.targets.get(n); // of a namespace that exports it
      if (!(n.isExport || this.used.has(n.id.name)) || this.isTypeAlias(n)) {
        if (n.isExport && !target) this.types.add(n.id.name);
        this.statement(n);
        continue;
      }
      let head = n.moduleReference;
      while (head.type === "TSQualifiedName") head = head.left;
      this.used.add(head.name);
      const at = n.isExport ? skipTrivia(this.source, n.start + 6) : n.start;
      if (target) this.blank(n.start, n.start + 6);
      this.edits.replace(at, at + 6, "const");
      this.edits.insert(n.end, target ? `;${target}.${n.id.name}=${n.id.name};` : ";");
    }
  }

  class(n) {
    const { source } = this;
    if (n.abstract) {
      const at = source.indexOf("abstract", n.start);
      this.blank(at, at + 8);
    }
    this.blankNode(n.typeParameters);
    this.blankNode(n.superTypeParameters ?? n.superTypeArguments);
    if (n.implements?.length) {
      const from = (n.superTypeParameters ?? n.superClass ?? n.typeParameters ?? n.id)?.end ?? n.start + 5;
      let at = skipTrivia(source, from);
      while (!source.startsWith("implements", at)) at = skipTrivia(source, at + 1);
      this.blank(at, n.implements[n.implements.length - 1].end);
    }
    if (n.superClass) this.visit(n.superClass);
    for (const m of n.body.body) this.member(m, n);
  }

  member(m, owner) {
    const { source } = this;
    if (m.decorators?.length)
      this.error(m.decorators[0], "Decorators are not supported: this engine has none; call the function instead");
    if (m.type === "StaticBlock") return this.visit(m);
    if (m.type === "TSIndexSignature" || m.declare || m.abstract || m.value?.type === "TSDeclareMethod" || /^TSAbstract/.test(m.type))
      return this.statement(m);
    if (m.accessor || m.type === "AccessorProperty")
      this.error(m, "'accessor' fields are not supported by this engine; write a getter and a setter");
    const head = source.slice(m.start, m.key.start);
    for (const found of head.matchAll(MODIFIERS)) {
      const at = m.start + found.index;
      // A modifier also kept this member apart from the one before.
      this.edits.blank(at, at + found[0].length, found.index === 0 ? ";" : "");
    }
    const keyEnd = m.computed ? this.closeBracket(m.key) : m.key.end;
    const end = openEnd(source, m);
    if (m.computed) this.visit(m.key);
    if (m.optional || m.definite) {
      const mark = skipTrivia(source, keyEnd);
      if (source[mark] === "?" || source[mark] === "!") this.blank(mark, mark + 1, end);
    }
    if (m.type === "PropertyDefinition") {
      if (m.typeAnnotation) this.blank(m.typeAnnotation.start, m.typeAnnotation.end, end);
      return this.visit(m.value, end);
    }
    this.blankNode(m.typeParameters);
    if (m.kind === "constructor") this.parameterProperties(m.value, owner);
    return this.visit(m.value);
  }

  closeBracket(key) {
    let i = skipTrivia(this.source, key.end);
    while (this.source[i] !== "]") i = skipTrivia(this.source, i + 1);
    return i + 1;
  }

  parameterProperties(fn, owner) {
    const names = [];
    for (const p of fn.params) {
      if (p.type !== "TSParameterProperty") continue;
      const id = p.parameter.type === "AssignmentPattern" ? p.parameter.left : p.parameter;
      names.push(id.name);
    }
    if (!names.length) return;
    const text = names.map((name) => `this.${name}=${name};`).join("");
    if (!owner.superClass) return this.edits.insert(fn.body.start + 1, text);
    const call = fn.body.body.find(
      (s) => s.type === "ExpressionStatement" && s.expression.type === "CallExpression" && s.expression.callee.type === "Super",
    );
    if (!call)
      this.error(fn, "A constructor with parameter properties must call super() as a statement of its own");
    this.edits.insert(call.end, ";" + text);
  }

  function(n, end) {
    const { source } = this;
    this.blankNode(n.typeParameters);
    const type = n.returnType;
    if (type) {
      if (n.type === "ArrowFunctionExpression" && NEWLINE.test(source.slice(type.start, type.end))) {
        // No line break may stand before the arrow: the closing parenthesis moves to the end of the type.
        let close = type.start - 1;
        while (source[close] !== ")") close--;
        this.blank(close, close + 1);
        this.blank(type.start, type.end - 1);
        this.edits.replace(type.end - 1, type.end, ")");
      } else this.blankNode(type);
    }
    for (const p of n.params) {
      if (p.type === "Identifier" && p.name === "this") {
        const next = skipTrivia(source, p.end);
        this.blank(p.start, source[next] === "," ? next + 1 : p.end);
      } else if (p.type === "TSParameterProperty") {
        // With a default, the parser begins the parameter at its modifiers.
        this.blank(p.start, (p.parameter.left ?? p.parameter).start);
        this.visit(p.parameter);
      } else this.visit(p);
    }
    this.visit(n.body, n.type === "ArrowFunctionExpression" && n.expression ? end : -1);
  }

  // enum E { A, B = 2 } -> var E=(function(E){E[E["A"]=0]="A";E[E["B"] = 2]="B";return E})({});
  enum(n, outer, block) {
    const { source, edits } = this;
    const name = n.id.name;
    const again = this.hasValue(block, name);
    this.markValue(block, n);
    const open = skipTrivia(source, n.id.end);
    if (again && outer !== n) this.blank(outer.start, n.start);
    edits.replace(n.start, n.id.start, again ? ";" : "var ");
    edits.replace(n.id.start, n.id.end, again ? "" : name);
    edits.replace(open, open + 1, `${again ? "" : "="}(function(${name}){`);
    const place = this.place(`${this.placeFor(n, block)}.${name}`);
    const known = this.enums.get(place) ?? new Map();
    this.enums.set(place, known);
    let next = 0;
    for (const m of n.members) {
      const key = nameOf(m.id);
      const quoted = JSON.stringify(key);
      let value;
      if (m.initializer) {
        value = constant(m.initializer, known, name);
        this.enumReferences(m.initializer, name, known);
        const text = typeof value === "string" ? `${name}[${quoted}]` : `${name}[${name}[${quoted}]`;
        edits.replace(m.id.start, m.id.end, text);
        this.visit(m.initializer);
        if (typeof value !== "string") edits.insert(m.end, `]=${quoted}`);
      } else {
        if (next === undefined) this.error(m, `Enum member '${key}' must have an initializer`);
        value = next;
        edits.replace(m.id.start, m.id.end, `${name}[${name}[${quoted}]=${value}]=${quoted}`);
      }
      known.set(key, value);
      next = typeof value === "number" ? value + 1 : undefined;
      const comma = skipTrivia(source, m.end);
      if (source[comma] === ",") edits.replace(comma, comma + 1, ";");
      else edits.insert(m.end, ";");
    }
    edits.replace(n.end - 1, n.end, `return ${name}})(${again ? name : this.initial(n)});`);
  }

  // What an enum or namespace begins with: what another part of the namespace around it has exported by that name.
  initial(n) {
    const target = this.targets.get(n);
    return target ? `${target}.${n.id.name}||{}` : "{}";
  }

  // Members are in scope inside initializers.
  enumReferences(expression, name, known) {
    const todo = [expression];
    while (todo.length) {
      const n = todo.pop();
      if (n.type === "Identifier" && known.has(n.name)) this.edits.insert(n.start, name + ".");
      for (const key in n) {
        if (SKIP.has(key) || ((key === "property" || key === "key") && !n.computed)) continue;
        const v = n[key];
        if (Array.isArray(v)) {
          for (const c of v) if (c && typeof c.type === "string") todo.push(c);
        } else if (v && typeof v.type === "string") todo.push(v);
      }
    }
  }

  // namespace N { export const a = 1 } -> var N=(function(N){ const a = 1;N.a=a;return N})({});
  namespace(n, outer, block) {
    const { edits } = this;
    if (n.id.type === "Literal") this.error(n, "'module \"name\"' must be declared: it describes another module");
    const again = this.hasValue(block, n.id.name);
    this.markValue(block, n);
    if (again && outer !== n) this.blank(outer.start, n.start);
    const names = [];
    let body = n;
    while (body.type === "TSModuleDeclaration") {
      names.push(body.id);
      body = body.body;
    }
    let head = `${again ? ";" : `var ${n.id.name}=`}(function(${n.id.name}){`;
    let tail = `;return ${n.id.name}})(${again ? n.id.name : this.initial(n)});`;
    for (let i = 1; i < names.length; i++) {
      const [up, name] = [names[i - 1].name, names[i].name];
      head += `var ${name}=${up}.${name}=(function(${name}){`;
      tail = `;return ${name}})(${up}.${name}||{})${tail}`;
    }
    edits.replace(n.start, body.start + 1, head);
    edits.replace(n.end - 1, n.end, tail);
    const target = names[names.length - 1].name;
    this.placeOf(body).shared = names.reduce((place, id) => this.place(`${place}.${id.name}`), this.placeFor(n, block));
    let hoisted = "";
    for (const s of body.body) {
      if (s.type === "TSImportEqualsDeclaration" && s.isExport) this.targets.set(s, target);
      if (s.type !== "ExportNamedDeclaration") continue;
      const d = s.declaration;
      if (d) this.targets.set(d, target);
      if (!d) this.error(s, "Export lists are not supported in a namespace");
      if (isTypeOnly(d) || (d.type === "TSModuleDeclaration" && !isInstantiated(d))) continue;
      const ids = d.type === "VariableDeclaration" ? d.declarations.flatMap((one) => patternIds(one.id, [])) : [d.id];
      if (d.type === "FunctionDeclaration") hoisted += `${target}.${d.id.name}=${d.id.name};`;
      else if (d.type === "VariableDeclaration" && d.kind !== "const")
        edits.insert(
          s.end,
          ids.map(({ name }) => `;Object.defineProperty(${target},"${name}",{get:()=>${name},set:v=>${name}=v,enumerable:true});`).join(""),
        );
      else edits.insert(s.end, ids.map(({ name }) => `;${target}.${name}=${name};`).join(""));
    }
    if (hoisted) edits.insert(body.start + 1, hoisted);
    this.namespaceBody(body);
  }

  namespaceBody(body) {
    const inner = [];
    for (const s of body.body) {
      if (s.type !== "ExportNamedDeclaration") {
        inner.push(s);
        continue;
      }
      if (isTypeOnly(s.declaration) || (s.declaration.type === "TSModuleDeclaration" && !isInstantiated(s.declaration)))
        this.statement(s);
      else {
        this.edits.replace(s.start, s.start + 6, ";");
        inner.push(s.declaration);
      }
    }
    this.statements(body, inner);
  }
}

function isTypeOnly(d) {
  return (
    d.declare === true || d.type === "TSInterfaceDeclaration" || d.type === "TSTypeAliasDeclaration" || d.type === "TSDeclareFunction"
  );
}

// A namespace of nothing but types has no value.
function isInstantiated(n) {
  if (n.declare) return false;
  let body = n.body;
  while (body?.type === "TSModuleDeclaration") body = body.body;
  return (body?.body ?? []).some((s) => {
    const d = s.type === "ExportNamedDeclaration" && s.declaration ? s.declaration : s;
    if (isTypeOnly(d) || d.type === "EmptyStatement") return false;
    return d.type !== "TSModuleDeclaration" || isInstantiated(d);
  });
}

// What the names that some blocks declare can mean: a value, only a type, or a namespace with `bodies`.
function meaningsOf(bodies) {
  const all = new Map();
  const add = (name, d) => {
    let m = all.get(name);
    if (!m) all.set(name, (m = { isValue: false, isType: true, bodies: [], inside: null }));
    if (isTypeOnly(d)) return;
    if (d.type !== "TSModuleDeclaration") m.isValue = true;
    else if (isInstantiated(d)) {
      m.isType = false;
      m.bodies.push(d.body?.type === "TSModuleDeclaration" ? [d.body] : (d.body?.body ?? []));
    }
  };
  for (const body of bodies)
    for (const s of body) {
      const d = /^Export(Named|Default)/.test(s.type) && s.declaration ? s.declaration : s;
      if (d.type === "VariableDeclaration")
        for (const one of d.declarations) for (const id of patternIds(one.id, [])) add(id.name, d);
      else if (d.type === "ImportDeclaration") for (const one of d.specifiers) add(one.local.name, d);
      else if (d.id?.name) add(d.id.name, d);
    }
  return all;
}

// The end of a statement or field that no semicolon ends, or -1.
function openEnd(source, n) {
  return source[n.end - 1] === ";" ? -1 : n.end;
}

const NUMBER = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => a / b,
  "%": (a, b) => a % b,
  "**": (a, b) => a ** b,
  "|": (a, b) => a | b,
  "&": (a, b) => a & b,
  "^": (a, b) => a ^ b,
  "<<": (a, b) => a << b,
  ">>": (a, b) => a >> b,
  ">>>": (a, b) => a >>> b,
};

// The value of a constant enum expression, or undefined. Nesting is bounded by the parser.
function constant(n, known, name) {
  switch (n.type) {
    case "Literal":
      return typeof n.value === "number" || typeof n.value === "string" ? n.value : undefined;
    case "TemplateLiteral": {
      let text = n.quasis[0].value.cooked;
      for (let i = 0; i < n.expressions.length; i++) {
        const v = constant(n.expressions[i], known, name);
        if (v === undefined) return undefined;
        text += v + n.quasis[i + 1].value.cooked;
      }
      return text;
    }
    case "Identifier":
      return known.get(n.name);
    case "MemberExpression":
      return !n.computed && n.object.type === "Identifier" && n.object.name === name ? known.get(n.property.name) : undefined;
    case "UnaryExpression": {
      const v = constant(n.argument, known, name);
      if (typeof v !== "number") return undefined;
      return n.operator === "-" ? -v : n.operator === "+" ? v : n.operator === "~" ? ~v : undefined;
    }
    case "BinaryExpression": {
      const a = constant(n.left, known, name);
      const b = constant(n.right, known, name);
      if (a === undefined || b === undefined) return undefined;
      if (typeof a === "number" && typeof b === "number") return NUMBER[n.operator]?.(a, b);
      return n.operator === "+" ? `${a}${b}` : undefined;
    }
    case "TSAsExpression":
    case "TSNonNullExpression":
    case "TSSatisfiesExpression":
      return constant(n.expression, known, name);
    default:
      return undefined;
  }
}

// kind: "ts", "tsx" or "jsx". Returns {code, map, types, typeStar}.
export function erase(source, kind) {
  const comments = kind === "ts" ? undefined : [];
  const ast = parseTypeScript(source, kind !== "ts", comments);
  const jsx = kind === "ts" ? null : jsxSettings(source, comments);
  const eraser = new Eraser(source, ast, jsx);
  if (source.startsWith("#!")) eraser.edits.replace(0, 2, "//");
  if (jsx) for (const name of jsx.names) eraser.used.add(name);
  eraser.run();
  const { code, map } = eraser.edits.apply(jsx && eraser.sawElement ? jsx.prefix : "");
  return { code, map, types: eraser.types, typeStar: eraser.typeStar };
}
