// Intrinsics, taken before user code can replace them.
const { apply, get: reflectGet, defineProperty: reflectDefine } = Reflect;
const {
  create,
  defineProperty,
  getOwnPropertyDescriptor: getOwn,
  getPrototypeOf,
  setPrototypeOf,
  preventExtensions,
  keys: keysOf,
  is: sameValue,
} = Object;
const hasOwnProperty = Object.prototype.hasOwnProperty;
const PromiseCtor = Promise;
const PromiseThen = Promise.prototype.then;
const ProxyCtor = Proxy;
const ToStringTag = Symbol.toStringTag;
const jsonParse = JSON.parse;
const uint8 = Uint8Array;
const uint8FromBase64 = Uint8Array.fromBase64;
const { next: GeneratorNext, throw: GeneratorThrow } = getPrototypeOf(function* () {}).prototype;
const AsyncGeneratorNext = getPrototypeOf(async function* () {}).prototype.next;
const encodeUri = encodeURI;
const bufferOf = Object.getOwnPropertyDescriptor(getPrototypeOf(Uint8Array.prototype), "buffer").get;

const hasOwn = (object, key) => apply(hasOwnProperty, object, { __proto__: null, length: 1, 0: key });
// An array that inherits nothing: storing an element cannot meet a setter.
const list = () => setPrototypeOf([], null);
// Descriptors without prototype: a property called "get" on Object.prototype would turn them into accessors.
const describe = (value) => ({ __proto__: null, value, writable: true, enumerable: true, configurable: false });
const describeOwn = (object, key) => {
  const d = getOwn(object, key);
  return d && setPrototypeOf(d, null);
};
const uriOf = (text) => {
  try {
    return encodeUri(text);
  } catch {
    return text; // a lone surrogate
  }
};
const fromBase64 = (text) => {
  const bytes = apply(uint8FromBase64, uint8, { __proto__: null, length: 1, 0: text });
  return { __proto__: null, buffer: apply(bufferOf, bytes, list()) };
};

const ReferenceErrorCtor = ReferenceError;
const SyntaxErrorCtor = SyntaxError;
const TypeErrorCtor = TypeError;
const ErrorCtor = Error;
const slice = String.prototype.slice;
const indexOf = String.prototype.indexOf;

export {
  apply,
  AsyncGeneratorNext,
  create,
  defineProperty,
  describe,
  describeOwn,
  ErrorCtor,
  fromBase64,
  GeneratorNext,
  GeneratorThrow,
  getOwn,
  hasOwn,
  indexOf,
  jsonParse,
  keysOf,
  list,
  preventExtensions,
  PromiseCtor,
  PromiseThen,
  ProxyCtor,
  ReferenceErrorCtor,
  reflectDefine,
  reflectGet,
  sameValue,
  slice,
  SyntaxErrorCtor,
  ToStringTag,
  TypeErrorCtor,
  uriOf,
};
