/** What begins the same again, by kind; null where the record does not say enough. */
import type { RunDetail } from '../../api/types.ts';
import { object, text } from '../../api/types.ts';

export type Again = { path: string; body: Record<string, unknown> };

const given = (fields: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(fields).filter(
      ([, value]) => value !== null && value !== undefined && value !== '',
    ),
  );

export function againOf(run: RunDetail): Again | null {
  const detail = object(run.detail);
  const { spec, agent, model, repo, ref, max_steps } = detail;
  if (run.kind === 'sdk' && text(detail.prompt))
    return {
      path: '/execute/sdk',
      body: given({ prompt: detail.prompt, options: detail.options }),
    };
  if (run.kind === 'code' && text(spec))
    return {
      path: '/v1/code',
      body: given({
        spec,
        agent,
        model: model === 'demo' ? null : model,
        repo,
        max_steps,
        keep: true,
      }),
    };
  if (run.kind === 'execute' && text(spec)) {
    const options = given({
      agent: agent === 'coder' ? null : agent,
      model: model === 'demo' ? null : model,
      max_turns: max_steps,
      ...object(detail.options),
    });
    return { path: '/execute', body: given({ task: spec, repo, ref, options }) };
  }
  return null;
}

/** The conversation that a run belongs to. */
export function conversationOf(run: RunDetail): { agent: string; name: string } | null {
  const detail = object(run.detail);
  if (run.kind === 'chat' && text(detail.agent) && text(detail.name))
    return { agent: text(detail.agent), name: text(detail.name) };
  if (run.kind !== 'execution') return null;
  const at = run.title.indexOf('/');
  return at > 0 ? { agent: run.title.slice(0, at), name: run.title.slice(at + 1) } : null;
}
