// The API's reference: every operation is found, read and tried.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { getJson, openPage, startBrowser, startServer } from './support.mjs';

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

test('every operation can be found, read and tried', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url, {
    expected: [/status of 404/],
  });
  const { paths } = await getJson(`${cay.url}/openapi.json`);
  const count = Object.values(paths)
    .flatMap((item) => Object.keys(item))
    .filter((key) => key !== 'parameters').length;
  await page.goto(`${cay.url}/reference`);
  const operations = page.getByRole('navigation', { name: 'Operations' }).getByRole('link');
  await operations.first().waitFor();
  assert.equal(await operations.count(), count);
  const sent = [];
  page.on('request', (request) =>
    sent.push(`${request.method()} ${new URL(request.url()).pathname}`),
  );

  // By the keyboard: look for it, go there, send it.
  await page.getByRole('searchbox', { name: 'Search' }).fill('post keys make');
  assert.equal(await operations.count(), 1);
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  const head = page.getByRole('heading', { level: 2, name: 'Make a key' });
  await head.waitFor();
  assert.ok(await head.evaluate((it) => it === document.activeElement));
  const body = page.getByRole('textbox', { name: 'Body, as JSON' });
  assert.deepEqual(JSON.parse(await body.inputValue()), { name: '' });
  await body.fill('{"name": }');
  const send = page.getByRole('button', { name: 'Send', exact: true });
  await send.focus();
  await page.keyboard.press('Enter');
  await page.getByRole('alert').getByText('The body is not JSON').waitFor();
  assert.ok(!sent.includes('POST /v1/keys'));
  await body.fill('{"name": "<img src=x onerror=alert(1)>"}');
  await send.focus();
  await page.keyboard.press('Enter');
  await page.getByText('201 Created').waitFor();
  const answer = page.getByRole('region', { name: 'The answer' });
  const { id, name } = JSON.parse(await answer.innerText());
  assert.equal(name, '<img src=x onerror=alert(1)>');

  // What cannot be undone is asked for twice; the address of the page leads to the operation.
  await page.goto(`${cay.url}/reference#revokeKey`);
  await page.getByRole('heading', { level: 2, name: 'Revoke a key' }).waitFor();
  const parameter = page.getByRole('textbox', { name: 'id' });
  await parameter.fill('key_none');
  await parameter.press('Enter');
  const revoke = page.getByRole('button', { name: /^Send/ });
  await revoke.click();
  assert.ok(!sent.some((line) => line.startsWith('DELETE')));
  await revoke.click();
  await page.getByText('404 Not Found').waitFor();
  assert.match(await answer.innerText(), /there is no key/);
  await parameter.fill(id);
  await revoke.click();
  await revoke.click();
  await page.getByText('204 No Content').waitFor();
  assert.equal((await getJson(`${cay.url}/v1/keys`)).keys[0].revoked_at !== null, true);

  // An answer that comes bit by bit is shown so, and can be stopped; the command does the same.
  await page.goto(`${cay.url}/reference#run`);
  await body.fill(
    JSON.stringify({
      code: "export default async () => { console.log('bit'); await new Promise((d) => setTimeout(d, 20000)); }",
    }),
  );
  await page.getByRole('checkbox', { name: 'As a stream of events' }).check();
  await send.click();
  await answer.getByText('bit').waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await send.waitFor();
  await body.fill('{"code": "export default () => 6 * 7"}');
  await send.click();
  await answer.getByText('event: result').waitFor();
  await page.getByRole('button', { name: 'curl', exact: true }).click();
  await page.getByRole('button', { name: /^curl: Run a program/ }).click();
  const line = await page.getByRole('region', { name: /^The same with curl/ }).innerText();
  const { stdout } = await promisify(execFile)('sh', ['-c', line], { timeout: 20_000 });
  assert.match(stdout, /"result":42/);
  assert.deepEqual(problems, []);
  await context.close();
});
