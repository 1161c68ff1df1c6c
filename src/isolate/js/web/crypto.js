"use strict";
// crypto and crypto.subtle. Keys are bytes in private fields: raw for secret keys, DER for the others.
const p = require("./primordials");
const { TypeError, Uint8Array, append, define, fromIterable, host, isObject, iterator, list, promiseReject,
  promiseResolve, shape, slice, toUpperCase, typedArrayBuffer, typedArrayLength, uint8Copy } = p;
const { fail } = require("./dom");

const key = {};
const hashes = ["SHA-1", "SHA-256", "SHA-384", "SHA-512"];
const hashBlock = [64, 64, 128, 128], hashBytes = [20, 32, 48, 64];
const ED25519 = 3, X25519 = 4, RSA = 5;
const curves = ["P-256", "P-384", "P-521"], curveBytes = [32, 48, 66];
const ECDSA = 0, EDDSA = 1, PKCS1 = 2, PSS = 3;
const GCM = 0, CBC = 1, CTR = 2, KW = 3;

const secret = (uses, extra) => ({ __proto__: null, shape: "secret", uses, ...extra });
const pair = (privateUses, publicUses, extra) => ({ __proto__: null, shape: "pair", privateUses, publicUses, ...extra });
const wrapping = ["encrypt", "decrypt", "wrapKey", "unwrapKey"];
const algorithms = {
  __proto__: null,
  HMAC: secret(["sign", "verify"], { hash: true }),
  "AES-GCM": secret(wrapping, { aes: GCM }),
  "AES-CBC": secret(wrapping, { aes: CBC }),
  "AES-CTR": secret(wrapping, { aes: CTR }),
  "AES-KW": secret(["wrapKey", "unwrapKey"], { aes: KW }),
  PBKDF2: secret(["deriveKey", "deriveBits"], { rawOnly: true }),
  HKDF: secret(["deriveKey", "deriveBits"], { rawOnly: true }),
  ECDSA: pair(["sign"], ["verify"], { ec: true, scheme: ECDSA }),
  ECDH: pair(["deriveKey", "deriveBits"], [], { ec: true }),
  Ed25519: pair(["sign"], ["verify"], { kind: ED25519, scheme: EDDSA }),
  X25519: pair(["deriveKey", "deriveBits"], [], { kind: X25519 }),
  "RSASSA-PKCS1-v1_5": pair(["sign"], ["verify"], { kind: RSA, hash: true, scheme: PKCS1 }),
  "RSA-PSS": pair(["sign"], ["verify"], { kind: RSA, hash: true, scheme: PSS }),
  "RSA-OAEP": pair(["decrypt", "unwrapKey"], ["encrypt", "wrapKey"], { kind: RSA, hash: true }),
};
const byUpper = { __proto__: null };
for (const name in algorithms) byUpper[toUpperCase(name)] = name;
const digestByUpper = { __proto__: null };
for (let i = 0; i < hashes.length; i++) digestByUpper[hashes[i]] = i;
const allUses = ["encrypt", "decrypt", "sign", "verify", "deriveKey", "deriveBits", "wrapKey", "unwrapKey"];

function includes(array, v) {
  for (let i = 0; i < array.length; i++) if (array[i] === v) return true;
  return false;
}

function record(o) {
  const out = {};
  for (const name in o) define(out, name, o[name]);
  return out;
}

// The name of an AlgorithmIdentifier in upper case, and the object it came with.
function identifier(v) {
  if (isObject(v)) {
    if (v.name === undefined) throw new TypeError("the algorithm has no name");
    return { __proto__: null, name: toUpperCase(`${v.name}`), params: v };
  }
  return { __proto__: null, name: toUpperCase(`${v}`), params: p.nothing };
}

function algorithmOf(v) {
  const { name, params } = identifier(v);
  const known = byUpper[name];
  if (known === undefined) fail("NotSupportedError", `The algorithm "${name}" is not supported here`);
  return { __proto__: null, name: known, params, info: algorithms[known] };
}

function hashOf(v) {
  if (v === undefined) throw new TypeError("the algorithm needs a hash");
  const { name } = identifier(v);
  const hash = digestByUpper[name];
  if (hash === undefined) fail("NotSupportedError", `The hash "${name}" is not supported here`);
  return hash;
}

function curveOf(v) {
  if (v === undefined) throw new TypeError("the algorithm needs a namedCurve");
  for (let i = 0; i < curves.length; i++) if (curves[i] === `${v}`) return i;
  return fail("NotSupportedError", `The curve "${v}" is not supported here`);
}

