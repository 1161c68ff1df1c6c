// What every part of the core prelude stands on. The prelude (main.js and what it imports) is bundled into one function
// of the native host object, the module loader, the web globals and their own native object. It runs once, in the zygote;
// programs come later and may replace every global, so nothing here may look a global or a prototype method up after this
// point: what is needed is captured below. Lists are arrays without a prototype, because a setter on Array.prototype would
// see what is stored beyond the end of an ordinary one.

const globals = globalThis;
const {
    apply, construct, ownKeys, getPrototypeOf, getOwnPropertyDescriptor,
    defineProperty,
} = Reflect;
const uncurry = (fn) => apply(Function.prototype.bind, Function.prototype.call, [fn]);

const P = Promise, E = Error, N = Number, TypeErrorCtor = TypeError;
const setPrototypeOf = Object.setPrototypeOf, objectFreeze = Object.freeze, objectKeys = Object.keys, objectIs = Object.is;
const objectProto = Object.prototype, arrayProto = Array.prototype;
const isArray = Array.isArray;
const jsonParse = JSON.parse, jsonStringify = JSON.stringify;
const isFinite = Number.isFinite, isSafeInteger = Number.isSafeInteger;
const MapCtor = Map, SetCtor = Set, DateCtor = Date, BigIntFn = BigInt;
const mapGet = uncurry(Map.prototype.get), mapSet = uncurry(Map.prototype.set);
const mapHas = uncurry(Map.prototype.has), mapDelete = uncurry(Map.prototype.delete);
const mapClear = uncurry(Map.prototype.clear), mapForEach = uncurry(Map.prototype.forEach);
const mapSize = uncurry(getOwnPropertyDescriptor(Map.prototype, "size").get);
const setAdd = uncurry(Set.prototype.add);
const setForEach = uncurry(Set.prototype.forEach);
const mapIterator = uncurry(Map.prototype.entries), mapIteratorNext = uncurry(getPrototypeOf(new Map().entries()).next);
const setIterator = uncurry(Set.prototype.values), setIteratorNext = uncurry(getPrototypeOf(new Set().values()).next);
const setSize = uncurry(getOwnPropertyDescriptor(Set.prototype, "size").get);
const hasOwn = uncurry(Object.prototype.hasOwnProperty);
const isPrototypeOf = uncurry(Object.prototype.isPrototypeOf);
const objectToString = uncurry(Object.prototype.toString);
const functionToString = uncurry(Function.prototype.toString);
const stringSlice = uncurry(String.prototype.slice);
const stringIndexOf = uncurry(String.prototype.indexOf);
const stringStartsWith = uncurry(String.prototype.startsWith);
const stringWellFormed = uncurry(String.prototype.toWellFormed);
const stringRepeat = uncurry(String.prototype.repeat);
const stringPadEnd = uncurry(String.prototype.padEnd);
const numberToFixed = uncurry(Number.prototype.toFixed);
const bigintToString = uncurry(BigInt.prototype.toString);
const symbolToString = uncurry(Symbol.prototype.toString);
const regexpExec = uncurry(RegExp.prototype.exec);
const regexpSource = uncurry(getOwnPropertyDescriptor(RegExp.prototype, "source").get);
const regexpFlags = uncurry(getOwnPropertyDescriptor(RegExp.prototype, "flags").get);
const dateGetTime = uncurry(Date.prototype.getTime), dateToISO = uncurry(Date.prototype.toISOString);
const dateToJSON = Date.prototype.toJSON;
const imul = Math.imul, mathMin = Math.min, mathMax = Math.max;
const toStringTag = Symbol.toStringTag;
const TypedArray = getPrototypeOf(Uint8Array);
const typedTag = uncurry(getOwnPropertyDescriptor(TypedArray.prototype, toStringTag).get);
const typedLength = uncurry(getOwnPropertyDescriptor(TypedArray.prototype, "length").get);
const typedBuffer = uncurry(getOwnPropertyDescriptor(TypedArray.prototype, "buffer").get);
const typedOffset = uncurry(getOwnPropertyDescriptor(TypedArray.prototype, "byteOffset").get);
const typedByteLength = uncurry(getOwnPropertyDescriptor(TypedArray.prototype, "byteLength").get);
const bufferByteLength = uncurry(getOwnPropertyDescriptor(ArrayBuffer.prototype, "byteLength").get);
const Bytes = Uint8Array;
const bytesToBase64 = uncurry(Uint8Array.prototype.toBase64), bytesFromBase64 = Uint8Array.fromBase64;
const viewTypes = {
    __proto__: null, Uint8Array, Int8Array, Uint8ClampedArray, Uint16Array, Int16Array, Uint32Array,
    Int32Array, Float32Array, Float64Array, BigInt64Array, BigUint64Array,
};
const errorTypes = {
    __proto__: null, Error, TypeError, RangeError, SyntaxError, ReferenceError, EvalError, URIError,
};

