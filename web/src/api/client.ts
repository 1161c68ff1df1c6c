/**
 * One way to call the server: JSON in, JSON out, every failure an ApiError. A 401 also locks the
 * session (session.ts), which puts the key prompt on the page.
 */
import type { Call } from '../curl.ts';
import { lockSession } from './session.ts';
import * as read from './types.ts';

export class ApiError extends Error {
  override name = 'ApiError';
  /** 0 means that the server was not reached. */
  readonly status: number;
  readonly code: string;
  readonly requestId: string;

  constructor(status: number, code: string, message: string, requestId = '') {
    super(message);
    this.status = status;
    this.code = code;
    this.requestId = requestId;
  }
}

export type RequestOptions = {
  method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Sent as JSON. */
  body?: unknown;
  /** Sent as it is, instead. */
  raw?: BodyInit;
  headers?: Record<string, string>;
  signal?: AbortSignal;
};

const timeoutMs = 20_000;

async function failure(response: Response): Promise<ApiError> {
  const otherwise = `The server answered ${response.status} ${response.statusText}`.trim();
  try {
    const body = (await response.json()) as { error?: Record<string, unknown> };
    const { code, message, request_id } = body.error ?? {};
    return new ApiError(
      response.status,
      typeof code === 'string' ? code : 'unknown',
      typeof message === 'string' ? message : otherwise,
      typeof request_id === 'string' ? request_id : '',
    );
  } catch {
    return new ApiError(response.status, 'unknown', otherwise);
  }
}

/** Sends a request and returns the answer unread, for streams; a status of 400 and up is thrown. */
export async function request(path: string, options: RequestOptions = {}): Promise<Response> {
  const { method = 'GET', body, raw, headers = {}, signal } = options;
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers: {
        Accept: 'application/json',
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...headers,
      },
      credentials: 'same-origin',
      cache: 'no-store',
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(raw === undefined ? {} : { body: raw }),
      ...(signal ? { signal } : {}),
    });
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw new ApiError(0, 'unreachable', 'The server cannot be reached');
  }
  if (response.ok) return response;
  const error = await failure(response);
  // A refused sign-in is the prompt's own business.
  if (error.status === 401 && path !== '/v1/session') lockSession();
  throw error;
}

async function json(path: string, options: RequestOptions = {}): Promise<unknown> {
  const limit = AbortSignal.timeout(timeoutMs);
  const signal = options.signal ? AbortSignal.any([options.signal, limit]) : limit;
  try {
    const response = await request(path, { ...options, signal });
    if (response.status === 204) return null;
    return (await response.json()) as unknown;
  } catch (error) {
    if (error instanceof ApiError || options.signal?.aborted) throw error;
    if (limit.aborted) throw new ApiError(0, 'timeout', 'The server took too long to answer');
    throw new ApiError(0, 'bad_answer', 'The server sent something that is not JSON');
  }
}

/** Carries out a call whose answer is JSON, or nothing. */
export function send(call: Call, signal?: AbortSignal): Promise<unknown> {
  return json(call.path, {
    method: call.method ?? (call.body === undefined ? 'GET' : 'POST'),
    ...(call.body === undefined ? {} : { body: call.body }),
    ...(signal ? { signal } : {}),
  });
}

export type RunQuery = {
  limit?: number;
  cursor?: string | null;
  kind?: string;
  status?: string;
  /** Times as RFC 3339 has them. */
  since?: string;
  until?: string;
  text?: string;
  /** The id of a key, for an admin. */
  key?: string;
};

export function runsPath(query: RunQuery): string {
  const fields = new URLSearchParams({ limit: String(query.limit ?? 20) });
  for (const key of ['kind', 'status', 'since', 'until', 'text', 'key', 'cursor'] as const)
    if (query[key]) fields.set(key, query[key]);
  return `/v1/runs?${fields}`;
}

export const api = {
  json,

  async health(signal?: AbortSignal) {
    return read.readHealth(await json('/health', signal ? { signal } : {}));
  },

  async runs(options: RunQuery & { signal?: AbortSignal } = {}) {
    const { signal } = options;
    return read.readRunPage(await json(runsPath(options), signal ? { signal } : {}));
  },

  async run(id: string, signal?: AbortSignal) {
    const path = `/v1/runs/${encodeURIComponent(id)}`;
    return read.readRunDetail(await json(path, signal ? { signal } : {}));
  },

  async signIn(key: string) {
    await json('/v1/session', { method: 'POST', headers: { Authorization: `Bearer ${key}` } });
  },

  async signOut() {
    await json('/v1/session', { method: 'DELETE' });
  },
};
