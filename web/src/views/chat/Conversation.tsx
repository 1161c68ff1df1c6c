/**
 * One conversation, held by the original clients' own hooks: useAgent keeps the socket and the
 * synced state, useAgentChat the messages and the turns.
 */
import './strict.ts';
import { useAgentChat } from '@cloudflare/ai-chat/react';
import { useAgent } from 'agents/react';
import type { UIMessage } from 'ai';
import { Suspense, useEffect, useLayoutEffect, useRef, useState, type ReactNode } from 'react';
import { useFeed } from '../../api/feed.ts';
import { object, type AgentInfo } from '../../api/types.ts';
import { plainText } from '../../components/ansi.ts';
import { ErrorBoundary } from '../../components/ErrorBoundary.tsx';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { Tabs, type Tab } from '../../components/Tabs.tsx';
import { useMedia } from '../../hooks.ts';
import { Composer } from './Composer.tsx';
import { Executions } from './Executions.tsx';
import { hasBegun, Message, textOf } from './Message.tsx';
import { executionsError, readExecutions, readTables, titleOf } from './state.ts';
import { StateTableView } from './Tables.tsx';

type Props = {
  agent: AgentInfo;
  name: string;
  /** The person just chose this conversation: the next key they press is for it. */
  takeFocus: boolean;
  /** Something was said that may have made the conversation. */
  onTurn: () => void;
};

export default function Conversation({ agent: info, name, takeFocus, onTurn }: Props) {
  const [state, setState] = useState<unknown>(undefined);
  const [connected, setConnected] = useState(false);
  const [tab, setTab] = useState('');
  // Here rather than below: a window that changes its width builds the chat anew.
  const [draft, setDraft] = useState('');
  const wide = useMedia('(min-width: 60rem)');
  const agent = useAgent<unknown>({
    agent: info.type,
    // The client puts the name into the address as it is.
    name: encodeURIComponent(name),
    // It takes every host that is not on a private network for one that speaks TLS.
    protocol: location.protocol === 'https:' ? 'wss' : 'ws',
    onStateUpdate: setState,
    // Not at onOpen: until the agent has said who it is, it is not ready to be asked.
    onIdentity: () => setConnected(true),
    onClose: () => setConnected(false),
  });

  const executions = readExecutions(state);
  const side: Tab[] = [
    {
      id: 'executions',
      label: (
        <TabLabel title="Executions" count={executions.length} error={executionsError(state)} />
      ),
      panel: <Executions list={executions} error={executionsError(state)} />,
    },
    ...readTables(state).map((table) => ({
      id: `state-${table.key}`,
      label: <TabLabel title={titleOf(table.key)} count={table.rows.length} error={table.error} />,
      panel: <StateTableView table={table} />,
    })),
  ];

  const chat = (
    <ErrorBoundary>
      <Suspense fallback={<Loading />}>
        <Chat
          agent={agent}
          info={info}
          connected={connected}
          draft={draft}
          setDraft={setDraft}
          takeFocus={takeFocus}
          onTurn={onTurn}
        />
      </Suspense>
    </ErrorBoundary>
  );
  return (
    <div className="conversation" data-wide={wide || undefined}>
      {wide && <div className="chat-column">{chat}</div>}
      <Tabs
        label={wide ? 'What the agent did and has' : 'Conversation'}
        tabs={wide ? side : [{ id: 'chat', label: 'Chat', panel: chat }, ...side]}
        current={tab}
        onChange={setTab}
      />
    </div>
  );
}

function TabLabel({ title, count, error }: { title: string; count: number; error: string | null }) {
  return (
    <>
      {title}
      {error === null ? (
        <span className="tab-count">{count > 999 ? '999+' : count}</span>
      ) : (
        <span className="tab-alert">(error)</span>
      )}
    </>
  );
}

type ChatProps = {
  agent: ReturnType<typeof useAgent<unknown>>;
  info: AgentInfo;
  connected: boolean;
  draft: string;
  setDraft: (text: string) => void;
  takeFocus: boolean;
  onTurn: () => void;
};

function parse(text: string): Record<string, unknown> | null {
  try {
    return object(JSON.parse(text));
  } catch {
    return null;
  }
}

type Ended = { outcome: string; error: string | null; lastId: string | undefined };