function bytesOf(v, what) {
  const bytes = uint8Copy(v);
  if (bytes === null) throw new TypeError(`${what} is not an ArrayBuffer or a view`);
  return bytes;
}

function integer(v, what, max = 4294967295) {
  const n = p.mathTrunc(+v);
  if (!(n >= 0 && n <= max)) throw new TypeError(`${what} is out of range`);
  return n;
}

function usesOf(v) {
  const method = isObject(v) ? v[iterator] : undefined;
  if (typeof method !== "function") throw new TypeError("the key usages are not iterable");
  const given = list();
  fromIterable(v, method, (u) => {
    const use = `${u}`;
    if (!includes(allUses, use)) throw new TypeError(`"${use}" is not a key usage`);
    append(given, use);
  });
  const sorted = list();
  for (let i = 0; i < allUses.length; i++) if (includes(given, allUses[i])) append(sorted, allUses[i]);
  return sorted;
}

function checkUses(uses, allowed) {
  for (let i = 0; i < uses.length; i++)
    if (!includes(allowed, uses[i])) fail("SyntaxError", `The usage "${uses[i]}" does not fit the key`);
}

function only(uses, allowed) {
  const kept = list();
  for (let i = 0; i < uses.length; i++) if (includes(allowed, uses[i])) append(kept, uses[i]);
  return kept;
}

function need(bytes, name, message) {
  if (bytes === null || bytes === false) fail(name, message);
  return bytes;
}

class CryptoKey {
  #type; #extractable; #algorithm; #usages; #data; #name; #kind; #hash; #view = null;
  constructor(k, fields) {
    if (k !== key) throw new TypeError("Illegal constructor");
    this.#type = fields.type;
    this.#extractable = fields.extractable;
    this.#usages = fields.uses;
    this.#data = fields.data;
    this.#name = fields.name;
    this.#kind = fields.kind;
    this.#hash = fields.hash;
    this.#algorithm = fields.algorithm;
  }
  get type() {
    return this.#type;
  }
  get extractable() {
    return this.#extractable;
  }
  get algorithm() {
    return this.#algorithm;
  }
  get usages() {
    return this.#view ??= p.toArray(this.#usages);
  }
  // The private state, for the functions below.
  static open(v) {
    if (!isObject(v) || !(#type in v)) throw new TypeError("the key is not a CryptoKey");
    return { __proto__: null, type: v.#type, extractable: v.#extractable, uses: v.#usages, data: v.#data,
      name: v.#name, kind: v.#kind, hash: v.#hash, algorithm: v.#algorithm, info: algorithms[v.#name] };
  }
  static is(v) {
    return isObject(v) && #type in v;
  }
}
const open = CryptoKey.open, isKey = CryptoKey.is;
delete CryptoKey.open;
delete CryptoKey.is;
shape(CryptoKey, "CryptoKey");
append(p.cloneables, { __proto__: null, is: isKey, clone: (v) => new CryptoKey(key, open(v)) });

// What key.algorithm shows.
function describe(name, info, kind, hash, data, isPrivate) {
  const a = { __proto__: null, name };
  if (info.shape === "secret" && !info.rawOnly) a.length = typedArrayLength(data) * 8;
  if (info.ec) a.namedCurve = curves[kind];
  if (kind === RSA) {
    const n = need(host.keyPart(RSA, isPrivate ? 1 : 0, data, 0), "DataError", "The key is not valid");
    let bits = typedArrayLength(n) * 8;
    for (let top = n[0]; top < 128 && bits > 0; top = top * 2 || 1) bits--;
    a.modulusLength = bits;
    a.publicExponent = host.keyPart(RSA, isPrivate ? 1 : 0, data, 1);
  }
  if (info.hash) a.hash = record({ __proto__: null, name: hashes[hash] });
  return record(a);
}

function makeKey(type, name, data, extractable, uses, kind = undefined, hash = undefined) {
  const info = algorithms[name];
  return new CryptoKey(key, { __proto__: null, type, extractable, uses, data, name, kind, hash,
    algorithm: describe(name, info, kind, hash, data, type === "private") });
}

// A key that may do this, by this algorithm.
function usable(k, algorithm, use) {
  const state = open(k);
  if (state.name !== algorithm.name)
    fail("InvalidAccessError", `The key is for ${state.name}, not for ${algorithm.name}`);
  if (!includes(state.uses, use)) fail("InvalidAccessError", `The key cannot be used for ${use}`);
  return state;
}

// base64url of JWK members
function unbase64(text, what) {
  if (typeof text !== "string") fail("DataError", `The JWK member "${what}" is missing`);
  let plain = "";
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === "+" || c === "/" || c === "=" || c <= " ") fail("DataError", `The JWK member "${what}" is not base64url`);
    plain += c === "-" ? "+" : c === "_" ? "/" : c;
  }
  return need(host.atob(plain), "DataError", `The JWK member "${what}" is not base64url`);
}
function base64(bytes) {
  const text = host.btoa(host.latin1Decode(bytes, 0));
  let out = "";
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === "=") break;
    out += c === "+" ? "-" : c === "/" ? "_" : c;
  }
  return out;
}

