#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/agent/agent.h"
#include "front/api/api.h"
#include "front/cli/cli.h"
#include "front/code/code.h"
#include "front/code/door.h"
#include "front/code/route.h"
#include "front/execute/execute.h"
#include "front/front.h"
#include "front/guard.h"
#include "front/http/asset.h"
#include "front/job/job.h"
#include "front/ledger/db.h"
#include "front/lock.h"
#include "front/reload.h"
#include "front/run/tails.h"
#include "front/run/workers.h"
#include "front/sandbox/sandboxes.h"
#include "front/store/caretaker.h"
#include "front/task/tasks.h"
#include "front/vercel/vercel.h"
#include "front/web/charset.h"
#include "lock/cgroup.h"
#include "loop/child.h"
#include "loop/spawner.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <netdb.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const char usage[] =
    "usage: cay serve [OPTIONS]\n\n"
    "Starts the server and, beside it, the programs that run code.\n\n"
    "  --listen HOST:PORT|unix:PATH   where to listen (default 127.0.0.1:8787; may be repeated);\n"
    "                                 beyond loopback a key must exist: `cay key create`\n"
    "  --data-dir D                   where runs, agents and keys are kept\n"
    "  --config FILE                  settings (default ./cay.json, then /etc/cay/cay.json); a\n"
    "                                 .env file beside it may hold ANTHROPIC_API_KEY and the like\n"
    "  --agents-dir D                 folder with the agents (default: those that come with cay)\n"
    "  --web-dir D                    serve the page from this folder instead of the built-in one\n"
    "  --log-level L                  debug, info, warn, error or off\n\n"
    "Started as root, everything but the sandbox launcher changes to the user \"cay\" (or, if "
    "there\n"
    "is none, to an unused number).\n";

/* The user that a server started as root changes to when there is no user "cay": an unused number
 * out of the range that systemd keeps for dynamic users. */
enum {
    DESCRIPTORS_OWN = 128, /* programs, control groups, store, listeners; measured: 77 */
    FALLBACK_UID = 64737,
    FACET_IDLE_MS = 30000,
    ISOLATE_PIDS_MAX = 8192,
    GROUP_END_MS = 1000,
};

enum program_file {
    PROGRAM_COMPILE,
    PROGRAM_ISOLATE,
    PROGRAM_FACET,
    PROGRAM_SANDBOX,
    PROGRAM_EGRESS,
    PROGRAM_SPAWN,
    PROGRAM_COUNT,
};

struct serve {
    struct front front;
    struct config config;
    struct secrets secrets;
    struct agent_def *agent_defs;
    struct coder_def *coder_defs;
    uv_loop_t loop;
    uv_signal_t signals[3];
    bool level_given;
    bool time_given;
    struct caretaker *caretaker;
    unsigned parts; /* that are ending */
    int listen_fds[8];
    size_t nlisten;
    int web_fd;
    int lock_fd;
    int program_fds[PROGRAM_COUNT];
    struct spawner *spawner; /* starts all other programs */
    struct child *starter;   /* keeps root, to start cay-sandbox */
    int starter_fd;
    struct cgroups groups;
    int joins[CGROUP_HIERS_MAX]; /* of the isolates' group */
    size_t njoins;
    char *sibling_dir;
    uid_t uid;
    gid_t gid;
    bool drop;
    bool stopping;
};

/* --- before the loop --- */