function Chat(props: ChatProps) {
  const { agent, info, connected, draft, setDraft, takeFocus, onTurn } = props;
  const [ended, setEnded] = useState<Ended | null>(null);
  const last = useRef<UIMessage | undefined>(undefined);
  const chat = useAgentChat({
    agent,
    onTurnEnd: ({ outcome, error, replay }) => {
      if (!replay) setEnded({ outcome, error: error ?? null, lastId: last.current?.id });
      onTurn();
    },
  });
  const { messages, status } = chat;
  last.current = messages.at(-1);
  const busy =
    status === 'submitted' || status === 'streaming' || chat.isServerStreaming || chat.isRecovering;
  const input = useRef<HTMLTextAreaElement>(null);

  useEffect(() => {
    const idle = document.activeElement === null || document.activeElement === document.body;
    if (takeFocus || (idle && matchMedia('(hover: hover)').matches))
      input.current?.focus({ preventScroll: true });
  }, []);

  function send(text: string) {
    setEnded(null);
    void chat.sendMessage({ text });
  }

  function again() {
    setEnded(null);
    chat.clearError();
    void chat.regenerate();
    input.current?.focus();
  }

  // The hook stops what it asked for itself; a turn that another tab began is known by its frames.
  const turn = useRef<string | null>(null);
  useEffect(() => {
    const onMessage = ({ data }: MessageEvent) => {
      const frame = typeof data === 'string' ? parse(data) : null;
      if (frame?.type !== 'cf_agent_use_chat_response') return;
      turn.current = frame.done === true || typeof frame.id !== 'string' ? null : frame.id;
    };
    agent.addEventListener('message', onMessage);
    return () => agent.removeEventListener('message', onMessage);
  }, [agent]);

  async function stop() {
    const id = turn.current;
    await chat.stop();
    if (id !== null && turn.current === id)
      agent.send(JSON.stringify({ type: 'cf_agent_chat_request_cancel', id }));
    input.current?.focus();
  }

  const failure = status === 'error' ? chat.error?.message : ended?.error;
  const canRegenerate = !busy && connected && !failure && messages.at(-1)?.role === 'assistant';
  return (
    <div className="chat">
      <Scroller busy={busy}>
        {messages.length === 0 ? (
          <Welcome info={info} />
        ) : (
          <ol className="messages" aria-label="Messages">
            {messages.map((message, index) => {
              const isLast = index === messages.length - 1;
              return (
                <Message
                  key={message.id}
                  message={message}
                  live={busy && isLast}
                  failureIsTold={isLast && !!failure}
                  stopped={ended?.outcome === 'aborted' && ended.lastId === message.id}
                />
              );
            })}
          </ol>
        )}
        {busy && !hasBegun(messages.at(-1)) && (
          <p className="working">{chat.isRecovering ? 'Recovering…' : 'Thinking…'}</p>
        )}
        {failure && !busy && (
          <Notice
            tone="bad"
            title="The agent could not finish this turn"
            {...(connected ? { action: { label: 'Try again', run: again } } : {})}
          >
            <span className="error-text">{plainText(failure)}</span>
          </Notice>
        )}
        {canRegenerate && (
          <button type="button" className="button quiet regenerate" onClick={again}>
            Answer again
          </button>
        )}
      </Scroller>
      <div className="chat-foot">
        <Announcer busy={busy} message={messages.at(-1)} connected={connected} />
        {chat.connectionError ? (
          <Notice
            tone="bad"
            title="The server closed the conversation"
            action={{ label: 'Reload the page', run: () => location.reload() }}
          >
            {chat.connectionError.reason || `It gave the code ${chat.connectionError.code}.`}
          </Notice>
        ) : (
          <Offline connected={connected} retry={() => agent.reconnect()} />
        )}
        {!busy && <Suggestions info={info} disabled={!connected} onPick={send} />}
        <Composer
          input={input}
          connected={connected}
          busy={busy}
          text={draft}
          setText={setDraft}
          onSend={send}
          onStop={() => void stop()}
        />
        <div className="chat-line">
          <DemoLine info={info} />
          {messages.length > 0 && (
            <ClearButton
              disabled={!connected || busy}
              onClear={() => {
                setEnded(null);
                chat.clearError();
                chat.clearHistory();
                input.current?.focus();
              }}
            />
          )}
        </div>
      </div>
    </div>
  );
}

