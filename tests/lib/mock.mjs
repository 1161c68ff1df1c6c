// The model of a test: aimock, behind a tap that keeps every request as it was sent, and every connection.
import { createServer, request as forward } from 'node:http';
import { LLMock } from '@copilotkit/aimock';

/** {mock, url, requests, connections()}; each answer comes `delay` milliseconds late. */
export async function startMock(t, { delay = 0 } = {}) {
  const mock = new LLMock({ port: 0, host: '127.0.0.1', logLevel: 'silent' });
  await mock.start();
  const { hostname, port } = new URL(mock.url);
  const requests = [];
  const tap = createServer((req, res) => {
    const chunks = [];
    req.on('data', (chunk) => chunks.push(chunk));
    req.on('end', async () => {
      if (delay > 0) await new Promise((resolve) => setTimeout(resolve, delay));
      const body = Buffer.concat(chunks);
      requests.push({ method: req.method, path: req.url, headers: req.headers, body: body.length ? JSON.parse(body) : null });
      const on = forward({ hostname, port, path: req.url, method: req.method, headers: req.headers }, (answer) => {
        res.writeHead(answer.statusCode, answer.headers);
        answer.pipe(res);
        answer.once('aborted', () => res.destroy());
      });
      on.once('error', () => res.destroy());
      res.once('close', () => on.destroy());
      on.end(body);
    });
  });
  await new Promise((resolve) => tap.listen(0, '127.0.0.1', resolve));
  t.after(async () => {
    tap.closeAllConnections();
    tap.close();
    await mock.stop();
  });
  return { mock, requests, url: `http://127.0.0.1:${tap.address().port}` };
}
