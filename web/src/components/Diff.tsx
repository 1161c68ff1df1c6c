import { Fragment, memo, useMemo, useState, type ReactNode } from 'react';
import { useMedia } from '../hooks.ts';
import { plainText } from './ansi.ts';
import './Code.css';
import { readDiff, type Cell, type FileDiff, type Row } from './diff.ts';
import './Diff.css';
import { highlightLines, rulesFor, type Piece } from './highlight.ts';

const rowsAtOnce = 600;
/** More than this is shown in one colour. */
const maxChars = 100_000;

type Coloured = ReadonlyMap<string, readonly Piece[]>;

/** The pieces of each line, by its side and number. */
function coloursOf({ path, rows }: FileDiff): Coloured {
  const found = new Map<string, readonly Piece[]>();
  const rules = rulesFor(path);
  if (!rules) return found;
  for (const side of ['left', 'right'] as const) {
    const cells = rows.flatMap((row) => ('left' in row && row[side] ? [row[side]] : []));
    const lines = cells.map((cell) => plainText(cell.text));
    if (lines.reduce((sum, { length }) => sum + length, 0) > maxChars) continue;
    const pieces = highlightLines(lines.join('\n'), rules);
    cells.forEach((cell, at) => found.set(`${side} ${cell.number}`, pieces[at] ?? []));
  }
  return found;
}

function Text({ cell, side, colours }: { cell: Cell; side: string; colours: Coloured }): ReactNode {
  if (!cell) return null;
  const pieces = colours.get(`${side} ${cell.number}`);
  if (!pieces) return plainText(cell.text);
  return pieces.map(({ text, kind }, at) =>
    kind ? (
      <span key={at} className={kind}>
        {text}
      </span>
    ) : (
      text
    ),
  );
}

type RowProps = { row: Row; colours: Coloured; split: boolean };

const DiffRow = memo(function DiffRow({ row, colours, split }: RowProps) {
  if (!('left' in row))
    return (
      <tr className="diff-gap">
        <td colSpan={split ? 4 : 2}>{plainText(row.text) || '⋯'}</td>
      </tr>
    );
  const same = row.kind === 'same';
  const left = (
    <>
      <td className="diff-number">{row.left?.number}</td>
      <td className="diff-text" data-kind={same ? undefined : row.left ? 'removed' : 'none'}>
        <Text cell={row.left} side="left" colours={colours} />
      </td>
    </>
  );
  const right = (
    <>
      <td className="diff-number">{row.right?.number}</td>
      <td className="diff-text" data-kind={same ? undefined : row.right ? 'added' : 'none'}>
        <Text cell={row.right} side="right" colours={colours} />
      </td>
    </>
  );
  if (split)
    return (
      <tr>
        {left}
        {right}
      </tr>
    );
  return (
    <>
      {row.left && !same && <tr>{left}</tr>}
      {row.right && <tr>{right}</tr>}
    </>
  );
});

function File({ file, open }: { file: FileDiff; open: boolean }) {
  const split = useMedia('(min-width: 60rem)');
  const colours = useMemo(() => coloursOf(file), [file]);
  const [limit, setLimit] = useState(rowsAtOnce);
  const { path, added, removed, rows } = file;
  return (
    <details className="diff-file" open={open}>
      <summary>
        <span className="mono">{plainText(path)}</span>
        <span className="diff-count">
          <span className="diff-added">+{added}</span>{' '}
          <span className="diff-removed">−{removed}</span>
        </span>
      </summary>
      <div
        className="diff-scroll"
        tabIndex={0}
        role="region"
        aria-label={`Diff of ${plainText(path)}`}
      >
        <table data-split={split || undefined}>
          <colgroup>
            <col className="diff-numbers" />
            <col />
            {split && <col className="diff-numbers" />}
            {split && <col />}
          </colgroup>
          <tbody>
            {rows.slice(0, limit).map((row, at) => (
              <Fragment key={at}>
                <DiffRow row={row} colours={colours} split={split} />
              </Fragment>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > limit && (
        <button type="button" className="button quiet" onClick={() => setLimit(limit + rowsAtOnce)}>
          Show {Math.min(rowsAtOnce, rows.length - limit)} of {rows.length - limit} more lines
        </button>
      )}
    </details>
  );
}

const openUpTo = 12;

/** A unified diff, side by side where there is room. */
export default function Diff({ text }: { text: string }) {
  const files = useMemo(() => readDiff(text), [text]);
  if (files.length === 0) return <pre className="output">{plainText(text).slice(0, maxChars)}</pre>;
  return (
    <div className="diff" role="group" aria-label="Diff">
      {files.map((file, at) => (
        <File key={`${at} ${file.path}`} file={file} open={at < openUpTo} />
      ))}
    </div>
  );
}
