// Entrypoints: load the program, find what was asked for, call it, report, wait for what
// ctx.waitUntil() was given, and say that the call is done.
import {
    E, P, TypeErrorCtor, active, apply, construct, current, define, defineProperty, enter, functionToString,
    getOwnPropertyDescriptor, getPrototypeOf, hasOwn, hooks, isArray, isError, isMap, isObject, isPrototypeOf,
    isSet, jsonParse, jsonStringify, limitError, list, mapClear, mapDelete, mapForEach, mapSet, objectFreeze,
    objectKeys, objectProto, pair, push, setCurrent, setForEach, stringStartsWith,
} from "./base.js";
import { dataProperty, describe } from "./inspect.js";
import { LEVEL, write } from "./console.js";
import { addTimer, dropTimer, dropTimersOf, later } from "./timers.js";
import { MAX_STACK, clip, errorReport, errorText, formatError } from "./stack.js";
import { fromTagged, taggedText } from "./tagged.js";
import { dropWaiting, makeEnv, unanswered } from "./bindings.js";
import { WINDOW, makeRequest, sendResponse, wake, web } from "./http.js";

let program = null;

// "cloudflare:workers" and its neutral name.
class WorkerEntrypoint {
    constructor(ctx, env) {
        define(this, "ctx", ctx);
        define(this, "env", env);
    }
}
class RpcTarget { }
class DurableObject extends WorkerEntrypoint { }
class WorkflowEntrypoint extends WorkerEntrypoint { }

function finish(call) {
    if (call.over) return;
    call.over = true;
    dropTimersOf(call);
    if (call.deadline !== 0) dropTimer(call.deadline);
    if (call.patience !== 0) dropTimer(call.patience);
    mapDelete(active, call.id);
    wake(call, false);
    host.done(call.id);
    if (current === call) setCurrent(null);
}

function report(call, e, kind) {
    call.failed = true;
    let text;
    try { text = jsonStringify(errorReport(e, kind)); } catch { text = `{"kind":"${kind}","name":"Error","message":"an error that cannot be shown"}`; }
    host.send(ISOLATE_ERROR, call.id, text);
}

// The first error of a call is its answer, and the end of what it does: no timer of it runs and no
// binding is asked any more. What is on its way is still waited for, or it might be cut off.
function fail(call, e, kind) {
    if (call.over || call.failed) return;
    report(call, e, kind);
    dropTimersOf(call);
    call.settling = true;
    host.settles(call.id);
    later(call, settle);
}

// The call has its answer. It is over when what it asked its bindings for and did not wait for has
// been answered, and what waitUntil() was given has settled.
function settle(call) {
    if (call.over || (call.waiting && !call.failed)) return;
    if (unanswered(call) > 0) awaitAnswers(call);
    else if (!call.failed && call.waited < call.waits.length) waitOut(call);
    else finish(call);
}

// Every answer counts as progress; where none comes for so long, none will.
function awaitAnswers(call) {
    if (call.patience !== 0) return;
    const max = host.limit(ISOLATE_LIMIT_WAIT_UNTIL_MS);
    call.answeredAt = host.now();
    const look = () => {
        const left = call.answeredAt + max - host.now();
        call.patience = 0;
        if (unanswered(call) === 0) return;
        if (left > 0) { call.patience = addTimer(look, left, [], false, true); return; }
        write(LEVEL.warn, `${call.unanswered} binding call${call.unanswered === 1 ? " was" : "s were"} not answered within ${max} ms after the result`);
        dropWaiting(call);
        settle(call);
    };
    call.patience = addTimer(look, max, [], false, true);
}

// An error that no code of the program can see any more: of the call whose turn it is.
function uncaught(e, kind) {
    if (current !== null) fail(current, e, kind);
}

function rejected(promise, reason) { uncaught(reason, "unhandled"); }

function stuck() {
    const calls = list();
    mapForEach(active, (call) => push(calls, call));
    for (let i = 0; i < calls.length; i++) {
        const call = calls[i];
        if (call.soon > 0) continue; // its turn comes
        enter(call);
        if (call.settling) { finish(call); continue; } // only waitUntil() is left, and it cannot end
        const e = new E("the program's promise never settled and nothing is left that could settle it");
        fail(call, e, "stuck");
    }
}

async function settled(promise) {
    try { await promise; return null; } catch (e) { return { __proto__: null, e }; }
}

function makeContext(call, props) {
    const ctx = {};
    define(ctx, "waitUntil", function waitUntil(promise) {
        push(call.waits, settled(promise));
    });
    define(ctx, "passThroughOnException", function passThroughOnException() { });
    defineProperty(ctx, "props", { __proto__: null, value: props ?? {}, enumerable: true });
    return ctx;
}

const isWorkerClass = (v) => typeof v === "function" && isPrototypeOf(WorkerEntrypoint.prototype, v.prototype ?? null);
const isClass = (v) => typeof v === "function" && stringStartsWith(functionToString(v), "class");

