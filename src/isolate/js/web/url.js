"use strict";
// whatwg-url, the standard's reference implementation, with the domain names done by ICU.
const p = require("./primordials");
const { URL, URLSearchParams } = require("whatwg-url");
const SearchParams = require("whatwg-url/lib/URLSearchParams");

// The bundler renames a class whose name is also a global's.
const named = (cls, name) => {
  p.defineProperty(cls, "name", { __proto__: null, value: name, configurable: true });
  p.setAdd(p.platformPrototypes, cls.prototype);
};
named(URL, "URL");
named(URLSearchParams, "URLSearchParams");
// whatwg-url 15.1.0's own URL.parse returns its inner object instead of a URL.
const statics = {
  parse(url, base = undefined) {
    if (arguments.length === 0) throw new p.TypeError("URL.parse: a URL is needed");
    try {
      return new URL(url, base);
    } catch (error) {
      if (canParse(url, base)) throw error;
      return null;
    }
  },
};
const canParse = URL.canParse;
p.define(URL, "parse", statics.parse);
const parse = statics.parse;
const href = p.getter(URL.prototype, "href");
const username = p.getter(URL.prototype, "username"), password = p.getter(URL.prototype, "password");

module.exports = {
  URL,
  URLSearchParams,
  isURLSearchParams: SearchParams.is,
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
