import { Children, createElement, type ReactNode } from 'react';
import { capital } from '../format.ts';
import './Notice.css';

type Props = {
  tone?: 'plain' | 'warn' | 'bad';
  title: string;
  children?: ReactNode;
  action?: { label: string; run: () => void };
};

/** What the server says begins with a small letter, as it stands in other sentences too. */
function sentence(children: ReactNode): ReactNode[] {
  const [first, ...rest] = Children.toArray(children);
  return [typeof first === 'string' ? capital(first) : first, ...rest];
}

/** A message in the flow of the page: what happened, and what to do about it. */
export function Notice({ tone = 'plain', title, children, action }: Props) {
  return (
    <div className="notice" data-tone={tone} role={tone === 'bad' ? 'alert' : undefined}>
      <p className="notice-title">{capital(title)}</p>
      {children && createElement('div', null, ...sentence(children))}
      {action && (
        <button type="button" className="button" onClick={action.run}>
          {action.label}
        </button>
      )}
    </div>
  );
}
