// JSX elements -> calls, in place.
//
// Classic by default: React.createElement(tag, props, ...children) with whatever React, or the names that the comments
// @jsx and @jsxFrag give, mean in the module. With a comment @jsxImportSource x, the automatic runtime: jsx and jsxs
// of x/jsx-runtime, called through an adapter so that keys and children can stay where they are in the source.

const PRAGMA = /@(jsx|jsxFrag|jsxImportSource|jsxRuntime)\s+(\S+)/g;
const DOTTED = /^[\p{ID_Start}$_][\p{ID_Continue}$]*(\.[\p{ID_Start}$_][\p{ID_Continue}$]*)*$/u;
const PLAIN = /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u;

export function jsxSettings(source, comments) {
  let factory = "React.createElement";
  let fragment = "React.Fragment";
  let from = null;
  let automatic = null;
  for (const c of comments) {
    if (c.type !== "Block") continue;
    for (const [, name, value] of c.value.matchAll(PRAGMA)) {
      if (name === "jsxRuntime") automatic = value === "automatic";
      else if (name === "jsxImportSource") from = value;
      else if (!DOTTED.test(value)) continue;
      else if (name === "jsx") factory = value;
      else fragment = value;
    }
  }
  if (automatic === false || (from === null && !automatic))
    return { factory, fragment, names: [factory.split(".")[0], fragment.split(".")[0]], prefix: "" };
  const used = new Set(source.match(/_(?:jsxs?|Fragment|element)\d*/g));
  const name = (base) => {
    let n = base;
    for (let k = 1; used.has(n); k++) n = base + k;
    return n;
  };
  const [one, many, frag, call] = ["_jsx", "_jsxs", "_Fragment", "_element"].map(name);
  const prefix =
    `import{jsx as ${one},jsxs as ${many},Fragment as ${frag}}from${JSON.stringify((from ?? "react") + "/jsx-runtime")};` +
    `const ${call}=(t,p,...c)=>{const{key:k,...r}=p??{};if(c.length)r.children=c.length>1?c:c[0];` +
    `return(c.length>1?${many}:${one})(t,r,k===undefined?k:""+k)};`;
  return { factory: call, fragment: frag, names: [], prefix };
}

// The rule of JSX: lines are trimmed where they were broken, empty ones vanish, the rest join with a space.
function textOf(value) {
  const lines = value.split(/\r\n|\n|\r/);
  const kept = [];
  lines.forEach((line, i) => {
    let t = line.replace(/\t/g, " ");
    if (i > 0) t = t.replace(/^ +/, "");
    if (i < lines.length - 1) t = trimBlanksEnd(t);
    if (t) kept.push(t);
  });
  return kept.join(" ");
}

// As / +$/ does, which would try each blank within the text as the first of the last ones.
function trimBlanksEnd(text) {
  let end = text.length;
  while (text[end - 1] === " ") end--;
  return text.slice(0, end);
}

const quote = (text) => JSON.stringify(text).replace(/[\u2028\u2029]/g, (c) => (c === "\u2028" ? "\\u2028" : "\\u2029"));

function tagText(eraser, name) {
  if (name.type === "JSXIdentifier") {
    if (/^[a-z]/.test(name.name) || name.name.includes("-")) return quote(name.name);
    eraser.used.add(name.name);
    return name.name;
  }
  if (name.type === "JSXNamespacedName") return quote(`${name.namespace.name}:${name.name.name}`);
  let head = name;
  while (head.type === "JSXMemberExpression") head = head.object;
  eraser.used.add(head.name);
  return eraser.source.slice(name.start, name.end).replace(/\s+/g, "");
}

export function rewriteElement(eraser, n) {
  const { edits, source, jsx } = eraser;
  eraser.sawElement = true;
  const opening = n.openingElement ?? n.openingFragment;
  const closing = n.closingElement ?? n.closingFragment;
  if (n.type === "JSXFragment") edits.replace(opening.start, opening.end, `${jsx.factory}(${jsx.fragment},null`);
  else {
    const { attributes } = opening;
    const nameEnd = (opening.typeArguments ?? opening.name).end;
    const close = opening.end - (opening.selfClosing ? 2 : 1);
    edits.replace(opening.start, nameEnd, `${jsx.factory}(${tagText(eraser, opening.name)}${attributes.length ? ",{" : ",null"}`);
    for (const a of attributes) attribute(eraser, a);
    const slash = opening.selfClosing ? source.lastIndexOf("/", opening.end - 1) : close;
    edits.blank(slash, opening.end, (attributes.length ? "}" : "") + (closing ? "" : ")"));
  }
  for (const c of n.children) child(eraser, c);
  if (closing) edits.replace(closing.start, closing.end, ")");
}

function attribute(eraser, a) {
  const { edits, source } = eraser;
  if (a.type === "JSXSpreadAttribute") {
    edits.replace(a.start, a.start + 1, " ");
    edits.replace(a.end - 1, a.end, ",");
    return eraser.visit(a.argument);
  }
  const raw =
    a.name.type === "JSXNamespacedName" ? `${a.name.namespace.name}:${a.name.name.name}` : a.name.name;
  const key = PLAIN.test(raw) && raw !== "__proto__" ? raw : raw === "__proto__" ? '["__proto__"]' : quote(raw);
  if (!a.value) return edits.replace(a.start, a.end, key + ":true,");
  // name = value -> name: value,
  const equals = source.indexOf("=", a.name.end);
  edits.replace(a.start, equals + 1, key + ":");
  value(eraser, a.value);
  edits.insert(a.end, ",");
}

// White space around line breaks becomes one blank. (Not by /\s*[\n\r]+\s*/: it would try each blank of a long row.)
const oneLine = (text) => text.replace(/\s+/g, (blanks) => (/[\n\r]/.test(blanks) ? " " : blanks));

function value(eraser, v) {
  const { edits } = eraser;
  if (v.type === "Literal") return edits.replace(v.start, v.end, quote(oneLine(v.value)));
  if (v.type !== "JSXExpressionContainer") return eraser.visit(v);
  if (v.expression.type === "JSXEmptyExpression") eraser.error(v, "A JSX attribute needs a value");
  const many = v.expression.type === "SequenceExpression";
  edits.replace(v.start, v.start + 1, many ? "(" : " ");
  edits.replace(v.end - 1, v.end, many ? ")" : " ");
  eraser.visit(v.expression);
}

function child(eraser, c) {
  const { edits } = eraser;
  switch (c.type) {
    case "JSXText": {
      const text = textOf(c.value);
      return text ? edits.replace(c.start, c.end, "," + quote(text)) : edits.blank(c.start, c.end);
    }
    case "JSXExpressionContainer":
      if (c.expression.type === "JSXEmptyExpression") return edits.blank(c.start, c.end);
      edits.replace(c.start, c.start + 1, c.expression.type === "SequenceExpression" ? ",(" : ",");
      edits.replace(c.end - 1, c.end, c.expression.type === "SequenceExpression" ? ")" : " ");
      return eraser.visit(c.expression);
    case "JSXSpreadChild":
      edits.replace(c.start, c.start + 1, ",");
      edits.replace(c.end - 1, c.end, " ");
      return eraser.visit(c.expression);
    default:
      edits.insert(c.start, ",");
      return eraser.visit(c);
  }
}
