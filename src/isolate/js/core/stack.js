// Errors in the program's terms. The loader knows the modules and their lines: it writes "Name:
// message", then "    at fn (module:line:column)". Frames of the prelude are not the program's.
import { isError, isObject, isSafeInteger, regexpExec, stringSlice } from "./base.js";
import { dataProperty, inspect, quote } from "./inspect.js";

const formatError = loader.formatStack;

// A text property of an error that a program made. A getter is called, as formatError() does:
// DOMException has them, and so may any class.
function errorText(e, key) {
    try {
        const v = host.isProxy(e) ? undefined : e[key];
        return typeof v === "string" ? v : "";
    } catch {
        return "";
    }
}

const firstFrame = /\n    at (?:[^\n]* \()?([^\n]*?):(\d+)(?::(\d+))?\)?(?:\n|$)/;

const MAX_MESSAGE = 8192, MAX_STACK = 32768;
const clip = (text, max) => text.length > max ? `${stringSlice(text, 0, max)}… ${text.length - max} more characters` : text;

// What ERROR says about a value that was thrown.
function errorReport(e, kind) {
    const report = { __proto__: null, kind, name: "Error", message: "", stack: "" };
    if (isObject(e) && !host.isProxy(e) && isError(e)) {
        report.name = clip(errorText(e, "name") || "Error", 256);
        report.message = clip(errorText(e, "message"), MAX_MESSAGE);
        report.stack = clip(formatError(e), MAX_STACK);
        const place = regexpExec(firstFrame, report.stack);
        if (place !== null) {
            report.module = place[1];
            report.line = +place[2];
            if (place[3] !== undefined) report.column = +place[3];
        }
        if (report.message === "Out of memory" && report.name === "RangeError") {
            // One allocation too large for what is left: the engine throws before the limit stops it.
            report.kind = "limit";
            report.name = "LimitError";
            report.message = `memory limit of ${host.limit(ISOLATE_LIMIT_MEMORY_MIB)} MiB exceeded`;
            report.stack = `LimitError: ${report.message}${stringSlice(report.stack, "RangeError: Out of memory".length)}`;
        }
        const code = dataProperty(e, "code");
        if (typeof code === "string") report.code = clip(code, 256);
        else if (isSafeInteger(code)) report.code = code;
        if (report.name === "LimitError" && (kind === "error" || kind === "unhandled")) report.kind = "limit";
    } else {
        report.message = clip(typeof e === "string" ? e : inspect(e), MAX_MESSAGE);
        report.stack = `Uncaught ${typeof e === "string" ? quote(clip(e, MAX_MESSAGE)) : report.message}`;
        report.thrown = typeof e;
    }
    return report;
}

export { MAX_STACK, clip, errorReport, errorText, formatError };
