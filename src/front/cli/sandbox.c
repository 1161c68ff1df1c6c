#include "front/cli/sandbox.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "front/cli/cli.h"
#include "front/cli/terminal.h"

#include <errno.h>
#include <getopt.h>
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

static const char *text_of(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

static bool is_live(const json_t *sandbox) {
    const char *status = text_of(sandbox, "status");
    return strcmp(status, "running") == 0 || strcmp(status, "paused") == 0;
}

/* All of them, however many pages that takes. */
static int list_all(struct sandbox_cli *c, json_t **ret_list, struct err *err) {
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
    int rc = list_all(c, &list, err);
    if (rc < 0)
        return rc;
    size_t i, found = 0;
    const json_t *it;
    json_array_foreach(list, i, it) {
        const char *id = text_of(it, "id");
        if (strcmp(text_of(it, "name"), text) != 0 || !is_live(it) || strlen(id) >= ID_SIZE)
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

static void print_json(const json_t *j) {
    _cleanup_(free) char *text = json_dumps(j, JSON_INDENT(2) | JSON_ENCODE_ANY);
    (void)puts(text ? text : "null");
}

static void print_line(const char *text) {
    terminal_print(stdout, text, strlen(text));
    (void)fputc('\n', stdout);
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

static void set(json_t *body, const char *key, json_t *value) {
    (void)json_object_set_new(body, key, value);
}

/* --- verbs --- */

static int create(struct sandbox_cli *c, struct err *err) {
    const struct sandbox_args *a = &c->args;
    _cleanup_(json) json_t *body = json_object();
    _cleanup_(json) json_t *j = NULL;
    if (a->name)
        set(body, "name", json_string(a->name));
    if (a->root)
        set(body, "root", json_string(a->root));
    if (a->snapshot)
        set(body, "snapshot", json_string(a->snapshot));
    if (a->memory_bytes)
        set(body, "memory_mb", json_integer((a->memory_bytes + (1 << 20) - 1) >> 20));
    if (a->disk_bytes)
        set(body, "disk_mb", json_integer((a->disk_bytes + (1 << 20) - 1) >> 20));
    if (a->timeout_ms)
        set(body, "timeout_s", json_integer((a->timeout_ms + 999) / 1000));
    if (a->pids)
        set(body, "pids", json_integer(a->pids));
    if (a->cpus > 0)
        set(body, "cpus", json_real(a->cpus));
    if (json_array_size(a->allow) + json_array_size(a->routes) > 0)
        set(body, "network", json_pack("{s:O,s:O}", "allow", a->allow, "routes", a->routes));
    if (json_array_size(a->binds) > 0)
        set(body, "binds", json_incref(a->binds));
    if (json_object_size(a->env) > 0)
        set(body, "env", json_incref(a->env));
    if (json_object_size(a->metadata) > 0)
        set(body, "metadata", json_incref(a->metadata));
    int rc = client_call(&c->client, &(struct client_call){.path = "/v1/sandboxes", .json = body},
                         &j, err);
    if (rc < 0)
        return rc;
    if (a->json)
        print_json(j);
    else
        print_line(text_of(j, "id"));
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
    int64_t end = parse_time(text_of(it, "expires_at"));
    const json_t *bytes = json_object_get(json_object_get(it, "usage"), "memory_bytes");
    format_age(now - parse_time(text_of(it, "created_at")), age);
    if (is_live(it) && end)
        format_age(end - now, left);
    if (is_live(it) && json_is_integer(bytes))
        (void)snprintf(memory, sizeof(memory), "%.1fM",
                       (double)json_integer_value(bytes) / (1 << 20));
    terminal_print(stdout, text_of(it, "id"), strlen(text_of(it, "id")));
    (void)printf("  %-11s  %6s  %6s  %9s  ", text_of(it, "status"), age, left, memory);
    print_cell(text_of(it, "name"));
}

/* The list knows what was measured last: those that live are asked again. */
static void measure(struct sandbox_cli *c, json_t *list) {
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n && i < MEASURED_MAX; i++) {
        const json_t *it = json_array_get(list, i);
        struct err err;
        json_t *now = NULL;
        _cleanup_(free) char *path = sandbox_path(text_of(it, "id"), "");
        if (is_live(it) &&
            client_call(&c->client, &(struct client_call){.path = path}, &now, &err) == 0)
            (void)json_array_set_new(list, i, now);
    }
}

static int ls(struct sandbox_cli *c, struct err *err) {
    _cleanup_(json) json_t *list = NULL;
    size_t i;
    const json_t *it;
    int rc = list_all(c, &list, err);
    if (rc < 0)
        return rc;
    for (size_t n = json_array_size(list); n > 0 && !c->args.all; n--)
        if (!is_live(json_array_get(list, n - 1)))
            (void)json_array_remove(list, n - 1);
    if (!c->args.quiet)
        measure(c, list);
    if (c->args.json) {
        print_json(list);
        return 0;
    }
    if (!c->args.quiet)
        (void)printf("%-30s  %-11s  %6s  %6s  %9s  %s\n", "ID", "STATUS", "AGE", "LEFT", "MEMORY",
                     "NAME");
    json_array_foreach(list, i, it) {
        if (c->args.quiet)
            print_line(text_of(it, "id"));
        else
            print_row(it, clock_wall_ms() / 1000);
    }
    return 0;
}

/* The same call for each sandbox that is named; the first failure is told, the others are tried. */
static int for_each(struct sandbox_cli *c, const char *method, const char *rest, struct err *err) {
    int result = 0;
    for (int i = 0; i < c->args.nrest; i++) {
        char id[ID_SIZE];
        struct err mine;
        int rc = sandbox_resolve(c, c->args.rest[i], id, &mine);
        _cleanup_(free) char *path = rc < 0 ? NULL : sandbox_path(id, rest);
        if (rc == 0)
            rc = client_call(&c->client, &(struct client_call){.method = method, .path = path},
                             NULL, &mine);
        if (rc == 0 && !c->args.quiet)
            print_line(id);
        if (rc < 0 && result == 0) {
            *err = mine;
            result = rc;
        } else if (rc < 0) {
            (void)cli_fail(&mine);
        }
    }
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
static int about(struct sandbox_cli *c, const char *rest, const json_t *body, json_t **ret,
                 struct err *err) {
    char id[ID_SIZE];
    int rc = sandbox_resolve(c, c->args.rest[0], id, err);
    if (rc < 0)
        return rc;
    _cleanup_(free) char *path = sandbox_path(id, rest);
    return client_call(&c->client, &(struct client_call){.path = path, .json = body}, ret, err);
}

static int inspect(struct sandbox_cli *c, struct err *err) {
    _cleanup_(json) json_t *j = NULL;
    int rc = about(c, "", NULL, &j, err);
    if (rc == 0)
        print_json(j);
    return rc;
}

static int extend(struct sandbox_cli *c, struct err *err) {
    _cleanup_(json) json_t *j = NULL;
    int64_t ms;
    if (!cli_parse_time(c->args.rest[1], &ms))
        return err_set(err, ERR_BAD_REQUEST, "how long from now: 30s, 15m, 2h");
    _cleanup_(json) json_t *body = json_pack("{s:I}", "timeout_s", (json_int_t)((ms + 999) / 1000));
    int rc = about(c, "/extend", body, &j, err);
    if (rc == 0 && !c->args.quiet)
        print_line(text_of(j, "expires_at"));
    return rc;
}

static int snapshot(struct sandbox_cli *c, struct err *err) {
    _cleanup_(json) json_t *j = NULL;
    _cleanup_(json) json_t *body = json_object();
    if (c->args.name)
        set(body, "name", json_string(c->args.name));
    int rc = about(c, "/snapshots", body, &j, err);
    if (rc == 0 && c->args.json)
        print_json(j);
    else if (rc == 0)
        print_line(text_of(j, "id"));
    size_t i;
    const json_t *it;
    json_array_foreach(json_object_get(j, "warnings"), i, it) {
        (void)fputs("cay sandbox snapshot: ", stderr);
        terminal_print(stderr, json_string_value(it), json_string_length(it));
        (void)fputc('\n', stderr);
    }
    return rc;
}

/* Where a server inside is seen. Guests never share the server's own origin. */
static int port(struct sandbox_cli *c, struct err *err) {
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
    (void)printf("%.*s%lu-%s.localhost%s/\n", (int)(host - c->client.base), c->client.base, n, id,
                 colon ? colon : "");
    return 0;
}

static const struct subverb verbs[] = {
    {"create", "", "make one; prints its id", "NRSmdTnrbelpcoq", 0, 0, create},
    {"ls", "", "list those that live", "aqo", 0, 0, ls},
    {"exec", "SANDBOX [--] COMMAND [ARGUMENT...]", "run a command as if it were here", "ewtTDo", 2,
     -1, sandbox_exec},
    {"sh", "SANDBOX", "a shell at your terminal", "ew", 1, 1, sandbox_sh},
    {"cp", "FROM TO", "copy; one is SANDBOX:PATH; - is an archive", "q", 2, 2, sandbox_cp},
    {"logs", "SANDBOX [EXEC]", "what a command printed: the last one, or EXEC", "f", 1, 2,
     sandbox_logs},
    {"pause", "SANDBOX...", "stop all its processes", "q", 1, -1, pause_it},
    {"resume", "SANDBOX...", "let them go on", "q", 1, -1, resume_it},
    {"extend", "SANDBOX TIME", "let it live so long from now: 30s, 15m, 2h", "q", 2, 2, extend},
    {"snapshot", "SANDBOX", "keep its files, to make others from; prints an id", "No", 1, 1,
     snapshot},
    {"rm", "SANDBOX...", "end it, and everything in it", "q", 1, -1, remove_it},
    {"port", "SANDBOX PORT", "the address of a server inside", "", 2, 2, port},
    {"inspect", "SANDBOX", "all that is known of it, as JSON", "", 1, 1, inspect},
};

/* --- options --- */

struct flag {
    char letter;
    bool is_short; /* has its letter on the command line too */
    const char *name;
    const char *value; /* NULL: takes none */
    const char *help;
};

static const struct flag flags[] = {
    {'N', false, "name", "NAME", "a name, for people"},
    {'R', false, "root", "NAME", "a root of cay.json (default: the host's /usr)"},
    {'S', false, "snapshot", "ID", "begin with the files of a snapshot"},
    {'m', true, "memory", "SIZE", "most memory, its files included: 256m, 4g"},
    {'d', false, "disk", "SIZE", "most disk: 100m"},
    {'p', false, "pids", "N", "most processes"},
    {'c', false, "cpus", "N", "share of the processors: 0.5, 2"},
    {'T', false, "timeout", "TIME", "end it after: 30s, 15m, 2h"},
    {'n', true, "net", "HOSTS", "hosts it may reach: example.com,*.example.org:8443"},
    {'r', false, "route", "NAME", "a route of cay.json (may be repeated)"},
    {'b', false, "bind", "NAME:PATH[:rw]", "a folder of cay.json, at PATH (may be repeated)"},
    {'e', true, "env", "K=V", "set a variable; K alone passes on yours (may be repeated)"},
    {'l', true, "label", "K=V", "metadata (may be repeated)"},
    {'w', true, "workdir", "DIR", "where it begins (default /work)"},
    {'t', true, "tty", NULL, "give it a terminal"},
    {'D', false, "detach", NULL, "do not wait for it; prints its id"},
    {'f', true, "follow", NULL, "go on until it ends"},
    {'a', true, "all", NULL, "those that have ended too"},
    {'o', true, "output", "json", "print JSON"},
    {'q', true, "quiet", NULL, "print less: ids only, or nothing"},
};

static void print_verb_help(const struct subverb *v) {
    (void)printf("usage: cay sandbox %s %s%s\n\n%s\n\n", v->name, v->options[0] ? "[OPTIONS] " : "",
                 v->arguments, v->summary);
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        if (!strchr(v->options, flags[i].letter))
            continue;
        char head[64];
        (void)snprintf(head, sizeof(head), "%c%c%s--%s %s", flags[i].is_short ? '-' : ' ',
                       flags[i].is_short ? flags[i].letter : ' ', flags[i].is_short ? ", " : "  ",
                       flags[i].name, flags[i].value ? flags[i].value : "");
        (void)printf("  %-30s %s\n", head, flags[i].help);
    }
    (void)printf("      --url URL                where the server is (default $CAY_URL, or "
                 "http://127.0.0.1:8787)\n\nCAY_API_KEY in the environment is sent as the key.\n");
}

static void print_help(FILE *out) {
    (void)fprintf(out, "usage: cay sandbox VERB [OPTIONS] ...\n\nThe Linux sandboxes of a running "
                       "server. A SANDBOX is an id or a name.\n\n");
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        (void)fprintf(out, "  %-9s %-35s %s\n", verbs[i].name, verbs[i].arguments,
                      verbs[i].summary);
    (void)fprintf(out, "\n`cay sandbox VERB --help` tells its options; `cay exec` needs no "
                       "server.\n");
}

static bool add_pair(json_t *object, const char *text, bool from_environment) {
    const char *eq = strchr(text, '=');
    if (eq == text || *text == 0)
        return false;
    if (!eq && !from_environment)
        return false;
    _cleanup_(free) char *key = xstrndup(text, eq ? (size_t)(eq - text) : strlen(text));
    const char *value = eq ? eq + 1 : getenv(text);
    if (!value)
        return true; /* not set here, not set there */
    json_t *j = json_string(value);
    return j && json_object_set_new(object, key, j) == 0;
}

static void add_list(json_t *array, const char *text) {
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ", ");
        if (n > 0)
            (void)json_array_append_new(array, json_stringn(p, n));
        p += n + (p[n] != 0);
    }
}

static bool add_bind(json_t *array, const char *text) {
    const char *path = strchr(text, ':');
    const char *mode = path ? strchr(path + 1, ':') : NULL;
    if (!path || path == text || path[1] != '/' ||
        (mode && strcmp(mode, ":rw") != 0 && strcmp(mode, ":ro") != 0))
        return false;
    size_t n = mode ? (size_t)(mode - path - 1) : strlen(path + 1);
    return json_array_append_new(array,
                                 json_pack("{s:s%,s:s%,s:s}", "name", text, path - text, "path",
                                           path + 1, n, "mode", mode ? mode + 1 : "ro")) == 0;
}

/* Options that are a text, or a flag, as they are. */
static bool set_plain(struct sandbox_args *a, int letter, const char *value) {
    static const struct {
        int letter;
        size_t at;
    } texts[] = {{'u', offsetof(struct sandbox_args, url)},
                 {'N', offsetof(struct sandbox_args, name)},
                 {'R', offsetof(struct sandbox_args, root)},
                 {'S', offsetof(struct sandbox_args, snapshot)},
                 {'w', offsetof(struct sandbox_args, workdir)}},
      marks[] = {{'a', offsetof(struct sandbox_args, all)},
                 {'t', offsetof(struct sandbox_args, tty)},
                 {'D', offsetof(struct sandbox_args, detach)},
                 {'f', offsetof(struct sandbox_args, follow)},
                 {'q', offsetof(struct sandbox_args, quiet)}};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (texts[i].letter == letter) {
            *(const char **)(void *)((char *)a + texts[i].at) = value;
            return true;
        }
    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        if (marks[i].letter == letter) {
            *(bool *)((char *)a + marks[i].at) = true;
            return true;
        }
    return false;
}

/* NULL, or what is wrong. */
static const char *set_option(struct sandbox_args *a, int letter, const char *value) {
    char *end = NULL;
    if (set_plain(a, letter, value))
        return NULL;
    switch (letter) {
    case 'm':
        return cli_parse_size(value, &a->memory_bytes) ? NULL : "--memory needs a size: 256m, 4g";
    case 'd':
        return cli_parse_size(value, &a->disk_bytes) ? NULL : "--disk needs a size: 100m, 2g";
    case 'T':
        return cli_parse_time(value, &a->timeout_ms) ? NULL : "--timeout needs a time: 30s, 15m";
    case 'p':
        a->pids = strtol(value, &end, 10);
        return *end == 0 && a->pids > 0 ? NULL : "--pids needs a number";
    case 'c':
        a->cpus = strtod(value, &end);
        return *end == 0 && a->cpus > 0 ? NULL : "--cpus needs a number: 0.5, 2";
    case 'n':
        add_list(a->allow, value);
        return NULL;
    case 'r':
        add_list(a->routes, value);
        return NULL;
    case 'b':
        return add_bind(a->binds, value) ? NULL : "--bind is NAME:PATH or NAME:PATH:rw";
    case 'e':
        return add_pair(a->env, value, true) ? NULL : "--env needs NAME=VALUE in UTF-8";
    case 'l':
        return add_pair(a->metadata, value, false) ? NULL : "--label needs NAME=VALUE";
    default:
        a->json = true;
        return strcmp(value, "json") == 0 ? NULL : "--output is json";
    }
}

/* The options of this verb, for getopt_long(). */
static void make_options(const struct subverb *v, struct option *ret, char *ret_short) {
    size_t n = 0;
    *ret_short++ = '+'; /* what follows a command is the command's */
    *ret_short++ = 'h';
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        if (!strchr(v->options, flags[i].letter))
            continue;
        int has = flags[i].value ? required_argument : no_argument;
        ret[n++] = (struct option){flags[i].name, has, NULL, flags[i].letter};
        if (flags[i].is_short)
            *ret_short++ = flags[i].letter;
        if (flags[i].is_short && flags[i].value)
            *ret_short++ = ':';
    }
    ret[n++] = (struct option){"url", required_argument, NULL, 'u'};
    ret[n++] = (struct option){"help", no_argument, NULL, 'h'};
    ret[n] = (struct option){0};
    *ret_short = 0;
}

