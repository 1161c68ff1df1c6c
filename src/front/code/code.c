#include "front/code/code.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"
#include "base/utf8.h"
#include "front/code/door.h"
#include "front/sandbox/exec.h"
#include "wire/coder.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_STEPS = 5,
    MAX_STEPS_MAX = 200,
    TIMEOUT_MS = 300000,
    TITLE_BYTES = 80,
    SPEC_BYTES = 256 << 10,
    DIFF_BYTES = 4 << 20,
    SPARE_S = 60, /* of the sandbox's life, beyond the agent's time */
    COLLECT_S = 30,
    CHUNK = 1024,
    EVENTS_PER_TURN = 64, /* each is written to the store */
    CHUNKS_PER_TURN = 256,
    CANCEL_MS = 5000,
};

#define WORK_DIR   "/work"
#define CODER_PATH "/opt/cay/cay-coder"
#define SPEC_PATH  "/home/cay/.cay/spec.txt"
#define MODEL_URL  "http://127.0.0.1:3128"

enum code_state {
    CODE_MAKING,     /* the sandbox is being made */
    CODE_PREPARING,  /* what is there before is remembered */
    CODE_WORKING,    /* the agent runs */
    CODE_COLLECTING, /* what it changed is read */
    CODE_ENDING,     /* the sandbox ends */
};

static const struct sm_state states[] = {
    [CODE_MAKING] = {"making", SM_TO(CODE_PREPARING) | SM_TO(CODE_ENDING)},
    [CODE_PREPARING] = {"preparing", SM_TO(CODE_WORKING) | SM_TO(CODE_ENDING)},
    [CODE_WORKING] = {"working", SM_TO(CODE_COLLECTING) | SM_TO(CODE_ENDING)},
    [CODE_COLLECTING] = {"collecting", SM_TO(CODE_ENDING)},
    [CODE_ENDING] = {"ending", 0},
};
static const struct sm code_sm = {"code", states, ARRAY_LEN(states)};

struct code {
    struct code *next;
    struct codes *all;
    enum code_state state;
    struct job *job;
    json_t *body;
    const struct model_info *model;
    int64_t max_steps;
    int64_t timeout_ms;
    bool keep;
    char sandbox_id[ID_SIZE]; /* "": there is none */
    uv_timer_t timer;         /* for one that was asked to end */
    struct exec *exec;        /* the one that runs: before, the agent, after */
    struct exec_follower follower;
    uint64_t offset;
    struct later more; /* there is more to read than one turn takes */
    size_t told;       /* events of this turn */
    struct coder_reader *reader;
    json_t *last; /* the agent's last event */
    struct buf diff;
    struct err err; /* why it ended early; code 0: it did not */
    bool cancelled;
};

struct codes {
    struct codes_options opt;
    struct code *list;
    struct later_queue later;
};

static void on_change(void *ctx);
static void finish(struct code *c);
static struct sandbox *sandbox_of(const struct code *c);

static void code_move(struct code *c, enum code_state to) {
    c->state = (enum code_state)sm_next(&code_sm, c->state, to);
}

struct codes *codes_create(const struct codes_options *options) {
    struct codes *all = xcalloc(1, sizeof(*all));
    all->opt = *options;
    later_queue_init(&all->later, options->loop);
    return all;
}

static void on_later_closed(uv_handle_t *h) {
    free(h->data);
}

void codes_destroy(struct codes *all) {
    later_queue_close(&all->later, on_later_closed, all);
}

/* --- the model's route --- */

