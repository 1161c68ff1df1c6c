"use strict";
// Headers, Request, Response, fetch. A body given as text or bytes stays bytes: the streams package
// runs only for a program that asks for `.body` or brings a stream.
const p = require("./primordials");
const { Promise, RangeError, TypeError, append, charCodeAt, core, define, fromIterable, host, isObject, iterator,
  list, promiseReject, promiseResolve, promiseThen, shape, slice, toLowerCase, toUpperCase, usv } = p;
const { utf8Text } = require("./encoding");

const NO_NETWORK = "this isolate has no network: globalOutbound is null";

const tokenChars = {
  __proto__: null, "!": 1, "#": 1, $: 1, "%": 1, "&": 1, "'": 1, "*": 1, "+": 1, "-": 1, ".": 1, "^": 1,
  _: 1, "`": 1, "|": 1, "~": 1,
};
function isToken(text) {
  for (let i = 0; i < text.length; i++) {
    const c = charCodeAt(text, i);
    const alnum = (c >= 48 && c <= 57) || (c >= 65 && c <= 90) || (c >= 97 && c <= 122);
    if (!alnum && tokenChars[text[i]] !== 1) return false;
  }
  return text.length > 0;
}

function byteString(v) {
  const text = `${v}`;
  for (let i = 0; i < text.length; i++)
    if (charCodeAt(text, i) > 255) throw new TypeError("Headers: a character is beyond U+00FF");
  return text;
}

function headerName(v) {
  const name = byteString(v);
  if (!isToken(name)) throw new TypeError(`Headers: "${name}" is not a header name`);
  return toLowerCase(name);
}

function headerValue(v) {
  const text = byteString(v);
  const blank = (c) => c === 9 || c === 10 || c === 13 || c === 32;
  let from = 0, to = text.length;
  while (from < to && blank(charCodeAt(text, from))) from++;
  while (to > from && blank(charCodeAt(text, to - 1))) to--;
  for (let i = from; i < to; i++) {
    const c = charCodeAt(text, i);
    if (c === 0 || c === 10 || c === 13) throw new TypeError("Headers: a value cannot have a NUL, CR or LF");
  }
  return slice(text, from, to);
}

const pair = (a, b) => {
  const e = list();
  append(e, a);
  append(e, b);
  return e;
};
const iterate = p.iteratorClass("Headers Iterator");

