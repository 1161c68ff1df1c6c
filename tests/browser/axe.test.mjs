// Every view, with something in it, by the rules of axe-core: light and dark, wide and narrow. The
// pictures are kept as artefacts.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { assertFits, openPage, screenshot, startBrowser, startServer, until } from './support.mjs';

const limit = { timeout: 240_000 };
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
let cay;
let browser;
const at = {};

const post = async (path, body) =>
  (
    await fetch(cay.url + path, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
    })
  ).json();

before(async () => {
  cay = await startServer();
  browser = await startBrowser();
  const box = await post('/v1/sandboxes', {
    name: 'looked at',
    timeout_s: 900,
    files: [{ path: '/work/note.txt', content: 'x' }],
  });
  await post(`/v1/sandboxes/${box.id}/exec`, { command: 'mkfifo pipe; echo out; exit 3' });
  const run = await post('/v1/run', {
    code: 'export default () => { console.log("\\u001b[32mhello\\u001b[0m"); return { a: [1] } }',
  });
  for (const text of ['Count customers by tier', 'Write **bold** text'])
    await post('/v1/agents/sandbox-agent/looked-at/messages', { text });
  await post('/v1/agents/todo-agent/looked-at/messages', { text: 'Add: buy milk' });
  const coder = await post('/v1/code', { spec: 'Create a hello world Python script and run it' });
  await post('/v1/keys', {
    name: 'looked at',
    rate_per_minute: 60,
    grants: { facets: ['orders'] },
  });
  const sdk = await post('/execute/sdk', { prompt: 'Plan how to write a hello world program' });
  const { runs } = await (await fetch(`${cay.url}/v1/runs?kind=chat&limit=1`)).json();
  const [turn] = runs;
  const task = await post('/v1/tasks', { type: 'run', input: { code: 'export default () => 1' } });
  await until('the task has ended', async () => {
    const { state } = await (await fetch(`${cay.url}/v1/tasks/${task.id}`)).json();
    return state === 'done';
  });
  Object.assign(at, {
    home: ['/', '.home-tries'],
    chat: ['/chat/sandbox-agent/looked-at', '.message[data-role=assistant]'],
    todo: ['/chat/todo-agent/looked-at', '.message[data-role=user] >> text=buy milk'],
    play: [`/play?run=${run.id}`, '.log-line'],
    coder: ['/coder', '.view-coder .run-link'],
    'coder-job': [`/coder/${coder.id}`, '.diff-text'],
    sandboxes: ['/sandboxes', '.sandboxes-card .run-link'],
    'sandbox-terminal': [`/sandboxes/${box.id}#terminal`, '.terminal-host[data-state=open]'],
    'sandbox-commands': [`/sandboxes/${box.id}#commands`, '.exec-name'],
    'sandbox-files': [`/sandboxes/${box.id}#files`, '.file-name'],
    'sandbox-ports': [`/sandboxes/${box.id}#ports`, '.ports'],
    'sandbox-network': [`/sandboxes/${box.id}#network`, '.network-form'],
    status: ['/status', '.section .data-table'],
    runs: ['/runs', '.view-runs .run-link'],
    run: [`/runs/${run.id}`, '.view-run .section'],
    reference: ['/reference', '.operations'],
    'reference-operation': ['/reference#createSandbox', '.try'],
    keys: ['/keys', '.view-keys .key-id'],
    'run-code': [`/runs/${coder.id}`, '.diff-text'],
    'run-chat': [`/runs/${turn.id}`, '.view-run .message'],
    'run-sdk': [`/runs/${sdk.request_id}`, '.view-run .timeline'],
    usage: ['/usage', '.view-usage .data-table'],
    missing: ['/no/such/page', 'h1'],
  });
}, limit);

after(async () => {
  await browser?.close();
  await cay?.stop();
}, limit);

/** What axe-core finds and calls serious or critical. */
async function violations(page, rule) {
  await page.evaluate((text) => {
    if (!globalThis.axe) (0, eval)(text);
  }, axe);
  return page.evaluate(async (only) => {
    const { violations: all } = await globalThis.axe.run(document, {
      resultTypes: ['violations'],
      // What is found is told by its HTML; no rule reads what these would gather besides.
      selectors: false,
      preload: false,
      ...(only ? { runOnly: [only] } : {}),
    });
    return all
      .filter(
        ({ impact, id }) => ['serious', 'critical'].includes(impact) || id === 'heading-order',
      )
      .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(' | ')}`);
  }, rule);
}

/** As a link of the page would: what is loaded stays, and axe-core with it. */
const goTo = (page, path) =>
  page.evaluate((to) => {
    if (to.split('#')[0] === location.pathname) {
      location.hash = to.split('#')[1];
      return;
    }
    history.pushState(null, '', to);
    dispatchEvent(new PopStateEvent('popstate'));
  }, path);

/** What a reader could stumble over in a view, besides what axe-core knows. */
async function assertTidy(page, name) {
  await assertFits(page, name);
  // Marks of the source, and words of the makers, are for nobody who reads the page.
  const said = await page.evaluate(() => {
    const copy = document.querySelector('main').cloneNode(true);
    for (const it of copy.querySelectorAll('pre, code, textarea')) it.remove();
    return copy.textContent;
  });
  assert.doesNotMatch(said, /`|\bthe front\b|\bundefined\b|\bNaN\b|\[object/, name);
  // What is chosen of several is in sight.
  for (const tab of await page.locator('[role=tab][aria-selected=true]:visible').all()) {
    const { x, width } = await tab.boundingBox();
    assert.ok(x >= 0 && x + width <= page.viewportSize().width, `${name}: a tab is cut`);
  }
}

/** A FIFO has no size; its time stands below those of the others all the same. */
async function assertAligned(page) {
  const ends = await page
    .locator('.file-time')
    .evaluateAll((all) => all.map((it) => Math.round(it.getBoundingClientRect().right)));
  assert.deepEqual([...new Set(ends)].length, 1, `a row is shifted: ${ends}`);
  assert.ok(ends.length >= 2);
}

const screens = {
  1440: { viewport: { width: 1440, height: 900 } },
  390: { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true },
};

async function lookAtAll(width, options) {
  // axe-core is put into the page by the browser's own hand, which the policy does not hear of.
  const { context, page } = await openPage(browser, cay.url, {
    ...options,
    bypassCSP: true,
    reducedMotion: 'reduce',
  });
  await page.goto(`${cay.url}/status`);
  const found = [];
  for (const [name, [path, seen]] of Object.entries(at)) {
    await goTo(page, path);
    await page.locator(seen).first().waitFor();
    await assertTidy(page, name);
    if (name === 'sandbox-files' && width === '1440') await assertAligned(page);
    await screenshot(page, `view-${name}-${width}-light`);
    for (const colorScheme of ['dark', 'light']) {
      await page.emulateMedia({ colorScheme });
      const all = await violations(page, colorScheme === 'light' ? null : 'color-contrast');
      found.push(...all.map((it) => `${name}, ${colorScheme}: ${it}`));
    }
  }
  assert.deepEqual(found, []);
  // What is wrong would be found.
  await page.evaluate(() => {
    const box = document.createElement('input');
    document.querySelector('main').append(box);
  });
  assert.match((await violations(page)).join(), /^label/);
  await context.close();
}

for (const [width, options] of Object.entries(screens))
  test(`every view can be used by everybody: ${width}`, limit, () => lookAtAll(width, options));
