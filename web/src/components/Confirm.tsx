import { useEffect, useState } from 'react';

type Props = {
  label: string;
  /** What it is done to. */
  of: string;
  quiet?: boolean;
  disabled?: boolean;
  onConfirm: () => void;
};

const forgetMs = 4_000;

/** A button for what cannot be undone: it asks to be pressed again. */
export function Confirm({ label, of, quiet = false, disabled = false, onConfirm }: Props) {
  const [asked, setAsked] = useState(false);
  useEffect(() => {
    if (!asked) return;
    const timer = setTimeout(() => setAsked(false), forgetMs);
    return () => clearTimeout(timer);
  }, [asked]);
  return (
    <button
      type="button"
      className={quiet ? 'button quiet' : 'button'}
      data-asked={asked || undefined}
      disabled={disabled}
      onBlur={() => setAsked(false)}
      onClick={() => {
        if (asked) onConfirm();
        setAsked(!asked);
      }}
    >
      {asked ? `${label}: sure?` : label}
      <span className="visually-hidden"> {of}</span>
    </button>
  );
}
