// The playground: a program is written, run, followed, stopped, marked where it failed.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  assertFits,
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

const editor = (page) => page.getByRole('textbox', { name: 'Program' });
const outcome = (page) => page.getByRole('region', { name: 'Output' }).first();
const lines = (page) => page.locator('.log-line');

async function open(page) {
  await page.goto(`${cay.url}/play`);
  await editor(page).waitFor();
}

async function write(page, code) {
  await editor(page).click();
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText(code);
}

test('a program streams its lines, then gives its result and its usage', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  const gate = await startGate(cay, 'play');
  await open(page);
  await until('the editor colours', async () => (await page.locator('.tok-keyword').count()) > 2);
  await write(
    page,
    `export default async (env) => {
      console.log('first', env.WHO);
      console.warn('careful');
      console.error('\\u001b[31mred\\u001b[0m <b>bold</b>');
      ${gate.words}
      console.log('last');
      return { list: [1, 'two', { three: 3 }], html: '<img src=x onerror=alert(1)>' };
    }`,
  );
  await page
    .getByRole('textbox', { name: 'Env, as JSON' })
    .fill(JSON.stringify({ WHO: 'you', ...gate.env }));
  await editor(page).click();
  await page.keyboard.press('Control+Enter');
  // While it runs: what it has printed is there, what it will print is not.
  await page.getByText('first you').waitFor();
  assert.equal(await page.getByText('last', { exact: true }).count(), 0);
  await lines(page).filter({ hasText: 'red <b>bold</b>' }).waitFor();
  assert.deepEqual(await lines(page).evaluateAll((all) => all.map((it) => it.dataset.level)), [
    'log',
    'warn',
    'error',
  ]);
  await gate.open();
  await page.getByText('last', { exact: true }).waitFor();
  const result = page.getByRole('region', { name: 'Result' });
  await result.getByText('"two"').waitFor();
  await result.getByText('"<img src=x onerror=alert(1)>"').waitFor();
  // The branch that is deep is closed, and opens.
  assert.equal(await result.getByText('three').count(), 0);
  await result.locator('summary', { hasText: '2:' }).click();
  await result.getByText('three').waitFor();
  assert.match(await page.locator('.facts').innerText(), /Wall time\s+[\d.]+ m?s/);
  assert.match(await page.locator('.facts').innerText(), /CPU time/);
  assert.deepEqual(problems, []);
  await context.close();
});

test('a mistake is marked on its line', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page);
  await write(
    page,
    "export default () => {\n  const a = 1;\n  throw new TypeError('no <i>way</i>');\n};",
  );
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByText(/TypeError: no <i>way<\/i> \(line 3/).waitFor();
  const marked = page.locator('.cm-failed');
  assert.equal(await marked.innerText(), "  throw new TypeError('no <i>way</i>');");
  // Code that does not even parse, too; and a mended program loses the mark.
  await write(page, 'export default () => {\n  oh no\n};');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page
    .getByText(/SyntaxError/)
    .first()
    .waitFor();
  assert.equal((await marked.innerText()).trim(), 'oh no');
  await write(page, 'export default () => 42;');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByRole('region', { name: 'Result' }).getByText('42').waitFor();
  assert.equal(await marked.count(), 0);
  assert.deepEqual(problems, []);
  await context.close();
});

test('a program without end meets its limit, and the page stays quick', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page);
  await write(page, 'export default () => {\n  while (true) {}\n};');
  await page.getByRole('textbox', { name: /^Time limit, ms/ }).fill('1000');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByText('LimitError: time limit of 1000 ms exceeded').first().waitFor();
  // What it used is what it used, though it was stopped.
  const facts = await page.locator('.facts').innerText();
  assert.doesNotMatch(facts, /CPU time\s+0 ms|Peak memory\s+0 B/);
  assert.match(facts, /CPU time\s+[\d.]+ m?s[\s\S]*Peak memory\s+[\d.]+ [KM]iB/);

  // With more time: what is typed while it runs is there while it still runs.
  await page.getByRole('textbox', { name: /^Time limit, ms/ }).fill('20000');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  const running = page.locator('.outcome-state').getByText('running');
  await running.waitFor();
  await write(page, '// typed while it ran');
  await page.getByText('// typed while it ran').first().waitFor();
  assert.equal(await running.count(), 1, 'the page waited for the program');
  await page.getByRole('button', { name: 'Stop' }).click();
  assert.deepEqual(problems, []);
  await context.close();
});

