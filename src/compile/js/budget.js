// The processor time that one compilation may take. cay-compile hands in __isSpent; without it there is no such limit.
const isSpent = globalThis.__isSpent;
const EVERY = 1024;
let left = EVERY;

// Not a SyntaxError: parsers catch those while they speculate.
export class Spent extends Error {}

// Called once per token and per node. When the time is up it throws each time: some of our parser's code catches
// everything.
export function tick() {
  if (--left > 0) return;
  if (isSpent?.()) throw new Spent("the processor time is spent");
  left = EVERY;
}
