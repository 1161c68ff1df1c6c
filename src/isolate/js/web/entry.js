"use strict";
// The table of web globals. Each is an accessor on the global object until it is first touched; then
// its module runs and the accessor becomes the plain data property that a browser has.
const p = require("./primordials");
const { defineProperty, isObject } = p;

const modules = {
  __proto__: null,
  base64: () => require("./base64"),
  blob: () => require("./blob"),
  clone: () => require("./clone"),
  compression: () => require("./compression"),
  crypto: () => require("./crypto"),
  dom: () => require("./dom"),
  encoding: () => require("./encoding"),
  events: () => require("./events"),
  fetch: () => require("./fetch"),
  messaging: () => require("./messaging"),
  misc: () => require("./misc"),
  performance: () => require("./performance"),
  streams: () => require("./streams"),
  url: () => require("./url"),
  urlpattern: () => require("./urlpattern"),
};

// Interfaces are not enumerable, functions and instances are.
const interfaces = {
  __proto__: null,
  blob: "Blob File FormData",
  compression: "CompressionStream DecompressionStream TextDecoderStream TextEncoderStream",
  crypto: "Crypto CryptoKey SubtleCrypto",
  dom: "DOMException",
  encoding: "TextDecoder TextEncoder",
  events: "AbortController AbortSignal CustomEvent ErrorEvent Event EventTarget MessageEvent " +
    "PromiseRejectionEvent",
  fetch: "Headers Request Response",
  messaging: "MessageChannel MessagePort",
  misc: "Navigator",
  performance: "Performance PerformanceEntry PerformanceMark PerformanceMeasure",
  streams: "ByteLengthQueuingStrategy CountQueuingStrategy ReadableByteStreamController " +
    "ReadableStream ReadableStreamBYOBReader ReadableStreamBYOBRequest " +
    "ReadableStreamDefaultController ReadableStreamDefaultReader TransformStream " +
    "TransformStreamDefaultController WritableStream WritableStreamDefaultController " +
    "WritableStreamDefaultWriter",
  url: "URL URLSearchParams",
  urlpattern: "URLPattern",
};
const values = {
  __proto__: null,
  base64: "atob btoa",
  clone: "structuredClone",
  crypto: "crypto",
  fetch: "fetch",
  misc: "navigator reportError",
  performance: "performance",
};

function settle(target, name, value, enumerable) {
  defineProperty(target, name,
    { __proto__: null, value, writable: true, enumerable, configurable: true });
  return value;
}

function lazy(globalObject, name, load, enumerable) {
  const accessor = {
    get [name]() {
      return settle(globalObject, name, load()[name], enumerable);
    },
    set [name](value) {
      const other = isObject(this) && this !== globalObject;
      settle(other ? this : globalObject, name, value, other || enumerable);
    },
  };
  const { get, set } = p.getOwnPropertyDescriptor(accessor, name);
  defineProperty(globalObject, name, { __proto__: null, get, set, enumerable, configurable: true });
}

module.exports = function install(host, core) {
  const names = p.ownKeys(host);
  for (let i = 0; i < names.length; i++) p.host[names[i]] = host[names[i]];
  // Timers and microtasks are the core's; what it does not pass is taken from the global object now.
  const needed = ["queueMicrotask", "setTimeout", "clearTimeout"];
  for (let i = 0; i < needed.length; i++)
    p.core[needed[i]] = (core && core[needed[i]]) || globalThis[needed[i]];
  p.core.reportError = (core && core.reportError) || null;
  p.core.userAgent = (core && core.userAgent) || "cay";
  p.core.outbound = null;

  const globalObject = globalThis;
  p.globalObject = globalObject;
  const table = { __proto__: null };
  const add = (groups, enumerable) => {
    for (const module in groups) {
      const each = groups[module].split(" ");
      for (let i = 0; i < each.length; i++) {
        lazy(globalObject, each[i], modules[module], enumerable);
        table[each[i]] = module;
      }
    }
  };
  add(interfaces, false);
  add(values, true);
  settle(globalObject, "self", globalObject, true);

  return {
    __proto__: null,
    names: p.ownKeys(table),
    // Runs the modules of these globals now (in the zygote), so that an isolate finds them made. The
    // globals stay accessors until touched.
    warm(which) {
      for (let i = 0; i < which.length; i++) modules[table[which[i]]]()[which[i]];
    },
    // Uses the common globals once each, in the zygote, so that an isolate finds their code compiled.
    // They stay accessors. Run the microtasks afterwards (return to the host), then fork.
    exercise: () => require("./exercise")(modules),
    // A host's view of what a program made, through private fields: nothing a program replaces is asked.
    structuredClone: (value, options) => modules.clone().structuredClone(value, options),
    isResponse: (v) => modules.fetch().isResponse(v),
    responseParts: (v) => modules.fetch().responseParts(v),
    makeRequest: (parts) => modules.fetch().makeRequest(parts),
    streamFrom: (next, cancel) => modules.streams().streamFrom(next, cancel),
    makeResponse: (parts) => modules.fetch().makeResponse(parts),
    // fn(request parts, signal) => promise of response parts; null means no network
    setOutbound(fn) {
      p.core.outbound = fn;
    },
    // Modules a program can import by name.
    builtins: {
      __proto__: null,
      "cloudflare:sockets": () => ({ __proto__: null, connect: modules.fetch().connect }),
    },
  };
};