const jwkAes = { __proto__: null, "AES-GCM": "GCM", "AES-CBC": "CBC", "AES-CTR": "CTR", "AES-KW": "KW" };
const rsaAlg = { __proto__: null, "RSASSA-PKCS1-v1_5": ["RS1", "RS256", "RS384", "RS512"],
  "RSA-PSS": ["PS1", "PS256", "PS384", "PS512"],
  "RSA-OAEP": ["RSA-OAEP", "RSA-OAEP-256", "RSA-OAEP-384", "RSA-OAEP-512"] };
const hmacAlg = ["HS1", "HS256", "HS384", "HS512"];
const rsaNames = ["n", "e", "d", "p", "q", "dp", "dq", "qi"];

function jwkChecks(jwk, extractable, uses, kty, alg) {
  if (jwk.kty !== kty) fail("DataError", `The JWK member "kty" is not "${kty}"`);
  if (jwk.alg !== undefined && alg !== null && jwk.alg !== alg) fail("DataError", `The JWK member "alg" is not "${alg}"`);
  if (jwk.ext === false && extractable) fail("DataError", "The JWK is not extractable");
  if (jwk.key_ops !== undefined) {
    const ops = list();
    const method = isObject(jwk.key_ops) ? jwk.key_ops[iterator] : undefined;
    if (typeof method !== "function") fail("DataError", "The JWK member \"key_ops\" is not an array");
    fromIterable(jwk.key_ops, method, (v) => append(ops, v));
    for (let i = 0; i < uses.length; i++)
      if (!includes(ops, uses[i])) fail("DataError", "The JWK member \"key_ops\" does not allow the usages");
  }
}

function importSecret(format, data, algorithm, extractable, uses) {
  const { name, info, params } = algorithm;
  checkUses(uses, info.uses);
  const hash = info.hash ? hashOf(params.hash) : undefined;
  let bytes;
  if (format === "raw") {
    bytes = bytesOf(data, "the key data");
  } else if (format === "jwk" && !info.rawOnly) {
    if (!isObject(data)) throw new TypeError("the key data is not a JWK");
    bytes = unbase64(data.k, "k");
    jwkChecks(data, extractable, uses, "oct", name === "HMAC" ? hmacAlg[hash]
      : `A${typedArrayLength(bytes) * 8}${jwkAes[name]}`);
  } else {
    fail("NotSupportedError", `A ${name} key cannot be imported as "${format}"`);
  }
  const n = typedArrayLength(bytes);
  if (info.aes !== undefined && n !== 16 && n !== 24 && n !== 32)
    fail("DataError", "An AES key has 128, 192 or 256 bits");
  if (name === "HMAC") {
    if (n === 0) fail("DataError", "The key is empty");
    if (params.length !== undefined) {
      const bits = integer(params.length, "length");
      if (bits > n * 8 || bits <= n * 8 - 8) fail("DataError", "The length does not fit the key");
      if (bits % 8 !== 0) fail("NotSupportedError", "A key length that is not whole bytes is not supported here");
    }
  }
  if (info.rawOnly && extractable) fail("SyntaxError", `A ${name} key cannot be extractable`);
  if (uses.length === 0) fail("SyntaxError", "A secret key needs a usage");
  return makeKey("secret", name, bytes, extractable, uses, undefined, hash);
}

// The members of a JWK as arguments of host.keyFromParts.
function jwkParts(jwk, kind, isPrivate) {
  const parts = list();
  append(parts, kind);
  append(parts, isPrivate ? 1 : 0);
  if (kind === RSA) {
    if (jwk.oth !== undefined) fail("NotSupportedError", "RSA keys with more than two primes are not supported here");
    for (let i = 0; i < (isPrivate ? 8 : 2); i++) append(parts, unbase64(jwk[rsaNames[i]], rsaNames[i]));
  } else if (kind <= 2) {
    const size = curveBytes[kind], x = unbase64(jwk.x, "x"), y = unbase64(jwk.y, "y");
    if (typedArrayLength(x) !== size || typedArrayLength(y) !== size) fail("DataError", "The JWK's point has the wrong size");
    const point = new Uint8Array(1 + 2 * size);
    point[0] = 4;
    p.typedArraySet(point, x, 1);
    p.typedArraySet(point, y, 1 + size);
    append(parts, point);
    if (isPrivate) append(parts, unbase64(jwk.d, "d"));
  } else {
    append(parts, isPrivate ? unbase64(jwk.d, "d") : unbase64(jwk.x, "x"));
  }
  return parts;
}