static int parse(int argc, char **argv, struct serve *s, struct err *err) {
    static const struct option options[] = {{"listen", required_argument, NULL, 'l'},
                                            {"data-dir", required_argument, NULL, 'd'},
                                            {"config", required_argument, NULL, 'c'},
                                            {"web-dir", required_argument, NULL, 'w'},
                                            {"agents-dir", required_argument, NULL, 'a'},
                                            {"log-level", required_argument, NULL, 'L'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    const char *listen[8];
    size_t nlisten = 0;
    const char *data_dir = NULL;
    const char *web_dir = NULL;
    const char *agents_dir = NULL;
    const char *file = NULL;
    const char *level = NULL;
    int c;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 'l':
            if (nlisten == ARRAY_LEN(listen))
                return cli_usage("serve", "too many --listen");
            listen[nlisten++] = optarg;
            break;
        case 'd':
            data_dir = optarg;
            break;
        case 'c':
            file = optarg;
            break;
        case 'w':
            web_dir = optarg;
            break;
        case 'a':
            agents_dir = optarg;
            break;
        case 'L':
            level = optarg;
            break;
        case 'h':
            (void)fputs(usage, stdout);
            return 0;
        default:
            return cli_usage("serve", "unknown option");
        }
    }
    if (optind < argc)
        return cli_usage("serve", "it takes no further words");
    struct config *k = &s->config;
    if (config_load(k, file, err) < 0)
        return cli_fail(err);
    s->level_given = level != NULL;
    if (level && !log_level_parse(level, &k->log_level))
        return cli_usage("serve", "--log-level is debug, info, warn, error or off");
    for (size_t i = 0; i < nlisten; i++) {
        if (i == 0)
            while (k->nlisten > 0)
                free(k->listen[--k->nlisten]);
        if (config_add_listen(k, listen[i], err) < 0)
            return cli_fail(err);
    }
    if (data_dir) {
        free(k->data_dir);
        k->data_dir = xstrdup(data_dir);
    }
    if (web_dir) {
        free(k->web_dir);
        k->web_dir = xstrdup(web_dir);
    }
    if (agents_dir) {
        free(k->agents_dir);
        k->agents_dir = xstrdup(agents_dir);
    }
    config_defaults(k);
    return -1;
}

/* How many descriptors the server holds when all that its limits allow is there at once. */
static uint64_t descriptors_wanted(const struct config *k) {
    const struct runner_config *r = &k->runner;
    uint64_t processes = r->isolates + r->ready_isolates + r->warm_workers + r->facets;
    uint64_t sandboxes = (uint64_t)k->sandboxes.max + k->sandboxes.pool;
    /* A process is a socket and a pidfd, a command its three streams. */
    return DESCRIPTORS_OWN + k->http.connections + 2 * processes + 4 * sandboxes +
           3 * (uint64_t)k->sandboxes.commands;
}

/* Takes all the open files that this machine gives us. Where they are too few, connections, which
 * any client can open, get half: they must not take those of the work. */
static int raise_open_files(struct serve *s, struct err *err) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        return err_sys(err, "getrlimit");
    if (r.rlim_cur < r.rlim_max) {
        rlim_t before = r.rlim_cur;
        r.rlim_cur = r.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &r) < 0)
            r.rlim_cur = before;
    }
    uint64_t wanted = descriptors_wanted(&s->config);
    if (r.rlim_cur >= wanted)
        return 0;
    _cleanup_(free) char *advice =
        xasprintf("set `ulimit -n %llu`, or LimitNOFILE=%llu in its unit",
                  (unsigned long long)wanted, (unsigned long long)wanted);
    if (r.rlim_cur < LIMIT_DESCRIPTORS_MIN)
        return err_set(err, ERR_LIMIT, "the limit of open files is %llu, too few to work with: %s",
                       (unsigned long long)r.rlim_cur, advice);
    s->config.http.connections = MIN(s->config.http.connections, (size_t)r.rlim_cur / 2);
    log_warn("server.open_files", "limit", (int64_t)r.rlim_cur, "wanted", (int64_t)wanted,
             "connections", (int64_t)s->config.http.connections, "advice", advice);
    return 0;
}

static int load_secrets(struct serve *s, struct err *err) {
    _cleanup_(free) char *dir = NULL;
    const char *slash = s->config.file ? strrchr(s->config.file, '/') : NULL;
    if (slash)
        dir = xstrndup(s->config.file, (size_t)(slash - s->config.file) + 1);
    _cleanup_(free) char *file = xasprintf("%s.env", dir ? dir : "");
    return secrets_load(&s->secrets, file, err);
}

static void find_user(struct serve *s) {
    s->uid = geteuid();
    s->gid = getegid();
    s->drop = s->uid == 0;
    if (!s->drop)
        return;
    const struct passwd *pw = getpwnam(s->config.user ? s->config.user : "cay");
    s->uid = pw ? pw->pw_uid : FALLBACK_UID;
    s->gid = pw ? pw->pw_gid : FALLBACK_UID;
}

enum { TREE_DEPTH_MAX = 64 };

/* Gives a folder and what is in it to the server's user. Its present owner may be changing it
 * meanwhile, so no name is resolved twice and no link is followed: each step is taken from a
 * descriptor. A file with a second name may be somebody else's file: it stays as it is. */
