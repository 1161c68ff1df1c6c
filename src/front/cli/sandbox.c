#include "front/cli/sandbox.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "front/cli/cli.h"
#include "front/cli/options.h"
#include "front/cli/terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* `cay sandbox VERB`: the sandboxes of a running server. */

enum { PAGES_MAX = 1000, MEASURED_MAX = 200 };

struct subverb {
    const char *name;
    const char *arguments;
    const char *summary;
    const char *options; /* their letters */
    int min, max;        /* arguments; max -1: any number */
    int (*run)(struct sandbox_cli *c, struct err *err);
};

/* --- what several share --- */

char *sandbox_path(const char *id, const char *rest) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 16384);
    (void)buf_add_str(&b, "/v1/sandboxes/");
    client_encode(&b, id);
    (void)buf_add_str(&b, rest);
    return buf_steal(&b, NULL);
}

static bool cli_sandbox_is_live(const json_t *sandbox) {
    const char *status = client_text(sandbox, "status");
    return strcmp(status, "running") == 0 || strcmp(status, "paused") == 0;
}

/* All of them, however many pages that takes. */
static int cli_sandbox_list_all(struct sandbox_cli *c, json_t **ret_list, struct err *err) {
    _cleanup_(json) json_t *all = json_array();
    char cursor[ID_SIZE + 16] = "";
    int rc = 0;
    for (int page = 0; rc == 0 && page < PAGES_MAX; page++) {
        _cleanup_(json) json_t *j = NULL;
        _cleanup_(free) char *path = xasprintf("/v1/sandboxes?limit=100%s", cursor);
        rc = client_call(&c->client, &(struct client_call){.path = path}, &j, err);
        (void)json_array_extend(all, json_object_get(j, "sandboxes"));
        const char *next = json_string_value(json_object_get(j, "next_cursor"));
        if (!next || !id_is_valid("sbx", next, strlen(next)))
            break;
        (void)snprintf(cursor, sizeof(cursor), "&cursor=%s", next);
    }
    if (rc == 0)
        *ret_list = json_incref(all);
    return rc;
}

int sandbox_resolve(struct sandbox_cli *c, const char *text, char ret_id[ID_SIZE],
                    struct err *err) {
    if (id_is_valid("sbx", text, strlen(text))) {
        (void)snprintf(ret_id, ID_SIZE, "%s", text);
        return 0;
    }
    _cleanup_(json) json_t *list = NULL;
    int rc = cli_sandbox_list_all(c, &list, err);
    if (rc < 0)
        return rc;
    size_t i, found = 0;
    const json_t *it;
    json_array_foreach(list, i, it) {
        const char *id = client_text(it, "id");
        if (strcmp(client_text(it, "name"), text) != 0 || !cli_sandbox_is_live(it) ||
            strlen(id) >= ID_SIZE)
            continue;
        found++;
        (void)snprintf(ret_id, ID_SIZE, "%s", id);
    }
    if (found == 0)
        return err_set(err, ERR_NOT_FOUND,
                       "no sandbox has the id or name \"%s\"; `cay sandbox ls` lists them", text);
    if (found > 1)
        return err_set(err, ERR_CONFLICT,
                       "%zu sandboxes have the name \"%s\": use an id of `cay sandbox ls`", found,
                       text);
    return 0;
}

/* In a table a line is a row: a name cannot make one. */
static void print_cell(const char *text) {
    while (*text) {
        size_t n = 0;
        while ((unsigned char)text[n] >= 0x20)
            n++;
        terminal_print(stdout, text, n);
        text += n;
        if (*text)
            (void)printf("\\x%02x", (unsigned char)*text++);
    }
    (void)fputc('\n', stdout);
}

static void cli_sandbox_set(json_t *body, const char *key, json_t *value) {
    (void)json_object_set_new(body, key, value);
}

/* --- verbs --- */

