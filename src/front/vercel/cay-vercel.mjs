// Sends what @vercel/sandbox says to vercel.com, and requests for *.vercel.run, to a cay server: node --import FILE.
const base = new URL(process.env.CAY_URL || "http://127.0.0.1:8787");
const token = process.env.VERCEL_OIDC_TOKEN ?? process.env.VERCEL_TOKEN ?? "";
const send = globalThis.fetch;
globalThis.fetch = async (input, init) => {
  const url = new URL(input instanceof Request ? input.url : input, globalThis.location?.href);
  const guest = url.hostname.match(/^(\d+-sbx_[0-9a-z]+)\.vercel\.run$/)?.[1];
  if (!guest && !(url.hostname === "vercel.com" && url.pathname.startsWith("/api/"))) return send(input, init);
  const { dispatcher, ...rest } = init ?? {};
  const request = new Request(input instanceof Request ? input : url, { duplex: "half", ...rest });
  const headers = new Headers(request.headers);
  if (guest) headers.set("host", `${guest}.localhost${base.port && ":" + base.port}`);
  if (guest && !headers.has("authorization") && /(^|\.)cay_/.test(token)) headers.set("authorization", `Bearer ${token}`);
  return send(new URL(url.pathname + url.search, base), { ...rest, method: request.method, headers, body: request.body, signal: request.signal, redirect: request.redirect, duplex: "half" });
};
