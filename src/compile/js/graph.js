// Linking at compile time: which binding every import means, which modules form cycles, which names a namespace has.
import { tick } from "./budget.js";
import { CompileError } from "./errors.js";

const STEPS_MAX = 20_000_000;

// A binding is {module, slot}; slot NAMESPACE is the module's namespace object.
export const NAMESPACE = -1;
export const AMBIGUOUS = Symbol("ambiguous");

export class Graph {
  constructor(modules) {
    this.modules = modules;
    this.memo = new Map();
    this.steps = 0;
  }

  step(module) {
    tick();
    if (++this.steps > STEPS_MAX)
      throw new CompileError("SyntaxError", `The module graph is too complex: over ${STEPS_MAX} steps to link`, 0, module);
  }

  // Returns a binding, AMBIGUOUS, or null.
  resolve(module, name) {
    const key = module.index + "\0" + name;
    let result = this.memo.get(key);
    if (result !== undefined) return result;
    result = null;
    // Names change only at `export { a as b } from`, so the modules seen are kept by name.
    const seen = new Map();
    const seenAs = (n) => {
      let s = seen.get(n);
      if (!s) seen.set(n, (s = new Uint8Array(this.modules.length)));
      return s;
    };
    const todo = [module, name];
    while (todo.length) {
      const n = todo.pop();
      const m = todo.pop();
      this.step(module);
      const visited = seenAs(n);
      if (visited[m.index]) continue;
      visited[m.index] = 1;
      let found = m.bindings.get(n);
      if (found === undefined) {
        // Only `export *` can still supply it, and never the default.
        if (n === "default" || !m.stars) continue;
        for (let i = m.stars.length - 1; i >= 0; i--) {
          this.step(module);
          const target = m.deps[m.stars[i]];
          if (!visited[target]) todo.push(this.modules[target], n);
        }
        continue;
      }
      if (found.request !== undefined) {
        const target = this.modules[m.deps[found.request]];
        if (!found.namespace) {
          todo.push(target, found.from);
          continue;
        }
        found = target.namespaceBinding;
      }
      if (result === null) result = found;
      else if (result !== found) {
        result = AMBIGUOUS;
        break;
      }
    }
    this.memo.set(key, result);
    return result;
  }

  // The names of a module's namespace in the order of code units, each with its binding.
  exportsOf(module) {
    const names = new Set();
    const seen = new Set([module]);
    const todo = [module];
    while (todo.length) {
      const m = todo.pop();
      for (const n of m.bindings.keys()) {
        this.step(module);
        if (n !== "default" || m === module) names.add(n);
      }
      for (const s of m.stars ?? []) {
        this.step(module);
        const t = this.modules[m.deps[s]];
        if (!seen.has(t)) {
          seen.add(t);
          todo.push(t);
        }
      }
    }
    const out = [];
    for (const name of [...names].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0))) {
      const binding = this.resolve(module, name);
      if (binding && binding !== AMBIGUOUS) out.push({ name, binding });
    }
    return out;
  }

  // Sets module.hoists on every member of a cycle and on everything those import: their functions may be called
  // before their own body or that of their imports has run.
  findCycles() {
    const { modules } = this;
    const n = modules.length;
    const order = new Int32Array(n).fill(-1);
    const low = new Int32Array(n);
    const onStack = new Uint8Array(n);
    const next = new Int32Array(n);
    const stack = [];
    let counter = 0;
    const cyclic = [];
    for (let root = 0; root < n; root++) {
      if (order[root] >= 0) continue;
      const path = [root];
      while (path.length) {
        const v = path[path.length - 1];
        if (order[v] < 0) {
          order[v] = low[v] = counter++;
          stack.push(v);
          onStack[v] = 1;
        }
        const deps = modules[v].deps ?? [];
        if (next[v] < deps.length) {
          const w = deps[next[v]++];
          if (w === v) cyclic.push(v);
          if (w < 0) continue;
          if (order[w] < 0) path.push(w);
          else if (onStack[w]) low[v] = Math.min(low[v], order[w]);
          continue;
        }
        path.pop();
        if (path.length) low[path[path.length - 1]] = Math.min(low[path[path.length - 1]], low[v]);
        if (low[v] !== order[v]) continue;
        if (stack[stack.length - 1] !== v) for (let i = stack.length - 1; i >= 0 && stack[i] !== v; i--) cyclic.push(stack[i]);
        if (stack[stack.length - 1] !== v) cyclic.push(v);
        let w;
        do {
          w = stack.pop();
          onStack[w] = 0;
        } while (w !== v);
      }
    }
    while (cyclic.length) {
      const v = cyclic.pop();
      if (modules[v].hoists) continue;
      modules[v].hoists = true;
      for (const w of modules[v].deps ?? []) if (w >= 0) cyclic.push(w);
    }
  }
}