function importPair(format, data, algorithm, extractable, uses) {
  const { name, info, params } = algorithm;
  const hash = info.hash ? hashOf(params.hash) : undefined;
  const kind = info.ec ? curveOf(params.namedCurve) : info.kind;
  let isPrivate, der;
  if (format === "jwk") {
    if (!isObject(data)) throw new TypeError("the key data is not a JWK");
    isPrivate = data.d !== undefined;
    const alg = kind === RSA ? rsaAlg[name][hash] : null;
    checkUses(uses, isPrivate ? info.privateUses : info.publicUses);
    jwkChecks(data, extractable, uses, kind === RSA ? "RSA" : kind <= 2 ? "EC" : "OKP", alg);
    if (kind === ED25519 && data.alg !== undefined && data.alg !== name && data.alg !== "EdDSA")
      fail("DataError", "The JWK member \"alg\" is not \"Ed25519\"");
    if (kind !== RSA && data.crv !== (kind <= 2 ? curves[kind] : name)) fail("DataError", "The JWK is of another curve");
    der = p.apply(host.keyFromParts, undefined, jwkParts(data, kind, isPrivate));
    if (isPrivate && kind > 2 && kind !== RSA && der !== null &&
        data.x !== base64(host.keyRaw(kind, host.keyPublic(kind, der)))) der = null;
  } else {
    const bytes = bytesOf(data, "the key data");
    if (format === "raw" && kind !== RSA) {
      isPrivate = false;
      checkUses(uses, info.publicUses);
      der = host.keyFromParts(kind, 0, bytes);
    } else if (format === "spki" || format === "pkcs8") {
      isPrivate = format === "pkcs8";
      checkUses(uses, isPrivate ? info.privateUses : info.publicUses);
      der = host.keyImport(kind, isPrivate ? 1 : 0, bytes);
    } else {
      fail("NotSupportedError", `A ${name} key cannot be imported as "${format}"`);
    }
  }
  need(der, "DataError", "The key data is not valid");
  if (isPrivate && uses.length === 0) fail("SyntaxError", "A private key needs a usage");
  return makeKey(isPrivate ? "private" : "public", name, der, extractable, uses, kind, hash);
}

const formats = ["raw", "pkcs8", "spki", "jwk"];
function importKey(format, data, algorithm, extractable, uses) {
  if (!includes(formats, format)) throw new TypeError(`"${format}" is not a key format`);
  return algorithm.info.shape === "secret" ? importSecret(format, data, algorithm, !!extractable, uses)
    : importPair(format, data, algorithm, !!extractable, uses);
}

function exportJwk(state) {
  const { name, kind, hash, data, info } = state;
  const jwk = { __proto__: null };
  if (info.shape === "secret") {
    jwk.kty = "oct";
    jwk.k = base64(data);
    jwk.alg = name === "HMAC" ? hmacAlg[hash] : `A${typedArrayLength(data) * 8}${jwkAes[name]}`;
  } else if (kind === RSA) {
    jwk.kty = "RSA";
    jwk.alg = rsaAlg[name][hash];
    const isPrivate = state.type === "private";
    for (let i = 0; i < (isPrivate ? 8 : 2); i++)
      jwk[rsaNames[i]] = base64(need(host.keyPart(RSA, isPrivate ? 1 : 0, data, i), "OperationError", "The key cannot be exported"));
  } else {
    const isPrivate = state.type === "private";
    const raw = host.keyRaw(kind, isPrivate ? host.keyPublic(kind, data) : data);
    jwk.kty = kind <= 2 ? "EC" : "OKP";
    jwk.crv = kind <= 2 ? curves[kind] : name;
    if (kind === ED25519) jwk.alg = name;
    const size = kind <= 2 ? curveBytes[kind] : 32, from = kind <= 2 ? 1 : 0;
    jwk.x = base64(uint8Copy(p.part(raw, from, from + size)));
    if (kind <= 2) jwk.y = base64(uint8Copy(p.part(raw, 1 + size, 1 + 2 * size)));
    if (isPrivate) jwk.d = base64(host.keyPart(kind, 1, data, 0));
  }
  jwk.key_ops = p.toArray(state.uses);
  jwk.ext = state.extractable;
  return record(jwk);
}

