import { useFeed } from '../../api/feed.ts';
import { Copy } from '../../components/Copy.tsx';
import { curl } from '../../curl.ts';
import { Link } from '../../router.tsx';
import './home.css';

const tries = [
  {
    to: '/chat',
    title: 'Ask an agent',
    text: 'It writes a program, runs it locked away from everything but its database, and shows both.',
    action: 'Open the chat',
  },
  {
    to: '/play',
    title: 'Run a program',
    text: 'JavaScript or TypeScript in an isolate: no network, no files, a few milliseconds.',
    action: 'Open the playground',
  },
  {
    to: '/coder',
    title: 'Have code written',
    text: 'An agent works in a Linux sandbox of its own, step by step, and hands you the diff.',
    action: 'Open the coder',
  },
] as const;

/** What this is, in ten seconds, and three things to try. */
export default function HomeView() {
  const { status } = useFeed();
  const call = {
    path: '/v1/run',
    body: { code: 'export default () => 6 * 7' },
  };
  const text = curl(call, location.origin, !!status?.requireKey);
  return (
    <div className="stack view-home">
      <div className="home-head">
        <h1>Run what agents write, safely</h1>
        <p>
          cay runs programs that you do not trust on a machine that you do. Each gets what it is
          handed, and nothing else.
        </p>
      </div>
      <ul className="home-tries">
        {tries.map(({ to, title, text: about, action }) => (
          <li key={to} className="card">
            <h2>{title}</h2>
            <p>{about}</p>
            <Link to={to} className="button primary">
              {action}
            </Link>
          </li>
        ))}
      </ul>
      <section className="card home-terminal" aria-labelledby="home-terminal">
        <div className="home-terminal-head">
          <h2 id="home-terminal">Or from a terminal</h2>
          <Copy text={text} of="the command" />
        </div>
        <pre tabIndex={0} role="region" aria-label="A program by curl">
          {text}
        </pre>
        <p>
          <Link to="/reference">The whole API</Link>, each call to be tried on the spot.{' '}
          {status?.model.provider === 'demo' && (
            <>
              No key of a model is set: a <strong>demo script</strong> answers in its place.
            </>
          )}
        </p>
      </section>
    </div>
  );
}
