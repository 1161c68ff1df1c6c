#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/sse.h"
#include "front/cli/cli.h"
#include "front/cli/client.h"
#include "front/cli/terminal.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: cay task submit [OPTIONS] INPUT   queue a task and print its id\n"
    "       cay task ls [--state S] [-n N]    list them, newest first\n"
    "       cay task show ID                  all that is known of one, as JSON\n"
    "       cay task logs [-f] ID             what it printed; -f goes on until it ends\n"
    "       cay task wait ID                  wait for its end, print what a program returned; 0\n"
    "                                         if it is done\n"
    "       cay task cancel ID...             end it\n\n"
    "Tasks survive the death of the server. INPUT is the JSON that the type takes, @FILE or "
    "\"-\".\n\n"
    "  --type T            run (the default), code, execute, execute/sdk or claude-code\n"
    "  --at TIME           not before this time (2026-01-31T12:00:00Z)\n"
    "  --priority N        among your own, -100 to 100\n"
    "  --timeout TIME      of each attempt (default 1h)\n"
    "  --attempts N        how often it is tried when the machine is at fault (default 3)\n"
    "  --title TEXT\n"
    "  --webhook URL       says that it has ended, signed with CAY_WEBHOOK_SECRET (whsec_...)\n"
    "  --idempotency-key K a second one with the same key is the first one\n"
    "  --wait              print its events until it ends, as `logs -f` does, and what it "
    "returned\n"
    "  -o json             answers as JSON\n"
    "  --url URL           the server (default: CAY_URL, else http://127.0.0.1:8787)\n";

enum { INPUT_BYTES = 24 << 20, EVENT_BYTES = 32 << 20, TRIES = 5 };

struct task_args {
    const char *url;
    const char *type;
    const char *at;
    const char *title;
    const char *webhook;
    const char *key;
    const char *state;
    int64_t timeout_ms;
    long priority;
    long attempts;
    long limit;
    bool wait;
    bool follow;
    bool json;
    char **rest;
    int nrest;
};

struct task_cli {
    struct client client;
    struct task_args args;
};

static int call(struct task_cli *c, const char *method, const char *path, json_t **ret_json,
                struct err *err) {
    return client_call(&c->client, &(struct client_call){.method = method, .path = path}, ret_json,
                       err);
}

/* "/v1/tasks/ID" + rest; the caller frees. */
static char *path_of(const char *id, const char *rest) {
    struct buf b;
    buf_init(&b, 4096);
    (void)buf_add_str(&b, "/v1/tasks/");
    client_encode(&b, id);
    (void)buf_add_str(&b, rest);
    return buf_steal(&b, NULL);
}

static void print_json(const json_t *j) {
    _cleanup_(free) char *text = json_dumps(j, JSON_INDENT(2));
    (void)printf("%s\n", text ? text : "null");
}

static const char *text_of(const json_t *j, const char *key) {
    const char *v = json_string_value(json_object_get(j, key));
    return v ? v : "";
}

static void print_text(const char *text) {
    terminal_print(stdout, text, strlen(text));
}

/* --- following --- */

struct following {
    struct sse sse;
    json_t *end;
    bool raw; /* each event as a line of JSON */
};

/* What a person wants to see of an event. */
static void print_event(const char *type, const json_t *data) {
    static const char *const keys[] = {"message", "text", "output", "path", "command"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const char *v = json_string_value(json_object_get(data, keys[i]));
        if (!v)
            continue;
        if (strcmp(type, "log") != 0)
            (void)printf("[%s] ", type);
        print_text(v);
        (void)putchar('\n');
        return;
    }
    (void)printf("[%s]\n", type);
}

static bool on_event(void *ctx, const char *type, const char *data, size_t len) {
    struct following *f = ctx;
    json_t *j = json_loadb(data, len, JSON_DECODE_ANY, NULL);
    if (strcmp(type, "end") == 0) {
        json_decref(f->end);
        f->end = j;
        return false;
    }
    if (f->raw)
        (void)printf("{\"type\":\"%s\",\"data\":%.*s}\n", type, (int)len, data);
    else
        print_event(type, j);
    (void)fflush(stdout);
    json_decref(j);
    return true;
}

