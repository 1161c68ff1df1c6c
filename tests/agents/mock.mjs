// aimock behind a tap that keeps every request as it was sent.
import { createServer, request as forward } from 'node:http';
import { LLMock } from '@copilotkit/aimock';

import { agentsDir, withCay } from './support.mjs';

export const PROVIDERS = ['anthropic', 'openai'];

export async function withMock(t) {
  const mock = new LLMock({ port: 0, logLevel: 'silent' });
  await mock.start();
  const requests = [];
  const tap = createServer((req, res) => {
    const chunks = [];
    req.on('data', (chunk) => chunks.push(chunk));
    req.on('end', () => {
      const body = Buffer.concat(chunks);
      requests.push({ path: req.url, headers: req.headers, body: body.length ? JSON.parse(body) : null });
      const { hostname, port } = new URL(mock.url);
      const on = forward({ hostname, port, path: req.url, method: req.method, headers: req.headers }, (answer) => {
        res.writeHead(answer.statusCode, answer.headers);
        answer.pipe(res);
        answer.once('aborted', () => res.destroy());
      });
      on.once('error', () => res.destroy());
      res.once('close', () => on.destroy());
      on.end(body);
    });
  });
  await new Promise((resolve) => tap.listen(0, '127.0.0.1', resolve));
  t.after(async () => {
    tap.closeAllConnections();
    tap.close();
    await mock.stop();
  });
  return { mock, requests, url: `http://127.0.0.1:${tap.address().port}` };
}

export const environment = (provider, url) =>
  provider === 'anthropic'
    ? { ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: 'sk-test-anthropic' }
    : { OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: 'sk-test-openai' };

/** A server whose model is the mock: the shipped agents, and what the test adds. */
export async function withModel(t, provider, { agents, ...options } = {}) {
  const tapped = await withMock(t);
  const args = agents ? ['--agents-dir', agentsDir(t, agents, { shipped: true })] : [];
  const cay = await withCay(t, { args, env: environment(provider, tapped.url), ...options });
  return { ...tapped, cay };
}

/** The tool results of a request, whatever the provider calls them. */
export const toolResults = (body) =>
  body.messages.flatMap((m) =>
    m.role === 'tool'
      ? [{ id: m.tool_call_id, content: m.content }]
      : Array.isArray(m.content)
        ? m.content
            .filter((c) => c.type === 'tool_result')
            .map((c) => ({
              id: c.tool_use_id,
              content: typeof c.content === 'string' ? c.content : c.content.map((p) => p.text).join(''),
              error: c.is_error,
            }))
        : [],
  );
