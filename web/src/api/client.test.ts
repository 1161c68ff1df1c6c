import { afterEach, expect, test, vi } from 'vitest';
import { api, ApiError } from './client.ts';
import { sessionIsLocked, unlockSession } from './session.ts';

const answer = (status: number, body: unknown) =>
  vi.stubGlobal(
    'fetch',
    vi.fn(async () => Response.json(body, { status })),
  );

const thrown = async (promise: Promise<unknown>): Promise<ApiError> => {
  const error = await promise.then(
    () => null,
    (cause: unknown) => cause,
  );
  expect(error).toBeInstanceOf(ApiError);
  return error as ApiError;
};

afterEach(() => {
  vi.unstubAllGlobals();
  unlockSession();
});

test('an error answer becomes an ApiError with its code and request id', async () => {
  answer(404, { error: { code: 'not_found', message: 'no such run', request_id: 'r1' } });
  const error = await thrown(api.run('x'));
  expect(error).toMatchObject({
    status: 404,
    code: 'not_found',
    message: 'no such run',
    requestId: 'r1',
  });
  expect(sessionIsLocked()).toBe(false);
});

test('an answer that is not JSON, and no answer at all, become ApiErrors too', async () => {
  vi.stubGlobal('fetch', async () => new Response('<h1>', { status: 200 }));
  expect((await thrown(api.health())).code).toBe('bad_answer');
  vi.stubGlobal(
    'fetch',
    async () => new Response('<h1>', { status: 502, statusText: 'Bad Gateway' }),
  );
  expect((await thrown(api.health())).message).toBe('The server answered 502 Bad Gateway');
  vi.stubGlobal('fetch', async () => {
    throw new TypeError('Failed to fetch');
  });
  expect(await thrown(api.health())).toMatchObject({ status: 0, code: 'unreachable' });
});

test('a 401 locks the session, except when the key prompt itself is refused', async () => {
  answer(401, { error: { code: 'unauthorized', message: 'key', request_id: 'r' } });
  await thrown(api.signIn('wrong'));
  expect(sessionIsLocked()).toBe(false);
  await thrown(api.runs());
  expect(sessionIsLocked()).toBe(true);
});

test('the key travels in a header, and an id is escaped', async () => {
  const fetch = vi.fn(
    async (_path: string, _init?: RequestInit) => new Response(null, { status: 204 }),
  );
  vi.stubGlobal('fetch', fetch);
  await api.signIn('k1');
  expect(fetch.mock.calls[0]?.[0]).toBe('/v1/session');
  expect(fetch.mock.calls[0]?.[1]?.headers).toMatchObject({ Authorization: 'Bearer k1' });
  await api.run('a/../b');
  expect(fetch.mock.calls[1]?.[0]).toBe('/v1/runs/a%2F..%2Fb');
});
