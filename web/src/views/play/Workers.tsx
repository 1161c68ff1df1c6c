import { useState } from 'react';
import { api, ApiError } from '../../api/client.ts';
import { list, object, text } from '../../api/types.ts';
import { Confirm } from '../../components/Confirm.tsx';
import { Curl } from '../../components/Curl.tsx';
import { Notice } from '../../components/Notice.tsx';
import { Section } from '../../components/Section.tsx';
import { useLoad } from '../../hooks.ts';
import { bodyOf, type Form } from './request.ts';

type Worker = { id: string; host: string };

const at = (id: string): string => `/v1/workers/${encodeURIComponent(id)}`;

async function loadWorkers(signal: AbortSignal): Promise<Worker[]> {
  return list(object(await api.json('/v1/workers', { signal })).workers).map((item) => {
    const it = object(item);
    return { id: text(it.id), host: text(it.host) };
  });
}

/** Where a worker answers: beside this page, under a name of its own. */
const addressOf = ({ host }: Worker): string =>
  `${location.protocol}//${host}.localhost${location.port ? `:${location.port}` : ''}/`;

/** Keeps the program as a worker, which answers at an address of its own. */
export function Workers({ form }: { form: Form }) {
  const workers = useLoad(loadWorkers, []);
  const [name, setName] = useState('');
  const [problem, setProblem] = useState<string | null>(null);
  const [isPublic, setPublic] = useState(false);
  const made = bodyOf(form);
  const body = typeof made === 'string' ? made : { ...made, public: isPublic };
  const id = name.trim();

  async function act(what: () => Promise<unknown>) {
    setProblem(null);
    try {
      await what();
    } catch (cause) {
      setProblem(cause instanceof ApiError ? cause.message : 'Something went wrong');
    }
    workers.reload();
  }

  function deploy() {
    if (typeof body === 'string') return setProblem(body);
    return void act(() => api.json(at(id), { method: 'PUT', body }));
  }

  return (
    <Section title="Workers">
      <form
        className="fields worker-form"
        onSubmit={(event) => {
          event.preventDefault();
          deploy();
        }}
      >
        <label>
          <span>
            Name of a worker that what is above becomes; its fetch(request, env) is called
          </span>
          <input
            value={name}
            maxLength={60}
            placeholder="hello"
            autoComplete="off"
            onChange={(event) => setName(event.target.value)}
          />
        </label>
        <label className="worker-public">
          <input
            type="checkbox"
            checked={isPublic}
            onChange={(event) => setPublic(event.target.checked)}
          />
          <span>Anybody may call it, without a key</span>
        </label>
        <button type="submit" className="button" disabled={id === ''}>
          Deploy
        </button>
        {typeof body !== 'string' && id !== '' && (
          <Curl call={{ path: at(id), method: 'PUT', body }} of="deploy" />
        )}
      </form>
      {problem !== null && (
        <Notice tone="bad" title="It did not work">
          {problem}.
        </Notice>
      )}
      <ul className="worker-list">
        {(workers.data ?? []).map((worker) => (
          <li key={worker.id}>
            <strong>{worker.id}</strong>
            <a href={addressOf(worker)} target="_blank" rel="noopener noreferrer">
              {addressOf(worker)}
            </a>
            <Confirm
              quiet
              label="Remove"
              of={worker.id}
              onConfirm={() => void act(() => api.json(at(worker.id), { method: 'DELETE' }))}
            />
          </li>
        ))}
      </ul>
    </Section>
  );
}
