// console: every method ends in one line of text for the tail. Nothing here throws at the program.
import {
    E, MapCtor, N, bigintToString, current, define, globals, hasOwn, isArray, isMap, isObject, isSet, isTyped,
    list, mapDelete, mapForEach, mapGet, mapHas, mapSet, mathMax, mathMin, numberToFixed, objectIs,
    objectKeys, push, setForEach, splitLines, stringIndexOf, stringPadEnd, stringRepeat, stringSlice,
    stringWellFormed, toStringTag, typedLength,
} from "./base.js";
import { dataProperty, inspect, quote } from "./inspect.js";
import { formatError } from "./stack.js";

const LEVEL = {
    __proto__: null, debug: ISOLATE_LOG_DEBUG, log: ISOLATE_LOG_LOG, info: ISOLATE_LOG_INFO, warn: ISOLATE_LOG_WARN,
    error: ISOLATE_LOG_ERROR,
};
let counts = new MapCtor(), watches = new MapCtor();

const shown = (v) => typeof v === "string" ? v : inspect(v);

function joined(args) {
    let from = 0, text = "";
    if (args.length > 1 && typeof args[0] === "string" && stringIndexOf(args[0], "%") >= 0) {
        const f = formatted(args);
        text = f.text;
        from = f.used;
    }
    for (let i = from; i < args.length; i++) text += (i > 0 ? " " : "") + shown(args[i]);
    return text;
}

const numeric = (v, whole) => {
    if (typeof v === "bigint") return `${bigintToString(v)}n`;
    if (isObject(v) || typeof v === "symbol") return "NaN";
    const n = whole ? parseWhole(v) : N(v);
    return objectIs(n, -0) ? "-0" : `${n}`;
};
const parseWhole = parseInt, parseReal = parseFloat;
const directives = {
    __proto__: null,
    s: shown,
    d: (v) => numeric(v, false),
    i: (v) => numeric(v, true),
    f: (v) => isObject(v) || typeof v === "symbol" ? "NaN" : `${parseReal(v)}`,
    j: (v) => inspect(v),
    o: (v) => inspect(v),
    O: (v) => inspect(v),
    c: () => "", // a style
};

// The first argument with its directives replaced (%s %d %i %f %j %o %O %c, %% for one percent
// sign), and how many arguments that took. A directive without an argument stays as it is.
function formatted(args) {
    const format = args[0];
    let text = "", from = 0, used = 1;
    for (let at; (at = stringIndexOf(format, "%", from)) >= 0 && at + 1 < format.length;) {
        const letter = format[at + 1], directive = directives[letter];
        text += stringSlice(format, from, at);
        from = at + 2;
        if (letter === "%") text += "%";
        else if (directive !== undefined && used < args.length) text += directive(args[used++]);
        else { text += "%"; from = at + 1; }
    }
    return { __proto__: null, text: text + stringSlice(format, from), used };
}

// A line longer than the budget goes over in pieces: its bytes are counted, not kept.
function write(level, text) {
    if (current === null || current.muted) return;
    text = stringWellFormed(text);
    if (current.indent !== "") text = indented(text, current.indent);
    const max = mathMax(host.limit(ISOLATE_LIMIT_OUTPUT_BYTES), 65536);
    for (let i = 0; i === 0 || i < text.length; i += max)
        host.log(level, text.length <= max ? text : stringSlice(text, i, i + max));
}

function indented(text, indent) {
    const lines = splitLines(text);
    let out = "";
    for (let i = 0; i < lines.length; i++) out += (i > 0 ? "\n" : "") + indent + lines[i];
    return out;
}

const label = (v) => v === undefined ? "default" : typeof v === "string" ? v : inspect(v);
const elapsed = (from) => {
    const ms = host.now() - from;
    return ms >= 1000 ? `${numberToFixed(ms / 1000, 3)}s` : `${numberToFixed(ms, 3)}ms`;
};

const MAX_CELL = 200;
const cell = (text) => text.length > MAX_CELL ? stringSlice(text, 0, MAX_CELL) + "…" : text;

