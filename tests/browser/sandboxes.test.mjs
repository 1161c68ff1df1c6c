// Sandboxes in the page: made, used by a terminal, commands and files, reached, ended. What a guest
// says stays text, and the page keeps to its policy all the while.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  assertFits,
  getJson,
  openPage,
  screenshot,
  startBrowser,
  startServer,
  until,
  viewports,
} from './support.mjs';

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

async function call(method, path, body) {
  const response = await fetch(cay.url + path, {
    method,
    ...(body === undefined
      ? {}
      : { body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } }),
  });
  const text = await response.text();
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
  return text ? JSON.parse(text) : null;
}

const create = (body = {}) => call('POST', '/v1/sandboxes', body);
const tab = (page, name) => page.getByRole('tab', { name });
const rows = (page) => page.locator('.xterm-rows');

async function openBox(page, box, panel = 'terminal') {
  await page.goto(`${cay.url}/sandboxes/${box.id}#${panel}`);
  await page.getByRole('heading', { level: 1 }).waitFor();
}

test('one is made by the form, listed, extended and deleted', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/sandboxes`);
  await page.getByRole('button', { name: 'New sandbox' }).click();
  const dialog = page.getByRole('dialog', { name: 'New sandbox' });
  await dialog.getByRole('textbox', { name: 'Name', exact: true }).fill('by hand');
  await dialog.getByRole('textbox', { name: 'Memory, MiB' }).fill('lots');
  await dialog.getByRole('button', { name: 'Create', exact: true }).click();
  await dialog.getByText('The memory must be a whole number of MiB.').waitFor();
  await dialog.getByRole('textbox', { name: 'Memory, MiB' }).fill('128');
  await dialog.getByRole('textbox', { name: 'Ends after, seconds' }).fill('120');
  await dialog.getByRole('textbox', { name: /^Hosts/ }).fill('example.com');
  await dialog.getByRole('textbox', { name: /^Environment/ }).fill('WHO=me');
  await dialog.getByLabel('Files for /work').setInputFiles({
    name: 'hello.sh',
    mimeType: 'text/plain',
    buffer: Buffer.from('echo "hello $WHO"\n'),
  });
  await dialog.getByRole('button', { name: 'curl: create' }).click();
  const curl = await dialog.getByRole('region', { name: /with curl: create/ }).innerText();
  assert.match(curl, /"memory_mb":128/);
  await dialog.getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByRole('heading', { level: 1, name: 'by hand' }).waitFor();
  const id = new URL(page.url()).pathname.split('/').at(-1);
  const made = await getJson(`${cay.url}/v1/sandboxes/${id}`);
  assert.deepEqual([made.limits.memory_mb, made.network.allow], [128, ['example.com']]);

  await tab(page, 'Commands').click();
  await page.getByRole('textbox', { name: 'Command', exact: true }).fill('sh hello.sh');
  await page.keyboard.press('Enter');
  await page.getByText('hello me').waitFor();

  await page.getByRole('link', { name: 'Sandboxes' }).first().click();
  await page.getByRole('row', { name: /by hand/ }).waitFor();
  const before = Date.parse((await getJson(`${cay.url}/v1/sandboxes/${id}`)).expires_at);
  await page.getByRole('button', { name: 'Give by hand 15 minutes from now' }).click();
  await until('it lives longer', async () => {
    const now = await getJson(`${cay.url}/v1/sandboxes/${id}`);
    return Date.parse(now.expires_at) > before + 600_000;
  });
  await page.getByRole('link', { name: /by hand/ }).click();
  await page.getByRole('button', { name: 'Pause', exact: true }).click();
  await page.getByRole('button', { name: 'Resume', exact: true }).click();
  await page.getByRole('button', { name: 'Pause', exact: true }).waitFor();
  await page.getByRole('button', { name: 'Snapshot', exact: true }).click();
  await page.getByText(/^Kept as snp_/).waitFor();
  await page.getByRole('button', { name: 'Delete by hand', exact: true }).click();
  assert.equal((await getJson(`${cay.url}/v1/sandboxes/${id}`)).status, 'running', 'asked first');
  await page.getByRole('button', { name: 'Delete: sure? by hand' }).click();
  await page.getByRole('heading', { level: 1, name: 'Sandboxes' }).waitFor();
  assert.equal((await getJson(`${cay.url}/v1/sandboxes/${id}`)).status, 'stopped');
  assert.deepEqual(problems, []);
  await context.close();
});

test('a terminal: typing, colours of every kind, size, and coming back to it', limit, async () => {
  const box = await create({ name: 'tty' });
  const { context, page, problems } = await openPage(browser, cay.url);
  await openBox(page, box);
  await page.getByText('Connected.').waitFor();
  await page.keyboard.type(
    'export MARK=again; printf "\\033[38;2;1;2;3mrgb\\033[0m\\033[32mgreen\\n"',
  );
  await page.keyboard.press('Enter');
  const colour = (text) =>
    page.evaluate((wanted) => {
      const spans = [...document.querySelectorAll('.xterm-rows span')];
      const span = spans.find((it) => it.textContent === wanted);
      return span ? getComputedStyle(span).color : null;
    }, text);
  await until('the colours', async () => (await colour('rgb')) === 'rgb(1, 2, 3)');
  assert.equal(await colour('green'), 'rgb(44, 122, 67)');

  const size = async () => {
    await page.keyboard.type('clear; stty size');
    await page.keyboard.press('Enter');
    let found;
    await until('the size', async () => {
      found = /^(\d+) (\d+)\s*$/m.exec((await rows(page).innerText()).replaceAll('\u00a0', ' '));
      return found;
    });
    return Number(found[2]);
  };
  const wide = await size();
  await page.setViewportSize({ width: 700, height: 900 });
  await until('it is narrower', async () => (await size()) < wide - 10);
  await page.setViewportSize(viewports.light.viewport);

  // Ctrl+Escape is the way out for a keyboard.
  await page.keyboard.press('Control+Escape');
  assert.equal(
    await page.evaluate(() => document.activeElement?.textContent),
    'New shell',
    'the focus has left',
  );

  // Another view and back: the same shell.
  await page.getByRole('link', { name: 'Status' }).click();
  await page.getByRole('heading', { level: 1, name: 'Status' }).waitFor();
  await page.goBack();
  await page.getByText('Connected.').waitFor();
  await page.keyboard.type('clear; echo "once $MARK"');
  await page.keyboard.press('Enter');
  await until('the variable', async () =>
    /once again/.test((await rows(page).innerText()).replaceAll('\u00a0', ' ')),
  );

  await page.keyboard.type('exit 3');
  await page.keyboard.press('Enter');
  await page.getByText('The shell has ended (exit 3).').waitFor();
  await page.getByRole('button', { name: 'New shell' }).click();
  await page.getByText('Connected.').waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test('what a guest prints is text, in the terminal and out of it', limit, async () => {
  const html = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>';
  const box = await create({
    name: html,
    files: [{ path: `/work/<img src=x onerror=alert(1)>.txt`, content: html }],
  });
  const { context, page, problems } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/sandboxes`);
  await page.getByText(html).waitFor();
  await openBox(page, box, 'commands');
  const input = page.getByRole('textbox', { name: 'Command', exact: true });
  await input.fill(
    `cat *; printf '\\033]0;title\\007\\033]8;;javascript:alert(1)\\007link\\033]8;;\\007'`,
  );
  await page.keyboard.press('Enter');
  await page.locator('.output').getByText(html).waitFor();
  await tab(page, 'Files').click();
  await page.getByRole('button', { name: '<img src=x onerror=alert(1)>.txt', exact: true }).click();
  await until(
    'the text of the file',
    async () => (await page.getByRole('textbox', { name: /^Text of/ }).inputValue()) === html,
  );
  await tab(page, 'Terminal').click();
  await page.getByText('Connected.').waitFor();
  await page.keyboard.type(`cat *; printf '\\033]0;hijacked\\007'`);
  await page.keyboard.press('Enter');
  await until('it is shown', async () => (await rows(page).innerText()).includes('onerror'));
  assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
  assert.equal(await page.locator('main img').count(), 0);
  assert.equal(await page.title(), 'Sandbox · cay');
  assert.deepEqual(problems, []);
  await context.close();
});

