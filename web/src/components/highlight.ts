/**
 * Cuts code into coloured pieces, by rules that a table has for each language. It reads words, not
 * programs: half of one is coloured as well as a whole one, and nothing it is given makes it slow.
 */
export type Piece = { text: string; kind: string };

type Language = {
  comment?: string;
  string: string;
  /** A regular expression may stand where a value is expected. */
  regexp?: boolean;
  keywords: string;
  /** After these comes the name of something new. */
  defines?: string;
  ignoresCase?: boolean;
};

const quoted = '"(?:[^"\\\\\\n]|\\\\[^])*"?|\'(?:[^\'\\\\\\n]|\\\\[^])*\'?';
const block = '\\/\\*[^]*?(?:\\*\\/|$)';
const slashes = `\\/\\/[^\\n]*|${block}`;
const hash = '#[^\\n]*';
const template = '`(?:[^`\\\\]|\\\\[^])*`?';
const cWords =
  'break case const continue default do else enum extern for if return sizeof static struct switch typedef union void volatile while char double float int long short signed unsigned bool true false NULL inline goto include define';

const languages: Record<string, Language> = {
  js: {
    comment: slashes,
    string: `${quoted}|${template}`,
    regexp: true,
    keywords:
      'abstract as async await break case catch class const continue debugger declare default delete do else enum export extends false finally for from function get if implements import in infer instanceof interface keyof let namespace new null of private protected public readonly return satisfies set static super switch this throw true try type typeof undefined var void while with yield',
    defines: 'class const enum function interface let type var',
  },
  py: {
    comment: hash,
    string: `"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|${quoted}`,
    keywords:
      'False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return self try while with yield',
    defines: 'class def',
  },
  c: { comment: slashes, string: quoted, keywords: cWords, defines: 'struct enum union define' },
  rs: {
    comment: slashes,
    string: '"(?:[^"\\\\]|\\\\[^])*"?',
    keywords:
      'as async await break const continue crate dyn else enum false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while',
    defines: 'const enum fn let mod mut static struct trait type',
  },
  go: {
    comment: slashes,
    string: `${quoted}|\`[^\`]*\`?`,
    keywords:
      'break case chan const continue default defer else fallthrough false for func go goto if import interface map nil package range return select struct switch true type var',
    defines: 'const func type var',
  },
  sh: {
    comment: hash,
    string: '"(?:[^"\\\\]|\\\\[^])*"?|\'[^\']*\'?',
    keywords:
      'case do done elif else esac exit export fi for function if in local return set shift then unset until while',
  },
  sql: {
    comment: `--[^\\n]*|${block}`,
    string: "'(?:[^']|'')*'?",
    ignoresCase: true,
    keywords:
      'all alter and as asc begin between by case check commit constraint create default delete desc distinct drop else end exists foreign from full group having if in index inner insert into is join key left like limit not null offset on or order outer primary recursive references replace returning right rollback select set table then union unique update using values view when where with',
  },
  json: { string: '"(?:[^"\\\\\\n]|\\\\[^])*"?', keywords: 'true false null' },
  css: { comment: block, string: quoted, keywords: 'import media supports layer and not or only' },
  html: { comment: '<!--[^]*?(?:-->|$)', string: '"[^"<>\\n]*"', keywords: '' },
  conf: { comment: hash, string: quoted, keywords: 'true false null yes no on off' },
};

const same: Record<string, string> = {
  mjs: 'js',
  cjs: 'js',
  ts: 'js',
  jsx: 'js',
  tsx: 'js',
  mts: 'js',
  javascript: 'js',
  typescript: 'js',
  python: 'py',
  h: 'c',
  cc: 'c',
  cpp: 'c',
  hpp: 'c',
  rust: 'rs',
  golang: 'go',
  bash: 'sh',
  shell: 'sh',
  zsh: 'sh',
  jsonc: 'js',
  htm: 'html',
  svg: 'html',
  xml: 'html',
  yaml: 'conf',
  yml: 'conf',
  toml: 'conf',
  ini: 'conf',
};

