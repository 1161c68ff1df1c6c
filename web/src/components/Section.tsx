import { useId, type ReactNode } from 'react';
import './Section.css';

type Props = {
  title: string;
  /** Sits at the end of the title's line: a count, a link. */
  aside?: ReactNode;
  /** For tables, which bring their own padding. */
  flush?: boolean;
  children: ReactNode;
};

/** A titled card; screen readers can jump from one to the next. */
export function Section({ title, aside, flush = false, children }: Props) {
  const id = useId();
  return (
    <section className="section card" aria-labelledby={id} data-flush={flush || undefined}>
      <div className="section-head">
        <h2 id={id}>{title}</h2>
        {aside && <div className="section-aside">{aside}</div>}
      </div>
      {children}
    </section>
  );
}
