// JSON and base64 modules are checked here, so that the isolate can take them as they are.
import { CompileError } from "./errors.js";

export function checkJson(text) {
  try {
    JSON.parse(text);
  } catch {
    const pos = jsonErrorOffset(text);
    throw new CompileError("SyntaxError", pos < text.length ? "Unexpected token in JSON" : "Unexpected end of JSON", pos);
  }
}

// The engine does not say where JSON goes wrong. Finds the first token that cannot follow; runs only after a failure.
function jsonErrorOffset(text) {
  const token = /[ \t\n\r]*(?:([{}[\],:])|("(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null))/y;
  const open = [];
  let want = "value"; // value | value] | key | key} | : | ,
  let at = 0;
  const white = () => {
    while (at < text.length && " \t\n\r".includes(text[at])) at++;
    return at;
  };
  for (;;) {
    token.lastIndex = at;
    const m = token.exec(text);
    if (!m) return white();
    const start = token.lastIndex - (m[1] ?? m[2] ?? m[3]).length;
    at = start;
    const after = () => (want = open.length ? "," : "end");
    const [, mark, string] = m;
    if (want === "end") return start;
    if (mark === "{" || mark === "[") {
      if (!want.startsWith("value")) return start;
      open.push(mark);
      want = mark === "{" ? "key}" : "value]";
    } else if (mark === "}" || mark === "]") {
      const closes = open[open.length - 1] === (mark === "}" ? "{" : "[");
      if (!closes || !(want === "," || want === (mark === "}" ? "key}" : "value]"))) return start;
      open.pop();
      after();
    } else if (mark === ",") {
      if (want !== ",") return start;
      want = open[open.length - 1] === "{" ? "key" : "value";
    } else if (mark === ":") {
      if (want !== ":") return start;
      want = "value";
    } else if (want.startsWith("key")) {
      if (!string) return start;
      want = ":";
    } else if (want.startsWith("value")) after();
    else return start;
    at = token.lastIndex;
  }
}

export function checkBase64(text) {
  const bad = /[^A-Za-z0-9+/]/.exec(text.replace(/={0,2}$/, ""));
  if (bad || text.length % 4 !== 0)
    throw new CompileError("SyntaxError", "Data modules must be base64 with padding", bad ? bad.index : text.length);
}
