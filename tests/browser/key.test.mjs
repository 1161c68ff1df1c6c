// A server that asks for a key: the prompt, signing in, signing out.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import {
  assertFits,
  openPage,
  screenshot,
  startBrowser,
  startServer,
  viewports,
} from './support.mjs';

const limit = { timeout: 90_000 };
/** The browser logs every refusal by itself. */
const refusals = [/status of 401/];
let cay;
let browser;

before(async () => {
  cay = await startServer({ config: { require_key: true } });
  browser = await startBrowser();
}, limit);

after(async () => {
  await browser?.close();
  await cay?.stop();
}, limit);

const keyField = (page) => page.getByRole('textbox', { name: 'Key' });

test('the prompt appears, refuses a wrong key, and lets a right one in', limit, async () => {
  assert.ok(cay.key, 'the server under test hands out a key');
  const { context, page, problems } = await openPage(browser, cay.url, { expected: refusals });
  await page.goto(`${cay.url}/runs`);
  await keyField(page).waitFor();
  assert.equal(await page.title(), 'Key needed · cay');
  assert.ok(await keyField(page).evaluate((field) => field === document.activeElement));
  await page.locator('.connection', { hasText: 'Locked' }).waitFor();

  await page.keyboard.press('Enter');
  await page.getByRole('alert').getByText('Enter a key.').waitFor();
  await keyField(page).fill('no key at all');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').getByText('A key has no spaces').waitFor();
  await keyField(page).fill('wrong');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').getByText('That key is not known').waitFor();
  assert.equal(await keyField(page).getAttribute('aria-invalid'), 'true');
  assert.ok(await keyField(page).evaluate((field) => field === document.activeElement));

  await keyField(page).fill(cay.key);
  await page.keyboard.press('Enter');
  // It goes on where one wanted to go.
  await page.getByRole('heading', { level: 1, name: 'Runs' }).waitFor();
  await page.locator('.connection[data-state=live]').waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.id), 'main');
  assert.deepEqual(problems, []);
  await context.close();
});

test('the key is kept nowhere that a script can read', limit, async () => {
  const { context, page } = await openPage(browser, cay.url, { expected: refusals });
  await page.goto(`${cay.url}/`);
  await keyField(page).fill(cay.key);
  await page.keyboard.press('Enter');
  await page.locator('.connection[data-state=live]').waitFor();
  const seen = await page.evaluate(() =>
    [
      JSON.stringify(localStorage),
      JSON.stringify(sessionStorage),
      document.cookie,
      document.documentElement.outerHTML,
      location.href,
    ].join('\n'),
  );
  assert.ok(!seen.includes(cay.key));
  const cookies = await context.cookies();
  assert.ok(cookies.length > 0);
  for (const cookie of cookies) {
    assert.ok(cookie.httpOnly, cookie.name);
    assert.equal(cookie.sameSite, 'Strict', cookie.name);
    assert.ok(!cookie.value.includes(cay.key), cookie.name);
  }
  await context.close();
});

test('a session outlives a reload, and ends when one signs out', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url, { expected: refusals });
  await page.goto(`${cay.url}/status`);
  await keyField(page).fill(cay.key);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.locator('.connection[data-state=live]').waitFor();
  await page.reload();
  await page.locator('.connection[data-state=live]').waitFor();
  await page.getByRole('heading', { name: 'Isolation' }).waitFor();

  await page.getByRole('button', { name: /^Sign out/ }).click();
  await keyField(page).waitFor();
  assert.equal(await page.getByRole('heading', { name: 'Isolation' }).count(), 0);
  await page.reload();
  await keyField(page).waitFor();
  assert.equal(await page.getByRole('button', { name: /^Sign out/ }).count(), 0);
  assert.deepEqual(problems, []);
  await context.close();
});

test('a port of a sandbox opens in a tab that has no key', limit, async () => {
  const api = async (path, body) => {
    const answer = await fetch(cay.url + path, {
      method: 'POST',
      headers: { Authorization: `Bearer ${cay.key}`, 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    });
    assert.ok(answer.ok, await answer.clone().text());
    return answer.json();
  };
  const files = [{ path: '/work/index.html', content: '<h1>inside</h1>' }];
  const box = await api('/v1/sandboxes', { files });
  await api(`/v1/sandboxes/${box.id}/exec`, {
    command: 'python3 -m http.server 8000 --bind 127.0.0.1',
    background: true,
  });
  const { context, page, problems } = await openPage(browser, cay.url, { expected: refusals });
  await page.goto(`${cay.url}/sandboxes/${box.id}#ports`);
  await keyField(page).fill(cay.key);
  await page.keyboard.press('Enter');
  const link = page.getByRole('link', { name: new RegExp(`//8000-${box.id}`) });
  for (let tries = 0; ; tries++) {
    const [opened] = await Promise.all([context.waitForEvent('page'), link.click()]);
    await opened.waitForURL(/\/\/8000-/);
    await opened.waitForLoadState();
    const text = await opened.locator('body').innerText();
    const at = opened.url();
    assert.equal(await opened.evaluate(() => window.opener), null);
    await opened.reload(); // the cookie stays
    const again = await opened.locator('body').innerText();
    await opened.close();
    assert.ok(!at.includes('cay_pass'), at);
    if (text.includes('inside')) {
      assert.match(again, /inside/);
      break;
    }
    assert.ok(tries < 20, text);
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
  assert.deepEqual(problems, []);
  await context.close();
});

test('the prompt and a signed-in page fit every screen', limit, async () => {
  for (const [name, options] of Object.entries(viewports)) {
    const { context, page } = await openPage(browser, cay.url, { ...options, expected: refusals });
    await page.goto(`${cay.url}/`);
    await keyField(page).waitFor();
    await assertFits(page, name);
    await screenshot(page, `key-${name}`);
    await keyField(page).fill(cay.key);
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: /^Sign out/ }).waitFor();
    await assertFits(page, `${name}, signed in`);
    await screenshot(page, `signed-in-${name}`);
    await context.close();
  }
});

