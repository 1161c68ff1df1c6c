// The built-in model that needs no key, with the script that ships.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, demoScript, stream, tools } from './lib.mjs';

const play = (messages, rest = {}) =>
  stream({ model: 'demo', tools, script: demoScript, ...(typeof messages === 'string' ? ask(messages) : { messages }) }, rest);

/** Plays a whole turn; `results` are the outputs of its tool calls. */
async function turn(text, results) {
  const messages = [{ role: 'user', content: text }];
  const steps = [];
  for (;;) {
    const step = await play(messages);
    assert.equal(step.end.event, 'done');
    steps.push(step);
    messages.push(step.end.message);
    const calls = step.of('tool_end');
    if (calls.length === 0) {
      assert.equal(step.end.stop, 'stop');
      return steps;
    }
    assert.equal(step.end.stop, 'tool-calls');
    messages.push({
      role: 'tool',
      content: calls.map((c) => ({ type: 'tool_result', id: c.id, name: c.name, output: results.shift() })),
    });
  }
}

test('counts customers by tier and answers with the real result', async () => {
  const [first, second] = await turn('Count customers by tier', [{ output: 'Gold: 31\nSilver: 4', error: null }]);
  assert.match(first.text, /script, not a language model/);
  const { code } = first.of('tool_end')[0].input;
  assert.equal(first.of('tool_end')[0].name, 'executeCode');
  assert.match(code, /export default async function/);
  assert.match(code, /env\.db\.query/);
  assert.match(second.text, /Gold: 31\nSilver: 4/);
});

test("finds customers with emails containing 'example'", async () => {
  const [first, second] = await turn("Find customers with emails containing 'example'", [{ output: '8 found', error: null }]);
  assert.match(first.of('tool_end')[0].input.code, /const needle = "example";/);
  assert.match(second.text, /8 found/);
});

test('adds a new customer named Zara through env.db.execute', async () => {
  const [first, second] = await turn('Add a new customer named Zara', [{ output: 'Added #9: Zara', error: null }]);
  const { code } = first.of('tool_end')[0].input;
  assert.match(code, /env\.db\.execute\(/);
  assert.match(code, /'Zara', 'zara@example\.com'/);
  assert.match(second.text, /Added #9: Zara/);
});

test('a runaway program, and its limit error in the answer', async () => {
  const [first, second] = await turn('run forever', [{ output: '', error: 'cpu time limit of 10000 ms exceeded' }]);
  assert.match(first.of('tool_end')[0].input.code, /while \(true\) \{\}/);
  assert.match(second.text, /stopped it.*cpu time limit/s);
});

test('drops the customers table', async () => {
  const [first, second] = await turn('Please drop the customers table', [{ output: 'dropped', error: null }]);
  assert.match(first.of('tool_end')[0].input.code, /DROP TABLE customers/);
  assert.match(second.text, /The table is gone/);
});

test('queryDatabase, with its rows as a table that cannot be broken out of', async () => {
  const [first, second] = await turn('List all customers', [{ rowCount: 2, rows: [{ id: 1, name: 'A|B' }, { id: 2, name: 'x\ny' }] }]);
  assert.equal(first.of('tool_end')[0].name, 'queryDatabase');
  assert.match(second.text, /2 rows:\n\n\| id \| name \|\n\| --- \| --- \|\n\| 1 \| A\\\|B \|\n\| 2 \| x y \|/);
});

test('a query error is told', async () => {
  const [, second] = await turn("SELECT x FROM y", [{ error: 'no such table: y' }]);
  assert.match(second.text, /no such table: y/);
});

test('several steps, with results of each', async () => {
  const steps = await turn('Give me an overview', [{ rowCount: 1, rows: [{ customers: 8 }] }, { output: 'Gold in West: 1', error: null }]);
  assert.equal(steps.length, 3);
  assert.equal(steps[0].of('reasoning_end').length, 1);
  assert.match(steps[1].text, /There are 8 customers/);
  assert.match(steps[2].text, /Of 8 customers.*Gold in West: 1/s);
});

test('a fence is longer than any inside the output', async () => {
  const [, second] = await turn('Count customers by tier', [{ output: '```\n<script>alert(1)</script>\n````', error: null }]);
  assert.match(second.text, /`````\n```\n<script>/);
});

test('says what it understands when it does not understand', async () => {
  const r = await play('What is the meaning of life?');
  assert.match(r.text, /script, not a language model/);
  assert.match(r.text, /What is the meaning of life\?/);
  assert.match(r.text, /- Count customers by tier/);
  assert.match(r.text, /ANTHROPIC_API_KEY/);
  assert.equal(r.of('tool_start').length, 0);
});

test('an agent without a script says so and calls nothing', async () => {
  const r = await stream({ model: 'demo', tools, ...ask('Count customers by tier') });
  assert.match(r.text, /no script/);
  assert.equal(r.of('tool_start').length, 0);
});

test('without the tool it says so instead of calling it', async () => {
  const r = await stream({ model: 'demo', script: demoScript, ...ask('Count customers by tier') });
  assert.match(r.text, /`executeCode`, which this agent has not/);
  assert.equal(r.end.stop, 'stop');
});

test('the same conversation gets the same answer', async () => {
  const [a, b] = await Promise.all([play('Count customers by tier'), play('Count customers by tier')]);
  assert.deepEqual(a.end, b.end);
});

test('ids of tool calls are unique in a conversation', async () => {
  const first = await play('Count customers by tier');
  const call = first.of('tool_end')[0];
  const second = await play([
    { role: 'user', content: 'Count customers by tier' },
    first.end.message,
    { role: 'tool', content: [{ type: 'tool_result', id: call.id, name: call.name, output: {} }] },
    { role: 'user', content: 'Count customers by tier' },
  ]);
  assert.notEqual(second.of('tool_end')[0].id, call.id);
});

test('it is the default without a key, costs nothing and can be stopped', async () => {
  const r = await stream({ ...ask('Talk for a while'), script: demoScript }, { options: { demo_delay_ms: 5 }, cancel_after_ms: 200 });
  assert.equal(r.end.event, 'cancelled');
  assert.ok(r.text.length > 20 && r.text.length < 4000, String(r.text.length));
  assert.equal(r.of('end')[0].cost_nusd, 0);
});

test('a broken script is refused with its place', async () => {
  const broken = [
    [{ scripts: [{ when: '(', steps: [{ say: 'x' }] }] }, /scripts\[0\]: "when"/],
    [{ scripts: [{ when: 'a', steps: [] }] }, /scripts\[0\]: "steps"/],
    [{ scripts: [{ when: 'a', steps: [{ say: 'x' }, { shout: 'x' }] }] }, /steps\[1\]: a step: unknown key/],
    [{ scripts: [{ when: 'a', steps: [{ call: { tool: 'x' } }] }] }, /needs "input"/],
    [{ scrips: [] }, /unknown key/],
  ];
  for (const [script, expected] of broken) {
    const r = await stream({ model: 'demo', script, ...ask('a') });
    assert.equal(r.end.event, 'refused');
    assert.match(r.end.message, expected);
  }
});
