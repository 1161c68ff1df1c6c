"use strict";
const p = require("./primordials");
const { URLPattern } = require("urlpattern-polyfill/urlpattern");

p.defineProperty(URLPattern, "name", { __proto__: null, value: "URLPattern", configurable: true });
p.setAdd(p.platformPrototypes, URLPattern.prototype);

module.exports = { URLPattern };
