import './JsonBlock.css';

/** Text as it is, anything else as indented JSON. It scrolls by itself, so it takes the focus. */
export function JsonBlock({ value, label }: { value: unknown; label: string }) {
  const text = typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  return (
    <pre className="json-block" tabIndex={0} role="region" aria-label={label}>
      {text}
    </pre>
  );
}
