/**
 * What the server sends, and the functions that make sure of it. A reader fills in what an older or
 * newer server leaves out, so that one missing field costs one blank on the page, not the page.
 */

export type Health = { status: string; version: string; timestamp: string };

export type FeatureStatus = 'ok' | 'degraded' | 'missing';
export type Feature = { name: string; status: FeatureStatus; detail: string; advice: string };

export type ChildState = 'running' | 'starting' | 'backoff' | 'stopped';
export type Child = {
  name: string;
  pid: number | null;
  state: ChildState;
  restarts: number;
  memoryBytes: number | null;
  uptimeMs: number | null;
};

export type Status = {
  version: string;
  uptimeMs: number;
  pid: number | null;
  listen: string[];
  dataDir: string;
  model: { provider: string; name: string };
  features: Feature[];
  children: Child[];
  memoryBytes: number | null;
  connections: number | null;
  requestsTotal: number;
  requireKey: boolean;
  key: { id: string; name: string } | null;
};

export type RunStatus = 'running' | 'done' | 'failed' | 'interrupted' | 'cancelled';
export type Run = {
  id: string;
  kind: string;
  status: RunStatus;
  title: string;
  createdAt: string;
  finishedAt: string | null;
  durationMs: number | null;
  error: { code: string; message: string } | null;
  /** null: it asked no model, or the server does not say. */
  tokens: Tokens | null;
  costUsd: number | null;
  /** false: it asked a model whose price nobody has told. */
  priceKnown: boolean;
  /** The id of the key that began it; empty: the operator. */
  key: string;
};

export type Tokens = { input: number; output: number };

export type RunEvent = { seq: number; time: string; type: string; data: unknown };
export type RunDetail = Run & { detail: unknown; events: RunEvent[] };
export type RunPage = { runs: Run[]; nextCursor: string | null };

/** A type of agent, and the names of its conversations. */
export type AgentInfo = {
  type: string;
  title: string;
  description: string;
  model: string | null;
  tries: string[];
  names: string[];
};

type Fields = Record<string, unknown>;

export const object = (value: unknown): Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {};
export const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
export const text = (value: unknown, otherwise = ''): string =>
  typeof value === 'string' ? value : otherwise;
export const textOrNull = (value: unknown): string | null =>
  typeof value === 'string' ? value : null;
export const numberOrNull = (value: unknown): number | null =>
  typeof value === 'number' && Number.isFinite(value) ? value : null;
export const number = (value: unknown): number => numberOrNull(value) ?? 0;
export const oneOf = <T extends string>(allowed: readonly T[], value: unknown, otherwise: T): T =>
  allowed.find((item) => item === value) ?? otherwise;

export function readHealth(value: unknown): Health {
  const it = object(value);
  return {
    status: text(it.status, 'unknown'),
    version: text(it.version),
    timestamp: text(it.timestamp),
  };
}

function readFeature(value: unknown): Feature {
  const it = object(value);
  return {
    name: text(it.name, '?'),
    // A word this page does not know is no reason to call a feature safe.
    status: oneOf(['ok', 'degraded', 'missing'], it.status, 'degraded'),
    detail: text(it.detail),
    advice: text(it.advice),
  };
}

function readChild(value: unknown): Child {
  const it = object(value);
  return {
    name: text(it.name, '?'),
    pid: numberOrNull(it.pid),
    state: oneOf(['running', 'starting', 'backoff', 'stopped'], it.state, 'stopped'),
    restarts: number(it.restarts),
    memoryBytes: numberOrNull(it.memory_bytes),
    uptimeMs: numberOrNull(it.uptime_ms),
  };
}

export function readStatus(value: unknown): Status {
  const it = object(value);
  const model = object(it.model);
  const key = it.key === null || it.key === undefined ? null : object(it.key);
  return {
    version: text(it.version),
    uptimeMs: number(it.uptime_ms),
    pid: numberOrNull(it.pid),
    listen: list(it.listen).map((item) => text(item)),
    dataDir: text(it.data_dir),
    model: { provider: text(model.provider), name: text(model.name) },
    features: list(it.features).map(readFeature),
    children: list(it.children).map(readChild),
    memoryBytes: numberOrNull(it.memory_bytes),
    connections: numberOrNull(it.connections),
    requestsTotal: number(it.requests_total),
    requireKey: it.require_key === true,
    key: key && { id: text(key.id), name: text(key.name) },
  };
}

export function readRun(value: unknown): Run {
  const it = object(value);
  const error = it.error === null || it.error === undefined ? null : object(it.error);
  return {
    id: text(it.id),
    kind: text(it.kind),
    status: oneOf(['running', 'done', 'failed', 'interrupted', 'cancelled'], it.status, 'failed'),
    title: text(it.title),
    createdAt: text(it.created_at),
    finishedAt: textOrNull(it.finished_at),
    durationMs: numberOrNull(it.duration_ms),
    error: error && { code: text(error.code), message: text(error.message) },
    key: text(it.key),
    tokens: readTokens(it.usage),
    costUsd: numberOrNull(object(it.usage).cost_usd),
    priceKnown: object(it.usage).price_known !== false,
  };
}

/** Of a record's detail, or of the account of a run, whose names are longer. */
export function readTokens(value: unknown): Tokens | null {
  const it = object(value);
  const input = it.input ?? it.input_tokens;
  const output = it.output ?? it.output_tokens;
  return numberOrNull(input) === null && numberOrNull(output) === null
    ? null
    : { input: number(input), output: number(output) };
}

export function readRunPage(value: unknown): RunPage {
  const it = object(value);
  return { runs: list(it.runs).map(readRun), nextCursor: textOrNull(it.next_cursor) };
}

export function readRunDetail(value: unknown): RunDetail {
  const it = object(value);
  const events = list(it.events).map((item) => {
    const event = object(item);
    return {
      seq: number(event.seq),
      time: text(event.time),
      type: text(event.type, '?'),
      data: event.data ?? null,
    };
  });
  return { ...readRun(value), detail: it.detail ?? null, events };
}

export function readAgents(value: unknown): AgentInfo[] {
  return list(object(value).agents).map((item) => {
    const it = object(item);
    const texts = (some: unknown) => list(some).filter((one) => typeof one === 'string');
    return {
      type: text(it.type),
      title: text(it.title) || text(it.type),
      description: text(it.description),
      model: textOrNull(it.model),
      tries: texts(it.try),
      names: texts(it.names).sort((a, b) => a.localeCompare(b, 'en', { numeric: true })),
    };
  });
}
