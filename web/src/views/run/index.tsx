import { Suspense, useMemo, useState } from 'react';
import { api } from '../../api/client.ts';
import { useCode, usePrinted } from '../../api/follow.ts';
import {
  numberOrNull,
  object,
  readTokens,
  text,
  type RunDetail,
  type RunEvent,
} from '../../api/types.ts';
import { readTranscript, type Transcript } from '../../api/transcript.ts';
import { failedLine, readProgram, type Program } from '../../api/program.ts';
import { plainText } from '../../components/ansi.ts';
import { RunBadge } from '../../components/Badge.tsx';
import { Code } from '../../components/Code.tsx';
import { Steps } from '../../components/CodeSteps.tsx';
import { Copy } from '../../components/Copy.tsx';
import { Curl } from '../../components/Curl.tsx';
import { Facts, type Fact } from '../../components/Facts.tsx';
import { JsonBlock } from '../../components/JsonBlock.tsx';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { Output } from '../../components/Output.tsx';
import {
  LogLines,
  ProgramFailure,
  ProgramResult,
  ProgramUsage,
} from '../../components/ProgramParts.tsx';
import { runDuration } from '../../components/RunTable.tsx';
import { Section } from '../../components/Section.tsx';
import { Timeline, type Bar } from '../../components/Timeline.tsx';
import { formatCost, formatDuration, formatTime, formatTokens } from '../../format.ts';
import { useLoad, useNow } from '../../hooks.ts';
import { lazyView } from '../../lazyView.ts';
import { Link } from '../../router.tsx';
import type { ViewProps } from '../../views.ts';
import { codeBars, messageBars, programBars } from './bars.ts';
import { Actions } from './RunAgain.tsx';
import { TranscriptView } from './TranscriptView.tsx';
import { readTurn } from './turn.ts';
import './run.css';

const ChatTurn = lazyView(() => import('./ChatTurn.tsx'));
const Diff = lazyView(() => import('../../components/Diff.tsx'));

const refreshMs = 1_000;
const eventsAtOnce = 500;

/** One run: its record and what happened in it, followed while it is under way. */
export default function RunView({ params }: ViewProps) {
  const id = params.id ?? '';
  const [following, setFollowing] = useState(true);
  const { data, error, reload } = useLoad(
    async (signal) => {
      const run = await api.run(id, signal);
      setFollowing(run.status === 'running');
      return run;
    },
    [id],
    following ? refreshMs : null,
  );

  return (
    <div className="stack view-run">
      <nav aria-label="Breadcrumb" className="crumb">
        <Link to="/runs">Runs</Link>
      </nav>
      {!data && !error && <Loading />}
      {!data && error && (
        <Notice
          tone={error.status === 404 ? 'plain' : 'bad'}
          title={error.status === 404 ? 'There is no such run' : 'The run could not be loaded'}
          action={{ label: 'Try again', run: reload }}
        >
          {error.status === 404 ? (
            <>
              No run has the id <code>{id}</code>, or it belongs to another key.
            </>
          ) : (
            `${error.message}.`
          )}
        </Notice>
      )}
      {data && <Run run={data} />}
    </div>
  );
}

/** What the record says of the model that was asked. */
function modelFacts(run: RunDetail, transcript: Transcript | null): Fact[] {
  const detail = object(run.detail);
  const usage = object(object(detail.result).usage);
  const model = text(detail.model) || transcript?.model || '';
  const tokens = run.tokens ?? readTokens(detail.tokens) ?? readTokens(usage);
  const cost = run.costUsd ?? numberOrNull(detail.cost_usd) ?? numberOrNull(usage.cost_usd);
  return [
    ...(model ? [['Model', plainText(model)] satisfies Fact] : []),
    ...(transcript?.tools.length ? [['Tools', transcript.tools.join(', ')] satisfies Fact] : []),
    ...(tokens ? [['Tokens', formatTokens(tokens)] satisfies Fact] : []),
    ...(cost !== null
      ? [
          [
            'Cost',
            formatCost(cost) + (run.priceKnown ? '' : ' and what has no known price'),
          ] satisfies Fact,
        ]
      : []),
  ];
}

function Run({ run }: { run: RunDetail }) {
  const now = useNow(run.status === 'running' ? 250 : null);
  const transcript = useMemo(() => readTranscript(run), [run]);
  const program = useMemo(() => (transcript ? null : readProgram(run.detail)), [run, transcript]);
  const took = runDuration(run, now);
  const facts: Fact[] = [
    ['Status', <RunBadge status={run.status} />],
    ['Kind', run.kind || '–'],
    ['Duration', formatDuration(took)],
    ['Started', <time dateTime={run.createdAt}>{formatTime(run.createdAt)}</time>],
    [
      'Finished',
      run.finishedAt ? <time dateTime={run.finishedAt}>{formatTime(run.finishedAt)}</time> : '–',
    ],
    ...modelFacts(run, transcript),
    ...(run.key ? [['Key', <span className="mono">{run.key}</span>] satisfies Fact] : []),
    ['Id', <span className="mono">{run.id}</span>],
  ];
  return (
    <>
      <div className="page-head">
        <h1 dir="auto">{plainText(run.title) || run.id}</h1>
      </div>
      <Actions run={run} code={program?.code ?? null} />
      {run.error && !program?.error && (
        <Notice tone="bad" title={plainText(run.error.message) || 'The run failed'}>
          {run.error.code && <code>{run.error.code}</code>}
        </Notice>
      )}
      <Section title="Record" aside={<Curl call={{ path: `/v1/runs/${run.id}` }} of="record" />}>
        <Facts facts={facts} />
      </Section>
      <Body run={run} transcript={transcript} program={program} tookMs={took ?? 0} />
      <Raw run={run} />
    </>
  );
}

