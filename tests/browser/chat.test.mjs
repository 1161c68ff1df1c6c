// The chat on the demo model: what a person is told to try, live beside it, in two tabs, after a
// reload, stopped, by keyboard, on a phone.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  assertFits,
  openPage,
  screenshot,
  startBrowser,
  startRelay,
  startServer,
  tell,
  until,
  viewports,
} from './support.mjs';

const limit = { timeout: 90_000 };
let cay;
let browser;

before(async () => {
  // A program that never ends should not hold up the tests.
  cay = await startServer({ config: { limits: { run_wall_ms: 4000 } } });
  browser = await startBrowser();
}, limit);

after(async () => {
  await browser?.close();
  await cay?.stop();
}, limit);

let count = 0;
/** A conversation nobody else has. */
const newPath = () => `/chat/sandbox-agent/test-${process.pid}-${++count}`;

const box = (page) => page.getByRole('textbox', { name: 'Message', exact: true });
const tab = (page, name) => page.getByRole('tab', { name });
const panel = (page, name) => page.getByRole('tabpanel', { name });
const answers = (page) => page.locator('.message[data-role=assistant]');
const customers = (page) =>
  panel(page, /Customers/)
    .locator('tbody tr')
    .allInnerTexts();

async function open(page, url) {
  await page.goto(url);
  await box(page).waitFor();
  await page.getByPlaceholder('Ask the agent').waitFor();
}

/** Nothing runs any more, and there is an answer. */
const settled = (page) => page.getByRole('button', { name: 'Answer again' }).waitFor();

async function ask(page, text) {
  await tell(page, text);
}

test('the five steps to try, with nothing loaded anew', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page, cay.url + newPath());
  await page.evaluate(() => (globalThis.sameDocument = true));
  await page.getByText('a script answers, not an AI').waitFor();
  await tab(page, 'Executions 0').waitFor();

  // 1: the tool call is shown with its code, then its output, then what the model makes of it.
  await page.getByRole('button', { name: 'Count customers by tier' }).click();
  const call = page.getByRole('region', { name: /^executeCode/ });
  await call.getByRole('region', { name: 'Code' }).getByText('GROUP BY tier').waitFor();
  await page.getByRole('region', { name: 'executeCode: done' }).waitFor();
  await call.getByRole('region', { name: 'Output' }).getByText('Gold: 3').waitFor();
  await settled(page);
  assert.match(await answers(page).last().innerText(), /Gold: 3\s+Silver: 3\s+Bronze: 2/);
  await until('the code is coloured', async () => (await call.locator('.tok-keyword').count()) > 3);

  // 2
  await page
    .getByRole('button', { name: "Find customers with emails containing 'example'" })
    .click();
  await until('there is a second answer', async () => (await answers(page).count()) === 2);
  await settled(page);
  assert.match(await answers(page).last().innerText(), /8 found/);

  // 3: the database changes, and with it the other tab.
  await tab(page, 'Customers 8').click();
  assert.equal((await customers(page)).length, 8);
  await page.getByRole('button', { name: 'Add a new customer named Zara' }).click();
  await tab(page, 'Customers 9').waitFor();
  await until('Zara is in the table', async () =>
    (await customers(page)).some((row) => /Zara\s+zara@example\.com\s+Bronze\s+West/.test(row)),
  );
  await settled(page);

  // 4: newest first, with code, output and time.
  await tab(page, 'Executions 3').click();
  const executions = panel(page, /Executions/).locator('li');
  assert.equal(await executions.count(), 3);
  assert.match(
    await executions.nth(0).innerText(),
    /done[\s\S]*INSERT INTO customers[\s\S]*Added #9: Zara/,
  );
  assert.match(await executions.nth(2).innerText(), /GROUP BY tier[\s\S]*Gold: 3/);
  await executions.nth(0).locator('time[datetime]').waitFor();

  // 5
  await tab(page, 'Customers 9').click();
  assert.equal((await customers(page)).length, 9);
  assert.equal(await page.evaluate(() => globalThis.sameDocument), true);
  assert.deepEqual(problems, []);
  await context.close();
});

