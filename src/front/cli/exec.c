#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/rand.h"
#include "base/text.h"
#include "front/cli/cli.h"
#include "front/cli/console.h"
#include "front/cli/options.h"
#include "front/cli/stdio.h"
#include "front/cli/terminal.h"
#include "front/config/config.h"
#include "front/sandbox/launcher.h"
#include "wire/egress.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One command in a sandbox of its own, with no server: create, run, destroy. */

static const char usage[] =
    "usage: cay exec [OPTIONS] [--] COMMAND [ARGUMENT...]\n\n"
    "Runs a command in a Linux sandbox that is made for it and destroyed after it, with no server\n"
    "needed. It sees the programs of this machine (/usr, read-only), an empty disk in memory, and\n"
    "nothing else: no network, no environment, no files but what it is given here.\n\n"
    "  -v, --volume HOSTPATH:GUESTPATH[:rw]\n"
    "                      show it a folder or a file, read-only unless :rw (may be repeated)\n"
    "  -n, --net HOSTS     let it reach these, and no others: example.com,*.example.org:8443\n"
    "  -e, --env K=V       set a variable; K alone passes on yours (may be repeated)\n"
    "  -w, --workdir DIR   where it begins (default /work)\n"
    "  -t, --tty           give it a terminal\n"
    "  -m, --memory SIZE   most memory, its files included: 256m, 4g (default 1g); watched, not\n"
    "                      enforced, where you have no cgroup (`cay doctor`)\n"
    "      --timeout TIME  end it after: 10s, 5m (default: never)\n"
    "      --root NAME     another system than this machine's: a root of cay.json, or the path of "
    "a\n"
    "                      folder or tar archive\n"
    "      --config FILE   the cay.json that --root is a name of (default /etc/cay/cay.json);\n"
    "                      ./cay.json is not read\n"
    "      --json          print one JSON object when it has ended, instead of its output\n"
    "  -q, --quiet         no remarks of cay's own\n\n"
    "The exit status is the command's; 128+N if signal N ended it, 124 if it ran out of time, 126\n"
    "if it cannot be executed, 127 if it was not found.\n"
    "Ctrl-C goes to the command; the third one ends it whatever it does.\n";

enum {
    INPUT_HIGH_BYTES = SANDBOX_INPUT_MAX / 4,
    HOSTS_TOLD_MAX = 32,
    /* As root a sandbox has two host uids of its own, from a range that nobody hands out. */
    UID_FIRST = 0x70000000,
    UID_SLOTS = 1 << 20,
};

struct exec_cli {
    uv_loop_t loop;
    const char *root_asked; /* of the command line */
    const char *config;
    struct sandbox_launcher *host;
    struct sandbox_box *box;
    struct sandbox_command *command;
    struct keeper *egress;
    uv_timer_t timer;
    struct console console;
    /* what was asked for */
    struct sandbox_spec spec;
    struct sandbox_exec exec;
    int bind_fds[SANDBOX_BINDS_MAX];
    struct sandbox_root root;
    struct egress_policy policy;
    struct sandbox_strv private; /* of these, those that were named by an address */
    int64_t timeout_ms;
    bool json;
    bool quiet;
    const char *workdir;
    /* what came of it */
    bool memory_watched; /* no cgroup holds it to its memory */
    int listener;
    int egress_fd;
    uint32_t uid;
    int status;  /* -1 until it is known */
    bool ending; /* the sandbox is to go: its status stands */
    bool command_ended;
    bool timed_out;
    bool has_exit;
    bool finished;
    struct sandbox_exit exit;
    struct sandbox_stats stats;
    struct err err; /* of cay, not of the command */
    int64_t started_ms;
    int64_t ended_ms;
    char *told[HOSTS_TOLD_MAX];
    size_t ntold;
};

/* --- the end --- */

