// evaluate(text): what the expression (which may await) comes to, as text that does not depend on the
// engine. Error messages are left out: engines word them differently.
const describeValue = (v, depth = 0) => {
  if (depth > 6) return "...";
  const inner = (x) => describeValue(x, depth + 1);
  if (typeof v === "string") return JSON.stringify(v.toWellFormed()) + (v.isWellFormed() ? "" : "!");
  if (typeof v === "bigint") return `${v}n`;
  if (Object.is(v, -0)) return "-0";
  if (typeof v === "function") return `function ${v.name}`;
  if (typeof v !== "object" || v === null) return String(v);
  if (v instanceof Error) {
    const own = Object.getPrototypeOf(v) === DOMException.prototype ? "DOMException " : "";
    return `${own}${v.name}`;
  }
  const tag = Object.prototype.toString.call(v).slice(8, -1);
  if (tag === "Date") return `Date ${v.getTime()}`;
  if (tag === "RegExp") return `RegExp ${v} ${v.lastIndex}`;
  if (tag === "ArrayBuffer") return `ArrayBuffer ${inner(new Uint8Array(v))}`;
  if (tag === "Map") return `Map{${[...v].map(inner)}}`;
  if (tag === "Set") return `Set{${[...v].map(inner)}}`;
  if (ArrayBuffer.isView(v) && tag !== "DataView") return `${tag}[${Array.from(v)}]`;
  if (Array.isArray(v)) {
    const out = [];
    for (let i = 0; i < v.length; i++) out.push(i in v ? inner(v[i]) : "");
    return `[${out}]`;
  }
  const keys = Object.keys(v).sort();
  return `${tag === "Object" ? "" : tag}{${keys.map((k) => `${k}:${inner(v[k])}`)}}`;
};
const evaluate = async (text) => {
  try {
    return describeValue(await (0, eval)(`(async()=>(${text}))()`));
  } catch (e) {
    return `throws ${describeValue(e)}`;
  }
};