test('a second tab sees the same, live and both ways; a reload keeps it', limit, async () => {
  const url = cay.url + newPath();
  const one = await openPage(browser, cay.url);
  const two = await openPage(browser, cay.url);
  await open(one.page, url);
  await open(two.page, url);

  await ask(one.page, 'Count customers by tier');
  await two.page.locator('.message[data-role=user]').getByText('Count customers by tier').waitFor();
  await settled(one.page);
  await settled(two.page);
  assert.match(await answers(two.page).last().innerText(), /Gold: 3/);
  await tab(two.page, 'Executions 1').waitFor();

  await ask(two.page, 'Add a new customer named Yara');
  await tab(one.page, 'Customers 9').waitFor();
  await until(
    'the first tab has both answers',
    async () => (await answers(one.page).count()) === 2,
  );
  await settled(one.page);
  await settled(two.page);
  const shown = await one.page.locator('.messages').innerText();
  assert.equal(await two.page.locator('.messages').innerText(), shown);

  await one.page.reload();
  await settled(one.page);
  assert.equal(await one.page.locator('.messages').innerText(), shown);
  await tab(one.page, 'Executions 2').waitFor();
  await tab(one.page, 'Customers 9').waitFor();

  // Cleared here, cleared there, and the data stays.
  await one.page.getByRole('button', { name: 'Clear', exact: true }).click();
  await one.page.getByRole('button', { name: 'Yes, clear' }).click();
  await until('the other tab is empty', async () => (await answers(two.page).count()) === 0);
  await one.page.reload();
  await tab(one.page, 'Customers 9').waitFor();
  assert.equal(await answers(one.page).count(), 0);
  assert.deepEqual([...one.problems, ...two.problems], []);
  await one.context.close();
  await two.context.close();
});

test('a stream is seen growing, and stop ends it for good', limit, async () => {
  const url = cay.url + newPath();
  const { context, page, problems } = await openPage(browser, cay.url);
  const other = await openPage(browser, cay.url);
  await open(page, url);
  await open(other.page, url);
  await ask(page, 'Talk for a while');
  await page.getByText(/sentence number 3 of/).waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByText('Stopped.').waitFor();
  await page.getByRole('button', { name: 'Send' }).waitFor();
  assert.ok(await box(page).evaluate((it) => it === document.activeElement), 'the focus is back');
  const text = await answers(page).last().innerText();
  assert.doesNotMatch(text, /number 200 of/);
  await until('the other tab knows', async () =>
    /Stopped\./.test(await answers(other.page).last().innerText()),
  );

  // It goes on as usual, and what was said so far is kept.
  await ask(page, 'Count customers by tier');
  await until('it answers again', async () => (await answers(page).count()) === 2);
  await settled(page);
  await page.reload();
  await settled(page);
  assert.match(await answers(page).first().innerText(), /sentence number 3 of[\s\S]*Stopped\./);
  assert.deepEqual([...problems, ...other.problems], []);
  await context.close();
  await other.context.close();
});

test('a tab can stop what another began', limit, async () => {
  const url = cay.url + newPath();
  const { context, page, problems } = await openPage(browser, cay.url);
  const other = await openPage(browser, cay.url);
  await open(page, url);
  await open(other.page, url);
  await ask(page, 'Talk for a while');
  await until('there is something to see', async () => (await answers(other.page).count()) === 1);
  await until('the other tab sees it', async () =>
    /sentence number 2 of/.test(await answers(other.page).last().innerText()),
  );
  await other.page.getByRole('button', { name: 'Stop' }).click();
  await until('both have stopped', async () =>
    (
      await Promise.all(
        [page, other.page].map((it) => it.getByRole('button', { name: 'Send' }).count()),
      )
    ).every(Boolean),
  );
  assert.doesNotMatch(await answers(page).last().innerText(), /number 200 of/);
  assert.deepEqual([...problems, ...other.problems], []);
  await context.close();
  await other.context.close();
});

