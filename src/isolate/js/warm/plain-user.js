export default async function (env) {
    const found = await env.db.query("SELECT id, title FROM things WHERE id < ?", 9);
    const sums = {};
    for (const { id, title } of found) sums[title] = (sums[title] ?? 0) + id;
    console.log("found", sums);
    await new Promise((done) => setTimeout(done, 0));
    return Object.entries(sums).map(([title, sum]) => title + "=" + sum).sort().join("; ");
}
