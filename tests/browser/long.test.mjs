// Much of everything: what the page draws of it is bounded, so that it stays quick. How quick is measured by
// bench/page.bench.mjs: on a machine that does other things, a task is long by itself.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { longTasks, scenes, scroll, startMuch } from './much.mjs';
import { until } from './support.mjs';

const limit = { timeout: 120_000 };
let all;

before(async () => {
  all = await startMuch();
}, limit);

after(() => all?.stop(), limit);

const elements = (box) => box.evaluate((it) => it.querySelectorAll('*').length);
/** How many of these the browser has really drawn. */
const drawn = (locator) =>
  locator.evaluateAll(
    (them) =>
      them.filter((it) =>
        (it.firstElementChild ?? it).checkVisibility({ contentVisibilityAuto: true }),
      ).length,
  );

test('3,000 rows are scrolled and searched', limit, async () => {
  const { box, input, text } = await scenes['3,000 rows'](all);
  assert.ok((await elements(box)) < 1500);
  await scroll(all.page, box);
  await input.pressSequentially(text);
  await box.getByText('Name 2999', { exact: true }).waitFor();
});

test('500 messages are scrolled, and another is written', limit, async () => {
  const { box, input, text } = await scenes['500 messages'](all);
  const { page } = all;
  assert.equal(await page.locator('.message').count(), 500);
  assert.ok((await drawn(page.locator('.message'))) < 60, 'most are not drawn');
  // The newest is in sight, and stays so when its height is known.
  await until('the end is seen', () =>
    box.evaluate((it) => it.scrollHeight - it.scrollTop - it.clientHeight < 60),
  );
  // To the first, with nothing left out.
  await until('the beginning is seen', () => {
    return box.evaluate((it) => {
      it.scrollTop = 0;
      return it.scrollTop === 0;
    });
  });
  await page.getByText('Question 0', { exact: true }).waitFor();
  await input.pressSequentially(text);
});

test('100,000 lines of a command are all there, and few are drawn', limit, async () => {
  const { box, come } = await scenes['100,000 lines of a command'](all);
  await come();
  const said = await box.evaluate((it) => it.textContent);
  assert.ok(said.startsWith('1\n2\n3\n') && said.endsWith('99999\n100000\n'));
  assert.equal(said.length, 588_895);
  const blocks = box.locator('.output-block');
  assert.ok((await blocks.count()) < 300);
  assert.ok((await drawn(blocks)) < 20);
  await scroll(all.page, box);
});

test('100,000 lines of a program: the newest are shown', limit, async () => {
  const { box, come } = await scenes['100,000 lines of a program'](all);
  await come();
  assert.ok((await box.locator('.log-line').count()) <= 2000);
  await box.getByText('99999', { exact: true }).waitFor();
  await scroll(all.page, box);
  // What is long would be seen.
  const { longest } = await longTasks(all.page, () =>
    all.page.evaluate(
      () =>
        new Promise((done) =>
          setTimeout(() => {
            const end = performance.now() + 200;
            while (performance.now() < end);
            done();
          }, 0),
        ),
    ),
  );
  assert.ok(longest > 100);
});
