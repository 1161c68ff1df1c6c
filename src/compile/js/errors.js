// An error with a place. `pos` is an offset into the text that was being read; compile.js turns it into `at`. (The
// engine itself puts line and column on errors: where they were made.)
export class CompileError extends Error {
  constructor(name, message, pos) {
    super(message);
    this.name = name;
    this.pos = pos;
  }
}
