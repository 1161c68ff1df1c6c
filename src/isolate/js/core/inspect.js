// inspect(value): what console prints of a value that is not a string. JSON where JSON loses
// nothing, because that is what the reader of a tail expects; else a bounded description. Reads no
// getter and calls nothing of the program.
import {
    DateCtor, arrayProto, bigintToString, bufferByteLength, dateGetTime, dateToISO, dateToJSON,
    functionToString, getOwnPropertyDescriptor, getPrototypeOf, hasOwn, isArray, isBuffer, isDate, isError,
    isFinite, isMap, isRegExp, isSet, isTyped, jsonParse, jsonStringify, list, mapIterator, mapIteratorNext,
    mapSize, objectIs, objectKeys, objectProto, ownKeys, push, regexpExec, regexpFlags, regexpSource,
    setIterator, setIteratorNext, setSize, stringSlice, stringStartsWith, symbolToString, toStringTag,
    typedLength, typedTag,
} from "./base.js";
import { formatError } from "./stack.js";

const MAX_DEPTH = 6, MAX_ITEMS = 100, MAX_KEYS = 100, MAX_STRING = 10000, MAX_INSPECT = 100000;
// What is printed as JSON is looked at wholly, so it has bounds; beyond them the first hundred are
// described. Listing the keys of an array makes a text of each index, and holes are passed one by one.
const JSON_DEPTH = 100, JSON_VALUES = 20000, JSON_CHARACTERS = 1000000, MAX_LISTED = 20000, MAX_HOLES = 10000;

// True if JSON.stringify(v) says all there is to say about v.
function isPlainJson(v, depth, seen) {
    switch (typeof v) {
    case "string": return (seen.characters -= v.length) >= 0;
    case "boolean": return true;
    case "number": return isFinite(v) && !objectIs(v, -0);
    case "object": break;
    default: return false;
    }
    if (v === null) return true;
    if (depth > JSON_DEPTH || seen.left <= 0 || host.isProxy(v)) return false;
    const proto = getPrototypeOf(v), array = isArray(v);
    if (array ? proto !== arrayProto : proto !== objectProto && proto !== null)
        return proto === dateProto && isDate(v) && ownKeys(v).length === 0 &&
            dateProto.toJSON === dateToJSON && isFinite(dateGetTime(v));
    for (let i = 0; i < seen.path.length; i++) if (seen.path[i] === v) return false;
    push(seen.path, v);
    if (array && v.length > seen.left) return false;
    const keys = ownKeys(v);
    if (array && keys.length !== v.length + 1) return false;
    if ((seen.left -= keys.length) <= 0) return false;
    for (let i = 0; i < keys.length; i++) {
        const key = keys[i];
        if (typeof key !== "string" || key === "toJSON") return false;
        if (array && key === "length") continue;
        if (!array && (seen.characters -= key.length) < 0) return false;
        const d = getOwnPropertyDescriptor(v, key);
        if (d === undefined || !hasOwn(d, "value") || !d.enumerable) return false;
        if (!isPlainJson(d.value, depth + 1, seen)) return false;
    }
    seen.path.length--;
    return true;
}

const dateProto = DateCtor.prototype;
const hasToJson = () => hasOwn(objectProto, "toJSON") || hasOwn(arrayProto, "toJSON");

const identifier = /^[A-Za-z_$][\w$]*$/;
const quote = (s) => jsonStringify(s.length > MAX_STRING ? stringSlice(s, 0, MAX_STRING) : s) +
    (s.length > MAX_STRING ? `… ${s.length - MAX_STRING} more characters` : "");
const keyText = (key) => typeof key === "symbol" ? `[${symbolToString(key)}]`
    : key.length <= MAX_STRING && regexpExec(identifier, key) !== null ? key : quote(key);

// The name of the class of v, found without calling anything.
function className(v) {
    for (let p = v, i = 0; p !== null && i < 100; p = getPrototypeOf(p), i++) {
        if (host.isProxy(p)) return "Proxy";
        const d = getOwnPropertyDescriptor(p, "constructor");
        if (d !== undefined && typeof d.value === "function" && !host.isProxy(d.value)) {
            const n = getOwnPropertyDescriptor(d.value, "name");
            if (n !== undefined && typeof n.value === "string" && n.value !== "") return n.value;
        }
    }
    return null;
}

function dataProperty(v, key) {
    const d = getOwnPropertyDescriptor(v, key);
    return d !== undefined && hasOwn(d, "value") ? d.value : undefined;
}

function describeFunction(v) {
    const name = dataProperty(v, "name");
    const isClass = stringStartsWith(functionToString(v), "class");
    const label = typeof name === "string" && name !== "" ? ` ${name}` : " (anonymous)";
    return isClass ? `[class${label}]` : `[Function${label === " (anonymous)" ? label : ":" + label}]`;
}

