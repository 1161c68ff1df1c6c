/** The calls of a conversation, told as data: how they are sent, and how curl would send them. */
import type { Call } from '../curl.ts';
import { send } from './client.ts';
import {
  list,
  numberOrNull,
  object,
  readAgents,
  text,
  textOrNull,
  type AgentInfo,
} from './types.ts';

export type Model = {
  id: string;
  provider: string;
  aliases: string[];
  /** US dollars for a million tokens; null where nobody knows. */
  input: number | null;
  output: number | null;
};

/** The models there are to choose from, and the one that answers where none is chosen. */
export type Offer = { usual: string | null; models: Model[] };

export function readOffer(value: unknown): Offer {
  const it = object(value);
  const models = list(it.models).map((item): Model => {
    const one = object(item);
    const price = object(one.usd_per_million);
    return {
      id: text(one.id),
      provider: text(one.provider),
      aliases: list(one.aliases).filter((alias) => typeof alias === 'string'),
      input: numberOrNull(price.input),
      output: numberOrNull(price.output),
    };
  });
  return { usual: textOrNull(it.default), models: models.filter(({ id }) => id !== '') };
}

const at = (agent: string, name: string, rest = ''): string =>
  `/v1/agents/${encodeURIComponent(agent)}/${encodeURIComponent(name)}${rest}`;
const chosen = (model: string) => (model === '' ? {} : { model });

export const chatCalls = {
  agents: (): Call => ({ path: '/v1/agents' }),
  models: (): Call => ({ path: '/v1/models' }),
  messages: (agent: string, name: string): Call => ({ path: at(agent, name, '/messages') }),
  say: (agent: string, name: string, said: string, model: string): Call => ({
    path: at(agent, name, '/messages'),
    body: { text: said, ...chosen(model) },
    stream: true,
  }),
  /** Answers a message anew, changed or not; what followed it makes way. */
  again: (agent: string, name: string, message: unknown, model: string): Call => ({
    path: at(agent, name, '/messages'),
    body: { message, trigger: 'regenerate-message', ...chosen(model) },
    stream: true,
  }),
  stop: (agent: string, name: string, turn: string): Call => ({
    method: 'DELETE',
    path: at(agent, name, `/turns/${encodeURIComponent(turn)}`),
  }),
  clear: (agent: string, name: string): Call => ({
    method: 'DELETE',
    path: at(agent, name, '/messages'),
  }),
  remove: (agent: string, name: string): Call => ({ method: 'DELETE', path: at(agent, name) }),
  reset: (agent: string, name: string): Call => ({
    method: 'POST',
    path: at(agent, name, '/reset'),
  }),
  rename: (agent: string, name: string, to: string): Call => ({
    path: at(agent, name, '/rename'),
    body: { name: to },
  }),
};

export const fetchAgents = async (signal?: AbortSignal): Promise<AgentInfo[]> =>
  readAgents(await send(chatCalls.agents(), signal));

export const fetchOffer = async (signal: AbortSignal): Promise<Offer> =>
  readOffer(await send(chatCalls.models(), signal));

/** AI SDK messages, as the server has them. */
export const fetchMessages = async (agent: string, name: string): Promise<unknown[]> =>
  list(object(await send(chatCalls.messages(agent, name))).messages);