function exportKey(format, state) {
  const { name, kind, data, info, type } = state;
  if (!includes(formats, format)) throw new TypeError(`"${format}" is not a key format`);
  if (info.rawOnly) fail("NotSupportedError", `A ${name} key cannot be exported`);
  if (!state.extractable) fail("InvalidAccessError", "The key is not extractable");
  if (format === "jwk") return exportJwk(state);
  const fits = format === "raw" ? type === "secret" || (type === "public" && kind !== RSA)
    : format === "spki" ? type === "public" : type === "private";
  if (!fits) fail(info.shape === "secret" ? "NotSupportedError" : "InvalidAccessError", `This key cannot be exported as "${format}"`);
  if (format === "raw" && type === "public") return typedArrayBuffer(host.keyRaw(kind, data));
  return typedArrayBuffer(uint8Copy(data));
}

function aesLength(params) {
  const bits = integer(params.length, "length", 65535);
  if (bits !== 128 && bits !== 192 && bits !== 256) fail("OperationError", "An AES key has 128, 192 or 256 bits");
  return bits / 8;
}

function hmacLength(params, hash) {
  if (params.length === undefined) return hashBlock[hash];
  const bits = integer(params.length, "length");
  if (bits === 0) fail("OperationError", "An HMAC key cannot be empty");
  if (bits % 8 !== 0) fail("NotSupportedError", "A key length that is not whole bytes is not supported here");
  return bits / 8;
}

// host.random gives at most 65536 bytes at once.
function randomBytes(n) {
  if (n > 65536) fail("OperationError", "The key is too long");
  return host.random(n);
}

function exponentOf(v) {
  if (p.typedArrayName(v) !== "Uint8Array") throw new TypeError("publicExponent is not a Uint8Array");
  let e = 0;
  for (let i = 0; i < typedArrayLength(v); i++) e = e * 256 + v[i];
  if (e !== 3 && e !== 65537) fail("OperationError", "The public exponent must be 3 or 65537");
  return e;
}

function generateKey(algorithm, extractable, uses) {
  const { name, info, params } = algorithm;
  const hash = info.hash ? hashOf(params.hash) : undefined;
  if (info.shape === "secret") {
    if (info.rawOnly) fail("NotSupportedError", `A ${name} key cannot be generated`);
    checkUses(uses, info.uses);
    const n = name === "HMAC" ? hmacLength(params, hash) : aesLength(params);
    if (uses.length === 0) fail("SyntaxError", "A secret key needs a usage");
    return makeKey("secret", name, randomBytes(n), extractable, uses, undefined, hash);
  }
  const kind = info.ec ? curveOf(params.namedCurve) : info.kind;
  for (let i = 0; i < uses.length; i++)
    if (!includes(info.privateUses, uses[i]) && !includes(info.publicUses, uses[i]))
      fail("SyntaxError", `The usage "${uses[i]}" does not fit the key`);
  const privateUses = only(uses, info.privateUses);
  if (privateUses.length === 0) fail("SyntaxError", "A private key needs a usage");
  let bits = 0, exponent = 0;
  if (kind === RSA) {
    bits = integer(params.modulusLength, "modulusLength");
    exponent = exponentOf(params.publicExponent);
    if (bits < 1024 || bits > 8192 || bits % 8) fail("OperationError", "An RSA key has from 1024 to 8192 bits");
  }
  const der = need(host.keyGenerate(kind, bits, exponent), "OperationError", "The key could not be generated");
  const publicDer = host.keyPublic(kind, der);
  return record({
    __proto__: null,
    publicKey: makeKey("public", name, publicDer, true, only(uses, info.publicUses), kind, hash),
    privateKey: makeKey("private", name, der, extractable, privateUses, kind, hash),
  });
}

function signParams(algorithm, state) {
  const { scheme } = state.info;
  const hash = scheme === ECDSA ? hashOf(algorithm.params.hash) : scheme === EDDSA ? 0 : state.hash;
  const salt = scheme === PSS ? integer(algorithm.params.saltLength, "saltLength") : 0;
  return { __proto__: null, scheme, hash, salt };
}

