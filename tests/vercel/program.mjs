// A program as people write them for Vercel: nothing in it knows of cay.
import { Sandbox } from '@vercel/sandbox';

const sandbox = await Sandbox.create({ runtime: 'node22', timeout: 60_000, ports: [3000], resources: { vcpus: 2 } });
await sandbox.writeFiles([
  { path: 'hello.mjs', content: Buffer.from("for (const n of [1, 2, 3]) console.log('step', n);\n") },
  { path: 'bin/fail.sh', content: '#!/bin/sh\necho sorry >&2\nexit 4\n', mode: 0o755 },
]);
const run = await sandbox.runCommand({ cmd: 'node', args: ['hello.mjs'], stdout: process.stdout, stderr: process.stderr });
console.log('exit', run.exitCode);
const failed = await sandbox.runCommand('./bin/fail.sh');
console.log('exit', failed.exitCode, JSON.stringify(await failed.stderr()));
const detached = await sandbox.runCommand({ cmd: 'sh', args: ['-c', 'echo one; sleep 0.2; echo two'], detached: true });
for await (const log of detached.logs()) console.log(log.stream, JSON.stringify(log.data));
console.log('exit', (await detached.wait()).exitCode);
const snapshot = await sandbox.snapshot();
console.log('snapshot', snapshot.status);
const again = await Sandbox.create({ source: { type: 'snapshot', snapshotId: snapshot.snapshotId } });
console.log('again', (await again.readFileToBuffer({ path: 'hello.mjs' })).length);
await again.stop();
console.log('stopped', again.status);