test('who scrolls up to read is left alone', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page, cay.url + newPath());
  await ask(page, 'Talk for a while');
  const scroll = page.locator('.scroll-box');
  const rest = () => scroll.evaluate((it) => it.scrollHeight - it.scrollTop - it.clientHeight);
  await until('there is something to scroll', () =>
    scroll.evaluate((it) => it.scrollHeight > it.clientHeight + 300),
  );
  assert.ok((await rest()) < 100, 'it follows');
  await scroll.hover();
  await page.mouse.wheel(0, -200);
  const newest = page.getByRole('button', { name: 'To the newest' });
  await newest.waitFor();
  const at = await scroll.evaluate((it) => it.scrollTop);
  const before = await rest();
  await until('more is said', async () => (await rest()) > before + 40);
  assert.equal(await scroll.evaluate((it) => it.scrollTop), at, 'it stays');
  await newest.click();
  await until('it follows again', async () => (await rest()) < 60);
  await page.getByRole('button', { name: 'Stop' }).click();
  assert.deepEqual(problems, []);
  await context.close();
});

test('a page loaded in the middle of a stream joins it', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page, cay.url + newPath());
  await ask(page, 'Talk for a while');
  await page.getByText(/sentence number 5 of/).waitFor();
  await page.reload();
  await page.getByText(/sentence number 5 of/).waitFor();
  await page.getByRole('button', { name: 'Stop' }).waitFor();
  const at = async () => (await answers(page).last().innerText()).match(/number \d+/g).length;
  const before = await at();
  await until('it goes on growing', async () => (await at()) > before);
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByRole('button', { name: 'Send' }).waitFor();
  assert.equal(await answers(page).count(), 1);
  assert.deepEqual(problems, []);
  await context.close();
});

test('a program that never ends meets its limit; the page stays quick', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page, cay.url + newPath());
  await ask(page, 'Run forever');
  await page.getByRole('region', { name: 'executeCode: running' }).waitFor();
  // A click takes effect while it runs.
  await tab(page, /Customers/).click();
  await panel(page, /Customers/)
    .getByText('Alice Chen')
    .waitFor();
  await tab(page, /Executions/).click();
  assert.equal(
    await page.getByRole('region', { name: 'executeCode: running' }).count(),
    1,
    'the page waited for the program',
  );
  await page.getByRole('region', { name: 'executeCode: failed' }).waitFor();
  const call = page.getByRole('region', { name: /^executeCode/ });
  await call
    .getByRole('region', { name: 'Error' })
    .getByText('time limit of 4000 ms exceeded')
    .waitFor();
  await settled(page);
  const execution = panel(page, /Executions/)
    .locator('li')
    .first();
  assert.match(
    await execution.innerText(),
    /failed[\s\S]*while \(true\)[\s\S]*about to loop[\s\S]*time limit/,
  );
  assert.deepEqual(problems, []);
  await context.close();
});

test('a table that is gone is said to be gone, and nothing else breaks', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page, cay.url + newPath());
  await tab(page, 'Customers 8').waitFor();
  await ask(page, 'Drop the customers table');
  await tab(page, 'Customers (error)').click();
  await panel(page, /Customers/)
    .getByRole('alert')
    .getByText('no such table')
    .waitFor();
  await settled(page);
  await page.reload();
  await tab(page, 'Customers (error)').waitFor();
  await ask(page, 'Count customers by tier');
  await page.getByRole('region', { name: 'executeCode: failed' }).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test('answer again replaces the answer', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page, cay.url + newPath());
  await ask(page, 'Add a new customer named Uma');
  await tab(page, 'Customers 9').waitFor();
  await settled(page);
  await page.getByRole('button', { name: 'Answer again' }).click();
  await tab(page, 'Customers 10').waitFor();
  await settled(page);
  assert.equal(await answers(page).count(), 1);
  assert.match(await answers(page).last().innerText(), /Added #10/);
  await page.reload();
  await settled(page);
  assert.equal(await answers(page).count(), 1);
  assert.deepEqual(problems, []);
  await context.close();
});