test('stop stops it at the server', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page);
  await write(
    page,
    "export default async () => { for (;;) { console.log('tick');" +
      ' await new Promise((done) => setTimeout(done, 50)); } };',
  );
  await page.getByRole('textbox', { name: /^Time limit, ms/ }).fill('');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await lines(page).nth(2).waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await outcome(page).getByText('Stopped.', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Run', exact: true }).waitFor();
  const newest = async () =>
    (await (await fetch(`${cay.url}/v1/runs?kind=run&limit=1`)).json()).runs[0].status;
  await until('the server ended it', async () => (await newest()) !== 'running');
  assert.equal(await newest(), 'cancelled');
  assert.deepEqual(problems, []);
  await context.close();
});

test('fifty thousand lines do not hold up the page', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page);
  await write(page, 'export default () => { for (let i = 0; i < 50000; i++) console.log(i); };');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await until('it has ended', async () =>
    (await page.locator('.outcome-state .badge').innerText()).match(/done|failed/),
  );
  // Those that the server left out are counted, too; one may have been cut in two.
  const above = page.getByText(/lines above are not shown/);
  await until('all are told of', async () => {
    const count = Number((await above.innerText()).replaceAll(',', '').match(/^\d+/)[0]);
    const shown = await lines(page).count();
    return shown === 2000 && [50_000, 50_001].includes(count + shown);
  });
  assert.deepEqual(problems, []);
  await context.close();
});

test('what cannot be run is refused before, and by the server', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url, {
    expected: [/status of 400/],
  });
  await open(page);
  const run = page.getByRole('button', { name: 'Run', exact: true });
  await page.getByRole('textbox', { name: 'Env, as JSON' }).fill('{"a": }');
  await run.click();
  await page
    .getByRole('alert')
    .getByText(/The env is not JSON/)
    .waitFor();
  await page.getByRole('textbox', { name: 'Env, as JSON' }).fill('[]');
  await run.click();
  await page
    .getByRole('alert')
    .getByText(/must be a JSON object/)
    .waitFor();
  // What was wrong is said until it is changed.
  await page.getByRole('textbox', { name: 'Env, as JSON' }).fill('');
  assert.equal(await page.getByRole('alert').count(), 0);
  await page.getByRole('textbox', { name: /^Time limit, ms/ }).fill('999999999');
  await run.click();
  await page
    .getByRole('alert')
    .getByText(/wall_ms.*from 1 to/)
    .waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test('TypeScript runs, and a run can be loaded again', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page);
  const mark = `mark ${process.pid}`;
  await write(page, `const text: string = '${mark}';\nexport default (): string => text;\n`);
  await page.getByRole('combobox', { name: 'Language' }).selectOption('ts');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByRole('region', { name: 'Result' }).getByText(`"${mark}"`).waitFor();
  await write(page, 'export default () => 1;');
  await page
    .getByRole('button', { name: `Load const text: string = '${mark}';` })
    .first()
    .click();
  await until('the program is back', async () => (await editor(page).innerText()).includes(mark));
  await page.getByRole('region', { name: 'Result' }).getByText(`"${mark}"`).waitFor();

  // The command that does the same does the same, where one wants to see it.
  assert.equal(await page.getByRole('region', { name: 'The same with curl' }).count(), 0);
  await page.getByRole('button', { name: 'curl', exact: true }).click();
  const curl = await page.getByRole('region', { name: 'The same with curl' }).innerText();
  assert.match(curl, new RegExp(`curl -N ${cay.url}/v1/run`));
  const { execFile } = await import('node:child_process');
  const { promisify } = await import('node:util');
  const { stdout } = await promisify(execFile)('sh', ['-c', curl], { timeout: 20_000 });
  assert.match(stdout, new RegExp(`event: result\\ndata: .*"result":"${mark}"`));
  assert.deepEqual(problems, []);
  await context.close();
});