__attribute__((format(printf, 2, 3))) static void cli_exec_remark(const struct exec_cli *c,
                                                                  const char *fmt, ...) {
    va_list ap;
    char text[512];
    if (c->quiet)
        return;
    va_start(ap, fmt);
    (void)text_vprint(text, sizeof(text), fmt, ap);
    va_end(ap);
    (void)fputs("cay: ", stderr);
    terminal_print(stderr, text, strlen(text));
    (void)fputs(c->exec.tty ? "\r\n" : "\n", stderr);
}

static void cli_exec_on_host_stopped(void *ctx) {
    struct exec_cli *c = ctx;
    console_close(&c->console);
    uv_close((uv_handle_t *)&c->timer, NULL);
}

/* Nothing of the sandbox is left. */
static void cli_exec_finish(struct exec_cli *c) {
    if (c->finished)
        return;
    c->finished = true;
    if (c->egress)
        keeper_stop(c->egress, NULL, NULL);
    c->egress = NULL;
    if (c->host)
        sandbox_launcher_stop(c->host, cli_exec_on_host_stopped, c);
    else
        cli_exec_on_host_stopped(c);
}

static void cli_exec_destroy(struct exec_cli *c) {
    if (c->box)
        sandbox_box_destroy(c->box);
    else
        cli_exec_finish(c);
}

/* Ends the sandbox whatever it does; the first reason counts. */
static void cli_exec_end(struct exec_cli *c, int status) {
    if (c->ending)
        return;
    c->ending = true;
    if (c->status < 0)
        c->status = status;
    cli_exec_destroy(c);
}

static void cli_exec_fail(struct exec_cli *c, const struct err *err) {
    if (c->status < 0 && !c->err.code)
        c->err = *err;
    cli_exec_end(c, err_exit_status(err->code));
}

/* --- the command --- */

static void cli_exec_on_started(void *ctx) {
    struct exec_cli *c = ctx;
    console_start(&c->console);
}

static void cli_exec_on_output(void *ctx, int stream, const char *data, size_t len) {
    struct exec_cli *c = ctx;
    if (!console_write(&c->console, stream, data, len) && c->command)
        sandbox_command_pause(c->command, true);
}

static void cli_exec_on_input_drained(void *ctx) {
    struct exec_cli *c = ctx;
    if (!c->command_ended)
        console_read(&c->console, true);
}

/* 127 and 126 as a shell says them; a missing folder is cay's own failure. */
static void not_started(struct exec_cli *c, const struct err *err) {
    const char *name = c->exec.argv.items[0];
    size_t n = strlen(name);
    bool is_command = strncmp(err->message, name, n) == 0 && err->message[n] == ':';
    if (!is_command || (err->sys != ENOENT && err->sys != ENOTDIR && err->sys != EACCES &&
                        err->sys != ENOEXEC && err->sys != EPERM)) {
        c->err = *err;
        c->status = err_exit_status(err->code);
        return;
    }
    bool missing = err->sys == ENOENT || err->sys == ENOTDIR;
    c->status = missing ? EXIT_STATUS_NOT_FOUND : EXIT_STATUS_NOT_EXECUTABLE;
    if (missing)
        (void)err_set(&c->err, ERR_NOT_FOUND,
                      "%s: not found in the sandbox (it has %s; -v shows it a folder of yours)",
                      name, *c->spec.root ? "the --root" : "this machine's /usr");
    else
        (void)err_set(&c->err, ERR_FORBIDDEN,
                      "%s: found in the sandbox, but it cannot be executed (%s)", name,
                      strerror(err->sys));
}

static void cli_exec_on_exit_job(void *ctx, const struct sandbox_exit *exit,
                                 const struct err *err) {
    struct exec_cli *c = ctx;
    c->command = NULL;
    c->command_ended = true;
    c->ended_ms = clock_mono_ms();
    console_read(&c->console, false);
    if (exit) {
        c->exit = *exit;
        c->has_exit = true;
        if (c->status < 0)
            c->status = (int)exit->code + (exit->signaled ? 128 : 0);
    } else if (c->status < 0) {
        not_started(c, err);
    }
    if (console_is_drained(&c->console))
        cli_exec_destroy(c);
}