static int cli_sandbox_create(struct sandbox_cli *c, struct err *err) {
    const struct sandbox_args *a = &c->args;
    _cleanup_(json) json_t *body = json_object();
    _cleanup_(json) json_t *j = NULL;
    if (a->name)
        cli_sandbox_set(body, "name", json_string(a->name));
    if (a->root)
        cli_sandbox_set(body, "root", json_string(a->root));
    if (a->snapshot)
        cli_sandbox_set(body, "snapshot", json_string(a->snapshot));
    if (a->memory_bytes)
        cli_sandbox_set(body, "memory_mb", json_integer((a->memory_bytes + (1 << 20) - 1) >> 20));
    if (a->disk_bytes)
        cli_sandbox_set(body, "disk_mb", json_integer((a->disk_bytes + (1 << 20) - 1) >> 20));
    if (a->timeout_ms)
        cli_sandbox_set(body, "timeout_s", json_integer((a->timeout_ms + 999) / 1000));
    if (a->pids)
        cli_sandbox_set(body, "pids", json_integer(a->pids));
    if (a->cpus > 0)
        cli_sandbox_set(body, "cpus", json_real(a->cpus));
    if (json_array_size(a->allow) + json_array_size(a->routes) > 0)
        cli_sandbox_set(body, "network",
                        json_pack("{s:O,s:O}", "allow", a->allow, "routes", a->routes));
    if (json_array_size(a->binds) > 0)
        cli_sandbox_set(body, "binds", json_incref(a->binds));
    if (json_object_size(a->env) > 0)
        cli_sandbox_set(body, "env", json_incref(a->env));
    if (json_object_size(a->metadata) > 0)
        cli_sandbox_set(body, "metadata", json_incref(a->metadata));
    int rc = client_call(&c->client, &(struct client_call){.path = "/v1/sandboxes", .json = body},
                         &j, err);
    if (rc < 0)
        return rc;
    if (a->json)
        terminal_json(j);
    else
        terminal_line(stdout, client_text(j, "id"));
    if (!a->json && json_object_get(json_object_get(j, "limits"), "unenforced"))
        (void)fprintf(stderr,
                      "cay: --cpus is not enforced on this machine: `cay doctor` says why\n");
    return 0;
}

static void format_age(int64_t s, char out[24]) {
    if (s < 0)
        s = 0;
    if (s < 120)
        (void)snprintf(out, 24, "%llds", (long long)s);
    else if (s < 7200)
        (void)snprintf(out, 24, "%lldm", (long long)(s / 60));
    else if (s < 172800)
        (void)snprintf(out, 24, "%lldh", (long long)(s / 3600));
    else
        (void)snprintf(out, 24, "%lldd", (long long)(s / 86400));
}

/* "2025-01-01T00:00:00.000Z" in seconds; 0 if it is none. */
static int64_t parse_time(const char *text) {
    struct tm tm = {0};
    return strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) ? (int64_t)timegm(&tm) : 0;
}

static void print_row(const json_t *it, int64_t now) {
    char age[24];
    char left[24] = "-";
    char memory[24] = "-";
    int64_t end = parse_time(client_text(it, "expires_at"));
    const json_t *bytes = json_object_get(json_object_get(it, "usage"), "memory_bytes");
    format_age(now - parse_time(client_text(it, "created_at")), age);
    if (cli_sandbox_is_live(it) && end)
        format_age(end - now, left);
    if (cli_sandbox_is_live(it) && json_is_integer(bytes))
        (void)snprintf(memory, sizeof(memory), "%.1fM",
                       (double)json_integer_value(bytes) / (1 << 20));
    terminal_print(stdout, client_text(it, "id"), strlen(client_text(it, "id")));
    (void)printf("  %-11s  %6s  %6s  %9s  ", client_text(it, "status"), age, left, memory);
    print_cell(client_text(it, "name"));
}

/* The list knows what was measured last: those that live are asked again. */
static void cli_sandbox_measure(struct sandbox_cli *c, json_t *list) {
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n && i < MEASURED_MAX; i++) {
        const json_t *it = json_array_get(list, i);
        struct err err;
        json_t *now = NULL;
        _cleanup_(free) char *path = sandbox_path(client_text(it, "id"), "");
        if (cli_sandbox_is_live(it) &&
            client_call(&c->client, &(struct client_call){.path = path}, &now, &err) == 0)
            (void)json_array_set_new(list, i, now);
    }
}

