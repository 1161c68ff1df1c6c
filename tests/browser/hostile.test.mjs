// A model, a program and a database that mean harm: what they say is shown, and never happens.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  openPage,
  screenshot,
  startBrowser,
  startModel,
  startServer,
  tell,
  until,
} from './support.mjs';

const limit = { timeout: 90_000 };
let model;
let cay;
let browser;

before(async () => {
  model = await startModel();
  cay = await startServer({ env: model.env });
  browser = await startBrowser();
}, limit);

after(async () => {
  await browser?.close();
  await cay?.stop();
  await model?.stop();
}, limit);

const newPath = (() => {
  let count = 0;
  return () => `/chat/sandbox-agent/hostile-${process.pid}-${++count}`;
})();

const box = (page) => page.getByRole('textbox', { name: 'Message', exact: true });
const answers = (page) => page.locator('.message[data-role=assistant]');

async function open(page, path) {
  await page.goto(cay.url + path);
  await page.getByPlaceholder('Ask the agent').waitFor();
}

async function ask(page, text, answer = 1) {
  await tell(page, text);
  await until('it is answered', async () => (await answers(page).count()) === answer);
  await page.getByRole('button', { name: 'Answer again' }).waitFor();
}

/** Whatever would run something sets this. */
const harm = 'globalThis.harmed=1';
const html = [
  `<img src=x onerror="${harm}">`,
  `<script>${harm}</script>`,
  `<svg onload="${harm}"><a href="javascript:${harm}">x</a></svg>`,
  `<iframe srcdoc="<script>parent.harmed=1</script>"></iframe>`,
  `<style>body{display:none}</style>`,
  `<form action="//evil.invalid"><button>send</button></form>`,
].join('\n');

/** Nothing ran, nothing was fetched, and no element of theirs is on the page. */
async function assertHarmless(page, problems, what) {
  const found = await page.evaluate(() => {
    const main = document.querySelector('main');
    return {
      harmed: globalThis.harmed ?? null,
      shown: getComputedStyle(document.body).display !== 'none',
      elements: [
        ...main.querySelectorAll('img, script, iframe, style, object, embed, base, link'),
      ].map((it) => it.outerHTML),
      forms: [...main.querySelectorAll('form')].filter((it) => it.hasAttribute('action')).length,
      handlers: [...main.querySelectorAll('*')]
        .flatMap((it) => it.getAttributeNames())
        .filter((name) => /^on|^srcdoc$/.test(name)),
      links: [...main.querySelectorAll('a[href]')]
        .filter((it) => !/^(https?|mailto):/.test(it.href))
        .map((it) => it.outerHTML),
      unguarded: [...main.querySelectorAll('a[href]')]
        .filter((it) => new URL(it.href).origin !== location.origin)
        .filter(
          (it) => it.target !== '_blank' || !/noopener/.test(it.rel) || !/noreferrer/.test(it.rel),
        )
        .map((it) => it.outerHTML),
    };
  });
  assert.deepEqual(
    found,
    { harmed: null, shown: true, elements: [], forms: 0, handlers: [], links: [], unguarded: [] },
    what,
  );
  assert.deepEqual(problems, [], what);
}

