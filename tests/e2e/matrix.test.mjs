// Every operation of the API description, asked by nobody, by a wrong key, by a key of each scope of the project that owns
// what is named, by those of another project, and by an admin of the server. An operation that is not in the table fails the test: who
// adds one says here what it asks for.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { bearer, createKey, request, startCay } from '../lib/cay.mjs';
import { addRecord, addRun, addTask, makeId, withLedger, withStore } from '../lib/store.mjs';

const run = makeId('run', Date.now());
const task = makeId('task', 1_700_000_000_000);
const sandbox = makeId('sbx', 1_700_000_000_000);
const execId = makeId('exec', 1_700_000_000_000);
const snapshot = makeId('snp', 1_700_000_000_000);
const box = `/v1/sandboxes/${sandbox}`;
const exec = `${box}/execs/${execId}`;

/**
 * access   public: nobody need say who they are; read, run, admin: the scope that is needed; server: an admin of the server
 * path     parameters filled with a record of the owner
 * owned    true: the record is there for its project (and admins of the server) and 404 for others; 'alone': not for admins
 * body     sent as JSON
 * statuses what an allowed request gets
 */
const table = {
  'GET /health': { access: 'public', statuses: [200] },
  'GET /ready': { access: 'public', statuses: [200] },
  'GET /openapi.json': { access: 'public', statuses: [200] },
  'GET /metrics': { access: 'server', statuses: [200] },
  'GET /v1/status': { access: 'read', statuses: [200] },
  'POST /v1/session': { access: 'read', statuses: [204] },
  'POST /v1/config/reload': { access: 'server', statuses: [200] },
  'DELETE /v1/session': { access: 'public', statuses: [204] },
  'GET /v1/runs': { access: 'read', statuses: [200] },
  'GET /v1/runs/{id}/events': { access: 'read', path: `/v1/runs/${run}/events`, owned: true, statuses: [200] },
  'GET /v1/runs/{id}/artifacts': { access: 'read', path: `/v1/runs/${run}/artifacts`, owned: true, statuses: [200] },
  'GET /v1/runs/{id}/artifacts/{name}': { access: 'read', path: `/v1/runs/${run}/artifacts/none`, owned: true, statuses: [404] },
  'POST /v1/runs/{id}/cancel': { access: 'run', path: `/v1/runs/${run}/cancel`, owned: true, statuses: [409] },
  'POST /execute/sdk': { access: 'run', body: { prompt: '' }, statuses: [400] },
  'POST /execute': { access: 'run', body: { task: '' }, statuses: [400] },
  'GET /v1/code/agents': { access: 'read', statuses: [200] },
  'POST /v1/code': { access: 'run', body: { spec: '' }, statuses: [400] },
  'GET /v1/runs/{id}': { access: 'read', path: `/v1/runs/${run}`, owned: true, statuses: [200] },
  'POST /v1/run': { access: 'run', body: { code: 'export default () => 1' }, statuses: [200] },
  'GET /v1/tasks': { access: 'read', statuses: [200] },
  'POST /v1/tasks': { access: 'run', body: { type: 'none', input: {} }, statuses: [400] },
  'GET /v1/tasks/{id}': { access: 'read', path: `/v1/tasks/${task}`, owned: true, statuses: [200] },
  'GET /v1/tasks/{id}/events': { access: 'read', path: `/v1/tasks/${task}/events`, owned: true, statuses: [200] },
  'POST /v1/tasks/{id}/cancel': { access: 'run', path: `/v1/tasks/${task}/cancel`, owned: true, statuses: [409] },
  'GET /v1/usage': { access: 'read', statuses: [200] },
  'GET /v1/keys': { access: 'admin', statuses: [200] },
  'POST /v1/keys': { access: 'admin', body: { name: '' }, statuses: [400] },
  'DELETE /v1/keys/{id}': { access: 'admin', path: '/v1/keys/key_none', statuses: [404] },
  'PATCH /v1/keys/{id}': { access: 'admin', path: () => `/v1/keys/${keys.owner.id}`, owned: true, body: { name: 'owner' }, statuses: [200] },
  'POST /v1/keys/{id}/rotate': { access: 'admin', path: '/v1/keys/key_none/rotate', body: {}, statuses: [404] },
  'GET /v1/projects': { access: 'server', statuses: [200] },
  'POST /v1/projects': { access: 'server', body: { name: '' }, statuses: [400] },
  'GET /v1/projects/{id}': { access: 'admin', path: () => `/v1/projects/${keys.owner.project}`, owned: true, statuses: [200] },
  'PATCH /v1/projects/{id}': { access: 'server', path: () => `/v1/projects/${keys.owner.project}`, body: {}, statuses: [200] },
  'GET /v1/workers': { access: 'read', statuses: [200] },
  'GET /v1/workers/{id}': { access: 'read', path: '/v1/workers/owned', owned: 'alone', statuses: [200] },
  'PUT /v1/workers/{id}': { access: 'run', path: '/v1/workers/other', body: { code: 'export default {}' }, statuses: [200] },
  'DELETE /v1/workers/{id}': { access: 'run', path: '/v1/workers/none', statuses: [404] },
  'GET /v1/facets': { access: 'read', statuses: [200] },
  'GET /v1/facets/{name}': { access: 'read', path: '/v1/facets/owned', owned: 'alone', statuses: [200] },
  'PUT /v1/facets/{name}': { access: 'run', path: '/v1/facets/other', statuses: [200, 201] },
  'DELETE /v1/facets/{name}': { access: 'run', path: '/v1/facets/none', statuses: [404] },
  'POST /v1/facets/{name}/query': { access: 'run', path: '/v1/facets/owned/query', owned: 'alone', body: { sql: 'SELECT 1' }, statuses: [200] },
  'POST /v1/facets/{name}/copy': { access: 'run', path: '/v1/facets/owned/copy', owned: 'alone', body: { to: 'owned' }, statuses: [409] },
  'GET /v1/facets/{name}/export': { access: 'read', path: '/v1/facets/owned/export', owned: 'alone', statuses: [200] },
  'PUT /v1/facets/{name}/import': { access: 'run', path: '/v1/facets/other/import', statuses: [400] },
  'GET /v1/agents': { access: 'read', statuses: [200] },
  'GET /v1/models': { access: 'read', statuses: [200] },
  'GET /v1/agents/{agent}/{name}/messages/{chat}/stream': { access: 'read', path: '/v1/agents/sandbox-agent/a/messages/any/stream', statuses: [204] },
  'GET /v1/agents/{agent}/{name}/messages': { access: 'read', path: '/v1/agents/sandbox-agent/a/messages', statuses: [200] },
  'POST /v1/agents/{agent}/{name}/messages': { access: 'run', path: '/v1/agents/sandbox-agent/a/messages', body: {}, statuses: [400] },
  'DELETE /v1/agents/{agent}/{name}/messages': { access: 'run', path: '/v1/agents/sandbox-agent/a/messages', statuses: [204] },
  'DELETE /v1/agents/{agent}/{name}': { access: 'run', path: '/v1/agents/sandbox-agent/none', statuses: [204, 404] },
  'POST /v1/agents/{agent}/{name}/reset': { access: 'run', path: '/v1/agents/sandbox-agent/none/reset', statuses: [204, 404] },
  'POST /v1/agents/{agent}/{name}/rename': { access: 'run', path: '/v1/agents/sandbox-agent/none/rename', body: { name: 'other' }, statuses: [404] },
  'DELETE /v1/agents/{agent}/{name}/turns/{turn}': { access: 'run', path: '/v1/agents/sandbox-agent/a/turns/none', statuses: [204, 404] },
  // Without an upgrade there is nothing at this address.
  'GET /agents/{agent}/{name}': { access: 'run', path: '/agents/sandbox-agent/a', statuses: [404] },
  // A sandbox that has ended, and a command in it: what needs a living one answers 409.
  'GET /v1/sandboxes': { access: 'read', statuses: [200] },
  'POST /v1/sandboxes': { access: 'run', body: { name: 5 }, statuses: [400] },
  'GET /v1/sandboxes/{id}': { access: 'read', path: box, owned: true, statuses: [200] },
  'DELETE /v1/sandboxes/{id}': { access: 'run', path: '/v1/sandboxes/sbx_none', statuses: [404] },
  'POST /v1/sandboxes/{id}/ports/{port}/pass': { access: 'run', path: `${box}/ports/80/pass`, owned: true, statuses: [409] },
  'POST /v1/sandboxes/{id}/extend': { access: 'run', path: `${box}/extend`, owned: true, statuses: [409] },
  'POST /v1/sandboxes/{id}/pause': { access: 'run', path: `${box}/pause`, owned: true, statuses: [409] },
  'POST /v1/sandboxes/{id}/resume': { access: 'run', path: `${box}/resume`, owned: true, statuses: [409] },
  'PUT /v1/sandboxes/{id}/network': { access: 'run', path: `${box}/network`, owned: true, body: {}, statuses: [409] },
  'GET /v1/sandboxes/{id}/network/events': { access: 'read', path: `${box}/network/events`, owned: true, statuses: [200] },
  'POST /v1/sandboxes/{id}/exec': { access: 'run', path: `${box}/exec`, owned: true, body: { command: 'true' }, statuses: [409] },
  'GET /v1/sandboxes/{id}/execs': { access: 'read', path: `${box}/execs`, owned: true, statuses: [200] },
  'GET /v1/sandboxes/{id}/execs/{exec}': { access: 'read', path: exec, owned: true, statuses: [200] },
  'GET /v1/sandboxes/{id}/execs/{exec}/output': { access: 'read', path: `${exec}/output`, owned: true, statuses: [200] },
  'GET /v1/sandboxes/{id}/execs/{exec}/stdout': { access: 'read', path: `${exec}/stdout`, owned: true, statuses: [200] },
  'GET /v1/sandboxes/{id}/execs/{exec}/stderr': { access: 'read', path: `${exec}/stderr`, owned: true, statuses: [200] },
  'POST /v1/sandboxes/{id}/execs/{exec}/stdin': { access: 'run', path: `${exec}/stdin`, owned: true, statuses: [409] },
  'POST /v1/sandboxes/{id}/execs/{exec}/signal': { access: 'run', path: `${exec}/signal`, owned: true, body: { signal: 9 }, statuses: [409] },
  'POST /v1/sandboxes/{id}/execs/{exec}/resize': { access: 'run', path: `${exec}/resize`, owned: true, body: { cols: 9, rows: 9 }, statuses: [409] },
  'GET /v1/sandboxes/{id}/execs/{exec}/tty': { access: 'run', path: `${exec}/tty`, owned: true, statuses: [409] },
  'GET /v1/sandboxes/{id}/files': { access: 'read', path: `${box}/files?path=/work`, owned: true, statuses: [409] },
  'PUT /v1/sandboxes/{id}/files': { access: 'run', path: `${box}/files?path=/work/x`, owned: true, statuses: [409] },
  'DELETE /v1/sandboxes/{id}/files': { access: 'run', path: `${box}/files?path=/work/x`, owned: true, statuses: [409] },
  'GET /v1/sandboxes/{id}/files/stat': { access: 'read', path: `${box}/files/stat?path=/work`, owned: true, statuses: [409] },
  'GET /v1/sandboxes/{id}/files/list': { access: 'read', path: `${box}/files/list?path=/work`, owned: true, statuses: [409] },
  'POST /v1/sandboxes/{id}/files/mkdir': { access: 'run', path: `${box}/files/mkdir`, owned: true, body: { path: '/work/x' }, statuses: [409] },
  'POST /v1/sandboxes/{id}/files/move': { access: 'run', path: `${box}/files/move`, owned: true, body: { from: 'a', to: 'b' }, statuses: [409] },
  'GET /v1/sandboxes/{id}/tar': { access: 'read', path: `${box}/tar?path=/work`, owned: true, statuses: [409] },
  'PUT /v1/sandboxes/{id}/tar': { access: 'run', path: `${box}/tar?path=/work`, owned: true, statuses: [409] },
  'POST /v1/sandboxes/{id}/snapshots': { access: 'run', path: `${box}/snapshots`, owned: true, statuses: [409] },
  'GET /v1/snapshots': { access: 'read', statuses: [200] },
  'GET /v1/snapshots/{id}': { access: 'read', path: `/v1/snapshots/${snapshot}`, owned: true, statuses: [200] },
  'DELETE /v1/snapshots/{id}': { access: 'run', path: '/v1/snapshots/snp_none', statuses: [404] },
  'GET /agents/{agent}/{name}/get-messages': { access: 'read', path: '/agents/sandbox-agent/a/get-messages', statuses: [200] },
};

