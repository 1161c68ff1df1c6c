/** A file that is put into a message: as text, which every model can read. */

/** A message has at most this much; the server refuses more. */
export const maxMessageChars = 100_000;

/** The text between fences that nothing in it can close. */
export function fenced(name: string, text: string): string {
  const longest = Math.max(0, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = '`'.repeat(Math.max(3, longest + 1));
  const clean = name.replace(/[^\p{L}\p{N}._ -]+/gu, '_').slice(0, 100);
  const language = /\.(\w{1,12})$/.exec(clean)?.[1] ?? '';
  return `File ${clean}:\n${fence}${language}\n${text.replace(/\n?$/, '\n')}${fence}\n`;
}

/** The draft with the files in it, or what is wrong with one, for people. */
export async function attach(
  draft: string,
  files: readonly File[],
): Promise<{ text: string } | { problem: string }> {
  let text = draft === '' || draft.endsWith('\n') ? draft : `${draft}\n\n`;
  for (const file of files) {
    if (file.size > maxMessageChars)
      return { problem: `${file.name} is too long: a message has at most 100,000 characters.` };
    try {
      const bytes = await file.arrayBuffer();
      text += fenced(file.name, new TextDecoder('utf-8', { fatal: true }).decode(bytes));
    } catch {
      return { problem: `${file.name} is no text: the model could not read it.` };
    }
    if (text.includes('\0'))
      return { problem: `${file.name} is no text: the model could not read it.` };
  }
  return text.length > maxMessageChars
    ? { problem: 'Together that is too long: a message has at most 100,000 characters.' }
    : { text };
}
