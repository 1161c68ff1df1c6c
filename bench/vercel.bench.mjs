// The Vercel wire by the unmodified SDK: create, a command to its end, a file, stop; and the same by cay's own API, which
// shows what the wire and the SDK add.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

import { request } from '../tests/lib/cay.mjs';
import { startVercel } from '../tests/vercel/support.mjs';
import { isMain } from './lib.mjs';

const now = () => performance.now();
const at = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * q))];
const ms = (n) => `${n.toFixed(2)} ms`;
const say = (name, list) => console.log(`  ${name.padEnd(52)} ${ms(at(list, 0.5)).padStart(14)}  p10 ${ms(at(list, 0.1))}, p90 ${ms(at(list, 0.9))}, n=${list.length}`);

/** Adds to its list how long something takes. */
async function timed(list, what) {
  const begun = now();
  const got = await what();
  list.push(now() - begun);
  return got;
}

async function loadSdk() {
  const found = createRequire(new URL('../tests/vercel/package.json', import.meta.url)).resolve('@vercel/sandbox');
  return (await import(pathToFileURL(found))).Sandbox;
}

async function own(cay, took) {
  const post = async (path, body) => (await request(cay, path, { method: 'POST', body: JSON.stringify(body) })).json();
  const { id } = await timed(took.create, () => post('/v1/sandboxes', {}));
  await timed(took.run, () => post(`/v1/sandboxes/${id}/exec`, { argv: ['true'] }));
  await timed(took.stop, () => request(cay, `/v1/sandboxes/${id}`, { method: 'DELETE' }));
}

async function sdk(Sandbox, took) {
  const sandbox = await timed(took.create, () => Sandbox.create({ persistent: false }));
  const done = await timed(took.run, () => sandbox.runCommand('true'));
  if (done.exitCode !== 0) throw new Error('the command failed');
  await timed(took.write, () => sandbox.writeFiles([{ path: 'a', content: Buffer.from('x') }]));
  await timed(took.read, () => sandbox.readFileToBuffer({ path: 'a' }));
  await timed(took.stop, () => sandbox.stop());
}

export async function measure({ rounds = 60 } = {}) {
  const { cay } = await startVercel();
  try {
    const Sandbox = await loadSdk();
    const by = () => ({ create: [], run: [], write: [], read: [], stop: [] });
    const took = { sdk: by(), own: by() };
    // In turns, so that what the machine does meanwhile is the same for both.
    for (let i = -5; i < rounds; i++) {
      await sdk(Sandbox, i < 0 ? by() : took.sdk);
      await own(cay, i < 0 ? by() : took.own);
    }
    for (const [name, list] of Object.entries(took.sdk)) say(`@vercel/sandbox: ${name}`, list);
    for (const name of ['create', 'run', 'stop']) say(`/v1/sandboxes: ${name}`, took.own[name]);
    return { create: at(took.sdk.create, 0.5), run: at(took.sdk.run, 0.5), stop: at(took.sdk.stop, 0.5) };
  } finally {
    await cay.stop();
  }
}

if (isMain(import.meta)) await measure();
