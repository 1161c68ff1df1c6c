/** bash where there is one. By this text the page knows its shells again. */
export const shellCommand = 'if command -v bash >/dev/null; then exec bash; else exec sh; fi';

export const shellBody = (cols: number, rows: number) => ({
  command: shellCommand,
  env: { TERM: 'xterm-256color' },
  tty: true,
  cols,
  rows,
});
