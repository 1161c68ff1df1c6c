/**
 * The messages of a run of /execute/sdk (the Agent SDK's shapes), read with no trust in them: what
 * does not fit is left out.
 */
import type { RunDetail } from './types.ts';
import { list, object } from './types.ts';

export type Part =
  | { type: 'text'; text: string }
  | { type: 'thinking'; text: string }
  | { type: 'call'; id: string; name: string; input: unknown }
  | { type: 'result'; id: string; text: string; failed: boolean }
  | { type: 'end'; subtype: string; failed: boolean; text: string };

export type Message = { seq: number; time: string; role: string; parts: Part[] };

export type Transcript = {
  prompt: string;
  model: string;
  tools: string[];
  turns: number | null;
  tokens: { input: number; output: number } | null;
  costUsd: number | null;
  messages: Message[];
};

const text = (value: unknown): string => (typeof value === 'string' ? value : '');
const number = (value: unknown): number | null => (typeof value === 'number' ? value : null);

function readPart(value: unknown): Part | null {
  const block = object(value);
  switch (block.type) {
    case 'text':
      return { type: 'text', text: text(block.text) };
    case 'thinking':
      return { type: 'thinking', text: text(block.thinking) };
    case 'tool_use':
      return { type: 'call', id: text(block.id), name: text(block.name), input: block.input };
    case 'tool_result':
      return {
        type: 'result',
        id: text(block.tool_use_id),
        text: typeof block.content === 'string' ? block.content : JSON.stringify(block.content),
        failed: block.is_error === true,
      };
    default:
      return null;
  }
}

function readEnd(data: Record<string, unknown>): Part {
  const errors = list(data.errors).map(text).filter(Boolean);
  return {
    type: 'end',
    subtype: text(data.subtype),
    failed: data.is_error === true,
    text: errors.join('\n') || text(data.result),
  };
}

/** NULL if the run is of another kind. */
export function readTranscript(run: RunDetail): Transcript | null {
  if (run.kind !== 'sdk') return null;
  const detail = object(run.detail);
  const tokens = object(detail.tokens);
  const messages: Message[] = [];
  let init: Record<string, unknown> = {};
  for (const event of run.events) {
    const data = object(event.data);
    if (data.type === 'system') init = data;
    const content = list(object(data.message).content);
    const parts =
      data.type === 'result'
        ? [readEnd(data)]
        : content.map(readPart).filter((part): part is Part => part !== null);
    if (parts.length > 0)
      messages.push({ seq: event.seq, time: event.time, role: text(data.type), parts });
  }
  const prompt = text(detail.prompt);
  return {
    prompt: prompt || run.title,
    model: text(detail.model) || text(init.model),
    tools: list(init.tools).map(text),
    turns: number(object(object(detail.answer).metadata).num_turns),
    tokens:
      number(tokens.input) === null
        ? null
        : { input: Number(tokens.input), output: Number(tokens.output) },
    costUsd: number(detail.cost_usd),
    messages,
  };
}
