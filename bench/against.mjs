// Two builds of cay in turns: against.mjs DIR [NAME...]. DIR is another checkout, or a build folder, and what is measured
// is in the benchmarks: each exports subject(build), which starts what it measures and gives
//   { figures: [{ name, unit, more, once }], stop }
// where once() takes one small measurement. Both sides live at the same time and are measured right after one another, in
// changing order, for some rounds; then both begin again, since one life of a process is luckier than another. Before each
// measurement both are left alone for a moment: what a build puts off until nobody asks must not fall into the other's time.
import { existsSync } from 'node:fs';
import path from 'node:path';
import { buildDir, sleep } from '../tests/lib/cay.mjs';
import { comparePairs } from './stats.mjs';

const LIVES = Number(process.env.BENCH_LIVES ?? 3);
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 12);
const REST_MS = 60;

const [dir, ...names] = process.argv.slice(2);
const other = [dir, path.join(dir, 'build')].map((d) => path.resolve(d)).find((d) => existsSync(path.join(d, 'cay')) && existsSync(path.join(d, 'cay-isolate')));
if (!other) {
  console.error(`bench: there is no built cay in ${dir} nor in ${path.join(dir, 'build')}: run \`make\` there first`);
  process.exit(2);
}

async function measure(subject) {
  const figures = new Map();
  for (let life = 0; life < LIVES; life++) {
    const sides = [];
    try {
      for (const build of [other, buildDir]) sides.push(await subject(build));
      for (let round = -1; round < ROUNDS; round++)
        for (const [i, { name, unit, more }] of sides[0].figures.entries()) {
          const pair = [];
          for (const side of (round + life) % 2 ? [1, 0] : [0, 1]) {
            await sleep(REST_MS);
            pair[side] = await sides[side].figures[i].once();
          }
          if (!figures.has(name)) figures.set(name, { unit, more, pairs: [] });
          if (round >= 0) figures.get(name).pairs.push(pair); // the first warms up
        }
    } finally {
      for (const side of sides) await side.stop();
    }
  }
  return figures;
}

console.log(`there: ${other}\nhere:  ${buildDir}\n${LIVES} lives of ${ROUNDS} rounds; the ratio is here/there, with its interval of 99 %`);
let worse = 0;
for (const name of names) {
  const { subject } = await import(`./${name}.bench.mjs`);
  console.log(`\n${name.padEnd(32)} ${'there'.padStart(9)} ${'here'.padStart(9)}       ratio`);
  for (const [figure, { unit, more, pairs }] of await measure(subject)) {
    const c = comparePairs(pairs, { more });
    const beyond = c.verdict === 'worse' && (more ? c.high < 0.95 : c.low > 1.05);
    worse += beyond;
    console.log(
      `  ${figure.padEnd(30)} ${c.there.toFixed(3).padStart(9)} ${c.here.toFixed(3).padStart(9)} ${unit.padEnd(5)} ` +
        `${c.ratio.toFixed(3)} (${c.low.toFixed(3)} to ${c.high.toFixed(3)}), better in ${Math.round(c.wins * 100)} %: ${c.verdict}${beyond ? ' by more than 5 %' : ''}`,
    );
  }
}
if (worse) console.log(`\n${worse} ${worse > 1 ? 'figures are' : 'figure is'} worse by more than 5 %`);
process.exit(worse ? 1 : 0);
