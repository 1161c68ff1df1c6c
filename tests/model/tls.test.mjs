// Over TLS: certificates are verified, HTTP/2 is used where it is offered.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createSecureServer } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { anthropicAnswer, ask, runCli, sse, stream, textBlock } from './lib.mjs';

const dir = mkdtempSync(join(tmpdir(), 'cay-tls-'));
const versions = [];
let server;
let sessions = 0;

function makeCertificate(name, altName) {
  execFileSync('openssl', [
    'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', '/CN=test',
    '-addext', `subjectAltName=${altName}`, '-keyout', join(dir, `${name}.key`), '-out', join(dir, `${name}.pem`),
  ], { stdio: 'ignore' });
  return { key: readFileSync(join(dir, `${name}.key`)), cert: readFileSync(join(dir, `${name}.pem`)) };
}

async function listen(certificate) {
  const made = createSecureServer({ ...certificate, allowHTTP1: true }, (request, response) => {
    versions.push(request.httpVersion);
    request.resume();
    request.on('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(sse(...anthropicAnswer([textBlock('over ', 'TLS')])));
    });
  });
  made.on('session', () => (sessions += 1));
  made.listen(0, '127.0.0.1');
  await once(made, 'listening');
  return made;
}

const envOf = (made) => ({ ANTHROPIC_API_KEY: 'key-for-tests', ANTHROPIC_BASE_URL: `https://127.0.0.1:${made.address().port}` });
const request = { model: 'haiku', ...ask('x') };

before(async () => {
  server = await listen(makeCertificate('good', 'IP:127.0.0.1'));
});
after(() => {
  server.close();
  rmSync(dir, { recursive: true });
});

test('a trusted certificate, over HTTP/2, many streams on few connections', async () => {
  const options = { ca_file: join(dir, 'good.pem') };
  const one = await stream(request, { env: envOf(server), options });
  assert.equal(one.text, 'over TLS');
  assert.equal(versions.at(-1), '2.0');
  const earlier = sessions;
  const many = await runCli({ request, options, times: 40, parallel: 4, quiet: true }, envOf(server));
  assert.equal(many.events.at(-1).streams, 40);
  assert.equal(many.events.at(-1).failed, 0);
  assert.ok(sessions - earlier <= 4, `${sessions - earlier} connections`);
});

test('an unknown authority is refused and nothing is sent', async () => {
  const count = versions.length;
  const r = await stream(request, { env: envOf(server) });
  assert.equal(r.end.event, 'error');
  assert.equal(r.end.retryable, false);
  assert.match(r.end.message, /certificate/);
  assert.equal(versions.length, count);
});

test('a certificate for another name is refused', async () => {
  const other = await listen(makeCertificate('other', 'DNS:other.example'));
  const count = versions.length;
  const r = await stream(request, { env: envOf(other), options: { ca_file: join(dir, 'other.pem') } });
  other.close();
  assert.equal(r.end.event, 'error');
  assert.match(r.end.message, /certificate/);
  assert.equal(versions.length, count);
});
