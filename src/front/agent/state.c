#include "base/cleanup.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/agent/internal.h"

#include <stdlib.h>
#include <string.h>

/* The state that listeners see, as a sync (sync.c) has read it or a client has set it. It is stored
 * too, so that an instance that nobody has touched needs no database to greet a client. */

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

int agent_state_store(struct agent *a, struct err *err) {
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
    int rc = history_admit(a->history, err);
    if (rc < 0)
        return rc;
    agent_use(a);
    json_decref(a->state);
    a->state = json_incref(state);
    rc = history_set(a->history, "state", json_string_value(state), err);
    agent_tell_state(a, from);
    return rc;
}

/* --- those who wait for the first one --- */

void agent_tell_ready(struct agent *a) {
    while (a->ready) {
        struct ready_wait *w = a->ready;
        a->ready = w->next;
        w->cb(w->ctx);
        free(w);
    }
}

static void agent_state_on_ready(void *ctx) {
    agent_tell_ready(ctx);
}

void agent_state_finish(struct agent *a) {
    sync_finish(&a->sync);
    later_cancel(&a->tell_ready);
    while (a->ready) {
        struct ready_wait *w = a->ready;
        a->ready = w->next;
        free(w);
    }
    json_decref(a->state);
}

void agent_when_ready(struct agent *a, void (*cb)(void *ctx), void *ctx) {
    struct ready_wait *w = xmalloc(sizeof(*w));
    *w = (struct ready_wait){.cb = cb, .ctx = ctx};
    struct ready_wait **at = &a->ready;
    while (*at)
        at = &(*at)->next;
    *at = w;
    if (a->synced)
        later_post(&a->agents->later, &a->tell_ready, agent_state_on_ready, a);
    else if (sync_is_idle(&a->sync))
        agent_sync(a, false);
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
