import { getToolName, type DynamicToolUIPart, type ToolUIPart } from 'ai';
import { object } from '../../api/types.ts';
import { plainText } from '../../components/ansi.ts';
import { Badge, type Tone } from '../../components/Badge.tsx';
import { Code } from '../../components/Code.tsx';
import { DataTable } from '../../components/DataTable.tsx';
import { JsonBlock } from '../../components/JsonBlock.tsx';
import { Output, splitOutput } from '../../components/Output.tsx';
import { Link } from '../../router.tsx';
import { playgroundOf } from '../play/request.ts';
import { LiveConsole } from './LiveConsole.tsx';
import { cellOf, columnsOf } from './state.ts';

type Part = ToolUIPart | DynamicToolUIPart;

const rowsAtOnce = 50;

function stateOf(part: Part, live: boolean): { tone: Tone; word: string } {
  if (part.state === 'output-error') return { tone: 'bad', word: 'failed' };
  if (part.state === 'output-available') {
    const failed = (object(part.output).error ?? null) !== null;
    return failed ? { tone: 'bad', word: 'failed' } : { tone: 'ok', word: 'done' };
  }
  if (part.state === 'output-denied') return { tone: 'warn', word: 'denied' };
  // A turn that was stopped leaves its call as it was.
  if (!live) return { tone: 'plain', word: 'stopped' };
  return { tone: 'busy', word: part.state === 'input-streaming' ? 'writing' : 'running' };
}

/** A call of a tool, from the first letter of its code to its output. */
export function ToolCall({ part, live }: { part: Part; live: boolean }) {
  const name = getToolName(part);
  const { tone, word } = stateOf(part, live);
  const { code } = object(part.input);
  return (
    <section className="tool" data-state={word} aria-label={`${name}: ${word}`}>
      <div className="tool-head">
        <code>{name}</code>
        <Badge tone={tone}>{word}</Badge>
        {typeof code === 'string' && word !== 'writing' && (
          <Link to={playgroundOf(code)} className="tool-open">
            Open in the playground
          </Link>
        )}
      </div>
      <Input value={part.input} />
      {word === 'running' && typeof code === 'string' && <LiveConsole />}
      {part.state === 'output-available' && <Result value={part.output} />}
      {part.state === 'output-error' && <Output text={part.errorText} label="Error" tone="bad" />}
    </section>
  );
}

function Input({ value }: { value: unknown }) {
  const { code, sql, ...rest } = object(value);
  return (
    <>
      {typeof code === 'string' && <Code text={code} label="Code" />}
      {typeof sql === 'string' && <Code text={sql} label="Query" language="sql" />}
      {Object.keys(rest).length > 0 && <JsonBlock value={rest} label="Input" />}
    </>
  );
}

function Result({ value }: { value: unknown }) {
  if (typeof value === 'string') return <Output text={value} label="Output" />;
  const { output, error, rowCount, rows, ...rest } = object(value);
  const hasError = error !== null && error !== undefined;
  const text =
    typeof output === 'string' ? splitOutput(output, hasError ? String(error) : null) : '';
  const isOther = typeof value !== 'object' || value === null || Array.isArray(value);
  return (
    <>
      {text !== '' && <Output text={text} label="Output" />}
      {hasError && <Output text={String(error)} label="Error" tone="bad" />}
      {Array.isArray(rows) && <Rows rows={rows} count={rowCount} />}
      {(isOther || Object.keys(rest).length > 0) && (
        <JsonBlock value={isOther ? value : rest} label="Output" />
      )}
    </>
  );
}

function Rows({ rows, count }: { rows: readonly unknown[]; count: unknown }) {
  const columns = columnsOf(rows).map((title, index) => ({
    title,
    head: index === 0,
    cell: (row: unknown) => plainText(cellOf(row, title)),
  }));
  const total = typeof count === 'number' ? count : rows.length;
  return (
    <div className="tool-rows">
      <DataTable
        caption="Rows"
        columns={columns}
        rows={rows.slice(0, rowsAtOnce)}
        rowKey={(_row, index) => index}
        empty="No rows."
      />
      {total > Math.min(rows.length, rowsAtOnce) && (
        <p className="table-empty">
          {Math.min(rows.length, rowsAtOnce)} of {total} rows.
        </p>
      )}
    </div>
  );
}
