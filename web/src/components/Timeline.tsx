/** What took how long, one below the other: each bar begins where it began. */
import './Timeline.css';
import { formatDuration } from '../format.ts';
import { plainText } from './ansi.ts';

export type Bar = {
  label: string;
  /** Milliseconds since the beginning. */
  at: number;
  /** null: it is not over. */
  ms: number | null;
  tone?: 'plain' | 'bad' | 'quiet';
  /** Where more is told of it: an id on the page. */
  target?: string;
};

const barsAtOnce = 200;

/** The style is set by script: the policy forbids the attribute. */
const place = (from: number, to: number) => (it: HTMLElement | null) => {
  it?.style.setProperty('--from', `${(from * 100).toFixed(2)}%`);
  it?.style.setProperty('--size', `${(Math.max(0, to - from) * 100).toFixed(2)}%`);
};

export function Timeline({ bars, endMs }: { bars: readonly Bar[]; endMs: number }) {
  const end = Math.max(endMs, ...bars.map(({ at, ms }) => at + (ms ?? 0)), 1);
  return (
    <ol className="timeline" aria-label="Timeline">
      {bars.slice(-barsAtOnce).map(({ label, at, ms, tone = 'plain', target }, i) => (
        <li key={i} data-tone={tone}>
          <span className="timeline-label">
            {target ? <a href={`#${target}`}>{plainText(label)}</a> : plainText(label)}
          </span>
          <span className="timeline-track" aria-hidden="true">
            <span
              className="timeline-bar"
              data-open={ms === null || undefined}
              ref={place(at / end, (at + (ms ?? Math.max(0, end - at))) / end)}
            />
          </span>
          <span className="timeline-time">
            <span className="visually-hidden">after {formatDuration(at)}, took </span>
            {ms === null ? '…' : formatDuration(ms)}
          </span>
        </li>
      ))}
    </ol>
  );
}
