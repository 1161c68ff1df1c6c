"use strict";
const { TypeError, host } = require("./primordials");
const { fail } = require("./dom");

const methods = {
  atob(data) {
    if (arguments.length === 0) throw new TypeError("atob: an argument is needed");
    const bytes = host.atob(`${data}`);
    if (bytes === null) fail("InvalidCharacterError", "The string to be decoded is not correctly encoded.");
    return host.latin1Decode(bytes, 0);
  },
  btoa(data) {
    if (arguments.length === 0) throw new TypeError("btoa: an argument is needed");
    const text = host.btoa(`${data}`);
    if (text === null) fail("InvalidCharacterError", "The string contains characters outside of the Latin1 range.");
    return text;
  },
};

module.exports = methods;
