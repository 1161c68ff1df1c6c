import { useEffect, useRef, useState, type FormEvent } from 'react';
import { api, ApiError } from '../api/client.ts';
import { unlockSession } from '../api/session.ts';
import './KeyPrompt.css';

/** Trades a key for a session cookie. The key is held by the input and nowhere else. */
export function KeyPrompt() {
  const input = useRef<HTMLInputElement>(null);
  const [error, setError] = useState('');
  const [busy, setBusy] = useState(false);

  useEffect(() => input.current?.focus(), []);

  async function submit(event: FormEvent) {
    event.preventDefault();
    const key = input.current?.value.trim() ?? '';
    // Anything else cannot be sent in a header, and is no key.
    if (!/^[\x21-\x7e]+$/.test(key)) {
      refuse(key === '' ? 'Enter a key.' : 'A key has no spaces and only plain characters.');
      return;
    }
    setBusy(true);
    setError('');
    try {
      await api.signIn(key);
      unlockSession();
    } catch (cause) {
      setBusy(false);
      const unknown = cause instanceof ApiError && cause.status === 401;
      if (unknown) refuse('That key is not known, or it has been revoked.');
      else refuse(cause instanceof Error ? `${cause.message}.` : 'Signing in did not work.');
    }
  }

  function refuse(message: string) {
    setError(message);
    input.current?.focus();
    input.current?.select();
  }

  return (
    <section className="key-prompt card" aria-labelledby="key-prompt-title">
      <h1 id="key-prompt-title">This server asks for a key</h1>
      <p>
        Whoever runs it can give you one. The key is traded for a session cookie and not kept by
        this page.
      </p>
      <form onSubmit={(event) => void submit(event)} noValidate>
        {/* Password managers file a key under a name. */}
        <input type="text" autoComplete="username" value="cay" readOnly hidden />
        <label htmlFor="key">Key</label>
        <input
          id="key"
          ref={input}
          type="password"
          autoComplete="current-password"
          autoCapitalize="none"
          spellCheck={false}
          aria-invalid={error !== ''}
          aria-describedby="key-error"
          required
        />
        <p id="key-error" className="field-error" role="alert">
          {error}
        </p>
        <button type="submit" className="button primary" disabled={busy}>
          {busy ? 'Signing in…' : 'Sign in'}
        </button>
      </form>
    </section>
  );
}
