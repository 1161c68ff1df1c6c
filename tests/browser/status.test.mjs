// The status view: live figures, and what it says when the line is cut.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  getJson,
  openPage,
  screenshot,
  startBrowser,
  startRelay,
  startServer,
  until,
} from './support.mjs';

const limit = { timeout: 90_000 };
/** What the browser logs when a request finds no server. */
const networkErrors = [/net::ERR_/];
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

const factOf = (page, term) =>
  page.locator('.facts > div', { has: page.getByText(term, { exact: true }) }).locator('dd');
const requestsOf = async (page) =>
  Number((await page.getByText(/requests so far/).innerText()).replace(/\D/g, ''));

test('it shows what the server says of itself', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/status`);
  await page.getByText('healthy', { exact: true }).waitFor();
  const status = await getJson(`${cay.url}/v1/status`);
  assert.equal(await factOf(page, 'Version').innerText(), status.version);
  assert.equal(await factOf(page, 'Process').innerText(), `pid ${status.pid}`);
  assert.match(await factOf(page, 'Model').innerText(), new RegExp(`^${status.model.name}`));
  for (const address of status.listen) await factOf(page, 'Address').getByText(address).waitFor();

  const features = page.getByRole('table', { name: 'Isolation features' }).locator('tbody tr');
  assert.equal(await features.count(), status.features.length);
  for (const [i, { name, status: word, detail }] of status.features.entries()) {
    const row = await features.nth(i).innerText();
    assert.ok(row.includes(name) && row.includes(word) && row.includes(detail), row);
  }
  const children = page.getByRole('table', { name: 'Child programs' }).locator('tbody tr');
  assert.equal(await children.count(), status.children.length);
  for (const [i, { name, pid }] of status.children.entries()) {
    const row = await children.nth(i).innerText();
    assert.ok(row.includes(name) && (pid === null || row.includes(String(pid))), row);
  }
  assert.deepEqual(problems, []);
  await context.close();
});

test('the figures move without a reload', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/status`);
  await page.getByText(/requests so far/).waitFor();
  await page.evaluate(() => (globalThis.sameDocument = true));
  const uptime = await factOf(page, 'Uptime').innerText();
  const before = await requestsOf(page);
  for (let i = 0; i < 25; i++) await getJson(`${cay.url}/health`);
  await until('the requests are counted', async () => (await requestsOf(page)) >= before + 25);
  await until(
    'the uptime moves',
    async () => (await factOf(page, 'Uptime').innerText()) !== uptime,
  );
  await until(
    'the sparkline is drawn',
    async () => (await page.locator('.sparkline-line').count()) === 1,
  );
  assert.match(
    await page.getByRole('img', { name: /^Requests per second/ }).getAttribute('aria-label'),
    /now \d/,
  );
  assert.equal(await page.evaluate(() => globalThis.sameDocument), true);
  assert.deepEqual(problems, []);
  await context.close();
});

test('a lost connection is told, kept trying, and found again', limit, async () => {
  const relay = await startRelay(cay.url);
  const { context, page, problems } = await openPage(browser, relay.url, {
    expected: networkErrors,
  });
  await page.goto(`${relay.url}/status`);
  await page.locator('.connection[data-state=live]').waitFor();
  const message = page.getByRole('status').getByText('Connection lost.');
  assert.equal(await message.count(), 0);

  let tries = 0;
  page.on('request', (request) => {
    if (request.url().endsWith('/v1/status')) tries++;
  });
  await relay.cut();
  await message.waitFor();
  await page.locator('.connection', { hasText: 'Offline' }).waitFor();
  await page.getByText('unreachable', { exact: true }).waitFor();
  assert.ok((await factOf(page, 'Version').innerText()) !== '', 'what was known is still shown');
  await screenshot(page, 'lost-light');
  await until('it has tried twice by itself', () => tries >= 2);

  await relay.restore();
  await page.locator('.connection[data-state=live]').waitFor();
  assert.equal(await message.count(), 0);
  await page.getByText('healthy', { exact: true }).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
  await relay.stop();
});

test('the next try can be had at once, by keyboard', limit, async () => {
  const relay = await startRelay(cay.url);
  const { context, page } = await openPage(browser, relay.url, { expected: networkErrors });
  await page.goto(`${relay.url}/runs`);
  await page.locator('.connection[data-state=live]').waitFor();
  await relay.cut();
  const button = page.getByRole('button', { name: 'Try now' });
  await button.focus();
  // Let the waits between tries grow, so that only the key press explains a quick return.
  await until('the next try is far', async () => {
    const text = await page.locator('.countdown').innerText();
    return Number(/in (\d+) s/.exec(text)?.[1] ?? 0) >= 6;
  });
  await relay.restore();
  const isTry = (request) => request.url().endsWith('/v1/status');
  await Promise.all([page.waitForRequest(isTry, { timeout: 4500 }), button.press('Enter')]);
  await page.locator('.connection[data-state=live]').waitFor();
  await context.close();
  await relay.stop();
});

test('a server that stops is noticed', limit, async () => {
  const other = await startServer();
  const { context, page } = await openPage(browser, other.url, { expected: networkErrors });
  await page.goto(`${other.url}/`);
  await page.locator('.connection[data-state=live]').waitFor();
  await other.stop();
  await page.getByRole('status').getByText('Connection lost.').waitFor();
  await context.close();
});
