import { useState } from 'react';
import { api, ApiError } from '../../api/client.ts';
import { useFeed } from '../../api/feed.ts';
import { readProgram, type Program } from '../../api/program.ts';
import { plainText } from '../../components/ansi.ts';
import { Code } from '../../components/Code.tsx';
import { Copy } from '../../components/Copy.tsx';
import { Curl } from '../../components/Curl.tsx';
import { Notice } from '../../components/Notice.tsx';
import { ProgramFailure } from '../../components/ProgramParts.tsx';
import { curl } from '../../curl.ts';
import { formatDuration } from '../../format.ts';
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

const program = `export default async () => {
  console.log('Hello');
  try {
    await fetch('http://1.1.1.1');
  } catch (e) {
    return String(e);
  }
};`;
const run = { code: program };

/** Runs before one's eyes, without leaving the page. */
function RunNow() {
  const [ran, setRan] = useState<Program | null>(null);
  const [wrong, setWrong] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  async function start() {
    setBusy(true);
    setWrong(null);
    try {
      setRan(readProgram(await api.json('/v1/run', { method: 'POST', body: run })));
    } catch (cause) {
      setWrong(cause instanceof ApiError ? cause.message : 'Something went wrong');
    }
    setBusy(false);
  }
  return (
    <>
      <Code text={program} label="A program" />
      <div className="home-actions">
        <button type="button" className="button" disabled={busy} onClick={() => void start()}>
          {ran ? 'Run it again' : 'Run it here'}
        </button>
        <Curl call={{ path: '/v1/run', body: run }} of="run the program" />
      </div>
      {wrong !== null && (
        <Notice tone="bad" title="It was not run">
          {wrong}.
        </Notice>
      )}
      {ran?.error && <ProgramFailure error={ran.error} />}
      {ran && !ran.error && (
        <dl className="home-outcome" role="status">
          <dt>Printed</dt>
          <dd>{plainText(ran.output.trim())}</dd>
          <dt>Gave back</dt>
          <dd>{plainText(String(ran.result))}</dd>
          <dt>Took</dt>
          <dd>{formatDuration(ran.usage.wall_ms ?? null)}</dd>
        </dl>
      )}
    </>
  );
}

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
            {to === '/play' && <RunNow />}
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
