"use strict";
// What whatwg-url takes from @exodus/bytes: percent-encoding a query after encoding it. Only UTF-8 can
// come here, because the URL constructor has no encoding to choose.
const { host, indexOf, numberToString, fromCharCode, toUpperCase, typedArrayLength } = require("../primordials");

module.exports.percentEncodeAfterEncoding = (encoding, input, percentEncodeSet) => {
  const bytes = host.utf8Encode(input);
  let out = "";
  for (let i = 0; i < typedArrayLength(bytes); i++) {
    const c = bytes[i], char = fromCharCode(c);
    if (c > 0x1f && c < 0x7f && indexOf(percentEncodeSet, char) < 0) out += char;
    else out += (c < 16 ? "%0" : "%") + toUpperCase(numberToString(c, 16));
  }
  return out;
};
