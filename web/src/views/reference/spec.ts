/** The server's own description of its API, as far as the reference shows it. */
import { list, object, text } from '../../api/types.ts';

export type Schema = {
  $ref?: string;
  type?: string | string[];
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  format?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  additionalProperties?: boolean | Schema;
};

export type Parameter = {
  name: string;
  in: 'path' | 'query' | 'header';
  required: boolean;
  description: string;
  schema: Schema;
};

export type Content = { type: string; schema: Schema };
export type Answer = { status: string; description: string; contents: Content[] };

export type Operation = {
  id: string;
  tag: string;
  method: string;
  path: string;
  summary: string;
  description: string;
  parameters: Parameter[];
  body: (Content & { required: boolean }) | null;
  answers: Answer[];
};

export type Spec = {
  summary: string;
  tags: { name: string; description: string }[];
  operations: Operation[];
  schemas: Record<string, Schema>;
};

const methods = ['get', 'post', 'put', 'patch', 'delete'];

const schemaOf = (value: unknown): Schema => object(value) as Schema;

function readContents(value: unknown): Content[] {
  return Object.entries(object(value)).map(([type, it]) => ({
    type,
    schema: schemaOf(object(it).schema),
  }));
}

function readParameter(value: unknown): Parameter {
  const it = object(value);
  const where = text(it.in);
  return {
    name: text(it.name),
    in: where === 'path' || where === 'header' ? where : 'query',
    required: it.required === true,
    description: text(it.description),
    schema: schemaOf(it.schema),
  };
}

export function readSpec(value: unknown): Spec {
  const it = object(value);
  const components = object(it.components);
  const shared = object(components.responses);
  const answer = (status: string, raw: unknown): Answer => {
    const ref = text(object(raw).$ref);
    const found = ref ? object(shared[ref.split('/').at(-1) ?? '']) : object(raw);
    return {
      status,
      description: text(found.description),
      contents: readContents(found.content),
    };
  };
  const operations = Object.entries(object(it.paths)).flatMap(([path, item]) =>
    methods
      .filter((method) => method in object(item))
      .map((method): Operation => {
        const op = object(object(item)[method]);
        const body = object(op.requestBody);
        const [content] = readContents(body.content);
        return {
          id: text(op.operationId),
          tag: text(list(op.tags)[0]),
          method: method.toUpperCase(),
          path,
          summary: text(op.summary),
          description: text(op.description),
          parameters: [...list(object(item).parameters), ...list(op.parameters)].map(readParameter),
          body: content ? { ...content, required: body.required === true } : null,
          answers: Object.entries(object(op.responses))
            .sort(([a], [b]) => (a < b ? -1 : 1))
            .map(([status, raw]) => answer(status, raw)),
        };
      }),
  );
  return {
    summary: text(object(it.info).summary),
    tags: list(it.tags).map((tag) => ({
      name: text(object(tag).name),
      description: text(object(tag).description),
    })),
    operations,
    schemas: object(components.schemas) as Record<string, Schema>,
  };
}

/** Follows a reference and puts together what is in pieces. */
export function resolve(spec: Spec, schema: Schema, depth = 0): Schema {
  if (depth > 8) return {};
  if (schema.$ref) {
    const found = spec.schemas[schema.$ref.split('/').at(-1) ?? ''] ?? {};
    const whole = resolve(spec, found, depth + 1);
    return schema.description ? { ...whole, description: schema.description } : whole;
  }
  if (!schema.allOf) return schema;
  const parts = schema.allOf.map((part) => resolve(spec, part, depth + 1));
  return {
    ...schema,
    type: 'object',
    properties: Object.assign({}, ...parts.map((it) => it.properties), schema.properties) as Record<
      string,
      Schema
    >,
    required: [...parts.flatMap((it) => it.required ?? []), ...(schema.required ?? [])],
  };
}

const quoted = (value: unknown): string => JSON.stringify(value);

/** `string or null`, `list of Run`, `"a" | "b"`: its type in few words. */
export function typeWords(spec: Spec, schema: Schema): string {
  if (schema.$ref) return schema.$ref.split('/').at(-1) ?? 'object';
  if (schema.const !== undefined) return quoted(schema.const);
  if (schema.enum) return schema.enum.map(quoted).join(' | ');
  const either = schema.anyOf ?? schema.oneOf;
  if (either) return either.map((it) => typeWords(spec, it)).join(' or ');
  if (schema.allOf) return schema.allOf.map((it) => typeWords(spec, it)).join(' and ');
  const types = [schema.type ?? 'anything'].flat();
  return types
    .map((type) =>
      type === 'array' && schema.items ? `list of ${typeWords(spec, schema.items)}` : type,
    )
    .join(' or ');
}

/** What bounds it: `1 to 100, default 20`. */
export function boundWords(schema: Schema): string {
  const range = (low: number | undefined, high: number | undefined, unit: string) =>
    low !== undefined && high !== undefined
      ? `${low} to ${high}${unit}`
      : low !== undefined
        ? `at least ${low}${unit}`
        : high !== undefined
          ? `at most ${high}${unit}`
          : '';
  return [
    schema.format ?? '',
    range(schema.minimum, schema.maximum, ''),
    range(schema.minLength, schema.maxLength, ' characters'),
    schema.default === undefined ? '' : `default ${quoted(schema.default)}`,
  ]
    .filter(Boolean)
    .join(', ');
}

/** A value to begin with: what is required, and nothing that is not. */
export function exampleOf(spec: Spec, schema: Schema, depth = 0): unknown {
  const it = resolve(spec, schema);
  if (it.const !== undefined) return it.const;
  if (it.default !== undefined) return it.default;
  if (it.enum) return it.enum[0];
  const either = it.anyOf ?? it.oneOf;
  if (either?.[0]) return exampleOf(spec, either[0], depth + 1);
  const [type] = [it.type ?? ''].flat();
  if (type === 'integer' || type === 'number') return it.minimum ?? 1;
  if (type === 'boolean') return false;
  if (type === 'string') return '';
  if (type === 'array') return [];
  if (type !== 'object' || depth > 4) return type === 'object' ? {} : null;
  return Object.fromEntries(
    (it.required ?? []).map((key) => [key, exampleOf(spec, it.properties?.[key] ?? {}, depth + 1)]),
  );
}

/** Those of which a tag, an address or a word contains all that is looked for. */
export function search(operations: readonly Operation[], wanted: string): Operation[] {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  return operations.filter((it) => {
    const all = `${it.tag} ${it.method} ${it.path} ${it.id} ${it.summary}`.toLowerCase();
    return words.every((word) => all.includes(word));
  });
}
