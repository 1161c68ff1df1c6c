#include "base/cleanup.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"
#include "front/agent/internal.h"
#include "front/tool/rows.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Reading the state of an instance: what agent.json lists, item by item, from the facets; then what
 * clients have set and what programs have done. The state and what it comes from are stored
 * together, and then told. One reading runs at a time: if something changes meanwhile there is
 * another after it. A turn may wait for one, to tell the state before the result that changed it
 * (turns_release()). */

enum { ROWS_MAX_BYTES = 512 << 10, EXECUTION_TEXT_MAX = 32 << 10 };

static const struct sm_state states[] = {
    [SYNC_IDLE] = {"idle", SM_TO(SYNC_READING)},
    [SYNC_READING] = {"reading", SM_TO(SYNC_STALE) | SM_TO(SYNC_IDLE)},
    [SYNC_STALE] = {"stale", SM_TO(SYNC_IDLE)},
};
static const struct sm machine = {"sync", states, ARRAY_LEN(states)};

static void sync_move(struct sync *s, enum sync_state to) {
    s->state = sm_next(&machine, s->state, to);
}

static void sync_go_on(struct agent *a);

static void sync_on_start(void *ctx) {
    sync_go_on(ctx);
}

static void sync_begin(struct agent *a) {
    struct sync *s = &a->sync;
    sync_move(s, SYNC_READING);
    s->item = 0;
    buf_finish(&s->text);
    buf_init(&s->text, INT_MAX);
    s->errors = json_object();
    later_post(&a->agents->later, &s->start, sync_on_start, a);
}

/* The text is all that is ever made of a state that clients set, or of rows: trees of it would hold
 * the loop. */
static void sync_write_key(const char *key, struct buf *out) {
    _cleanup_(json) json_t *text = json_text(key);
    (void)json_dump(text, out);
}

static void sync_add_key(struct agent *a, const char *key) {
    (void)buf_add_char(&a->sync.text, a->sync.text.len > 0 ? ',' : '{');
    sync_write_key(key, &a->sync.text);
    (void)buf_add_char(&a->sync.text, ':');
}

static void sync_add_text(struct agent *a, const char *key, const char *json, size_t len) {
    sync_add_key(a, key);
    (void)buf_add(&a->sync.text, json, len);
}

static void sync_add_tree(struct agent *a, const char *key, const json_t *value) {
    sync_add_key(a, key);
    (void)json_dump(value, &a->sync.text);
}

static void sync_add_executions(struct agent *a, const struct agent_state_item *item) {
    struct err err;
    _cleanup_(json) json_t *list = NULL;
    if (history_executions(a->history, item->limit, EXECUTION_TEXT_MAX, &list, &err) < 0) {
        list = json_array();
        (void)json_object_set_new(a->sync.errors, item->key, json_text(err.message));
    }
    sync_add_tree(a, item->key, list);
}

/* Clients may have set it. */
static void sync_add_value(struct agent *a, const struct agent_state_item *item) {
    const json_t *old = agent_state(a);
    _cleanup_(buf) struct buf key;
    size_t len;
    buf_init(&key, INT_MAX);
    sync_write_key(item->key, &key);
    const char *own =
        old ? json_find_member(json_string_value(old), json_string_length(old), key.data, &len)
            : NULL;
    if (own)
        sync_add_text(a, item->key, own, len);
    else
        sync_add_tree(a, item->key, item->value);
}

/* What clients may set meanwhile, and what programs add, is taken at the end: what was read before
 * would undo it. */
static void sync_take_state(struct agent *a) {
    for (size_t i = 0; i < a->def->nstate; i++) {
        const struct agent_state_item *item = &a->def->state[i];
        if (item->kind == AGENT_STATE_VALUE)
            sync_add_value(a, item);
        else if (item->kind == AGENT_STATE_EXECUTIONS)
            sync_add_executions(a, item);
    }
    if (json_object_size(a->sync.errors) > 0)
        sync_add_tree(a, "errors", a->sync.errors);
    json_decref(a->sync.errors);
    a->sync.errors = NULL;
    (void)buf_add_str(&a->sync.text, a->sync.text.len > 0 ? "}" : "{}");
    json_decref(a->state);
    a->state = json_stringn_nocheck(a->sync.text.data, a->sync.text.len);
    buf_finish(&a->sync.text);
    a->synced = true;
}

/* What programs have done, the state that they led to and the message that tells of it are written
 * together, before any of them is told. */
static void sync_keep(struct agent *a) {
    struct err err;
    int begun = history_begin(a->history, &err);
    int rc = begun < 0 ? begun : executions_write(a, &err);
    sync_take_state(a);
    if (rc == 0)
        rc = agent_state_store(a, &err);
    if (rc == 0)
        turns_save(a);
    int done = begun < 0 ? begun : history_end(a->history, rc == 0, rc == 0 ? &err : NULL);
    if (rc < 0 || done < 0)
        log_error("agent.state", "error", err.message);
    else
        executions_forget(a);
}

