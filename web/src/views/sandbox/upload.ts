/**
 * Sends a file beside its place and moves it there when it is whole: one that is cut off neither
 * spoils what was there nor stays behind.
 */
import { backoffMs } from '../../api/backoff.ts';
import { ApiError, send } from '../../api/client.ts';
import { calls, joinPath } from '../../api/sandboxes.ts';
import { object, text } from '../../api/types.ts';

const removeTries = 5;

/** XMLHttpRequest, because fetch does not say how much has gone. */
function put(
  path: string,
  file: Blob,
  onProgress: (part: number) => void,
  signal: AbortSignal,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const fail = (message: string) => reject(new ApiError(request.status, 'upload', message));
    request.open('PUT', path);
    request.setRequestHeader('Content-Type', 'application/octet-stream');
    request.upload.onprogress = ({ loaded, total }) => onProgress(total > 0 ? loaded / total : 0);
    request.onload = () => {
      if (request.status < 400) return resolve();
      return fail(problemOf(request.responseText) || `The server answered ${request.status}`);
    };
    request.onerror = () => fail('The line was lost');
    request.onabort = () => fail('It was stopped');
    signal.addEventListener('abort', () => request.abort());
    request.send(file);
  });
}

function problemOf(answer: string): string {
  try {
    return text(object(object(JSON.parse(answer)).error).message);
  } catch {
    return '';
  }
}

async function removePart(id: string, path: string): Promise<void> {
  for (let tries = 0; tries < removeTries; tries++) {
    try {
      await send(calls.removeFile(id, path, false));
      return;
    } catch (cause) {
      // What the server refuses (it is not there, say) it will refuse again.
      if (cause instanceof ApiError && cause.status >= 400) return;
      await new Promise((done) => setTimeout(done, backoffMs(tries)));
    }
  }
}

export async function upload(
  id: string,
  dir: string,
  file: File,
  onProgress: (part: number) => void,
  signal: AbortSignal,
): Promise<void> {
  const part = joinPath(dir, `.${file.name}.part`);
  try {
    await put(calls.writeFile(id, part, '').path, file, onProgress, signal);
    await send(calls.move(id, part, joinPath(dir, file.name)));
  } catch (cause) {
    void removePart(id, part);
    throw cause;
  }
}
