#include "front/agent/agent.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/agent/history.h"
#include "front/agent/uimessage.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    IDLE_MS = 60000,
    SWEEP_MS = 5000,
    QUEUE_MAX = 16,
    NAME_MAX_BYTES = 128,
    CHUNKS_MAX_BYTES = 32 << 20,
    CHUNK_MAX_BYTES = 8 << 20,
    TITLE_BYTES = 80,
};

static const char harness[] = "import { WorkerEntrypoint } from \"cloudflare:workers\";\n"
                              "import run from \"user-code.js\";\n"
                              "export default class extends WorkerEntrypoint {\n"
                              "  verify() {}\n"
                              "  async run() { await run(this.env); }\n"
                              "}\n";

struct ready_wait {
    struct ready_wait *next;
    void (*cb)(void *ctx);
    void *ctx;
};

struct chunk {
    size_t len;
    char data[];
};

/* One turn: from the user's message to the end of the assistant's. */
struct turn {
    struct turn *next;
    struct agent *agent;
    char *id;
    char run_id[ID_SIZE];
    const struct agent_listener *from; /* NULL when it is gone */
    json_t *user_ids;
    /* What the model reads, growing as the turn goes on. */
    json_t *conversation;
    json_t *message; /* the assistant's UIMessage */
    char message_id[64];
    struct chunk **chunks;
    size_t nchunks;
    size_t chunk_bytes;
    const struct model_info *model;
    struct model_stream *stream;
    struct model_meter meter;
    struct model_usage usage; /* of the stream that runs */
    uv_timer_t timer;
    int64_t start_ms;
    int64_t steps;
    unsigned blocks; /* numbers the text and reasoning blocks */
    json_t *calls;   /* tool calls of this step that wait */
    struct run *run;
    struct facet_op *op;
    char *code;          /* of the execution that runs */
    json_t *tool_output; /* known, but the state is told first */
    const char *outcome;
    bool running;
    bool timer_open;
    bool over;
};

struct agent {
    struct agent *next;
    struct agents *agents;
    const struct agent_def *def;
    char *owner;
    char *name;
    char *dir;
    struct history *history;
    struct agent_listener *listeners;
    struct turn *turns; /* the first runs */
    json_t *state;
    bool synced;
    struct ready_wait *ready;
    /* Reading the state: item by item. */
    bool syncing;
    bool sync_again;
    size_t sync_item;
    json_t *sync_state;
    json_t *sync_errors;
    struct facet_op *sync_op;
    void (*sync_done)(struct agent *a);
    int64_t used_ms;
};

struct agents {
    struct agents_options opt;
    struct agent *list;
    uv_timer_t timer;
};

static void start_turn(struct turn *t);
static void next_step(struct turn *t);
static void next_tool(struct turn *t);
static void end_turn(struct turn *t, const char *outcome, const char *error);

/* --- instances --- */

/* A name as a folder: letters, digits, "-", "_" and "." stay, the rest is escaped. */
static char *folder_name(const char *name) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 4 * NAME_MAX_BYTES);
    for (const char *p = name; *p; p++) {
        unsigned char c = (unsigned char)*p;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '_' || (c == '.' && p != name);
        if (plain)
            (void)buf_add_char(&b, (char)c);
        else
            (void)buf_addf(&b, "%%%02x", c);
    }
    return buf_steal(&b, NULL);
}

static char *type_dir(const struct agents *all, const char *owner, const char *type) {
    return *owner ? xasprintf("%s/keys/%s/agents/%s", all->opt.data_dir, owner, type)
                  : xasprintf("%s/agents/%s", all->opt.data_dir, type);
}

static void free_agent(struct agent *a) {
    facet_op_cancel(a->sync_op);
    while (a->ready) {
        struct ready_wait *w = a->ready;
        a->ready = w->next;
        free(w);
    }
    history_close(a->history);
    json_decref(a->state);
    json_decref(a->sync_state);
    json_decref(a->sync_errors);
    free(a->owner);
    free(a->name);
    free(a->dir);
    free(a);
}

static void on_sweep(uv_timer_t *t) {
    struct agents *all = t->data;
    int64_t now = clock_mono_ms();
    for (struct agent **at = &all->list; *at;) {
        struct agent *a = *at;
        if (a->listeners || a->turns || a->syncing || a->ready || now - a->used_ms < IDLE_MS) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        free_agent(a);
    }
}

struct agents *agents_create(const struct agents_options *options) {
    struct agents *all = xcalloc(1, sizeof(*all));
    all->opt = *options;
    (void)uv_timer_init(options->loop, &all->timer);
    all->timer.data = all;
    (void)uv_timer_start(&all->timer, on_sweep, SWEEP_MS, SWEEP_MS);
    uv_unref((uv_handle_t *)&all->timer);
    return all;
}

static void on_timer_closed(uv_handle_t *h) {
    free(h->data);
}

void agents_destroy(struct agents *all) {
    if (!all)
        return;
    while (all->list) {
        struct agent *a = all->list;
        while (a->turns)
            end_turn(a->turns, "error", "the server is shutting down");
        all->list = a->next;
        free_agent(a);
    }
    uv_close((uv_handle_t *)&all->timer, on_timer_closed);
}

const struct agent_def *agents_defs(const struct agents *a) {
    return a->opt.defs;
}

const struct agent_def *agent_def(const struct agent *a) {
    return a->def;
}

const char *agent_name(const struct agent *a) {
    return a->name;
}

