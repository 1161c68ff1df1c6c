import { act } from 'react';
import { expect, test, vi } from 'vitest';
import { render } from '../test/render.tsx';
import { Link, matchPath, navigate, usePath } from './router.tsx';

test('a pattern matches its path and hands over decoded parameters', () => {
  expect(matchPath('/runs/:id', '/runs/run_a%2Fb')).toEqual({ id: 'run_a/b' });
  expect(matchPath('/', '/')).toEqual({});
  expect(matchPath('/status', '/status/')).toEqual({});
});

test('a pattern refuses other lengths, other words and broken escapes', () => {
  expect(matchPath('/runs/:id', '/runs')).toBeNull();
  expect(matchPath('/runs/:id', '/runs/a/b')).toBeNull();
  expect(matchPath('/status', '/runs')).toBeNull();
  expect(matchPath('/runs/:id', '/runs/%E0%A4%A')).toBeNull();
  expect(matchPath('/runs/:id', '/runs/a%00b')).toBeNull();
});

function Page() {
  return (
    <>
      <p>{usePath()}</p>
      <Link to="/runs">go</Link>
    </>
  );
}

test('a plain click moves without a page load; a modified click is left to the browser', () => {
  vi.spyOn(window, 'scrollTo').mockImplementation(() => {});
  history.replaceState(null, '', '/status');
  const page = render(<Page />);
  const link = page.querySelector('a')!;
  const click = (init: MouseEventInit = {}) =>
    act(() =>
      link.dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true, ...init })),
    );

  let left = 0;
  const onClick = (event: MouseEvent) => {
    if (!event.defaultPrevented) left++;
    event.preventDefault();
  };
  document.addEventListener('click', onClick);
  click({ ctrlKey: true });
  expect(left).toBe(1);
  expect(page.textContent).toContain('/status');
  click();
  expect(left).toBe(1);
  expect(page.querySelector('p')!.textContent).toBe('/runs');
  expect(location.pathname).toBe('/runs');
  document.removeEventListener('click', onClick);
});

test('back and forward are followed', async () => {
  vi.spyOn(window, 'scrollTo').mockImplementation(() => {});
  history.replaceState(null, '', '/a');
  const page = render(<Page />);
  act(() => navigate('/b'));
  expect(page.querySelector('p')!.textContent).toBe('/b');
  await act(async () => {
    const popped = new Promise((resolve) =>
      window.addEventListener('popstate', resolve, { once: true }),
    );
    history.back();
    await popped;
  });
  expect(page.querySelector('p')!.textContent).toBe('/a');
});

test('the place is found when the view is long enough, held for a moment, and left to who moves', () => {
  vi.useFakeTimers();
  let y = 0;
  let height = 0;
  const scrolled = vi.spyOn(window, 'scrollTo').mockImplementation(((_: number, to: number) => {
    y = Math.min(to, Math.max(0, height - innerHeight));
  }) as typeof window.scrollTo);
  const own = vi.spyOn(window, 'scrollY', 'get').mockImplementation(() => y);
  const tall = vi
    .spyOn(document.documentElement, 'scrollHeight', 'get')
    .mockImplementation(() => height);
  const comeBack = () => {
    y = 0;
    height = 0;
    history.replaceState({ y: 400 }, '', '/a');
    window.dispatchEvent(new PopStateEvent('popstate'));
    vi.advanceTimersByTime(10_000); // a machine that is busy
    expect(y).toBe(0);
  };
  const grow = (to: number) => {
    height = to + innerHeight;
    y = Math.min(y, to);
    vi.advanceTimersByTime(100);
  };
  try {
    comeBack();
    grow(3000);
    expect(y).toBe(400);
    grow(0); // it loads anew
    expect(y).toBe(0);
    grow(3000);
    expect(y).toBe(400);
    vi.advanceTimersByTime(1000);
    y = 900;
    vi.advanceTimersByTime(1000);
    expect(y).toBe(900);

    comeBack();
    window.dispatchEvent(new Event('wheel'));
    grow(3000);
    expect(y).toBe(0);
  } finally {
    for (const spy of [scrolled, own, tall]) spy.mockRestore();
    vi.useRealTimers();
  }
});
