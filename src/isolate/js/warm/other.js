// Run only where a zygote learns what a run writes to: a program that the engine has not seen, unlike those that warmed it
// up, with what programs use most. Not what a benchmark runs.
import { WorkerEntrypoint } from "cloudflare:workers";

const LABEL = "orders";

class Basket {
    #lines = [];
    static of(...lines) {
        const basket = new Basket();
        for (const line of lines) basket.#lines.push(line);
        return basket;
    }
    get total() {
        return this.#lines.reduce((sum, { price, count = 1 }) => sum + price * count, 0);
    }
}

async function report(env) {
    const found = await env.db.query("SELECT id, name FROM orders WHERE id > ? ORDER BY id", 1);
    const groups = new Map();
    for (const { id, name } of found) groups.set(name, [...(groups.get(name) ?? []), id]);
    const counts = Object.fromEntries([...groups].map(([key, ids]) => [key, ids.length]));
    console.log(`${LABEL}:`, counts, found.length > 1 ? "several" : null, [1.5, true]);
    const names = Object.entries(counts).filter(([, n]) => n > 0).map(([key]) => key.trim().toUpperCase()).sort();
    const words = "alpha beta,gamma".split(/[ ,]/).map((w) => w[0] + w.slice(1).replace("a", "o"));
    const basket = Basket.of({ price: 2, count: 3 }, { price: 1.25 });
    await new Promise((resolve) => setTimeout(resolve, 0));
    const copy = JSON.parse(JSON.stringify({ names, words, nested: { list: [1, 2, 3], none: null } }));
    const { nested, ...others } = copy;
    let tries = 0;
    try {
        while (tries < 3) if (++tries === 2) throw new RangeError(`stop at ${tries}`);
    } catch (problem) {
        if (!(problem instanceof RangeError)) throw problem;
    } finally {
        tries += Math.max(...nested.list) % 2;
    }
    const ready = await Promise.all([1, 2].map(async (n) => n * 2));
    return { ...others, ready, total: basket.total.toFixed(2), tries, has: words.includes("beta") && !names.some((n) => n === ""), keys: Object.keys(copy).join() };
}

export default class extends WorkerEntrypoint {
    verify() {}
    async run() {
        return await report(this.env);
    }
}
