#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "front/cli/cli.h"
#include "front/cli/client.h"
#include "front/cli/options.h"
#include "front/cli/terminal.h"

#include <fcntl.h>
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
    "  --timeout TIME      of each attempt (default: as long as its type may take)\n"
    "  --attempts N        how often it is tried when the machine is at fault (default 3)\n"
    "  --title TEXT\n"
    "  --webhook URL       says that it has ended, signed with CAY_WEBHOOK_SECRET (whsec_...)\n"
    "  --idempotency-key K a second one with the same key is the first one\n"
    "  --wait              print its events until it ends, as `logs -f` does, and what it "
    "returned\n"
    "  --json              answers as JSON; events as lines of JSON\n"
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
    int64_t priority;
    int64_t attempts;
    int64_t limit;
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

static int cli_task_call(struct task_cli *c, const char *method, const char *path,
                         json_t **ret_json, struct err *err) {
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

/* --- following --- */

struct following {
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
        terminal_line(stdout, v);
        return;
    }
    (void)printf("[%s]\n", type);
}

static bool cli_task_on_event(void *ctx, const char *type, const char *data, size_t len) {
    struct following *f = ctx;
    json_t *j = json_read(data, len);
    if (strcmp(type, "end") == 0) {
        json_decref(f->end);
        f->end = j;
        return false;
    }
    if (f->raw) {
        (void)printf("{\"type\":\"%s\",\"data\":", type);
        terminal_print(stdout, data, len);
        (void)fputs("}\n", stdout);
    } else {
        print_event(type, j);
    }
    (void)fflush(stdout);
    json_decref(j);
    return true;
}

static bool cli_task_on_nothing(void *ctx, const char *type, const char *data, size_t len) {
    return strcmp(type, "end") != 0 || cli_task_on_event(ctx, type, data, len);
}

/* Until its end; *ret_task is what became of it. A connection that breaks is made again by waits,
 * which print nothing. */
