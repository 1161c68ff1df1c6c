// The module loader of an isolate: takes what the compiler linked, evaluates it as ECMAScript says.
//
// It is evaluated once, before any user code, and keeps every intrinsic it needs: user code may replace
// Promise.prototype.then, put setters on Object.prototype or Array.prototype, and must not be able to break the
// loader or look into it. So: records without prototypes, no iterators, no spread, no array that grows.
import { resolve } from "./resolve.js";
import { makeFormatter } from "./stack.js";
import {
  apply,
  AsyncGeneratorNext,
  create,
  defineProperty,
  describe,
  describeOwn,
  fromBase64,
  GeneratorNext,
  GeneratorThrow,
  getOwn,
  hasOwn,
  jsonParse,
  keysOf,
  list,
  preventExtensions,
  PromiseCtor,
  PromiseThen,
  ProxyCtor,
  reflectDefine,
  reflectGet,
  sameValue,
  ToStringTag,
  ReferenceErrorCtor,
  SyntaxErrorCtor,
  TypeErrorCtor,
  ErrorCtor,
  uriOf,
} from "./primordials.js";

// The numbers of emit.js.
const ARG_VALUE = 0;
const ARG_GETTER = 1;
const ARG_NAMESPACE = 2;
const ARG_META = 3;
const ARG_IMPORT = 4;
const ARG_ARGUMENTS = 5;
const ARG_EXPORT = 6;
const FLAG_ASYNC = 1;
const FLAG_HOISTS = 2;
const FLAG_DRIVEN = 4;
const NAMESPACE = -1;

const UNLINKED = 0;
const LINKED = 1;
const EVALUATING = 2;
const EVALUATING_ASYNC = 3;
const EVALUATED = 4;

const NOT_ASYNC = 0; // asyncOrder: not async, a number: its place, DONE
const DONE = -1;

const formatter = makeFormatter();

// A promise that only the loader chains on: its `then` and constructor are its own, out of reach.
function pin(promise) {
  defineProperty(promise, "constructor", { __proto__: null, value: undefined });
  defineProperty(promise, "then", { __proto__: null, value: PromiseThen });
  return promise;
}

function newCapability() {
  const c = { __proto__: null, promise: null, resolve: null, reject: null };
  c.promise = pin(
    new PromiseCtor((a, b) => {
      c.resolve = a;
      c.reject = b;
    }),
  );
  return c;
}

const then = (promise, onValue, onError) => {
  pin(apply(PromiseThen, promise, list2(onValue, onError)));
};
function list2(a, b) {
  return { __proto__: null, length: 2, 0: a, 1: b };
}

const argumentsOrThrow = (lenient) => {
  if (hasOwn(globalThis, "arguments")) return globalThis.arguments;
  if (lenient) return undefined;
  throw new ReferenceErrorCtor("Can't find variable: arguments");
};

// Runs a generator as an async function would run: what it yields is awaited.
async function drive(generator) {
  let step = apply(GeneratorNext, generator, list());
  while (!step.done) {
    let value;
    let threw = false;
    try {
      value = await step.value;
    } catch (error) {
      threw = true;
      value = error;
    }
    step = apply(threw ? GeneratorThrow : GeneratorNext, generator, { __proto__: null, length: 1, 0: value });
  }
}

