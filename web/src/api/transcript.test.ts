import { expect, test } from 'vitest';
import { readTranscript } from './transcript.ts';
import type { RunDetail } from './types.ts';

const run = (change: Partial<RunDetail>): RunDetail => ({
  id: '01a1e14b-95ec-7569-b3b9-7e9f8d5d45fb',
  kind: 'sdk',
  status: 'done',
  title: 'title',
  createdAt: '2026-01-01T00:00:00Z',
  finishedAt: '2026-01-01T00:00:01Z',
  durationMs: 1000,
  error: null,
  tokens: null,
  costUsd: null,
  priceKnown: true,
  key: '',
  detail: null,
  events: [],
  ...change,
});
const event = (seq: number, data: unknown) => ({
  seq,
  time: '2026-01-01T00:00:00Z',
  type: 'x',
  data,
});

test('other kinds have no transcript', () => {
  expect(readTranscript(run({ kind: 'run' }))).toBe(null);
});

test('the messages of a call, its usage, and what begins it again', () => {
  const content = [
    { type: 'thinking', thinking: 'hm' },
    { type: 'text', text: 'I will.' },
    { type: 'tool_use', id: 't1', name: 'TodoWrite', input: { todos: [] } },
  ];
  const answer = { type: 'tool_result', tool_use_id: 't1', content: 'ok', is_error: false };
  const got = readTranscript(
    run({
      detail: {
        prompt: 'Do it',
        options: { max_turns: 2 },
        model: 'demo',
        tokens: { input: 5, output: 7 },
        cost_usd: 0.5,
        answer: { metadata: { num_turns: 2 } },
      },
      events: [
        event(1, { type: 'system', tools: ['TodoWrite'], model: 'demo' }),
        event(2, { type: 'assistant', message: { content } }),
        event(3, { type: 'user', message: { content: [answer] } }),
        event(4, {
          type: 'result',
          subtype: 'error_max_turns',
          is_error: true,
          errors: ['no more'],
        }),
      ],
    }),
  )!;
  expect(got.messages.map((m) => m.parts.map((p) => p.type))).toEqual([
    ['thinking', 'text', 'call'],
    ['result'],
    ['end'],
  ]);
  expect(got.messages[2]!.parts[0]).toEqual({
    type: 'end',
    subtype: 'error_max_turns',
    failed: true,
    text: 'no more',
  });
  expect(got.tools).toEqual(['TodoWrite']);
  expect(got.tokens).toEqual({ input: 5, output: 7 });
  expect([got.costUsd, got.turns, got.model]).toEqual([0.5, 2, 'demo']);
});

test('nonsense is left out, and a call that still runs has its title', () => {
  const events = [
    null,
    5,
    [],
    { type: 'assistant' },
    { type: 'assistant', message: { content: [7, { type: 'x' }] } },
  ];
  const got = readTranscript(
    run({ status: 'running', events: events.map((data, i) => event(i + 1, data)) }),
  )!;
  expect(got.messages).toEqual([]);
  expect([got.prompt, got.tokens, got.costUsd]).toEqual(['title', null, null]);
});
