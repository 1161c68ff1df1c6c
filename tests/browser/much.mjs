// Much of everything, for the tests of what the page holds of it and for the benchmark of how quick it stays.
import assert from 'node:assert/strict';
import { openPage, patience, startBrowser, startModel, startServer, until } from './support.mjs';

/** A server, a browser, and a page that counts its long tasks. */
export async function startMuch() {
  const model = await startModel();
  const cay = await startServer({ env: model.env });
  const browser = await startBrowser();
  const { page } = await openPage(browser, cay.url, { viewport: { width: 1440, height: 900 } });
  await page.addInitScript(() => {
    globalThis.longTasks = [];
    new globalThis.PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) globalThis.longTasks.push(duration);
    }).observe({ type: 'longtask' });
  });
  const stop = async () => {
    await browser.close();
    await cay.stop();
    await model.stop();
  };
  return { cay, browser, page, stop };
}

/** The longest task of the page while something is done, and how many took over 50 ms. */
export async function longTasks(page, doIt) {
  await page.evaluate(() => (globalThis.longTasks.length = 0));
  await doIt();
  // Told only after the fact.
  await page.waitForTimeout(200);
  const all = await page.evaluate(() => globalThis.longTasks);
  return { longest: Math.round(Math.max(0, ...all)), count: all.length };
}

/**
 * The longest task of the page's thread while something is done: by the clock, and by the processor time it took,
 * which tells of the page where a clock tells of whatever else the machine did.
 */
export async function tasks({ browser, page }, doIt) {
  await browser.startTracing(page, { categories: ['disabled-by-default-devtools.timeline'] });
  let trace;
  try {
    await doIt();
  } finally {
    trace = JSON.parse(await browser.stopTracing());
  }
  const mains = new Set(
    trace.traceEvents
      .filter(({ name, args }) => name === 'thread_name' && args.name === 'CrRendererMain')
      .map(({ pid, tid }) => `${pid}.${tid}`),
  );
  const all = trace.traceEvents.filter(
    ({ name, pid, tid }) => name === 'RunTask' && mains.has(`${pid}.${tid}`),
  );
  assert.ok(all.length > 0, 'the browser told of its tasks');
  const longest = (of) => Math.round(Math.max(0, ...all.map(of)) / 1000);
  return {
    wallMs: longest(({ dur = 0 }) => dur),
    cpuMs: longest(({ tdur = 0 }) => tdur),
    count: all.length,
  };
}

export async function scroll(page, locator) {
  await locator.hover();
  for (const y of [900, -900, -1500, 900, -25_000, 2500, -900, 50_000]) {
    await page.mouse.wheel(0, y);
    await page.waitForTimeout(50);
  }
}

const post = async (url, body) => {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(2 * patience),
  });
  assert.ok(answer.ok, `${url}: ${answer.status}`);
  return answer.json();
};

const message = (page) => page.getByRole('textbox', { name: 'Message', exact: true });

/**
 * Each opens its view with much in it, or with what brings much: come() does, and waits for its end. It gives what is
 * scrolled and what is typed into.
 */
export const scenes = {
  async '3,000 rows'({ cay, page }) {
    await post(`${cay.url}/v1/agents/sandbox-agent/rows/messages`, {
      text: `export default async (env) => {
        await env.db.execute(\`WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 3000)
          INSERT INTO customers (name, email, tier, region) SELECT 'Name ' || n, n || '@example.com', 'Gold', 'East' FROM c\`);
      }`,
    });
    await page.goto(`${cay.url}/chat/sandbox-agent/rows`);
    const panel = page.getByRole('tabpanel', { name: /^Customers/ });
    await panel.getByText('Name 9', { exact: true }).waitFor();
    return { box: panel, input: panel.getByRole('searchbox'), text: 'name 299' };
  },

  async '500 messages'({ cay, page }) {
    const text = (i) => `Answer **${i}**\n\n- one\n- two\n\n\`\`\`js\nconst a = ${i};\n\`\`\`\n`;
    const messages = Array.from({ length: 500 }, (_, i) => ({
      id: `m${i}`,
      role: i % 2 ? 'assistant' : 'user',
      parts: [{ type: 'text', text: i % 2 ? text(i) : `Question ${i}` }],
    }));
    const ws = new WebSocket(`${cay.url.replace('http', 'ws')}/agents/sandbox-agent/many`);
    await new Promise((resolve) => ws.addEventListener('open', resolve));
    ws.send(JSON.stringify({ type: 'cf_agent_chat_messages', messages }));
    await until('they are kept', async () => {
      const kept = await fetch(`${cay.url}/v1/agents/sandbox-agent/many/messages`);
      return (await kept.json()).messages?.length === 500;
    });
    ws.close();
    await page.goto(`${cay.url}/chat/sandbox-agent/many`);
    await page.locator('.message').nth(499).waitFor();
    return { box: page.locator('.scroll-box'), input: message(page), text: 'say a few words' };
  },

  async '100,000 lines of a command'({ cay, page }) {
    const { id } = await post(`${cay.url}/v1/sandboxes`, { timeout_s: 300 });
    await page.goto(`${cay.url}/sandboxes/${id}#commands`);
    const input = page.getByRole('textbox', { name: /command/i }).first();
    await input.fill('seq 1 100000');
    const box = page.getByRole('region', { name: 'Output of the command' });
    const come = async () => {
      await page.keyboard.press('Enter');
      await page.locator('.exec-end .badge').waitFor();
      await box.getByText('100000').waitFor();
    };
    return { box, input, text: 'echo a few words', come };
  },

  async '100,000 lines of a program'({ cay, page }) {
    await page.goto(`${cay.url}/play`);
    const editor = page.locator('.cm-content');
    await editor.click();
    await page.keyboard.press('Control+a');
    await page.keyboard.insertText(
      'export default () => { for (let i = 0; i < 100000; i++) console.log(i); };\n',
    );
    const come = async () => {
      await page.keyboard.press('Control+Enter');
      await page
        .locator('.outcome-state')
        .getByText(/^(done|failed)$/)
        .waitFor();
    };
    return { box: page.locator('.log-lines'), input: editor, text: '// a few words', come };
  },
};
