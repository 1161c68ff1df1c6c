// Tagged JSON (see src/wire/isolate.h): what JSON lacks, for calls between workers.
import {
    BigIntFn, Bytes, DateCtor, E, MapCtor, SetCtor, bigintToString, bytesFromBase64, bytesToBase64, construct,
    dateGetTime, define, defineProperty, errorTypes, hasOwn, isArray, isBuffer, isDate, isError, isFinite,
    isMap, isRegExp, isSet, isTyped, jsonStringify, list, mapForEach, mapSet, objectIs, objectKeys, pair,
    push, regexpFlags, regexpSource, setAdd, setForEach, stringWellFormed, symbolToString, typedBuffer,
    typedByteLength, typedOffset, typedTag, viewTypes,
} from "./base.js";
import { className, dataProperty, describeFunction } from "./inspect.js";
import { errorText, formatError } from "./stack.js";

const cloneError = (what) => {
    const e = new E(`${what} cannot be sent to another worker`);
    define(e, "name", "DataCloneError");
    return e;
};

function toTagged(v, depth, path) {
    switch (typeof v) {
    case "string": return stringWellFormed(v);
    case "boolean": return v;
    case "number":
        if (isFinite(v) && !objectIs(v, -0)) return v;
        return { __proto__: null, $t: "number", v: objectIs(v, -0) ? "-0" : `${v}` };
    case "undefined": return { __proto__: null, $t: "undefined" };
    case "bigint": return { __proto__: null, $t: "bigint", v: bigintToString(v) };
    case "symbol": throw cloneError(symbolToString(v));
    case "function": throw cloneError(describeFunction(v));
    }
    if (v === null) return null;
    if (depth > 200) throw cloneError("a value nested deeper than 200 levels");
    for (let i = 0; i < path.length; i++) if (path[i] === v) throw cloneError("a value that contains itself");
    push(path, v);
    const out = taggedObject(v, depth + 1, path);
    path.length--;
    return out;
}

function taggedObject(v, depth, path) {
    if (host.isProxy(v)) return taggedPlain(v, depth, path);
    if (isArray(v)) {
        const out = list();
        for (let i = 0; i < v.length; i++) push(out, toTagged(v[i], depth, path));
        return out;
    }
    if (isDate(v)) { const t = dateGetTime(v); return { __proto__: null, $t: "date", v: t === t ? t : null }; }
    if (isRegExp(v)) return { __proto__: null, $t: "regexp", v: pair(regexpSource(v), regexpFlags(v)) };
    if (isMap(v)) {
        const out = list();
        mapForEach(v, (value, key) =>
            push(out, pair(toTagged(key, depth, path), toTagged(value, depth, path))));
        return { __proto__: null, $t: "map", v: out };
    }
    if (isSet(v)) {
        const out = list();
        setForEach(v, (value) => push(out, toTagged(value, depth, path)));
        return { __proto__: null, $t: "set", v: out };
    }
    if (isTyped(v)) {
        const bytes = construct(Bytes, [typedBuffer(v), typedOffset(v), typedByteLength(v)]);
        return { __proto__: null, $t: "bytes", v: bytesToBase64(bytes), k: typedTag(v) };
    }
    if (isBuffer(v)) return { __proto__: null, $t: "bytes", v: bytesToBase64(construct(Bytes, [v])), k: "ArrayBuffer" };
    if (isError(v)) {
        const error = { __proto__: null, name: errorText(v, "name") || "Error", message: errorText(v, "message"), stack: formatError(v) };
        if (hasOwn(v, "cause")) error.cause = toTagged(dataProperty(v, "cause"), depth, path);
        return { __proto__: null, $t: "error", v: error };
    }
    const name = className(v);
    if (name === "Promise" || name === "WeakMap" || name === "WeakSet" || name === "WeakRef") throw cloneError(`a ${name}`);
    return taggedPlain(v, depth, path);
}

function taggedPlain(v, depth, path) {
    const keys = objectKeys(v), out = { __proto__: null }, pairs = list();
    let tagged = false;
    for (let i = 0; i < keys.length; i++) {
        const value = toTagged(v[keys[i]], depth, path);
        if (keys[i] === "$t") tagged = true;
        if (keys[i] === "__proto__") defineProperty(out, keys[i], { __proto__: null, value, enumerable: true });
        else out[keys[i]] = value;
        push(pairs, pair(keys[i], value));
    }
    return tagged ? { __proto__: null, $t: "object", v: pairs } : out;
}

// v comes from JSON.parse: plain data with own properties only.
function fromTagged(v) {
    if (typeof v !== "object" || v === null) return v;
    if (isArray(v)) {
        for (let i = 0; i < v.length; i++) v[i] = fromTagged(v[i]);
        return v;
    }
    if (!hasOwn(v, "$t")) {
        const keys = objectKeys(v);
        for (let i = 0; i < keys.length; i++)
            defineProperty(v, keys[i], { __proto__: null, value: fromTagged(v[keys[i]]), writable: true, enumerable: true, configurable: true });
        return v;
    }
    const x = v.v;
    switch (v.$t) {
    case "undefined": return undefined;
    case "number": return x === "-0" ? -0 : x === "NaN" ? NaN : x === "-Infinity" ? -Infinity : Infinity;
    case "bigint": return BigIntFn(x);
    case "date": return construct(DateCtor, [x === null ? NaN : x]);
    case "regexp": return construct(RegExpCtor, [x[0], x[1]]);
    case "map": {
        const m = new MapCtor();
        for (let i = 0; i < x.length; i++) mapSet(m, fromTagged(x[i][0]), fromTagged(x[i][1]));
        return m;
    }
    case "set": {
        const s = new SetCtor();
        for (let i = 0; i < x.length; i++) setAdd(s, fromTagged(x[i]));
        return s;
    }
    case "bytes": {
        const bytes = bytesFromBase64(x), buffer = typedBuffer(bytes);
        if (v.k === "ArrayBuffer") return buffer;
        const type = viewTypes[v.k];
        return type === undefined || type === Bytes ? bytes : construct(type, [buffer]);
    }
    case "error": {
        const e = construct(errorTypes[x.name] ?? E, [x.message]);
        if (errorTypes[x.name] === undefined) define(e, "name", x.name);
        if (typeof x.stack === "string") define(e, "stack", x.stack);
        if (hasOwn(x, "cause")) define(e, "cause", fromTagged(x.cause));
        return e;
    }
    case "object": {
        const out = {};
        for (let i = 0; i < x.length; i++)
            defineProperty(out, x[i][0], { __proto__: null, value: fromTagged(x[i][1]), writable: true, enumerable: true, configurable: true });
        return out;
    }
    }
    return v;
}
const RegExpCtor = RegExp;
const taggedText = (v) => jsonStringify(toTagged(v, 0, list()));

export { fromTagged, taggedText, toTagged };
