// How quick the page stays with much in it: the longest task of its thread while much comes in, while one scrolls and
// while one types. A person feels 100 ms. By the clock and by processor time: a machine that does other things makes
// every task long by the clock.
import { scenes, scroll, startMuch, tasks } from '../tests/browser/much.mjs';
import { isMain } from './lib.mjs';

const rounds = Number(process.env.BENCH_ROUNDS ?? 3);
const say = (name, list) =>
  console.log(
    `  ${name.padEnd(44)} processor: ${list.map(({ cpuMs }) => cpuMs).join(', ')} ms  clock: ${list.map(({ wallMs }) => wallMs).join(', ')} ms`,
  );

/** Types until it is told to end. */
function typing(page, text) {
  let over = false;
  const typed = (async () => {
    while (!over) await page.keyboard.type(text, { delay: 30 });
  })();
  return () => {
    over = true;
    return typed;
  };
}

async function one(all, name, open) {
  const { page } = all;
  const came = [];
  const scrolled = [];
  const typed = [];
  let scene;
  for (let i = 0; i < rounds; i++) {
    if (!scene || scene.come) scene = await open(all);
    const { box, input, text, come } = scene;
    if (come)
      came.push(
        await tasks(all, async () => {
          const coming = come();
          const end = typing(page, text);
          await coming.finally(end);
        }),
      );
    scrolled.push(await tasks(all, () => scroll(page, box)));
    await input.click();
    typed.push(await tasks(all, () => page.keyboard.type(text, { delay: 30 })));
  }
  if (came.length > 0) say(`${name}, typed while they come`, came);
  say(`${name}, scrolled`, scrolled);
  say(`${name}, typed beside`, typed);
}

async function main() {
  const all = await startMuch();
  const wanted = process.argv[2] ?? '';
  console.log('the page, with much in it: the longest task of each round');
  try {
    for (const [name, open] of Object.entries(scenes))
      if (name.includes(wanted)) await one(all, name, open);
  } finally {
    await all.stop();
  }
}

if (isMain(import.meta)) await main();
