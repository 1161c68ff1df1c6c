// Sends what @vercel/sandbox says to vercel.com, and requests for *.vercel.run, to a cay server: node --import FILE.
const base = new URL(process.env.CAY_URL || 'http://127.0.0.1:8787');
const token = () => [process.env.VERCEL_OIDC_TOKEN, process.env.VERCEL_TOKEN].find((text) => /(^|\.)cay_/.test(text ?? ''));
const send = globalThis.fetch;
await send('data:,'); // node makes its dispatcher with the first request
const Agent = globalThis[Symbol.for('undici.globalDispatcher.1')].constructor;
// A server in a sandbox is known by its host name, NAME.localhost, which no name server has to know.
const lookup = async (name, options, done) => (await import('node:dns')).lookup(base.hostname.replace(/^\[|\]$/g, ''), options, done);
const inside = new Agent({ connect: { lookup, servername: base.hostname } });
globalThis.fetch = async (input, { dispatcher, ...init } = {}) => {
  const url = new URL(input?.url ?? input);
  const [, guest] = /^(\d+-sbx_\w+)\.vercel\.run$/.exec(url.hostname) ?? [];
  if (!guest && (url.hostname !== 'vercel.com' || !url.pathname.startsWith('/api/'))) return send(input, { ...init, ...(dispatcher && { dispatcher }) });
  const request = new Request(input, init);
  if (guest && token() && !request.headers.has('authorization')) request.headers.set('authorization', `Bearer ${token()}`);
  const to = new URL(url.pathname + url.search, guest ? `${base.protocol}//${guest}.localhost:${base.port}` : base);
  return send(new Request(to, request), guest && { dispatcher: inside });
};
