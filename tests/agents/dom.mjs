// A page for React without a browser: jsdom's window, with node's WebSocket and fetch.
import { JSDOM } from 'jsdom';

export function openPage(server) {
  const dom = new JSDOM('<!doctype html><div id="root"></div>', { url: `http://127.0.0.1:${server.port}/` });
  const names = ['window', 'document', 'navigator', 'HTMLElement', 'Node', 'MutationObserver'];
  for (const name of names)
    Object.defineProperty(globalThis, name, { value: dom.window[name], configurable: true, writable: true });
  globalThis.IS_REACT_ACT_ENVIRONMENT = false;
  return dom;
}

/** Mounts the component; `view.current` is what its last rendering returned. */
export async function mount(t, hook) {
  const { createElement, Suspense } = await import('react');
  const { createRoot } = await import('react-dom/client');
  const host = document.createElement('div');
  const view = { current: null, renders: 0, errors: [] };
  function Probe() {
    view.current = hook();
    view.renders++;
    return null;
  }
  const rootNode = createRoot(host, { onUncaughtError: (error) => view.errors.push(error) });
  rootNode.render(createElement(Suspense, { fallback: null }, createElement(Probe)));
  view.unmount = () => rootNode.unmount();
  t.after(() => rootNode.unmount());
  return view;
}
