"use strict";
// The engine's own functions as they were before any program ran. A program may replace
// Promise.prototype.then, Array.prototype[Symbol.iterator] or put setters on Object.prototype: what is
// written with these still works. So no file here uses for-of, spread, array destructuring or a method
// of a built-in object after start; `list()` makes arrays without a prototype, whose elements no
// setter can intercept.

const { apply, construct, defineProperty, getOwnPropertyDescriptor, getPrototypeOf, ownKeys,
  setPrototypeOf } = Reflect;
const uncurry = Function.prototype.bind.bind(Function.prototype.call);
const getter = (proto, name) => uncurry(getOwnPropertyDescriptor(proto, name).get);

const TypedArray = getPrototypeOf(Uint8Array);
const { toPrimitive, iterator, asyncIterator, toStringTag } = Symbol;
const rawThen = uncurry(Promise.prototype.then);
// then() asks the promise for its constructor and that for its species, both of which a program can
// replace. An own `constructor` that is undefined means the engine's Promise. Only for promises that no
// program has seen.
function promiseThen(promise, done, failed) {
  defineProperty(promise, "constructor", { __proto__: null, value: undefined, configurable: true });
  return rawThen(promise, done, failed);
}
const promiseResolve = Promise.resolve.bind(Promise);
const promiseReject = Promise.reject.bind(Promise);

const typedArrayName = getter(TypedArray.prototype, toStringTag);
const typedArrayBuffer = getter(TypedArray.prototype, "buffer");
const typedArrayByteOffset = getter(TypedArray.prototype, "byteOffset");
const typedArrayByteLength = getter(TypedArray.prototype, "byteLength");
const typedArrayLength = getter(TypedArray.prototype, "length");
const typedArraySet = uncurry(TypedArray.prototype.set);
const dataViewBuffer = getter(DataView.prototype, "buffer");
const dataViewByteOffset = getter(DataView.prototype, "byteOffset");
const dataViewByteLength = getter(DataView.prototype, "byteLength");
const arrayBufferByteLength = getter(ArrayBuffer.prototype, "byteLength");
const isView = ArrayBuffer.isView;
const setAdd = uncurry(Set.prototype.add);
const indexOf = uncurry(String.prototype.indexOf), slice = uncurry(String.prototype.slice);

// RegExp.prototype.flags asks the object for each flag; these ask the engine.
const flagGetters = { __proto__: null };
for (const [letter, name] of [["d", "hasIndices"], ["g", "global"], ["i", "ignoreCase"], ["m", "multiline"],
  ["s", "dotAll"], ["u", "unicode"], ["v", "unicodeSets"], ["y", "sticky"]])
  flagGetters[letter] = getter(RegExp.prototype, name);

const nothing = { __proto__: null };
// Prototypes of the interfaces made here: their instances cannot be cloned as plain objects.
const platformPrototypes = new Set([Promise.prototype, WeakMap.prototype, WeakSet.prototype, WeakRef.prototype,
  getPrototypeOf(function* () {}).prototype, getPrototypeOf(async function* () {}).prototype,
  getPrototypeOf([][iterator]()), getPrototypeOf(new Map()[iterator]()), getPrototypeOf(new Set()[iterator]()),
  getPrototypeOf(""[iterator]())]);

function isObject(v) {
  return (typeof v === "object" && v !== null) || typeof v === "function";
}

function isArrayBuffer(v) {
  if (!isObject(v)) return false;
  try {
    arrayBufferByteLength(v);
    return true;
  } catch {
    return false;
  }
}

// A Uint8Array over the same bytes as an ArrayBuffer or a view, or null. A view that is out of bounds
// or detached is empty.
function viewOf(source) {
  if (isView(source)) {
    if (typedArrayName(source) !== undefined) {
      const n = typedArrayByteLength(source);
      return n === 0 ? new Uint8Array(0)
        : new Uint8Array(typedArrayBuffer(source), typedArrayByteOffset(source), n);
    }
    try {
      return new Uint8Array(dataViewBuffer(source), dataViewByteOffset(source), dataViewByteLength(source));
    } catch {
      return new Uint8Array(0);
    }
  }
  if (!isArrayBuffer(source)) return null;
  return arrayBufferByteLength(source) === 0 ? new Uint8Array(0) : new Uint8Array(source);
}

