/** Follows the output of a command; picks up where a cut line left it, so that nothing is twice. */
import { useEffect, useState } from 'react';
import { backoffMs } from '../../api/backoff.ts';
import { ApiError, request } from '../../api/client.ts';
import { calls, readExec, readPiece, type Exec, type Piece } from '../../api/sandboxes.ts';
import { serverEvents } from '../../api/sse.ts';
import { addTo, type Block } from '../../components/blocks.ts';

export type Following = {
  blocks: Block[];
  /** How many are not kept any more. */
  gone: number;
  exec: Exec | null;
  problem: string | null;
};

/** A command may print faster than a page can be drawn, and more than it can hold. */
const drawEveryMs = 50;
const maxChars = 1_000_000;
const maxTries = 6;

/** Gathers pieces into blocks of lines; counts the bytes of each stream. */
export class Gatherer {
  blocks: Block[] = [];
  gone = 0;
  readonly offsets = { stdout: 0, stderr: 0 };
  readonly #decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  #chars = 0;

  add({ stream, offset, bytes }: Piece): void {
    const known = this.offsets[stream] - offset;
    // Seen before, wholly or in part.
    const fresh = known > 0 ? bytes.subarray(known) : bytes;
    if (known > 0 && known >= bytes.length) return;
    this.offsets[stream] = offset + bytes.length;
    const text = this.#decoders[stream].decode(fresh, { stream: true });
    if (text === '') return;
    this.blocks = addTo(this.blocks, { stream, text });
    this.#chars += text.length;
    while (this.#chars > maxChars && this.blocks.length > 1) {
      this.#chars -= this.blocks.shift()?.chars ?? 0;
      this.gone++;
    }
  }
}

const nothing: Following = { blocks: [], gone: 0, exec: null, problem: null };

export function useOutput(id: string, exec: string): Following {
  const [state, setState] = useState<Following>(nothing);

  useEffect(() => {
    const abort = new AbortController();
    const all = new Gatherer();
    let ended: Exec | null = null;
    let problem: string | null = null;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const draw = () => {
      timer = undefined;
      if (!abort.signal.aborted)
        setState({ blocks: all.blocks, gone: all.gone, exec: ended, problem });
    };
    const once = async () => {
      const { stdout, stderr } = all.offsets;
      const response = await request(calls.execOutput(id, exec, stdout, stderr).path, {
        headers: { Accept: 'text/event-stream' },
        signal: abort.signal,
      });
      for await (const { event, data } of serverEvents(response)) {
        if (event === 'stdout' || event === 'stderr') all.add(readPiece(event, JSON.parse(data)));
        else if (event === 'exit') ended = readExec(JSON.parse(data));
        timer ??= setTimeout(draw, drawEveryMs);
      }
    };
    const follow = async () => {
      for (let tries = 0; tries < maxTries && !ended; tries++) {
        if (tries > 0) await new Promise((done) => setTimeout(done, backoffMs(tries - 1)));
        if (abort.signal.aborted) return;
        try {
          await once();
          problem = null;
        } catch (cause) {
          if (abort.signal.aborted) return;
          problem = cause instanceof ApiError ? cause.message : 'The connection was lost';
          // What the server refuses it will refuse again.
          if (cause instanceof ApiError && cause.status >= 400 && cause.status < 500) break;
        }
      }
      clearTimeout(timer);
      draw();
    };
    setState(nothing);
    void follow();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [id, exec]);

  return state;
}
