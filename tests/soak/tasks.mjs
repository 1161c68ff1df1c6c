// Tasks of every type while everything is killed at random. Usage: node tasks.mjs TASKS KILLS CLAUDES
import { KINDS, chaos } from '../lib/chaos.mjs';

const tasks = Number(process.argv[2] ?? 500);
const kills = Number(process.argv[3] ?? 20);
const began = Date.now();
const kinds = Array.from({ length: kills }, (_, i) => KINDS[(i + Math.floor(Math.random() * KINDS.length) * (i >= KINDS.length)) % KINDS.length]);
await chaos({ tasks, claude: Number(process.argv[4] ?? 10), kinds, pause: 3000, limit: 600_000, say: (text) => console.log(`${((Date.now() - began) / 1000).toFixed(1)} s: ${text}`) });
console.log(`${tasks} tasks, ${kills} killed, each ended once`);
