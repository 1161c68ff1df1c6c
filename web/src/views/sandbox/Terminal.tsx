import { FitAddon } from '@xterm/addon-fit';
import { Terminal as Xterm, type ITheme } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';
import { useCallback, useEffect, useRef, useState } from 'react';
import { backoffMs } from '../../api/backoff.ts';
import { ApiError, send } from '../../api/client.ts';
import { calls, sandboxes, type Exec } from '../../api/sandboxes.ts';
import { useMedia } from '../../hooks.ts';
import { readKept, writeKept } from '../../kept.ts';
import { letSpansBeStyled, TerminalDocument } from './terminalDocument.ts';
import { shellBody, shellCommand } from './shell.ts';
import { Tty, type TtyState } from './tty.ts';

letSpansBeStyled();

const color = (name: string) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A token is light-dark(a, b), which a canvas of its own must be told apart. */
function pick(name: string, dark: boolean): string {
  const pair = /^light-dark\((.+),\s*(.+)\)$/.exec(color(name));
  return pair ? (pair[dark ? 2 : 1] ?? '') : color(name);
}

function themeOf(dark: boolean): ITheme {
  const ink = pick('--ink', dark);
  return {
    background: pick('--raised', dark),
    foreground: ink,
    cursor: pick('--accent', dark),
    cursorAccent: pick('--raised', dark),
    selectionBackground: `${pick('--accent', dark)}55`,
    scrollbarSliderBackground: `${pick('--ink-faint', dark)}66`,
    scrollbarSliderHoverBackground: `${pick('--ink-faint', dark)}aa`,
    scrollbarSliderActiveBackground: pick('--ink-faint', dark),
    ...(dark
      ? {
          black: '#3a444a',
          red: '#ec7562',
          green: '#7fc58f',
          yellow: '#e0ae4c',
          blue: '#8dc0f0',
          magenta: '#d79be0',
          cyan: '#6fcdc8',
          white: '#d5d3cd',
          brightBlack: '#8d979a',
          brightRed: '#f29585',
          brightGreen: '#a5cf83',
          brightYellow: '#e8bf6e',
          brightBlue: '#acd2f6',
          brightMagenta: '#e4b8ea',
          brightCyan: '#97e0dc',
          brightWhite: '#f4f2ec',
        }
      : {
          // The usual colours are made for a dark ground.
          black: '#1f2729',
          red: '#b3341f',
          green: '#2c7a43',
          yellow: '#8a5d0a',
          blue: '#1f5f9e',
          magenta: '#8a3a8f',
          cyan: '#0f6a6b',
          white: '#5c6567',
          brightBlack: '#6d7779',
          brightRed: '#c8432f',
          brightGreen: '#2f8f4e',
          brightYellow: '#a06e10',
          brightBlue: '#2f74b8',
          brightMagenta: '#9f4ca4',
          brightCyan: '#1a7f80',
          brightWhite: '#1f2729',
        }),
  };
}

/** Whether the page is dark now, by its own switch or by the system's. */
function useDark(): boolean {
  const system = useMedia('(prefers-color-scheme: dark)');
  const [theme, setTheme] = useState(document.documentElement.dataset.theme);
  useEffect(() => {
    const watch = new MutationObserver(() => setTheme(document.documentElement.dataset.theme));
    watch.observe(document.documentElement, { attributeFilter: ['data-theme'] });
    return () => watch.disconnect();
  }, []);
  return theme ? theme === 'dark' : system;
}

/** Those that run already, which a page that comes back, or another one, attaches to. */
async function findShells(id: string, signal: AbortSignal): Promise<Exec[]> {
  const all = await sandboxes.execs(id, signal);
  return all
    .filter((it) => it.tty && it.status === 'running' && it.command === shellCommand)
    .reverse();
}

type Shells = {
  list: readonly Exec[];
  /** null while none is known yet. */
  current: Exec | null;
  problem: string | null;
  choose: (shell: Exec) => void;
  add: () => void;
  drop: (shell: Exec) => void;
  /** It goes with the next that is started. */
  ended: (shell: Exec) => void;
};

const firstSize = { cols: 80, rows: 24 };

