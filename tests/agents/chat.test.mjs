// The unmodified hooks: useAgent and useAgentChat over the WebSocket, useChat over HTTP.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { request } from '../lib/cay.mjs';
import { mount, openPage } from './dom.mjs';
import { startCay, TYPE, until, withAgents } from './support.mjs';

let cay;
let react;
before(async () => {
  cay = await startCay();
  openPage(cay); // before React is loaded
  react = {
    ...(await import('agents/react')),
    ...(await import('@cloudflare/ai-chat/react')),
    ...(await import('@ai-sdk/react')),
    ...(await import('ai')),
  };
});
after(() => cay.stop());

const textOf = (message) =>
  message.parts
    .filter((p) => p.type === 'text')
    .map((p) => p.text)
    .join('');
const last = (view) => view.current.messages.at(-1);
const isAnother = (view, id) => last(view)?.role === 'assistant' && last(view).id !== id;

async function open(t, name, { server = cay, agent = 'sandbox-agent', ...more } = {}) {
  const view = await mount(t, () => {
    const connection = react.useAgent({
      agent, name, host: `127.0.0.1:${server.port}`, minReconnectionDelay: 20, maxReconnectionDelay: 200,
      onStateUpdate: (state) => (view.state = state),
    });
    const chat = react.useAgentChat({ agent: connection, ...more });
    return { connection, ...chat };
  });
  await until(() => view.current && view.state, `the page of ${name}`);
  return view;
}

const idle = (view) =>
  until(() => view.current.status === 'ready' && !view.current.isStreaming, 'the end of the turn');

async function say(view, text) {
  // A turn that fails at once may be over between two looks.
  const before = view.current;
  void view.current.sendMessage({ text });
  const begun = ({ status, messages }) =>
    ['submitted', 'streaming'].includes(status) ||
    (status === 'error' && before.status !== 'error') ||
    (status === 'ready' && messages.length > before.messages.length + 1);
  await until(() => begun(view.current), 'the start of the turn');
  await until(() => ['ready', 'error'].includes(view.current.status), 'the end of the turn');
}

test('useAgentChat: text and a tool call', async (t) => {
  const view = await open(t, 'hook');
  assert.deepEqual(view.current.messages, []);
  await say(view, 'hello');
  assert.equal(view.current.status, 'ready');
  assert.match(textOf(last(view)), /script/);
  await say(view, 'Count customers by tier');
  const tool = last(view).parts.find((p) => p.type === 'tool-executeCode');
  assert.equal(tool.state, 'output-available');
  assert.deepEqual(tool.output, { output: 'Gold: 3\nSilver: 3\nBronze: 2', error: null });
  assert.match(textOf(last(view)), /Gold: 3/);
  assert.equal(view.state.executions.length, 1);
  assert.deepEqual(view.current.messages.map((m) => m.role), ['user', 'assistant', 'user', 'assistant']);
  const stored = (await request(cay, `/agents/${TYPE}/hook/get-messages`)).json();
  assert.deepEqual(stored.map((m) => [m.id, textOf(m)]), view.current.messages.map((m) => [m.id, textOf(m)]));
});

test('useAgentChat: a model in its body answers the turn', async (t) => {
  const agent = {
    agent: { model: 'gpt', state: { n: { value: 1 } } },
    demo: { scripts: [{ when: '.', steps: [{ say: 'the demo speaks' }] }] },
  };
  const server = await withAgents(t, { chosen: agent }, { env: { OPENAI_BASE_URL: 'http://127.0.0.1:1' } });
  const view = await open(t, 'm', { server, agent: 'chosen', body: { model: 'demo' } });
  await say(view, 'hello');
  await until(() => textOf(last(view)).endsWith('the demo speaks'), 'the answer');
  await until(() => last(view).metadata?.model === 'demo', 'its account');
});

test('useAgentChat: several steps, and history on the next visit', async (t) => {
  const view = await open(t, 'steps');
  await say(view, 'Give me an overview of tiers and regions');
  const types = last(view).parts.map((p) => p.type);
  assert.deepEqual(types, [
    'step-start', 'reasoning', 'text', 'tool-queryDatabase', 'step-start', 'text', 'tool-executeCode', 'step-start', 'text',
  ]);
  assert.deepEqual(last(view).parts[3].output, { rowCount: 1, rows: [{ customers: 8 }] });
  view.unmount();
  const again = await open(t, 'steps');
  await until(() => again.current.messages.length === 2, 'the history');
  assert.deepEqual(again.current.messages[1].parts.map((p) => p.type), types);
});

test('useAgentChat: a turn that fails shows its error and the next one works', async (t) => {
  const server = await withAgents(t, {
    broken: {
      agent: { state: { mood: 'good' } },
      demo: { scripts: [{ when: 'break', steps: [{ say: 'It was ', fail: 'the model broke' }] }, { when: '.', steps: [{ say: 'Fine.' }] }] },
    },
  });
  const view = await open(t, 'e', { server, agent: 'broken' });
  await say(view, 'break it');
  await until(() => view.current.status === 'error', 'the error'); // the hook may say ready for a moment
  assert.match(view.current.error.message, /the model broke/);
  await say(view, 'and now?');
  assert.equal(view.current.status, 'ready');
  assert.match(textOf(last(view)), /Fine\./);
});

test('useAgentChat: stop keeps what was said', async (t) => {
  const view = await open(t, 'stop', { cancelOnClientAbort: true });
  void view.current.sendMessage({ text: 'Talk for a while' });
  await until(() => view.current.messages.length === 2 && textOf(last(view)).length > 100, 'text');
  await view.current.stop();
  await idle(view);
  const stored = await until(async () => {
    const messages = (await request(cay, `/agents/${TYPE}/stop/get-messages`)).json();
    return messages.length === 2 && messages[1].metadata?.aborted ? messages : null;
  }, 'the stored message');
  assert.ok(textOf(stored[1]).length > 100);
  assert.ok(textOf(stored[1]).startsWith(textOf(last(view)).slice(0, 80)));
});

