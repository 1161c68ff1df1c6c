"use strict";
// whatwg-url's lib/encoding.js, native and without the two globals that it would use.
const { host, uint8Copy } = require("../primordials");

module.exports = {
  utf8Encode: (string) => host.utf8Encode(string),
  utf8DecodeWithoutBOM: (bytes) => host.utf8Decode(uint8Copy(bytes), 0),
};
