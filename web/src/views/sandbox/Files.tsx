import { useEffect, useRef, useState } from 'react';
import { ApiError, send } from '../../api/client.ts';
import { calls, joinPath, sandboxes, type Entry } from '../../api/sandboxes.ts';
import type { Call } from '../../curl.ts';
import { plainText } from '../../components/ansi.ts';
import { Confirm } from '../../components/Confirm.tsx';
import { Curl } from '../../components/Curl.tsx';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { formatBytes, formatTime } from '../../format.ts';
import { useLoad } from '../../hooks.ts';
import { readKept, writeKept } from '../../kept.ts';
import { asText } from './text.ts';
import { upload } from './upload.ts';

/** More is downloaded rather than edited in a page. */
export const maxEditBytes = 512 * 1024;

const home = '/work';
const message = (cause: unknown) =>
  cause instanceof ApiError ? cause.message : 'Something went wrong';

/** What an answer of the server means for the person who waits for it. */
const uploadProblem = (cause: unknown): string =>
  /no space|is full/i.test(message(cause))
    ? 'The disk of the sandbox is full: delete something, or make one with a larger disk'
    : message(cause);

type Sending = { name: string; part: number; stop: () => void };
type Naming =
  { what: 'folder' | 'file'; name: string } | { what: 'rename'; name: string; of: string };

export function Files({ id, live, paused }: { id: string; live: boolean; paused: boolean }) {
  const [dir, setDir] = useState(home);
  const [open, setOpen] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [naming, setNaming] = useState<Naming | null>(null);
  const [sending, setSending] = useState<Sending | null>(null);
  const [over, setOver] = useState(false);
  const usable = live && !paused;
  const { data, error, reload } = useLoad(
    async (signal) => (usable ? sandboxes.files(id, dir, signal) : null),
    [id, dir, usable],
  );

  /** Does it, shows what is there then, or says why not. */
  async function act(what: () => Promise<unknown>) {
    try {
      setProblem(null);
      await what();
    } catch (cause) {
      setProblem(message(cause));
    }
    reload();
  }

  async function sendAll(files: readonly File[]) {
    setProblem(null);
    for (const file of files) {
      const abort = new AbortController();
      const show = (part: number) =>
        setSending({ name: file.name, part, stop: () => abort.abort() });
      show(0);
      try {
        await upload(id, dir, file, show, abort.signal);
      } catch (cause) {
        setProblem(`${plainText(file.name)} was not uploaded: ${uploadProblem(cause)}.`);
        break;
      }
    }
    setSending(null);
    reload();
  }

  function enter(path: string) {
    setOpen(null);
    setProblem(null);
    setDir(path);
  }

  function named() {
    if (!naming || naming.name === '') return;
    const path = joinPath(dir, naming.name);
    setNaming(null);
    if (naming.what === 'folder') void act(() => send(calls.mkdir(id, path)));
    else if (naming.what === 'rename') void act(() => send(calls.move(id, naming.of, path)));
    else if (data?.entries.some(({ name }) => name === naming.name))
      setProblem(`There is a ${plainText(naming.name)} already.`);
    else
      void act(async () => {
        await sandboxes.writeFile(id, path, '');
        setOpen(path);
      });
  }

  if (!live) return <p className="panel-empty">Its files can be seen while it runs.</p>;
  if (paused)
    return <p className="panel-empty">It is paused: its files can be seen when it goes on.</p>;

  return (
    <div
      className="files"
      data-over={over || undefined}
      onDragOver={(event) => {
        if (!event.dataTransfer.types.includes('Files')) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void sendAll([...event.dataTransfer.files]);
      }}
    >
      <div className="files-bar">
        <Crumbs dir={dir} onEnter={enter} />
        <div className="files-actions">
          <button type="button" className="button quiet" onClick={reload}>
            Refresh
          </button>
          <Curl call={calls.listFiles(id, dir)} of={`list ${dir}`} />
          <label className="button file-button">
            Upload
            <input
              type="file"
              multiple
              className="visually-hidden"
              onChange={(event) => {
                const picked = [...(event.target.files ?? [])];
                event.target.value = '';
                void sendAll(picked);
              }}
            />
          </label>
          <Curl call={calls.writeFile(id, joinPath(dir, 'FILE'), 'FILE')} of="upload" />
          <button
            type="button"
            className="button"
            onClick={() => setNaming({ what: 'file', name: '' })}
          >
            New file
          </button>
          <button
            type="button"
            className="button"
            onClick={() => setNaming({ what: 'folder', name: '' })}
          >
            New folder
          </button>
          <a className="button" href={calls.tar(id, dir, '').path} download={`${base(dir)}.tar`}>
            Download all
          </a>
          <Curl call={calls.tar(id, dir, `${base(dir)}.tar`)} of="download as an archive" />
        </div>
      </div>
      {sending && (
        <div className="upload">
          <span>Uploading {plainText(sending.name)}</span>
          <progress aria-label={`Upload of ${plainText(sending.name)}`} value={sending.part} />
          <span>{Math.floor(sending.part * 100)} %</span>
          <button type="button" className="button quiet" onClick={sending.stop}>
            Stop the upload
          </button>
        </div>
      )}
      {naming !== null && (
        <NameForm
          naming={naming}
          onChange={(name) => setNaming({ ...naming, name })}
          onDone={named}
          onCancel={() => setNaming(null)}
          call={
            naming.what === 'folder'
              ? calls.mkdir(id, joinPath(dir, naming.name || 'NAME'))
              : naming.what === 'rename'
                ? calls.move(id, naming.of, joinPath(dir, naming.name || 'NAME'))
                : calls.writeFile(id, joinPath(dir, naming.name || 'NAME'), 'FILE')
          }
        />
      )}
      {problem !== null && <Notice tone="bad" title={problem} />}
      {!data && !error && <Loading />}
      {error && (
        <Notice
          tone="bad"
          title="It could not be read"
          action={{ label: 'Try again', run: reload }}
        >
          {error.message}.
        </Notice>
      )}
      {data && (
        <ul className="file-list">
          {data.entries.map((entry) => (
            <Row
              key={entry.name}
              id={id}
              path={joinPath(dir, entry.name)}
              entry={entry}
              isOpen={open === joinPath(dir, entry.name)}
              onEnter={enter}
              onOpen={setOpen}
              onRename={(path) => setNaming({ what: 'rename', name: entry.name, of: path })}
              onRemove={(path) => {
                if (open === path) setOpen(null);
                void act(() => send(calls.removeFile(id, path, entry.kind === 'dir')));
              }}
            />
          ))}
        </ul>
      )}
      {data?.entries.length === 0 && (
        <p className="panel-empty">This folder is empty. Files can be dropped here.</p>
      )}
      {data?.more && <p className="panel-empty">There is more than is shown here.</p>}
      {open !== null && <FileText key={open} id={id} path={open} onSaved={reload} />}
    </div>
  );
}

