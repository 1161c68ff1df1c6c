// acorn with the guards that untrusted input needs: nesting and total work are bounded, scopes are searched by hash.
import { Parser } from "acorn";
import { tsPlugin } from "@sveltejs/acorn-typescript";

// acorn keeps the names of a scope in arrays and searches them with indexOf: 100,000 declarations would cost
// 10^10 steps. The TypeScript plugin undoes speculation by setting length, so an index must notice a shorter array.
class Names extends Array {
  #index = null;
  #seen = 0;
  indexOf(name) {
    if (this.length <= 16) return super.indexOf(name);
    if (!this.#index || this.length < this.#seen) {
      this.#index = new Set();
      this.#seen = 0;
    }
    for (; this.#seen < this.length; this.#seen++) this.#index.add(this[this.#seen]);
    return this.#index.has(name) ? 0 : -1;
  }
  includes(name) {
    return this.indexOf(name) >= 0;
  }
}

// The engine's own stack is the backstop; these limits make the outcome the same in every build of it.
export const NESTING_MAX = 500;
export const CHAIN_MAX = 4000; // a + b + c ...: acorn recurses once per operator
// Speculative parsing (arrow functions and type arguments in TypeScript) can repeat work at each level of nesting.
const STEPS_PER_CHAR = 40;
const STEPS_FREE = 20000;

const NESTED = [
  "parseStatement",
  "parseMaybeAssign",
  "parseMaybeUnary",
  "parseBindingAtom",
  "parseNew",
  "tsParseType",
  "tsParseNonArrayType",
  "tsParseTypeOperatorOrHigher",
  "tsParseEntityName",
  "tsParseModuleOrNamespaceDeclaration",
  "jsx_parseElementAt",
];

function guarded(Base) {
  class Guarded extends Base {
    constructor(options, input, startPos) {
      super(options, input, startPos);
      this.nesting = 0;
      this.chain = 0;
      this.steps = STEPS_FREE + STEPS_PER_CHAR * input.length;
      if (this.importsStack) this.importsStack[0] = new Names();
    }
    nextToken() {
      if (--this.steps < 0) throw new TooComplex(this.start, "Source is too ambiguous to parse in bounded time");
      return super.nextToken();
    }
    enterScope(flags) {
      super.enterScope(flags);
      const scope = this.scopeStack[this.scopeStack.length - 1];
      for (const key in scope) if (Array.isArray(scope[key])) scope[key] = new Names();
    }
    parseExprOp(left, pos, loc, minPrec, forInit) {
      if (++this.chain > CHAIN_MAX) throw new TooComplex(pos, `Expression chains more than ${CHAIN_MAX} operators`);
      try {
        return super.parseExprOp(left, pos, loc, minPrec, forInit);
      } finally {
        this.chain--;
      }
    }
  }
  for (const name of NESTED) {
    const inner = Base.prototype[name];
    if (!inner) continue;
    Guarded.prototype[name] = function (a, b, c, d, e, f, g) {
      if (++this.nesting > NESTING_MAX)
        throw new TooComplex(this.start, `Source is nested deeper than ${NESTING_MAX} levels`);
      try {
        return inner.call(this, a, b, c, d, e, f, g);
      } finally {
        this.nesting--;
      }
    };
  }
  return Guarded;
}

// Not a SyntaxError: the TypeScript plugin catches those while it speculates, and would try again.
export class TooComplex extends Error {
  constructor(pos, message) {
    super(message);
    this.pos = pos;
  }
}

// Where the plugin is stricter than TypeScript.
const mended = (Base) =>
  class extends Base {
    // `<T extends U>() => ...` is not ambiguous with an element in TSX.
    reportReservedArrowTypeParam() {}
    // `const` type parameters are allowed in signatures, too.
    tsParseTypeParameters(parseModifiers = this.tsParseConstModifier) {
      return super.tsParseTypeParameters(parseModifiers);
    }
  };

const Js = guarded(Parser);
const Ts = mended(guarded(Parser.extend(tsPlugin())));
const Tsx = mended(guarded(Parser.extend(tsPlugin({ jsx: true }))));

export function parseModule(source, onComment) {
  return new Js({ ecmaVersion: 2026, sourceType: "module", allowHashBang: true, onComment }, source).parse();
}

export function parseTypeScript(source, jsx, onComment) {
  const P = jsx ? Tsx : Ts;
  const options = { ecmaVersion: 2026, sourceType: "module", allowHashBang: true, locations: true, onComment };
  return new P(options, source).parse();
}

export function parseCommonJs(source, onComment) {
  return new Js({ ecmaVersion: 2026, sourceType: "commonjs", allowHashBang: true, onComment }, source).parse();
}
