// The unmodified `AgentClient` of the npm package `agents`.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { AgentClient } from 'agents/client';

import { startCay, until, withAgents, within } from './support.mjs';

let cay;
before(async () => {
  cay = await startCay();
});
after(() => cay.stop());

function connect(t, options) {
  const states = [];
  const identities = [];
  const client = new AgentClient({
    host: `127.0.0.1:${options.port ?? cay.port}`,
    agent: 'SandboxAgent',
    minReconnectionDelay: 20,
    maxReconnectionDelay: 200,
    onStateUpdate: (state, source) => states.push({ state, source }),
    onIdentity: (name, agent) => identities.push({ name, agent }),
    ...options,
  });
  client.states = states;
  client.identities = identities;
  t.after(() => client.close());
  return client;
}

test('is ready with its identity and state', async (t) => {
  const client = connect(t, { name: 'one' });
  await within(client.ready, 'ready');
  assert.equal(client.identified, true);
  assert.equal(client.agent, 'sandbox-agent');
  assert.equal(client.name, 'one');
  assert.deepEqual(client.identities, [{ name: 'one', agent: 'sandbox-agent' }]);
  await until(() => client.states.length === 1, 'the state');
  assert.equal(client.states[0].source, 'server');
  assert.equal(client.states[0].state.customers.length, 8);
});

test('an agent without state sends none, until a client has set one', async (t) => {
  const server = await withAgents(t, { plain: { agent: {} } });
  const client = connect(t, { port: server.port, agent: 'plain', name: 'x' });
  await within(client.ready, 'ready');
  await assert.rejects(client.call('getAllCustomers', []), { message: 'Method getAllCustomers does not exist' });
  assert.deepEqual(client.states, []);
  client.setState({ colour: 'blue' });
  await assert.rejects(client.call('query', []), { message: 'Method query does not exist' });
  const other = connect(t, { port: server.port, agent: 'plain', name: 'x' });
  await within(other.ready, 'ready');
  await until(() => other.states.length === 1, 'the state');
  assert.deepEqual(other.states[0], { state: { colour: 'blue' }, source: 'server' });
});

test('has the name "default" unless told otherwise', async (t) => {
  const client = connect(t, { port: cay.port, name: undefined });
  await within(client.ready, 'ready');
  assert.equal(client.name, 'default');
});

test('state goes both ways between two clients', async (t) => {
  const a = connect(t, { name: 'sync' });
  const b = connect(t, { name: 'sync' });
  await within(Promise.all([a.ready, b.ready]), 'ready');
  await until(() => a.states.length === 1 && b.states.length === 1, 'their states');
  a.setState({ customers: [], executions: [], by: 'a' });
  await until(() => b.states.at(-1)?.state.by === 'a', 'the state of a at b');
  assert.equal(b.states.at(-1).source, 'server');
  b.setState({ customers: [], executions: [], by: 'b' });
  await until(() => a.states.at(-1)?.state.by === 'b', 'the state of b at a');
  assert.deepEqual(
    a.states.map((s) => s.source),
    ['server', 'client', 'server'],
  );
});

test('calls methods and hears why one failed', async (t) => {
  const client = connect(t, { name: 'rpc' });
  await within(client.ready, 'ready');
  const customers = await client.call('getAllCustomers', []);
  assert.deepEqual(
    customers.map((c) => c.name),
    ['Alice Chen', 'Bob Martinez', 'Carol Johnson', 'Dave Kim', 'Eve Williams', 'Frank Brown', 'Grace Lee', 'Hank Davis'],
  );
  assert.equal((await client.stub.getAllCustomers()).length, 8);
  await assert.rejects(client.call('nosuch', []), { message: 'Method nosuch does not exist' });
  await assert.rejects(client.call('_executeCode', ['1']), { message: 'Method _executeCode is not callable' });
  await assert.rejects(client.call('getAllCustomers', [1, 2]), /argument|parameter/i);
  const many = await Promise.all(Array.from({ length: 100 }, () => client.call('getAllCustomers', [])));
  assert.ok(many.every((rows) => rows.length === 8));
});

test('a method that changes rows changes the state of everybody', async (t) => {
  const server = await withAgents(t, {
    counter: {
      agent: {
        facets: {
          db: {
            schema: 'database.sql',
            methods: {
              all: 'SELECT id, note FROM notes ORDER BY id',
              add: { sql: 'INSERT INTO notes (note) VALUES (?)', kind: 'execute' },
            },
          },
        },
        state: { notes: { facet: 'db', method: 'all' }, theme: 'dark' },
        rpc: { add: { facet: 'db', method: 'add' } },
      },
      files: { 'database.sql': 'CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, note TEXT NOT NULL);' },
    },
  });
  const a = connect(t, { port: server.port, agent: 'Counter', name: 'x' });
  const b = connect(t, { port: server.port, agent: 'Counter', name: 'x' });
  await within(Promise.all([a.ready, b.ready]), 'ready');
  await until(() => a.states.length === 1 && b.states.length === 1, 'their states');
  assert.deepEqual(a.states[0].state, { notes: [], theme: 'dark' });
  a.setState({ notes: [], theme: 'light' });
  await until(() => b.states.at(-1).state.theme === 'light', 'the theme');
  const { changes } = await a.call('add', ['buy milk']);
  assert.equal(changes, 1);
  for (const client of [a, b])
    await until(() => client.states.at(-1).state.notes.length === 1, 'the note');
  assert.deepEqual(b.states.at(-1).state, { notes: [{ id: 1, note: 'buy milk' }], theme: 'light' });
  await assert.rejects(a.call('add', [null]), /NOT NULL/);
  await Promise.all(Array.from({ length: 20 }, (_, i) => a.call('add', [`note ${i}`])));
  await until(() => b.states.at(-1).state.notes.length === 21, 'every note, however close together');
  await server.halt();
  const again = await startCay({ dataDir: server.dataDir, args: ['--agents-dir', agentsArg(server)] });
  t.after(() => again.stop());
  const c = connect(t, { port: again.port, agent: 'Counter', name: 'x' });
  await within(c.ready, 'ready');
  await until(() => c.states.length === 1, 'its state');
  assert.deepEqual(c.states[0].state, b.states.at(-1).state, 'it has been kept');
});

const agentsArg = (server) => server.child.spawnargs.at(server.child.spawnargs.indexOf('--agents-dir') + 1);

test('comes again by itself when the server was restarted', async (t) => {
  const first = await startCay({ listen: ['127.0.0.1:0'] });
  const client = connect(t, { port: first.port, name: 'again' });
  await within(client.ready, 'ready');
  client.setState({ customers: [], executions: [], kept: 'yes' });
  await client.call('getAllCustomers', []);
  await first.halt();
  await until(() => client.readyState !== WebSocket.OPEN, 'the close');
  const second = await startCay({ listen: [`127.0.0.1:${first.port}`], dataDir: first.dataDir });
  t.after(async () => {
    await second.stop();
    first.clean();
  });
  await until(() => client.identities.length === 2, 'the second identity');
  await within(client.ready, 'ready');
  await until(() => client.states.at(-1).source === 'server', 'the state');
  assert.equal(client.states.at(-1).state.kept, 'yes');
  assert.equal((await client.call('getAllCustomers', [])).length, 8);
});
