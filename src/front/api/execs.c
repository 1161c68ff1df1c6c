#include "base/cleanup.h"
#include "base/json_table.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/api/sandbox.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Commands in a sandbox: starting them, looking at them, their input, signals. What they write is
 * in output.c, their terminals in tty.c. */

static void api_execs_start(struct http_req *req, void *ctx) {
    struct err err;
    struct sandbox *s = api_sandbox(req, ctx, false);
    if (!s)
        return;
    _cleanup_(json) json_t *body = NULL;
    struct exec_request r = {0};
    struct exec *e = NULL;
    bool events = http_req_accepts(req, "text/event-stream");
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = exec_request_read(body, &r, &err);
    r.brief = !events && !r.background;
    if (rc == 0)
        rc = exec_start(s, &r, &e, &err);
    exec_request_finish(&r);
    if (rc < 0) {
        api_fail(req, &err);
        return;
    }
    exec_prune(s);
    static const uint64_t begin[3];
    if (events || r.background)
        http_hold(req); /* it names the command */
    if (events || !r.background) {
        api_output(ctx, req, e, begin, events);
        return;
    }
    _cleanup_(json) json_t *o = exec_show(e);
    exec_unref(e);
    http_respond_json(req, 202, o);
}

static json_t *api_execs_show_record(const struct front *f, const struct store_record *r) {
    struct exec *e = NULL;
    struct err err;
    /* A living one knows more than its record, an interrupted one's files too. */
    if (r->ended_ms == 0 || exec_record_state(r) == EXEC_INTERRUPTED) {
        if (exec_open(f->sandboxes, r->parent, r->id, (struct store_scope){.all = true}, &e,
                      &err) == 0) {
            json_t *o = exec_show(e);
            exec_unref(e);
            return o;
        }
    }
    return exec_show_record(r);
}

static void api_execs_list(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    _cleanup_(json) json_t *known = NULL;
    const char *id = http_req_param(req, "id");
    if (sandboxes_show(f->sandboxes, id, front_scope(req), &known, &err) < 0)
        http_respond_err(req, &err);
    else
        api_records(req, f, "exec", "exec", "execs", id, api_execs_show_record);
}

static void api_execs_get(struct http_req *req, void *ctx) {
    struct exec *e = api_exec(req, ctx);
    if (!e)
        return;
    _cleanup_(json) json_t *o = exec_show(e);
    exec_unref(e);
    http_respond_json(req, 200, o);
}

/* --- input --- */

struct input {
    struct exec_input *input;
    struct http_req *req;
    bool eof;
};

static void api_execs_on_room(void *ctx) {
    struct input *i = ctx;
    http_req_body_resume(i->req);
}

static void api_execs_on_input_failed(void *ctx, const struct err *err) {
    struct input *i = ctx;
    http_req_on_gone(i->req, NULL, NULL);
    http_req_on_body(i->req, NULL, NULL, NULL);
    http_respond_err(i->req, err);
    free(i);
}

static void api_execs_on_input_data(void *ctx, const char *data, size_t len) {
    struct input *i = ctx;
    if (!exec_input_write(i->input, data, len))
        http_req_body_pause(i->req);
}

static void api_execs_on_input_end(void *ctx) {
    struct input *i = ctx;
    if (!exec_input_is_open(i->input))
        return; /* on_input_failed answers */
    exec_input_close(i->input, i->eof);
    http_req_on_gone(i->req, NULL, NULL);
    http_respond_empty(i->req, 204);
    free(i);
}

static void api_execs_on_input_gone(void *ctx) {
    struct input *i = ctx;
    exec_input_close(i->input, false);
    http_respond_empty(i->req, 499);
    free(i);
}

static void stdin_(struct http_req *req, void *ctx) {
    static const struct exec_input_callbacks callbacks = {api_execs_on_room,
                                                          api_execs_on_input_failed};
    struct err err;
    struct exec *e = api_exec(req, ctx);
    if (!e)
        return;
    struct input *i = xcalloc(1, sizeof(*i));
    *i = (struct input){.req = req, .eof = api_flag(req, "eof")};
    int rc = exec_input_open(e, &callbacks, i, &i->input, &err);
    exec_unref(e);
    if (rc < 0) {
        free(i);
        http_respond_err(req, &err);
        return;
    }
    http_req_on_gone(req, api_execs_on_input_gone, i);
    http_req_on_body(req, api_execs_on_input_data, api_execs_on_input_end, i);
}

/* --- signals --- */

struct signal_body {
    int number;
    bool group;
};

static int read_signal(const json_t *v, void *member, struct err *err) {
    static const struct {
        const char *name;
        int number;
    } names[] = {{"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT},   {"KILL", SIGKILL},
                 {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM},   {"CONT", SIGCONT},
                 {"STOP", SIGSTOP}, {"TSTP", SIGTSTP}, {"WINCH", SIGWINCH}, {"ALRM", SIGALRM},
                 {"PIPE", SIGPIPE}, {"ABRT", SIGABRT}};
    int *number = member;
    const char *text = json_string_value(v);
    if (json_is_integer(v) && json_integer_value(v) >= 1 && json_integer_value(v) <= 64)
        *number = (int)json_integer_value(v);
    if (text && strncasecmp(text, "SIG", 3) == 0)
        text += 3;
    for (size_t i = 0; text && i < ARRAY_LEN(names); i++)
        if (strcasecmp(text, names[i].name) == 0)
            *number = names[i].number;
    if (*number)
        return 0;
    return err_set(err, ERR_BAD_REQUEST, "\"signal\" is a name such as \"INT\", or 1 to 64");
}

static void api_execs_on_signalled(struct ask *a, struct sandbox_reply *reply) {
    (void)reply;
    http_respond_empty(a->req, 204);
}

static void signal_(struct http_req *req, void *ctx) {
    static const struct json_field table[] = {
        JSON_READ("signal", struct signal_body, number, read_signal),
        JSON_BOOL("group", struct signal_body, group),
    };
    struct err err;
    struct exec *e = api_running_exec(req, ctx);
    if (!e)
        return;
    _cleanup_(json) json_t *body = NULL;
    struct signal_body s = {.group = true};
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = json_table_read(table, ARRAY_LEN(table), body, "the request", &s, &err);
    if (rc == 0 && !s.number)
        rc = read_signal(NULL, &s.number, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
    } else {
        struct ask *a = ask_new(ctx, req, api_execs_on_signalled);
        ask_wait(
            a, sandbox_box_signal(e->sandbox->box, e->command, s.number, s.group, ask_replied, a));
    }
    exec_unref(e);
}

void api_execs_routes(struct front *f) {
#define EXECS "/v1/sandboxes/{id}/execs"
    const struct http_route routes[] = {
        {"POST", "/v1/sandboxes/{id}/exec", api_execs_start, f, HTTP_ROUTE_DIRECT, 0},
        {"GET", EXECS, api_execs_list, f, FRONT_ROUTE_READ, 0},
        {"GET", EXECS "/{exec}", api_execs_get, f, FRONT_ROUTE_READ, 0},
        {"POST", EXECS "/{exec}/stdin", stdin_, f, HTTP_ROUTE_STREAM | FRONT_ROUTE_LATE,
         (size_t)f->config->sandboxes.upload_mb << 20},
        {"POST", EXECS "/{exec}/signal", signal_, f, FRONT_ROUTE_LATE, 0},
    };
    http_server_routes(f->http, routes, ARRAY_LEN(routes));
}
