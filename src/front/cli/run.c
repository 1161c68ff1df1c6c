#include "front/run/run.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/cli/cli.h"
#include "front/cli/terminal.h"
#include "front/run/code.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
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
    "  --db FILE         a SQLite database, as env.db\n"
    "  --env K=V         a text in env (may be repeated)\n"
    "  --timeout TIME    longest run: 500ms, 10s, 2m (default 30s)\n"
    "  --memory SIZE     most memory: 64m, 1g (default 128m)\n"
    "  --ts              standard input is TypeScript\n"
    "  --json            print the whole record as JSON instead\n"
    "  -q, --quiet       do not print what was returned\n\n"
    "The exit status is 0 if the program ran to its end, 1 if it failed or its output was lost.\n";

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
    const char *file;
    json_t *env;
    json_t *args;
    int64_t timeout_ms;
    int64_t memory_bytes;
};

/* --- reading modules --- */

static int read_module(const char *path, struct buf *out, struct err *err) {
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

static int add_module(struct run_cli *c, const char *dir, const char *name, struct err *err);

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
            rc = add_module(c, dir, target, err);
        p += n + 1;
    }
    return rc;
}

static int add_module(struct run_cli *c, const char *dir, const char *name, struct err *err) {
    if (json_object_size(c->modules) >= FILES_MAX)
        return err_set(err, ERR_TOO_LARGE, "more than %d modules", FILES_MAX);
    _cleanup_(free) char *path = path_join(dir, name);
    _cleanup_(buf) struct buf text;
    int rc = read_module(path, &text, err);
    if (rc < 0)
        return rc;
    json_t *j = json_stringn(text.data ? text.data : "", text.len);
    if (!j)
        return err_set(err, ERR_BAD_REQUEST, "%s is not UTF-8 text", path);
    (void)json_object_set_new(c->modules, name, j);
    return add_imports(c, dir, name, text.data ? text.data : "", err);
}

static int read_program(struct run_cli *c, char **ret_main, struct err *err) {
    c->modules = json_object();
    if (strcmp(c->file, "-") == 0) {
        _cleanup_(buf) struct buf text;
        int rc = read_module("-", &text, err);
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
    return add_module(c, dir, *ret_main, err);
}

/* --- showing --- */

static void on_log(void *ctx, const char *level, const char *json, size_t len) {
    const struct run_cli *c = ctx;
    if (c->json)
        return;
    _cleanup_(json) json_t *j = json_loadb(json, len, 0, NULL);
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
        (void)fprintf(stderr, "%s: ", name ? name : "Error");
        terminal_print(stderr, json_string_value(message), json_string_length(message));
        const char *module = json_string_value(json_object_get(error, "module"));
        if (module)
            (void)fprintf(stderr, "\n    at %s:%lld:%lld", module,
                          (long long)json_integer_value(json_object_get(error, "line")),
                          (long long)json_integer_value(json_object_get(error, "column")));
    }
    (void)fputc('\n', stderr);
    print_excerpt(c, error);
}

