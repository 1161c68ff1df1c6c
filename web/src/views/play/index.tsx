import { Suspense, useEffect, useMemo, useRef, useState } from 'react';
import { api, ApiError } from '../../api/client.ts';
import { useFeed } from '../../api/feed.ts';
import { failedLine, readProgram } from '../../api/program.ts';
import { RunBadge } from '../../components/Badge.tsx';
import { plainText } from '../../components/ansi.ts';
import { useShown } from '../../components/Curl.tsx';
import { Copy } from '../../components/Copy.tsx';
import { PlayIcon, StopIcon } from '../../components/Icon.tsx';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { Output } from '../../components/Output.tsx';
import {
  LogLines,
  ProgramFailure,
  ProgramResult,
  ProgramUsage,
} from '../../components/ProgramParts.tsx';
import { Section } from '../../components/Section.tsx';
import { TimeAgo } from '../../components/TimeAgo.tsx';
import { formatDuration } from '../../format.ts';
import { useLoad, useNow } from '../../hooks.ts';
import { Link } from '../../router.tsx';
import { readKept, writeKept } from '../../kept.ts';
import { lazyView } from '../../lazyView.ts';
import { examples } from './examples.ts';
import { Database } from './Database.tsx';
import { Workers } from './Workers.tsx';
import { facetsOf, namesOf, withDatabase } from './env.ts';
import { bodyOf, curlOf, formOf, readForm, readShared, share, type Form } from './request.ts';
import { useProgram, type Running } from './useProgram.ts';
import './play.css';

const Editor = lazyView(() => import('./Editor.tsx'));

const recentRuns = 8;
const first: Form = {
  code: `export default async function (env) {
  console.log('Hello from an isolate');
  for (let i = 1; i <= 3; i++) {
    await new Promise((done) => setTimeout(done, 200));
    console.log('step', i);
  }
  return { sum: 1 + 2, env };
}
`,
  language: 'js',
  env: '',
  wallMs: '5000',
  memoryMib: '',
};

const draftKey = 'play';

/** What a link shares stands behind its #; what was written stays over leaving and reloading. */
function begin(): Form {
  const shared = readShared(location.hash);
  if (shared) return readForm(shared, first);
  try {
    return readForm(JSON.parse(readKept(draftKey) ?? ''), first);
  } catch {
    return first;
  }
}

