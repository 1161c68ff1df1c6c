/** How a program that ran is shown: its lines, its error, its result, what it used. */
import { memo, useEffect, useLayoutEffect, useRef, useState } from 'react';
import {
  countLines,
  linesAtOnce,
  type LogLine,
  type Program,
  type ProgramError,
} from '../api/program.ts';
import { formatBytes, formatDuration } from '../format.ts';
import { Ansi } from './Ansi.tsx';
import { plainText } from './ansi.ts';
import { Facts, type Fact } from './Facts.tsx';
import { Output } from './Output.tsx';
import { Tree } from './Tree.tsx';
import './ProgramParts.css';

/** Of a flood: each draw may bring as many that are new. When it is over, the others are drawn as many at a time. */
const linesOfDraw = 400;

const Line = memo(function Line({ line }: { line: LogLine }) {
  return (
    <div className="log-line" data-level={line.level}>
      {line.level !== 'log' && <span className="log-level">{line.level}</span>}
      <span className="log-text">
        <Ansi text={line.message} />
      </span>
    </div>
  );
});

type LinesProps = {
  lines: readonly LogLine[];
  /** How many came before these. */
  before?: number;
  /** More may come. */
  live?: boolean;
};

/**
 * The newest lines, followed until the reader scrolls up; a screen reader hears nothing of each, or
 * it would never stop.
 */
export const LogLines = memo(function LogLines({ lines, before = 0, live = false }: LinesProps) {
  const box = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const [room, setRoom] = useState(linesOfDraw);
  const from = Math.max(0, lines.length - room);
  const shown = lines.slice(from);
  const first = before + countLines(lines.slice(0, from));
  useLayoutEffect(() => {
    if (box.current && follows.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, room]);
  useEffect(() => {
    if (live) return setRoom(linesOfDraw);
    if (room >= Math.min(lines.length, linesAtOnce)) return undefined;
    const timer = setTimeout(() => setRoom(room + linesOfDraw), 0);
    return () => clearTimeout(timer);
  }, [live, lines, room]);
  return (
    <div
      className="log-lines"
      tabIndex={0}
      role="region"
      aria-label="Output"
      ref={box}
      onScroll={({ currentTarget: it }) => {
        follows.current = it.scrollHeight - it.scrollTop - it.clientHeight < 40;
      }}
    >
      {first > 0 && (
        <p className="log-left-out">{first.toLocaleString('en')} lines above are not shown.</p>
      )}
      {shown.map((line, index) => (
        <Line key={first + index} line={line} />
      ))}
    </div>
  );
});

export function ProgramFailure({ error }: { error: ProgramError }) {
  const where =
    error.line === null
      ? ''
      : ` (line ${error.line}${error.column === null ? '' : `, column ${error.column}`})`;
  const first = `${error.name}: ${error.message}`;
  const text = error.stack.startsWith(first) ? error.stack : `${first}\n${error.stack}`.trim();
  return (
    <div className="program-failure">
      <p className="failure-title">
        {plainText(first)}
        {where}
      </p>
      {text !== first && <Output text={text} label="Error" tone="bad" />}
    </div>
  );
}

export function ProgramResult({ value }: { value: unknown }) {
  return (
    <div className="program-result" role="region" aria-label="Result">
      <Tree value={value} />
    </div>
  );
}

export function ProgramUsage({ program }: { program: Program }) {
  const { usage } = program;
  const ms = (key: string) => formatDuration(usage[key] ?? null);
  const facts: Fact[] = [
    ['Wall time', ms('wall_ms')],
    ['CPU time', ms('cpu_ms')],
    ['Peak memory', formatBytes(usage.peak_memory_bytes || null)],
    ['Calls to bindings', String(usage.binding_calls ?? 0)],
    ['Output', formatBytes(usage.output_bytes ?? null)],
  ];
  return <Facts facts={facts} />;
}
