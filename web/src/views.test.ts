import { expect, test } from 'vitest';
import { findView, isCurrent, views } from './views.ts';

test('every view is found at each of its paths', () => {
  for (const view of views) {
    for (const path of view.paths) expect(findView(path)?.view).toBe(view);
  }
});

test('the root has a view, and an unknown path has none', () => {
  expect(findView('/')).not.toBeNull();
  expect(findView('/nowhere')).toBeNull();
  expect(findView('/runs/run_1')?.params).toEqual({ id: 'run_1' });
});

test('every `under` names a view of the navigation, which is then marked as current', () => {
  for (const view of views.filter((item) => item.under)) {
    const parent = views.find((item) => item.paths[0] === view.under && item.nav);
    expect(parent).toBeDefined();
    expect(isCurrent(parent!, view)).toBe(true);
  }
  expect(isCurrent(views[0]!, undefined)).toBe(false);
  expect(isCurrent(views[0]!, views[1])).toBe(false);
});
