// Sandboxes of a running server, as a client sees them.
import assert from 'node:assert/strict';
import { readdirSync, readlinkSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { bearer, procText, request } from './cay.mjs';

const auth = (key) => (key ? bearer(key.text ?? key) : {});

/** One request with JSON in and out: {status, json} (json null if there is no body). */
export async function call(cay, method, path, body, key) {
  const answer = await request(cay, path, {
    method,
    headers: auth(key),
    body: body === undefined || typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body),
  });
  let json = null;
  try {
    json = answer.json();
  } catch {
    // raw bytes, or nothing
  }
  return { status: answer.status, json, raw: answer.raw, headers: answer.headers };
}

/** The first processes of a server's sandboxes: the ones below it in pid namespaces of their own. Needs root. */
export function initsOf(cay) {
  const own = readlinkSync('/proc/self/ns/pid');
  const isBelow = (pid) => pid > 1 && (pid === cay.pid || isBelow(Number(/^PPid:\t(\d+)$/m.exec(procText(pid, 'status'))?.[1] ?? 0)));
  const isInit = (pid) => {
    try {
      return /^NSpid:.*\t1$/m.test(procText(pid, 'status')) && readlinkSync(`/proc/${pid}/ns/pid`) !== own && isBelow(pid);
    } catch {
      return false; // gone
    }
  };
  return readdirSync('/proc').filter((pid) => /^\d+$/.test(pid)).map(Number).filter(isInit);
}

/** A sandbox, or a failure of the test. */
export async function make(cay, body = {}, key) {
  const { status, json, raw } = await call(cay, 'POST', '/v1/sandboxes', body, key);
  assert.equal(status, 201, raw.toString());
  const at = `/v1/sandboxes/${json.id}`;
  const box = {
    ...json,
    at,
    call: (method, path, payload) => call(cay, method, at + path, payload, key),
    get: async () => (await call(cay, 'GET', at, undefined, key)).json,
    /** Runs a command to its end. */
    async run(command, more = {}) {
      const what = Array.isArray(command) ? { argv: command } : { command };
      const answer = await call(cay, 'POST', `${at}/exec`, { ...what, ...more }, key);
      assert.equal(answer.status, more.background ? 202 : 200, answer.raw.toString());
      return answer.json;
    },
    end: async () => assert.equal((await call(cay, 'DELETE', at, undefined, key)).status, 204),
  };
  return box;
}

/**
 * Server-sent events: calls on(event, data) for each; resolves at the end of the stream. `stop`
 * breaks the connection off when on() returns it.
 */
export function events(cay, method, path, { body, key, on = () => {} } = {}) {
  const stop = Symbol('stop');
  return new Promise((resolve, reject) => {
    const seen = [];
    const req = httpRequest({
      host: '127.0.0.1',
      port: cay.port,
      path,
      method,
      agent: false,
      headers: { Accept: 'text/event-stream', ...auth(key) },
    });
    req.once('error', reject);
    req.once('response', (res) => {
      if (res.statusCode !== 200) {
        res.resume();
        reject(Object.assign(new Error(`status ${res.statusCode}`), { status: res.statusCode }));
        return;
      }
      let text = '';
      res.setEncoding('utf8');
      res.on('error', () => resolve(seen));
      res.on('data', (chunk) => {
        text += chunk;
        for (let at; (at = text.indexOf('\n\n')) >= 0; text = text.slice(at + 2)) {
          const lines = text.slice(0, at).split('\n');
          if (lines.every((l) => l.startsWith(':'))) continue; // a comment: nothing happens
          const event = lines.find((l) => l.startsWith('event: '))?.slice(7);
          const data = JSON.parse(lines.filter((l) => l.startsWith('data: ')).map((l) => l.slice(6)).join('\n'));
          seen.push({ event, data });
          if (on(event, data, stop) === stop) {
            req.destroy();
            resolve(seen);
            return;
          }
        }
      });
      res.once('end', () => resolve(seen));
      res.once('close', () => resolve(seen));
    });
    req.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

export const bytesOf = (data) => (data.data_base64 === undefined ? Buffer.from(data.data) : Buffer.from(data.data_base64, 'base64'));
