// The power fails in the middle of work. The long form is tests/soak/power.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { slow } from '../lib/cay.mjs';

const canMount = process.getuid() === 0;

test('what was acknowledged is there after the power failed', { timeout: 180_000 * slow, skip: !canMount && 'needs root, for loop devices' }, async () => {
  const program = fileURLToPath(new URL('../soak/power.mjs', import.meta.url));
  const { stdout } = await promisify(execFile)('unshare', ['--mount', process.execPath, program, '2']);
  assert.match(stdout, /^2 cuts, \d{2,} acknowledged things looked for, none lost$/m);
});
