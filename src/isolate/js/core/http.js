// HTTP calls: a Request in, a Response out. The body of a request is whole; that of a response goes
// out in pieces as the program makes them.

const RESPONSE = 52;
const web = installWeb(webHost, {
    __proto__: null,
    queueMicrotask: globals.queueMicrotask,
    setTimeout: globals.setTimeout,
    clearTimeout: globals.clearTimeout,
    reportError: (e) => uncaught(e, "error"),
});
// Made now, so that the first use in an isolate compiles nothing.
web.warm(["URL", "URLSearchParams", "TextEncoder", "TextDecoder", "structuredClone", "crypto", "Headers", "Request",
    "Response", "AbortController", "atob", "Event", "DOMException"]);

function makeRequest(http, body) {
    return web.makeRequest({
        __proto__: null, method: http.method ?? "GET", url: http.url, headers: http.headers ?? [],
        body: body !== undefined && typedLength(body) > 0 ? body : null,
    });
}

async function sendResponse(call, value) {
    if (!web.isResponse(value)) throw new TypeErrorCtor(`fetch() returned ${inspect(value)}, not a Response`);
    const parts = web.responseParts(value), { body, headers } = parts;
    if (parts.status === 0) throw new TypeErrorCtor("fetch() returned Response.error(), which stands for a network error and cannot be sent");
    let size = 0;
    for (let i = 0; i < headers.length; i++) size += headers[i][0].length + headers[i][1].length + 4;
    if (size > host.limit(4)) throw limitError(`the headers of the response have ${size} bytes; the limit is ${host.limit(4)}`);
    host.send(RESPONSE, call.id, jsonStringify({
        __proto__: null, status: parts.status, statusText: parts.statusText, headers,
    }));
    if (body === null) host.body(call.id, new Bytes(0), true);
    else if (isTyped(body)) host.body(call.id, construct(Bytes, [body]), true);
    else await sendStream(call, body);
}

async function sendStream(call, stream) {
    const reader = stream.getReader();
    for (;;) {
        const { done, value } = await reader.read();
        if (call.failed) return;
        if (done) { host.body(call.id, new Bytes(0), true); return; }
        if (!isObject(value) || typedTag(value) !== "Uint8Array")
            throw new TypeErrorCtor("the body of a Response must be a stream of Uint8Array");
        // A copy: taking the pointer of a buffer pins it, and this one is the program's.
        host.body(call.id, construct(Bytes, [value]), false);
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
