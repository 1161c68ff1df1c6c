import { act } from 'react';
import { expect, test, vi } from 'vitest';
import { render } from '../../test/render.tsx';
import type { Run } from '../api/types.ts';
import { isWanted } from '../views/runs/filter.ts';
import { mergeRuns } from '../views/runs/index.tsx';
import { DataTable } from './DataTable.tsx';
import { ErrorBoundary } from './ErrorBoundary.tsx';
import { runDuration, RunTable } from './RunTable.tsx';
import { sparkPath } from './sparkPath.ts';

const run = (id: string, change: Partial<Run> = {}): Run => ({
  id,
  kind: 'isolate',
  status: 'done',
  title: `title of ${id}`,
  createdAt: '2026-01-01T00:00:00Z',
  finishedAt: '2026-01-01T00:00:01Z',
  durationMs: 1000,
  error: null,
  tokens: null,
  costUsd: null,
  priceKnown: true,
  key: '',
  ...change,
});

test('a run links to its own page, with its id escaped', () => {
  const page = render(<RunTable runs={[run('a/b')]} now={0} />);
  expect(page.querySelector('a')!.getAttribute('href')).toBe('/runs/a%2Fb');
  expect(page.textContent).toContain('title of a/b');
  expect(page.textContent).toContain('1.00 s');
});

test('runs are found by status and by words of title, id or error', () => {
  const failed = run('run_1', { status: 'failed', error: { code: 'x', message: 'Out of Sand' } });
  expect(isWanted(failed, { status: '', text: '' })).toBe(true);
  expect(isWanted(failed, { status: 'done', text: '' })).toBe(false);
  expect(isWanted(failed, { status: 'failed', text: 'of sand' })).toBe(true);
  expect(isWanted(failed, { status: '', text: 'RUN_1' })).toBe(true);
  expect(isWanted(failed, { status: '', text: 'nothing' })).toBe(false);
});

test('no runs are said to be none', () => {
  expect(render(<RunTable runs={[]} now={0} />).textContent).toBe('Nothing has been run yet.');
});

test('a run under way counts up, an interrupted one has no duration', () => {
  const start = Date.parse('2026-01-01T00:00:00Z');
  const open = { durationMs: null, finishedAt: null };
  expect(runDuration(run('a', { ...open, status: 'running' }), start + 1500)).toBe(1500);
  expect(runDuration(run('a', { ...open, status: 'running' }), start - 99)).toBe(0);
  expect(runDuration(run('a', { ...open, status: 'interrupted' }), start + 1500)).toBeNull();
});

test('pages of runs join without repeats, and the fresher record wins', () => {
  const merged = mergeRuns([run('c'), run('b')], [run('b', { status: 'running' }), run('a')]);
  expect(merged.map(({ id, status }) => `${id} ${status}`)).toEqual(['c done', 'b done', 'a done']);
});

test('a table says which cell names the row and which column a cell belongs to', () => {
  const page = render(
    <DataTable
      caption="Things"
      columns={[
        { title: 'Name', head: true, cell: (row: string) => row },
        { title: 'Size', numeric: true, cell: (row: string) => row.length },
      ]}
      rows={['abc']}
      rowKey={(row) => row}
    />,
  );
  expect(page.querySelector('[role=rowheader]')!.textContent).toBe('abc');
  expect(page.querySelector('[role=cell]')!.getAttribute('data-title')).toBe('Size');
  expect(page.querySelector('caption')!.textContent).toBe('Things');
});

test('a sparkline needs two values, starts at zero and ends at the right edge', () => {
  expect(sparkPath([1], 5, 100, 20).line).toBe('');
  expect(sparkPath([0, 4, 2], 3, 100, 20).line).toBe('M0.0 18.0L50.0 2.0L100.0 10.0');
  expect(sparkPath([0, 0.5], 3, 100, 20).line).toBe('M50.0 18.0L100.0 10.0');
  expect(sparkPath([9, 9, 9, 1, 1], 2, 100, 20).line).toBe('M0.0 2.0L100.0 2.0');
});

test('a view that throws leaves a message and a way out', () => {
  vi.spyOn(console, 'error').mockImplementation(() => {});
  const Broken = () => {
    throw new Error('chunk is gone');
  };
  let page!: HTMLElement;
  act(() => {
    page = render(
      <ErrorBoundary>
        <Broken />
      </ErrorBoundary>,
    );
  });
  expect(page.querySelector('[role=alert]')!.textContent).toContain('chunk is gone');
  expect(page.querySelector('button')!.textContent).toBe('Reload the page');
});