static void start_job(struct exec_cli *c) {
    struct err err;
    c->started_ms = clock_mono_ms();
    if (c->exec.tty)
        (void)stdio_size(&c->exec.cols, &c->exec.rows);
    c->command =
        sandbox_command_start(c->box,
                              &(struct sandbox_command_options){
                                  .exec = &c->exec,
                                  .input = true,
                                  .callbacks = {.on_started = cli_exec_on_started,
                                                .on_output = cli_exec_on_output,
                                                .on_input_drained = cli_exec_on_input_drained,
                                                .on_exit = cli_exec_on_exit_job},
                                  .ctx = c},
                              &err);
    if (!c->command)
        cli_exec_fail(c, &err);
}

/* --- the way out --- */

static void cli_exec_on_egress_start(void *ctx, struct channel *channel) {
    struct exec_cli *c = ctx;
    _cleanup_(buf) struct buf config;
    _cleanup_(buf) struct buf opening;
    struct egress_config settings = {.ca_file = (char *)"", .private = c->private};
    struct egress_usage unused = {.sandbox = c->spec.id};
    buf_init(&config, EGRESS_FRAME_MAX);
    buf_init(&opening, EGRESS_FRAME_MAX);
    pack_egress_config(&config, &settings);
    pack_str(&opening, c->spec.id);
    pack_egress_policy(&opening, &c->policy);
    pack_egress_usage(&opening, &unused);
    (void)channel_send(
        channel,
        &(struct wire_out){.type = EGRESS_CONFIG, .id = 1, .pieces = {{config.data, config.len}}});
    (void)channel_send(channel, &(struct wire_out){.type = EGRESS_OPEN,
                                                   .id = 2,
                                                   .pieces = {{opening.data, opening.len}},
                                                   .fds = &c->listener,
                                                   .nfds = 1});
}

/* Says once for each host that it was refused or cut, so that whoever wrote the list can mend it.
 */
static void cli_exec_on_refused(struct exec_cli *c, struct unpack *u) {
    struct egress_event e;
    unpack_egress_event(u, &e);
    bool cut = e.state == EGRESS_ENDED && e.cut;
    if (unpack_ok(u) && (e.state == EGRESS_REFUSED || cut) && c->ntold < ARRAY_LEN(c->told)) {
        char text[EGRESS_AUTHORITY_SIZE];
        _cleanup_(free) char *name = xstrdup(egress_authority_text(e.host, e.port, text));
        size_t i = 0;
        while (i < c->ntold && strcmp(c->told[i], name) != 0)
            i++;
        if (i == c->ntold) {
            bool unlisted = *e.host && strstr(e.reason, "is not allowed for this sandbox");
            if (cut)
                cli_exec_remark(c, "cut: %s: %s", name, e.reason);
            else
                cli_exec_remark(c, "refused: %s%s", unlisted ? name : e.reason,
                                unlisted ? " is not in --net" : "");
            c->told[c->ntold++] = steal_ptr(&name);
        }
    }
    egress_event_finish(&e);
}

static void cli_exec_on_egress_frame(void *ctx, struct wire_frame *f) {
    struct exec_cli *c = ctx;
    struct err err;
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    if (f->type == EGRESS_FAILED) {
        (void)unpack_sandbox_error(&u, &err);
        cli_exec_fail(c, &err);
    } else if (f->type == EGRESS_DONE && f->id == 2 && !c->command && !c->ending) {
        start_job(c);
    } else if (f->type == EGRESS_EVENT) {
        cli_exec_on_refused(c, &u);
    }
}

static void cli_exec_on_egress_end(void *ctx) {
    struct exec_cli *c = ctx;
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "cay-egress, the way out of the sandbox, has ended");
    if (!c->finished)
        cli_exec_fail(c, &err);
}

