// Built-in modules and the words for a specifier that leads nowhere.

// Their exports, so that a wrong import is found at compile time. The isolate's prelude supplies the values.
export const BUILTINS = {
  "cloudflare:workers": [
    "DurableObject",
    "RpcPromise",
    "RpcProperty",
    "RpcStub",
    "RpcTarget",
    "ServiceStub",
    "WorkerEntrypoint",
    "WorkflowEntrypoint",
    "env",
    "exports",
    "waitUntil",
    "withEnv",
    "withExports",
    "withEnvAndExports",
  ],
  "cloudflare:sockets": ["connect", "internalNewHttpClient"],
};

const NODE = new Set(
  ("assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns domain events fs " +
    "http http2 https inspector module net os path perf_hooks process punycode querystring readline repl stream " +
    "string_decoder sys timers tls tty url util v8 vm wasi worker_threads zlib").split(" "),
);

function closest(name, given) {
  const tail = name.slice(name.lastIndexOf("/") + 1).toLowerCase();
  const stem = tail.replace(/\.[^.]*$/, "");
  if (!stem) return null;
  let n = 0;
  for (const key in given) {
    if (++n > 1000) return null;
    const other = key.slice(key.lastIndexOf("/") + 1).toLowerCase();
    if (other === tail || other.replace(/\.[^.]*$/, "") === stem) return given[key].name;
  }
  return null;
}

export function notFound(specifier, importer, given) {
  const shown = specifier.length > 200 ? specifier.slice(0, 200) + "…" : specifier;
  const head = `Cannot find module '${shown}' imported from '${importer.name}'`;
  if (/^(\.{0,2}\/)/.test(specifier)) {
    const near = closest(specifier, given);
    return near ? `${head}; did you mean '${near}'?` : head;
  }
  if (specifier.startsWith("node:") || NODE.has(specifier.split("/")[0]))
    return `${head}: Node.js built-in modules are not available here; use JavaScript and web APIs, or the bindings in env`;
  if (/^(https?|data|blob|file):/.test(specifier))
    return `${head}: modules are not loaded from URLs; add the source to the modules of the program`;
  if (/^(npm|jsr):/.test(specifier))
    return `${head}: packages are not installed here; bundle the code into the modules of the program`;
  if (/^cloudflare:/.test(specifier))
    return `${head}: of the cloudflare: modules, only cloudflare:workers and cloudflare:sockets exist here`;
  if (/^[a-z][a-z0-9+.-]*:/i.test(specifier)) return `${head}: this scheme is not supported`;
  const near = closest(specifier, given);
  if (near) return `${head}; did you mean '${near}'?`;
  return `${head}: npm packages are not available here; bundle the code into the modules of the program`;
}