/** Follows the newest line until the reader scrolls up, and again once they are back at the end. */
function Scroller({ busy, children }: { busy: boolean; children: ReactNode }) {
  const box = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const [follows, setFollows] = useState(true);
  const following = useRef(true);
  const lastTop = useRef(0);

  const toEnd = () => box.current?.scrollTo({ top: box.current.scrollHeight });
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => following.current && toEnd());
    if (content.current) observer.observe(content.current);
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  // What one has just said is what one wants to see.
  useEffect(() => {
    if (!busy) return;
    following.current = true;
    toEnd();
  }, [busy]);

  return (
    <div className="scroller">
      <div
        className="scroll-box"
        ref={box}
        tabIndex={0}
        role="region"
        aria-label="Conversation"
        onScroll={({ currentTarget: it }) => {
          // Only a reader moves it up: what is added in the meantime leaves it where it is.
          const atEnd = it.scrollHeight - it.scrollTop - it.clientHeight < 48;
          if (atEnd || it.scrollTop < lastTop.current) following.current = atEnd;
          lastTop.current = it.scrollTop;
          setFollows(following.current);
        }}
      >
        <div className="scroll-content" ref={content}>
          {children}
        </div>
      </div>
      {!follows && (
        <button type="button" className="button to-end" onClick={toEnd}>
          To the newest
        </button>
      )}
    </div>
  );
}

/** Says what happens to those who do not see it: that a turn began, and its whole answer at last. */
function Announcer({
  busy,
  message,
  connected,
}: {
  busy: boolean;
  message: UIMessage | undefined;
  connected: boolean;
}) {
  const [news, setNews] = useState('');
  const before = useRef(false);
  useEffect(() => {
    if (busy && !before.current) setNews('The agent is working.');
    if (!busy && before.current)
      setNews(message?.role === 'assistant' ? `The agent says: ${textOf(message)}` : '');
    before.current = busy;
  }, [busy, message]);
  return (
    <p className="visually-hidden" role="status" aria-live="polite">
      {connected ? news : 'The connection is lost.'}
    </p>
  );
}

/** A connection that is just being made is nothing to worry anybody with. */
function Offline({ connected, retry }: { connected: boolean; retry: () => void }) {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    if (connected) {
      setShown(false);
      return;
    }
    const timer = setTimeout(() => setShown(true), 1_500);
    return () => clearTimeout(timer);
  }, [connected]);
  if (!shown) return null;
  return (
    <div className="offline">
      <p>
        <strong>Not connected.</strong> A turn that was running goes on at the server; the page
        joins it when the line is back.
      </p>
      <button type="button" className="button" onClick={retry}>
        Try now
      </button>
    </div>
  );
}

function Welcome({ info }: { info: AgentInfo }) {
  return (
    <div className="welcome">
      <h2>{info.title}</h2>
      <p>{info.description}</p>
    </div>
  );
}

function Suggestions({
  info,
  disabled,
  onPick,
}: {
  info: AgentInfo;
  disabled: boolean;
  onPick: (text: string) => void;
}) {
  if (info.tries.length === 0) return null;
  return (
    <ul className="suggestions" aria-label="Suggestions">
      {info.tries.map((text) => (
        <li key={text}>
          <button type="button" disabled={disabled} onClick={() => onPick(text)}>
            {text}
          </button>
        </li>
      ))}
    </ul>
  );
}

/** Nobody should take a script for a mind. */
function DemoLine({ info }: { info: AgentInfo }) {
  const model = useFeed().status?.model;
  if (!model) return <p />;
  if (model.provider === 'demo' && (info.model === null || info.model === 'demo'))
    return (
      <p className="demo-line">
        <strong>Demo model:</strong> a script answers, not an AI.{' '}
        <span className="demo-more">
          It knows the suggestions and a few more requests. For a real model set{' '}
          <code>ANTHROPIC_API_KEY</code> or <code>OPENAI_API_KEY</code> and restart cay.
        </span>
      </p>
    );
  return <p>Model: {info.model ?? model.name}. It can be wrong.</p>;
}

function ClearButton({ disabled, onClear }: { disabled: boolean; onClear: () => void }) {
  const [asked, setAsked] = useState(false);
  if (!asked)
    return (
      <button
        type="button"
        className="button quiet"
        disabled={disabled}
        onClick={() => setAsked(true)}
      >
        Clear
      </button>
    );
  return (
    <span className="clear-question" role="group" aria-label="Clear the conversation?">
      Clear all messages?
      <button
        type="button"
        className="button"
        autoFocus
        onClick={() => {
          setAsked(false);
          onClear();
        }}
      >
        Yes, clear
      </button>
      <button type="button" className="button quiet" onClick={() => setAsked(false)}>
        No
      </button>
    </span>
  );
}