/* A turn that a crash cut off: its message says so. */
static void mark_cut_turn(struct agent *a) {
    struct err err;
    _cleanup_(free) char *id = NULL;
    if (history_get(a->history, "turn", &id, &err) < 0 || !id)
        return;
    _cleanup_(json) json_t *list = NULL;
    (void)history_set(a->history, "turn", NULL, &err);
    if (history_messages(a->history, &list, &err) < 0)
        return;
    json_t *last = json_array_get(list, json_array_size(list) - 1);
    _cleanup_(json) json_t *message = NULL;
    const char *role = json_string_value(json_object_get(last, "role"));
    if (role && strcmp(role, "assistant") == 0)
        message = json_deep_copy(last);
    else
        message = uimessage_new(id);
    uimessage_add_note(message, "(This turn was cut off: the server ended while it was running.)");
    (void)json_object_set_new(message, "metadata", json_pack("{s:b}", "interrupted", 1));
    (void)history_put(a->history, message, &err);
}

static int open_agent(struct agents *all, const char *owner, const struct agent_def *def,
                      const char *name, struct agent **ret_agent, struct err *err) {
    _cleanup_(free) char *parent = type_dir(all, owner, def->type);
    _cleanup_(free) char *folder = folder_name(name);
    _cleanup_(free) char *dir = path_join(parent, folder);
    _cleanup_(free) char *file = path_join(dir, "agent.db");
    struct history *history = NULL;
    int rc = path_mkdirs(dir, 0700, err);
    if (rc == 0)
        rc = history_open(file, &history, err);
    if (rc < 0)
        return rc;
    struct agent *a = xcalloc(1, sizeof(*a));
    a->agents = all;
    a->def = def;
    a->owner = xstrdup(owner);
    a->name = xstrdup(name);
    a->dir = steal_ptr(&dir);
    a->history = history;
    a->used_ms = clock_mono_ms();
    a->next = all->list;
    all->list = a;
    mark_cut_turn(a);
    *ret_agent = a;
    return 0;
}

int agents_get(struct agents *all, const char *owner, const char *type, const char *name,
               struct agent **ret_agent, struct err *err) {
    const struct agent_def *def = agent_defs_find(all->opt.defs, type);
    if (!def)
        return err_set(err, ERR_NOT_FOUND, "there is no agent \"%.60s\"", type);
    size_t n = strlen(name);
    if (n == 0 || n > NAME_MAX_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "an agent's name has 1 to %d bytes", NAME_MAX_BYTES);
    for (struct agent *a = all->list; a; a = a->next)
        if (a->def == def && strcmp(a->name, name) == 0 && strcmp(a->owner, owner) == 0) {
            a->used_ms = clock_mono_ms();
            *ret_agent = a;
            return 0;
        }
    return open_agent(all, owner, def, name, ret_agent, err);
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

json_t *agents_names(struct agents *all, const char *owner, const char *type) {
    json_t *out = json_array();
    _cleanup_(free) char *dir = type_dir(all, owner, type);
    DIR *d = opendir(dir);
    const struct dirent *e;
    while (d && (e = readdir(d)) && json_array_size(out) < 1000) {
        if (e->d_name[0] == '.')
            continue;
        char name[NAME_MAX_BYTES + 1];
        size_t n = 0;
        for (const char *p = e->d_name; *p && n < NAME_MAX_BYTES; p++) {
            int hi = *p == '%' ? hex_digit(p[1]) : -1;
            int lo = hi >= 0 ? hex_digit(p[2]) : -1;
            name[n++] = lo >= 0 ? (char)(hi * 16 + lo) : *p;
            p += lo >= 0 ? 2 : 0;
        }
        name[n] = 0;
        json_t *j = json_string(name);
        if (j)
            (void)json_array_append_new(out, j);
    }
    if (d)
        (void)closedir(d);
    return out;
}

/* --- listeners --- */

void agent_listen(struct agent *a, struct agent_listener *l) {
    l->agent = a;
    l->waiting = a->turns && a->turns->running;
    l->next = a->listeners;
    a->listeners = l;
}

void agent_unlisten(struct agent_listener *l) {
    struct agent *a = l->agent;
    if (!a)
        return;
    struct agent_listener **at = &a->listeners;
    while (*at && *at != l)
        at = &(*at)->next;
    if (*at)
        *at = l->next;
    l->agent = NULL;
    for (struct turn *t = a->turns; t; t = t->next)
        if (t->from == l)
            t->from = NULL;
    a->used_ms = clock_mono_ms();
}

/* Listeners may go while they are told: their events never touch the list but by unlisten. */
#define TELL(a, except, call)                                                                      \
    do {                                                                                           \
        struct agent_listener *next_;                                                              \
        for (struct agent_listener *l = (a)->listeners; l; l = next_) {                            \
            next_ = l->next;                                                                       \
            if (l != (except))                                                                     \
                call;                                                                              \
        }                                                                                          \
    } while (0)

/* --- state --- */

const json_t *agent_state(const struct agent *a) {
    return a->state;
}

static struct facet_ref facet_ref(const struct agent *a, const struct agent_facet *f, char **dir) {
    *dir = xasprintf("%s/facets/%s", a->dir, f->name);
    return (struct facet_ref){.dir = *dir, .open = &f->open};
}

static json_t *scalar(json_t *v) {
    /* ["b", base64] and ["i", digits]: what JSON has no word for. */
    return json_is_array(v) ? json_array_get(v, 1) : v;
}

json_t *agent_rows(const char *json, size_t len) {
    _cleanup_(json) json_t *j = NULL;
    if (json_parse(json, len, "rows", &j, NULL) < 0)
        return json_array();
    const json_t *columns = json_object_get(j, "columns");
    const json_t *rows = json_object_get(j, "rows");
    if (!json_is_array(rows))
        return json_incref(j);
    json_t *out = json_array();
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        json_t *o = json_object();
        size_t k;
        const json_t *name;
        json_array_foreach(columns, k, name)(void)
            json_object_set(o, json_string_value(name), scalar(json_array_get(row, k)));
        (void)json_array_append_new(out, o);
    }
    return out;
}

