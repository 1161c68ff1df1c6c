// Compares what our compiler makes of a TypeScript module with what TypeScript makes of it.
import { erase } from "./lib.js";
import { isUngrammatical, syntaxError, transpile, tree } from "./typescript-reference.js";

// Errors of our own, where TypeScript has an error of its checker or output that means something else.
const OWN = /^(Enum member '|Write '|The name of an enum member|An enum member cannot|Decorators are not|'accessor' fields|'export =' is|'import x = require|'import defer'|'module "name"'|Export lists are not|A constructor with parameter|A getter or setter needs|A JSX attribute needs|An import can only be|What a namespace exports|The declarations of ')|^Optional chaining cannot appear in the tag|^Duplicate export|^(Identifier|Export) '.*' (has already been declared|is not defined)/;

// {verdict, why}: "same"; "refused" by both, or by us where the checker would refuse it; "unknown" if TypeScript's own output
// is no JavaScript; "different" is a defect.
export function compare(source, kind) {
  const want = transpile(source, kind);
  let got;
  let error = null;
  try {
    got = erase(source, kind).code;
    const message = syntaxError(got);
    if (message) error = { message };
  } catch (e) {
    error = e;
    if (!(e.pos >= 0 && e.pos <= source.length)) return { verdict: "different", why: `an error without a place: ${e.stack}` };
  }
  if (want.code === null)
    return error ? { verdict: "refused" } : { verdict: "different", why: `TypeScript refuses it: ${want.error}\n${got}` };
  if (syntaxError(want.code)) return { verdict: "unknown" };
  const show = (code) => code.trim().replace(/\s*\n\s*/g, " ");
  if (error) {
    if (OWN.test(error.message) || isUngrammatical(source, kind)) return { verdict: "refused" };
    return { verdict: "different", why: `refused: ${error.message}\n  got  ${got}\n  want ${show(want.code)}` };
  }
  if (tree(got) !== tree(want.code)) return { verdict: "different", why: `\n  got  ${show(got)}\n  want ${show(want.code)}` };
  const lines = (text) => text.split(/\r\n|[\n\r\u2028\u2029]/).length;
  if (lines(got) !== lines(source)) return { verdict: "different", why: `${lines(source)} lines became ${lines(got)}` };
  return { verdict: "same" };
}
