// A model that a test plays: a server of the Messages API whose answers are written down before.
import { createServer } from 'node:http';

/** An answer that is text; one that calls a tool. Add {usage, pieces, pause, hold, onClose} as wanted. */
export const say = (text) => ({ blocks: [{ type: 'text', text }] });
export const tool = (id, name, input) => ({ blocks: [{ type: 'tool_use', id, name, input }] });

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function play(res, answer) {
  if (answer.status) {
    res.writeHead(answer.status, { 'content-type': 'application/json', ...answer.headers });
    res.end(JSON.stringify({ type: 'error', error: { type: answer.type ?? 'invalid_request_error', message: answer.error } }));
    return;
  }
  const send = (event) => res.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  const { usage = { input_tokens: 10, output_tokens: 5 } } = answer;
  res.writeHead(200, { 'content-type': 'text/event-stream' });
  send({ type: 'message_start', message: { id: 'msg_1', type: 'message', role: 'assistant', content: [], usage: { ...usage, output_tokens: 1 } } });
  for (const [index, block] of answer.blocks.entries()) {
    const { text, input, ...head } = block;
    const isText = block.type === 'text';
    send({ type: 'content_block_start', index, content_block: isText ? { ...head, text: '' } : input === undefined ? head : { ...head, input: {} } });
    const whole = isText ? text : input === undefined ? '' : JSON.stringify(input);
    const size = Math.max(1, Math.ceil(whole.length / (answer.pieces ?? 1)));
    for (let at = 0; at < whole.length && !res.destroyed; at += size) {
      const piece = whole.slice(at, at + size);
      send({ type: 'content_block_delta', index, delta: isText ? { type: 'text_delta', text: piece } : { type: 'input_json_delta', partial_json: piece } });
      if (answer.pause) await sleep(answer.pause);
    }
    if (!answer.hold) send({ type: 'content_block_stop', index });
  }
  if (answer.hold) return;
  const calls = answer.blocks.some((b) => b.type === 'tool_use');
  send({ type: 'message_delta', delta: { stop_reason: answer.stop ?? (calls ? 'tool_use' : 'end_turn') }, usage });
  send({ type: 'message_stop' });
  res.end();
}

/**
 * Answers, each used once, in order; a function gets the request's body and gives one. {requests, env, url}.
 * When they are used up the model says so.
 */
export async function scripted(t, answers) {
  const model = { requests: [], left: [...answers] };
  const server = createServer((req, res) => {
    const chunks = [];
    req.on('data', (c) => chunks.push(c));
    req.on('end', async () => {
      const body = JSON.parse(Buffer.concat(chunks).toString());
      model.requests.push(body);
      const next = model.left.shift() ?? say('(the script has ended)');
      const answer = typeof next === 'function' ? await next(body) : next;
      res.on('error', () => {});
      if (answer.onClose) res.on('close', answer.onClose);
      await play(res, answer);
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t?.after(() => {
    server.closeAllConnections();
    server.close();
  });
  model.url = `http://127.0.0.1:${server.address().port}`;
  model.env = { ANTHROPIC_API_KEY: 'sk-test', ANTHROPIC_BASE_URL: model.url };
  return model;
}
