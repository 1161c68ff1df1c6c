import type { ReactNode } from 'react';
import './Notice.css';

type Props = {
  tone?: 'plain' | 'warn' | 'bad';
  title: string;
  children?: ReactNode;
  action?: { label: string; run: () => void };
};

/** A message in the flow of the page: what happened, and what to do about it. */
export function Notice({ tone = 'plain', title, children, action }: Props) {
  return (
    <div className="notice" data-tone={tone} role={tone === 'bad' ? 'alert' : undefined}>
      <p className="notice-title">{title}</p>
      {children && <div>{children}</div>}
      {action && (
        <button type="button" className="button" onClick={action.run}>
          {action.label}
        </button>
      )}
    </div>
  );
}
