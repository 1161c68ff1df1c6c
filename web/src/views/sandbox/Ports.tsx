import { type MouseEvent, useState } from 'react';
import { useLoad } from '../../hooks.ts';
import { ApiError } from '../../api/client.ts';
import { portUrl, sandboxes } from '../../api/sandboxes.ts';
import { Curl } from '../../components/Curl.tsx';
import { Notice } from '../../components/Notice.tsx';

/** Links to what listens inside. Each is an origin of its own, never the page's. */
export function Ports({ id, live, paused }: { id: string; live: boolean; paused: boolean }) {
  const [port, setPort] = useState('');
  const [problem, setProblem] = useState<string | null>(null);
  const number = /^\d{1,5}$/.test(port) ? Number(port) : 0;
  const isPort = number > 0 && number < 65536;
  const usable = live && !paused;
  const { data, error, reload } = useLoad(
    async () => (usable ? sandboxes.listeners(id) : []),
    [id, usable],
  );
  const found = data ?? [];
  const ports = isPort && !found.includes(number) ? [number, ...found] : found;
  // The tab is opened at once, or the browser would take it for a pop-up; it gets no hold of this page.
  const follow = async (event: MouseEvent, it: number) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    const tab = window.open('', '_blank');
    if (!tab) return setProblem('The browser did not open a tab');
    tab.opener = null;
    try {
      setProblem(null);
      tab.location.href = await sandboxes.portLink(id, it);
    } catch (cause) {
      tab.close();
      setProblem(cause instanceof ApiError ? cause.message : 'Something went wrong');
    }
  };
  if (!live) return <p className="panel-empty">Its ports can be reached while it runs.</p>;
  if (paused)
    return <p className="panel-empty">It is paused: its ports can be reached when it goes on.</p>;
  return (
    <div className="ports">
      <p>
        A server that listens inside, also on 127.0.0.1 only, is reached here by HTTP and WebSocket.
      </p>
      {problem !== null && <Notice tone="bad" title={problem} />}
      {error && (
        <Notice tone="warn" title="It could not be asked what listens">
          {error.message}. A port that you know can be opened below.
        </Notice>
      )}
      <div className="ports-found">
        {data && ports.length === 0 && <span>Nothing listens inside.</span>}
        <button type="button" className="button" onClick={reload}>
          Look again
        </button>
      </div>
      <ul className="port-list">
        {ports.map((it) => {
          const url = portUrl(id, it, location);
          return (
            <li key={it}>
              <a
                href={url}
                target="_blank"
                rel="noopener noreferrer"
                onClick={(event) => void follow(event, it)}
              >
                {url}
              </a>
              <Curl call={{ path: url, keyed: true }} of={`port ${it}`} />
            </li>
          );
        })}
      </ul>
      <div className="fields ports-field">
        <label>
          <span>Another port</span>
          <input
            inputMode="numeric"
            value={port}
            aria-invalid={port !== '' && !isPort}
            onChange={(event) => setPort(event.target.value.trim())}
          />
        </label>
      </div>
    </div>
  );
}