type NameProps = {
  naming: Naming;
  call: Call;
  onChange: (name: string) => void;
  onDone: () => void;
  onCancel: () => void;
};

function NameForm({ naming, call, onChange, onDone, onCancel }: NameProps) {
  const label =
    naming.what === 'rename'
      ? `New name of ${plainText(base(naming.of))}`
      : `Name of the new ${naming.what}`;
  return (
    <form
      className="inline-form fields"
      onSubmit={(event) => {
        event.preventDefault();
        onDone();
      }}
    >
      <input
        autoFocus
        aria-label={label}
        placeholder={label}
        value={naming.name}
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={(event) => event.key === 'Escape' && onCancel()}
      />
      <button type="submit" className="button primary">
        {naming.what === 'rename' ? 'Rename' : 'Make'}
      </button>
      <Curl call={call} of={label} />
      <button type="button" className="button quiet" onClick={onCancel}>
        Cancel
      </button>
    </form>
  );
}

const base = (path: string): string => path.split('/').filter(Boolean).at(-1) ?? 'root';

function Crumbs({ dir, onEnter }: { dir: string; onEnter: (path: string) => void }) {
  const parts = dir.split('/').filter(Boolean);
  return (
    <nav className="crumbs" aria-label="Folder">
      <button type="button" className="crumb-button" onClick={() => onEnter('/')}>
        /
      </button>
      {parts.map((part, at) => (
        <button
          type="button"
          className="crumb-button"
          key={at}
          {...(at === parts.length - 1 ? { 'aria-current': 'location' as const } : {})}
          onClick={() => onEnter(`/${parts.slice(0, at + 1).join('/')}`)}
        >
          {plainText(part)}
          <span aria-hidden="true">/</span>
        </button>
      ))}
    </nav>
  );
}

type RowProps = {
  id: string;
  path: string;
  entry: Entry;
  isOpen: boolean;
  onEnter: (path: string) => void;
  onOpen: (path: string | null) => void;
  onRename: (path: string) => void;
  onRemove: (path: string) => void;
};

