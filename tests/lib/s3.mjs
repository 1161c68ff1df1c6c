// Starts an S3 server that checks signatures. It needs a newer node than the tests: one of its own packages has it.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './cay.mjs';

const folder = join(root, 'tests/s3');
const node = join(folder, `node_modules/node-linux-${process.arch}/bin/node`);
export const missing = existsSync(node) ? false : 'tests/s3 is not installed';
export const KEY = 'S3RVER';

/** {port, url, objects(), damage(hash), remove(hash), stop()}: the same folder and port give what was there before. */
export async function startS3(directory, { port = 0, bucket = 'cay' } = {}) {
  const child = spawn(node, ['server.mjs', directory, String(port), bucket ?? ''], { cwd: folder, stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const at = await new Promise((resolve, reject) => {
    let text = '';
    child.stdout.on('data', (d) => ((text += d), /port (\d+)\n/.test(text) && resolve(Number(/port (\d+)/.exec(text)[1]))));
    ended.then(() => reject(new Error(`the S3 server ended: ${text}`)));
  });
  const files = () => readdirSync(join(directory, bucket ?? ''), { recursive: true, withFileTypes: true }).filter((e) => e.isFile() && e.name.endsWith('._S3rver_object'));
  const nameOf = (e) => e.name.replace(/\._S3rver_object$/, '');
  const pathOf = (hash) => files().filter((e) => nameOf(e) === hash).map((e) => join(e.parentPath ?? e.path, e.name))[0];
  return {
    port: at,
    url: `http://127.0.0.1:${at}/${bucket}`,
    objects: () => files().map(nameOf).sort(),
    /** The hashes of what the objects hold. */
    hashes: () => files().map((e) => createHash('sha256').update(readFileSync(join(e.parentPath ?? e.path, e.name))).digest('hex')).sort(),
    damage: (hash) => writeFileSync(pathOf(hash), 'something else'),
    remove: (hash) => rmSync(pathOf(hash)),
    stop: () => (child.kill('SIGKILL'), ended),
  };
}