// state: {path: the objects around v, left: characters that may still be added}
function describe(v, depth, state) {
    switch (typeof v) {
    case "string": return quote(v);
    case "number": return objectIs(v, -0) ? "-0" : `${v}`;
    case "bigint": return `${bigintToString(v)}n`;
    case "symbol": return symbolToString(v);
    case "undefined": return "undefined";
    case "boolean": return v ? "true" : "false";
    }
    if (v === null) return "null";
    if (host.isProxy(v)) return typeof v === "function" ? "[Proxy (function)]" : "[Proxy]";
    for (let i = 0; i < state.path.length; i++) if (state.path[i] === v) return "[Circular]";
    if (isError(v) && depth > 0) return describeError(v, depth, state);
    if (isDate(v)) { const t = dateGetTime(v); return t === t ? dateToISO(v) : "Invalid Date"; }
    if (isRegExp(v)) return `/${regexpSource(v)}/${regexpFlags(v)}`;
    if (typeof v === "function" && objectKeys(v).length === 0) return describeFunction(v);
    if (depth > MAX_DEPTH) return isArray(v) ? "[Array]" : `[${className(v) ?? "Object"}]`;
    push(state.path, v);
    const text = isError(v) ? describeError(v, depth, state) : describeObject(v, depth, state);
    state.path.length--;
    return text;
}

function describeError(v, depth, state) {
    let text = formatError(v); // causes included
    if (isArray(dataProperty(v, "errors"))) text += `\n  [errors]: ${describe(dataProperty(v, "errors"), depth + 1, state)}`;
    return text;
}

function describeObject(v, depth, state) {
    const items = list();
    let head = "", open = "{", close = "}", skip = 0;
    const add = (text) => { state.left -= text.length + 2; push(items, text); };
    const more = (n, what) => { if (n > 0) push(items, `… ${n} more ${what}`); };
    const name = className(v);
    if (isArray(v)) {
        open = "["; close = "]"; skip = v.length;
        if (name !== "Array") head = `${name ?? "[null prototype]"}(${v.length}) `;
        let i = 0, shown = 0, holes = 0;
        for (; i < v.length && shown < MAX_ITEMS && holes < MAX_HOLES && state.left > 0; shown++) {
            const d = getOwnPropertyDescriptor(v, i);
            if (d === undefined) {
                const from = i;
                while (i < v.length && holes < MAX_HOLES && !hasOwn(v, i)) { i++; holes++; }
                add(`<${i - from} empty item${i - from === 1 ? "" : "s"}>`);
            } else { add(propertyText(d, depth, state)); i++; }
        }
        more(v.length - i, "items");
    } else if (isMap(v)) {
        head = `${name ?? "Map"}(${mapSize(v)}) `;
        const entries = mapIterator(v);
        for (let i = 0; i < MAX_ITEMS && state.left > 0; i++) {
            const { done, value } = mapIteratorNext(entries);
            if (done) break;
            add(`${describe(value[0], depth + 1, state)} => ${describe(value[1], depth + 1, state)}`);
        }
        more(mapSize(v) - items.length, "entries");
    } else if (isSet(v)) {
        head = `${name ?? "Set"}(${setSize(v)}) `;
        const values = setIterator(v);
        for (let i = 0; i < MAX_ITEMS && state.left > 0; i++) {
            const { done, value } = setIteratorNext(values);
            if (done) break;
            add(describe(value, depth + 1, state));
        }
        more(setSize(v) - items.length, "items");
    } else if (isTyped(v)) {
        const n = typedLength(v);
        head = `${typedTag(v)}(${n}) `; open = "["; close = "]"; skip = n;
        for (let i = 0; i < n && i < MAX_ITEMS && state.left > 0; i++) add(describe(v[i], depth + 1, state));
        more(n - items.length, "items");
    } else if (isBuffer(v)) {
        head = "ArrayBuffer "; add(`byteLength: ${bufferByteLength(v)}`);
    } else if (typeof v === "function") {
        head = describeFunction(v) + " ";
    } else if (name !== "Object") {
        head = name === null ? "[Object: null prototype] " : `${name} `;
    }
    const tag = dataProperty(v, toStringTag);
    if (typeof tag === "string" && tag !== "" && tag !== name) head += `[${tag}] `;
    const keys = skip > MAX_LISTED ? list() : ownKeys(v);
    let shown = 0, hidden = 0;
    for (let i = 0; i < keys.length; i++) {
        const key = keys[i];
        if (skip > 0 && typeof key === "string" && regexpExec(/^(0|[1-9]\d*)$/, key) !== null) continue;
        const d = getOwnPropertyDescriptor(v, key);
        if (d === undefined || !d.enumerable) continue;
        if (shown++ >= MAX_KEYS || state.left <= 0) { hidden++; continue; }
        add(`${keyText(key)}: ${propertyText(d, depth, state)}`);
    }
    more(hidden, "keys");
    if (items.length === 0) return `${head}${open}${close}`;
    let text = "";
    for (let i = 0; i < items.length; i++) text += (i > 0 ? ", " : "") + items[i];
    return open === "[" ? `${head}[ ${text} ]` : `${head}{ ${text} }`;
}

function propertyText(d, depth, state) {
    if (hasOwn(d, "value")) return describe(d.value, depth + 1, state);
    return d.get !== undefined ? (d.set !== undefined ? "[Getter/Setter]" : "[Getter]") : "[Setter]";
}

function inspect(v) {
    try {
        if (isPlainJson(v, 0, { path: list(), left: JSON_VALUES, characters: JSON_CHARACTERS }) && !hasToJson()) {
            const text = jsonStringify(v);
            return isDate(v) ? jsonParse(text) : text;
        }
        return describe(v, 0, { path: list(), left: MAX_INSPECT });
    } catch (e) {
        return "[value that cannot be shown]";
    }
}

export { className, dataProperty, describe, describeFunction, inspect, quote };
