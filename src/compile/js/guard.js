// What bounds a parser of untrusted source: nesting and the number of tokens it reads. Here for TypeScript's parser, into
// which the build puts these calls (cut.js); parse.js does the same to acorn.
import { tick } from "./budget.js";

// The engine's own stack is the backstop; these limits make the outcome the same in every build of it.
export const NESTING_MAX = 500;
// Speculative parsing (arrow functions and type arguments in TypeScript) can repeat work at each level of nesting.
const STEPS_PER_CHAR = 40;
const STEPS_FREE = 20000;

// Not a SyntaxError: nothing that parses may catch it and try again.
export class TooComplex extends Error {
  constructor(pos, message) {
    super(message);
    this.pos = pos;
  }
}

export const stepsFor = (length) => STEPS_FREE + STEPS_PER_CHAR * length;
export const tooNested = (pos) => new TooComplex(pos, `Source is nested deeper than ${NESTING_MAX} levels`);
export const tooAmbiguous = (pos) => new TooComplex(pos, "Source is too ambiguous to parse in bounded time");

let nesting = 0;
let steps = 0;

export function beginParsing(length) {
  nesting = 0;
  steps = stepsFor(length);
}

export function enterNesting(pos) {
  if (++nesting > NESTING_MAX) throw tooNested(pos);
}

export function leaveNesting() {
  nesting--;
}

// A long token costs what it takes to read: speculation reads it again.
export function spendToken(scanner) {
  tick();
  const from = scanner.getTokenFullStart();
  steps -= 1 + ((scanner.getTokenEnd() - from) >> 5);
  if (steps < 0) throw tooAmbiguous(from);
}
