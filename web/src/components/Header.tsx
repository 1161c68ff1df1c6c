import { useEffect, useRef, useState } from 'react';
import { api } from '../api/client.ts';
import { useFeed } from '../api/feed.ts';
import { forgetKept } from '../kept.ts';
import { Link } from '../router.tsx';
import { ThemeToggle } from '../theme/ThemeToggle.tsx';
import { isCurrent, views, type View } from '../views.ts';
import { CurlSwitch } from './Curl.tsx';
import { Mark } from './Icon.tsx';
import './Header.css';

const connectionWords = {
  connecting: 'Connecting',
  live: 'Live',
  lost: 'Offline',
  locked: 'Locked',
};

export function Header({ current }: { current: View | undefined }) {
  const { connection, status } = useFeed();

  const [failed, setFailed] = useState(false);

  // On a narrow window the entries scroll: the one that is shown is in sight.
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    if (!nav.current) return;
    const link = nav.current.querySelector<HTMLElement>('[aria-current]');
    nav.current.scrollLeft = link ? link.offsetLeft - nav.current.offsetWidth / 2 : 0;
  }, [current]);

  async function signOut() {
    try {
      await api.signOut();
      forgetKept();
      // A new page knows nothing of what the old one was shown.
      location.assign('/');
    } catch {
      setFailed(true);
    }
  }

  return (
    <header className="header">
      <div className="header-row">
        <Link to="/" className="brand" aria-label="cay, home">
          <Mark />
          <span>cay</span>
        </Link>
        <nav aria-label="Main" ref={nav}>
          <ul>
            {views
              .filter((item) => item.nav)
              .map((item) => (
                <li key={item.paths[0]}>
                  <Link
                    to={item.paths[0]}
                    {...(isCurrent(item, current) ? { 'aria-current': 'page' as const } : {})}
                  >
                    {item.title}
                  </Link>
                </li>
              ))}
          </ul>
        </nav>
        <div className="header-end">
          <span className="connection" data-state={connection.state}>
            <span>{connectionWords[connection.state]}</span>
          </span>
          {status?.key && (
            <button type="button" className="button quiet" onClick={() => void signOut()}>
              {failed ? 'Not signed out: try again' : 'Sign out'}
              <span className="visually-hidden"> {status.key.name}</span>
            </button>
          )}
          <CurlSwitch />
          <ThemeToggle />
        </div>
      </div>
    </header>
  );
}
