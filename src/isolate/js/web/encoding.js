"use strict";
const p = require("./primordials");
const { RangeError, TypeError, Uint8Array, charCodeAt, define, host, isObject, mathMin, part, shape, slice,
  toLowerCase, typedArrayLength, typedArrayName, typedArraySet, viewOf } = p;

const UTF8 = 0, UTF16LE = 1, UTF16BE = 2, WINDOWS_1252 = 3;
const names = ["utf-8", "utf-16le", "utf-16be", "windows-1252"];
const labels = { __proto__: null };
const addLabels = (encoding, text) => {
  const each = p.words(text);
  for (let i = 0; i < each.length; i++) labels[each[i]] = encoding;
};
addLabels(UTF8, "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8");
addLabels(UTF16LE, "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le");
addLabels(UTF16BE, "unicodefffe utf-16be");
addLabels(WINDOWS_1252, "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 " +
  "iso8859-1 iso88591 iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252");

function trim(text) {
  const blank = (i) => {
    const c = charCodeAt(text, i);
    return c === 32 || (c >= 9 && c <= 13 && c !== 11);
  };
  let from = 0, to = text.length;
  while (from < to && blank(from)) from++;
  while (to > from && blank(to - 1)) to--;
  return slice(text, from, to);
}

// How many bytes at the end may be the beginning of a character that the next chunk completes.
function tail(encoding, bytes) {
  const n = typedArrayLength(bytes);
  if (encoding === UTF8) return host.utf8Tail(bytes);
  if (encoding === WINDOWS_1252) return 0;
  const odd = n % 2, high = n - odd - (encoding === UTF16LE ? 1 : 2);
  return high >= 0 && (bytes[high] & 0xfc) === 0xd8 ? odd + 2 : odd;
}

function decodeAll(encoding, bytes, fatal) {
  if (encoding === UTF8) return host.utf8Decode(bytes, fatal);
  if (encoding === WINDOWS_1252) return host.latin1Decode(bytes, 1);
  return host.utf16Decode(bytes, fatal, encoding === UTF16BE ? 1 : 0);
}

class TextDecoder {
  #encoding; #fatal; #ignoreBOM; #pending = null; #bomDone = false;
  constructor(label = "utf-8", options = undefined) {
    const text = `${label}`;
    const encoding = labels[toLowerCase(trim(text))];
    if (encoding === undefined)
      throw new RangeError(`TextDecoder: the encoding "${text}" is not supported here ` +
        "(supported: utf-8, utf-16le, utf-16be, windows-1252/latin1)");
    if (options !== undefined && options !== null && !isObject(options))
      throw new TypeError("TextDecoder: options is not an object");
    this.#encoding = encoding;
    this.#fatal = options?.fatal ? 1 : 0;
    this.#ignoreBOM = !!options?.ignoreBOM;
  }
  get encoding() {
    return names[this.#encoding];
  }
  get fatal() {
    return this.#fatal === 1;
  }
  get ignoreBOM() {
    return this.#ignoreBOM;
  }
  decode(input = undefined, options = undefined) {
    const stream = !!options?.stream;
    const view = input === undefined ? new Uint8Array(0) : viewOf(input);
    if (view === null) throw new TypeError("TextDecoder.decode: the input is not an ArrayBuffer or a view");
    const before = this.#pending === null ? 0 : typedArrayLength(this.#pending);
    const n = typedArrayLength(view);
    let bytes = new Uint8Array(before + n);
    if (before) typedArraySet(bytes, this.#pending);
    typedArraySet(bytes, view, before);
    const keep = stream ? tail(this.#encoding, bytes) : 0;
    this.#pending = keep ? part(bytes, before + n - keep, before + n) : null;
    if (keep) bytes = part(bytes, 0, before + n - keep);
    let text = decodeAll(this.#encoding, bytes, this.#fatal);
    if (text === null) {
      this.#pending = null;
      this.#bomDone = false;
      throw new TypeError("TextDecoder.decode: the data is not valid for the encoding " + this.encoding);
    }
    if (!this.#bomDone && text.length > 0) {
      this.#bomDone = true;
      if (!this.#ignoreBOM && this.#encoding !== WINDOWS_1252 && charCodeAt(text, 0) === 0xfeff)
        text = slice(text, 1);
    }
    if (!stream) this.#bomDone = false;
    return text;
  }
}

class TextEncoder {
  #brand;
  get encoding() {
    this.#brand;
    return "utf-8";
  }
  encode(input = "") {
    this.#brand;
    return host.utf8Encode(`${input}`);
  }
  encodeInto(source, destination) {
    this.#brand;
    const text = `${source}`;
    if (typedArrayName(destination) !== "Uint8Array")
      throw new TypeError("TextEncoder.encodeInto: the destination is not a Uint8Array");
    const bytes = new Uint8Array(mathMin(typedArrayLength(destination), text.length * 3));
    const counts = new p.Float64Array(2);
    host.utf8EncodeInto(text, bytes, viewOf(counts));
    if (counts[1] > 0) typedArraySet(destination, part(bytes, 0, counts[1]));
    const result = {};
    define(result, "read", counts[0]);
    define(result, "written", counts[1]);
    return result;
  }
}
shape(TextDecoder, "TextDecoder");
shape(TextEncoder, "TextEncoder");

module.exports = {
  TextDecoder,
  TextEncoder,
  utf8: (text) => host.utf8Encode(text),
  // "UTF-8 decode" of bytes that are already ours: drops a byte order mark
  utf8Text(bytes) {
    const text = host.utf8Decode(bytes, 0);
    return charCodeAt(text, 0) === 0xfeff ? slice(text, 1) : text;
  },
};
