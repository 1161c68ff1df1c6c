/** Keys: what the server says of them, and the calls. A key's text comes once, when it is made. */
import { send } from './client.ts';
import type { Call } from '../curl.ts';

import { list, number, object, oneOf, text, textOrNull } from './types.ts';

export const scopes = ['read', 'run', 'admin'] as const;
export type Scope = (typeof scopes)[number];

export const grantKinds = ['facets', 'workers', 'routes', 'binds'] as const;
export type GrantKind = (typeof grantKinds)[number];
export type Grants = Partial<Record<GrantKind, string[]>>;

export type Key = {
  id: string;
  name: string;
  scope: Scope;
  /** Each 0: no limit of its own. */
  ratePerMinute: number;
  maxJobs: number;
  tokensPerDay: number;
  usdPerDay: number;
  grants: Grants | null;
  createdAt: string;
  revokedAt: string | null;
};

export type KeyBody = {
  name: string;
  scope: Scope;
  rate_per_minute?: number;
  max_jobs?: number;
  tokens_per_day?: number;
  usd_per_day?: number;
  grants?: Grants;
};

function readGrants(value: unknown): Grants | null {
  if (value === null || value === undefined) return null;
  const it = object(value);
  return Object.fromEntries(grantKinds.map((kind) => [kind, list(it[kind]).map((n) => text(n))]));
}

export function readKey(value: unknown): Key {
  const it = object(value);
  return {
    id: text(it.id),
    name: text(it.name),
    scope: oneOf(scopes, it.scope, 'read'),
    ratePerMinute: number(it.rate_per_minute),
    maxJobs: number(it.max_jobs),
    tokensPerDay: number(it.tokens_per_day),
    usdPerDay: number(it.usd_per_day),
    grants: readGrants(it.grants),
    createdAt: text(it.created_at),
    revokedAt: textOrNull(it.revoked_at),
  };
}

export const keyCalls = {
  list: (cursor: string | null = null): Call => ({
    path: `/v1/keys?limit=100${cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`}`,
  }),
  create: (body: KeyBody): Call => ({ path: '/v1/keys', body }),
  revoke: (id: string): Call => ({
    method: 'DELETE',
    path: `/v1/keys/${encodeURIComponent(id)}`,
  }),
};

export type KeyPage = { keys: Key[]; nextCursor: string | null };

export async function listKeys(cursor: string | null, signal?: AbortSignal): Promise<KeyPage> {
  const it = object(await send(keyCalls.list(cursor), signal));
  return { keys: list(it.keys).map(readKey), nextCursor: textOrNull(it.next_cursor) };
}

export async function createKey(body: KeyBody): Promise<{ key: Key; secret: string }> {
  const it = await send(keyCalls.create(body));
  return { key: readKey(it), secret: text(object(it).key) };
}
