import { expect, test } from 'vitest';
import { formatAge, formatAgo, formatBytes, formatDuration, formatRate } from './format.ts';

test('bytes are told in the unit that keeps them short', () => {
  expect(formatBytes(0)).toBe('0 B');
  expect(formatBytes(1023)).toBe('1023 B');
  expect(formatBytes(1024)).toBe('1.0 KiB');
  expect(formatBytes(18_400_000)).toBe('17.5 MiB');
  expect(formatBytes(150 * 1024 ** 2)).toBe('150 MiB');
  expect(formatBytes(5 * 1024 ** 5)).toBe('5120 TiB');
  expect(formatBytes(null)).toBe('–');
});

test('durations run from milliseconds to days and never round up into the next unit', () => {
  expect(formatDuration(0.4)).toBe('0 ms');
  expect(formatDuration(999)).toBe('999 ms');
  expect(formatDuration(1250)).toBe('1.25 s');
  expect(formatDuration(9999)).toBe('9.99 s');
  expect(formatDuration(59_999)).toBe('59 s');
  expect(formatDuration(125_000)).toBe('2 min 5 s');
  expect(formatDuration(null)).toBe('–');
  expect(formatAge(3_600_000)).toBe('1 h');
  expect(formatAge(3_720_000)).toBe('1 h 2 min');
  expect(formatAge(90_000_000)).toBe('1 d 1 h');
});

test('a moment is told as its distance, a day later as a date', () => {
  const now = Date.parse('2026-03-05T12:00:00Z');
  expect(formatAgo('2026-03-05T11:59:59.5Z', now)).toBe('just now');
  expect(formatAgo('2026-03-05T12:00:10Z', now)).toBe('just now');
  expect(formatAgo('2026-03-05T11:59:20Z', now)).toBe('40 s ago');
  expect(formatAgo('2026-03-05T11:00:01Z', now)).toBe('59 min ago');
  expect(formatAgo('2026-03-05T02:00:00Z', now)).toBe('10 h ago');
  expect(formatAgo('2026-03-02T12:00:00Z', now)).toBe('2 Mar 2026');
  expect(formatAgo('yesterday', now)).toBe('–');
});

test('rates keep one digit while they are small', () => {
  expect(formatRate(0)).toBe('0.0');
  expect(formatRate(3.14)).toBe('3.1');
  expect(formatRate(1234.6)).toBe('1,235');
});