static void start_egress(struct exec_cli *c) {
    struct err err;
    c->egress_fd = cli_open_sibling("cay-egress", &err);
    if (c->egress_fd < 0) {
        cli_exec_fail(c, &err);
        return;
    }
    c->egress = keeper_create(
        &c->loop, &(struct keeper_options){.name = "cay-egress",
                                           .exec_fd = c->egress_fd,
                                           .drop = geteuid() == 0,
                                           .uid = (uid_t)c->uid + 2,
                                           .gid = (gid_t)c->uid + 2,
                                           .max_frame_bytes = EGRESS_FRAME_MAX,
                                           .max_queue_bytes = (size_t)4 * EGRESS_FRAME_MAX,
                                           .on_start = cli_exec_on_egress_start,
                                           .on_frame = cli_exec_on_egress_frame,
                                           .on_end = cli_exec_on_egress_end,
                                           .ctx = c});
}

/* --- the sandbox --- */

static void cli_exec_on_ready(void *ctx, int listener) {
    struct exec_cli *c = ctx;
    c->listener = listener;
    if (c->ending)
        return;
    const struct sandbox_features *f = sandbox_launcher_features(c->host);
    c->memory_watched = f && !(f->controllers & SANDBOX_HAS_MEMORY);
    if (c->memory_watched && c->spec.memory_bytes && !c->json)
        cli_exec_remark(c, "--memory is watched, not enforced: `cay doctor` tells why");
    if (c->policy.nallow > 0)
        start_egress(c);
    else
        start_job(c);
}

static void cli_exec_on_failed(void *ctx, const struct err *err) {
    struct exec_cli *c = ctx;
    struct err why;
    c->box = NULL;
    if (c->ending) { /* before it was ready: that was our doing */
        cli_exec_finish(c);
        return;
    }
    /* What is wrong with the machine says more than what came of the request. */
    if (sandbox_launcher_check(c->host, &why) == 0) {
        cli_exec_fail(c, err);
        return;
    }
    /* The kernel has no better word for it. */
    bool used_up = strstr(why.message, strerror(ENOSPC)) != NULL;
    struct err all;
    (void)err_set(&all, why.code, "%s%s; `cay doctor` tells what to do", why.message,
                  used_up ? " (no user namespace is left: sysctl user.max_user_namespaces)" : "");
    cli_exec_fail(c, &all);
}

static void cli_exec_on_exited(void *ctx, const struct sandbox_stats *stats,
                               const struct err *err) {
    struct exec_cli *c = ctx;
    c->box = NULL;
    c->stats = *stats;
    if (err && c->status < 0)
        cli_exec_fail(c, err);
    cli_exec_finish(c);
}

/* --- the transport of the console --- */

static void cli_exec_on_input(void *ctx, const char *data, size_t len) {
    struct exec_cli *c = ctx;
    if (!c->command)
        return;
    if (len == 0) {
        sandbox_command_end_input(c->command);
        return;
    }
    (void)sandbox_command_write(c->command, data, len); /* there is room: see the next line */
    if (sandbox_command_input_queued(c->command) > INPUT_HIGH_BYTES)
        console_read(&c->console, false);
}

static void cli_exec_on_drained(void *ctx) {
    struct exec_cli *c = ctx;
    if (c->command)
        sandbox_command_pause(c->command, false);
    else if (c->command_ended)
        cli_exec_destroy(c);
}

static void cli_exec_on_resize(void *ctx, uint32_t cols, uint32_t rows) {
    const struct exec_cli *c = ctx;
    if (c->command)
        (void)sandbox_command_resize(c->command, cols, rows);
}

static bool cli_exec_on_signal(void *ctx, int signo) {
    const struct exec_cli *c = ctx;
    return c->command && sandbox_box_signal(c->box, c->command, signo, true, NULL, NULL);
}

