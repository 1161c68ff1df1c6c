#include "base/cleanup.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/agent/internal.h"
#include "front/tool/rows.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The state that listeners see: what agent.json lists, read from the facets and the history. It is
 * stored too, so that an instance that nobody has touched needs no database to greet a client. */

enum { ROWS_MAX_BYTES = 512 << 10, EXECUTION_TEXT_MAX = 32 << 10 };

/* --- what is stored --- */

void agent_state_load(struct agent *a) {
    _cleanup_(free) char *of = NULL;
    _cleanup_(free) char *spoilt = NULL;
    struct err err;
    if (a->def->nstate == 0) {
        a->synced = true;
        return;
    }
    if (history_get(a->history, "state_of", &of, &err) == 0 && of &&
        strcmp(of, a->def->version) == 0 && history_get(a->history, "spoilt", &spoilt, &err) == 0 &&
        !spoilt)
        a->synced = true;
}

void agent_state_rest(struct agent *a) {
    json_decref(a->state);
    a->state = NULL;
}

void agent_state_spoil(struct agent *a) {
    struct err err;
    if (history_set(a->history, "spoilt", "1", &err) < 0)
        log_error("agent.state", "error", err.message);
}

const json_t *agent_state(struct agent *a) {
    _cleanup_(free) char *text = NULL;
    struct err err;
    if (!a->state && a->synced && history_get(a->history, "state", &text, &err) == 0 && text)
        a->state = json_stringn_nocheck(text, strlen(text));
    return a->state;
}

static int store(struct agent *a, struct err *err) {
    int rc = history_set(a->history, "state", json_string_value(a->state), err);
    if (rc == 0)
        rc = history_set(a->history, "state_of", a->def->version, err);
    if (rc == 0 && !a->calls)
        rc = history_set(a->history, "spoilt", NULL, err);
    return rc;
}

int agent_set_state(struct agent *a, const struct agent_listener *from, json_t *state,
                    struct err *err) {
    if (!state || *json_string_value(state) != '{')
        return err_set(err, ERR_BAD_REQUEST, "the state must be an object");
    size_t max = a->agents->opt.limits.message_bytes;
    if (json_string_length(state) > max)
        return err_set(err, ERR_TOO_LARGE,
                       "the state exceeds %zu bytes (limit "
                       "agent_message_bytes)",
                       max);
    agent_use(a);
    json_decref(a->state);
    a->state = json_incref(state);
    int rc = history_set(a->history, "state", json_string_value(state), err);
    agent_tell_state(a, from);
    return rc;
}

/* --- reading it --- */

static void sync_next(struct agent *a);

static void tell_ready(void *ctx) {
    struct agent *a = ctx;
    while (a->ready) {
        struct ready_wait *w = a->ready;
        a->ready = w->next;
        w->cb(w->ctx);
        free(w);
    }
}

static void on_start(void *ctx) {
    sync_next(ctx);
}

static void begin(struct agent *a) {
    a->syncing = true;
    a->sync_again = false;
    a->sync_item = 0;
    buf_finish(&a->sync_text);
    buf_init(&a->sync_text, INT_MAX);
    a->sync_errors = json_object();
    later_post(&a->agents->later, &a->sync_start, on_start, a);
}

/* The text is all that is ever made of a state that clients set, or of rows: trees of it would hold
 * the loop. */
static void write_key(const char *key, struct buf *out) {
    _cleanup_(json) json_t *text = json_text(key);
    (void)json_dump(text, out);
}

static void add_key(struct agent *a, const char *key) {
    (void)buf_add_char(&a->sync_text, a->sync_text.len > 0 ? ',' : '{');
    write_key(key, &a->sync_text);
    (void)buf_add_char(&a->sync_text, ':');
}

static void add_text(struct agent *a, const char *key, const char *json, size_t len) {
    add_key(a, key);
    (void)buf_add(&a->sync_text, json, len);
}

static void add_tree(struct agent *a, const char *key, const json_t *value) {
    add_key(a, key);
    (void)json_dump(value, &a->sync_text);
}

