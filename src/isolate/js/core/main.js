// What the host calls. The order of the imports is the order in which the parts begin: console and timers put their
// globals where the web globals look for them.
import { define, globals } from "./base.js";
import "./inspect.js";
import { clearConsole } from "./console.js";
import { arm, clearTimers, seed, tick } from "./timers.js";
import { clearBindings, gone, reply, settleAsked as settle } from "./bindings.js";
import { cancel, clearHttp, input, room } from "./http.js";
import { call, clearCalls, rejected, start, stuck } from "./entry.js";

// After a warm-up.
function clear() {
    clearTimers();
    clearBindings();
    clearCalls();
    clearConsole();
    clearHttp();
    arm();
}

if (host.probe !== undefined) define(globals, "probe", host.probe); // the test build

// The value of the function around the bundle (build.mjs).
prelude = { __proto__: null, start, call, room, input, cancel, reply, settle, gone, tick, stuck, seed, clear, rejected };
