import { lazy, Suspense, useEffect, useId, useRef, useState } from 'react';
import type { AgentInfo } from '../../api/types.ts';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { navigate } from '../../router.tsx';
import type { ViewProps } from '../../views.ts';
import { useAgents } from './agents.ts';
import './chat.css';

const Conversation = lazy(() => import('./Conversation.tsx'));

/** Set when a person picks a conversation: the view that then begins takes the focus. */
let picked = false;

function open(agent: string, name: string): void {
  picked = true;
  navigate(`/chat/${encodeURIComponent(agent)}/${encodeURIComponent(name)}`);
}

/** A conversation with an agent, beside what the agent did and has. */
export default function ChatView({ params }: ViewProps) {
  const { agents, error, reload } = useAgents();
  const takeFocus = useRef(picked);
  useEffect(() => {
    picked = false;
  }, []);
  const agent = params.agent ? agents?.find((it) => it.type === params.agent) : agents?.[0];
  const name = params.name ?? 'default';

  return (
    <div className="view-chat">
      <div className="chat-head">
        <h1>Chat</h1>
        {agents && agent && <Chooser agents={agents} agent={agent} name={name} />}
      </div>
      {!agents && !error && <Loading />}
      {!agents && error && (
        <Notice
          tone="bad"
          title="The agents could not be loaded"
          action={{ label: 'Try again', run: reload }}
        >
          {error.message}.
        </Notice>
      )}
      {agents && !agent && (
        <Notice title="There is no such agent">
          {agents.length === 0
            ? 'This server has no agents: put a folder with an agent.json into its agents folder.'
            : `No agent is called “${params.agent}”. Choose another one:`}
          <ul>
            {agents.map((it) => (
              <li key={it.type}>
                <a href={`/chat/${encodeURIComponent(it.type)}/default`}>{it.title}</a>
              </li>
            ))}
          </ul>
        </Notice>
      )}
      {agent && (
        <Suspense fallback={<Loading />}>
          <Conversation
            key={`${agent.type}/${name}`}
            agent={agent}
            name={name}
            takeFocus={takeFocus.current}
            onTurn={reload}
          />
        </Suspense>
      )}
    </div>
  );
}

type ChooserProps = { agents: readonly AgentInfo[]; agent: AgentInfo; name: string };

/** Which agent, which conversation, and a new one. */
function Chooser({ agents, agent, name }: ChooserProps) {
  const [naming, setNaming] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const names = [...new Set(['default', ...agent.names, name])];
  return (
    <div className="chooser">
      {agents.length > 1 && (
        <label>
          <span className="visually-hidden">Agent</span>
          <select value={agent.type} onChange={(event) => open(event.target.value, 'default')}>
            {agents.map((it) => (
              <option key={it.type} value={it.type}>
                {it.title}
              </option>
            ))}
          </select>
        </label>
      )}
      {naming ? (
        <NameForm
          names={names}
          onDone={(chosen) => {
            if (chosen !== null) {
              open(agent.type, chosen);
              return;
            }
            setNaming(false);
            requestAnimationFrame(() => button.current?.focus());
          }}
        />
      ) : (
        <>
          <label>
            <span className="visually-hidden">Conversation</span>
            <select value={name} onChange={(event) => open(agent.type, event.target.value)}>
              {names.map((it) => (
                <option key={it} value={it}>
                  {it}
                </option>
              ))}
            </select>
          </label>
          <button type="button" className="button" ref={button} onClick={() => setNaming(true)}>
            New
          </button>
        </>
      )}
    </div>
  );
}

/** A name that can stand in an address as it is. */
export function cleanName(text: string): string {
  return text
    .trim()
    .replace(/[^\p{L}\p{N}._-]+/gu, '-')
    .replace(/^[-.]+|-+$/g, '')
    .slice(0, 60);
}

export function freeName(names: readonly string[]): string {
  let n = 2;
  while (names.includes(`chat-${n}`)) n++;
  return `chat-${n}`;
}

function NameForm({
  names,
  onDone,
}: {
  names: readonly string[];
  onDone: (name: string | null) => void;
}) {
  const [text, setText] = useState(() => freeName(names));
  const id = useId();
  const name = cleanName(text);
  return (
    <form
      className="name-form"
      onSubmit={(event) => {
        event.preventDefault();
        if (name !== '') onDone(name);
      }}
      onKeyDown={(event) => event.key === 'Escape' && onDone(null)}
    >
      <label htmlFor={id} className="visually-hidden">
        Name of the new conversation
      </label>
      <input
        id={id}
        value={text}
        maxLength={60}
        autoFocus
        autoComplete="off"
        onFocus={(event) => event.target.select()}
        onChange={(event) => setText(event.target.value)}
      />
      <button type="submit" className="button primary" disabled={name === ''}>
        Start
      </button>
      <button type="button" className="button quiet" onClick={() => onDone(null)}>
        Cancel
      </button>
    </form>
  );
}
