#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "front/agent/internal.h"

#include <stdlib.h>
#include <string.h>

/* Listeners, and what they are told. Whatever happens to an instance is put down as a notice, and
 * the notices are told from the loop: nobody's callback runs inside a function of agent.h but
 * agent_catch_up(). A conversation has megabytes, and its listeners may be many: what is large is
 * told to one of them at a time, and what comes after it waits for that. */

enum { MESSAGES_MAX_BYTES = 64 << 20, LARGE_BYTES = 64 << 10, BEHIND_MAX = 8 };
/* What is posted again runs so often in one turn of the loop (loop/later.c): once is enough. */
enum { TELL_ROUNDS = 4 };
enum notice_kind {
    NOTICE_FAIL,
    NOTICE_MESSAGES,
    NOTICE_END,
    NOTICE_STATE,
    NOTICE_CLEAR,
    NOTICE_CHUNK
};

struct notice {
    struct notice *next;
    uint64_t number;
    enum notice_kind kind;
    const struct agent_listener *except;
    char *turn;
    const char *outcome; /* a constant */
    int64_t retry_after_s;
    enum err_code refusal;
    int64_t ticket;  /* of the last change that it may tell of: it is told when that is written */
    bool ran;        /* the turn did, so that nobody waits for its stream any more */
    json_t *data;    /* a string: why; messages (NULL: as the history has them) or state, as JSON */
    struct buf text; /* the chunk */
    bool has_text;
    size_t seq;
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

const json_t *agent_state_for(struct agent_listener *l) {
    l->knows_state = l->agent->noticed;
    return agent_state(l->agent);
}

bool agent_is_open(const struct agent *a) {
    return a && !a->closing;
}

/* --- telling --- */

static bool is_for(const struct notice *n, const struct agent_listener *l) {
    bool deaf = (n->kind == NOTICE_MESSAGES && !l->events->on_messages) ||
                (n->kind == NOTICE_STATE && !l->events->on_state);
    if (n->kind == NOTICE_STATE && n->number <= l->knows_state)
        return false;
    return !deaf && l != n->except && l->since < n->number;
}

static json_t *text_of_messages(struct agent *a) {
    struct err err;
    _cleanup_(buf) struct buf b;
    buf_init(&b, MESSAGES_MAX_BYTES);
    return history_text(a->history, &b, &err) < 0 ? NULL : json_stringn_nocheck(b.data, b.len);
}

/* Reads what is to be told. False: it cannot be read. */
static bool agent_listen_prepare(struct agent *a, struct notice *n) {
    if (n->kind == NOTICE_MESSAGES && !n->data)
        n->data = text_of_messages(a);
    return n->kind != NOTICE_MESSAGES || n->data;
}

static const char *agent_listen_text_of(const struct notice *n, size_t *ret_len) {
    *ret_len = n->has_text ? n->text.len : json_string_length(n->data);
    return n->has_text ? n->text.data : json_string_value(n->data);
}

static void agent_listen_tell_end(struct agent_listener *l, const struct notice *n) {
    struct agent_turn_end end = {.turn = n->turn,
                                 .outcome = n->outcome,
                                 .user_ids = n->user_ids,
                                 .message = n->message,
                                 .refusal = n->refusal,
                                 .retry_after_s = n->retry_after_s};
    if (n->ran)
        l->waiting = false;
    if (l->events->on_end)
        l->events->on_end(l->ctx, &end);
}

static void agent_listen_tell(struct agent_listener *l, const struct notice *n) {
    const struct agent_events *e = l->events;
    size_t len;
    const char *text = agent_listen_text_of(n, &len);
    switch (n->kind) {
    case NOTICE_FAIL:
        if (e->on_fail)
            e->on_fail(l->ctx, n->turn, text, n->user_ids);
        break;
    case NOTICE_MESSAGES:
        e->on_messages(l->ctx, n->data);
        break;
    case NOTICE_END:
        agent_listen_tell_end(l, n);
        break;
    case NOTICE_STATE:
        e->on_state(l->ctx, n->data);
        break;
    case NOTICE_CLEAR:
        if (e->on_clear)
            e->on_clear(l->ctx);
        break;
    case NOTICE_CHUNK:
        if (!l->waiting && e->on_chunk)
            e->on_chunk(l->ctx, n->turn, n->seq, text, len);
        break;
    }
}

static struct agent_listener *agent_listen_find_next(const struct agent *a,
                                                     const struct notice *n) {
    struct agent_listener *l = a->listeners;
    while (l && !is_for(n, l))
        l = l->next;
    return l;
}

static void free_notice(struct notice *n) {
    free(n->turn);
    buf_finish(&n->text);
    json_decref(n->data);
    json_decref(n->user_ids);
    json_decref(n->message);
    free(n);
}

/* The first of them; of a large one the next listener only. False: some have not heard it. */
static bool tell_first(struct agent *a) {
    struct notice *n = a->notices;
    size_t len;
    if (!agent_listen_find_next(a, n) || !agent_listen_prepare(a, n))
        return true;
    (void)agent_listen_text_of(n, &len);
    if (len < LARGE_BYTES) {
        TELL(a, if (is_for(n, l)) agent_listen_tell(l, n));
        return true;
    }
    struct agent_listener *l = agent_listen_find_next(a, n);
    l->since = n->number;
    agent_listen_tell(l, n);
    return !agent_listen_find_next(a, n);
}

static void agent_listen_drop_first(struct agent *a) {
    struct notice *n = a->notices;
    a->notices = n->next;
    free_notice(n);
}

static void agent_listen_on_written(void *ctx, const struct err *err) {
    (void)err; /* nobody waits for what cannot be written */
    agent_tell_some(ctx);
}

/* Nobody hears of what a crash could undo. One that is closed has no more to write. */
static bool agent_listen_may_tell(struct agent *a) {
    if (a->closing || histories_have_written(a->agents->histories, a->notices->ticket))
        return true;
    if (!a->tell_wait.at)
        histories_after(a->agents->histories, &a->tell_wait, a->history, agent_listen_on_written,
                        a);
    return false;
}

void agent_tell_now(struct agent *a) {
    later_cancel(&a->tell);
    while (a->notices)
        if (tell_first(a))
            agent_listen_drop_first(a);
}

/* Who sends megabytes faster than they are told must not make us hold all of them. */
static bool agent_listen_is_behind(const struct agent *a) {
    size_t n = 0;
    for (const struct notice *w = a->notices; w; w = w->next)
        n += w->kind == NOTICE_MESSAGES || w->kind == NOTICE_STATE;
    return n > BEHIND_MAX;
}

static void agent_listen_on_tell(void *ctx) {
    struct agent *a = ctx;
    bool rests = a->telling_large && ++a->tell_round % TELL_ROUNDS != 0;
    bool behind = agent_listen_is_behind(a);
    while (a->notices && (behind || !rests) && agent_listen_may_tell(a))
        if (tell_first(a))
            agent_listen_drop_first(a);
        else if (!behind)
            break;
    a->telling_large = a->notices != NULL && !a->tell_wait.at;
    if (a->telling_large)
        later_post(&a->agents->later, &a->tell, agent_listen_on_tell, a);
}

void agent_tell_some(struct agent *a) {
    later_cancel(&a->tell);
    agent_listen_on_tell(a);
}

void agent_catch_up(struct agent_listener *l) {
    for (struct notice *n = l->agent ? l->agent->notices : NULL; n; n = n->next) {
        if (is_for(n, l) && agent_listen_prepare(l->agent, n))
            agent_listen_tell(l, n);
        if (!l->agent)
            return;
    }
    if (l->agent)
        l->since = l->agent->noticed;
}

/* NULL: there is nobody to hear it. */
static struct notice *put_down(struct agent *a, enum notice_kind kind,
                               const struct agent_listener *except) {
    if (!a->listeners)
        return NULL;
    struct notice *n = xcalloc(1, sizeof(*n));
    *n = (struct notice){.number = ++a->noticed,
                         .kind = kind,
                         .except = except,
                         .ticket = histories_submitted(a->agents->histories)};
    if (!a->notices)
        a->last_notice = &a->notices;
    *a->last_notice = n;
    a->last_notice = &n->next;
    later_post(&a->agents->later, &a->tell, agent_listen_on_tell, a);
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
    n->retry_after_s = end->retry_after_s;
    n->refusal = end->refusal;
    n->ran = ran;
    n->user_ids = json_incref((json_t *)(uintptr_t)end->user_ids);
    n->message = json_incref((json_t *)(uintptr_t)end->message);
}

void agent_tell_messages(struct agent *a, const struct agent_listener *except) {
    (void)put_down(a, NOTICE_MESSAGES, except);
}

/* One text for all of them: a client must not make us hold a copy for each of its requests. */
void agent_keep_messages(struct agent *a) {
    _cleanup_(json) json_t *text = NULL;
    for (struct notice *n = a->notices; n; n = n->next) {
        if (n->kind != NOTICE_MESSAGES || n->data)
            continue;
        if (!text)
            text = text_of_messages(a);
        if (!text)
            text = json_string("[]");
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
    agent_tell_some(a);
    if (!a->notices && len < LARGE_BYTES &&
        histories_have_written(a->agents->histories, a->saved)) {
        TELL(a, if (!l->waiting && l->events->on_chunk)
                    l->events->on_chunk(l->ctx, turn, seq, json, len));
        return;
    }
    struct notice *n = put_down(a, NOTICE_CHUNK, NULL);
    if (!n)
        return;
    n->ticket = a->saved;
    n->turn = xstrdup(turn);
    n->seq = seq;
    n->has_text = true;
    buf_init(&n->text, len + 1);
    (void)buf_add(&n->text, json, len);
}
