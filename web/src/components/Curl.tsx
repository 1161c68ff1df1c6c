import { useEffect, useId, useLayoutEffect, useRef, useState, useSyncExternalStore } from 'react';
import { useFeed } from '../api/feed.ts';
import { curl, type Call } from '../curl.ts';
import { plainText } from './ansi.ts';
import './Curl.css';

/** Whether the calls are shown beside what makes them: one switch for the whole page. */
const shownKey = 'cay.curl';
function readShown(): boolean {
  try {
    return localStorage.getItem(shownKey) === '1';
  } catch {
    return false;
  }
}
let shown = readShown();
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function setShown(value: boolean): void {
  shown = value;
  try {
    localStorage.setItem(shownKey, value ? '1' : '0');
  } catch {
    // It holds until the page is left.
  }
  for (const listener of listeners) listener();
}

export const useShown = (): boolean => useSyncExternalStore(subscribe, () => shown);

export function CurlSwitch() {
  const on = useShown();
  return (
    <button
      type="button"
      className="curl-switch"
      aria-pressed={on}
      title={on ? 'Hide the calls' : 'Show, beside each action, the call that does the same'}
      onClick={() => setShown(!on)}
    >
      curl
    </button>
  );
}

type CurlProps = { call: Call; of: string };

const edgePx = 12;
const gapPx = 4;

/** Below what it belongs to where there is room, else above, and always within the window. */
function place(panel: HTMLElement, anchor: HTMLElement): void {
  const { top, bottom, right } = anchor.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = panel;
  const fitsBelow = bottom + gapPx + height <= innerHeight - edgePx;
  const at = fitsBelow ? bottom + gapPx : Math.max(edgePx, top - gapPx - height);
  panel.style.insetBlockStart = `${at}px`;
  panel.style.insetInlineStart = `${Math.max(edgePx, right - width)}px`;
}

/** The call behind an action, as a line for a terminal, to be seen and copied. */
export function Curl(props: CurlProps) {
  return useShown() ? <CurlShown {...props} /> : null;
}

function CurlShown({ call, of }: CurlProps) {
  const { status } = useFeed();
  const [open, setOpen] = useState(false);
  const [copied, setCopied] = useState(false);
  const host = useRef<HTMLSpanElement>(null);
  const panel = useRef<HTMLSpanElement>(null);
  const id = useId();
  const text = curl(call, location.origin, !!status?.requireKey);
  useEffect(() => setCopied(false), [text, open]);

  // What it belongs to may move, in a list that scrolls say.
  useLayoutEffect(() => {
    if (!open) return;
    const follow = () => panel.current && host.current && place(panel.current, host.current);
    follow();
    addEventListener('resize', follow);
    document.addEventListener('scroll', follow, true);
    return () => {
      removeEventListener('resize', follow);
      document.removeEventListener('scroll', follow, true);
    };
  }, [open, text]);

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
      <span className="curl-panel card" id={id} ref={panel} hidden={!open}>
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