static void publish_state(struct agent *a, json_t *state) {
    struct err err;
    json_decref(a->state);
    a->state = state;
    _cleanup_(free) char *text = json_dumps(state, JSON_COMPACT);
    if (history_set(a->history, "state", text, &err) < 0)
        log_error("agent.state", "error", err.message);
    TELL(a, NULL, if (l->events->on_state) l->events->on_state(l->ctx, a->state));
}

static void sync_next(struct agent *a);

static void sync_end(struct agent *a) {
    a->syncing = false;
    if (json_object_size(a->sync_errors) > 0)
        (void)json_object_set(a->sync_state, "errors", a->sync_errors);
    json_decref(a->sync_errors);
    a->sync_errors = NULL;
    json_t *state = steal_ptr(&a->sync_state);
    bool first = !a->synced;
    a->synced = true;
    publish_state(a, state);
    void (*done)(struct agent *) = a->sync_done;
    a->sync_done = NULL;
    while (first && a->ready) {
        struct ready_wait *w = a->ready;
        a->ready = w->next;
        w->cb(w->ctx);
        free(w);
    }
    if (done)
        done(a);
}

static void on_state_rows(void *ctx, bool ok, const char *json, size_t len, const struct err *err) {
    struct agent *a = ctx;
    const struct agent_state_item *item = &a->def->state[a->sync_item++];
    a->sync_op = NULL;
    if (ok) {
        (void)json_object_set_new(a->sync_state, item->key, agent_rows(json, len));
    } else {
        /* A table that the model has dropped, say: the rest of the state goes on. */
        _cleanup_(json) json_t *e = json ? json_loadb(json, len, 0, NULL) : NULL;
        const char *message = json_string_value(json_object_get(e, "message"));
        (void)json_object_set_new(a->sync_state, item->key, json_array());
        (void)json_object_set_new(a->sync_errors, item->key,
                                  json_string(message ? message
                                              : err   ? err->message
                                                      : "failed"));
    }
    sync_next(a);
}

static void sync_next(struct agent *a) {
    struct err err;
    while (a->sync_item < a->def->nstate) {
        const struct agent_state_item *item = &a->def->state[a->sync_item];
        if (item->kind == AGENT_STATE_FACET) {
            _cleanup_(free) char *dir = NULL;
            struct facet_ref ref = facet_ref(a, item->facet, &dir);
            size_t at = a->sync_item;
            struct facet_op *op = facets_call(a->agents->opt.runner->facets, &ref, item->method,
                                              "[]", on_state_rows, a);
            if (a->syncing && a->sync_item == at)
                a->sync_op = op;
            return;
        }
        json_t *v = NULL;
        if (item->kind == AGENT_STATE_VALUE)
            v = json_incref(item->value);
        else if (history_executions(a->history, item->limit, &v, &err) < 0)
            v = json_array();
        (void)json_object_set_new(a->sync_state, item->key, v);
        a->sync_item++;
    }
    sync_end(a);
}

/* Reads the state afresh; done is called when it has been told to everybody. */
static void sync_state(struct agent *a, void (*done)(struct agent *a)) {
    if (done)
        a->sync_done = done;
    if (a->syncing)
        return;
    a->syncing = true;
    a->sync_item = 0;
    a->sync_state = json_object();
    a->sync_errors = json_object();
    sync_next(a);
}

void agent_when_ready(struct agent *a, void (*cb)(void *ctx), void *ctx) {
    if (a->synced || a->def->nstate == 0) {
        cb(ctx);
        return;
    }
    struct ready_wait *w = xmalloc(sizeof(*w));
    *w = (struct ready_wait){.cb = cb, .ctx = ctx};
    struct ready_wait **at = &a->ready;
    while (*at)
        at = &(*at)->next;
    *at = w;
    sync_state(a, NULL);
}

void agent_cancel_ready(struct agent *a, void *ctx) {
    struct ready_wait **at = &a->ready;
    while (*at) {
        struct ready_wait *w = *at;
        if (w->ctx == ctx) {
            *at = w->next;
            free(w);
        } else {
            at = &w->next;
        }
    }
}

int agent_set_state(struct agent *a, const struct agent_listener *from, const json_t *state,
                    struct err *err) {
    if (!json_is_object(state))
        return err_set(err, ERR_BAD_REQUEST, "the state must be an object");
    json_decref(a->state);
    a->state = json_deep_copy(state);
    _cleanup_(free) char *text = json_dumps(state, JSON_COMPACT);
    int rc = history_set(a->history, "state", text, err);
    TELL(a, from, if (l->events->on_state) l->events->on_state(l->ctx, a->state));
    return rc;
}

/* --- messages --- */

int agent_messages(struct agent *a, json_t **ret_messages, struct err *err) {
    return history_messages(a->history, ret_messages, err);
}

static void tell_messages(struct agent *a, const struct agent_listener *except) {
    struct err err;
    _cleanup_(json) json_t *list = NULL;
    if (history_messages(a->history, &list, &err) < 0)
        return;
    TELL(a, except, if (l->events->on_messages) l->events->on_messages(l->ctx, list));
}