const scopes = ['read', 'run', 'admin'];
let first;
let cay;
let operations;
const keys = {};

before(async () => {
  first = await startCay();
  keys.owner = await createKey(first.dataDir, { name: 'owner' });
  const other = await createKey(first.dataDir, { name: 'other' });
  for (const scope of scopes) {
    keys[`mate ${scope}`] = await createKey(first.dataDir, { name: scope, scope, project: keys.owner.project });
    keys[`other ${scope}`] = await createKey(first.dataDir, { name: scope, scope, project: other.project });
  }
  keys.root = await createKey(first.dataDir, { name: 'root', scope: 'admin' });
  await first.halt();
  withStore(first.dataDir, (db) => {
    addRun(db, { id: run, owner: keys.owner.project });
    const now = Date.now();
    addRecord(db, { kind: 'sandbox', id: sandbox, owner: keys.owner.project, created_ms: now, ended_ms: now });
    addRecord(db, { kind: 'exec', id: execId, parent: sandbox, owner: keys.owner.project, status: 'exited', created_ms: now, ended_ms: now });
    addRecord(db, { kind: 'snapshot', id: snapshot, owner: keys.owner.project, created_ms: now, ended_ms: now });
  });
  withLedger(first.dataDir, (db) => addTask(db, { id: task, owner: keys.owner.project }));
  cay = await startCay({ dataDir: first.dataDir, config: { require_key: true } });
  const put = { method: 'PUT', headers: bearer(keys.owner.text), body: JSON.stringify({ code: 'export default {}' }) };
  assert.equal((await request(cay, '/v1/workers/owned', put)).status, 200);
  assert.equal((await request(cay, '/v1/facets/owned', { method: 'PUT', headers: bearer(keys.owner.text) })).status, 201);
  const { paths } = (await request(cay, '/openapi.json')).json();
  operations = Object.entries(paths).flatMap(([path, item]) =>
    Object.keys(item)
      .filter((method) => ['get', 'put', 'post', 'delete', 'patch'].includes(method))
      .map((method) => ({ name: `${method.toUpperCase()} ${path}`, method: method.toUpperCase(), path, spec: item[method] })),
  );
});
after(async () => {
  await cay.stop();
  first.clean();
});