function sign(algorithm, k, data) {
  const state = usable(k, algorithm, "sign");
  if (state.name === "HMAC") return host.hmac(state.hash, state.data, data);
  const s = signParams(algorithm, state);
  if (s.salt > 1024) fail("OperationError", "The salt is too long for the key");
  return need(host.keySign(state.kind, state.data, s.scheme, s.hash, s.salt, data), "OperationError", "Signing failed");
}

function verify(algorithm, k, signature, data) {
  const state = usable(k, algorithm, "verify");
  if (state.name === "HMAC") return host.equal(host.hmac(state.hash, state.data, data), signature);
  const s = signParams(algorithm, state);
  return s.salt <= 1024 && host.keyVerify(state.kind, state.data, s.scheme, s.hash, s.salt, data, signature);
}

const empty = new Uint8Array(0);

function joined(a, b) {
  const out = new Uint8Array(typedArrayLength(a) + typedArrayLength(b));
  p.typedArraySet(out, a);
  p.typedArraySet(out, b, typedArrayLength(a));
  return out;
}

// Only the low `length` bits of the counter count; where they wrap, the message is done in two parts.
function ctr(state, params, data) {
  const counter = bytesOf(params.counter, "counter");
  const bits = integer(params.length, "length", 255);
  if (typedArrayLength(counter) !== 16) fail("OperationError", "The counter has 16 bytes");
  if (bits < 1 || bits > 128) fail("OperationError", "The length of the counter is from 1 to 128");
  const size = typedArrayLength(data), blocks = p.mathFloor((size + 15) / 16);
  let value = 0n;
  for (let i = 0; i < 16; i++) value = value << 8n | p.BigInt(counter[i]);
  const span = 1n << p.BigInt(bits), low = value & (span - 1n);
  if (p.BigInt(blocks) > span) fail("OperationError", "The data is too long for the counter");
  const left = span - low;
  if (p.BigInt(blocks) <= left) return host.aes(CTR, 1, state.data, counter, data, empty, 0);
  const cut = p.Number(left) * 16, start = new Uint8Array(16);
  let rest = value - low;
  for (let i = 15; i >= 0; i--, rest >>= 8n) start[i] = p.Number(rest & 255n);
  return joined(host.aes(CTR, 1, state.data, counter, uint8Copy(p.part(data, 0, cut)), empty, 0),
    host.aes(CTR, 1, state.data, start, uint8Copy(p.part(data, cut, size)), empty, 0));
}

function crypt(encrypt, algorithm, state, data) {
  const { info, params } = algorithm;
  const failed = encrypt ? "Encryption failed" : "Decryption failed";
  if (info.kind === RSA) {
    const label = params.label === undefined ? empty : bytesOf(params.label, "label");
    if (state.type !== (encrypt ? "public" : "private")) fail("InvalidAccessError", "The key is the wrong half");
    return need(host.keyCrypt(encrypt, state.data, state.hash, label, data), "OperationError", failed);
  }
  if (info.aes === CTR) return need(ctr(state, params, data), "OperationError", failed);
  if (info.aes === CBC) {
    const iv = bytesOf(params.iv, "iv");
    if (typedArrayLength(iv) !== 16) fail("OperationError", "The iv has 16 bytes");
    return need(host.aes(CBC, encrypt, state.data, iv, data, empty, 0), "OperationError", failed);
  }
  if (info.aes !== GCM) fail("NotSupportedError", `${algorithm.name} cannot encrypt`);
  const iv = bytesOf(params.iv, "iv");
  const aad = params.additionalData === undefined ? empty : bytesOf(params.additionalData, "additionalData");
  const tag = params.tagLength === undefined ? 128 : integer(params.tagLength, "tagLength", 255);
  if (!includes([32, 64, 96, 104, 112, 120, 128], tag)) fail("OperationError", "The tagLength is not valid");
  return need(host.aes(GCM, encrypt, state.data, iv, data, aad, tag / 8), "OperationError", failed);
}

