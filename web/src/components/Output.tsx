import { memo, useMemo } from 'react';
import { Ansi } from './Ansi.tsx';
import { addTo, blockChars, type Block } from './blocks.ts';
import './Code.css';

const lineEm = 1.5;

/** Sets what the browser takes for its height until it is seen; by script, as the policy wants it. */
const guess = (lines: number) => (it: HTMLElement | null) =>
  it?.style.setProperty('contain-intrinsic-block-size', `auto ${Math.max(1, lines) * lineEm}em`);

const BlockView = memo(function BlockView({ block }: { block: Block }) {
  return (
    <span className="output-block" ref={guess(block.lines)}>
      {block.parts.map(({ stream, text }, at) => (
        <span key={at} className={stream}>
          <Ansi text={text} />
        </span>
      ))}
    </span>
  );
});

/** first: how many are gone before these. */
export function Blocks({ blocks, first = 0 }: { blocks: readonly Block[]; first?: number }) {
  return blocks.map((block, at) => <BlockView key={first + at} block={block} />);
}

/** What a program printed, without a terminal's escapes. Long lines wrap; it scrolls by itself. */
export function Output({
  text,
  label,
  tone,
}: {
  text: string;
  label: string;
  tone?: 'bad' | undefined;
}) {
  const blocks = useMemo(
    () => (text.length > blockChars ? addTo([], { stream: 'stdout', text }) : null),
    [text],
  );
  return (
    <pre className="output" data-tone={tone} tabIndex={0} role="region" aria-label={label}>
      {blocks ? <Blocks blocks={blocks} /> : <Ansi text={text} />}
    </pre>
  );
}

/** The tool adds the error to the output for the model's sake; people get the two apart. */
export function splitOutput(output: string, error: string | null): string {
  if (error === null) return output;
  const tail = `Error: ${error}`;
  return output.endsWith(tail) ? output.slice(0, -tail.length).replace(/\n+$/, '') : output;
}
