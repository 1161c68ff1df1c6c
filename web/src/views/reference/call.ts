/** What the form of an operation says, as a call; or what is wrong with it. */
import type { Call } from '../../curl.ts';
import type { Operation } from './spec.ts';

export type Filled = {
  values: Record<string, string>;
  body: string;
  /** The file that is the body, where that is not JSON. */
  file: { name: string } | null;
  stream: boolean;
};

export const isJson = (type: string): boolean => /\bjson\b/.test(type);
/** Two parameters of one name may be in different places. */
export const keyOf = ({ in: where, name }: { in: string; name: string }): string =>
  `${where} ${name}`;
export const streams = (op: Operation): boolean =>
  op.answers.some(({ contents }) => contents.some(({ type }) => type === 'text/event-stream'));
/** One that becomes a WebSocket is for programs. */
export const isSocket = (op: Operation): boolean =>
  op.answers.some(({ status }) => status === '101');

export function callOf(op: Operation, filled: Filled): Call | string {
  const query = new URLSearchParams();
  const headers: Record<string, string> = {};
  let { path } = op;
  for (const parameter of op.parameters) {
    const value = filled.values[keyOf(parameter)] ?? '';
    if (value === '' && parameter.required) return `“${parameter.name}” is needed.`;
    if (value === '') continue;
    if (parameter.in === 'path')
      path = path.replace(`{${parameter.name}}`, () => encodeURIComponent(value));
    else if (parameter.in === 'query') query.append(parameter.name, value);
    else if (/[^\t\x20-\x7e]/.test(value)) return `“${parameter.name}” must be plain text.`;
    else headers[parameter.name] = value;
  }
  const call: Call = {
    method: op.method as NonNullable<Call['method']>,
    path: query.size > 0 ? `${path}?${query}` : path,
    ...(Object.keys(headers).length > 0 ? { headers } : {}),
    ...(filled.stream ? { stream: true } : {}),
  };
  if (!op.body) return call;
  if (!isJson(op.body.type)) {
    if (!filled.file) return op.body.required ? 'Choose a file to send.' : call;
    return { ...call, from: filled.file.name };
  }
  if (filled.body.trim() === '') return op.body.required ? 'A body is needed.' : call;
  try {
    return { ...call, body: JSON.parse(filled.body) as unknown };
  } catch (cause) {
    return `The body is not JSON: ${cause instanceof Error ? cause.message : 'it cannot be read'}`;
  }
}