function deriveBits(algorithm, state, length) {
  const { name, params } = algorithm;
  if (name === "PBKDF2" || name === "HKDF") {
    if (length === null || length % 8 !== 0) fail("OperationError", "The length is not a multiple of 8");
    const hash = hashOf(params.hash), salt = bytesOf(params.salt, "salt");
    if (name === "HKDF") {
      const info = bytesOf(params.info, "info");
      if (length / 8 > 255 * hashBytes[hash]) fail("OperationError", "The length is too long");
      return need(host.hkdf(hash, state.data, salt, info, length / 8), "OperationError", "The derivation failed");
    }
    const iterations = integer(params.iterations, "iterations");
    if (iterations === 0) fail("OperationError", "iterations cannot be 0");
    if (iterations > 2147483647) fail("OperationError", "There are too many iterations");
    return need(host.pbkdf2(hash, state.data, salt, iterations, length / 8), "OperationError", "The derivation failed");
  }
  const other = open(params.public);
  if (other.type !== "public" || other.name !== name || other.kind !== state.kind)
    fail("InvalidAccessError", "The public key does not fit");
  const bytes = need(host.keyDerive(state.kind, state.data, other.data), "OperationError", "The derivation failed");
  if (length === null) return bytes;
  if (length > typedArrayLength(bytes) * 8) fail("OperationError", "The secret is shorter than the length");
  const n = p.mathFloor((length + 7) / 8);
  const out = uint8Copy(p.part(bytes, 0, n));
  if (length % 8) out[n - 1] &= 256 - (1 << (8 - length % 8));
  return out;
}

// How many bits a derived key of this algorithm takes; null is "as many as there are".
function derivedLength(algorithm) {
  const { name, info, params } = algorithm;
  if (info.aes !== undefined) return aesLength(params) * 8;
  if (name === "HMAC") return hmacLength(params, hashOf(params.hash)) * 8;
  if (info.rawOnly) return null;
  return fail("NotSupportedError", `A ${name} key cannot be derived`);
}

function wrap(algorithm, state, bytes) {
  if (algorithm.info.aes !== KW) return crypt(1, algorithm, state, bytes);
  return need(host.aes(KW, 1, state.data, empty, bytes, empty, 0), "OperationError", "The key cannot be wrapped");
}

function unwrap(algorithm, state, bytes) {
  if (algorithm.info.aes !== KW) return crypt(0, algorithm, state, bytes);
  return need(host.aes(KW, 0, state.data, empty, bytes, empty, 0), "OperationError", "The key cannot be unwrapped");
}

// Everything is done at once; only the answer is a promise.
function answer(fn) {
  try {
    return promiseResolve(fn());
  } catch (error) {
    return promiseReject(error);
  }
}
const buffer = (bytes) => typedArrayBuffer(bytes);
const arity = (given, n) => {
  if (given < n) throw new TypeError(`${n} arguments are needed`);
};

