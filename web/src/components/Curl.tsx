import { useEffect, useId, useRef, useState } from 'react';
import { useFeed } from '../api/feed.ts';
import { curl, type Call } from '../curl.ts';
import { plainText } from './ansi.ts';
import './Curl.css';

/** The call behind an action, as a line for a terminal: folded away, to be seen and copied. */
export function Curl({ call, of }: { call: Call; of: string }) {
  const { status } = useFeed();
  const [open, setOpen] = useState(false);
  const [copied, setCopied] = useState(false);
  const host = useRef<HTMLSpanElement>(null);
  const id = useId();
  const text = curl(call, location.origin, !!status?.requireKey);
  useEffect(() => setCopied(false), [text, open]);

  useEffect(() => {
    if (!open) return;
    const away = (event: Event) => {
      const target = event.target;
      if (target instanceof Node && !host.current?.contains(target)) setOpen(false);
    };
    const escape = (event: KeyboardEvent) => {
      if (event.key !== 'Escape') return;
      // A dialog around this one would close as well.
      event.preventDefault();
      setOpen(false);
      host.current?.querySelector('button')?.focus();
    };
    const element = host.current;
    document.addEventListener('pointerdown', away);
    document.addEventListener('focusin', away);
    element?.addEventListener('keydown', escape);
    return () => {
      document.removeEventListener('pointerdown', away);
      document.removeEventListener('focusin', away);
      element?.removeEventListener('keydown', escape);
    };
  }, [open]);

  return (
    <span className="curl" ref={host}>
      <button
        type="button"
        className="curl-toggle"
        aria-expanded={open}
        aria-controls={id}
        aria-label={`curl: ${of}`}
        onClick={() => setOpen(!open)}
      >
        curl
      </button>
      <span className="curl-panel card" id={id} hidden={!open}>
        <pre tabIndex={0} role="region" aria-label={`The same with curl: ${of}`}>
          {plainText(text)}
        </pre>
        {navigator.clipboard && (
          <button
            type="button"
            className="button quiet"
            onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true))}
          >
            {copied ? 'Copied' : 'Copy'}
          </button>
        )}
      </span>
    </span>
  );
}
