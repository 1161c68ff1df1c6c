import { Stack, by, title, seed } from "./util.js";

export default async function main(env) {
    const rows = await env.db.query("SELECT * FROM customers WHERE id > __N__");
    const tiers = by(rows, "tier"), stack = new Stack();
    for (const row of rows) stack.push(`${title(row.name)} (${row.tier}) ${seed}`);
    console.log("customers", rows.length, Object.fromEntries(tiers));
    await new Promise((resolve) => setTimeout(resolve, 0));
    return { n: rows.length, names: [...stack].sort(), seed: __N__ };
}