type Rules = { pattern: RegExp; keywords: Set<string>; defines: Set<string>; language: Language };
const made = new Map<string, Rules>();

const words = (text: string): Set<string> => new Set(text.split(' ').filter(Boolean));

/** How long a regular expression is at most: what has no end is not looked for without end. */
const most = 400;
const regexp = `\\/(?![*/])(?:[^/\\\\\\n[]|\\\\.|\\[(?:[^\\]\\\\\\n]|\\\\.){0,${most}}\\]){1,${most}}\\/[a-z]*`;
const number =
  '\\b(?:0[xX][\\da-fA-F_]+|0[bBoO][\\d_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)n?\\b';
const nothing = '(?!)';

/** By the end of a file's name, or the name of a language; null where it is not known. */
export function rulesFor(name: string): Rules | null {
  const end = name.split('.').at(-1)?.toLowerCase() ?? '';
  const id = Object.hasOwn(same, end) ? same[end]! : end;
  const language = Object.hasOwn(languages, id) ? languages[id] : undefined;
  if (!language) return null;
  const known = made.get(id);
  if (known) return known;
  const groups = [
    `(?<comment>${language.comment ?? nothing})`,
    `(?<string>${language.string})`,
    `(?<regexp>${language.regexp ? regexp : nothing})`,
    `(?<number>${number})`,
    '(?<word>[\\p{ID_Start}$_][\\p{ID_Continue}$]*)',
  ];
  const rules = {
    pattern: new RegExp(groups.join('|'), 'gu'),
    keywords: words(language.keywords),
    defines: words(language.defines ?? ''),
    language,
  };
  made.set(id, rules);
  return rules;
}

/** A slash after a value divides. */
function isAfterValue(code: string, at: number): boolean {
  let i = at;
  while (i > 0 && /\s/.test(code[i - 1]!)) i--;
  return i > 0 && /[\p{ID_Continue}$)\]}]/u.test(code[i - 1]!);
}

function wordKind(word: string, before: string, { keywords, defines, language }: Rules): string {
  if (keywords.has(language.ignoresCase ? word.toLowerCase() : word)) return 'tok-keyword';
  if (defines.has(before)) return 'tok-definition';
  return !language.ignoresCase && /^\p{Lu}.*\p{Ll}/u.test(word) ? 'tok-typeName' : '';
}

export function highlight(code: string, rules: Rules): Piece[] {
  const pieces: Piece[] = [];
  const add = (text: string, kind: string) => {
    const last = pieces.at(-1);
    if (text === '') return;
    if (last && last.kind === kind) last.text += text;
    else pieces.push({ text, kind });
  };
  const { pattern } = rules;
  let at = 0;
  let before = '';
  pattern.lastIndex = 0;
  for (let found = pattern.exec(code); found; found = pattern.exec(code)) {
    const { comment, string, regexp: expression, word } = found.groups!;
    const from = found.index;
    const gap = code.slice(at, from);
    // What stands between them, as in `const {`, parts two words.
    if (gap.trim() !== '') before = '';
    if (expression !== undefined && isAfterValue(code, from) && !rules.keywords.has(before)) {
      pattern.lastIndex = from + 1;
      continue;
    }
    add(gap, '');
    const kind =
      word !== undefined
        ? wordKind(word, before, rules)
        : comment !== undefined
          ? 'tok-comment'
          : string !== undefined || expression !== undefined
            ? 'tok-string'
            : 'tok-number';
    add(found[0], kind);
    at = from + found[0].length;
    before = word ?? '';
    pattern.lastIndex = at;
  }
  add(code.slice(at), '');
  return pieces;
}

/** The same, line by line. */
export function highlightLines(code: string, rules: Rules): Piece[][] {
  const lines: Piece[][] = [[]];
  for (const { text, kind } of highlight(code, rules))
    for (const [index, part] of text.split('\n').entries()) {
      if (index > 0) lines.push([]);
      if (part !== '') lines.at(-1)!.push({ text: part, kind });
    }
  return lines;
}
