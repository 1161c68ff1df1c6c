/**
 * One conversation, held by the original clients' own hooks: useAgent keeps the socket and the
 * synced state, useAgentChat the messages and the turns.
 */
import './strict.ts';
import { useAgentChat } from '@cloudflare/ai-chat/react';
import { useAgent } from 'agents/react';
import type { UIMessage } from 'ai';
import {
  Suspense,
  useCallback,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
  type ReactNode,
} from 'react';
import { chatCalls, fetchMessages as fetchAll } from '../../api/chat.ts';
import { ApiError, request } from '../../api/client.ts';
import { useFeed } from '../../api/feed.ts';
import { object, type AgentInfo } from '../../api/types.ts';
import { plainText } from '../../components/ansi.ts';
import { Curl } from '../../components/Curl.tsx';
import { ErrorBoundary } from '../../components/ErrorBoundary.tsx';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { Tabs, type Tab } from '../../components/Tabs.tsx';
import { useMedia } from '../../hooks.ts';
import { useKept } from '../../kept.ts';
import { draftKey } from './agents.ts';
import { Composer } from './Composer.tsx';
import { Executions } from './Executions.tsx';
import { hasBegun, Message, textOf } from './Message.tsx';
import { ConversationTitle } from './LiveConsole.tsx';
import { ModelLine, useModel, type Choice } from './Model.tsx';
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
  const [draft, setDraft] = useKept(draftKey(info.type, name));
  const choice = useModel(info, name);
  const [queued, setQueued] = useState<string | null>(null);
  // What the server has. A line that was lost has lost frames too: the chat is built anew then.
  const [known, setKnown] = useState<Known | null>(null);
  const outOfDate = useRef(false);
  const shown = useRef<UIMessage[]>([]);
  const wide = useMedia('(min-width: 60rem)');
  // A window that changes its width builds the chat anew, with what was on the screen.
  const seed = useRef({ known, wide, messages: known?.messages ?? [] });
  if (seed.current.known !== known) seed.current = { known, wide, messages: known?.messages ?? [] };
  else if (seed.current.wide !== wide) seed.current = { known, wide, messages: shown.current };
  const agent = useAgent<unknown>({
    agent: info.type,
    // The client puts the name into the address as it is.
    name: encodeURIComponent(name),
    // It takes every host that is not on a private network for one that speaks TLS.
    protocol: location.protocol === 'https:' ? 'wss' : 'ws',
    onStateUpdate: setState,
    // Not at onOpen: until the agent has said who it is, it is not ready to be asked.
    onIdentity: () => {
      setConnected(true);
      if (outOfDate.current) void learn();
      outOfDate.current = false;
    },
    onClose: () => {
      setConnected(false);
      outOfDate.current = true;
      // The hook must not be there when the line is: it would take the rest of a turn for a new one.
      setKnown((before) => before && { ...before, frozen: true, messages: shown.current });
    },
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

  const fetchMessages = async (): Promise<UIMessage[] | null> => {
    try {
      return (await fetchAll(info.type, name)) as UIMessage[];
    } catch {
      // The server is away: when the line is there, so are they.
      outOfDate.current = true;
      return null;
    }
  };
  const learn = async () => {
    const messages = await fetchMessages();
    if (messages)
      setKnown((before) => ({ epoch: (before?.epoch ?? 0) + 1, messages, frozen: false }));
  };
  useEffect(() => void learn(), []);

  const foot = { agent, info, name, connected, draft, setDraft };
  const chat = !known ? (
    <>
      <Loading />
      <Offline
        connected={connected}
        agent={info.type}
        name={name}
        retry={() => agent.reconnect()}
      />
    </>
  ) : known.frozen ? (
    <Frozen {...foot} messages={known.messages} />
  ) : (
    <ErrorBoundary key={known.epoch}>
      <Suspense fallback={<Loading />}>
        <Chat
          {...foot}
          choice={choice}
          initial={seed.current.messages}
          shown={shown}
          fetchMessages={fetchMessages}
          queued={queued}
          setQueued={setQueued}
          takeFocus={takeFocus && known.epoch === 1}
          onTurn={onTurn}
        />
      </Suspense>
    </ErrorBoundary>
  );
  return (
    <ConversationTitle value={`${info.type}/${name}`}>
      <div className="conversation" data-wide={wide || undefined}>
        {wide && <div className="chat-column">{chat}</div>}
        <Tabs
          label={wide ? 'What the agent did and has' : 'Conversation'}
          tabs={wide ? side : [{ id: 'chat', label: 'Chat', panel: chat }, ...side]}
          // Beside the conversation its data is shown first: the programs stand in it already.
          current={tab || (wide ? (side[1]?.id ?? '') : '')}
          onChange={setTab}
        />
      </div>
    </ConversationTitle>
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

/** frozen: the line is lost, and this is what was seen last. */
type Known = { epoch: number; messages: UIMessage[]; frozen: boolean };

type FootProps = {
  agent: ReturnType<typeof useAgent<unknown>>;
  info: AgentInfo;
  name: string;
  connected: boolean;
  draft: string;
  setDraft: (text: string) => void;
};

/** What was seen last, while there is no line. What is being written stays. */
function Frozen(props: FootProps & { messages: readonly UIMessage[] }) {
  const { agent, info, name, connected, draft, setDraft, messages } = props;
  const input = useRef<HTMLTextAreaElement>(null);
  const closed = agent.connectionError;
  return (
    <div className="chat">
      <Scroller busy={false}>
        <ol className="messages" aria-label="Messages">
          {messages.map((message) => (
            <Message
              key={message.id}
              message={message}
              live={false}
              stopped={false}
              failureIsTold
            />
          ))}
        </ol>
      </Scroller>
      <div className="chat-foot">
        <Announcer busy={false} message={undefined} connected={connected} />
        {closed ? (
          <Notice
            tone="bad"
            title="The server closed the conversation"
            action={{ label: 'Reload the page', run: () => location.reload() }}
          >
            {closed.reason || `It gave the code ${closed.code}.`}
          </Notice>
        ) : (
          <Offline
            connected={connected}
            agent={info.type}
            name={name}
            retry={() => agent.reconnect()}
          />
        )}
        <Composer
          input={input}
          connected={false}
          busy={false}
          text={draft}
          setText={setDraft}
          onSend={() => {}}
          onStop={() => {}}
        />
      </div>
    </div>
  );
}

type ChatProps = FootProps & {
  choice: Choice;
  initial: UIMessage[];
  /** What is on the screen, for when the line is lost. */
  shown: { current: UIMessage[] };
  fetchMessages: () => Promise<UIMessage[] | null>;
  /** What is sent when the turn that runs has ended. */
  queued: string | null;
  setQueued: (text: string | null) => void;
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
  const { agent, info, name, connected, draft, setDraft, takeFocus, onTurn } = props;
  const { fetchMessages, queued, setQueued, choice } = props;
  const { model } = choice;
  const [ended, setEnded] = useState<Ended | null>(null);
  const [editing, setEditing] = useState<string | null>(null);
  const last = useRef<UIMessage | undefined>(undefined);
  const chat = useAgentChat({
    agent,
    // The hook would keep what it fetched first, for good.
    getInitialMessages: null,
    messages: props.initial,
    // What the page sets is what the server has said.
    syncMessagesToServer: false,
    body: model === '' ? {} : { model },
    onTurnEnd: ({ outcome, error, replay }) => {
      if (!replay) setEnded({ outcome, error: error ?? null, lastId: last.current?.id });
      onTurn();
      // A turn that failed before its first word is in the history, and in no stream.
      if (outcome === 'error') void fetchMessages().then((all) => all && set.current(all));
    },
  });
  const { messages, status } = chat;
  const set = useRef(chat.setMessages);
  set.current = chat.setMessages;
  last.current = messages.at(-1);
  props.shown.current = messages;
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
    setEditing(null);
    void chat.sendMessage(editing === null ? { text } : { text, messageId: editing });
  }

  // The same ever after: each letter that is typed would draw every message anew.
  const edit = useCallback(
    (message: UIMessage) => {
      setEditing(message.id);
      setDraft(textOf(message));
      input.current?.focus();
    },
    [setDraft],
  );

  // What was said while a turn ran, or before the line was there, is sent when it can be.
  useEffect(() => {
    if (busy || !connected || queued === null) return;
    setQueued(null);
    send(queued);
  }, [busy, connected, queued]);

  function again() {
    setEnded(null);
    chat.clearError();
    void chat.regenerate();
    input.current?.focus();
  }

  // The hook stops what it asked for itself; a turn that another tab began is known by its frames.
  const turn = useRef<string | null>(null);
  const [running, setRunning] = useState<string | null>(null);
  useEffect(() => {
    const onMessage = ({ data }: MessageEvent) => {
      const frame = typeof data === 'string' ? parse(data) : null;
      if (frame?.type !== 'cf_agent_use_chat_response') return;
      turn.current = frame.done === true || typeof frame.id !== 'string' ? null : frame.id;
      setRunning(turn.current);
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

  const asked = messages.findLast(({ role }) => role === 'user');

  /** What Send would send. */
  function sayCall() {
    const said = draft.trim() || 'TEXT';
    const old = editing === null ? undefined : messages.find(({ id }) => id === editing);
    if (!old) return chatCalls.say(info.type, name, said, model);
    const changed = { ...old, parts: [{ type: 'text', text: said }] };
    return chatCalls.again(info.type, name, changed, model);
  }

  const kept = object(messages.at(-1)?.metadata).error;
  const told = status === 'error' ? chat.error?.message : ended?.error;
  // A line that is lost says so by itself, and has not made the turn fail.
  const failure = connected ? (typeof kept === 'string' ? kept : told) : undefined;
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
                  {...(busy || !connected ? {} : { onEdit: edit })}
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
          <div className="regenerate">
            <button type="button" className="button quiet" onClick={again}>
              Answer again
            </button>
            {asked && (
              <Curl call={chatCalls.again(info.type, name, asked, model)} of="answer again" />
            )}
          </div>
        )}
      </Scroller>
      <div className="chat-foot">
        <Announcer busy={busy} message={messages.at(-1)} connected={connected} />
        <Offline
          connected={connected}
          agent={info.type}
          name={name}
          retry={() => agent.reconnect()}
        />
        {queued !== null && (
          <p className="queued" role="status">
            Next: <span dir="auto">{plainText(queued)}</span>
            <button
              type="button"
              className="button quiet"
              onClick={() => {
                setQueued(null);
                setDraft(queued);
                input.current?.focus();
              }}
            >
              Take it back
            </button>
          </p>
        )}
        {editing !== null && (
          <p className="queued" role="status">
            What you send takes the place of the message, and of all that followed it.
            <button
              type="button"
              className="button quiet"
              onClick={() => {
                setEditing(null);
                setDraft('');
              }}
            >
              Leave it
            </button>
          </p>
        )}
        {!busy && <Suggestions info={info} disabled={!connected} onPick={send} />}
        <Composer
          input={input}
          connected={connected}
          busy={busy}
          text={draft}
          setText={setDraft}
          onSend={send}
          onQueue={setQueued}
          onStop={() => void stop()}
          curl={
            !busy ? (
              <Curl call={sayCall()} of="send" />
            ) : running === null ? null : (
              <Curl call={chatCalls.stop(info.type, name, running)} of="stop" />
            )
          }
        />
        <div className="chat-line">
          <ModelLine info={info} choice={choice} />
          {messages.length > 0 && (
            <span className="chat-line-end">
              <Curl call={chatCalls.messages(info.type, name)} of="read the messages" />
              <ClearButton
                disabled={!connected || busy}
                onClear={() => {
                  setEnded(null);
                  chat.clearError();
                  chat.clearHistory();
                  input.current?.focus();
                }}
              />
              <Curl call={chatCalls.clear(info.type, name)} of="clear" />
            </span>
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
type OfflineProps = { connected: boolean; agent: string; name: string; retry: () => void };

/** Why a socket is refused no browser tells; a request that changes nothing is told. */
async function whyRefused(agent: string, name: string): Promise<string | null> {
  try {
    const at = `/v1/agents/${encodeURIComponent(agent)}/${encodeURIComponent(name)}/messages`;
    await request(at, { method: 'POST', body: {} });
    return null;
  } catch (cause) {
    return cause instanceof ApiError && cause.status === 403 ? cause.message : null;
  }
}

function Offline({ connected, agent, name, retry }: OfflineProps) {
  const [shown, setShown] = useState(false);
  const [why, setWhy] = useState<string | null>(null);
  const served = useFeed().connection.state === 'live';
  useEffect(() => {
    setWhy(null);
    if (connected) {
      setShown(false);
      return;
    }
    let left = false;
    const timer = setTimeout(async () => {
      setShown(true);
      const found = served ? await whyRefused(agent, name) : null;
      if (!left) setWhy(found);
    }, 1_500);
    return () => {
      left = true;
      clearTimeout(timer);
    };
  }, [connected, served, agent, name]);
  if (!shown) return null;
  if (why !== null)
    return (
      <Notice
        tone="bad"
        title="The server refuses this page"
        action={{ label: 'Try now', run: retry }}
      >
        It says: {why}. A proxy in front of cay has to pass the Host field on as it is, and its host
        has to be among <code>"hosts"</code> in cay.json.
      </Notice>
    );
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