function Row({ id, path, entry, isOpen, onEnter, onOpen, onRename, onRemove }: RowProps) {
  const name = plainText(entry.name);
  const isDir = entry.kind === 'dir';
  const download = isDir ? calls.tar(id, path, `${entry.name}.tar`) : calls.readFile(id, path);
  return (
    <li>
      <button
        type="button"
        className="file-name"
        aria-expanded={isDir ? undefined : isOpen}
        disabled={entry.kind === 'other'}
        onClick={() => (isDir ? onEnter(path) : onOpen(isOpen ? null : path))}
      >
        {name}
        {isDir ? '/' : entry.kind === 'link' ? ' →' : entry.kind === 'other' ? ' (no file)' : ''}
      </button>
      <span className="file-fact mono">{entry.mode}</span>
      <span className="file-fact">{entry.kind === 'file' ? formatBytes(entry.size) : ''}</span>
      <span className="file-fact file-time">{formatTime(entry.mtime)}</span>
      <span className="file-row-actions">
        {entry.kind !== 'other' && (
          <>
            <a
              className="button quiet"
              href={download.path}
              download={isDir ? `${entry.name}.tar` : entry.name}
              aria-label={`Download ${name}`}
            >
              Download
            </a>
            <Curl call={{ ...download, to: download.to ?? entry.name }} of={`download ${name}`} />
          </>
        )}
        <button
          type="button"
          className="button quiet"
          aria-label={`Rename ${name}`}
          onClick={() => onRename(path)}
        >
          Rename
        </button>
        <Confirm label="Delete" of={name} quiet onConfirm={() => onRemove(path)} />
        <Curl call={calls.removeFile(id, path, isDir)} of={`delete ${name}`} />
      </span>
    </li>
  );
}

type TextProps = { id: string; path: string; onSaved: () => void };

/** A small text file: read, changed, written back. */
function FileText({ id, path, onSaved }: TextProps) {
  const [text, setText] = useState<string | null>(null);
  const [saved, setSaved] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const draft = `file ${id} ${path}`;
  const latest = useRef<string | null>(null);
  latest.current = text;

  function change(next: string) {
    setText(next);
    writeKept(draft, next === saved ? null : next);
  }

  useEffect(() => {
    const abort = new AbortController();
    sandboxes.readFile(id, path, maxEditBytes, abort.signal).then(
      (bytes) => {
        if (bytes === null)
          return setProblem(`It is larger than ${formatBytes(maxEditBytes)}: download it instead.`);
        const read = asText(bytes);
        if (read === null) return setProblem('It is not text: download it instead.');
        setSaved(read);
        return setText(readKept(draft) ?? read);
      },
      (cause: unknown) => {
        if (!abort.signal.aborted) setProblem(message(cause));
      },
    );
    return () => abort.abort();
  }, [id, path]);

  async function save() {
    if (text === null) return;
    setBusy(true);
    setProblem(null);
    try {
      await sandboxes.writeFile(id, path, text);
      setSaved(text);
      // What was typed while it was being saved is not saved yet.
      if (latest.current === text) writeKept(draft, null);
      onSaved();
    } catch (cause) {
      setProblem(message(cause));
    }
    setBusy(false);
  }

  return (
    <section className="file-text fields" aria-label={plainText(path)}>
      <h2 className="mono">{plainText(path)}</h2>
      {problem !== null && <Notice tone="warn" title={problem} />}
      {text === null && problem === null && <Loading />}
      {text !== null && (
        <>
          <textarea
            aria-label={`Text of ${plainText(path)}`}
            rows={Math.min(24, Math.max(6, text.split('\n').length + 1))}
            spellCheck={false}
            value={text}
            onChange={(event) => change(event.target.value)}
            onKeyDown={(event) => {
              if (event.key !== 's' || !(event.ctrlKey || event.metaKey)) return;
              event.preventDefault();
              void save();
            }}
          />
          <div className="file-save">
            <button
              type="button"
              className="button primary"
              disabled={busy || text === saved}
              onClick={() => void save()}
            >
              {text === saved ? 'Saved' : 'Save'}
            </button>
            {text !== saved && saved !== null && (
              <button type="button" className="button quiet" onClick={() => change(saved)}>
                Back to what is there
              </button>
            )}
            <Curl call={calls.writeFile(id, path, 'FILE')} of="save" />
          </div>
        </>
      )}
    </section>
  );
}
