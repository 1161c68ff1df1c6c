import { memo, useMemo, useSyncExternalStore } from 'react';
import { plainText } from './ansi.ts';
import type { highlight } from './highlight.ts';
import './Code.css';

/** More than this is shown in one colour: nobody reads it, and it would hold up the page. */
const maxChars = 60_000;

let loaded: typeof highlight | null = null;
let loading = false;
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  if (!loading) {
    loading = true;
    import('./highlight.ts').then(
      (module) => {
        loaded = module.highlight;
        for (const each of listeners) each();
      },
      // Code in one colour will do.
      () => {},
    );
  }
  return () => listeners.delete(listener);
}

type Props = {
  text: string;
  label: string;
  /** Only JavaScript and TypeScript are coloured. */
  plain?: boolean;
  /** The line that failed, counted from one. */
  mark?: number | null;
};

/** A program, coloured as soon as the highlighter is there. It scrolls, so it takes the focus. */
export const Code = memo(function Code({ text, label, plain = false, mark = null }: Props) {
  const split = useSyncExternalStore(subscribe, () => loaded);
  const code = useMemo(() => plainText(text).replace(/\n+$/, ''), [text]);
  const pieces = useMemo(
    () => (split && !plain && code.length <= maxChars ? split(code) : null),
    [split, plain, code],
  );
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