function link(program, evalScript, builtins) {
  const defs = program.modules;
  const count = defs.length;
  const records = list();
  const table = create(null); // what import() can resolve
  let asyncCounter = 0;

  for (let i = 0; i < count; i++) {
    const d = defs[i];
    const flags = d.flags | 0;
    const r = {
      __proto__: null,
      index: i,
      name: d.name,
      key: d.key,
      kind: d.kind,
      def: d,
      hoists: (flags & FLAG_HOISTS) !== 0,
      hasAwait: (flags & FLAG_ASYNC) !== 0,
      driven: (flags & FLAG_DRIVEN) !== 0,
      deps: d.deps || null,
      mutable: d.mutable || null,
      fn: null,
      generator: null,
      values: null, // by slot, when the body has run; a getter where mutable
      cells: null, // by slot, getters, from linking on, in modules that hoist
      namespace: null,
      meta: null,
      commonjs: null,
      status: UNLINKED,
      failed: false,
      error: undefined,
      depth: 0,
      ancestor: 0,
      cycleRoot: null,
      asyncOrder: NOT_ASYNC,
      pending: 0,
      parents: null, // async parents: {record, next}
      capability: null,
      gathered: null,
      onStack: null, // the record below on the evaluation stack
    };
    records[i] = r;
    table[d.key || d.name] = r;
    formatter.add(d.name, d.map || null);
  }

  // ---- linking: scripts become functions, functions that hoist get their scope ----

  function instantiate(root) {
    if (root.status !== UNLINKED) return;
    // A list first, so that a failure leaves nothing half linked.
    let todo = { __proto__: null, record: root, next: null };
    let found = null;
    const seen = create(null);
    while (todo) {
      const r = todo.record;
      todo = todo.next;
      if (seen[r.index] || r.status !== UNLINKED) continue;
      seen[r.index] = true;
      if (r.kind === "error") throw makeError(r.def.error);
      if ((r.kind === "esm" || r.kind === "cjs") && !r.fn) r.fn = evalScript(r.def.code, r.name);
      if (r.kind === "builtin") fillBuiltin(r);
      found = { __proto__: null, record: r, next: found };
      if (r.deps)
        for (let i = r.deps.length - 1; i >= 0; i--) todo = { __proto__: null, record: records[r.deps[i]], next: todo };
    }
    for (let f = found; f; f = f.next) {
      const r = f.record;
      r.status = LINKED;
      if (!r.hoists || r.kind !== "esm") continue;
      r.cells = list(); // the module fills it now, before any body runs
      r.generator = apply(r.fn, undefined, argumentsOf(r));
      if (r.hasAwait && !r.driven) pin(apply(AsyncGeneratorNext, r.generator, list()));
      else apply(GeneratorNext, r.generator, list());
    }
  }

  function fillBuiltin(r) {
    const values = list();
    const from = builtins && getOwn(builtins, r.name);
    const names = r.def.names;
    for (let i = 0; i < names.length; i++) {
      const d = from && from.value && getOwn(from.value, names[i]);
      if (!d) throw new SyntaxErrorCtor(`The built-in module '${r.name}' does not provide '${names[i]}' in this isolate`);
      values[i] = d.value;
    }
    r.values = values;
  }

  function argumentsOf(r) {
    const args = r.def.args;
    const out = list();
    for (let i = 0, k = 0; i < args.length; i += 3, k++) {
      switch (args[i]) {
        case ARG_VALUE:
          out[k] = valueOf(records[args[i + 1]], args[i + 2]);
          break;
        case ARG_GETTER:
          out[k] = getterOf(records[args[i + 1]], args[i + 2]);
          break;
        case ARG_NAMESPACE:
          out[k] = namespaceOf(records[args[i + 1]]);
          break;
        case ARG_META:
          out[k] = metaOf(r);
          break;
        case ARG_IMPORT:
          out[k] = importFrom(r);
          break;
        case ARG_ARGUMENTS:
          out[k] = argumentsOrThrow;
          break;
        case ARG_EXPORT:
          out[k] = exporterOf(r);
          break;
        default:
          out[k] = undefined;
      }
    }
    return out;
  }

  // Called once by the module: with its getters while linking, or with its values at the end of an async body.
  function exporterOf(r) {
    return (values, unnamed) => {
      if (!r.hoists) {
        r.values = values;
        return;
      }
      r.cells = values;
      if (unnamed) defineProperty(unnamed, "name", { __proto__: null, value: "default" });
    };
  }

  function notReady(r) {
    return new ReferenceErrorCtor(`Cannot access a binding of module '${r.name}' before it has been evaluated`);
  }

  function valueOf(r, slot) {
    if (r.cells) return r.cells[slot]();
    if (!r.values) throw notReady(r);
    return r.mutable && r.mutable[slot] ? r.values[slot]() : r.values[slot];
  }

  function getterOf(r, slot) {
    return r.values && r.mutable && r.mutable[slot] ? r.values[slot] : () => valueOf(r, slot);
  }

  function metaOf(r) {
    if (r.meta) return r.meta;
    r.meta = { __proto__: null, url: "file:///bundle/" + uriOf(r.key), main: r.index === program.main };
    return r.meta;
  }

  // ---- namespaces ----

  function namespaceOf(r) {
    if (r.namespace) return r.namespace;
    const target = create(null);
    const where = create(null); // name -> {record, slot}
    const names = list();
    const e = r.def.exports;
    for (let i = 0, k = 0; i < e.length; i += 3, k++) {
      names[k] = e[i];
      where[e[i]] = { __proto__: null, record: records[e[i + 1]], slot: e[i + 2] };
      defineProperty(target, e[i], { __proto__: null, value: undefined, writable: true, enumerable: true });
    }
    defineProperty(target, ToStringTag, { __proto__: null, value: "Module" });
    names[e.length / 3] = ToStringTag;
    preventExtensions(target);
    const read = (name) => {
      const w = where[name];
      return w.slot === NAMESPACE ? namespaceOf(w.record) : valueOf(w.record, w.slot);
    };
    const isExport = (name) => typeof name === "string" && where[name] !== undefined;
    r.namespace = new ProxyCtor(target, {
      __proto__: null,
      get: (t, name, receiver) => (isExport(name) ? read(name) : reflectGet(t, name, receiver)),
      set: () => false,
      getOwnPropertyDescriptor: (t, name) =>
        isExport(name) ? describe(read(name)) : describeOwn(t, name),
      defineProperty: (t, name, d) => {
        if (!isExport(name)) return typeof name === "string" ? false : reflectDefine(t, name, d);
        if (hasOwn(d, "configurable") && d.configurable) return false;
        if (hasOwn(d, "enumerable") && !d.enumerable) return false;
        if (hasOwn(d, "writable") && !d.writable) return false;
        if (hasOwn(d, "get") || hasOwn(d, "set")) return false;
        return hasOwn(d, "value") ? sameValue(d.value, read(name)) : true;
      },
      ownKeys: () => copy(names, e.length / 3 + 1),
    });
    return r.namespace;
  }

  function copy(from, n) {
    const out = list();
    for (let i = 0; i < n; i++) out[i] = from[i];
    return out;
  }

  // ---- evaluation: the abstract operations of the specification, by its names ----

  function execute(r) {
    switch (r.kind) {
      case "esm":
        if (r.hoists) apply(GeneratorNext, r.generator, list());
        else r.values = apply(r.fn, undefined, argumentsOf(r)) || list();
        r.generator = null;
        break;
      case "cjs":
        commonJs(r);
        break;
      case "json":
        r.values = { __proto__: null, 0: jsonParse(r.def.value) };
        break;
      case "text":
        r.values = { __proto__: null, 0: r.def.value };
        break;
      case "data":
        r.values = { __proto__: null, 0: fromBase64(r.def.value).buffer };
        break;
    }
  }

  function evaluate(r) {
    if (r.status >= EVALUATING_ASYNC && r.cycleRoot) r = r.cycleRoot;
    if (r.capability) return r.capability;
    const c = (r.capability = newCapability());
    const state = { __proto__: null, top: null };
    try {
      innerEvaluate(r, state, 0);
    } catch (error) {
      for (let m = state.top; m; ) {
        const below = m.onStack === m ? null : m.onStack;
        m.onStack = null;
        m.status = EVALUATED;
        m.failed = true;
        m.error = error;
        m = below;
      }
      if (!r.failed) {
        r.failed = true;
        r.error = error;
      }
      c.reject(error);
      return c;
    }
    if (r.asyncOrder === NOT_ASYNC || r.asyncOrder === DONE) c.resolve(undefined);
    return c;
  }

  // The stack is a list through `onStack`; its bottom points at itself.
  function innerEvaluate(r, state, index) {
    if (r.status >= EVALUATING_ASYNC) {
      if (r.failed) throw r.error;
      return index;
    }
    if (r.status === EVALUATING) return index;
    r.status = EVALUATING;
    r.depth = r.ancestor = index++;
    r.pending = 0;
    r.onStack = state.top || r;
    state.top = r;
    const deps = r.deps;
    if (deps)
      for (let i = 0; i < deps.length; i++) {
        let d = records[deps[i]];
        index = innerEvaluate(d, state, index);
        if (d.status === EVALUATING) {
          if (d.ancestor < r.ancestor) r.ancestor = d.ancestor;
        } else {
          d = d.cycleRoot || d;
          if (d.failed) throw d.error;
        }
        if (d.asyncOrder > 0) {
          r.pending++;
          d.parents = { __proto__: null, record: r, next: d.parents };
        }
      }
    if (r.pending > 0 || r.hasAwait) {
      r.asyncOrder = ++asyncCounter;
      if (r.pending === 0) executeAsync(r);
    } else execute(r);
    if (r.ancestor === r.depth)
      for (;;) {
        const m = state.top;
        state.top = m.onStack === m ? null : m.onStack;
        m.onStack = null;
        m.status = m.asyncOrder === NOT_ASYNC ? EVALUATED : EVALUATING_ASYNC;
        m.cycleRoot = r;
        if (m === r) break;
      }
    return index;
  }

  function executeAsync(r) {
    let promise;
    if (r.driven) promise = drive(r.generator);
    else if (r.hoists) promise = apply(AsyncGeneratorNext, r.generator, list());
    else {
      let args;
      try {
        args = argumentsOf(r);
      } catch (error) {
        const c = newCapability();
        c.reject(error);
        promise = c.promise;
      }
      if (args) promise = apply(r.fn, undefined, args);
    }
    then(
      pin(promise),
      () => asyncFulfilled(r),
      (error) => asyncRejected(r, error),
    );
  }

  function gatherAncestors(r, found) {
    for (let p = r.parents; p; p = p.next) {
      const m = p.record;
      if (m.gathered === found || (m.cycleRoot || m).failed) continue;
      if (--m.pending > 0) continue;
      m.gathered = found;
      // Kept in the order in which they became async.
      let at = found;
      while (at.next && at.next.record.asyncOrder < m.asyncOrder) at = at.next;
      at.next = { __proto__: null, record: m, next: at.next };
      if (!m.hasAwait) gatherAncestors(m, found);
    }
  }

  function asyncFulfilled(r) {
    if (r.status === EVALUATED) return;
    r.asyncOrder = DONE;
    r.status = EVALUATED;
    r.generator = null;
    if (!r.hoists && !r.values) r.values = list();
    if (r.capability) r.capability.resolve(undefined);
    const found = { __proto__: null, record: null, next: null };
    gatherAncestors(r, found);
    for (let f = found.next; f; f = f.next) {
      const m = f.record;
      if (m.status === EVALUATED) continue;
      if (m.hasAwait) {
        executeAsync(m);
        continue;
      }
      try {
        execute(m);
      } catch (error) {
        asyncRejected(m, error);
        continue;
      }
      m.asyncOrder = DONE;
      m.status = EVALUATED;
      if (m.capability) m.capability.resolve(undefined);
    }
  }

  function asyncRejected(r, error) {
    if (r.status === EVALUATED) return;
    r.failed = true;
    r.error = error;
    r.status = EVALUATED;
    r.asyncOrder = DONE;
    r.generator = null;
    rejectParents(r.parents, error);
    if (r.capability) r.capability.reject(error);
  }

  // The list is newest first; rejections go oldest first.
  function rejectParents(p, error) {
    if (!p) return;
    rejectParents(p.next, error);
    asyncRejected(p.record, error);
  }

  // ---- import() ----

  function importFrom(referrer) {
    return (specifier, options) => {
      let settle;
      let fail;
      const promise = new PromiseCtor((a, b) => {
        settle = a;
        fail = b;
      });
      let target;
      try {
        const type = attributeType(options, `${specifier}`);
        target = find(`${specifier}`, referrer);
        checkType(target, type, specifier);
      } catch (error) {
        fail(error);
        return promise;
      }
      const loaded = newCapability();
      loaded.resolve(undefined);
      then(
        loaded.promise,
        () => {
          let c;
          try {
            instantiate(target);
            c = evaluate(target);
          } catch (error) {
            fail(error);
            return;
          }
          then(c.promise, () => settle(namespaceOf(target)), fail);
        },
        fail,
      );
      return promise;
    };
  }

  function find(specifier, referrer) {
    const key = resolve(table, specifier, referrer.key);
    if (key === undefined) throw new ErrorCtor(`Cannot find module '${specifier}' imported from '${referrer.name}'`);
    return table[key];
  }

  function attributeType(options) {
    if (options === undefined) return "";
    if (!isObject(options)) throw new TypeErrorCtor("The second argument of import() must be an object");
    const attributes = options.with;
    if (attributes === undefined) return "";
    if (!isObject(attributes)) throw new TypeErrorCtor("The 'with' option of import() must be an object");
    const keys = keysOf(attributes);
    let type = "";
    let unknown = null;
    for (let i = 0; i < keys.length; i++) {
      const value = attributes[keys[i]];
      if (typeof value !== "string") throw new TypeErrorCtor("Import attributes must be strings");
      if (keys[i] === "type") type = value;
      else unknown = keys[i];
    }
    if (unknown !== null) throw new TypeErrorCtor(`Import attribute '${unknown}' is not supported; only 'type' is`);
    return type;
  }

  function checkType(target, type, specifier) {
    if (type === "") return;
    const kind = type === "bytes" ? "data" : type;
    if (kind !== "json" && kind !== "text" && kind !== "data")
      throw new TypeErrorCtor(`Import attribute type '${type}' is not supported`);
    if (target.kind !== kind)
      throw new TypeErrorCtor(`Module '${specifier}' is imported with type '${type}' but is not a ${kind} module`);
  }

  // ---- CommonJS ----

  function commonJs(r) {
    if (r.commonjs) return r.commonjs;
    const key = r.key;
    let dir = key.length;
    while (dir > 0 && key[dir - 1] !== "/") dir--;
    let dirname = "";
    for (let i = 0; i < dir - 1; i++) dirname += key[i];
    const module = (r.commonjs = { exports: {}, id: r.name, filename: "/" + key, path: "/" + dirname, loaded: false, children: [] });
    const require = (specifier) => {
      if (typeof specifier !== "string") throw new TypeErrorCtor("require() needs a string");
      return required(find(specifier, r), specifier);
    };
    defineProperty(module, "require", { __proto__: null, value: require, writable: true, configurable: true });
    r.status = EVALUATED;
    try {
      apply(r.fn, module.exports, {
        __proto__: null,
        length: 5,
        0: module.exports,
        1: require,
        2: module,
        3: "/" + key,
        4: "/" + dirname,
      });
    } catch (error) {
      r.failed = true;
      r.error = error;
      throw error;
    }
    module.loaded = true;
    const values = list();
    const names = r.def.names;
    const exports = module.exports;
    values[0] = exports;
    for (let i = 1; i < names.length; i++) {
      values[i] = undefined;
      if (!isObject(exports)) continue;
      try {
        values[i] = exports[names[i]];
      } catch {
        // A getter that fails is an export without a value, as in Node.js.
      }
    }
    r.values = values;
    return module;
  }

  function required(target, specifier) {
    instantiate(target);
    if (target.kind === "cjs") {
      if (target.failed) throw target.error;
      if (target.commonjs) return target.commonjs.exports;
      return commonJs(target).exports;
    }
    const why = obstacle(target, create(null));
    if (why) throw new ErrorCtor(`Cannot require() the ES module '${specifier}': ${why}`);
    const c = evaluate(target);
    then(c.promise, undefined, () => {}); // reported here and now
    if (target.failed) throw target.error;
    if (target.kind === "json" || target.kind === "text" || target.kind === "data") return target.values[0];
    return namespaceOf(target);
  }

  // Why a module cannot be evaluated here and now.
  function obstacle(r, seen) {
    if (seen[r.index] || r.status === EVALUATED) return null;
    seen[r.index] = true;
    if (r.status === EVALUATING) return `'${r.name}' is being evaluated and requires it`;
    if (r.hasAwait || r.status === EVALUATING_ASYNC) return "it uses top-level await; use import() instead";
    for (let i = 0; r.deps && i < r.deps.length; i++) {
      const why = obstacle(records[r.deps[i]], seen);
      if (why) return why;
    }
    return null;
  }

  // ---- what the host holds ----

  const main = records[program.main];
  instantiate(main);
  const linked = {
    __proto__: null,
    // Calls back; without callbacks returns a promise. Both give this object, which is not thenable whatever the
    // module exports.
    evaluate(onDone, onError) {
      const c = evaluate(main);
      if (onDone) {
        then(c.promise, () => onDone(linked), onError);
        return undefined;
      }
      const result = newCapability();
      then(c.promise, () => result.resolve(linked), result.reject);
      return result.promise;
    },
    // An export of the main module; undefined when there is none of that name.
    get(name) {
      const e = main.def.exports;
      for (let i = 0; i < e.length; i += 3)
        if (e[i] === name)
          return e[i + 2] === NAMESPACE ? namespaceOf(records[e[i + 1]]) : valueOf(records[e[i + 1]], e[i + 2]);
      return undefined;
    },
    get namespace() {
      return namespaceOf(main);
    },
  };
  return linked;
}

const isObject = (v) => (typeof v === "object" && v !== null) || typeof v === "function";

function makeError(e) {
  const C = e.name === "SyntaxError" ? SyntaxErrorCtor : e.name === "TypeError" ? TypeErrorCtor : ErrorCtor;
  const at = e.module === null ? "" : ` (${e.module}${e.line === null ? "" : `:${e.line}:${e.column}`})`;
  return new C(e.message + at);
}

export default { __proto__: null, link, formatStack: formatter.format };
