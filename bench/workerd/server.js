// What cay is measured against: one object per server that runs programs in dynamic isolates. POST / with {code, id?};
// the answer is {output, result}.
import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";

const HARNESS = `
import { WorkerEntrypoint } from "cloudflare:workers";
import run from "user-code.js";
export default class extends WorkerEntrypoint {
  verify() {}
  async run() { return await run(this.env); }
}
`;

export class Database extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    this.sql = ctx.storage.sql;
    this.sql.exec(
      "CREATE TABLE IF NOT EXISTS customers (id INTEGER PRIMARY KEY, name TEXT, email TEXT, tier TEXT, region TEXT)",
    );
    if (this.sql.exec("SELECT COUNT(*) AS n FROM customers").one().n === 0)
      for (let i = 0; i < 8; i++)
        this.sql.exec(
          "INSERT INTO customers (name, email, tier, region) VALUES (?, ?, ?, ?)",
          `name ${i}`, `n${i}@example.com`, ["Gold", "Silver", "Bronze"][i % 3], "West");
  }
  query(sql, ...params) { return this.sql.exec(sql, ...params).toArray(); }
  execute(sql, ...params) { this.sql.exec(sql, ...params); return { success: true }; }
}

export class Loopback extends WorkerEntrypoint {
  agent() { const ns = this.ctx.exports.Agent; return ns.get(ns.idFromString(this.ctx.props.agent)); }
  query(sql, ...params) { return this.agent().dbQuery(sql, ...params); }
  execute(sql, ...params) { return this.agent().dbExecute(sql, ...params); }
}

export class Tail extends WorkerEntrypoint {
  async tail(events) {
    const event = events[0];
    if (!event || event.event?.rpcMethod === "verify") return;
    const ns = this.ctx.exports.Agent;
    await ns.get(ns.idFromString(this.ctx.props.agent)).deliver(this.ctx.props.id, JSON.parse(JSON.stringify(event)));
  }
}

export class Agent extends DurableObject {
  waiting = new Map();
  db() { return this.ctx.facets.get("database", () => ({ class: this.ctx.exports.Database })); }
  dbQuery(...args) { return this.db().query(...args); }
  dbExecute(...args) { return this.db().execute(...args); }
  deliver(id, event) { this.waiting.get(id)?.(event); this.waiting.delete(id); }

  async run(code, id) {
    const warm = id !== undefined;
    const agent = this.ctx.id.toString();
    const execution = crypto.randomUUID();
    const traced = warm ? null : new Promise((resolve) => this.waiting.set(execution, resolve));
    const worker = this.env.LOADER.get(warm ? id : execution, () => ({
      compatibilityDate: "2026-01-28",
      mainModule: "harness.js",
      modules: { "harness.js": HARNESS, "user-code.js": code },
      env: { db: this.ctx.exports.Loopback({ props: { agent } }) },
      tails: warm ? [] : [this.ctx.exports.Tail({ props: { agent, id: execution } })],
      globalOutbound: null,
    }));
    const entrypoint = worker.getEntrypoint();
    if (!warm) await entrypoint.verify();
    const result = await entrypoint.run();
    const trace = traced && (await Promise.race([traced, new Promise((r) => setTimeout(() => r(null), 5000))]));
    const output = (trace?.logs ?? [])
      .map((l) => l.message.map((p) => (typeof p === "string" ? p : JSON.stringify(p))).join(" "))
      .join("\n");
    return { output, result: result ?? null };
  }
}

export default {
  async fetch(request, env) {
    const { code, id } = await request.json();
    const agent = env.AGENT.get(env.AGENT.idFromName("bench"));
    return Response.json(await agent.run(code, id));
  },
};
