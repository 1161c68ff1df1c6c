import type { ChildState, FeatureStatus, RunStatus } from '../api/types.ts';
import './Badge.css';

export type Tone = 'ok' | 'warn' | 'bad' | 'busy' | 'plain';

/** A word with a mark whose shape, not only its colour, tells the tone. */
export function Badge({ tone, children }: { tone: Tone; children: string }) {
  return (
    <span className="badge" data-tone={tone}>
      <svg viewBox="0 0 10 10" width="10" height="10" aria-hidden="true">
        {tone === 'ok' && <circle cx="5" cy="5" r="4" />}
        {tone === 'warn' && <path d="M5 .8 9.6 9H.4z" />}
        {tone === 'bad' && <path d="M5 .4 9.6 5 5 9.6.4 5z" />}
        {tone === 'busy' && <circle className="badge-ring" cx="5" cy="5" r="3.25" />}
        {tone === 'plain' && <rect x="1.25" y="4" width="7.5" height="2" rx="1" />}
      </svg>
      {children}
    </span>
  );
}

const featureTones: Record<FeatureStatus, Tone> = { ok: 'ok', degraded: 'warn', missing: 'bad' };
const childTones: Record<ChildState, Tone> = {
  running: 'ok',
  starting: 'busy',
  backoff: 'bad',
  stopped: 'plain',
};
const runTones: Record<RunStatus, Tone> = {
  running: 'busy',
  done: 'ok',
  failed: 'bad',
  interrupted: 'warn',
  cancelled: 'plain',
};

export const FeatureBadge = ({ status }: { status: FeatureStatus }) => (
  <Badge tone={featureTones[status]}>{status}</Badge>
);
export const ChildBadge = ({ state }: { state: ChildState }) => (
  <Badge tone={childTones[state]}>{state === 'backoff' ? 'backing off' : state}</Badge>
);
export const RunBadge = ({ status }: { status: RunStatus }) => (
  <Badge tone={runTones[status]}>{status}</Badge>
);
