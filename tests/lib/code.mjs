// What the tests of coding jobs share.
import { request as httpRequest } from 'node:http';
import { request, until } from './cay.mjs';

/** POST /v1/code as a stream: {events, ended, stop()}. */
export function code(cay, body, headers = {}, path = '/v1/code') {
  const seen = { events: [], status: 0, text: '' };
  const req = httpRequest({ port: cay.port, host: '127.0.0.1', path, method: 'POST', headers: { Accept: 'text/event-stream', ...headers } });
  seen.ended = new Promise((resolve, reject) => {
    req.on('error', reject);
    req.on('response', (res) => {
      seen.status = res.statusCode;
      res.setEncoding('utf8').on('data', (d) => {
        seen.text += d;
        for (let at; (at = seen.text.indexOf('\n\n')) >= 0; seen.text = seen.text.slice(at + 2)) {
          if (seen.text.startsWith(':')) continue; // a comment: nothing happens
          const fields = Object.fromEntries(seen.text.slice(0, at).split('\n').map((l) => [l.slice(0, l.indexOf(':')), l.slice(l.indexOf(':') + 2)]));
          seen.events.push({ id: fields.id && (Number(fields.id) || fields.id), type: fields.event, data: JSON.parse(fields.data) });
        }
      });
      res.on('end', resolve).on('error', resolve);
    });
  });
  seen.ended.catch(() => {});
  seen.stop = () => req.destroy();
  seen.of = (type) => seen.events.filter((e) => e.type === type).map((e) => e.data);
  req.end(JSON.stringify(body));
  return seen;
}

/** The run that comes of POST /v1/code, when it has ended. */
export async function runCode(cay, body, headers = {}) {
  const got = await request(cay, '/v1/code', { method: 'POST', body: JSON.stringify(body), headers });
  if (got.status !== 200) throw new Error(`${got.status} ${got.body}`);
  return got.json();
}

const living = async (cay, headers) =>
  (await request(cay, '/v1/sandboxes', { headers })).json().sandboxes.filter((s) => s.status === 'running' || s.status === 'starting');

/** Waits until no sandbox is left. */
export const nothingLeft = (cay, headers = {}) => until(async () => (await living(cay, headers)).length === 0, 'no sandbox');
