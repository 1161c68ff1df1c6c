// In a fresh context after the loader: runs one compiled program and prints what it prints, then how it ended.
var __loader = evalScript(readFile(__loaderPath), "cay:loader");
globalThis.console = { log: (...a) => print(a.map((x) => (typeof x === "string" ? x : JSON.stringify(x))).join(" ")) };
