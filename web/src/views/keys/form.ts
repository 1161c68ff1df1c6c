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
  /** Whether it is held to the names below. */
  bound: boolean;
  names: Record<GrantKind, string>;
};

export const emptyForm: Form = {
  name: '',
  scope: 'run',
  rate: '',
  bound: false,
  names: { facets: '', workers: '', routes: '', binds: '' },
};

/** Or what is wrong with it, for people. */
export function bodyOf(form: Form): KeyBody | string {
  const name = form.name.trim();
  if (name === '') return 'Give it a name, by which you know it again.';
  const body: KeyBody = { name, scope: form.scope };
  const rate = form.rate.trim();
  if (rate !== '') {
    if (!/^\d{1,9}$/.test(rate) || Number(rate) === 0)
      return 'The rate must be a whole number of requests a minute.';
    body.rate_per_minute = Number(rate);
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
