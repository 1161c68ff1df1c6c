#include "front/vercel/commands.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "front/vercel/internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PULSE_MS = 5000, /* clients give up on a body that is silent for 300 s */
    LINE_BYTES = 4 << 20,
};

/* There is no root to become. It is a command like any other, so that its end and what it says are
 * found where the SDK looks for them. */
static const char no_sudo[] =
    "echo 'sudo: there is no root in a sandbox of cay: commands run as " VERCEL_USER
    ", and users and groups cannot be added' >&2; exit 1";
enum { SUDO_AT = 3 }; /* sh -c SCRIPT sudo ... */

size_t command_first_word(const json_t *argv) {
    const char *script = json_string_value(json_array_get(argv, 2));
    return script && strcmp(script, no_sudo) == 0 ? SUDO_AT : 0;
}

/* --- answers that follow a command --- */

enum follow { FOLLOW_RUN, FOLLOW_LOGS, FOLLOW_WAIT };

/* Lines as the SDK reads them: to the letter. */
struct logs {
    struct logs *next;
    struct vercel *v;
    struct exec_follower follower;
    struct exec *exec;
    struct http_req *req;
    struct exec_cursor cursor;
    enum follow what;
    bool output; /* what it writes is wanted */
    bool full;   /* wait for on_drain */
    int64_t sent_ms;
};

static bool send_line(struct logs *l, const json_t *j) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, LINE_BYTES);
    (void)json_dump(j, &b);
    (void)buf_add_char(&b, '\n');
    l->sent_ms = clock_mono_ms();
    return http_stream_write(l->req, b.data, b.len);
}

static bool send_command(struct logs *l) {
    _cleanup_(json) json_t *j = json_pack("{s:o}", "command", show_command(l->exec));
    return send_line(l, j);
}

static bool send_chunk(struct logs *l, const struct exec_chunk *c) {
    _cleanup_(buf) struct buf b;
    struct json_writer w;
    buf_init(&b, c->len * 6 + 256);
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    json_writer_key(&w, "stream");
    json_writer_str(&w, c->stream == EXEC_STDOUT ? "stdout" : "stderr");
    json_writer_key(&w, "data");
    json_writer_text(&w, c->data, c->len);
    json_writer_object_end(&w);
    (void)buf_add_char(&b, '\n');
    l->sent_ms = clock_mono_ms();
    return http_stream_write(l->req, b.data, b.len);
}

/* What a command that never ran, or whose end nobody saw, has to say. */
static void send_trouble(struct logs *l) {
    _cleanup_(json) json_t *shown = exec_show(l->exec);
    const char *status = json_string_value(json_object_get(shown, "status"));
    const json_t *error = json_object_get(shown, "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    if (strcmp(status, "failed") == 0) {
        _cleanup_(json) json_t *j =
            json_pack("{s:s,s:o}", "stream", "stderr", "data",
                      json_sprintf("%s\n", message ? message : "it could not be started"));
        (void)send_line(l, j);
    } else if (strcmp(status, "interrupted") == 0) {
        _cleanup_(json) json_t *j =
            json_pack("{s:s,s:{s:s,s:s}}", "stream", "error", "data", "code", "sandbox_stopped",
                      "message", "the sandbox ended before the command did");
        (void)send_line(l, j);
    }
}

static void free_logs(struct logs *l) {
    struct logs **at = &l->v->logs;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    if (!l->v->logs)
        (void)uv_timer_stop(&l->v->timer);
    exec_unfollow(l->exec, &l->follower);
    exec_unref(l->exec);
    free(l);
}

static void finish(struct logs *l) {
    struct http_req *req = l->req;
    http_req_on_gone(req, NULL, NULL);
    http_stream_on_drain(req, NULL, NULL);
    if (l->what != FOLLOW_WAIT && l->output)
        send_trouble(l);
    if (l->what != FOLLOW_LOGS)
        (void)send_command(l);
    http_stream_end(req);
    free_logs(l);
}

static void pump(void *ctx) {
    struct logs *l = ctx;
    struct exec_chunk chunk;
    while (l->output && !l->full && exec_next(l->exec, &l->cursor, &chunk))
        l->full = !send_chunk(l, &chunk);
    if (!l->full && exec_has_ended(l->exec))
        finish(l);
}

