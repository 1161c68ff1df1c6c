/** The text of a file, or null where it is none that could be written back as it was. */
export function asText(bytes: Uint8Array): string | null {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    // A text field knows no carriage return and nobody edits NULs.
    return /[\0\r]/.test(text) ? null : text;
  } catch {
    return null;
  }
}
