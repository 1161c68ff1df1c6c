/**
 * Server-sent events over fetch rather than EventSource: it shows the HTTP status (a 401 must lead
 * to the key prompt), can be stopped by a signal, and works for POST too.
 */
export type ServerEvent = { event: string; data: string; id: string };

/** A server that sends one endless line must not fill the browser's memory. */
const maxPendingChars = 4 * 1024 * 1024;

/** Cuts decoded text into events, however the network split it. */
export class SseParser {
  #pending = '';
  #event = '';
  #data: string[] = [];
  #id = '';
  #afterCr = false;

  push(chunk: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    // A CR that ended the last chunk ended its line; an LF that follows belongs to it.
    let rest = this.#afterCr && chunk.startsWith('\n') ? chunk.slice(1) : chunk;
    if (chunk !== '') this.#afterCr = chunk.endsWith('\r');
    rest = this.#pending + rest;

    const lines = rest.split(/\r\n|\r|\n/);
    this.#pending = lines.pop() ?? '';
    if (this.#pending.length > maxPendingChars) throw new Error('event stream line is too long');
    for (const line of lines) {
      const event = this.#line(line);
      if (event) events.push(event);
    }
    return events;
  }

  #line(line: string): ServerEvent | null {
    if (line === '') {
      const event = { event: this.#event || 'message', data: this.#data.join('\n'), id: this.#id };
      const empty = this.#data.length === 0;
      this.#event = '';
      this.#data = [];
      return empty ? null : event;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? '' : line.slice(colon + 1);
    if (value.startsWith(' ')) value = value.slice(1);
    if (field === 'event') this.#event = value;
    else if (field === 'data') this.#data.push(value);
    else if (field === 'id') this.#id = value;
    return null;
  }
}

/** How long a flood of events may keep the page from drawing and from answering its reader. */
const turnMs = 10;

/** Lets the page do what else there is; unlike a timer, it is not held back in a hidden tab. */
const pause = (): Promise<void> =>
  new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      done();
    };
    port2.postMessage(null);
  });

/** Yields the events of an answer until it ends; leaving the loop cancels the request. */
export async function* serverEvents(response: Response): AsyncGenerator<ServerEvent> {
  if (!response.body) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const parser = new SseParser();
  let turn = performance.now();
  try {
    for (;;) {
      const asked = performance.now();
      const { done, value } = await reader.read();
      if (done) return;
      // What was waited for was a pause, too.
      if (performance.now() - asked > 1) turn = performance.now();
      for (const event of parser.push(decoder.decode(value, { stream: true }))) {
        yield event;
        if (performance.now() - turn < turnMs) continue;
        await pause();
        turn = performance.now();
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