// A method that a class of the program defines: not what every object has.
function rpcMethod(instance, name, entrypoint) {
    for (let p = getPrototypeOf(instance), i = 0; p !== null && p !== objectProto && p !== WorkerEntrypoint.prototype && i < 100; p = getPrototypeOf(p), i++) {
        const d = getOwnPropertyDescriptor(p, name);
        if (d !== undefined && typeof d.value === "function" && name !== "constructor") return d.value;
    }
    throw new TypeErrorCtor(`entrypoint '${entrypoint}' has no method '${name}'`);
}

function argumentList(call, spec, body) {
    if (spec.http !== undefined) {
        const one = list();
        push(one, makeRequest(call, spec.http, body));
        return one;
    }
    const args = spec.args ?? [], out = list();
    for (let i = 0; i < args.length; i++) push(out, spec.tagged ? fromTagged(args[i]) : args[i]);
    return out;
}

// The function to call for a spec, bound to its arguments.
function resolveEntry(call, spec, body) {
    const name = spec.entrypoint ?? "default", exported = program.linked.get(name);
    const ctx = makeContext(call, spec.props), env = program.env, args = argumentList(call, spec, body);
    const method = spec.method ?? (spec.http !== undefined ? "fetch" : "run");
    if (exported === undefined)
        throw new TypeErrorCtor(name === "default" ? "the program has no default export: export a function, an object or a class"
            : `the program has no export '${name}'`);
    if (isWorkerClass(exported) || isClass(exported)) {
        const instance = construct(exported, [ctx, env]);
        return {
            __proto__: null,
            verify: () => typeof instance.verify === "function" ? apply(instance.verify, instance, []) : undefined,
            run: () => apply(rpcMethod(instance, method, name), instance, args),
        };
    }
    const withArgs = (before, after) => {
        const all = list();
        for (let i = 0; i < before.length; i++) push(all, before[i]);
        for (let i = 0; i < after.length; i++) push(all, after[i]);
        return all;
    };
    if (typeof exported === "function") {
        if (method !== "run" && method !== name)
            throw new TypeErrorCtor(`entrypoint '${name}' is a function: it has no method '${method}'`);
        return { __proto__: null, verify: () => undefined, run: () => apply(exported, undefined, withArgs([env], args)) };
    }
    if (!isObject(exported)) throw new TypeErrorCtor(`the export '${name}' is neither a function, an object nor a class`);
    const fn = exported[method];
    if (typeof fn !== "function" || (!hasOwn(exported, method) && method in objectProto))
        throw new TypeErrorCtor(`entrypoint '${name}' has no method '${method}'`);
    return {
        __proto__: null,
        verify: () => typeof exported.verify === "function" ? apply(exported.verify, exported, [env]) : undefined,
        run: () => apply(fn, exported, method === "run" ? withArgs([env], args) : withArgs(args, [env, ctx])),
    };
}

function sendResult(call, spec, value) {
    let text;
    try {
        text = spec.tagged ? taggedText(value) : value === undefined ? "" : resultText(value);
    } catch (e) {
        report(call, e, "result");
        return;
    }
    if (!host.send(ISOLATE_RESULT, call.id, text))
        report(call, limitError(`the result is larger than ${host.limit(ISOLATE_LIMIT_RESULT_BYTES)} bytes`), "limit");
}

function resultText(value) {
    if (typeof value === "function" || typeof value === "symbol")
        throw new TypeErrorCtor(`the result is ${describe(value, 0, { path: list(), left: 1000 })}, which JSON cannot represent`);
    return jsonStringify(value, isObject(value) ? forJson : undefined) ?? "null";
}

// What JSON.stringify would make {} of: a Map as its entries, a Set as its values, an Error as its
// name, message, code, stack and cause with its own properties. A toJSON() has been asked before.
function forJson(key, v) {
    if (typeof v !== "object" || v === null || isArray(v) || host.isProxy(v)) return v;
    const proto = getPrototypeOf(v);
    if (proto === objectProto || proto === null) return v;
    if (isMap(v)) {
        const out = list();
        mapForEach(v, (value, k) => push(out, pair(k, value)));
        return out;
    }
    if (isSet(v)) {
        const out = list();
        setForEach(v, (value) => push(out, value));
        return out;
    }
    if (!isError(v)) return v;
    const out = { __proto__: null, name: errorText(v, "name") || "Error", message: errorText(v, "message") };
    const own = objectKeys(v);
    for (let i = 0; i < own.length; i++)
        defineProperty(out, own[i], { __proto__: null, value: v[own[i]], writable: true, enumerable: true, configurable: true });
    const code = dataProperty(v, "code"), cause = dataProperty(v, "cause");
    if (code !== undefined) out.code = code;
    if (cause !== undefined) out.cause = cause;
    out.stack = clip(formatError(v), MAX_STACK);
    return out;
}