static int give_tree(const struct serve *s, int dirfd, const char *name, int depth) {
    /* The operator may have put a link in the place of the data folder, but of nothing in it. */
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (depth > 0 ? O_NOFOLLOW : 0);
    _cleanup_(close) int fd = openat(dirfd, name, flags);
    if (fd < 0)
        return -1;
    DIR *dir = fdopendir(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!dir)
        return -1;
    int rc = 0;
    const struct dirent *e;
    while (rc == 0 && (e = readdir(dir))) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            rc = errno == ENOENT ? 0 : -1;
        else if (S_ISDIR(st.st_mode))
            rc = depth < TREE_DEPTH_MAX ? give_tree(s, fd, e->d_name, depth + 1) : 0;
        else if (st.st_uid != s->uid && st.st_nlink == 1)
            rc = fchownat(fd, e->d_name, s->uid, s->gid, AT_SYMLINK_NOFOLLOW);
    }
    (void)closedir(dir);
    struct stat st;
    if (rc == 0 && fstat(fd, &st) == 0 && st.st_uid != s->uid)
        rc = fchown(fd, s->uid, s->gid);
    return rc;
}

/* What root made in the data folder (with `cay key create`, say) must be the server's. */
static int make_data_dir(struct serve *s, struct err *err) {
    const char *dir = s->config.data_dir;
    int rc = path_mkdirs(dir, 0700, err);
    if (rc < 0)
        return err_wrap(err, "data folder (choose another with --data-dir)");
    if (!s->drop)
        return 0;
    if (give_tree(s, AT_FDCWD, dir, 0) < 0)
        return err_sys(err, "data folder %s", dir);
    return 0;
}

static int lock_data_dir(struct serve *s, struct err *err) {
    _cleanup_(free) char *file = path_join(s->config.data_dir, "lock");
    s->lock_fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->lock_fd < 0)
        return err_sys(err, "data folder %s: open lock", s->config.data_dir);
    char text[32];
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        ssize_t n = pread(s->lock_fd, text, sizeof(text) - 1, 0);
        text[n > 0 ? n : 0] = 0;
        text[strcspn(text, "\n")] = 0;
        return err_set(err, ERR_CONFLICT,
                       "another cay (pid %s) is using the data folder %s: stop it, or choose "
                       "another folder with --data-dir",
                       text, s->config.data_dir);
    }
    int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
    if (ftruncate(s->lock_fd, 0) < 0 || pwrite(s->lock_fd, text, (size_t)n, 0) < 0)
        return err_sys(err, "data folder %s: write lock", s->config.data_dir);
    return 0;
}

static int busy(const char *address, struct err *err) {
    if (errno == EADDRINUSE)
        return err_set(err, ERR_CONFLICT,
                       "%s is in use: stop the program that listens there, or choose another "
                       "address with --listen",
                       address);
    return err_sys(err, "listen on %s", address);
}

static int listen_unix(struct serve *s, const char *address, struct err *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *path = address + 5;
    if (strlen(path) >= sizeof(a.sun_path))
        return err_set(err, ERR_BAD_REQUEST, "%s: the path is too long", address);
    memcpy(a.sun_path, path, strlen(path) + 1);
    _cleanup_(close) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    _cleanup_(close) int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || probe < 0)
        return err_sys(err, "listen on %s", address);
    /* A socket that a dead server left is taken away; a live one is not. */
    if (connect(probe, (struct sockaddr *)&a, sizeof(a)) == 0) {
        errno = EADDRINUSE;
        return busy(address, err);
    }
    if (errno == ECONNREFUSED)
        (void)unlink(path);
    mode_t old = umask(0177);
    int rc = bind(fd, (struct sockaddr *)&a, sizeof(a));
    (void)umask(old);
    if (rc < 0)
        return busy(address, err);
    if (s->drop && chown(path, s->uid, s->gid) < 0)
        return err_sys(err, "listen on %s", address);
    s->front.urls[s->front.nurls++] = xstrdup(address);
    s->listen_fds[s->nlisten++] = steal_fd(&fd);
    return 0;
}

