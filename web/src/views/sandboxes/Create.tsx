import { useRef, useState } from 'react';
import { ApiError } from '../../api/client.ts';
import { calls, sandboxes } from '../../api/sandboxes.ts';
import { Curl } from '../../components/Curl.tsx';
import { Dialog } from '../../components/Dialog.tsx';
import { Notice } from '../../components/Notice.tsx';
import { formatBytes } from '../../format.ts';
import { useLoad } from '../../hooks.ts';
import { navigate } from '../../router.tsx';
import { bodyOf, emptyForm, maxFilesBytes, readPicked, type File, type Form } from './form.ts';

export function Create({ onClose }: { onClose: () => void }) {
  const [form, setForm] = useState<Form>(emptyForm);
  const [files, setFiles] = useState<File[]>([]);
  const [wrong, setWrong] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const picking = useRef(0);
  const snapshots = useLoad((signal) => sandboxes.snapshots(signal), []);
  const body = bodyOf(form, files);
  const change = (part: Partial<Form>) => setForm((before) => ({ ...before, ...part }));

  async function pick(list: FileList | null) {
    const turn = ++picking.current;
    const picked = [...(list ?? [])];
    const bytes = picked.reduce((sum, file) => sum + file.size, 0);
    if (bytes > maxFilesBytes) {
      setFiles([]);
      return setWrong(
        `These files are ${formatBytes(bytes)}; at most ${formatBytes(maxFilesBytes)} can be sent ` +
          'with the request. Upload the rest when the sandbox runs.',
      );
    }
    setWrong(null);
    const read = await readPicked(picked);
    if (turn === picking.current) setFiles(read);
    return undefined;
  }

  async function create() {
    if (typeof body === 'string') return setWrong(body);
    setBusy(true);
    setWrong(null);
    try {
      const made = await sandboxes.create(body);
      return navigate(`/sandboxes/${encodeURIComponent(made.id)}`);
    } catch (cause) {
      setBusy(false);
      return setWrong(cause instanceof ApiError ? cause.message : 'Something went wrong');
    }
  }

  const input = (key: keyof Form, label: string, placeholder: string, numeric = false) => (
    <label>
      <span>{label}</span>
      <input
        {...(numeric ? { inputMode: 'numeric' as const } : {})}
        placeholder={placeholder}
        value={form[key]}
        onChange={(event) => change({ [key]: event.target.value })}
      />
    </label>
  );

  return (
    <Dialog title="New sandbox" onClose={onClose}>
      <form
        className="create-form fields"
        onSubmit={(event) => {
          event.preventDefault();
          void create();
        }}
      >
        {input('name', 'Name', '')}
        {input('root', 'Root (none: the host’s /usr)', '')}
        <label>
          <span>From a snapshot</span>
          <select
            value={form.snapshot}
            onChange={(event) => change({ snapshot: event.target.value })}
          >
            <option value="">an empty disk</option>
            {(snapshots.data ?? []).map((item) => (
              <option key={item.id} value={item.id}>
                {item.name || item.id}
              </option>
            ))}
          </select>
        </label>
        {input('memoryMb', 'Memory, MiB (none: the server’s)', '', true)}
        {input('diskMb', 'Disk, MiB (none: the server’s)', '', true)}
        {input('timeoutS', 'Ends after, seconds (none: the server’s)', '', true)}
        <label className="wide">
          <span>Hosts it may reach, one per line (none: no network)</span>
          <textarea
            rows={2}
            spellCheck={false}
            placeholder="packages.example.org"
            value={form.allow}
            onChange={(event) => change({ allow: event.target.value })}
          />
        </label>
        <label className="wide">
          <span>Environment, one NAME=value per line</span>
          <textarea
            rows={2}
            spellCheck={false}
            value={form.env}
            onChange={(event) => change({ env: event.target.value })}
          />
        </label>
        <label className="wide">
          <span>Files for /work</span>
          <input type="file" multiple onChange={(event) => void pick(event.target.files)} />
        </label>
        {wrong !== null && (
          <div className="wide">
            <Notice tone="bad" title="The sandbox was not created">
              {wrong}
            </Notice>
          </div>
        )}
        <div className="wide create-actions">
          <button type="submit" className="button primary" disabled={busy}>
            {busy ? 'Creating…' : 'Create'}
          </button>
          {typeof body !== 'string' && <Curl call={calls.create(body)} of="create" />}
        </div>
      </form>
    </Dialog>
  );
}
