import { Suspense, useEffect, useId, useRef, useState } from 'react';
import { chatCalls } from '../../api/chat.ts';
import { ApiError, send } from '../../api/client.ts';
import { Confirm } from '../../components/Confirm.tsx';
import { Curl } from '../../components/Curl.tsx';
import { moveKept, readKept, writeKept } from '../../kept.ts';
import { lazyView } from '../../lazyView.ts';
import type { AgentInfo } from '../../api/types.ts';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { navigate, type Params } from '../../router.tsx';
import type { ViewProps } from '../../views.ts';
import { draftKey, useAgents } from './agents.ts';
import { modelKey } from './Model.tsx';
import './chat.css';

const Conversation = lazyView(() => import('./Conversation.tsx'));

const lastKey = 'chat';
/** What is kept of a conversation in this browser. */
const keptKeys = [draftKey, modelKey];

/** Set when a person picks a conversation: the view that then begins takes the focus. */
let picked = false;

function open(agent: string, name: string, replace = false): void {
  picked = true;
  navigate(`/chat/${encodeURIComponent(agent)}/${encodeURIComponent(name)}`, { replace });
}

function openAgent(agent: string): void {
  picked = true;
  navigate(`/chat/${encodeURIComponent(agent)}`);
}

/** A conversation with an agent, beside what the agent did and has. */
export default function ChatView({ params }: ViewProps) {
  const { agents, error, reload } = useAgents();
  const takeFocus = useRef(picked);
  useEffect(() => {
    picked = false;
  }, []);
  const { agent, name } = choose(agents, params);
  useEffect(() => {
    if (agent && params.name) writeKept(lastKey, JSON.stringify([agent.type, name]));
  }, [agent?.type, name, params.name]);

  return (
    <div className="view-chat">
      <div className="chat-head">
        <h1>Chat</h1>
        {agents && agent && <Chooser agents={agents} agent={agent} name={name} onChange={reload} />}
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

function lastOne(): string[] {
  try {
    const last: unknown = JSON.parse(readKept(lastKey) ?? '');
    return Array.isArray(last) ? last.map(String) : [];
  } catch {
    return [];
  }
}

/** What the address says; what it leaves open is as it was last. */
function choose(agents: readonly AgentInfo[] | null, params: Params) {
  const [lastAgent, lastName] = lastOne();
  const asked = params.agent ?? lastAgent;
  const agent =
    agents?.find(({ type }) => type === asked) ?? (params.agent ? undefined : agents?.[0]);
  const isLast = agent?.type === lastAgent && lastName !== undefined;
  const name = params.name ?? (isLast ? lastName : undefined) ?? 'default';
  return { agent, name };
}

type ChooserProps = {
  agents: readonly AgentInfo[];
  agent: AgentInfo;
  name: string;
  onChange: () => void;
};

/** Which agent, which conversation, and a new one. */
function Chooser({ agents, agent, name, onChange }: ChooserProps) {
  const [naming, setNaming] = useState<'new' | 'rename' | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const button = useRef<HTMLButtonElement>(null);
  const names = [...new Set(['default', ...agent.names, name])];
  const isKept = agent.names.includes(name);

  async function act(what: () => Promise<unknown>) {
    try {
      setProblem(null);
      await what();
    } catch (cause) {
      setProblem(cause instanceof ApiError ? cause.message : 'Something went wrong');
    }
    onChange();
  }

  function named(chosen: string | null) {
    const renamed = naming === 'rename';
    setNaming(null);
    if (chosen === null) requestAnimationFrame(() => button.current?.focus());
    else if (!renamed) open(agent.type, chosen);
    else
      void act(async () => {
        await send(chatCalls.rename(agent.type, name, chosen));
        for (const key of keptKeys) moveKept(key(agent.type, name), key(agent.type, chosen));
        open(agent.type, chosen, true);
      });
  }

  return (
    <div className="chooser">
      {agents.length > 1 && (
        <label>
          <span className="visually-hidden">Agent</span>
          <select value={agent.type} onChange={(event) => openAgent(event.target.value)}>
            {agents.map((it) => (
              <option key={it.type} value={it.type}>
                {it.title}
              </option>
            ))}
          </select>
        </label>
      )}
      {naming ? (
        <NameForm names={names} {...(naming === 'rename' ? { old: name } : {})} onDone={named} />
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
          <button type="button" className="button" ref={button} onClick={() => setNaming('new')}>
            New
          </button>
          <Curl call={chatCalls.agents()} of="agents and conversations" />
          {isKept && (
            <>
              <button type="button" className="button quiet" onClick={() => setNaming('rename')}>
                Rename
              </button>
              <Curl call={chatCalls.rename(agent.type, name, 'NAME')} of="rename" />
              <Confirm
                quiet
                label="Reset its data"
                of={name}
                onConfirm={() => void act(() => send(chatCalls.reset(agent.type, name)))}
              />
              <Curl call={chatCalls.reset(agent.type, name)} of="reset its data" />
              <Confirm
                quiet
                label="Delete"
                of={name}
                onConfirm={() =>
                  void act(async () => {
                    await send(chatCalls.remove(agent.type, name));
                    for (const key of keptKeys) writeKept(key(agent.type, name), null);
                    open(agent.type, agent.names.find((it) => it !== name) ?? 'default', true);
                  })
                }
              />
              <Curl call={chatCalls.remove(agent.type, name)} of="delete the conversation" />
            </>
          )}
          {problem !== null && (
            <span className="field-error" role="alert">
              {problem}
            </span>
          )}
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

type NameProps = {
  names: readonly string[];
  /** The name it has: it gets another. */
  old?: string;
  onDone: (name: string | null) => void;
};

function NameForm({ names, old, onDone }: NameProps) {
  const [text, setText] = useState(() => old ?? freeName(names));
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
        {old === undefined ? 'Name of the new conversation' : `New name of ${old}`}
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
        {old === undefined ? 'Start' : 'Rename'}
      </button>
      <button type="button" className="button quiet" onClick={() => onDone(null)}>
        Cancel
      </button>
    </form>
  );
}
