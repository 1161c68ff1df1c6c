"use strict";
const p = require("./primordials");
const { TypeError, Uint8Array, append, charCodeAt, fromIterable, host, isObject, iterator, list, mathMin,
  part, promiseReject, promiseResolve, shape, toLowerCase, typedArrayLength, typedArraySet, usv } = p;
const { utf8Text } = require("./encoding");

function normalType(type) {
  const text = `${type}`;
  for (let i = 0; i < text.length; i++) {
    const c = charCodeAt(text, i);
    if (c < 0x20 || c > 0x7e) return "";
  }
  return toLowerCase(text);
}

function nativeEndings(text) {
  let out = "";
  for (let i = 0; i < text.length; i++) {
    const c = charCodeAt(text, i);
    if (c === 13) {
      if (i + 1 < text.length && charCodeAt(text, i + 1) === 10) i++;
      out += "\n";
    } else {
      out += text[i];
    }
  }
  return out;
}

function join(chunks) {
  let total = 0;
  for (let i = 0; i < chunks.length; i++) total += typedArrayLength(chunks[i]);
  const all = new Uint8Array(total);
  for (let i = 0, at = 0; i < chunks.length; at += typedArrayLength(chunks[i++]))
    typedArraySet(all, chunks[i], at);
  return all;
}

const raw = {};

