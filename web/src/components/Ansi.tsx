import { memo } from 'react';
import { pieces } from './ansi.ts';

/** What a program printed, in its colours; everything else that a terminal would do is left out. */
export const Ansi = memo(function Ansi({ text }: { text: string }) {
  const all = pieces(text);
  if (all.length === 1 && all[0]?.kind === '') return all[0].text;
  return all.map(({ text: piece, kind }, at) =>
    kind === '' ? (
      piece
    ) : (
      <span key={at} className={kind}>
        {piece}
      </span>
    ),
  );
});