static void cli_exec_on_leave(void *ctx, int status) {
    cli_exec_end(ctx, status);
}

static void cli_exec_on_timeout(uv_timer_t *t) {
    struct exec_cli *c = t->data;
    c->timed_out = true;
    cli_exec_end(c, err_exit_status(ERR_TIMEOUT));
}

/* --- the whole --- */

/* Where archives of roots are unpacked. */
static char *roots_dir(void) {
    const char *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (geteuid() == 0)
        return xstrdup("/var/cache/cay/roots");
    return xdg && *xdg == '/' ? path_join(xdg, "cay/roots")
                              : path_join(home && *home ? home : "/tmp", ".cache/cay/roots");
}

static int cli_exec_start(struct exec_cli *c, struct err *err) {
    static const struct sandbox_box_callbacks box = {.on_ready = cli_exec_on_ready,
                                                     .on_failed = cli_exec_on_failed,
                                                     .on_exited = cli_exec_on_exited};
    _cleanup_(close) int program = cli_open_sibling("cay-sandbox", err);
    if (program < 0)
        return -(int)err->code;
    c->uid = UID_FIRST + 4 * (uint32_t)(rand_u64() % UID_SLOTS);
    _cleanup_(free) char *state = c->root.name ? roots_dir() : xstrdup("");
    struct sandbox_config config = {.max = 1,
                                    .uid_base = c->uid,
                                    .uid_count = 2,
                                    .state_dir = state,
                                    .roots = &c->root,
                                    .nroots = c->root.name ? 1 : 0};
    c->host = sandbox_launcher_create(&(struct sandbox_launcher_options){
        .loop = &c->loop, .exec_fd = program, .starter = -1, .config = &config});
    c->box = sandbox_box_create(c->host, &c->spec, c->bind_fds, &box, c, err);
    if (!c->box)
        return -(int)err->code;
    if (c->timeout_ms > 0)
        (void)uv_timer_start(&c->timer, cli_exec_on_timeout, (uint64_t)c->timeout_ms, 0);
    (void)uv_run(&c->loop, UV_RUN_DEFAULT);
    return 0;
}

static bool ran_out_of_memory(const struct exec_cli *c) {
    return c->exit.oom || (c->stats.oom_kills > 0 && c->status != 0);
}

static void cli_exec_print_record(const struct exec_cli *c) {
    const struct console *k = &c->console;
    bool exited = c->has_exit && !c->exit.signaled;
    bool killed = c->has_exit && c->exit.signaled;
    _cleanup_(json) json_t *record =
        json_pack("{s:o,s:s?,s:i,s:b,s:b,s:s}", "exit_code",
                  exited ? json_integer(c->exit.code) : json_null(), "signal",
                  killed ? sigabbrev_np((int)c->exit.code) : NULL, "status", c->status, "timed_out",
                  c->timed_out, "oom", ran_out_of_memory(c), "memory_limit",
                  c->memory_watched ? "watched" : "enforced");
    console_add_output(k, record);
    json_t *rest =
        json_pack("{s:I,s:I,s:b,s:I,s:{s:I,s:I},s:s?}", "stdout_bytes", (json_int_t)k->out_bytes[1],
                  "stderr_bytes", (json_int_t)k->out_bytes[2], "truncated",
                  k->out_bytes[1] > k->out[1].len || k->out_bytes[2] > k->out[2].len, "duration_ms",
                  (json_int_t)(c->ended_ms - c->started_ms), "usage", "cpu_ms",
                  (json_int_t)((c->exit.user_us + c->exit.system_us) / 1000), "memory_peak_bytes",
                  (json_int_t)MAX(c->stats.memory_peak_bytes, c->exit.max_rss_bytes), "error",
                  c->err.code ? c->err.message : NULL);
    (void)json_object_update_new(record, rest);
    _cleanup_(free) char *text = json_dumps(record, JSON_COMPACT);
    terminal_line(stdout, text);
}

