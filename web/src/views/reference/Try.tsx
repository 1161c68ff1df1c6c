import { useEffect, useId, useRef, useState } from 'react';
import { Code } from '../../components/Code.tsx';
import { Confirm } from '../../components/Confirm.tsx';
import { Curl } from '../../components/Curl.tsx';
import { Notice } from '../../components/Notice.tsx';
import { plainText } from '../../components/ansi.ts';
import type { Call } from '../../curl.ts';
import { formatBytes, formatDuration } from '../../format.ts';
import { callOf, isJson, keyOf, streams } from './call.ts';
import { exampleOf, typeWords, type Operation, type Spec } from './spec.ts';

/** So much of an answer is shown; the rest is not fetched. */
const maxBytes = 256 * 1024;
const paintMs = 100;

type Shown = {
  status: number;
  words: string;
  type: string;
  text: string;
  bytes: number;
  cut: boolean;
  over: boolean;
  ms: number;
};

const isText = (type: string): boolean =>
  /^text\/|json|javascript|xml/.test(type) || type === 'application/x-ndjson';

/** Follows an answer to its end, or as far as it is shown. */
async function read(response: Response, began: number, tell: (shown: Shown) => void) {
  const type = response.headers.get('content-type') ?? '';
  const shown: Shown = {
    status: response.status,
    words: response.statusText,
    type,
    text: '',
    bytes: 0,
    cut: false,
    over: false,
    ms: performance.now() - began,
  };
  const decoder = new TextDecoder();
  const reader = response.body?.getReader();
  tell({ ...shown });
  let fresh = false;
  const paint = setInterval(() => {
    if (fresh) tell({ ...shown, ms: performance.now() - began });
    fresh = false;
  }, paintMs);
  try {
    while (reader && !shown.cut) {
      const { done, value } = await reader.read();
      if (done) break;
      shown.bytes += value.length;
      if (isText(type)) shown.text += decoder.decode(value, { stream: true });
      shown.cut = shown.bytes > maxBytes;
      fresh = true;
    }
    if (shown.cut) await reader?.cancel();
  } finally {
    clearInterval(paint);
    tell({ ...shown, over: true, ms: performance.now() - began });
  }
}

