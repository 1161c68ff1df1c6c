// Bindings: an env entry that stands for a capability socket. A method call becomes one CALL frame;
// the promise is settled by the reply. What comes back from a facet is rows, from a worker a tagged
// value.
import {
    Bytes, E, MapCtor, N, P, TypeErrorCtor, active, bigintToString, bytesFromBase64, bytesToBase64, construct,
    current, dateToISO, define, defineProperty, enter, errorTypes, hasOwn, hooks, isArray, isDate, isObject,
    isTyped, jsonParse, jsonStringify, limitError, list, mapGet, mapSet, newError, objectFreeze, objectKeys,
    objectProto, pair, push, stringStartsWith, stringWellFormed, toStringTag, typedBuffer, typedByteLength,
    typedOffset,
} from "./base.js";
import { describe } from "./inspect.js";
import { later } from "./timers.js";
import { errorText } from "./stack.js";
import { fromTagged, toTagged } from "./tagged.js";
import { fetchWorker } from "./http.js";

// A call waits in a slot. Its id has the slot and, above it, a number that tells it from others that had the slot.
let waiting = list(), freeSlots = list(), callNumber = 0, bindings = list();
const SLOTS = ISOLATE_SLOTS, OWN_SLOTS = ISOLATE_SLOTS - ISOLATE_QUICK_SLOTS, CALL_NUMBERS = 0xfffffff; // 48 bits together

function takeWaiting(slot) {
    const entry = waiting[slot];
    waiting[slot] = undefined;
    push(freeSlots, slot);
    return entry;
}

// An integer beyond 2^53 becomes the nearest number, as in the original: a BigInt would fail in every
// sum and every result. CAST(x AS TEXT) has all of its digits.
function decodeCell(cell) {
    if (typeof cell !== "object" || cell === null) return cell;
    return cell[0] === "b" ? bytesFromBase64(cell[1]) : N(cell[1]);
}

// {"columns": [..], "rows": [[..]]} as an array of objects. Plain assignment is safe unless a
// program put a setter for one of the columns on Object.prototype.
function decodeRows(reply) {
    const { columns, rows } = reply, out = [];
    let plain = true;
    for (let c = 0; c < columns.length; c++) if (columns[c] in objectProto) plain = false;
    for (let r = 0; r < rows.length; r++) {
        const row = {}, cells = rows[r];
        for (let c = 0; c < columns.length; c++) {
            const value = decodeCell(cells[c]);
            if (plain) row[columns[c]] = value;
            else defineProperty(row, columns[c], { __proto__: null, value, writable: true, enumerable: true, configurable: true });
        }
        // An index that the empty array seems to have is a prototype's, maybe with a setter.
        if (r in out) defineProperty(out, r, { __proto__: null, value: row, writable: true, enumerable: true, configurable: true });
        else out[r] = row;
    }
    return out;
}

function decodeFacet(text) {
    const reply = jsonParse(text);
    if (typeof reply === "object" && reply !== null && !isArray(reply) && hasOwn(reply, "columns") && hasOwn(reply, "rows"))
        return decodeRows(reply);
    if (isObject(reply) && hasOwn(reply, "lastInsertRowid")) reply.lastInsertRowid = decodeCell(reply.lastInsertRowid);
    return reply;
}

// A parameter of a facet's method: JSON, and for what SQLite has and JSON lacks the marks that rows
// use.
function encodeParameter(v, depth) {
    if (typeof v === "bigint") return pair("i", bigintToString(v));
    if (v === undefined) return null;
    if (typeof v === "string") return stringWellFormed(v);
    if (typeof v === "function" || typeof v === "symbol")
        throw new TypeErrorCtor(`${describe(v, 0, { path: list(), left: 1000 })} cannot be sent to a facet`);
    if (typeof v !== "object" || v === null) return v;
    if (depth > 50) throw new TypeErrorCtor("an argument nested deeper than 50 levels cannot be sent to a facet");
    if (!host.isProxy(v)) {
        if (isDate(v)) return dateToISO(v);
        if (isTyped(v)) {
            const bytes = construct(Bytes, [typedBuffer(v), typedOffset(v), typedByteLength(v)]);
            return pair("b", bytesToBase64(bytes));
        }
    }
    if (isArray(v)) {
        const out = list();
        for (let i = 0; i < v.length; i++) push(out, encodeParameter(v[i], depth + 1));
        return out;
    }
    const out = { __proto__: null }, keys = objectKeys(v);
    for (let i = 0; i < keys.length; i++)
        defineProperty(out, keys[i], { __proto__: null, value: encodeParameter(v[keys[i]], depth + 1), enumerable: true });
    return out;
}

