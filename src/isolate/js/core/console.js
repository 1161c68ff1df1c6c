// console: every method ends in one line of text for the tail. Nothing here throws at the program.

const LEVEL = { __proto__: null, debug: 0, log: 1, info: 2, warn: 3, error: 4 };
let counts = new MapCtor(), watches = new MapCtor();

function joined(args) {
    let text = "";
    for (let i = 0; i < args.length; i++) {
        const v = args[i];
        text += (i > 0 ? " " : "") + (typeof v === "string" ? v : inspect(v));
    }
    return text;
}

// A line longer than the budget goes over in pieces: its bytes are counted, not kept.
function write(level, text) {
    if (current === null || current.muted) return;
    text = stringWellFormed(text);
    if (current.indent !== "") text = indented(text, current.indent);
    const max = mathMax(host.limit(3), 65536);
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
                if (!mapHas(known, keys[i])) { mapSet(known, keys[i], true); push(names, keys[i]); }
                mapSet(cells, keys[i], inspect(dataProperty(v, keys[i])));
            }
        } else { plain = true; mapSet(cells, "Values", typeof v === "string" ? quote(v) : inspect(v)); }
        push(rows, { __proto__: null, index, cells });
    };
    if (isMap(data)) mapForEach(data, (v, k) => addRow(typeof k === "string" ? k : inspect(k), v));
    else if (isSet(data)) { let i = 0; setForEach(data, (v) => addRow(`${i++}`, v)); }
    else { const keys = objectKeys(data); for (let i = 0; i < keys.length; i++) addRow(keys[i], dataProperty(data, keys[i])); }
    let heads = list();
    if (isArray(columns)) for (let i = 0; i < columns.length; i++) push(heads, `${label(columns[i])}`);
    else { heads = names; if (plain) push(heads, "Values"); }
    const width = list();
    push(width, 7);
    for (let c = 0; c < heads.length; c++) push(width, heads[c].length);
    for (let r = 0; r < rows.length; r++) {
        width[0] = mathMax(width[0], rows[r].index.length);
        for (let c = 0; c < heads.length; c++) width[c + 1] = mathMax(width[c + 1], (mapGet(rows[r].cells, heads[c]) ?? "").length);
    }
    const line = (first, cell) => {
        let out = `│ ${stringPadEnd(first, width[0])} │`;
        for (let c = 0; c < heads.length; c++) out += ` ${stringPadEnd(cell(c), width[c + 1])} │`;
        return out;
    };
    const rule = (l, m, r) => {
        let out = l;
        for (let c = 0; c < width.length; c++) out += (c > 0 ? m : "") + stringRepeat("─", width[c] + 2);
        return out + r;
    };
    let out = `${rule("┌", "┬", "┐")}\n${line("(index)", (c) => heads[c])}\n${rule("├", "┼", "┤")}`;
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