/** JSON as people read it. */
function laidOut({ type, text, over, cut }: Shown): string {
  if (!isJson(type) || !over || cut) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function send(call: Call, file: File | null, type: string, signal: AbortSignal): Promise<Response> {
  const raw = call.from !== undefined && file;
  return fetch(call.path, {
    method: call.method ?? 'GET',
    headers: {
      Accept: call.stream ? 'text/event-stream' : 'application/json, */*;q=0.5',
      ...(call.body === undefined ? {} : { 'Content-Type': 'application/json' }),
      ...(raw ? { 'Content-Type': type } : {}),
      ...call.headers,
    },
    credentials: 'same-origin',
    cache: 'no-store',
    ...(call.body === undefined ? {} : { body: JSON.stringify(call.body) }),
    ...(raw ? { body: raw } : {}),
    signal,
  });
}

/** A form for each part of a request; the answer below it, as it comes. */
export function Try({ spec, op }: { spec: Spec; op: Operation }) {
  const [values, setValues] = useState<Record<string, string>>({});
  const [body, setBody] = useState(() =>
    op.body && isJson(op.body.type) ? JSON.stringify(exampleOf(spec, op.body.schema), null, 2) : '',
  );
  const [file, setFile] = useState<File | null>(null);
  const [stream, setStream] = useState(false);
  const [wrong, setWrong] = useState<string | null>(null);
  const [shown, setShown] = useState<Shown | null>(null);
  const [busy, setBusy] = useState(false);
  const abort = useRef<AbortController | null>(null);
  const id = useId();
  useEffect(() => () => abort.current?.abort(), []);

  const call = callOf(op, { values, body, file, stream });

  async function go() {
    if (typeof call === 'string') return setWrong(call);
    const mine = new AbortController();
    abort.current = mine;
    setWrong(null);
    setShown(null);
    setBusy(true);
    try {
      const began = performance.now();
      const response = await send(call, file, op.body?.type ?? '', mine.signal);
      await read(response, began, setShown);
    } catch {
      if (!mine.signal.aborted)
        setWrong('The server cannot be reached, or its answer was cut off.');
    }
    return setBusy(false);
  }

  return (
    <form
      className="try fields"
      onSubmit={(event) => {
        event.preventDefault();
        if (op.method !== 'DELETE' && !busy) void go();
      }}
    >
      {op.parameters.map((parameter) => {
        const key = keyOf(parameter);
        const choices = parameter.schema.enum;
        const set = (value: string) => setValues((before) => ({ ...before, [key]: value }));
        return (
          <label key={key}>
            <span>
              {parameter.name}
              {parameter.required ? '' : ' (optional)'}
            </span>
            {choices ? (
              <select value={values[key] ?? ''} onChange={(event) => set(event.target.value)}>
                <option value="">–</option>
                {choices.map((choice) => (
                  <option key={String(choice)}>{String(choice)}</option>
                ))}
              </select>
            ) : (
              <input
                spellCheck={false}
                autoComplete="off"
                placeholder={typeWords(spec, parameter.schema)}
                value={values[key] ?? ''}
                onChange={(event) => set(event.target.value)}
              />
            )}
          </label>
        );
      })}
      {op.body && isJson(op.body.type) && (
        <label className="wide">
          <span>Body, as JSON</span>
          <textarea
            rows={Math.min(16, Math.max(4, body.split('\n').length))}
            spellCheck={false}
            value={body}
            onChange={(event) => setBody(event.target.value)}
          />
        </label>
      )}
      {op.body && !isJson(op.body.type) && (
        <label className="wide">
          <span>Body, a file ({op.body.type})</span>
          <input type="file" onChange={(event) => setFile(event.target.files?.[0] ?? null)} />
        </label>
      )}
      {streams(op) && (
        <label className="wide check">
          <input
            type="checkbox"
            checked={stream}
            onChange={(event) => setStream(event.target.checked)}
          />
          <span>As a stream of events</span>
        </label>
      )}
      <div className="wide try-actions">
        {busy ? (
          // A key of its own: else the press that stops would land on the one that sends.
          <button
            key="stop"
            type="button"
            className="button"
            onClick={() => abort.current?.abort()}
          >
            Stop
          </button>
        ) : op.method === 'DELETE' ? (
          <Confirm label="Send" of={op.summary.replaceAll('`', '')} onConfirm={() => void go()} />
        ) : (
          <button key="send" type="submit" className="button primary">
            Send
          </button>
        )}
        {typeof call !== 'string' && <Curl call={call} of={op.summary.replaceAll('`', '')} />}
      </div>
      {wrong !== null && (
        <div className="wide">
          <Notice tone="bad" title="That did not work">
            {wrong}
          </Notice>
        </div>
      )}
      {shown && (
        <section className="wide answer" aria-labelledby={id}>
          <h3 id={id}>
            <span className="answer-status" data-failed={shown.status >= 400 || undefined}>
              {shown.status} {plainText(shown.words)}
            </span>
            <span className="answer-facts" role="status">
              {formatDuration(shown.ms)} · {formatBytes(shown.bytes)}
              {shown.over ? '' : ' so far'} · {plainText(shown.type) || 'no body'}
            </span>
          </h3>
          {shown.cut && <p className="field-text">It is longer: the rest was not fetched.</p>}
          {shown.bytes > 0 && !isText(shown.type) && (
            <p className="field-text">
              That is no text. The switch “curl” in the header shows the command that saves it.
            </p>
          )}
          {shown.text !== '' && (
            <Code
              text={laidOut(shown)}
              label="The answer"
              language="json"
              plain={!isJson(shown.type)}
            />
          )}
        </section>
      )}
    </form>
  );
}
