// JSX elements -> calls, in place.
//
// Classic by default: React.createElement(tag, props, ...children) with whatever React, or the names that the comments
// @jsx and @jsxFrag give, mean in the module. With a comment @jsxImportSource x, the automatic runtime: jsx and jsxs
// of x/jsx-runtime, called through an adapter so that keys and children can stay where they are in the source.
import { entities, getLeadingCommentRanges, skipTrivia, SyntaxKind as K } from "typescript-parser";
import { NEWLINE } from "./edits.js";

const PRAGMA = /@(jsx|jsxFrag|jsxImportSource|jsxRuntime)\s+(\S+)/g;
const DOTTED = /^[\p{ID_Start}$_][\p{ID_Continue}$]*(\.[\p{ID_Start}$_][\p{ID_Continue}$]*)*$/u;
const PLAIN = /^[A-Za-z_]\w*$/;
const ENTITY = /&(?:#(?:(\d+)|x([\da-fA-F]+))|(\w+));/g;

// By the block comments before the first statement.
export function jsxSettings(source) {
  let factory = "React.createElement";
  let fragment = "React.Fragment";
  let from = null;
  let automatic = null;
  for (const c of getLeadingCommentRanges(source, 0) ?? []) {
    if (c.kind !== K.MultiLineCommentTrivia) continue;
    for (const [, name, value] of source.slice(c.pos + 2, c.end - 2).matchAll(PRAGMA)) {
      if (name === "jsxRuntime") automatic = value === "automatic";
      else if (name === "jsxImportSource") from = value;
      else if (!DOTTED.test(value)) continue;
      else if (name === "jsx") factory = value;
      else fragment = value;
    }
  }
  if (automatic === false || (from === null && !automatic)) return { factory, fragment, prefix: "" };
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
  return { factory: call, fragment: frag, prefix };
}

function decode(text) {
  return text.replace(ENTITY, (all, decimal, hex, word) => {
    const code = word ? entities.get(word) : parseInt(decimal ?? hex, decimal ? 10 : 16);
    return code !== undefined && code <= 0x10ffff ? String.fromCodePoint(code) : all;
  });
}

// The rule of JSX: lines are trimmed where they were broken, empty ones vanish, the rest join with a space.
const BLANK = /[^\S\n\r\u2028\u2029]/;

function textOf(text) {
  const lines = [];
  let first = 0;
  let last = -1;
  for (let i = 0; i < text.length; i++) {
    if (NEWLINE.test(text[i])) {
      if (first !== -1 && last !== -1) lines.push(text.slice(first, last + 1));
      first = -1;
    } else if (!BLANK.test(text[i])) {
      last = i;
      if (first === -1) first = i;
    }
  }
  if (first !== -1) lines.push(text.slice(first));
  return lines.length ? lines.map(decode).join(" ") : undefined;
}

const quote = (text) => JSON.stringify(text).replace(/[\u2028\u2029]/g, (c) => (c === "\u2028" ? "\\u2028" : "\\u2029"));

const nameText = (name) => (name.kind === K.JsxNamespacedName ? `${name.namespace.text}:${name.name.text}` : name.text);

function isIntrinsic(tag) {
  return tag.kind === K.JsxNamespacedName || (tag.kind === K.Identifier && (/^[a-z]/.test(tag.text) || tag.text.includes("-")));
}

export function rewriteElement(eraser, n, scope) {
  const { edits, jsx, source } = eraser;
  eraser.sawElement = true;
  const opening = n.openingElement ?? n.openingFragment ?? n;
  const closing = n.closingElement ?? n.closingFragment;
  const start = skipTrivia(source, n.pos);
  useName(eraser, jsx.factory, scope);
  if (n.kind === K.JsxFragment) {
    useName(eraser, jsx.fragment, scope);
    edits.replace(start, opening.end, `${jsx.factory}(${jsx.fragment},null`);
  } else openTag(eraser, n, opening, scope);
  const children = n.children ?? [];
  for (let i = children.length - 1; i >= 0; i--) child(eraser, children[i], scope);
  if (closing) edits.replace(skipTrivia(source, closing.pos), closing.end, ")" + endOf(eraser, n));
}

// When all names are declared.
function useName(eraser, dotted, scope) {
  eraser.later.push(() => {
    const found = scope.find(dotted.split(".")[0]);
    if (found) eraser.use(found.symbol);
  });
}

// A call goes on where an element ends its statement: with a parenthesis or bracket on the next line.
const endOf = (eraser, n) => (eraser.openEnds.has(n.end) ? ";" : "");

function openTag(eraser, n, opening, scope) {
  const { edits, jsx, source } = eraser;
  const { tagName } = opening;
  const start = skipTrivia(source, n.pos);
  const properties = opening.attributes.properties;
  const nameStart = skipTrivia(source, tagName.pos);
  let nameEnd = tagName.end;
  if (opening.typeArguments) nameEnd = eraser.anglesOf(opening.typeArguments).end;
  const after = properties.length ? ",{" : ",null";
  if (isIntrinsic(tagName)) {
    edits.replace(start, nameEnd, `${jsx.factory}(${quote(nameText(tagName))}${after}`);
    useName(eraser, nameText(tagName), scope); // TypeScript keeps an import of that name
  } else {
    // The name stays where it is, and what it means is looked up as for any other.
    edits.replace(start, nameStart, `${jsx.factory}(`);
    if (nameEnd > tagName.end) edits.replace(tagName.end, nameEnd, after);
    else edits.insert(tagName.end, after);
    eraser.visit(tagName, scope);
  }
  for (let i = properties.length - 1; i >= 0; i--) attribute(eraser, properties[i], scope);
  const isAlone = n.kind === K.JsxSelfClosingElement;
  const close = isAlone ? source.lastIndexOf("/", opening.end - 1) : opening.end - 1;
  edits.blank(close, opening.end, (properties.length ? "}" : "") + (isAlone ? ")" + endOf(eraser, n) : ""));
}

function attribute(eraser, a, scope) {
  const { edits, source } = eraser;
  const start = skipTrivia(source, a.pos);
  if (a.kind === K.JsxSpreadAttribute) {
    edits.replace(start, start + 1, " ");
    edits.replace(a.end - 1, a.end, ",");
    return eraser.visit(a.expression, scope);
  }
  const raw = nameText(a.name);
  const key = PLAIN.test(raw) ? raw : quote(raw);
  if (!a.initializer) return edits.replace(start, a.end, key + ":true,");
  // name = value -> name: value,
  edits.replace(start, skipTrivia(source, a.name.end) + 1, key + ":");
  const v = a.initializer;
  const from = skipTrivia(source, v.pos);
  if (v.kind === K.StringLiteral) edits.replace(from, v.end, quote(decode(v.text)));
  else if (v.kind === K.JsxExpression) {
    if (!v.expression) eraser.error(v, "A JSX attribute needs a value");
    braces(eraser, v, from, "", scope);
  } else eraser.visit(v, scope);
  edits.insert(a.end, ",");
}

// { x } -> x, in parentheses if it is more than one expression.
function braces(eraser, v, from, lead, scope) {
  const { edits } = eraser;
  const isMany = v.expression.kind === K.BinaryExpression && v.expression.operatorToken.kind === K.CommaToken;
  edits.replace(from, from + 1, lead + (isMany ? "(" : ""));
  edits.replace(v.end - 1, v.end, isMany ? ")" : " ");
  eraser.visit(v.expression, scope);
}

function child(eraser, c, scope) {
  const { edits, source } = eraser;
  switch (c.kind) {
    case K.JsxText: {
      const text = textOf(c.text);
      return text === undefined ? edits.blank(c.pos, c.end) : edits.replace(c.pos, c.end, "," + quote(text));
    }
    case K.JsxExpression: {
      const from = skipTrivia(source, c.pos);
      return c.expression ? braces(eraser, c, from, ",", scope) : edits.blank(from, c.end);
    }
    default:
      edits.insert(c.pos, ",");
      return eraser.visit(c, scope);
  }
}
