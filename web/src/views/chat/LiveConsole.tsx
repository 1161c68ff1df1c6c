import { createContext, useContext, useEffect, useMemo, useState } from 'react';
import { api } from '../../api/client.ts';
import { usePrinted } from '../../api/follow.ts';
import { LogLines } from '../../components/ProgramParts.tsx';

/** "agent/name": what the programs of a conversation are called. */
export const ConversationTitle = createContext('');

const lookMs = 400;

/** What the program of a call prints while it runs; its whole output comes with the answer. */
export function LiveConsole() {
  const title = useContext(ConversationTitle);
  const [run, setRun] = useState<string | null>(null);
  useEffect(() => {
    if (title === '' || run !== null) return;
    const abort = new AbortController();
    const look = async () => {
      try {
        const { signal } = abort;
        const { runs } = await api.runs({
          kind: 'execution',
          status: 'running',
          limit: 20,
          signal,
        });
        const mine = runs.find((it) => it.title === title && it.status === 'running');
        if (mine) return setRun(mine.id);
      } catch {
        // It may be told the next time; the answer comes in any case.
      }
      if (!abort.signal.aborted) timer = setTimeout(() => void look(), lookMs);
      return undefined;
    };
    // What is over in a moment needs no console.
    let timer = setTimeout(() => void look(), lookMs);
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [title, run]);
  const { state } = usePrinted(run);
  const newest = useMemo(() => state.tail.newest(), [state]);
  return newest.lines.length > 0 ? <LogLines {...newest} live /> : null;
}
