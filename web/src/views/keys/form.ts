/** What the form says, as the body of POST /v1/keys. */
import {
  grantKinds,
  type GrantKind,
  type Grants,
  type KeyBody,
  type Scope,
} from '../../api/keys.ts';

export type Form = {
  name: string;
  scope: Scope;
  rate: string;
  jobs: string;
  tokens: string;
  usd: string;
  /** Whether it is held to the names below. */
  bound: boolean;
  names: Record<GrantKind, string>;
};

export const emptyForm: Form = {
  name: '',
  scope: 'run',
  rate: '',
  jobs: '',
  tokens: '',
  usd: '',
  bound: false,
  names: { facets: '', workers: '', routes: '', binds: '' },
};

const whole = /^\d{1,9}$/;
const limits = [
  {
    field: 'rate',
    key: 'rate_per_minute',
    pattern: whole,
    wrong: 'The rate must be a whole number of requests a minute.',
  },
  {
    field: 'jobs',
    key: 'max_jobs',
    pattern: whole,
    wrong: 'The jobs at a time must be a whole number.',
  },
  {
    field: 'tokens',
    key: 'tokens_per_day',
    pattern: /^\d{1,15}$/,
    wrong: 'The tokens a day must be a whole number.',
  },
  {
    field: 'usd',
    key: 'usd_per_day',
    pattern: /^\d{1,6}(\.\d{1,9})?$/,
    wrong: 'The dollars a day must be a number such as 2.50.',
  },
] as const;

/** Or what is wrong with it, for people. */
export function bodyOf(form: Form): KeyBody | string {
  const name = form.name.trim();
  if (name === '') return 'Give it a name, by which you know it again.';
  const body: KeyBody = { name, scope: form.scope };
  for (const { field, key, pattern, wrong } of limits) {
    const text = form[field].trim();
    if (text === '') continue;
    if (!pattern.test(text) || Number(text) === 0) return wrong;
    body[key] = Number(text);
  }
  if (form.bound) {
    const grants: Grants = {};
    for (const kind of grantKinds) {
      const names = form.names[kind].split(/[\s,]+/).filter(Boolean);
      if (names.length > 0) grants[kind] = names;
    }
    body.grants = grants;
  }
  return body;
}