test('conversations have names, and keep apart', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page, `${cay.url}/chat`);
  const chooser = page.getByRole('combobox', { name: 'Conversation' });
  assert.equal(await chooser.inputValue(), 'default');
  await page.getByRole('button', { name: 'New', exact: true }).click();
  const field = page.getByRole('textbox', { name: 'Name of the new conversation' });
  assert.match(await field.inputValue(), /^chat-\d+$/);
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'New', exact: true }).click();
  await field.fill(`über den/Tisch? ${process.pid}`);
  await page.keyboard.press('Enter');
  const name = `über-den-Tisch-${process.pid}`;
  await until('it is open', async () => (await chooser.inputValue()) === name);
  assert.equal(new URL(page.url()).pathname, `/chat/sandbox-agent/${encodeURIComponent(name)}`);
  await page.getByPlaceholder('Ask the agent').waitFor();
  await until('the focus is in the field', () =>
    box(page).evaluate((it) => it === document.activeElement),
  );
  await page.keyboard.type('Add a new customer named Xenia');
  await page.keyboard.press('Enter');
  await tab(page, 'Customers 9').waitFor();
  await settled(page);
  // The list knows it now, and another conversation knows nothing of it.
  await page.reload();
  await settled(page);
  await chooser.selectOption('default');
  await tab(page, 'Customers 8').waitFor();
  assert.equal(await answers(page).count(), 0);
  await chooser.selectOption(name);
  await tab(page, 'Customers 9').waitFor();
  await page.getByText('Add a new customer named Xenia').first().waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test('an agent that does not exist is said not to', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await page.goto(`${cay.url}/chat/nobody/default`);
  await page.getByText('There is no such agent').waitFor();
  await page.getByRole('link', { name: 'Sandbox agent' }).click();
  await box(page).waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test('the keyboard alone will do', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page, cay.url + newPath());
  // The field has the focus from the start.
  await until('the field has the focus', () =>
    box(page).evaluate((it) => it === document.activeElement),
  );
  await page.keyboard.press('Enter');
  await page.keyboard.type('Count customers');
  await page.keyboard.press('Shift+Enter');
  await page.keyboard.type('by tier');
  assert.equal(await box(page).inputValue(), 'Count customers\nby tier');
  await page.keyboard.press('Enter');
  assert.equal(await box(page).inputValue(), '');
  await settled(page);
  assert.equal(await page.locator('.message[data-role=user]').count(), 1);
  // It is read out when it is whole.
  await page
    .getByRole('status')
    .getByText(/^The agent says: .*printed this/)
    .waitFor();
  assert.ok(await box(page).evaluate((it) => it === document.activeElement), 'still there');

  const press = async (key, goal) => {
    for (let i = 0; i < 40; i++) {
      await page.keyboard.press(key);
      if (await goal.evaluate((it) => it === document.activeElement)) return;
    }
    assert.fail('not reached');
  };
  await press('Tab', tab(page, /Customers/));
  await page.keyboard.press('ArrowLeft');
  assert.equal(await tab(page, /Executions/).getAttribute('aria-selected'), 'true');
  await page.keyboard.press('ArrowRight');
  assert.equal(await tab(page, /Customers/).getAttribute('aria-selected'), 'true');
  assert.ok(await panel(page, /Customers/).isVisible());
  assert.equal(await page.getByRole('tabpanel', { name: /Executions/ }).count(), 0);
  await page.keyboard.press('Home');
  assert.equal(await tab(page, /Executions/).getAttribute('aria-selected'), 'true');
  await press('Shift+Tab', page.getByRole('button', { name: 'Clear', exact: true }));
  await page.keyboard.press('Enter');
  await page.keyboard.press('Enter');
  await until('it is cleared', async () => (await answers(page).count()) === 0);
  await until('the field has the focus again', () =>
    box(page).evaluate((it) => it === document.activeElement),
  );

  // Stop, too: the button after the field.
  await page.keyboard.type('Talk for a while');
  await page.keyboard.press('Enter');
  await page.getByText(/sentence number 2 of/).waitFor();
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.getByText('Stopped.').waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test('what is said before the line is there is sent when it is', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  let open = () => {};
  const held = new Promise((done) => (open = done));
  await page.routeWebSocket(/\/agents\//, async (socket) => {
    await held;
    socket.connectToServer();
  });
  await page.goto(cay.url + newPath());
  await ask(page, 'Count customers by tier');
  await page.getByText('Next: Count customers by tier').waitFor();
  assert.equal(await answers(page).count(), 0);
  open();
  await settled(page);
  assert.match(await answers(page).last().innerText(), /Gold: 3/);
  assert.equal(await page.locator('.message[data-role=user]').count(), 1);
  assert.deepEqual(problems, []);
  await context.close();
});

