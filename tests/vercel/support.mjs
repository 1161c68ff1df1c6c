// A server, and the unmodified SDK that talks to it: the preload that ships is loaded into this process, as
// `node --import` would, and the environment is what `cay vercel env` prints.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { buildDir, runCay, startCay } from '../lib/cay.mjs';

export const parse = (text) => Object.fromEntries([...text.matchAll(/^(\w+)="(.*)"$/gm)].map(([, name, value]) => [name, value]));

/** What `cay vercel env` prints for a server. */
export async function vercelEnv(cay, key) {
  const done = await runCay(['vercel', 'env', '--url', cay.url], { env: key ? { CAY_API_KEY: key } : {} });
  assert.equal(done.code, 0, done.stderr);
  return parse(done.stdout);
}

/** Starts a server and points the SDK of this process to it; a file has one of it. */
export async function startVercel(options) {
  const cay = await startCay(options);
  const env = await vercelEnv(cay, cay.key);
  const { NODE_OPTIONS, ...rest } = env;
  Object.assign(process.env, rest, { VERCEL_TELEMETRY_DISABLED: '1' });
  assert.equal(NODE_OPTIONS, `--import=${join(buildDir, 'cay-vercel.mjs')}`);
  await import(join(buildDir, 'cay-vercel.mjs'));
  return { cay, env };
}

/** Runs a program that was written for Vercel, with the environment and nothing else changed. */
export async function runProgram(file, env) {
  const { stdout } = await promisify(execFile)(process.execPath, [file], {
    env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env },
    cwd: import.meta.dirname,
    timeout: 60_000,
  });
  return stdout;
}

/** Everything of a stream, as text. */
export async function textOf(stream) {
  let text = '';
  for await (const piece of stream) text += piece;
  return text;
}
