/**
 * Cuts code into coloured pieces. A chunk of its own, loaded by Code.tsx when code is first shown;
 * the parser is the editor's and takes half-written programs as they come.
 */
import { classHighlighter, highlightCode } from '@lezer/highlight';
import { parser } from '@lezer/javascript';

export type Piece = { text: string; kind: string };

const typescript = parser.configure({ dialect: 'ts jsx' });

export function highlight(code: string): Piece[] {
  const pieces: Piece[] = [];
  const add = (text: string, kind: string) => {
    const last = pieces.at(-1);
    if (last && last.kind === kind) last.text += text;
    else pieces.push({ text, kind });
  };
  highlightCode(code, typescript.parse(code), classHighlighter, add, () => add('\n', ''));
  return pieces;
}