static void add_executions(struct agent *a, const struct agent_state_item *item) {
    struct err err;
    _cleanup_(json) json_t *list = NULL;
    if (history_executions(a->history, item->limit, EXECUTION_TEXT_MAX, &list, &err) < 0) {
        list = json_array();
        (void)json_object_set_new(a->sync_errors, item->key, json_text(err.message));
    }
    add_tree(a, item->key, list);
}

/* Clients may have set it. */
static void add_value(struct agent *a, const struct agent_state_item *item) {
    const json_t *old = agent_state(a);
    _cleanup_(buf) struct buf key;
    size_t len;
    buf_init(&key, INT_MAX);
    write_key(item->key, &key);
    const char *own =
        old ? json_find_member(json_string_value(old), json_string_length(old), key.data, &len)
            : NULL;
    if (own)
        add_text(a, item->key, own, len);
    else
        add_tree(a, item->key, item->value);
}

/* What clients may set meanwhile, and what programs add, is taken at the end: what was read before
 * would undo it. */
static void take_state(struct agent *a) {
    for (size_t i = 0; i < a->def->nstate; i++) {
        const struct agent_state_item *item = &a->def->state[i];
        if (item->kind == AGENT_STATE_VALUE)
            add_value(a, item);
        else if (item->kind == AGENT_STATE_EXECUTIONS)
            add_executions(a, item);
    }
    if (json_object_size(a->sync_errors) > 0)
        add_tree(a, "errors", a->sync_errors);
    json_decref(a->sync_errors);
    a->sync_errors = NULL;
    (void)buf_add_str(&a->sync_text, a->sync_text.len > 0 ? "}" : "{}");
    json_decref(a->state);
    a->state = json_stringn_nocheck(a->sync_text.data, a->sync_text.len);
    buf_finish(&a->sync_text);
    a->synced = true;
}

/* What programs have done, the state that they led to and the message that tells of it are written
 * together, before any of them is told. */
static void keep(struct agent *a) {
    struct err err;
    int begun = history_begin(a->history, &err);
    int rc = begun < 0 ? begun : executions_write(a, &err);
    take_state(a);
    if (rc == 0)
        rc = store(a, &err);
    if (rc == 0)
        turns_save(a);
    int done = begun < 0 ? begun : history_end(a->history, rc == 0, rc == 0 ? &err : NULL);
    if (rc < 0 || done < 0)
        log_error("agent.state", "error", err.message);
    else
        executions_forget(a);
}

static void end(struct agent *a) {
    /* Others may ask again and again: who waits for this one is told with this one. */
    void (*done)(struct agent *) = a->sync_done;
    a->sync_done = a->sync_next;
    a->sync_next = NULL;
    a->syncing = false;
    keep(a);
    agent_tell_state(a, NULL);
    agent_tell_some(a);
    tell_ready(a);
    if (a->sync_again)
        begin(a);
    if (done)
        done(a);
}

/* What a facet answered, read by a thread if it is large. */
struct rows_answer {
    struct agent *agent;
    const char *key;
    char *json;
    size_t len;
    char *text;
    size_t text_len;
    size_t all, kept;
};

static void free_rows(void *ctx) {
    struct rows_answer *w = ctx;
    free(w->json);
    free(w->text);
    free(w);
}

/* In any thread. */
static void read_rows(void *ctx) {
    struct rows_answer *w = ctx;
    w->text = rows_text(w->json, w->len, ROWS_MAX_BYTES, &w->text_len, &w->all, &w->kept);
}

static void add_rows(struct agent *a, const struct rows_answer *w) {
    add_text(a, w->key, w->text, w->text_len);
    if (w->kept < w->all)
        (void)json_object_set_new(a->sync_errors, w->key,
                                  json_sprintf("only %zu of %zu rows are shown", w->kept, w->all));
}

static void on_rows_read(void *ctx) {
    struct rows_answer *w = ctx;
    struct agent *a = w->agent;
    a->sync_reading = NULL;
    add_rows(a, w);
    intake_dispose(a->agents->opt.intake, free_rows, w);
    sync_next(a);
}

