import { useEffect, useState } from 'react';
import { ApiError } from '../../api/client.ts';
import { calls, joinPath, sandboxes, send, type Entry } from '../../api/sandboxes.ts';
import { plainText } from '../../components/ansi.ts';
import { Confirm } from '../../components/Confirm.tsx';
import { Curl } from '../../components/Curl.tsx';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { formatBytes, formatTime } from '../../format.ts';
import { useLoad } from '../../hooks.ts';
import { asText } from './text.ts';

/** More is downloaded rather than edited in a page. */
export const maxEditBytes = 512 * 1024;

const home = '/work';
const message = (cause: unknown) =>
  cause instanceof ApiError ? cause.message : 'Something went wrong';

export function Files({ id, live }: { id: string; live: boolean }) {
  const [dir, setDir] = useState(home);
  const [open, setOpen] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [folder, setFolder] = useState<string | null>(null);
  const { data, error, reload } = useLoad(
    async (signal) => (live ? sandboxes.files(id, dir, signal) : { entries: [], more: false }),
    [id, dir, live],
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

  function enter(path: string) {
    setOpen(null);
    setProblem(null);
    setDir(path);
  }

  if (!live) return <p className="panel-empty">Its files can be seen while it runs.</p>;

  return (
    <div className="files">
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
                void act(async () => {
                  for (const file of picked)
                    await sandboxes.writeFile(id, joinPath(dir, file.name), file);
                });
              }}
            />
          </label>
          <Curl call={calls.writeFile(id, joinPath(dir, 'FILE'), 'FILE')} of="upload" />
          <button type="button" className="button" onClick={() => setFolder(folder ?? '')}>
            New folder
          </button>
          <a className="button" href={calls.tar(id, dir, '').path} download={`${base(dir)}.tar`}>
            Download all
          </a>
          <Curl call={calls.tar(id, dir, `${base(dir)}.tar`)} of="download as an archive" />
        </div>
      </div>
      {folder !== null && (
        <form
          className="inline-form fields"
          onSubmit={(event) => {
            event.preventDefault();
            if (folder === '') return;
            void act(() => send(calls.mkdir(id, joinPath(dir, folder))));
            setFolder(null);
          }}
        >
          <input
            autoFocus
            aria-label="Name of the new folder"
            value={folder}
            onChange={(event) => setFolder(event.target.value)}
            onKeyDown={(event) => event.key === 'Escape' && setFolder(null)}
          />
          <button type="submit" className="button primary">
            Make
          </button>
          <Curl call={calls.mkdir(id, joinPath(dir, folder || 'NAME'))} of="make a folder" />
        </form>
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
              onRemove={(path) => {
                if (open === path) setOpen(null);
                void act(() => send(calls.removeFile(id, path, entry.kind === 'dir')));
              }}
            />
          ))}
        </ul>
      )}
      {data?.entries.length === 0 && <p className="panel-empty">This folder is empty.</p>}
      {data?.more && <p className="panel-empty">There is more than is shown here.</p>}
      {open !== null && <FileText key={open} id={id} path={open} onSaved={reload} />}
    </div>
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
  onRemove: (path: string) => void;
};

function Row({ id, path, entry, isOpen, onEnter, onOpen, onRemove }: RowProps) {
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
        {isDir ? '/' : entry.kind === 'link' ? ' →' : ''}
      </button>
      <span className="file-fact mono">{entry.mode}</span>
      <span className="file-fact">{isDir ? '' : formatBytes(entry.size)}</span>
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

  useEffect(() => {
    const abort = new AbortController();
    sandboxes.readFile(id, path, maxEditBytes, abort.signal).then(
      (bytes) => {
        if (bytes === null)
          return setProblem(`It is larger than ${formatBytes(maxEditBytes)}: download it instead.`);
        const read = asText(bytes);
        if (read === null) return setProblem('It is not text: download it instead.');
        setSaved(read);
        return setText(read);
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
      onSaved();
    } catch (cause) {
      setProblem(message(cause));
    }
    setBusy(false);
  }

  return (
    <section className="file-text fields" aria-label={plainText(path)}>
      <h3 className="mono">{plainText(path)}</h3>
      {problem !== null && <Notice tone="warn" title={problem} />}
      {text === null && problem === null && <Loading />}
      {text !== null && (
        <>
          <textarea
            aria-label={`Text of ${plainText(path)}`}
            rows={Math.min(24, Math.max(6, text.split('\n').length + 1))}
            spellCheck={false}
            value={text}
            onChange={(event) => setText(event.target.value)}
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
            <Curl call={calls.writeFile(id, path, 'FILE')} of="save" />
          </div>
        </>
      )}
    </section>
  );
}