static int put_all(struct agent *a, const json_t *messages, struct err *err) {
    size_t i;
    const json_t *m;
    int rc = 0;
    json_array_foreach(messages, i, m) {
        rc = uimessage_check(m, err);
        if (rc == 0)
            rc = history_put(a->history, m, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int agent_set_messages(struct agent *a, const struct agent_listener *from, const json_t *messages,
                       struct err *err) {
    if (!json_is_array(messages))
        return err_set(err, ERR_BAD_REQUEST, "\"messages\" must be a list");
    size_t i;
    const json_t *m;
    json_array_foreach(messages, i, m) {
        int rc = uimessage_check(m, err);
        if (rc < 0)
            return rc;
    }
    int rc = history_truncate(a->history, NULL, err);
    if (rc == 0)
        rc = put_all(a, messages, err);
    tell_messages(a, from);
    return rc;
}

int agent_clear(struct agent *a, const struct agent_listener *from, struct err *err) {
    while (a->turns)
        end_turn(a->turns, "aborted", NULL);
    int rc = history_truncate(a->history, NULL, err);
    TELL(a, from, if (l->events->on_clear) l->events->on_clear(l->ctx));
    return rc;
}

/* --- turns: the stream --- */

static void on_turn_timer_closed(uv_handle_t *h) {
    struct turn *t = h->data;
    for (size_t i = 0; i < t->nchunks; i++)
        free(t->chunks[i]);
    free(t->chunks);
    json_decref(t->user_ids);
    json_decref(t->conversation);
    json_decref(t->message);
    json_decref(t->calls);
    json_decref(t->tool_output);
    free(t->code);
    free(t->id);
    free(t);
}

const char *agent_turn(const struct agent *a) {
    return a->turns && a->turns->running ? a->turns->id : NULL;
}

size_t agent_chunk_count(const struct agent *a) {
    return a->turns ? a->turns->nchunks : 0;
}

const char *agent_chunk(const struct agent *a, size_t i, size_t *ret_len) {
    *ret_len = a->turns->chunks[i]->len;
    return a->turns->chunks[i]->data;
}

/* Keeps the chunk for those who join later, and tells those who listen. */
static void emit(struct turn *t, const struct buf *b) {
    if (t->over || b->full || t->chunk_bytes + b->len > CHUNKS_MAX_BYTES)
        return;
    struct chunk *c = xmalloc(sizeof(*c) + b->len + 1);
    c->len = b->len;
    memcpy(c->data, b->data, b->len + 1);
    t->chunks = xrealloc(t->chunks, (t->nchunks + 1) * sizeof(struct chunk *));
    size_t seq = t->nchunks;
    t->chunks[t->nchunks++] = c;
    t->chunk_bytes += c->len;
    TELL(t->agent, NULL,
         if (!l->waiting && l->events->on_chunk)
             l->events->on_chunk(l->ctx, t->id, seq, c->data, c->len));
}

/* A chunk with a type and up to two texts. */
static void emit_chunk(struct turn *t, const char *type, const char *k1, const char *v1,
                       const char *k2, const char *v2, size_t len2) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, CHUNK_MAX_BYTES);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    json_writer_key(&w, "type");
    json_writer_str(&w, type);
    if (k1) {
        json_writer_key(&w, k1);
        json_writer_str(&w, v1);
    }
    if (k2) {
        json_writer_key(&w, k2);
        json_writer_text(&w, v2, len2);
    }
    json_writer_object_end(&w);
    emit(t, &b);
}

static void emit_tree(struct turn *t, json_t *chunk) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, CHUNK_MAX_BYTES);
    if (json_dump(chunk, &b))
        emit(t, &b);
    json_decref(chunk);
}

static const char *block_id(struct turn *t, char out[16]) {
    (void)snprintf(out, 16, "b%u", t->blocks);
    return out;
}

static void on_text_start(void *ctx) {
    struct turn *t = ctx;
    char id[16];
    t->blocks++;
    emit_chunk(t, "text-start", "id", block_id(t, id), NULL, NULL, 0);
}

static void on_text_delta(void *ctx, const char *text, size_t len) {
    char id[16];
    emit_chunk(ctx, "text-delta", "id", block_id(ctx, id), "delta", text, len);
}

static void on_text_end(void *ctx) {
    char id[16];
    emit_chunk(ctx, "text-end", "id", block_id(ctx, id), NULL, NULL, 0);
}

static void on_reasoning_start(void *ctx) {
    struct turn *t = ctx;
    char id[16];
    t->blocks++;
    emit_chunk(t, "reasoning-start", "id", block_id(t, id), NULL, NULL, 0);
}

static void on_reasoning_delta(void *ctx, const char *text, size_t len) {
    char id[16];
    emit_chunk(ctx, "reasoning-delta", "id", block_id(ctx, id), "delta", text, len);
}

static void on_reasoning_end(void *ctx) {
    char id[16];
    emit_chunk(ctx, "reasoning-end", "id", block_id(ctx, id), NULL, NULL, 0);
}

static void on_tool_start(void *ctx, const char *id, const char *name) {
    emit_chunk(ctx, "tool-input-start", "toolCallId", id, "toolName", name, strlen(name));
}

static void on_tool_delta(void *ctx, const char *id, const char *json, size_t len) {
    emit_chunk(ctx, "tool-input-delta", "toolCallId", id, "inputTextDelta", json, len);
}

static void on_tool_end(void *ctx, const char *id, const char *name, const json_t *input,
                        const char *error) {
    if (input)
        emit_tree(ctx, json_pack("{s:s,s:s,s:s,s:O}", "type", "tool-input-available", "toolCallId",
                                 id, "toolName", name, "input", input));
    else
        emit_tree(ctx, json_pack("{s:s,s:s,s:s,s:n,s:s}", "type", "tool-input-error", "toolCallId",
                                 id, "toolName", name, "input", "errorText", error));
}

static void on_usage(void *ctx, const struct model_usage *usage) {
    struct turn *t = ctx;
    t->usage = *usage;
}