static void sync_end(struct agent *a) {
    struct sync *s = &a->sync;
    bool again = s->state == SYNC_STALE;
    bool release = s->turn_waits == SYNC_FOR_THIS;
    /* A program that ended meanwhile waits for the next one. */
    s->turn_waits = s->turn_waits == SYNC_FOR_NEXT ? SYNC_FOR_THIS : SYNC_FOR_NONE;
    sync_move(s, SYNC_IDLE);
    sync_keep(a);
    agent_tell_state(a, NULL);
    agent_tell_some(a);
    agent_tell_ready(a);
    if (again)
        sync_begin(a);
    if (release)
        turns_release(a);
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

static void sync_free_rows(void *ctx) {
    struct rows_answer *w = ctx;
    free(w->json);
    free(w->text);
    free(w);
}

/* In any thread. */
static void sync_read_rows(void *ctx) {
    struct rows_answer *w = ctx;
    w->text = rows_text(w->json, w->len, ROWS_MAX_BYTES, &w->text_len, &w->all, &w->kept);
}

static void sync_add_rows(struct agent *a, const struct rows_answer *w) {
    sync_add_text(a, w->key, w->text, w->text_len);
    if (w->kept < w->all)
        (void)json_object_set_new(a->sync.errors, w->key,
                                  json_sprintf("only %zu of %zu rows are shown", w->kept, w->all));
}

static void sync_on_rows_read(void *ctx) {
    struct rows_answer *w = ctx;
    struct agent *a = w->agent;
    a->sync.reading = NULL;
    sync_add_rows(a, w);
    intake_dispose(a->agents->opt.intake, sync_free_rows, w);
    sync_go_on(a);
}

/* A table that the model has dropped, say: the rest of the state goes on. Takes why. */
static void sync_miss_rows(struct agent *a, const char *key, json_t *why) {
    sync_add_text(a, key, "[]", 2);
    (void)json_object_set_new(a->sync.errors, key, why);
    sync_go_on(a);
}

static void sync_on_rows(void *ctx, bool ok, const char *json, size_t len, const struct err *err) {
    struct agent *a = ctx;
    const char *key = a->def->state[a->sync.item++].key;
    struct err why;
    a->sync.op = NULL;
    if (!ok) {
        sync_miss_rows(a, key, rows_error(json, len, err));
        return;
    }
    struct rows_answer *w = xcalloc(1, sizeof(*w));
    *w = (struct rows_answer){.agent = a, .key = key, .json = xmalloc(len), .len = len};
    memcpy(w->json, json, len);
    if (!a->agents->opt.intake || len <= LIMIT_READ_AT_ONCE_BYTES) {
        sync_read_rows(w);
        sync_add_rows(a, w);
        sync_free_rows(w);
        sync_go_on(a);
        return;
    }
    a->sync.reading = intake_start(a->agents->opt.intake,
                                   &(struct intake_ask){.owner = a->owner,
                                                        .bytes = len,
                                                        .work = sync_read_rows,
                                                        .on_done = sync_on_rows_read,
                                                        .free = sync_free_rows,
                                                        .ctx = w},
                                   &why);
    if (a->sync.reading)
        return;
    sync_free_rows(w);
    sync_miss_rows(a, key, json_text(why.message));
}

static void sync_on_end(void *ctx) {
    sync_end(ctx);
}

static void sync_go_on(struct agent *a) {
    struct err err;
    while (a->sync.item < a->def->nstate) {
        const struct agent_state_item *item = &a->def->state[a->sync.item];
        if (item->kind == AGENT_STATE_FACET) {
            _cleanup_(free) char *dir = NULL;
            struct facet_ref ref = agent_facet_ref(a, item->facet, &dir);
            a->sync.op = facets_call(a->agents->opt.runner->facets, &ref, item->method, "[]",
                                     sync_on_rows, a, &err);
            if (!a->sync.op)
                sync_on_rows(a, false, NULL, 0, &err);
            return;
        }
        a->sync.item++; /* the others are taken at the end */
    }
    /* The model may have been asked to go on meanwhile: that goes first. */
    later_post(&a->agents->last, &a->sync.end, sync_on_end, a);
}

void agent_sync(struct agent *a, bool turn_waits) {
    struct sync *s = &a->sync;
    if (a->closing)
        return;
    bool idle = s->state == SYNC_IDLE;
    if (turn_waits)
        s->turn_waits = idle ? SYNC_FOR_THIS : SYNC_FOR_NEXT;
    if (idle)
        sync_begin(a);
    else if (s->state == SYNC_READING)
        sync_move(s, SYNC_STALE); /* it may have passed by what has changed */
}

bool sync_is_idle(const struct sync *s) {
    return s->state == SYNC_IDLE;
}

void sync_forget_turn(struct sync *s) {
    s->turn_waits = SYNC_FOR_NONE;
}

void sync_finish(struct sync *s) {
    facet_op_cancel(s->op);
    if (s->reading)
        intake_cancel(s->reading);
    later_cancel(&s->start);
    later_cancel(&s->end);
    buf_finish(&s->text);
    json_decref(s->errors);
}
