"use strict";
// What programs do first with each global. Run once in the zygote: JSC keeps the bytecode, and a forked
// isolate neither parses nor compiles it again. Nothing is left behind: no timers, no listeners.
module.exports = (modules) => {
  const { TextEncoder, TextDecoder } = modules.encoding();
  const { Headers, Request, Response } = modules.fetch();
  const { URL, URLSearchParams } = modules.url();
  const { ReadableStream, TransformStream, WritableStream } = modules.streams();
  const { Blob, FormData } = modules.blob();
  const { AbortController, Event, EventTarget } = modules.events();
  const { CompressionStream, DecompressionStream } = modules.compression();
  const { atob, btoa } = modules.base64();
  const { structuredClone } = modules.clone();
  const { crypto } = modules.crypto();
  const { performance } = modules.performance();
  const { DOMException } = modules.dom();
  modules.misc();
  modules.messaging();
  const { URLPattern } = modules.urlpattern();

  const work = async () => {
    new TextDecoder().decode(new TextEncoder().encode("h\u00e9"));
    atob(btoa("hello"));
    structuredClone({ a: [1, "x", new Date(0)], m: new Map([[1, new Set([2])]]), b: new Uint8Array(2) });
    const url = new URL("/a/../b?c=d&e=f#g", "https://user@example.com:8080/x");
    url.searchParams.append("h", "i j");
    url.pathname = "/k l";
    String(new URLSearchParams({ a: "1" }));
    new URLPattern({ pathname: "/a/:b" }).exec("https://example.com/a/c");
    const headers = new Headers({ "Content-Type": "text/plain", b: "1" });
    headers.append("b", "2");
    headers.forEach(() => {});
    for (const entry of headers) void entry;
    const response = new Response("hi", { status: 201, headers });
    await response.clone().text();
    await response.arrayBuffer();
    await Response.json({ a: 1 }).json();
    const request = new Request(url.href.replace("user@", ""), { method: "POST", body: "{}", headers });
    await request.json();
    const form = new FormData();
    form.append("a", "b");
    form.append("f", new Blob(["x"], { type: "t/p" }), "n");
    await new Response(form).formData();
    await new Blob(["a", new Uint8Array(2)]).slice(0, 2).text();
    const text = new ReadableStream({ start(c) {
      c.enqueue("a");
      c.close();
    } }).pipeThrough(new TransformStream({ transform(chunk, c) {
      c.enqueue(chunk);
    } }));
    await text.pipeTo(new WritableStream({ write() {} }));
    const reader = new Response("body").body.getReader();
    while (!(await reader.read()).done);
    const gz = await new Response(new Blob(["abc"]).stream().pipeThrough(new CompressionStream("gzip"))).bytes();
    await new Response(new Response(gz).body.pipeThrough(new DecompressionStream("gzip"))).text();
    const target = new EventTarget();
    target.addEventListener("x", () => {}, { once: true });
    target.dispatchEvent(new Event("x"));
    const controller = new AbortController();
    controller.signal.addEventListener("abort", () => {});
    controller.abort();
    String(new DOMException("m", "AbortError"));
    crypto.randomUUID();
    crypto.getRandomValues(new Uint8Array(4));
    await crypto.subtle.digest("SHA-256", new Uint8Array(4));
    const key = await crypto.subtle.importKey("raw", new Uint8Array(9), { name: "HMAC", hash: "SHA-256" }, false, ["sign", "verify"]);
    await crypto.subtle.verify("HMAC", key, await crypto.subtle.sign("HMAC", key, new Uint8Array(3)), new Uint8Array(3));
    performance.now();
  };
  return work();
};
