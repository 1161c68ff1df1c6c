import { useEffect, useRef, useState } from 'react';
import { backoffMs } from '../../api/backoff.ts';
import { api, ApiError } from '../../api/client.ts';
import {
  cancelRun,
  emptyCode,
  followCode,
  readCodeEvent,
  startCode,
  type CodeState,
  type Step,
} from '../../api/code.ts';
import { object, text } from '../../api/types.ts';
import { Badge, RunBadge } from '../../components/Badge.tsx';
import { PlayIcon, StopIcon } from '../../components/Icon.tsx';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { RunTable } from '../../components/RunTable.tsx';
import { Section } from '../../components/Section.tsx';
import { formatDuration } from '../../format.ts';
import { useLoad, useNow } from '../../hooks.ts';
import { Link, navigate } from '../../router.tsx';
import type { ViewProps } from '../../views.ts';
import './coder.css';

const examples = [
  'Create a hello world Python script and run it',
  'Make a small web page and serve it',
];
const refreshMs = 5_000;

/** What was written stays while one looks at another view. */
let kept = '';

/** An agent that writes code in a sandbox, step by step. */
export default function CoderView({ params }: ViewProps) {
  const id = params['id'];
  return id ? <Job key={id} id={id} /> : <Start />;
}

function Start() {
  const [spec, setSpec] = useState(kept);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const earlier = useLoad((signal) => api.runs({ kind: 'code', limit: 10, signal }), [], refreshMs);
  const now = useNow(1000);
  kept = spec;

  async function start() {
    setBusy(true);
    setError(null);
    try {
      const id = await startCode({ spec });
      kept = '';
      navigate(`/coder/${id}`);
    } catch (cause) {
      setError(
        cause instanceof ApiError ? cause : new ApiError(0, 'unknown', 'Something went wrong'),
      );
      setBusy(false);
    }
  }

  return (
    <div className="stack view-coder">
      <div className="page-head">
        <h1>Coder</h1>
        <p>
          An agent does what you say, in a sandbox of its own: every step is shown, and what it
          changed.
        </p>
      </div>
      <form
        className="card stack coder-form"
        onSubmit={(event) => {
          event.preventDefault();
          void start();
        }}
      >
        <label className="field">
          <span>What is to be done</span>
          <textarea
            rows={4}
            dir="auto"
            value={spec}
            onChange={(event) => setSpec(event.target.value)}
            placeholder="Say what you want"
          />
        </label>
        <div className="coder-examples">
          {examples.map((example) => (
            <button
              key={example}
              type="button"
              className="button quiet"
              onClick={() => setSpec(example)}
            >
              {example}
            </button>
          ))}
        </div>
        <div>
          <button type="submit" className="button primary" disabled={busy || spec.trim() === ''}>
            <PlayIcon /> {busy ? 'Starting…' : 'Start'}
          </button>
        </div>
        {error && (
          <Notice tone="bad" title="It could not be started">
            {error.message}
          </Notice>
        )}
      </form>
      {earlier.data && earlier.data.runs.length > 0 && (
        <Section title="Earlier" flush>
          <RunTable runs={earlier.data.runs} now={now} link={(run) => `/coder/${run.id}`} />
        </Section>
      )}
    </div>
  );
}

/** Follows a job through whatever happens to the line. */
function useCode(id: string): { state: CodeState; lost: boolean; error: ApiError | null } {
  const [state, setState] = useState(emptyCode);
  const [lost, setLost] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const latest = useRef(emptyCode);

  useEffect(() => {
    const abort = new AbortController();
    const follow = async () => {
      for (let attempt = 0; !abort.signal.aborted && !latest.current.run; attempt++) {
        try {
          for await (const [seq, type, data] of followCode(id, latest.current.seq, abort.signal)) {
            latest.current = { ...readCodeEvent(latest.current, type, data), seq };
            setState(latest.current);
            setLost(false);
            attempt = 0;
          }
        } catch (cause) {
          if (abort.signal.aborted) return;
          if (cause instanceof ApiError && cause.status >= 400 && cause.status < 500) {
            setError(cause);
            return;
          }
        }
        if (abort.signal.aborted || latest.current.run) return;
        setLost(true);
        await new Promise((done) => setTimeout(done, backoffMs(attempt)));
      }
    };
    void follow();
    return () => abort.abort();
  }, [id]);
  return { state, lost, error };
}

