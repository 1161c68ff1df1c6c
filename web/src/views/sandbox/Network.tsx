import { useEffect, useState } from 'react';
import { ApiError, send } from '../../api/client.ts';
import { calls, sandboxes, type Policy, type Sandbox } from '../../api/sandboxes.ts';
import { plainText } from '../../components/ansi.ts';
import { Badge } from '../../components/Badge.tsx';
import { Curl } from '../../components/Curl.tsx';
import { Notice } from '../../components/Notice.tsx';
import { formatBytes, formatTime } from '../../format.ts';
import { useLoad } from '../../hooks.ts';
import { words } from '../sandboxes/form.ts';

const refreshMs = 1_500;
const tones = { begun: 'busy', ended: 'ok', refused: 'bad' } as const;
const said = { begun: 'open', ended: 'let out', refused: 'refused' };

type Props = { sandbox: Sandbox; live: boolean; shown: boolean; onChange: () => void };

/** What it may reach, and what it tried to. */
export function Network({ sandbox, live, shown, onChange }: Props) {
  const { id, network } = sandbox;
  const now = JSON.stringify(network);
  const [allow, setAllow] = useState(network.allow.join('\n'));
  const [routes, setRoutes] = useState(network.routes.join('\n'));
  const [wrong, setWrong] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  // Somebody else may change it; what is being written here stays until it is saved.
  useEffect(() => {
    setAllow(network.allow.join('\n'));
    setRoutes(network.routes.join('\n'));
  }, [now]);
  const policy: Policy = { allow: words(allow), routes: words(routes) };
  const changed = JSON.stringify(policy) !== now;

  async function save() {
    setBusy(true);
    setWrong(null);
    try {
      await send(calls.setNetwork(id, policy));
      onChange();
    } catch (cause) {
      setWrong(cause instanceof ApiError ? cause.message : 'Something went wrong');
    }
    setBusy(false);
  }

  return (
    <div className="network">
      <form
        className="network-form fields"
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <label>
          <span>Hosts it may reach, one per line (none: no network)</span>
          <textarea
            rows={4}
            spellCheck={false}
            disabled={!live}
            value={allow}
            onChange={(event) => setAllow(event.target.value)}
          />
        </label>
        <label>
          <span>Routes with the operator’s credentials, by name</span>
          <textarea
            rows={4}
            spellCheck={false}
            disabled={!live}
            value={routes}
            onChange={(event) => setRoutes(event.target.value)}
          />
        </label>
        <div className="network-save">
          <button type="submit" className="button primary" disabled={busy || !live || !changed}>
            Apply
          </button>
          <Curl call={calls.setNetwork(id, policy)} of="change the network" />
        </div>
      </form>
      {wrong !== null && <Notice tone="bad" title={wrong} />}
      <Events id={id} shown={shown} />
    </div>
  );
}

function Events({ id, shown }: { id: string; shown: boolean }) {
  const { data, error } = useLoad(
    (signal) => sandboxes.networkEvents(id, signal),
    [id],
    shown ? refreshMs : null,
  );
  return (
    <section className="network-events" aria-label="What it tried">
      <h2>
        What it tried
        <Curl call={calls.networkEvents(id)} of="what it tried" />
      </h2>
      {error && !data && <Notice tone="warn" title={`${error.message}.`} />}
      {data?.length === 0 && <p className="panel-empty">Nothing yet.</p>}
      <ul>
        {(data ?? []).map((event, at) => (
          <li key={at}>
            <Badge tone={tones[event.state]}>{said[event.state]}</Badge>
            <span className="mono event-host">{plainText(event.host)}</span>
            <span className="event-what">
              {plainText(event.what)}
              {event.bytes > 0 && ` ${formatBytes(event.bytes)}`}
            </span>
            <time dateTime={event.time}>{formatTime(event.time)}</time>
          </li>
        ))}
      </ul>
    </section>
  );
}
