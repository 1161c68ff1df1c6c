/** The timelines of the kinds of runs. */
import type { CodeState } from '../../api/code.ts';
import type { Program } from '../../api/program.ts';
import type { Transcript } from '../../api/transcript.ts';
import type { Bar } from '../../components/Timeline.tsx';

export const codeBars = ({ spans }: CodeState): Bar[] =>
  spans.map(({ label, step, at, ms, ok }) => ({
    label: step === null ? label : `${step} ${label}`,
    at,
    ms,
    tone: !ok ? 'bad' : step === null ? 'quiet' : 'plain',
    ...(step === null ? {} : { target: `step-${step}` }),
  }));

/** Each message was being made since the one before it. */
export function messageBars({ messages }: Transcript, start: string): Bar[] {
  const begin = Date.parse(start);
  let before = 0;
  return messages.flatMap(({ seq, time, role, parts }) => {
    const at = before;
    before = Math.max(before, Date.parse(time) - begin);
    const calls = parts.flatMap((part) => (part.type === 'call' ? [part.name] : []));
    if (role === 'result' || !(before >= at)) return [];
    const failed = parts.some((part) => part.type === 'result' && part.failed);
    const label =
      role === 'user' ? 'tool' : calls.length > 0 ? `model: ${calls.join(', ')}` : 'model';
    return {
      label,
      at,
      ms: before - at,
      tone: failed ? ('bad' as const) : role === 'user' ? ('plain' as const) : ('quiet' as const),
      target: `message-${seq}`,
    };
  });
}

/** What a program's record tells of its way: compiled, an isolate ready, run. */
export function programBars({ usage, error }: Program): Bar[] {
  const { compiled_ms: compiled, started_ms: started, wall_ms: wall } = usage;
  if (wall === undefined) return [];
  const bars: Bar[] = [];
  if (compiled !== undefined) bars.push({ label: 'compile', at: 0, ms: compiled, tone: 'quiet' });
  const ready = started ?? compiled ?? 0;
  if (started !== undefined && ready > (compiled ?? 0))
    bars.push({
      label: 'get an isolate and its databases',
      at: compiled ?? 0,
      ms: ready - (compiled ?? 0),
      tone: 'quiet',
    });
  bars.push({
    label: 'run',
    at: ready,
    ms: Math.max(0, wall - ready),
    tone: error ? 'bad' : 'plain',
  });
  return bars;
}
