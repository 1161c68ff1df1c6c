import { useLayoutEffect, useRef, useState, type ReactNode, type Ref } from 'react';
import { plainText } from '../../components/ansi.ts';
import { AttachIcon, SendIcon, StopIcon } from '../../components/Icon.tsx';
import { attach, maxMessageChars } from './attach.ts';

type Props = {
  input: Ref<HTMLTextAreaElement>;
  connected: boolean;
  busy: boolean;
  text: string;
  setText: (text: string) => void;
  onSend: (text: string) => void;
  /** While a turn runs, or the line is not there yet. Without it nothing can be said now. */
  onQueue?: (text: string) => void;
  onStop: () => void;
  /** The call behind the button. */
  curl?: ReactNode;
};

/** Enter sends, Shift+Enter begins a line. While a turn runs the button stops it. */
export function Composer(props: Props) {
  const { input, connected, busy, text, setText, onSend, onQueue, onStop, curl } = props;
  const [box, setBox] = useState<HTMLTextAreaElement | null>(null);

  // As high as its text, up to the limit in the style sheet.
  useLayoutEffect(() => {
    if (!box) return;
    box.style.blockSize = 'auto';
    box.style.blockSize = `${box.scrollHeight + 2}px`;
  }, [box, text]);

  const [problem, setProblem] = useState<string | null>(null);
  const picker = useRef<HTMLInputElement>(null);

  async function pick(files: readonly File[]) {
    const found = await attach(text, files);
    setProblem('problem' in found ? found.problem : null);
    if ('text' in found) setText(found.text);
    box?.focus();
  }

  const say = connected && !busy ? onSend : onQueue;
  const canSay = say !== undefined && text.trim() !== '';
  function send() {
    if (!canSay) return;
    say(text.trim());
    setText('');
  }

  const hint = busy ? 'Say what comes next' : 'Ask the agent';
  const away = onQueue ? 'Connecting' : 'Not connected';
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <input
        type="file"
        multiple
        hidden
        ref={picker}
        aria-label="Files for the message"
        onChange={({ currentTarget: it }) => {
          void pick([...(it.files ?? [])]);
          it.value = '';
        }}
      />
      <button
        type="button"
        className="button attach"
        aria-label="Attach files"
        title="Put text files into the message"
        onClick={() => picker.current?.click()}
      >
        <AttachIcon />
      </button>
      {problem !== null && (
        <span className="field-error composer-problem" role="alert">
          {plainText(problem)}
        </span>
      )}
      <textarea
        ref={(it) => {
          setBox(it);
          if (typeof input === 'function') input(it);
          else if (input) input.current = it;
        }}
        rows={1}
        dir="auto"
        aria-label="Message"
        placeholder={connected ? hint : away}
        value={text}
        maxLength={maxMessageChars}
        enterKeyHint="send"
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          // An input method's Enter takes a word, it does not end the message.
          if (event.key !== 'Enter' || event.shiftKey || event.nativeEvent.isComposing) return;
          event.preventDefault();
          send();
        }}
      />
      {busy ? (
        <button type="button" className="button stop" onClick={onStop}>
          <StopIcon />
          Stop
        </button>
      ) : (
        <button type="submit" className="button primary" disabled={!canSay}>
          <SendIcon />
          Send
        </button>
      )}
      {curl}
    </form>
  );
}
