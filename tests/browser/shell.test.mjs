// The frame around every view: policy, navigation, keyboard, themes, phones.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  assertFits,
  getJson,
  makeRuns,
  openPage,
  screenshot,
  startBrowser,
  startServer,
  until,
  viewports,
} from './support.mjs';

const limit = { timeout: 90_000 };
const paths = ['/', '/play', '/sandboxes', '/status', '/runs', '/no/such/page'];
const more = ['/chat', '/coder', '/usage', '/keys', '/reference'];
let cay;
let browser;

before(async () => {
  cay = await startServer();
  browser = await startBrowser();
}, limit);

after(async () => {
  await browser?.close();
  await cay?.stop();
}, limit);

/** The view is there and has its data. */
async function settled(page) {
  await page.locator('main h1').waitFor();
  await page.locator('.connection[data-state=live]').waitFor();
  await until(
    'nothing is loading',
    async () => (await page.getByText(/^(Loading|Connecting)…$/).count()) === 0,
  );
}

test('every view keeps to a policy without inline code, and has its landmarks', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  const response = await page.goto(`${cay.url}/`);
  const policy = response.headers()['content-security-policy'] ?? '';
  assert.match(policy, /default-src 'self'/);
  assert.match(policy, /script-src 'self'(;|$)/);
  assert.match(policy, /style-src 'self'(;|$)/);
  assert.match(policy, /frame-ancestors 'none'/);
  for (const path of [...paths, ...more]) {
    const loaded = await page.goto(cay.url + path);
    assert.equal(loaded.status(), 200, path);
    await settled(page);
    // Its landmarks, and one first heading.
    assert.equal(await page.getByRole('main').count(), 1, path);
    assert.equal(await page.getByRole('banner').count(), 1, path);
    assert.equal(await page.getByRole('navigation', { name: 'Main' }).count(), 1, path);
    assert.equal(await page.getByRole('heading', { level: 1 }).count(), 1, path);
  }
  assert.deepEqual(problems, []);
  await context.close();
});

test('a request that the API does not describe would be told of', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url, { expected: [/status of/] });
  await page.goto(`${cay.url}/runs`);
  await settled(page);
  assert.deepEqual(problems, []);
  await page.evaluate(async () => {
    await fetch('/v1/nothing');
    await fetch('/v1/runs?limit=1&strange=1');
    await fetch('/health', { method: 'DELETE' });
    const socket = new WebSocket(`${location.origin.replace('http', 'ws')}/v1/socket`);
    await new Promise((done) => (socket.onclose = done));
  });
  const told = problems
    .filter((it) => it.startsWith('not in openapi.json: '))
    .map((it) => it.slice(21));
  assert.deepEqual(told.sort(), [
    'DELETE /health',
    'GET /v1/nothing',
    'GET /v1/runs?strange',
    'GET /v1/socket',
  ]);
  await context.close();
});

