"use strict";
// whatwg-url's domain names, by ICU instead of tr46's 200 KB of tables. whatwg-url never asks for the
// strict form when it parses.
const { host } = require("../primordials");

module.exports.toASCII = (domain) => host.domainToAscii(domain);
