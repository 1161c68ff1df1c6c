import { useState } from 'react';
import { ApiError } from '../../api/client.ts';
import { createKey, grantKinds, keyCalls, scopes, type GrantKind } from '../../api/keys.ts';
import { Copy } from '../../components/Copy.tsx';
import { Curl } from '../../components/Curl.tsx';
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
  const [wrong, setWrong] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const [made, setMade] = useState<{ name: string; secret: string } | null>(null);
  const body = bodyOf(form);
  const change = (part: Partial<Form>) => {
    setWrong(null);
    setForm((before) => ({ ...before, ...part }));
  };

  async function create() {
    if (typeof body === 'string') return setWrong(body);
    setBusy(true);
    setWrong(null);
    try {
      const { key, secret } = await createKey(body);
      onMade();
      return setMade({ name: key.name, secret });
    } catch (cause) {
      return setWrong(cause instanceof ApiError ? cause.message : 'Something went wrong');
    } finally {
      setBusy(false);
    }
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
    <Dialog title="New key" onClose={onClose}>
      <form
        className="key-form fields"
        onSubmit={(event) => {
          event.preventDefault();
          void create();
        }}
      >
        <label>
          <span>Name</span>
          <input value={form.name} onChange={(event) => change({ name: event.target.value })} />
        </label>
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
          <label key={field}>
            <span>{label}</span>
            <input
              inputMode="decimal"
              value={form[field]}
              onChange={(event) => change({ [field]: event.target.value })}
            />
          </label>
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
            <label key={kind}>
              <span>{grantWords[kind]}, by name (none: not one)</span>
              <textarea
                rows={2}
                spellCheck={false}
                value={form.names[kind]}
                onChange={(event) =>
                  change({ names: { ...form.names, [kind]: event.target.value } })
                }
              />
            </label>
          ))}
        {wrong !== null && (
          <div className="wide">
            <Notice tone="bad" title="No key was made">
              {wrong}
            </Notice>
          </div>
        )}
        <div className="wide create-actions">
          <button type="submit" className="button primary" disabled={busy}>
            {busy ? 'Creating…' : 'Create'}
          </button>
          {typeof body !== 'string' && <Curl call={keyCalls.create(body)} of="create a key" />}
        </div>
      </form>
    </Dialog>
  );
}