test('files: made, edited, uploaded, downloaded, deleted', limit, async () => {
  const box = await create();
  const { context, page, problems } = await openPage(browser, cay.url);
  await openBox(page, box, 'files');
  await page.getByText('This folder is empty.').waitFor();
  await page.getByRole('button', { name: 'New folder' }).click();
  await page.getByRole('textbox', { name: 'Name of the new folder' }).fill('notes');
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'notes/', exact: true }).click();
  await page.locator('.file-button input').setInputFiles([
    { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('first\n') },
    { name: 'b.bin', mimeType: 'application/octet-stream', buffer: Buffer.from([0, 255, 1]) },
  ]);
  await page.getByRole('button', { name: 'a.txt', exact: true }).click();
  const text = page.getByRole('textbox', { name: 'Text of /work/notes/a.txt' });
  await text.fill('second\n');
  await page.keyboard.press('Control+s');
  await page.getByRole('button', { name: 'Saved' }).waitFor();
  const file = (path) =>
    fetch(`${cay.url}/v1/sandboxes/${box.id}/files?path=${encodeURIComponent(path)}`);
  assert.equal(await (await file('/work/notes/a.txt')).text(), 'second\n');
  await page.getByRole('button', { name: 'b.bin', exact: true }).click();
  await page.getByText('It is not text: download it instead.').waitFor();
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('link', { name: 'Download b.bin' }).click(),
  ]);
  assert.equal(download.suggestedFilename(), 'b.bin');
  await page.getByRole('button', { name: 'Delete b.bin', exact: true }).click();
  await page.getByRole('button', { name: 'Delete: sure? b.bin', exact: true }).click();
  await until('it is gone', async () => (await file('/work/notes/b.bin')).status === 404);
  await page.getByRole('button', { name: 'work', exact: true }).click();
  const [archive] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('link', { name: 'Download notes' }).click(),
  ]);
  assert.equal(archive.suggestedFilename(), 'notes.tar');
  assert.deepEqual(problems, []);
  await context.close();
});

