// What the browser tests share: a server, a browser, a page that remembers its errors, and a relay
// whose line can be cut.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { connect, createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const useMock = process.env.CAY_TEST_MOCK === '1';
const artifacts = at('../artifacts/');

/** No wait in these tests is longer. */
export const patience = 20_000;

export const viewports = {
  light: { viewport: { width: 1200, height: 900 }, colorScheme: 'light' },
  phone: {
    viewport: { width: 320, height: 700 },
    colorScheme: 'light',
    isMobile: true,
    hasTouch: true,
  },
};

/** Starts cay; with CAY_TEST_MOCK=1 the mock of web/dev/ and the pages of build/web/ instead. */
export async function startServer(options = {}) {
  if (!useMock) {
    const { startCay } = await import('../lib/cay.mjs');
    return startCay(options);
  }
  const dir = at('../../build/web');
  assert.ok(existsSync(`${dir}/index.html`), 'run `npm run build` in web/ first');
  const { startMock } = await import('../../web/dev/mock.mjs');
  return startMock({ dir, key: options.config?.require_key ? 'mock-key-1' : null });
}

export function startBrowser() {
  return chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      '--disable-quic',
    ],
  });
}

const { paths, components } = JSON.parse(
  readFileSync(at('../../src/front/api/openapi.json'), 'utf8'),
);
const resolve = (it) => (it.$ref ? components.parameters[it.$ref.split('/').at(-1)] : it);
const described = Object.entries(paths).map(([path, { parameters = [], ...operations }]) => ({
  pattern: new RegExp(`^${path.replaceAll('.', '\\.').replace(/\{[^}]*\}/g, '[^/]+')}$`),
  operations,
  shared: parameters,
}));

/** What of a request openapi.json does not know; '' if it describes it. */
function undescribed(method, url) {
  const found = described.find(
    ({ pattern, operations }) => pattern.test(url.pathname) && operations[method.toLowerCase()],
  );
  if (!found) return `${method} ${url.pathname}`;
  const own = found.operations[method.toLowerCase()].parameters ?? [];
  const known = [...found.shared, ...own]
    .map(resolve)
    .filter((it) => it.in === 'query')
    .map(({ name }) => name);
  const strange = [...url.searchParams.keys()].filter((name) => !known.includes(name));
  return strange.length > 0 ? `${method} ${url.pathname}?${strange}` : '';
}

/** Whether a request is the page's own doing, and not a part of the page. */
const isCall = (request, { pathname }) =>
  pathname.startsWith('/v1/') || ['fetch', 'xhr'].includes(request.resourceType());

/**
 * A page in a fresh profile. `problems` gathers errors and warnings of the console, uncaught
 * exceptions, broken policy, requests to any other server and such as openapi.json does not describe; `expected` says which are part of the
 * test, such as the line a browser logs about every 401.
 */
export async function openPage(browser, origin, options = {}) {
  const { expected = [], ...contextOptions } = options;
  const context = await browser.newContext({ ...viewports.light, ...contextOptions });
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  const problems = [];
  const note = (text) => {
    if (!expected.some((pattern) => pattern.test(text))) problems.push(text);
  };
  page.on('console', (message) => {
    // A page that is left, or an agent that is changed, before its socket was open: the browser says so, nobody is harmed.
    if (/WebSocket is closed before the connection is established/.test(message.text())) return;
    if (['error', 'warning'].includes(message.type())) note(`console: ${message.text()}`);
  });
  page.on('pageerror', (error) => note(`exception: ${error.message}`));
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (url.protocol !== 'data:' && url.origin !== origin) note(`request to ${url.origin}`);
    const strange = isCall(request, url) ? undescribed(request.method(), url) : '';
    if (strange && url.origin === origin) note(`not in openapi.json: ${strange}`);
  });
  page.on('websocket', (socket) => {
    const strange = undescribed('GET', new URL(socket.url()));
    if (strange) note(`not in openapi.json: ${strange}`);
  });
  await page.exposeFunction('noteViolation', note);
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => {
      globalThis.noteViolation(`policy: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  return { context, page, problems };
}

/** Fails when the page is wider than the screen; a phone's innerWidth grows with what sticks out. */
export async function assertFits(page, what) {
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  const screen = page.viewportSize().width;
  assert.ok(width <= screen, `${what}: ${width} > ${screen}`);
}

/**
 * A picture of the page for people, if they want them (CAY_TEST_PICTURES=1): each takes the browser a good part of a
 * second. Of one that is called light, another in the dark.
 */
export async function screenshot(page, name) {
  if (process.env.CAY_TEST_PICTURES !== '1') return;
  mkdirSync(artifacts, { recursive: true });
  // As JPEG: a picture is to be looked at, and PNG takes ten times as long to make.
  const picture = (of) =>
    page.screenshot({ path: `${artifacts}web-${of}.jpg`, quality: 85, fullPage: true });
  await picture(name);
  if (!name.endsWith('-light')) return;
  await page.emulateMedia({ colorScheme: 'dark' });
  await picture(name.replace(/light$/, 'dark'));
  await page.emulateMedia({ colorScheme: 'light' });
}

/** A TCP relay in front of the server: cut() drops every connection and refuses new ones. */
export async function startRelay(target) {
  let { hostname, port } = new URL(target);
  const sockets = new Set();
  const keep = (socket) => {
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
    socket.on('close', () => sockets.delete(socket));
  };
  const onConnection = (near) => {
    const far = connect(Number(port), hostname);
    keep(near);
    keep(far);
    near.pipe(far).pipe(near);
    near.on('close', () => far.destroy());
    far.on('close', () => near.destroy());
  };
  let server = null;
  let bound = 0;
  const listen = async () => {
    server = createServer(onConnection);
    await new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(bound, '127.0.0.1', resolve);
    });
    bound = server.address().port;
  };
  const cut = async () => {
    if (!server) return;
    const closed = new Promise((resolve) => server.close(resolve));
    for (const socket of sockets) socket.destroy();
    await closed;
    server = null;
  };
  await listen();
  /** As when a server was started again. */
  const lead = (to) => ({ hostname, port } = new URL(to));
  return { url: `http://127.0.0.1:${bound}`, cut, restore: listen, stop: cut, lead };
}

/** Says it to the agent as soon as there is a line: what is sent before stays in the box. */
export async function tell(page, text) {
  const box = page.locator('textarea[aria-label=Message]:not([placeholder="Not connected"])');
  await box.fill(text);
  await page.keyboard.press('Enter');
}

export async function getJson(url, headers = {}) {
  const response = await fetch(url, { headers, signal: AbortSignal.timeout(patience) });
  assert.equal(response.status, 200, url);
  return response.json();
}

/** Runs a small program `count` times; false when the server cannot run programs. */
export async function makeRuns(cay, count) {
  for (let i = 0; i < count; i++) {
    const response = await fetch(`${cay.url}/v1/run`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ code: `export default () => ${i} + 1` }),
      signal: AbortSignal.timeout(patience),
    });
    await response.arrayBuffer();
    if (response.status === 404) return false;
    assert.equal(response.status, 200, 'POST /v1/run');
  }
  return true;
}