// The rows of console.table: what Object.entries would see, without calling getters.
function tableText(data, columns) {
    if (!isObject(data) || host.isProxy(data)) return inspect(data);
    const rows = list(), names = list(), known = new MapCtor();
    let plain = false;
    const addRow = (index, v) => {
        if (rows.length >= 1000) return;
        const cells = new MapCtor();
        if (isObject(v) && typeof v !== "function" && !host.isProxy(v)) {
            const keys = objectKeys(v);
            for (let i = 0; i < keys.length && i < 50; i++) {
                if (!mapHas(known, keys[i])) {
                    if (names.length >= 100) continue;
                    mapSet(known, keys[i], true);
                    push(names, keys[i]);
                }
                mapSet(cells, keys[i], cell(inspect(dataProperty(v, keys[i]))));
            }
        } else { plain = true; mapSet(cells, "Values", cell(typeof v === "string" ? quote(v) : inspect(v))); }
        push(rows, { __proto__: null, index: cell(index), cells });
    };
    if (isArray(data) || isTyped(data)) {
        const n = mathMin(isArray(data) ? data.length : typedLength(data), 1000);
        for (let i = 0; i < n; i++) if (hasOwn(data, i)) addRow(`${i}`, dataProperty(data, i));
    } else if (isMap(data)) mapForEach(data, (v, k) => addRow(typeof k === "string" ? k : inspect(k), v));
    else if (isSet(data)) { let i = 0; setForEach(data, (v) => addRow(`${i++}`, v)); }
    else { const keys = objectKeys(data); for (let i = 0; i < keys.length; i++) addRow(keys[i], dataProperty(data, keys[i])); }
    let heads = list();
    if (isArray(columns)) for (let i = 0; i < columns.length; i++) push(heads, `${label(columns[i])}`);
    else { heads = names; if (plain) push(heads, "Values"); }
    const width = list();
    push(width, 7);
    for (let c = 0; c < heads.length; c++) push(width, cell(heads[c]).length);
    for (let r = 0; r < rows.length; r++) {
        width[0] = mathMax(width[0], rows[r].index.length);
        for (let c = 0; c < heads.length; c++) width[c + 1] = mathMax(width[c + 1], (mapGet(rows[r].cells, heads[c]) ?? "").length);
    }
    const line = (first, text) => {
        let out = `│ ${stringPadEnd(first, width[0])} │`;
        for (let c = 0; c < heads.length; c++) out += ` ${stringPadEnd(text(c), width[c + 1])} │`;
        return out;
    };
    const rule = (l, m, r) => {
        let out = l;
        for (let c = 0; c < width.length; c++) out += (c > 0 ? m : "") + stringRepeat("─", width[c] + 2);
        return out + r;
    };
    let out = `${rule("┌", "┬", "┐")}\n${line("(index)", (c) => cell(heads[c]))}\n${rule("├", "┼", "┤")}`;
    for (let r = 0; r < rows.length; r++) out += `\n${line(rows[r].index, (c) => mapGet(rows[r].cells, heads[c]) ?? "")}`;
    return `${out}\n${rule("└", "┴", "┘")}`;
}

// A method of console that never throws.
const quiet = (fn) => (...args) => { try { fn(args); } catch { } };
const consoleMethods = {
    __proto__: null,
    debug: (a) => write(LEVEL.debug, joined(a)),
    log: (a) => write(LEVEL.log, joined(a)),
    info: (a) => write(LEVEL.info, joined(a)),
    warn: (a) => write(LEVEL.warn, joined(a)),
    error: (a) => write(LEVEL.error, joined(a)),
    trace: (a) => {
        const here = new E(joined(a));
        define(here, "name", "Trace");
        write(LEVEL.debug, formatError(here));
    },
    dir: (a) => write(LEVEL.log, inspect(a[0])),
    dirxml: (a) => write(LEVEL.log, joined(a)),
    table: (a) => write(LEVEL.log, tableText(a[0], a[1])),
    assert: (a) => {
        if (a[0]) return;
        const rest = list();
        for (let i = 1; i < a.length; i++) push(rest, a[i]);
        write(LEVEL.error, `Assertion failed${rest.length > 0 ? ": " + joined(rest) : ""}`);
    },
    count: (a) => {
        const name = label(a[0]), n = (mapGet(counts, name) ?? 0) + 1;
        mapSet(counts, name, n);
        write(LEVEL.log, `${name}: ${n}`);
    },
    countReset: (a) => { mapDelete(counts, label(a[0])); },
    time: (a) => {
        const name = label(a[0]);
        if (mapHas(watches, name)) write(LEVEL.warn, `Timer '${name}' already exists`);
        else mapSet(watches, name, host.now());
    },
    timeLog: (a) => {
        const name = label(a[0]), rest = list();
        for (let i = 1; i < a.length; i++) push(rest, a[i]);
        if (!mapHas(watches, name)) write(LEVEL.warn, `Timer '${name}' does not exist`);
        else write(LEVEL.log, `${name}: ${elapsed(mapGet(watches, name))}${rest.length > 0 ? " " + joined(rest) : ""}`);
    },
    timeEnd: (a) => {
        const name = label(a[0]);
        if (!mapHas(watches, name)) { write(LEVEL.warn, `Timer '${name}' does not exist`); return; }
        write(LEVEL.log, `${name}: ${elapsed(mapGet(watches, name))}`);
        mapDelete(watches, name);
    },
    group: (a) => {
        if (a.length > 0) write(LEVEL.log, joined(a));
        if (current !== null && current.indent.length < 40) current.indent += "  ";
    },
    groupCollapsed: (a) => consoleMethods.group(a),
    groupEnd: () => { if (current !== null) current.indent = stringSlice(current.indent, 2); },
    clear: () => { },
    timeStamp: () => { },
    profile: () => { },
    profileEnd: () => { },
};

const consoleObject = {};
{
    const names = objectKeys(consoleMethods);
    for (let i = 0; i < names.length; i++) {
        const method = quiet(consoleMethods[names[i]]);
        define(method, "name", names[i]);
        consoleObject[names[i]] = method;
    }
    define(consoleObject, toStringTag, "console");
    define(globals, "console", consoleObject);
}

function clearConsole() { counts = new MapCtor(); watches = new MapCtor(); }

export { LEVEL, clearConsole, write };
