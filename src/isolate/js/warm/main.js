// The program that warms a zygote up and rehearses an isolate: the parts of the language, the console
// and the bindings that programs use most. Not what a benchmark runs.
import { WorkerEntrypoint } from "cloudflare:workers";
import { Table, later, sum, words } from "./util.js";

async function main(env) {
    const rows = await env.db.query("SELECT id, name FROM warm WHERE id > ?", 0);
    const table = new Table("warm");
    for (const row of rows) table.add({ ...row, seen: true });
    console.log("rows", table.size, { total: sum(rows.map((r) => r.id)) });
    await later(0);
    const text = [...table].map((r) => `${r.name}:${r.id}`).sort().join(", ");
    try {
        throw new TypeError("warm");
    } catch (e) {
        console.error(e, words("a b c").length);
    }
    console.warn(new Map([[1, { a: [1, 2, undefined] }]]), new Date(0).toISOString());
    const { a = 1, ...rest } = Object.fromEntries(Object.entries({ b: 2, c: [3] }));
    return { text, a, rest, at: new Date(0).toLocaleDateString("en-US"), json: JSON.parse("[1,2]") };
}

export default class extends WorkerEntrypoint {
    verify() {}
    async run() {
        return await main(this.env);
    }
}
