#include "front/run/run.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/cli/cli.h"
#include "front/cli/options.h"
#include "front/cli/terminal.h"
#include "front/run/bindings.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] =
    "usage: cay run [OPTIONS] FILE|- [ARGUMENT...] [-- ARGUMENT...]\n\n"
    "Runs a JavaScript or TypeScript module in an isolate, with no server needed. The module "
    "exports\n"
    "a function: `export default async function (env, ...args) { ... }`. Its console output comes "
    "as\n"
    "it happens, then what it returned, as JSON. Modules that it imports by a relative path come\n"
    "along. It sees nothing of this machine but what it is given here. Options may stand anywhere\n"
    "before `--`; what comes after it is the program's.\n\n"
    "  --db FILE         a SQLite database, as env.db; it must be there\n"
    "  --create          make FILE if it is not there\n"
    "  --env K=V         a text in env (may be repeated)\n"
    "  --timeout TIME    longest run: 500ms, 10s, 2m (default 30s)\n"
    "  --memory SIZE     most memory: 64m, 1g (default 128m)\n"
    "  --ts              standard input is TypeScript\n"
    "  --json            print the whole record as JSON instead\n"
    "  -q, --quiet       do not print what was returned\n\n"
    "What was returned is JSON; on a terminal a text is shown as it is.\n"
    "The exit status is 0 if the program ran to its end, 124 if its time was over (--timeout), "
    "and\n"
    "1 if it failed otherwise or its output was lost.\n";

enum { FILES_MAX = 500, FILE_MAX_BYTES = 4 << 20 };

struct run_cli {
    uv_loop_t loop;
    struct runner *runner;
    uv_signal_t sigint;
    uv_signal_t sigterm;
    struct run *run;
    json_t *modules;
    bool json;
    bool quiet;
    bool typescript;
    int status;
    int signal;
    const char *db;
    bool create;
    const char *file;
    json_t *env;
    json_t *args;
    int64_t timeout_ms;
    int64_t memory_bytes;
};

/* --- reading modules --- */

static int cli_run_read_module(const char *path, struct buf *out, struct err *err) {
    buf_init(out, FILE_MAX_BYTES);
    if (strcmp(path, "-") != 0)
        return fd_read_file(AT_FDCWD, path, out, err);
    char chunk[65536];
    ssize_t n;
    while ((n = fd_read_all(STDIN_FILENO, chunk, sizeof(chunk))) > 0)
        if (!buf_add(out, chunk, (size_t)n))
            return err_set(err, ERR_TOO_LARGE, "standard input exceeds %d bytes", FILE_MAX_BYTES);
    return n < 0 ? err_sys(err, "read standard input") : 0;
}

/* "a/b.js" + "../c.js" -> "c.js"; NULL if it leads out of the main module's folder. */
static char *join_name(const char *from, const char *specifier) {
    const char *slash = strrchr(from, '/');
    char *out = xmalloc(strlen(from) + strlen(specifier) + 2);
    size_t n = slash ? (size_t)(slash - from) : 0;
    memcpy(out, from, n);
    for (const char *p = specifier; *p;) {
        size_t len = strcspn(p, "/");
        if (len == 2 && p[0] == '.' && p[1] == '.') {
            if (n == 0) {
                free(out);
                return NULL;
            }
            while (n > 0 && out[n - 1] != '/')
                n--;
            n -= n > 0;
        } else if (len > 0 && !(len == 1 && p[0] == '.')) {
            if (n > 0)
                out[n++] = '/';
            memcpy(out + n, p, len);
            n += len;
        }
        p += len;
        p += *p == '/';
    }
    out[n] = 0;
    return out;
}

static int cli_run_add_module(struct run_cli *c, const char *dir, const char *name,
                              struct err *err);

/* Reads what the text imports by a relative path. Whatever looks like such an import and is a file
 * comes along; the compiler decides what it really is. */
static int add_imports(struct run_cli *c, const char *dir, const char *name, const char *text,
                       struct err *err) {
    int rc = 0;
    for (const char *p = text; rc == 0 && (p = strpbrk(p, "\"'")) != NULL;) {
        char quote = *p++;
        if (p[0] != '.' || (p[1] != '/' && !(p[1] == '.' && p[2] == '/')))
            continue;
        size_t n = strcspn(p, "\"'\n");
        if (p[n] != quote)
            continue;
        _cleanup_(free) char *specifier = xstrndup(p, n);
        _cleanup_(free) char *target = join_name(name, specifier);
        _cleanup_(free) char *path = target ? path_join(dir, target) : NULL;
        struct stat st;
        if (path && !json_object_get(c->modules, target) && stat(path, &st) == 0 &&
            S_ISREG(st.st_mode))
            rc = cli_run_add_module(c, dir, target, err);
        p += n + 1;
    }
    return rc;
}

