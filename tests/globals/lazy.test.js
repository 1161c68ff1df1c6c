// Globals are accessors until touched, then what browsers have.
const own = (name) => Object.getOwnPropertyDescriptor(globalThis, name);

test("a global is an accessor before it is touched", () => {
  ok(own("URLPattern").get, "URLPattern");
  ok(own("CompressionStream").get, "CompressionStream");
});
test("touching makes a data property with the flags of WebIDL", () => {
  eq(typeof Headers, "function");
  const h = own("Headers");
  eq([h.writable, h.enumerable, h.configurable, h.value === Headers], [true, false, true, true]);
  eq(typeof atob, "function");
  const a = own("atob");
  eq([a.writable, a.enumerable, a.configurable], [true, true, true]);
});
test("typeof, in and keys", () => {
  ok("URL" in globalThis);
  eq(typeof ReadableStream, "function");
  const keys = Object.keys(globalThis);
  for (const name of ["structuredClone", "fetch", "atob", "btoa", "crypto", "performance", "navigator", "self",
    "reportError"]) ok(keys.includes(name), name);
  for (const name of ["URL", "Response", "Event"]) ok(!keys.includes(name), name);
});
test("assignment before the first touch wins", () => {
  globalThis.MessageChannel = 5;
  eq(MessageChannel, 5);
  const d = own("MessageChannel");
  eq([d.value, d.writable, d.enumerable, d.configurable], [5, true, false, true]);
});
test("assignment through an heir does not touch the global", () => {
  const heir = Object.create(globalThis);
  heir.MessagePort = 1;
  eq(Object.hasOwn(heir, "MessagePort"), true);
  eq(typeof MessagePort, "function");
});
test("delete works and stays deleted", () => {
  eq(delete globalThis.Navigator, true);
  eq(typeof Navigator, "undefined");
});
test("self is the global object, setImmediate is not there", () => {
  ok(self === globalThis);
  eq(typeof setImmediate, "undefined");
});
test("class names", () => {
  for (const name of ["URL", "URLSearchParams", "Headers", "Response", "Request", "Blob", "File", "FormData",
    "ReadableStream", "WritableStream", "TransformStream", "Event", "EventTarget", "AbortController",
    "AbortSignal", "TextEncoder", "TextDecoder", "DOMException", "CompressionStream", "URLPattern",
    "ReadableStreamDefaultReader", "ByteLengthQueuingStrategy"]) eq(globalThis[name].name, name);
});
test("whole path", async () => {
  eq(new URL("../b?x=1#y", "https://EXAMPLE.com:443/a/c/").href, "https://example.com/a/b?x=1#y");
  eq(new TextDecoder().decode(new TextEncoder().encode("häß 😀")), "häß 😀");
  eq(atob(btoa("hello")), "hello");
  eq(structuredClone(new Map([[1, { a: [new Date(5)] }]])).get(1).a[0].getTime(), 5);
  eq(await new Response("hi", { headers: { a: "b" } }).text(), "hi");
  eq([...new Headers({ b: "1", a: "2" })], [["a", "2"], ["b", "1"]]);
});
