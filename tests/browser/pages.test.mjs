// The first page, usage, and what the playground, the sandboxes and the
// chat have beside their main thing.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  getJson,
  openPage,
  patience,
  startBrowser,
  startModel,
  startServer,
  until,
} from './support.mjs';

const limit = { timeout: 90_000 };
let cay;
let model;
let browser;
let context;
let page;
let problems;

before(async () => {
  model = await startModel();
  cay = await startServer({ env: model.env });
  browser = await startBrowser();
  ({ context, page, problems } = await openPage(browser, cay.url, {
    viewport: { width: 1280, height: 900 },
  }));
}, limit);

after(async () => {
  await context?.close();
  await browser?.close();
  await cay?.stop();
  await model?.stop();
}, limit);

async function call(method, path, body, headers = {}) {
  const answer = await fetch(cay.url + path, {
    method,
    headers: { 'Content-Type': 'application/json', Accept: 'application/json', ...headers },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(patience),
  });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${await answer.clone().text()}`);
  return answer.status === 204 ? null : answer.json();
}

const clean = () => assert.deepEqual(problems.splice(0), []);

test('the first page says what this is and leads to three things', limit, async () => {
  for (const [link, heading] of [
    ['Open the chat', 'Chat'],
    ['Open the playground', 'Playground'],
    ['Open the coder', 'Coder'],
    ['The whole API', 'API'],
  ]) {
    await page.goto(`${cay.url}/`);
    await page.getByRole('heading', { level: 1, name: 'Run what agents write, safely' }).waitFor();
    await page.getByRole('link', { name: link }).click();
    await page.getByRole('heading', { level: 1, name: heading }).waitFor();
  }
  clean();
});

test('a program is run on the first page, and finds no way out', limit, async () => {
  await page.goto(`${cay.url}/`);
  await page.getByRole('button', { name: 'Run it here' }).focus();
  await page.keyboard.press('Enter');
  const outcome = page.locator('.home-outcome');
  await outcome.getByText('Hello', { exact: true }).waitFor();
  assert.match(await outcome.innerText(), /Gave back\s+\w*Error: /);
  clean();
});

test('usage is shown by key and day, as charts and as a table', limit, async () => {
  const { id } = await call('POST', '/v1/tasks', {
    type: 'run',
    input: { code: 'export default () => 1' },
  });
  await until(
    'the task has ended',
    async () => (await getJson(`${cay.url}/v1/tasks/${id}`)).state === 'done',
  );
  await page.goto(`${cay.url}/usage`);
  const table = page.getByRole('table', { name: 'Usage by day, key and type' });
  await table.getByRole('row', { name: /operator.*run/ }).waitFor();
  await page.getByRole('figure', { name: /^Jobs/ }).locator('.chart-bar').first().waitFor();
  await page.getByRole('combobox', { name: 'Key' }).selectOption('operator');
  assert.ok((await table.locator('tbody tr').count()) >= 1);
  clean();
});

test(
  'the playground completes, finds, shows its database, and deploys a worker',
  limit,
  async () => {
    await page.goto(`${cay.url}/play`);
    await page.getByRole('textbox', { name: 'Env, as JSON' }).fill('{');
    assert.ok(await page.getByRole('button', { name: 'Add a database' }).isDisabled());
    await page.getByRole('textbox', { name: 'Env, as JSON' }).fill('');
    await page.getByRole('button', { name: 'Add a database' }).click();
    await page.getByText('Tables of playground-db', { exact: true }).waitFor();
    await page.getByLabel('Examples').selectOption('A database of its own');
    const editor = page.getByRole('textbox', { name: 'Program' });
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await page.locator('.outcome-state').getByText('done').waitFor();
    await page.getByText('Tables of notes', { exact: true }).click();
    const table = page.getByRole('region', { name: 'Table notes' });
    await table.getByText('1 rows').waitFor();
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await table.getByText('2 rows').waitFor();

    await editor.click();
    await page.keyboard.press('Control+End');
    await page.keyboard.type('env.');
    // Enter would be too soon for the editor, which guards against it for a moment.
    await page.getByRole('option', { name: 'db' }).click();
    await page.keyboard.type('.qu');
    await page.getByRole('option', { name: 'query' }).waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('Control+f');
    await page.getByRole('textbox', { name: 'Find' }).pressSequentially('INSERT');
    await until('it is found', async () => (await page.locator('.cm-searchMatch').count()) > 0);
    const ground = () =>
      page.locator('.cm-panels').evaluate((it) => getComputedStyle(it).backgroundColor);
    await page.emulateMedia({ colorScheme: 'light' });
    const light = await ground();
    await page.emulateMedia({ colorScheme: 'dark' });
    assert.notEqual(await ground(), light, 'it is dark where the page is');
    await page.emulateMedia({ colorScheme: 'light' });
    await page.keyboard.press('Escape');

    await page.getByLabel('Examples').selectOption('A worker');
    await page.getByRole('textbox', { name: /^Name of a worker/ }).fill('hello');
    await page.getByRole('checkbox', { name: /^Anybody may call it/ }).check();
    await page.getByRole('button', { name: 'Deploy' }).click();
    const link = page.getByRole('link', { name: /^http:\/\/hello\.localhost/ });
    await link.waitFor();
    assert.equal((await getJson(`${cay.url}/v1/workers/hello`)).code.public, true);
    const opened = await context.newPage();
    await opened.goto(`${await link.getAttribute('href')}there`);
    assert.match(await opened.locator('body').innerText(), /"hello":\s*"\/there"/);
    await opened.close();
    await page.getByRole('button', { name: 'Remove hello' }).click();
    await page.getByRole('button', { name: 'Remove: sure? hello' }).click();
    await link.waitFor({ state: 'detached' });
    clean();
  },
);

test('a snapshot is restored into a new sandbox, and deleted', limit, async () => {
  const box = await call('POST', '/v1/sandboxes', {
    files: [{ path: '/work/kept.txt', content: 'kept' }],
  });
  const kept = await call('POST', `/v1/sandboxes/${box.id}/snapshots`, {
    name: 'before <i>it</i>',
  });
  await page.goto(`${cay.url}/sandboxes`);
  const row = page.getByRole('row', { name: /before <i>it<\/i>/ });
  await row.getByRole('button', { name: /^Restore/ }).click();
  await page.waitForURL(/\/sandboxes\/sbx_/);
  const made = page.url().split('/').at(-1).split('#')[0];
  const file = await fetch(`${cay.url}/v1/sandboxes/${made}/files?path=/work/kept.txt`);
  assert.equal(await file.text(), 'kept');
  await page.goBack();
  await row.getByRole('button', { name: /^Delete/ }).click();
  await row.getByRole('button', { name: /^Delete: sure/ }).click();
  await row.waitFor({ state: 'detached' });
  assert.equal((await fetch(`${cay.url}/v1/snapshots/${kept.id}`)).status, 404);
  for (const id of [box.id, made]) await call('DELETE', `/v1/sandboxes/${id}`);
  clean();
});

test('a file goes into a message, and what is no text is refused', limit, async () => {
  await page.goto(`${cay.url}/chat/sandbox-agent/files`);
  const box = page.getByRole('textbox', { name: 'Message' });
  await box.fill('say it');
  const picker = page.locator('input[type=file]');
  await picker.setInputFiles({
    name: 'a`.md',
    mimeType: 'text/markdown',
    buffer: Buffer.from('```\n# hi\n'),
  });
  await until('it is there', async () =>
    /File a_\.md:\n````md\n```\n# hi\n````/.test(await box.inputValue()),
  );
  await picker.setInputFiles({
    name: 'b.bin',
    mimeType: 'application/octet-stream',
    buffer: Buffer.from([0xff, 0, 1]),
  });
  await page.getByRole('alert').getByText('b.bin is no text').waitFor();
  await page.keyboard.press('Enter');
  await page.locator('.message[data-role=assistant]').getByText('hi').first().waitFor();
  clean();
});

test('what a tool’s program prints is seen while it runs', limit, async () => {
  await page.goto(`${cay.url}/chat/sandbox-agent/console`);
  const box = page.getByRole('textbox', { name: 'Message' });
  await box.fill(`export default async () => {
    for (let i = 1; i <= 40; i++) {
      console.log('\x1b[31mline ' + i + '\x1b[0m');
      await new Promise((done) => setTimeout(done, 100));
    }
  }`);
  await page.getByRole('button', { name: 'Send' }).click();
  const tool = page.locator('.tool[data-state=running]');
  await tool.locator('.log-line .ansi-red').first().waitFor();
  assert.equal(await tool.count(), 1, 'it runs still');
  const answer = page.locator('.message[data-role=assistant]');
  await answer.locator('.tool[data-state=done]').getByText('line 40').waitFor();
  await answer.locator('.message-account').getByText(/ms|s/).waitFor();
  clean();
});