static void print_result(const struct run *run) {
    size_t len;
    const char *text = run_result(run, &len);
    _cleanup_(json) json_t *j = len ? json_loadb(text, len, JSON_DECODE_ANY, NULL) : NULL;
    if (!j || json_is_null(j))
        return;
    _cleanup_(free) char *pretty =
        json_is_string(j)
            ? xstrdup(json_string_value(j))
            : json_dumps(j, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    terminal_print(stdout, pretty, strlen(pretty));
    (void)fputc('\n', stdout);
}

static void on_stopped(void *ctx) {
    struct run_cli *c = ctx;
    uv_close((uv_handle_t *)&c->sigint, NULL);
    uv_close((uv_handle_t *)&c->sigterm, NULL);
}

static void on_done(void *ctx, const struct run *run, const char *record, size_t len) {
    struct run_cli *c = ctx;
    c->run = NULL;
    const json_t *error = run_error(run);
    c->status = error ? 1 : 0;
    if (c->json) {
        (void)fwrite(record, 1, len, stdout);
        (void)fputc('\n', stdout);
    } else if (error) {
        if (!c->signal)
            print_error(c, error);
    } else if (!c->quiet) {
        print_result(run);
    }
    (void)fflush(stdout);
    runner_stop(c->runner, on_stopped, c);
}

static void on_signal(uv_signal_t *h, int signo) {
    struct run_cli *c = h->data;
    c->signal = signo;
    if (c->run)
        run_cancel(c->run);
}

/* --- starting --- */

static int open_program(const char *dir, const char *name, struct err *err) {
    _cleanup_(free) char *path = path_join(dir, name);
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        (void)err_sys(err, "%s is missing beside cay (run `make`)", name);
    return fd;
}

static int make_code(struct run_cli *c, struct code *ret_code, json_t **ret_json, struct err *err) {
    _cleanup_(free) char *main = NULL;
    int rc = read_program(c, &main, err);
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

static int start(struct run_cli *c, struct err *err) {
    struct code code;
    _cleanup_(json) json_t *json = NULL;
    int rc = make_code(c, &code, &json, err);
    if (rc < 0)
        return rc;
    struct env env;
    struct facet_open how = {0};
    rc = code_read_env(&code, &(struct env_scope){.facets_dir = "", .owner = ""}, &env, err);
    if (rc == 0)
        rc = add_db(c, &env, &how, err);
    env.facet_open = &how;
    _cleanup_(free) char *dir = cli_sibling_dir();
    _cleanup_(close) int compile = rc < 0 ? -1 : open_program(dir, "cay-compile", err);
    _cleanup_(close) int isolate = compile < 0 ? -1 : open_program(dir, "cay-isolate", err);
    _cleanup_(close) int facet = isolate < 0 ? -1 : open_program(dir, "cay-facet", err);
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
    c->run = run_start(c->runner, NULL,
                       &(struct run_request){.owner = "",
                                             .kind = "run",
                                             .title = "",
                                             .source = code.source.data,
                                             .source_len = code.source.len,
                                             .spec = code.spec.data,
                                             .spec_len = code.spec.len,
                                             .env = &env,
                                             .limits = code.limits,
                                             .callbacks = {.on_log = on_log, .on_done = on_done},
                                             .ctx = c},
                       err);
    code_finish(&code);
    env_finish(&env);
    (void)uv_run(&c->loop, UV_RUN_DEFAULT);
    free(how.file);
    return 0;
}

static bool add_env(struct run_cli *c, const char *text) {
    const char *eq = strchr(text, '=');
    if (!eq || eq == text)
        return false;
    _cleanup_(free) char *key = xstrndup(text, (size_t)(eq - text));
    return json_object_set_new(c->env, key, json_string(eq + 1)) == 0;
}

static int parse(int argc, char **argv, struct run_cli *c) {
    static const struct option options[] = {{"db", required_argument, NULL, 'd'},
                                            {"env", required_argument, NULL, 'e'},
                                            {"timeout", required_argument, NULL, 't'},
                                            {"memory", required_argument, NULL, 'm'},
                                            {"ts", no_argument, NULL, 'T'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int o;
    while ((o = getopt_long(argc, argv, "e:qh", options, NULL)) != -1) {
        switch (o) {
        case 'd':
            c->db = optarg;
            break;
        case 'e':
            if (!add_env(c, optarg))
                return cli_usage("run", "--env needs NAME=VALUE");
            break;
        case 't':
            if (!cli_parse_time(optarg, &c->timeout_ms))
                return cli_usage("run", "--timeout needs a time: 500ms, 10s, 2m");
            break;
        case 'm':
            if (!cli_parse_size(optarg, &c->memory_bytes) || c->memory_bytes < (16 << 20))
                return cli_usage("run", "--memory needs a size of at least 16m: 64m, 1g");
            break;
        case 'T':
            c->typescript = true;
            break;
        case 'j':
            c->json = true;
            break;
        case 'q':
            c->quiet = true;
            break;
        case 'h':
            (void)fputs(usage, stdout);
            return 0;
        default:
            return cli_usage("run", "no such option of cay; what is the program's goes after --");
        }
    }
    if (optind == argc)
        return cli_usage("run", "say which file to run, or - for standard input");
    c->file = argv[optind];
    for (int i = optind + 1; i < argc; i++)
        (void)json_array_append_new(c->args, json_string(argv[i]));
    return -1;
}

int cli_run(int argc, char **argv) {
    struct run_cli c = {.env = json_object(),
                        .args = json_array(),
                        .timeout_ms = LIMIT_RUN_WALL_MS,
                        .memory_bytes = LIMIT_RUN_MEMORY_BYTES};
    struct err err = {0};
    int status = parse(argc, argv, &c);
    if (status < 0) {
        struct sigaction ignore = {.sa_handler = SIG_IGN};
        (void)sigaction(SIGPIPE, &ignore, NULL);
        log_init("cay", LOG_LEVEL_ERROR);
        (void)uv_loop_init(&c.loop);
        (void)uv_signal_init(&c.loop, &c.sigint);
        (void)uv_signal_init(&c.loop, &c.sigterm);
        c.sigint.data = c.sigterm.data = &c;
        (void)uv_signal_start(&c.sigint, on_signal, SIGINT);
        (void)uv_signal_start(&c.sigterm, on_signal, SIGTERM);
        int rc = start(&c, &err);
        status = rc < 0 ? cli_fail(&err) : c.signal ? 128 + c.signal : c.status;
        if (!uv_is_closing((uv_handle_t *)&c.sigint)) /* nothing was started */
            on_stopped(&c);
        (void)uv_run(&c.loop, UV_RUN_DEFAULT);
        (void)uv_loop_close(&c.loop);
    }
    json_decref(c.env);
    json_decref(c.args);
    json_decref(c.modules);
    return status;
}
