import { fetchOffer, type Model, type Offer } from '../../api/chat.ts';
import { useFeed } from '../../api/feed.ts';
import type { AgentInfo } from '../../api/types.ts';
import { plainText } from '../../components/ansi.ts';
import { useLoad } from '../../hooks.ts';
import { useKept } from '../../kept.ts';

/** What a conversation's choice is kept under. */
export const modelKey = (agent: string, name: string): string => `model ${agent} ${name}`;

export type Choice = {
  /** The id of the model that answers next; '' is the agent's own. */
  model: string;
  choose: (model: string) => void;
  offer: Offer | null;
};

/** Which model answers in this conversation. One that is not offered any more is not asked for. */
export function useModel(info: AgentInfo, name: string): Choice {
  const [kept, choose] = useKept(modelKey(info.type, name));
  const isLive = useFeed().connection.state === 'live';
  const { data: offer } = useLoad(fetchOffer, [isLive]);
  const isOffered = offer?.models.some(({ id }) => id === kept) ?? true;
  return { model: isOffered ? kept : '', choose, offer };
}

/** The agent's own model, by its id where it has another name. */
function usualOf(info: AgentInfo, offer: Offer): string | null {
  const { model } = info;
  if (model === null) return offer.usual;
  const isNamed = ({ id, provider, aliases }: Model) =>
    id === model || aliases.includes(model) || `${provider}/${id}` === model;
  return offer.models.find(isNamed)?.id ?? model;
}

const price = (usd: number): string => `$${usd.toLocaleString('en')}`;

const label = ({ id, input, output }: Model): string =>
  input === null || output === null
    ? plainText(id)
    : `${plainText(id)} (${price(input)} / ${price(output)})`;

/** Says who answers, and lets another be chosen where there is one. Nobody should take a script for a mind. */
export function ModelLine({ info, choice }: { info: AgentInfo; choice: Choice }) {
  const { model, choose, offer } = choice;
  if (!offer) return <p />;
  const usual = usualOf(info, offer);
  const others = offer.models.filter(({ id }) => id !== usual);
  const answering = model || usual;
  const isDemo =
    answering === 'demo' ||
    offer.models.some(({ id, provider }) => id === answering && provider === 'demo');
  return (
    <div className="model-line">
      {others.length > 0 && (
        <label>
          Model{' '}
          <select
            value={model}
            title="In brackets: US dollars for a million tokens in and out"
            onChange={(event) => choose(event.target.value)}
          >
            <option value="">{usual === null ? 'Default' : `${plainText(usual)}, default`}</option>
            {others.map((it) => (
              <option key={`${it.provider}/${it.id}`} value={it.id}>
                {label(it)}
              </option>
            ))}
          </select>
        </label>
      )}
      {isDemo ? (
        <p className="demo-line">
          <strong>Demo model:</strong> a script answers, not an AI.{' '}
          {others.length === 0 && (
            <span className="demo-more">
              It knows the suggestions and a few more requests. For a real model set{' '}
              <code>ANTHROPIC_API_KEY</code> or <code>OPENAI_API_KEY</code> and restart cay.
            </span>
          )}
        </p>
      ) : others.length > 0 ? (
        <p>It can be wrong.</p>
      ) : (
        <p>Model: {plainText(usual ?? '–')}. It can be wrong.</p>
      )}
    </div>
  );
}
