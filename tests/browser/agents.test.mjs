// More than one agent, more than one model: they can be chosen, and the page shows the state of an agent it has
// never heard of. What the page does to a conversation, curl does too.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import {
  getJson,
  openPage,
  screenshot,
  startBrowser,
  startModel,
  startServer,
  tell,
  until,
} from './support.mjs';

const limit = { timeout: 90_000 };
const shipped = fileURLToPath(new URL('../../agents/sandbox-agent', import.meta.url));
const dir = mkdtempSync(join(tmpdir(), 'cay-agents-'));
const run = promisify(execFile);
let cay;
let model;
let browser;

before(async () => {
  cpSync(shipped, join(dir, 'sandbox-agent'), { recursive: true });
  mkdirSync(join(dir, 'note-keeper'));
  const write = (name, text) => writeFileSync(join(dir, 'note-keeper', name), text);
  write(
    'agent.json',
    JSON.stringify({
      title: 'Note keeper',
      description: 'Keeps notes.',
      facets: {
        store: { schema: 'notes.sql', methods: { all: 'SELECT * FROM notes ORDER BY id' } },
      },
      env: { db: { facet: 'store', methods: ['query', 'execute'] } },
      tools: [{ name: 'executeCode', kind: 'code', description: 'Runs code.', input: 'A module.' }],
      state: { openNotes: { facet: 'store', method: 'all' }, executions: { executions: 5 } },
      try: ['What are my notes?'],
    }),
  );
  write('prompt.md', 'You keep notes.\n');
  write(
    'notes.sql',
    'CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL, due TEXT);\n' +
      "INSERT INTO notes (text) VALUES ('water the palm'), ('count the crabs');\n",
  );
  model = await startModel();
  cay = await startServer({ config: { agents_dir: dir }, env: model.env });
  browser = await startBrowser();
}, limit);

after(async () => {
  await browser?.close();
  await cay?.stop();
  await model?.stop();
  rmSync(dir, { recursive: true, force: true });
}, limit);

test('an agent is chosen, and its own state is shown', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/chat`);
  const chooser = page.getByRole('combobox', { name: 'Agent' });
  await chooser.waitFor();
  assert.deepEqual((await chooser.locator('option').allInnerTexts()).sort(), [
    'Note keeper',
    'Sandbox agent',
  ]);
  await chooser.selectOption('Note keeper');
  await page.getByRole('heading', { name: 'Note keeper' }).waitFor();
  assert.equal(new URL(page.url()).pathname, '/chat/note-keeper');
  await page.getByRole('button', { name: 'What are my notes?' }).waitFor();
  await page.getByRole('tab', { name: 'Open Notes 2' }).click();
  const table = page.getByRole('table', { name: 'Open Notes' });
  assert.deepEqual(await table.locator('thead th').allInnerTexts(), ['id', 'text', 'due']);
  assert.match(await table.innerText(), /water the palm[\s\S]*count the crabs/);
  assert.equal(await page.getByRole('tab', { name: /Customers/ }).count(), 0);
  await screenshot(page, 'chat-other-agent');
  await chooser.selectOption('Sandbox agent');
  await page.getByRole('tab', { name: 'Customers 8' }).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

const box = (page) => page.getByRole('textbox', { name: 'Message', exact: true });
const answered = (page) =>
  page.getByRole('button', { name: 'Answer again', exact: true }).waitFor();
const messagesOf = async (name) =>
  (await getJson(`${cay.url}/v1/agents/sandbox-agent/${name}/messages`)).messages;

async function say(page, text) {
  await tell(page, text);
  await page.locator('.message[data-role=user]').getByText(text, { exact: true }).last().waitFor();
  await answered(page);
}

test('a model is chosen, answers, and is remembered by the conversation', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/chat/sandbox-agent/first`);
  const picker = page.getByRole('combobox', { name: 'Model' });
  await picker.waitFor();
  assert.match(await picker.locator('option:checked').innerText(), /^gpt-\S+, default$/);
  await say(page, 'say hello');
  await picker.selectOption({ label: 'gpt-5.4-mini ($0.25 / $2)' });
  await say(page, 'say again');
  await page.locator('.message-account').getByText('gpt-5.4-mini').waitFor();
  // The next answer to the same words is the chosen model's too.
  await picker.selectOption('demo');
  await page.getByText('a script answers, not an AI').waitFor();
  await page.getByRole('button', { name: 'Answer again' }).click();
  await page.locator('.message-account').getByText(/^demo/).waitFor();
  const models = (await messagesOf('first')).map(({ metadata }) => metadata?.model);
  assert.deepEqual(models.filter(Boolean), ['gpt-5.5', 'demo']);

  await page.reload();
  await page.getByText('a script answers, not an AI').waitFor();
  assert.equal(await picker.inputValue(), 'demo');
  await page.goto(`${cay.url}/chat/sandbox-agent/second`);
  await picker.waitFor();
  assert.equal(await picker.inputValue(), '', 'another conversation has its own');
  // It goes with the conversation's name, and with the conversation.
  await page.goto(`${cay.url}/chat/sandbox-agent/first`);
  await page.getByRole('button', { name: 'Rename' }).click();
  await page.getByRole('textbox', { name: 'New name of first' }).fill('renamed');
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/renamed$/);
  await until('it has its model', async () => (await picker.inputValue()) === 'demo');
  const remove = page.getByRole('button', { name: /^Delete/ });
  await remove.click();
  await remove.click();
  await page.waitForURL((url) => !url.pathname.endsWith('/renamed'));
  const left = await page.evaluate(() => Object.keys(localStorage).join());
  assert.doesNotMatch(left, /renamed|first/);

  // One that the server does not offer any more is not asked for.
  await page.evaluate(() => {
    localStorage.setItem('cay.kept.model sandbox-agent gone', 'gone-model');
  });
  await page.goto(`${cay.url}/chat/sandbox-agent/gone`);
  await picker.waitFor();
  await say(page, 'say it works');
  assert.equal((await messagesOf('gone')).at(-1).metadata.model, 'gpt-5.5');
  assert.deepEqual(problems, []);
  await context.close();
});

