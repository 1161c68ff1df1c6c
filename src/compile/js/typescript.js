// TypeScript and JSX -> JavaScript, by edits that keep every line, and every column but where JavaScript needs more
// room than TypeScript took. Types become spaces; enums, namespaces, parameter properties and JSX become code.
//
// TypeScript's own parser reads the source (cut.js). What comes out has the syntax tree that the TypeScript compiler
// gives for one module by itself (transpileModule, target and module ESNext); tests/compile/typescript.test.js compares
// them. Three things need care when a type is taken out: a line break that was inside it may end a statement that goes on,
// or leave two statements as one, and what comes to stand first may mean something else there.
import { createSourceFile, forEachChild, idText, objectAllocator, skipTrivia, SyntaxKind as K } from "typescript-parser";
import { tick } from "./budget.js";
import { CompileError } from "./errors.js";
import { Edits, NEWLINE } from "./edits.js";
import { Evaluator } from "./enums.js";
import { beginParsing } from "./guard.js";
import { jsxSettings, rewriteElement } from "./jsx.js";
import * as S from "./scopes.js";

const { Scope } = S;

const MODIFIERS = new Set([
  K.AbstractKeyword,
  K.DeclareKeyword,
  K.OverrideKeyword,
  K.PrivateKeyword,
  K.ProtectedKeyword,
  K.PublicKeyword,
  K.ReadonlyKeyword,
]);
// What may have the name of an enum or namespace and be one with it.
const MERGED = new Set([K.ClassDeclaration, K.EnumDeclaration, K.FunctionDeclaration, K.ModuleDeclaration]);
// Declarations with one name, and what it means.
const MEMBERS = {
  [K.ClassDeclaration]: S.CLASS,
  [K.EnumDeclaration]: S.ENUM,
  [K.FunctionDeclaration]: S.FUNCTION,
  [K.InterfaceDeclaration]: S.TYPE,
  [K.TypeAliasDeclaration]: S.TYPE,
};
// No type alias may share its name with one of these.
const TYPES = new Set([K.TypeAliasDeclaration, K.InterfaceDeclaration, K.ClassDeclaration, K.EnumDeclaration]);
// An expression that begins with one of these would be something else at the start of a statement or an arrow's body.
const CAREFUL = /^(?:[{"']|(?:async|class|function|let)\b)/;

const SCRIPT_KIND = { jsx: 2, ts: 3, tsx: 4 };
const NO_JSDOC = 1;
const NEWEST = 99;
const GLOBAL = 2048; // NodeFlags.GlobalAugmentation

// As in the whole package; the parser by itself has only the escaped text.
Object.defineProperty(objectAllocator.getIdentifierConstructor().prototype, "text", {
  get() {
    return idText(this);
  },
});

function parse(source, kind) {
  const options = { languageVersion: NEWEST, jsDocParsingMode: NO_JSDOC, setExternalModuleIndicator() {} };
  beginParsing(source.length);
  let file;
  try {
    file = createSourceFile(`m.${kind}`, source, options, false, SCRIPT_KIND[kind]);
  } catch (e) {
    // The parser keeps its state outside of any object, and tidies it up only where a file ends.
    beginParsing(0);
    createSourceFile("m.ts", "", options, false, SCRIPT_KIND.ts);
    throw e;
  }
  const [error] = file.parseDiagnostics;
  if (error) {
    const text = typeof error.messageText === "string" ? error.messageText : error.messageText.messageText;
    throw new CompileError("SyntaxError", text.replace(/\.$/, ""), error.start);
  }
  return file;
}

const has = (node, kind) => node.modifiers?.some((m) => m.kind === kind) ?? false;
const isExported = (node) => has(node, K.ExportKeyword);
const isPattern = (name) => name.kind === K.ObjectBindingPattern || name.kind === K.ArrayBindingPattern;

// A namespace of nothing but types has no value.
function isInstantiated(n) {
  if (!n.body) return false;
  if (n.body.kind === K.ModuleDeclaration) return isInstantiated(n.body);
  return n.body.statements.some((s) => {
    switch (s.kind) {
      case K.InterfaceDeclaration:
      case K.TypeAliasDeclaration:
        return false;
      case K.ImportDeclaration:
      case K.ImportEqualsDeclaration:
        return isExported(s);
      case K.ModuleDeclaration:
        return isInstantiated(s);
      default:
        return true;
    }
  });
}

// Calls `each` with every identifier that a name or pattern declares, and whether it is { a }, short for { a: a }.
function bindingNames(name, each) {
  if (name.kind === K.Identifier) return each(name, false);
  const todo = [name];
  while (todo.length) {
    const pattern = todo.pop();
    for (const e of pattern.elements) {
      if (!e.name) continue; // a hole
      if (isPattern(e.name)) todo.push(e.name);
      else each(e.name, pattern.kind === K.ObjectBindingPattern && !e.propertyName && !e.dotDotDotToken);
    }
  }
}

export class Eraser {
  constructor(source, kind) {
    this.source = source;
    this.edits = new Edits(source);
    this.file = parse(source, kind);
    this.isJavaScript = kind === "jsx";
    this.jsx = kind === "ts" ? null : jsxSettings(source);
    this.module = new Scope(null, "module");
    this.nodes = [];
    this.scopes = []; // with each node
    this.openEnds = new Set(); // where statements and fields end without a semicolon
    this.closers = new Map(); // where parentheses close that were put in -> how many
    this.references = []; // an identifier in the place of a value, its scope, whether it is shorthand for a property
    this.mentions = []; // a type that goes, and its scope
    this.spaces = []; // enums and namespaces that become code, the outer before the inner
    this.later = []; // edits that need the names which the functions of namespaces get
    this.aliases = new Map(); // import a = b.c -> {node, scope, isType, isKept}
    this.enums = new Evaluator((node, message) => this.error(node, message));
    this.interesting = new Set(); // names that may lead to an import, an alias, a namespace or an enum
    this.types = new Set(); // exported names that are types
    this.typeStar = false;
    this.settled = new Set(); // enums and namespaces of the module
    this.sawElement = false;
  }

  start(node) {
    return skipTrivia(this.source, node.pos);
  }

  visit(node, scope) {
    if (!node) return;
    this.nodes.push(node);
    this.scopes.push(scope);
  }

  visitAll(nodes, scope) {
    for (let i = nodes.length - 1; i >= 0; i--) this.visit(nodes[i], scope);
  }

  children(node, scope) {
    const found = [];
    forEachChild(node, (n) => {
      found.push(n);
    });
    this.visitAll(found, scope);
  }

  error(node, message) {
    throw new CompileError("SyntaxError", message, this.start(node));
  }

  // Removes a range; when a statement would end there by a line break alone, a semicolon keeps it ended.
  blank(start, end) {
    if (start < end) this.edits.blank(start, end, this.openEnds.has(end) && !this.closers.has(end) ? ";" : "");
  }

  blankNode(node) {
    this.blank(this.start(node), node.end);
  }

  // <A, B>, given what is between the brackets
  anglesOf(list) {
    return { start: list.pos - 1, end: skipTrivia(this.source, list.end) + 1 };
  }

  blankAngles(list, scope) {
    if (!list) return;
    for (const type of list) this.mention(type, scope);
    const { start, end } = this.anglesOf(list);
    this.blank(start, end);
  }

  // A parenthesis that closes here, after all that is put in at this place for what it encloses.
  close(at) {
    this.closers.set(at, (this.closers.get(at) ?? 0) + 1);
  }

  closeAll() {
    for (const [at, count] of this.closers) this.edits.insert(at, ")".repeat(count) + (this.openEnds.has(at) ? ";" : ""));
  }

  statement(node) {
    this.edits.blank(this.start(node), node.end, ";");
  }

  ends(node) {
    if (this.source[node.end - 1] !== ";") this.openEnds.add(node.end);
  }

  hasNewline(start, end) {
    return NEWLINE.test(this.source.slice(start, end));
  }

  run() {
    const { file, edits } = this;
    if (this.source.startsWith("#!")) edits.replace(0, 2, "//");
    this.visitAll(file.statements, this.module);
    this.drain();
    for (const space of this.spaces) if (space.node.kind === K.EnumDeclaration) this.enumMembers(space);
    this.drain();
    this.closeAll();
    this.checkNames();
    this.nameSpaces();
    for (const alias of this.aliases.values()) alias.isType = this.isTypeAlias(alias);
    for (const edit of this.later) edit();
    for (let i = 0; i < this.references.length; i += 3) this.resolve(this.references[i], this.references[i + 1], this.references[i + 2]);
    this.resolveMentions();
    for (const s of file.statements) if (s.kind === K.ExportDeclaration || s.kind === K.ExportAssignment) this.exports(s);
    this.importAliases();
    for (const s of file.statements) if (s.kind === K.ImportDeclaration) this.imports(s);
  }

  drain() {
    while (this.nodes.length) {
      tick();
      this.node(this.nodes.pop(), this.scopes.pop());
    }
  }

  node(n, scope) {
    switch (n.kind) {
      case K.Identifier:
        this.references.push(n, scope, false);
        return;
      case K.ShorthandPropertyAssignment:
        this.references.push(n.name, scope, true);
        return this.visit(n.objectAssignmentInitializer, scope);
      case K.PropertyAccessExpression:
        return this.visit(n.expression, scope);
      case K.MetaProperty:
      case K.BreakStatement:
      case K.ContinueStatement:
        return;
      case K.PropertyAssignment:
        this.visit(n.initializer, scope);
        return this.propertyName(n.name, scope);
      case K.LabeledStatement:
        return this.visit(n.statement, scope);

      case K.AsExpression:
      case K.SatisfiesExpression:
        this.mention(n.type, scope);
        this.blank(n.expression.end, n.end);
        return this.visit(n.expression, scope);
      case K.NonNullExpression:
        this.blank(n.end - 1, n.end);
        return this.visit(n.expression, scope);
      case K.TypeAssertionExpression:
        return this.assertion(n, scope);
      case K.ExpressionWithTypeArguments:
        this.blankAngles(n.typeArguments, scope);
        return this.visit(n.expression, scope);
      case K.CallExpression:
      case K.NewExpression:
        this.blankAngles(n.typeArguments, scope);
        if (n.arguments) this.visitAll(n.arguments, scope);
        return this.visit(n.expression, scope);
      case K.TaggedTemplateExpression:
        this.blankAngles(n.typeArguments, scope);
        this.visit(n.template, scope);
        return this.visit(n.tag, scope);
      case K.BinaryExpression:
        this.wideTarget(n);
        return this.children(n, scope);

      case K.ExpressionStatement:
      case K.ReturnStatement:
      case K.ThrowStatement:
        this.ends(n);
        return this.children(n, scope);
      case K.VariableStatement:
        if (has(n, K.DeclareKeyword)) return this.ambient(n, scope);
        this.ends(n);
        if (isExported(n) && scope.kind === "namespace") return this.exportedVariables(n, scope);
        return this.variables(n.declarationList, scope, isExported(n));
      case K.VariableDeclarationList:
        return this.variables(n, scope, false);
      case K.BindingElement:
        this.visit(n.initializer, scope);
        this.visit(isPattern(n.name) ? n.name : null, scope);
        if (n.propertyName) this.propertyName(n.propertyName, scope);
        return;
      case K.Block:
      case K.CaseBlock:
      case K.ForStatement:
      case K.ForInStatement:
      case K.ForOfStatement:
        return this.children(n, new Scope(scope, "block"));
      case K.CatchClause: {
        const inner = new Scope(scope, "block");
        if (n.variableDeclaration) this.variable(n.variableDeclaration, inner, S.VARIABLE);
        return this.visit(n.block, inner);
      }

      case K.FunctionDeclaration:
        this.declareLocal(n, scope, S.FUNCTION);
        if (has(n, K.DeclareKeyword) || !n.body) return this.typesOnly(n, scope);
        this.exportedLocal(n, scope);
        return this.function(n, scope);
      case K.FunctionExpression:
      case K.ArrowFunction:
      case K.MethodDeclaration:
      case K.GetAccessor:
      case K.SetAccessor:
        return this.function(n, scope);
      case K.ClassDeclaration:
        this.declareLocal(n, scope, S.CLASS);
        if (has(n, K.DeclareKeyword)) return this.typesOnly(n, scope);
        this.exportedLocal(n, scope);
        return this.class(n, scope);
      case K.ClassExpression: {
        const inner = new Scope(scope, "block");
        if (n.name) inner.declare(n.name.text, S.CLASS, n, { isOwn: false });
        return this.class(n, inner);
      }

      case K.InterfaceDeclaration:
      case K.TypeAliasDeclaration:
        scope.declare(n.name.text, S.TYPE, n, { isExported: isExported(n) });
        return this.typesOnly(n, scope);
      case K.EnumDeclaration:
        return this.enum(n, scope);
      case K.ModuleDeclaration:
        return this.namespace(n, scope);
      case K.NamespaceExportDeclaration:
        return this.statement(n);
      case K.ImportDeclaration:
        return this.declareImports(n, scope);
      case K.ImportEqualsDeclaration:
        return this.importEquals(n, scope);
      case K.ExportDeclaration:
        if (scope !== this.module) this.error(n, "Export lists are not supported in a namespace");
        return; // when it is known which names are types
      case K.ExportAssignment:
        if (n.isExportEquals) this.error(n, "'export =' is not supported in ES modules; use 'export default'");
        this.ends(n);
        return this.visit(n.expression.kind === K.Identifier ? null : n.expression, scope);

      case K.JsxElement:
      case K.JsxSelfClosingElement:
      case K.JsxFragment:
        return rewriteElement(this, n, scope);
    }
    this.children(n, scope);
  }

  propertyName(name, scope) {
    if (name.kind === K.ComputedPropertyName) this.visit(name.expression, scope);
  }

  // <T>x. In parentheses where it would otherwise come apart: a line break may follow `return`, and what an arrow's body or
  // a statement begins with decides what it is.
  assertion(n, scope) {
    const { source } = this;
    this.mention(n.type, scope);
    const from = this.start(n);
    const to = skipTrivia(source, n.expression.pos);
    if (this.hasNewline(from, to) || CAREFUL.test(source.slice(to, to + 9))) {
      this.edits.blank(from, to, "(");
      this.close(n.end);
    } else this.blank(from, to);
    this.visit(n.expression, scope);
  }

  // ({ a } as T) = b: no pattern may stand in parentheses, so the closing one moves to the end.
  wideTarget(n) {
    if (n.operatorToken.kind !== K.EqualsToken || n.left.kind !== K.ParenthesizedExpression) return;
    let inner = n.left.expression;
    if (inner.kind !== K.AsExpression && inner.kind !== K.SatisfiesExpression && inner.kind !== K.NonNullExpression) return;
    while (inner.expression && inner.kind !== K.ParenthesizedExpression) inner = inner.expression;
    if (inner.kind !== K.ObjectLiteralExpression && inner.kind !== K.ArrayLiteralExpression) return;
    this.blank(n.left.end - 1, n.left.end);
    this.close(n.end);
  }

  variables(list, scope, exported) {
    const constant = (list.flags & 7) === 2 ? S.CONSTANT : 0;
    const home = list.flags & 7 ? scope : scope.home;
    for (let i = list.declarations.length - 1; i >= 0; i--)
      this.variable(list.declarations[i], home, S.VARIABLE | constant, exported, scope);
  }

  variable(n, home, flags, exported = false, scope = home) {
    bindingNames(n.name, (id) => home.declare(id.text, flags, n, { isExported: exported }));
    this.annotation(n, scope);
    this.visit(n.initializer, scope);
    if (isPattern(n.name)) this.children(n.name, scope);
  }

  // name?: T, name!: T
  annotation(n, scope) {
    this.mention(n.type, scope);
    const end = (n.type ?? n.exclamationToken ?? n.questionToken)?.end;
    if (end !== undefined) this.blank(n.name.end, end);
  }

  ambient(n, scope) {
    for (const d of n.declarationList.declarations)
      bindingNames(d.name, (id) => {
        scope.home.declare(id.text, S.VARIABLE, d, { isExported: isExported(n) });
        if (isExported(n)) this.interesting.add(id.text);
        if (isExported(n) && scope === this.module) this.types.add(id.text);
      });
    this.statement(n);
  }

  declareLocal(n, scope, flags) {
    if (!n.name) return;
    if (isExported(n)) this.interesting.add(n.name.text);
    scope.declare(n.name.text, flags, n, { isExported: isExported(n) });
  }

  // A declaration that leaves nothing behind.
  typesOnly(n, scope) {
    if (scope === this.module && isExported(n)) this.types.add(has(n, K.DefaultKeyword) ? "default" : n.name?.text);
    this.mention(n, scope);
    this.statement(n);
  }

  // export function f() {} in a namespace -> function f() {}N.f=f;
  exportedLocal(n, scope) {
    if (n.name) scope.isFirst(n.name.text, n);
    if (scope.kind !== "namespace" || !isExported(n)) return;
    if (!n.name) this.error(n, "What a namespace exports needs a name");
    const word = n.modifiers.find((m) => m.kind === K.ExportKeyword);
    this.blankNode(word);
    this.later.push(() => this.edits.insert(n.end, `${scope.param}.${n.name.text}=${n.name.text};`));
  }

  // export const a = 1, { b } = x in a namespace -> N.a = 1, { b:N.b } = x
  exportedVariables(n, scope) {
    const { edits, source } = this;
    const list = n.declarationList;
    const declarations = list.declarations.filter((d) => d.initializer);
    const constant = (list.flags & 7) === 2 ? S.CONSTANT : 0;
    for (const d of list.declarations) {
      bindingNames(d.name, (id) => {
        this.interesting.add(id.text);
        scope.declare(id.text, S.VARIABLE | constant, d, { isExported: true });
      });
    }
    if (!declarations.length) return this.statement(n);
    let at = this.start(n);
    declarations.forEach((d, i) => {
      const from = this.start(d);
      const wide = isPattern(d.name);
      // What is not initialized goes, with its comma. After what closes there.
      const gap = at;
      this.later.push(() => edits.replace(gap, from, i ? "," : wide ? ";" : ""));
      if (wide) {
        edits.insert(from, "(");
        this.close(d.end);
      }
      this.annotation(d, scope);
      at = d.end;
      this.later.push(() =>
        bindingNames(d.name, (id, isShort) => {
          if (isShort) edits.insert(id.end, `:${scope.param}.${id.text}`);
          else edits.insert(this.start(id), `${scope.param}.`);
        }),
      );
    });
    if (at < n.end && source[n.end - 1] !== ";") this.blank(at, n.end);
    else if (at < n.end) this.blank(at, n.end - 1);
    for (let i = declarations.length - 1; i >= 0; i--) {
      this.visit(declarations[i].initializer, scope);
      if (isPattern(declarations[i].name)) this.children(declarations[i].name, scope);
    }
  }

  // ---- functions and classes ----

  function(n, scope) {
    const { source } = this;
    const inner = new Scope(scope, "function");
    if (n.kind === K.FunctionExpression && n.name) inner.declare(n.name.text, S.FUNCTION, n, { isOwn: false });
    if (n.questionToken) this.blankNode(n.questionToken);
    this.mention(n.type, inner);
    if (n.kind === K.ArrowFunction) this.arrowHead(n, inner);
    else {
      this.blankAngles(n.typeParameters, inner);
      if (n.type) this.blank(skipTrivia(source, n.parameters.end) + 1, n.type.end);
    }
    if (n.body) {
      // The body's own braces are no scope besides the function's.
      if (n.body.kind === K.Block) this.visitAll(n.body.statements, inner);
      else this.visit(n.body, inner);
    }
    for (let i = n.parameters.length - 1; i >= 0; i--) this.parameter(n.parameters[i], inner, n.parameters);
    if (n.name && n.name.kind === K.ComputedPropertyName) this.visit(n.name.expression, scope);
  }

  // No line break may stand between async and the parameters, nor between the parameters and the arrow, and after
  // `return` one would end the statement: the parentheses move to where the line breaks are not.
  arrowHead(n, scope) {
    const { edits, source } = this;
    if (n.typeParameters) {
      for (const type of n.typeParameters) this.mention(type, scope);
      const { start, end } = this.anglesOf(n.typeParameters);
      const open = skipTrivia(source, end);
      if (this.hasNewline(start, open)) {
        edits.blank(start, open, "(");
        this.blank(open, open + 1);
      } else this.blank(start, end);
    }
    if (!n.type) return;
    const close = skipTrivia(source, n.parameters.end);
    if (this.hasNewline(close, n.type.end)) {
      this.blank(close, n.type.end - 1);
      edits.replace(n.type.end - 1, n.type.end, ")");
    } else this.blank(close + 1, n.type.end);
  }

  parameter(p, scope, all) {
    const { source } = this;
    if (p.name.kind === K.Identifier && p.name.text === "this") {
      this.mention(p.type, scope);
      const next = skipTrivia(source, p.end);
      return this.blank(this.start(p), source[next] === "," ? next + 1 : p.end);
    }
    for (const m of p.modifiers ?? []) {
      this.noDecorator(m);
      if (all.length) this.blankNode(m);
    }
    this.annotation(p, scope);
    bindingNames(p.name, (id) => scope.declare(id.text, S.VARIABLE, p));
    this.visit(p.initializer, scope);
    if (isPattern(p.name)) this.children(p.name, scope);
  }

  noDecorator(m) {
    if (m.kind === K.Decorator) this.error(m, "Decorators are not supported: this engine has none; call the function instead");
  }

  class(n, scope) {
    for (const m of n.modifiers ?? []) {
      this.noDecorator(m);
      if (MODIFIERS.has(m.kind)) this.blankNode(m);
    }
    this.blankAngles(n.typeParameters, scope);
    for (let i = n.members.length - 1; i >= 0; i--) this.member(n.members[i], scope, n);
    for (const clause of n.heritageClauses ?? [])
      if (clause.token === K.ImplementsKeyword) {
        this.mention(clause, scope);
        this.blankNode(clause);
      } else this.visitAll(clause.types, scope);
  }

  member(m, scope, owner) {
    for (const word of m.modifiers ?? []) this.noDecorator(word);
    if (m.kind === K.ClassStaticBlockDeclaration) return this.visitAll(m.body.statements, new Scope(scope, "function"));
    if (m.kind === K.SemicolonClassElement) return;
    const isField = m.kind === K.PropertyDeclaration;
    const isAbsent = isField ? has(m, K.AbstractKeyword) || has(m, K.DeclareKeyword) : !m.body;
    if (isAbsent && (m.kind === K.GetAccessor || m.kind === K.SetAccessor) && !has(m, K.AbstractKeyword))
      this.error(m, "A getter or setter needs a body");
    if (m.kind === K.IndexSignature || isAbsent) {
      this.mention(m, scope);
      return this.statement(m);
    }
    if (has(m, K.AccessorKeyword))
      this.error(m, "'accessor' fields are not supported by this engine; write a getter and a setter");
    (m.modifiers ?? []).forEach((word, i) => {
      if (!MODIFIERS.has(word.kind)) return;
      // A modifier also kept this member apart from the one before.
      const start = this.start(word);
      this.edits.blank(start, word.end, i === 0 ? ";" : "");
    });
    if (isField) {
      this.ends(m);
      this.annotation(m, scope);
      this.visit(m.initializer, new Scope(scope, "function"));
      return this.propertyName(m.name, scope);
    }
    if (m.kind === K.Constructor) this.parameterProperties(m, owner);
    this.function(m, scope);
  }

  // constructor(private a) {} -> a;constructor(a) {this.a=a;}, the field at the start of the class
  parameterProperties(fn, owner) {
    const names = fn.parameters.filter((p) => p.modifiers?.length && p.name.kind === K.Identifier).map((p) => p.name.text);
    if (!names.length) return;
    const text = names.map((name) => `this.${name}=${name};`).join("");
    this.edits.insert(skipTrivia(this.source, owner.members.pos - 1) + 1, names.map((name) => `${name};`).join(""));
    const { statements } = fn.body;
    const directives = statements.findIndex((s) => s.kind !== K.ExpressionStatement || s.expression.kind !== K.StringLiteral);
    const prologue = directives < 0 ? statements.length : directives;
    if (owner.heritageClauses?.some((clause) => clause.token === K.ExtendsKeyword)) {
      const call = superCall(statements);
      if (!call) this.error(fn, "A constructor with parameter properties must call super() as a statement of its own");
      this.edits.insert(call.end, ";" + text);
    } else if (prologue) this.edits.insert(statements[prologue - 1].end, ";" + text);
    else this.edits.insert(skipTrivia(this.source, fn.body.pos) + 1, text);
  }

  // ---- enums and namespaces ----

  // Declares one, and says where its parts are put together: in its block, or in what the namespace around it exports.
  declareSpace(n, scope, flags, exported) {
    const symbol = scope.declare(n.name.text, flags, n, { isExported: exported });
    symbol.exports ??= new Map();
    this.interesting.add(n.name.text);
    return symbol;
  }

  enum(n, scope) {
    const isAmbient = has(n, K.DeclareKeyword);
    const symbol = this.declareSpace(n, scope, S.ENUM, isExported(n));
    const space = new Scope(scope, "enum", symbol, n.name.text);
    n.members.forEach((m, i) => {
      if (m.name.kind !== K.Identifier && m.name.kind !== K.StringLiteral && m.name.kind !== K.NoSubstitutionTemplateLiteral)
        this.error(m, "The name of an enum member must be a word or a string");
      const { text } = m.name;
      if (text !== "" && String(+text) === text && text !== "NaN" && !text.endsWith("Infinity"))
        this.error(m, "An enum member cannot have a numeric name");
      this.interesting.add(text);
      this.enums.add(symbol, m, space, i > 0 ? n.members[i - 1] : null);
    });
    if (isAmbient) return this.typesOnly(n, scope);
    space.node = n;
    space.isExported = isExported(n);
    space.word = scope === this.module ? "var" : "let";
    space.isFirstPart = scope.isFirst(n.name.text, n);
    this.spaces.push(space);
    this.later.push(() => {
      this.edits.replace(this.start(n), skipTrivia(this.source, n.name.end) + 1, this.spaceHead(space));
      this.edits.replace(n.end - 1, n.end, this.spaceTail(space));
    });
  }

  // E { A, B = 2 } -> E[E["A"]=0]="A";E[E["B"]=2]="B";
  enumMembers(space) {
    const { edits, source } = this;
    for (const m of space.node.members) {
      const { value, isText } = this.enums.valueOf(m);
      const key = quote(m.name.text);
      const start = this.start(m);
      const comma = skipTrivia(source, m.end);
      if (source[comma] === ",") edits.replace(comma, comma + 1, ";");
      const stop = source[comma] === "," ? "" : ";";
      const isString = typeof value === "string" || isText;
      if (value !== undefined) {
        const text = typeof value === "string" ? quote(value) : value < 0 ? `-${-value}` : `${value}`;
        this.later.push(() => edits.replace(start, m.end, memberText(space.param, key, text, isString) + stop));
        continue;
      }
      if (!m.initializer) this.error(m, `Enum member '${m.name.text}' must have an initializer`);
      this.visit(m.initializer, space);
      const at = this.start(m.initializer);
      this.later.push(() => {
        const [before, after] = memberText(space.param, key, "\0", isString).split("\0");
        edits.replace(start, at, before);
        edits.insert(m.end, after + stop);
      });
    }
  }

  namespace(n, scope) {
    if (n.name.kind !== K.Identifier || n.flags & GLOBAL) {
      if (has(n, K.DeclareKeyword)) return this.statement(n);
      this.error(n, "'module \"name\"' and 'global' must be declared: they describe what is elsewhere");
    }
    const flags = isInstantiated(n) ? S.NAMESPACE : S.TYPE;
    const isCode = flags === S.NAMESPACE && !has(n, K.DeclareKeyword);
    if (isCode && scope !== this.module && scope.kind !== "namespace")
      this.error(n, "A namespace can only be declared in a module or namespace");
    const parts = [];
    let around = scope;
    let part = n;
    for (; part?.kind === K.ModuleDeclaration; part = part.body) {
      const exported = part !== n || isExported(n);
      const symbol = this.declareSpace(part, around, flags, exported);
      const space = new Scope(around, "namespace", symbol, part.name.text);
      space.node = part;
      space.isExported = exported;
      space.isFirstPart = isCode && around.isFirst(part.name.text, part);
      space.word = scope === this.module ? "var" : "let";
      parts.push(space);
      if (isCode) this.spaces.push(space);
      around = space;
    }
    if (!isCode) {
      for (const s of part?.statements ?? []) this.declareMembers(s, around, has(n, K.DeclareKeyword));
      return this.typesOnly(n, scope);
    }
    this.later.push(() => {
      this.edits.replace(this.start(n), this.start(part) + 1, parts.map((space) => this.spaceHead(space)).join(""));
      this.edits.replace(n.end - 1, n.end, parts.map((space) => this.spaceTail(space)).reverse().join(""));
    });
    this.visitAll(part.statements, around);
  }

  // What a namespace that goes has in it, for aliases that lead there. All of what is declared only is exported.
  declareMembers(s, scope, isAmbient) {
    const options = { isExported: isAmbient || isExported(s) };
    const kind = MEMBERS[s.kind];
    if (s.kind === K.VariableStatement) {
      for (const d of s.declarationList.declarations)
        bindingNames(d.name, (id) => scope.declare(id.text, S.VARIABLE, d, options));
    } else if (kind && s.name) scope.declare(s.name.text, kind, s, options);
    if (s.kind !== K.ModuleDeclaration || s.name.kind !== K.Identifier) return;
    let around = scope;
    let part = s;
    for (; part?.kind === K.ModuleDeclaration; part = part.body) {
      const flags = isInstantiated(part) ? S.NAMESPACE : S.TYPE;
      const symbol = this.declareSpace(part, around, flags, part !== s || options.isExported);
      around = new Scope(around, "namespace", symbol, part.name.text);
    }
    for (const one of part?.statements ?? []) this.declareMembers(one, around, isAmbient);
  }

  // What TypeScript's checker refuses, and would otherwise come out as something else: one name of the module that is an
  // import and a value of its own, one of a namespace that is a variable and something else.
  checkNames() {
    for (const [name, { flags, nodes }] of this.module.names)
      if (flags & (S.IMPORT | S.TYPE_IMPORT | S.ALIAS) && flags & (S.VARIABLE | S.HAS_LOCAL))
        this.error(nodes[1], `Identifier '${name}' has already been declared`);
    const seen = new Set();
    for (const { name, parent, isExported: isOut, node } of this.spaces) {
      const own = parent.names.get(name);
      if (seen.has(own)) continue;
      seen.add(own);
      if (own.nodes.some((n) => n !== node && MERGED.has(n.kind) && isExported(n) !== isOut))
        this.error(node, `The declarations of '${name}' must be all exported or all local`);
    }
    for (const space of this.spaces)
      for (const [name, { exported, flags, nodes }] of space.names)
        if (exported && exported.flags & S.VARIABLE && flags & S.HAS_LOCAL)
          this.error(nodes.at(-1), `Identifier '${name}' has already been declared`);
    for (const symbol of new Set(this.spaces.map((space) => space.symbol)))
      for (const [name, { flags, nodes }] of symbol.exports)
        if (flags & S.VARIABLE && flags & S.HAS_LOCAL) this.error(nodes[1], `Identifier '${name}' has already been declared`);
  }

  // Each function gets the name of its enum or namespace, or another one if something inside has that name.
  nameSpaces() {
    const next = new Map(); // stem -> the first number that is free
    for (const space of this.spaces) {
      space.param = space.name;
      if (space.isTaken && space.kind === "namespace") {
        const base = space.name.endsWith("_") ? space.name : space.name + "_";
        let k = next.get(base) ?? 1;
        while (this.file.identifiers.has(base + k)) k++;
        space.param = base + k;
        next.set(base, k + 1);
      }
      if (space.parent === this.module) this.settled.add(space.name);
    }
  }

  spaceHead(space) {
    const word = (space.isExported && space.parent === this.module ? "export " : "") + space.word;
    return `${space.isFirstPart ? `${word} ${space.name}` : ""};(function(${space.param}){`;
  }

  spaceTail(space) {
    const { name, parent } = space;
    if (space.isExported && parent.kind === "namespace") {
      const whole = `${parent.param}.${name}`;
      return `})(${name}=${whole}||(${whole}={}));`;
    }
    return `})(${name}||(${name}={}));`;
  }

  // ---- references ----

  // Notes what is used; a name that a namespace or enum has becomes a property of it.
  resolve(id, scope, isShorthand) {
    if (!this.interesting.has(id.text)) return;
    const found = scope.find(id.text);
    if (!found) return;
    this.use(found.symbol);
    const { space } = found;
    if (!space?.param) return;
    if (space.kind === "enum" && (isShorthand || space.isTaken)) this.enumShorthand(id, scope, space, isShorthand);
    if (isShorthand) this.edits.insert(id.end, `:${space.param}.${id.text}`);
    else this.edits.insert(this.start(id), `${space.param}.`);
  }

  // TypeScript leaves { A } as it is, and E.A where another E hides the enum: neither means the member.
  enumShorthand(id, scope, space, isShorthand) {
    const { text } = id;
    if (isShorthand) this.error(id, `Write '${text}: ${space.name}.${text}': the short form does not find an enum's member`);
    if (scope.find(space.name).symbol !== space.symbol)
      this.error(id, `Enum member '${text}' cannot be used where another '${space.name}' hides the enum`);
  }

  // A type is mentioned where it goes. Values in it, which are the keys of properties, keep an import as any other use does;
  // not so in what is declared only.
  mention(type, scope) {
    if (type && !has(type, K.DeclareKeyword)) this.mentions.push(type, scope);
  }

  resolveMentions() {
    const isIdle = ({ flags, isUsed }) => flags & (S.IMPORT | S.ALIAS) && !isUsed;
    if (![...this.module.names.values()].some(isIdle)) return;
    const { mentions } = this;
    while (mentions.length) {
      tick();
      const scope = mentions.pop();
      const n = mentions.pop();
      if (n.kind === K.ComputedPropertyName) this.resolveValue(n.expression, scope);
      else if ((n.kind === K.Parameter || n.kind === K.BindingElement) && n.initializer) this.resolveValue(n.initializer, scope);
      forEachChild(n, (c) => {
        if (!isLeaf(c)) mentions.push(c, scope);
      });
    }
  }

  // The names in an expression that goes; types in it are mentioned.
  resolveValue(expression, scope) {
    const todo = [expression];
    while (todo.length) {
      const n = todo.pop();
      if (n.kind === K.Identifier) {
        const found = this.interesting.has(n.text) && scope.find(n.text);
        if (found) this.use(found.symbol);
      } else if (n.kind === K.PropertyAccessExpression) todo.push(n.expression);
      else if (n.kind >= K.FirstTypeNode && n.kind <= K.LastTypeNode) this.mentions.push(n, scope);
      else
        forEachChild(n, (c) => {
          todo.push(c);
        });
    }
  }

  use(symbol) {
    if (symbol.isUsed) return;
    symbol.isUsed = true;
    if (symbol.flags & S.ALIAS) for (const n of symbol.nodes) if (n.kind === K.ImportEqualsDeclaration) this.keepAlias(n);
  }

  declareImports(n, scope) {
    const clause = n.importClause;
    if (!clause) return;
    const add = (id, typeOnly) => {
      this.once(id, scope);
      scope.declare(id.text, typeOnly ? S.TYPE_IMPORT : S.IMPORT, id);
    };
    if (clause.name) add(clause.name, clause.isTypeOnly);
    const named = clause.namedBindings;
    if (named?.kind === K.NamespaceImport) add(named.name, clause.isTypeOnly);
    for (const s of named?.elements ?? []) add(s.name, clause.isTypeOnly || s.isTypeOnly);
  }

  // No two imports may have one name, even if one of them is a type.
  once(id, scope) {
    this.interesting.add(id.text);
    const other = scope.names.get(id.text);
    if (other && other.flags & (S.IMPORT | S.TYPE_IMPORT | S.ALIAS))
      this.error(id, `Identifier '${id.text}' has already been declared`);
  }

  // Imports that are only used as types go; this is TypeScript's default.
  imports(n) {
    const clause = n.importClause;
    if (!clause) return;
    if (clause.isTypeOnly) return this.statement(n);
    if (clause.phaseModifier) this.error(n, "'import defer' is not supported by this engine");
    const keeps = (id) => this.isJavaScript || this.module.names.get(id.text).isUsed;
    const named = clause.namedBindings;
    const elements = named?.elements ?? [];
    const gone = elements.filter((s) => s.isTypeOnly || !keeps(s.name));
    const keepsDefault = clause.name && keeps(clause.name);
    const keepsNamed = named && (named.kind === K.NamespaceImport ? keeps(named.name) : gone.length < elements.length);
    if (!keepsDefault && !keepsNamed) return this.statement(n);
    if (clause.name && !keepsDefault) this.blank(this.start(clause.name), this.start(named)); // the comma goes, too
    if (named && !keepsNamed) this.blank(clause.name.end, named.end);
    else for (const s of gone) this.blankSpecifier(s);
  }

  // With the comma that follows it.
  blankSpecifier(s) {
    const next = skipTrivia(this.source, s.end);
    this.blank(this.start(s), this.source[next] === "," ? next + 1 : s.end);
  }

  importEquals(n, scope) {
    const exported = isExported(n);
    if (scope !== this.module && scope.kind !== "namespace") this.error(n, "An import can only be used in a module or namespace");
    this.once(n.name, scope);
    if (n.isTypeOnly) {
      scope.declare(n.name.text, S.TYPE_IMPORT, n, { isExported: exported });
      return this.typesOnly(n, scope);
    }
    scope.declare(n.name.text, S.ALIAS, n, { isExported: exported });
    this.aliases.set(n, { node: n, scope, isType: false, isKept: false });
  }

  // Whether `import a = b.c` can only mean a type, as far as this module tells.
  isTypeAlias({ node, scope }) {
    const path = [];
    let head = node.moduleReference;
    for (; head.kind === K.QualifiedName; head = head.left) path.unshift(head.right.text);
    const any = S.VALUE | S.TYPE | S.TYPE_IMPORT;
    const inner = S.NAMESPACE | S.ENUM | S.TYPE | S.IMPORT | S.ALIAS | S.TYPE_IMPORT;
    let symbol = scope.find(head.text, path.length ? inner : any)?.symbol;
    for (let i = 0; symbol; i++) {
      if (symbol.flags & S.TYPE_IMPORT) return true;
      if (symbol.flags & S.IMPORT) return false;
      if (symbol.flags & S.ALIAS) {
        // Of an alias that comes before it is known already.
        const [other] = symbol.nodes;
        return other.pos < node.pos && (this.aliases.get(other)?.isType ?? false);
      }
      if (i === path.length) return !(symbol.flags & S.VALUE);
      symbol = symbol.exports?.get(path[i]);
    }
    return false;
  }

  keepAlias(n) {
    const alias = this.aliases.get(n);
    if (!alias || alias.isKept || alias.isType) return;
    alias.isKept = true;
    if (n.moduleReference.kind === K.ExternalModuleReference)
      this.error(n, "'import x = require()' is not supported in ES modules; use 'import x from'");
    let head = n.moduleReference;
    while (head.kind === K.QualifiedName) head = head.left;
    this.interesting.add(head.text);
    this.resolve(head, alias.scope, false);
  }

  importAliases() {
    for (const n of this.aliases.keys()) if (isExported(n)) this.keepAlias(n);
    for (const { node: n, scope, isKept } of this.aliases.values()) {
      const exported = isExported(n);
      if (!isKept) {
        this.typesOnly(n, scope);
        continue;
      }
      const { edits } = this;
      const from = this.start(n);
      const name = this.start(n.name);
      if (exported && scope.kind === "namespace") edits.replace(from, name, `${scope.param}.`);
      else edits.replace(from, name, exported ? "export var " : "var ");
      if (this.source[n.end - 1] !== ";") edits.insert(n.end, ";");
    }
  }

  // Whether an export of the name exports a value, as far as this module tells.
  isValue(name) {
    const symbol = this.module.names.get(name);
    if (!symbol) return true;
    const types = symbol.nodes.filter((n) => TYPES.has(n.kind));
    if (types.length > 1 && types.some((n) => n.kind === K.TypeAliasDeclaration))
      this.error(types[1], `Identifier '${name}' has already been declared`);
    if (symbol.flags & S.ALIAS) return symbol.nodes.some((n) => !this.aliases.get(n)?.isType);
    return (symbol.flags & S.VALUE) !== 0;
  }

  exports(n) {
    if (n.kind === K.ExportAssignment) {
      const id = n.expression;
      if (id.kind !== K.Identifier) return;
      if (this.isValue(id.text)) return this.resolve(id, this.module, false);
      this.types.add("default");
      return this.statement(n);
    }
    const clause = n.exportClause;
    if (n.isTypeOnly) {
      if (!clause) this.typeStar = true;
      else for (const s of clause.elements ?? [clause]) this.types.add(s.name.text);
      return this.statement(n);
    }
    if (!clause?.elements) return;
    const local = (s) => (s.propertyName ?? s.name).text;
    const gone = new Set(clause.elements.filter((s) => s.isTypeOnly || (!n.moduleSpecifier && !this.isValue(local(s)))));
    for (const s of clause.elements)
      if (gone.has(s)) this.types.add(s.name.text);
      else if (!n.moduleSpecifier) {
        const symbol = this.module.names.get(local(s));
        if (symbol) this.use(symbol);
      }
    if (gone.size === clause.elements.length) return this.statement(n);
    for (const s of gone) this.blankSpecifier(s);
  }
}

const isLeaf = (n) => n.kind === K.Identifier || n.kind < K.FirstNode;

// Where super() is called as a statement, also inside of try.
function superCall(statements) {
  for (const s of statements) {
    if (s.kind === K.ExpressionStatement && s.expression.kind === K.CallExpression && s.expression.expression.kind === K.SuperKeyword)
      return s;
    const inner = s.kind === K.TryStatement ? superCall(s.tryBlock.statements) : null;
    if (inner) return inner;
  }
  return null;
}

const quote = (text) => JSON.stringify(text).replace(/[\u2028\u2029]/g, (c) => (c === "\u2028" ? "\\u2028" : "\\u2029"));

function memberText(name, key, value, isString) {
  const inner = `${name}[${key}]=${value}`;
  return isString ? inner : `${name}[${inner}]=${key}`;
}

// kind: "ts", "tsx" or "jsx". Returns {code, map, types, typeStar, settled}.
export function erase(source, kind) {
  const eraser = new Eraser(source, kind);
  eraser.run();
  const { code, map } = eraser.edits.apply(eraser.sawElement ? eraser.jsx.prefix : "");
  return { code, map, types: eraser.types, typeStar: eraser.typeStar, settled: eraser.settled };
}
