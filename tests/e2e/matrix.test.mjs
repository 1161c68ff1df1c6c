// Every operation of the API description, asked by nobody, by a wrong key, by a key of each scope and
// by a key that does not own what it names. An operation that is not in the table fails the test: who
// adds one says here what it asks for.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { bearer, createKey, request, startCay } from '../lib/cay.mjs';
import { addRun, makeId, withStore } from '../lib/store.mjs';

const run = makeId('run', 1_700_000_000_000);

/**
 * access   public: nobody need say who they are; read, run, admin: the scope that is needed
 * path     parameters filled with a record of the owner
 * owned    true: the record is there for its owner (and admins) and 404 for others; 'alone': not for admins
 * body     sent as JSON
 * statuses what an allowed request gets
 */
const table = {
  'GET /health': { access: 'public', statuses: [200] },
  'GET /openapi.json': { access: 'public', statuses: [200] },
  'GET /metrics': { access: 'read', statuses: [200] },
  'GET /v1/status': { access: 'read', statuses: [200] },
  'POST /v1/session': { access: 'read', statuses: [204] },
  'DELETE /v1/session': { access: 'public', statuses: [204] },
  'GET /v1/runs': { access: 'read', statuses: [200] },
  'GET /v1/runs/{id}': { access: 'read', path: `/v1/runs/${run}`, owned: true, statuses: [200] },
  'POST /v1/run': { access: 'run', body: { code: 'export default () => 1' }, statuses: [200] },
  'GET /v1/workers': { access: 'read', statuses: [200] },
  'GET /v1/workers/{id}': { access: 'read', path: '/v1/workers/owned', owned: 'alone', statuses: [200] },
  'PUT /v1/workers/{id}': { access: 'run', path: '/v1/workers/other', body: { code: 'export default {}' }, statuses: [200] },
  'DELETE /v1/workers/{id}': { access: 'run', path: '/v1/workers/none', statuses: [404] },
  'GET /v1/agents': { access: 'read', statuses: [200] },
  'GET /v1/agents/{agent}/{name}/messages': { access: 'read', path: '/v1/agents/sandbox-agent/a/messages', statuses: [200] },
  'POST /v1/agents/{agent}/{name}/messages': { access: 'run', path: '/v1/agents/sandbox-agent/a/messages', body: {}, statuses: [400] },
  'DELETE /v1/agents/{agent}/{name}/messages': { access: 'run', path: '/v1/agents/sandbox-agent/a/messages', statuses: [204] },
  'DELETE /v1/agents/{agent}/{name}': { access: 'run', path: '/v1/agents/sandbox-agent/none', statuses: [204, 404] },
  'DELETE /v1/agents/{agent}/{name}/turns/{turn}': { access: 'run', path: '/v1/agents/sandbox-agent/a/turns/none', statuses: [204, 404] },
  // Without an upgrade there is nothing at this address.
  'GET /agents/{agent}/{name}': { access: 'run', path: '/agents/sandbox-agent/a', statuses: [404] },
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
  for (const scope of scopes) keys[scope] = await createKey(first.dataDir, { name: scope, scope });
  await first.halt();
  withStore(first.dataDir, (db) => addRun(db, { id: run, owner: keys.owner.id }));
  cay = await startCay({ dataDir: first.dataDir, config: { require_key: true } });
  const put = { method: 'PUT', headers: bearer(keys.owner.text), body: JSON.stringify({ code: 'export default {}' }) };
  assert.equal((await request(cay, '/v1/workers/owned', put)).status, 200);
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
    const at = row.path ?? path;
    assert.doesNotMatch(at, /\{/, `${name}: fill the parameters`);
    const body = row.body && JSON.stringify(row.body);
    const ask = async (headers) => (await request(cay, at, { method, headers, body })).status;
    const isPublic = row.access === 'public';
    const fine = (status, who) => assert.ok(row.statuses.includes(status), `${name} as ${who}: ${status}`);

    if (isPublic) fine(await ask({}), 'nobody');
    else assert.equal(await ask({}), 401, `${name} as nobody`);
    if (isPublic) fine(await ask(bearer('cay_wrong_key')), 'a wrong key');
    else assert.equal(await ask(bearer('cay_wrong_key')), 401, `${name} with a wrong key`);
    assert.equal(await ask({ ...bearer(keys.admin.text), origin: 'http://evil.example' }), 403, `${name} from elsewhere`);
    assert.equal(await ask({ ...bearer(keys.admin.text), host: 'evil.example' }), 421, `${name} at another name`);
    for (const scope of scopes) {
      const status = await ask(bearer(keys[scope].text));
      if (!isPublic && scopes.indexOf(scope) < scopes.indexOf(row.access)) assert.equal(status, 403, `${name} with scope ${scope}`);
      else if (row.owned && (scope !== 'admin' || row.owned === 'alone')) assert.equal(status, 404, `${name} of another key`);
      else fine(status, scope);
    }
    if (row.owned) fine(await ask(bearer(keys.owner.text)), 'its owner');
    // The description says the same about keys.
    const needsNone = spec.security?.length === 0;
    if (needsNone) assert.ok(isPublic, `${name}: described as public`);
  }
});