static int on_data(void *ctx, const char *data, size_t len, struct err *err) {
    struct following *f = ctx;
    return sse_feed(&f->sse, data, len, err);
}

static bool on_nothing(void *ctx, const char *type, const char *data, size_t len) {
    return strcmp(type, "end") != 0 || on_event(ctx, type, data, len);
}

/* Until its end; *ret_task is what became of it. A connection that breaks is made again by waits,
 * which print nothing. */
static int follow(struct task_cli *c, const char *id, bool prints, json_t **ret_task,
                  struct err *err) {
    _cleanup_(free) char *path = path_of(id, "/events");
    struct following f = {.raw = c->args.json};
    int rc = 0;
    for (int i = 0; i < TRIES && !f.end && (i == 0 || !prints); i++) {
        sse_init(&f.sse, EVENT_BYTES, prints ? on_event : on_nothing, &f);
        rc = client_call(
            &c->client,
            &(struct client_call){
                .path = path, .accept = "text/event-stream", .on_data = on_data, .ctx = &f},
            NULL, err);
        sse_finish(&f.sse);
        if (rc < 0 && err->code != ERR_UNAVAILABLE && err->code != ERR_IO)
            break;
        if (!f.end && i + 1 < TRIES)
            (void)usleep(500000);
    }
    if (f.end) {
        *ret_task = f.end;
        return 0;
    }
    return rc < 0 ? rc : err_set(err, ERR_UNAVAILABLE, "the server ended before the task did");
}

/* What a program returned, as `cay run` prints it. */
static void print_returned(const json_t *t) {
    const json_t *value = json_object_get(json_object_get(t, "result"), "result");
    _cleanup_(free) char *text = json_dumps(value, JSON_INDENT(2) | JSON_ENCODE_ANY);
    if (strcmp(text_of(t, "type"), "run") == 0 && text)
        (void)printf("%s\n", text);
}

/* How it ended, in a line and as an exit status. */
static int tell_end(const struct task_cli *c, const json_t *t) {
    const char *state = text_of(t, "state");
    const json_t *error = json_object_get(t, "error");
    if (c->args.json) {
        print_json(t);
    } else {
        print_returned(t);
        (void)fflush(stdout);
        (void)fprintf(stderr, "%s: %s", text_of(t, "id"), state);
        if (json_is_object(error)) {
            (void)fputs(": ", stderr);
            terminal_print(stderr, text_of(error, "message"), strlen(text_of(error, "message")));
        }
        (void)fputc('\n', stderr);
    }
    return strcmp(state, "done") == 0 ? 0 : 1;
}

/* --- submit --- */

static int read_input(const char *text, json_t **ret_json, struct err *err) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, INPUT_BYTES);
    if (*text != '@' && strcmp(text, "-") != 0)
        return json_parse(text, strlen(text), "INPUT", ret_json, err);
    const char *path = *text == '@' ? text + 1 : "/dev/stdin";
    int rc = fd_read_file(AT_FDCWD, path, &b, err);
    return rc < 0 ? rc : json_parse(b.data ? b.data : "", b.len, path, ret_json, err);
}

static int make_body(const struct task_args *a, json_t **ret_body, struct err *err) {
    json_t *input = NULL;
    const char *secret = getenv("CAY_WEBHOOK_SECRET");
    if (a->webhook && !secret)
        return err_set(err, ERR_BAD_REQUEST,
                       "--webhook needs CAY_WEBHOOK_SECRET in the environment: \"whsec_\" and the "
                       "base64 of 16 to 64 bytes (openssl rand -base64 24)");
    int rc = read_input(a->rest[0], &input, err);
    if (rc < 0)
        return rc;
    json_t *body = json_pack("{s:s,s:o}", "type", a->type ? a->type : "run", "input", input);
    if (a->at)
        (void)json_object_set_new(body, "run_at", json_text(a->at));
    if (a->title)
        (void)json_object_set_new(body, "title", json_text(a->title));
    if (a->priority)
        (void)json_object_set_new(body, "priority", json_integer(a->priority));
    if (a->timeout_ms)
        (void)json_object_set_new(body, "timeout_ms", json_integer(a->timeout_ms));
    if (a->attempts)
        (void)json_object_set_new(body, "max_attempts", json_integer(a->attempts));
    if (a->webhook)
        (void)json_object_set_new(
            body, "webhook",
            json_pack("{s:o,s:o}", "url", json_text(a->webhook), "secret", json_text(secret)));
    *ret_body = body;
    return 0;
}

