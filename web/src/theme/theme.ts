/**
 * Light, dark, or whatever the system says. The choice lives in localStorage and, as `data-theme`,
 * on <html>; no attribute means the system decides. boot.js does the same before the first paint.
 */
import { useSyncExternalStore } from 'react';

export const themes = ['system', 'light', 'dark'] as const;
export type Theme = (typeof themes)[number];

const storageKey = 'cay.theme';
const listeners = new Set<() => void>();

function read(): Theme {
  const value = document.documentElement.dataset.theme;
  return value === 'light' || value === 'dark' ? value : 'system';
}

function apply(theme: Theme): void {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  for (const listener of listeners) listener();
}

export function setTheme(theme: Theme): void {
  try {
    if (theme === 'system') localStorage.removeItem(storageKey);
    else localStorage.setItem(storageKey, theme);
  } catch {
    // Storage is off: the choice lasts as long as the page.
  }
  apply(theme);
}

function subscribe(listener: () => void): () => void {
  // Another tab changed it.
  const onStorage = (event: StorageEvent) => {
    if (event.key !== storageKey && event.key !== null) return;
    const value = event.newValue;
    apply(value === 'light' || value === 'dark' ? value : 'system');
  };
  listeners.add(listener);
  window.addEventListener('storage', onStorage);
  return () => {
    listeners.delete(listener);
    window.removeEventListener('storage', onStorage);
  };
}

export function useTheme(): Theme {
  return useSyncExternalStore(subscribe, read);
}
