"use strict";
// CompressionStream, DecompressionStream, TextEncoderStream, TextDecoderStream.
const p = require("./primordials");
const { Promise, TypeError, Uint8Array, charCodeAt, host, part, shape, slice, typedArrayLength } = p;
const { ReadableStream, TransformStream, WritableStream } = require("./streams");
const { TextDecoder } = require("./encoding");

const formats = { __proto__: null, gzip: 0, deflate: 1, "deflate-raw": 2 };
const PIECE = 65536;

// A readable and a writable around one zlib stream. Nothing is inflated before somebody reads, one
// piece at a time: a write is done when its input is used up.
function squeeze(compress, format) {
  const z = host.zlibOpen(compress, format);
  let wanted = null, input = null, controller = null, failed = null, ended = false;
  const spoil = (error) => {
    failed = error;
    controller.error(error);
    throw error;
  };
  const step = () => {
    const piece = host.zlibPull(z);
    if (piece === false) spoil(new TypeError("the compressed data is not valid"));
    if (piece !== null) controller.enqueue(piece);
    return piece !== null;
  };
  // Resolves when the readable side wants more.
  const demand = () => (controller.desiredSize > 0 ? undefined : new Promise((resolve) => {
    wanted = resolve;
  }));
  const readable = new ReadableStream({
    __proto__: null,
    start(c) {
      controller = c;
    },
    pull() {
      if (wanted !== null) {
        const w = wanted;
        wanted = null;
        w();
      }
    },
    cancel(reason) {
      failed = reason ?? new TypeError("the readable side was cancelled");
      if (wanted !== null) wanted();
    },
  }, { __proto__: null, highWaterMark: 1 });
  const drain = async () => {
    for (;;) {
      await demand();
      if (failed !== null) throw failed;
      if (!step()) return;
    }
  };
  const writable = new WritableStream({
    __proto__: null,
    async write(chunk) {
      input = p.uint8Copy(chunk);
      if (input === null) spoil(new TypeError("a chunk is not an ArrayBuffer or a view"));
      const n = typedArrayLength(input);
      for (let at = 0; at < n; at += PIECE) {
        host.zlibPush(z, p.uint8Copy(part(input, at, p.mathMin(n, at + PIECE))), 0);
        await drain();
      }
    },
    async close() {
      host.zlibPush(z, new Uint8Array(0), 1);
      await drain();
      ended = true;
      controller.close();
    },
    abort(reason) {
      if (!ended) controller.error(reason);
    },
  });
  return { __proto__: null, readable, writable };
}

function formatOf(format, name) {
  const f = formats[`${format}`];
  if (f === undefined) throw new TypeError(`${name}: the format "${format}" is not supported`);
  return f;
}

class CompressionStream {
  #pair;
  constructor(format) {
    this.#pair = squeeze(1, formatOf(format, "CompressionStream"));
  }
  get readable() {
    return this.#pair.readable;
  }
  get writable() {
    return this.#pair.writable;
  }
}
shape(CompressionStream, "CompressionStream");

class DecompressionStream {
  #pair;
  constructor(format) {
    this.#pair = squeeze(0, formatOf(format, "DecompressionStream"));
  }
  get readable() {
    return this.#pair.readable;
  }
  get writable() {
    return this.#pair.writable;
  }
}
shape(DecompressionStream, "DecompressionStream");

class TextEncoderStream {
  #stream;
  constructor() {
    // A high surrogate at the end of a chunk waits for its other half.
    let high = "";
    this.#stream = new TransformStream({
      __proto__: null,
      transform(chunk, controller) {
        let text = high + `${chunk}`;
        high = "";
        const last = text.length === 0 ? 0 : charCodeAt(text, text.length - 1);
        if (last >= 0xd800 && last <= 0xdbff) {
          high = text[text.length - 1];
          text = slice(text, 0, text.length - 1);
        }
        if (text !== "") controller.enqueue(host.utf8Encode(text));
      },
      flush(controller) {
        if (high !== "") controller.enqueue(host.utf8Encode(high));
      },
    });
  }
  get encoding() {
    this.#stream;
    return "utf-8";
  }
  get readable() {
    return this.#stream.readable;
  }
  get writable() {
    return this.#stream.writable;
  }
}
shape(TextEncoderStream, "TextEncoderStream");

const decode = p.uncurry(TextDecoder.prototype.decode);
const more = { __proto__: null, stream: true };

class TextDecoderStream {
  #stream; #decoder;
  constructor(label = "utf-8", options = undefined) {
    const decoder = this.#decoder = new TextDecoder(label, options);
    this.#stream = new TransformStream({
      __proto__: null,
      transform(chunk, controller) {
        if (p.viewOf(chunk) === null) throw new TypeError("a chunk is not an ArrayBuffer or a view");
        const text = decode(decoder, chunk, more);
        if (text !== "") controller.enqueue(text);
      },
      flush(controller) {
        const text = decode(decoder);
        if (text !== "") controller.enqueue(text);
      },
    });
  }
  get encoding() {
    return this.#decoder.encoding;
  }
  get fatal() {
    return this.#decoder.fatal;
  }
  get ignoreBOM() {
    return this.#decoder.ignoreBOM;
  }
  get readable() {
    return this.#stream.readable;
  }
  get writable() {
    return this.#stream.writable;
  }
}
shape(TextDecoderStream, "TextDecoderStream");

module.exports = { CompressionStream, DecompressionStream, TextDecoderStream, TextEncoderStream };