static void take_usage(struct turn *t) {
    model_meter_add(&t->meter, &t->model->price, &t->usage);
    t->usage = (struct model_usage){0};
}

static void save_message(struct turn *t) {
    struct err err;
    if (!uimessage_is_empty(t->message) && history_put(t->agent->history, t->message, &err) < 0)
        log_error("agent.message", "error", err.message);
}

static void on_model_done(void *ctx, enum model_stop stop, json_t *message) {
    struct turn *t = ctx;
    t->stream = NULL;
    take_usage(t);
    const json_t *content = json_object_get(message, "content");
    uimessage_add_content(t->message, content);
    (void)json_array_append(t->conversation, message);
    json_decref(t->calls);
    t->calls = json_array();
    size_t i;
    json_t *c;
    json_array_foreach(content, i, c) {
        const char *type = json_string_value(json_object_get(c, "type"));
        if (type && strcmp(type, "tool_call") == 0)
            (void)json_array_append(t->calls, c);
    }
    save_message(t);
    if (json_array_size(t->calls) > 0) {
        (void)json_array_append_new(t->conversation,
                                    json_pack("{s:s,s:[]}", "role", "tool", "content"));
        next_tool(t);
        return;
    }
    emit_chunk(t, "finish-step", NULL, NULL, NULL, NULL, 0);
    emit_tree(t, json_pack("{s:s,s:{s:s}}", "type", "finish", "messageMetadata", "finishReason",
                           model_stop_name(stop)));
    end_turn(t, NULL, NULL);
}

static void on_model_error(void *ctx, const struct err *err, bool retryable, json_t *partial) {
    (void)retryable;
    struct turn *t = ctx;
    t->stream = NULL;
    take_usage(t);
    if (partial)
        uimessage_add_content(t->message, json_object_get(partial, "content"));
    log_warn("agent.model", "agent", t->agent->def->type, "error", err->message);
    end_turn(t, "error", err->message);
}

static const struct model_callbacks model_callbacks = {
    .on_text_start = on_text_start,
    .on_text_delta = on_text_delta,
    .on_text_end = on_text_end,
    .on_reasoning_start = on_reasoning_start,
    .on_reasoning_delta = on_reasoning_delta,
    .on_reasoning_end = on_reasoning_end,
    .on_tool_start = on_tool_start,
    .on_tool_delta = on_tool_delta,
    .on_tool_end = on_tool_end,
    .on_usage = on_usage,
    .on_done = on_model_done,
    .on_error = on_model_error,
};

/* --- turns: tools --- */

/* The result of the first waiting call: to the page, the message and the model. */
static void finish_tool(struct turn *t, json_t *output, const char *error) {
    json_t *call = json_array_get(t->calls, 0);
    const char *id = json_string_value(json_object_get(call, "id"));
    const char *name = json_string_value(json_object_get(call, "name"));
    json_t *last = json_array_get(t->conversation, json_array_size(t->conversation) - 1);
    json_t *value = error ? json_string(error) : json_incref(output);
    (void)json_array_append_new(json_object_get(last, "content"),
                                json_pack("{s:s,s:s,s:s,s:o,s:b}", "type", "tool_result", "id", id,
                                          "name", name, "output", value, "is_error",
                                          error != NULL));
    uimessage_set_output(t->message, id, output, error);
    save_message(t);
    if (error)
        emit_chunk(t, "tool-output-error", "toolCallId", id, "errorText", error, strlen(error));
    else
        emit_tree(t, json_pack("{s:s,s:s,s:O}", "type", "tool-output-available", "toolCallId", id,
                               "output", output));
    json_decref(output);
    (void)json_array_remove(t->calls, 0);
    next_tool(t);
}

static void after_sync(struct agent *a) {
    struct turn *t = a->turns;
    if (!t || t->over || !t->tool_output)
        return;
    free(t->code);
    t->code = NULL;
    finish_tool(t, steal_ptr(&t->tool_output), NULL);
}

/* The output as the Sandbox example shapes it: console lines, then the error with its stack. */
static void on_code_done(void *ctx, const struct run *run, const char *record, size_t len) {
    (void)record;
    (void)len;
    struct turn *t = ctx;
    struct agent *a = t->agent;
    struct err err;
    t->run = NULL;
    if (t->over)
        return;
    const json_t *error = run_error(run);
    const char *kind = json_string_value(json_object_get(error, "kind"));
    const json_t *stack = json_object_get(error, "stack");
    const char *name = json_string_value(json_object_get(error, "name"));
    const char *message = json_string_value(json_object_get(error, "message"));
    _cleanup_(free) char *text =
        !error ? NULL
        : json_is_string(stack)
            ? xstrdup(json_string_value(stack))
            : xasprintf("%s: %s%s%s", name ? name : "Error", message ? message : "",
                        json_object_get(error, "excerpt") ? "\n" : "",
                        json_object_get(error, "excerpt")
                            ? json_string_value(json_object_get(error, "excerpt"))
                            : "");
    size_t n;
    const char *lines = run_output(run, &n);
    bool verify_failed = kind && strcmp(kind, "load") == 0;
    _cleanup_(buf) struct buf out;
    buf_init(&out, n + (text ? strlen(text) : 0) + 64);
    if (!verify_failed) {
        (void)buf_add(&out, lines, n);
        if (text)
            (void)buf_addf(&out, "%sError: %s", n ? "\n\n" : "", text);
        if (out.len == 0)
            (void)buf_add_str(&out, "(no output)");
    }
    json_t *output_text = json_stringn(out.data ? out.data : "", out.len);
    if (!output_text)
        output_text = json_string("(the output is not text)");
    char id[UUID_SIZE];
    if (history_add_execution(a->history, id_uuid(id), t->code, json_string_value(output_text),
                              text, &err) < 0)
        log_error("agent.execution", "error", err.message);
    json_t *error_json = text ? json_string(text) : NULL;
    json_t *output = json_pack("{s:o,s:o}", "output", output_text, "error",
                               error_json ? error_json : json_null());
    /* The state is told first, as clients of the original see it. */
    json_decref(t->tool_output);
    t->tool_output = output;
    sync_state(a, after_sync);
}

