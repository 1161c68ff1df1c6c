// A program of ours beside a test: its streams as they come, and how it ended.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { buildDir } from './cay.mjs';

export const program = join(buildDir, 'cay');

/** {child, out, err, raw, ended}; killed when the test ends. What is not named here goes to spawn(). */
export function startProgram(t, args, { input, cwd = '/', env = {}, command = program, ...more } = {}) {
  const child = spawn(command, args, {
    cwd,
    env: { PATH: process.env.PATH, LANG: 'C.UTF-8', ASAN_OPTIONS: 'detect_leaks=0', TERM: 'xterm', ...env },
    ...more,
  });
  const it = { child, out: '', err: '', raw: [] };
  child.stdout.on('data', (data) => {
    it.raw.push(data);
    it.out += data;
  });
  child.stderr.on('data', (data) => (it.err += data));
  it.ended = new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve({ code, signal }));
  });
  child.stdin.on('error', () => {});
  if (input !== undefined) child.stdin.end(input);
  t.after(() => child.kill('SIGKILL'));
  return it;
}
