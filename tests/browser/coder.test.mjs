// The coder: steps appear while it works, a reload goes on, stop stops, the diff is shown.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  assertFits,
  openPage,
  screenshot,
  startBrowser,
  startServer,
  until,
  viewports,
} from './support.mjs';

const limit = { timeout: 90_000 };
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

const step = (page, name) => page.getByRole('article', { name });

async function start(page, spec) {
  await page.goto(`${cay.url}/coder`);
  await page.getByRole('textbox', { name: 'What is to be done' }).fill(spec);
  await page.getByRole('button', { name: 'Start' }).click();
  await page.waitForURL(/\/coder\/run_/);
}

test('the agent works step by step, and shows what it changed', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/coder`);
  await page.getByRole('button', { name: 'Create a hello world Python script and run it' }).click();
  await page.getByRole('button', { name: 'Start' }).click();
  await step(page, 'Step 2: run_command').getByLabel('Output').getByText('Hello, world!').waitFor();
  await page.getByText(/demo played this/).waitFor();
  const diff = page.getByRole('group', { name: 'Diff' });
  const added = diff.locator('[data-kind=added]').filter({ hasText: "print('Hello, world!')" });
  await added.waitFor();
  await until('it is coloured', async () => (await added.locator('.tok-string').count()) > 0);
  // Side by side: beside what is new there is nothing.
  assert.equal(await added.locator('xpath=..').locator('td').count(), 4);
  for (const [name, { viewport }] of Object.entries(viewports)) {
    await page.setViewportSize(viewport);
    await assertFits(page, `coder ${name}`);
    await screenshot(page, `coder-${name}`);
  }
  await page.getByRole('link', { name: 'Start another' }).click();
  await page
    .getByRole('link', { name: /hello world/ })
    .first()
    .waitFor();
  await screenshot(page, 'coder-start');
  assert.deepEqual(problems, []);
  await context.close();
});

test('what it made is taken home, gone on with, looked into and ended', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url, { expected: [/404/] });
  await start(page, 'Create a hello world Python script and run it');
  await page.getByText(/demo played this/).waitFor();
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('link', { name: 'Download as tar' }).click(),
  ]);
  assert.equal(download.suggestedFilename(), 'work.tar');
  const first = page.url();
  const box = (await page.getByRole('link', { name: 'Files' }).getAttribute('href')).split(
    /[/#]/,
  )[2];

  // A page that is loaded again shows the same.
  await page.reload();
  const next = page.getByRole('textbox', { name: 'Go on in the same sandbox' });
  await next.fill('Create a hello world Python script and run it');
  await page.getByRole('button', { name: 'Go on' }).click();
  await until('it is another job', () => page.url() !== first);
  await step(page, 'Step 2: run_command').getByLabel('Output').getByText('Hello, world!').waitFor();
  await page.getByText(/demo played this/).waitFor();
  await page.getByRole('link', { name: 'Files' }).click();
  await page.waitForURL(new RegExp(`/sandboxes/${box}#files`));
  await page.getByRole('button', { name: 'hello.py', exact: true }).waitFor();
  await page.goBack();
  await page.getByRole('button', { name: /^End the sandbox/ }).click();
  await page.getByRole('button', { name: /^End the sandbox: sure/ }).click();
  await page.getByText('Its sandbox has ended.').waitFor();
  const { status } = await (await fetch(`${cay.url}/v1/sandboxes/${box}`)).json();
  assert.equal(status, 'stopped');
  assert.deepEqual(problems, []);
  await context.close();
});

test('steps appear while it works; a reload goes on where it is; stop stops', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await start(page, 'Make a small web page and serve it');
  await step(page, 'Step 2: run_command').getByText('at work').waitFor();
  await page.reload();
  await step(page, 'Step 1: write_file').getByText('ok', { exact: true }).waitFor();
  await page.getByText('was served on port 8000', { exact: false }).first().waitFor();
  await start(page, 'Make a small web page and serve it');
  await step(page, 'Step 2: run_command').getByText('at work').waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.locator('.coder-bar').getByText('cancelled').waitFor();
  // One that was stopped is not kept; those that ended by themselves are.
  await until('its sandbox is gone', async () => {
    const { sandboxes } = await (await fetch(`${cay.url}/v1/sandboxes`)).json();
    return sandboxes[0].status === 'stopped';
  });
  assert.deepEqual(problems, []);
  await context.close();
});