/** For whoever wants all of it; it is made when it is asked for. */
function Raw({ run }: { run: RunDetail }) {
  const [open, setOpen] = useState(false);
  return (
    <details className="raw" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>As JSON</summary>
      {open && (
        <JsonBlock value={{ detail: run.detail, events: run.events }} label="The record as JSON" />
      )}
    </details>
  );
}

type BodyProps = {
  run: RunDetail;
  transcript: Transcript | null;
  program: Program | null;
  tookMs: number;
};

/** What was said, done and printed, each kind in its way. */
function Body({ run, transcript, program, tookMs }: BodyProps) {
  const turn = run.kind === 'chat' ? readTurn(run.detail) : null;
  if (run.kind === 'code' || run.kind === 'execute') return <Coding run={run} tookMs={tookMs} />;
  if (transcript)
    return (
      <>
        <Timed bars={messageBars(transcript, run.createdAt)} endMs={tookMs} />
        <TranscriptView transcript={transcript} />
      </>
    );
  if (program) return <ProgramView program={program} tookMs={tookMs} />;
  if (run.kind === 'run' || run.kind === 'execution') return <Console id={run.id} />;
  if (turn)
    return (
      <Suspense fallback={<Loading />}>
        <ChatTurn {...turn} live={run.status === 'running'} />
      </Suspense>
    );
  return <Events events={run.events} start={run.createdAt} />;
}

function Timed({ bars, endMs }: { bars: readonly Bar[]; endMs: number }) {
  if (bars.length === 0) return null;
  return (
    <Section title="Timeline" aside={formatDuration(endMs)}>
      <Timeline bars={bars} endMs={endMs} />
    </Section>
  );
}

/** An agent that writes code: what it did, followed from its first event on. */
function Coding({ run, tookMs }: { run: RunDetail; tookMs: number }) {
  const { state, lost } = useCode(run.id);
  const detail = object(run.detail);
  const diff = text(detail.diff);
  return (
    <>
      <Timed bars={codeBars(state)} endMs={tookMs} />
      {lost && <Notice title="The line to the server is cut">The agent goes on.</Notice>}
      <section aria-labelledby="run-steps" className="stack">
        <h2 id="run-steps">Steps</h2>
        <Steps state={state} />
      </section>
      {state.summary !== '' && (
        <Notice title="Done">
          <span dir="auto">{plainText(state.summary)}</span>
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
          {text(detail.diff_note) && <p className="nothing">{plainText(text(detail.diff_note))}</p>}
        </Section>
      )}
    </>
  );
}

/** A program that still runs: what it prints, as it does. */
function Console({ id }: { id: string }) {
  const { state } = usePrinted(id);
  const newest = useMemo(() => state.tail.newest(), [state]);
  return (
    <Section title="Output">
      {newest.lines.length > 0 ? (
        <LogLines {...newest} live />
      ) : (
        <p className="nothing">It has printed nothing yet.</p>
      )}
    </Section>
  );
}

/** The program of a run: what it was, what it printed, how it ended. */
function ProgramView({ program, tookMs }: { program: Program; tookMs: number }) {
  const { code, logs, output, error, result } = program;
  return (
    <>
      <Timed bars={programBars(program)} endMs={Math.min(tookMs, program.usage.wall_ms ?? 0)} />
      {code !== null && (
        <Section title="Program">
          <Code text={code} label="Program" mark={failedLine(error)} />
        </Section>
      )}
      <Section title="Output">
        <div className="detail">
          {logs.length > 0 && <LogLines lines={logs} />}
          {logs.length === 0 && output !== '' && <Output text={output} label="Output" />}
          {logs.length === 0 && output === '' && <p className="nothing">It printed nothing.</p>}
          {error && <ProgramFailure error={error} />}
        </div>
      </Section>
      {!error && result !== undefined && (
        <Section title="Result">
          <ProgramResult value={result} />
        </Section>
      )}
      <Section title="Usage">
        <ProgramUsage program={program} />
      </Section>
    </>
  );
}

function Events({ events, start }: { events: readonly RunEvent[]; start: string }) {
  const [limit, setLimit] = useState(eventsAtOnce);
  const count = events.length === 1 ? '1 event' : `${events.length.toLocaleString('en')} events`;
  return (
    <Section title="Events" flush aside={count}>
      {events.length === 0 ? (
        <p className="table-empty">Nothing was recorded.</p>
      ) : (
        <ol className="events">
          {events.slice(0, limit).map((event) => (
            <li key={event.seq}>
              <time dateTime={event.time} title={formatTime(event.time)}>
                {offset(event.time, start)}
              </time>
              <span className="event-type">{event.type}</span>
              <EventData event={event} />
            </li>
          ))}
        </ol>
      )}
      {events.length > limit && (
        <button
          type="button"
          className="button more"
          onClick={() => setLimit(limit + eventsAtOnce)}
        >
          Show {Math.min(eventsAtOnce, events.length - limit)} more
        </button>
      )}
    </Section>
  );
}

function offset(time: string, start: string): string {
  const ms = Date.parse(time) - Date.parse(start);
  return Number.isNaN(ms) ? '–' : `+${formatDuration(ms)}`;
}

function EventData({ event }: { event: RunEvent }) {
  const { data } = event;
  if (data === null || data === '') return null;
  const text = typeof data === 'string' ? data : JSON.stringify(data);
  if (typeof data === 'string' || text.length <= 120) return <code>{text}</code>;
  return <JsonBlock value={data} label={`Data of event ${event.seq}`} />;
}