class SubtleCrypto {
  #brand;
  constructor(k = undefined) {
    if (k !== key) throw new TypeError("Illegal constructor");
  }
  digest(algorithm, data) {
    return answer(() => {
      this.#brand;
      arity(arguments.length, 2);
      const hash = hashOf(algorithm);
      return buffer(host.digest(hash, bytesOf(data, "the data")));
    });
  }
  sign(algorithm, k, data) {
    return answer(() => {
      this.#brand;
      arity(arguments.length, 3);
      return buffer(sign(signing(algorithm), k, bytesOf(data, "the data")));
    });
  }
  verify(algorithm, k, signature, data) {
    return answer(() => {
      this.#brand;
      arity(arguments.length, 4);
      return verify(signing(algorithm), k, bytesOf(signature, "the signature"), bytesOf(data, "the data"));
    });
  }
  encrypt(algorithm, k, data) {
    return answer(() => {
      this.#brand;
      arity(arguments.length, 3);
      const a = algorithmOf(algorithm), bytes = bytesOf(data, "the data");
      ciphering(a);
      return buffer(crypt(1, a, usable(k, a, "encrypt"), bytes));
    });
  }
  decrypt(algorithm, k, data) {
    return answer(() => {
      this.#brand;
      arity(arguments.length, 3);
      const a = algorithmOf(algorithm), bytes = bytesOf(data, "the data");
      ciphering(a);
      return buffer(crypt(0, a, usable(k, a, "decrypt"), bytes));
    });
  }
  generateKey(algorithm, extractable, keyUsages) {
    return answer(() => {
      this.#brand;
      arity(arguments.length, 3);
      return generateKey(algorithmOf(algorithm), !!extractable, usesOf(keyUsages));
    });
  }
  importKey(format, keyData, algorithm, extractable, keyUsages) {
    return answer(() => {
      this.#brand;
      arity(arguments.length, 5);
      return importKey(`${format}`, keyData, algorithmOf(algorithm), extractable, usesOf(keyUsages));
    });
  }
  exportKey(format, k) {
    return answer(() => {
      this.#brand;
      arity(arguments.length, 2);
      return exportKey(`${format}`, open(k));
    });
  }
  deriveBits(algorithm, baseKey, length = null) {
    return answer(() => {
      this.#brand;
      arity(arguments.length, 2);
      const a = algorithmOf(algorithm);
      deriving(a);
      const n = length === null || length === undefined ? null : integer(length, "length");
      return buffer(deriveBits(a, usable(baseKey, a, "deriveBits"), n));
    });
  }
  deriveKey(algorithm, baseKey, derivedKeyType, extractable, keyUsages) {
    return answer(() => {
      this.#brand;
      arity(arguments.length, 5);
      const a = algorithmOf(algorithm), target = algorithmOf(derivedKeyType), uses = usesOf(keyUsages);
      deriving(a);
      const state = usable(baseKey, a, "deriveKey");
      return importKey("raw", deriveBits(a, state, derivedLength(target)), target, extractable, uses);
    });
  }
  wrapKey(format, k, wrappingKey, wrapAlgorithm) {
    return answer(() => {
      this.#brand;
      arity(arguments.length, 4);
      const a = algorithmOf(wrapAlgorithm), state = usable(wrappingKey, a, "wrapKey");
      const exported = exportKey(`${format}`, open(k));
      const bytes = `${format}` === "jwk" ? host.utf8Encode(p.jsonStringify(exported)) : uint8Copy(exported);
      return buffer(wrap(a, state, bytes));
    });
  }
  unwrapKey(format, wrappedKey, unwrappingKey, unwrapAlgorithm, unwrappedKeyAlgorithm, extractable, keyUsages) {
    return answer(() => {
      this.#brand;
      arity(arguments.length, 7);
      const a = algorithmOf(unwrapAlgorithm), target = algorithmOf(unwrappedKeyAlgorithm);
      const uses = usesOf(keyUsages), bytes = bytesOf(wrappedKey, "the wrapped key");
      const plain = unwrap(a, usable(unwrappingKey, a, "unwrapKey"), bytes);
      if (`${format}` !== "jwk") return importKey(`${format}`, plain, target, extractable, uses);
      let jwk;
      try {
        jwk = p.jsonParse(host.utf8Decode(plain, 0));
      } catch {
        fail("DataError", "The unwrapped key is not a JWK");
      }
      return importKey("jwk", jwk, target, extractable, uses);
    });
  }
  // As Cloudflare's: throws at once, compares in constant time.
  timingSafeEqual(a, b) {
    this.#brand;
    const left = bytesOf(a, "the first argument"), right = bytesOf(b, "the second argument");
    if (typedArrayLength(left) !== typedArrayLength(right)) throw new TypeError("the arguments have different lengths");
    return host.equal(left, right);
  }
}
shape(SubtleCrypto, "SubtleCrypto");

function signing(v) {
  const a = algorithmOf(v);
  if (a.name !== "HMAC" && a.info.scheme === undefined) fail("NotSupportedError", `${a.name} cannot sign`);
  return a;
}
function ciphering(a) {
  if (a.name !== "RSA-OAEP" && (a.info.aes === undefined || a.info.aes === KW)) fail("NotSupportedError", `${a.name} cannot encrypt`);
}
function deriving(a) {
  if (!includes(["PBKDF2", "HKDF", "ECDH", "X25519"], a.name)) fail("NotSupportedError", `${a.name} cannot derive`);
}

const integerArrays = ["Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array",
  "Uint32Array", "BigInt64Array", "BigUint64Array"];

class Crypto {
  #subtle;
  constructor(k = undefined) {
    if (k !== key) throw new TypeError("Illegal constructor");
    this.#subtle = new SubtleCrypto(key);
  }
  get subtle() {
    return this.#subtle;
  }
  getRandomValues(array) {
    this.#subtle;
    if (!p.isView(array)) throw new TypeError("getRandomValues: the argument is not a view");
    const name = p.typedArrayName(array);
    if (name === undefined || !includes(integerArrays, name))
      fail("TypeMismatchError", "getRandomValues: the argument is not an array of integers");
    const view = p.viewOf(array), n = typedArrayLength(view);
    if (n > 65536) fail("QuotaExceededError", `getRandomValues: ${n} bytes are more than 65536`);
    p.typedArraySet(view, host.random(n));
    return array;
  }
  randomUUID() {
    this.#subtle;
    const r = host.random(16);
    r[6] = r[6] & 0x0f | 0x40;
    r[8] = r[8] & 0x3f | 0x80;
    let out = "";
    for (let i = 0; i < 16; i++) {
      if (i === 4 || i === 6 || i === 8 || i === 10) out += "-";
      out += slice(p.numberToString(r[i] + 256, 16), 1);
    }
    return out;
  }
}
shape(Crypto, "Crypto");

module.exports = { Crypto, CryptoKey, SubtleCrypto, crypto: new Crypto(key) };
