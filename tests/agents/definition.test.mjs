// Agents are folders: the second one that ships, and what a broken one says.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { AgentClient } from 'agents/client';

import { request, runCay } from '../lib/cay.mjs';
import { agentsDir, Raw, until, user, withAgents, withCay, within } from './support.mjs';

test('the to-do agent does what its examples say, offline', async (t) => {
  const cay = await withCay(t);
  const a = await Raw.ready(cay, 'mine', { type: 'todo-agent' });
  assert.deepEqual(a.frames[1].state, { todos: [], executions: [], filter: 'open' });
  await a.turn('t1', [user('u1', 'Add: buy "milk" & it\'s \\ fine')]);
  assert.match(a.text('t1'), /Added number 1; 1 on the list\./);
  await a.turn('t2', [user('u2', 'Add: call Ana')]);
  await a.turn('t3', [user('u3', 'Finish number 1')]);
  await a.turn('t4', [user('u4', 'Show my list')]);
  assert.match(a.text('t4'), /2 on the list:.*buy "milk".*call Ana|2 on the list:.*call Ana.*buy "milk"/s);
  const { todos, executions } = a.frames.findLast((f) => f.type === 'cf_agent_state').state;
  assert.deepEqual(
    todos.map((x) => [x.id, x.task, x.done]),
    [
      [2, 'call Ana', 0],
      [1, 'buy "milk" & it\'s \\ fine', 1],
    ],
  );
  assert.equal(executions.length, 3);
  const client = new AgentClient({ host: `127.0.0.1:${cay.port}`, agent: 'TodoAgent', name: 'mine' });
  t.after(() => client.close());
  await within(client.ready, 'ready');
  await client.call('add', ['by hand', '2030-05-01']);
  await until(() => a.frames.findLast((f) => f.type === 'cf_agent_state').state.todos.length === 3, 'the new one');
  await assert.rejects(client.call('add', ['bad date', 'tomorrow']), /CHECK/);
  await assert.rejects(client.call('query', ['SELECT 1']), { message: 'Method query is not callable' });
  await client.call('remove', [3]);
  assert.equal((await client.call('list', [])).length, 2);
  const { agents } = (await request(cay, '/v1/agents')).json();
  assert.deepEqual(
    agents.map((x) => [x.type, x.title]),
    [
      ['sandbox-agent', 'Sandbox agent'],
      ['todo-agent', 'To-do agent'],
    ],
  );
  a.close();
});

test('an env holds what agent.json grants and nothing else', async (t) => {
  const code = 'export default async (env) => { console.log(Object.keys(env).sort().join()); console.log(JSON.stringify(env.LIMITS)); try { await env.todos.execute("DROP TABLE todos"); } catch (e) { console.log(e.message); } }';
  const cay = await withAgents(
    t,
    {
      'todo-agent': { demo: { scripts: [{ when: '.', steps: [{ call: { tool: 'runCode', input: { code } } }, { say: 'ok' }] }] } },
    },
    { shipped: true },
  );
  const a = await Raw.ready(cay, 'x', { type: 'todo-agent' });
  await a.turn('t', [user('u', 'go')]);
  const { output } = a.chunks('t').find((c) => c.type === 'tool-output-available').output;
  assert.match(output, /^LIMITS,todos\n\{"tasks":500\}\n.*execute/);
  a.close();
});

const facets = { db: { schema: 'database.sql', methods: { all: 'SELECT 1' } } };
const files = { 'database.sql': 'CREATE TABLE IF NOT EXISTS t (x);' };
const tool = { name: 'q', kind: 'query', facet: 'db', description: 'd' };

