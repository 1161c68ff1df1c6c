/** Sandboxes: what the server says of them, and the calls. Each call is also a line for a shell. */
import type { Call } from '../curl.ts';
import { send, request } from './client.ts';
import { list, number, numberOrNull, object, oneOf, text, textOrNull } from './types.ts';

export type SandboxStatus = 'running' | 'paused' | 'stopped' | 'failed' | 'interrupted';

export type Usage = {
  memoryBytes: number | null;
  memoryPeakBytes: number | null;
  cpuMs: number | null;
  pids: number | null;
};

export type Policy = { allow: string[]; routes: string[] };

export type Sandbox = {
  id: string;
  name: string;
  status: SandboxStatus;
  createdAt: string;
  expiresAt: string | null;
  stoppedAt: string | null;
  root: string;
  network: Policy;
  memoryMb: number | null;
  diskMb: number | null;
  timeoutS: number | null;
  usage: Usage;
  metadata: Record<string, unknown>;
  error: string | null;
  /** It was ended because its time was over. */
  expired: boolean;
};

export type ExecStatus = 'running' | 'exited' | 'interrupted' | 'failed';

export type Exec = {
  id: string;
  status: ExecStatus;
  command: string;
  tty: boolean;
  exitCode: number | null;
  signal: string | null;
  oom: boolean;
  timedOut: boolean;
  truncated: boolean;
  stdoutBytes: number;
  startedAt: string;
  endedAt: string | null;
  error: string | null;
};

export type EntryKind = 'file' | 'dir' | 'link' | 'other';
export type Entry = { name: string; kind: EntryKind; mode: string; size: number; mtime: string };
export type Listing = { entries: Entry[]; more: boolean };

export type Snapshot = {
  id: string;
  name: string;
  createdAt: string;
  bytes: number | null;
  /** Of the sandbox it was made of; "" is the host's own. */
  root: string;
};

export type NetworkEvent = {
  time: string;
  host: string;
  state: 'begun' | 'ended' | 'refused';
  what: string;
  bytes: number;
};

/** Times are text of RFC 3339, or milliseconds. */
const time = (value: unknown): string | null =>
  typeof value === 'number' && Number.isFinite(value)
    ? new Date(value).toISOString()
    : textOrNull(value);

/** An error is text, or {code, message}. */
const problem = (value: unknown): string | null =>
  typeof value === 'string' ? value : value ? text(object(value).message) || null : null;

const texts = (value: unknown): string[] =>
  list(value).filter((it): it is string => typeof it === 'string');

const readPolicy = (value: unknown): Policy => ({
  allow: texts(object(value).allow),
  routes: texts(object(value).routes),
});

export function readSandbox(value: unknown): Sandbox {
  const it = object(value);
  const usage = object(it.usage);
  const limits = object(it.limits);
  return {
    id: text(it.id),
    name: text(it.name),
    status: oneOf(
      ['running', 'paused', 'stopped', 'failed', 'interrupted'],
      it.status,
      'interrupted',
    ),
    createdAt: time(it.created_at) ?? '',
    expiresAt: time(it.expires_at),
    stoppedAt: time(it.stopped_at),
    root: text(it.root),
    network: readPolicy(it.network),
    memoryMb: numberOrNull(limits.memory_mb),
    diskMb: numberOrNull(limits.disk_mb),
    timeoutS: numberOrNull(limits.timeout_s),
    usage: {
      memoryBytes: numberOrNull(usage.memory_bytes),
      memoryPeakBytes: numberOrNull(usage.memory_peak_bytes),
      cpuMs: numberOrNull(usage.cpu_ms),
      pids: numberOrNull(usage.pids),
    },
    metadata: object(it.metadata),
    error: problem(it.error),
    expired: object(it.error).code === 'timeout',
  };
}

/** How a shell would be told: words with anything unusual in them are quoted. */
const shown = (words: string[]): string =>
  words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : JSON.stringify(word))).join(' ');