static bool is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24) == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static int listen_tcp(struct serve *s, const char *address, struct err *err) {
    char host[256];
    unsigned port;
    int rc = config_parse_address(address, host, sizeof(host), &port, err);
    if (rc < 0)
        return rc;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    char service[8];
    (void)snprintf(service, sizeof(service), "%u", port);
    int e = getaddrinfo(host, service, &hints, &list);
    if (e != 0)
        return err_set(err, ERR_BAD_REQUEST, "listen on %s: %s", address, gai_strerror(e));
    _cleanup_(close) int fd =
        socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int one = 1;
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd < 0 || bind(fd, list->ai_addr, list->ai_addrlen) < 0) {
        freeaddrinfo(list);
        return busy(address, err);
    }
    if (!is_loopback(list->ai_addr))
        s->front.beyond_loopback = true;
    freeaddrinfo(list);
    /* Two servers on one port both bind with SO_REUSEADDR; only listen() tells them apart. */
    if (listen(fd, 1) < 0)
        return busy(address, err);
    struct sockaddr_storage bound = {0};
    socklen_t n = sizeof(bound);
    (void)getsockname(fd, (struct sockaddr *)&bound, &n);
    const struct sockaddr_in *in = (const struct sockaddr_in *)&bound;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&bound;
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): getsockname() filled it
    unsigned got = bound.ss_family == AF_INET ? ntohs(in->sin_port) : ntohs(in6->sin6_port);
    bool v6 = strchr(host, ':') != NULL;
    s->front.urls[s->front.nurls++] =
        xasprintf("http://%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "", got);
    s->listen_fds[s->nlisten++] = steal_fd(&fd);
    return 0;
}

