/** What the env of the form holds, as far as it can be read. */
import { object, text } from '../../api/types.ts';

function read(env: string): Record<string, unknown> {
  try {
    return object(JSON.parse(env));
  } catch {
    return {};
  }
}

export const namesOf = (env: string): string[] => Object.keys(read(env));

/** The databases that it hands to the program. */
export const facetsOf = (env: string): string[] => [
  ...new Set(
    Object.values(read(env))
      .map((value) => text(object(value).$facet))
      .filter(Boolean),
  ),
];

/** The same with a database more, under a name that is free; null where it cannot be read. */
export function withDatabase(env: string): string | null {
  let now: unknown = {};
  try {
    if (env.trim() !== '') now = JSON.parse(env);
  } catch {
    return null;
  }
  if (typeof now !== 'object' || now === null || Array.isArray(now)) return null;
  let name = 'db';
  for (let n = 2; name in now; n++) name = `db${n}`;
  return JSON.stringify({ ...now, [name]: { $facet: `playground-${name}` } }, null, 1);
}
