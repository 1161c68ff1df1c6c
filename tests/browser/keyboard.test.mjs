// The main task of every view by the keyboard alone: no pointer, and nothing is put into focus by script.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openPage, startBrowser, startServer, until } from './support.mjs';

const limit = { timeout: 120_000 };
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

/** What is in focus, as somebody who hears the page is told of it; ? if its ring cannot be seen. */
const focused = () => {
  const it = document.activeElement;
  if (!it || it === document.body) return '';
  const label = it.getAttribute('aria-label') ?? it.labels?.[0]?.textContent ?? it.textContent;
  const { width, height } = it.getBoundingClientRect();
  return `${it.getAttribute('role') ?? it.localName}: ${label.trim()}${width && height ? '' : '?'}`;
};

function keyboardOf(page) {
  const press = (...keys) =>
    keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
  /** Tab by Tab until it is reached. */
  const reach = async (what, key = 'Tab') => {
    const seen = [];
    for (let i = 0; i < 150; i++) {
      const now = await page.evaluate(focused);
      if (what.test(now)) return;
      seen.push(now);
      await press(key);
    }
    assert.fail(
      `Tab does not reach ${what}; it was at ${[...new Set(seen)].join(' | ').slice(0, 2000)}`,
    );
  };
  const type = (text) => page.keyboard.type(text);
  return { press, reach, type };
}

async function openBy(path) {
  const opened = await openPage(browser, cay.url);
  await opened.page.goto(cay.url + path);
  await opened.page.locator('h1').first().waitFor();
  return { ...opened, ...keyboardOf(opened.page) };
}

test('from the first page to an answer, and to another conversation', limit, async () => {
  const { context, page, problems, press, reach, type } = await openBy('/');
  await reach(/^a: Open the chat/);
  await press('Enter');
  await page.getByPlaceholder('Ask the agent').waitFor();
  await reach(/^textarea: Message/);
  await type('Count customers by tier');
  await press('Enter');
  await page.getByRole('button', { name: 'Answer again' }).waitFor();
  await reach(/^tab: Customers/);
  await press('ArrowLeft');
  await page.getByRole('tab', { name: /^Executions 1/, selected: true }).waitFor();
  // Round the page to its head.
  await reach(/^button: New/);
  await press('Enter');
  await type('by-keys');
  await press('Enter');
  await page.waitForURL(/\/by-keys$/);
  assert.deepEqual(problems, []);
  await context.close();
});

test('a program is written, run, and its run opened', limit, async () => {
  const { context, page, problems, press, reach, type } = await openBy('/play');
  await page.locator('.cm-content').waitFor();
  await until('the editor is reached', async () => {
    await press('Tab');
    return page.evaluate(
      () => document.activeElement?.shadowRoot?.activeElement?.matches('.cm-content') ?? false,
    );
  });
  await press('Control+a');
  await type('export default () => "by keys";');
  // Tab leads out of the editor.
  await reach(/^button: Run$/);
  await press('Enter');
  const result = page.getByRole('region', { name: 'Result' });
  await result
    .getByText('by keys')
    .waitFor()
    .catch(async () => assert.fail(await page.locator('main').innerText()));
  await reach(/^a: export default \(\) => "by keys"/);
  await press('Enter');
  await page.getByRole('heading', { level: 1, name: /by keys/ }).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test('a coding job is begun, followed, and found among the runs', limit, async () => {
  const { context, page, problems, press, reach, type } = await openBy('/coder');
  await reach(/^textarea: What is to be done/);
  await type('Create a hello world Python script and run it');
  await reach(/^button: .*Start/);
  await press('Enter');
  await page.getByRole('heading', { name: 'What it changed' }).waitFor();
  await reach(/^a: Runs/);
  await press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Runs' }).waitFor();
  await reach(/^select: Kind/);
  await type('code');
  await page.waitForURL(/kind=code/);
  await reach(/^input: Text/);
  // The list that was there makes way for another, and takes the focus along.
  const found = page.waitForResponse((it) => it.url().includes('text=hello'));
  await type('hello');
  await found;
  await page.getByRole('link', { name: /^Create a hello world/ }).waitFor();
  await reach(/^a: Create a hello world/);
  await press('Enter');
  await page.getByRole('heading', { name: 'Timeline' }).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test('a sandbox is made, given a command, and deleted', limit, async () => {
  const { context, page, problems, press, reach, type } = await openBy('/sandboxes');
  await reach(/^button: .*New sandbox/);
  await press('Enter');
  await reach(/^input: Name/);
  await type('by keys');
  await press('Enter');
  await page.getByRole('heading', { level: 1, name: 'by keys' }).waitFor();
  await page.getByText('Connected.').waitFor();
  // The terminal takes Tab; it says how to leave it.
  await press('Control+Escape');
  await reach(/^tab: Terminal/, 'Shift+Tab');
  await press('ArrowRight');
  await reach(/^input: Command/);
  await type('echo by keys');
  await press('Enter');
  await page.locator('.output').getByText('by keys').waitFor();
  // The curl beside an action opens, is read, and closes.
  await reach(/^button: curl$/);
  await press('Enter');
  await reach(/^button: curl: /);
  await press('Enter');
  const call = page.getByRole('region', { name: /The same with curl/ });
  await call.first().waitFor();
  await press('Escape');
  assert.equal(await call.count(), 0);
  await reach(/^button: Delete/);
  await press('Enter');
  await page.getByRole('button', { name: /^Delete: sure/ }).waitFor();
  await press('Enter');
  await until('it is gone', async () => {
    const { sandboxes } = await (await fetch(`${cay.url}/v1/sandboxes`)).json();
    return !sandboxes.some(({ name, status }) => name === 'by keys' && status === 'running');
  });
  assert.deepEqual(problems, []);
  await context.close();
});

test('a key is made and revoked; a call of the API is found and tried', limit, async () => {
  const { context, page, problems, press, reach, type } = await openBy('/keys');
  await reach(/^button: .*New key/);
  await press('Enter');
  await reach(/^input: Name/);
  await type('by keys');
  await press('Enter');
  await reach(/^button: Done/);
  await press('Enter');
  await reach(/^button: Revoke/);
  await press('Enter', 'Enter');
  await page.getByRole('row', { name: /by keys/ }).waitFor({ state: 'detached' });
  await reach(/^a: API/);
  await press('Enter');
  await page.getByRole('heading', { level: 1, name: 'API' }).waitFor();
  await reach(/^input: Search/);
  await type('is the server up');
  await reach(/^a: .*Is the server up/);
  await press('Enter');
  await reach(/^button: Send/);
  await press('Enter');
  await page.locator('.answer').getByText('200').waitFor();
  await reach(/^a: Usage/);
  await press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Usage' }).waitFor();
  await reach(/^select: Time/);
  assert.deepEqual(problems, []);
  await context.close();
});