test('a lost line is said to be lost, and found again', limit, async () => {
  const relay = await startRelay(cay.url);
  const { context, page, problems } = await openPage(browser, relay.url, {
    expected: [/net::ERR_|WebSocket connection/],
  });
  try {
    await open(page, relay.url + newPath());
    await ask(page, 'Talk for a while');
    await page.getByText(/sentence number 3 of/).waitFor();
    await relay.cut();
    await page.getByText('Not connected.').waitFor();
    await box(page).fill('kept');
    await page.keyboard.press('Enter');
    assert.equal(await box(page).inputValue(), 'kept', 'nothing is sent into the void');
    await relay.restore();
    // Unless it has tried by itself in the meantime.
    await page
      .getByRole('button', { name: 'Try now' })
      .first()
      .click({ timeout: 2_000 })
      .catch(() => {});
    await page.getByText('Not connected.').waitFor({ state: 'detached' });
    await until('the turn is joined again or over', async () =>
      /number (?:[4-9]|\d\d+) of/.test(await answers(page).last().innerText()),
    );
    assert.equal(await answers(page).count(), 1);
    assert.deepEqual(problems, []);
  } finally {
    await context.close();
    await relay.stop();
  }
});

for (const [name, options] of Object.entries(viewports)) {
  test(`it fits and can be looked at: ${name}`, limit, async () => {
    const { context, page, problems } = await openPage(browser, cay.url, options);
    await open(page, cay.url + newPath());
    await page.getByText('a script answers').waitFor();
    await assertFits(page, 'empty');
    await screenshot(page, `chat-empty-${name}`);
    await ask(page, 'Add a new customer named Zara');
    await settled(page);
    await ask(page, 'List all customers');
    await until('there are two', async () => (await answers(page).count()) === 2);
    await settled(page);
    // The newest line is in sight without a hand on the wheel.
    await until('the end is in sight', async () =>
      page
        .locator('.scroll-box')
        .evaluate((it) => it.scrollHeight - it.scrollTop - it.clientHeight < 4),
    );
    assert.equal(await page.getByRole('button', { name: 'To the newest' }).count(), 0);
    await assertFits(page, 'chat');
    await screenshot(page, `chat-${name}`);
    await tab(page, /Executions/).click();
    await panel(page, /Executions/)
      .locator('.tok-keyword')
      .first()
      .waitFor();
    await assertFits(page, 'executions');
    await screenshot(page, `executions-${name}`);
    await tab(page, /Customers/).click();
    await panel(page, /Customers/)
      .getByText('Zara')
      .first()
      .waitFor();
    await assertFits(page, 'customers');
    await screenshot(page, `customers-${name}`);
    if (name === 'phone') {
      // The chat is a tab of its own there, and is as it was left.
      await tab(page, 'Chat').click();
      await box(page).fill('Drop the customers table');
      await page.getByRole('button', { name: 'Send' }).click();
      await tab(page, 'Customers (error)').waitFor();
      await settled(page);
      await assertFits(page, 'after an error');
      await screenshot(page, `chat-error-${name}`);
    }
    assert.deepEqual(problems, []);
    await context.close();
  });
}

/** Nothing of a turn under way, and no two notices that contradict each other. */
async function assertCalm(page) {
  assert.equal(await page.getByText('The agent could not finish this turn').count(), 0);
  assert.equal(await page.getByText('Not connected.').count(), 0);
  assert.equal(await page.getByRole('region', { name: /: (running|writing)$/ }).count(), 0);
}

test('opened while the server is away, it is there when the server is', limit, async (t) => {
  const relay = await startRelay(cay.url);
  t.after(() => relay.stop());
  const path = newPath();
  const seen = await openPage(browser, cay.url);
  await open(seen.page, cay.url + path);
  await ask(seen.page, 'Count customers by tier');
  await settled(seen.page);
  await seen.context.close();

  const { context, page } = await openPage(browser, relay.url, { expected: [/./] });
  t.after(() => context.close());
  await page.goto(`${relay.url}/status`);
  await page.locator('.connection[data-state=live]').waitFor();
  await relay.cut();
  // The code of the view is not there yet, either.
  await page.evaluate((to) => {
    history.pushState(null, '', to);
    dispatchEvent(new PopStateEvent('popstate'));
  }, path);
  await page.getByRole('status').getByText('Connection lost.').waitFor();
  await relay.restore();
  await settled(page);
  assert.match(await answers(page).last().innerText(), /Gold: 3/);
  await tab(page, 'Customers 8').waitFor();
});

