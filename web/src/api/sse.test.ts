import { expect, test } from 'vitest';
import { SseParser, serverEvents } from './sse.ts';

const text =
  ': hello\nevent: status\r\ndata: {"a":\r\ndata:1}\n\ndata: x\rid: 7\r\rdata\n\nevent: none\n\n';
const events = [
  { event: 'status', data: '{"a":\n1}', id: '' },
  { event: 'message', data: 'x', id: '7' },
  { event: 'message', data: '', id: '7' },
];

test('events are the same however the network splits the stream', () => {
  for (let size = 1; size <= text.length; size++) {
    const parser = new SseParser();
    const got = [];
    for (let i = 0; i < text.length; i += size) got.push(...parser.push(text.slice(i, i + size)));
    expect(got, `chunks of ${size}`).toEqual(events);
  }
});

test('a line without an end is refused before it fills the memory', () => {
  const parser = new SseParser();
  const chunk = 'x'.repeat(1024 * 1024);
  expect(() => {
    for (let i = 0; i < 6; i++) parser.push(chunk);
  }).toThrow('too long');
});

test('bytes of one character may arrive apart, and leaving the loop cancels the stream', async () => {
  let cancelled = false;
  const bytes = new TextEncoder().encode('data: é\n\ndata: 2\n\n');
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(bytes.slice(0, 7));
      controller.enqueue(bytes.slice(7));
    },
    cancel() {
      cancelled = true;
    },
  });
  for await (const event of serverEvents(new Response(body))) {
    expect(event.data).toBe('é');
    break;
  }
  expect(cancelled).toBe(true);
});
