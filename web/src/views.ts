/**
 * The table of views. To add one, make a folder under views/ whose index.tsx has a component as its
 * default export, and add a line here. Every view is a chunk of its own, loaded when first seen.
 *
 * title   its name in the navigation and in the window's title.
 * paths   patterns it answers; the first is its address. Parameters arrive as the prop `params`.
 * nav     whether the navigation lists it; else it is reached from another view.
 * under   the path of the view that the navigation marks as current instead.
 */
import type { ComponentType } from 'react';
import { lazyView as lazy } from './lazyView.ts';
import { matchPath, type Params } from './router.tsx';

export type ViewProps = { params: Params };

export type View = {
  title: string;
  paths: [string, ...string[]];
  nav?: boolean;
  under?: string;
  view: ComponentType<ViewProps>;
};

// prettier-ignore
export const views: View[] = [
  { title: 'Home', paths: ['/'], view: lazy(() => import('./views/home')) },
  { title: 'Chat', paths: ['/chat', '/chat/:agent', '/chat/:agent/:name'], nav: true, view: lazy(() => import('./views/chat')) },
  { title: 'Playground', paths: ['/play'], nav: true, view: lazy(() => import('./views/play')) },
  { title: 'Coder', paths: ['/coder', '/coder/:id'], nav: true, view: lazy(() => import('./views/coder')) },
  { title: 'Sandboxes', paths: ['/sandboxes'], nav: true, view: lazy(() => import('./views/sandboxes')) },
  { title: 'Sandbox', paths: ['/sandboxes/:id'], under: '/sandboxes', view: lazy(() => import('./views/sandbox')) },
  { title: 'Runs', paths: ['/runs'], nav: true, view: lazy(() => import('./views/runs')) },
  { title: 'Usage', paths: ['/usage'], nav: true, view: lazy(() => import('./views/usage')) },
  { title: 'Keys', paths: ['/keys'], nav: true, view: lazy(() => import('./views/keys')) },
  { title: 'API', paths: ['/reference'], nav: true, view: lazy(() => import('./views/reference')) },
  { title: 'Status', paths: ['/status'], nav: true, view: lazy(() => import('./views/status')) },
  { title: 'Run', paths: ['/runs/:id'], under: '/runs', view: lazy(() => import('./views/run')) },
];

export type Match = { view: View; params: Params };

export function findView(path: string, table: View[] = views): Match | null {
  for (const view of table) {
    for (const pattern of view.paths) {
      const params = matchPath(pattern, path);
      if (params) return { view, params };
    }
  }
  return null;
}

/** Whether the navigation entry `item` stands for the view that is shown. */
export function isCurrent(item: View, shown: View | undefined): boolean {
  return shown !== undefined && (item === shown || item.paths[0] === shown.under);
}