// Awaiting a native promise looks at its constructor and nothing else that a program could replace:
// with this property fixed, `await` below cannot be taken over.
defineProperty(Promise.prototype, "constructor", {
    __proto__: null, value: Promise, writable: false, enumerable: false, configurable: false,
});

const list = () => setPrototypeOf([], null);
const push = (array, value) => { array[array.length] = value; };
const pair = (a, b) => { const p = list(); push(p, a); push(p, b); return p; };
const define = (object, name, value) =>
    defineProperty(object, name, { __proto__: null, value, writable: true, enumerable: false, configurable: true });
const newError = (message) => new E(message);
const limitError = (message) => { const e = new E(message); define(e, "name", "LimitError"); return e; };
// String.prototype.split asks its separator for Symbol.split, which a program can put there.
const splitLines = (text) => {
    const lines = list();
    for (let from = 0; ;) {
        const end = stringIndexOf(text, "\n", from);
        push(lines, end < 0 ? stringSlice(text, from) : stringSlice(text, from, end));
        if (end < 0) return lines;
        from = end + 1;
    }
};
const isObject = (v) => (typeof v === "object" && v !== null) || typeof v === "function";

// True if v has the internal slots that the getter or method wants. No property of v is read.
const brand = (probe) => (v) => { try { probe(v); return true; } catch { return false; } };
const isMap = brand(mapSize), isSet = brand(setSize), isDate = brand(dateGetTime);
const isRegExp = brand((v) => { if (v === RegExp.prototype) throw 0; regexpSource(v); });
const isBuffer = brand(bufferByteLength);
const isTyped = (v) => typedTag(v) !== undefined;
const isError = Error.isError ?? ((v) => objectToString(v) === "[object Error]" && isPrototypeOf(E.prototype, v));

// The call whose event this is: a frame of its own, a timer that it set, a reply that it asked for.
// What is printed, asked and left unhandled is put down to it, and so is the processor time.
let current = null;
function enter(call) {
    if (current === call) return;
    current = call;
    host.enter(call === null ? 0 : call.id);
}
// Where the host has it so already.
function setCurrent(call) { current = call; }

// The calls that are not over, by id.
const active = new MapCtor();

// What lower parts need of entry.js, which begins after them: uncaught(e, kind) and settle(call).
const hooks = { __proto__: null, uncaught: null, settle: null };

export {
    BigIntFn, Bytes, DateCtor, E, MapCtor, N, P, SetCtor, TypeErrorCtor, active, apply, arrayProto, bigintToString,
    bufferByteLength, bytesFromBase64, bytesToBase64, construct, current, dateGetTime, dateToISO, dateToJSON,
    define, defineProperty, enter, errorTypes, functionToString, getOwnPropertyDescriptor, getPrototypeOf,
    globals, hasOwn, hooks, imul, isArray, isBuffer, isDate, isError, isFinite, isMap, isObject, isPrototypeOf,
    isRegExp, isSafeInteger, isSet, isTyped, jsonParse, jsonStringify, limitError, list, mapClear, mapDelete,
    mapForEach, mapGet, mapHas, mapIterator, mapIteratorNext, mapSet, mapSize, mathMax, mathMin, newError,
    numberToFixed, objectFreeze, objectIs, objectKeys, objectProto, ownKeys, pair, push, regexpExec,
    regexpFlags, regexpSource, setAdd, setCurrent, setForEach, setIterator, setIteratorNext, setSize, splitLines,
    stringIndexOf, stringPadEnd, stringRepeat, stringSlice, stringStartsWith, stringWellFormed,
    symbolToString, toStringTag, typedBuffer, typedByteLength, typedLength, typedOffset, typedTag, viewTypes,
};