// query(sql, [a, b]) means query(sql, a, b): both are common, the facet takes the second.
function encodeFacet(method, args) {
    if (args.length === 1 && typeof args[0] === "string") return `[${jsonStringify(stringWellFormed(args[0]))}]`;
    const out = list();
    if (args.length === 2 && method !== "batch" && typeof args[0] === "string" && isArray(args[1])) {
        push(out, encodeParameter(args[0], 0));
        args = args[1];
    }
    for (let i = 0; i < args.length; i++) push(out, encodeParameter(args[i], 0));
    return jsonStringify(out);
}

function encodeWorker(args) {
    const out = list();
    for (let i = 0; i < args.length; i++) push(out, toTagged(args[i], 0, list()));
    return jsonStringify(out);
}

function invoke(binding, method, args) {
    return new P((resolve, reject) => {
        const call = current;
        if (call === null || call.failed) throw new E(`${binding.name}.${method}: the call that asks is over`);
        if (binding.gone !== null) throw new E(`${binding.name} ${binding.gone}`);
        if (call.asked >= call.bindingCalls) throw limitError(`binding call limit of ${call.bindingCalls} reached`);
        const text = binding.worker ? encodeWorker(args) : encodeFacet(method, args);
        const reused = freeSlots.length > 0, slot = reused ? freeSlots[freeSlots.length - 1] : waiting.length;
        if (slot >= OWN_SLOTS) throw new E(`${binding.name}.${method}: too many calls wait for their answers`);
        callNumber = (callNumber + 1) & CALL_NUMBERS;
        const id = callNumber * SLOTS + slot;
        call.asked++;
        // The stack of the call, because the reply arrives on none.
        const at = new E("");
        const refused = host.bind(binding.index, id, method, text, binding.worker);
        if (refused !== "") throw (stringStartsWith(refused, "limit") ? limitError : newError)(`${binding.name}.${method}: ${refused}`);
        if (reused) freeSlots.length--;
        waiting[slot] = { binding, method, resolve, reject, at, id, call, dropped: false };
        call.unanswered++;
    });
}

function replyError(entry, text) {
    let info = jsonParse(text);
    if (entry.binding.worker && isObject(info) && hasOwn(info, "$t")) return fromTagged(info);
    if (typeof info !== "object" || info === null) info = { __proto__: null };
    const message = typeof info.message === "string" ? info.message : "the call failed";
    const e = construct(errorTypes[info.name] ?? E, [message]);
    if (typeof info.name === "string" && errorTypes[info.name] === undefined) define(e, "name", info.name);
    if (typeof info.code === "string" || typeof info.code === "number") define(e, "code", info.code);
    define(e, "stack", errorText(entry.at, "stack"));
    return e;
}

// False if nobody asked, or the reply is no JSON: the peer broke the contract.
function reply(index, id, ok, text) {
    const slot = id % SLOTS, asked = slot < waiting.length ? waiting[slot] : undefined;
    if (asked === undefined || asked.id !== id || asked.binding.index !== index) return false;
    const entry = takeWaiting(slot);
    if (entry.dropped) return true;
    enter(entry.call);
    let value;
    try {
        value = !ok ? replyError(entry, text) : text === "" ? undefined
            : entry.binding.worker ? fromTagged(jsonParse(text)) : decodeFacet(text);
    } catch {
        entry.reject(new E(`${entry.binding.name}.${entry.method}: the reply is malformed`));
        answered(entry.call);
        return false;
    }
    if (ok) entry.resolve(value);
    else entry.reject(value);
    answered(entry.call);
    return true;
}

// Nobody waits for the answers of the call any more. They are still known when they come.
function dropWaiting(call) {
    for (let slot = 0; slot < waiting.length; slot++)
        if (waiting[slot] !== undefined && waiting[slot].call === call) waiting[slot].dropped = true;
    host.drop(call.id);
    unanswered(call);
    call.unanswered = 0;
}

// How many answers the call lacks. Some of those that have come only the host has seen.
function unanswered(call) {
    call.unanswered -= host.answers(call.id);
    return call.unanswered;
}

// A call that has its result ends when all it asked for has been answered.
function answered(call) {
    call.unanswered--;
    if (!call.settling) return;
    call.answeredAt = host.now();
    if (unanswered(call) === 0) later(call, hooks.settle);
}

// The end of a call that the host made, where the host leaves it to us. False as of reply().
function settle(index, id, resolve, reject, at, ok, text, why) {
    const call = mapGet(active, id), binding = bindingOf(index);
    if (call === undefined) return true;
    enter(call);
    let value, good = true;
    if (why !== "") value = new E(`${binding.name} ${why}`);
    else try {
        value = !ok ? replyError({ __proto__: null, binding, at }, text) : text === "" ? undefined : decodeFacet(text);
    } catch {
        value = new E(`${binding.name}: the reply is malformed`);
        ok = good = false;
    }
    if (ok) resolve(value);
    else reject(value);
    answered(call);
    return good;
}

