import { Fragment, useState } from 'react';
import { api } from '../../api/client.ts';
import type { RunDetail, RunEvent } from '../../api/types.ts';
import { readTranscript } from '../../api/transcript.ts';
import { failedLine, readProgram, type Program } from '../../api/program.ts';
import { RunBadge } from '../../components/Badge.tsx';
import { Code } from '../../components/Code.tsx';
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
import { formatDuration, formatTime } from '../../format.ts';
import { useLoad, useNow } from '../../hooks.ts';
import { Link } from '../../router.tsx';
import type { ViewProps } from '../../views.ts';
import { TranscriptView } from './TranscriptView.tsx';
import './run.css';

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

function Run({ run }: { run: RunDetail }) {
  const now = useNow(run.status === 'running' ? 250 : null);
  const facts: Fact[] = [
    ['Status', <RunBadge status={run.status} />],
    ['Kind', run.kind || '–'],
    ['Duration', formatDuration(runDuration(run, now))],
    ['Started', <time dateTime={run.createdAt}>{formatTime(run.createdAt)}</time>],
    [
      'Finished',
      run.finishedAt ? <time dateTime={run.finishedAt}>{formatTime(run.finishedAt)}</time> : '–',
    ],
    ['Id', <span className="mono">{run.id}</span>],
  ];
  const transcript = readTranscript(run);
  const program = transcript ? null : readProgram(run.detail);
  return (
    <>
      <div className="page-head">
        <h1>{run.title || run.id}</h1>
      </div>
      {run.error && !program?.error && (
        <Notice tone="bad" title={run.error.message || 'The run failed'}>
          {run.error.code && <code>{run.error.code}</code>}
        </Notice>
      )}
      <Section title="Record">
        <Facts facts={facts} />
      </Section>
      {transcript && <TranscriptView transcript={transcript} />}
      {program ? (
        <ProgramView program={program} />
      ) : (
        !transcript &&
        run.detail !== null && (
          <Section title="Detail">
            <Detail value={run.detail} />
          </Section>
        )
      )}
      {/* A program's lines are above; its run has events only when another run sent it some. */}
      {!transcript && (!program || run.events.length > 0) && (
        <Events events={run.events} start={run.createdAt} />
      )}
    </>
  );
}

/** The program of a run: what it was, what it printed, how it ended. */
function ProgramView({ program }: { program: Program }) {
  const { code, logs, output, error, result } = program;
  return (
    <>
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

/** Text of several lines (a program, its output) is shown as it is, the rest as JSON. */
function Detail({ value }: { value: unknown }) {
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  const entries = isObject ? Object.entries(value) : [];
  const isLong = ([, item]: [string, unknown]) => typeof item === 'string' && item.includes('\n');
  const long = entries.filter(isLong);
  const rest = entries.filter((entry) => !isLong(entry));
  return (
    <div className="detail">
      {long.map(([name, item]) => (
        <Fragment key={name}>
          <h3>{name}</h3>
          <JsonBlock value={item} label={name} />
        </Fragment>
      ))}
      {long.length > 0 && rest.length > 0 && <h3>other</h3>}
      {(long.length === 0 || rest.length > 0) && (
        <JsonBlock value={long.length === 0 ? value : Object.fromEntries(rest)} label="Detail" />
      )}
    </div>
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
