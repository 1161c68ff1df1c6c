#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "front/agent/internal.h"

#include <stdlib.h>
#include <string.h>

/* Listeners, and what they are told. Whatever happens to an instance is put down as a notice, and
 * the notices are told from the loop: nobody's callback runs inside a function of agent.h. */

enum { MESSAGES_MAX_BYTES = 64 << 20 };
enum notice_kind { NOTICE_FAIL, NOTICE_MESSAGES, NOTICE_END, NOTICE_STATE, NOTICE_CLEAR };

struct notice {
    struct notice *next;
    uint64_t number;
    enum notice_kind kind;
    const struct agent_listener *except;
    char *turn;
    const char *outcome; /* a constant */
    bool ran;            /* the turn did, so that nobody waits for its stream any more */
    json_t *data; /* a string: why; messages (NULL: as the history has them) or state, as JSON */
    json_t *user_ids;
    json_t *message;
};

#define TELL(a, call)                                                                              \
    do {                                                                                           \
        struct telling telling_ = {.next = (a)->listeners, .outer = (a)->telling};                 \
        (a)->telling = &telling_;                                                                  \
        struct agent_listener *l;                                                                  \
        while ((l = telling_.next)) {                                                              \
            telling_.next = l->next;                                                               \
            call; /* NOLINT(bugprone-macro-parentheses): a statement */                            \
        }                                                                                          \
        (a)->telling = telling_.outer;                                                             \
    } while (0)

/* --- listeners --- */

void agent_listen(struct agent *a, struct agent_listener *l) {
    l->agent = a;
    l->waiting = agent_turn(a) != NULL;
    l->since = a->noticed;
    l->next = a->listeners;
    a->listeners = l;
}

void agent_unlisten(struct agent_listener *l) {
    struct agent *a = l->agent;
    if (!a)
        return;
    for (struct telling *t = a->telling; t; t = t->outer)
        if (t->next == l)
            t->next = l->next;
    struct agent_listener **at = &a->listeners;
    while (*at && *at != l)
        at = &(*at)->next;
    if (*at)
        *at = l->next;
    l->agent = NULL;
    for (struct notice *n = a->notices; n; n = n->next)
        if (n->except == l)
            n->except = NULL;
    turns_forget_listener(a, l);
    a->used_ms = clock_mono_ms();
}

bool agent_is_open(const struct agent *a) {
    return a && !a->closing;
}

/* --- telling --- */

static bool is_for(const struct notice *n, const struct agent_listener *l) {
    return l != n->except && l->since < n->number;
}

static void tell_messages(struct agent *a, const struct notice *n) {
    struct err err;
    _cleanup_(buf) struct buf b;
    buf_init(&b, MESSAGES_MAX_BYTES);
    bool anybody = false;
    for (const struct agent_listener *l = a->listeners; l; l = l->next)
        anybody = anybody || (is_for(n, l) && l->events->on_messages);
    if (!anybody || (!n->data && history_text(a->history, &b, &err) < 0))
        return;
    const char *json = n->data ? json_string_value(n->data) : b.data;
    size_t len = n->data ? json_string_length(n->data) : b.len;
    TELL(a, if (is_for(n, l) && l->events->on_messages) l->events->on_messages(l->ctx, json, len));
}

static void tell_end(struct agent *a, const struct notice *n) {
    struct agent_turn_end end = {
        .turn = n->turn, .outcome = n->outcome, .user_ids = n->user_ids, .message = n->message};
    TELL(a, {
        if (n->ran && is_for(n, l))
            l->waiting = false;
        if (is_for(n, l) && l->events->on_end)
            l->events->on_end(l->ctx, &end);
    });
}

