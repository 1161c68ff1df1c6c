// What the zygote runs to be warm: the ways of ordinary programs, and none of their code.
class Table {
    #rows = new Map();
    constructor(name) { this.name = name; }
    add(row) { this.#rows.set(row.id, row); return this; }
    get size() { return this.#rows.size; }
    *[Symbol.iterator]() { yield* this.#rows.values(); }
}
const util = { sum: (list) => list.reduce((a, b) => a + b, 0), words: (s) => s.split(/\s+/).filter(Boolean) };
const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export default async function main(env) {
    const rows = await env.db.query("SELECT id, name FROM warm WHERE id > ?", 0);
    const table = new Table("warm");
    for (const row of rows) table.add({ ...row, seen: true });
    console.log("rows", table.size, { total: util.sum(rows.map((r) => r.id)) });
    await later(0);
    const text = [...table].map((r) => `${r.name}:${r.id}`).sort().join(", ");
    try { throw new TypeError("warm"); } catch (e) { console.error(e, util.words("a b c").length); }
    console.warn(new Map([[1, { a: [1, 2, undefined] }]]), new Date(0).toISOString());
    return { text, at: new Date(0).toLocaleDateString("en-US"), n: Math.round(Math.random()) * 0, json: JSON.parse("[1,2]") };
}
