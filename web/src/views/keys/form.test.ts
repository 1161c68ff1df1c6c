import { expect, test } from 'vitest';
import { bodyOf, emptyForm } from './form.ts';

test('a name is all that is needed', () => {
  expect(bodyOf(emptyForm)).toMatch(/name/);
  expect(bodyOf({ ...emptyForm, name: ' ci ' })).toEqual({ name: 'ci', scope: 'run' });
});

test('a rate is a whole number', () => {
  const form = { ...emptyForm, name: 'n' };
  expect(bodyOf({ ...form, rate: '60' })).toMatchObject({ rate_per_minute: 60 });
  for (const rate of ['0', '-1', '1.5', 'many', '1e3'])
    expect(bodyOf({ ...form, rate })).toMatch(/rate/);
});

test('limits are numbers, dollars may be broken', () => {
  const form = { ...emptyForm, name: 'n' };
  expect(bodyOf({ ...form, jobs: '2', tokens: '1000000', usd: '2.50' })).toEqual({
    name: 'n',
    scope: 'run',
    max_jobs: 2,
    tokens_per_day: 1_000_000,
    usd_per_day: 2.5,
  });
  for (const usd of ['0', '-1', 'NaN', '1e9', '$5', '1,5'])
    expect(bodyOf({ ...form, usd })).toMatch(/dollars/);
  expect(bodyOf({ ...form, jobs: '1.5' })).toMatch(/jobs/);
  expect(bodyOf({ ...form, tokens: 'all' })).toMatch(/tokens/);
});

test('one that is bound to nothing is bound', () => {
  const form = { ...emptyForm, name: 'n', bound: true };
  expect(bodyOf(form)).toMatchObject({ grants: {} });
  const names = { ...form.names, facets: 'one, two\nthree' };
  expect(bodyOf({ ...form, names })).toMatchObject({ grants: { facets: ['one', 'two', 'three'] } });
  expect(bodyOf({ ...form, names, bound: false })).not.toHaveProperty('grants');
});
