// acorn with the guards that untrusted input needs: nesting and total work are bounded, scopes are searched by hash.
import { Parser, tokTypes } from "acorn";
import { tick } from "./budget.js";
import { NESTING_MAX, TooComplex, stepsFor, tooAmbiguous, tooNested } from "./guard.js";

// acorn keeps the names of a scope in arrays and searches them with indexOf: 100,000 declarations would cost
// 10^10 steps.
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

export const CHAIN_MAX = 4000; // a + b + c ...: acorn recurses once per operator
const SAME_NAME_MAX = 200; // groups of one name in a regular expression: acorn compares each with all before it

const LINE_BREAK = /[\n\r\u2028\u2029]/;

const NESTED = [
  "parseStatement",
  "parseMaybeAssign",
  "parseMaybeUnary",
  "parseBindingAtom",
  "parseNew",
];

// acorn has it, but does not export it.
const RegExpState = (() => {
  const p = new Parser({ ecmaVersion: 2026 }, "/a/");
  p.nextToken();
  return p.regexpState.constructor;
})();

function guarded(Base) {
  class Guarded extends Base {
    constructor(options, input, startPos) {
      super(options, input, startPos);
      this.nesting = 0;
      this.chain = 0;
      this.steps = stepsFor(input.length);
    }
    nextToken() {
      const from = this.pos;
      tick();
      super.nextToken();
      // A long token costs what it takes to read: speculation reads it again.
      this.steps -= 1 + ((this.pos - from) >> 5);
      if (this.steps < 0) throw tooAmbiguous(this.start);
    }
    // Speculation fails often, and finding the line of each failure would read the source from its start.
    raise(pos, message) {
      throw Object.assign(new SyntaxError(message), { pos });
    }
    raiseRecoverable(pos, message) {
      this.raise(pos, message);
    }
    enterScope(flags) {
      super.enterScope(flags);
      const scope = this.scopeStack[this.scopeStack.length - 1];
      for (const key in scope) if (Array.isArray(scope[key])) scope[key] = new Names();
    }
    // As acorn's, without a value: the engine takes time that is quadratic in the names of groups to make one.
    readRegexp() {
      const start = this.pos;
      for (let escaped = false, inClass = false; ; ++this.pos) {
        const ch = this.input[this.pos];
        if (ch === undefined || LINE_BREAK.test(ch)) this.raise(start, "Unterminated regular expression");
        if (escaped) escaped = false;
        else if (ch === "/" && !inClass) break;
        else if (ch === "\\") escaped = true;
        else if (ch === "[") inClass = true;
        else if (ch === "]") inClass = false;
      }
      const pattern = this.input.slice(start, this.pos++);
      const flagsStart = this.pos;
      const flags = this.readWord1();
      if (this.containsEsc) this.unexpected(flagsStart);
      const state = (this.regexpState ??= new RegExpState(this));
      state.reset(start, pattern, flags);
      this.validateRegExpFlags(state);
      this.validateRegExpPattern(state);
      return this.finishToken(tokTypes.regexp, { pattern, flags, value: null });
    }
    regexp_groupSpecifier(state) {
      super.regexp_groupSpecifier(state);
      if (state.groupNames[state.lastStringValue]?.length > SAME_NAME_MAX)
        throw new TooComplex(this.start, `A regular expression has more than ${SAME_NAME_MAX} groups of one name`);
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
      if (++this.nesting > NESTING_MAX) throw tooNested(this.start);
      try {
        return inner.call(this, a, b, c, d, e, f, g);
      } finally {
        this.nesting--;
      }
    };
  }
  return Guarded;
}

const Js = guarded(Parser);

export function parseModule(source, onComment) {
  return new Js({ ecmaVersion: 2026, sourceType: "module", allowHashBang: true, onComment }, source).parse();
}

export function parseCommonJs(source, onComment) {
  return new Js({ ecmaVersion: 2026, sourceType: "commonjs", allowHashBang: true, onComment }, source).parse();
}
