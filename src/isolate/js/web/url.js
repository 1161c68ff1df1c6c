"use strict";
// whatwg-url, the standard's reference implementation, with the domain names done by ICU.
const p = require("./primordials");
const wrapper = require("whatwg-url/webidl2js-wrapper");

const made = { Array: p.Array, Object: p.Object, Promise: p.Promise, String: p.String, TypeError: p.TypeError };
wrapper.URL.install(made, ["Worker"]);
wrapper.URLSearchParams.install(made, ["Worker"]);
const { URL, URLSearchParams } = made;

// The bundler renames a class whose name is also a global's.
const named = (cls, name) => {
  p.defineProperty(cls, "name", { __proto__: null, value: name, configurable: true });
  p.setAdd(p.platformPrototypes, cls.prototype);
};
named(URL, "URL");
named(URLSearchParams, "URLSearchParams");
const parse = URL.parse;
const href = p.getter(URL.prototype, "href");
const username = p.getter(URL.prototype, "username"), password = p.getter(URL.prototype, "password");

module.exports = {
  URL,
  URLSearchParams,
  isURLSearchParams: wrapper.URLSearchParams.is,
  searchText: p.uncurry(URLSearchParams.prototype.toString),
  // The serialised URL, or null if the text is not one; fetch refuses one with credentials.
  parseHref(text) {
    const url = parse(text);
    return url === null ? null : href(url);
  },
  hasCredentials(text) {
    const url = parse(text);
    return url !== null && (username(url) !== "" || password(url) !== "");
  },
};
p.loaded.url = module.exports;