/* "https://host:port" without what follows; *ret_path is the rest. */
static void add_authority(json_t *list, const char *url) {
    bool tls = false;
    _cleanup_(free) char *host = NULL;
    uint32_t port = 0;
    const char *path = NULL;
    if (!url || egress_url_parse(url, &tls, &host, &port, &path, NULL) < 0)
        return;
    bool v6 = strchr(host, ':') != NULL;
    (void)json_array_append_new(
        list, json_sprintf("%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "", (unsigned)port));
}

json_t *codes_private(const struct secrets *secrets, const struct door *door) {
    json_t *list = json_array();
    if (door)
        (void)json_array_append_new(list, json_string(door_authority(door)));
    add_authority(list, secrets->values[SECRET_ANTHROPIC_BASE_URL]);
    add_authority(list, secrets->values[SECRET_OPENAI_BASE_URL]);
    return list;
}

static void add_header(struct egress_route *r, const char *name, const char *before,
                       const char *value) {
    if (value)
        r->headers[r->nheaders++] = (struct egress_header){
            .name = xstrdup(name), .value = xasprintf("%s%s", before, value)};
}

/* A base URL as the guest's own paths ("/v1/messages") are put behind it. */
static char *route_url(const char *base, const char *usual) {
    const char *from = base ? base : usual;
    size_t n = strlen(from);
    while (n > 0 && from[n - 1] == '/')
        n--;
    if (n >= 3 && strncmp(from + n - 3, "/v1", 3) == 0)
        n -= 3;
    return xstrndup(from, n);
}

static int make_route(const struct codes *all, const struct model_info *model,
                      struct egress_route *ret, struct err *err) {
    char *const *v = all->opt.secrets->values;
    struct egress_route r = {.name = xstrdup("model"), .api = EGRESS_API_ANTHROPIC};
    sandbox_strv_add(&r.models, model->id);
    if (model->provider == MODEL_DEMO && all->opt.door) {
        r.url = xstrdup(door_url(all->opt.door));
        add_header(&r, "x-api-key", "", door_token(all->opt.door));
    } else if (model->provider == MODEL_ANTHROPIC) {
        r.url = route_url(v[SECRET_ANTHROPIC_BASE_URL], "https://api.anthropic.com");
        add_header(&r, "x-api-key", "", v[SECRET_ANTHROPIC_API_KEY]);
        add_header(&r, "authorization", "Bearer ", v[SECRET_ANTHROPIC_AUTH_TOKEN]);
    } else if (model->provider == MODEL_OPENAI) {
        r.api = EGRESS_API_OPENAI;
        r.url = route_url(v[SECRET_OPENAI_BASE_URL], "https://api.openai.com");
        add_header(&r, "authorization", "Bearer ", v[SECRET_OPENAI_API_KEY]);
        add_header(&r, "openai-organization", "", v[SECRET_OPENAI_ORG_ID]);
        add_header(&r, "openai-project", "", v[SECRET_OPENAI_PROJECT_ID]);
    } else {
        egress_route_finish(&r);
        return err_set(err, ERR_UNSUPPORTED, "the demo model is not served here");
    }
    *ret = r;
    return 0;
}

/* --- the request --- */

static int read_body(struct code *c, struct err *err) {
    static const char *const keys[] = {"spec",      "files",      "command", "agent", "model",
                                       "max_steps", "timeout_ms", "network", "keep",  NULL};
    const char *spec = NULL;
    const char *agent = "coder";
    const char *model = NULL;
    const char *command = NULL;
    c->max_steps = MAX_STEPS;
    c->timeout_ms = TIMEOUT_MS;
    int rc = json_check_keys(c->body, "the request", keys, err);
    if (rc == 0)
        rc = json_get_str(c->body, "spec", &spec, err);
    if (rc == 0)
        rc = json_get_str(c->body, "agent", &agent, err);
    if (rc == 0)
        rc = json_get_str(c->body, "model", &model, err);
    if (rc == 0)
        rc = json_get_str(c->body, "command", &command, err);
    if (rc == 0)
        rc = json_get_bool(c->body, "keep", &c->keep, err);
    if (rc == 0)
        rc = json_get_int(c->body, "max_steps", 1, MAX_STEPS_MAX, &c->max_steps, err);
    if (rc == 0)
        rc = json_get_int(c->body, "timeout_ms", 1000, 86400000, &c->timeout_ms, err);
    if (rc == 0 && (!spec || !*spec) && !command)
        rc = err_set(err, ERR_BAD_REQUEST, "say in \"spec\" what is to be done");
    if (rc == 0 && spec && strlen(spec) > SPEC_BYTES)
        rc = err_set(err, ERR_TOO_LARGE, "\"spec\" exceeds %d bytes: put it into a file",
                     SPEC_BYTES);
    if (rc == 0 && strcmp(agent, "coder") != 0)
        rc =
            err_set(err, ERR_BAD_REQUEST, "there is no agent \"%.60s\"; there is \"coder\"", agent);
    if (rc == 0 && !command && c->all->opt.coder_fd < 0)
        rc = err_set(err, ERR_UNSUPPORTED, "the program cay-coder is missing beside cay");
    if (rc == 0)
        rc = models_find(c->all->opt.models, model, &c->model, err);
    return rc;
}

/* The body of the sandbox: the files lie in the work folder, the spec beside it. */
static json_t *sandbox_body(const struct code *c) {
    json_t *files = json_array();
    const json_t *given = json_object_get(c->body, "files");
    size_t i;
    json_t *f;
    json_array_foreach(given, i, f) {
        json_t *copy = json_copy(f);
        const char *path = json_string_value(json_object_get(f, "path"));
        if (path && *path != '/')
            (void)json_object_set_new(copy, "path", json_sprintf(WORK_DIR "/%s", path));
        (void)json_array_append_new(files, copy);
    }
    const char *spec = json_string_value(json_object_get(c->body, "spec"));
    (void)json_array_append_new(
        files, json_pack("{s:s,s:s}", "path", SPEC_PATH, "content", spec ? spec : ""));
    json_t *network = json_object_get(c->body, "network");
    return json_pack("{s:s,s:o,s:O*,s:I,s:{s:s}}", "name", "coder", "files", files, "network",
                     network, "timeout_s", (json_int_t)c->timeout_ms / 1000 + SPARE_S, "metadata",
                     "run", job_id(c->job));
}

/* --- commands inside --- */

static int start_exec(struct code *c, json_t *body, struct err *err) {
    _cleanup_(json) json_t *j = body;
    struct sandbox *s = sandbox_of(c);
    c->offset = 0;
    if (!s)
        return err_set(err, ERR_UNAVAILABLE, "the sandbox has ended");
    int rc = exec_start(s, j, &c->exec, err);
    if (rc < 0)
        return rc;
    c->follower = (struct exec_follower){.on_change = on_change, .ctx = c};
    exec_follow(c->exec, &c->follower);
    return 0;
}

static void drop_exec(struct code *c) {
    if (!c->exec)
        return;
    later_cancel(&c->more);
    exec_unfollow(c->exec, &c->follower);
    exec_unref(c->exec);
    c->exec = NULL;
}

/* What is there before the agent begins, so that what it changed can be told. The repository lies
 * outside the work folder. */
#define GIT                                                                                        \
    "export GIT_DIR=/home/cay/.cay/base GIT_WORK_TREE=" WORK_DIR " GIT_CONFIG_NOSYSTEM=1 "         \
    "GIT_CONFIG_GLOBAL=/dev/null; g() { git -c core.hooksPath=/dev/null -c core.autocrlf=false "   \
    "-c core.attributesFile=/dev/null -c user.name=cay -c user.email=cay@localhost \"$@\"; }; "

static int begin_preparing(struct code *c, struct err *err) {
    static const char script[] =
        GIT "command -v git >/dev/null || exit 0; g init -q && g add -Af . && "
            "g commit -q --allow-empty --no-verify -m base";
    return start_exec(
        c, json_pack("{s:s,s:s,s:i}", "command", script, "cwd", WORK_DIR, "timeout_s", COLLECT_S),
        err);
}

static bool on_coder_event(void *ctx, const struct coder_event *event) {
    struct code *c = ctx;
    c->told++;
    job_event(c->job, coder_type_name(event->type), event->text, event->len);
    if (event->type == CODER_DONE || event->type == CODER_FAILED) {
        json_decref(c->last);
        c->last = json_deep_copy(event->json);
    }
    return true;
}

static json_t *agent_argv(const struct code *c) {
    char steps[24];
    char time[24];
    (void)snprintf(steps, sizeof(steps), "%lld", (long long)c->max_steps);
    (void)snprintf(time, sizeof(time), "%lld", (long long)c->timeout_ms);
    bool openai = c->model->provider == MODEL_OPENAI;
    return json_pack(
        "[s,s,s,s,s,s,s,s,s,s,s,s,s,s,s]", CODER_PATH, "--dir", WORK_DIR, "--spec-file", SPEC_PATH,
        "--model", c->model->id, "--dialect", openai ? "openai" : "anthropic", "--base-url",
        openai ? MODEL_URL "/v1" : MODEL_URL, "--max-steps", steps, "--timeout-ms", time);
}

static int begin_work(struct code *c, struct err *err) {
    const char *command = json_string_value(json_object_get(c->body, "command"));
    c->reader = coder_reader_create(
        &(struct coder_reader_options){.lines = command ? CODER_LINES_TEXT : CODER_LINES_CAY,
                                       .agent = command ? "command" : "coder",
                                       .model = c->model->id,
                                       .dir = WORK_DIR,
                                       .max_steps = c->max_steps,
                                       .on_event = on_coder_event,
                                       .ctx = c});
    json_t *body = command ? json_pack("{s:s}", "command", command)
                           : json_pack("{s:o}", "argv", agent_argv(c));
    (void)json_object_set_new(body, "cwd", json_string(WORK_DIR));
    (void)json_object_set_new(body, "timeout_s",
                              json_integer((json_int_t)((c->timeout_ms + 999) / 1000)));
    return start_exec(c, body, err);
}

/* Renames, new and deleted files, modes and binary ones: what `git apply` takes. */
static int begin_collecting(struct code *c, struct err *err) {
    static const char script[] = GIT "command -v git >/dev/null || exit 0; g add -Af . && "
                                     "g diff --cached --binary --no-color --no-ext-diff "
                                     "--no-textconv -M HEAD";
    return start_exec(
        c, json_pack("{s:s,s:s,s:i}", "command", script, "cwd", WORK_DIR, "timeout_s", COLLECT_S),
        err);
}

/* --- from begin to end --- */

static struct sandbox *sandbox_of(const struct code *c) {
    return *c->sandbox_id ? sandboxes_find(c->all->opt.sandboxes, c->sandbox_id) : NULL;
}

static void take_output(struct code *c, const char *data, size_t len) {
    struct err err;
    if (c->state == CODE_WORKING && coder_reader_feed(c->reader, data, len, &err) < 0)
        exec_kill(c->exec, SIGKILL); /* what it says from now on is not read */
    if (c->state == CODE_COLLECTING)
        (void)buf_add(&c->diff, data, MIN(len, DIFF_BYTES - c->diff.len));
}

static void end_work(struct code *c) {
    const struct exec *e = c->exec;
    struct coder_exit how = {.exit_code = -1, .cancelled = c->cancelled, .timed_out = e->timed_out};
    if (e->has_exit && e->exit.signaled)
        how.signal = (int)e->exit.code;
    else if (e->has_exit)
        how.exit_code = (int)e->exit.code;
    coder_reader_end(c->reader, &how);
}

/* The command that ran has ended. */
static void next(struct code *c) {
    struct err err;
    int rc;
    if (c->state == CODE_WORKING)
        end_work(c);
    drop_exec(c);
    if (c->state == CODE_PREPARING && !c->cancelled) {
        code_move(c, CODE_WORKING);
        rc = begin_work(c, &err);
    } else if (c->state == CODE_WORKING) {
        code_move(c, CODE_COLLECTING);
        rc = begin_collecting(c, &err);
    } else {
        finish(c);
        return;
    }
    if (rc < 0) {
        c->err = err;
        finish(c);
    }
}

static void on_change(void *ctx) {
    struct code *c = ctx;
    struct exec *e = c->exec;
    char data[CHUNK];
    ssize_t n = 0;
    c->told = 0;
    /* An agent that says much must not make the others wait. */
    for (int i = 0; i < CHUNKS_PER_TURN && c->told < EVENTS_PER_TURN; i++) {
        n = exec_read(e, EXEC_STDOUT, c->offset, data, sizeof(data));
        if (n <= 0)
            break;
        c->offset += (uint64_t)n;
        take_output(c, data, (size_t)n);
    }
    if (n > 0)
        later_post(&c->all->later, &c->more, on_change, c);
    else if (e->ended)
        next(c);
}

static json_t *make_detail(const struct code *c) {
    const char *diff = c->diff.data ? c->diff.data : "";
    size_t n = utf8_is_valid(diff, c->diff.len) ? c->diff.len : 0;
    json_t *d =
        json_pack("{s:O,s:s,s:s,s:I}", "spec", json_object_get(c->body, "spec"), "model",
                  c->model->id, "sandbox", c->sandbox_id, "max_steps", (json_int_t)c->max_steps);
    if (!d)
        d = json_object();
    if (c->last)
        (void)json_object_set(d, "result", c->last);
    (void)json_object_set_new(d, "diff", json_stringn(diff, n));
    (void)json_object_set_new(d, "diff_is_whole",
                              json_boolean(c->diff.len < DIFF_BYTES && n == c->diff.len));
    (void)json_object_set_new(d, "kept", json_boolean(c->keep && sandbox_of(c)));
    return d;
}

static void record_end(struct code *c) {
    const char *type = json_string_value(json_object_get(c->last, "type"));
    const char *reason = json_string_value(json_object_get(c->last, "reason"));
    const char *message = json_string_value(json_object_get(c->last, "message"));
    bool done = type && strcmp(type, "done") == 0;
    _cleanup_(json) json_t *detail = make_detail(c);
    _cleanup_(free) char *text = json_dumps(detail, JSON_COMPACT);
    struct store_run_end end = {.status = c->cancelled           ? "cancelled"
                                          : done && !c->err.code ? "done"
                                                                 : "failed",
                                .detail = text,
                                .detail_len = text ? strlen(text) : 0};
    if (c->err.code) {
        end.error_code = err_name(c->err.code);
        end.error_message = c->err.message;
    } else if (!done && !c->cancelled) {
        end.error_code = reason ? reason : "error";
        end.error_message = message ? message : "the agent did not finish";
    }
    job_end(steal_ptr(&c->job), &end);
}

static void on_timer_closed(uv_handle_t *h) {
    struct code *c = h->data;
    coder_reader_destroy(c->reader);
    json_decref(c->last);
    json_decref(c->body);
    buf_finish(&c->diff);
    free(c);
}

static void end_job(void *ctx) {
    struct code *c = ctx;
    struct code **at = &c->all->list;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    record_end(c);
    uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}

/* The sandbox ends, unless it is to be kept; the job when it has. */
static void finish(struct code *c) {
    if (c->state == CODE_ENDING)
        return;
    bool making = c->state == CODE_MAKING;
    code_move(c, CODE_ENDING);
    drop_exec(c);
    (void)uv_timer_stop(&c->timer);
    struct sandbox *s = sandbox_of(c);
    if (s && making)
        sandbox_drop_maker(s); /* it ends, and on_made() is not called */
    if (s && !making && (!c->keep || c->cancelled))
        (void)sandbox_end(s, end_job, c);
    else
        end_job(c);
}

static void on_late(uv_timer_t *t) {
    finish(t->data);
}

static void on_cancel(void *ctx) {
    struct code *c = ctx;
    bool again = c->cancelled;
    c->cancelled = true;
    if (c->state == CODE_WORKING && !again) {
        /* It may end in order, and say what it was about. */
        exec_kill(c->exec, SIGTERM);
        (void)uv_timer_start(&c->timer, on_late, CANCEL_MS, 0);
    } else {
        finish(c);
    }
}

static void on_made(void *ctx, struct sandbox *s, const struct err *err) {
    struct code *c = ctx;
    struct err why;
    if (err) {
        c->err = *err;
        *c->sandbox_id = 0;
        finish(c);
        return;
    }
    _cleanup_(json) json_t *told = json_pack("{s:s}", "id", s->id);
    _cleanup_(free) char *text = json_dumps(told, JSON_COMPACT);
    job_event(c->job, "sandbox", text, strlen(text));
    code_move(c, CODE_PREPARING);
    if (begin_preparing(c, &why) < 0) {
        c->err = why;
        finish(c);
    }
}

static int make_sandbox(struct code *c, const struct code_ask *ask, struct err *err) {
    struct egress_route route = {0};
    int rc = make_route(c->all, c->model, &route, err);
    if (rc < 0)
        return rc;
    struct sandbox_extra extra = {
        .bind_fd = c->all->opt.coder_fd, .bind_path = CODER_PATH, .route = &route};
    _cleanup_(json) json_t *body = sandbox_body(c);
    const struct sandbox *s = sandboxes_make(c->all->opt.sandboxes,
                                             &(struct sandbox_ask){.owner = ask->owner,
                                                                   .scope = ask->scope,
                                                                   .grants = ask->grants,
                                                                   .body = body,
                                                                   .extra = &extra},
                                             on_made, c, err);
    egress_route_finish(&route);
    if (!s)
        return -(int)err->code;
    memcpy(c->sandbox_id, s->id, sizeof(c->sandbox_id));
    return 0;
}

static char *title_of(const struct code *c) {
    const char *spec = json_string_value(json_object_get(c->body, "spec"));
    const char *command = json_string_value(json_object_get(c->body, "command"));
    const char *from = spec && *spec ? spec : command ? command : "";
    return xstrndup(from, utf8_floor(from, strcspn(from, "\r\n"), TITLE_BYTES));
}

int code_start(struct codes *all, const struct code_ask *ask, char ret_id[ID_SIZE],
               struct err *err) {
    struct code *c = xcalloc(1, sizeof(*c));
    c->all = all;
    c->body = json_deep_copy(ask->body);
    buf_init(&c->diff, DIFF_BYTES + 1);
    (void)uv_timer_init(all->opt.loop, &c->timer);
    c->timer.data = c;
    int rc = read_body(c, err);
    if (rc == 0) {
        _cleanup_(free) char *title = title_of(c);
        rc = job_begin(all->opt.jobs,
                       &(struct job_spec){.kind = "code",
                                          .owner = ask->owner,
                                          .title = title,
                                          .stores_events = true,
                                          .cancel = on_cancel,
                                          .ctx = c},
                       &c->job, err);
    }
    if (rc < 0) {
        uv_close((uv_handle_t *)&c->timer, on_timer_closed);
        return rc;
    }
    memcpy(ret_id, job_id(c->job), ID_SIZE);
    c->next = all->list;
    all->list = c;
    if (make_sandbox(c, ask, &c->err) < 0) {
        rc = -(int)c->err.code;
        *err = c->err;
        code_move(c, CODE_ENDING);
        end_job(c);
    }
    return rc;
}

void codes_close(struct codes *all) {
    struct code *following;
    for (struct code *c = all->list; c; c = following) {
        following = c->next;
        c->cancelled = true;
        finish(c);
    }
}
