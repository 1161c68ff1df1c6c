import { act, type ReactNode } from 'react';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { render as renderBare } from '../../../test/render.tsx';
import { FeedContext, StatusFeed } from '../../api/feed.ts';
import { Commands } from './Commands.tsx';
import { Files } from './Files.tsx';
import { asText } from './text.ts';
import { letSpansBeStyled, TerminalDocument } from './terminalDocument.ts';
import { Tty } from './tty.ts';
import { Gatherer } from './useOutput.ts';
import SandboxesView from '../sandboxes/index.tsx';

const render = (node: ReactNode) =>
  renderBare(<FeedContext value={new StatusFeed()}>{node}</FeedContext>);

type Asked = { path: string; method: string; body: unknown };
const hostile = '<img src=x onerror=alert(1)>';
let asked: Asked[];
let answers: [RegExp, () => Response][];

beforeEach(() => {
  asked = [];
  answers = [];
  vi.stubGlobal('fetch', async (path: string, init: RequestInit = {}) => {
    asked.push({ path, method: init.method ?? 'GET', body: init.body ?? null });
    const found = answers.find(([pattern]) => pattern.test(`${init.method ?? 'GET'} ${path}`));
    return found
      ? found[1]()
      : Response.json({ error: { code: 'x', message: 'no' } }, { status: 404 });
  });
});

afterEach(() => vi.unstubAllGlobals());

const settle = () => act(() => new Promise((done) => setTimeout(done, 5)));
const press = (host: HTMLElement, name: RegExp) => {
  const found = [...host.querySelectorAll('button')].find((it) => name.test(it.textContent ?? ''));
  expect(found, String(name)).toBeDefined();
  act(() => found!.click());
};

test('the list shows what the server says, and no name becomes an element', async () => {
  answers.push([
    /GET \/v1\/sandboxes\?/,
    () =>
      Response.json({
        sandboxes: [
          {
            id: 'sbx_1',
            name: hostile,
            status: 'running',
            created_at: new Date().toISOString(),
            expires_at: new Date(Date.now() + 60_500).toISOString(),
            usage: { memory_bytes: 3 * 1024 * 1024, cpu_ms: 5 },
          },
        ],
      }),
  ]);
  answers.push([/POST .*\/extend$/, () => Response.json({})]);
  const host = render(<SandboxesView />);
  await settle();
  expect(host.querySelector('img')).toBeNull();
  expect(host.textContent).toContain(hostile);
  expect(host.textContent).toContain('3.0 MiB');
  expect(host.textContent).toMatch(/1 min|59 s/);
  press(host, /^Extend/);
  await settle();
  expect(asked.find(({ method }) => method === 'POST')).toMatchObject({
    path: '/v1/sandboxes/sbx_1/extend',
    // A minute is left: it is added to, never cut.
    body: expect.stringMatching(/^\{"timeout_s":96[01]\}$/),
  });
});

test('a file is deleted when asked twice, and not when asked once', async () => {
  answers.push([
    /GET .*\/files\/list/,
    () => Response.json({ entries: [{ name: hostile, kind: 'file', size: 1 }] }),
  ]);
  answers.push([/DELETE/, () => new Response(null, { status: 204 })]);
  const host = render(<Files id="sbx_1" live paused={false} />);
  await settle();
  expect(host.querySelector('img')).toBeNull();
  const deletes = () => asked.filter(({ method }) => method === 'DELETE');
  press(host, /^Delete /);
  await settle();
  expect(deletes()).toHaveLength(0);
  press(host, /^Delete: sure\?/);
  await settle();
  expect(deletes().map(({ path }) => path)).toEqual([
    `/v1/sandboxes/sbx_1/files?${new URLSearchParams({ path: `/work/${hostile}` })}`,
  ]);
});

test('a command is started and its output followed from where a cut line left it', async () => {
  const stream = (text: string) =>
    new Response(text, { headers: { 'Content-Type': 'text/event-stream' } });
  answers.push([/POST .*\/exec$/, () => Response.json({ id: 'exe_1', status: 'running' })]);
  answers.push([
    /output\?stdout=0&stderr=0$/,
    () => stream(`event: stdout\ndata: ${JSON.stringify({ offset: 0, data: `a${hostile}` })}\n\n`),
  ]);
  const seen = 1 + hostile.length;
  answers.push([
    new RegExp(`output\\?stdout=${seen}&stderr=0$`),
    () =>
      stream(
        `event: stderr\ndata: {"offset":0,"data":"\\u001b[31mred"}\n\n` +
          `event: exit\ndata: {"id":"exe_1","status":"exited","exit_code":3}\n\n`,
      ),
  ]);
  answers.push([/GET .*\/execs\?/, () => Response.json({ execs: [] })]);
  const host = render(<Commands id="sbx_1" live shown />);
  await settle();
  const input = host.querySelector('input')!;
  act(() => {
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value')!.set!.call(input, 'ls');
    input.dispatchEvent(new Event('input', { bubbles: true }));
  });
  press(host, /^Run$/);
  for (let tries = 0; tries < 1000 && !host.textContent?.includes('exit 3'); tries++)
    await settle();
  expect(host.textContent).toContain('exit 3');
  expect(asked.find(({ method }) => method === 'POST')?.body).toBe(
    '{"command":"ls","background":true}',
  );
  expect(host.querySelector('.stdout')?.textContent).toBe(`a${hostile}`);
  expect(host.querySelector('.stderr')?.textContent).toBe('red');
  expect(host.querySelector('img')).toBeNull();
});

