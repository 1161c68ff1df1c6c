// Errors in the program's terms: "Name: message", then "    at fn (module:line:column)". The engine
// writes "fn@url:line:column"; frames of the prelude and of the engine itself are left out. A program
// brings its own way to name modules and lines (its loader knows), see useStack().

let programStack = null;

const frameLine = /^(?:(.*?)@)?(.*?):(\d+):(\d+)$/;

// [{fn, module, line, column}] of an engine stack.
function parseStack(stack) {
    const frames = list();
    if (typeof stack !== "string") return frames;
    const lines = splitLines(stack);
    for (let i = 0; i < lines.length && frames.length < 50; i++) {
        const m = regexpExec(frameLine, lines[i]);
        if (m === null || stringStartsWith(m[2], "cay:")) continue;
        push(frames, { __proto__: null, fn: m[1] ?? "", module: m[2], line: +m[3], column: +m[4] });
    }
    return frames;
}

function formatFrames(stack) {
    if (programStack !== null) {
        try {
            const text = programStack(stack);
            if (typeof text === "string") return text;
        } catch { }
    }
    const frames = parseStack(stack);
    let out = "";
    for (let i = 0; i < frames.length; i++) {
        const f = frames[i], place = `${f.module}:${f.line}:${f.column}`;
        out += f.fn === "" ? `\n    at ${place}` : `\n    at ${f.fn} (${place})`;
    }
    return out;
}

// A property of an error that a program made, without trusting it.
function errorText(e, key) {
    try {
        if (host.isProxy(e)) return "";
        for (let p = e, i = 0; p !== null && i < 20; p = getPrototypeOf(p), i++) {
            if (host.isProxy(p)) return "";
            const d = getOwnPropertyDescriptor(p, key);
            if (d === undefined) continue;
            return typeof d.value === "string" ? d.value : "";
        }
    } catch { }
    return "";
}

const errorHead = (e) => {
    const name = errorText(e, "name") || "Error", message = errorText(e, "message");
    return message === "" ? name : `${name}: ${message}`;
};
const formatError = (e) => errorHead(e) + formatFrames(errorText(e, "stack"));

// What ERROR says about a value that was thrown.
function errorReport(e, kind) {
    const report = { __proto__: null, kind, name: "Error", message: "", stack: "" };
    if (isObject(e) && !host.isProxy(e) && isError(e)) {
        report.name = errorText(e, "name") || "Error";
        report.message = errorText(e, "message");
        const stack = errorText(e, "stack"), frames = formatFrames(stack);
        report.stack = errorHead(e) + frames;
        const place = regexpExec(/^\n    at (?:.*? \()?(.*?):(\d+):(\d+)\)?(?:\n|$)/, frames);
        if (place !== null) { report.module = place[1]; report.line = +place[2]; report.column = +place[3]; }
        const code = dataProperty(e, "code");
        if (typeof code === "string") report.code = code;
        if (hasOwn(e, "cause")) report.stack += `\n  [cause]: ${inspect(dataProperty(e, "cause"))}`;
    } else {
        report.message = typeof e === "string" ? e : inspect(e);
        report.stack = `Uncaught ${typeof e === "string" ? quote(e) : report.message}`;
        report.thrown = typeof e;
    }
    return report;
}
