// What a compilation costs grows with the size of the source, whatever the source: one client's program is compiled in the
// same process as all others'.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { cases } from "./growth-cases.js";
import { closeJsc, jsc } from "./lib.js";

after(closeJsc);

const SMALL = 12 << 10;
const TIMES = 4;

// Processor time of one compilation in JavaScriptCore: the machine may be busy with other things.
async function cost(modules) {
  const text = JSON.stringify({ mainModule: Object.keys(modules)[0], modules, limits: { bytes: 1 << 26, imports: 1e6 } });
  const quoted = JSON.stringify(text).replace(/[\u2028\u2029]/g, (c) => "\\u" + c.charCodeAt(0).toString(16));
  return Number(await jsc().job("P", `{ const text = ${quoted}, t = cpuUs(); __compile(text); print(cpuUs() - t) }`)) / 1000;
}

for (const kind of ["js", "ts", "tsx", "cjs", "json", "data", "graph"])
  test(`four times the source costs about four times as much: ${kind}`, async () => {
    for (const [name, make] of Object.entries(cases)) {
      if (!name.startsWith(`${kind}: `)) continue;
      await cost(make(SMALL / 4));
      // Sixteen times would be quadratic. Collections and the engine's own compiler may fall into one measurement, not
      // into all of them.
      const tries = [];
      for (;;) {
        const small = await cost(make(SMALL));
        const large = await cost(make(TIMES * SMALL));
        tries.push(`${small.toFixed(1)} ms -> ${large.toFixed(1)} ms`);
        if (large < 9 * small + 30) break;
        assert.ok(tries.length < 4, `${name}: ${tries.join(", ")}`);
      }
    }
  });

test("one word of 4 MB is done in a moment", async () => {
  assert.ok((await cost({ "m.js": `export default "${"abcdef0123456789".repeat(260_000)}"` })) < 3000);
});

test("groups of one name in a regular expression are bounded", async () => {
  const groups = (n) => ({ "m.js": `export default /${"(?<n>a)|".repeat(n)}b/` });
  assert.equal((await jsc().compile(groups(200))).ok, true);
  assert.match((await jsc().compile(groups(201))).error.message, /more than 200 groups of one name/);
});