static void make_env(const struct agent *a, struct env *env) {
    *env = (struct env){.items = xcalloc(a->def->nenv + 1, sizeof(*env->items))};
    for (size_t i = 0; i < a->def->nenv; i++) {
        const struct agent_binding *b = &a->def->env[i];
        struct env_item *item = &env->items[env->n++];
        *item = (struct env_item){.name = xstrdup(b->name), .fd = -1};
        if (!b->facet) {
            item->kind = ENV_JSON;
            item->json = json_incref(b->json);
            continue;
        }
        item->kind = ENV_FACET;
        item->facet_dir = xasprintf("%s/facets/%s", a->dir, b->facet->name);
        item->facet_open = &b->facet->open;
        size_t n = 0;
        while (b->methods && b->methods[n])
            n++;
        if (n > 0) {
            item->methods = xcalloc(n + 1, sizeof(*item->methods));
            for (size_t k = 0; k < n; k++)
                item->methods[k] = xstrdup(b->methods[k]);
        }
    }
}

static void run_code(struct turn *t, const char *code) {
    struct agent *a = t->agent;
    struct agents *all = a->agents;
    struct err err;
    struct env env;
    make_env(a, &env);
    _cleanup_(buf) struct buf source;
    buf_init(&source, (size_t)8 << 20);
    struct json_writer w;
    json_writer_init(&w, &source);
    json_writer_object_begin(&w);
    json_writer_key(&w, "mainModule");
    json_writer_str(&w, "harness.js");
    json_writer_key(&w, "modules");
    json_writer_object_begin(&w);
    json_writer_key(&w, "harness.js");
    json_writer_str(&w, harness);
    json_writer_key(&w, "user-code.js");
    json_writer_str(&w, code);
    json_writer_object_end(&w);
    json_writer_object_end(&w);
    static const char spec[] = "{\"verify\":true,\"method\":\"run\"}";
    _cleanup_(free) char *title = xasprintf("%s/%s: %.40s", a->def->type, a->name, "executeCode");
    free(t->code);
    t->code = xstrdup(code);
    struct run_request q = {.owner = a->owner,
                            .kind = "execution",
                            .title = title,
                            .source = source.data,
                            .source_len = source.len,
                            .code = code,
                            .spec = spec,
                            .spec_len = sizeof(spec) - 1,
                            .env = &env,
                            .limits = all->opt.runner->config.limits,
                            .callbacks = {.on_done = on_code_done},
                            .ctx = t};
    err.code = 0;
    struct run *run = run_start(all->opt.runner, all->opt.store, &q, &err);
    env_finish(&env);
    if (run)
        t->run = run;
    else if (err.code != 0)
        finish_tool(t, NULL, err.message);
}

static void on_query_done(void *ctx, bool ok, const char *json, size_t len, const struct err *err) {
    struct turn *t = ctx;
    t->op = NULL;
    if (t->over)
        return;
    if (ok) {
        json_t *rows = agent_rows(json, len);
        finish_tool(
            t, json_pack("{s:I,s:o}", "rowCount", (json_int_t)json_array_size(rows), "rows", rows),
            NULL);
        return;
    }
    _cleanup_(json) json_t *e = json ? json_loadb(json, len, 0, NULL) : NULL;
    const char *name = json_string_value(json_object_get(e, "name"));
    const char *message = json_string_value(json_object_get(e, "message"));
    _cleanup_(free) char *text = xasprintf("%s: %s", name ? name : "Error",
                                           message ? message
                                           : err   ? err->message
                                                   : "failed");
    finish_tool(t, json_pack("{s:s}", "error", text), NULL);
}

static void run_query(struct turn *t, const struct agent_tool *tool, const char *sql) {
    struct agent *a = t->agent;
    const struct agent_facet *f = NULL;
    for (size_t i = 0; i < a->def->nfacets; i++)
        if (strcmp(a->def->facets[i].name, tool->facet) == 0)
            f = &a->def->facets[i];
    _cleanup_(free) char *dir = NULL;
    struct facet_ref ref = facet_ref(a, f, &dir);
    _cleanup_(buf) struct buf args;
    buf_init(&args, 1 << 20);
    (void)buf_add_char(&args, '[');
    json_write_str(&args, sql, strlen(sql));
    (void)buf_add_char(&args, ']');
    struct facet_op *op =
        facets_call(a->agents->opt.runner->facets, &ref, "query", args.data, on_query_done, t);
    if (op)
        t->op = op;
}

static void next_tool(struct turn *t) {
    if (t->over)
        return;
    json_t *call = json_array_get(t->calls, 0);
    if (!call) {
        emit_chunk(t, "finish-step", NULL, NULL, NULL, NULL, 0);
        next_step(t);
        return;
    }
    const char *name = json_string_value(json_object_get(call, "name"));
    const json_t *input = json_object_get(call, "input");
    const char *bad = json_string_value(json_object_get(call, "input_error"));
    const struct agent_tool *tool = name ? agent_def_tool(t->agent->def, name) : NULL;
    const char *key = tool && tool->kind == AGENT_TOOL_QUERY ? "sql" : "code";
    const char *text = json_string_value(json_object_get(input, key));
    _cleanup_(free) char *error = NULL;
    if (bad)
        error = xasprintf("the input of the tool is not valid: %s", bad);
    else if (!tool)
        error = xasprintf("there is no tool \"%.64s\"", name ? name : "");
    else if (!text)
        error = xasprintf("the tool \"%s\" needs a text \"%s\"", tool->name, key);
    if (error)
        finish_tool(t, NULL, error);
    else if (tool->kind == AGENT_TOOL_CODE)
        run_code(t, text);
    else
        run_query(t, tool, text);
}