static int submit(struct task_cli *c, struct err *err) {
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(json) json_t *task = NULL;
    int rc = make_body(&c->args, &body, err);
    if (rc == 0)
        rc = client_call(&c->client,
                         &(struct client_call){
                             .path = "/v1/tasks", .json = body, .idempotency_key = c->args.key},
                         &task, err);
    if (rc < 0)
        return rc;
    if (!c->args.wait) {
        if (c->args.json)
            print_json(task);
        else
            (void)printf("%s\n", text_of(task, "id"));
        return 0;
    }
    (void)fprintf(stderr, "%s\n", text_of(task, "id"));
    _cleanup_(json) json_t *end = NULL;
    rc = follow(c, text_of(task, "id"), true, &end, err);
    return rc < 0 ? rc : tell_end(c, end);
}

/* --- the others --- */

static int list(struct task_cli *c, struct err *err) {
    struct buf path;
    _cleanup_(json) json_t *page = NULL;
    size_t i;
    const json_t *t;
    buf_init(&path, 4096);
    (void)buf_addf(&path, "/v1/tasks?limit=%ld", c->args.limit ? c->args.limit : 20);
    if (c->args.state) {
        (void)buf_add_str(&path, "&state=");
        client_encode(&path, c->args.state);
    }
    int rc = call(c, NULL, path.data, &page, err);
    buf_finish(&path);
    if (rc < 0)
        return rc;
    if (c->args.json) {
        print_json(json_object_get(page, "tasks"));
        return 0;
    }
    json_array_foreach(json_object_get(page, "tasks"), i, t) {
        (void)printf("%s  %-11s  %-11s  %.19s  ", text_of(t, "id"), text_of(t, "state"),
                     text_of(t, "type"), text_of(t, "created_at"));
        print_text(text_of(t, "title"));
        (void)putchar('\n');
    }
    return 0;
}

static int show(struct task_cli *c, struct err *err) {
    _cleanup_(free) char *path = path_of(c->args.rest[0], "");
    _cleanup_(json) json_t *task = NULL;
    int rc = call(c, NULL, path, &task, err);
    if (rc == 0)
        print_json(task);
    return rc;
}

/* One that has not ended would be followed: without -f it is asked for its run's events. */
static int logs(struct task_cli *c, struct err *err) {
    _cleanup_(free) char *path = path_of(c->args.rest[0], "");
    _cleanup_(json) json_t *task = NULL;
    _cleanup_(json) json_t *run = NULL;
    _cleanup_(json) json_t *end = NULL;
    size_t i;
    const json_t *e;
    int rc = call(c, NULL, path, &task, err);
    if (rc < 0)
        return rc;
    if (c->args.follow || !json_is_null(json_object_get(task, "finished_at"))) {
        rc = follow(c, c->args.rest[0], true, &end, err);
        return rc < 0 ? rc : c->args.follow ? tell_end(c, end) : 0;
    }
    if (!*text_of(task, "run"))
        return 0;
    _cleanup_(free) char *of_run = xasprintf("/v1/runs/%s", text_of(task, "run"));
    rc = call(c, NULL, of_run, &run, err);
    json_array_foreach(json_object_get(run, "events"), i, e) {
        print_event(text_of(e, "type"), json_object_get(e, "data"));
    }
    return rc;
}

static int wait_for(struct task_cli *c, struct err *err) {
    _cleanup_(json) json_t *end = NULL;
    int rc = follow(c, c->args.rest[0], false, &end, err);
    return rc < 0 ? rc : tell_end(c, end);
}