static void cli_exec_report(const struct exec_cli *c) {
    char size[32];
    uint64_t memory = c->spec.memory_bytes ? c->spec.memory_bytes : SANDBOX_DEFAULT_MEMORY;
    if (c->json)
        cli_exec_print_record(c);
    else if (c->err.code)
        (void)cli_fail(&c->err);
    if (c->json)
        return;
    if (c->timed_out)
        cli_exec_remark(c, "the command ran longer than %.3g s (--timeout) and was ended",
                        (double)c->timeout_ms / 1000);
    (void)snprintf(size, sizeof(size), "%.4g", (double)memory / (1 << 20));
    if (ran_out_of_memory(c))
        cli_exec_remark(
            c, "the sandbox ran out of memory: it has %s MiB, its files included (--memory)", size);
}

/* --- arguments --- */

static int cli_exec_add_bind(void *args, const struct cli_option *o, const char *value,
                             struct err *err) {
    struct exec_cli *c = args;
    _cleanup_(free) char *text = xstrdup(value);
    (void)o;
    char *guest = strchr(text, ':');
    char *mode = guest ? strchr(guest + 1, ':') : NULL;
    if (!guest || guest[1] != '/' || guest == text ||
        (mode && strcmp(mode, ":rw") != 0 && strcmp(mode, ":ro") != 0))
        return err_set(err, ERR_BAD_REQUEST,
                       "--volume is HOSTPATH:GUESTPATH or HOSTPATH:GUESTPATH:rw, such as "
                       "./src:/work/src");
    if (c->spec.nbinds == SANDBOX_BINDS_MAX)
        return err_set(err, ERR_BAD_REQUEST, "at most %d --volume", SANDBOX_BINDS_MAX);
    *guest++ = 0;
    if (mode)
        *mode = 0;
    if (guest[strspn(guest, "/")] == 0)
        return err_set(err, ERR_BAD_REQUEST,
                       "--volume %s:/ would hide the system: name a folder such as /work/src, or "
                       "make it the system with --root",
                       text);
    struct stat st;
    int fd = open(text, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "--volume %s", text);
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(err, ERR_BAD_REQUEST, "--volume %s is neither a folder nor a file", text);
    }
    c->bind_fds[c->spec.nbinds] = fd;
    c->spec.binds[c->spec.nbinds++] = (struct sandbox_bind){
        .path = xstrdup(guest),
        .mode = mode && strcmp(mode + 1, "rw") == 0 ? SANDBOX_BIND_RW : SANDBOX_BIND_RO};
    return 0;
}

static int cli_exec_add_hosts(void *args, const struct cli_option *o, const char *value,
                              struct err *err) {
    struct exec_cli *c = args;
    (void)o;
    for (const char *p = value; *p;) {
        size_t n = strcspn(p, ", ");
        if (n > 0) {
            _cleanup_(free) char *one = xstrndup(p, n);
            if (c->policy.nallow == EGRESS_ALLOW_MAX)
                return err_set(err, ERR_BAD_REQUEST, "--net has at most %d hosts",
                               EGRESS_ALLOW_MAX);
            struct egress_allow allow;
            int rc = egress_allow_parse(one, &allow, err);
            if (rc < 0)
                return err_wrap(err, "--net");
            c->policy.allow =
                xrealloc(c->policy.allow, (c->policy.nallow + 1) * sizeof(*c->policy.allow));
            c->policy.allow[c->policy.nallow++] = allow;
            /* Who names an address means it. A name that turns out to lead to this machine or its
             * neighbours is refused. */
            struct in6_addr address;
            if (strcmp(allow.host, "localhost") == 0 ||
                inet_pton(AF_INET, allow.host, &address) == 1 ||
                inet_pton(AF_INET6, allow.host, &address) == 1) {
                char own[EGRESS_AUTHORITY_SIZE];
                c->policy.allow[c->policy.nallow - 1].private = true;
                sandbox_strv_add(&c->private, egress_authority_text(allow.host, allow.port, own));
            }
        }
        p += n + (p[n] != 0);
    }
    return 0;
}

