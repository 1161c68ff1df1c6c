import { useEffect, useId, useRef, useState, useSyncExternalStore } from 'react';
import { api } from '../../api/client.ts';
import { Loading } from '../../components/Loading.tsx';
import { Notice } from '../../components/Notice.tsx';
import { Section } from '../../components/Section.tsx';
import { useLoad } from '../../hooks.ts';
import { isSocket } from './call.ts';
import { Prose } from './Prose.tsx';
import { SchemaTree } from './SchemaTree.tsx';
import { boundWords, readSpec, search, typeWords, type Operation, type Spec } from './spec.ts';
import { Try } from './Try.tsx';
import './reference.css';

function subscribe(listener: () => void): () => void {
  addEventListener('hashchange', listener);
  return () => removeEventListener('hashchange', listener);
}

const Method = ({ method }: { method: string }) => (
  <span className="method" data-method={method}>
    {method}
  </span>
);

function List({ spec, shown }: { spec: Spec; shown: Operation | null }) {
  const [wanted, setWanted] = useState('');
  const found = search(spec.operations, wanted);
  const base = useId();
  return (
    <nav className="operations" aria-label="Operations">
      <div className="fields">
        <label>
          <span>Search</span>
          <input
            type="search"
            placeholder="snapshots, POST run, …"
            value={wanted}
            onChange={(event) => setWanted(event.target.value)}
          />
        </label>
      </div>
      {found.length === 0 && <p className="field-text">Nothing of that name.</p>}
      {spec.tags.map(({ name, description }) => {
        const mine = found.filter(({ tag }) => tag === name);
        if (mine.length === 0) return null;
        return (
          <div key={name}>
            <h2 id={base + name} title={description}>
              {name}
            </h2>
            <ul aria-labelledby={base + name}>
              {mine.map((it) => (
                <li key={it.id}>
                  <a
                    href={`#${it.id}`}
                    {...(it === shown ? { 'aria-current': 'true' as const } : {})}
                  >
                    <Method method={it.method} />
                    <span>
                      <Prose text={it.summary} />
                    </span>
                  </a>
                </li>
              ))}
            </ul>
          </div>
        );
      })}
    </nav>
  );
}

function Parameters({ spec, op }: { spec: Spec; op: Operation }) {
  if (op.parameters.length === 0) return null;
  return (
    <Section title="Parameters">
      <ul className="schema">
        {op.parameters.map((it) => (
          <li key={it.in + it.name}>
            <div className="field-line">
              <code className="field-name">{it.name}</code>
              <span className="field-type">
                {it.in}, {typeWords(spec, it.schema)}
              </span>
              {it.required && <span className="field-required">required</span>}
              <span className="field-type">{boundWords(it.schema)}</span>
            </div>
            {it.description && (
              <p className="field-text">
                <Prose text={it.description} />
              </p>
            )}
          </li>
        ))}
      </ul>
    </Section>
  );
}

function Shown({ spec, op }: { spec: Spec; op: Operation }) {
  const head = useRef<HTMLHeadingElement>(null);
  useEffect(() => head.current?.focus({ preventScroll: false }), [op]);
  return (
    <article className="operation stack">
      <div>
        <a className="to-list" href="#">
          All operations
        </a>
        <h2 ref={head} tabIndex={-1}>
          <Prose text={op.summary} />
        </h2>
        <p className="address">
          <Method method={op.method} /> <code>{op.path}</code>
        </p>
        {op.description && (
          <p>
            <Prose text={op.description} />
          </p>
        )}
      </div>
      <Section title="Try it">
        {isSocket(op) ? (
          <p className="field-text">This one becomes a WebSocket: it is for programs.</p>
        ) : (
          <Try key={op.id} spec={spec} op={op} />
        )}
      </Section>
      <Parameters spec={spec} op={op} />
      {op.body && (
        <Section title="Body" aside={<span className="field-type">{op.body.type}</span>}>
          <SchemaTree spec={spec} schema={op.body.schema} />
        </Section>
      )}
      <Section title="Answers">
        {op.answers.map((answer) => (
          <div key={answer.status} className="answer-kind">
            <h3>
              {answer.status}
              <span className="field-type">
                {answer.contents.map(({ type }) => type).join(' or ')}
              </span>
            </h3>
            <p className="field-text">
              <Prose text={answer.description} />
            </p>
            {answer.contents
              .filter(({ type }) => type !== 'text/event-stream' && answer.status.startsWith('2'))
              .map(({ type, schema }) => (
                <details key={type}>
                  <summary>Fields of the answer</summary>
                  <SchemaTree spec={spec} schema={schema} />
                </details>
              ))}
          </div>
        ))}
      </Section>
    </article>
  );
}

function Intro({ spec }: { spec: Spec }) {
  return (
    <div className="operation intro stack">
      <Section title="How to call it">
        <p>
          Everything this page does, it does by these calls. Bodies and answers are JSON; an error
          is <code>{'{"error": {"code", "message", "request_id"}}'}</code> and says what to do.
        </p>
        <p>
          Where keys are asked for, send one as <code>Authorization: Bearer KEY</code>. Lists come
          in pages: pass <code>next_cursor</code> on as <code>cursor</code>.
        </p>
        <p>
          The same, for programs: <a href="/openapi.json">/openapi.json</a> (
          {spec.operations.length} operations).
        </p>
      </Section>
    </div>
  );
}

export default function ReferenceView() {
  const { data, error, reload } = useLoad(
    async (signal) => readSpec(await api.json('/openapi.json', { signal })),
    [],
  );
  const hash = useSyncExternalStore(subscribe, () => location.hash.slice(1));
  // A link inside the page, such as the one to the content, changes nothing of what is shown.
  const last = useRef<Operation | null>(null);
  const found = data?.operations.find(({ id }) => id === hash) ?? null;
  if (found || hash === '') last.current = found;
  const shown = last.current;
  return (
    <div className="stack view-reference" data-shown={shown ? true : undefined}>
      <div className="page-head">
        <h1>API</h1>
        {data && <p>{data.summary}</p>}
      </div>
      {!data && !error && <Loading />}
      {error && !data && (
        <Notice
          tone="bad"
          title="The description could not be loaded"
          action={{ label: 'Try again', run: reload }}
        >
          {error.message}.
        </Notice>
      )}
      {data && (
        <div className="reference-columns">
          <List spec={data} shown={shown} />
          {shown ? <Shown spec={data} op={shown} /> : <Intro spec={data} />}
        </div>
      )}
    </div>
  );
}
