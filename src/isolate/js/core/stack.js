// Errors in the program's terms. The loader knows the modules and their lines: it writes "Name:
// message", then "    at fn (module:line:column)". Frames of the prelude are not the program's.

const formatError = loader.formatStack;

// A property of an error that a program made, without calling anything of the program.
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

const firstFrame = /\n    at (?:[^\n]* \()?([^\n]*?):(\d+)(?::(\d+))?\)?(?:\n|$)/;

// What ERROR says about a value that was thrown.
function errorReport(e, kind) {
    const report = { __proto__: null, kind, name: "Error", message: "", stack: "" };
    if (isObject(e) && !host.isProxy(e) && isError(e)) {
        report.name = errorText(e, "name") || "Error";
        report.message = errorText(e, "message");
        report.stack = formatError(e);
        const place = regexpExec(firstFrame, report.stack);
        if (place !== null) {
            report.module = place[1];
            report.line = +place[2];
            if (place[3] !== undefined) report.column = +place[3];
        }
        const code = dataProperty(e, "code");
        if (typeof code === "string") report.code = code;
    } else {
        report.message = typeof e === "string" ? e : inspect(e);
        report.stack = `Uncaught ${typeof e === "string" ? quote(e) : report.message}`;
        report.thrown = typeof e;
    }
    return report;
}
