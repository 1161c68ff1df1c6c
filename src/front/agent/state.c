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
    int rc = history_begin(a->history, err);
    if (rc < 0)
        return rc;
    rc = history_set(a->history, "state", json_string_value(a->state), err);
    if (rc == 0)
        rc = history_set(a->history, "state_of", a->def->version, err);
    if (rc == 0 && !a->calls)
        rc = history_set(a->history, "spoilt", NULL, err);
    int end = history_end(a->history, rc == 0, err);
    return rc < 0 ? rc : end;
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
    json_decref(a->sync_old);
    a->sync_old = NULL;
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
    a->sync_state = json_object();
    a->sync_errors = json_object();
    later_post(&a->agents->later, &a->sync_start, on_start, a);
}

static json_t *text_of(const json_t *state) {
    size_t len = 0;
    _cleanup_(free) char *text = json_dump_text(state, INT_MAX, &len);
    return json_stringn_nocheck(text, len);
}

static void end(struct agent *a) {
    struct err err;
    /* Others may ask again and again: who waits for this one is told with this one. */
    void (*done)(struct agent *) = a->sync_done;
    a->sync_done = a->sync_next;
    a->sync_next = NULL;
    a->syncing = false;
    if (json_object_size(a->sync_errors) > 0)
        (void)json_object_set(a->sync_state, "errors", a->sync_errors);
    json_decref(a->sync_errors);
    a->sync_errors = NULL;
    json_decref(a->state);
    a->state = text_of(a->sync_state);
    json_decref(a->sync_state);
    json_decref(a->sync_old);
    a->sync_state = a->sync_old = NULL;
    a->synced = true;
    if (store(a, &err) < 0)
        log_error("agent.state", "error", err.message);
    agent_tell_state(a, NULL);
    agent_tell_some(a);
    tell_ready(a);
    if (a->sync_again)
        begin(a);
    if (done)
        done(a);
}

static void on_rows(void *ctx, bool ok, const char *json, size_t len, const struct err *err) {
    struct agent *a = ctx;
    const struct agent_state_item *item = &a->def->state[a->sync_item++];
    a->sync_op = NULL;
    json_t *rows = ok ? rows_read(json, len) : json_array();
    if (!ok) {
        /* A table that the model has dropped, say: the rest of the state goes on. */
        (void)json_object_set_new(a->sync_errors, item->key, rows_error(json, len, err));
    } else if (len > ROWS_MAX_BYTES && json_is_array(rows)) {
        size_t all = json_array_size(rows);
        size_t kept = all * ROWS_MAX_BYTES / len;
        while (json_array_size(rows) > kept)
            (void)json_array_remove(rows, json_array_size(rows) - 1);
        (void)json_object_set_new(a->sync_errors, item->key,
                                  json_sprintf("only %zu of %zu rows are shown", kept, all));
    }
    (void)json_object_set_new(a->sync_state, item->key, rows);
    sync_next(a);
}

static const json_t *old_state(struct agent *a) {
    const json_t *text = a->sync_old ? NULL : agent_state(a);
    if (text)
        (void)json_parse(json_string_value(text), json_string_length(text), "state", &a->sync_old,
                         NULL);
    return a->sync_old;
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
        json_t *v = NULL;
        if (item->kind == AGENT_STATE_VALUE) {
            /* Clients may have set it. */
            json_t *own = json_object_get(old_state(a), item->key);
            v = json_incref(own ? own : item->value);
        } else if (history_executions(a->history, item->limit, EXECUTION_TEXT_MAX, &v, &err) < 0) {
            v = json_array();
            (void)json_object_set_new(a->sync_errors, item->key, json_text(err.message));
        }
        (void)json_object_set_new(a->sync_state, item->key, v);
        a->sync_item++;
    }
    end(a);
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
    later_cancel(&a->sync_start);
    later_cancel(&a->tell_ready);
    while (a->ready) {
        struct ready_wait *w = a->ready;
        a->ready = w->next;
        free(w);
    }
    json_decref(a->state);
    json_decref(a->sync_old);
    json_decref(a->sync_state);
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
