"use strict";
const p = require("./primordials");
const { TypeError, core, shape } = p;
const { report } = require("./report");

const key = {};
class Navigator {
  #brand;
  constructor(k = undefined) {
    if (k !== key) throw new TypeError("Illegal constructor");
  }
  get userAgent() {
    this.#brand;
    return core.userAgent;
  }
  get hardwareConcurrency() {
    this.#brand;
    return 1;
  }
  get language() {
    this.#brand;
    return "en-US";
  }
}
shape(Navigator, "Navigator");

const methods = {
  reportError(error) {
    if (arguments.length === 0) throw new TypeError("reportError: an argument is needed");
    report(error);
  },
};

module.exports = { Navigator, navigator: new Navigator(key), reportError: methods.reportError };
