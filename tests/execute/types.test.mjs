// Types: what is answered is what the Agent SDK publishes, and the description of the API makes a client that fits.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { request, slow, withCay } from '../lib/cay.mjs';
import { say, scripted, tool } from '../lib/model.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const run = promisify(execFile);
const tool_ = (name) => join(here, 'node_modules', name);

/** Checks the files with `tsc --strict`; what it finds, as text. */
async function check(t, files) {
  const dir = mkdtempSync(join(here, 'node_modules', '.check-')); // so that packages are found
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(dir, name), text);
  const args = [tool_('typescript/lib/tsc.js'), '--strict', '--noEmit', '--skipLibCheck', '--module', 'nodenext', '--moduleResolution', 'nodenext', '--target', 'es2023'];
  const { stdout, code } = await run(process.execPath, [...args, ...Object.keys(files).filter((n) => !n.endsWith('.d.ts')).map((n) => join(dir, n))], { maxBuffer: 8 << 20 }).then(
    (r) => ({ ...r, code: 0 }),
    (e) => e,
  );
  return code === 0 ? '' : stdout;
}

const post = async (cay, body) => (await request(cay, '/execute/sdk', { method: 'POST', body: JSON.stringify(body) })).json();

/** Answers of every kind. */
async function record(t) {
  const site = createServer((req, res) => res.writeHead(200, { 'content-type': 'text/html' }).end('<h1>Hello</h1>'));
  await new Promise((resolve) => site.listen(0, '127.0.0.1', resolve));
  t.after(() => site.close());
  const authority = `127.0.0.1:${site.address().port}`;
  const todos = [{ content: 'a', status: 'pending', activeForm: 'doing a' }];
  const model = await scripted(t, [
    { blocks: [{ type: 'thinking', thinking: 'hm', signature: 'sig' }, { type: 'text', text: 'I will.' }, ...tool('t1', 'TodoWrite', { todos }).blocks, ...tool('t2', 'WebFetch', { url: `http://${authority}/`, prompt: 'What?' }).blocks] },
    say('Hello it says.'),
    tool('t3', 'WebSearch', { query: 'q' }),
    { blocks: [{ type: 'web_search_tool_result', tool_use_id: 's1', content: [{ type: 'web_search_result', url: 'https://e.example/', title: 'E' }] }, { type: 'text', text: 'found' }] },
    tool('t4', 'NoSuchTool', {}),
    { ...say('Done.'), stop: 'max_tokens' },
    tool('t5', 'TodoWrite', { todos: [] }),
    { status: 400, error: 'no' },
    { ...say('x'), usage: { input_tokens: 10_000_000, output_tokens: 1 } },
  ]);
  const cay = await withCay(t, { env: model.env, config: { sandboxes: { private: [authority], allow: [`tcp://${authority}`] } } });
  const answers = [];
  for (const options of [{}, { max_turns: 1 }, {}, { max_budget_usd: 0.01 }]) answers.push(await post(cay, { prompt: 'x', options }));
  const demo = await withCay(t);
  answers.push(await post(demo, { prompt: 'What is 2 + 2?' }));
  answers.push(await post(demo, { prompt: 'Plan something' }));
  const subtypes = answers.map((a) => a.messages.at(-1)).map((m) => `${m.subtype} ${m.is_error}`);
  assert.deepEqual(subtypes, ['success false', 'error_max_turns true', 'success true', 'error_max_budget_usd true', 'success false', 'success false']);
  return { cay, answers };
}

const NAMES = { system: 'SDKSystemMessage', assistant: 'SDKAssistantMessage', user: 'SDKUserMessage', result: 'SDKResultMessage' };

function recorded(messages) {
  const lines = messages.map((m, i) => `export const m${i}: ${NAMES[m.type]} & SDKMessage = ${JSON.stringify(m)};`);
  const outputs = messages.filter((m) => m.type === 'user' && typeof m.tool_use_result === 'object').map((m, i) => {
    const output = 'newTodos' in m.tool_use_result ? 'TodoWriteOutput' : 'searchCount' in m.tool_use_result ? 'WebSearchOutput' : 'WebFetchOutput';
    return `export const o${i}: ${output} = ${JSON.stringify(m.tool_use_result)};`;
  });
  return [
    `import type { SDKMessage, ${Object.values(NAMES).join(', ')} } from '@anthropic-ai/claude-agent-sdk';`,
    `import type { TodoWriteOutput, WebFetchOutput, WebSearchOutput } from '@anthropic-ai/claude-agent-sdk/sdk-tools.js';`,
    ...lines,
    ...outputs,
  ].join('\n');
}

test('recorded answers are what the Agent SDK publishes; a client made from the description fits', { timeout: 180_000 * slow }, async (t) => {
  const { cay, answers } = await record(t);
  const messages = answers.flatMap((a) => a.messages);
  assert.ok(new Set(messages.map((m) => m.type)).size === 4 && messages.length > 20);
  const dir = mkdtempSync(join(here, 'node_modules', '.openapi-'));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  writeFileSync(join(dir, 'openapi.json'), (await request(cay, '/openapi.json')).raw);
  await run(process.execPath, [tool_('openapi-typescript/bin/cli.js'), join(dir, 'openapi.json'), '-o', join(dir, 'api.d.ts')]);
  const client = (body) => `import createClient from 'openapi-fetch';
import type { paths } from './api.js';
const client = createClient<paths>({ baseUrl: 'http://localhost:8787' });
export async function main(): Promise<string> {
  const { data, error } = await client.POST('/execute/sdk', { body: ${body} });
  if (error || typeof data === 'string') throw new Error(error && 'error' in error ? error.error?.message : 'failed');
  const first: 'system' | 'assistant' | 'user' | 'result' | undefined = data.messages[0]?.type;
  const cost: number | undefined = data.metadata?.total_cost_usd;
  const run = await client.GET('/v1/runs/{id}', { params: { path: { id: data.request_id } } });
  return data.result + first + cost + run.data?.status;
}
`;
  const api = readFileSync(join(dir, 'api.d.ts'), 'utf8');
  const good = `{ prompt: 'x', options: { max_turns: 1, model: 'sonnet', system_prompt: 's', append_system_prompt: 'a', allowed_tools: ['WebFetch', 'RunCode'], max_budget_usd: 0.5 } }`;
  assert.equal(await check(t, { 'recorded.mts': recorded(messages), 'api.d.ts': api, 'client.mts': client(good) }), '');

  const spoilt = structuredClone(messages);
  delete spoilt.find((m) => m.type === 'result').usage.inference_geo;
  const found = await check(t, { 'recorded.mts': recorded(spoilt), 'api.d.ts': api, 'client.mts': client('{ prompt: 5 }') });
  assert.match(found, /recorded\.mts.*inference_geo/s, 'the check can fail');
  assert.match(found, /client\.mts.*not assignable/s);
});
