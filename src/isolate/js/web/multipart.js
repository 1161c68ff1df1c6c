"use strict";
// multipart/form-data, both ways.
const p = require("./primordials");
const { append, charCodeAt, host, indexOf, list, part, slice, toLowerCase, typedArrayLength } = p;
const { blobBytes, blobType, fileName, FormData, formAppend, formEntries, isBlob, join, makeFile } = require("./blob");
const { utf8Text } = require("./encoding");

// Name and filename in a Content-Disposition header, as browsers escape them.
function escape(text, isName) {
  let out = "";
  for (let i = 0; i < text.length; i++) {
    const c = charCodeAt(text, i);
    if (c === 13 || c === 10) {
      // A name's line breaks are CRLF first; a filename's stay what they are.
      if (isName) {
        out += "%0D%0A";
        if (c === 13 && charCodeAt(text, i + 1) === 10) i++;
      } else {
        out += c === 13 ? "%0D" : "%0A";
      }
    } else {
      out += c === 34 ? "%22" : text[i];
    }
  }
  return out;
}

function crlf(text) {
  let out = "";
  for (let i = 0; i < text.length; i++) {
    const c = charCodeAt(text, i);
    if (c !== 13 && c !== 10) {
      out += text[i];
      continue;
    }
    out += "\r\n";
    if (c === 13 && charCodeAt(text, i + 1) === 10) i++;
  }
  return out;
}

function serialize(form) {
  const random = host.random(16);
  let boundary = "----formdata-cay-";
  for (let i = 0; i < 16; i++) boundary += slice(p.numberToString(random[i] + 256, 16), 1);
  const entries = formEntries(form), chunks = list();
  for (let i = 0; i < entries.length; i++) {
    const name = entries[i][0], value = entries[i][1];
    let head = `--${boundary}\r\nContent-Disposition: form-data; name="${escape(name, true)}"`;
    if (isBlob(value)) {
      head += `; filename="${escape(fileName(value), false)}"\r\n` +
        `Content-Type: ${blobType(value) || "application/octet-stream"}\r\n\r\n`;
      append(chunks, host.utf8Encode(head));
      append(chunks, blobBytes(value));
      append(chunks, host.utf8Encode("\r\n"));
    } else {
      append(chunks, host.utf8Encode(`${head}\r\n\r\n${crlf(value)}\r\n`));
    }
  }
  append(chunks, host.utf8Encode(`--${boundary}--\r\n`));
  return { __proto__: null, bytes: join(chunks), type: `multipart/form-data; boundary=${boundary}` };
}

// Where needle is in bytes at or after from, or -1.
function find(bytes, needle, from) {
  const n = typedArrayLength(bytes), m = typedArrayLength(needle);
  for (let i = from; i + m <= n; i++) {
    let k = 0;
    while (k < m && bytes[i + k] === needle[k]) k++;
    if (k === m) return i;
  }
  return -1;
}

function parameter(text, name) {
  const lower = toLowerCase(text);
  for (let at = 0; ;) {
    at = indexOf(lower, `${name}=`, at);
    if (at < 0) return null;
    const before = at === 0 ? ";" : lower[at - 1];
    at += name.length + 1;
    if (before !== ";" && before !== " " && before !== "\t") continue;
    if (text[at] === '"') {
      const end = indexOf(text, '"', at + 1);
      return end < 0 ? null : slice(text, at + 1, end);
    }
    let end = indexOf(text, ";", at);
    if (end < 0) end = text.length;
    while (end > at && (text[end - 1] === " " || text[end - 1] === "\t")) end--;
    return slice(text, at, end);
  }
}

function unescape(text) {
  let out = "";
  for (let i = 0; i < text.length; i++) {
    const three = slice(text, i, i + 3);
    const c = three === "%22" ? '"' : three === "%0D" ? "\r" : three === "%0A" ? "\n" : null;
    out += c ?? text[i];
    if (c !== null) i += 2;
  }
  return out;
}

// A FormData, or null if the bytes are not the multipart body that the type announces.
function parse(bytes, type) {
  const boundary = parameter(type, "boundary");
  if (boundary === null || boundary.length === 0 || boundary.length > 70) return null;
  const mark = host.utf8Encode(`--${boundary}`), next = host.utf8Encode(`\r\n--${boundary}`);
  const blank = host.utf8Encode("\r\n\r\n");
  const size = typedArrayLength(bytes);
  const form = new FormData();
  let at = find(bytes, mark, 0);
  if (at !== 0) return null;
  at += typedArrayLength(mark);
  for (;;) {
    if (bytes[at] === 45 && bytes[at + 1] === 45) return form;
    if (bytes[at] !== 13 || bytes[at + 1] !== 10) return null;
    const headEnd = find(bytes, blank, at);
    if (headEnd < 0) return null;
    const bodyStart = headEnd + 4, bodyEnd = find(bytes, next, headEnd + 2);
    if (bodyEnd < 0 || bodyEnd > size) return null;
    const head = utf8Text(p.uint8Copy(part(bytes, at + 2, headEnd)));
    let name = null, filename = null, contentType = "";
    for (let from = 0; from < head.length;) {
      let end = indexOf(head, "\r\n", from);
      if (end < 0) end = head.length;
      const line = slice(head, from, end);
      const colon = indexOf(line, ":");
      if (colon < 0) return null;
      const key = toLowerCase(slice(line, 0, colon));
      let value = slice(line, colon + 1);
      while (value[0] === " " || value[0] === "\t") value = slice(value, 1);
      if (key === "content-disposition") {
        name = parameter(value, "name");
        filename = parameter(value, "filename");
      } else if (key === "content-type") {
        contentType = value;
      }
      from = end + 2;
    }
    if (name === null) return null;
    const body = p.uint8Copy(bodyEnd < bodyStart ? part(bytes, 0, 0) : part(bytes, bodyStart, bodyEnd));
    if (filename === null) formAppend(form, unescape(name), utf8Text(body));
    else formAppend(form, unescape(name), makeFile(body, unescape(filename), contentType || "text/plain"));
    at = bodyEnd + typedArrayLength(next);
  }
}

module.exports = { serialize, parse };