test('a line that is lost in the middle of a turn leaves no trace', limit, async (t) => {
  const relay = await startRelay(cay.url);
  t.after(() => relay.stop());
  const path = newPath();
  const { context, page } = await openPage(browser, relay.url, { expected: [/./] });
  t.after(() => context.close());
  await open(page, relay.url + path);
  await tell(page, 'Run forever');
  await page.getByRole('region', { name: 'executeCode: running' }).waitFor();
  await relay.cut();
  await page.getByText('Not connected.').waitFor();
  assert.equal(await page.getByText('The agent could not finish this turn').count(), 0);
  // The turn ends at the server meanwhile.
  const messages = async () =>
    (await (await fetch(`${cay.url}/v1${path.replace('/chat', '/agents')}/messages`)).json())
      .messages;
  await until('it has ended', async () => (await messages()).at(-1).metadata?.model === 'demo');
  await relay.restore();
  await settled(page);
  await assertCalm(page);
  assert.equal(await answers(page).count(), 1);
  await page.getByRole('region', { name: 'executeCode: failed' }).waitFor();
  const shown = await page.locator('.messages').innerText();
  await page.reload();
  await settled(page);
  assert.equal(await page.locator('.messages').innerText(), shown, 'as after a reload');
});

test('a server that is killed in the middle of a turn and comes back says so', limit, async (t) => {
  const { tempDir } = await import('../lib/cay.mjs');
  const dir = tempDir(t);
  let own = await startServer({ dataDir: `${dir}/data` });
  const relay = await startRelay(own.url);
  t.after(async () => {
    await relay.stop();
    await own.stop();
  });
  const { context, page } = await openPage(browser, relay.url, { expected: [/./] });
  t.after(() => context.close());
  await open(page, `${relay.url}/chat/sandbox-agent/killed`);
  await ask(page, 'Talk for a while');
  await page.getByText(/sentence number 5 of/).waitFor();
  own.child.kill('SIGKILL');
  await page.getByText('Not connected.').waitFor();
  await assert.rejects(own.stop(), /SIGKILL|ended badly/);
  own = await startServer({ dataDir: `${dir}/data` });
  relay.lead(own.url);
  await page.getByText('The server ended during this turn.').waitFor();
  await settled(page);
  await assertCalm(page);
  assert.equal(await answers(page).count(), 1);
});

test('a proxy that changes the host is told what to set', limit, async (t) => {
  const { createServer, request } = await import('node:http');
  const target = new URL(cay.url);
  const proxy = createServer((req, res) => {
    const headers = { ...req.headers, host: target.host };
    const options = { port: target.port, method: req.method, path: req.url, headers };
    const far = request({ ...options, host: target.hostname }, (answer) => {
      res.writeHead(answer.statusCode, answer.headers);
      answer.pipe(res);
    });
    far.on('error', () => res.destroy());
    res.on('close', () => far.destroy());
    req.pipe(far);
  });
  proxy.on('upgrade', (_req, socket) => socket.destroy());
  await new Promise((done) => proxy.listen(0, '127.0.0.1', done));
  const origin = `http://127.0.0.1:${proxy.address().port}`;
  const { context, page } = await openPage(browser, origin, { expected: [/./] });
  t.after(async () => {
    await context.close();
    proxy.closeAllConnections();
    await new Promise((done) => proxy.close(done));
  });
  await page.goto(origin + newPath());
  const alert = page.getByRole('alert').filter({ hasText: 'The server refuses this page' });
  await alert.getByText('"hosts"').waitFor();
});