const signals = new Map([
  [1, 'HUP'],
  [2, 'INT'],
  [3, 'QUIT'],
  [6, 'ABRT'],
  [8, 'FPE'],
  [9, 'KILL'],
  [11, 'SEGV'],
  [13, 'PIPE'],
  [15, 'TERM'],
  [24, 'XCPU'],
  [25, 'XFSZ'],
]);
const signalName = (number: number): string => `SIG${signals.get(number) ?? ` ${number}`}`;

export function readExec(value: unknown): Exec {
  const it = object(value);
  return {
    id: text(it.id),
    status: oneOf(['running', 'exited', 'interrupted', 'failed'], it.status, 'failed'),
    command: text(it.command) || shown(texts(it.argv)),
    tty: it.tty === true,
    exitCode: numberOrNull(it.exit_code),
    signal: typeof it.signal === 'number' ? signalName(it.signal) : textOrNull(it.signal),
    oom: it.oom === true,
    timedOut: it.timed_out === true,
    truncated: it.truncated === true,
    stdoutBytes: number(it.stdout_bytes),
    startedAt: time(it.started_at) ?? '',
    endedAt: time(it.ended_at),
    error: problem(it.error),
  };
}

export function readListing(value: unknown): Listing {
  const it = object(value);
  const entries = list(it.entries).map((item): Entry => {
    const one = object(item);
    return {
      name: text(one.name),
      kind: oneOf(['file', 'dir', 'link', 'other'], one.kind, 'other'),
      mode: typeof one.mode === 'number' ? one.mode.toString(8).padStart(4, '0') : text(one.mode),
      size: number(one.size),
      mtime: time(one.mtime) ?? '',
    };
  });
  const rank = (entry: Entry) => (entry.kind === 'dir' ? 0 : 1);
  return {
    entries: entries
      // A name that is no name would make a path that leads elsewhere.
      .filter(({ name }) => name !== '' && name !== '.' && name !== '..' && !name.includes('/'))
      .sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name, 'en', { numeric: true })),
    more: it.more === true,
  };
}

export function readSnapshot(value: unknown): Snapshot {
  const it = object(value);
  return {
    id: text(it.id),
    name: text(it.name),
    createdAt: time(it.created_at) ?? '',
    bytes: numberOrNull(it.size_bytes) ?? numberOrNull(it.bytes) ?? numberOrNull(it.size),
    root: text(it.root),
  };
}

export function readNetworkEvent(value: unknown): NetworkEvent {
  const it = object(value);
  const port = numberOrNull(it.port);
  const host = text(it.host);
  const status = numberOrNull(it.status);
  const call = [text(it.method), text(it.path)].filter(Boolean).join(' ');
  const route = text(it.route);
  const count = number(it.count);
  return {
    time: time(it.time) ?? '',
    // "*" at port 0 is what was too much to be told apart.
    host:
      (!port || host === '' ? host : `${host}:${port}`) +
      (route && ` by ${route}`) +
      (count > 1 ? `, ${count.toLocaleString('en')} times` : ''),
    // A word this page does not know is no reason to call it let out.
    state: oneOf(['begun', 'ended', 'refused'], it.state, 'refused'),
    what: text(it.reason) || [call, status ?? ''].filter(Boolean).join(' → '),
    bytes: number(it.bytes_in) + number(it.bytes_out),
  };
}

/** Pieces of output as the server cuts them: text, or base64 where it is no UTF-8. */
export type Piece = { stream: 'stdout' | 'stderr'; offset: number; bytes: Uint8Array };

export function readPiece(stream: 'stdout' | 'stderr', value: unknown): Piece {
  const it = object(value);
  const bytes =
    typeof it.data_base64 === 'string'
      ? Uint8Array.from(atob(it.data_base64), (char) => char.charCodeAt(0))
      : new TextEncoder().encode(text(it.data));
  return { stream, offset: number(it.offset), bytes };
}

// --- the calls ---

const of = (id: string, rest = '') => `/v1/sandboxes/${encodeURIComponent(id)}${rest}`;
const withPath = (path: string, more: Record<string, string> = {}) =>
  `?${new URLSearchParams({ path, ...more })}`;