static int cli_run_add_module(struct run_cli *c, const char *dir, const char *name,
                              struct err *err) {
    if (json_object_size(c->modules) >= FILES_MAX)
        return err_set(err, ERR_TOO_LARGE, "more than %d modules", FILES_MAX);
    _cleanup_(free) char *path = path_join(dir, name);
    _cleanup_(buf) struct buf text;
    int rc = cli_run_read_module(path, &text, err);
    if (rc < 0)
        return rc;
    json_t *j = json_stringn(text.data ? text.data : "", text.len);
    if (!j)
        return err_set(err, ERR_BAD_REQUEST, "%s is not UTF-8 text", path);
    (void)json_object_set_new(c->modules, name, j);
    return add_imports(c, dir, name, text.data ? text.data : "", err);
}

static int cli_run_read_program(struct run_cli *c, char **ret_main, struct err *err) {
    c->modules = json_object();
    if (strcmp(c->file, "-") == 0) {
        _cleanup_(buf) struct buf text;
        int rc = cli_run_read_module("-", &text, err);
        if (rc < 0)
            return rc;
        *ret_main = xstrdup(c->typescript ? "stdin.ts" : "stdin.js");
        json_t *j = json_stringn(text.data ? text.data : "", text.len);
        if (!j)
            return err_set(err, ERR_BAD_REQUEST, "standard input is not UTF-8 text");
        (void)json_object_set_new(c->modules, *ret_main, j);
        return 0;
    }
    const char *slash = strrchr(c->file, '/');
    _cleanup_(free) char *dir =
        slash ? xstrndup(c->file, MAX((size_t)(slash - c->file), (size_t)1)) : xstrdup(".");
    *ret_main = xstrdup(slash ? slash + 1 : c->file);
    return cli_run_add_module(c, dir, *ret_main, err);
}

/* --- showing --- */

static void cli_run_on_log(void *ctx, const char *level, const char *json, size_t len) {
    const struct run_cli *c = ctx;
    if (c->json)
        return;
    _cleanup_(json) json_t *j = json_read(json, len);
    const json_t *message = json_object_get(j, "message");
    bool bad = strcmp(level, "warn") == 0 || strcmp(level, "error") == 0;
    terminal_print(bad ? stderr : stdout, json_string_value(message), json_string_length(message));
    (void)fputc('\n', bad ? stderr : stdout);
    (void)fflush(stdout);
}

/* The line of the user's source that an error names, with its neighbours. */
static void print_excerpt(const struct run_cli *c, const json_t *error) {
    const char *module = json_string_value(json_object_get(error, "module"));
    int64_t line = json_integer_value(json_object_get(error, "line"));
    int64_t column = json_integer_value(json_object_get(error, "column"));
    const char *text = module ? json_string_value(json_object_get(c->modules, module)) : NULL;
    if (!text || line < 1)
        return;
    (void)fputc('\n', stderr);
    int64_t n = 1;
    for (const char *p = text; *p && n <= line + 1; n++) {
        size_t len = strcspn(p, "\n");
        if (n >= line - 2 && n <= line + 1) {
            (void)fprintf(stderr, "%c %4lld | ", n == line ? '>' : ' ', (long long)n);
            terminal_print(stderr, p, MIN(len, (size_t)160));
            (void)fputc('\n', stderr);
            if (n == line && column > 0 && column <= 160)
                (void)fprintf(stderr, "       | %*s^\n", (int)column - 1, "");
        }
        p += len;
        p += *p == '\n';
    }
}

static void print_error(const struct run_cli *c, const json_t *error) {
    const json_t *stack = json_object_get(error, "stack");
    const char *name = json_string_value(json_object_get(error, "name"));
    const json_t *message = json_object_get(error, "message");
    if (json_is_string(stack)) {
        terminal_print(stderr, json_string_value(stack), json_string_length(stack));
    } else {
        terminal_print(stderr, name ? name : "Error", name ? strlen(name) : 5);
        (void)fputs(": ", stderr);
        terminal_print(stderr, json_string_value(message), json_string_length(message));
        const char *module = json_string_value(json_object_get(error, "module"));
        if (module) {
            (void)fputs("\n    at ", stderr);
            terminal_print(stderr, module, strlen(module));
            (void)fprintf(stderr, ":%lld:%lld",
                          (long long)json_integer_value(json_object_get(error, "line")),
                          (long long)json_integer_value(json_object_get(error, "column")));
        }
    }
    (void)fputc('\n', stderr);
    print_excerpt(c, error);
}