static void tell(struct agent *a, const struct notice *n) {
    switch (n->kind) {
    case NOTICE_FAIL:
        TELL(a, if (is_for(n, l) && l->events->on_fail)
                    l->events->on_fail(l->ctx, n->turn, json_string_value(n->data), n->user_ids));
        break;
    case NOTICE_MESSAGES:
        tell_messages(a, n);
        break;
    case NOTICE_END:
        tell_end(a, n);
        break;
    case NOTICE_STATE:
        TELL(a, if (is_for(n, l) && l->events->on_state) l->events->on_state(
                    l->ctx, json_string_value(n->data), json_string_length(n->data)));
        break;
    case NOTICE_CLEAR:
        TELL(a, if (is_for(n, l) && l->events->on_clear) l->events->on_clear(l->ctx));
        break;
    }
}

static void free_notice(struct notice *n) {
    free(n->turn);
    json_decref(n->data);
    json_decref(n->user_ids);
    json_decref(n->message);
    free(n);
}

void agent_tell_now(struct agent *a) {
    later_cancel(&a->tell);
    while (a->notices) {
        struct notice *n = a->notices;
        a->notices = n->next;
        tell(a, n);
        free_notice(n);
    }
}

static void on_tell(void *ctx) {
    agent_tell_now(ctx);
}

/* NULL: there is nobody to hear it. */
static struct notice *put_down(struct agent *a, enum notice_kind kind,
                               const struct agent_listener *except) {
    if (!a->listeners)
        return NULL;
    struct notice *n = xcalloc(1, sizeof(*n));
    *n = (struct notice){.number = ++a->noticed, .kind = kind, .except = except};
    if (!a->notices)
        a->last_notice = &a->notices;
    *a->last_notice = n;
    a->last_notice = &n->next;
    later_post(&a->agents->later, &a->tell, on_tell, a);
    return n;
}

void agent_tell_fail(struct agent *a, const char *turn, const json_t *text,
                     const json_t *user_ids) {
    struct notice *n = put_down(a, NOTICE_FAIL, NULL);
    if (!n)
        return;
    n->turn = xstrdup(turn);
    n->data = json_incref((json_t *)(uintptr_t)text);
    n->user_ids = json_incref((json_t *)(uintptr_t)user_ids);
}

void agent_tell_end(struct agent *a, const struct agent_turn_end *end, bool ran) {
    struct notice *n = put_down(a, NOTICE_END, NULL);
    if (!n)
        return;
    n->turn = xstrdup(end->turn);
    n->outcome = end->outcome;
    n->ran = ran;
    n->user_ids = json_incref((json_t *)(uintptr_t)end->user_ids);
    n->message = json_incref((json_t *)(uintptr_t)end->message);
}

void agent_tell_messages(struct agent *a, const struct agent_listener *except) {
    (void)put_down(a, NOTICE_MESSAGES, except);
}

static json_t *text_of_messages(struct agent *a) {
    struct err err;
    _cleanup_(buf) struct buf b;
    buf_init(&b, MESSAGES_MAX_BYTES);
    return history_text(a->history, &b, &err) < 0 ? json_string("[]")
                                                  : json_stringn_nocheck(b.data, b.len);
}

/* One text for all of them: a client must not make us hold a copy for each of its requests. */
void agent_keep_messages(struct agent *a) {
    _cleanup_(json) json_t *text = NULL;
    for (struct notice *n = a->notices; n; n = n->next) {
        if (n->kind != NOTICE_MESSAGES || n->data)
            continue;
        if (!text)
            text = text_of_messages(a);
        n->data = json_incref(text);
    }
}

void agent_tell_state(struct agent *a, const struct agent_listener *except) {
    struct notice *n = put_down(a, NOTICE_STATE, except);
    if (n)
        n->data = json_incref(a->state);
}

void agent_tell_clear(struct agent *a, const struct agent_listener *except) {
    (void)put_down(a, NOTICE_CLEAR, except);
}

void agent_tell_chunk(struct agent *a, const char *turn, size_t seq, const char *json, size_t len) {
    agent_tell_now(a);
    TELL(a,
         if (!l->waiting && l->events->on_chunk) l->events->on_chunk(l->ctx, turn, seq, json, len));
}
