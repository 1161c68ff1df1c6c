import { api } from '../../api/client.ts';
import { useFeed } from '../../api/feed.ts';
import type { Feature, Status } from '../../api/types.ts';
import { Badge } from '../../components/Badge.tsx';
import { Facts } from '../../components/Facts.tsx';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { RunTable } from '../../components/RunTable.tsx';
import { Section } from '../../components/Section.tsx';
import { formatAge } from '../../format.ts';
import { useLoad, useNow } from '../../hooks.ts';
import { Link } from '../../router.tsx';
import { Children } from './Children.tsx';
import { Features } from './Features.tsx';
import { Load } from './Load.tsx';
import './status.css';

const healthEveryMs = 10_000;
const runsEveryMs = 5_000;
const runsShown = 8;

export default function StatusView() {
  const { connection, status, rates } = useFeed();
  // Ask again at once when the connection comes back.
  const lost = connection.state === 'lost';
  const health = useLoad((signal) => api.health(signal), [lost], lost ? null : healthEveryMs);
  const healthy = health.data?.status === 'healthy' && !health.error && !lost;

  return (
    <div className="stack view-status" data-stale={lost || undefined}>
      <div className="page-head">
        <h1>Status</h1>
        <p>{status ? summary(status.features) : 'Waiting for the server.'}</p>
      </div>
      {!status && !lost && <Loading what="Connecting" />}
      {status && (
        <>
          <Section title="Server">
            <Facts
              facts={[
                ['Health', <Health healthy={healthy} word={healthWord(health, lost)} />],
                ['Version', status.version || '–'],
                ['Uptime', formatAge(status.uptimeMs)],
                ['Address', <Addresses listen={status.listen} />],
                ['Model', modelName(status.model)],
                ['Access', access(status)],
                ['Process', status.pid === null ? '–' : `pid ${status.pid}`],
                ['Data', <span className="mono">{status.dataDir || '–'}</span>],
              ]}
            />
          </Section>
          <Load status={status} rates={rates} />
          <Features features={status.features} />
          <Children items={status.children} />
        </>
      )}
      <RecentRuns paused={lost} />
    </div>
  );
}

function summary(features: readonly Feature[]): string {
  const missing = features.filter((feature) => feature.status === 'missing').length;
  const degraded = features.filter((feature) => feature.status === 'degraded').length;
  if (missing + degraded === 0) return 'Everything that keeps programs apart is in place.';
  const parts = [];
  if (missing > 0) parts.push(`${missing} missing`);
  if (degraded > 0) parts.push(`${degraded} degraded`);
  return `Isolation is weaker than it could be: ${parts.join(', ')}.`;
}

function healthWord(health: { data: { status: string } | null; error: unknown }, lost: boolean) {
  if (lost || health.error) return 'unreachable';
  return health.data?.status ?? 'checking';
}

function Health({ healthy, word }: { healthy: boolean; word: string }) {
  const tone = healthy ? 'ok' : word === 'checking' ? 'plain' : 'bad';
  return <Badge tone={tone}>{word}</Badge>;
}

function Addresses({ listen }: { listen: readonly string[] }) {
  if (listen.length === 0) return '–';
  return listen.map((address) => (
    <span key={address} className="address mono">
      {address}
    </span>
  ));
}

function modelName({ provider, name }: Status['model']): string {
  if (!name) return 'none';
  return provider && provider !== name ? `${name} (${provider})` : name;
}

function access({ requireKey, key }: Status): string {
  if (key) return `key “${key.name || key.id}”`;
  return requireKey ? 'key required' : 'open to this machine';
}

function RecentRuns({ paused }: { paused: boolean }) {
  const interval = paused ? null : runsEveryMs;
  const { data, error, reload } = useLoad(
    (signal) => api.runs({ limit: runsShown, signal }),
    [],
    interval,
  );
  const now = useNow(paused ? null : 1000);
  return (
    <Section title="Recent runs" flush aside={<Link to="/runs">All runs</Link>}>
      {data && <RunTable runs={data.runs} now={now} />}
      {!data && !error && <p className="table-empty">Loading…</p>}
      {!data && error && !paused && (
        <div className="runs-error">
          <Notice
            tone="bad"
            title="The runs could not be loaded"
            action={{ label: 'Try again', run: reload }}
          >
            {error.message}.
          </Notice>
        </div>
      )}
      {!data && error && paused && <p className="table-empty">Not known while offline.</p>}
    </Section>
  );
}
