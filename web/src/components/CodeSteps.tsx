/** What an agent that writes code did, step by step: on its own page and in the record of its run. */
import { memo } from 'react';
import type { CodeState, Step } from '../api/code.ts';
import { object, text } from '../api/types.ts';
import { formatDuration } from '../format.ts';
import { plainText } from './ansi.ts';
import { Badge } from './Badge.tsx';
import { Code } from './Code.tsx';
import './CodeSteps.css';
import { JsonBlock } from './JsonBlock.tsx';
import { Loading } from './Loading.tsx';
import { Output } from './Output.tsx';

export function Steps({ state }: { state: CodeState }) {
  const said = (after: number) =>
    state.words
      .filter((w) => w.after === after)
      .map((w, i) => (
        <p key={i} className={w.bad ? 'coder-said bad' : 'coder-said'} dir="auto">
          {plainText(w.text)}
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

const StepCard = memo(function StepCard({ step }: { step: Step }) {
  return (
    <article
      className="card coder-step"
      id={`step-${step.step}`}
      aria-label={`Step ${step.step}: ${step.tool}`}
    >
      <header>
        <strong>{plainText(step.tool)}</strong>
        <Badge tone={step.ok === null ? 'busy' : step.ok ? 'ok' : 'bad'}>
          {step.ok === null ? 'at work' : step.ok ? 'ok' : 'failed'}
        </Badge>
        {step.ok !== null && <span className="coder-time">{formatDuration(step.ms)}</span>}
      </header>
      <Arguments args={step.args} />
      {step.output !== '' && <Output text={step.output} label="Output" />}
    </article>
  );
});

/** A command as a shell's line, a file as a file; anything else as it is. */
function Arguments({ args }: { args: unknown }) {
  const { command, path, content, ...rest } = object(args);
  if (typeof args === 'string') return <Output text={args} label="Arguments" />;
  if (typeof command === 'string')
    return (
      <pre className="output coder-command" tabIndex={0} role="region" aria-label="Arguments">
        <span aria-hidden="true">$ </span>
        {plainText(command)}
      </pre>
    );
  return (
    <>
      {typeof path === 'string' && <p className="mono coder-path">{plainText(path)}</p>}
      {typeof content === 'string' && (
        <Code text={content} label="Arguments" language={text(path)} />
      )}
      {Object.keys(rest).length > 0 && <JsonBlock value={rest} label="Arguments" />}
    </>
  );
}
