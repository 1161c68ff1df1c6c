// Runs: the newest on the status page, all of them in pages, and one by itself.
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

const hrefs = (page) =>
  page.locator('.run-link').evaluateAll((links) => links.map((link) => link.getAttribute('href')));

test('a run that begins appears on the status page without a reload', limit, async (t) => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/status`);
  // Only once the runs are on the page can one be seen to arrive.
  await page.locator('.run-link').or(page.getByText('Nothing has been run yet.')).first().waitFor();
  assert.ok(await makeRuns(cay, 1), 'the server runs programs');
  const newest = (await getJson(`${cay.url}/v1/runs?limit=1`)).runs[0].id;
  await until('the run is shown', async () => (await hrefs(page)).includes(`/runs/${newest}`));
  assert.deepEqual(problems, []);
  return context.close();
});

test('older runs are fetched page by page, each once', limit, async (t) => {
  assert.ok(await makeRuns(cay, 30), 'the server runs programs');
  const { context, page, problems } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/runs`);
  await until('the first page is shown', async () => (await hrefs(page)).length >= 25);
  await page.getByRole('button', { name: 'Show older runs' }).click();
  await until('there are more', async () => (await hrefs(page)).length >= 30);
  const shown = await hrefs(page);
  assert.equal(new Set(shown).size, shown.length, 'no run is shown twice');
  assert.deepEqual(problems, []);
  return context.close();
});

test('a run’s page shows its record and its events', limit, async (t) => {
  assert.ok(await makeRuns(cay, 1), 'the server runs programs');
  const { runs } = await getJson(`${cay.url}/v1/runs?limit=20`);
  const { id } = runs.find((run) => run.status !== 'running');
  const record = await getJson(`${cay.url}/v1/runs/${id}`);
  for (const [name, options] of Object.entries(viewports)) {
    const { context, page, problems } = await openPage(browser, cay.url, options);
    await page.goto(`${cay.url}/runs`);
    await page.locator(`.run-link[href="/runs/${id}"]`).click();
    await page.getByRole('heading', { level: 1, name: record.title || id, exact: true }).waitFor();
    await page.locator('.facts').getByText(id, { exact: true }).waitFor();
    await page.locator('.facts').getByText(record.status, { exact: true }).waitFor();
    const types = await page.locator('.event-type').allInnerTexts();
    assert.deepEqual(
      types,
      record.events.map((event) => event.type),
    );
    const nav = page.getByRole('navigation', { name: 'Main' });
    assert.equal(await nav.locator('[aria-current]').innerText(), 'Runs');
    await assertFits(page, name);
    await screenshot(page, `run-${name}`);
    assert.deepEqual(problems, []);
    await context.close();
  }
});

test('a run that does not exist says so', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url, {
    expected: [/status of 404/],
  });
  await page.goto(`${cay.url}/runs/run_none`);
  await page.getByText('There is no such run').waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test('a call of /execute/sdk can be read, filtered for, and begun again', limit, async () => {
  const call = (prompt, options) =>
    fetch(`${cay.url}/execute/sdk`, { method: 'POST', body: JSON.stringify({ prompt, options }) });
  const { request_id: id } = await (await call('Plan how to write a hello world program')).json();
  await call('Plan a failure', { max_turns: 1 });
  const { context, page, problems } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/runs`);
  await page.getByLabel('Kind').selectOption('/execute/sdk');
  await until('only calls are shown', async () => (await hrefs(page)).length === 2);
  await page.getByLabel('Status').selectOption('failed');
  await until('one has failed', async () => (await hrefs(page)).length === 1);
  await page.getByLabel('Status').selectOption('');
  await page.getByRole('searchbox', { name: 'Text' }).fill('HELLO world');
  await until('one has these words', async () => (await hrefs(page)).length === 1);
  await page.getByText('1 of the 2 runs that are loaded.').waitFor();
  await page.locator('.run-link').click();
  await page.getByText('There are two steps: write the program, then run it.').waitFor();
  await page.getByText('The list is written.').waitFor();
  await page.getByText('Calls TodoWrite').click();
  await page.getByRole('region', { name: 'Input of TodoWrite' }).getByText('in_progress').waitFor();
  for (const { viewport } of Object.values(viewports)) {
    await page.setViewportSize(viewport);
    await assertFits(page);
  }
  await screenshot(page, 'run-sdk');
  await page.getByRole('button', { name: 'Run again' }).click();
  await until('another run is shown', async () => {
    const at = new URL(page.url()).pathname;
    return at.startsWith('/runs/') && !at.endsWith(id);
  });
  await page.getByText('There are two steps: write the program, then run it.').waitFor();
  assert.deepEqual(problems, []);
  return context.close();
});
