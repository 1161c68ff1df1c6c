/** What the form says, as the body of POST /v1/run. */
import type { Program } from '../../api/program.ts';
import { object, text } from '../../api/types.ts';
import { curl } from '../../curl.ts';

export type Form = {
  code: string;
  language: 'js' | 'ts';
  env: string;
  wallMs: string;
  memoryMib: string;
};

export type Body = {
  code: string;
  language: 'js' | 'ts';
  env?: object;
  limits?: { wall_ms?: number; memory_bytes?: number };
};

/** Or what is wrong with it, for people. */
export function bodyOf(form: Form): Body | string {
  const body: Body = { code: form.code, language: form.language };
  if (form.env.trim() !== '') {
    try {
      const env: unknown = JSON.parse(form.env);
      if (typeof env !== 'object' || env === null || Array.isArray(env))
        return 'The env must be a JSON object, such as {"NAME": "value"}.';
      body.env = env;
    } catch (error) {
      return `The env is not JSON: ${error instanceof Error ? error.message : 'it cannot be read'}.`;
    }
  }
  const limits: Body['limits'] = {};
  const wall = wholeNumber(form.wallMs);
  const memory = wholeNumber(form.memoryMib);
  if (wall === null) return 'The time limit must be a whole number of milliseconds.';
  if (memory === null) return 'The memory limit must be a whole number of MiB.';
  if (wall !== undefined) limits.wall_ms = wall;
  if (memory !== undefined) limits.memory_bytes = memory * 1024 * 1024;
  if (Object.keys(limits).length > 0) body.limits = limits;
  return body;
}

/** undefined: nothing was said. null: it is no such number. */
function wholeNumber(text: string): number | null | undefined {
  if (text.trim() === '') return undefined;
  return /^\d{1,9}$/.test(text.trim()) && Number(text) > 0 ? Number(text) : null;
}

export const curlOf = (body: Body, origin: string, needsKey: boolean): string =>
  curl({ path: '/v1/run', body, stream: true }, origin, needsKey);

/** The form that would send the same again. */
export function formOf(program: Program): Form {
  const { language, env, limits } = program.request;
  const { wall_ms: wall, memory_bytes: memory } = object(limits);
  return {
    code: program.code ?? '',
    language: language === 'ts' ? 'ts' : 'js',
    env: env === undefined ? '' : JSON.stringify(env, null, 1),
    wallMs: typeof wall === 'number' ? String(wall) : '',
    memoryMib: typeof memory === 'number' ? String(Math.round(memory / 1024 / 1024)) : '',
  };
}

/** What was kept of a form, by this page or an older one. */
export function readForm(value: unknown, otherwise: Form): Form {
  const it = object(value);
  return {
    code: text(it.code, otherwise.code),
    language: it.language === 'ts' ? 'ts' : 'js',
    env: text(it.env, otherwise.env),
    wallMs: text(it.wallMs, otherwise.wallMs),
    memoryMib: text(it.memoryMib, otherwise.memoryMib),
  };
}

/** A form in an address: behind the #, so that no server is told. */
export const share = (form: Form): string =>
  btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(form))))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replace(/=+$/, '');

/** A program of an agent, to be tried: with a database of its own in the place of the agent's. */
export function playgroundOf(code: string): string {
  const names = new Set([...code.matchAll(/\benv\.([A-Za-z_]\w*)\s*\./g)].map(([, name]) => name));
  const env = Object.fromEntries(
    [...names].map((name) => [name, { $facet: `playground-${name}` }]),
  );
  const form: Form = {
    code,
    language: 'js',
    env: names.size > 0 ? JSON.stringify(env) : '',
    wallMs: '5000',
    memoryMib: '',
  };
  return `/play#${share(form)}`;
}

export function readShared(hash: string): unknown {
  if (hash.length < 2) return null;
  try {
    const binary = atob(hash.slice(1).replaceAll('-', '+').replaceAll('_', '/'));
    return JSON.parse(
      new TextDecoder().decode(Uint8Array.from(binary, (char) => char.charCodeAt(0))),
    ) as unknown;
  } catch {
    return null;
  }
}
