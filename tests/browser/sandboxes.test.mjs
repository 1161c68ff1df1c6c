// Sandboxes in the page: made, used by a terminal, commands and files, reached, ended. What a guest
// says stays text, and the page keeps to its policy all the while.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
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

const made = [];
async function create(body = {}) {
  const box = await call('POST', '/v1/sandboxes', body);
  made.push(box.id);
  return box;
}
// A key may have so many at a time.
afterEach(async () => {
  for (const id of made.splice(0))
    await fetch(`${cay.url}/v1/sandboxes/${id}`, { method: 'DELETE' });
});
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
  await dialog.getByRole('textbox', { name: /^Memory, MiB/ }).fill('lots');
  await dialog.getByRole('button', { name: 'Create', exact: true }).click();
  await dialog.getByText('The memory must be a whole number of MiB.').waitFor();
  await dialog.getByRole('textbox', { name: /^Memory, MiB/ }).fill('128');
  await dialog.getByRole('textbox', { name: /^Ends after, seconds/ }).fill('120');
  await dialog.getByRole('textbox', { name: /^Hosts/ }).fill('example.com');
  await dialog.getByRole('textbox', { name: /^Environment/ }).fill('WHO=me');
  await dialog.getByLabel('Files for /work').setInputFiles({
    name: 'hello.sh',
    mimeType: 'text/plain',
    buffer: Buffer.from('echo "hello $WHO"\n'),
  });
  assert.equal(await page.locator('.curl').count(), 0, 'the calls are hidden until asked for');
  await page.evaluate(() => document.querySelector('.curl-switch').click());
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
  await page.getByRole('button', { name: 'Extend by hand by 15 minutes' }).click();
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

test(
  'extending adds; what ends soon is said, and what has ended can be had again',
  limit,
  async () => {
    const box = await create({ name: 'short', timeout_s: 3000, memory_mb: 200 });
    const { context, page, problems } = await openPage(browser, cay.url);
    const endOf = async (id) =>
      Date.parse((await getJson(`${cay.url}/v1/sandboxes/${id}`)).expires_at);
    const before = await endOf(box.id);
    await openBox(page, box, 'commands');
    await page.getByRole('combobox', { name: 'How much longer it lives' }).selectOption('300');
    await page.getByRole('button', { name: 'Extend', exact: true }).click();
    await until('it lives longer', async () => (await endOf(box.id)) > before + 290_000);
    assert.equal(await page.getByText(/^It ends in/).count(), 0);

    await call('POST', `/v1/sandboxes/${box.id}/extend`, { timeout_s: 60 });
    await page.getByText(/^It ends in/).waitFor();
    await page.getByRole('button', { name: 'Give it 30 min more' }).click();
    await until('it lives longer', async () => (await endOf(box.id)) > Date.now() + 1_800_000);
    await page.getByText(/^It ends in/).waitFor({ state: 'detached' });

    await call('POST', `/v1/sandboxes/${box.id}/extend`, { timeout_s: 1 });
    await page.getByText('Its time was over').waitFor();
    assert.equal(await page.getByRole('button', { name: 'Extend', exact: true }).count(), 0);
    await page.getByRole('button', { name: 'Create one like it' }).click();
    await until('it is another', () => !page.url().includes(box.id));
    const again = await getJson(
      `${cay.url}/v1/sandboxes/${page.url().split('/').at(-1).split('#')[0]}`,
    );
    assert.deepEqual(
      [again.name, again.limits.memory_mb, again.limits.timeout_s, again.status],
      ['short', 200, 3000, 'running'],
    );
    assert.deepEqual(problems, []);
    await context.close();
  },
);

const shellsOf = async (box) =>
  (await getJson(`${cay.url}/v1/sandboxes/${box.id}/execs`)).execs.filter(
    (it) => it.tty && it.status === 'running',
  ).length;

