// What /execute/sdk adds to the bare call of the model, plain and as a stream, and 50 streams at once. The model is a
// mock in this process that answers at once; the bare call is this client's own request to it, so that what is left is
// cay's: the request, the record, the messages, the answer.
import { Agent, createServer, request } from 'node:http';

import { sleep, startCay } from '../tests/lib/cay.mjs';
import { isMain } from './lib.mjs';

const now = () => performance.now();
const at = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * q))];
const ms = (n) => `${n.toFixed(2)} ms`;
const say = (name, value, note = '') => console.log(`  ${name.padEnd(52)} ${value.padStart(14)}  ${note}`);
const event = (data) => `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;

const HEAD = event({ type: 'message_start', message: { id: 'm', type: 'message', role: 'assistant', content: [], model: 'x', usage: { input_tokens: 10, output_tokens: 1 } } }) +
  event({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } });
const word = (text) => event({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } });
const TAIL = event({ type: 'content_block_stop', index: 0 }) + event({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 5 } }) + event({ type: 'message_stop' });

const WORDS = 60;
const GAP = 50;
let asked = 0;

const mock = createServer((req, res) => {
  const chunks = [];
  req.on('data', (c) => chunks.push(c));
  req.on('end', async () => {
    asked = now();
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    if (!Buffer.concat(chunks).includes('slowly')) return res.end(HEAD + word('Hello.') + TAIL);
    res.write(HEAD);
    for (let i = 0; i < WORDS; i++) {
      res.write(word(`word${i} `));
      await sleep(GAP);
    }
    res.end(TAIL);
  });
});
mock.keepAliveTimeout = 60_000;

const agent = new Agent({ keepAlive: true, maxSockets: 256 });

/** One POST: when it began, when its first byte came, when it ended, and what came. */
function post(port, path, body, headers = {}) {
  return new Promise((resolve, reject) => {
    const sent = now();
    const req = request({ host: '127.0.0.1', port, path, method: 'POST', agent, headers: { 'content-type': 'application/json', ...headers } }, (res) => {
      let text = '';
      let first = 0;
      res.setEncoding('utf8').on('data', (d) => {
        first ||= now();
        text += d;
      });
      res.on('end', () => resolve({ sent, first, ended: now(), asked, text })).on('error', reject);
    });
    req.on('error', reject);
    req.end(JSON.stringify(body));
  });
}

export async function measure({ rounds = 400, streams = 50 } = {}) {
  await new Promise((resolve) => mock.listen(0, '127.0.0.1', 4096, resolve));
  const { port } = mock.address();
  const cay = await startCay({ env: { ANTHROPIC_API_KEY: 'sk-test', ANTHROPIC_BASE_URL: `http://127.0.0.1:${port}` } });
  try {
    const kinds = {
      bare: () => post(port, '/v1/messages', { model: 'x', messages: [{ role: 'user', content: 'Say hello' }], stream: true }),
      plain: () => post(cay.port, '/execute/sdk', { prompt: 'Say hello' }),
      stream: () => post(cay.port, '/execute/sdk', { prompt: 'Say hello' }, { accept: 'text/event-stream' }),
    };
    const took = { bare: [], plain: [], stream: [] };
    const before = []; // until the model is asked
    // In turns, so that what the machine does meanwhile is the same for all.
    for (let i = -50; i < rounds; i++)
      for (const [name, call] of Object.entries(kinds)) {
        const got = await call();
        if (name !== 'bare' && !/"success":true/.test(got.text)) throw new Error(got.text.slice(-500));
        if (i < 0) continue;
        took[name].push(got.ended - got.sent);
        if (name === 'plain') before.push(got.asked - got.sent);
      }
    for (const name of ['bare', 'plain', 'stream']) say(`${name === 'bare' ? 'the bare call' : `/execute/sdk, ${name}`}: median`, ms(at(took[name], 0.5)), `p10 ${ms(at(took[name], 0.1))}, p90 ${ms(at(took[name], 0.9))}`);
    const added = { plain: at(took.plain, 0.5) - at(took.bare, 0.5), stream: at(took.stream, 0.5) - at(took.bare, 0.5) };
    say('added, plain', ms(added.plain), `aim: below 2 ms; ${ms(at(before, 0.5))} until the model is asked`);
    say('added, as a stream', ms(added.stream));

    const begun = now();
    const all = await Promise.all(Array.from({ length: streams }, () => post(cay.port, '/execute/sdk', { prompt: 'slowly' }, { accept: 'text/event-stream' })));
    const seconds = (now() - begun) / 1000;
    if (!all.every((s) => /"success":true/.test(s.text))) throw new Error('a stream failed');
    const firsts = all.map((s) => s.first - s.sent);
    say(`${streams} streams at once of ${(WORDS * GAP) / 1000} s`, `${seconds.toFixed(2)} s`, `first message: median ${ms(at(firsts, 0.5))}, worst ${ms(Math.max(...firsts))}`);
    return { added, streams: seconds };
  } finally {
    await cay.stop();
    agent.destroy();
    mock.closeAllConnections();
    mock.close();
  }
}

if (isMain(import.meta)) await measure();
