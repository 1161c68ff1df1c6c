import { CompileError } from "./errors.js";

export function erase() {
  throw new CompileError("Error", "TypeScript and JSX modules are not supported", undefined);
}
