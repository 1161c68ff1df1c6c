// What names mean in a TypeScript module, as far as erasing types asks: which import, namespace or enum a name leads to.
// A symbol is everything that one name means in one scope. Namespaces and enums of one name are one symbol, and what
// their blocks export is in its `exports`.

export const VARIABLE = 1;
export const CONSTANT = 2; // a `const`, with a VARIABLE
export const FUNCTION = 4;
export const CLASS = 8;
export const ENUM = 16;
export const NAMESPACE = 32; // with values in it
export const MEMBER = 64; // of an enum
export const IMPORT = 128; // from a module
export const ALIAS = 256; // import a = b.c
export const TYPE = 512; // an interface, a type, a namespace of nothing but these
export const TYPE_IMPORT = 1024;

export const VALUE = VARIABLE | FUNCTION | CLASS | ENUM | NAMESPACE | MEMBER | IMPORT | ALIAS;
// Exported from a namespace, these keep a variable of their own there; others live in the namespace's object only.
export const HAS_LOCAL = FUNCTION | CLASS | ENUM | NAMESPACE;

class Sym {
  flags = 0;
  nodes = [];
  scope = null;
  exports = null;
  exported = null; // the symbol that the namespace around it exports
  isUsed = false; // as a value
}

function symbolIn(map, name, scope) {
  let symbol = map.get(name);
  if (!symbol) map.set(name, (symbol = new Sym()));
  symbol.scope ??= scope;
  return symbol;
}

export class Scope {
  names = new Map();
  first = null; // name -> the first declaration that leaves code behind
  param = ""; // of a namespace or enum: what its function calls the object
  isTaken = false; // something within a namespace or enum has the same name
  // kind: "module", "function", "block", "namespace" or "enum"; the last two have the symbol whose parts they are.
  constructor(parent, kind, symbol = null, name = "") {
    this.parent = parent;
    this.kind = kind;
    this.symbol = symbol;
    this.name = name;
    this.space = symbol ? this : (parent?.space ?? null);
    this.home = kind === "block" || kind === "enum" ? parent.home : this; // of `var`
  }

  // `isOwn` is false for the names of function and class expressions.
  declare(name, flags, node, { isExported = false, isOwn = true } = {}) {
    if (isOwn && flags & VALUE && !(isExported && flags & ALIAS))
      for (let s = this.space; s; s = s.parent.space) if (s.name === name) s.isTaken = true;
    let exported = null;
    if (isExported && this.kind === "namespace") {
      exported = symbolIn(this.symbol.exports, name, this);
      exported.flags |= flags;
      exported.nodes.push(node);
      if (flags & ALIAS) return exported;
    }
    const symbol = symbolIn(this.names, name, this);
    symbol.flags |= flags;
    symbol.nodes.push(node);
    if (exported) symbol.exported = exported;
    return exported ?? symbol;
  }

  // Whether `node` is the first declaration of the name in this block that leaves code behind.
  isFirst(name, node) {
    this.first ??= new Map();
    if (!this.first.has(name)) this.first.set(name, node);
    return this.first.get(name) === node;
  }

  // The nearest symbol that means any of `flags`: {symbol, space}. With a space, it must be read as that space's property.
  find(name, flags = VALUE) {
    for (let scope = this; scope; scope = scope.parent) {
      const own = scope.names.get(name);
      if (own && own.flags & flags) {
        const shared = own.exported && own.exported.flags & flags ? own.exported : null;
        const isProperty = shared && (!(shared.flags & HAS_LOCAL) || shared.flags & VARIABLE);
        return { symbol: shared ?? own, space: isProperty ? scope : null };
      }
      const exported = scope.symbol?.exports.get(name);
      if (exported && exported.flags & flags) return { symbol: exported, space: scope };
    }
    return null;
  }
}
