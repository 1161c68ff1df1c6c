/**
 * Cuts code into coloured pieces. A chunk of its own, loaded by Code.tsx when code is first shown;
 * the parser is the editor's and takes half-written programs as they come.
 */
import type { Parser } from '@lezer/common';
import { classHighlighter, highlightCode } from '@lezer/highlight';
import { parser } from '@lezer/javascript';

export type Piece = { text: string; kind: string };

const typescript = parser.configure({ dialect: 'ts jsx' });

const loaders: Record<string, () => Promise<Parser>> = {
  js: async () => typescript,
  py: async () => (await import('@lezer/python')).parser,
  json: async () => (await import('@lezer/json')).parser,
  css: async () => (await import('@lezer/css')).parser,
  html: async () => (await import('@lezer/html')).parser,
};
const same: Record<string, string> = {
  mjs: 'js',
  cjs: 'js',
  ts: 'js',
  jsx: 'js',
  tsx: 'js',
  javascript: 'js',
  typescript: 'js',
  python: 'py',
  htm: 'html',
  svg: 'html',
};

/** By the end of a file's name, or the name of a language; null where it is not known. */
export async function parserFor(name: string): Promise<Parser | null> {
  const end = name.split('.').at(-1)?.toLowerCase() ?? '';
  const load = loaders[same[end] ?? end];
  return load ? load() : null;
}

export function highlight(code: string, language: Parser = typescript): Piece[] {
  const pieces: Piece[] = [];
  const add = (text: string, kind: string) => {
    const last = pieces.at(-1);
    if (last && last.kind === kind) last.text += text;
    else pieces.push({ text, kind });
  };
  highlightCode(code, language.parse(code), classHighlighter, add, () => add('\n', ''));
  return pieces;
}

/** The same, line by line. */
export function highlightLines(code: string, language: Parser): Piece[][] {
  const lines: Piece[][] = [[]];
  highlightCode(
    code,
    language.parse(code),
    classHighlighter,
    (text, kind) => lines.at(-1)?.push({ text, kind }),
    () => lines.push([]),
  );
  return lines;
}