/* --- turns: steps --- */

static void next_step(struct turn *t) {
    struct agent *a = t->agent;
    struct err err;
    const struct agent_def *d = a->def;
    struct model_budget budget = {.max_tokens = d->budget.tokens,
                                  .max_cost_nusd =
                                      (int64_t)(d->budget.cost_usd * NANO_USD_PER_USD)};
    if (t->over)
        return;
    if (t->steps >= d->max_steps) {
        emit_tree(t, json_pack("{s:s,s:{s:s}}", "type", "finish", "messageMetadata", "finishReason",
                               "tool-calls"));
        end_turn(t, NULL, NULL);
        return;
    }
    if (model_meter_check(&t->meter, &budget, &err) < 0) {
        end_turn(t, "error", err.message);
        return;
    }
    t->steps++;
    emit_chunk(t, "start-step", NULL, NULL, NULL, NULL, 0);
    uimessage_step(t->message);
    struct model_request q = {
        .model = t->model,
        .system = d->prompt,
        .messages = t->conversation,
        .tools = d->tool_specs,
        .max_tokens = model_meter_room(&t->meter, &budget, &t->model->price, d->max_tokens),
        .temperature = -1,
        .script = d->demo};
    if (model_stream(a->agents->opt.models, &q, &model_callbacks, t, &t->stream, &err) < 0)
        end_turn(t, "error", err.message);
}

static void on_turn_timeout(uv_timer_t *timer) {
    struct turn *t = timer->data;
    char text[96];
    (void)snprintf(text, sizeof(text), "the turn took longer than %lld ms (budget wall_ms)",
                   (long long)t->agent->def->budget.wall_ms);
    end_turn(t, "error", text);
}

static void record_begin(struct turn *t) {
    struct err err;
    struct agent *a = t->agent;
    _cleanup_(free) char *title = xasprintf("%s/%.40s", a->def->type, a->name);
    struct store_run r = {.kind = (char *)"chat", .title = title, .created_ms = clock_wall_ms()};
    id_new("run", t->run_id);
    memcpy(r.id, t->run_id, sizeof(r.id));
    (void)snprintf(r.owner, sizeof(r.owner), "%s", a->owner);
    if (store_run_begin(a->agents->opt.store, &r, &err) < 0)
        log_error("agent.record", "error", err.message);
    if (history_set(a->history, "turn", t->message_id, &err) < 0)
        log_error("agent.record", "error", err.message);
}

static void record_end(struct turn *t, const char *error) {
    struct err err;
    struct agent *a = t->agent;
    const struct model_usage *u = &t->meter.usage;
    _cleanup_(json) json_t *detail = json_pack(
        "{s:s,s:s,s:s,s:I,s:{s:I,s:I,s:I,s:I},s:f}", "agent", a->def->type, "name", a->name,
        "model", t->model ? t->model->id : "", "steps", (json_int_t)t->steps, "tokens", "input",
        (json_int_t)u->input_tokens, "output", (json_int_t)u->output_tokens, "cache_read",
        (json_int_t)u->cache_read_tokens, "cache_write", (json_int_t)u->cache_write_tokens,
        "cost_usd", (double)t->meter.cost_nusd / NANO_USD_PER_USD);
    _cleanup_(free) char *text = json_dumps(detail, JSON_COMPACT);
    struct store_run_end end = {.status = error ? "failed"
                                          : t->outcome && !strcmp(t->outcome, "aborted")
                                              ? "cancelled"
                                              : "done",
                                .error_code = error ? "model_error" : NULL,
                                .error_message = error,
                                .detail = text,
                                .detail_len = text ? strlen(text) : 0};
    if (store_run_end(a->agents->opt.store, t->run_id, &end, &err) < 0)
        log_error("agent.record", "error", err.message);
    (void)history_set(a->history, "turn", NULL, &err);
}

static void start_turn(struct turn *t) {
    struct agent *a = t->agent;
    struct err err;
    t->running = true;
    t->start_ms = clock_mono_ms();
    (void)snprintf(t->message_id, sizeof(t->message_id), "assistant_%lld_%08x",
                   (long long)clock_wall_ms(), (unsigned)(clock_mono_ns() & 0xffffffff));
    t->message = uimessage_new(t->message_id);
    record_begin(t);
    _cleanup_(json) json_t *list = NULL;
    int rc = history_messages(a->history, &list, &err);
    if (rc == 0)
        rc = models_find(a->agents->opt.models,
                         a->def->model ? a->def->model : a->agents->opt.model, &t->model, &err);
    if (rc < 0) {
        end_turn(t, "error", err.message);
        return;
    }
    t->conversation = uimessage_to_model(list);
    if (a->def->budget.wall_ms > 0)
        (void)uv_timer_start(&t->timer, on_turn_timeout, (uint64_t)a->def->budget.wall_ms, 0);
    emit_chunk(t, "start", "messageId", t->message_id, NULL, NULL, 0);
    next_step(t);
}

