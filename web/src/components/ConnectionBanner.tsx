import { useFeed } from '../api/feed.ts';
import { useNow } from '../hooks.ts';
import './ConnectionBanner.css';

/**
 * Says that the connection is lost, and when it will be tried again. The live region is always on
 * the page, since one that appears with its text is not read out by every screen reader; the
 * countdown stays outside it, or it would be read out every second.
 */
export function ConnectionBanner() {
  const { connection, status, retry } = useFeed();
  const lost = connection.state === 'lost';
  const now = useNow(lost ? 500 : null);
  const seconds = lost ? Math.ceil((connection.retryAt - now) / 1000) : 0;

  return (
    <div className="connection-banner" data-shown={lost || undefined}>
      <div className="connection-banner-row">
        <p role="status">
          {lost && (
            <>
              <strong>Connection lost.</strong>{' '}
              {status
                ? 'What you see is the last that was known.'
                : 'The server cannot be reached.'}
            </>
          )}
        </p>
        {lost && (
          <>
            <span className="countdown">
              {seconds > 0 ? `Next try in ${seconds} s` : 'Trying again…'}
            </span>
            <button type="button" className="button" onClick={retry}>
              Try now
            </button>
          </>
        )}
      </div>
    </div>
  );
}
