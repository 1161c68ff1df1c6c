// A loader for programs of plain scripts: what the build embeds where the module loader of
// src/compile is not there. Same interface: link(program, evaluate, builtins), formatStack(error).
(function () {
"use strict";
const { apply } = Reflect, { exec } = RegExp.prototype, { indexOf, slice } = String.prototype;
const names = { __proto__: null };
const frame = /^(?:(.*?)@)?(.*?):(\d+):(\d+)$/;

// A script's value is a function of the built-in modules and of the exports of the scripts before it
// that returns (a promise of) its exports. The last one is the main one.
function link(program, evaluate, builtins) {
    const { modules } = program, starts = { __proto__: null };
    for (let i = 0; i < modules.length; i++) {
        names[modules[i].name] = true;
        starts[i] = evaluate(modules[i].code, modules[i].name);
    }
    const others = { __proto__: null };
    let exports = null;
    return {
        __proto__: null,
        async evaluate() {
            for (let i = 0; i < modules.length; i++)
                others[modules[i].name] = exports = await starts[i](builtins, others);
        },
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