test('assets are cached for good, the page itself is asked for anew', limit, async () => {
  const html = await fetch(`${cay.url}/`);
  assert.doesNotMatch(html.headers.get('cache-control') ?? '', /immutable|max-age=[1-9]/);
  const names = [...(await html.text()).matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map(
    (m) => m[1],
  );
  assert.ok(names.length >= 3);
  for (const name of names) {
    const asset = await fetch(cay.url + name);
    await asset.arrayBuffer();
    assert.equal(asset.status, 200, name);
    assert.match(asset.headers.get('cache-control') ?? '', /immutable/, name);
  }
});

test('the navigation moves between views without loading the page again', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/no/such/page`);
  await settled(page);
  await page.evaluate(() => (globalThis.sameDocument = true));
  const nav = page.getByRole('navigation', { name: 'Main' });
  const names = await nav.getByRole('link').allInnerTexts();
  for (const name of names) {
    const link = nav.getByRole('link', { name, exact: true });
    await link.click();
    await page.getByRole('heading', { level: 1, name }).waitFor();
    assert.equal(await link.getAttribute('aria-current'), 'page');
    assert.equal(await nav.locator('[aria-current]').count(), 1);
    assert.equal(await page.title(), `${name} · cay`);
    assert.equal(await page.evaluate(() => document.activeElement?.id), 'main');
  }
  await page.goBack();
  await page.getByRole('heading', { level: 1, name: names.at(-2) }).waitFor();
  assert.equal(await page.evaluate(() => globalThis.sameDocument), true);
  assert.deepEqual(problems, []);
  await context.close();
});

test('an address that does not exist says so and leads back', limit, async () => {
  const { context, page } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/no/such/page`);
  await page.getByRole('heading', { name: 'Not found' }).waitFor();
  await page.getByRole('link', { name: 'See the status' }).click();
  await page.getByRole('heading', { level: 1, name: 'Status' }).waitFor();
  // What is malformed is an address, too.
  for (const path of ['/no/such.page', '/%zz', '/runs/%zz', '/chat/sandbox-agent/a%00b']) {
    await page.goto(cay.url + path);
    await page.getByRole('heading', { name: 'Not found' }).waitFor();
    await page.getByText(`Nothing is known of ${path}`).waitFor();
  }
  await page.goto(`${cay.url}/chat/a/..%2F`);
  await page.getByText('There is no such agent').waitFor();
  await context.close();
  // What asks for no page is told so by the status.
  for (const Accept of ['application/json', '*/*', 'image/png']) {
    const answer = await fetch(`${cay.url}/no/such/page`, { headers: { Accept } });
    assert.equal(answer.status, 404, Accept);
    assert.doesNotMatch(await answer.text(), /<html/i);
  }
});

test('a view whose code is gone says so, and the others still work', limit, async () => {
  const { context, page } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/status`);
  await settled(page);
  // As after an upgrade of the server under an open page.
  await page.route('**/assets/runs-*.js', (route) => route.fulfill({ status: 404 }));
  const nav = page.getByRole('navigation', { name: 'Main' });
  await nav.getByRole('link', { name: 'Runs', exact: true }).click();
  await page.getByRole('alert').getByText('This view could not be shown').waitFor();
  await nav.getByRole('link', { name: 'Status', exact: true }).click();
  await page.getByRole('heading', { level: 1, name: 'Status' }).waitFor();
  await page.unroute('**/assets/runs-*.js');
  await nav.getByRole('link', { name: 'Runs', exact: true }).click();
  await page.getByRole('button', { name: 'Reload the page' }).click();
  await page.getByRole('heading', { level: 1, name: 'Runs' }).waitFor();
  await context.close();
});

test('the skip link is first, can be seen, and leads to the content', limit, async () => {
  const { context, page } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/status`);
  await settled(page);
  await page.keyboard.press('Tab');
  const skip = page.getByRole('link', { name: 'Skip to content' });
  assert.ok(await skip.evaluate((link) => link === document.activeElement));
  await until('the skip link is in sight', async () => ((await skip.boundingBox())?.y ?? -1) >= 0);
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement?.id), 'main');
  await page.keyboard.press('Tab');
  const inside = await page.evaluate(() => document.activeElement?.closest('main') !== null);
  assert.ok(inside, 'the next Tab stays in the content');
  await context.close();
});

test('the keyboard reaches everything, and shows where it is', limit, async () => {
  const { context, page } = await openPage(browser, cay.url);
  const views = [...paths];
  if (await makeRuns(cay, 1)) {
    const { runs } = await getJson(`${cay.url}/v1/runs?limit=20`);
    views.push(`/runs/${runs.find((run) => run.status !== 'running').id}`);
  }
  for (const path of views) {
    await page.goto(cay.url + path);
    await settled(page);
    const total = await page.evaluate(() => {
      const all = document.querySelectorAll(
        'a[href], button:not([tabindex="-1"]), input:not([type=radio]), input:checked, select, ' +
          'textarea, summary, [tabindex="0"]',
      );
      globalThis.unreached = new Set([...all].filter((it) => it.checkVisibility() && !it.disabled));
      return globalThis.unreached.size;
    });
    assert.ok(total >= 5, `${path} has ${total} things to reach`);
    const unseen = [];
    for (let i = 0; i < total + 10; i++) {
      await page.keyboard.press('Tab');
      const lost = await page.evaluate(() => {
        const it = document.activeElement;
        if (!it || it === document.body) return null;
        globalThis.unreached.delete(it);
        // A control that fills its label lets the label show the ring.
        const ring = [it, it.closest('label')].some((part) => {
          const style = part && getComputedStyle(part);
          return (
            style &&
            style.outlineStyle !== 'none' &&
            parseFloat(style.outlineWidth) >= 2 &&
            style.opacity !== '0'
          );
        });
        return ring ? null : it.outerHTML.slice(0, 120);
      });
      if (lost) unseen.push(lost);
    }
    const missed = await page.evaluate(() =>
      [...globalThis.unreached]
        .filter((it) => it.isConnected)
        .map((it) => it.outerHTML.slice(0, 120)),
    );
    assert.deepEqual(missed, [], `not reached on ${path}`);
    assert.deepEqual(unseen, [], `without a visible focus on ${path}`);
  }
  await context.close();
});

