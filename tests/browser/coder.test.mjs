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
  await page.getByLabel('Diff').getByText("+print('Hello, world!')").waitFor();
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
  await until('no sandbox is left', async () => {
    const { sandboxes } = await (await fetch(`${cay.url}/v1/sandboxes`)).json();
    return sandboxes.every((s) => s.status !== 'running');
  });
  assert.deepEqual(problems, []);
  await context.close();
});
