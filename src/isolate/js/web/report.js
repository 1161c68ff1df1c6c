"use strict";
const p = require("./primordials");

// What a listener or reportError() throws at nobody: the core's business, or the console's.
module.exports.report = (error) => {
  if (p.core.reportError !== null) return void p.core.reportError(error);
  const console = p.globalObject.console;
  if (p.isObject(console) && typeof console.error === "function") console.error("Uncaught", error);
};
