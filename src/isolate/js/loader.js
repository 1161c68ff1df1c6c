// A loader for programs of one script: what the build embeds where the module loader of src/compile
// is not there. Same interface: link(program, evaluate, builtins) and formatStack(error).
(function () {
"use strict";
const { apply } = Reflect, { exec } = RegExp.prototype, { indexOf, slice } = String.prototype;
const names = { __proto__: null };
const frame = /^(?:(.*?)@)?(.*?):(\d+):(\d+)$/;

// The script's value is a function of the built-in modules that returns (a promise of) its exports.
function link(program, evaluate, builtins) {
    const main = program.modules[program.main], start = evaluate(main.code, main.name);
    names[main.name] = true;
    let exports = null;
    return {
        __proto__: null,
        async evaluate() { exports = await start(builtins); },
        get(name) { return exports[name]; },
    };
}

function frames(stack) {
    let out = "";
    for (let from = 0, n = 0; from < stack.length && n < 32; n++) {
        let to = apply(indexOf, stack, ["\n", from]);
        if (to < 0) to = stack.length;
        const m = apply(exec, frame, [apply(slice, stack, [from, to])]);
        from = to + 1;
        if (m === null || !names[m[2]]) continue;
        const at = `${m[2]}:${m[3]}:${m[4]}`;
        out += m[1] ? `\n    at ${m[1]} (${at})` : `\n    at ${at}`;
    }
    return out;
}

function formatStack(error) {
    try {
        if (typeof error !== "object" || error === null) return `${typeof error === "symbol" ? "symbol" : error}`;
        const { name, message, stack } = error;
        return `${name || "Error"}${message ? `: ${message}` : ""}${typeof stack === "string" ? frames(stack) : ""}`;
    } catch { return "Error"; }
}

return { __proto__: null, link, formatStack };
})()