// A copy of the bytes. Native code gets only copies: taking the pointer of a buffer pins it for good.
function uint8Copy(source) {
  const view = viewOf(source);
  if (view === null) return null;
  const copy = new Uint8Array(typedArrayLength(view));
  typedArraySet(copy, view);
  return copy;
}

// subarray without asking the array for its constructor
function part(bytes, from, to) {
  return new Uint8Array(typedArrayBuffer(bytes), typedArrayByteOffset(bytes) + from, to - from);
}

function list() {
  const a = [];
  setPrototypeOf(a, null);
  return a;
}

function append(a, v) {
  a[a.length] = v;
}

// An ordinary array of a list's elements, for handing out.
function toArray(a) {
  const out = [];
  for (let i = 0; i < a.length; i++) define(out, i, a[i]);
  return out;
}

function define(o, key, value, enumerable = true) {
  defineProperty(o, key, { __proto__: null, value, writable: true, enumerable, configurable: true });
}

// WebIDL's shape of an interface: methods and accessors enumerable, the class not, a tag, a name.
function shape(cls, name, { constants = nothing, tag = true } = nothing) {
  const proto = cls.prototype;
  setAdd(platformPrototypes, proto);
  const visible = (o, skip) => {
    const keys = ownKeys(o);
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i];
      if (typeof key === "symbol" || skip[key]) continue;
      const d = getOwnPropertyDescriptor(o, key);
      setPrototypeOf(d, null);
      d.enumerable = true;
      defineProperty(o, key, d);
    }
  };
  visible(proto, { __proto__: null, constructor: true });
  visible(cls, { __proto__: null, prototype: true, length: true, name: true });
  const consts = ownKeys(constants);
  for (let i = 0; i < consts.length; i++) {
    const d = { __proto__: null, value: constants[consts[i]], enumerable: true };
    defineProperty(cls, consts[i], d);
    defineProperty(proto, consts[i], d);
  }
  if (tag) defineProperty(proto, toStringTag, { __proto__: null, value: name, configurable: true });
  defineProperty(cls, "name", { __proto__: null, value: name, configurable: true });
  return cls;
}

// Text split at single spaces, as a list.
function words(text) {
  const out = list();
  for (let from = 0; from <= text.length;) {
    let to = indexOf(text, " ", from);
    if (to < 0) to = text.length;
    append(out, slice(text, from, to));
    from = to + 1;
  }
  return out;
}

function needs(given, n, what) {
  if (given < n) throw new TypeError(`${what}: ${n} argument${n > 1 ? "s are" : " is"} needed`);
}

// USVString and friends. A template literal throws for symbols, as WebIDL does.
const toWellFormed = uncurry(String.prototype.toWellFormed);
const usv = (v) => toWellFormed(`${v}`);

const IteratorPrototype = getPrototypeOf(getPrototypeOf([][iterator]()));