for (const [name, options] of Object.entries(viewports)) {
  test(`it fits and can be looked at: ${name}`, limit, async () => {
    const { context, page, problems } = await openPage(browser, cay.url, options);
    await open(page);
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await page.getByRole('region', { name: 'Result' }).waitFor();
    await page.locator('.tok-keyword').first().waitFor();
    await assertFits(page, 'result');
    await screenshot(page, `play-result-${name}`);
    await write(
      page,
      "export default async () => {\n  console.log('before');\n  console.warn('careful');\n" +
        "  throw new RangeError('too far');\n};",
    );
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await page.getByText(/RangeError: too far \(line 4/).waitFor();
    await assertFits(page, 'error');
    await screenshot(page, `play-error-${name}`);
    // The page of the run shows the same.
    const newest = page.locator('.recent-runs li').first(); // when the list has it
    await newest.filter({ hasText: 'failed' }).getByRole('link').click();
    await page.getByRole('region', { name: 'Program' }).locator('.code-mark').waitFor();
    await page.getByText(/RangeError: too far \(line 4/).waitFor();
    await assertFits(page, 'run');
    await screenshot(page, `run-error-${name}`);
    assert.deepEqual(problems, []);
    await context.close();
  });
}

test('no letter is lost, however fast they come', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page);
  await write(page, '//');
  // Letters between all that the page does by itself after each of them.
  const typed = await page.evaluate(async () => {
    const turn = () =>
      new Promise((done) => {
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = done;
        port2.postMessage(null);
      });
    let text = '';
    for (let i = 0; i < 400; i++) {
      const letter = String.fromCharCode(97 + (i % 26));
      document.execCommand('insertText', false, letter);
      text += letter;
      await turn();
    }
    return text;
  });
  await until('it is all there', async () => (await editor(page).innerText()) === `//${typed}`);
  assert.deepEqual(problems, []);
  await context.close();
});

test(
  'runs that begin alike are told apart, and what a field left empty means is said',
  limit,
  async () => {
    const { context, page, problems } = await openPage(browser, cay.url);
    await open(page);
    for (const word of ['one', 'two']) {
      await write(page, `export default async function (env) {\n  return 'number ${word}';\n}`);
      await page.getByRole('button', { name: 'Run', exact: true }).click();
      await page.getByRole('region', { name: 'Result' }).getByText(`number ${word}`).waitFor();
    }
    const runs = page.locator('.recent-runs');
    for (const word of ['one', 'two'])
      await runs.getByRole('link', { name: `return 'number ${word}'` }).waitFor();
    // A word in an empty field is gone with the first letter; a label stays.
    for (const name of [
      'Time limit, ms (none: the server’s)',
      'Memory limit, MiB (none: the server’s)',
    ])
      assert.equal(await page.getByRole('textbox', { name }).getAttribute('placeholder'), null);
    await page.goto(`${cay.url}/sandboxes`);
    await page.getByRole('button', { name: 'New sandbox' }).click();
    const dialog = page.getByRole('dialog', { name: 'New sandbox' });
    await dialog.getByRole('textbox', { name: 'Memory, MiB (none: the server’s)' }).waitFor();
    const hints = await dialog
      .locator('[placeholder]')
      .evaluateAll((all) => all.map((it) => it.placeholder));
    assert.deepEqual(hints, []);
    assert.deepEqual(problems, []);
    await context.close();
  },
);

