import { FitAddon } from '@xterm/addon-fit';
import { Terminal as Xterm, type ITheme } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';
import { useEffect, useRef, useState } from 'react';
import { ApiError } from '../../api/client.ts';
import { sandboxes, type Exec } from '../../api/sandboxes.ts';
import { useMedia } from '../../hooks.ts';
import { letSpansBeStyled, TerminalDocument } from './terminalDocument.ts';
import { Tty, type TtyState } from './tty.ts';

letSpansBeStyled();

/** bash where there is one. */
export const shellBody = (cols: number, rows: number) => ({
  command: 'if command -v bash >/dev/null; then exec bash; else exec sh; fi',
  env: { TERM: 'xterm-256color' },
  tty: true,
  cols,
  rows,
});

/** The shell of each sandbox, so that coming back to its page comes back to it. */
const shells = new Map<string, string>();

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

export default function Terminal({ id, live }: { id: string; live: boolean }) {
  const host = useRef<HTMLDivElement>(null);
  const term = useRef<Xterm | null>(null);
  const [turn, setTurn] = useState(0);
  const [state, setState] = useState<TtyState>('connecting');
  const [exec, setExec] = useState<Exec | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const dark = useDark();
  const firstTheme = useRef(dark);

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
      screenReaderMode: false,
      theme: themeOf(firstTheme.current),
    });
    const fit = new FitAddon();
    xterm.loadAddon(fit);
    xterm.open(host.current);
    // A way out for those without a mouse: Tab belongs to the shell in here.
    xterm.attachCustomKeyEventHandler((event) => {
      if (event.type !== 'keydown' || event.key !== 'Escape' || !event.ctrlKey) return true;
      host.current?.parentElement?.querySelector<HTMLElement>('.terminal-leave')?.focus();
      return false;
    });
    term.current = xterm;
    let tty: Tty | null = null;
    const abort = new AbortController();

    const size = new ResizeObserver(() => {
      // A panel that is not shown has no size, and a shell must not be told so.
      if (host.current && host.current.clientWidth > 0) fit.fit();
    });
    size.observe(host.current);
    fit.fit();

    const connect = (name: string) => {
      let opened = false;
      tty = new Tty(id, name, {
        onBytes: (bytes) => xterm.write(bytes),
        onState: (next, ended) => {
          setState(next);
          setExec(ended);
          if (next === 'open') {
            opened = true;
            tty?.resize(xterm.cols, xterm.rows);
            xterm.focus();
          }
          // One that does not answer at all is gone: the next try is another.
          if (next === 'ended' || (next === 'lost' && !opened)) shells.delete(id);
        },
      });
    };
    const start = async () => {
      setProblem(null);
      setExec(null);
      try {
        let name = shells.get(id);
        if (name === undefined) {
          name = (await sandboxes.start(id, shellBody(xterm.cols, xterm.rows))).id;
          shells.set(id, name);
        }
        if (!abort.signal.aborted) connect(name);
      } catch (cause) {
        if (abort.signal.aborted) return;
        setState('lost');
        setProblem(cause instanceof ApiError ? cause.message : 'Something went wrong');
      }
    };
    xterm.onData((text) => tty?.write(text));
    xterm.onBinary((text) => tty?.writeBinary(text));
    xterm.onResize(({ cols, rows }) => tty?.resize(cols, rows));
    void start();

    return () => {
      abort.abort();
      size.disconnect();
      tty?.close();
      xterm.dispose();
      made.finish();
      term.current = null;
    };
  }, [id, turn]);

  useEffect(() => {
    if (term.current) term.current.options.theme = themeOf(dark);
  }, [dark]);

  const again = (fresh: boolean) => {
    if (fresh) shells.delete(id);
    setTurn((n) => n + 1);
  };

  return (
    <div className="terminal-frame">
      <div className="terminal-host" ref={host} data-state={state} />
      <div className="terminal-line">
        <span role="status">
          {state === 'connecting' && 'Connecting…'}
          {state === 'open' && 'Connected.'}
          {state === 'ended' && `The shell has ended${exec ? ` (${ending(exec)})` : ''}.`}
          {state === 'lost' && (problem ?? 'The connection was lost.')}
        </span>
        {state === 'open' && (
          <span className="terminal-hint">
            <kbd>Ctrl</kbd>+<kbd>Esc</kbd> leaves the terminal
          </span>
        )}
        {state === 'lost' && live && (
          <button type="button" className="button" onClick={() => again(false)}>
            Connect again
          </button>
        )}
        <button
          type="button"
          className="button quiet terminal-leave"
          disabled={!live}
          onClick={() => again(true)}
        >
          New shell
        </button>
      </div>
    </div>
  );
}

function ending({ exitCode, signal }: Exec): string {
  return signal ?? `exit ${exitCode ?? '?'}`;
}