static void print_result(const struct run *run) {
    size_t len;
    const char *text = run_result(run, &len);
    _cleanup_(json) json_t *j = len ? json_read(text, len) : NULL;
    if (!j || json_is_null(j))
        return;
    _cleanup_(free) char *pretty =
        json_is_string(j) && isatty(STDOUT_FILENO)
            ? xstrdup(json_string_value(j))
            : json_dumps(j, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    terminal_line(stdout, pretty);
}

static void cli_run_on_stopped(void *ctx) {
    struct run_cli *c = ctx;
    uv_close((uv_handle_t *)&c->sigint, NULL);
    uv_close((uv_handle_t *)&c->sigterm, NULL);
}

/* All limits are of one kind to programs; this one has an exit status of its own. */
static bool is_late(const json_t *error) {
    const char *kind = json_string_value(json_object_get(error, "kind"));
    const char *message = json_string_value(json_object_get(error, "message"));
    return kind && strcmp(kind, "limit") == 0 && message &&
           strncmp(message, "time limit of ", strlen("time limit of ")) == 0;
}

static void cli_run_on_done(void *ctx, const struct run *run, const char *record, size_t len) {
    struct run_cli *c = ctx;
    c->run = NULL;
    const json_t *error = run_error(run);
    c->status = !error ? 0 : is_late(error) ? err_exit_status(ERR_TIMEOUT) : 1;
    if (c->json) {
        terminal_print(stdout, record, len);
        (void)fputc('\n', stdout);
    } else if (error) {
        if (!c->signal)
            print_error(c, error);
    } else if (!c->quiet) {
        print_result(run);
    }
    (void)fflush(stdout);
    runner_stop(c->runner, cli_run_on_stopped, c);
}

static void cli_run_on_signal(uv_signal_t *h, int signo) {
    struct run_cli *c = h->data;
    c->signal = signo;
    if (c->run)
        run_cancel(c->run);
}

/* --- starting --- */

static int make_code(struct run_cli *c, struct code *ret_code, json_t **ret_json, struct err *err) {
    _cleanup_(free) char *main = NULL;
    int rc = cli_run_read_program(c, &main, err);
    if (rc < 0)
        return rc;
    struct run_limits max = runner_config_default().limits;
    max.wall_ms = (uint32_t)c->timeout_ms;
    max.cpu_ms = MAX(max.cpu_ms, max.wall_ms);
    max.memory_bytes = (uint64_t)c->memory_bytes;
    *ret_json = json_pack("{s:s,s:O,s:O,s:O}", "mainModule", main, "modules", c->modules, "env",
                          c->env, "args", c->args);
    return code_read(ret_code, *ret_json, &max, err);
}

static int add_db(const struct run_cli *c, struct env *env, struct facet_open *how,
                  struct err *err) {
    if (!c->db)
        return 0;
    char *full = realpath(c->db, NULL);
    if (!full && !c->create)
        return err_set(
            err, ERR_NOT_FOUND,
            "there is no database %s: name one that is there, or add --create to make it", c->db);
    if (!full) { /* it is made: its folder must be there */
        const char *slash = strrchr(c->db, '/');
        _cleanup_(free) char *dir =
            slash ? xstrndup(c->db, (size_t)(slash - c->db) + 1) : xstrdup(".");
        _cleanup_(free) char *real = realpath(dir, NULL);
        if (!real)
            return err_sys(err, "%s", c->db);
        full = path_join(real, slash ? slash + 1 : c->db);
    }
    char *slash = strrchr(full, '/');
    *slash = 0;
    how->file = xstrdup(slash + 1);
    env->items = xrealloc(env->items, (env->n + 1) * sizeof(*env->items));
    env->items[env->n++] = (struct env_item){.name = xstrdup("db"),
                                             .kind = ENV_FACET,
                                             .facet_dir = *full ? full : xstrdup("/"),
                                             .fd = -1};
    return 0;
}

static int cli_run_start(struct run_cli *c, struct err *err) {
    struct code code;
    _cleanup_(json) json_t *json = NULL;
    int rc = make_code(c, &code, &json, err);
    if (rc < 0)
        return rc;
    struct env env;
    struct facet_open how = {0};
    rc = bindings_make(NULL, "", "", &code, &env, err);
    if (rc == 0)
        rc = add_db(c, &env, &how, err);
    env.facet_open = &how;
    _cleanup_(close) int compile = rc < 0 ? -1 : cli_open_sibling("cay-compile", err);
    _cleanup_(close) int isolate = compile < 0 ? -1 : cli_open_sibling("cay-isolate", err);
    _cleanup_(close) int facet = isolate < 0 ? -1 : cli_open_sibling("cay-facet", err);
    if (facet < 0) {
        code_finish(&code);
        env_finish(&env);
        return -(int)err->code;
    }
    struct runner_config config = runner_config_default();
    config.limits = code.limits;
    config.ready_isolates = 1;
    c->runner = runner_create(&(struct runner_options){.loop = &c->loop,
                                                       .config = config,
                                                       .compile_fd = compile,
                                                       .isolate_fd = isolate,
                                                       .facet_fd = facet,
                                                       .cold = true});
    c->run = run_start(
        c->runner, NULL,
        &(struct run_request){.owner = "",
                              .key = "",
                              .kind = "run",
                              .title = "",
                              .source = code.source.data,
                              .source_len = code.source.len,
                              .spec = code.spec.data,
                              .spec_len = code.spec.len,
                              .env = &env,
                              .limits = code.limits,
                              .callbacks = {.on_log = cli_run_on_log, .on_done = cli_run_on_done},
                              .ctx = c},
        err);
    code_finish(&code);
    env_finish(&env);
    (void)uv_run(&c->loop, UV_RUN_DEFAULT);
    free(how.file);
    return 0;
}

static int cli_run_add_env(void *args, const struct cli_option *o, const char *value,
                           struct err *err) {
    const struct run_cli *c = args;
    const char *eq = strchr(value, '=');
    _cleanup_(free) char *key = xstrndup(value, eq ? (size_t)(eq - value) : 0);
    if (!*key || json_object_set_new(c->env, key, json_string(eq + 1)) < 0)
        return err_set(err, ERR_BAD_REQUEST, "--%s needs NAME=VALUE", o->name);
    return 0;
}

static const struct cli_option options[] = {
    OPTION(struct run_cli, "db", 0, TEXT, db),
    OPTION(struct run_cli, "create", 0, FLAG, create),
    {.name = "env", .letter = 'e', .kind = OPTION_CALL, .set = cli_run_add_env},
    OPTION(struct run_cli, "timeout", 0, TIME, timeout_ms),
    OPTION(struct run_cli, "memory", 0, SIZE, memory_bytes, .min = 16 << 20,
           .wants = "a size of at least 16m: 64m, 1g"),
    OPTION(struct run_cli, "ts", 0, FLAG, typescript),
    OPTION(struct run_cli, "quiet", 'q', FLAG, quiet),
    OPTIONS_JSON(struct run_cli, json)};

static const struct cli_command command = {.name = "run",
                                           .usage = usage,
                                           .options = options,
                                           .noptions = ARRAY_LEN(options),
                                           .min_words = 1,
                                           .max_words = -1,
                                           .missing =
                                               "say which file to run, or - for standard input",
                                           .unknown = "what is the program's goes after --"};

int cli_run(int argc, char **argv) {
    struct run_cli c = {.env = json_object(),
                        .args = json_array(),
                        .timeout_ms = LIMIT_RUN_WALL_MS,
                        .memory_bytes = LIMIT_RUN_MEMORY_BYTES};
    struct err err = {0};
    int status = cli_options(&command, &argc, argv, &c);
    if (status < 0) {
        c.file = argv[1];
        for (int i = 2; i < argc; i++)
            (void)json_array_append_new(c.args, json_string(argv[i]));
        struct sigaction ignore = {.sa_handler = SIG_IGN};
        (void)sigaction(SIGPIPE, &ignore, NULL);
        log_init("cay", LOG_LEVEL_ERROR);
        (void)uv_loop_init(&c.loop);
        (void)uv_signal_init(&c.loop, &c.sigint);
        (void)uv_signal_init(&c.loop, &c.sigterm);
        c.sigint.data = c.sigterm.data = &c;
        (void)uv_signal_start(&c.sigint, cli_run_on_signal, SIGINT);
        (void)uv_signal_start(&c.sigterm, cli_run_on_signal, SIGTERM);
        int rc = cli_run_start(&c, &err);
        status = rc < 0 ? cli_fail(&err) : c.signal ? 128 + c.signal : c.status;
        if (!uv_is_closing((uv_handle_t *)&c.sigint)) /* nothing was started */
            cli_run_on_stopped(&c);
        (void)uv_run(&c.loop, UV_RUN_DEFAULT);
        (void)uv_loop_close(&c.loop);
    }
    json_decref(c.env);
    json_decref(c.args);
    json_decref(c.modules);
    return status;
}
