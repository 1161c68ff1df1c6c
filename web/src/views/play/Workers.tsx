import { useState } from 'react';
import { api, ApiError } from '../../api/client.ts';
import { useFeed } from '../../api/feed.ts';
import { list, object, text } from '../../api/types.ts';
import { Confirm } from '../../components/Confirm.tsx';
import { Copy } from '../../components/Copy.tsx';
import { Curl } from '../../components/Curl.tsx';
import { Notice } from '../../components/Notice.tsx';
import { Output } from '../../components/Output.tsx';
import { Section } from '../../components/Section.tsx';
import { curl, type Call } from '../../curl.ts';
import { useLoad } from '../../hooks.ts';
import { bodyOf, type Form } from './request.ts';

type Worker = { id: string; host: string; isPublic: boolean };

const at = (id: string): string => `/v1/workers/${encodeURIComponent(id)}`;

async function loadWorkers(signal: AbortSignal): Promise<Worker[]> {
  return list(object(await api.json('/v1/workers', { signal })).workers).map((item) => {
    const it = object(item);
    return { id: text(it.id), host: text(it.host), isPublic: it.public === true };
  });
}

/** Where a worker answers: beside this page, under a name of its own. */
const addressOf = ({ host }: Worker): string =>
  `${location.protocol}//${host}.localhost${location.port ? `:${location.port}` : ''}/`;

const callOf = (worker: Worker): Call => ({
  path: addressOf(worker),
  keyed: !worker.isPublic,
});

/** The line that calls it, with the key. */
function CopyCurl({ call, of }: { call: Call; of: string }) {
  const text = curl(call, location.origin, true);
  return (
    <>
      <Output text={text} label={`Call ${of} with curl`} />
      <Copy text={text} of={`the call of ${of}`} />
    </>
  );
}

/** Keeps the program as a worker, which answers at an address of its own. */
export function Workers({ form }: { form: Form }) {
  const workers = useLoad(loadWorkers, []);
  const needsKey = !!useFeed().status?.requireKey;
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
          <span>Name of a worker made of what is above; its fetch(request, env) answers</span>
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
            {needsKey && !worker.isPublic ? (
              // A tab sends no key, and would be refused.
              <>
                <span>{addressOf(worker)}</span>
                <span className="worker-access">with a key only</span>
                <CopyCurl call={callOf(worker)} of={worker.id} />
              </>
            ) : (
              <>
                <a href={addressOf(worker)} target="_blank" rel="noopener noreferrer">
                  {addressOf(worker)}
                </a>
                <span className="worker-access">
                  {worker.isPublic ? 'public' : 'open: this server asks for no key'}
                </span>
                <Curl call={callOf(worker)} of={`call ${worker.id}`} />
              </>
            )}
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
