// More than one agent: they can be chosen, and the page shows the state of one it has never heard of.
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { openPage, screenshot, startBrowser, startServer } from './support.mjs';

const limit = { timeout: 90_000 };
const shipped = fileURLToPath(new URL('../../agents/sandbox-agent', import.meta.url));
const dir = mkdtempSync(join(tmpdir(), 'cay-agents-'));
let cay;
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
  cay = await startServer({ config: { agents_dir: dir } });
  browser = await startBrowser();
}, limit);

after(async () => {
  await browser?.close();
  await cay?.stop();
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