static int bind_all(struct serve *s, struct err *err) {
    const struct config *c = &s->config;
    for (size_t i = 0; i < c->nlisten; i++) {
        if (s->nlisten == ARRAY_LEN(s->listen_fds))
            return err_set(err, ERR_BAD_REQUEST, "at most %zu addresses to listen on",
                           ARRAY_LEN(s->listen_fds));
        int rc = strncmp(c->listen[i], "unix:", 5) == 0 ? listen_unix(s, c->listen[i], err)
                                                        : listen_tcp(s, c->listen[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int open_web_dir(struct serve *s, struct err *err) {
    s->web_fd = -1;
    if (!s->config.web_dir)
        return 0;
    s->web_fd = open(s->config.web_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return s->web_fd < 0 ? err_sys(err, "web folder %s", s->config.web_dir) : 0;
}

/* Opened while we may still see their folder; started from these descriptors. Without those
 * of sandboxes everything else works. */
static int open_programs(struct serve *s, struct err *err) {
    static const char *const names[PROGRAM_COUNT] = {
        [PROGRAM_COMPILE] = "cay-compile", [PROGRAM_ISOLATE] = "cay-isolate",
        [PROGRAM_FACET] = "cay-facet",     [PROGRAM_SANDBOX] = "cay-sandbox",
        [PROGRAM_EGRESS] = "cay-egress",   [PROGRAM_SPAWN] = "cay-spawn"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        _cleanup_(free) char *path = path_join(s->sibling_dir, names[i]);
        bool needed = i == PROGRAM_COMPILE || i == PROGRAM_ISOLATE || i == PROGRAM_FACET ||
                      (i == PROGRAM_SPAWN && s->config.call_filter);
        s->program_fds[i] = open(path, O_PATH | O_CLOEXEC);
        if (s->program_fds[i] < 0 && needed)
            return err_sys(err, "%s is missing beside cay (run `make`)", names[i]);
    }
    return sandbox_settings_open(&s->config.sandboxes, err);
}

static void on_starter_exit(void *ctx, int wait_status, const struct rusage *used) {
    struct serve *s = ctx;
    char text[64];
    (void)used;
    s->starter = NULL;
    if (!s->stopping)
        log_warn("sandbox.starter", "status", child_status_text(wait_status, text, sizeof(text)),
                 "advice", "sandboxes go on; the other half of it makes new ones");
}

/* Sandboxes of root have host users of their own. What starts them keeps root when we give it up.
 */
static int start_starter(struct serve *s, struct err *err) {
    static const char *const args[] = {"--starter", NULL};
    if (!s->drop || s->program_fds[PROGRAM_SANDBOX] < 0)
        return 0;
    return child_spawn(&s->loop,
                       &(struct child_options){.name = "cay-sandbox",
                                               .exec_fd = s->program_fds[PROGRAM_SANDBOX],
                                               .args = args,
                                               .on_exit = on_starter_exit,
                                               .ctx = s},
                       &s->starter, &s->starter_fd, err);
}

/* Beside the build folder, or installed. */
static int load_agents(struct serve *s, struct err *err) {
    static const char *const places[] = {"../agents", "../share/cay/agents"};
    _cleanup_(free) char *self = path_self_dir();
    if (s->config.agents_dir)
        return agent_defs_load(s->config.agents_dir, &s->agent_defs, err);
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        _cleanup_(free) char *dir = path_join(self, places[i]);
        if (faccessat(AT_FDCWD, dir, F_OK, 0) == 0)
            return agent_defs_load(dir, &s->agent_defs, err);
    }
    log_warn("agents.none", "advice", "name a folder with --agents-dir");
    return 0;
}

/* A second wall around all isolates together, where the machine has control groups for us. */
static void open_groups(struct serve *s) {
    struct err err = {0};
    uint64_t memory = s->config.runner.isolates_memory_bytes;
    if (memory == 0)
        memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4 * 3;
    cgroups_open_gently(&s->groups, getpid());
    cgroups_sweep_stale(&s->groups);
    if (s->groups.version == SANDBOX_CGROUP_NONE)
        return;
    struct cgroup_slot slot;
    int rc = cgroup_slot_open(&s->groups, 0, &slot, &err);
    if (rc == 0) {
        rc = cgroup_slot_limit(&s->groups, &slot, memory, ISOLATE_PIDS_MAX, 0, &err);
        if (rc == 0)
            s->njoins = cgroup_slot_joins(&s->groups, &slot, s->joins);
        cgroup_slot_close(&slot);
    }
    if (rc < 0)
        log_warn("isolates.cgroup", "error", err.message);
    s->front.isolates_memory_bytes = s->njoins > 0 ? memory : 0;
}

static int drop_privileges(struct serve *s, struct err *err) {
    if (s->drop && (setgroups(0, NULL) < 0 || setresgid(s->gid, s->gid, s->gid) < 0 ||
                    setresuid(s->uid, s->uid, s->uid) < 0))
        return err_sys(err, "change to user %u", (unsigned)s->uid);
    secrets_protect_process();
    return 0;
}

/* Programs would inherit the filter, so that somebody without one has to start them. */
static int lock_calls(struct serve *s, struct err *err) {
    if (!s->config.call_filter) {
        log_warn("server.call_filter", "advice",
                 "\"call_filter\" is false: the server may make any system call");
        return 0;
    }
    int rc = spawner_start(&s->loop, s->program_fds[PROGRAM_SPAWN], &s->spawner, err);
    charset_prepare();
    return rc < 0 ? rc : front_lock_calls(err);
}

static int open_ledger(struct serve *s, struct err *err) {
    struct front *f = &s->front;
    int rc = ledger_db_open(s->config.data_dir, &f->ledger_db, err);
    if (rc < 0)
        return rc;
    f->keys = keyring_create(clock_mono_ms);
    struct ledger_watch watch = keyring_watch(f->keys);
    rc = ledger_open(&s->loop, f->ledger_db, &watch, &f->ledger, err);
    if (rc == 0)
        keyring_on_stale(f->keys, ledger_refresh, f->ledger);
    return rc;
}

static int open_data(struct serve *s, struct err *err) {
    int rc = lock_data_dir(s, err);
    if (rc < 0)
        return rc;
    _cleanup_(free) char *file = path_join(s->config.data_dir, "cay.db");
    rc = store_open(file, &s->front.store, err);
    if (rc < 0)
        return rc;
    store_configure(s->front.store, &s->config.store);
    rc = open_ledger(s, err);
    int64_t interrupted = 0;
    if (rc == 0)
        rc = store_run_interrupt_all(s->front.store, &interrupted, err);
    if (rc < 0)
        return rc;
    if (interrupted > 0)
        log_warn("runs.interrupted", "count", interrupted);
    if (keyring_count(s->front.keys) == 0 && (s->front.beyond_loopback || s->config.require_key))
        return err_set(err, ERR_FORBIDDEN,
                       "%s, but there is no key yet: make one with `cay key create --name NAME "
                       "--data-dir %s`",
                       s->front.beyond_loopback ? "listening beyond this machine needs keys"
                                                : "\"require_key\" is set",
                       s->config.data_dir);
    return 0;
}

/* --- the loop --- */

static void on_request_done(const struct http_req *req, const char *route, int status,
                            int64_t duration_us, void *ctx) {
    struct front *f = ctx;
    metrics_request(f->metrics, route, status, duration_us);
    if (log_enabled(LOG_LEVEL_DEBUG) || status >= 500)
        log_info("http.request", "id", http_req_id(req), "method",
                 http_method_name(http_req_method(req)), "route", route, "status", status, "us",
                 duration_us);
}

static void on_page(struct http_req *req, void *ctx) {
    asset_respond(req, CONTAINER_OF(ctx, struct serve, front)->web_fd);
}

void front_children(const struct front *f,
                    void (*on_child)(void *ctx, const struct keeper_info *info), void *ctx) {
    struct keeper_info isolate = pool_info(f->runner->pool);
    compiler_children(f->runner->compiler, on_child, ctx);
    on_child(ctx, &isolate);
    sandboxes_children(f->sandboxes, on_child, ctx);
}

void front_model(const struct front *f, const char **ret_provider, const char **ret_name) {
    const struct model_info *info = NULL;
    bool found = models_find(f->models, f->config->model, &info, NULL) == 0;
    *ret_provider = found ? model_provider_name(info->provider) : "none";
    *ret_name = found ? info->id : f->config->model;
}

static int start_http(struct serve *s, struct err *err) {
    struct front *f = &s->front;
    f->http = http_server_create(&(struct http_server_options){
        .loop = &s->loop,
        .limits = s->config.http,
        .guard = guard_request,
        .preflight = guard_preflight,
        .observer = on_request_done,
        .is_guest_host = guard_is_guest_host,
        .guest_handler = api_guest,
        .fallback = on_page,
        .ctx = f,
    });
    api_health_routes(f);
    api_status_routes(f);
    api_config_routes(f);
    api_runs_routes(f);
    api_artifacts_routes(f);
    api_run_routes(f);
    api_tasks_routes(f);
    api_agents_routes(f);
    api_sandboxes_routes(f);
    api_ports_routes(f);
    api_execs_routes(f);
    api_files_routes(f);
    api_snapshots_routes(f);
    api_code_routes(f);
    api_execute_routes(f);
    f->vercel = vercel_create(f);
    for (size_t i = 0; i < s->nlisten; i++) {
        int rc = http_server_listen(f->http, s->listen_fds[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* When nothing works any more, no job is left. */
static void on_part_ended(void *ctx) {
    struct serve *s = ctx;
    if (--s->parts > 0)
        return;
    codes_destroy(s->front.codes);
    vercel_destroy(s->front.vercel);
    jobs_destroy(s->front.jobs); /* tells the last ends */
    ledger_close(s->front.ledger);
    tasks_destroy(s->front.tasks);
}

static void on_sandboxes_closed(void *ctx) {
    struct serve *s = ctx;
    fd_close(&s->starter_fd); /* its end */
    on_part_ended(s);
}

static void on_drained(void *ctx) {
    struct serve *s = ctx;
    http_server_destroy(s->front.http);
    tasks_end_jobs(s->front.tasks);
    agents_destroy(s->front.agents);
    reload_close(s->front.reload);
    executes_close(s->front.executes);
    codes_close(s->front.codes);
    door_close(s->front.door);
    models_close(s->front.models, NULL, NULL);
    workers_destroy(s->front.workers);
    tails_close(s->front.tails);
    s->parts = 2;
    runner_stop(s->front.runner, on_part_ended, s);
    sandboxes_close(s->front.sandboxes, on_sandboxes_closed, s);
    for (size_t i = 0; i < ARRAY_LEN(s->signals); i++)
        uv_close((uv_handle_t *)&s->signals[i], NULL);
    caretaker_close(s->caretaker);
}

static void on_signal(uv_signal_t *h, int signo) {
    struct serve *s = h->data;
    struct err err;
    if (signo == SIGHUP) {
        if (reload_now(s->front.reload, NULL, &err) < 0)
            log_error("config.reload", "error", err.message);
        return;
    }
    if (s->stopping)
        _exit(128 + signo); /* asked twice: do not wait */
    s->stopping = true;
    log_info("server.stopping", "signal", signo);
    tasks_stop(s->front.tasks);
    http_server_drain(s->front.http, s->config.drain_timeout_ms, on_drained, s);
}

static void print_banner(const struct serve *s) {
    const char *provider;
    const char *model;
    front_model(&s->front, &provider, &model);
    (void)printf("cay " CAY_VERSION "\n");
    for (size_t i = 0; i < s->front.nurls; i++)
        (void)printf("  listening  %s\n", s->front.urls[i]);
    if (strcmp(provider, "demo") == 0)
        (void)printf("  model      demo (a script; set ANTHROPIC_API_KEY or OPENAI_API_KEY for a "
                     "real one)\n");
    else
        (void)printf("  model      %s (%s)\n", model, provider);
    (void)printf("  isolation  ");
    const struct features *f = &s->front.features;
    for (size_t i = 0; i < f->n; i++)
        (void)printf("%s%s %s", i ? ", " : "", f->items[i].name,
                     feature_status_name(f->items[i].status));
    (void)printf("\n  data       %s\n", s->config.data_dir);
    (void)fflush(stdout);
}

extern const char coder_demo_json[]; /* made from code/demo.json */

/* The demo model is served to sandboxes too, so that everything can be tried without a key. */
static int open_door(struct serve *s, struct err *err) {
    struct front *f = &s->front;
    f->door_script = json_loads(coder_demo_json, 0, NULL);
    int rc = door_open(&s->loop, f->door_script, &f->door, err);
    f->private_upstreams = code_route_private(&s->secrets, f->door);
    return rc;
}

static int read_time(struct serve *s, struct err *err) {
    const char *text = secrets_take(&s->secrets, "MAX_EXECUTION_TIME");
    s->time_given = text != NULL;
    return execute_settings_time(&s->config.execute, text, err);
}

static int run(struct serve *s, struct err *err) {
    struct front *f = &s->front;
    f->loop = &s->loop;
    f->config = &s->config;
    f->secrets = &s->secrets;
    f->metrics = metrics_create();
    f->sessions = sessions_create();
    f->started_ms = clock_mono_ms();
    f->facet_open = (struct facet_open){.file = (char *)"data.db", .idle_ms = FACET_IDLE_MS};
    f->runner =
        runner_create(&(struct runner_options){.loop = &s->loop,
                                               .config = s->config.runner,
                                               .compile_fd = s->program_fds[PROGRAM_COMPILE],
                                               .isolate_fd = s->program_fds[PROGRAM_ISOLATE],
                                               .joins = s->joins,
                                               .njoins = s->njoins,
                                               .facet_fd = s->program_fds[PROGRAM_FACET]});
    f->jobs = jobs_create(&s->loop, f->store);
    f->workers = workers_create(&(struct workers_options){.facet_open = &f->facet_open,
                                                          .runner = f->runner,
                                                          .store = f->store,
                                                          .jobs = f->jobs,
                                                          .data_dir = s->config.data_dir});
    f->tails = tails_create(&s->loop, f->store, s->config.tail_origins, s->config.ntail_origins);
    int rc = models_create(&s->loop,
                           &(struct models_options){.file = s->config.models_file,
                                                    .secrets = &s->secrets,
                                                    .demo_delay_ms = -1},
                           &f->models, err);
    if (rc < 0)
        return rc;
    f->agents = agents_create(&(struct agents_options){.loop = &s->loop,
                                                       .runner = f->runner,
                                                       .jobs = f->jobs,
                                                       .models = f->models,
                                                       .defs = s->agent_defs,
                                                       .model = s->config.model,
                                                       .limits = s->config.agents,
                                                       .data_dir = s->config.data_dir});
    rc = open_door(s, err);
    if (rc == 0)
        rc = read_time(s, err);
    if (rc < 0)
        return rc;
    rc = sandboxes_open(
        &(struct sandboxes_options){.loop = &s->loop,
                                    .private_also = f->private_upstreams,
                                    .store = f->store,
                                    .settings = &s->config.sandboxes,
                                    .secrets = &s->secrets,
                                    .models = model_catalog_json(models_catalog(f->models)),
                                    .data_dir = s->config.data_dir,
                                    .sandbox_fd = s->drop ? -1 : s->program_fds[PROGRAM_SANDBOX],
                                    .egress_fd = s->program_fds[PROGRAM_EGRESS],
                                    .starter = s->starter_fd},
        &f->sandboxes, err);
    if (rc < 0)
        return rc;
    f->codes = codes_create(&(struct codes_options){.loop = &s->loop,
                                                    .jobs = f->jobs,
                                                    .sandboxes = f->sandboxes,
                                                    .models = f->models,
                                                    .model = s->config.model,
                                                    .secrets = &s->secrets,
                                                    .door = f->door,
                                                    .defs = s->coder_defs,
                                                    .task_ms = s->config.execute.timeout_ms});
    f->executes =
        executes_create(&(struct executes_options){.loop = &s->loop,
                                                   .jobs = f->jobs,
                                                   .models = f->models,
                                                   .runner = f->runner,
                                                   .network = sandboxes_network(f->sandboxes),
                                                   .model = s->config.model,
                                                   .settings = &s->config.execute});
    secrets_warn_unused(&s->secrets);
    rc = start_http(s, err);
    if (rc < 0)
        return rc;
    rc = reload_create(
        &(struct reload_options){.front = f,
                                 .config = &s->config,
                                 .level_given = s->level_given,
                                 .time_given = s->time_given,
                                 .service_url = secrets_take(&s->secrets, "CONFIG_SERVICE_URL"),
                                 .service_token =
                                     secrets_take(&s->secrets, "CONFIG_SERVICE_TOKEN")},
        &f->reload, err);
    if (rc < 0)
        return rc;
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        (void)uv_signal_init(&s->loop, &s->signals[i]);
        s->signals[i].data = s;
        (void)uv_signal_start(&s->signals[i], on_signal, signals[i]);
    }
    f->tasks = tasks_create(&(struct tasks_options){.loop = &s->loop,
                                                    .ledger = f->ledger,
                                                    .keys = f->keys,
                                                    .settings = &s->config.tasks,
                                                    .rooms = {.jobs = f->jobs,
                                                              .runner = f->runner,
                                                              .workers = f->workers,
                                                              .facet_open = &f->facet_open,
                                                              .codes = f->codes,
                                                              .executes = f->executes}});
    s->caretaker = caretaker_create(&s->loop, f->store);
    print_banner(s);
    (void)uv_run(&s->loop, UV_RUN_DEFAULT);
    spawner_stop(steal_ptr(&s->spawner));
    (void)uv_run(&s->loop, UV_RUN_DEFAULT);
    return 0;
}

static void finish(struct serve *s) {
    struct front *f = &s->front;
    spawner_stop(s->spawner);
    (void)uv_loop_close(&s->loop); /* unless something was begun and could not be ended */
    json_decref(f->door_script);
    json_decref(f->private_upstreams);
    store_close(f->store);
    keyring_destroy(f->keys);
    ledger_db_close(f->ledger_db);
    metrics_destroy(f->metrics);
    sessions_destroy(f->sessions);
    for (size_t i = 0; i < f->nurls; i++) {
        if (strncmp(f->urls[i], "unix:", 5) == 0)
            (void)unlink(f->urls[i] + 5);
        free(f->urls[i]);
    }
    if (!s->drop) /* else the starter, which has the right */
        cgroups_sweep_own(&s->groups, GROUP_END_MS);
    cgroups_close(&s->groups);
    for (size_t i = 0; i < s->njoins; i++)
        fd_close(&s->joins[i]);
    fd_close(&s->web_fd);
    fd_close(&s->lock_fd);
    for (size_t i = 0; i < ARRAY_LEN(s->program_fds); i++)
        fd_close(&s->program_fds[i]);
    agent_defs_free(s->agent_defs);
    coder_defs_free(s->coder_defs);
    secrets_finish(&s->secrets);
    config_finish(&s->config);
    free(s->sibling_dir);
    free(s);
}

int cli_serve(int argc, char **argv) {
    struct err err;
    struct serve *s = xcalloc(1, sizeof(*s));
    s->web_fd = s->lock_fd = s->starter_fd = -1;
    for (size_t i = 0; i < ARRAY_LEN(s->program_fds); i++)
        s->program_fds[i] = -1;
    config_init(&s->config);
    int done = parse(argc, argv, s, &err);
    if (done >= 0) {
        config_finish(&s->config);
        free(s);
        return done;
    }
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    log_init("cay", s->config.log_level);
    (void)umask(077); /* what is made here is nobody else's to read */
    s->sibling_dir = cli_sibling_dir();
    find_user(s);
    (void)uv_loop_init(&s->loop);
    features_probe(&s->front.features, s->sibling_dir, false);
    int rc = raise_open_files(s, &err);
    if (rc == 0)
        rc = load_secrets(s, &err);
    if (rc == 0)
        rc = make_data_dir(s, &err);
    if (rc == 0)
        rc = open_web_dir(s, &err);
    if (rc == 0)
        rc = load_agents(s, &err);
    if (rc == 0)
        rc = cli_load_coders(&s->config, s->sibling_dir, &s->coder_defs, &err);
    if (rc == 0)
        rc = open_programs(s, &err);
    if (rc == 0)
        rc = bind_all(s, &err);
    if (rc == 0)
        rc = start_starter(s, &err);
    if (rc == 0) {
        open_groups(s);
        rc = drop_privileges(s, &err);
    }
    if (rc == 0)
        rc = lock_calls(s, &err);
    if (rc == 0)
        rc = open_data(s, &err);
    if (rc < 0 && s->front.ledger) {
        ledger_close(s->front.ledger);
        (void)uv_run(&s->loop, UV_RUN_NOWAIT);
    }
    if (rc == 0)
        rc = run(s, &err);
    finish(s);
    return rc < 0 ? cli_fail(&err) : 0;
}
