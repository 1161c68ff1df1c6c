import { expect, test } from 'vitest';
import { failedLine, readProgram } from './program.ts';

test('a record of a program is read, one of a chat is none', () => {
  expect(readProgram({ agent: 'x', tokens: {} })).toBeNull();
  expect(readProgram(null)).toBeNull();
  const program = readProgram({
    id: 'run_1',
    status: 'failed',
    output: 'o',
    result: null,
    error: { name: 'TypeError', message: 'm', module: 'main.ts', line: 3, column: 2 },
    logs: [{ level: 'warn', time: 1, message: 'w' }, null],
    usage: { wall_ms: 1.5, odd: 'x' },
  });
  expect(program?.error).toMatchObject({ name: 'TypeError', stack: '', line: 3 });
  expect(program?.result).toBeUndefined();
  expect(program?.code).toBeNull();
  expect(program?.logs).toEqual([
    { level: 'warn', time: 1, message: 'w' },
    { level: 'log', time: 0, message: '' },
  ]);
  expect(program?.usage).toEqual({ wall_ms: 1.5 });
});

test('a line is marked only in the code people wrote', () => {
  const error = { name: 'E', message: '', stack: '', line: 3, column: 1 };
  for (const module of ['main.js', 'main.ts', 'user-code.js'])
    expect(failedLine({ ...error, module })).toBe(3);
  for (const module of ['harness.js', 'other.js', null])
    expect(failedLine({ ...error, module })).toBeNull();
  expect(failedLine({ ...error, module: 'main.js', line: null })).toBeNull();
  expect(failedLine(null)).toBeNull();
});
