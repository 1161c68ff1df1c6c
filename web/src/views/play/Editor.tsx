/**
 * The code editor. CodeMirror writes its styles into a <style> element of the document, which the
 * page's policy forbids; inside a shadow root it uses constructed style sheets, which are no text
 * that anybody could inject. So it lives in one.
 */
import {
  deleteLine,
  history,
  historyKeymap,
  indentLess,
  indentMore,
  moveLineDown,
  moveLineUp,
  standardKeymap,
  toggleLineComment,
} from '@codemirror/commands';
import { javascriptLanguage, typescriptLanguage } from '@codemirror/lang-javascript';
import { bracketMatching, indentOnInput, syntaxHighlighting } from '@codemirror/language';
import { Compartment, EditorState, StateEffect, StateField } from '@codemirror/state';
import {
  Decoration,
  drawSelection,
  EditorView,
  highlightActiveLine,
  keymap,
  lineNumbers,
  type DecorationSet,
  type KeyBinding,
} from '@codemirror/view';
import { classHighlighter } from '@lezer/highlight';
import { useEffect, useRef } from 'react';
import codeStyles from '../../components/Code.css?inline';
import editorStyles from './editor.css?inline';

type Props = {
  value: string;
  /** Another number: the value is not what was written here, but takes its place. */
  turn: number;
  onChange: (text: string) => void;
  onRun: () => void;
  typescript: boolean;
  /** What the env has. */
  names: readonly string[];
  /** The line that failed, counted from one. */
  mark: number | null;
};

const setMark = StateEffect.define<number | null>();
const failed = Decoration.line({ class: 'cm-failed', attributes: { 'data-failed': 'true' } });

const markField = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, change) {
    let next = marks.map(change.changes);
    for (const effect of change.effects) {
      if (!effect.is(setMark)) continue;
      const line = effect.value;
      next =
        line === null || line < 1 || line > change.state.doc.lines
          ? Decoration.none
          : Decoration.set(failed.range(change.state.doc.line(line).from));
    }
    return next;
  },
  provide: (field) => EditorView.decorations.from(field),
});

/** What one misses in a plain text field; the whole of the usual keys is more than the view may weigh. */
const lineKeys: KeyBinding[] = [
  { key: 'Alt-ArrowUp', run: moveLineUp },
  { key: 'Alt-ArrowDown', run: moveLineDown },
  { key: 'Shift-Mod-k', run: deleteLine },
  { key: 'Mod-[', run: indentLess },
  { key: 'Mod-]', run: indentMore },
  { key: 'Mod-/', run: toggleLineComment },
];

/** The languages alone: javascript() brings snippets along, which nobody is offered. */
const languageOf = (typescript: boolean) => (typescript ? typescriptLanguage : javascriptLanguage);

let sheet: CSSStyleSheet | null = null;
function styles(): CSSStyleSheet {
  if (!sheet) {
    sheet = new CSSStyleSheet();
    sheet.replaceSync(codeStyles + editorStyles);
  }
  return sheet;
}

export default function Editor(props: Props) {
  const { value, turn, onChange, onRun, typescript, names, mark } = props;
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const language = useRef(new Compartment());
  const more = useRef(new Compartment());
  // The editor is made once; what it calls is always the newest.
  const calls = useRef({ onChange, onRun, names });
  calls.current = { onChange, onRun, names };

  useEffect(() => {
    if (!host.current) return;
    const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: 'open' });
    root.adoptedStyleSheets = [styles()];
    const editor = new EditorView({
      parent: root,
      root,
      state: EditorState.create({
        doc: value,
        extensions: [
          keymap.of([
            {
              key: 'Mod-Enter',
              run: () => {
                calls.current.onRun();
                return true;
              },
            },
          ]),
          lineNumbers(),
          history(),
          drawSelection(),
          indentOnInput(),
          bracketMatching(),
          highlightActiveLine(),
          // Tab is left alone: it is how a keyboard gets out of here.
          // Before the usual keys, some of which they take.
          more.current.of([]),
          keymap.of([...lineKeys, ...standardKeymap, ...historyKeymap]),
          language.current.of(languageOf(typescript)),
          syntaxHighlighting(classHighlighter),
          markField,
          EditorView.lineWrapping,
          // Left to itself, Chromium puts what is typed over coloured text into a span with a style
          // attribute, which the policy forbids (and reports).
          EditorView.domEventHandlers({
            beforeinput: (event, editor) => {
              const isTyped = event.inputType === 'insertText' && !event.isComposing;
              if (!isTyped || !event.data || editor.state.selection.main.empty) return false;
              event.preventDefault();
              editor.dispatch(editor.state.replaceSelection(event.data), {
                userEvent: 'input.type',
                scrollIntoView: true,
              });
              return true;
            },
          }),
          EditorView.contentAttributes.of({ 'aria-label': 'Program', tabindex: '0' }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) calls.current.onChange(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = editor;
    // A program can be written without them, so a failure to load them is none.
    void import('./editorExtras.ts').then(
      ({ extras }) => {
        if (view.current === editor)
          editor.dispatch({ effects: more.current.reconfigure(extras(calls)) });
      },
      () => {},
    );
    return () => {
      view.current = null;
      editor.destroy();
      root.replaceChildren();
    };
  }, []);

  // Not at each value: one that comes back later than the next letter would take that letter away.
  useEffect(() => {
    const editor = view.current;
    if (!editor || editor.state.doc.toString() === value) return;
    editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: value } });
  }, [turn]);

  useEffect(() => {
    view.current?.dispatch({
      effects: language.current.reconfigure(languageOf(typescript)),
    });
  }, [typescript]);

  useEffect(() => {
    const editor = view.current;
    if (!editor) return;
    const { doc } = editor.state;
    const effects: StateEffect<unknown>[] = [setMark.of(mark)];
    if (mark !== null && mark >= 1 && mark <= doc.lines)
      effects.push(EditorView.scrollIntoView(doc.line(mark).from, { y: 'center' }));
    editor.dispatch({ effects });
  }, [mark]);

  return <div className="editor" ref={host} />;
}
