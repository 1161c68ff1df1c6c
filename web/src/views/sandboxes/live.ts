/** What is derived from one look at a sandbox to the next. */
import { useEffect, useRef, useState } from 'react';
import { calls, type Sandbox } from '../../api/sandboxes.ts';
import type { Call } from '../../curl.ts';

type Look = { at: number; cpuMs: number };

/** Cores in use between two looks: 1 is one core busy all the time. */
export function coresBetween(before: Look | undefined, now: Look): number | null {
  if (!before || now.at <= before.at || now.cpuMs < before.cpuMs) return null;
  return (now.cpuMs - before.cpuMs) / (now.at - before.at);
}

/** For each id, the share of a core it used since the last look. */
export function useCores(items: readonly Sandbox[] | null): Map<string, number | null> {
  const looks = useRef(new Map<string, Look>());
  const [cores, setCores] = useState(new Map<string, number | null>());
  useEffect(() => {
    if (!items) return;
    const at = performance.now();
    const next = new Map<string, number | null>();
    const seen = new Map<string, Look>();
    for (const { id, usage, status } of items) {
      if (usage.cpuMs === null || status !== 'running') continue;
      const look = { at, cpuMs: usage.cpuMs };
      next.set(id, coresBetween(looks.current.get(id), look));
      seen.set(id, look);
    }
    looks.current = seen;
    setCores(next);
  }, [items]);
  return cores;
}

export const formatCores = (cores: number | null | undefined): string =>
  cores === null || cores === undefined ? '–' : `${Math.round(cores * 100)} %`;

export const isLive = ({ status }: Sandbox): boolean => status === 'running' || status === 'paused';

export const liveFirst = (items: readonly Sandbox[]): Sandbox[] => [
  ...items.filter(isLive),
  ...items.filter((it) => !isLive(it)),
];

/** Milliseconds until it ends by itself; null when it does not, or has ended. */
export function timeLeft(sandbox: Sandbox, now: number): number | null {
  const end = sandbox.expiresAt === null ? NaN : Date.parse(sandbox.expiresAt);
  return isLive(sandbox) && !Number.isNaN(end) ? Math.max(0, end - now) : null;
}

/** So many seconds more than it has: the API counts from now, and would shorten what is left. */
export function extendBy(sandbox: Sandbox, seconds: number, now: number): Call {
  const left = Math.ceil((timeLeft(sandbox, now) ?? 0) / 1000);
  return calls.extend(sandbox.id, left + seconds);
}

/** What makes one like it. Environment and files were never told to anybody, so they are missing. */
export function againBody(it: Sandbox): object {
  const { name, root, network, memoryMb, diskMb, timeoutS } = it;
  return {
    ...(name ? { name } : {}),
    ...(root ? { root } : {}),
    ...(memoryMb ? { memory_mb: memoryMb } : {}),
    ...(diskMb ? { disk_mb: diskMb } : {}),
    ...(timeoutS ? { timeout_s: timeoutS } : {}),
    ...(network.allow.length + network.routes.length > 0 ? { network } : {}),
  };
}