static int cli_sandbox_ls(struct sandbox_cli *c, struct err *err) {
    _cleanup_(json) json_t *list = NULL;
    size_t i;
    const json_t *it;
    int rc = cli_sandbox_list_all(c, &list, err);
    if (rc < 0)
        return rc;
    for (size_t n = json_array_size(list); n > 0 && !c->args.all; n--)
        if (!cli_sandbox_is_live(json_array_get(list, n - 1)))
            (void)json_array_remove(list, n - 1);
    if (!c->args.quiet)
        cli_sandbox_measure(c, list);
    if (c->args.json) {
        terminal_json(list);
        return 0;
    }
    if (!c->args.quiet)
        (void)printf("%-30s  %-11s  %6s  %6s  %9s  %s\n", "ID", "STATUS", "AGE", "LEFT", "MEMORY",
                     "NAME");
    json_array_foreach(list, i, it) {
        if (c->args.quiet)
            terminal_line(stdout, client_text(it, "id"));
        else
            print_row(it, clock_wall_ms() / 1000);
    }
    return 0;
}

/* The same call for each sandbox that is named; the first failure is told, the others are tried. */
static int for_each(struct sandbox_cli *c, const char *method, const char *rest, struct err *err) {
    _cleanup_(json) json_t *done = json_array();
    int result = 0;
    for (int i = 0; i < c->args.nrest; i++) {
        char id[ID_SIZE];
        struct err mine;
        int rc = sandbox_resolve(c, c->args.rest[i], id, &mine);
        _cleanup_(free) char *path = rc < 0 ? NULL : sandbox_path(id, rest);
        if (rc == 0)
            rc = client_call(&c->client, &(struct client_call){.method = method, .path = path},
                             NULL, &mine);
        if (rc == 0 && c->args.json)
            (void)json_array_append_new(done, json_pack("{s:s}", "id", id));
        else if (rc == 0 && !c->args.quiet)
            terminal_line(stdout, id);
        if (rc < 0 && result == 0) {
            *err = mine;
            result = rc;
        } else if (rc < 0) {
            (void)cli_fail(&mine);
        }
    }
    if (c->args.json && (result == 0 || json_array_size(done) > 0))
        terminal_json(done);
    return result;
}

static int pause_it(struct sandbox_cli *c, struct err *err) {
    return for_each(c, "POST", "/pause", err);
}

static int resume_it(struct sandbox_cli *c, struct err *err) {
    return for_each(c, "POST", "/resume", err);
}

static int remove_it(struct sandbox_cli *c, struct err *err) {
    return for_each(c, "DELETE", "", err);
}

/* A call about one sandbox: its JSON. */
static int cli_sandbox_about(struct sandbox_cli *c, const char *rest, const json_t *body,
                             json_t **ret, struct err *err) {
    char id[ID_SIZE];
    int rc = sandbox_resolve(c, c->args.rest[0], id, err);
    if (rc < 0)
        return rc;
    _cleanup_(free) char *path = sandbox_path(id, rest);
    return client_call(&c->client, &(struct client_call){.path = path, .json = body}, ret, err);
}

static int cli_sandbox_inspect(struct sandbox_cli *c, struct err *err) {
    _cleanup_(json) json_t *j = NULL;
    int rc = cli_sandbox_about(c, "", NULL, &j, err);
    if (rc == 0)
        terminal_json(j);
    return rc;
}

static int cli_sandbox_extend(struct sandbox_cli *c, struct err *err) {
    _cleanup_(json) json_t *j = NULL;
    int64_t ms;
    if (!cli_parse_time(c->args.rest[1], &ms))
        return err_set(err, ERR_BAD_REQUEST, "how long from now: 30s, 15m, 2h");
    _cleanup_(json) json_t *body = json_pack("{s:I}", "timeout_s", (json_int_t)((ms + 999) / 1000));
    int rc = cli_sandbox_about(c, "/extend", body, &j, err);
    if (rc == 0 && c->args.json)
        terminal_json(j);
    else if (rc == 0 && !c->args.quiet)
        terminal_line(stdout, client_text(j, "expires_at"));
    return rc;
}

