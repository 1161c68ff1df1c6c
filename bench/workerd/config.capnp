using Workerd = import "/workerd/workerd.capnp";

# The shape of the Sandbox example: a parent object that holds a facet with its own SQLite, a loopback that lets a
# dynamic isolate reach it, a tail that collects console lines, and the Worker Loader.
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .main),
    (name = "disk", disk = (path = "data", writable = true)),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);

const main :Workerd.Worker = (
  modules = [(name = "server.js", esModule = embed "server.js")],
  compatibilityDate = "2026-01-28",
  compatibilityFlags = ["experimental"],
  durableObjectNamespaces = [(className = "Agent", uniqueKey = "agent", enableSql = true)],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [
    (name = "AGENT", durableObjectNamespace = "Agent"),
    (name = "LOADER", workerLoader = ()),
  ],
);
