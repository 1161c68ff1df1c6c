// How quick the page stays with much in it: the longest task of its thread while one scrolls and types, as the
// browser itself tells it. A person feels 100 ms.
import { longTasks, scenes, scroll, startMuch } from '../tests/browser/much.mjs';
import { isMain } from './lib.mjs';

const rounds = Number(process.env.BENCH_ROUNDS ?? 3);
const middle = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const say = (name, list) =>
  console.log(`  ${name.padEnd(44)} longest task: ${`${middle(list)} ms`.padStart(8)}  (rounds: ${list.join(', ')})`);

async function main() {
  const all = await startMuch();
  console.log('the page, with much in it; 0 ms: no task of over 50');
  try {
    for (const [name, open] of Object.entries(scenes)) {
      const { box, input, text } = await open(all);
      const scrolled = [];
      const typed = [];
      for (let i = 0; i < rounds; i++) {
        scrolled.push((await longTasks(all.page, () => scroll(all.page, box))).longest);
        await input.click();
        typed.push((await longTasks(all.page, () => all.page.keyboard.type(text, { delay: 30 }))).longest);
      }
      say(`${name}, scrolled`, scrolled);
      say(`${name}, typed beside`, typed);
    }
  } finally {
    await all.stop();
  }
}

if (isMain(import.meta)) await main();
