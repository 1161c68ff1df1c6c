/**
 * The agents and the names of their conversations, kept across conversations: each is a view of its
 * own, and the list above it should not blink.
 */
import { useCallback, useEffect, useSyncExternalStore } from 'react';
import { useFeed } from '../../api/feed.ts';
import { fetchAgents } from '../../api/chat.ts';
import { ApiError } from '../../api/client.ts';
import type { AgentInfo } from '../../api/types.ts';

/** What a draft is kept under. */
export const draftKey = (agent: string, name: string): string => `chat ${agent} ${name}`;

type Known = { agents: AgentInfo[] | null; error: ApiError | null };

let known: Known = { agents: null, error: null };
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

async function load(signal?: AbortSignal): Promise<void> {
  try {
    known = { agents: await fetchAgents(signal), error: null };
  } catch (cause) {
    if (signal?.aborted) return;
    const error = cause instanceof ApiError ? cause : new ApiError(0, 'unknown', 'It did not work');
    known = { ...known, error };
  }
  for (const listener of listeners) listener();
}

export function useAgents(): Known & { reload: () => void } {
  // Asked again when a server that was away is back.
  const isLive = useFeed().connection.state === 'live';
  useEffect(() => {
    const abort = new AbortController();
    void load(abort.signal);
    return () => abort.abort();
  }, [isLive]);
  const reload = useCallback(() => void load(), []);
  return { ...useSyncExternalStore(subscribe, () => known), reload };
}
