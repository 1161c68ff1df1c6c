"use strict";
// web-streams-polyfill, which is the standard's reference algorithm. It is a large package written with
// live built-ins; what a host relies on (bodies given as strings and bytes) does not pass through it.
const p = require("./primordials");
const streams = require("web-streams-polyfill");

const names = p.ownKeys(streams);
for (let i = 0; i < names.length; i++) {
  const v = streams[names[i]];
  if (typeof v !== "function") continue;
  p.defineProperty(v, "name", { __proto__: null, value: names[i], configurable: true });
  p.setAdd(p.platformPrototypes, v.prototype);
}
const { ReadableStream, ReadableStreamDefaultReader } = streams;
const getReader = p.uncurry(ReadableStream.prototype.getReader);
const read = p.uncurry(ReadableStreamDefaultReader.prototype.read);

module.exports = streams;
module.exports.isReadableStream = (v) => p.isObject(v) && p.hasOwn(v, "_readableStreamController");
module.exports.isLocked = p.getter(ReadableStream.prototype, "locked");
module.exports.isDisturbed = (stream) => stream._disturbed;
module.exports.tee = p.uncurry(ReadableStream.prototype.tee);
module.exports.cancel = p.uncurry(ReadableStream.prototype.cancel);

// A byte stream of bytes that are already there.
module.exports.streamOf = (bytes) => new ReadableStream({
  __proto__: null,
  type: "bytes",
  start(controller) {
    if (p.typedArrayLength(bytes) > 0) controller.enqueue(bytes);
    controller.close();
  },
});

// A byte stream whose pieces come from next(): a promise of a Uint8Array, or of null at the end.
module.exports.streamFrom = (next, cancel) => new ReadableStream({
  __proto__: null,
  type: "bytes",
  pull: (controller) => p.promiseThen(next(), (bytes) => {
    if (bytes !== null) return controller.enqueue(bytes);
    controller.close();
    const asked = controller.byobRequest;
    if (asked !== null) asked.respond(0);
  }),
  cancel,
});

// Reads a stream of Uint8Arrays to its end: a promise of one Uint8Array.
module.exports.readAll = (stream) => {
  const reader = getReader(stream);
  const chunks = p.list();
  let total = 0;
  return new p.Promise((resolve, reject) => {
    const step = (result) => {
      if (result.done) {
        const all = new p.Uint8Array(total);
        for (let i = 0, at = 0; i < chunks.length; at += p.typedArrayLength(chunks[i++]))
          p.typedArraySet(all, chunks[i], at);
        return resolve(all);
      }
      if (p.typedArrayName(result.value) !== "Uint8Array")
        return reject(new p.TypeError("a chunk of the body is not a Uint8Array"));
      p.append(chunks, result.value);
      total += p.typedArrayLength(result.value);
      next();
    };
    const next = () => p.promiseThen(read(reader), step, reject);
    next();
  });
};

p.loaded.streams = module.exports;