const formOf = async (page) => [
  await page.getByRole('combobox', { name: 'Language' }).inputValue(),
  await page.getByRole('textbox', { name: 'Env, as JSON' }).inputValue(),
  await page.getByRole('textbox', { name: /^Time limit, ms/ }).inputValue(),
  await page.getByRole('textbox', { name: /^Memory limit, MiB/ }).inputValue(),
];

test('what was written stays over a reload, and what ran is loaded whole', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page);
  await write(page, 'const n: number = 6;\nexport default (env: any) => n * env.BY;');
  await page.getByRole('combobox', { name: 'Language' }).selectOption('ts');
  await page.getByRole('textbox', { name: 'Env, as JSON' }).fill('{"BY": 7}');
  await page.getByRole('textbox', { name: /^Time limit, ms/ }).fill('2345');
  await page.getByRole('textbox', { name: /^Memory limit, MiB/ }).fill('99');
  await page.reload();
  await editor(page).getByText('const n: number').waitFor();
  assert.deepEqual(await formOf(page), ['ts', '{"BY": 7}', '2345', '99']);
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByRole('region', { name: 'Result' }).getByText('42').waitFor();

  // Another tab has its own; a run brings back all that it was asked with.
  await page.getByRole('combobox', { name: 'Examples' }).selectOption({ label: 'No way out' });
  await editor(page).getByText('example.com').waitFor();
  assert.equal((await formOf(page))[0], 'js');
  await page
    .getByRole('button', { name: /^Load const n/ })
    .first()
    .click();
  await editor(page).getByText('const n: number').waitFor();
  const [language, env, wall, memory] = await formOf(page);
  assert.deepEqual([language, JSON.parse(env), wall, memory], ['ts', { BY: 7 }, '2345', '99']);
  assert.deepEqual(problems, []);
  await context.close();
});

test(
  'the newest lines are in sight, and stop shows at once in a flood of them',
  limit,
  async () => {
    const { context, page, problems } = await openPage(browser, cay.url);
    await open(page);
    await write(
      page,
      `export default async () => {
      for (let i = 0; ; i++) {
        console.log('\\u001b[32mline\\u001b[0m', i);
        if (i % 500 === 0) await new Promise((done) => setTimeout(done, 5));
      }
    };`,
    );
    await page.getByRole('textbox', { name: /^Time limit, ms/ }).fill('15000');
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await page.getByText(/lines above are not shown/).waitFor();
    const box = page.locator('.log-lines');
    const rest = () => box.evaluate((it) => it.scrollHeight - it.scrollTop - it.clientHeight);
    await until('it follows', async () => (await rest()) < 60);
    assert.ok((await box.locator('.ansi-green').count()) > 100, 'colours are kept');
    // Who scrolls up is left alone.
    await box.evaluate((it) => (it.scrollTop = 0));
    const began = Date.now();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.locator('.outcome-state').getByText('cancelled').waitFor();
    const took = Date.now() - began;
    assert.ok(took < 10_000, `it took ${took} ms`); // of 15 s that it would have gone on
    assert.ok((await rest()) > 1000, 'it stays where the reader is');
    assert.deepEqual(problems, []);
    await context.close();
  },
);

test('a program is shared by its address alone', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url, {
    permissions: ['clipboard-read', 'clipboard-write'],
  });
  await open(page);
  await write(page, "export default () => 'für dich'");
  await page.getByRole('button', { name: 'Copy a link' }).click();
  await page.getByRole('button', { name: 'Copied' }).waitFor();
  const link = await page.evaluate(() => navigator.clipboard.readText());
  const other = await openPage(browser, cay.url);
  await other.page.goto(link);
  await editor(other.page).getByText('für dich').waitFor();
  assert.deepEqual([...problems, ...other.problems], []);
  await other.context.close();
  await context.close();
});
