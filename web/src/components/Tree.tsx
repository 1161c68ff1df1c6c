import { useState } from 'react';
import { plainText } from './ansi.ts';
import './Tree.css';

const childrenAtOnce = 100;
/** Branches this near the root are open from the start, if they are small. */
const openDepth = 2;

const isBranch = (value: unknown): value is object => typeof value === 'object' && value !== null;

function summary(value: object): string {
  if (Array.isArray(value)) return value.length === 0 ? '[]' : `[${value.length}]`;
  const n = Object.keys(value).length;
  return n === 0 ? '{}' : `{${n}}`;
}

function Leaf({ value }: { value: unknown }) {
  if (typeof value === 'string')
    return <span className="tok-string">{plainText(JSON.stringify(value))}</span>;
  if (typeof value === 'number') return <span className="tok-number">{String(value)}</span>;
  return <span className="tok-keyword">{String(value)}</span>;
}

/** A JSON value whose branches open and close. What is closed is not built. */
export function Tree({
  value,
  name,
  depth = 0,
}: {
  value: unknown;
  name?: string;
  depth?: number;
}) {
  const entries = isBranch(value) ? Object.entries(value) : [];
  const [open, setOpen] = useState(depth < openDepth && entries.length <= 30);
  const [limit, setLimit] = useState(childrenAtOnce);
  const label = name === undefined ? null : <span className="tree-name">{plainText(name)}: </span>;
  if (!isBranch(value) || entries.length === 0)
    return (
      <div className="tree-leaf">
        {label}
        {isBranch(value) ? (
          <span className="tree-size">{summary(value)}</span>
        ) : (
          <Leaf value={value} />
        )}
      </div>
    );
  return (
    <details
      className="tree"
      open={open}
      onToggle={(event) => {
        // The event of a branch inside comes here too.
        if (event.target === event.currentTarget) setOpen(event.currentTarget.open);
      }}
    >
      <summary>
        {label}
        <span className="tree-size">{summary(value)}</span>
      </summary>
      {open && (
        <div className="tree-children">
          {entries.slice(0, limit).map(([key, item]) => (
            <Tree key={key} name={key} value={item} depth={depth + 1} />
          ))}
          {entries.length > limit && (
            <button
              type="button"
              className="button quiet"
              onClick={() => setLimit(limit + childrenAtOnce)}
            >
              {entries.length - limit} more
            </button>
          )}
        </div>
      )}
    </details>
  );
}