test('conversations: the last one, another name, data put back, gone', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  const name = `kept-${process.pid}`;
  const names = async () => {
    const { agents } = await (await fetch(`${cay.url}/v1/agents`)).json();
    return agents.find(({ type }) => type === 'sandbox-agent').names;
  };
  // Looking alone makes nothing.
  await open(page, `${cay.url}/chat/sandbox-agent/only-looked-at`);
  await tab(page, 'Customers 8').waitFor();
  assert.ok(!(await names()).includes('only-looked-at'));
  assert.equal(await page.getByRole('button', { name: /^Delete/ }).count(), 0);

  await open(page, `${cay.url}/chat/sandbox-agent/${name}`);
  await ask(page, 'Drop the customers table');
  await tab(page, 'Customers (error)').waitFor();
  await settled(page);
  await box(page).fill('half a sen');
  // What was said last is where one comes back to, with what was being written.
  for (const path of ['/', '/status', '/chat']) await page.goto(cay.url + path);
  await settled(page);
  assert.equal(await box(page).inputValue(), 'half a sen');
  assert.equal(await page.getByRole('combobox', { name: 'Conversation' }).inputValue(), name);

  await page.getByRole('button', { name: `Reset its data ${name}` }).click();
  await page.getByRole('button', { name: `Reset its data: sure? ${name}` }).click();
  await tab(page, 'Customers 8').waitFor();
  assert.equal(await answers(page).count(), 1, 'what was said stays');

  await page.getByRole('button', { name: 'Rename' }).click();
  await page.getByRole('textbox', { name: `New name of ${name}` }).fill(`${name}-b`);
  await page.keyboard.press('Enter');
  await until('it has its name', () => page.url().endsWith(`/${name}-b`));
  await settled(page);
  assert.ok((await names()).includes(`${name}-b`) && !(await names()).includes(name));
  await page.getByRole('button', { name: `Delete ${name}-b` }).click();
  await page.getByRole('button', { name: `Delete: sure? ${name}-b` }).click();
  await until('it is gone', async () => !(await names()).includes(`${name}-b`));
  await until('another is shown', () => !page.url().endsWith(`${name}-b`));
  assert.deepEqual(problems, []);
  await context.close();
});

test('what is said while a turn runs waits for its end', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  await open(page, cay.url + newPath());
  await ask(page, 'Run forever');
  await page.getByRole('region', { name: 'executeCode: running' }).waitFor();
  await tell(page, 'Count customers by tier');
  await page.getByText('Next: Count customers by tier').waitFor();
  await until('both are answered', async () => (await answers(page).count()) === 2);
  await settled(page);
  assert.match(await answers(page).last().innerText(), /Gold: 3/);
  assert.deepEqual(problems, []);
  await context.close();
});

test(
  'a tier is asked for and that tier is answered; data is beside it, not the program twice',
  limit,
  async () => {
    const { context, page, problems } = await openPage(browser, cay.url);
    await open(page, cay.url + newPath());
    await tab(page, 'Customers 8').waitFor();
    assert.equal(await tab(page, 'Customers 8').getAttribute('aria-selected'), 'true');
    await ask(page, 'List all Gold tier customers');
    await settled(page);
    assert.match(await answers(page).last().innerText(), /3 rows/);
    assert.deepEqual(problems, []);
    await context.close();
  },
);

test('a long table is read page by page, searched and ordered', limit, async () => {
  const { context, page, problems } = await openPage(browser, cay.url);
  const path = newPath();
  await open(page, cay.url + path);
  const rows = Array.from({ length: 3008 }, (_, id) => ({ id, name: `name ${id}` }));
  await page.evaluate(
    ([where, text]) =>
      new Promise((resolve, reject) => {
        const socket = new WebSocket(where);
        socket.onopen = () => resolve(socket.send(text));
        socket.onerror = reject;
      }),
    [
      `${cay.url.replace('http', 'ws')}/agents/${path.split('/').slice(2).join('/')}?_pk=other`,
      JSON.stringify({ type: 'cf_agent_state', state: { customers: rows, executions: [] } }),
    ],
  );
  await tab(page, /Customers/).click();
  const shown = panel(page, /Customers/);
  await shown.getByText('1 to 100 of 3,008').waitFor();
  await shown.getByRole('button', { name: 'After' }).click();
  await shown.getByText('101 to 200 of 3,008').waitFor();
  assert.equal((await customers(page)).length, 100);
  await shown.getByRole('button', { name: 'id', exact: true }).click();
  await shown.getByRole('button', { name: 'id', exact: true }).click();
  await shown.getByRole('button', { name: 'Before' }).click();
  await until('the last is first', async () => /name 3007/.test((await customers(page))[0]));
  await shown.getByRole('searchbox', { name: 'Search Customers' }).fill('name 1234');
  await until('it is found', async () => (await customers(page)).length === 1);
  assert.deepEqual(problems, []);
  await context.close();
});
