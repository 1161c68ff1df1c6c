import { useState } from 'react';
import { ApiError } from '../../api/client.ts';
import { cancelRun, startJob } from '../../api/code.ts';
import type { RunDetail } from '../../api/types.ts';
import { object, text } from '../../api/types.ts';
import { Curl } from '../../components/Curl.tsx';
import { PlayIcon, StopIcon } from '../../components/Icon.tsx';
import { writeKept } from '../../kept.ts';
import { Link, navigate } from '../../router.tsx';
import { againOf, conversationOf } from './again.ts';

const problemOf = (cause: unknown): string =>
  cause instanceof ApiError ? cause.message : 'Something went wrong';

/** What can be done with a run: stopped, begun again, opened where it came from. */
export function Actions({ run, code }: { run: RunDetail; code: string | null }) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const again = againOf(run);
  const talk = conversationOf(run);
  const detail = object(run.detail);
  const at = talk && `/chat/${encodeURIComponent(talk.agent)}/${encodeURIComponent(talk.name)}`;

  async function act(what: () => Promise<void>) {
    setBusy(true);
    setProblem(null);
    try {
      await what();
    } catch (cause) {
      setProblem(problemOf(cause));
    }
    setBusy(false);
  }

  return (
    <div className="run-actions">
      {run.status === 'running' && (
        <button
          type="button"
          className="button"
          disabled={busy}
          onClick={() => void act(() => cancelRun(run.id))}
        >
          <StopIcon /> Stop
        </button>
      )}
      {again && run.status !== 'running' && (
        <>
          <button
            type="button"
            className="button"
            disabled={busy}
            onClick={() =>
              void act(async () =>
                navigate(`/runs/${encodeURIComponent(await startJob(again.path, again.body))}`),
              )
            }
          >
            <PlayIcon /> {busy ? 'Starting…' : 'Run again'}
          </button>
          <Curl call={{ path: again.path, body: again.body }} of="run again" />
        </>
      )}
      {run.kind === 'run' && code !== null && run.status !== 'running' && (
        <Link className="button" to={`/play?run=${encodeURIComponent(run.id)}&again=1`}>
          <PlayIcon /> Run again
        </Link>
      )}
      {code !== null && (
        <Link className="button" to={`/play?run=${encodeURIComponent(run.id)}`}>
          Open in the playground
        </Link>
      )}
      {run.kind === 'chat' && talk && at && text(detail.said) && (
        <button
          type="button"
          className="button"
          onClick={() => {
            // It is put into the box there: nothing is said for the person.
            writeKept(`chat ${talk.agent} ${talk.name}`, text(detail.said));
            navigate(at);
          }}
        >
          Ask again
        </button>
      )}
      {at && <Link to={at}>Its conversation</Link>}
      {run.kind === 'code' && (
        <Link to={`/coder/${encodeURIComponent(run.id)}`}>Open in Coder</Link>
      )}
      {text(detail.sandbox) && detail.kept === true && (
        <Link to={`/sandboxes/${encodeURIComponent(text(detail.sandbox))}`}>Its sandbox</Link>
      )}
      {problem !== null && (
        <span className="field-error" role="alert">
          {problem}
        </span>
      )}
    </div>
  );
}