static int wrong_usage(const struct subverb *v, const char *message) {
    (void)fprintf(stderr, "cay sandbox %s: %s\nusage: cay sandbox %s %s%s\n", v->name, message,
                  v->name, v->options[0] ? "[OPTIONS] " : "", v->arguments);
    return 2;
}

/* Options may stand before and behind what comes first, which is the sandbox; a command's own are
 * left alone. */
static int parse(const struct subverb *v, int argc, char **argv, struct sandbox_args *a) {
    struct option options[ARRAY_LEN(flags) + 3];
    char letters[2 * ARRAY_LEN(flags) + 4];
    bool is_command = v->run == sandbox_exec;
    int o;
    make_options(v, options, letters);
    a->rest = xcalloc((size_t)argc + 1, sizeof(char *));
    optind = 0;
    while (true) {
        bool ended = optind > 0 && optind <= argc && strcmp(argv[optind - 1], "--") == 0;
        o = ended ? -1 : getopt_long(argc, argv, letters, options, NULL);
        if (o == 'h') {
            print_verb_help(v);
            return 0;
        }
        if (o == '?')
            return wrong_usage(v, "it has no such option, or its value is missing");
        if (o != -1) {
            const char *wrong = set_option(a, o, optarg);
            if (wrong)
                return wrong_usage(v, wrong);
            continue;
        }
        if (optind >= argc)
            break;
        ended = ended || strcmp(argv[optind - 1], "--") == 0;
        a->rest[a->nrest++] = argv[optind++];
        if (ended || (is_command && a->nrest == 2)) { /* the rest is as it is */
            while (optind < argc)
                a->rest[a->nrest++] = argv[optind++];
            break;
        }
    }
    if (a->nrest < v->min)
        return wrong_usage(v, a->nrest == 0 ? "say which sandbox" : "something is missing");
    if (v->max >= 0 && a->nrest > v->max)
        return wrong_usage(v, "too many arguments");
    return -1;
}

int cli_sandbox(int argc, char **argv) {
    const struct subverb *v = NULL;
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        if (strcmp(verbs[i].name, argv[1]) == 0)
            v = &verbs[i];
    if (!v)
        return cli_usage("sandbox", "there is no such verb");
    struct sandbox_cli c = {.args = {.allow = json_array(),
                                     .routes = json_array(),
                                     .binds = json_array(),
                                     .env = json_object(),
                                     .metadata = json_object()}};
    struct err err = {0};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    int status = parse(v, argc - 1, argv + 1, &c.args);
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
    free(c.args.rest);
    return status;
}
