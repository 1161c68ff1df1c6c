import { expect, test } from 'vitest';
import { base64, bodyOf, emptyForm } from './form.ts';
import { coresBetween, formatCores, timeLeft } from './live.ts';
import { readSandbox } from '../../api/sandboxes.ts';

test('what is left empty is left to the server', () => {
  expect(bodyOf(emptyForm)).toEqual({});
  expect(
    bodyOf({
      ...emptyForm,
      name: ' one ',
      memoryMb: '256',
      timeoutS: '60',
      allow: 'a.example\nb.example:443, c',
      env: 'A=1\nB=x=y\n',
    }),
  ).toEqual({
    name: 'one',
    memory_mb: 256,
    timeout_s: 60,
    network: { allow: ['a.example', 'b.example:443', 'c'] },
    env: { A: '1', B: 'x=y' },
  });
});

test('what is wrong is said', () => {
  for (const memoryMb of ['0', '-1', '1.5', 'much'])
    expect(bodyOf({ ...emptyForm, memoryMb })).toMatch(/MiB/);
  expect(bodyOf({ ...emptyForm, timeoutS: 'x' })).toMatch(/seconds/);
  expect(bodyOf({ ...emptyForm, env: 'NOVALUE' })).toMatch(/NAME=value/);
});

test('bytes become base64 whatever their number', () => {
  expect(base64(new Uint8Array())).toBe('');
  const bytes = Uint8Array.from({ length: 100_001 }, (_, i) => i % 256);
  expect(Buffer.from(base64(bytes), 'base64').equals(Buffer.from(bytes))).toBe(true);
});

test('the cores in use come from two looks', () => {
  expect(coresBetween(undefined, { at: 1, cpuMs: 1 })).toBeNull();
  expect(coresBetween({ at: 0, cpuMs: 100 }, { at: 1000, cpuMs: 600 })).toBe(0.5);
  // It was resumed from somewhere else, or the clock did not move: not known.
  expect(coresBetween({ at: 0, cpuMs: 100 }, { at: 1000, cpuMs: 0 })).toBeNull();
  expect(coresBetween({ at: 5, cpuMs: 1 }, { at: 5, cpuMs: 2 })).toBeNull();
  expect(formatCores(1.5)).toBe('150 %');
  expect(formatCores(null)).toBe('–');
});

test('time is left only to what lives', () => {
  const at = (status: string) =>
    readSandbox({ status, expires_at: new Date(10_000).toISOString() });
  expect(timeLeft(at('running'), 4_000)).toBe(6_000);
  expect(timeLeft(at('paused'), 20_000)).toBe(0);
  expect(timeLeft(at('stopped'), 4_000)).toBeNull();
  expect(timeLeft(readSandbox({ status: 'running' }), 0)).toBeNull();
});
