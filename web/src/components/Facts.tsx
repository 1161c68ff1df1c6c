import type { ReactNode } from 'react';
import './Facts.css';

export type Fact = [term: string, value: ReactNode];

/** Terms and their values, side by side where there is room. */
export function Facts({ facts }: { facts: readonly Fact[] }) {
  return (
    <dl className="facts">
      {facts.map(([term, value]) => (
        <div key={term}>
          <dt>{term}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
