/** A call of the API as a line for a shell, so that whatever the page does can be done without it. */
export type Call = {
  method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** Of this server; or a whole address, which is told the key only if it is this server's too. */
  path: string;
  keyed?: boolean;
  body?: unknown;
  /** The answer is a stream of events. */
  stream?: boolean;
  /** A file of the caller's to send, or to write the answer to. */
  from?: string;
  to?: string;
};

/** A word for a shell, whatever is in it. */
export const quote = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;

export function curl(call: Call, origin: string, needsKey: boolean): string {
  const { method, path, body, stream, from, to } = call;
  const usual = from !== undefined ? 'PUT' : body !== undefined ? 'POST' : 'GET';
  const whole = /^https?:/.test(path);
  return [
    `curl${stream ? ' -N' : ''} ${quote(whole ? path : origin + path)}`,
    ...(method && method !== usual ? [`-X ${method}`] : []),
    ...(needsKey && (!whole || call.keyed) ? ['-H "Authorization: Bearer $CAY_API_KEY"'] : []),
    ...(body === undefined ? [] : [`-H 'Content-Type: application/json'`]),
    ...(stream ? [`-H 'Accept: text/event-stream'`] : []),
    ...(body === undefined ? [] : [`-d ${quote(JSON.stringify(body))}`]),
    ...(from === undefined ? [] : [`-T ${quote(from)}`]),
    ...(to === undefined ? [] : [`-o ${quote(to)}`]),
  ].join(' \\\n  ');
}
