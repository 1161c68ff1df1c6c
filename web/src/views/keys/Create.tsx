import { useState } from 'react';
import {
  createKey,
  grantKinds,
  keyCalls,
  scopes,
  type GrantKind,
  type KeyBody,
} from '../../api/keys.ts';
import { Copy } from '../../components/Copy.tsx';
import { CreateForm, Field, TextField } from '../../components/CreateForm.tsx';
import { Dialog } from '../../components/Dialog.tsx';
import { Notice } from '../../components/Notice.tsx';
import { bodyOf, emptyForm, type Form } from './form.ts';

const scopeWords = {
  read: 'read: look at its own records',
  run: 'run: also run code',
  admin: 'admin: also see what all keys made, and manage keys',
};
const grantWords: Record<GrantKind, string> = {
  facets: 'Databases',
  workers: 'Workers',
  routes: 'Routes of sandboxes',
  binds: 'Binds of sandboxes',
};

const limitFields = [
  ['rate', 'Requests a minute (none: the server’s)'],
  ['jobs', 'Jobs at a time (none: no limit)'],
  ['tokens', 'Tokens of models a day (none: no limit)'],
  ['usd', 'Dollars for models a day (none: no limit)'],
] as const;

/** onMade is told as soon as there is a new key, whether or not it was copied. */
export function Create({ onMade, onClose }: { onMade: () => void; onClose: () => void }) {
  const [form, setForm] = useState<Form>(emptyForm);
  const [made, setMade] = useState<{ name: string; secret: string } | null>(null);
  const change = (part: Partial<Form>) => setForm((before) => ({ ...before, ...part }));

  async function create(body: KeyBody) {
    const { key, secret } = await createKey(body);
    onMade();
    setMade({ name: key.name, secret });
  }

  if (made)
    return (
      <Dialog title={`The key ${made.name}`} onClose={onClose}>
        <div className="key-made">
          <Notice tone="warn" title="Copy it now: it is not shown again">
            The server keeps a fingerprint of it only. Send it as{' '}
            <code>Authorization: Bearer KEY</code>.
          </Notice>
          <div className="key-text">
            <code tabIndex={0} role="textbox" aria-readonly="true" aria-label="The new key">
              {made.secret}
            </code>
            <Copy text={made.secret} of="the new key" />
          </div>
          <button type="button" className="button primary" onClick={onClose}>
            Done
          </button>
        </div>
      </Dialog>
    );

  return (
    <CreateForm
      title="New key"
      failed="No key was made"
      body={bodyOf(form)}
      create={create}
      call={keyCalls.create}
      of="create a key"
      onClose={onClose}
    >
      <Field label="Name" value={form.name} onChange={(name) => change({ name })} />
      <label>
        <span>Scope</span>
        <select
          value={form.scope}
          onChange={(event) => change({ scope: event.target.value as Form['scope'] })}
        >
          {scopes.map((scope) => (
            <option key={scope} value={scope}>
              {scopeWords[scope]}
            </option>
          ))}
        </select>
      </label>
      {limitFields.map(([field, label]) => (
        <Field
          key={field}
          label={label}
          numeric="decimal"
          value={form[field]}
          onChange={(value) => change({ [field]: value })}
        />
      ))}
      <label className="wide check">
        <input
          type="checkbox"
          checked={form.bound}
          onChange={(event) => change({ bound: event.target.checked })}
        />
        <span>It may use only what is named here</span>
      </label>
      {form.bound &&
        grantKinds.map((kind) => (
          <TextField
            key={kind}
            label={`${grantWords[kind]}, by name (none: not one)`}
            value={form.names[kind]}
            onChange={(value) => change({ names: { ...form.names, [kind]: value } })}
          />
        ))}
    </CreateForm>
  );
}