static void on_drain(void *ctx) {
    struct logs *l = ctx;
    l->full = false;
    pump(l);
}

static void on_gone(void *ctx) {
    struct logs *l = ctx;
    http_stream_end(l->req);
    free_logs(l);
}

static void on_timer(uv_timer_t *t) {
    logs_tick(t->data);
}

/* An empty line means nothing to the SDK, nor does a line before a JSON text. */
void logs_tick(struct vercel *v) {
    int64_t now = clock_mono_ms();
    for (struct logs *l = v->logs; l; l = l->next)
        if (!l->full && now - l->sent_ms >= PULSE_MS) {
            l->sent_ms = now;
            l->full = !http_stream_write(l->req, "\n", 1);
        }
}

/* Takes the reference. The head goes out at once: a client waits 300 s for one. */
static void follow(struct vercel *v, struct http_req *req, struct exec *e, enum follow what,
                   bool output) {
    struct logs *l = xcalloc(1, sizeof(*l));
    *l = (struct logs){.next = v->logs,
                       .v = v,
                       .follower = {.on_change = pump, .ctx = l},
                       .exec = e,
                       .req = req,
                       .what = what,
                       .output = output,
                       .sent_ms = clock_mono_ms()};
    if (!v->logs)
        (void)uv_timer_start(&v->timer, on_timer, PULSE_MS / 4, PULSE_MS / 4);
    v->logs = l;
    exec_follow(e, &l->follower);
    http_req_on_gone(req, on_gone, l);
    http_stream_on_drain(req, on_drain, l);
    http_res_header(req, "Cache-Control", "no-store");
    http_stream_begin(req, 200, what == FOLLOW_WAIT ? "application/json" : "application/x-ndjson");
    if (what == FOLLOW_RUN)
        l->full = !send_command(l);
    pump(l);
}

/* --- starting --- */

static int read_args(const json_t *body, json_t *argv, struct err *err) {
    const char *command = NULL;
    const json_t *args = json_object_get(body, "args");
    int rc = json_get_str(body, "command", &command, err);
    if (rc == 0 && (!command || !*command))
        rc = err_set(err, ERR_BAD_REQUEST, "\"command\" is needed");
    if (rc == 0 && args && !json_is_array(args))
        rc = err_set(err, ERR_BAD_REQUEST, "\"args\" must be a list of strings");
    if (rc < 0)
        return rc;
    (void)json_array_append_new(argv, json_string(command));
    (void)json_array_extend(argv, (json_t *)(uintptr_t)args);
    return 0;
}

/* A path of the guest, from the folder that the SDK takes for the current one. */
static char *from_cwd(const char *path) {
    return !path || !*path ? xstrdup(VERCEL_CWD)
           : *path == '/'  ? xstrdup(path)
                           : xasprintf(VERCEL_CWD "/%s", path);
}

struct wish {
    json_t *exec; /* the body of exec_start() */
    bool wait, logs;
    int64_t timeout_ms;
};

static int read_wish(const json_t *body, struct wish *w, struct err *err) {
    bool sudo = false;
    const char *cwd = NULL;
    json_t *env = json_object_get(body, "env");
    _cleanup_(json) json_t *argv = json_array();
    int rc = json_get_bool(body, "sudo", &sudo, err);
    if (rc == 0 && sudo)
        (void)json_array_extend(argv, json_pack("[s,s,s,s]", "sh", "-c", no_sudo, "sudo"));
    if (rc == 0)
        rc = read_args(body, argv, err);
    if (rc == 0)
        rc = json_get_str(body, "cwd", &cwd, err);
    if (rc == 0)
        rc = json_get_bool(body, "wait", &w->wait, err);
    if (rc == 0)
        rc = json_get_bool(body, "logs", &w->logs, err);
    if (rc == 0)
        rc = json_get_int(body, "timeout", 1, (int64_t)1000 * 31536000, &w->timeout_ms, err);
    if (rc < 0)
        return rc;
    _cleanup_(free) char *dir = from_cwd(cwd);
    w->exec = json_pack("{s:O,s:s,s:O*}", "argv", argv, "cwd", dir, "env",
                        json_is_null(env) ? NULL : env);
    return 0;
}

static void respond_command(struct http_req *req, struct exec *e) {
    _cleanup_(json) json_t *o = json_pack("{s:o}", "command", show_command(e));
    http_respond_json(req, 200, o);
}