test('a page that is loaded again finds its shells, and starts no others', limit, async () => {
  const box = await create();
  const { context, page, problems } = await openPage(browser, cay.url);
  await openBox(page, box);
  await page.getByText('Connected.').waitFor();
  // What a program asked the terminal is not answered again when its output is shown again.
  await page.keyboard.type("printf '\\033[c'; read -rsn7 -t2 x; KEPT=yes; echo as''ked ${#x}");
  await page.keyboard.press('Enter');
  await until('it was answered once', async () =>
    (await rows(page).innerText()).includes('asked 7'),
  );
  for (let visit = 0; visit < 3; visit++) {
    await page.reload();
    await page.getByText('Connected.').waitFor();
  }
  assert.equal(await shellsOf(box), 1);
  await page.keyboard.type('clear; echo "kept $KEPT"');
  await page.keyboard.press('Enter');
  await until('the shell is the same', async () =>
    /^kept yes\s*$/m.test((await rows(page).innerText()).replaceAll('\u00a0', ' ')),
  );
  assert.doesNotMatch(await rows(page).innerText(), /1;2c|\[\?/);

  await page.getByRole('button', { name: 'New shell' }).click();
  await page.getByRole('button', { name: 'Shell 2', pressed: true }).waitFor();
  await until('there are two', async () => (await shellsOf(box)) === 2);
  await page.getByRole('button', { name: 'Close this one' }).click();
  await until('there is one', async () => (await shellsOf(box)) === 1);
  assert.deepEqual(problems, []);
  await context.close();
});

test('a paused sandbox says so, and goes on where it was', limit, async () => {
  const box = await create({ files: [{ path: '/work/there.txt', content: 'x' }] });
  const { context, page, problems } = await openPage(browser, cay.url);
  await call('POST', `/v1/sandboxes/${box.id}/pause`);
  await openBox(page, box);
  await page.getByText('The sandbox is paused: resume it to have a shell.').waitFor();
  await tab(page, 'Files').click();
  await page.getByText('It is paused').waitFor();
  await page.getByRole('button', { name: 'Resume', exact: true }).click();
  await page.getByRole('button', { name: 'there.txt', exact: true }).waitFor();
  await tab(page, 'Terminal').click();
  await page.getByText('Connected.').waitFor();
  await page.getByRole('button', { name: 'Pause', exact: true }).click();
  await page.getByText('nothing moves until it is resumed').waitFor();
  await page.getByRole('button', { name: 'Resume', exact: true }).click();
  await page.getByText('Connected.').waitFor();
  await page.locator('.terminal-host').click();
  await page.keyboard.type('echo goes-$((40+2))');
  await page.keyboard.press('Enter');
  await until('it goes on', async () => (await rows(page).innerText()).includes('goes-42'));
  assert.deepEqual(problems, []);
  await context.close();
});

test(
  'a terminal fits the window, takes the whole of it, and has keys for fingers',
  limit,
  async () => {
    const box = await create();
    const wide = await openPage(browser, cay.url, { viewport: { width: 1440, height: 900 } });
    await openBox(wide.page, box);
    await wide.page.getByText('Connected.').waitFor();
    const edge = () =>
      wide.page.evaluate(
        () => document.querySelector('.terminal-line').getBoundingClientRect().bottom,
      );
    assert.ok((await edge()) <= 900, `it ends at ${await edge()}`);
    assert.equal(await wide.page.getByRole('button', { name: 'Ctrl' }).count(), 0);
    await wide.page.getByRole('button', { name: 'Full screen' }).click();
    const { width, height } = await wide.page.locator('.terminal-frame').boundingBox();
    assert.deepEqual([width, height], [1440, 900]);
    await wide.context.close();

    const phone = await openPage(browser, cay.url, {
      viewport: { width: 390, height: 844 },
      isMobile: true,
      hasTouch: true,
    });
    await openBox(phone.page, box);
    await phone.page.getByText('Connected.').waitFor();
    const frame = await phone.page.locator('.terminal-frame').boundingBox();
    assert.ok(frame.height <= 844, `it is ${frame.height} high`);
    await phone.page.keyboard.type('cat');
    await phone.page.keyboard.press('Enter');
    await phone.page.getByRole('button', { name: 'Ctrl' }).tap();
    await phone.page.keyboard.type('c');
    await until('cat is interrupted', async () =>
      (await rows(phone.page).innerText()).includes('^C'),
    );
    await screenshot(phone.page, 'sandbox-terminal-390');
    await phone.context.close();
  },
);

test('no name that a guest gives puts a control character onto the clipboard', limit, async () => {
  const name = "x\nid > pwned\r\u001b[201~'y";
  const box = await create({ files: [{ path: `/work/${name}`, content: 'x' }] });
  const { context, page } = await openPage(browser, cay.url, {
    permissions: ['clipboard-read', 'clipboard-write'],
  });
  await page.addInitScript(() => localStorage.setItem('cay.curl', '1'));
  await openBox(page, box, 'files');
  await page.getByRole('button', { name: /^curl: download x/ }).click();
  await page.getByRole('button', { name: 'Copy', exact: true }).click();
  await page.getByRole('button', { name: 'Copied' }).waitFor();
  const text = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(text, /^curl -f /);
  assert.doesNotMatch(text.replaceAll(' \\\n', ' '), /[\x00-\x1f\x7f]/);
  await context.close();
});

test('an upload that is cut leaves nothing behind, and says what was wrong', limit, async () => {
  const box = await create({ disk_mb: 16, files: [{ path: '/work/big.bin', content: 'old' }] });
  const { context, page } = await openPage(browser, cay.url, { expected: [/507|413|409|42\d/] });
  await call('POST', `/v1/sandboxes/${box.id}/exec`, {
    command: 'head -c 15M /dev/zero > fill',
  });
  await openBox(page, box, 'files');
  const names = async () =>
    (await getJson(`${cay.url}/v1/sandboxes/${box.id}/files/list?path=/work`)).entries.map(
      (it) => it.name,
    );
  await page.locator('.file-button input').setInputFiles({
    name: 'big.bin',
    mimeType: 'application/octet-stream',
    buffer: Buffer.alloc(2 << 20),
  });
  await page.getByText(/The disk of the sandbox is full/).waitFor();
  await until('nothing is left', async () => (await names()).sort().join() === 'big.bin,fill');
  const kept = await fetch(`${cay.url}/v1/sandboxes/${box.id}/files?path=/work/big.bin`);
  assert.equal(await kept.text(), 'old');
  await context.close();
});

test('what was written into a file and not saved is there after a reload', limit, async () => {
  const box = await create({ files: [{ path: '/work/note.txt', content: 'one' }] });
  const { context, page, problems } = await openPage(browser, cay.url);
  await openBox(page, box, 'files');
  const open = async () => {
    await page.getByRole('button', { name: 'note.txt', exact: true }).click();
    const text = page.getByRole('textbox', { name: 'Text of /work/note.txt' });
    await text.waitFor();
    return text;
  };
  await (await open()).fill('one and two');
  await page.reload();
  assert.equal(await (await open()).inputValue(), 'one and two');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByRole('button', { name: 'Saved' }).waitFor();
  await page.getByRole('button', { name: 'Rename note.txt' }).click();
  await page.getByRole('textbox', { name: 'New name of note.txt' }).fill('notes.md');
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'notes.md', exact: true }).waitFor();
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
  await page.getByText('This folder is empty.', { exact: false }).waitFor();
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
  // The arrows go back through them.
  await input.press('ArrowUp');
  assert.equal(await input.inputValue(), 'echo out; echo err >&2; exit 7');
  await input.press('ArrowUp');
  assert.equal(await input.inputValue(), 'echo begun; sleep 60');
  await input.press('ArrowDown');
  await input.press('ArrowDown');
  assert.equal(await input.inputValue(), '');
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

test('what listens is listed, and leads to an origin of its own', limit, async () => {
  const box = await create({ files: [{ path: '/work/index.html', content: '<h1>inside</h1>' }] });
  const { context, page, problems } = await openPage(browser, cay.url);
  await openBox(page, box, 'ports');
  await page.getByText('Nothing listens inside.').waitFor();
  assert.equal(await page.locator('.port-list li').count(), 0, 'no guesses');

  // One that is dead gives a page, and the page finds the server when it is there.
  await page.getByRole('textbox', { name: 'Another port' }).fill('8000');
  const link = page.getByRole('link', { name: new RegExp(`//8000-${box.id}`) });
  assert.notEqual(new URL(await link.getAttribute('href')).origin, cay.url);
  const [opened] = await Promise.all([context.waitForEvent('page'), link.click()]);
  await opened.getByRole('heading', { name: 'No answer' }).waitFor();
  await call('POST', `/v1/sandboxes/${box.id}/exec`, {
    command: 'python3 -m http.server 8000 --bind 127.0.0.1',
    background: true,
  });
  await opened.getByRole('heading', { name: 'inside' }).waitFor();
  await opened.close();
  await page.getByRole('textbox', { name: 'Another port' }).fill('');
  await page.getByRole('button', { name: 'Look again' }).click();
  await link.waitFor();
  // What was asked for that is no command of the person's.
  await tab(page, 'Commands').click();
  await page.getByRole('button', { name: /http\.server/ }).waitFor();
  assert.equal(await page.getByText('/proc/net/tcp').count(), 0);
  assert.deepEqual(problems, []);
  await context.close();
});

test('one that is not there, or has ended, says so', limit, async () => {
  const { context, page } = await openPage(browser, cay.url, { expected: [/404/, /409/] });
  await page.goto(`${cay.url}/sandboxes/sbx_00000000000000000000000000`);
  await page.getByText('There is no such sandbox').waitFor();
  const box = await create({ name: 'ended' });
  await call('DELETE', `/v1/sandboxes/${box.id}`);
  await openBox(page, box);
  await page.getByText('It has ended', { exact: true }).waitFor();
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
