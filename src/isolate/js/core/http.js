// HTTP calls: a Request in, a Response out. Bodies that are not small move in pieces.
import {
    Bytes, E, P, TypeErrorCtor, active, construct, enter, globals, hooks, isObject, isTyped, jsonStringify,
    limitError, list, mapGet, mathMin, pair, push, typedLength, typedTag,
} from "./base.js";
import { inspect } from "./inspect.js";
import { invoke } from "./bindings.js";

const web = installWeb(webHost, {
    __proto__: null,
    queueMicrotask: globals.queueMicrotask,
    setTimeout: globals.setTimeout,
    clearTimeout: globals.clearTimeout,
    reportError: (e) => hooks.uncaught(e, "error"),
});
// Made now, so that the first use in an isolate compiles nothing.
web.warm(["URL", "URLSearchParams", "TextEncoder", "TextDecoder", "structuredClone", "crypto", "Headers", "Request",
    "Response", "AbortController", "atob", "Event", "DOMException"]);

// Bodies move within a window (ISOLATE_BODY_WINDOW), in both directions: what the client has not read
// yet, and what the program has not, waits where it is made.
const WINDOW = ISOLATE_BODY_WINDOW;
let awaiting = 0;

// A promise that the front settles: while there is one, the program is not stuck.
function fromFront(keep) {
    host.awaits(++awaiting);
    return new P((resolve) => {
        let kept = true;
        keep((goes) => {
            if (kept) host.awaits(--awaiting);
            kept = false;
            if (goes) resolve();
        });
    });
}

// What waits for the front goes on; or never, because the call is over: nobody would pay for it.
function wake(call, goes) {
    const { wakeSender, wakeReader } = call;
    call.wakeSender = call.wakeReader = null;
    if (wakeSender !== null) wakeSender(goes);
    if (wakeReader !== null) wakeReader(goes);
}

function room(id, bytes) {
    const call = mapGet(active, id);
    if (call === undefined) return;
    enter(call);
    call.room += bytes;
    wake(call, true);
}

function input(id, bytes, last) {
    const call = mapGet(active, id);
    if (call === undefined) return;
    enter(call);
    if (typedLength(bytes) > 0) push(call.input, bytes);
    call.inputWhole = last;
    wake(call, true);
}

function cancel(id) {
    const call = mapGet(active, id);
    if (call === undefined) return;
    enter(call);
    call.cancelled = true;
    wake(call, true);
}

async function readInput(call) {
    while (call.inputAt === call.input.length && !call.inputWhole && !call.cancelled && !call.over)
        await fromFront((w) => { call.wakeReader = w; });
    if (call.inputAt < call.input.length) {
        const bytes = call.input[call.inputAt];
        call.input[call.inputAt++] = null;
        if (call.inputAt === call.input.length) call.input.length = call.inputAt = 0;
        if (!call.over) host.taken(call.id, typedLength(bytes));
        return bytes;
    }
    if (!call.inputWhole) throw new TypeErrorCtor("the body of the request broke off");
    return null;
}

function makeRequest(call, http, body) {
    const method = http.method ?? "GET";
    if (method === "GET" || method === "HEAD") body = null;
    else if (http.stream) body = web.streamFrom(() => readInput(call));
    else if (body === undefined || typedLength(body) === 0) body = null;
    return web.makeRequest({ __proto__: null, method, url: http.url, headers: http.headers ?? [], body });
}

async function sendResponse(call, value) {
    if (!web.isResponse(value)) throw new TypeErrorCtor(`fetch() returned ${inspect(value)}, not a Response`);
    const parts = web.responseParts(value), { body, headers } = parts, whole = body === null || isTyped(body);
    if (parts.status === 0) throw new TypeErrorCtor("fetch() returned Response.error(), which stands for a network error and cannot be sent");
    let size = 0;
    for (let i = 0; i < headers.length; i++) size += headers[i][0].length + headers[i][1].length + 4;
    if (size > host.limit(ISOLATE_LIMIT_HEAD_BYTES)) throw limitError(`the headers of the response have ${size} bytes; the limit is ${host.limit(ISOLATE_LIMIT_HEAD_BYTES)}`);
    const head = { __proto__: null, status: parts.status, statusText: parts.statusText, headers };
    const bytes = body === null ? new Bytes(0) : whole ? construct(Bytes, [body]) : null;
    if (whole) head.length = typedLength(bytes);
    host.send(ISOLATE_RESPONSE, call.id, jsonStringify(head));
    if (whole) await sendBytes(call, bytes, true);
    else await sendStream(call, body);
}

// True if all of it was sent.
async function sendBytes(call, bytes, last) {
    const n = typedLength(bytes);
    let at = 0;
    do {
        while (call.room === 0 && n > 0 && !call.failed && !call.cancelled)
            await fromFront((w) => { call.wakeSender = w; });
        if (call.failed || call.cancelled) return false;
        const k = mathMin(call.room, n - at);
        call.room -= k;
        host.body(call.id, bytes, last && at + k === n, at, k);
        at += k;
    } while (at < n);
    return true;
}

async function sendStream(call, stream) {
    const reader = stream.getReader();
    for (;;) {
        const { done, value } = await reader.read();
        if (call.failed) return;
        if (done) { await sendBytes(call, new Bytes(0), true); return; }
        if (!isObject(value) || typedTag(value) !== "Uint8Array")
            throw new TypeErrorCtor("the body of a Response must be a stream of Uint8Array");
        // A copy: taking the pointer of a buffer pins it, and this one is the program's.
        if (typedLength(value) > 0 && !await sendBytes(call, construct(Bytes, [value]), false)) {
            if (call.cancelled) reader.cancel(new E("the client is gone"));
            return;
        }
    }
}

// env.worker.fetch(): a Request and a Response as tagged values.
async function fetchWorker(binding, args) {
    const request = new globals.Request(args[0], args[1]);
    const bytes = new Bytes(await request.arrayBuffer()), headers = list();
    request.headers.forEach((value, name) => push(headers, pair(name, value)));
    const reply = await invoke(binding, "fetch", [{
        __proto__: null, method: request.method, url: request.url, headers, body: bytes,
    }]);
    return web.makeResponse({ __proto__: null, status: reply.status, statusText: reply.statusText, headers: reply.headers, body: reply.body });
}

function clearHttp() { awaiting = 0; }

export { WINDOW, cancel, clearHttp, fetchWorker, input, makeRequest, room, sendResponse, wake, web };