for (const [name, folder, expected] of [
  ['no JSON', { agent: '{' }, /agents\/bad\/agent\.json: .*(line 1|expected|invalid)/],
  ['a list', { agent: '[]' }, /agents\/bad\/agent\.json: .*must be a JSON object/],
  ['a key nobody knows', { agent: { max_step: 5 } }, /agents\/bad\/agent\.json: .*"max_step"/],
  ['a text for a number', { agent: { max_steps: 'five' } }, /agents\/bad\/agent\.json: "max_steps".*(number|integer)/],
  ['a number out of range', { agent: { max_steps: 0 } }, /agents\/bad\/agent\.json: "max_steps".*1/],
  ['a number for a text', { agent: { title: 5 } }, /agents\/bad\/agent\.json: "title"/],
  ['facets that are a list', { agent: { facets: [] } }, /agents\/bad\/agent\.json: "facets" must be an object/],
  ['a facet with a strange key', { agent: { facets: { db: { shema: 'x' } } } }, /facets\.db: .*"shema"/],
  ['a schema that is not there', { agent: { facets } }, /agents\/bad\/agent\.json: facets\.db: .*database\.sql/],
  ['a schema elsewhere', { agent: { facets: { db: { schema: '../x.sql' } } } }, /facets\.db: .*must be a file beside agent\.json/],
  ['a facet that fits no folder', { agent: { facets: { 'a/b': {} } } }, /facets\.a\/b: the name must fit a folder/],
  ['a method of no kind', { agent: { facets: { db: { methods: { x: { sql: 'SELECT 1', kind: 'maybe' } } } } } }, /facets\.db: methods\.x: "kind" must be "query" or "execute"/],
  ['a method without SQL', { agent: { facets: { db: { methods: { x: { kind: 'query' } } } } } }, /facets\.db: methods\.x: a method needs "sql"/],
  ['a durability', { agent: { facets: { db: { durability: 'some' } } } }, /facets\.db: "durability" must be "normal" or "full"/],
  ['an env of an unknown facet', { agent: { env: { db: { facet: 'nosuch' } } } }, /env\.db: "facet" must name one of "facets"/],
  ['an env with an unknown method', { agent: { facets, env: { db: { facet: 'db', methods: ['nosuch'] } } }, files }, /env\.db: the facet "db" has no method "nosuch"/],
  ['an env with a strange key', { agent: { facets, env: { db: { facet: 'db', method: 'all' } } }, files }, /env\.db: .*"method"/],
  ['a rpc of an unknown method', { agent: { facets, rpc: { x: { facet: 'db', method: 'nosuch' } } }, files }, /rpc\.x: the facet "db" has no method "nosuch"/],
  ['a rpc without a facet', { agent: { rpc: { x: 1 } } }, /rpc\.x: /],
  ['tools that are an object', { agent: { tools: {} } }, /"tools" must be a list/],
  ['a tool without a description', { agent: { tools: [{ name: 'x', kind: 'code' }] } }, /tools\[0\]: needs "name", "kind" and "description"/],
  ['a tool of no kind', { agent: { tools: [{ ...tool, kind: 'shell' }] } }, /tools\[0\]: "kind" must be code or query/],
  ['a tool on an unknown facet', { agent: { tools: [tool] } }, /tools\[0\]: "facet" must name one of "facets"/],
  ['a tool with a strange name', { agent: { facets, tools: [{ ...tool, name: 'a b' }] }, files }, /tools\[0\]: "name" must have up to 64 letters/],
  ['a tool twice', { agent: { facets, tools: [tool, tool] }, files }, /tools\[1\]: "name" must be there once: "q"/],
  ['a state of an unknown method', { agent: { facets, state: { x: { facet: 'db', method: 'nosuch' } } }, files }, /state\.x: "facet" and "method" must name/],
  ['a state with a strange key', { agent: { facets, state: { x: { facet: 'db', method: 'all', limit: 3 } } }, files }, /state\.x: .*"limit"/],
  ['too many executions', { agent: { state: { x: { executions: 500 } } } }, /state\.x: "executions".*200/],
  ['a strange budget', { agent: { budget: { dollars: 1 } } }, /"budget": unknown key "dollars"/],
  ['a cost of nothing', { agent: { budget: { cost_usd: 0 } } }, /budget: "cost_usd" must be a positive number/],
  ['tries that are no texts', { agent: { try: [1] } }, /"try" must be a list of texts/],
  ['a demo that is no JSON', { agent: {}, demo: 'x' }, /agents\/bad\/demo\.json: /],
  ['a demo with a bad expression', { agent: {}, demo: { scripts: [{ when: '(', steps: [{ say: 'x' }] }] } }, /agents\/bad\/demo\.json: .*when/],
])
  test(`a broken definition names file, key and reason: ${name}`, async (t) => {
    const dir = agentsDir(t, { good: { agent: {} }, bad: folder });
    const data = mkdtempSync(join(tmpdir(), 'cay-data-'));
    t.after(() => rmSync(data, { recursive: true, force: true }));
    const done = await runCay(['serve', '--listen', '127.0.0.1:0', '--data-dir', data, '--agents-dir', dir]);
    assert.notEqual(done.code, 0);
    assert.match(done.stderr, expected);
  });

test('a broken definition: the folder itself', async (t) => {
  const dir = agentsDir(t, { 'Bad Name': { agent: {} } });
  const done = await runCay(['serve', '--listen', '127.0.0.1:0', '--data-dir', join(dir, 'data'), '--agents-dir', dir]);
  assert.match(done.stderr, /agents\/Bad Name: a folder's name has up to 60 of a-z, 0-9 and "-"/);
  const none = await runCay(['serve', '--listen', '127.0.0.1:0', '--data-dir', join(dir, 'data'), '--agents-dir', join(dir, 'nosuch')]);
  assert.match(none.stderr, /agents folder .*nosuch.*No such file/);
});

test('SQL that is wrong is an error to see in the state, and in the chat', async (t) => {
  const cay = await withAgents(t, {
    wrong: {
      agent: { facets, state: { rows: { facet: 'db', method: 'all' } }, tools: [tool] },
      files: { 'database.sql': 'CREATE TABLE nonsense here;' },
      demo: { scripts: [{ when: '.', steps: [{ call: { tool: 'q', input: { sql: 'SELECT 1' } } }, { say: '{{result.error}}' }] }] },
    },
  });
  const a = await Raw.ready(cay, 'x', { type: 'wrong' });
  assert.match(a.frames[1].state.errors.rows, /schema.*(syntax|nonsense|here)/);
  await a.turn('t', [user('u', 'go')]);
  assert.match(a.text('t'), /schema/);
  a.close();
});
