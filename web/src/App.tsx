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

  // What a page load would do: a new title, and the focus at the start of the new content, so that
  // a keyboard or a screen reader does not stay behind on a link that is gone.
  const main = useRef<HTMLElement>(null);
  const shownPath = useRef(path);
  useEffect(() => {
    document.title = `${title} · cay`;
    if (shownPath.current === path) return;
    shownPath.current = path;
    main.current?.focus({ preventScroll: true });
  }, [path, title]);

  return (
    <FeedContext value={feed}>
      <a className="skip-link" href="#main">
        Skip to content
      </a>
      <Header current={match?.view} />
      <ConnectionBanner />
      <main id="main" ref={main} tabIndex={-1}>
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
