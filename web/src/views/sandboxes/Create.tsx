import { useRef, useState } from 'react';
import { calls, sandboxes } from '../../api/sandboxes.ts';
import { CreateForm, Field, TextField } from '../../components/CreateForm.tsx';
import { Notice } from '../../components/Notice.tsx';
import { formatBytes } from '../../format.ts';
import { useLoad } from '../../hooks.ts';
import { navigate } from '../../router.tsx';
import { bodyOf, emptyForm, maxFilesBytes, readPicked, type File, type Form } from './form.ts';

export function Create({ onClose }: { onClose: () => void }) {
  const [form, setForm] = useState<Form>(emptyForm);
  const [files, setFiles] = useState<File[]>([]);
  const [tooMuch, setTooMuch] = useState<string | null>(null);
  const picking = useRef(0);
  const snapshots = useLoad((signal) => sandboxes.snapshots(signal), []);
  const field = (key: keyof Form) => ({
    value: form[key],
    onChange: (value: string) => setForm((before) => ({ ...before, [key]: value })),
  });

  async function pick(list: FileList | null) {
    const turn = ++picking.current;
    const picked = [...(list ?? [])];
    const bytes = picked.reduce((sum, file) => sum + file.size, 0);
    const fits = bytes <= maxFilesBytes;
    setTooMuch(
      fits
        ? null
        : `These files are ${formatBytes(bytes)}; at most ${formatBytes(maxFilesBytes)} can be sent ` +
            'with the request. Upload them when the sandbox runs.',
    );
    const read = fits ? await readPicked(picked) : [];
    if (turn === picking.current) setFiles(read);
  }

  return (
    <CreateForm
      title="New sandbox"
      failed="The sandbox was not created"
      body={tooMuch ?? bodyOf(form, files)}
      create={async (body) =>
        navigate(`/sandboxes/${encodeURIComponent((await sandboxes.create(body)).id)}`)
      }
      call={calls.create}
      of="create"
      onClose={onClose}
    >
      <Field label="Name" {...field('name')} />
      <Field label="Root (none: the host’s /usr)" {...field('root')} />
      <label>
        <span>From a snapshot</span>
        <select
          value={form.snapshot}
          onChange={(event) => field('snapshot').onChange(event.target.value)}
        >
          <option value="">an empty disk</option>
          {(snapshots.data ?? []).map((item) => (
            <option key={item.id} value={item.id}>
              {item.name || item.id}
            </option>
          ))}
        </select>
      </label>
      <Field
        label="Ends after, seconds (none: the server’s)"
        numeric="numeric"
        {...field('timeoutS')}
      />
      <Field label="Memory, MiB (none: the server’s)" numeric="numeric" {...field('memoryMb')} />
      <Field label="Disk, MiB (none: the server’s)" numeric="numeric" {...field('diskMb')} />
      <TextField
        label="Hosts it may reach, one per line (none: no network)"
        wide
        {...field('allow')}
      />
      <TextField label="Environment, one NAME=value per line" wide {...field('env')} />
      <label className="wide">
        <span>Files for /work</span>
        <input type="file" multiple onChange={(event) => void pick(event.target.files)} />
      </label>
      {tooMuch !== null && (
        <div className="wide">
          <Notice tone="bad" title="That is too much at once">
            {tooMuch}
          </Notice>
        </div>
      )}
    </CreateForm>
  );
}