static int cli_sandbox_snapshot(struct sandbox_cli *c, struct err *err) {
    _cleanup_(json) json_t *j = NULL;
    _cleanup_(json) json_t *body = json_object();
    if (c->args.name)
        cli_sandbox_set(body, "name", json_string(c->args.name));
    int rc = cli_sandbox_about(c, "/snapshots", body, &j, err);
    if (rc == 0 && c->args.json)
        terminal_json(j);
    else if (rc == 0)
        terminal_line(stdout, client_text(j, "id"));
    size_t i;
    const json_t *it;
    json_array_foreach(json_object_get(j, "warnings"), i, it) {
        terminal_say(stderr, "cay sandbox snapshot: ", json_string_value(it));
    }
    return rc;
}

/* Where a server inside is seen. Guests never share the server's own origin. */
static int cli_sandbox_port(struct sandbox_cli *c, struct err *err) {
    char id[ID_SIZE];
    char *end = NULL;
    unsigned long n = strtoul(c->args.rest[1], &end, 10);
    if (*end || n < 1 || n > 65535)
        return err_set(err, ERR_BAD_REQUEST, "a port is a number from 1 to 65535");
    int rc = sandbox_resolve(c, c->args.rest[0], id, err);
    if (rc < 0)
        return rc;
    const char *host = strstr(c->client.base, "://") + 3;
    const char *colon = strrchr(host, ':');
    if (colon && strchr(colon, ']'))
        colon = NULL; /* an IPv6 address without a port */
    _cleanup_(free) char *url = xasprintf("%.*s%lu-%s.localhost%s/", (int)(host - c->client.base),
                                          c->client.base, n, id, colon ? colon : "");
    _cleanup_(json) json_t *answer = json_pack("{s:s}", "url", url);
    if (c->args.json)
        terminal_json(answer);
    else
        terminal_line(stdout, url);
    return 0;
}

static const struct subverb verbs[] = {
    {"create", "", "make one; prints its id", "NRSmdTnrbelpcoq", 0, 0, cli_sandbox_create},
    {"ls", "", "list those that live", "aqo", 0, 0, cli_sandbox_ls},
    {"exec", "SANDBOX [--] COMMAND [ARGUMENT...]", "run a command as if it were here", "ewtTDo", 2,
     -1, sandbox_exec},
    {"sh", "SANDBOX", "a shell at your terminal", "ew", 1, 1, sandbox_sh},
    {"cp", "FROM TO", "copy; one is SANDBOX:PATH; - is an archive", "qo", 2, 2, sandbox_cp},
    {"logs", "SANDBOX [EXEC]", "what a command printed: the last one, or EXEC", "fo", 1, 2,
     sandbox_logs},
    {"pause", "SANDBOX...", "stop all its processes", "qo", 1, -1, pause_it},
    {"resume", "SANDBOX...", "let them go on", "qo", 1, -1, resume_it},
    {"extend", "SANDBOX TIME", "let it live so long from now: 30s, 15m, 2h", "qo", 2, 2,
     cli_sandbox_extend},
    {"snapshot", "SANDBOX", "keep its files, to make others from; prints an id", "No", 1, 1,
     cli_sandbox_snapshot},
    {"rm", "SANDBOX...", "end it, and everything in it", "qo", 1, -1, remove_it},
    {"port", "SANDBOX PORT", "the address of a server inside", "o", 2, 2, cli_sandbox_port},
    {"inspect", "SANDBOX", "all that is known of it, as JSON", "o", 1, 1, cli_sandbox_inspect},
};

/* --- options --- */

struct flag {
    struct cli_option option;
    char letter;       /* in the list of a verb */
    const char *value; /* what it takes, for the help */
    const char *help;
};

static int cli_sandbox_add_list(void *args, const struct cli_option *o, const char *value,
                                struct err *err) {
    json_t *array = *(json_t **)(void *)((char *)args + o->at);
    (void)err;
    for (const char *p = value; *p;) {
        size_t n = strcspn(p, ", ");
        if (n > 0)
            (void)json_array_append_new(array, json_stringn(p, n));
        p += n + (p[n] != 0);
    }
    return 0;
}

