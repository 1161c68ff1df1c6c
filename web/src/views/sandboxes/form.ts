/** What the form says, as the body of POST /v1/sandboxes. */
export type Form = {
  name: string;
  root: string;
  snapshot: string;
  memoryMb: string;
  diskMb: string;
  timeoutS: string;
  allow: string;
  env: string;
};

export const emptyForm: Form = {
  name: '',
  root: '',
  snapshot: '',
  memoryMb: '',
  diskMb: '',
  timeoutS: '',
  allow: '',
  env: '',
};

export type File = { path: string; content_base64: string };

export type Body = {
  name?: string;
  root?: string;
  snapshot?: string;
  memory_mb?: number;
  disk_mb?: number;
  timeout_s?: number;
  network?: { allow: string[] };
  env?: Record<string, string>;
  files?: File[];
};

export const words = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);

/** Or what is wrong with it, for people. */
export function bodyOf(form: Form, files: readonly File[] = []): Body | string {
  const body: Body = {};
  for (const key of ['name', 'root', 'snapshot'] as const)
    if (form[key].trim() !== '') body[key] = form[key].trim();

  const numbers = [
    ['memoryMb', 'memory_mb', 'The memory must be a whole number of MiB.'],
    ['diskMb', 'disk_mb', 'The disk must be a whole number of MiB.'],
    ['timeoutS', 'timeout_s', 'The time must be a whole number of seconds.'],
  ] as const;
  for (const [from, to, wrong] of numbers) {
    const text = form[from].trim();
    if (text === '') continue;
    if (!/^\d{1,9}$/.test(text) || Number(text) === 0) return wrong;
    body[to] = Number(text);
  }

  const allow = words(form.allow);
  if (allow.length > 0) body.network = { allow };

  const env: Record<string, string> = {};
  for (const line of form.env.split('\n')) {
    if (line.trim() === '') continue;
    const at = line.indexOf('=');
    if (at < 1) return `Each line of the environment is NAME=value; this one is not: ${line}`;
    env[line.slice(0, at).trim()] = line.slice(at + 1);
  }
  if (Object.keys(env).length > 0) body.env = env;
  if (files.length > 0) body.files = [...files];
  return body;
}

/** All that is picked travels inside one request. */
export const maxFilesBytes = 4 * 1024 * 1024;

export async function readPicked(picked: readonly globalThis.File[]): Promise<File[]> {
  return Promise.all(
    picked.map(async (file) => ({
      path: `/work/${file.webkitRelativePath || file.name}`,
      content_base64: base64(new Uint8Array(await file.arrayBuffer())),
    })),
  );
}

export function base64(bytes: Uint8Array): string {
  let binary = '';
  for (let at = 0; at < bytes.length; at += 0x8000)
    binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(binary);
}
