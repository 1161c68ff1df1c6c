import { useState } from 'react';
import { portUrl } from '../../api/sandboxes.ts';
import { Curl } from '../../components/Curl.tsx';

const usual = [3000, 4321, 5000, 5173, 8000, 8080];

/** Links to what listens inside. Each is an origin of its own, never the page's. */
export function Ports({ id, live }: { id: string; live: boolean }) {
  const [port, setPort] = useState('');
  const number = /^\d{1,5}$/.test(port) ? Number(port) : 0;
  const isPort = number > 0 && number < 65536;
  const ports = isPort && !usual.includes(number) ? [number, ...usual] : usual;
  if (!live) return <p className="panel-empty">Its ports can be reached while it runs.</p>;
  return (
    <div className="ports">
      <p>
        A server that listens inside, also on 127.0.0.1 only, is reached here by HTTP and WebSocket.
      </p>
      <div className="fields ports-field">
        <label>
          <span>Port</span>
          <input
            inputMode="numeric"
            placeholder="8000"
            value={port}
            aria-invalid={port !== '' && !isPort}
            onChange={(event) => setPort(event.target.value.trim())}
          />
        </label>
      </div>
      <ul className="port-list">
        {ports.map((it) => {
          const url = portUrl(id, it, location);
          return (
            <li key={it}>
              <a href={url} target="_blank" rel="noopener noreferrer">
                {url}
              </a>
              <Curl call={{ path: url, keyed: true }} of={`port ${it}`} />
            </li>
          );
        })}
      </ul>
    </div>
  );
}
