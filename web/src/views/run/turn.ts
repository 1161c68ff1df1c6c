/** What the record of a chat turn says of itself. */
import { object, text } from '../../api/types.ts';

export type Turn = { agent: string; name: string; message: string; said: string };

export function readTurn(detail: unknown): Turn | null {
  const { agent, name, message, said } = object(detail);
  return text(agent) && text(name)
    ? { agent: text(agent), name: text(name), message: text(message), said: text(said) }
    : null;
}
