/**
 * Programs write for terminals: colours, cursor moves, links. The page shows the text alone. What
 * is not a letter of some script, a tab or a line's end could only mislead a reader.
 */
const escapes =
  // CSI, then OSC/DCS/PM/APC/SOS up to their end, then the two-character ones.
  /\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_](?:[^\x07\x1b\x9c]|\x1b(?!\\))*(?:\x07|\x1b\\|\x9c|$)|\x1b[ -/]*[0-~]?|\x9b[0-?]*[ -/]*[@-~]/g;
const controls = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g;
/** Characters that turn the direction of the text round, and with it what a line seems to say. */
const directions = /[\u202a-\u202e\u2066-\u2069]/g;

export function plainText(text: string): string {
  return text
    .replace(escapes, '')
    .replace(/\r\n?/g, '\n')
    .replace(controls, '')
    .replace(directions, '\ufffd');
}

export type Piece = { text: string; kind: string };

const colours = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];
const graphics = /\x1b\[([0-9;:]*)m/g;

type Look = { colour: string; bold: boolean; dim: boolean; italic: boolean; underline: boolean };
const plain: Look = { colour: '', bold: false, dim: false, italic: false, underline: false };

/** The colours of the palette and the usual styles; those of 24 bits and of 256 are left out. */
function restyle(look: Look, codes: readonly number[]): Look {
  let next = { ...look };
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at] ?? 0;
    if (code === 0) next = { ...plain };
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code >= 30 && code <= 37) next.colour = colours[code - 30] ?? '';
    else if (code >= 90 && code <= 97) next.colour = colours[code - 90] ?? '';
    else if (code === 39) next.colour = '';
    // The numbers that follow are a colour's, and no styles.
    else if (code === 38 || code === 48) at += codes[at + 1] === 5 ? 2 : 4;
  }
  return next;
}

const kindOf = ({ colour, bold, dim, italic, underline }: Look): string =>
  [
    colour && `ansi-${colour}`,
    bold && 'ansi-bold',
    dim && 'ansi-dim',
    italic && 'ansi-italic',
    underline && 'ansi-underline',
  ]
    .filter(Boolean)
    .join(' ');

/** A text with a terminal's colours as pieces with classes; what else it holds is made plain. */
export function pieces(text: string): Piece[] {
  if (!text.includes('\x1b[')) return [{ text: plainText(text), kind: '' }];
  const out: Piece[] = [];
  let look = plain;
  let from = 0;
  const add = (to: number) => {
    const piece = plainText(text.slice(from, to));
    if (piece !== '') out.push({ text: piece, kind: kindOf(look) });
  };
  for (const match of text.matchAll(graphics)) {
    add(match.index);
    look = restyle(look, (match[1] ?? '').split(/[;:]/).map(Number));
    from = match.index + match[0].length;
  }
  add(text.length);
  return out;
}