/* A table that the model has dropped, say: the rest of the state goes on. Takes why. */
static void miss_rows(struct agent *a, const char *key, json_t *why) {
    add_text(a, key, "[]", 2);
    (void)json_object_set_new(a->sync_errors, key, why);
    sync_next(a);
}

static void on_rows(void *ctx, bool ok, const char *json, size_t len, const struct err *err) {
    struct agent *a = ctx;
    const char *key = a->def->state[a->sync_item++].key;
    struct err why;
    a->sync_op = NULL;
    if (!ok) {
        miss_rows(a, key, rows_error(json, len, err));
        return;
    }
    struct rows_answer *w = xcalloc(1, sizeof(*w));
    *w = (struct rows_answer){.agent = a, .key = key, .json = xmalloc(len), .len = len};
    memcpy(w->json, json, len);
    if (!a->agents->opt.intake || len <= LIMIT_READ_AT_ONCE_BYTES) {
        read_rows(w);
        add_rows(a, w);
        free_rows(w);
        sync_next(a);
        return;
    }
    a->sync_reading = intake_start(a->agents->opt.intake,
                                   &(struct intake_ask){.owner = a->owner,
                                                        .bytes = len,
                                                        .work = read_rows,
                                                        .on_done = on_rows_read,
                                                        .free = free_rows,
                                                        .ctx = w},
                                   &why);
    if (a->sync_reading)
        return;
    free_rows(w);
    miss_rows(a, key, json_text(why.message));
}

static void on_end(void *ctx) {
    end(ctx);
}

static void sync_next(struct agent *a) {
    struct err err;
    while (a->sync_item < a->def->nstate) {
        const struct agent_state_item *item = &a->def->state[a->sync_item];
        if (item->kind == AGENT_STATE_FACET) {
            _cleanup_(free) char *dir = NULL;
            struct facet_ref ref = agent_facet_ref(a, item->facet, &dir);
            a->sync_op = facets_call(a->agents->opt.runner->facets, &ref, item->method, "[]",
                                     on_rows, a, &err);
            if (!a->sync_op)
                on_rows(a, false, NULL, 0, &err);
            return;
        }
        a->sync_item++; /* the others are taken at the end */
    }
    /* The model may have been asked to go on meanwhile: that goes first. */
    later_post(&a->agents->last, &a->sync_end, on_end, a);
}

void agent_sync(struct agent *a, void (*done)(struct agent *a)) {
    if (a->closing)
        return;
    if (a->syncing) {
        a->sync_again = true; /* it may have passed by what has changed */
        a->sync_next = done ? done : a->sync_next;
        return;
    }
    a->sync_done = done;
    begin(a);
}

void agent_sync_forget(struct agent *a) {
    a->sync_done = a->sync_next = NULL;
}

void agent_state_finish(struct agent *a) {
    facet_op_cancel(a->sync_op);
    if (a->sync_reading)
        intake_cancel(a->sync_reading);
    later_cancel(&a->sync_start);
    later_cancel(&a->sync_end);
    later_cancel(&a->tell_ready);
    while (a->ready) {
        struct ready_wait *w = a->ready;
        a->ready = w->next;
        free(w);
    }
    json_decref(a->state);
    buf_finish(&a->sync_text);
    json_decref(a->sync_errors);
}

void agent_when_ready(struct agent *a, void (*cb)(void *ctx), void *ctx) {
    struct ready_wait *w = xmalloc(sizeof(*w));
    *w = (struct ready_wait){.cb = cb, .ctx = ctx};
    struct ready_wait **at = &a->ready;
    while (*at)
        at = &(*at)->next;
    *at = w;
    if (a->synced)
        later_post(&a->agents->later, &a->tell_ready, tell_ready, a);
    else if (!a->syncing)
        agent_sync(a, NULL);
}

void agent_cancel_ready(struct agent *a, const void *ctx) {
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
