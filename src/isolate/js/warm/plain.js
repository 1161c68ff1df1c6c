// Run only where a zygote learns which pages a waiting isolate has ready: what most programs do, in one that the engine
// has not seen, as it will not have seen the program that comes.
import { WorkerEntrypoint } from "cloudflare:workers";
import collect from "plain-user.js";

export default class extends WorkerEntrypoint {
    verify() {}
    async run() {
        return await collect(this.env);
    }
}
