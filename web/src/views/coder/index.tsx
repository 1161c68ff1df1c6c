import { Suspense, useState } from 'react';
import { ApiError, api, send } from '../../api/client.ts';
import { cancelRun, startJob, type CodeRequest } from '../../api/code.ts';
import { useCode } from '../../api/follow.ts';
import { calls, sandboxes } from '../../api/sandboxes.ts';
import { object, text } from '../../api/types.ts';
import { plainText } from '../../components/ansi.ts';
import { RunBadge } from '../../components/Badge.tsx';
import { Steps } from '../../components/CodeSteps.tsx';
import { Confirm } from '../../components/Confirm.tsx';
import { Copy } from '../../components/Copy.tsx';
import { Curl } from '../../components/Curl.tsx';
import { PlayIcon, StopIcon } from '../../components/Icon.tsx';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { RunTable } from '../../components/RunTable.tsx';
import { Section } from '../../components/Section.tsx';
import { formatAge, formatBytes } from '../../format.ts';
import { useLoad, useNow } from '../../hooks.ts';
import { useKept } from '../../kept.ts';
import { lazyView } from '../../lazyView.ts';
import { Link, navigate } from '../../router.tsx';
import type { ViewProps } from '../../views.ts';
import { maxFilesBytes, readPicked, type File } from '../sandboxes/form.ts';
import { isLive, timeLeft } from '../sandboxes/live.ts';
import './coder.css';

const Diff = lazyView(() => import('../../components/Diff.tsx'));

const examples = [
  'Create a hello world Python script and run it',
  'Make a small web page and serve it',
  'Fix the failing test',
];
const refreshMs = 5_000;
const draftKey = 'coder';

const problemOf = (cause: unknown): string =>
  cause instanceof ApiError ? cause.message : 'Something went wrong';

/** An agent that writes code in a sandbox, step by step. */
export default function CoderView({ params }: ViewProps) {
  const id = params['id'];
  return id ? <Job key={id} id={id} /> : <Start />;
}

type Options = { agent: string; model: string; maxSteps: string; repo: string };
const noOptions: Options = { agent: '', model: '', maxSteps: '', repo: '' };

function bodyOf(spec: string, options: Options, files: readonly File[]): CodeRequest {
  const { agent, model, maxSteps, repo } = options;
  return {
    spec,
    // It can be looked at, taken home and gone on with.
    keep: true,
    ...(agent ? { agent } : {}),
    ...(model.trim() ? { model: model.trim() } : {}),
    ...(/^\d{1,4}$/.test(maxSteps.trim()) ? { max_steps: Number(maxSteps) } : {}),
    ...(repo.trim() ? { repo: repo.trim() } : {}),
    ...(files.length > 0 ? { files: [...files] } : {}),
  };
}

