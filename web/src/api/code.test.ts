import { expect, test } from 'vitest';
import { emptyCode, readCodeEvent } from './code.ts';

const play = (events: [string, unknown][]) =>
  events.reduce((state, [type, data]) => readCodeEvent(state, type, data), emptyCode);

test('steps grow from their events', () => {
  const state = play([
    ['sandbox', { id: 'sbx_1' }],
    ['start', { model: 'demo' }],
    ['step_begin', { step: 1, tool: 'run_command', args: { command: 'ls' } }],
    ['output', { step: 1, text: 'a\n' }],
    ['output', { step: 1, text: 'b\n' }],
  ]);
  expect(state.sandbox).toBe('sbx_1');
  expect(state.model).toBe('demo');
  expect(state.steps).toEqual([
    { step: 1, tool: 'run_command', args: { command: 'ls' }, output: 'a\nb\n', ok: null, ms: 0 },
  ]);
  const ended = readCodeEvent(state, 'step_end', { step: 1, ok: false, ms: 7, error: 'no' });
  expect(ended.steps[0]).toMatchObject({ ok: false, ms: 7, output: 'a\nb\n' });
});

test('what is said stands after the step it followed; faults are marked', () => {
  const state = play([
    ['thought', { text: 'first' }],
    ['step_begin', { step: 1, tool: 'x' }],
    ['retry', { message: 'again' }],
    ['failed', { message: 'the model would not' }],
    ['thought', { text: '' }],
  ]);
  expect(state.words).toEqual([
    { after: 0, text: 'first', bad: false },
    { after: 1, text: 'again', bad: true },
    { after: 1, text: 'the model would not', bad: true },
  ]);
});

test('events of another shape change nothing', () => {
  const odd: [string, unknown][] = [
    ['output', null],
    ['step_end', 'x'],
    ['nonsense', {}],
    ['start', { model: 5 }],
  ];
  expect(play(odd)).toEqual(emptyCode);
});