test('pieces that overlap are taken once, and characters cut in two are whole', () => {
  const all = new Gatherer();
  const piece = (offset: number, ...bytes: number[]) =>
    all.add({ stream: 'stdout', offset, bytes: Uint8Array.from(bytes) });
  piece(0, 0x61, 0xc3);
  piece(0, 0x61, 0xc3);
  piece(1, 0xc3, 0xa9, 0x62);
  expect(all.blocks.map(({ parts }) => parts)).toEqual([[{ stream: 'stdout', text: 'aéb' }]]);
  expect(all.offsets).toEqual({ stdout: 4, stderr: 0 });
});

test('what is kept of an endless output is bounded', () => {
  const all = new Gatherer();
  const bytes = new Uint8Array(10_000).fill(0x61);
  for (let i = 0; i < 300; i++) all.add({ stream: 'stdout', offset: i * 10_000, bytes });
  expect(all.gone).toBeGreaterThan(0);
  expect(all.blocks.reduce((sum, { chars }) => sum + chars, 0)).toBeLessThanOrEqual(1_000_000);
});

test('a file is text only if it can be written back as it was', () => {
  const bytes = (text: string) => new TextEncoder().encode(text);
  expect(asText(bytes('a\n\u{feff}é'))).toBe('a\n\u{feff}é');
  expect(asText(bytes('\u{feff}a'))).toBe('\u{feff}a');
  expect(asText(bytes('a\0b'))).toBeNull();
  expect(asText(bytes('a\r\nb'))).toBeNull();
  expect(asText(Uint8Array.of(0xff, 0xfe))).toBeNull();
});

test("a terminal's styles reach the page as sheets, never as text in it", () => {
  const replaced: string[] = [];
  class Sheet {
    replaceSync(text: string) {
      replaced.push(text);
    }
  }
  vi.stubGlobal('CSSStyleSheet', Sheet);
  Object.defineProperty(document, 'adoptedStyleSheets', {
    value: [],
    writable: true,
    configurable: true,
  });
  const made = new TerminalDocument(document);
  expect(made.it instanceof Document).toBe(true);
  const screen = made.it.createElement('div');
  document.body.append(screen);
  const style = document.createElement('style');
  screen.appendChild(style);
  style.textContent = '.a { color: red }';
  expect(style.isConnected).toBe(false);
  expect(replaced).toEqual(['', '.a { color: red }']);
  expect(document.adoptedStyleSheets).toHaveLength(1);
  letSpansBeStyled();
  const span = document.createElement('span');
  const attribute = vi.spyOn(Element.prototype, 'setAttribute');
  span.setAttribute('style', 'color: rgb(1, 2, 3);');
  expect(attribute).not.toHaveBeenCalled();
  expect(span.style.color).toBe('rgb(1, 2, 3)');
  span.setAttribute('class', 'x');
  expect(span.className).toBe('x');
  attribute.mockRestore();
  made.finish();
  expect(document.adoptedStyleSheets).toHaveLength(0);
  screen.remove();
});

test('the line of a terminal: bytes both ways, an end that was told, a line that was lost', () => {
  class Socket {
    static OPEN = 1;
    static last: Socket;
    readyState = 1;
    binaryType = '';
    sent: unknown[] = [];
    onopen = () => {};
    onclose = () => {};
    onmessage = (_event: { data: unknown }) => {};
    constructor(readonly url: URL) {
      Socket.last = this;
    }
    send(data: unknown) {
      this.sent.push(data);
    }
    close() {
      this.onclose();
    }
  }
  vi.stubGlobal('WebSocket', Socket);
  const states: string[] = [];
  const got: number[] = [];
  const open = () =>
    new Tty('sbx_1', 'exe_1', {
      onBytes: (bytes) => got.push(...bytes),
      onState: (state, exec) => states.push(exec ? `${state} ${exec.exitCode}` : state),
    });
  const tty = open();
  const socket = Socket.last;
  expect(String(socket.url)).toMatch(/^ws:.*\/v1\/sandboxes\/sbx_1\/execs\/exe_1\/tty$/);
  socket.onopen();
  tty.write('é');
  tty.writeBinary('\xff');
  tty.resize(80, 24);
  const sent = socket.sent.map((it) => (typeof it === 'string' ? it : [...(it as Uint8Array)]));
  expect(sent).toEqual([[0xc3, 0xa9], [0xff], '{"type":"resize","cols":80,"rows":24}']);
  socket.onmessage({ data: Uint8Array.of(1, 2).buffer });
  socket.onmessage({ data: '{broken' });
  socket.onmessage({ data: '{"type":"exit","status":"exited","exit_code":4}' });
  socket.onclose();
  tty.write('too late');
  expect(got).toEqual([1, 2]);
  expect(states).toEqual(['connecting', 'open', 'ended 4']);
  expect(socket.sent).toHaveLength(3);
  open();
  Socket.last.onclose();
  expect(states.at(-1)).toBe('lost');
});
