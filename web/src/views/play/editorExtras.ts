/** What the editor can do without for a moment: completion and search, loaded behind it. */
import { autocompletion, completionKeymap, type CompletionSource } from '@codemirror/autocomplete';
import { localCompletionSource, scopeCompletionSource } from '@codemirror/lang-javascript';
import { search, searchKeymap } from '@codemirror/search';
import type { Extension } from '@codemirror/state';
import { keymap } from '@codemirror/view';

/** What programs have here of a browser's globals; the rest of the page's is not theirs. */
const globals = scopeCompletionSource(
  Object.fromEntries(
    [
      'console',
      'Promise',
      'Math',
      'JSON',
      'Object',
      'Array',
      'Map',
      'Set',
      'Date',
      'Number',
      'String',
      'RegExp',
      'Error',
      'URL',
      'URLSearchParams',
      'TextEncoder',
      'TextDecoder',
      'Request',
      'Response',
      'Headers',
      'setTimeout',
      'clearTimeout',
      'queueMicrotask',
      'crypto',
      'structuredClone',
      'atob',
      'btoa',
      'Uint8Array',
      'AbortController',
      'ReadableStream',
    ].map((name) => [name, (globalThis as Record<string, unknown>)[name]]),
  ),
);

const databaseCalls = ['query', 'execute', 'batch'];

/** After `env.` the names of the env, after those what a database can be asked. */
const bindings =
  (known: { current: { names: readonly string[] } }): CompletionSource =>
  (context) => {
    const word = context.matchBefore(/\benv\.(\w+\.)?\w*$/);
    if (!word) return null;
    const after = word.text.lastIndexOf('.') + 1;
    const options = /^env\.\w+\./.test(word.text)
      ? databaseCalls.map((label) => ({ label, type: 'method' }))
      : known.current.names.map((label) => ({ label, type: 'variable' }));
    return { from: word.from + after, options };
  };

export const extras = (known: { current: { names: readonly string[] } }): Extension => [
  keymap.of([...completionKeymap, ...searchKeymap]),
  search({ top: true }),
  autocompletion({ override: [localCompletionSource, globals, bindings(known)], icons: false }),
];
