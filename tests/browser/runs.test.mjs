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
  startGate,
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

test('a run’s page shows its record and how it went', limit, async (t) => {
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
    const timeline = page.getByRole('list', { name: 'Timeline' });
    assert.match(await timeline.innerText(), /compile[^]*run/);
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
  await until('the address says so', () => /kind=sdk&text=HELLO/.test(page.url()));
  await page.reload();
  await until('it holds over a reload', async () => (await hrefs(page)).length === 1);
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

const post = async (path, body) => {
  const answer = await fetch(cay.url + path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
    body: JSON.stringify(body),
  });
  assert.ok(answer.ok, await answer.clone().text());
  return answer.json();
};
const newest = async (kind) =>
  (await getJson(`${cay.url}/v1/runs?kind=${kind}&limit=1`)).runs[0].id;

test('runs are found by their time, and charted', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await makeRuns(cay, 1);
  await page.goto(`${cay.url}/runs`);
  const chart = page.getByRole('figure', { name: /^Runs/ });
  await until('bars are drawn', async () => (await chart.locator('.chart-bar').count()) > 0);
  await page.getByRole('figure', { name: /^Time they took.*median/ }).waitFor();
  await page.getByRole('combobox', { name: 'Time' }).selectOption('From … to …');
  await page.getByLabel('To', { exact: true }).fill('2020-01-01T00:00');
  await page.getByText('No run is like that').waitFor();
  await page.getByLabel('To', { exact: true }).fill('2999-01-01T00:00');
  await until('they are there again', async () => (await hrefs(page)).length > 0);
  assert.deepEqual(problems, []);
  return context.close();
});

test('a coding run has a timeline, its steps, its diff, and is begun again', limit, async () => {
  await post('/execute', {
    task: 'Create a hello world Python script and run it',
    options: { permission_mode: 'bypassPermissions', include_diff: true },
  });
  const id = await newest('execute');
  const { context, page, problems } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/runs/${id}`);
  const timeline = page.getByRole('list', { name: 'Timeline' });
  await timeline.getByRole('link', { name: '2 run_command' }).waitFor();
  await page.getByRole('article', { name: 'Step 2: run_command' }).waitFor();
  await page.getByRole('region', { name: 'Diff of hello.py' }).getByText('Hello').waitFor();
  await page
    .locator('.facts')
    .getByText(/^[\d,]+ in, \d+ out$/)
    .waitFor();
  const [asked] = await Promise.all([
    page.waitForRequest((it) => it.method() === 'POST' && it.url().endsWith('/execute')),
    page.getByRole('button', { name: 'Run again' }).click(),
  ]);
  // As it was: what it may do must not grow.
  assert.equal(asked.postDataJSON().options.permission_mode, 'bypassPermissions');
  await until('the new one is shown', () => !page.url().endsWith(id));
  await page.getByRole('article', { name: 'Step 2: run_command' }).waitFor();
  assert.deepEqual(problems, []);
  return context.close();
});

test(
  'a turn of a chat is told by what was asked, can be read, and asked again',
  limit,
  async () => {
    await post('/v1/agents/sandbox-agent/told/messages', { text: 'Count customers by tier' });
    const { context, page, problems } = await openPage(browser, cay.url);
    await page.goto(`${cay.url}/runs?kind=chat`);
    await page.getByRole('link', { name: /^Count customers by tier/ }).click();
    await page.getByText('Gold: 3').first().waitFor();
    await page.locator('.facts').getByText('$0', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Ask again' }).click();
    await until('the words are in the box', async () => {
      const box = page.getByRole('textbox', { name: 'Message' });
      return (await box.count()) > 0 && (await box.inputValue()) === 'Count customers by tier';
    });
    // What the answer took stands below it, and its program leads to its run.
    await page.locator('.message-account').getByRole('link', { name: 'run' }).waitFor();
    await page.getByRole('tab', { name: /^Executions/ }).click();
    await page.getByRole('link', { name: 'Its run' }).click();
    await page.getByRole('heading', { name: 'Program', exact: true }).waitFor();
    await page.getByRole('link', { name: 'Its conversation' }).waitFor();
    assert.deepEqual(problems, []);
    return context.close();
  },
);

test('a program is watched while it runs, in its colours, and run again', limit, async () => {
  const gate = await startGate(cay, 'runs');
  const code = `export default async (env) => {
    console.log('\\x1b[32mgreen\\x1b[0m');
    ${gate.words}
    return 'over';
  }`;
  const running = post('/v1/run', { code, env: gate.env });
  const { context, page, problems } = await openPage(browser, cay.url);
  await until('it is known', async () => {
    const { runs } = await getJson(`${cay.url}/v1/runs?kind=run&limit=1`);
    return runs[0].status === 'running';
  });
  const id = await newest('run');
  await page.goto(`${cay.url}/runs/${id}`);
  await page.locator('.log-line .ansi-green').getByText('green').waitFor();
  await page.locator('.facts').getByText('running').waitFor();
  await gate.open();
  await running;
  await page.locator('.facts').getByText('done').waitFor();
  await page.getByRole('region', { name: 'Result' }).getByText('over').waitFor();
  await page.getByRole('link', { name: 'Run again' }).click();
  await page.locator('.outcome-state').getByText('running').waitFor();
  assert.match(page.url(), /\/play\?run=/);
  await page.getByRole('button', { name: 'Stop' }).click();
  assert.deepEqual(problems, []);
  return context.close();
});