async function perform(call, spec, body) {
    let value;
    try {
        const entry = resolveEntry(call, spec, body);
        if (spec.verify) {
            call.muted = true;
            try { await entry.verify(); } finally { call.muted = false; }
        }
        if (call.failed) return;
        value = await entry.run();
        if (call.failed) return;
        if (spec.http !== undefined) await sendResponse(call, value);
    } catch (e) {
        fail(call, e, "error");
        return;
    }
    if (!call.failed) later(call, () => answer(call, spec, value));
}

function answer(call, spec, value) {
    if (call.failed) return; // a rejection that nobody handled came before it
    if (spec.http === undefined) sendResult(call, spec, value);
    call.settling = true;
    host.settles(call.id);
    later(call, settle); // toJSON() is the program's
}

// Waits for what waitUntil() was given, also while it grows, until the deadline.
async function waitOut(call) {
    call.waiting = true;
    const late = new P((resolve) => {
        call.deadline = addTimer(() => resolve(true), host.limit(ISOLATE_LIMIT_WAIT_UNTIL_MS), [], false, true);
    });
    while (call.waited < call.waits.length && !call.failed) {
        const outcome = await firstOf(call.waits[call.waited], late);
        if (outcome === true) {
            write(LEVEL.warn, `ctx.waitUntil() was still pending after ${host.limit(ISOLATE_LIMIT_WAIT_UNTIL_MS)} ms`);
            call.waited = call.waits.length;
        } else {
            call.waited++;
            if (outcome !== null) fail(call, outcome.e, "unhandled");
        }
    }
    dropTimer(call.deadline);
    call.deadline = 0;
    call.waiting = false;
    later(call, settle);
}

function firstOf(a, b) {
    return new P((resolve) => {
        const pass = async (p) => { resolve(await p); };
        pass(a);
        pass(b);
    });
}

function newCall(id, bindingCalls) {
    const call = {
        __proto__: null, id, bindingCalls, asked: 0, unanswered: 0, timers: 0, waits: list(), waited: 0, deadline: 0, patience: 0, answeredAt: 0, soon: 0,
        failed: false,    // ERROR was sent
        settling: false,  // the answer was sent
        waiting: false,   // waitOut() is at work
        over: false,      // DONE was sent
        muted: false, indent: "",
        room: WINDOW, wakeSender: null, input: list(), inputAt: 0, inputWhole: false, wakeReader: null,
        cancelled: false, // nobody waits for it
    };
    mapSet(active, id, call);
    setCurrent(call); // as the host has it
    return call;
}

async function begin(call, text, specText) {
    let spec;
    try {
        spec = jsonParse(specText);
        program = { __proto__: null, linked: null, env: makeEnv(spec.env) };
        program.linked = await loadProgram(text);
    } catch (e) {
        fail(call, e, "load");
        return;
    }
    if (call.failed) return;
    if (spec.main === false) later(call, () => answer(call, spec, undefined));
    else await perform(call, spec);
}

// A program is what the compiler linked, as JSON.
async function loadProgram(text) {
    const linked = loader.link(jsonParse(text), host.evaluate, makeBuiltins(program.env));
    await linked.evaluate();
    return linked;
}

// What a program can import by name. The values that belong to a run are filled in when it starts.
const absent = (name) => function () {
    throw new E(`${name}() is not available here`);
};
const makeBuiltins = (env) => ({
    __proto__: null,
    "cloudflare:workers": {
        __proto__: null, WorkerEntrypoint, DurableObject, RpcTarget, WorkflowEntrypoint,
        RpcStub: absent("RpcStub"), RpcPromise: absent("RpcPromise"), RpcProperty: absent("RpcProperty"), ServiceStub: absent("ServiceStub"),
        env, exports: objectFreeze({ __proto__: null }), waitUntil,
        withEnv: absent("withEnv"), withExports: absent("withExports"), withEnvAndExports: absent("withEnvAndExports"),
    },
    "cloudflare:sockets": {
        __proto__: null, connect: web.builtins["cloudflare:sockets"]().connect, internalNewHttpClient: absent("internalNewHttpClient"),
    },
});

// waitUntil() of "cloudflare:workers": of the call whose turn it is.
function waitUntil(promise) {
    if (current === null) throw new E("waitUntil() is for use during a call");
    push(current.waits, settled(promise));
}

function start(id, bindingCalls, text, specText) { begin(newCall(id, bindingCalls), text, specText); }
function call(id, bindingCalls, specText, body) {
    const c = newCall(id, bindingCalls);
    let spec;
    try { spec = jsonParse(specText); } catch (e) { fail(c, e, "load"); return; }
    perform(c, spec, body);
}

hooks.uncaught = uncaught;
hooks.settle = settle;

// As if nothing had run.
function clearCalls() {
    mapClear(active);
    program = null;
    setCurrent(null);
}

export { call, clearCalls, rejected, start, stuck };