/* NAME=VALUE; of --env NAME alone passes on ours. */
static int cli_sandbox_add_pair(void *args, const struct cli_option *o, const char *value,
                                struct err *err) {
    json_t *object = *(json_t **)(void *)((char *)args + o->at);
    bool is_env = o->letter == 'e';
    const char *eq = strchr(value, '=');
    _cleanup_(free) char *key = xstrndup(value, eq ? (size_t)(eq - value) : strlen(value));
    const char *text = eq ? eq + 1 : is_env ? getenv(value) : NULL;
    if (*key && !text && is_env)
        return 0; /* not set here, not set there */
    if (!*key || !text || json_object_set_new(object, key, json_string(text)) < 0)
        return err_set(err, ERR_BAD_REQUEST, "--%s needs NAME=VALUE in UTF-8", o->name);
    return 0;
}

static int cli_sandbox_add_bind(void *args, const struct cli_option *o, const char *value,
                                struct err *err) {
    const struct sandbox_args *a = args;
    const char *path = strchr(value, ':');
    const char *mode = path ? strchr(path + 1, ':') : NULL;
    if (!path || path == value || path[1] != '/' ||
        (mode && strcmp(mode, ":rw") != 0 && strcmp(mode, ":ro") != 0))
        return err_set(err, ERR_BAD_REQUEST, "--%s needs NAME:PATH or NAME:PATH:rw", o->name);
    size_t n = mode ? (size_t)(mode - path - 1) : strlen(path + 1);
    if (json_array_append_new(a->binds,
                              json_pack("{s:s%,s:s%,s:s}", "name", value, path - value, "path",
                                        path + 1, n, "mode", mode ? mode + 1 : "ro")) < 0)
        return err_set(err, ERR_BAD_REQUEST, "--%s must be UTF-8 text", o->name);
    return 0;
}

#define ARG(...) OPTION(struct sandbox_args, __VA_ARGS__)

static const struct flag flags[] = {
    {ARG("name", 0, TEXT, name), 'N', "NAME", "a name, for people"},
    {ARG("root", 0, TEXT, root), 'R', "NAME", "a root of cay.json (default: the host's /usr)"},
    {ARG("snapshot", 0, TEXT, snapshot), 'S', "ID", "begin with the files of a snapshot"},
    {ARG("memory", 'm', SIZE, memory_bytes), 'm', "SIZE",
     "most memory, its files included: 256m, 4g"},
    {ARG("disk", 0, SIZE, disk_bytes), 'd', "SIZE", "most disk: 100m"},
    {ARG("pids", 0, COUNT, pids, .min = 1), 'p', "N", "most processes"},
    {ARG("cpus", 0, AMOUNT, cpus), 'c', "N", "share of the processors: 0.5, 2"},
    {ARG("timeout", 0, TIME, timeout_ms), 'T', "TIME", "end it after: 30s, 15m, 2h"},
    {ARG("net", 'n', CALL, allow, .set = cli_sandbox_add_list), 'n', "HOSTS",
     "hosts it may reach: example.com,*.example.org:8443"},
    {ARG("route", 0, CALL, routes, .set = cli_sandbox_add_list), 'r', "NAME",
     "a route of cay.json (may be repeated)"},
    {ARG("bind", 0, CALL, binds, .set = cli_sandbox_add_bind), 'b', "NAME:PATH[:rw]",
     "a folder of cay.json, at PATH (may be repeated)"},
    {ARG("env", 'e', CALL, env, .set = cli_sandbox_add_pair), 'e', "K=V",
     "set a variable; K alone passes on yours (may be repeated)"},
    {ARG("label", 'l', CALL, metadata, .set = cli_sandbox_add_pair), 'l', "K=V",
     "metadata (may be repeated)"},
    {ARG("workdir", 'w', TEXT, workdir), 'w', "DIR", "where it begins (default /work)"},
    {ARG("tty", 't', FLAG, tty), 't', NULL, "give it a terminal"},
    {ARG("detach", 0, FLAG, detach), 'D', NULL, "do not wait for it; prints its id"},
    {ARG("follow", 'f', FLAG, follow), 'f', NULL, "go on until it ends"},
    {ARG("all", 'a', FLAG, all), 'a', NULL, "those that have ended too"},
    {ARG("json", 0, FLAG, json), 'o', NULL, "print JSON; errors too"},
    {ARG("output", 'o', FORMAT, json), 'o', NULL, NULL},
    {ARG("quiet", 'q', FLAG, quiet), 'q', NULL, "print less: ids only, or nothing"},
    {ARG("url", 0, TEXT, url), 0, "URL",
     "where the server is (default $CAY_URL, or http://127.0.0.1:8787)"},
};

