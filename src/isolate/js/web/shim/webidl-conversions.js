"use strict";
// The two conversions that whatwg-url uses.
const { TypeError, toWellFormed } = require("../primordials");

module.exports = {
  __proto__: null,
  any: (v) => v,
  USVString(v, { context = "The value" } = {}) {
    if (typeof v === "symbol") throw new TypeError(`${context} is a symbol, which cannot be converted to a string.`);
    return toWellFormed(`${v}`);
  },
};
