// Power cuts. Usage: node power.mjs CUTS (as root, in a mount namespace of its own)
import { powerCuts } from '../lib/power.mjs';

const cuts = Number(process.argv[2] ?? 20);
const seen = await powerCuts({ cuts, say: (text) => console.log(text) });
console.log(`${cuts} cuts, ${seen} acknowledged things looked for, none lost`);