/**
 * What a program waits with until the test lets it go on: put `words` into it, with `env`; it goes on by one row each.
 */
export async function startGate(cay, name) {
  const env = { gate: { $facet: `gate-${name}` } };
  const post = async (code) => {
    const answer = await fetch(`${cay.url}/v1/run`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ env, code: `export default (env) => env.gate.execute("${code}")` }),
      signal: AbortSignal.timeout(patience),
    });
    assert.equal((await answer.json()).status, 'done', code);
  };
  await post('CREATE TABLE IF NOT EXISTS rows (x)');
  const words =
    "while ((await env.gate.query('DELETE FROM rows RETURNING x')).length === 0)" +
    ' await new Promise((done) => setTimeout(done, 30));';
  return { env, words, open: () => post('INSERT INTO rows VALUES (1)') };
}

/** Asks until the answer is truthy, and says what was waited for when it never is. */
export async function until(what, ask) {
  const end = Date.now() + patience;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    assert.ok(Date.now() < end, `waited too long until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/**
 * A model that does as it is told, behind OpenAI's streaming API. The last thing the person said
 * decides: `say TEXT` is answered with TEXT, `fail` with an error, anything else is a program for
 * executeCode, after which the model says what the tool gave back; if the program begins with
 * `// again`, it asks for it again instead, without end.
 */
export async function startModel() {
  const server = createHttpServer(async (req, res) => {
    let body = '';
    for await (const part of req) body += part;
    const { messages = [] } = JSON.parse(body || '{}');
    const last = messages.at(-1) ?? {};
    const textOf = ({ content }) =>
      typeof content === 'string' ? content : (content ?? []).map((it) => it.text).join('');
    const said = textOf(last);
    if (last.role === 'user' && said === 'fail') {
      res.writeHead(400, { 'Content-Type': 'application/json' });
      return res.end(JSON.stringify({ error: { message: 'told to fail <b>so</b>' } }));
    }
    res.writeHead(200, { 'Content-Type': 'text/event-stream' });
    const send = (delta, finish_reason = null) =>
      res.write(
        `data: ${JSON.stringify({
          id: 'c1',
          object: 'chat.completion.chunk',
          created: 1,
          model: 'told',
          choices: [{ index: 0, delta, finish_reason }],
        })}\n\n`,
      );
    const asked = textOf(messages.findLast(({ role }) => role === 'user') ?? {});
    const isCode =
      asked.startsWith('// again') || (last.role === 'user' && !said.startsWith('say '));
    if (isCode) {
      const call = { index: 0, id: `call_${messages.length}`, type: 'function' };
      send({
        role: 'assistant',
        tool_calls: [{ ...call, function: { name: 'executeCode', arguments: '' } }],
      });
      const text = JSON.stringify({ code: asked });
      for (let at = 0; at < text.length; at += 40) {
        const piece = text.slice(at, at + 40);
        send({ tool_calls: [{ index: 0, function: { arguments: piece } }] });
      }
      send({}, 'tool_calls');
    } else {
      const text = last.role === 'tool' ? `It gave: ${said}` : said.slice('say '.length);
      for (let at = 0; at < text.length; at += 40) send({ content: text.slice(at, at + 40) });
      send({}, 'stop');
    }
    return res.end('data: [DONE]\n\n');
  });
  await new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  const url = `http://127.0.0.1:${server.address().port}/v1`;
  return {
    env: { OPENAI_API_KEY: 'key-of-the-told-model', OPENAI_BASE_URL: url },
    async stop() {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
  };
}