function Job({ id }: { id: string }) {
  const { state, lost, error } = useCode(id);
  const [stopping, setStopping] = useState(false);
  const ended = state.run !== null;
  const detail = useLoad(
    (signal) => (ended ? api.run(id, signal) : Promise.resolve(null)),
    [id, ended],
  );
  const record = object(detail.data?.detail);
  const diff = text(record['diff']);
  const spec = text(record['spec']);

  if (error)
    return (
      <Notice tone="bad" title="There is no such job">
        {error.message} <Link to="/coder">Start another</Link>
      </Notice>
    );
  return (
    <div className="stack view-coder">
      <div className="page-head">
        <h1>Coder</h1>
        <p dir="auto">{spec || detail.data?.title || 'An agent at work'}</p>
      </div>
      <div className="coder-bar">
        {state.run ? <RunBadge status={state.run.status} /> : <RunBadge status="running" />}
        {state.model !== '' && (
          <span>{state.model === 'demo' ? 'demo, a script' : state.model}</span>
        )}
        {state.sandbox !== '' && !ended && (
          <Link to={`/sandboxes/${state.sandbox}`}>Open the sandbox</Link>
        )}
        {!ended && (
          <button
            type="button"
            className="button"
            disabled={stopping}
            onClick={() => {
              setStopping(true);
              cancelRun(id).catch(() => setStopping(false));
            }}
          >
            <StopIcon /> {stopping ? 'Stopping…' : 'Stop'}
          </button>
        )}
        {ended && <Link to="/coder">Start another</Link>}
      </div>
      {lost && (
        <Notice title="The line to the server is cut">
          The agent goes on; this page comes back by itself.
        </Notice>
      )}
      <Steps state={state} />
      {state.summary !== '' && <Notice title="Done">{state.summary}</Notice>}
      {state.run?.error && (
        <Notice tone="bad" title="It did not finish">
          {state.run.error.message}
        </Notice>
      )}
      {diff !== '' && (
        <Section title="What it changed">
          <Diff text={diff} />
        </Section>
      )}
    </div>
  );
}

function Steps({ state }: { state: CodeState }) {
  const said = (after: number) =>
    state.words
      .filter((w) => w.after === after)
      .map((w, i) => (
        <p key={i} className={w.bad ? 'coder-said bad' : 'coder-said'} dir="auto">
          {w.text}
        </p>
      ));
  if (state.steps.length === 0 && state.words.length === 0 && !state.run)
    return <Loading what="The agent begins" />;
  return (
    <ol className="coder-steps" aria-label="Steps" aria-live="polite">
      {said(0).length > 0 && <li className="coder-words">{said(0)}</li>}
      {state.steps.map((step, i) => (
        <li key={step.step}>
          <StepCard step={step} />
          {said(i + 1)}
        </li>
      ))}
    </ol>
  );
}

function StepCard({ step }: { step: Step }) {
  return (
    <article className="card coder-step" aria-label={`Step ${step.step}: ${step.tool}`}>
      <header>
        <strong>{step.tool}</strong>
        <Badge tone={step.ok === null ? 'busy' : step.ok ? 'ok' : 'bad'}>
          {step.ok === null ? 'at work' : step.ok ? 'ok' : 'failed'}
        </Badge>
        {step.ok !== null && <span className="coder-time">{formatDuration(step.ms)}</span>}
      </header>
      <pre tabIndex={0} aria-label="Arguments">
        {typeof step.args === 'string' ? step.args : JSON.stringify(step.args, null, 1)}
      </pre>
      {step.output !== '' && (
        <pre className="coder-output" tabIndex={0} aria-label="Output">
          {step.output}
        </pre>
      )}
    </article>
  );
}

const lineClass = (line: string): string =>
  line.startsWith('diff ') || line.startsWith('+++') || line.startsWith('---')
    ? 'head'
    : line.startsWith('@@')
      ? 'hunk'
      : line.startsWith('+')
        ? 'added'
        : line.startsWith('-')
          ? 'removed'
          : '';

function Diff({ text: diff }: { text: string }) {
  const lines = diff.split('\n');
  return (
    <pre className="coder-diff" tabIndex={0} aria-label="Diff">
      {lines.slice(0, 5000).map((line, i) => (
        <span key={i} className={lineClass(line)}>
          {line}
          {'\n'}
        </span>
      ))}
      {lines.length > 5000 && <span className="hunk">… {lines.length - 5000} more lines</span>}
    </pre>
  );
}