static void add_proxy_env(struct exec_cli *c) {
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        _cleanup_(free) char *text =
            xasprintf("%s=http://127.0.0.1:%d", names[i], SANDBOX_EGRESS_PORT);
        sandbox_strv_add(&c->spec.env, text);
    }
    _cleanup_(free) char *own = egress_no_proxy(c->policy.allow, c->policy.nallow);
    _cleanup_(free) char *lower = xasprintf("no_proxy=%s", own);
    _cleanup_(free) char *upper = xasprintf("NO_PROXY=%s", own);
    sandbox_strv_add(&c->spec.env, lower);
    sandbox_strv_add(&c->spec.env, upper);
    sandbox_strv_add(&c->spec.env, "NODE_USE_ENV_PROXY=1");
}

static int cli_exec_add_env(void *args, const struct cli_option *o, const char *text,
                            struct err *err) {
    struct exec_cli *c = args;
    (void)o;
    if (*text == 0 || *text == '=')
        return err_set(err, ERR_BAD_REQUEST, "--env needs NAME=VALUE, or the NAME of one of yours");
    if (strchr(text, '=')) {
        sandbox_strv_add(&c->exec.env, text);
        return 0;
    }
    const char *value = getenv(text);
    if (!value)
        return 0; /* not set here, not set there */
    _cleanup_(free) char *entry = xasprintf("%s=%s", text, value);
    sandbox_strv_add(&c->exec.env, entry);
    return 0;
}

static void free_root(struct sandbox_root *r) {
    free(r->name);
    free(r->path);
    *r = (struct sandbox_root){0};
}

/* A path, or a name of cay.json. */
static int find_root(const char *text, const char *file, char **ret_path, struct err *err) {
    struct config config;
    if (strchr(text, '/')) {
        *ret_path = xstrdup(text);
        return 0;
    }
    config_init(&config);
    int rc = cli_config_load(&config, "exec", file, CLI_SETTINGS_READ, err);
    const struct sandbox_root *r = rc < 0 ? NULL : sandbox_settings_root(&config.sandboxes, text);
    if (r)
        *ret_path = xstrdup(r->path);
    else if (rc == 0)
        rc = err_set(err, ERR_BAD_REQUEST,
                     "%s has no root \"%s\" in \"sandboxes\"; a path has a slash: ./%s",
                     config.file ? config.file : "/etc/cay/cay.json", text, text);
    config_finish(&config);
    return rc;
}

