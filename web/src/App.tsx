import { Suspense, useEffect, useRef, useState } from 'react';
import { FeedContext, StatusFeed } from './api/feed.ts';
import { useSessionLocked } from './api/session.ts';
import { ConnectionBanner } from './components/ConnectionBanner.tsx';
import { ErrorBoundary } from './components/ErrorBoundary.tsx';
import { Header } from './components/Header.tsx';
import { KeyPrompt } from './components/KeyPrompt.tsx';
import { Loading } from './components/Loading.tsx';
import { usePath } from './router.tsx';
import { findView } from './views.ts';
import Missing from './views/missing/index.tsx';

export function App() {
  const [feed] = useState(() => new StatusFeed());
  useEffect(() => feed.start(), [feed]);

  const locked = useSessionLocked();
  const path = usePath();
  const match = findView(path);
  const Shown = match?.view.view ?? Missing;
  const title = locked ? 'Key needed' : (match?.view.title ?? 'Not found');

  useEffect(() => {
    document.title = `${title} · cay`;
  }, [title]);

  // What a page load would do: the focus at the start of the new content, so that a keyboard or a
  // screen reader does not stay behind on something that is gone. The prompt takes it by itself.
  const main = useRef<HTMLElement>(null);
  const shown = useRef({ path, locked });
  useEffect(() => {
    const changed = shown.current.path !== path || shown.current.locked !== locked;
    shown.current = { path, locked };
    if (changed && !locked) main.current?.focus({ preventScroll: true });
  }, [path, locked]);

  return (
    <FeedContext value={feed}>
      <a className="skip-link" href="#main">
        Skip to content
      </a>
      <Header current={match?.view} />
      <ConnectionBanner />
      <main id="main" ref={main} tabIndex={-1} aria-label={title}>
        {locked ? (
          <KeyPrompt />
        ) : (
          <ErrorBoundary key={path}>
            <Suspense fallback={<Loading />}>
              <Shown params={match?.params ?? {}} />
            </Suspense>
          </ErrorBoundary>
        )}
      </main>
    </FeedContext>
  );
}