// The iterator of a WebIDL iterable: `at(i)` gives the i-th [key, value] list or undefined.
function iteratorClass(name) {
  const proto = { __proto__: IteratorPrototype };
  class State {
    #at; #kind; #i = 0;
    constructor(at, kind) {
      this.#at = at;
      this.#kind = kind;
    }
    static step(it) {
      if (!isObject(it) || !(#at in it)) throw new TypeError(`not a ${name}`);
      const entry = it.#at === null ? undefined : it.#at(it.#i++);
      if (entry === undefined) {
        it.#at = null;
        return { value: undefined, done: true };
      }
      const value = it.#kind === 0 ? entry[0] : it.#kind === 1 ? entry[1] : toArray(entry);
      return { value, done: false };
    }
  }
  define(proto, "next", { next() { return State.step(this); } }.next);
  defineProperty(proto, toStringTag, { __proto__: null, value: name, configurable: true });
  return (at, kind) => {
    const it = new State(at, kind);
    setPrototypeOf(it, proto);
    return it;
  };
}

// Reads an iterable as WebIDL's sequence<T>: the program's own iterator, called once.
function fromIterable(v, method, each) {
  const it = apply(method, v, list());
  if (!isObject(it)) throw new TypeError("the iterator is not an object");
  const next = it.next;
  for (;;) {
    const step = apply(next, it, list());
    if (!isObject(step)) throw new TypeError("the iterator's result is not an object");
    if (step.done) return;
    each(step.value);
  }
}

module.exports = {
  // set by entry.js before anything else runs
  host: { __proto__: null },
  core: { __proto__: null },

  Array, ArrayBuffer, BigInt, DataView, Date, Error, Float64Array, Map, Math, Number, Object, Promise, RangeError, Reflect,
  RegExp, Set, String, Symbol, SyntaxError, TypeError, Uint8Array, WeakMap, WeakRef,
  Float16Array: globalThis.Float16Array,
  functionToString: uncurry(Function.prototype.toString),
  platformPrototypes,
  // { is, clone } of the interfaces that structuredClone can copy, added by their modules
  cloneables: list(),
  // whether a value other than an ArrayBuffer can be transferred; the messaging module extends it
  canTransfer: () => false,
  // the exports of the modules that have run, for those who ask "is this one of yours?"
  loaded: { __proto__: null },
  apply, construct, defineProperty, getOwnPropertyDescriptor, getPrototypeOf, ownKeys, setPrototypeOf,
  uncurry, getter,
  iterator, asyncIterator, toPrimitive, toStringTag,

  arrayIsArray: Array.isArray,
  arrayJoin: uncurry(Array.prototype.join),
  arraySort: uncurry(Array.prototype.sort),
  arrayBufferByteLength,
  arrayBufferTransfer: uncurry(ArrayBuffer.prototype.transfer),
  arrayBufferResizable: getter(ArrayBuffer.prototype, "resizable"),
  arrayBufferMaxByteLength: getter(ArrayBuffer.prototype, "maxByteLength"),
  arrayBufferDetached: getter(ArrayBuffer.prototype, "detached"),
  arrayBufferSlice: uncurry(ArrayBuffer.prototype.slice),
  create: Object.create,
  hasOwn: Object.hasOwn,
  objectKeys: Object.keys,
  isError: Error.isError,
  captureStackTrace: Error.captureStackTrace,
  dataViewBuffer, dataViewByteOffset, dataViewByteLength,
  dateGetTime: uncurry(Date.prototype.getTime),
  dateNow: Date.now,
  mapGet: uncurry(Map.prototype.get),
  mapSet: uncurry(Map.prototype.set),
  mapHas: uncurry(Map.prototype.has),
  mapDelete: uncurry(Map.prototype.delete),
  mapForEach: uncurry(Map.prototype.forEach),
  mapSize: getter(Map.prototype, "size"),
  setAdd,
  setHas: uncurry(Set.prototype.has),
  setDelete: uncurry(Set.prototype.delete),
  setForEach: uncurry(Set.prototype.forEach),
  setSize: getter(Set.prototype, "size"),
  weakMapGet: uncurry(WeakMap.prototype.get),
  weakMapSet: uncurry(WeakMap.prototype.set),
  weakRefDeref: uncurry(WeakRef.prototype.deref),
  numberValueOf: uncurry(Number.prototype.valueOf),
  numberToString: uncurry(Number.prototype.toString),
  stringValueOf: uncurry(String.prototype.valueOf),
  booleanValueOf: uncurry(Boolean.prototype.valueOf),
  bigintValueOf: uncurry(BigInt.prototype.valueOf),
  bigintToString: uncurry(BigInt.prototype.toString),
  regexpExec: uncurry(RegExp.prototype.exec),
  regexpSource: getter(RegExp.prototype, "source"),
  regexpGlobal: getter(RegExp.prototype, "global"),
  regexpFlags: flagGetters,
  symbolValueOf: uncurry(Symbol.prototype.valueOf),
  objectFreeze: Object.freeze,
  charCodeAt: uncurry(String.prototype.charCodeAt),
  indexOf,
  slice,
  toLowerCase: uncurry(String.prototype.toLowerCase),
  toUpperCase: uncurry(String.prototype.toUpperCase),
  startsWith: uncurry(String.prototype.startsWith),
  fromCharCode: String.fromCharCode,
  jsonParse: JSON.parse,
  jsonStringify: JSON.stringify,
  mathFloor: Math.floor,
  mathMin: Math.min,
  mathMax: Math.max,
  mathTrunc: Math.trunc,
  promiseThen, promiseResolve, promiseReject,
  typedArrayName, typedArrayBuffer, typedArrayByteOffset, typedArrayByteLength, typedArrayLength,
  typedArraySet,

  nothing, isObject, isArrayBuffer, isView, viewOf, uint8Copy, part, list, append, toArray,
  define, needs, shape, words, usv, toWellFormed, iteratorClass, fromIterable,
};
