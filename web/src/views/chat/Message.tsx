import { isToolUIPart, type UIMessage } from 'ai';
import { memo } from 'react';
import { numberOrNull, object, readTokens, text } from '../../api/types.ts';
import { plainText } from '../../components/ansi.ts';
import { Copy } from '../../components/Copy.tsx';
import { Markdown, safeUrl } from '../../components/Markdown.tsx';
import { formatCost, formatDuration, formatTime, formatTokens } from '../../format.ts';
import { Link } from '../../router.tsx';
import { ToolCall } from './ToolCall.tsx';

type Props = {
  message: UIMessage;
  /** The turn it belongs to is under way. */
  live: boolean;
  /** It was stopped before this page could read so from the message itself. */
  stopped: boolean;
  /** Its failure is told below, with what to do about it. */
  failureIsTold: boolean;
  /** Of one that the person said, while nothing runs. */
  onEdit?: (message: UIMessage) => void;
};

export const Message = memo(function Message(props: Props) {
  const { message, live, stopped, failureIsTold, onEdit } = props;
  const mine = message.role === 'user';
  const { aborted, interrupted, error, limit } = object(message.metadata);
  const failure = typeof error === 'string' && !failureIsTold ? error : null;
  // A turn that failed before its first word.
  if (failure === null && interrupted !== true && !message.parts.some(isSeen)) return null;
  return (
    <li className="message" data-role={message.role} data-live={live || undefined}>
      <h2 className="visually-hidden">{mine ? 'You' : 'Agent'}</h2>
      {message.parts.map((part, index) => (
        <Part key={index} part={part} live={live} mine={mine} />
      ))}
      {!live && (aborted === true || stopped) && <p className="message-note">Stopped.</p>}
      {typeof limit === 'string' && (
        <p className="message-note">It stopped here: {plainText(limit)}. Say “go on” to let it.</p>
      )}
      {failure !== null && <p className="message-note">This turn failed: {plainText(failure)}</p>}
      {interrupted === true && (
        <p className="message-note">The server ended during this turn. Ask again to go on.</p>
      )}
      {!live && textOf(message) !== '' && (
        <div className="message-actions">
          <Copy text={wholeText(message)} of={mine ? 'what you said' : 'the answer'} />
          {mine && onEdit && (
            <button type="button" className="button quiet" onClick={() => onEdit(message)}>
              Edit
            </button>
          )}
          {!mine && <Account metadata={message.metadata} />}
        </div>
      )}
    </li>
  );
});

/** What the answer took: the model, its tokens, the money and the time. */
function Account({ metadata }: { metadata: unknown }) {
  const { run, model, tokens, cost_usd, ms, at } = object(metadata);
  const took = numberOrNull(ms);
  if (took === null) return null;
  const said = [
    plainText(text(model)),
    readTokens(tokens) ? `${formatTokens(readTokens(tokens))}` : '',
    numberOrNull(cost_usd) === null ? '' : formatCost(numberOrNull(cost_usd)),
    formatDuration(took),
  ];
  return (
    <span className="message-account" title={formatTime(text(at))}>
      {said.filter(Boolean).join(' · ')}
      {typeof run === 'string' && (
        <>
          {' · '}
          <Link to={`/runs/${encodeURIComponent(run)}`}>run</Link>
        </>
      )}
    </span>
  );
}

const isSeen = (part: UIMessage['parts'][number]): boolean =>
  part.type === 'text' || part.type === 'reasoning' ? part.text !== '' : part.type !== 'step-start';

function Part({
  part,
  live,
  mine,
}: {
  part: UIMessage['parts'][number];
  live: boolean;
  mine: boolean;
}) {
  if (isToolUIPart(part)) return <ToolCall part={part} live={live} />;
  switch (part.type) {
    case 'text':
      if (part.text === '') return null;
      return mine ? (
        <p className="said" dir="auto">
          {plainText(part.text)}
        </p>
      ) : (
        <Markdown text={part.text} />
      );
    case 'reasoning':
      if (part.text === '') return null;
      return (
        <details className="reasoning">
          <summary>Thinking</summary>
          <p>{plainText(part.text)}</p>
        </details>
      );
    case 'source-url':
      return safeUrl(part.url) ? (
        <a href={part.url} target="_blank" rel="noopener noreferrer nofollow">
          {plainText(part.title ?? part.url)}
        </a>
      ) : null;
    case 'file':
      return <p className="message-note">[file: {plainText(part.filename ?? part.mediaType)}]</p>;
    default:
      return null;
  }
}

/** Whether there is anything to see of the answer. */
export const hasBegun = (message: UIMessage | undefined): boolean =>
  message?.role === 'assistant' && message.parts.some(isSeen);

const wholeText = (message: UIMessage): string =>
  plainText(
    message.parts
      .map((part) => (part.type === 'text' ? part.text : ''))
      .filter(Boolean)
      .join('\n\n'),
  );

/** The words of a message, for a screen reader that is told it is there. */
export function textOf(message: UIMessage | undefined): string {
  if (!message) return '';
  const words = message.parts.map((part) => (part.type === 'text' ? part.text : '')).join(' ');
  return plainText(words).slice(0, 2000);
}