/* outcome NULL: whole. error: for people. The next turn begins. */
static void end_turn(struct turn *t, const char *outcome, const char *error) {
    struct agent *a = t->agent;
    if (t->over)
        return;
    t->over = true;
    t->outcome = outcome;
    if (t->stream) {
        t->usage = model_stream_usage(t->stream);
        take_usage(t);
        model_stream_cancel(t->stream);
        t->stream = NULL;
    }
    facet_op_cancel(t->op);
    t->op = NULL;
    struct turn **at = &a->turns;
    while (*at && *at != t)
        at = &(*at)->next;
    bool was_running = t->running;
    if (was_running) {
        if (error)
            (void)json_object_set_new(t->message, "metadata", json_pack("{s:s}", "error", error));
        else if (outcome)
            (void)json_object_set_new(t->message, "metadata", json_pack("{s:b}", "aborted", 1));
        save_message(t);
        record_end(t, error);
    }
    if (error)
        TELL(a, NULL, if (l->events->on_fail) l->events->on_fail(l->ctx, t->id, error));
    tell_messages(a, t->from);
    TELL(a, NULL, {
        l->waiting = false;
        if (l->events->on_end)
            l->events->on_end(l->ctx, t->id, outcome, t->user_ids);
    });
    if (*at)
        *at = t->next;
    a->used_ms = clock_mono_ms();
    if (t->run)
        run_cancel(t->run); /* its end finds the turn over */
    uv_close((uv_handle_t *)&t->timer, on_turn_timer_closed);
    if (a->turns && !a->turns->running)
        start_turn(a->turns);
}

/* The new messages of the request go into the history; what the history has already stays. */
static int take_messages(struct agent *a, const struct agent_chat *chat, struct turn *t,
                         struct err *err) {
    _cleanup_(json) json_t *known = NULL;
    int rc = history_messages(a->history, &known, err);
    if (rc < 0)
        return rc;
    size_t i;
    size_t k;
    const json_t *m;
    const json_t *h;
    const char *last_user = NULL;
    json_array_foreach(chat->messages, i, m) {
        rc = uimessage_check(m, err);
        if (rc < 0)
            return rc;
        const char *id = json_string_value(json_object_get(m, "id"));
        bool user = strcmp(json_string_value(json_object_get(m, "role")), "user") == 0;
        bool found = false;
        json_array_foreach(known, k, h) found =
            found || strcmp(json_string_value(json_object_get(h, "id")), id) == 0;
        if (user) {
            last_user = id;
            (void)json_array_append_new(t->user_ids, json_string(id));
        }
        /* An edited message of the user replaces ours; an assistant's is ours to keep. */
        if (!found || user)
            rc = history_put(a->history, m, err);
        if (rc < 0)
            return rc;
    }
    if (!last_user)
        return err_set(err, ERR_BAD_REQUEST, "the request has no message of the user");
    /* What was answered to it before makes way. */
    return chat->regenerate ? history_truncate(a->history, last_user, err) : 0;
}

int agent_chat(struct agent *a, const struct agent_listener *from, const struct agent_chat *chat,
               struct err *err) {
    size_t n = 0;
    for (const struct turn *t = a->turns; t; t = t->next)
        n++;
    if (n >= QUEUE_MAX)
        return err_set(err, ERR_RATE, "%d turns are waiting already", QUEUE_MAX);
    if (!json_is_array(chat->messages))
        return err_set(err, ERR_BAD_REQUEST, "\"messages\" must be a list");
    struct turn *t = xcalloc(1, sizeof(*t));
    t->agent = a;
    t->id = xstrdup(chat->turn);
    t->from = from;
    t->user_ids = json_array();
    (void)uv_timer_init(a->agents->opt.loop, &t->timer);
    t->timer.data = t;
    int rc = take_messages(a, chat, t, err);
    if (rc < 0) {
        uv_close((uv_handle_t *)&t->timer, on_turn_timer_closed);
        return rc;
    }
    tell_messages(a, from);
    struct turn **at = &a->turns;
    while (*at)
        at = &(*at)->next;
    *at = t;
    if (a->turns == t)
        start_turn(t);
    return 0;
}

void agent_cancel(struct agent *a, const char *turn) {
    struct turn *t = a->turns;
    while (t && strcmp(t->id, turn) != 0)
        t = t->next;
    if (t)
        end_turn(t, "aborted", NULL);
}

/* --- rpc --- */

struct rpc {
    agent_rpc_done done;
    void *ctx;
};

static void on_rpc_answer(void *ctx, bool ok, const char *json, size_t len, const struct err *err) {
    struct rpc *r = ctx;
    if (ok) {
        _cleanup_(json) json_t *rows = agent_rows(json, len);
        r->done(r->ctx, rows, NULL);
    } else {
        _cleanup_(json) json_t *e = json ? json_loadb(json, len, 0, NULL) : NULL;
        const char *message = json_string_value(json_object_get(e, "message"));
        r->done(r->ctx, NULL, message ? message : err ? err->message : "failed");
    }
    free(r);
}

void agent_rpc(struct agent *a, const char *method, const json_t *args, agent_rpc_done done,
               void *ctx) {
    const struct agent_binding *b = NULL;
    for (size_t i = 0; i < a->def->nrpc && !b; i++)
        if (strcmp(a->def->rpc[i].name, method) == 0)
            b = &a->def->rpc[i];
    if (!b) {
        _cleanup_(free) char *text = xasprintf("Method %.100s does not exist", method);
        done(ctx, NULL, text);
        return;
    }
    _cleanup_(free) char *text = json_dumps(args, JSON_COMPACT);
    _cleanup_(free) char *dir = NULL;
    struct facet_ref ref = facet_ref(a, b->facet, &dir);
    struct rpc *r = xmalloc(sizeof(*r));
    *r = (struct rpc){.done = done, .ctx = ctx};
    (void)facets_call(a->agents->opt.runner->facets, &ref, b->methods[0], text ? text : "[]",
                      on_rpc_answer, r);
}