test('useAgentChat: regenerate and clear', async (t) => {
  const view = await open(t, 'regen');
  const other = await open(t, 'regen');
  await say(view, 'hello');
  const first = last(view).id;
  void view.current.regenerate();
  await until(() => isAnother(view, first), 'another answer'); // its start may be over between two looks
  await idle(view);
  assert.notEqual(last(view).id, first);
  assert.equal(view.current.messages.length, 2);
  await until(() => other.current.messages.length === 2 && last(other).id === last(view).id, 'the other page');
  view.current.clearHistory();
  await until(() => other.current.messages.length === 0, 'the clear');
  assert.deepEqual((await request(cay, `/agents/${TYPE}/regen/get-messages`)).json(), []);
});

test('useAgentChat: a second page sees the same while it streams', async (t) => {
  const a = await open(t, 'two');
  const b = await open(t, 'two');
  void a.current.sendMessage({ text: 'Talk for a while' });
  await until(() => b.current.messages.length === 2 && textOf(last(b)).length > 100, 'text on the second page');
  void a.current.stop();
  await idle(a);
  a.current.clearHistory();
  await until(() => b.current.messages.length === 0, 'the clear');
  await say(a, 'Add a new customer named Zara');
  await until(() => b.current.messages.length === 2 && /Zara/.test(textOf(last(b))), 'the answer');
  await until(() => b.state.customers.length === 9, 'the customer');
});

test('useAgentChat: a page that opens in the middle of a turn sees all of it', async (t) => {
  const a = await open(t, 'join');
  void a.current.sendMessage({ text: 'Talk for a while' });
  await until(() => a.current.messages.length === 2 && textOf(last(a)).length > 200, 'text');
  a.unmount(); // the turn goes on
  const b = await open(t, 'join');
  await until(() => b.current.messages.length === 2 && textOf(last(b)).length > 400, 'the resumed text');
  const seen = textOf(last(b));
  assert.match(seen, /sentence number 1 of/);
  void b.current.stop();
  const numbers = [...textOf(last(b)).matchAll(/number (\d+) of/g)].map((m) => Number(m[1]));
  assert.deepEqual(numbers, numbers.map((_, i) => i + 1), 'without a gap, nothing twice');
});

function openHttp(t, name, options = {}) {
  return mount(t, () =>
    react.useChat({
      transport: new react.DefaultChatTransport({
        api: `http://127.0.0.1:${cay.port}/v1/agents/${TYPE}/${name}/messages`, ...options,
      }),
    }),
  );
}

test('useChat over HTTP: text, a tool call, regenerate', async (t) => {
  const view = await openHttp(t, 'http');
  await until(() => view.current, 'the page');
  await say(view, 'Count customers by tier');
  assert.equal(view.current.status, 'ready', String(view.current.error));
  const tool = last(view).parts.find((p) => p.type === 'tool-executeCode');
  assert.deepEqual(tool.output, { output: 'Gold: 3\nSilver: 3\nBronze: 2', error: null });
  await say(view, 'hello');
  assert.equal(view.current.messages.length, 4);
  const before = last(view).id;
  void view.current.regenerate();
  await until(() => isAnother(view, before) && view.current.status === 'ready', 'another answer');
  assert.notEqual(last(view).id, before);
  const stored = (await request(cay, `/agents/${TYPE}/http/get-messages`)).json();
  assert.deepEqual(stored.map((m) => m.id), view.current.messages.map((m) => m.id));
});

test('useChat over HTTP: resumeStream takes up the turn that runs, and ends well when none does', async (t) => {
  const first = await openHttp(t, 'http-resume');
  await until(() => first.current, 'the page');
  await first.current.resumeStream();
  assert.deepEqual([first.current.status, first.current.messages.length], ['ready', 0]);
  void first.current.sendMessage({ text: 'Talk for a while' });
  await until(() => first.current.messages.length === 2 && textOf(last(first)).length > 200, 'text');
  const second = await openHttp(t, 'http-resume');
  await until(() => second.current, 'the second page');
  void second.current.resumeStream();
  await until(() => second.current.messages.length === 1 && textOf(last(second)).length > 400, 'the resumed text');
  const numbers = [...textOf(last(second)).matchAll(/number (\d+) of/g)].map((m) => Number(m[1]));
  assert.deepEqual(numbers, numbers.map((_, i) => i + 1), 'from the first, without a gap, nothing twice');
  await request(cay, `/v1/agents/${TYPE}/http-resume`, { method: 'DELETE' });
});

test('useChat over HTTP: an error, and only the last message sent', async (t) => {
  const view = await openHttp(t, 'http2', {
    prepareSendMessagesRequest: ({ messages, trigger }) => ({ body: { message: messages.at(-1), trigger } }),
  });
  await until(() => view.current, 'the page');
  await say(view, 'hello');
  await say(view, 'List all customers');
  assert.equal(view.current.status, 'ready');
  assert.equal((await request(cay, `/agents/${TYPE}/http2/get-messages`)).json().length, 4);
  const bad = await openHttp(t, 'http3', { prepareSendMessagesRequest: () => ({ body: { messages: 'none' } }) });
  await until(() => bad.current, 'the page');
  await say(bad, 'hello');
  assert.equal(bad.current.status, 'error');
  assert.match(bad.current.error.message, /"messages\\?" must be a list/);
});
