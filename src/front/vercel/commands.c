#include "front/vercel/commands.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json_table.h"
#include "base/mem.h"
#include "front/http/follower.h"
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

/* asUser() of the SDK runs "sudo -u NAME ...". */
static bool is_sudo(const char *command) {
    return strcmp(command, "sudo") == 0 || strcmp(command, "/usr/bin/sudo") == 0;
}

size_t vercel_command_first_word(const json_t *argv) {
    const char *script = json_string_value(json_array_get(argv, 2));
    return script && strcmp(script, no_sudo) == 0 ? SUDO_AT : 0;
}

/* --- answers that follow a command --- */

enum follow { FOLLOW_RUN, FOLLOW_LOGS, FOLLOW_WAIT };

/* Lines as the SDK reads them: to the letter. */
struct logs {
    struct logs *next;
    struct vercel *v;
    struct http_follower out;
    struct exec_follower follower;
    struct exec *exec;
    struct exec_cursor cursor;
    enum follow what;
    bool begun;  /* what comes before the output was sent */
    bool output; /* what it writes is wanted */
    int64_t sent_ms;
};

/* Takes the line, which lacks its end. */
static void vercel_commands_send_buf(struct logs *l, struct buf *line) {
    (void)buf_add_char(line, '\n');
    l->sent_ms = clock_mono_ms();
    (void)http_follower_write(&l->out, line->data, line->len);
    buf_finish(line);
}

static void send_line(struct logs *l, const json_t *j) {
    struct buf b;
    buf_init(&b, LINE_BYTES);
    (void)json_dump(j, &b);
    vercel_commands_send_buf(l, &b);
}

static void send_command(struct logs *l) {
    _cleanup_(json) json_t *j = json_pack("{s:o}", "command", vercel_show_command(l->exec));
    send_line(l, j);
}

static void vercel_commands_send_chunk(struct logs *l, const struct exec_chunk *c) {
    struct buf b;
    struct json_writer w;
    buf_init(&b, c->len * 6 + 256);
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    json_put_str(&w, "stream", c->stream == EXEC_STDOUT ? "stdout" : "stderr");
    json_put_text(&w, "data", c->data, c->len);
    json_writer_object_end(&w);
    vercel_commands_send_buf(l, &b);
}

/* What a command that never ran, or whose end nobody saw, has to say. */
static void send_trouble(struct logs *l) {
    _cleanup_(json) json_t *shown = exec_show(l->exec);
    const json_t *error = json_object_get(shown, "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    if (l->exec->state == EXEC_FAILED) {
        _cleanup_(json) json_t *j =
            json_pack("{s:s,s:o}", "stream", "stderr", "data",
                      json_sprintf("%s\n", message ? message : "it could not be started"));
        send_line(l, j);
    } else if (l->exec->state == EXEC_INTERRUPTED) {
        _cleanup_(json) json_t *j =
            json_pack("{s:s,s:{s:s,s:s}}", "stream", "error", "data", "code", "sandbox_stopped",
                      "message", "the sandbox ended before the command did");
        send_line(l, j);
    }
}

