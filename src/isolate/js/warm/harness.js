import { WorkerEntrypoint } from "cloudflare:workers";
import run from "user-code.js";

export default class extends WorkerEntrypoint {
    verify() { }
    async run() { return await run(this.env); }
}
