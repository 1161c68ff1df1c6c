// What takes a while can be followed from any event on, and be cancelled, by whoever may see it.
import assert from 'node:assert/strict';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { bearer, createKey, request, sleep, startCay, until, withCay } from '../lib/cay.mjs';

/** Follows a run: {events, ended, stop()}. */
function follow(cay, id, { headers = {}, query = '' } = {}) {
  const seen = { events: [], status: 0 };
  const req = httpRequest({ port: cay.port, host: '127.0.0.1', path: `/v1/runs/${id}/events${query}`, headers });
  seen.ended = new Promise((resolve, reject) => {
    req.on('error', reject);
    req.on('response', (res) => {
      let text = '';
      seen.status = res.statusCode;
      res.setEncoding('utf8').on('data', (d) => {
        text += d;
        for (let at; (at = text.indexOf('\n\n')) >= 0; text = text.slice(at + 2)) {
          if (text.startsWith(':')) continue; // a comment
          const fields = Object.fromEntries(text.slice(0, at).split('\n').map((l) => [l.slice(0, l.indexOf(':')), l.slice(l.indexOf(':') + 2)]));
          seen.events.push({ id: fields.id && Number(fields.id), type: fields.event, data: JSON.parse(fields.data) });
        }
      });
      res.on('end', resolve).on('error', resolve);
    });
  });
  seen.ended.catch(() => {});
  seen.stop = () => req.destroy();
  req.end();
  return seen;
}

describe('jobs', () => {
  let cay;
  before(async () => {
    cay = await startCay({ config: { require_key: true } });
  });
  after(() => cay.stop());

  const key = () => bearer(cay.key);
  const start = (code) => request(cay, '/v1/run', { method: 'POST', headers: key(), body: JSON.stringify({ code }) });
  const running = () =>
    until(async () => (await request(cay, '/v1/runs?limit=1', { headers: key() })).json().runs.find((r) => r.status === 'running')?.id, 'the run');
  const ticks = 'export default async () => { for (let i = 0; i < 100; i++) { console.log("tick", i); await new Promise((r) => setTimeout(r, 30)); } }';

  test('a run is followed while it runs, left, and followed from there on', async () => {
    const done = start(ticks);
    const id = await running();
    const first = follow(cay, id, { headers: key() });
    await until(() => first.events.length >= 3, 'events');
    first.stop();
    const last = first.events.at(-1).id;
    const second = follow(cay, id, { headers: { ...key(), 'Last-Event-ID': String(last) } });
    await until(() => second.events.length >= 3, 'more events');
    assert.deepEqual(second.events.slice(0, 3).map((e) => e.id), [last + 1, last + 2, last + 3]);
    assert.equal(second.events[0].data.message, `tick ${last}`);
    const { status } = await request(cay, `/v1/runs/${id}/cancel`, { method: 'POST', headers: key() });
    assert.equal(status, 202);
    await second.ended;
    assert.equal(second.events.at(-1).type, 'end');
    assert.equal(second.events.at(-1).data.status, 'cancelled');
    assert.equal((await request(cay, `/v1/runs/${id}`, { headers: key() })).json().error.code, 'cancelled');
    assert.equal((await done).json().status, 'cancelled', 'whoever waits for it is told');
    assert.equal((await request(cay, `/v1/runs/${id}/cancel`, { method: 'POST', headers: key() })).status, 409);
  });

  test('a job of another key is not there', async () => {
    const other = bearer((await createKey(cay.dataDir, { name: 'other' })).text);
    const done = start(ticks);
    const id = await running();
    assert.equal((await request(cay, `/v1/runs/${id}/events`, { headers: other })).status, 404);
    assert.equal((await request(cay, `/v1/runs/${id}/cancel`, { method: 'POST', headers: other })).status, 404);
    assert.equal((await request(cay, `/v1/runs/${id}/events?after=x`, { headers: key() })).status, 400);
    assert.equal((await request(cay, `/v1/runs/${id}/cancel`, { method: 'POST', headers: key() })).status, 202);
    await done;
  });

  test('one that has ended says so at once; one that does not read misses nothing', async () => {
    const { id } = (await start('export default () => { console.log("x") }')).json();
    const seen = follow(cay, id, { headers: key() });
    await seen.ended;
    assert.equal(seen.events.at(-1).data.status, 'done');
    const many = start('export default async () => { for (let i = 0; i < 2000; i++) { console.log(i, "y".repeat(90)); if (i % 50 === 0) await new Promise((r) => setTimeout(r, 30)); } }');
    const slowOne = follow(cay, await running(), { headers: key() });
    await sleep(50);
    await many;
    await slowOne.ended;
    const logs = slowOne.events.filter((e) => e.type === 'log');
    assert.deepEqual(logs.map((e) => e.id), logs.map((_, i) => i + 1));
    assert.ok(logs.length > 1500, String(logs.length));
  });
});

test('a run is cancelled by who resets its connection, not by who shuts his side of it', async (t) => {
  const cay = await withCay(t);
  const runs = async () => (await request(cay, '/v1/runs')).json().runs;
  for (const [i, [leave, status, ms]] of [['end', 'done', 1000], ['destroy', 'done', 1000], ['resetAndDestroy', 'cancelled', 25_000]].entries()) {
    const body = JSON.stringify({ code: `export default () => new Promise((done) => setTimeout(() => done(7), ${ms}))` });
    const socket = connect(cay.port, '127.0.0.1').on('error', () => {});
    let text = '';
    socket.on('data', (data) => (text += data));
    socket.write(`POST /v1/run HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    await until(async () => (await runs()).length === i + 1, 'the run');
    socket[leave]();
    await until(async () => (await runs())[0].status === status, `${leave}: ${status}`);
    if (leave === 'end') await until(() => text.startsWith('HTTP/1.1 200'), 'the answer');
  }
});
