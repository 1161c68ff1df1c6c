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
