// What most programs do: a query, a line of output, a turn of the event loop, a result. It fills the holes that a
// collection left in the zygote's heap.
import { WorkerEntrypoint } from "cloudflare:workers";

async function main(env) {
    const rows = await env.db.query("SELECT id, name FROM warm WHERE id > ?", 0);
    const seen = {};
    for (const { id, name } of rows) seen[name] = (seen[name] ?? 0) + id;
    console.log("rows", seen);
    await new Promise((resolve) => setTimeout(resolve, 0));
    return Object.keys(seen).map((k) => `${k}:${seen[k]}`).sort().join(", ");
}

export default class extends WorkerEntrypoint {
    verify() {}
    async run() {
        return await main(this.env);
    }
}
