import { useEffect, useRef, useState } from 'react';
import { ApiError, send } from '../../api/client.ts';
import { calls, sandboxes, type Exec } from '../../api/sandboxes.ts';
import { plainText } from '../../components/ansi.ts';
import '../../components/Code.css';
import { Curl } from '../../components/Curl.tsx';
import { Notice } from '../../components/Notice.tsx';
import { Blocks } from '../../components/Output.tsx';
import { TimeAgo } from '../../components/TimeAgo.tsx';
import { formatDuration } from '../../format.ts';
import { useLoad, useNow } from '../../hooks.ts';
import { ExecBadge } from '../sandboxes/StatusBadge.tsx';
import { shellCommand } from './shell.ts';
import { useOutput } from './useOutput.ts';

const refreshMs = 2_000;

/** Runs commands and shows what they print; those that ran before are kept below. */
export function Commands({ id, live, shown }: { id: string; live: boolean; shown: boolean }) {
  const [command, setCommand] = useState('');
  const [current, setCurrent] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const { data, error, reload } = useLoad(
    (signal) => sandboxes.execs(id, signal),
    [id],
    shown ? refreshMs : null,
  );
  const now = useNow(1000);
  // As a shell's arrows: back through what was run here, each once.
  const [recalled, setRecalled] = useState(-1);
  const past = [
    ...new Set((data ?? []).map((exec) => exec.command).filter((it) => it && it !== shellCommand)),
  ];
  function recall(at: number) {
    if (at >= past.length) return;
    setRecalled(Math.max(-1, at));
    setCommand(past[at] ?? '');
  }

  async function act(what: () => Promise<unknown>) {
    try {
      setProblem(null);
      await what();
    } catch (cause) {
      setProblem(cause instanceof ApiError ? cause.message : 'Something went wrong');
    }
    reload();
  }

  const run = () =>
    act(async () => {
      if (command.trim() === '') return;
      setCurrent((await sandboxes.start(id, { command })).id);
      setCommand('');
      setRecalled(-1);
    });

  const stop = (exec: Exec, signal: string) => act(() => send(calls.signal(id, exec.id, signal)));

  return (
    <div className="commands">
      <form
        className="inline-form fields"
        onSubmit={(event) => {
          event.preventDefault();
          void run();
        }}
      >
        <input
          className="mono"
          aria-label="Command"
          placeholder="ls -la; uname -a"
          autoCapitalize="off"
          autoComplete="off"
          spellCheck={false}
          disabled={!live}
          value={command}
          onChange={(event) => {
            setCommand(event.target.value);
            setRecalled(-1);
          }}
          onKeyDown={(event) => {
            const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
            if (step === undefined) return;
            event.preventDefault();
            recall(recalled + step);
          }}
        />
        <button type="submit" className="button primary" disabled={!live}>
          Run
        </button>
        <Curl
          call={{ ...calls.exec(id, { command: command || 'COMMAND' }), stream: true }}
          of="run a command"
        />
      </form>
      {problem !== null && <Notice tone="bad" title={problem} />}
      {current !== null && <Output key={current} id={id} exec={current} onEnd={reload} />}
      {error && !data && (
        <Notice tone="bad" title="The commands could not be loaded">
          {error.message}.
        </Notice>
      )}
      {data?.length === 0 && <p className="panel-empty">No command has been run yet.</p>}
      <ul className="exec-list">
        {(data ?? []).map((exec) => (
          <li key={exec.id} data-current={exec.id === current || undefined}>
            <ExecBadge exec={exec} />
            <button
              type="button"
              className="exec-name mono"
              aria-expanded={exec.id === current}
              onClick={() => setCurrent(exec.id === current ? null : exec.id)}
            >
              {exec.command === shellCommand ? 'a shell' : plainText(exec.command || exec.id)}
            </button>
            <span className="exec-facts">
              <Duration exec={exec} now={now} />
              <TimeAgo time={exec.startedAt} now={Math.max(now, Date.parse(exec.startedAt))} />
              {exec.status === 'running' && live && (
                <>
                  <button
                    type="button"
                    className="button quiet"
                    onClick={() => void stop(exec, 'INT')}
                  >
                    Interrupt
                  </button>
                  <Curl call={calls.signal(id, exec.id, 'INT')} of="interrupt" />
                  <button
                    type="button"
                    className="button quiet"
                    onClick={() => void stop(exec, 'KILL')}
                  >
                    Kill
                  </button>
                  <Curl call={calls.signal(id, exec.id, 'KILL')} of="kill" />
                </>
              )}
              <Curl call={calls.execOutput(id, exec.id)} of="its output" />
            </span>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Duration({ exec, now }: { exec: Exec; now: number }) {
  const end = exec.endedAt === null ? now : Date.parse(exec.endedAt);
  const ms = end - Date.parse(exec.startedAt);
  return <span>{Number.isNaN(ms) ? '–' : formatDuration(ms)}</span>;
}

function Output({ id, exec, onEnd }: { id: string; exec: string; onEnd: () => void }) {
  const { blocks, gone, exec: ended, problem } = useOutput(id, exec);
  const pre = useRef<HTMLPreElement>(null);
  const follow = useRef(true);
  const hasEnded = ended !== null;
  useEffect(() => {
    if (hasEnded) onEnd();
  }, [hasEnded]);
  useEffect(() => {
    if (pre.current && follow.current) pre.current.scrollTop = pre.current.scrollHeight;
  }, [blocks]);
  return (
    <section className="exec-output" aria-label="Output">
      <pre
        className="output"
        tabIndex={0}
        role="region"
        aria-label="Output of the command"
        ref={pre}
        onScroll={({ currentTarget: it }) => {
          follow.current = it.scrollHeight - it.scrollTop - it.clientHeight < 40;
        }}
      >
        {gone > 0 && <span className="output-cut">What came before is left out here.{'\n'}</span>}
        <Blocks blocks={blocks} first={gone} />
        {blocks.length === 0 && ended && <span className="output-cut">It printed nothing.</span>}
      </pre>
      <p className="exec-end" role="status">
        {!ended && problem === null && 'Running…'}
        {ended && (
          <>
            <ExecBadge exec={ended} />
            {ended.oom && ' It ran out of memory.'}
            {ended.timedOut && ' It ran out of time.'}
            {ended.truncated && ' The server kept only a part of its output.'}
            {ended.error && ` ${plainText(ended.error)}`}
          </>
        )}
        {problem !== null && `${problem}.`}
      </p>
    </section>
  );
}
