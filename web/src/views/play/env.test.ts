import { expect, test } from 'vitest';
import { facetsOf, withDatabase } from './env.ts';

test('a database is added under a name that is free', () => {
  const one = withDatabase('') ?? '';
  expect(JSON.parse(one)).toEqual({ db: { $facet: 'playground-db' } });
  const two = withDatabase(one) ?? '';
  expect(facetsOf(two)).toEqual(['playground-db', 'playground-db2']);
  expect(JSON.parse(withDatabase('{"NAME": 1}') ?? '')).toHaveProperty('NAME', 1);
});

test('an env that cannot be read is left alone', () => {
  for (const env of ['{', '[]', '5', 'null']) expect(withDatabase(env)).toBeNull();
});
