// What the tests of this folder share: a raw client that keeps every frame, agents made for one test,
// and a few waits.
import assert from 'node:assert/strict';
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { buildDir, isSanitized, root, slow, startCay as start, until, withCay as start1 } from '../lib/cay.mjs';

export { slow, until };

// JavaScriptCore does not live with AddressSanitizer: a sanitized server gets the usual isolates.
const mixedDir = () => {
  const dir = join(buildDir, 'mixed');
  mkdirSync(dir, { recursive: true });
  const put = (from, name) => {
    const own = join(dir, `${name}.${process.pid}`);
    copyFileSync(join(from, name), own);
    renameSync(own, join(dir, name));
  };
  put(buildDir, 'cay');
  for (const name of ['cay-isolate', 'cay-compile', 'cay-facet', 'cay-spawn']) put(join(root, 'build'), name);
  return dir;
};
const build = isSanitized ? mixedDir() : buildDir;
const options = (given = {}) => {
  const { args = [] } = given;
  const agents = args.includes('--agents-dir') ? [] : ['--agents-dir', join(root, 'agents')];
  // On a busy machine the first program takes its time; that is not what is tested here.
  const limits = { compile_timeout_ms: 60_000, wait_ms: 60_000, ...given.config?.limits };
  return { ...given, build, args: [...args, ...agents], config: { ...given.config, limits } };
};
export const startCay = (given) => start(options(given));
export const withCay = (t, given) => start1(t, options(given));
export const TYPE = 'sandbox-agent';

/** Folders of agents for --agents-dir: {name: {agent, prompt, files: {name: text}, demo}}. */
export function agentsDir(t, agents, { shipped = false } = {}) {
  const dir = mkdtempSync(join(tmpdir(), 'cay-agents-'));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  if (shipped) cpSync(join(root, 'agents'), dir, { recursive: true });
  for (const [name, { agent, prompt, demo, files = {} }] of Object.entries(agents)) {
    mkdirSync(join(dir, name), { recursive: true });
    const put = (file, value) =>
      writeFileSync(join(dir, name, file), typeof value === 'string' ? value : JSON.stringify(value));
    if (agent !== undefined) put('agent.json', agent);
    if (prompt !== undefined) put('prompt.md', prompt);
    if (demo !== undefined) put('demo.json', demo);
    for (const [file, text] of Object.entries(files)) put(file, text);
  }
  return dir;
}

/** A server with agents of the test's own. */
export function withAgents(t, agents, given = {}) {
  const dir = agentsDir(t, agents, given);
  return withCay(t, { ...given, args: [...(given.args ?? []), '--agents-dir', dir] });
}

export const within = (promise, what, ms = 60_000 * slow) => {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took over ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
};

/** A WebSocket that keeps its frames in order. */
export class Raw {
  frames = [];
  texts = [];
  closed = null;

  static async open(server, name, { type = TYPE, headers, query = `_pk=${crypto.randomUUID()}` } = {}) {
    const raw = new Raw();
    const address = `ws://127.0.0.1:${server.port}/agents/${type}/${name}?${query}`;
    raw.ws = new WebSocket(address, headers ? { headers } : undefined);
    raw.ws.addEventListener('message', (event) => {
      raw.texts.push(event.data);
      raw.frames.push(JSON.parse(event.data));
    });
    raw.ws.addEventListener('close', (event) => (raw.closed = { code: event.code, reason: event.reason }));
    await within(
      new Promise((resolve, reject) => {
        raw.ws.addEventListener('open', resolve);
        raw.ws.addEventListener('error', () => reject(new Error('no WebSocket')));
      }),
      'opening',
    );
    return raw;
  }

  /** An open one that has been greeted. */
  static async ready(server, name, options) {
    const raw = await Raw.open(server, name, options);
    await raw.wait((f) => f.type === 'cf_agent_mcp_servers');
    return raw;
  }

  send(frame) {
    this.ws.send(typeof frame === 'string' ? frame : JSON.stringify(frame));
  }

  /** The first frame from `from` on that fits. */
  async wait(fits, { from = 0, what = 'a frame', ms } = {}) {
    return until(
      () => {
        const found = this.frames.slice(from).find(fits);
        if (!found && this.closed) throw new Error(`closed (${this.closed.code}) before ${what} came`);
        return found;
      },
      `${what} (${this.frames.length} frames, the last ${JSON.stringify(this.frames.at(-1))?.slice(0, 300)})`,
      ms,
    );
  }

  chat(id, messages, { trigger = 'submit-message', ...more } = {}) {
    this.send({
      id,
      init: { method: 'POST', body: JSON.stringify({ messages, trigger, ...more }) },
      type: 'cf_agent_use_chat_request',
    });
  }

  /** Sends the messages and waits for the end: the frames of the turn. */
  async turn(id, messages, options) {
    this.chat(id, messages, options);
    await this.done(id, options?.ms);
    return this.of(id);
  }

  done(id, ms) {
    return this.wait((f) => f.type === 'cf_agent_use_chat_response' && f.id === id && f.done, {
      what: `the end of ${id}`,
      ms,
    });
  }

  of(id) {
    return this.frames.filter((f) => f.type === 'cf_agent_use_chat_response' && f.id === id);
  }

  chunks(id) {
    return this.of(id).flatMap((f) => (f.body && !f.error ? [JSON.parse(f.body)] : []));
  }

  text(id) {
    return this.chunks(id)
      .filter((c) => c.type === 'text-delta')
      .map((c) => c.delta)
      .join('');
  }

  close() {
    this.ws.close();
  }
}

/** A message's metadata without what its turn took, which is checked here. */
export function checkAccount({ run, model, tokens, cost_usd: cost, ms, at, ...rest }) {
  assert.match(run, /^run_[0-9a-z]{26}$/);
  assert.equal(typeof model, 'string');
  for (const n of [tokens.input, tokens.output, cost, ms]) assert.ok(Number.isFinite(n) && n >= 0, String(n));
  assert.ok(Math.abs(Date.now() - Date.parse(at)) < 600_000, at);
  return rest;
}

export const user = (id, text) => ({ id, role: 'user', parts: [{ type: 'text', text }] });

export const chunksOf = (text) =>
  text
    .split('\n\n')
    .filter((line) => line.startsWith('data: '))
    .map((line) => line.slice(6));