static void free_logs(void *ctx) {
    struct logs *l = ctx;
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

static enum http_next vercel_commands_next(void *ctx) {
    struct logs *l = ctx;
    struct exec_chunk chunk;
    if (!l->begun) {
        l->begun = true;
        if (l->what == FOLLOW_RUN)
            send_command(l);
    } else if (l->output && exec_next(l->exec, &l->cursor, &chunk)) {
        vercel_commands_send_chunk(l, &chunk);
    } else {
        return exec_has_ended(l->exec) ? HTTP_NEXT_END : HTTP_NEXT_WAIT;
    }
    return HTTP_NEXT_MORE;
}

static void vercel_commands_end(void *ctx) {
    struct logs *l = ctx;
    if (l->what != FOLLOW_WAIT && l->output)
        send_trouble(l);
    if (l->what != FOLLOW_LOGS)
        send_command(l);
}

/* An empty line means nothing to the SDK, nor does a line before a JSON text. */
static void vercel_commands_on_timer(uv_timer_t *timer) {
    const struct vercel *v = timer->data;
    int64_t now = clock_mono_ms();
    for (struct logs *l = v->logs; l; l = l->next)
        if (!l->out.full && now - l->sent_ms >= PULSE_MS) {
            l->sent_ms = now;
            (void)http_follower_write(&l->out, "\n", 1);
        }
}

/* Takes the reference. The head goes out at once: a client waits 300 s for one. */
static void vercel_commands_follow(struct vercel *v, struct http_req *req, struct exec *e,
                                   enum follow what, bool output) {
    static const struct http_follower_type type = {
        .next = vercel_commands_next, .end = vercel_commands_end, .free = free_logs};
    struct logs *l = xcalloc(1, sizeof(*l));
    *l = (struct logs){.next = v->logs,
                       .v = v,
                       .follower = {.on_change = http_follower_more, .ctx = &l->out},
                       .exec = e,
                       .what = what,
                       .output = output,
                       .sent_ms = clock_mono_ms()};
    if (!v->logs)
        (void)uv_timer_start(&v->timer, vercel_commands_on_timer, PULSE_MS / 4, PULSE_MS / 4);
    v->logs = l;
    exec_follow(e, &l->follower);
    http_follower_init(&l->out, req, &type, l);
    http_res_header(req, "Cache-Control", "no-store");
    http_follower_begin(&l->out, what == FOLLOW_WAIT ? "application/json" : "application/x-ndjson");
    http_follower_more(&l->out);
}

/* --- starting --- */

/* A path of the guest, from the folder that the SDK takes for the current one. */
static char *from_cwd(const char *path) {
    return !path || !*path ? xstrdup(VERCEL_CWD)
           : *path == '/'  ? xstrdup(path)
                           : xasprintf(VERCEL_CWD "/%s", path);
}

struct wish {
    const char *command, *cwd;
    const json_t *args;
    bool sudo, wait, logs;
    int64_t timeout_ms, signo;
    struct exec_request request;
};

static int read_wish(struct http_req *req, struct wish *w, json_t **ret_body, struct err *err) {
    static const struct json_field table[] = {
        JSON_BOOL("sudo", struct wish, sudo),
        JSON_TEXT("command", struct wish, command),
        JSON_LIST("args", struct wish, args),
        JSON_TEXT("cwd", struct wish, cwd),
        JSON_READ("env", struct wish, request.env, sandbox_env_read, "object"),
        JSON_BOOL("wait", struct wish, wait),
        JSON_BOOL("logs", struct wish, logs),
        JSON_INT("timeout", struct wish, timeout_ms, 1, (int64_t)1000 * 31536000),
    };
    JSON_SHAPE("POST /api/v2/sandboxes/sessions/{id}/cmd", table);
    static const char *const words[SUDO_AT + 1] = {"sh", "-c", no_sudo, "sudo"};
    struct sandbox_strv *argv = &w->request.argv;
    int rc = vercel_body(req, table, ARRAY_LEN(table), ret_body, w, err);
    if (rc == 0 && (!w->command || !*w->command))
        rc = err_set(err, ERR_BAD_REQUEST, "\"command\" is needed");
    if (rc < 0)
        return rc;
    for (size_t i = 0; (w->sudo || is_sudo(w->command)) && i < ARRAY_LEN(words); i++)
        sandbox_strv_add(argv, words[i]);
    if (!is_sudo(w->command))
        sandbox_strv_add(argv, w->command);
    return exec_request_add_args(&w->request, w->args, err);
}

static void respond_command(struct http_req *req, struct exec *e) {
    vercel_respond(req, json_pack("{s:o}", "command", vercel_show_command(e)));
}

static void vercel_commands_run(struct http_req *req, void *ctx) {
    struct vercel *v = ctx;
    struct err err;
    struct wish w = {0};
    struct exec *e = NULL;
    _cleanup_(json) json_t *body = NULL;
    struct sandbox *s = vercel_session(req, v);
    if (!s)
        return;
    int rc = read_wish(req, &w, &body, &err);
    _cleanup_(free) char *cwd = from_cwd(w.cwd);
    w.request.cwd = cwd;
    if (rc == 0)
        rc = exec_start(s, &w.request, &e, &err);
    exec_request_finish(&w.request);
    if (rc < 0) {
        api_fail(req, &err);
        return;
    }
    exec_prune(s);
    if (w.timeout_ms)
        exec_limit(e, w.timeout_ms);
    if (w.wait) {
        vercel_commands_follow(v, req, e, FOLLOW_RUN, w.logs);
        return;
    }
    respond_command(req, e);
    exec_unref(e);
}

/* --- those that are there, also of sessions that have ended --- */

static struct exec *vercel_commands_find(struct http_req *req, struct vercel *v) {
    struct err err;
    struct exec *e = NULL;
    if (exec_open(v->front->sandboxes, http_req_param(req, "id"), http_req_param(req, "cmd"),
                  (struct store_scope){.owner = vercel_owner(req)}, &e, &err) < 0)
        http_respond_err(req, &err);
    return e;
}

static void vercel_commands_get(struct http_req *req, void *ctx) {
    struct exec *e = vercel_commands_find(req, ctx);
    if (!e)
        return;
    if (api_flag(req, "wait")) {
        vercel_commands_follow(ctx, req, e, FOLLOW_WAIT, false);
        return;
    }
    respond_command(req, e);
    exec_unref(e);
}

static void vercel_commands_logs(struct http_req *req, void *ctx) {
    struct exec *e = vercel_commands_find(req, ctx);
    if (e)
        vercel_commands_follow(ctx, req, e, FOLLOW_LOGS, true);
}

static void kill_(struct http_req *req, void *ctx) {
    static const struct json_field table[] = {JSON_INT("signal", struct wish, signo, 1, 64)};
    JSON_SHAPE("POST /api/v2/sandboxes/sessions/{id}/cmd/{cmd}/kill", table);
    struct wish w = {.signo = SIGTERM};
    struct err err;
    _cleanup_(json) json_t *body = NULL;
    struct exec *e = vercel_commands_find(req, ctx);
    if (!e)
        return;
    if (vercel_body(req, table, ARRAY_LEN(table), &body, &w, &err) < 0) {
        http_respond_err(req, &err);
    } else {
        exec_kill(e, (int)w.signo); /* one that has ended has ended */
        respond_command(req, e);
    }
    exec_unref(e);
}

/* A terminal, as this server has them: the SDK hands url and token to the program. */
static void vercel_commands_interactive(struct http_req *req, void *ctx) {
    struct vercel *v = ctx;
    struct err err;
    struct exec *e = NULL;
    struct sandbox *s = vercel_session(req, v);
    if (!s)
        return;
    struct exec_request r = {.cwd = VERCEL_CWD, .tty = true};
    sandbox_strv_add(&r.argv, "bash");
    sandbox_strv_add(&r.argv, "-l");
    int rc = exec_start(s, &r, &e, &err);
    exec_request_finish(&r);
    if (rc < 0) {
        api_fail(req, &err);
        return;
    }
    const char *auth = http_req_header(req, "authorization");
    const char *token = auth ? strrchr(auth, ' ') : NULL;
    _cleanup_(free) char *url =
        xasprintf("ws://%s/v1/sandboxes/%s/execs/%s/tty", http_req_authority(req), s->id, e->id);
    vercel_respond(req, json_pack("{s:s,s:s}", "url", url, "token", token ? token + 1 : ""));
    exec_unref(e);
}

void vercel_command_routes(struct vercel *v) {
#define ROUTES(base)                                                                               \
    vercel_route(v, "POST", base "/cmd", vercel_commands_run, 0, 0);                               \
    vercel_route(v, "GET", base "/cmd/{cmd}", vercel_commands_get, FRONT_ROUTE_READ, 0);           \
    vercel_route(v, "GET", base "/cmd/{cmd}/logs", vercel_commands_logs,                           \
                 FRONT_ROUTE_READ | HTTP_ROUTE_WATCH, 0);                                          \
    vercel_route(v, "POST", base "/interactive", vercel_commands_interactive, 0, 0)
    ROUTES("/api/v2/sandboxes/sessions/{id}");
    ROUTES("/api/v1/sandboxes/{id}");
    vercel_route(v, "POST", "/api/v2/sandboxes/sessions/{id}/cmd/{cmd}/kill", kill_,
                 FRONT_ROUTE_LATE, 0);
    vercel_route(v, "POST", "/api/v1/sandboxes/{id}/{cmd}/kill", kill_, FRONT_ROUTE_LATE, 0);
}