/** Every call the page makes, told as data: how it is sent, and how curl would send it. */
export const calls = {
  list: (): Call => ({ path: '/v1/sandboxes?limit=100' }),
  create: (body: unknown): Call => ({ path: '/v1/sandboxes', body }),
  get: (id: string): Call => ({ path: of(id) }),
  remove: (id: string): Call => ({ method: 'DELETE', path: of(id) }),
  extend: (id: string, timeoutS: number): Call => ({
    path: of(id, '/extend'),
    body: { timeout_s: timeoutS },
  }),
  pass: (id: string, port: number): Call => ({
    method: 'POST',
    path: of(id, `/ports/${port}/pass`),
  }),
  pause: (id: string): Call => ({ method: 'POST', path: of(id, '/pause') }),
  resume: (id: string): Call => ({ method: 'POST', path: of(id, '/resume') }),
  snapshot: (id: string, name: string): Call => ({
    path: of(id, '/snapshots'),
    body: name ? { name } : {},
  }),
  snapshots: (): Call => ({ path: '/v1/snapshots?limit=100' }),
  removeSnapshot: (id: string): Call => ({
    method: 'DELETE',
    path: `/v1/snapshots/${encodeURIComponent(id)}`,
  }),
  setNetwork: (id: string, policy: Policy): Call => ({
    method: 'PUT',
    path: of(id, '/network'),
    body: policy,
  }),
  networkEvents: (id: string): Call => ({ path: of(id, '/network/events') }),
  exec: (id: string, body: unknown): Call => ({ path: of(id, '/exec'), body }),
  execs: (id: string): Call => ({ path: of(id, '/execs?limit=100') }),
  execOutput: (id: string, exec: string, stdout = 0, stderr = 0): Call => ({
    path: of(id, `/execs/${encodeURIComponent(exec)}/output?stdout=${stdout}&stderr=${stderr}`),
    stream: true,
  }),
  signal: (id: string, exec: string, signal: string): Call => ({
    path: of(id, `/execs/${encodeURIComponent(exec)}/signal`),
    body: { signal },
  }),
  tty: (id: string, exec: string): Call => ({
    path: of(id, `/execs/${encodeURIComponent(exec)}/tty`),
  }),
  listFiles: (id: string, path: string): Call => ({ path: of(id, '/files/list') + withPath(path) }),
  readFile: (id: string, path: string, to?: string): Call => ({
    path: of(id, '/files') + withPath(path),
    ...(to === undefined ? {} : { to }),
  }),
  writeFile: (id: string, path: string, from: string): Call => ({
    method: 'PUT',
    path: of(id, '/files') + withPath(path, { parents: '1' }),
    from,
  }),
  removeFile: (id: string, path: string, recursive: boolean): Call => ({
    method: 'DELETE',
    path: of(id, '/files') + withPath(path, recursive ? { recursive: '1' } : {}),
  }),
  move: (id: string, from: string, to: string): Call => ({
    path: of(id, '/files/move'),
    body: { from, to },
  }),
  mkdir: (id: string, path: string): Call => ({
    path: of(id, '/files/mkdir'),
    body: { path, parents: true },
  }),
  tar: (id: string, path: string, to: string): Call => ({
    path: of(id, '/tar') + withPath(path),
    to,
  }),
};

const measuredAtOnce = 24;

/** What tells a sandbox's listeners, by a command that the list of commands leaves out. */
export const listenersArgv = ['cat', '/proc/net/tcp', '/proc/net/tcp6'];
/** Where the sandbox's own way out listens. */
const proxyPort = 3128;

/** The ports of the sockets that listen, of the kernel's own tables. */
export function readListeners(tables: string): number[] {
  const ports = new Set<number>();
  for (const line of tables.split('\n')) {
    const [, port] = /^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} 0A /.exec(line) ?? [];
    if (port !== undefined) ports.add(parseInt(port, 16));
  }
  ports.delete(proxyPort);
  return [...ports].filter((port) => port > 0).sort((a, b) => a - b);
}

