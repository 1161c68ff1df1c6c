// A program replaces everything that it can reach. The globals that matter (crypto, structuredClone,
// bodies, headers, text, events) neither break nor ask the replacements.
const { defineProperty, getOwnPropertyDescriptor } = Object;
const asked = [];
const plan = [];
const plot = (label, o, keys) => {
  for (const key of keys) {
    const what = `${label}.${String(key)}`;
    plan.push({ o, key, old: getOwnPropertyDescriptor(o, key), now: { configurable: true, writable: true, value() {
      asked[asked.length] = what;
      throw new Error(`sabotage of ${what}`);
    } } });
  }
};
plot("Promise.prototype", Promise.prototype, ["then", "catch", "finally"]);
plot("Promise", Promise, ["resolve", "reject", "all", Symbol.species]);
plot("Map.prototype", Map.prototype, ["get", "set", "has", "delete", "forEach", Symbol.iterator]);
plot("Set.prototype", Set.prototype, ["add", "has", "delete", "forEach", Symbol.iterator]);
plot("String.prototype", String.prototype, ["toLowerCase", "toUpperCase", "charCodeAt", "slice", "indexOf", "trim", "replace",
  "split", "startsWith", "toWellFormed", Symbol.iterator]);
plot("TypedArray.prototype", Object.getPrototypeOf(Uint8Array.prototype), ["set", "subarray", "slice", "fill", Symbol.iterator]);
plot("TypedArray", Object.getPrototypeOf(Uint8Array), ["from", "of", Symbol.species]);
plot("ArrayBuffer.prototype", ArrayBuffer.prototype, ["slice", "transfer", "resize"]);
plot("Function.prototype", Function.prototype, ["call", "apply", "bind"]);
plot("RegExp.prototype", RegExp.prototype, ["exec", "test", Symbol.replace, Symbol.match]);
plot("Number.prototype", Number.prototype, ["toString"]);
plot("Date.prototype", Date.prototype, ["getTime"]);
plot("Reflect", Reflect, ["apply", "construct", "ownKeys", "defineProperty", "getPrototypeOf", "setPrototypeOf"]);
plot("Object", Object, ["keys", "assign", "create", "defineProperty", "defineProperties", "hasOwn", "getOwnPropertyDescriptor"]);
plot("JSON", JSON, ["parse", "stringify"]);
plot("Math", Math, ["min", "max", "floor", "trunc"]);
plot("Array", Array, ["isArray", "from", Symbol.species]);
plot("Array.prototype", Array.prototype, ["push", "pop", "shift", "splice", "join", "sort", "map", "slice", "concat", "forEach", Symbol.iterator]);
plot("ArrayIterator", Object.getPrototypeOf([][Symbol.iterator]()), ["next"]);
plot("Error", Error, ["captureStackTrace", "isError"]);
// Setters that would see elements and members of careless literals and descriptors.
for (const key of ["0", "1", "2", "value", "get", "set", "writable", "enumerable", "configurable", "done", "bytes", "body", "stream", "type",
  "transfer", "hash", "params", "info", "uses", "callback", "once", "maxByteLength"])
  plan.push({ o: Object.prototype, key, old: undefined, now: { configurable: true, get() {
    return undefined;
  }, set(v) {
    asked[asked.length] = `set ${key}`;
    defineProperty(this, key, { __proto__: null, value: v, writable: true, enumerable: true, configurable: true });
  } } });
for (const item of plan) {
  Object.setPrototypeOf(item.now, null);
  if (item.old) Object.setPrototypeOf(item.old, null);
}

async function underSabotage(fn) {
  asked.length = 0;
  asked.__proto__ = null;
  let error = null, value;
  for (let i = 0; i < plan.length; i++) defineProperty(plan[i].o, plan[i].key, plan[i].now);
  try {
    value = await fn();
  } catch (e) {
    error = e;
  }
  for (let i = 0; i < plan.length; i++) {
    if (plan[i].old) defineProperty(plan[i].o, plan[i].key, plan[i].old);
    else delete plan[i].o[plan[i].key];
  }
  if (error) throw error;
  let list = "";
  for (let i = 0; i < asked.length; i++) list += `${asked[i]}, `;
  eq(list, "", "the program was asked:");
  return value;
}