test('the table and the description name the same operations', () => {
  assert.deepEqual(operations.map((o) => o.name).sort(), Object.keys(table).sort());
});

test('every operation, asked by everybody', async () => {
  for (const { name, method, path, spec } of operations) {
    const row = table[name];
    if (!row) continue; // the test above names it
    const at = typeof row.path === 'function' ? row.path() : (row.path ?? path);
    assert.doesNotMatch(at, /\{/, `${name}: fill the parameters`);
    const body = row.body && JSON.stringify(row.body);
    const ask = async (headers) => (await request(cay, at, { method, headers, body })).status;
    const isPublic = row.access === 'public';
    const fine = (status, who) => assert.ok(row.statuses.includes(status), `${name} as ${who}: ${status}`);

    if (isPublic) fine(await ask({}), 'nobody');
    else assert.equal(await ask({}), 401, `${name} as nobody`);
    if (isPublic) fine(await ask(bearer('cay_wrong_key')), 'a wrong key');
    else assert.equal(await ask(bearer('cay_wrong_key')), 401, `${name} with a wrong key`);
    assert.equal(await ask({ ...bearer(keys.root.text), origin: 'http://evil.example' }), 403, `${name} from elsewhere`);
    assert.equal(await ask({ ...bearer(keys.root.text), host: 'evil.example' }), 421, `${name} at another name`);
    for (const [who, key] of Object.entries(keys)) {
      const [whose, scope = 'run'] = who.split(' ');
      const status = await ask(bearer(key.text));
      const may = whose === 'root' || (row.access !== 'server' && scopes.indexOf(scope) >= scopes.indexOf(row.access));
      if (!isPublic && !may) assert.equal(status, 403, `${name} as ${who}`);
      else if (row.owned && (whose === 'other' || (whose === 'root' && row.owned === 'alone'))) assert.equal(status, 404, `${name} as ${who}`);
      else fine(status, who);
    }
    // The description says the same about keys.
    const needsNone = spec.security?.length === 0;
    if (needsNone) assert.ok(isPublic, `${name}: described as public`);
  }
});