function bindingOf(index) {
    for (let i = 0; i < bindings.length; i++) if (bindings[i].index === index) return bindings[i];
}

function gone(index, why) {
    const binding = bindingOf(index);
    if (binding !== undefined) binding.gone = why;
    for (let slot = 0; slot < waiting.length; slot++) {
        if (waiting[slot] === undefined || waiting[slot].binding.index !== index) continue;
        const entry = takeWaiting(slot);
        if (entry.dropped) continue;
        enter(entry.call);
        entry.reject(new E(`${entry.binding.name} ${why}`));
        answered(entry.call);
    }
}

function slowMethod(binding, name) {
    const f = (...args) => invoke(binding, name, args);
    define(f, "name", name);
    return f;
}

// The host's part of a call: undefined if it does not take it. query(sql, [a, b]) is as in encodeFacet().
function askHost(index, number, n, a, b, c) {
    if (n === 1) return host.ask(index, number, a);
    if (n === 3) return host.ask(index, number, a, b, c);
    if (n !== 2 || typeof b !== "object" || b === null) return n === 2 ? host.ask(index, number, a, b) : undefined;
    if (typeof a !== "string" || !isArray(b) || host.isProxy(b)) return undefined;
    const m = b.length;
    if (m === 1) return host.ask(index, number, a, b[0]);
    if (m === 2) return host.ask(index, number, a, b[0], b[1]);
    return m === 3 ? host.ask(index, number, a, b[0], b[1], b[2]) : m === 0 ? host.ask(index, number, a) : undefined;
}

// The host takes the call if its arguments are plain values, and invoke() every other.
function quickMethod(binding, name, number) {
    const { index } = binding, quick = number >= 0 && name !== "batch";
    const { [name]: f } = {
        __proto__: null,
        [name]() {
            const call = current, n = arguments.length;
            if (quick && call !== null && !call.failed && binding.gone === null && call.asked < call.bindingCalls) {
                const p = askHost(index, number, n, arguments[0], arguments[1], arguments[2]);
                if (p !== undefined) {
                    call.asked++;
                    call.unanswered++;
                    return p;
                }
            }
            const args = list();
            for (let i = 0; i < n; i++) push(args, arguments[i]);
            return invoke(binding, name, args);
        },
    };
    return f;
}

// A stub with known methods is a frozen object; one without answers to every name but `then`, which
// would make it a promise.
function makeStub(binding, methods) {
    const method = (name) => binding.worker ? slowMethod(binding, name) : quickMethod(binding, name, host.method(name));
    if (isArray(methods)) {
        const stub = {};
        for (let i = 0; i < methods.length; i++)
            defineProperty(stub, methods[i], { __proto__: null, value: method(methods[i]), enumerable: true });
        define(stub, toStringTag, binding.worker ? "Worker" : "Facet");
        return objectFreeze(stub);
    }
    const made = new MapCtor();
    const any = new ProxyCtor(objectFreeze({ __proto__: null }), {
        __proto__: null,
        get(target, name) {
            if (typeof name !== "string" || name === "then" || name === "toJSON" || name === "constructor") return undefined;
            let f = mapGet(made, name);
            if (f === undefined) mapSet(made, name, f = name === "fetch" ? (...args) => fetchWorker(binding, args) : method(name));
            return f;
        },
    });
    if (binding.worker) return any;
    // What every facet has are properties in front of it: to ask a proxy takes longer than the call.
    const stub = { __proto__: any };
    define(stub, "query", method("query"));
    define(stub, "execute", method("execute"));
    define(stub, toStringTag, "Facet");
    return objectFreeze(stub);
}
const ProxyCtor = Proxy;

function makeEnv(layout) {
    const env = {};
    const names = objectKeys(layout ?? {});
    for (let i = 0; i < names.length; i++) {
        const entry = layout[names[i]];
        let value = entry.json;
        if (hasOwn(entry, "fd")) {
            const binding = { __proto__: null, name: `env.${names[i]}`, index: entry.fd, worker: entry.kind === "worker", gone: null };
            push(bindings, binding);
            value = makeStub(binding, entry.methods);
        }
        defineProperty(env, names[i], { __proto__: null, value, writable: true, enumerable: true, configurable: true });
    }
    return env;
}

function clearBindings() { waiting = list(); freeSlots = list(); callNumber = 0; bindings = list(); }

export { clearBindings, dropWaiting, gone, invoke, makeEnv, reply, settle as settleAsked, unanswered };
