import { useState } from 'react';
import { ApiError, send } from '../../api/client.ts';
import { useFeed } from '../../api/feed.ts';
import { grantKinds, keyCalls, listKeys, type Key } from '../../api/keys.ts';

import { Badge } from '../../components/Badge.tsx';
import { Confirm } from '../../components/Confirm.tsx';
import { Curl } from '../../components/Curl.tsx';
import { DataTable, type Column } from '../../components/DataTable.tsx';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { TimeAgo } from '../../components/TimeAgo.tsx';
import { plainText } from '../../components/ansi.ts';
import { formatCount } from '../../format.ts';
import { useLoad, useNow } from '../../hooks.ts';
import { Create } from './Create.tsx';
import './keys.css';

const words = (cause: unknown): string =>
  cause instanceof ApiError ? cause.message : 'Something went wrong';

/** What it is held to, in few words. */
function limitsOf(it: Key): string[] {
  const all = [
    it.ratePerMinute > 0 && `${formatCount(it.ratePerMinute)} requests/min`,
    it.maxJobs > 0 && `${formatCount(it.maxJobs)} jobs at a time`,
    it.tokensPerDay > 0 && `${formatCount(it.tokensPerDay)} tokens/day`,
    it.usdPerDay > 0 && `$${it.usdPerDay.toFixed(2)}/day`,
  ].filter((text) => text !== false);
  return all.length > 0 ? all : ['–'];
}

/** What it may use, in few words. */
function boundTo({ grants }: Key): string {
  if (!grants) return 'all its own';
  const named = grantKinds.flatMap((kind) => {
    const names = grants[kind] ?? [];
    return names.length > 0 ? [`${kind}: ${names.join(', ')}`] : [];
  });
  return named.length > 0 ? named.join('; ') : 'nothing';
}

export default function KeysView() {
  const { status } = useFeed();
  const [cursor, setCursor] = useState<string | null>(null);
  const { data, error, reload } = useLoad((signal) => listKeys(cursor, signal), [cursor]);
  const [revokedToo, setRevokedToo] = useState(false);
  const [creating, setCreating] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const now = useNow(30_000);
  const mine = status?.key?.id ?? null;

  async function revoke(key: Key) {
    setProblem(null);
    try {
      await send(keyCalls.revoke(key.id));
    } catch (cause) {
      setProblem(words(cause));
    }
    reload();
  }

  const columns: Column<Key>[] = [
    {
      title: 'Key',
      head: true,
      cell: (it) => (
        <span className="key-name">
          <span dir="auto">{plainText(it.name)}</span>
          {it.id === mine && <span className="key-mine">the one you use</span>}
          <span className="key-id">{it.id}</span>
        </span>
      ),
    },
    { title: 'Scope', cell: (it) => it.scope },
    {
      title: 'Limits',
      cell: (it) => (
        <span className="key-limits">
          {limitsOf(it).map((text) => (
            <span key={text}>{text}</span>
          ))}
        </span>
      ),
    },
    { title: 'May use', wide: true, cell: (it) => plainText(boundTo(it)) },
    {
      title: 'Created',
      numeric: true,
      cell: (it) => <TimeAgo time={it.createdAt} now={Math.max(now, Date.parse(it.createdAt))} />,
    },
    {
      title: 'State',
      plain: true,
      cell: (it) =>
        it.revokedAt !== null ? (
          <Badge tone="plain">revoked</Badge>
        ) : (
          <span className="key-actions">
            <Confirm label="Revoke" of={it.name} quiet onConfirm={() => void revoke(it)} />
            <Curl call={keyCalls.revoke(it.id)} of={`revoke ${it.name}`} />
          </span>
        ),
    },
  ];

  const forbidden = error?.status === 403;
  const rows = (data?.keys ?? []).filter((it) => revokedToo || it.revokedAt === null);
  return (
    <div className="stack view-keys">
      <div className="page-head">
        <div>
          <h1>Keys</h1>
          <p>Who may call this server, and what each of them may do.</p>
        </div>
        {!forbidden && (
          <div className="head-actions">
            <button type="button" className="button primary" onClick={() => setCreating(true)}>
              New key
            </button>
            <Curl call={keyCalls.list()} of="list keys" />
          </div>
        )}
      </div>
      {status && !status.requireKey && (
        <Notice title="Nobody on this machine is asked for a key">
          Whoever can reach the server from here is its operator. Set <code>require_key</code> in
          cay.json to ask everybody.
        </Notice>
      )}
      {!data && !error && <Loading />}
      {forbidden && (
        <Notice title="This needs a key with the scope admin">
          Yours may do less. On the server’s machine, <code>cay key</code> does the same.
        </Notice>
      )}
      {error && !forbidden && (
        <Notice
          tone="bad"
          title={data ? 'What is shown may be out of date' : 'The keys could not be loaded'}
          action={{ label: 'Try again', run: reload }}
        >
          {error.message}.
        </Notice>
      )}
      {problem !== null && (
        <Notice tone="bad" title="It was not revoked">
          {problem}.
        </Notice>
      )}
      {data && (
        <>
          <div className="card table-card">
            <DataTable
              caption="Keys, newest first"
              columns={columns}
              rows={rows}
              rowKey={(it) => it.id}
              empty="There is none here yet."
            />
          </div>
          <div className="keys-foot">
            <label className="check">
              <input
                type="checkbox"
                checked={revokedToo}
                onChange={(event) => setRevokedToo(event.target.checked)}
              />
              <span>Revoked ones too</span>
            </label>
            {cursor !== null && (
              <button type="button" className="button" onClick={() => setCursor(null)}>
                Newest
              </button>
            )}
            {data.nextCursor !== null && (
              <button type="button" className="button" onClick={() => setCursor(data.nextCursor)}>
                Older
              </button>
            )}
          </div>
        </>
      )}
      {creating && <Create onMade={reload} onClose={() => setCreating(false)} />}
    </div>
  );
}
