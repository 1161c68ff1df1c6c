"use strict";
// structuredClone: the HTML standard's algorithm in one walk. A buffer that is transferred is copied
// first and detached at the end, so that nothing is lost when a getter throws halfway.
const p = require("./primordials");
const { Array, ArrayBuffer, DataView, Date, Error, Map, Object, RegExp, Set, String, TypeError,
  append, define, getOwnPropertyDescriptor, getPrototypeOf, hasOwn, isError, isObject, iterator, list,
  mapGet, mapHas, mapSet, typedArrayName } = p;
const { DOMException, domMessage, domName, fail, isDOMException } = require("./dom");

const errors = { __proto__: null, Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };
const arrays = { __proto__: null, Int8Array, Int16Array, Int32Array, Uint8Array, Uint8ClampedArray,
  Uint16Array, Uint32Array, Float32Array, Float64Array, BigInt64Array, BigUint64Array,
  Float16Array: p.Float16Array };
const elementSizes = { __proto__: null };
for (const name in arrays) if (arrays[name]) elementSizes[name] = arrays[name].BYTES_PER_ELEMENT;


// Whether fn(v) does not throw: how the engine tells what kind of object v is, whatever its properties.
function answers(fn, v) {
  try {
    fn(v);
    return true;
  } catch {
    return false;
  }
}
function refuse(what) {
  fail("DataCloneError", `${what} could not be cloned`);
}

function hasPlatformPrototype(v) {
  for (let o = v; o !== null; o = getPrototypeOf(o))
    if (p.setHas(p.platformPrototypes, o)) return true;
  return false;
}

function cloneBuffer(v) {
  if (p.arrayBufferDetached(v)) fail("DataCloneError", "A detached ArrayBuffer could not be cloned");
  const n = p.arrayBufferByteLength(v);
  const copy = p.arrayBufferResizable(v)
    ? new ArrayBuffer(n, { __proto__: null, maxByteLength: p.arrayBufferMaxByteLength(v) })
    : new ArrayBuffer(n);
  p.typedArraySet(new Uint8Array(copy), new Uint8Array(v));
  return copy;
}

function cloneView(v, seen) {
  const name = typedArrayName(v);
  if (name === undefined) {
    let offset, length;
    try {
      offset = p.dataViewByteOffset(v);
      length = p.dataViewByteLength(v);
    } catch {
      fail("DataCloneError", "A view that is out of bounds could not be cloned");
    }
    return new DataView(walk(p.dataViewBuffer(v), seen), offset, length);
  }
  const buffer = p.typedArrayBuffer(v);
  if (p.arrayBufferDetached(buffer)) fail("DataCloneError", "A detached ArrayBuffer could not be cloned");
  return new arrays[name](walk(buffer, seen), p.typedArrayByteOffset(v),
    p.typedArrayByteLength(v) / elementSizes[name]);
}

function cloneError(v, seen) {
  const name = v.name === undefined ? "Error" : `${v.name}`;
  const message = getOwnPropertyDescriptor(v, "message");
  const out = new (errors[name] ?? Error)();
  mapSet(seen, v, out);
  if (message !== undefined && hasOwn(message, "value")) define(out, "message", `${message.value}`, false);
  const stack = getOwnPropertyDescriptor(v, "stack");
  if (stack !== undefined && typeof stack.value === "string") define(out, "stack", stack.value, false);
  const cause = getOwnPropertyDescriptor(v, "cause");
  if (cause !== undefined && hasOwn(cause, "value")) define(out, "cause", walk(cause.value, seen), false);
  return out;
}

function copyProperties(v, out, seen) {
  const keys = p.objectKeys(v);
  for (let i = 0; i < keys.length; i++)
    // A getter that ran may have removed a later key.
    if (hasOwn(v, keys[i])) define(out, keys[i], walk(v[keys[i]], seen));
  return out;
}

const objectPrototype = Object.prototype;
function clonePlain(v, seen) {
  const out = {};
  mapSet(seen, v, out);
  return copyProperties(v, out, seen);
}