static int cli_task_follow(struct task_cli *c, const char *id, bool prints, json_t **ret_task,
                           struct err *err) {
    _cleanup_(free) char *path = path_of(id, "/events");
    struct following f = {.raw = c->args.json};
    int rc = 0;
    for (int i = 0; i < TRIES && !f.end && (i == 0 || !prints); i++) {
        rc = client_call(
            &c->client,
            &(struct client_call){.path = path,
                                  .on_event = prints ? cli_task_on_event : cli_task_on_nothing,
                                  .max_event_bytes = EVENT_BYTES,
                                  .ctx = &f},
            NULL, err);
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
    if (strcmp(client_text(t, "type"), "run") == 0 && text)
        terminal_line(stdout, text);
}

/* How it ended, in a line and as an exit status. */
static int cli_task_tell_end(const struct task_cli *c, const json_t *t) {
    const char *state = client_text(t, "state");
    const json_t *error = json_object_get(t, "error");
    if (c->args.json) {
        terminal_json(t);
    } else {
        print_returned(t);
        (void)fflush(stdout);
        (void)fprintf(stderr, "%s: %s", client_text(t, "id"), state);
        terminal_say(stderr, json_is_object(error) ? ": " : "", client_text(error, "message"));
    }
    return strcmp(state, "done") == 0 ? 0 : 1;
}

/* --- submit --- */

static int cli_task_read_input(const char *text, json_t **ret_json, struct err *err) {
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
    int rc = cli_task_read_input(a->rest[0], &input, err);
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

static int cli_task_submit(struct task_cli *c, struct err *err) {
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(json) json_t *task = NULL;
    int rc = make_body(&c->args, &body, err);
    if (rc == 0)
        rc = client_call(
            &c->client,
            &(struct client_call){.path = "/v1/tasks",
                                  .json = body,
                                  .header = {.name = "Idempotency-Key", .value = c->args.key}},
            &task, err);
    if (rc < 0)
        return rc;
    if (!c->args.wait) {
        if (c->args.json)
            terminal_json(task);
        else
            (void)printf("%s\n", client_text(task, "id"));
        return 0;
    }
    (void)fprintf(stderr, "%s\n", client_text(task, "id"));
    _cleanup_(json) json_t *end = NULL;
    rc = cli_task_follow(c, client_text(task, "id"), true, &end, err);
    return rc < 0 ? rc : cli_task_tell_end(c, end);
}

/* --- the others --- */

static int cli_task_list(struct task_cli *c, struct err *err) {
    struct buf path;
    _cleanup_(json) json_t *page = NULL;
    size_t i;
    const json_t *t;
    buf_init(&path, 4096);
    (void)buf_addf(&path, "/v1/tasks?limit=%lld", c->args.limit ? (long long)c->args.limit : 20);
    if (c->args.state) {
        (void)buf_add_str(&path, "&state=");
        client_encode(&path, c->args.state);
    }
    int rc = cli_task_call(c, NULL, path.data, &page, err);
    buf_finish(&path);
    if (rc < 0)
        return rc;
    if (c->args.json) {
        terminal_json(json_object_get(page, "tasks"));
        return 0;
    }
    (void)printf("%-31s  %-11s  %-11s  %-19s  %s\n", "ID", "STATE", "TYPE", "CREATED", "TITLE");
    json_array_foreach(json_object_get(page, "tasks"), i, t) {
        (void)printf("%s  %-11s  %-11s  %.19s  ", client_text(t, "id"), client_text(t, "state"),
                     client_text(t, "type"), client_text(t, "created_at"));
        terminal_line(stdout, client_text(t, "title"));
    }
    return 0;
}

static int cli_task_show(struct task_cli *c, struct err *err) {
    _cleanup_(free) char *path = path_of(c->args.rest[0], "");
    _cleanup_(json) json_t *task = NULL;
    int rc = cli_task_call(c, NULL, path, &task, err);
    if (rc == 0)
        terminal_json(task);
    return rc;
}

/* One that has not ended would be followed: without -f it is asked for its run's events. */
static int cli_task_logs(struct task_cli *c, struct err *err) {
    _cleanup_(free) char *path = path_of(c->args.rest[0], "");
    _cleanup_(json) json_t *task = NULL;
    _cleanup_(json) json_t *run = NULL;
    _cleanup_(json) json_t *end = NULL;
    size_t i;
    const json_t *e;
    int rc = cli_task_call(c, NULL, path, &task, err);
    if (rc < 0)
        return rc;
    if (c->args.follow || !json_is_null(json_object_get(task, "finished_at"))) {
        rc = cli_task_follow(c, c->args.rest[0], true, &end, err);
        return rc < 0 ? rc : c->args.follow ? cli_task_tell_end(c, end) : 0;
    }
    if (!*client_text(task, "run"))
        return 0;
    _cleanup_(free) char *of_run = xasprintf("/v1/runs/%s", client_text(task, "run"));
    rc = cli_task_call(c, NULL, of_run, &run, err);
    json_array_foreach(json_object_get(run, "events"), i, e) {
        print_event(client_text(e, "type"), json_object_get(e, "data"));
    }
    return rc;
}

static int cli_task_wait_for(struct task_cli *c, struct err *err) {
    _cleanup_(json) json_t *end = NULL;
    int rc = cli_task_follow(c, c->args.rest[0], false, &end, err);
    return rc < 0 ? rc : cli_task_tell_end(c, end);
}

static int cli_task_cancel(struct task_cli *c, struct err *err) {
    _cleanup_(json) json_t *tasks = json_array();
    for (int i = 0; i < c->args.nrest; i++) {
        _cleanup_(free) char *path = path_of(c->args.rest[i], "/cancel");
        json_t *task = NULL;
        int rc = cli_task_call(c, "POST", path, &task, err);
        if (rc < 0)
            return rc;
        (void)json_array_append_new(tasks, task);
        if (!c->args.json)
            (void)printf("%s %s\n", c->args.rest[i], client_text(task, "state"));
    }
    if (c->args.json)
        terminal_json(tasks);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(struct task_cli *c, struct err *err);
    int min;
    int max; /* words */
} verbs[] = {{"submit", cli_task_submit, 1, 1}, {"ls", cli_task_list, 0, 0},
             {"show", cli_task_show, 1, 1},     {"logs", cli_task_logs, 1, 1},
             {"wait", cli_task_wait_for, 1, 1}, {"cancel", cli_task_cancel, 1, 1000}};

static const struct cli_option options[] = {
    OPTION(struct task_args, "type", 0, TEXT, type),
    OPTION(struct task_args, "at", 0, TEXT, at),
    OPTION(struct task_args, "timeout", 0, TIME, timeout_ms),
    OPTION(struct task_args, "attempts", 0, COUNT, attempts),
    OPTION(struct task_args, "title", 0, TEXT, title),
    OPTION(struct task_args, "webhook", 0, TEXT, webhook),
    OPTION(struct task_args, "idempotency-key", 0, TEXT, key),
    OPTION(struct task_args, "wait", 0, FLAG, wait),
    OPTION(struct task_args, "state", 0, TEXT, state),
    OPTION(struct task_args, "url", 0, TEXT, url),
    OPTION(struct task_args, "priority", 0, COUNT, priority, .min = INT64_MIN),
    OPTION(struct task_args, "follow", 'f', FLAG, follow),
    OPTION(struct task_args, "limit", 'n', COUNT, limit),
    OPTIONS_JSON(struct task_args, json)};

static const struct cli_command command = {.name = "task",
                                           .usage = usage,
                                           .options = options,
                                           .noptions = ARRAY_LEN(options),
                                           .max_words = -1};

int cli_task(int argc, char **argv) {
    struct task_cli c = {0};
    struct err err;
    const char *names[ARRAY_LEN(verbs) + 1] = {NULL};
    int done = cli_options(&command, &argc, argv, &c.args);
    if (done >= 0)
        return done;
    for (size_t k = 0; k < ARRAY_LEN(verbs); k++)
        names[k] = verbs[k].name;
    int i = cli_choose("task", argc > 1 ? argv[1] : "", names);
    if (i < 0)
        return 2;
    c.args.rest = argv + 2;
    c.args.nrest = argc - 2;
    if (c.args.nrest > verbs[i].max)
        return cli_usage("task", "unexpected argument \"%s\"", c.args.rest[verbs[i].max]);
    if (c.args.nrest < verbs[i].min)
        return cli_usage("task", i == 0 ? "give it one INPUT" : "say which task");
    int rc = client_init(&c.client, c.args.url, &err);
    if (rc < 0)
        return cli_fail(&err);
    rc = verbs[i].run(&c, &err);
    client_finish(&c.client);
    return rc < 0 ? cli_fail(&err) : rc;
}
