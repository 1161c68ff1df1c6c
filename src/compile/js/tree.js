// Walking an ESTree without recursion: the depth of the input never becomes depth of our stack.

// Child keys that hold expressions, statements and patterns; names that are not references are left out.
export const KEYS = {
  Program: ["body"],
  ExpressionStatement: ["expression"],
  BlockStatement: ["body"],
  StaticBlock: ["body"],
  WithStatement: ["object", "body"],
  ReturnStatement: ["argument"],
  LabeledStatement: ["body"],
  IfStatement: ["test", "consequent", "alternate"],
  SwitchStatement: ["discriminant", "cases"],
  SwitchCase: ["test", "consequent"],
  ThrowStatement: ["argument"],
  TryStatement: ["block", "handler", "finalizer"],
  CatchClause: ["param", "body"],
  WhileStatement: ["test", "body"],
  DoWhileStatement: ["body", "test"],
  ForStatement: ["init", "test", "update", "body"],
  ForInStatement: ["left", "right", "body"],
  ForOfStatement: ["left", "right", "body"],
  FunctionDeclaration: ["params", "body"],
  FunctionExpression: ["params", "body"],
  ArrowFunctionExpression: ["params", "body"],
  VariableDeclaration: ["declarations"],
  VariableDeclarator: ["id", "init"],
  ClassDeclaration: ["superClass", "body"],
  ClassExpression: ["superClass", "body"],
  ClassBody: ["body"],
  MethodDefinition: ["key", "value"],
  PropertyDefinition: ["key", "value"],
  ArrayExpression: ["elements"],
  ObjectExpression: ["properties"],
  Property: ["key", "value"],
  SequenceExpression: ["expressions"],
  UnaryExpression: ["argument"],
  UpdateExpression: ["argument"],
  BinaryExpression: ["left", "right"],
  LogicalExpression: ["left", "right"],
  AssignmentExpression: ["left", "right"],
  ConditionalExpression: ["test", "consequent", "alternate"],
  CallExpression: ["callee", "arguments"],
  NewExpression: ["callee", "arguments"],
  MemberExpression: ["object", "property"],
  ChainExpression: ["expression"],
  ParenthesizedExpression: ["expression"],
  YieldExpression: ["argument"],
  AwaitExpression: ["argument"],
  ImportExpression: ["source", "options"],
  TaggedTemplateExpression: ["tag", "quasi"],
  TemplateLiteral: ["expressions"],
  SpreadElement: ["argument"],
  ObjectPattern: ["properties"],
  ArrayPattern: ["elements"],
  AssignmentPattern: ["left", "right"],
  RestElement: ["argument"],
  ExportNamedDeclaration: ["declaration"],
  ExportDefaultDeclaration: ["declaration"],
};
const NONE = [];

// Pushes the children of `node` with `context`; keys of properties and members only when computed.
export function pushChildren(node, context, nodes, contexts) {
  const keys = KEYS[node.type] ?? NONE;
  for (let i = keys.length - 1; i >= 0; i--) {
    const key = keys[i];
    if ((key === "key" || key === "property") && !node.computed) continue;
    const child = node[key];
    if (!child) continue;
    if (Array.isArray(child)) {
      for (let k = child.length - 1; k >= 0; k--)
        if (child[k]) {
          nodes.push(child[k]);
          contexts.push(context);
        }
    } else {
      nodes.push(child);
      contexts.push(context);
    }
  }
}

// The identifiers that a pattern binds or assigns, in source order.
export function patternIds(pattern, out) {
  const nodes = [pattern];
  while (nodes.length) {
    const n = nodes.pop();
    if (!n) continue;
    switch (n.type) {
      case "Identifier":
        out.push(n);
        break;
      case "ObjectPattern":
        for (let i = n.properties.length - 1; i >= 0; i--) nodes.push(n.properties[i]);
        break;
      case "Property":
        nodes.push(n.value);
        break;
      case "ArrayPattern":
        for (let i = n.elements.length - 1; i >= 0; i--) nodes.push(n.elements[i]);
        break;
      case "AssignmentPattern":
        nodes.push(n.left);
        break;
      case "RestElement":
        nodes.push(n.argument);
        break;
    }
  }
  return out;
}

export const isFunction = (n) =>
  n.type === "FunctionDeclaration" || n.type === "FunctionExpression" || n.type === "ArrowFunctionExpression";
