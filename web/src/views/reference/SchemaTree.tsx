import { Prose } from './Prose.tsx';
import { boundWords, resolve, typeWords, type Schema, type Spec } from './spec.ts';

type Props = { spec: Spec; schema: Schema; depth?: number };

/** The fields below a value; null where it has none that are named. */
function fieldsOf(spec: Spec, schema: Schema): [string, Schema, boolean][] | null {
  let it = resolve(spec, schema);
  if ([it.type].flat().includes('array') && it.items) it = resolve(spec, it.items);
  const fields = Object.entries(it.properties ?? {});
  if (fields.length === 0) return null;
  return fields.map(([name, field]) => [name, field, (it.required ?? []).includes(name)]);
}

const deepest = 4;

function Field({
  spec,
  name,
  schema,
  required,
  depth,
}: Props & { name: string; required: boolean; depth: number }) {
  const it = resolve(spec, schema);
  const bounds = boundWords(it);
  const below = depth < deepest ? fieldsOf(spec, schema) : null;
  return (
    <li>
      <div className="field-line">
        <code className="field-name">{name}</code>
        <span className="field-type">{typeWords(spec, schema)}</span>
        {required && <span className="field-required">required</span>}
        {bounds && <span className="field-type">{bounds}</span>}
      </div>
      {it.description && (
        <p className="field-text">
          <Prose text={it.description} />
        </p>
      )}
      {below && (
        <details>
          <summary>
            Fields of <code>{name}</code>
          </summary>
          <SchemaTree spec={spec} schema={schema} depth={depth + 1} />
        </details>
      )}
    </li>
  );
}

/** What a body has in it, field by field; deeper ones open when asked. */
export function SchemaTree({ spec, schema, depth = 0 }: Props) {
  const it = resolve(spec, schema);
  const either = it.anyOf ?? it.oneOf;
  const fields = fieldsOf(spec, schema);
  if (either && !fields)
    return (
      <>
        {either.map((part, at) => (
          <div key={at} className="schema-either">
            <p className="field-text">
              {at === 0 ? 'Either' : 'or'}: {typeWords(spec, part)}
            </p>
            {depth < deepest && fieldsOf(spec, part) && (
              <SchemaTree spec={spec} schema={part} depth={depth + 1} />
            )}
          </div>
        ))}
      </>
    );
  if (!fields) return <p className="field-text">{typeWords(spec, schema)}</p>;
  return (
    <ul className="schema">
      {fields.map(([name, field, required]) => (
        <Field key={name} {...{ spec, name, schema: field, required, depth }} />
      ))}
    </ul>
  );
}