test('commands: streams as they come, a failure, an interrupt', limit, async () => {
  const box = await create();
  const { context, page, problems } = await openPage(browser, cay.url);
  await openBox(page, box, 'commands');
  const input = page.getByRole('textbox', { name: 'Command', exact: true });
  await input.fill('echo begun; sleep 60');
  await page.keyboard.press('Enter');
  await page.locator('.output').getByText('begun').waitFor();
  await page.getByRole('button', { name: 'Interrupt', exact: true }).click();
  await page.locator('.exec-end').getByText('SIGINT').waitFor();
  await input.fill('echo out; echo err >&2; exit 7');
  await page.keyboard.press('Enter');
  await page.locator('.exec-end').getByText('exit 7').waitFor();
  await until('both streams', async () => {
    const both = [page.locator('.output .stdout'), page.locator('.output .stderr')];
    return (await both[0].innerText()) === 'out\n' && (await both[1].innerText()) === 'err\n';
  });
  // An older one is opened again from the list.
  await page.getByRole('button', { name: 'echo begun; sleep 60' }).click();
  await page.locator('.output').getByText('begun').waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test('the network: changed while it runs, and what was tried is seen', limit, async () => {
  const box = await create({ network: { allow: ['one.example'] } });
  const { context, page, problems } = await openPage(browser, cay.url);
  await openBox(page, box, 'network');
  const hosts = page.getByRole('textbox', { name: /^Hosts/ });
  assert.equal(await hosts.inputValue(), 'one.example');
  await hosts.fill('two.example\nthree.example:8443');
  await page.getByRole('button', { name: 'Apply' }).click();
  await until('it is applied', async () => {
    const { network } = await getJson(`${cay.url}/v1/sandboxes/${box.id}`);
    return network.allow.join() === 'two.example,three.example:8443';
  });
  await call('POST', `/v1/sandboxes/${box.id}/exec`, {
    command: 'curl -s -m 5 https://refused.example/; true',
  });
  await page.getByText('refused.example:443', { exact: true }).waitFor();
  await page.getByText('refused', { exact: true }).first().waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test('a port leads to an origin of its own', limit, async () => {
  const box = await create({ files: [{ path: '/work/index.html', content: '<h1>inside</h1>' }] });
  await call('POST', `/v1/sandboxes/${box.id}/exec`, {
    command: 'python3 -m http.server 8000 --bind 127.0.0.1',
    background: true,
  });
  const { context, page, problems } = await openPage(browser, cay.url);
  await openBox(page, box, 'ports');
  await page.getByRole('textbox', { name: 'Port' }).fill('8000');
  const link = page.getByRole('link', { name: new RegExp(`//8000-${box.id}`) });
  assert.notEqual(new URL(await link.getAttribute('href')).origin, cay.url);
  await until('the server inside listens', async () => {
    const [opened] = await Promise.all([context.waitForEvent('page'), link.click()]);
    await opened.waitForURL(/\/\/8000-/);
    await opened.waitForLoadState();
    const text = await opened.locator('body').innerText();
    await opened.close();
    return text.includes('inside');
  });
  assert.deepEqual(problems, []);
  await context.close();
});

test('by keyboard alone, from the list to a command', limit, async () => {
  const box = await create({ name: 'keys' });
  const { context, page } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/sandboxes`);
  await page.getByRole('link', { name: /keys/ }).waitFor();
  const reach = async (what, ask) => {
    for (let i = 0; i < 60; i++) {
      if (await page.evaluate(ask, box.id)) return;
      await page.keyboard.press('Tab');
    }
    assert.fail(`Tab does not reach ${what}`);
  };
  await reach('the sandbox', (id) => document.activeElement?.getAttribute('href')?.endsWith(id));
  await page.keyboard.press('Enter');
  await page.getByText('Connected.').waitFor();
  await page.keyboard.press('Control+Escape');
  await page.getByRole('tab', { name: 'Terminal' }).focus();
  await page.keyboard.press('ArrowRight');
  await reach(
    'the command',
    () => document.activeElement?.getAttribute('aria-label') === 'Command',
  );
  await page.keyboard.type('echo by keys');
  await page.keyboard.press('Enter');
  await page.locator('.output').getByText('by keys').waitFor();
  // The curl beside an action opens, is read, and closes.
  await reach('a curl', () => document.activeElement?.classList.contains('curl-toggle'));
  await page.keyboard.press('Enter');
  await page
    .getByRole('region', { name: /The same with curl/ })
    .first()
    .waitFor();
  await page.keyboard.press('Escape');
  assert.equal(await page.getByRole('region', { name: /The same with curl/ }).count(), 0);
  await context.close();
});

test('one that is not there, or has ended, says so', limit, async () => {
  const { context, page } = await openPage(browser, cay.url, { expected: [/404/, /409/] });
  await page.goto(`${cay.url}/sandboxes/sbx_00000000000000000000000000`);
  await page.getByText('There is no such sandbox').waitFor();
  const box = await create({ name: 'ended' });
  await call('DELETE', `/v1/sandboxes/${box.id}`);
  await openBox(page, box);
  await page.getByText('It has ended.').waitFor();
  await tab(page, 'Files').click();
  await page.getByText('Its files can be seen while it runs.').waitFor();
  await page.getByRole('button', { name: 'Forget ended', exact: true }).click();
  await page.getByRole('button', { name: 'Forget: sure? ended' }).click();
  await page.getByRole('heading', { level: 1, name: 'Sandboxes' }).waitFor();
  assert.equal((await fetch(`${cay.url}/v1/sandboxes/${box.id}`)).status, 404);
  await context.close();
});

for (const [name, options] of Object.entries(viewports)) {
  test(`nothing sticks out sideways: ${name}`, limit, async () => {
    const box = await create({
      name: 'a much longer name, of the kind that agents give to what they make',
      files: [{ path: `/work/${'long'.repeat(20)}.txt`, content: 'x' }],
    });
    const { context, page, problems } = await openPage(browser, cay.url, options);
    await page.goto(`${cay.url}/sandboxes`);
    await page.getByText('a much longer name').first().waitFor();
    await assertFits(page, 'list');
    await screenshot(page, `sandboxes-${name}`);
    await openBox(page, box);
    await page.getByText('Connected.').waitFor();
    for (const panel of ['Terminal', 'Commands', 'Files', 'Ports', 'Network']) {
      await tab(page, panel).click();
      if (panel === 'Files') await page.getByText(/^longlong/).waitFor();
      await assertFits(page, panel);
      await screenshot(page, `sandbox-${panel.toLowerCase()}-${name}`);
    }
    assert.deepEqual(problems, []);
    await context.close();
  });
}
