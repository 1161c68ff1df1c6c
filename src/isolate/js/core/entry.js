// Entrypoints: load the program, find what was asked for, call it, report, wait for what
// ctx.waitUntil() was given, and say that the call is done.

const RESULT = 49, ERROR = 50;
let active = new MapCtor(), program = null;

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
    if (call.deadline !== 0) dropTimer(call.deadline);
    mapDelete(active, call.id);
    host.done(call.id);
    if (mapSize(active) === 0) bindingCalls = 0;
}

function report(call, e, kind) {
    let text;
    try { text = jsonStringify(errorReport(e, kind)); } catch { text = `{"kind":"${kind}","name":"Error","message":"an error that cannot be shown"}`; }
    host.send(ERROR, call.id, text);
}

function fail(call, e, kind) {
    if (call.over) return;
    report(call, e, kind);
    finish(call);
}

// An error that no code of the program can see any more. With one call active it is that call's;
// with several nobody can tell, so it goes to the log.
function uncaught(e, kind) {
    if (mapSize(active) === 1) {
        mapForEach(active, (call) => fail(call, e, kind));
        return;
    }
    write(LEVEL.error, `Uncaught ${isObject(e) && isError(e) ? formatError(e) : inspect(e)}`);
}

function rejected(promise, reason) { uncaught(reason, "unhandled"); }

function stuck() {
    const calls = list();
    mapForEach(active, (call) => push(calls, call));
    for (let i = 0; i < calls.length; i++) {
        const call = calls[i];
        if (call.answered) { finish(call); continue; } // only waitUntil() is left, and it cannot end
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

function argumentList(spec, body) {
    if (spec.http !== undefined) {
        const one = list();
        push(one, makeRequest(spec.http, body));
        return one;
    }
    const args = spec.args ?? [], out = list();
    for (let i = 0; i < args.length; i++) push(out, spec.tagged ? fromTagged(args[i]) : args[i]);
    return out;
}

// The function to call for a spec, bound to its arguments.
function resolveEntry(call, spec, body) {
    const name = spec.entrypoint ?? "default", exported = program.linked.get(name);
    const ctx = makeContext(call, spec.props), env = program.env, args = argumentList(spec, body);
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
    if (!host.send(RESULT, call.id, text))
        report(call, limitError(`the result is larger than ${host.limit(1)} bytes`), "limit");
}

function resultText(value) {
    if (typeof value === "function" || typeof value === "symbol")
        throw new TypeErrorCtor(`the result is ${describe(value, 0, { path: list(), left: 1000 })}, which JSON cannot represent`);
    return jsonStringify(value) ?? "null";
}

async function perform(call, spec, body) {
    let value;
    try {
        const entry = resolveEntry(call, spec, body);
        if (spec.verify) {
            muted = true;
            try { await entry.verify(); } finally { muted = false; }
        }
        if (call.over) return;
        value = await entry.run();
        if (call.over) return;
        if (spec.http !== undefined) await sendResponse(call, value);
    } catch (e) {
        fail(call, e, "error");
        return;
    }
    if (call.over) return;
    call.answered = true;
    if (spec.http === undefined) sendResult(call, spec, value);
    await waitOut(call);
    finish(call);
}

// Waits for what waitUntil() was given, also while it grows, until the deadline.
async function waitOut(call) {
    if (call.waits.length === 0) return;
    const late = new P((resolve) => {
        call.deadline = addTimer(() => resolve(true), host.limit(2), [], false, true);
    });
    for (let i = 0; i < call.waits.length && !call.over; i++) {
        const outcome = await firstOf(call.waits[i], late);
        if (call.over) return;
        if (outcome === true) {
            write(LEVEL.warn, `ctx.waitUntil() was still pending after ${host.limit(2)} ms`);
            return;
        }
        if (outcome !== null) { fail(call, outcome.e, "unhandled"); return; }
    }
}

function firstOf(a, b) {
    return new P((resolve) => {
        const pass = async (p) => { resolve(await p); };
        pass(a);
        pass(b);
    });
}

const newCall = (id) => {
    const call = { __proto__: null, id, over: false, answered: false, waits: list(), deadline: 0 };
    mapSet(active, id, call);
    return call;
};

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
    if (call.over) return;
    if (spec.main === false) { call.answered = true; host.send(RESULT, call.id, ""); finish(call); return; }
    await perform(call, spec);
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

// waitUntil() of "cloudflare:workers": with several calls active, the youngest takes it.
function waitUntil(promise) {
    let last = null;
    mapForEach(active, (call) => { last = call; });
    if (last === null) throw new E("waitUntil() is for use during a call");
    push(last.waits, settled(promise));
}

function start(id, text, specText) { begin(newCall(id), text, specText); }
function call(id, specText, body) {
    const c = newCall(id);
    let spec;
    try { spec = jsonParse(specText); } catch (e) { fail(c, e, "load"); return; }
    perform(c, spec, body);
}

// After a warm-up: as if nothing had run.
function clear() {
    heap = list(); timers = new MapCtor(); timerId = timerOrder = userTimers = 0;
    waiting = list(); freeSlots = list(); callNumber = bindingCalls = 0; bindings = list();
    active = new MapCtor(); program = null;
    indent = ""; muted = false; counts = new MapCtor(); watches = new MapCtor();
    arm();
}

if (host.probe !== undefined) define(globals, "probe", host.probe); // the test build

return { __proto__: null, start, call, reply, gone, tick, stuck, seed, clear, rejected };
})