static void run(struct http_req *req, void *ctx) {
    struct vercel *v = ctx;
    struct err err;
    struct wish w = {0};
    struct exec *e = NULL;
    _cleanup_(json) json_t *body = NULL;
    struct sandbox *s = vercel_session(req, v);
    if (!s)
        return;
    int rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = read_wish(body, &w, &err);
    if (rc == 0)
        rc = exec_start(s, w.exec, false, &e, &err);
    json_decref(w.exec);
    if (rc < 0) {
        api_fail(req, &err);
        return;
    }
    exec_prune(s->all, s->id);
    if (w.timeout_ms)
        exec_limit(e, w.timeout_ms);
    if (w.wait) {
        follow(v, req, e, FOLLOW_RUN, w.logs);
        return;
    }
    respond_command(req, e);
    exec_unref(e);
}

/* --- those that are there, also of sessions that have ended --- */

static struct exec *find(struct http_req *req, struct vercel *v) {
    struct err err;
    struct exec *e = NULL;
    if (exec_open(v->front->sandboxes, http_req_param(req, "id"), http_req_param(req, "cmd"),
                  (struct store_scope){.owner = vercel_owner(req)}, &e, &err) < 0)
        http_respond_err(req, &err);
    return e;
}

static void get(struct http_req *req, void *ctx) {
    struct exec *e = find(req, ctx);
    if (!e)
        return;
    if (api_flag(req, "wait")) {
        follow(ctx, req, e, FOLLOW_WAIT, false);
        return;
    }
    respond_command(req, e);
    exec_unref(e);
}

static void logs(struct http_req *req, void *ctx) {
    struct exec *e = find(req, ctx);
    if (e)
        follow(ctx, req, e, FOLLOW_LOGS, true);
}

static void kill_(struct http_req *req, void *ctx) {
    struct err err;
    int64_t signo = SIGTERM;
    _cleanup_(json) json_t *body = NULL;
    struct exec *e = find(req, ctx);
    if (!e)
        return;
    if (api_body(req, &body, &err) < 0 || json_get_int(body, "signal", 1, 64, &signo, &err) < 0) {
        http_respond_err(req, &err);
    } else {
        exec_kill(e, (int)signo); /* one that has ended has ended */
        respond_command(req, e);
    }
    exec_unref(e);
}

/* A terminal, as this server has them: the SDK hands url and token to the program. */
static void interactive(struct http_req *req, void *ctx) {
    struct vercel *v = ctx;
    struct err err;
    struct exec *e = NULL;
    struct sandbox *s = vercel_session(req, v);
    if (!s)
        return;
    _cleanup_(json) json_t *body =
        json_pack("{s:[s,s],s:s,s:b}", "argv", "bash", "-l", "cwd", VERCEL_CWD, "tty", 1);
    if (exec_start(s, body, false, &e, &err) < 0) {
        api_fail(req, &err);
        return;
    }
    const char *auth = http_req_header(req, "authorization");
    const char *token = auth ? strrchr(auth, ' ') : NULL;
    _cleanup_(free) char *url =
        xasprintf("ws://%s/v1/sandboxes/%s/execs/%s/tty", http_req_authority(req), s->id, e->id);
    _cleanup_(json) json_t *o = json_pack("{s:s,s:s}", "url", url, "token", token ? token + 1 : "");
    http_respond_json(req, 200, o);
    exec_unref(e);
}

void command_routes(struct vercel *v) {
#define ROUTES(base)                                                                               \
    vercel_route(v, "POST", base "/cmd", run, 0, 0);                                               \
    vercel_route(v, "GET", base "/cmd/{cmd}", get, FRONT_ROUTE_READ, 0);                           \
    vercel_route(v, "GET", base "/cmd/{cmd}/logs", logs, FRONT_ROUTE_READ | HTTP_ROUTE_WATCH, 0);  \
    vercel_route(v, "POST", base "/interactive", interactive, 0, 0)
    ROUTES("/api/v2/sandboxes/sessions/{id}");
    ROUTES("/api/v1/sandboxes/{id}");
    vercel_route(v, "POST", "/api/v2/sandboxes/sessions/{id}/cmd/{cmd}/kill", kill_, 0, 0);
    vercel_route(v, "POST", "/api/v1/sandboxes/{id}/{cmd}/kill", kill_, 0, 0);
}
