import { memo, useMemo } from 'react';
import { plainText } from './ansi.ts';
import { highlight, rulesFor } from './highlight.ts';
import './Code.css';

/** More than this is shown in one colour: nobody reads it, and it would hold up the page. */
const maxChars = 60_000;

type Props = {
  text: string;
  label: string;
  /** In one colour. */
  plain?: boolean;
  /** A file's name or a language; JavaScript and TypeScript where nothing is said. */
  language?: string;
  /** The line that failed, counted from one. */
  mark?: number | null;
};

/** A program, in colours. It scrolls, so it takes the focus. */
export const Code = memo(function Code(props: Props) {
  const { text, label, plain = false, language = 'js', mark = null } = props;
  const code = useMemo(() => plainText(text).replace(/\n+$/, ''), [text]);
  const pieces = useMemo(() => {
    const rules = plain || code.length > maxChars ? null : rulesFor(language);
    return rules && highlight(code, rules);
  }, [plain, language, code]);
  const lines = mark === null ? 0 : code.split('\n').length;
  return (
    <pre className="code" tabIndex={0} role="region" aria-label={label}>
      {mark !== null && mark >= 1 && mark <= lines && <LineMark line={mark} />}
      <code>
        {pieces
          ? pieces.map(({ text: piece, kind }, i) =>
              kind ? (
                <span key={i} className={kind}>
                  {piece}
                </span>
              ) : (
                piece
              ),
            )
          : code}
      </code>
    </pre>
  );
});

/** A band behind one line. The style is set by script: the policy forbids the attribute. */
function LineMark({ line }: { line: number }) {
  return (
    <span
      className="code-mark"
      aria-hidden="true"
      ref={(it) => it?.style.setProperty('--line', String(line - 1))}
    />
  );
}