/** The shells of a sandbox: one is started only if there is none. */
function useShells(id: string, usable: boolean): Shells {
  const [list, setList] = useState<readonly Exec[]>([]);
  const [chosen, setChosen] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const begun = useRef(false);
  const over = useRef(new Set<string>());

  const add = useCallback(async () => {
    try {
      setProblem(null);
      const made = await sandboxes.start(id, shellBody(firstSize.cols, firstSize.rows));
      setList((before) => [...before.filter((it) => !over.current.has(it.id)), made]);
      setChosen(made.id);
    } catch (cause) {
      setProblem(cause instanceof ApiError ? cause.message : 'Something went wrong');
    }
  }, [id]);

  useEffect(() => {
    if (!usable || begun.current) return;
    const abort = new AbortController();
    findShells(id, abort.signal).then(
      (found) => {
        if (abort.signal.aborted) return;
        begun.current = true;
        setProblem(null);
        setList(found);
        if (found.length === 0) void add();
      },
      (cause: unknown) => {
        if (!abort.signal.aborted)
          setProblem(cause instanceof ApiError ? cause.message : 'Something went wrong');
      },
    );
    return () => abort.abort();
  }, [id, usable, add]);

  const drop = (shell: Exec) => {
    setList((before) => before.filter((it) => it.id !== shell.id));
    // One that ignores it is ended the hard way by whoever looks at the commands.
    send(calls.signal(id, shell.id, 'HUP')).catch(() => {});
  };
  return {
    list,
    current: list.find((it) => it.id === chosen) ?? list[0] ?? null,
    problem,
    choose: (shell) => setChosen(shell.id),
    add: () => void add(),
    drop,
    ended: (shell) => over.current.add(shell.id),
  };
}

type Props = { id: string; live: boolean; paused: boolean };

const readerKey = 'screen-reader';

/** The terminals of a sandbox. */
export default function Terminal({ id, live, paused }: Props) {
  const shells = useShells(id, live && !paused);
  const [full, setFull] = useState(false);
  const [reader, setReader] = useState(() => readKept(readerKey) === '1');
  const { list, current } = shells;
  return (
    <div className="terminal-frame" data-full={full || undefined}>
      <div className="terminal-bar" role="group" aria-label="Shells">
        {list.map((shell, at) => (
          <button
            key={shell.id}
            type="button"
            className="button quiet"
            aria-pressed={shell === current}
            onClick={() => shells.choose(shell)}
          >
            Shell {at + 1}
          </button>
        ))}
        <button
          type="button"
          className="button quiet terminal-leave"
          disabled={!live || paused}
          onClick={shells.add}
        >
          New shell
        </button>
        {current && list.length > 1 && (
          <button type="button" className="button quiet" onClick={() => shells.drop(current)}>
            Close this one
          </button>
        )}
        <span className="terminal-bar-end">
          <button
            type="button"
            className="button quiet"
            aria-pressed={reader}
            onClick={() => {
              writeKept(readerKey, reader ? null : '1');
              setReader(!reader);
            }}
          >
            Screen reader
          </button>
          <button
            type="button"
            className="button quiet"
            aria-pressed={full}
            onClick={() => setFull(!full)}
          >
            Full screen
          </button>
        </span>
      </div>
      {current ? (
        <Screen
          key={`${current.id} ${reader ? 'read' : ''}`}
          id={id}
          shell={current}
          live={live}
          paused={paused}
          reader={reader}
          onEnded={() => shells.ended(current)}
        />
      ) : (
        <p className="terminal-line" role="status">
          {paused
            ? 'The sandbox is paused: resume it to have a shell.'
            : (shells.problem ?? (live ? 'Connecting…' : 'It has ended.'))}
        </p>
      )}
    </div>
  );
}

/** What a phone's keyboard lacks; Ctrl holds for the next key. */
const touchKeys = [
  ['Esc', '\x1b'],
  ['Tab', '\t'],
  ['↑', '\x1b[A'],
  ['↓', '\x1b[B'],
  ['←', '\x1b[D'],
  ['→', '\x1b[C'],
  ['|', '|'],
  ['~', '~'],
  ['/', '/'],
  ['-', '-'],
] as const;
const keyNames: Record<string, string> = {
  '↑': 'Up',
  '↓': 'Down',
  '←': 'Left',
  '→': 'Right',
  '|': 'Pipe',
  '~': 'Tilde',
  '/': 'Slash',
  '-': 'Minus',
};

type ScreenProps = Props & { shell: Exec; reader: boolean; onEnded: () => void };