function Start() {
  const [spec, setSpec] = useKept(draftKey);
  const [options, setOptions] = useState(noOptions);
  const [files, setFiles] = useState<File[]>([]);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const earlier = useLoad((signal) => api.runs({ kind: 'code', limit: 20, signal }), [], refreshMs);
  const now = useNow(1000);
  const body = bodyOf(spec, options, files);

  async function start() {
    setBusy(true);
    setProblem(null);
    try {
      const id = await startJob('/v1/code', body);
      setSpec('');
      navigate(`/coder/${id}`);
    } catch (cause) {
      setProblem(problemOf(cause));
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
        <ul className="suggestions" aria-label="Suggestions">
          {examples.map((example) => (
            <li key={example}>
              <button type="button" onClick={() => setSpec(example)}>
                {example}
              </button>
            </li>
          ))}
        </ul>
        <More options={options} change={setOptions} onFiles={setFiles} />
        <div className="coder-start">
          <button type="submit" className="button primary" disabled={busy || spec.trim() === ''}>
            <PlayIcon /> {busy ? 'Starting…' : 'Start'}
          </button>
          <Curl call={{ path: '/v1/code', body, stream: true }} of="start" />
        </div>
        {problem !== null && (
          <Notice tone="bad" title="It could not be started">
            {problem}
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

type MoreProps = {
  options: Options;
  change: (options: Options) => void;
  onFiles: (files: File[]) => void;
};

function More({ options, change, onFiles }: MoreProps) {
  const [wrong, setWrong] = useState<string | null>(null);
  async function pick(list: FileList | null) {
    const picked = [...(list ?? [])];
    const bytes = picked.reduce((sum, file) => sum + file.size, 0);
    const tooMuch = bytes > maxFilesBytes;
    setWrong(tooMuch ? `These are more than ${formatBytes(maxFilesBytes)}.` : null);
    onFiles(tooMuch ? [] : await readPicked(picked));
  }
  const text = (key: 'model' | 'maxSteps' | 'repo', label: string) => (
    <label>
      <span>{label}</span>
      <input
        value={options[key]}
        onChange={(event) => change({ ...options, [key]: event.target.value })}
      />
    </label>
  );
  return (
    <details className="coder-more">
      <summary>Files, repository, agent and model</summary>
      <div className="fields coder-options">
        <label>
          <span>Files to work on</span>
          <input type="file" multiple onChange={(event) => void pick(event.target.files)} />
        </label>
        {text('repo', 'or a git repository (https address)')}
        <label>
          <span>Agent</span>
          <select
            value={options.agent}
            onChange={(event) => change({ ...options, agent: event.target.value })}
          >
            <option value="">cay’s own coder</option>
            <option value="claude-code">Claude Code</option>
          </select>
        </label>
        {text('model', 'Model (none: the server’s)')}
        {text('maxSteps', 'Steps at most (none: 5)')}
      </div>
      {wrong !== null && <p className="field-error">{wrong}</p>}
    </details>
  );
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
  const note = text(record['diff_note']);

  if (error)
    return (
      <Notice tone="bad" title="There is no such job">
        {error.message} <Link to="/coder">Start another</Link>
      </Notice>
    );
  return (
    <div className="stack view-coder">
      <nav aria-label="Breadcrumb" className="crumb">
        <Link to="/coder">Coder</Link>
      </nav>
      <div className="page-head">
        <h1>Coder</h1>
        <p dir="auto">{plainText(spec || detail.data?.title || 'An agent at work')}</p>
      </div>
      <div className="coder-bar">
        {state.run ? <RunBadge status={state.run.status} /> : <RunBadge status="running" />}
        {state.model !== '' && (
          <span>{state.model === 'demo' ? 'demo, a script' : plainText(state.model)}</span>
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
      {state.summary !== '' && (
        <Notice title="Done">
          <span dir="auto">{plainText(state.summary)}</span>
        </Notice>
      )}
      {state.run?.error && (
        <Notice tone="bad" title="It did not finish">
          {plainText(state.run.error.message)}
        </Notice>
      )}
      {diff !== '' && (
        <Section
          title="What it changed"
          aside={<Copy text={diff} of="the diff" label="Copy the diff" />}
        >
          <Suspense fallback={<Loading />}>
            <Diff text={diff} />
          </Suspense>
          {note !== '' && <p className="coder-note">{plainText(note)}</p>}
        </Section>
      )}
      {ended && detail.data && diff === '' && (
        <p className="coder-note">{note === '' ? 'It changed no file.' : plainText(note)}</p>
      )}
      {state.sandbox !== '' && <Sandbox key={String(ended)} id={state.sandbox} ended={ended} />}
    </div>
  );
}

/** The sandbox it works in: to be looked into, taken home, gone on with. */
function Sandbox({ id, ended }: { id: string; ended: boolean }) {
  const { data, reload } = useLoad((signal) => sandboxes.get(id, signal), [id], refreshMs);
  const [problem, setProblem] = useState<string | null>(null);
  const now = useNow(1000);
  if (!data) return null;
  const left = timeLeft(data, now);
  if (!isLive(data)) return ended ? <p className="coder-note">Its sandbox has ended.</p> : null;
  const at = `/sandboxes/${encodeURIComponent(id)}`;
  const tar = calls.tar(id, '/work', 'work.tar');

  async function end() {
    try {
      await send(calls.remove(id));
    } catch (cause) {
      setProblem(problemOf(cause));
    }
    reload();
  }

  return (
    <Section
      title="Its sandbox"
      aside={left === null ? 'It runs.' : `It runs for ${formatAge(left)} more.`}
    >
      <div className="coder-sandbox">
        <Link to={`${at}#terminal`} className="button">
          Open the sandbox
        </Link>
        <Link to={`${at}#files`}>Files</Link>
        <Link to={`${at}#ports`}>Ports</Link>
        {ended && (
          <>
            <a className="button" href={tar.path} download="work.tar">
              Download as tar
            </a>
            <Curl call={tar} of="download as tar" />
            <Confirm label="End the sandbox" of={id} quiet onConfirm={() => void end()} />
          </>
        )}
      </div>
      {problem !== null && <Notice tone="bad" title={problem} />}
      {ended && <FollowUp sandbox={id} />}
    </Section>
  );
}

function FollowUp({ sandbox }: { sandbox: string }) {
  const [spec, setSpec] = useKept(`coder ${sandbox}`);
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const body: CodeRequest = { spec, sandbox, keep: true };
  async function goOn() {
    setBusy(true);
    setProblem(null);
    try {
      const id = await startJob('/v1/code', body);
      setSpec('');
      navigate(`/coder/${id}`);
    } catch (cause) {
      setProblem(problemOf(cause));
      setBusy(false);
    }
  }
  return (
    <form
      className="coder-follow"
      onSubmit={(event) => {
        event.preventDefault();
        void goOn();
      }}
    >
      <label className="field">
        <span>Go on in the same sandbox</span>
        <textarea
          rows={2}
          dir="auto"
          value={spec}
          onChange={(event) => setSpec(event.target.value)}
          placeholder="What comes next"
        />
      </label>
      <div className="coder-start">
        <button type="submit" className="button primary" disabled={busy || spec.trim() === ''}>
          <PlayIcon /> {busy ? 'Starting…' : 'Go on'}
        </button>
        <Curl call={{ path: '/v1/code', body, stream: true }} of="go on" />
      </div>
      {problem !== null && <Notice tone="bad" title={problem} />}
    </form>
  );
}
