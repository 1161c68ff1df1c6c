// What a server and its programs hold.
import { readFileSync, readdirSync } from 'node:fs';

/** The server and what it has started, by name: how many, how much memory, how many descriptors. */
export function measure(front) {
  const processes = new Map();
  for (const d of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const stat = readFileSync(`/proc/${d}/stat`, 'utf8');
      const [, ppid] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      processes.set(Number(d), { ppid: Number(ppid), name: stat.slice(stat.indexOf('(') + 1, stat.lastIndexOf(')')) });
    } catch {
      // gone
    }
  }
  const family = new Set([front]);
  for (let grown = true; grown; ) {
    grown = false;
    for (const [pid, { ppid }] of processes) if (family.has(ppid) && !family.has(pid)) grown = !!family.add(pid);
  }
  const rss = (pid) => Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0);
  return { processes: family.size, frontKiB: rss(front), descriptors: readdirSync(`/proc/${front}/fd`).length };
}
