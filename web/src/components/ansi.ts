/**
 * Programs write for terminals: colours, cursor moves, links. The page shows the text alone. What
 * is not a letter of some script, a tab or a line's end could only mislead a reader.
 */
const escapes =
  // CSI, then OSC/DCS/PM/APC/SOS up to their end, then the two-character ones.
  /\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_](?:[^\x07\x1b\x9c]|\x1b(?!\\))*(?:\x07|\x1b\\|\x9c|$)|\x1b[ -/]*[0-~]?|\x9b[0-?]*[ -/]*[@-~]/g;
const controls = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g;
/** Characters that turn the direction of the text round, and with it what a line seems to say. */
const directions = /[\u202a-\u202e\u2066-\u2069]/g;

export function plainText(text: string): string {
  return text
    .replace(escapes, '')
    .replace(/\r\n?/g, '\n')
    .replace(controls, '')
    .replace(directions, '\ufffd');
}
