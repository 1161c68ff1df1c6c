/** A terminal's line to a command: bytes both ways, and what is said about them. */
import { calls, readExec, type Exec } from '../../api/sandboxes.ts';
import { object } from '../../api/types.ts';

export type TtyState = 'connecting' | 'open' | 'lost' | 'ended';

type Events = {
  onBytes: (bytes: Uint8Array) => void;
  onState: (state: TtyState, exec: Exec | null) => void;
};

export class Tty {
  readonly #socket: WebSocket;
  readonly #encoder = new TextEncoder();
  #ended = false;
  #closed = false;

  constructor(sandbox: string, exec: string, events: Events) {
    const url = new URL(calls.tty(sandbox, exec).path, location.href);
    url.protocol = url.protocol.replace('http', 'ws');
    this.#socket = new WebSocket(url);
    this.#socket.binaryType = 'arraybuffer';
    events.onState('connecting', null);
    this.#socket.onopen = () => {
      if (!this.#closed) events.onState('open', null);
    };
    this.#socket.onmessage = ({ data }: MessageEvent<ArrayBuffer | string>) => {
      if (this.#closed) return;
      if (typeof data !== 'string') return events.onBytes(new Uint8Array(data));
      const message = parse(data);
      if (message.type !== 'exit') return;
      this.#ended = true;
      events.onState('ended', readExec(message.exec ?? message));
    };
    this.#socket.onclose = () => {
      if (!this.#closed && !this.#ended) events.onState('lost', null);
    };
  }

  #send(data: string | Uint8Array<ArrayBuffer>): void {
    if (this.#socket.readyState === WebSocket.OPEN && !this.#ended) this.#socket.send(data);
  }

  /** What was typed. */
  write(text: string): void {
    this.#send(this.#encoder.encode(text));
  }

  /** What a mouse did: each character is a byte. */
  writeBinary(text: string): void {
    this.#send(Uint8Array.from(text, (char) => char.charCodeAt(0)));
  }

  resize(cols: number, rows: number): void {
    this.#send(JSON.stringify({ type: 'resize', cols, rows }));
  }

  /** Leaves; the command goes on. */
  close(): void {
    this.#closed = true;
    this.#socket.close();
  }
}

function parse(text: string): Record<string, unknown> {
  try {
    return object(JSON.parse(text));
  } catch {
    return {};
  }
}