test('HTML, links and images in the model’s text', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  let popups = 0;
  context.on('page', () => popups++);
  await open(page, newPath());
  await ask(
    page,
    `say ${html}\n\n` +
      `[run](javascript:${harm}) [data](data:text/html,<script>${harm}</script>) ` +
      `[vb](vbscript:x) [tab](java&#9;script:${harm}) [rel](/v1/session) [proto](//evil.invalid/x) ` +
      `[out](https://example.invalid/page) <javascript:${harm}> [mail](mailto:a@example.invalid)\n\n` +
      `![alt text](http://127.0.0.1:9/pixel.png) ![js](javascript:${harm})\n\n` +
      `| a | b |\n|---|---|\n| <img src=x onerror="${harm}"> | \`<b>\` |\n\n` +
      `- [ ] open\n- [x] closed\n\n\u0645\u0631\u062d\u0628\u0627\n\n` +
      `# Not the page’s heading\n\n\`\`\`js\nalert('<img src=x onerror=1>')\n\`\`\`\n` +
      `\u202Eesrever\u202C`,
  );
  const answer = answers(page).last();
  const text = await answer.innerText();
  assert.ok(text.includes(`<img src=x onerror="${harm}">`), 'it is shown as text');
  assert.ok(text.includes('[image: alt text]'));
  assert.doesNotMatch(text, /[\u202a-\u202e]/);
  // All but the page's own, to the run.
  const links = answer.locator('a:not(.message-account a)');
  assert.deepEqual(
    await links.evaluateAll((all) => all.map((it) => it.getAttribute('href')).sort()),
    ['http://127.0.0.1:9/pixel.png', 'https://example.invalid/page', 'mailto:a@example.invalid'],
  );
  assert.equal(await page.getByRole('heading', { level: 1 }).count(), 1);
  // Whoever hears the page is told what each box is.
  assert.equal(await answer.getByRole('checkbox', { name: 'to do', checked: false }).count(), 1);
  assert.equal(await answer.getByRole('checkbox', { name: 'done', checked: true }).count(), 1);
  // What is written from right to left is shown so, said and answered.
  const arabic = answer.getByText('\u0645\u0631\u062d\u0628\u0627', { exact: true });
  assert.equal(await arabic.evaluate((it) => getComputedStyle(it).direction), 'rtl');
  assert.equal(await page.locator('.said').first().getAttribute('dir'), 'auto');
  // What is no link does nothing.
  for (const name of ['run', 'data', 'tab', 'rel', 'proto'])
    await answer.getByText(name, { exact: true }).first().click();
  assert.equal(new URL(page.url()).origin, cay.url);
  assert.equal(popups, 0);
  await assertHarmless(page, problems, 'text');
  await screenshot(page, 'chat-hostile');

  // What the person wrote is only text, too, here and after a reload.
  await page.reload();
  await answers(page).first().waitFor();
  await assertHarmless(page, problems, 'after a reload');
  await context.close();
});

test('HTML and escapes in code, output, errors and rows', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page, newPath());
  const code = `// ${html.replaceAll('\n', ' ')}
export default async function (env) {
  const html = ${JSON.stringify(html)};
  for (const text of [html, '[x](javascript:${harm})', '=1+1', '\\u001b[31mred\\u001b[0m'])
    await env.db.execute(
      'INSERT INTO customers (name, email, tier, region) VALUES (?, ?, ?, ?)', text, text, text, text);
  console.log(html);
  console.log('\\u001b]8;;javascript:${harm}\\u0007click\\u001b]8;;\\u0007 \\u001b[31mred\\u001b[0m\\u0000');
  throw new Error(html);
}`;
  await ask(page, code);
  await page.getByRole('region', { name: 'executeCode: failed' }).waitFor();
  const call = page.getByRole('region', { name: /^executeCode/ });
  const output = await call.getByRole('region', { name: 'Output' }).innerText();
  assert.ok(output.includes(`<script>${harm}</script>`));
  assert.ok(output.includes('click red'), output);
  assert.doesNotMatch(output, /[\x00-\x08\x0b-\x1f]/);
  await until('it is coloured', async () => (await call.locator('.tok-comment').count()) > 0);
  await assertHarmless(page, problems, 'the call');

  const panel = page.getByRole('tabpanel');
  await page.getByRole('tab', { name: 'Customers 12' }).click();
  await panel.getByText('[x](javascript:').first().waitFor();
  assert.ok((await panel.innerText()).includes(`<img src=x onerror="${harm}">`));
  await panel.getByText('red', { exact: true }).first().waitFor();
  await assertHarmless(page, problems, 'the rows');
  await screenshot(page, 'customers-hostile');
  await page.getByRole('tab', { name: /Executions/ }).click();
  await panel.getByText(`<script>${harm}</script>`).first().waitFor();
  await assertHarmless(page, problems, 'the executions');

  // The record of the run shows the same.
  const { runs } = await (await fetch(`${cay.url}/v1/runs?kind=execution&limit=1`)).json();
  await page.goto(`${cay.url}/runs/${runs[0].id}`);
  await page.locator('pre', { hasText: '// <img src=x' }).waitFor();
  await assertHarmless(page, problems, 'the run');
  await context.close();
});