static int set_root(struct exec_cli *c, const char *text, struct err *err) {
    _cleanup_(free) char *path = NULL;
    int rc = find_root(text, c->config, &path, err);
    if (rc < 0)
        return rc;
    _cleanup_(free) char *full = realpath(path, NULL);
    struct stat st;
    if (!full || stat(full, &st) < 0)
        return err_sys(err, "--root %s", text);
    free_root(&c->root);
    /* An archive is unpacked once, into a folder of this name. */
    c->root.name =
        xasprintf("%llx-%llx", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
    c->root.path = steal_ptr(&full);
    free(c->spec.root);
    c->spec.root = xstrdup(c->root.name);
    return 0;
}

static const struct cli_option options[] = {
    {.name = "volume", .letter = 'v', .kind = OPTION_CALL, .set = cli_exec_add_bind},
    {.name = "net", .letter = 'n', .kind = OPTION_CALL, .set = cli_exec_add_hosts},
    {.name = "env", .letter = 'e', .kind = OPTION_CALL, .set = cli_exec_add_env},
    OPTION(struct exec_cli, "root", 0, TEXT, root_asked),
    OPTION(struct exec_cli, "config", 0, TEXT, config),
    OPTION(struct exec_cli, "workdir", 'w', TEXT, workdir),
    OPTION(struct exec_cli, "tty", 't', FLAG, exec.tty),
    OPTION(struct exec_cli, "quiet", 'q', FLAG, quiet),
    OPTION(struct exec_cli, "memory", 'm', SIZE, spec.memory_bytes, .min = 16 << 20,
           .wants = "a size of at least 16m: 256m, 4g"),
    OPTION(struct exec_cli, "timeout", 0, TIME, timeout_ms),
    OPTIONS_JSON(struct exec_cli, json)};

static const struct cli_command command = {.name = "exec",
                                           .usage = usage,
                                           .options = options,
                                           .noptions = ARRAY_LEN(options),
                                           .command_word = 1,
                                           .min_words = 1,
                                           .max_words = -1,
                                           .missing = "say which command to run: cay exec -- ls /"};

/* -1: go on; else the exit status. */
static int cli_exec_parse(int argc, char **argv, struct exec_cli *c) {
    int status = cli_options(&command, &argc, argv, c);
    struct err err;
    if (status >= 0)
        return status;
    if (c->root_asked && set_root(c, c->root_asked, &err) < 0)
        return err.code == ERR_BAD_REQUEST ? cli_usage("exec", "%s", err.message) : cli_fail(&err);
    if (c->json && c->exec.tty)
        return cli_usage("exec", "--json and --tty do not go together");
    for (int i = 1; i < argc; i++)
        sandbox_strv_add(&c->exec.argv, argv[i]);
    c->exec.cwd = xstrdup(c->workdir ? c->workdir : "");
    if (c->policy.nallow > 0) {
        c->spec.egress = true;
        add_proxy_env(c);
    }
    const char *term = getenv("TERM");
    if (c->exec.tty && term) {
        _cleanup_(free) char *entry = xasprintf("TERM=%s", term);
        sandbox_strv_add(&c->spec.env, entry);
    }
    return -1;
}

static int cli_exec_run(struct exec_cli *c) {
    static const struct console_transport transport = {.on_input = cli_exec_on_input,
                                                       .on_drained = cli_exec_on_drained,
                                                       .on_resize = cli_exec_on_resize,
                                                       .on_signal = cli_exec_on_signal,
                                                       .on_leave = cli_exec_on_leave};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct err err;
    (void)sigaction(SIGPIPE, &ignore, NULL);
    log_init("cay", LOG_LEVEL_OFF);
    (void)uv_loop_init(&c->loop);
    (void)uv_timer_init(&c->loop, &c->timer);
    c->timer.data = c;
    c->console = (struct console){
        .transport = &transport, .ctx = c, .tty = c->exec.tty, .recorded = c->json};
    console_open(&c->console, &c->loop);
    if (cli_exec_start(c, &err) < 0)
        cli_exec_fail(c, &err);
    (void)uv_run(&c->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&c->loop);
    cli_exec_report(c);
    console_finish(&c->console);
    return c->status;
}

int cli_exec(int argc, char **argv) {
    struct exec_cli c = {.status = -1, .listener = -1, .egress_fd = -1};
    char id[ID_SIZE];
    c.spec = (struct sandbox_spec){
        .id = xstrdup(id_new("exec", id)), .root = xstrdup(""), .hostname = xstrdup("")};
    int status = cli_exec_parse(argc, argv, &c);
    if (status < 0)
        status = cli_exec_run(&c);
    for (size_t i = 0; i < c.spec.nbinds; i++)
        fd_close(&c.bind_fds[i]);
    for (size_t i = 0; i < c.ntold; i++)
        free(c.told[i]);
    fd_close(&c.listener);
    fd_close(&c.egress_fd);
    sandbox_spec_finish(&c.spec);
    sandbox_exec_finish(&c.exec);
    egress_policy_finish(&c.policy);
    sandbox_strv_finish(&c.private);
    free_root(&c.root);
    return status;
}
