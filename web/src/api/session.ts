/**
 * Whether the server has asked for a key. The key itself is never kept here: signing in trades it
 * for an HttpOnly cookie that no script can read.
 */
import { useSyncExternalStore } from 'react';

let locked = false;
const listeners = new Set<() => void>();

function set(value: boolean): void {
  if (locked === value) return;
  locked = value;
  for (const listener of listeners) listener();
}

export const lockSession = () => set(true);
export const unlockSession = () => set(false);
export const sessionIsLocked = () => locked;

export function subscribeSession(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useSessionLocked(): boolean {
  return useSyncExternalStore(subscribeSession, sessionIsLocked);
}