static int cancel(struct task_cli *c, struct err *err) {
    for (int i = 0; i < c->args.nrest; i++) {
        _cleanup_(free) char *path = path_of(c->args.rest[i], "/cancel");
        _cleanup_(json) json_t *task = NULL;
        int rc = call(c, "POST", path, &task, err);
        if (rc < 0)
            return rc;
        (void)printf("%s %s\n", c->args.rest[i], text_of(task, "state"));
    }
    return 0;
}

static const struct {
    const char *name;
    int (*run)(struct task_cli *c, struct err *err);
    int min;
    int max; /* words */
} verbs[] = {{"submit", submit, 1, 1}, {"ls", list, 0, 0},       {"show", show, 1, 1},
             {"logs", logs, 1, 1},     {"wait", wait_for, 1, 1}, {"cancel", cancel, 1, 1000}};

static bool read_long(const char *text, long *ret) {
    char *end = NULL;
    *ret = strtol(text, &end, 10);
    return *text && !*end;
}

/* -1: go on. */
static int parse(int argc, char **argv, struct task_args *a) {
    static const struct option options[] = {{"type", required_argument, NULL, 't'},
                                            {"at", required_argument, NULL, 'A'},
                                            {"priority", required_argument, NULL, 'p'},
                                            {"timeout", required_argument, NULL, 'T'},
                                            {"attempts", required_argument, NULL, 'a'},
                                            {"title", required_argument, NULL, 'i'},
                                            {"webhook", required_argument, NULL, 'w'},
                                            {"idempotency-key", required_argument, NULL, 'k'},
                                            {"wait", no_argument, NULL, 'W'},
                                            {"state", required_argument, NULL, 's'},
                                            {"follow", no_argument, NULL, 'f'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"url", required_argument, NULL, 'u'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int o;
    while ((o = getopt_long(argc, argv, "hfn:o:", options, NULL)) != -1) {
        const char **text = o == 't'   ? &a->type
                            : o == 'A' ? &a->at
                            : o == 'i' ? &a->title
                            : o == 'w' ? &a->webhook
                            : o == 'k' ? &a->key
                            : o == 's' ? &a->state
                            : o == 'u' ? &a->url
                                       : NULL;
        long *number = o == 'p'   ? &a->priority
                       : o == 'a' ? &a->attempts
                       : o == 'n' ? &a->limit
                                  : NULL;
        if (text)
            *text = optarg;
        else if (number && !read_long(optarg, number))
            return cli_usage("task", "a number is needed there");
        else if (o == 'T' && !cli_parse_time(optarg, &a->timeout_ms))
            return cli_usage("task", "--timeout is a time such as 30s, 10m or 2h");
        else if (o == 'o' && strcmp(optarg, "json") != 0)
            return cli_usage("task", "-o is json");
        else if (o == 'h') {
            (void)fputs(usage, stdout);
            return 0;
        } else if (o == '?')
            return cli_usage("task", "unknown option");
        a->wait |= o == 'W';
        a->follow |= o == 'f';
        a->json |= o == 'o';
    }
    a->rest = argv + optind;
    a->nrest = argc - optind;
    return -1;
}

int cli_task(int argc, char **argv) {
    struct task_cli c = {0};
    struct err err;
    int done = parse(argc, argv, &c.args);
    if (done >= 0)
        return done;
    const char *name = c.args.nrest > 0 ? c.args.rest[0] : "";
    size_t i = 0;
    while (i < ARRAY_LEN(verbs) && strcmp(verbs[i].name, name) != 0)
        i++;
    if (i == ARRAY_LEN(verbs))
        return cli_usage("task", "say submit, ls, show, logs, wait or cancel");
    c.args.rest++;
    c.args.nrest--;
    if (c.args.nrest < verbs[i].min || c.args.nrest > verbs[i].max)
        return cli_usage("task", verbs[i].min == 0             ? "it takes no further words"
                                 : strcmp(name, "submit") == 0 ? "give it one INPUT"
                                                               : "say which task");
    int rc = client_init(&c.client, c.args.url, &err);
    if (rc < 0)
        return cli_fail(&err);
    rc = verbs[i].run(&c, &err);
    client_finish(&c.client);
    return rc < 0 ? cli_fail(&err) : rc;
}
