/**
 * The whole router: the History API as an external store, patterns such as `/runs/:id`, and a link
 * that the browser still treats as a link (open in a new tab, copy address, middle click).
 */
import { useSyncExternalStore, type ComponentProps } from 'react';

export type Params = Record<string, string>;

const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  window.addEventListener('popstate', listener);
  return () => {
    listeners.delete(listener);
    window.removeEventListener('popstate', listener);
  };
}

/** Goes to a path of this site, as following a link would. */
export function navigate(to: string, options: { replace?: boolean } = {}): void {
  if (options.replace) history.replaceState(null, '', to);
  else {
    keepPlace();
    history.pushState(null, '', to);
  }
  window.scrollTo(0, 0);
  for (const listener of listeners) listener();
}

/** Where one was on a page, kept with its place in the history. */
function keepPlace(): void {
  history.replaceState({ ...(history.state as object | null), y: scrollY }, '');
}

/**
 * A view that comes back is short until it has loaded, and may be so again when it loads anew: its place is found when
 * it is long enough, and held for a moment, unless one goes elsewhere meanwhile.
 */
const findPlaceMs = 20_000;
const holdPlaceMs = 500;

function findPlace(): void {
  const y = Number((history.state as { y?: number } | null)?.y ?? 0);
  if (!(y > 0)) return;
  const path = location.pathname;
  let end = Date.now() + findPlaceMs;
  let found = false;
  const moved = new AbortController();
  for (const event of ['wheel', 'touchstart', 'pointerdown', 'keydown'])
    addEventListener(event, () => moved.abort(), { passive: true, signal: moved.signal });
  const look = () => {
    if (moved.signal.aborted) return;
    if (location.pathname !== path || Date.now() > end) return moved.abort();
    if (document.documentElement.scrollHeight - innerHeight >= y) {
      if (Math.abs(scrollY - y) > 1) window.scrollTo(0, y);
      if (!found) end = Date.now() + holdPlaceMs;
      found = true;
    }
    setTimeout(look, 50);
  };
  look();
}

if (typeof window !== 'undefined') {
  window.addEventListener('popstate', () => setTimeout(findPlace, 0));
}

export function usePath(): string {
  return useSyncExternalStore(subscribe, () => location.pathname);
}

/** null for what names nothing: a malformed escape, or a control character. */
function decode(part: string): string | null {
  try {
    const name = decodeURIComponent(part);
    return /[\x00-\x1f\x7f]/.test(name) ? null : name;
  } catch {
    return null;
  }
}

/** The parameters of `path` if it fits the pattern, else null; a slash at its end is ignored. */
export function matchPath(pattern: string, path: string): Params | null {
  const want = pattern.split('/').filter(Boolean);
  const have = path.split('/').filter(Boolean);
  if (want.length !== have.length) return null;
  const params: Params = {};
  for (const [i, part] of want.entries()) {
    const value = have[i] ?? '';
    if (!part.startsWith(':')) {
      if (part !== value) return null;
      continue;
    }
    const name = decode(value);
    if (name === null) return null;
    params[part.slice(1)] = name;
  }
  return params;
}

type LinkProps = Omit<ComponentProps<'a'>, 'href'> & { to: string };

export function Link({ to, onClick, ...rest }: LinkProps) {
  return (
    <a
      {...rest}
      href={to}
      onClick={(event) => {
        onClick?.(event);
        const plain = !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
        if (event.defaultPrevented || event.button !== 0 || !plain || rest.target) return;
        event.preventDefault();
        navigate(to);
      }}
    />
  );
}