const groundOf = (page) =>
  page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
const lightness = (rgb) => Math.max(...rgb.match(/\d+/g).slice(0, 3).map(Number));

test(
  'the theme follows the system until one is chosen, and the choice is kept',
  limit,
  async () => {
    const { context, page, problems } = await openPage(browser, cay.url, { colorScheme: 'light' });
    await page.goto(`${cay.url}/`);
    await settled(page);
    assert.ok(lightness(await groundOf(page)) > 200, 'light when the system is');
    await page.emulateMedia({ colorScheme: 'dark' });
    assert.ok(lightness(await groundOf(page)) < 60, 'dark when the system is');

    await page.getByRole('radio', { name: 'System theme' }).focus();
    await page.keyboard.press('ArrowRight');
    assert.ok(await page.getByRole('radio', { name: 'Light' }).isChecked());
    assert.ok(lightness(await groundOf(page)) > 200, 'light by choice');
    await page.reload();
    await settled(page);
    assert.ok(lightness(await groundOf(page)) > 200, 'light by choice after a reload');
    assert.ok(await page.getByRole('radio', { name: 'Light' }).isChecked());

    await page.keyboard.press('Tab');
    await page.getByRole('radio', { name: 'Light' }).focus();
    await page.keyboard.press('ArrowLeft');
    assert.ok(lightness(await groundOf(page)) < 60, 'the system’s again');
    assert.deepEqual(problems, []);
    await context.close();
  },
);

test('a kept theme is there before the page’s own code runs', limit, async () => {
  const { context, page } = await openPage(browser, cay.url, { colorScheme: 'light' });
  await page.goto(`${cay.url}/`);
  await settled(page);
  await page.getByRole('radio', { name: 'Dark' }).check();
  // Without the main script nothing but the blocking one can have set it.
  await page.route('**/assets/index-*.js', (route) => route.abort());
  await page.goto(`${cay.url}/`);
  assert.equal(await page.locator('main').count(), 0);
  assert.ok(lightness(await groundOf(page)) < 60);
  await context.close();
});

for (const [name, options] of Object.entries(viewports)) {
  test(`nothing sticks out sideways: ${name}`, limit, async () => {
    const { context, page, problems } = await openPage(browser, cay.url, options);
    for (const path of paths.slice(1)) {
      await page.goto(cay.url + path);
      await settled(page);
      await assertFits(page, path);
      await screenshot(page, `${path.split('/')[1]}-${name}`);
    }
    assert.deepEqual(problems, []);
    await context.close();
  });
}

test('Back finds its place again', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  assert.ok(await makeRuns(cay, 30));
  await page.goto(`${cay.url}/runs`);
  const links = page.locator('.view-runs .run-link');
  await links.nth(20).waitFor();
  await links.nth(20).scrollIntoViewIfNeeded();
  // The list may move under the click, and the page with it.
  await page.evaluate(() => window.addEventListener('click', () => (window.clickedAt = window.scrollY), { capture: true, once: true }));
  await links.nth(20).click();
  const place = await page.evaluate(() => window.clickedAt);
  assert.ok(place > 200, `it is at ${place}`);
  await page.locator('.view-run .section').first().waitFor();
  assert.equal(await page.evaluate(() => document.scrollingElement.scrollTop), 0);
  await page.goBack();
  await until('it is there again', async () => {
    const now = await page.evaluate(() => document.scrollingElement.scrollTop);
    return Math.abs(now - place) < 60;
  });
  assert.deepEqual(problems, []);
  await context.close();
});
