import type { Part, Transcript } from '../../api/transcript.ts';
import { JsonBlock } from '../../components/JsonBlock.tsx';
import { Markdown } from '../../components/Markdown.tsx';
import { Notice } from '../../components/Notice.tsx';
import { Output } from '../../components/Output.tsx';
import { Section } from '../../components/Section.tsx';
import { formatTime } from '../../format.ts';

const roles: Record<string, string> = { assistant: 'Model', user: 'Tool', result: 'End' };

/** A call of /execute/sdk, to be read: what was asked, what was said, what the tools gave. */
export function TranscriptView({ transcript }: { transcript: Transcript }) {
  const { prompt, messages } = transcript;
  return (
    <>
      <Section title="Prompt">
        <Output text={prompt} label="Prompt" />
      </Section>
      <Section title="Messages" flush>
        {messages.length === 0 ? (
          <p className="table-empty">Nothing was said yet.</p>
        ) : (
          <ol className="messages">
            {messages.map((message) => (
              <li key={message.seq} id={`message-${message.seq}`} data-role={message.role}>
                <div className="message-head">
                  <span className="event-type">{roles[message.role] ?? message.role}</span>
                  <time dateTime={message.time}>{formatTime(message.time)}</time>
                </div>
                {message.parts.map((part, i) => (
                  <PartView key={i} part={part} />
                ))}
              </li>
            ))}
          </ol>
        )}
      </Section>
    </>
  );
}

function PartView({ part }: { part: Part }) {
  switch (part.type) {
    case 'text':
      return <Markdown text={part.text} />;
    case 'thinking':
      return (
        <details>
          <summary>Thoughts</summary>
          <Markdown text={part.text} />
        </details>
      );
    case 'call':
      return (
        <details>
          <summary>
            Calls <code>{part.name}</code>
          </summary>
          <JsonBlock value={part.input} label={`Input of ${part.name}`} />
        </details>
      );
    case 'result':
      return (
        <div className="detail" data-failed={part.failed || undefined}>
          {part.failed && <strong>Failed</strong>}
          <Output text={part.text} label="Result" />
        </div>
      );
    case 'end':
      return part.failed ? (
        <Notice tone="bad" title={part.text || 'It failed'}>
          <code>{part.subtype}</code>
        </Notice>
      ) : (
        <p className="nothing">Done.</p>
      );
  }
}
