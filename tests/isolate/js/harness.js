
import { WorkerEntrypoint } from "cloudflare:workers";
import run from "user-code.js";
export default class extends WorkerEntrypoint {
verify() {}
async run() {
await run(this.env);
}
}
