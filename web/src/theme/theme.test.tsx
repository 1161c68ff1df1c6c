import { act } from 'react';
import { beforeEach, expect, test } from 'vitest';
import { render } from '../../test/render.tsx';
import bootSource from './boot.js?raw';
import { ThemeToggle } from './ThemeToggle.tsx';
import { setTheme } from './theme.ts';

const root = document.documentElement;
const checked = (page: HTMLElement) => page.querySelector<HTMLInputElement>('input:checked')?.value;

/** Runs boot.js as a page load would. */
function boot(): void {
  delete root.dataset.theme;
  new Function(bootSource)();
}

beforeEach(() => {
  localStorage.clear();
  delete root.dataset.theme;
});

test('the system decides until one chooses', () => {
  expect(checked(render(<ThemeToggle />))).toBe('system');
});

test('a choice is kept and found again at the next load', () => {
  const page = render(<ThemeToggle />);
  act(() => page.querySelector<HTMLInputElement>('[value=dark]')!.click());
  expect(root.dataset.theme).toBe('dark');
  boot();
  expect(root.dataset.theme).toBe('dark');
  expect(checked(render(<ThemeToggle />))).toBe('dark');
  act(() => setTheme('system'));
  boot();
  expect(root.dataset.theme).toBeUndefined();
});

test('nonsense in the storage is ignored', () => {
  localStorage.setItem('cay.theme', 'pink');
  boot();
  expect(root.dataset.theme).toBeUndefined();
});

test('a choice made in another tab is followed', () => {
  const page = render(<ThemeToggle />);
  act(() => {
    window.dispatchEvent(new StorageEvent('storage', { key: 'cay.theme', newValue: 'light' }));
  });
  expect(checked(page)).toBe('light');
});