test('a state that a stranger set', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  const path = newPath();
  await open(page, path);
  // Any client may set the state; the page has to take it as it comes.
  const state = {
    customers: [{ [html]: html, id: { deep: [1] } }, 'no row', null, [1, 2], 7],
    executions: [null, { code: 7, output: html, error: html, timestamp: 'never' }, 'x'],
    'to-do <b>': ['plain', html],
    errors: { customers: html, gone: 12 },
    __proto__: null,
  };
  await page.evaluate(
    ([where, text]) =>
      new Promise((resolve, reject) => {
        const socket = new WebSocket(where);
        socket.onopen = () => {
          socket.send(text);
          socket.send(
            JSON.stringify({ type: 'rpc', id: '1', method: 'getAllCustomers', args: [] }),
          );
        };
        socket.onmessage = ({ data }) => JSON.parse(data).type === 'rpc' && resolve(socket.close());
        socket.onerror = reject;
      }),
    [
      `${cay.url.replace('http', 'ws')}/agents/${path.split('/').slice(2).join('/')}?_pk=other`,
      JSON.stringify({ type: 'cf_agent_state', state }),
    ],
  );
  for (const name of ['Customers (error)', 'To do <b> 2', 'Gone (error)', 'Executions 3']) {
    await page.getByRole('tab', { name }).click();
    await assertHarmless(page, problems, name);
  }
  await context.close();
});

test('a turn that fails says why and can be tried again', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page, newPath());
  await page.getByText(/It can be wrong\.$/).waitFor();
  await tell(page, 'fail');
  const alert = page.getByRole('alert');
  await alert.getByText('The agent could not finish this turn').waitFor();
  await screenshot(page, 'chat-failed');
  await alert.getByText('told to fail <b>so</b>').waitFor();
  await alert.getByRole('button', { name: 'Try again' }).click();
  await alert.getByText('told to fail <b>so</b>').waitFor();
  // It is in the history, with why, and can still be tried again.
  await page.reload();
  await alert.getByText('told to fail <b>so</b>').waitFor();
  await alert.getByRole('button', { name: 'Try again' }).click();
  await alert.getByText('told to fail <b>so</b>').waitFor();
  assert.equal(await page.locator('.message[data-role=user]').count(), 1);
  // Something else works again.
  await ask(page, 'say all is **well**', 2);
  await page.getByText('This turn failed: ').waitFor();
  assert.match(await answers(page).last().innerText(), /all is well/);
  assert.equal(await alert.count(), 0);
  await assertHarmless(page, problems, 'after the failure');
  await context.close();
});

test('a turn that has had its steps says so', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page, newPath());
  await tell(page, '// again\nexport default () => 1');
  await page.getByText(/It stopped here: the turn has had its \d+ steps/).waitFor();
  await page.reload();
  await page.getByText(/It stopped here: the turn has had its \d+ steps/).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test('a message is edited and sent again, and what followed makes way', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page, newPath());
  await ask(page, 'say one');
  await ask(page, 'say two', 2);
  await page.getByRole('button', { name: 'Edit' }).first().click();
  assert.equal(await box(page).inputValue(), 'say one');
  await tell(page, 'say three');
  await until('it is answered', async () => /three/.test(await answers(page).last().innerText()));
  await page.getByRole('button', { name: 'Answer again' }).waitFor();
  assert.equal(await answers(page).count(), 1);
  await page.reload();
  await answers(page).first().waitFor();
  assert.equal(await answers(page).count(), 1);
  assert.match(await answers(page).innerText(), /three/);
  assert.deepEqual(problems, []);
  await context.close();
});
