/**
 * A view's code, loaded when it is first seen. A server that is down is waited for; one that answers
 * and has the code no more was upgraded under the page, which the error boundary says.
 */
import { lazy, type ComponentType } from 'react';
import { backoffMs } from './api/backoff.ts';

type Module<P> = { default: ComponentType<P> };

async function serverAnswers(): Promise<boolean> {
  try {
    await fetch('/health', { cache: 'no-store', signal: AbortSignal.timeout(5_000) });
    return true;
  } catch {
    return false;
  }
}

export async function loadPatiently<T>(load: () => Promise<T>): Promise<T> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await load();
    } catch (cause) {
      if (await serverAnswers()) {
        // It may have come back in between.
        if (attempt > 0) return load();
        throw cause;
      }
    }
    await new Promise((done) => setTimeout(done, backoffMs(attempt)));
  }
}

export const lazyView = <P>(load: () => Promise<Module<P>>) => lazy(() => loadPatiently(load));