test('keys are made, seen once, and revoked', limit, async () => {
  const { createKey } = await import('../lib/cay.mjs');
  const admin = await createKey(cay.dataDir, { name: 'the admin', scope: 'admin' });
  const { context, page, problems } = await openPage(browser, cay.url, {
    expected: [...refusals, /status of 403/],
    permissions: ['clipboard-read', 'clipboard-write'],
  });
  const signIn = async (key) => {
    await page.goto(`${cay.url}/keys`);
    await keyField(page).fill(key);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Keys' }).waitFor();
  };
  // One that may do less is told so.
  await signIn(cay.key);
  await page.getByText('This needs a key with the scope admin').waitFor();
  assert.equal(await page.getByRole('button', { name: 'New key' }).count(), 0);
  await page.getByRole('button', { name: /^Sign out/ }).click();
  await keyField(page).waitFor();

  // By the keyboard alone.
  await signIn(admin.text);
  await page.getByText('the one you use').waitFor();
  await page.getByRole('button', { name: 'New key' }).focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('textbox', { name: 'Name' }).focus();
  await page.keyboard.press('Enter');
  await dialog.getByRole('alert').getByText('Give it a name').waitFor();
  await page.keyboard.type('<img src=x onerror=alert(1)>');
  await page.keyboard.press('Tab');
  await page.keyboard.type('read');
  await page.keyboard.press('Tab');
  await page.keyboard.type('120');
  await page.keyboard.press('Tab');
  await page.keyboard.type('3');
  await page.keyboard.press('Tab');
  await page.keyboard.type('50000');
  await page.keyboard.press('Tab');
  await page.keyboard.type('2.50');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Space');
  await dialog.getByRole('textbox', { name: /^Databases/ }).fill('orders');
  await screenshot(page, 'keys-form');
  await page.keyboard.press('Tab');
  await dialog.getByRole('button', { name: 'Create' }).focus();
  await page.keyboard.press('Enter');
  await dialog.getByRole('button', { name: /^Copy/ }).click();
  await dialog.getByRole('button', { name: 'Copied' }).waitFor();
  await screenshot(page, 'keys-made');
  const secret = await page.evaluate(() => navigator.clipboard.readText());
  const status = async () =>
    (await fetch(`${cay.url}/v1/runs`, { headers: { Authorization: `Bearer ${secret}` } })).status;
  assert.equal(await status(), 200);
  const seen = () =>
    page.evaluate(() =>
      [
        JSON.stringify(localStorage),
        JSON.stringify(sessionStorage),
        document.body.outerHTML,
      ].join(),
    );
  assert.ok((await seen()).includes(secret));
  await dialog.getByRole('button', { name: 'Done' }).click();
  await dialog.waitFor({ state: 'detached' });
  assert.ok(!(await seen()).includes(secret), 'it is shown once');

  const row = page.getByRole('row', { name: /onerror/ });
  assert.match(
    await row.innerText(),
    /read[\s\S]*120 requests\/min\s+3 jobs at a time\s+50,000 tokens\/day\s+\$2\.50\/day[\s\S]*facets: orders/,
  );
  const revoke = row.getByRole('button', { name: /^Revoke/ });
  await revoke.focus();
  await page.keyboard.press('Enter');
  assert.equal(await status(), 200, 'it asks once more');
  await page.keyboard.press('Enter');
  await row.waitFor({ state: 'detached' });
  assert.equal(await status(), 401);
  await page.getByRole('checkbox', { name: 'Revoked ones too' }).check();
  await row.getByText('revoked').waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test('a worker says whom it answers; one that wants a key comes with the call', limit, async () => {
  const headers = { Authorization: `Bearer ${cay.key}`, 'Content-Type': 'application/json' };
  const code = 'export default { fetch: () => new Response("served") }';
  for (const [name, more] of Object.entries({ mine: {}, ours: { public: true } }))
    await fetch(`${cay.url}/v1/workers/${name}`, {
      method: 'PUT',
      headers,
      body: JSON.stringify({ code, ...more }),
    });
  const { context, page, problems } = await openPage(browser, cay.url, { expected: refusals });
  await page.goto(`${cay.url}/play`);
  await keyField(page).fill(cay.key);
  await page.keyboard.press('Enter');
  const worker = (name) => page.locator('.worker-list li', { hasText: name });
  await worker('ours').getByText('public').waitFor();
  const address = await worker('ours').getByRole('link').getAttribute('href');
  // No link leads to a refusal.
  await worker('mine').getByText('with a key only').waitFor();
  assert.equal(await worker('mine').getByRole('link').count(), 0);
  const line = await worker('mine')
    .getByRole('region', { name: 'Call mine with curl' })
    .innerText();
  const call = async (text, env = {}) =>
    (await promisify(execFile)('bash', ['-c', text], { env: { PATH: process.env.PATH, ...env } }))
      .stdout;
  assert.equal(await call(line, { CAY_API_KEY: cay.key }), 'served');
  assert.notEqual(await call(line), 'served');
  assert.equal(await call(`curl ${address}`), 'served');
  assert.deepEqual(problems, []);
  await context.close();
});
