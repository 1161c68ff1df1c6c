/**
 * Coding jobs: an agent that works in a sandbox. A job is followed by its id, from any event on, so
 * that a page that was loaded again goes on where it is.
 */
import { ApiError, request } from './client.ts';
import { serverEvents } from './sse.ts';
import { number, object, readRun, text, type Run } from './types.ts';

export type CodeRequest = {
  spec: string;
  agent?: string;
  model?: string;
  max_steps?: number;
  repo?: string;
  files?: { path: string; content_base64: string }[];
  /** Go on in this one, which an earlier job has kept. */
  sandbox?: string;
  keep?: boolean;
};

export type Step = {
  step: number;
  tool: string;
  args: unknown;
  output: string;
  /** null while it is being done. */
  ok: boolean | null;
  ms: number;
};

/** What took a while: a question to the model, or a step. */
export type Span = {
  label: string;
  step: number | null;
  /** Milliseconds since the agent began. */
  at: number;
  /** null: it is not over. */
  ms: number | null;
  ok: boolean;
};

export type CodeState = {
  seq: number;
  sandbox: string;
  model: string;
  steps: readonly Step[];
  /** What the agent says besides its steps, with the number of the step before it. */
  words: readonly { after: number; text: string; bad: boolean }[];
  spans: readonly Span[];
  tokens: { input: number; output: number };
  summary: string;
  run: Run | null;
};

export const emptyCode: CodeState = {
  seq: 0,
  sandbox: '',
  model: '',
  steps: [],
  words: [],
  spans: [],
  tokens: { input: 0, output: 0 },
  summary: '',
  run: null,
};

const maxOutputChars = 200_000;

function addWords(state: CodeState, said: string, bad: boolean): CodeState {
  if (said === '') return state;
  const words = [...state.words, { after: state.steps.length, text: said, bad }];
  return { ...state, words: words.slice(-2000) };
}

function changeStep(state: CodeState, step: number, change: (step: Step) => Step): CodeState {
  return { ...state, steps: state.steps.map((s) => (s.step === step ? change(s) : s)) };
}

const maxSpans = 2000;

/** The clock of the agent: what begins opens a span, what ends closes the last one that is open. */
function readSpan(state: CodeState, type: string, data: Record<string, unknown>): CodeState {
  const at = number(data['at']);
  const step = type.startsWith('step') ? number(data['step']) : null;
  if (type.endsWith('_begin')) {
    const label = step === null ? 'the model' : text(data['tool']);
    const span = { label, step, at, ms: null, ok: true };
    return { ...state, spans: [...state.spans, span].slice(-maxSpans) };
  }
  const open = state.spans.findLastIndex((span) => span.ms === null && span.step === step);
  const ok = data['ok'] !== false;
  const spans = state.spans.map((span, i) =>
    i === open ? { ...span, ms: Math.max(0, at - span.at), ok } : span,
  );
  return { ...state, spans };
}

/** The state after one more event. */
export function readCodeEvent(before: CodeState, type: string, value: unknown): CodeState {
  const data = object(value);
  const step = number(data['step']);
  const isSpan = /^(model|step)_(begin|end)$/.test(type);
  const state = isSpan ? readSpan(before, type, data) : before;
  switch (type) {
    case 'model_end':
      return {
        ...state,
        tokens: {
          input: state.tokens.input + number(data['input_tokens']),
          output: state.tokens.output + number(data['output_tokens']),
        },
      };
    case 'sandbox':
      return { ...state, sandbox: text(data['id']) };
    case 'start':
      return { ...state, model: text(data['model']) };
    case 'step_begin': {
      const begun = {
        step,
        tool: text(data['tool']),
        args: data['args'],
        output: '',
        ok: null,
        ms: 0,
      };
      return { ...state, steps: [...state.steps, begun] };
    }
    case 'output':
      return changeStep(state, step, (s) => ({
        ...s,
        output: (s.output + text(data['text'])).slice(-maxOutputChars),
      }));
    case 'step_end':
      return changeStep(state, step, (s) => ({
        ...s,
        ok: data['ok'] === true,
        ms: number(data['ms']),
        output: s.output || text(data['error']),
      }));
    case 'thought':
    case 'text':
      return addWords(state, text(data['text']), false);
    case 'retry':
    case 'repair':
    case 'error':
    case 'failed':
      return addWords(state, text(data['message']), true);
    case 'done':
      return { ...state, summary: text(data['summary']) };
    case 'end':
      return { ...state, run: readRun(value) };
    default:
      return state;
  }
}

/** Begins a job and gives its id. It goes on by itself: what follows is read by its events. */
export async function startJob(path: string, body: object): Promise<string> {
  const abort = new AbortController();
  const response = await request(path, {
    method: 'POST',
    body,
    headers: { Accept: 'text/event-stream' },
    signal: abort.signal,
  });
  const id = (response.headers.get('Location') ?? '').split('/').pop() ?? '';
  abort.abort();
  if (id === '') throw new ApiError(0, 'bad_answer', 'The server did not say which job it began');
  return id;
}

/** Yields [number, type, data] of the events after a number, until the job has ended. */
export async function* followRun(
  id: string,
  after: number,
  signal: AbortSignal,
): AsyncGenerator<[number, string, unknown]> {
  const response = await request(`/v1/runs/${encodeURIComponent(id)}/events?after=${after}`, {
    headers: { Accept: 'text/event-stream' },
    signal,
  });
  for await (const event of serverEvents(response)) {
    let data: unknown = null;
    try {
      data = JSON.parse(event.data) as unknown;
    } catch {
      continue;
    }
    yield [Number(event.id) || after, event.event, data];
  }
}

export async function cancelRun(id: string): Promise<void> {
  await request(`/v1/runs/${encodeURIComponent(id)}/cancel`, { method: 'POST' });
}