/** A place to write a program and see it run. */
export default function PlayView() {
  const [form, setForm] = useState(begin);
  const [turn, setTurn] = useState(0);
  const latest = useRef(form);
  const [wrong, setWrong] = useState<string | null>(null);
  const { run, start, stop, show } = useProgram();
  const recent = useLoad((signal) => api.runs({ limit: recentRuns, kind: 'run', signal }), []);
  const busy = run.state === 'running';
  const names = useMemo(() => namesOf(form.env), [form.env]);
  const facets = useMemo(() => facetsOf(form.env), [form.env]);

  const change = (part: Partial<Form>) => {
    latest.current = { ...latest.current, ...part };
    setForm(latest.current);
    setWrong(null);
    writeKept(draftKey, JSON.stringify(latest.current));
  };

  /** A program that takes the place of what was written. */
  const put = (part: Partial<Form>) => {
    change(part);
    setTurn((before) => before + 1);
  };

  // A run of another view is opened here by its id.
  useEffect(() => {
    const asked = new URLSearchParams(location.search);
    const id = asked.get('run');
    if (!id) return;
    const again = asked.get('again') === '1';
    // A reload must not run it once more.
    if (again) history.replaceState(history.state, '', `/play?run=${encodeURIComponent(id)}`);
    void load(id).then((found) => (found && again ? runIt() : undefined));
  }, []);

  async function runIt() {
    const body = bodyOf(latest.current);
    setWrong(typeof body === 'string' ? body : null);
    if (typeof body === 'string') return;
    await start(body);
    recent.reload();
  }

  async function load(id: string): Promise<boolean> {
    try {
      const program = readProgram((await api.run(id)).detail);
      const found = program !== null && program.code !== null;
      setWrong(found ? null : 'That run has no program to load.');
      if (!found) return false;
      put(formOf(program));
      show(program);
      return true;
    } catch (cause) {
      const why = cause instanceof ApiError ? cause.message : 'it cannot be read';
      setWrong(`That run could not be loaded: ${why}.`);
      return false;
    }
  }

  return (
    <div className="view-play">
      <div className="page-head">
        <h1>Playground</h1>
        <p>Runs a program in an isolate: no network, no files, nothing but the env you hand it.</p>
      </div>
      <div className="play-columns">
        <div className="play-left">
          <div className="editor-frame card">
            <Suspense fallback={<Loading what="Loading the editor" />}>
              <Editor
                value={form.code}
                turn={turn}
                onChange={(code) => change({ code })}
                onRun={() => void runIt()}
                typescript={form.language === 'ts'}
                names={names}
                mark={busy ? null : failedLine(run.program?.error ?? null)}
              />
            </Suspense>
          </div>
          <Settings form={form} change={change} />
          {wrong !== null && <Notice tone="bad" title={wrong} />}
          <div className="play-actions">
            <button
              type="button"
              className="button primary"
              disabled={busy}
              onClick={() => void runIt()}
            >
              <PlayIcon />
              Run
            </button>
            <button type="button" className="button" disabled={!busy} onClick={stop}>
              <StopIcon />
              Stop
            </button>
            <span className="play-hint">
              <kbd>Ctrl</kbd>+<kbd>Enter</kbd> runs it
            </span>
            <span className="play-more">
              <label>
                <span className="visually-hidden">Examples</span>
                <select
                  value=""
                  onChange={(event) => {
                    const example = examples[Number(event.target.value)];
                    if (example) put({ language: 'js', ...example.form });
                  }}
                >
                  <option value="">Examples</option>
                  {examples.map(({ title }, at) => (
                    <option key={title} value={at}>
                      {title}
                    </option>
                  ))}
                </select>
              </label>
              <Copy
                text={`${location.origin}/play#${share(form)}`}
                of="to this program"
                label="Copy a link"
              />
            </span>
          </div>
        </div>
        <div className="play-side">
          <Outcome run={run} />
          {facets.map((facet) => (
            <Database key={facet} facet={facet} turn={run.state === 'ended' ? run.startedAt : 0} />
          ))}
        </div>
      </div>
      <Workers form={form} />
      <Recent
        runs={recent.data?.runs ?? []}
        failed={recent.error !== null && recent.data === null}
        onLoad={(id) => void load(id)}
      />
      <Curl form={form} />
    </div>
  );
}

function Settings({ form, change }: { form: Form; change: (part: Partial<Form>) => void }) {
  return (
    <div className="play-settings">
      <label>
        <span>Language</span>
        <select
          value={form.language}
          onChange={(event) => change({ language: event.target.value === 'ts' ? 'ts' : 'js' })}
        >
          <option value="js">JavaScript</option>
          <option value="ts">TypeScript</option>
        </select>
      </label>
      <label>
        <span>Time limit, ms (none: the server’s)</span>
        <input
          inputMode="numeric"
          value={form.wallMs}
          onChange={(event) => change({ wallMs: event.target.value })}
        />
      </label>
      <label>
        <span>Memory limit, MiB (none: the server’s)</span>
        <input
          inputMode="numeric"
          value={form.memoryMib}
          onChange={(event) => change({ memoryMib: event.target.value })}
        />
      </label>
      <button
        type="button"
        className="button quiet play-add"
        disabled={withDatabase(form.env) === null}
        onClick={() => change({ env: withDatabase(form.env) ?? form.env })}
      >
        Add a database
      </button>
      <label className="play-env">
        <span>Env, as JSON</span>
        <textarea
          rows={2}
          spellCheck={false}
          placeholder={'{ "NAME": "value", "db": { "$facet": "notes" } }'}
          value={form.env}
          onChange={(event) => change({ env: event.target.value })}
        />
      </label>
    </div>
  );
}

