// The constant values of enum members, by the rules of TypeScript's own evaluator: what is constant is put into the code
// as a value, and a member that is a string has no entry the other way around.
import { SyntaxKind as K } from "typescript-parser";
import { CONSTANT, MEMBER, VALUE } from "./scopes.js";

const TEXT_MAX = 1 << 16; // const b = a + a, const c = b + b, ...

const NUMBER = {
  [K.PlusToken]: (a, b) => a + b,
  [K.MinusToken]: (a, b) => a - b,
  [K.AsteriskToken]: (a, b) => a * b,
  [K.SlashToken]: (a, b) => a / b,
  [K.PercentToken]: (a, b) => a % b,
  [K.AsteriskAsteriskToken]: (a, b) => a ** b,
  [K.BarToken]: (a, b) => a | b,
  [K.AmpersandToken]: (a, b) => a & b,
  [K.CaretToken]: (a, b) => a ^ b,
  [K.LessThanLessThanToken]: (a, b) => a << b,
  [K.GreaterThanGreaterThanToken]: (a, b) => a >> b,
  [K.GreaterThanGreaterThanGreaterThanToken]: (a, b) => a >>> b,
};

const UNKNOWN = { value: undefined, isText: false };

export class Evaluator {
  constructor(error) {
    this.error = error;
    this.members = new Map(); // node -> {space, previous, result}
    this.constants = new Map(); // declaration of a const -> result
  }

  // A member of the enum `symbol`, and the one before it.
  add(symbol, node, space, previous) {
    this.members.set(node, { space, previous, result: null });
    const name = node.name.text;
    let member = symbol.exports.get(name);
    if (!member) symbol.exports.set(name, (member = { flags: 0, nodes: [], scope: space, exports: null, isUsed: false }));
    if (member.flags & MEMBER) this.error(node, `Enum member '${name}' is declared twice`);
    member.flags |= MEMBER;
    member.nodes.push(node);
  }

  // {value, isText}: value is undefined if it is not constant; isText if it is a string all the same.
  valueOf(node) {
    // Back to one that is known or has a value of its own, and forth again.
    const todo = [node];
    for (let n = node; !this.members.get(n).result && !n.initializer && (n = this.members.get(n).previous); ) todo.push(n);
    while (todo.length) this.evaluateMember(todo.pop());
    return this.members.get(node).result;
  }

  evaluateMember(node) {
    const entry = this.members.get(node);
    if (entry.result) return;
    entry.result = UNKNOWN;
    if (node.initializer) entry.result = this.evaluate(node.initializer, { node, scope: entry.space });
    else {
      const before = entry.previous ? this.members.get(entry.previous).result.value : -1;
      entry.result = { value: typeof before === "number" ? before + 1 : undefined, isText: false };
    }
  }

  evaluate(e, at) {
    while (e.kind === K.ParenthesizedExpression) e = e.expression;
    switch (e.kind) {
      case K.PrefixUnaryExpression: {
        const { value } = this.evaluate(e.operand, at);
        if (typeof value !== "number") return UNKNOWN;
        if (e.operator === K.PlusToken) return { value, isText: false };
        if (e.operator === K.MinusToken) return { value: -value, isText: false };
        return e.operator === K.TildeToken ? { value: ~value, isText: false } : UNKNOWN;
      }
      case K.BinaryExpression:
        return this.binary(e, at);
      case K.StringLiteral:
      case K.NoSubstitutionTemplateLiteral:
        return { value: e.text, isText: true };
      case K.TemplateExpression: {
        let value = e.head.text;
        for (const span of e.templateSpans) {
          const part = this.evaluate(span.expression, at);
          if (part.value === undefined) return { value: undefined, isText: true };
          value += part.value + span.literal.text;
        }
        return this.text(value, true, e);
      }
      case K.NumericLiteral:
        return { value: +e.text, isText: false };
      case K.Identifier:
      case K.PropertyAccessExpression:
      case K.ElementAccessExpression:
        return this.named(e, at);
    }
    return UNKNOWN;
  }

  // A chain of operators is as deep as it is long: not by recursion.
  binary(e, at) {
    const chain = [];
    let left = e;
    for (; left.kind === K.BinaryExpression; left = left.left) {
      chain.push(left);
      while (left.left.kind === K.ParenthesizedExpression) left = { left: left.left.expression };
    }
    let a = this.evaluate(left, at);
    while (chain.length) {
      const { operatorToken, right } = chain.pop();
      const b = this.evaluate(right, at);
      const isPlus = operatorToken.kind === K.PlusToken;
      const isText = isPlus && (a.isText || b.isText);
      const [x, y] = [a.value, b.value];
      if (typeof x === "number" && typeof y === "number") a = { value: NUMBER[operatorToken.kind]?.(x, y), isText };
      else if (isPlus && x !== undefined && y !== undefined) a = this.text(`${x}${y}`, isText, e);
      else a = { value: undefined, isText };
    }
    return a;
  }

  text(value, isText, node) {
    if (value.length > TEXT_MAX) this.error(node, `A constant of an enum is longer than ${TEXT_MAX} characters`);
    return { value, isText };
  }

  named(e, at) {
    const symbol = this.symbolOf(e, at);
    if (!symbol) return UNKNOWN;
    const node = symbol.nodes[0];
    if (symbol.flags & MEMBER) {
      if (node === at.node) return UNKNOWN;
      const own = this.members.get(at.node);
      if (own && node.pos > at.node.pos && !this.isDeferred(at.scope, symbol.scope.parent))
        this.error(e, `Enum member '${node.name.text}' is used before its declaration`);
      return this.valueOf(node);
    }
    if (!(symbol.flags & CONSTANT) || node.kind !== K.VariableDeclaration || e.kind === K.ElementAccessExpression) return UNKNOWN;
    if (node.type || !node.initializer || node.name.kind !== K.Identifier || node === at.node) return UNKNOWN;
    if (node.pos > at.node.pos && !this.isDeferred(at.scope, symbol.scope)) return UNKNOWN;
    let result = this.constants.get(node);
    if (!result) {
      this.constants.set(node, UNKNOWN);
      result = this.evaluate(node.initializer, { node, scope: symbol.scope });
      this.constants.set(node, result);
    }
    return result;
  }

  // Whether code in `scope` runs only when somebody calls a function inside of `outer`.
  isDeferred(scope, outer) {
    for (let s = scope; s && s !== outer; s = s.parent) if (s.kind === "function") return true;
    return false;
  }

  // a.b.c or a.b["c"]
  symbolOf(e, at) {
    const path = [];
    let head = e;
    if (head.kind === K.ElementAccessExpression) {
      const key = head.argumentExpression;
      if (key.kind !== K.StringLiteral && key.kind !== K.NoSubstitutionTemplateLiteral) return null;
      path.push(key.text);
      head = head.expression;
    }
    for (; head.kind === K.PropertyAccessExpression; head = head.expression) {
      if (head.questionDotToken) return null;
      path.push(head.name.text);
    }
    if (head.kind !== K.Identifier) return null;
    let symbol = at.scope.find(head.text, VALUE)?.symbol ?? null;
    while (symbol && path.length) symbol = symbol.exports?.get(path.pop()) ?? null;
    return symbol;
  }
}