class Headers {
  #list = list(); #immutable = false; #sorted = null;
  constructor(init = undefined) {
    if (init !== undefined) this.#fill(init);
  }
  #fill(init) {
    if (!isObject(init)) throw new TypeError("Headers: the argument is not an object");
    if (#list in init) {
      for (let i = 0; i < init.#list.length; i++) this.#add(init.#list[i][0], init.#list[i][1]);
      return;
    }
    const method = init[iterator];
    if (method !== undefined && method !== null) {
      if (typeof method !== "function") throw new TypeError("Headers: the argument is not iterable");
      fromIterable(init, method, (entry) => {
        const two = list();
        const inner = isObject(entry) ? entry[iterator] : undefined;
        if (typeof inner !== "function") throw new TypeError("Headers: an entry is not a pair");
        fromIterable(entry, inner, (v) => append(two, v));
        if (two.length !== 2) throw new TypeError("Headers: an entry is not a pair");
        this.#add(headerName(two[0]), headerValue(two[1]));
      });
      return;
    }
    const keys = p.ownKeys(init);
    for (let i = 0; i < keys.length; i++) {
      const d = p.getOwnPropertyDescriptor(init, keys[i]);
      if (d === undefined || !d.enumerable) continue;
      if (typeof keys[i] === "symbol") throw new TypeError("Headers: a symbol is not a header name");
      this.#add(headerName(keys[i]), headerValue(init[keys[i]]));
    }
  }
  #add(name, value) {
    append(this.#list, pair(name, value));
    this.#sorted = null;
  }
  #mayChange() {
    if (this.#immutable) throw new TypeError("Headers: these headers are immutable");
  }
  append(name, value) {
    p.needs(arguments.length, 2, "Headers.append");
    const n = headerName(name), v = headerValue(value);
    this.#mayChange();
    this.#add(n, v);
  }
  delete(name) {
    p.needs(arguments.length, 1, "Headers.delete");
    const n = headerName(name), kept = list();
    this.#mayChange();
    for (let i = 0; i < this.#list.length; i++) if (this.#list[i][0] !== n) append(kept, this.#list[i]);
    this.#list = kept;
    this.#sorted = null;
  }
  get(name) {
    p.needs(arguments.length, 1, "Headers.get");
    return this.#get(headerName(name));
  }
  #get(n) {
    let found = null;
    for (let i = 0; i < this.#list.length; i++)
      if (this.#list[i][0] === n) found = found === null ? this.#list[i][1] : `${found}, ${this.#list[i][1]}`;
    return found;
  }
  getSetCookie() {
    const found = list();
    for (let i = 0; i < this.#list.length; i++)
      if (this.#list[i][0] === "set-cookie") append(found, this.#list[i][1]);
    return p.toArray(found);
  }
  has(name) {
    p.needs(arguments.length, 1, "Headers.has");
    return this.#get(headerName(name)) !== null;
  }
  set(name, value) {
    p.needs(arguments.length, 2, "Headers.set");
    const n = headerName(name), v = headerValue(value), kept = list();
    this.#mayChange();
    let done = false;
    for (let i = 0; i < this.#list.length; i++) {
      if (this.#list[i][0] !== n) append(kept, this.#list[i]);
      else if (!done) done = append(kept, pair(n, v)) === undefined;
    }
    if (!done) append(kept, pair(n, v));
    this.#list = kept;
    this.#sorted = null;
  }
  // Sorted by name, values of one name joined, but each set-cookie by itself.
  #view() {
    if (this.#sorted !== null) return this.#sorted;
    const names = list(), out = list();
    for (let i = 0; i < this.#list.length; i++) {
      const name = this.#list[i][0];
      let seen = false;
      for (let k = 0; k < names.length && !seen; k++) seen = names[k] === name;
      if (!seen) append(names, name);
    }
    p.arraySort(names, (a, b) => (a < b ? -1 : a > b ? 1 : 0));
    for (let k = 0; k < names.length; k++) {
      if (names[k] !== "set-cookie") {
        append(out, pair(names[k], this.#get(names[k])));
        continue;
      }
      for (let i = 0; i < this.#list.length; i++)
        if (this.#list[i][0] === "set-cookie") append(out, pair("set-cookie", this.#list[i][1]));
    }
    return this.#sorted = out;
  }
  forEach(callback, thisArg = undefined) {
    if (typeof callback !== "function") throw new TypeError("Headers.forEach: the argument is not a function");
    for (let i = 0; i < this.#view().length; i++) {
      const e = this.#view()[i];
      p.apply(callback, thisArg, [e[1], e[0], this]);
    }
  }
  keys() {
    return iterate((i) => this.#view()[i], this.#list && 0);
  }
  values() {
    return iterate((i) => this.#view()[i], this.#list && 1);
  }
  entries() {
    return iterate((i) => this.#view()[i], this.#list && 2);
  }
  static is(v) {
    return isObject(v) && #list in v;
  }
  static freeze(h) {
    h.#immutable = true;
    return h;
  }
  static read(h, name) {
    return h.#get(name);
  }
  static put(h, name, value) {
    h.#add(name, value);
  }
  static entriesOf(h) {
    return h.#list;
  }
}
const freeze = Headers.freeze, readHeader = Headers.read, putHeader = Headers.put, headerList = Headers.entriesOf;
delete Headers.is;
delete Headers.freeze;
delete Headers.read;
delete Headers.put;
delete Headers.entriesOf;
define(Headers.prototype, iterator, Headers.prototype.entries, false);
shape(Headers, "Headers");

// What a BodyInit is: { bytes } or { stream }, and its content type.
function extract(init) {
  const { blob, streams, url } = p.loaded;
  if (streams !== undefined && streams.isReadableStream(init)) {
    if (streams.isLocked(init) || streams.isDisturbed(init))
      throw new TypeError("the stream of the body is locked or was read already");
    return { __proto__: null, bytes: null, stream: init, type: null };
  }
  let bytes, type = null;
  if (blob !== undefined && blob.isBlob(init)) {
    bytes = p.uint8Copy(blob.blobBytes(init));
    type = blob.blobType(init) || null;
  } else if (blob !== undefined && blob.isFormData(init)) {
    const form = require("./multipart").serialize(init);
    bytes = form.bytes;
    type = form.type;
  } else if (url !== undefined && url.isURLSearchParams(init)) {
    bytes = host.utf8Encode(url.searchText(init));
    type = "application/x-www-form-urlencoded;charset=UTF-8";
  } else {
    bytes = p.uint8Copy(init);
    if (bytes === null) {
      bytes = host.utf8Encode(`${init}`);
      type = "text/plain;charset=UTF-8";
    }
  }
  return { __proto__: null, bytes, stream: null, type };
}

class Body {
  // bytes: the whole body, if it is known; stream: made when somebody asks for it
  #bytes = null; #stream = null; #used = false;
  static none = () => new Body();
  static from(source) {
    const b = new Body();
    b.#bytes = source.bytes;
    b.#stream = source.stream;
    return b;
  }
  get isNull() {
    return this.#bytes === null && this.#stream === null;
  }
  get stream() {
    if (this.isNull) return null;
    if (this.#stream === null) {
      const streams = require("./streams");
      this.#stream = streams.streamOf(this.#used ? new p.Uint8Array(0) : p.uint8Copy(this.#bytes));
      if (this.#used) this.#stream._disturbed = true;
    }
    return this.#stream;
  }
  get used() {
    return this.#stream === null ? this.#used : p.loaded.streams.isDisturbed(this.#stream);
  }
  get unusable() {
    return this.used || (this.#stream !== null && p.loaded.streams.isLocked(this.#stream));
  }
  // A promise of all the bytes; the body is used afterwards.
  take() {
    if (this.unusable) return promiseReject(new TypeError("the body was used already"));
    if (this.isNull) return promiseResolve(new p.Uint8Array(0));
    if (this.#stream !== null) return p.loaded.streams.readAll(this.#stream);
    this.#used = true;
    return promiseResolve(p.uint8Copy(this.#bytes));
  }
  // Hands the body over to another object (new Request(request)).
  move() {
    const b = new Body();
    b.#bytes = this.#bytes;
    b.#stream = this.#stream;
    this.#used = true;
    if (this.#stream !== null) {
      this.#bytes = new p.Uint8Array(0);
      this.#stream = null;
    }
    return b;
  }
  copy() {
    const b = new Body();
    if (this.#stream !== null) {
      const two = p.loaded.streams.tee(this.#stream);
      this.#stream = two[0];
      b.#stream = two[1];
    } else {
      b.#bytes = this.#bytes;
    }
    return b;
  }
  // For the host: the bytes if they are known and unread, else the stream, else null.
  parts() {
    if (this.isNull) return null;
    if (this.#stream !== null) return this.#stream;
    this.#used = true;
    return this.#bytes;
  }
}

function contentType(headers) {
  return readHeader(headers, "content-type");
}

const readers = {
  __proto__: null,
  text: (bytes) => utf8Text(bytes),
  json: (bytes) => p.jsonParse(utf8Text(bytes)),
  arrayBuffer: (bytes) => p.typedArrayBuffer(bytes),
  bytes: (bytes) => bytes,
  blob: (bytes, headers) => require("./blob").makeBlob(bytes, toLowerCase(contentType(headers) ?? "")),
  formData(bytes, headers) {
    const type = contentType(headers) ?? "";
    const essence = toLowerCase(type);
    if (p.startsWith(essence, "multipart/form-data")) {
      const form = require("./multipart").parse(bytes, type);
      if (form !== null) return form;
      throw new TypeError("the body is not valid multipart/form-data");
    }
    if (p.startsWith(essence, "application/x-www-form-urlencoded")) {
      const { FormData, formAppend } = require("./blob");
      const form = new FormData();
      const { parseUrlencodedString } = require("whatwg-url/lib/urlencoded");
      const entries = parseUrlencodedString(host.utf8Decode(bytes, 0));
      for (let i = 0; i < entries.length; i++) formAppend(form, entries[i][0], entries[i][1]);
      return form;
    }
    throw new TypeError(`the content type "${type}" has no form data`);
  },
};
function consume(body, headers, how) {
  return promiseThen(body.take(), (bytes) => readers[how](bytes, headers));
}
// Methods that are promises even when `this` is wrong.
function guarded(fn) {
  try {
    return fn();
  } catch (error) {
    return promiseReject(error);
  }
}

// What a request and a response have in common: the body as a whole. `read` is of the class, and refuses what is none.
function addReaders(type, read) {
  const methods = {
    __proto__: null,
    text() {
      return guarded(() => read(this, "text"));
    },
    json() {
      return guarded(() => read(this, "json"));
    },
    arrayBuffer() {
      return guarded(() => read(this, "arrayBuffer"));
    },
    bytes() {
      return guarded(() => read(this, "bytes"));
    },
    blob() {
      return guarded(() => read(this, "blob"));
    },
    formData() {
      return guarded(() => read(this, "formData"));
    },
  };
  for (const name in methods) define(type.prototype, name, methods[name]);
}

const upperMethods = { __proto__: null, DELETE: 1, GET: 1, HEAD: 1, OPTIONS: 1, POST: 1, PUT: 1 };
const forbiddenMethods = { __proto__: null, CONNECT: 1, TRACE: 1, TRACK: 1 };
const enums = {
  __proto__: null,
  redirect: ["follow", "error", "manual"],
  credentials: ["same-origin", "omit", "include"],
  mode: ["cors", "same-origin", "no-cors", "navigate"],
  cache: ["default", "no-store", "reload", "no-cache", "force-cache", "only-if-cached"],
  referrerPolicy: ["", "no-referrer", "no-referrer-when-downgrade", "same-origin", "origin", "strict-origin",
    "origin-when-cross-origin", "strict-origin-when-cross-origin", "unsafe-url"],
};
const enumNames = p.ownKeys(enums);

class Request {
  #method = "GET"; #url; #headers; #body = Body.none(); #signal; #options; #keepalive = false; #integrity = "";
  #duplex = "half";
  constructor(input, init = undefined) {
    if (arguments.length === 0) throw new TypeError("Request: an argument is needed");
    if (init !== undefined && init !== null && !isObject(init)) throw new TypeError("Request: init is not an object");
    const events = require("./events");
    const from = isObject(input) && #url in input ? input : null;
    let signal = null;
    this.#options = { __proto__: null };
    if (from !== null) {
      this.#url = from.#url;
      this.#method = from.#method;
      for (let i = 0; i < enumNames.length; i++) this.#options[enumNames[i]] = from.#options[enumNames[i]];
      this.#keepalive = from.#keepalive;
      this.#integrity = from.#integrity;
      signal = from.#signal;
    } else {
      const url = require("./url");
      const text = usv(input);
      this.#url = url.parseHref(text);
      if (this.#url === null) throw new TypeError(`Request: "${text}" is not a URL`);
      if (url.hasCredentials(this.#url)) throw new TypeError("Request: the URL has credentials in it");
      for (let i = 0; i < enumNames.length; i++) this.#options[enumNames[i]] = enums[enumNames[i]][0];
    }
    for (let i = 0; i < enumNames.length; i++) {
      const name = enumNames[i], v = init?.[name];
      if (v === undefined) continue;
      const text = `${v}`, allowed = enums[name];
      let found = false;
      for (let k = 0; k < allowed.length; k++) found ||= allowed[k] === text;
      if (!found || (name === "mode" && text === "navigate"))
        throw new TypeError(`Request: ${name} cannot be "${text}"`);
      this.#options[name] = text;
    }
    if (init?.integrity !== undefined) this.#integrity = `${init.integrity}`;
    if (init?.keepalive !== undefined) this.#keepalive = !!init.keepalive;
    if (init?.method !== undefined) {
      const method = `${init.method}`, upper = toUpperCase(method);
      if (!isToken(method) || forbiddenMethods[upper]) throw new TypeError(`Request: the method "${method}" is not allowed`);
      this.#method = upperMethods[upper] ? upper : method;
    }
    if (init?.signal !== undefined) {
      signal = init.signal;
      if (signal !== null && !events.isAbortSignal(signal)) throw new TypeError("Request: signal is not an AbortSignal");
    }
    this.#signal = signal === null ? events.newSignal() : follow(events, signal);
    this.#headers = init?.headers !== undefined ? new Headers(init.headers)
      : from !== null ? new Headers(from.#headers) : new Headers();
    const given = init?.body;
    const hasBody = given !== undefined && given !== null;
    if ((hasBody || (from !== null && !from.#body.isNull && given === undefined)) &&
        (this.#method === "GET" || this.#method === "HEAD"))
      throw new TypeError(`Request: a ${this.#method} request cannot have a body`);
    if (hasBody) {
      const source = extract(given);
      if (source.stream !== null && (init.duplex === undefined))
        throw new TypeError("Request: a stream as body needs duplex: \"half\"");
      this.#body = Body.from(source);
      if (source.type !== null && contentType(this.#headers) === null)
        putHeader(this.#headers, "content-type", source.type);
    } else if (from !== null && given === undefined && !from.#body.isNull) {
      if (from.#body.unusable) throw new TypeError("Request: the body was used already");
      this.#body = from.#body.move();
    }
  }
  get method() {
    return this.#method;
  }
  get url() {
    return this.#url;
  }
  get headers() {
    return this.#headers;
  }
  get destination() {
    return this.#url && "";
  }
  get referrer() {
    return this.#url && "about:client";
  }
  get referrerPolicy() {
    return this.#options.referrerPolicy;
  }
  get mode() {
    return this.#options.mode;
  }
  get credentials() {
    return this.#options.credentials;
  }
  get cache() {
    return this.#options.cache;
  }
  get redirect() {
    return this.#options.redirect;
  }
  get integrity() {
    return this.#integrity;
  }
  get keepalive() {
    return this.#keepalive;
  }
  get isReloadNavigation() {
    return !this.#url;
  }
  get isHistoryNavigation() {
    return !this.#url;
  }
  get signal() {
    return this.#signal;
  }
  get duplex() {
    return this.#duplex;
  }
  get body() {
    return this.#body.stream;
  }
  get bodyUsed() {
    return this.#body.used;
  }
  clone() {
    if (this.#body.unusable) throw new TypeError("Request.clone: the body was used already");
    const copy = new Request(this.#url, { __proto__: null, signal: this.#signal });
    copy.#method = this.#method;
    copy.#options = this.#options;
    copy.#keepalive = this.#keepalive;
    copy.#integrity = this.#integrity;
    copy.#headers = new Headers(this.#headers);
    copy.#body = this.#body.copy();
    return copy;
  }
  static read(r, how) {
    return consume(r.#body, r.#headers, how);
  }
  static parts(r) {
    return { __proto__: null, method: r.#method, url: r.#url, headers: entriesFor(r.#headers),
      body: r.#body.parts(), redirect: r.#options.redirect };
  }
  static signalOf(r) {
    return r.#signal;
  }
}
const requestParts = Request.parts, requestSignal = Request.signalOf;
addReaders(Request, Request.read);
delete Request.read;
delete Request.parts;
delete Request.signalOf;
shape(Request, "Request");

// A signal of its own that aborts when the other does.
function follow(events, source) {
  const signal = events.newSignal();
  const abort = () => events.abortSignal(signal, events.abortReason(source));
  if (events.isAborted(source)) abort();
  else events.onAbort(source, abort);
  return signal;
}

function entriesFor(headers) {
  const all = headerList(headers), out = list();
  for (let i = 0; i < all.length; i++) append(out, pair(all[i][0], all[i][1]));
  return out;
}

const nullStatus = { __proto__: null, 101: 1, 103: 1, 204: 1, 205: 1, 304: 1 };
const redirectStatus = { __proto__: null, 301: 1, 302: 1, 303: 1, 307: 1, 308: 1 };

function isReason(text) {
  for (let i = 0; i < text.length; i++) {
    const c = charCodeAt(text, i);
    if (c !== 9 && (c < 32 || c === 127 || c > 255)) return false;
  }
  return true;
}

class Response {
  #status = 200; #statusText = ""; #headers; #body = Body.none(); #type = "default"; #url = ""; #redirected = false;
  constructor(body = null, init = undefined) {
    if (init !== undefined && init !== null && !isObject(init)) throw new TypeError("Response: init is not an object");
    if (init?.status !== undefined) {
      const status = p.mathTrunc(+init.status) || 0;
      if (!(status >= 200 && status <= 599)) throw new RangeError("Response: the status must be from 200 to 599");
      this.#status = status;
    }
    if (init?.statusText !== undefined) {
      const text = `${init.statusText}`;
      if (!isReason(text)) throw new TypeError("Response: the statusText is not valid");
      this.#statusText = text;
    }
    this.#headers = new Headers(init?.headers);
    if (body !== null && body !== undefined) this.#give(extract(body));
  }
  #give(source) {
    if (nullStatus[this.#status]) throw new TypeError(`Response: status ${this.#status} cannot have a body`);
    this.#body = Body.from(source);
    if (source.type !== null && contentType(this.#headers) === null)
      putHeader(this.#headers, "content-type", source.type);
  }
  static error() {
    const r = new Response();
    r.#type = "error";
    r.#status = 0;
    freeze(r.#headers);
    return r;
  }
  static redirect(url, status = 302) {
    if (arguments.length === 0) throw new TypeError("Response.redirect: a URL is needed");
    const text = usv(url);
    const href = require("./url").parseHref(text);
    if (href === null) throw new TypeError(`Response.redirect: "${text}" is not a URL`);
    const code = p.mathTrunc(+status) || 0;
    if (!redirectStatus[code]) throw new RangeError(`Response.redirect: ${code} is not a redirect status`);
    const r = new Response();
    r.#status = code;
    putHeader(r.#headers, "location", href);
    freeze(r.#headers);
    return r;
  }
  static json(data, init = undefined) {
    if (arguments.length === 0) throw new TypeError("Response.json: a value is needed");
    const text = p.jsonStringify(data);
    if (text === undefined) throw new TypeError("Response.json: the value is not JSON serializable");
    const r = new Response(null, init);
    r.#give({ __proto__: null, bytes: host.utf8Encode(p.toWellFormed(text)), stream: null, type: "application/json" });
    return r;
  }
  get type() {
    return this.#type;
  }
  get url() {
    return this.#url;
  }
  get redirected() {
    return this.#redirected;
  }
  get status() {
    return this.#status;
  }
  get ok() {
    return this.#status >= 200 && this.#status <= 299;
  }
  get statusText() {
    return this.#statusText;
  }
  get headers() {
    return this.#headers;
  }
  get body() {
    return this.#body.stream;
  }
  get bodyUsed() {
    return this.#body.used;
  }
  clone() {
    if (this.#body.unusable) throw new TypeError("Response.clone: the body was used already");
    const copy = new Response();
    copy.#status = this.#status;
    copy.#statusText = this.#statusText;
    copy.#type = this.#type;
    copy.#url = this.#url;
    copy.#redirected = this.#redirected;
    copy.#headers = new Headers(this.#headers);
    copy.#body = this.#body.copy();
    return copy;
  }
  static read(r, how) {
    return consume(r.#body, r.#headers, how);
  }
  static is(v) {
    return isObject(v) && #status in v;
  }
  static parts(r) {
    if (r.#body.unusable) throw new TypeError("the body of the response was used already");
    return { __proto__: null, status: r.#status, statusText: r.#statusText, headers: entriesFor(r.#headers),
      body: r.#body.parts(), type: r.#type };
  }
  static make(parts) {
    const r = new Response();
    r.#status = parts.status;
    r.#statusText = parts.statusText ?? "";
    r.#url = parts.url ?? "";
    r.#redirected = !!parts.redirected;
    r.#type = "basic";
    fill(r.#headers, parts.headers);
    freeze(r.#headers);
    if (parts.body !== null && parts.body !== undefined) r.#body = Body.from(extract(parts.body));
    return r;
  }
}
const isResponse = Response.is, responseParts = Response.parts, makeResponse = Response.make;
addReaders(Response, Response.read);
delete Response.read;
delete Response.is;
delete Response.parts;
delete Response.make;
shape(Response, "Response");

function fill(headers, entries) {
  for (let i = 0; entries && i < entries.length; i++)
    putHeader(headers, headerName(entries[i][0]), headerValue(entries[i][1]));
}

function makeRequest(parts) {
  const init = { __proto__: null, method: parts.method };
  if (parts.body !== null && parts.body !== undefined) {
    init.body = parts.body;
    init.duplex = "half";
  }
  const headers = new Headers();
  fill(headers, parts.headers);
  init.headers = headers;
  return new Request(parts.url, init);
}

const functions = {
  fetch(input, init = undefined) {
    return new Promise((resolve, reject) => {
      const request = new Request(input, init);
      const events = require("./events"), signal = requestSignal(request);
      if (events.isAborted(signal)) throw events.abortReason(signal);
      if (core.outbound === null) throw new TypeError(NO_NETWORK);
      events.onAbort(signal, () => reject(events.abortReason(signal)));
      promiseThen(promiseResolve(core.outbound(requestParts(request), signal)),
        (parts) => resolve(makeResponse(parts)), reject);
    });
  },
  // cloudflare:sockets
  connect() {
    throw new TypeError(NO_NETWORK);
  },
};

module.exports = {
  Headers, Request, Response, fetch: functions.fetch, connect: functions.connect,
  isResponse, responseParts, makeRequest, makeResponse,
};