test("the sabotage works", async () => {
  await rejects(underSabotage(() => [1].map((x) => x)), "Error", "sabotage of Array.prototype.map");
});
test("text and base64", async () => {
  eq(await underSabotage(() => new TextDecoder(" UTF-8 ").decode(new TextEncoder().encode("h\u00e9"))), "h\u00e9");
  eq(await underSabotage(() => atob(btoa("hello"))), "hello");
});
test("digest, HMAC, AES, random", async () => {
  const hash = await underSabotage(() => crypto.subtle.digest("SHA-256", new Uint8Array(3)));
  eq(new Uint8Array(hash)[0], 0x70);
  const ok1 = await underSabotage(async () => {
    const k = await crypto.subtle.importKey("raw", new Uint8Array(5), { name: "HMAC", hash: "SHA-256" }, true, { [Symbol.iterator]: () => {
      let n = 0;
      const uses = { __proto__: null, a: "sign", b: "verify" };
      return { next: () => ({ __proto__: null, done: n > 1, value: uses[n++ ? "b" : "a"] }) };
    } });
    return await crypto.subtle.verify("HMAC", k, await crypto.subtle.sign("HMAC", k, new Uint8Array(1)), new Uint8Array(1));
  });
  eq(ok1, true);
  eq((await underSabotage(() => crypto.randomUUID())).length, 36);
  ok((await underSabotage(() => crypto.getRandomValues(new Uint8Array(64)))).some((x) => x !== 0));
});
test("structuredClone", async () => {
  const date = new Date(5), map = new Map([[{ k: 1 }, new Set([1])]]);
  const out = await underSabotage(() => structuredClone({ __proto__: null, a: date, m: map, r: /x/gi, e: new RangeError("m"), u: new Uint8Array(3) }));
  eq([out.a.getTime(), [...out.m][0][0].k, [...out.m][0][1].has(1), String(out.r), out.e.message, out.u.length], [5, 1, true, "/x/gi", "m", 3]);
});
test("Headers, Response, Request", async () => {
  const r = await underSabotage(() => new Response("hi", { __proto__: null, status: 201, headers: new Headers({ __proto__: null, B: "1", a: "2" }) }));
  eq([r.status, [...r.headers]], [201, [["a", "2"], ["b", "1"], ["content-type", "text/plain;charset=UTF-8"]]]);
  eq(await underSabotage(() => r.text()), "hi");
  eq(await underSabotage(() => new Response("{\"a\":[1]}").json()), { a: [1] });
  eq(await underSabotage(() => Response.json({ __proto__: null, a: 1 }).text()), "{\"a\":1}");
  eq(new Uint8Array(await underSabotage(() => new Response(new Uint8Array(2)).arrayBuffer())), new Uint8Array(2));
});
test("blobs and forms", async () => {
  eq(await underSabotage(() => new Blob({ [Symbol.iterator]: () => {
    let n = 0;
    return { next: () => ({ __proto__: null, done: n++ > 0, value: "abc" }) };
  } }).text()), "abc");
  eq(await underSabotage(() => {
    const f = new FormData();
    f.append("a", "b");
    return f.get("a");
  }), "b");
});
test("events and abort", async () => {
  eq(await underSabotage(() => {
    let seen = 0;
    const t = new EventTarget(), c = new AbortController();
    t.addEventListener("x", () => seen++);
    c.signal.addEventListener("abort", () => seen++);
    t.dispatchEvent(new Event("x"));
    c.abort();
    return seen + (c.signal.reason.name === "AbortError" ? 10 : 0);
  }), 12);
});
test("getters of the program's objects are asked once", async () => {
  const log = [];
  structuredClone({ get a() {
    log.push("a");
    return 1;
  }, get b() {
    log.push("b");
    return 2;
  } });
  eq(log, ["a", "b"]);
});
test("no private state is reachable", () => {
  for (const o of [new Response("x"), new Headers(), crypto, new Blob(["x"]), new TextDecoder(), new AbortController()])
    eq([Object.getOwnPropertyNames(o), Object.getOwnPropertySymbols(o)], [[], []]);
  for (const c of [Response, Headers, Request, Blob, FormData, Event, AbortSignal, CryptoKey])
    for (const name of Object.getOwnPropertyNames(c))
      ok(!["is", "parts", "make", "open", "bytesOf", "entriesOf", "freeze", "start", "dispatch", "signalOf"].includes(name), `${c.name}.${name}`);
  throws(() => new CryptoKey({}, {}), "TypeError");
  throws(() => new AbortSignal({}), "TypeError");
});
