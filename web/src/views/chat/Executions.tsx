import { memo } from 'react';
import { Badge } from '../../components/Badge.tsx';
import { Code } from '../../components/Code.tsx';
import { Notice } from '../../components/Notice.tsx';
import { Output, splitOutput } from '../../components/Output.tsx';
import { TimeAgo } from '../../components/TimeAgo.tsx';
import { useNow } from '../../hooks.ts';
import { Link } from '../../router.tsx';
import { playgroundOf } from '../play/request.ts';
import type { Execution } from './state.ts';

/** The programs the agent ran, newest first. */
export function Executions({ list, error }: { list: readonly Execution[]; error: string | null }) {
  const now = useNow(10_000);
  return (
    <div className="executions">
      {error !== null && (
        <Notice tone="bad" title="The executions cannot be read">
          {error}
        </Notice>
      )}
      {list.length === 0 && error === null && (
        <p className="panel-empty">
          No program has run in this conversation yet. Ask for something that needs one.
        </p>
      )}
      <ol>
        {list.map((item) => (
          <li key={item.id}>
            <div className="execution-head">
              <Badge tone={item.error === null ? 'ok' : 'bad'}>
                {item.error === null ? 'done' : 'failed'}
              </Badge>
              {item.time !== null && (
                <TimeAgo time={new Date(item.time).toISOString()} now={Math.max(now, item.time)} />
              )}
              {/^[0-9a-f-]{36}$/.test(item.id) && <Link to={`/runs/${item.id}`}>Its run</Link>}
              <Link to={playgroundOf(item.code)}>Open in the playground</Link>
            </div>
            <Program item={item} />
          </li>
        ))}
      </ol>
    </div>
  );
}

const Program = memo(
  function Program({ item }: { item: Execution }) {
    const output = splitOutput(item.output, item.error);
    return (
      <>
        <Code text={item.code} label="Code" />
        {output !== '' && <Output text={output} label="Output" />}
        {item.error !== null && <Output text={item.error} label="Error" tone="bad" />}
      </>
    );
  },
  // Each state that arrives is made of new objects; an execution never changes.
  (before, after) => before.item.id === after.item.id,
);
