// An S3 server that checks signatures, for tests: prints its port, keeps its objects in DIR. Usage: node server.mjs DIR PORT BUCKET
import S3rver from '@20minutes/s3rver';

const [directory, port, bucket] = process.argv.slice(2);
const server = new S3rver({ address: '127.0.0.1', port: Number(port), silent: true, directory, configureBuckets: bucket ? [{ name: bucket }] : [] });
const { port: at } = await server.run();
console.log(`port ${at}`);
process.stdin.resume().on('end', () => process.exit(0)); // with who started it