export const sandboxes = {
  /** The list knows what was measured last; those that live are asked again, the first of them. */
  async list(signal?: AbortSignal): Promise<Sandbox[]> {
    const all = list(object(await send(calls.list(), signal)).sandboxes).map(readSandbox);
    const live = all.filter(({ status }) => status === 'running').slice(0, measuredAtOnce);
    const fresh = new Map<string, Sandbox>();
    await Promise.all(
      live.map(async ({ id }) => {
        try {
          fresh.set(id, readSandbox(await send(calls.get(id), signal)));
        } catch {
          // It ended in between: the next list says so.
        }
      }),
    );
    return all.map((it) => fresh.get(it.id) ?? it);
  },
  async get(id: string, signal?: AbortSignal): Promise<Sandbox> {
    return readSandbox(await send(calls.get(id), signal));
  },
  async create(body: unknown): Promise<Sandbox> {
    return readSandbox(await send(calls.create(body)));
  },
  async snapshots(signal?: AbortSignal): Promise<Snapshot[]> {
    return list(object(await send(calls.snapshots(), signal)).snapshots).map(readSnapshot);
  },
  async listeners(id: string): Promise<number[]> {
    const body = { argv: listenersArgv, timeout_s: 5 };
    return readListeners(text(object(await send(calls.exec(id, body))).stdout));
  },
  /** A link to a port that this browser may follow: with a pass in it, where keys are needed. */
  async portLink(id: string, port: number): Promise<string> {
    return text(object(await send(calls.pass(id, port))).url);
  },
  async snapshot(id: string, name: string): Promise<Snapshot> {
    return readSnapshot(await send(calls.snapshot(id, name)));
  },
  async execs(id: string, signal?: AbortSignal): Promise<Exec[]> {
    const execs = list(object(await send(calls.execs(id), signal)).execs)
      .map(readExec)
      .filter(({ command }) => command !== listenersArgv.join(' '));
    return execs.sort((a, b) => (a.startedAt < b.startedAt ? 1 : -1));
  },
  async start(id: string, body: object): Promise<Exec> {
    return readExec(await send(calls.exec(id, { ...body, background: true })));
  },
  async files(id: string, path: string, signal?: AbortSignal): Promise<Listing> {
    return readListing(await send(calls.listFiles(id, path), signal));
  },
  async networkEvents(id: string, signal?: AbortSignal): Promise<NetworkEvent[]> {
    const events = list(object(await send(calls.networkEvents(id), signal)).events);
    return events.map(readNetworkEvent).reverse();
  },
  /** null when it has more than `max` bytes: the rest is not fetched. */
  async readFile(
    id: string,
    path: string,
    max: number,
    signal?: AbortSignal,
  ): Promise<Uint8Array | null> {
    const options = { headers: { Accept: '*/*' }, ...(signal ? { signal } : {}) };
    const response = await request(calls.readFile(id, path).path, options);
    const reader = response.body?.getReader();
    const chunks: Uint8Array[] = [];
    for (let size = 0; reader;) {
      const { done, value } = await reader.read();
      if (done) break;
      chunks.push(value);
      size += value.length;
      if (size > max) {
        await reader.cancel();
        return null;
      }
    }
    const all = new Uint8Array(chunks.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const chunk of chunks) {
      all.set(chunk, at);
      at += chunk.length;
    }
    return all;
  },
  async writeFile(id: string, path: string, content: BodyInit): Promise<void> {
    await request(calls.writeFile(id, path, '').path, {
      method: 'PUT',
      raw: content,
      headers: { 'Content-Type': 'application/octet-stream' },
    });
  },
};

/** Where a port of a sandbox is seen: never at the page's own origin. */
export function portUrl(id: string, port: number, at: { protocol: string; port: string }): string {
  return `${at.protocol}//${port}-${id}.localhost${at.port ? `:${at.port}` : ''}/`;
}

export const joinPath = (dir: string, name: string): string =>
  dir.endsWith('/') ? dir + name : `${dir}/${name}`;
