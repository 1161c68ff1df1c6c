/** A dialog with a form that makes one thing: its fields, what was wrong, and the call that does the same. */
import { useState, type ReactNode } from 'react';
import { ApiError } from '../api/client.ts';
import type { Call } from '../curl.ts';
import { Curl } from './Curl.tsx';
import { Dialog } from './Dialog.tsx';
import { Notice } from './Notice.tsx';
import './CreateForm.css';

type FieldProps = {
  label: string;
  value: string;
  onChange: (value: string) => void;
  numeric?: 'numeric' | 'decimal';
};

export function Field({ label, value, onChange, numeric }: FieldProps) {
  return (
    <label>
      <span>{label}</span>
      <input
        inputMode={numeric ?? 'text'}
        value={value}
        onChange={(event) => onChange(event.target.value)}
      />
    </label>
  );
}

export function TextField({ label, value, onChange, wide }: FieldProps & { wide?: boolean }) {
  return (
    <label className={wide ? 'wide' : undefined}>
      <span>{label}</span>
      <textarea
        rows={2}
        spellCheck={false}
        value={value}
        onChange={(event) => onChange(event.target.value)}
      />
    </label>
  );
}

type Props<Body> = {
  title: string;
  /** What the title of a failure says. */
  failed: string;
  /** Or what is wrong with what was filled in. */
  body: Body | string;
  create: (body: Body) => Promise<void>;
  call: (body: Body) => Call;
  of: string;
  onClose: () => void;
  children: ReactNode;
};

export function CreateForm<Body extends object>(props: Props<Body>) {
  const { title, failed, body, create, call, of, onClose, children } = props;
  const [wrong, setWrong] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);

  async function submit() {
    if (typeof body === 'string') return setWrong(body);
    setBusy(true);
    setWrong(null);
    try {
      return await create(body);
    } catch (cause) {
      return setWrong(cause instanceof ApiError ? cause.message : 'Something went wrong');
    } finally {
      setBusy(false);
    }
  }

  return (
    <Dialog title={title} onClose={onClose}>
      <form
        className="create-form fields"
        onChange={() => setWrong(null)}
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        {children}
        {wrong !== null && (
          <div className="wide">
            <Notice tone="bad" title={failed}>
              {wrong}
            </Notice>
          </div>
        )}
        <div className="wide create-actions">
          <button type="submit" className="button primary" disabled={busy}>
            {busy ? 'Creating…' : 'Create'}
          </button>
          {typeof body !== 'string' && <Curl call={call(body)} of={of} />}
        </div>
      </form>
    </Dialog>
  );
}