/** One shell on the screen. Its line is made again when it is lost. */
function Screen({ id, shell, live, paused, reader, onEnded }: ScreenProps) {
  const host = useRef<HTMLDivElement>(null);
  const term = useRef<Xterm | null>(null);
  const line = useRef<Tty | null>(null);
  const [state, setState] = useState<TtyState>('connecting');
  const [ended, setEnded] = useState<Exec | null>(null);
  const [turn, setTurn] = useState(0);
  const attempts = useRef(0);
  const ctrl = useRef(false);
  const [ctrlHeld, setCtrlHeld] = useState(false);
  const dark = useDark();
  const firstTheme = useRef(dark);

  const hold = (on: boolean) => {
    ctrl.current = on;
    setCtrlHeld(on);
  };

  const typed = (text: string) => {
    if (!ctrl.current || text.length !== 1) return line.current?.write(text);
    hold(false);
    return line.current?.write(String.fromCharCode(text.toUpperCase().charCodeAt(0) & 0x1f));
  };
  const latestTyped = useRef(typed);
  latestTyped.current = typed;

  useEffect(() => {
    if (!host.current) return;
    const made = new TerminalDocument(document);
    const xterm = new Xterm({
      documentOverride: made.it,
      fontFamily: color('--mono'),
      fontSize: 13,
      lineHeight: 1.2,
      cursorBlink: true,
      scrollback: 5000,
      screenReaderMode: reader,
      theme: themeOf(firstTheme.current),
    });
    const fit = new FitAddon();
    xterm.loadAddon(fit);
    xterm.open(host.current);
    // A way out for those without a mouse: Tab belongs to the shell in here.
    xterm.attachCustomKeyEventHandler((event) => {
      if (event.type !== 'keydown' || event.key !== 'Escape' || !event.ctrlKey) return true;
      host.current
        ?.closest('.terminal-frame')
        ?.querySelector<HTMLElement>('.terminal-leave')
        ?.focus();
      return false;
    });
    term.current = xterm;
    const size = new ResizeObserver(() => {
      // A panel that is not shown has no size, and a shell must not be told so.
      if (host.current && host.current.clientWidth > 0) fit.fit();
    });
    size.observe(host.current);
    fit.fit();
    return () => {
      size.disconnect();
      xterm.dispose();
      made.finish();
      term.current = null;
    };
  }, [reader]);

  useEffect(() => {
    const xterm = term.current;
    if (!xterm) return;
    // What was printed before comes again: a terminal would answer its questions a second time.
    let old = shell.stdoutBytes;
    let quiet = old > 0;
    xterm.reset();
    const tty = new Tty(id, shell.id, {
      onBytes: (bytes) => {
        old -= bytes.length;
        const last = quiet && old <= 0;
        xterm.write(bytes, () => {
          if (last) quiet = false;
        });
      },
      onState: (next, exec) => {
        setState(next);
        setEnded(exec);
        if (next === 'ended') onEnded();
        if (next !== 'open') return;
        attempts.current = 0;
        tty.resize(xterm.cols, xterm.rows);
        xterm.focus();
      },
    });
    line.current = tty;
    const listening = [
      xterm.onData((text) => {
        if (!quiet) latestTyped.current(text);
      }),
      xterm.onBinary((text) => {
        if (!quiet) tty.writeBinary(text);
      }),
      xterm.onResize(({ cols, rows }) => tty.resize(cols, rows)),
    ];
    return () => {
      for (const it of listening) it.dispose();
      tty.close();
      line.current = null;
    };
  }, [id, shell.id, turn, reader]);

  // By itself, with patience; at once when the sandbox goes on.
  useEffect(() => {
    if (state !== 'lost' || !live || paused) return;
    const timer = setTimeout(() => setTurn((n) => n + 1), backoffMs(attempts.current++));
    return () => clearTimeout(timer);
  }, [state, live, paused, turn]);

  useEffect(() => {
    if (term.current) term.current.options.theme = themeOf(dark);
  }, [dark]);

  return (
    <>
      <div
        className="terminal-host"
        ref={host}
        data-state={state}
        data-paused={paused || undefined}
      />
      <div className="terminal-keys" role="group" aria-label="Keys">
        <button
          type="button"
          className="button"
          aria-pressed={ctrlHeld}
          onClick={() => {
            hold(!ctrl.current);
            term.current?.focus();
          }}
        >
          Ctrl
        </button>
        {touchKeys.map(([name, bytes]) => (
          <button
            key={name}
            type="button"
            className="button"
            aria-label={keyNames[name] ?? name}
            onClick={() => {
              typed(bytes);
              term.current?.focus();
            }}
          >
            {name}
          </button>
        ))}
      </div>
      <div className="terminal-line">
        <span role="status">
          {!paused && state === 'connecting' && 'Connecting…'}
          {!paused && state === 'open' && 'Connected.'}
          {paused &&
            state !== 'ended' &&
            'The sandbox is paused: nothing moves until it is resumed.'}
          {state === 'ended' && `The shell has ended${ended ? ` (${ending(ended)})` : ''}.`}
          {!paused &&
            state === 'lost' &&
            (live ? 'The line was lost; trying again…' : 'It has ended.')}
        </span>
        {state === 'open' && (
          <span className="terminal-hint">
            <kbd>Ctrl</kbd>+<kbd>Esc</kbd> leaves the terminal
          </span>
        )}
      </div>
    </>
  );
}

function ending({ exitCode, signal }: Exec): string {
  return signal ?? `exit ${exitCode ?? '?'}`;
}
