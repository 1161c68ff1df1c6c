// Touches every global and every native function once; run behind the system-call filter.
const bytes = (...list) => new Uint8Array(list);
const gather = async (stream) => {
  const out = [];
  for await (const chunk of stream) out.push(...chunk);
  return out;
};

test("text", () => {
  eq(new TextDecoder("utf-16le").decode(bytes(65, 0)), "A");
  eq(new TextDecoder("latin1").decode(bytes(0x80)), "\u20ac");
  eq(new TextEncoder().encodeInto("h\u00e9", new Uint8Array(8)).written, 3);
  eq(atob(btoa("x")), "x");
});
test("urls", () => {
  eq(new URL("https://b\u00fccher.example/?q=\u00e9").href, "https://xn--bcher-kva.example/?q=%C3%A9");
  eq(new URLPattern({ pathname: "/:id" }).exec("https://a/7").pathname.groups.id, "7");
});
test("clone, events, performance", async () => {
  eq(structuredClone(new Error("x")).message, "x");
  eq(AbortSignal.abort().aborted, true);
  await new Promise((resolve) => AbortSignal.timeout(1).addEventListener("abort", resolve));
  ok(performance.now() > 0);
  ok(performance.timeOrigin > 1.6e12);
  const { port1, port2 } = new MessageChannel();
  const got = new Promise((resolve) => port2.onmessage = resolve);
  port1.postMessage({ a: 1 });
  eq((await got).data.a, 1);
});
test("bodies", async () => {
  const form = new FormData();
  form.append("f", new File(["abc"], "n.txt"));
  eq(await (await new Response(form).formData()).get("f").text(), "abc");
  eq(await new Response(new Blob(["x"]).stream()).text(), "x");
  eq(await new Request("https://a/", { method: "POST", body: new URLSearchParams({ a: "b" }) }).text(), "a=b");
});
test("compression", async () => {
  for (const format of ["gzip", "deflate", "deflate-raw"]) {
    const z = new Blob(["hello".repeat(1000)]).stream().pipeThrough(new CompressionStream(format));
    eq((await gather(z.pipeThrough(new DecompressionStream(format)))).length, 5000);
  }
});
test("crypto", async () => {
  const s = crypto.subtle;
  eq(crypto.randomUUID().length, 36);
  for (const hash of ["SHA-1", "SHA-256", "SHA-384", "SHA-512"]) await s.digest(hash, bytes(1));
  const raw = (name, n, uses) => s.importKey("raw", new Uint8Array(n), name, name !== "HKDF" && name !== "PBKDF2", uses);
  const hmac = await s.generateKey({ name: "HMAC", hash: "SHA-256" }, true, ["sign", "verify"]);
  ok(await s.verify("HMAC", hmac, await s.sign("HMAC", hmac, bytes(1)), bytes(1)));
  for (const [name, more] of [["AES-GCM", { iv: new Uint8Array(12) }], ["AES-CBC", { iv: new Uint8Array(16) }],
    ["AES-CTR", { counter: new Uint8Array(16), length: 64 }]]) {
    const k = await raw(name, 32, ["encrypt", "decrypt"]);
    eq(new Uint8Array(await s.decrypt({ name, ...more }, k, await s.encrypt({ name, ...more }, k, bytes(1, 2)))), bytes(1, 2));
  }
  await s.deriveBits({ name: "PBKDF2", hash: "SHA-256", salt: bytes(1), iterations: 2 }, await raw("PBKDF2", 3, ["deriveBits"]), 64);
  await s.deriveBits({ name: "HKDF", hash: "SHA-256", salt: bytes(1), info: bytes() }, await raw("HKDF", 3, ["deriveBits"]), 64);
  await s.wrapKey("raw", hmac, await raw("AES-KW", 16, ["wrapKey"]), "AES-KW");
  for (const [gen, how] of [[{ name: "ECDSA", namedCurve: "P-256" }, { name: "ECDSA", hash: "SHA-256" }],
    [{ name: "Ed25519" }, "Ed25519"],
    [{ name: "RSA-PSS", hash: "SHA-256", modulusLength: 1024, publicExponent: bytes(1, 0, 1) }, { name: "RSA-PSS", saltLength: 8 }]]) {
    const pair = await s.generateKey(gen, true, ["sign", "verify"]);
    ok(await s.verify(how, pair.publicKey, await s.sign(how, pair.privateKey, bytes(7)), bytes(7)));
    await s.exportKey("jwk", pair.privateKey);
  }
  for (const gen of [{ name: "ECDH", namedCurve: "P-384" }, { name: "X25519" }]) {
    const a = await s.generateKey(gen, true, ["deriveBits"]), b = await s.generateKey(gen, true, ["deriveBits"]);
    eq(new Uint8Array(await s.deriveBits({ ...gen, public: b.publicKey }, a.privateKey, 256)),
      new Uint8Array(await s.deriveBits({ ...gen, public: a.publicKey }, b.privateKey, 256)));
  }
  const oaep = await s.generateKey({ name: "RSA-OAEP", hash: "SHA-1", modulusLength: 1024, publicExponent: bytes(1, 0, 1) }, true, ["encrypt", "decrypt"]);
  eq(new Uint8Array(await s.decrypt("RSA-OAEP", oaep.privateKey, await s.encrypt("RSA-OAEP", oaep.publicKey, bytes(9)))), bytes(9));
});
test("no network", async () => {
  await rejects(fetch("https://example.com/"), "TypeError", "this isolate has no network: globalOutbound is null");
});
test("every global can be touched", () => {
  for (const name of Object.getOwnPropertyNames(globalThis)) void globalThis[name];
  for (const name of ["ReadableByteStreamController", "WritableStreamDefaultWriter", "PerformanceMeasure", "ErrorEvent", "PromiseRejectionEvent"])
    eq(typeof globalThis[name], "function", name);
});
