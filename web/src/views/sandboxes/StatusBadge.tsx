import type { ExecStatus, SandboxStatus } from '../../api/sandboxes.ts';
import { Badge, type Tone } from '../../components/Badge.tsx';

const tones: Record<SandboxStatus, Tone> = {
  running: 'ok',
  paused: 'warn',
  stopped: 'plain',
  failed: 'bad',
  interrupted: 'warn',
};
const execTones: Record<ExecStatus, Tone> = {
  running: 'busy',
  exited: 'ok',
  interrupted: 'warn',
  failed: 'bad',
};

export const SandboxBadge = ({ status }: { status: SandboxStatus }) => (
  <Badge tone={tones[status]}>{status}</Badge>
);

type ExecLike = { status: ExecStatus; exitCode: number | null; signal: string | null };

export function ExecBadge({ exec }: { exec: ExecLike }) {
  const { status, exitCode, signal } = exec;
  if (status === 'exited' && signal !== null) return <Badge tone="warn">{signal}</Badge>;
  if (status === 'exited' && exitCode !== 0)
    return <Badge tone="bad">{`exit ${exitCode ?? '?'}`}</Badge>;
  return <Badge tone={execTones[status]}>{status === 'exited' ? 'exit 0' : status}</Badge>;
}