function cloneObject(v, seen) {
  if (p.host.isProxy(v)) refuse("A Proxy");
  if (p.arrayIsArray(v)) {
    const out = new Array(v.length);
    mapSet(seen, v, out);
    return copyProperties(v, out, seen);
  }
  // Asking the engine about each kind costs an exception per kind, so plain objects do not wait for it.
  // (A Map whose prototype was set to Object.prototype is a plain object here.)
  const proto = getPrototypeOf(v);
  if (proto === objectPrototype || proto === null) return clonePlain(v, seen);
  if (p.isView(v)) return cloneView(v, seen);
  if (p.isArrayBuffer(v)) return cloneBuffer(v);
  if (answers(p.mapSize, v)) {
    const out = new Map(), entries = list();
    mapSet(seen, v, out);
    p.mapForEach(v, (value, key) => {
      append(entries, key);
      append(entries, value);
    });
    for (let i = 0; i < entries.length; i += 2) {
      const key = walk(entries[i], seen);
      mapSet(out, key, walk(entries[i + 1], seen));
    }
    return out;
  }
  if (answers(p.setSize, v)) {
    const out = new Set(), values = list();
    mapSet(seen, v, out);
    p.setForEach(v, (value) => append(values, value));
    for (let i = 0; i < values.length; i++) p.setAdd(out, walk(values[i], seen));
    return out;
  }
  if (isDOMException(v)) {
    const out = new DOMException(domMessage(v), domName(v));
    const stack = getOwnPropertyDescriptor(v, "stack");
    if (stack !== undefined && typeof stack.value === "string") define(out, "stack", stack.value, false);
    return out;
  }
  if (isError(v)) return cloneError(v, seen);
  if (answers(p.dateGetTime, v)) return new Date(p.dateGetTime(v));
  if (v !== RegExp.prototype && answers(p.regexpGlobal, v)) {
    let flags = "";
    for (const letter in p.regexpFlags) if (p.regexpFlags[letter](v)) flags += letter;
    return new RegExp(p.regexpSource(v), flags);
  }
  if (answers(p.numberValueOf, v)) return new Object(p.numberValueOf(v));
  if (answers(p.stringValueOf, v)) return new Object(p.stringValueOf(v));
  if (answers(p.booleanValueOf, v)) return new Object(p.booleanValueOf(v));
  if (answers(p.bigintValueOf, v)) return Object(p.bigintValueOf(v));
  if (answers(p.symbolValueOf, v)) refuse("A Symbol object");
  for (let i = 0; i < p.cloneables.length; i++)
    if (p.cloneables[i].is(v)) return p.cloneables[i].clone(v);
  if (hasPlatformPrototype(v)) refuse("#<" + className(v) + ">");
  return clonePlain(v, seen);
}

function className(v) {
  try {
    return `${v.constructor.name}`;
  } catch {
    return "Object";
  }
}

function walk(v, seen) {
  if (!isObject(v)) {
    if (typeof v === "symbol") refuse(String(v));
    return v;
  }
  if (mapHas(seen, v)) return mapGet(seen, v);
  if (typeof v === "function") refuse(`${p.functionToString(v)}`);
  const out = cloneObject(v, seen);
  mapSet(seen, v, out);
  return out;
}

function transferList(options) {
  const buffers = list();
  if (options === undefined || options === null) return buffers;
  if (!isObject(options)) throw new TypeError("structuredClone: options is not an object");
  const transfer = options.transfer;
  if (transfer === undefined) return buffers;
  const method = isObject(transfer) ? transfer[iterator] : undefined;
  if (typeof method !== "function") throw new TypeError("structuredClone: transfer is not iterable");
  p.fromIterable(transfer, method, (v) => append(buffers, v));
  return buffers;
}

const methods = {
  structuredClone(value, options = undefined) {
    if (arguments.length === 0) throw new TypeError("structuredClone: a value is needed");
    const transfer = transferList(options), seen = new Map();
    for (let i = 0; i < transfer.length; i++) {
      if (!p.isArrayBuffer(transfer[i]) && !p.canTransfer(transfer[i]))
        fail("DataCloneError", "A value in the transfer list is not transferable");
      for (let k = 0; k < i; k++)
        if (transfer[k] === transfer[i]) fail("DataCloneError", "A value is twice in the transfer list");
      if (!p.isArrayBuffer(transfer[i])) mapSet(seen, transfer[i], transfer[i]);
    }
    const out = walk(value, seen);
    for (let i = 0; i < transfer.length; i++) {
      if (!p.isArrayBuffer(transfer[i])) continue;
      if (p.arrayBufferDetached(transfer[i]))
        fail("DataCloneError", "A detached ArrayBuffer could not be transferred");
      p.arrayBufferTransfer(transfer[i]);
    }
    return out;
  },
};

module.exports = { structuredClone: methods.structuredClone, transferList, cloneWith: walk };
