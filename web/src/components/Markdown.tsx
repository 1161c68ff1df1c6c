/**
 * Text that a model wrote, so nothing in it is trusted: no HTML, no images fetched from anywhere,
 * links only to http, https and mail addresses, and those tell the other side nothing.
 */
import { gfmFromMarkdown } from 'mdast-util-gfm';
import { gfm } from 'micromark-extension-gfm';
import { memo, type ReactNode } from 'react';
import ReactMarkdown, { type Components } from 'react-markdown';
import { plainText } from './ansi.ts';
import { Code } from './Code.tsx';
import { Copy } from './Copy.tsx';
import './Markdown.css';

const schemes = new Set(['http:', 'https:', 'mailto:']);

/** The address if it may be followed, else nothing. Relative ones would lead into this page. */
export function safeUrl(url: string): string {
  try {
    return schemes.has(new URL(url).protocol) ? url : '';
  } catch {
    return '';
  }
}

function OutLink({ href, children }: { href?: string | undefined; children?: ReactNode }) {
  if (!href) return <span>{children}</span>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}

const components: Components = {
  // The page and the conversation have the first headings. Each part runs the way its words do.
  h1: ({ children }) => <h3 dir="auto">{children}</h3>,
  h2: ({ children }) => <h4 dir="auto">{children}</h4>,
  h3: ({ children }) => <h5 dir="auto">{children}</h5>,
  h4: ({ children }) => <h6 dir="auto">{children}</h6>,
  h5: ({ children }) => <h6 dir="auto">{children}</h6>,
  p: ({ children }) => <p dir="auto">{children}</p>,
  ul: ({ children, className }) => (
    <ul dir="auto" className={className}>
      {children}
    </ul>
  ),
  ol: ({ children, start }) => (
    <ol dir="auto" start={start}>
      {children}
    </ol>
  ),
  blockquote: ({ children }) => <blockquote dir="auto">{children}</blockquote>,
  a: ({ href, children }) => <OutLink href={href}>{children}</OutLink>,
  img: ({ src, alt }) => (
    <OutLink href={typeof src === 'string' ? src : undefined}>[image: {alt || 'no text'}]</OutLink>
  ),
  pre: ({ node }) => {
    const code = node?.children[0];
    if (code?.type !== 'element') return null;
    const text = code.children.map((it) => (it.type === 'text' ? it.value : '')).join('');
    const language = /language-(\S+)/.exec(String(code.properties.className ?? ''))?.[1] ?? '';
    return (
      <div className="markdown-code">
        <Code text={text} label="Code" language={language} />
        <Copy text={text} of="the code" />
      </div>
    );
  },
  // Of a list of tasks; nobody can tick it here.
  input: ({ checked }) => (
    <input
      type="checkbox"
      checked={checked === true}
      disabled
      aria-label={checked ? 'done' : 'to do'}
    />
  ),
  table: ({ children }) => (
    <div className="markdown-table" tabIndex={0} role="region" aria-label="Table">
      <table dir="auto">{children}</table>
    </div>
  ),
};

/** Tables, lists of tasks and the rest, as remark-gfm reads them; it brings along how to write them. */
function readGfm(this: { data: () => object }): void {
  const data = this.data() as Record<string, unknown[] | undefined>;
  (data.micromarkExtensions ??= []).push(gfm());
  (data.fromMarkdownExtensions ??= []).push(gfmFromMarkdown());
}

const plugins = [readGfm];

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  return (
    <div className="markdown">
      <ReactMarkdown remarkPlugins={plugins} components={components} urlTransform={safeUrl}>
        {plainText(text)}
      </ReactMarkdown>
    </div>
  );
});
