/**
 * What a person has written and not sent yet, kept over a reload and over leaving. Each tab has its
 * own, so that two do not write over each other; a new tab begins with what was written last.
 */
import { useCallback, useState } from 'react';

const prefix = 'cay.kept.';
/** A browser gives a page some 5 MB; one thing alone must not fill it. */
const maxChars = 1_000_000;

function stores(): Storage[] {
  try {
    return [sessionStorage, localStorage];
  } catch {
    // A browser that is told to keep nothing.
    return [];
  }
}

export function readKept(key: string): string | null {
  for (const store of stores()) {
    const text = store.getItem(prefix + key);
    if (text !== null) return text;
  }
  return null;
}

/** null forgets it. */
export function writeKept(key: string, text: string | null): void {
  for (const store of stores())
    try {
      if (text === null || text.length > maxChars) store.removeItem(prefix + key);
      else store.setItem(prefix + key, text);
    } catch {
      // It is full: what is on the screen is still there.
    }
}

/** It has another name now. */
export function moveKept(from: string, to: string): void {
  writeKept(to, readKept(from));
  writeKept(from, null);
}

/** The next person at this browser is somebody else. */
export function forgetKept(): void {
  for (const store of stores())
    for (const key of Object.keys(store)) if (key.startsWith(prefix)) store.removeItem(key);
}

/** A text that stays; an empty one is forgotten. */
export function useKept(key: string): [string, (text: string) => void] {
  const [text, setText] = useState(() => readKept(key) ?? '');
  const set = useCallback(
    (next: string) => {
      setText(next);
      writeKept(key, next === '' ? null : next);
    },
    [key],
  );
  return [text, set];
}
