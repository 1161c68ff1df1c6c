import { Ansi } from './Ansi.tsx';
import './Code.css';

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
  return (
    <pre className="output" data-tone={tone} tabIndex={0} role="region" aria-label={label}>
      <Ansi text={text} />
    </pre>
  );
}

/** The tool adds the error to the output for the model's sake; people get the two apart. */
export function splitOutput(output: string, error: string | null): string {
  if (error === null) return output;
  const tail = `Error: ${error}`;
  return output.endsWith(tail) ? output.slice(0, -tail.length).replace(/\n+$/, '') : output;
}
