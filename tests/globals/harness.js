// test(name, fn), fn may be async; eq, throws, rejects. Results are printed at the end of all.
"use strict";
{
  const log = globalThis.print ?? console.log;
  const all = [];
  let count = 0;
  globalThis.testsFailed = true;
  globalThis.test = (name, fn) => void all.push([name, fn]);
  const show = (v) => {
    if (typeof v === "string") return JSON.stringify(v);
    if (v instanceof Error) return `${v.name}: ${v.message}`;
    if (ArrayBuffer.isView(v) || Array.isArray(v)) return `[${Array.from(v, show)}]`;
    if (typeof v === "object" && v !== null) {
      try {
        return JSON.stringify(v) ?? String(v);
      } catch {
        return Object.prototype.toString.call(v);
      }
    }
    return String(v);
  };
  globalThis.show = show;
  globalThis.eq = (a, b, what = "") => {
    count++;
    if (!Object.is(a, b) && show(a) !== show(b)) throw new Error(`${what} got ${show(a)}, expected ${show(b)}`);
  };
  globalThis.ok = (v, what = "a true value was expected") => {
    count++;
    if (!v) throw new Error(what);
  };
  const same = (e, name, text) => {
    count++;
    if (e?.name !== name) throw new Error(`threw ${show(e)}, expected a ${name}`);
    if (text !== undefined && !e.message.includes(text)) throw new Error(`message: ${e.message}`);
  };
  globalThis.throws = (fn, name, text) => {
    let e;
    try {
      fn();
    } catch (error) {
      return same(error, name, text);
    }
    throw new Error(`nothing was thrown, expected a ${name}`);
  };
  globalThis.rejects = async (promise, name, text) => {
    try {
      await promise;
    } catch (error) {
      return same(error, name, text);
    }
    throw new Error(`nothing was rejected, expected a ${name}`);
  };
  setTimeout(async () => {
    let failed = 0;
    for (const [name, fn] of all) {
      try {
        await fn();
      } catch (e) {
        failed++;
        log(`FAIL ${name}: ${show(e)}\n${e?.stack ?? ""}`);
      }
    }
    log(`${all.length} tests, ${count} checks, ${failed} failed`);
    if (failed === 0 && all.length > 0) globalThis.testsFailed = false;
  }, 0);
}
