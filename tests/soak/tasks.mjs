// Tasks of every type while everything is killed at random: of a key with $20 a day, then of one with $2, whose calls have to
// wait for what others hold. Usage: node tasks.mjs TASKS KILLS CLAUDES
import { KINDS, chaos } from '../lib/chaos.mjs';

const tasks = Number(process.argv[2] ?? 500);
const kills = Number(process.argv[3] ?? 20);
const claude = Number(process.argv[4] ?? 10);
const began = Date.now();
const say = (text) => console.log(`${((Date.now() - began) / 1000).toFixed(1)} s: ${text}`);
const draw = (kinds, n) => Array.from({ length: n }, (_, i) => kinds[(i + Math.floor(Math.random() * kinds.length) * (i >= kinds.length)) % kinds.length]);

await chaos({ tasks, claude, kinds: draw(KINDS, kills), pause: 3000, limit: 600_000, usd: 20, say });
// When the server or cay-egress is killed, nobody knows what the calls in flight used, and what was held for them is
// spent: that may be all of $2. So these two live here.
const scarce = Math.ceil(tasks / 5);
const living = KINDS.filter((kind) => !['server', 'egress'].includes(kind));
await chaos({ tasks: scarce, types: ['execute/sdk', 'code by its model', 'execute/sdk', 'execute', 'run'], kinds: draw(living, Math.ceil(kills / 2)), pause: 3000, limit: 900_000, usd: 2, scarce: true, say });
console.log(`${tasks} and ${scarce} tasks, ${kills} and ${Math.ceil(kills / 2)} killed, each ended once`);
