// Sizes and states of buffers that native code must survive, and work that is bounded by its reader.
const detached = () => {
  const u = new Uint8Array(8);
  u.buffer.transfer();
  return u;
};
const outOfBounds = () => {
  const b = new ArrayBuffer(8, { maxByteLength: 16 });
  const u = new Uint8Array(b, 4, 4);
  b.resize(2);
  return u;
};
const resizable = (n) => new Uint8Array(new ArrayBuffer(n, { maxByteLength: 64 }));

test("detached and out of bounds buffers are empty, not a crash", async () => {
  for (const make of [detached, outOfBounds]) {
    eq(new TextDecoder().decode(make()), "");
    eq(new Blob([make()]).size, 0);
    eq(await new Response(make()).text(), "");
    eq((await crypto.subtle.digest("SHA-256", make())).byteLength, 32);
    eq(crypto.getRandomValues(make()).length, 0);
    eq(new TextEncoder().encodeInto("abc", make()).written, 0);
    await rejects(crypto.subtle.importKey("raw", make(), { name: "HMAC", hash: "SHA-256" }, true, ["sign"]), "DataError");
  }
  const view = new DataView(new ArrayBuffer(8, { maxByteLength: 16 }), 6);
  view.buffer.resize(2);
  eq(new TextDecoder().decode(view), "");
  throws(() => structuredClone(detached()), "DataCloneError");
});
test("resizable buffers", () => {
  const u = resizable(4);
  u.fill(65);
  eq(new TextDecoder().decode(u), "AAAA");
  eq(crypto.getRandomValues(u).length, 4);
  eq(structuredClone(u).length, 4);
  eq(new TextEncoder().encodeInto("xyz", u).written, 3);
});
test("buffers that were given to a global can still be transferred", async () => {
  for (const use of [
    (u) => new TextDecoder().decode(u), (u) => new Blob([u]), (u) => new Response(u).text(), (u) => crypto.subtle.digest("SHA-1", u),
    (u) => crypto.getRandomValues(u), (u) => new TextEncoder().encodeInto("abc", u), (u) => structuredClone(u),
    (u) => crypto.subtle.importKey("raw", u, { name: "HMAC", hash: "SHA-256" }, true, ["sign"])]) {
    const u = new Uint8Array(8).fill(65);
    await use(u);
    const moved = u.buffer.transfer();
    eq([u.length, moved.byteLength], [0, 8], String(use));
  }
});
test("what a global made can be transferred", async () => {
  const key = await crypto.subtle.importKey("raw", new Uint8Array(16), "AES-GCM", true, ["encrypt"]);
  const made = [new TextEncoder().encode("abc"), new Uint8Array(await crypto.subtle.digest("SHA-1", new Uint8Array(1))),
    new Uint8Array(await new Response("abc").arrayBuffer()), new Uint8Array(await new Blob(["x"]).arrayBuffer()),
    new Uint8Array(await crypto.subtle.exportKey("raw", key)), await new Response("abc").bytes(),
    new Uint8Array(await crypto.subtle.encrypt({ name: "AES-GCM", iv: new Uint8Array(12) }, key, new Uint8Array(3)))];
  for (const u of made) {
    const n = u.length;
    ok(n > 0);
    eq([structuredClone(u, { transfer: [u.buffer] }).length, u.length], [n, 0]);
  }
});
test("a body is a copy: later changes are not seen", async () => {
  const u = new Uint8Array([65]);
  const r = new Response(u), b = new Blob([u]);
  u[0] = 66;
  eq([await r.text(), await b.text()], ["A", "A"]);
});
test("large text both ways", () => {
  const big = "h\u00e9\u20ac\ud83d\ude00".repeat(200000);
  const bytes = new TextEncoder().encode(big);
  eq(bytes.length, 2000000);
  ok(new TextDecoder().decode(bytes) === big);
  ok(atob(btoa("x".repeat(3000001))).length === 3000001);
});
test("random values: more than 65536 bytes is refused", () => {
  throws(() => crypto.getRandomValues(new Uint8Array(65537)), "QuotaExceededError");
});
test("a decompression bomb is inflated only as it is read", async () => {
  // 64 MiB of zeros, about 64 KB compressed.
  const zeros = new Uint8Array(1 << 20);
  let left = 64;
  const source = new ReadableStream({ pull(c) {
    if (left-- > 0) c.enqueue(zeros);
    else c.close();
  } });
  const bomb = await new Response(source.pipeThrough(new CompressionStream("gzip"))).bytes();
  ok(bomb.length < 100000, `bomb of ${bomb.length} bytes`);
  const { readable, writable } = new DecompressionStream("gzip");
  const writer = writable.getWriter();
  let written = false;
  writer.write(bomb).then(() => written = true, () => {});
  const reader = readable.getReader();
  for (let i = 0; i < 3; i++) {
    const { value } = await reader.read();
    ok(value.length <= 65536, `piece of ${value.length}`);
  }
  await new Promise((resolve) => setTimeout(resolve, 20));
  eq(written, false, "the write is done although nobody read the output:");
  await reader.cancel();
});
test("compressed data that ends early, is malformed or goes on is an error", async () => {
  const gz = await new Response(new Blob(["hello"]).stream().pipeThrough(new CompressionStream("gzip"))).bytes();
  const inflate = (parts) => new Response(new Blob(parts).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  eq(await inflate([gz]), "hello");
  await rejects(inflate([gz.subarray(0, gz.length - 1)]), "TypeError");
  await rejects(inflate([gz, "x"]), "TypeError");
  const nothing = await new Response(new Blob([]).stream().pipeThrough(new CompressionStream("gzip"))).bytes();
  eq(await inflate([nothing]), "");
  await rejects(inflate([nothing, "x"]), "TypeError");
  await rejects(inflate(["not gzip at all"]), "TypeError");
  const bad = gz.slice();
  bad[gz.length - 6] ^= 1;
  await rejects(inflate([bad]), "TypeError");
  await rejects(inflate([]), "TypeError");
});
test("long domains and URLs", () => {
  throws(() => new URL(`http://${"\u00e9".repeat(20000)}/`), "TypeError");
  eq(new URL(`http://a/${"\u00e9".repeat(10000)}`).pathname.length, 60001);
});
test("deep values overflow as an exception", () => {
  let deep = [];
  for (let i = 0; i < 200000; i++) deep = [deep];
  throws(() => structuredClone(deep), "RangeError");
});
test("key material of the wrong size", async () => {
  const s = crypto.subtle;
  const key = await s.importKey("raw", new Uint8Array(16), "AES-CBC", true, ["encrypt"]);
  await rejects(s.encrypt({ name: "AES-CBC", iv: new Uint8Array(1) }, key, new Uint8Array(16)), "OperationError");
  await rejects(s.importKey("raw", new Uint8Array(64), { name: "ECDSA", namedCurve: "P-256" }, true, ["verify"]), "DataError");
  await rejects(s.importKey("raw", new Uint8Array(65).fill(4), { name: "ECDSA", namedCurve: "P-256" }, true, ["verify"]), "DataError");
  await rejects(s.importKey("pkcs8", new Uint8Array(100), { name: "ECDSA", namedCurve: "P-256" }, true, ["sign"]), "DataError");
  await rejects(s.generateKey({ name: "RSA-PSS", hash: "SHA-256", modulusLength: 1 << 20, publicExponent: new Uint8Array([1, 0, 1]) }, true, ["sign"]), "OperationError");
  await rejects(s.digest("MD5", new Uint8Array(1)), "NotSupportedError");
});