static bool cli_sandbox_has(const struct subverb *v, const struct flag *f) {
    return !f->letter || strchr(v->options, f->letter);
}

static void print_verb_help(const void *args) {
    const struct subverb *v = ((const struct sandbox_args *)args)->verb;
    (void)printf("usage: cay sandbox %s %s%s\n\n%s\n\n", v->name, v->options[0] ? "[OPTIONS] " : "",
                 v->arguments, v->summary);
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        const struct flag *f = &flags[i];
        char letter = f->option.letter;
        if (!cli_sandbox_has(v, f) || !f->help)
            continue;
        char head[64];
        (void)snprintf(head, sizeof(head), "%c%c%s--%s %s", letter ? '-' : ' ',
                       letter ? letter : ' ', letter ? ", " : "  ", f->option.name,
                       f->value ? f->value : "");
        (void)printf("  %-30s %s\n", head, f->help);
    }
    (void)printf("\nCAY_API_KEY in the environment is sent as the key.\n");
}

static void cli_sandbox_print_help(FILE *out) {
    (void)fprintf(out, "usage: cay sandbox VERB [OPTIONS] ...\n\nThe Linux sandboxes of a running "
                       "server. A SANDBOX is an id or a name.\n\n");
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        (void)fprintf(out, "  %-9s %-35s %s\n", verbs[i].name, verbs[i].arguments,
                      verbs[i].summary);
    (void)fprintf(out, "\n`cay sandbox VERB --help` tells its options; `cay exec` needs no "
                       "server.\n");
}

static int cli_sandbox_parse(const struct subverb *v, int argc, char **argv,
                             struct sandbox_args *a) {
    struct cli_option options[ARRAY_LEN(flags)];
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(flags); i++)
        if (cli_sandbox_has(v, &flags[i]))
            options[n++] = flags[i].option;
    _cleanup_(free) char *name = xasprintf("sandbox %s", v->name);
    _cleanup_(free) char *synopsis =
        xasprintf("%s%s", v->options[0] ? "[OPTIONS] " : "", v->arguments);
    a->verb = v;
    int status = cli_options(&(struct cli_command){.name = name,
                                                   .help = print_verb_help,
                                                   .synopsis = synopsis,
                                                   .options = options,
                                                   .noptions = n,
                                                   .command_word = v->run == sandbox_exec ? 2 : 0,
                                                   .min_words = v->min,
                                                   .max_words = v->max,
                                                   .missing = "say which sandbox"},
                             &argc, argv, a);
    a->rest = argv + 1;
    a->nrest = argc - 1;
    return status;
}

int cli_sandbox(int argc, char **argv) {
    const char *names[ARRAY_LEN(verbs) + 1] = {NULL};
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        cli_sandbox_print_help(argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        names[i] = verbs[i].name;
    int chosen = cli_choose("sandbox", argv[1], names);
    if (chosen < 0)
        return 2;
    const struct subverb *v = &verbs[chosen];
    struct sandbox_cli c = {.args = {.allow = json_array(),
                                     .routes = json_array(),
                                     .binds = json_array(),
                                     .env = json_object(),
                                     .metadata = json_object()}};
    struct err err = {0};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    int status = cli_sandbox_parse(v, argc - 1, argv + 1, &c.args);
    if (status < 0) {
        status = client_init(&c.client, c.args.url, &err);
        if (status == 0)
            status = v->run(&c, &err);
        client_finish(&c.client);
        if (status < 0)
            status = cli_fail(&err);
    }
    json_decref(c.args.allow);
    json_decref(c.args.routes);
    json_decref(c.args.binds);
    json_decref(c.args.env);
    json_decref(c.args.metadata);
    return status;
}
