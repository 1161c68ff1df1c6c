/** A call of the API as a line for a shell, so that whatever the page does can be done without it. */
export type Call = {
  method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** Of this server; or a whole address, which is told the key only if it is this server's too. */
  path: string;
  keyed?: boolean;
  body?: unknown;
  headers?: Record<string, string>;
  /** The answer is a stream of events. */
  stream?: boolean;
  /** A file of the caller's to send, or to write the answer to. */
  from?: string;
  to?: string;
};

/** What a terminal or a shell that reads a pasted line could take for more than a letter. */
const unsafe = /[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/;

/** Each byte of it, as bash, zsh, ksh and busybox know it. */
const escaped = (char: string): string =>
  [...new TextEncoder().encode(char)]
    .map((byte) => `\\${byte.toString(8).padStart(3, '0')}`)
    .join('');

/** A word for a shell, whatever is in it; no control character gets onto a clipboard. */
export function quote(text: string): string {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  if (!unsafe.test(text)) return `'${text.replaceAll("'", `'\\''`)}'`;
  const inside = [...text].map((char) =>
    unsafe.test(char) ? escaped(char) : char === "'" || char === '\\' ? `\\${char}` : char,
  );
  return `$'${inside.join('')}'`;
}

export function curl(call: Call, origin: string, needsKey: boolean): string {
  const { method, path, body, stream, from, to } = call;
  const usual = from !== undefined ? 'PUT' : body !== undefined ? 'POST' : 'GET';
  const whole = /^https?:/.test(path);
  return [
    // -f: the text of an error is not saved as the file.
    `curl${stream ? ' -N' : ''}${to === undefined ? '' : ' -f'} ${quote(whole ? path : origin + path)}`,
    ...(method && method !== usual ? [`-X ${method}`] : []),
    ...(needsKey && (!whole || call.keyed) ? ['-H "Authorization: Bearer $CAY_API_KEY"'] : []),
    ...(body === undefined ? [] : [`-H 'Content-Type: application/json'`]),
    ...(stream ? [`-H 'Accept: text/event-stream'`] : []),
    ...Object.entries(call.headers ?? {}).map(
      ([name, value]) => `-H ${quote(`${name}: ${value}`)}`,
    ),
    ...(body === undefined ? [] : [`-d ${quote(JSON.stringify(body))}`]),
    ...(from === undefined ? [] : [`-T ${quote(from)}`]),
    // A file of such a name would wait in the caller's folder for the next who lists it.
    ...(to === undefined ? [] : [`-o ${quote(to.replace(new RegExp(unsafe, 'g'), '_'))}`]),
  ].join(' \\\n  ');
}
