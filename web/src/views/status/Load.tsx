import { rateSamples } from '../../api/feed.ts';
import type { Status } from '../../api/types.ts';
import { Section } from '../../components/Section.tsx';
import { Sparkline } from '../../components/Sparkline.tsx';
import { formatBytes, formatCount, formatRate } from '../../format.ts';

type Props = { status: Status; rates: readonly number[] };

/** How busy the front is: requests over the last minute, memory, connections. */
export function Load({ status, rates }: Props) {
  const latest = rates.at(-1);
  const peak = Math.max(0, ...rates);
  const label =
    latest === undefined
      ? 'Requests per second: not measured yet'
      : `Requests per second over the last minute: now ${formatRate(latest)}, ` +
        `at most ${formatRate(peak)}`;
  return (
    <Section title="Load" aside={`${formatCount(status.requestsTotal)} requests so far`}>
      <div className="load">
        <div className="figure figure-rate">
          <div>
            <span className="figure-value">{latest === undefined ? '–' : formatRate(latest)}</span>
            <span className="figure-name">requests/s</span>
          </div>
          <Sparkline values={rates} samples={rateSamples} label={label} />
        </div>
        <div className="figure">
          <span className="figure-value">{formatBytes(status.memoryBytes)}</span>
          <span className="figure-name">memory of the server</span>
        </div>
        <div className="figure">
          <span className="figure-value">{formatCount(status.connections)}</span>
          <span className="figure-name">
            {status.connections === 1 ? 'connection' : 'connections'}
          </span>
        </div>
      </div>
    </Section>
  );
}
