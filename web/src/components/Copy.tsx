import { useEffect, useState } from 'react';

/** Copies a text; says so. Nothing where the browser gives no clipboard to the page. */
export function Copy({ text, of, label = 'Copy' }: { text: string; of: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => setCopied(false), [text]);
  if (!navigator.clipboard) return null;
  return (
    <button
      type="button"
      className="button quiet copy"
      onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true))}
    >
      {copied ? 'Copied' : label}
      <span className="visually-hidden"> {of}</span>
    </button>
  );
}
