/**
 * Long output in blocks of whole lines. A browser lays out what is seen of them and guesses the rest;
 * as one text, every line that is added, and every turn of the wheel, would cost the whole.
 */
export type Part = { stream: string; text: string };
export type Block = { parts: readonly Part[]; chars: number; lines: number };

export const blockChars = 4_000;
/** A line that does not end is cut here. */
const mostChars = 4 * blockChars;

const linesOf = (text: string): number => text.split('\n').length - 1;

function join({ parts, chars, lines }: Block, { stream, text }: Part): Block {
  const last = parts.at(-1);
  return {
    parts:
      last?.stream === stream
        ? [...parts.slice(0, -1), { stream, text: last.text + text }]
        : [...parts, { stream, text }],
    chars: chars + text.length,
    lines: lines + linesOf(text),
  };
}

/** How much of a text belongs to a block that has so many letters already. */
function lengthOf(text: string, chars: number): number {
  if (chars + text.length <= blockChars) return text.length;
  const end = text.indexOf('\n', Math.max(0, blockChars - chars)) + 1;
  const length = end === 0 ? text.length : end;
  return Math.min(length, Math.max(1, mostChars - chars));
}

const isFull = ({ chars, parts }: Block): boolean =>
  chars >= mostChars || (chars >= blockChars && !!parts.at(-1)?.text.endsWith('\n'));

/** The blocks with more at their end; those that are full stay the very same. */
export function addTo(blocks: readonly Block[], { stream, text }: Part): Block[] {
  const out = [...blocks];
  for (let rest = text; rest !== '';) {
    const last = out.at(-1);
    const open = last && !isFull(last) ? last : { parts: [], chars: 0, lines: 0 };
    if (last === open) out.pop();
    const length = lengthOf(rest, open.chars);
    out.push(join(open, { stream, text: rest.slice(0, length) }));
    rest = rest.slice(length);
  }
  return out;
}