class Blob {
  #bytes; #type;
  constructor(parts = undefined, options = undefined) {
    if (parts === raw) {
      this.#bytes = options.bytes;
      this.#type = options.type;
      return;
    }
    const chunks = list();
    const given = list();
    if (parts !== undefined) {
      const method = isObject(parts) ? parts[iterator] : undefined;
      if (typeof method !== "function") throw new TypeError("Blob: the parts are not iterable");
      fromIterable(parts, method, (v) => append(given,
        p.isView(v) || p.isArrayBuffer(v) || (isObject(v) && #bytes in v) ? v : usv(v)));
    }
    if (options !== undefined && options !== null && !isObject(options))
      throw new TypeError("Blob: options is not an object");
    const endings = options?.endings === undefined ? "transparent" : `${options.endings}`;
    if (endings !== "transparent" && endings !== "native")
      throw new TypeError(`Blob: endings cannot be "${endings}"`);
    const type = options?.type;
    this.#type = type === undefined ? "" : normalType(type);
    for (let i = 0; i < given.length; i++) {
      const v = given[i];
      if (typeof v === "string") append(chunks, host.utf8Encode(endings === "native" ? nativeEndings(v) : v));
      else if (p.isView(v) || p.isArrayBuffer(v)) append(chunks, p.viewOf(v));
      else append(chunks, v.#bytes);
    }
    this.#bytes = join(chunks);
  }
  get size() {
    return typedArrayLength(this.#bytes);
  }
  get type() {
    return this.#type;
  }
  slice(start = 0, end = undefined, contentType = undefined) {
    const size = typedArrayLength(this.#bytes);
    const at = (v) => {
      const n = +v || 0;
      const whole = n < 0 ? -p.mathFloor(-n) : p.mathFloor(n);
      return whole < 0 ? p.mathMax(size + whole, 0) : mathMin(whole, size);
    };
    const from = at(start), to = end === undefined ? size : at(end);
    return new Blob(raw, {
      __proto__: null,
      bytes: part(this.#bytes, from, p.mathMax(from, to)),
      type: contentType === undefined ? "" : normalType(contentType),
    });
  }
  arrayBuffer() {
    return answer(() => p.typedArrayBuffer(p.uint8Copy(this.#bytes)));
  }
  bytes() {
    return answer(() => p.uint8Copy(this.#bytes));
  }
  text() {
    return answer(() => utf8Text(p.uint8Copy(this.#bytes)));
  }
  stream() {
    return require("./streams").streamOf(p.uint8Copy(this.#bytes));
  }
  static is(v) {
    return isObject(v) && #bytes in v;
  }
  static bytesOf(blob) {
    return blob.#bytes;
  }
  static typeOf(blob) {
    return blob.#type;
  }
}
const isBlob = Blob.is, blobBytes = Blob.bytesOf, blobType = Blob.typeOf;
delete Blob.is;
delete Blob.bytesOf;
delete Blob.typeOf;
shape(Blob, "Blob");

function answer(fn) {
  try {
    return promiseResolve(fn());
  } catch (error) {
    return promiseReject(error);
  }
}

class File extends Blob {
  #name; #lastModified;
  constructor(bits, name, options = undefined) {
    if (arguments.length < 2) throw new TypeError("File: two arguments are needed");
    super(bits, options);
    if (bits === raw) {
      this.#lastModified = options.lastModified;
    } else {
      const modified = options?.lastModified;
      this.#lastModified = modified === undefined ? p.dateNow() : p.mathTrunc(+modified) || 0;
    }
    this.#name = usv(name);
  }
  get name() {
    return this.#name;
  }
  get lastModified() {
    return this.#lastModified;
  }
  static is(v) {
    return isObject(v) && #name in v;
  }
}
const isFile = File.is;
delete File.is;
shape(File, "File");
const fileName = p.getter(File.prototype, "name"), fileTime = p.getter(File.prototype, "lastModified");

const makeBlob = (bytes, type) => new Blob(raw, { __proto__: null, bytes, type });
const makeFile = (bytes, name, type, lastModified = p.dateNow()) =>
  new File(raw, name, { __proto__: null, bytes, type, lastModified });
append(p.cloneables, {
  __proto__: null,
  is: isBlob,
  clone: (v) => (isFile(v) ? makeFile(blobBytes(v), fileName(v), blobType(v), fileTime(v))
    : makeBlob(blobBytes(v), blobType(v))),
});

const iterate = p.iteratorClass("FormData Iterator");

class FormData {
  #entries = list();
  constructor(form = undefined) {
    if (form !== undefined) throw new TypeError("FormData: there are no forms here");
  }
  #entry(name, value, filename, given) {
    const e = list();
    append(e, usv(name));
    if (isBlob(value)) {
      append(e, isFile(value) && !given ? value
        : makeFile(blobBytes(value), given ? usv(filename) : "blob", blobType(value),
          isFile(value) ? fileTime(value) : p.dateNow()));
    } else {
      if (given) throw new TypeError("FormData: a filename needs a Blob");
      append(e, usv(value));
    }
    return e;
  }
  append(name, value, filename = undefined) {
    p.needs(arguments.length, 2, "FormData.append");
    append(this.#entries, this.#entry(name, value, filename, arguments.length > 2));
  }
  set(name, value, filename = undefined) {
    p.needs(arguments.length, 2, "FormData.set");
    const e = this.#entry(name, value, filename, arguments.length > 2);
    const kept = list();
    let done = false;
    for (let i = 0; i < this.#entries.length; i++) {
      const old = this.#entries[i];
      if (old[0] !== e[0]) append(kept, old);
      else if (!done) {
        append(kept, e);
        done = true;
      }
    }
    if (!done) append(kept, e);
    this.#entries = kept;
  }
  delete(name) {
    p.needs(arguments.length, 1, "FormData.delete");
    const key = usv(name), kept = list();
    for (let i = 0; i < this.#entries.length; i++)
      if (this.#entries[i][0] !== key) append(kept, this.#entries[i]);
    this.#entries = kept;
  }
  get(name) {
    p.needs(arguments.length, 1, "FormData.get");
    const key = usv(name);
    for (let i = 0; i < this.#entries.length; i++)
      if (this.#entries[i][0] === key) return this.#entries[i][1];
    return null;
  }
  getAll(name) {
    p.needs(arguments.length, 1, "FormData.getAll");
    const key = usv(name), found = list();
    for (let i = 0; i < this.#entries.length; i++)
      if (this.#entries[i][0] === key) append(found, this.#entries[i][1]);
    return p.toArray(found);
  }
  has(name) {
    p.needs(arguments.length, 1, "FormData.has");
    const key = usv(name);
    for (let i = 0; i < this.#entries.length; i++) if (this.#entries[i][0] === key) return true;
    return false;
  }
  forEach(callback, thisArg = undefined) {
    if (typeof callback !== "function") throw new TypeError("FormData.forEach: the argument is not a function");
    for (let i = 0; i < this.#entries.length; i++)
      p.apply(callback, thisArg, [this.#entries[i][1], this.#entries[i][0], this]);
  }
  keys() {
    return iterate((i) => this.#entries[i], this.#entries && 0);
  }
  values() {
    return iterate((i) => this.#entries[i], this.#entries && 1);
  }
  entries() {
    return iterate((i) => this.#entries[i], this.#entries && 2);
  }
  static is(v) {
    return isObject(v) && #entries in v;
  }
  static entriesOf(form) {
    return form.#entries;
  }
}
const isFormData = FormData.is, formEntries = FormData.entriesOf;
delete FormData.is;
delete FormData.entriesOf;
p.define(FormData.prototype, iterator, FormData.prototype.entries, false);
shape(FormData, "FormData");
const formAppend = p.uncurry(FormData.prototype.append);

module.exports = {
  Blob, File, FormData,
  blobBytes, blobType, fileName, formAppend, formEntries, isBlob, isFile, isFormData, join, makeBlob, makeFile,
};
p.loaded.blob = module.exports;