function Outcome({ run }: { run: Running }) {
  const { state, lines, program, problem } = run;
  const now = useNow(state === 'running' ? 100 : null);
  return (
    <section className="play-right card" aria-labelledby="play-outcome">
      <div className="outcome-head">
        <h2 id="play-outcome">Output</h2>
        <span className="outcome-state">
          {state === 'running' && <RunBadge status="running" />}
          {state === 'running' && formatDuration(now - run.startedAt)}
          {state === 'stopped' && <RunBadge status="cancelled" />}
          {program && <RunBadge status={program.status === 'done' ? 'done' : 'failed'} />}
          {lines.length > 0 && (
            <Copy
              text={lines.map(({ message }) => plainText(message)).join('\n')}
              of="the output"
            />
          )}
        </span>
      </div>
      <p className="visually-hidden" role="status">
        {state === 'running' && 'The program runs.'}
        {state === 'stopped' && 'The program was stopped.'}
        {program &&
          (program.error ? `It failed: ${program.error.message}` : 'The program has ended.')}
      </p>
      {state === 'idle' && (
        <p className="outcome-empty">What the program prints and gives back appears here.</p>
      )}
      {lines.length > 0 && (
        <LogLines lines={lines} before={run.before} live={state === 'running'} />
      )}
      {lines.length === 0 && program && !program.error && (
        <p className="outcome-empty">It printed nothing.</p>
      )}
      {problem !== null && (
        <Notice tone="bad" title="The program was not run to its end">
          {problem}.
        </Notice>
      )}
      {state === 'stopped' && <p className="outcome-empty">Stopped.</p>}
      {program?.error && <ProgramFailure error={program.error} />}
      {program && !program.error && (
        <>
          <h3>
            Result <Copy text={JSON.stringify(program.result ?? null, null, 2)} of="the result" />
          </h3>
          <ProgramResult value={program.result ?? null} />
        </>
      )}
      {program && (
        <>
          <h3>Usage</h3>
          <ProgramUsage program={program} />
        </>
      )}
    </section>
  );
}

type RecentProps = {
  runs: Awaited<ReturnType<typeof api.runs>>['runs'];
  failed: boolean;
  onLoad: (id: string) => void;
};

function Recent({ runs, failed, onLoad }: RecentProps) {
  const now = useNow(5_000);
  return (
    <Section title="Recent runs" flush aside={<Link to="/runs">All runs</Link>}>
      {runs.length === 0 && (
        <p className="table-empty">
          {failed ? 'They could not be loaded.' : 'Nothing has been run yet.'}
        </p>
      )}
      <ul className="recent-runs">
        {runs.map((item) => (
          <li key={item.id}>
            <RunBadge status={item.status} />
            <Link to={`/runs/${encodeURIComponent(item.id)}`}>
              {plainText(item.title) || item.id}
            </Link>
            <TimeAgo time={item.createdAt} now={Math.max(now, Date.parse(item.createdAt))} />
            <button
              type="button"
              className="button quiet"
              aria-label={`Load ${plainText(item.title) || item.id}`}
              onClick={() => onLoad(item.id)}
            >
              Load
            </button>
          </li>
        ))}
      </ul>
    </Section>
  );
}

/** The same run from a terminal. */
function Curl({ form }: { form: Form }) {
  return useShown() ? <CurlShown form={form} /> : null;
}

function CurlShown({ form }: { form: Form }) {
  const { status } = useFeed();
  const [copied, setCopied] = useState(false);
  const body = bodyOf(form);
  const text =
    typeof body === 'string' ? body : curlOf(body, location.origin, !!status?.requireKey);
  useEffect(() => setCopied(false), [text]);
  return (
    <Section
      title="From a terminal"
      aside={
        navigator.clipboard && (
          <button
            type="button"
            className="button quiet"
            onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true))}
          >
            {copied ? 'Copied' : 'Copy'}
          </button>
        )
      }
    >
      <Output text={text} label="The same with curl" />
    </Section>
  );
}