test('the curl beside each action of a conversation does what the action does', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/chat/sandbox-agent/curled`);
  await page.getByRole('combobox', { name: 'Model' }).selectOption('gpt-5.4-mini');
  await page.getByRole('button', { name: 'curl', exact: true }).click();
  /** Shows the line behind an action, within the window, and runs it in a shell. */
  const perform = async (of, change = (text) => text) => {
    await page.getByRole('button', { name: `curl: ${of}`, exact: true }).click();
    const shown = page.getByRole('region', { name: `The same with curl: ${of}` });
    const at = await shown.boundingBox();
    const size = page.viewportSize();
    assert.ok(at.x >= 0 && at.y >= 0, of);
    assert.ok(at.x + at.width <= size.width && at.y + at.height <= size.height, of);
    const { stdout } = await run('bash', ['-c', change(await shown.innerText())]);
    await page.keyboard.press('Escape');
    return stdout;
  };
  await box(page).fill("say it's `here` $HOME");
  assert.match(await perform('send'), /"delta":"it's `here` \$HOME"/);
  await answered(page);
  assert.equal((await messagesOf('curled')).at(-1).metadata.model, 'gpt-5.4-mini');
  const before = (await messagesOf('curled')).at(-1).id;
  await perform('answer again');
  await until('there is another answer', async () => {
    const all = await messagesOf('curled');
    return all.length === 2 && all[1].id !== before;
  });
  await answered(page);
  assert.equal(JSON.parse(await perform('read the messages')).messages.length, 2);
  assert.match(await perform('agents and conversations'), /"curled"/);
  await perform('rename', (text) => text.replace('NAME', 'curled-2'));
  await page.goto(`${cay.url}/chat/sandbox-agent/curled-2`);
  await answered(page);
  await perform('reset its data');
  await perform('clear');
  await until('it is empty', async () => (await messagesOf('curled-2')).length === 0);
  await page.getByRole('heading', { name: 'Sandbox agent' }).waitFor();
  await perform('delete the conversation');
  const { agents } = await getJson(`${cay.url}/v1/agents`);
  assert.ok(!agents.some(({ names }) => names.includes('curled-2')));

  // A turn that runs is stopped by its id.
  await page.goto(`${cay.url}/chat/sandbox-agent/stopped`);
  await tell(
    page,
    'export default async () => { await new Promise(() => setTimeout(() => {}, 60_000)); }',
  );
  await page.getByRole('region', { name: 'executeCode: running' }).waitFor();
  await perform('stop');
  await page.locator('.message-note').getByText('Stopped.').waitFor();

  // On a phone, with every call shown, nothing is cut; and what was said since the page was loaded is there.
  await page.setViewportSize({ width: 390, height: 844 });
  await page.locator('.message[data-role=user]').getByText('60_000').waitFor();
  await page.getByRole('button', { name: 'curl: clear' }).waitFor();
  const [picker, first] = await Promise.all([
    page.getByRole('combobox', { name: 'Model' }).boundingBox(),
    page.getByRole('button', { name: 'curl: read the messages' }).boundingBox(),
  ]);
  const isApart = picker.x + picker.width <= first.x || picker.y + picker.height <= first.y;
  assert.ok(isApart, 'the picker and what is beside it keep apart');
  const cut = await page.locator('main :is(button, select):visible').evaluateAll((all) =>
    all
      .filter((it) => it.getAttribute('role') !== 'tab')
      .filter((it) => it.getBoundingClientRect().right > globalThis.innerWidth)
      .map((it) => it.textContent),
  );
  assert.deepEqual(cut, []);
  await screenshot(page, 'chat-curl-390');
  assert.deepEqual(problems, []);
  await context.close();
});
