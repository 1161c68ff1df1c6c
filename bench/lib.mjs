// What the benchmarks share.
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { buildDir } from '../tests/lib/cay.mjs';

/** Builds a program that measures, which `make` leaves out, and says where it is. */
export function built(target) {
  execFileSync('ninja', ['-C', buildDir, target], { stdio: ['ignore', 'ignore', 'inherit'] });
  return join(buildDir, target);
}

/** Whether a benchmark is run, rather than imported for what it measures. */
export const isMain = (meta) => process.argv[1] === meta.filename;
