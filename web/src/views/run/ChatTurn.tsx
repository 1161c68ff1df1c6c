import '../chat/strict.ts';
import type { UIMessage } from 'ai';
import { fetchMessages } from '../../api/chat.ts';
import { plainText } from '../../components/ansi.ts';
import { Loading } from '../../components/Loading.tsx';
import { Section } from '../../components/Section.tsx';
import { useLoad } from '../../hooks.ts';
import { Message } from '../chat/Message.tsx';
import type { Turn } from './turn.ts';
import '../chat/chat.css';

/** The message and what it answers. */
export function turnOf(messages: readonly UIMessage[], id: string): UIMessage[] {
  const at = messages.findIndex((message) => message.id === id);
  if (at < 0) return [];
  let from = at;
  while (from > 0 && messages[from - 1]?.role === 'user') from--;
  return messages.slice(from, at + 1);
}

/** What was said in a turn, as the conversation has it now. */
export default function ChatTurn({ agent, name, message, said, live }: Turn & { live: boolean }) {
  const { data, error } = useLoad(
    async () => turnOf((await fetchMessages(agent, name)) as UIMessage[], message),
    [agent, name, message, live],
    live ? 1_000 : null,
  );
  return (
    <Section title="Messages">
      {!data && !error && <Loading />}
      {data && data.length > 0 && (
        <ol className="messages view-chat" aria-label="Messages">
          {data.map((it) => (
            <Message key={it.id} message={it} live={live} stopped={false} failureIsTold={false} />
          ))}
        </ol>
      )}
      {(error || data?.length === 0) && (
        <>
          <p className="said" dir="auto">
            {plainText(said) || '–'}
          </p>
          <p className="nothing">
            {live
              ? 'Nothing was answered yet.'
              : 'The conversation does not have the answer any more.'}
          </p>
        </>
      )}
    </Section>
  );
}
