#include "base/cleanup.h"
#include "base/mem.h"
#include "front/agent/internal.h"
#include "front/agent/uimessage.h"

#include <stdlib.h>
#include <string.h>

/* Asking for a turn: the messages of the request go into the history, the turn into the queue. */

enum has { NEW, SAME, OTHER };

/* What the history has of a request. */
struct chat_match {
    const struct uimessages *sent;
    const struct uimessage **by_id; /* those that were sent, sorted */
    enum has *are;                  /* of each that was sent, in its order */
    char **gone;                    /* ids that the history has and the request has not */
    size_t ngone;
    size_t nkept;  /* that the history has and the request too... */
    bool in_order; /* ...as its first ones, of which none is ours to keep */
    bool amid;     /* some that are gone are before others that are not */
};

static void cleanup_chat_match(struct chat_match *k) {
    for (size_t i = 0; i < k->ngone; i++)
        free(k->gone[i]);
    free(k->gone);
    free(k->are);
    free(k->by_id);
}

static int agent_chat_compare_ids(const void *a, const void *b) {
    const struct uimessage *const *x = a;
    const struct uimessage *const *y = b;
    int order = strcmp((*x)->id, (*y)->id);
    return order ? order : (*x > *y) - (*x < *y);
}

/* The first of those with an id that is not before this one. */
static size_t find_id(const struct chat_match *k, const char *id) {
    size_t from = 0;
    size_t to = k->sent->count;
    while (from < to) {
        size_t mid = (from + to) / 2;
        if (strcmp(k->by_id[mid]->id, id) < 0)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

static bool agent_chat_note(void *ctx, const char *id, const char *json, size_t len) {
    struct chat_match *k = ctx;
    size_t at = find_id(k, id);
    if (at == k->sent->count || strcmp(k->by_id[at]->id, id) != 0) {
        if ((k->ngone & (k->ngone + 1)) == 0)
            k->gone = xrealloc(k->gone, 2 * (k->ngone + 1) * sizeof(*k->gone));
        k->gone[k->ngone++] = xstrdup(id);
    }
    for (; at < k->sent->count && strcmp(k->by_id[at]->id, id) == 0; at++) {
        const struct uimessage *m = k->by_id[at];
        bool same = m->len == len && memcmp(m->json, json, len) == 0;
        size_t place = (size_t)(m - k->sent->list);
        k->are[place] = same ? SAME : OTHER;
        k->in_order = k->in_order && place == k->nkept++ && (same || m->user);
        k->amid = k->amid || k->ngone > 0;
    }
    return true;
}

/* whole: all of the history is looked at, else those that were sent. */
static int read_known(struct agent *a, bool whole, struct chat_match *k, struct err *err) {
    size_t n = k->sent->count;
    k->are = xcalloc(n + 1, sizeof(*k->are));
    k->by_id = xcalloc(n + 1, sizeof(const struct uimessage *));
    for (size_t i = 0; i < n; i++)
        k->by_id[i] = &k->sent->list[i];
    qsort(k->by_id, n, sizeof(const struct uimessage *), agent_chat_compare_ids);
    for (size_t i = 1; i < n; i++)
        k->in_order = k->in_order && strcmp(k->by_id[i - 1]->id, k->by_id[i]->id) != 0;
    if (whole)
        return history_each(a->history, false, agent_chat_note, k, err);
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        _cleanup_(free) char *json = NULL;
        rc = history_find(a->history, k->sent->list[i].id, &json, err);
        if (json)
            (void)agent_chat_note(k, k->sent->list[i].id, json, strlen(json));
    }
    return rc;
}

/* The new messages of the request go into the history; what the history has already stays. */
static int put_messages(struct agent *a, const struct agent_chat *chat, const struct chat_match *k,
                        bool rewinds, struct err *err) {
    _cleanup_(free) struct history_message *put = xcalloc(k->sent->count + 1, sizeof(*put));
    size_t n = 0;
    for (size_t i = 0; i < k->sent->count; i++) {
        const struct uimessage *m = &k->sent->list[i];
        /* An edited message of the user replaces ours; an assistant's is ours to keep. */
        if (k->are[i] == NEW || (m->user && k->are[i] == OTHER))
            put[n++] = (struct history_message){
                .id = m->id, .json = m->json, .len = m->len, .is_new = k->are[i] == NEW};
    }
    int rc = history_put(a->history, put, n, err);
    bool at_end = k->in_order && !k->amid;
    for (size_t i = 0; i < k->ngone && rc == 0 && rewinds && !at_end; i++)
        rc = history_remove(a->history, k->gone[i], err);
    if (rc == 0 && (chat->regenerate || (rewinds && at_end)))
        rc = history_truncate(a->history, k->sent->list[k->sent->count - 1].id, err);
    return rc;
}

int agent_check_size(const struct agent *a, const struct history_size *size, struct err *err) {
    const struct agent_limits *max = &a->agents->opt.limits;
    if (size->bytes > max->history_bytes)
        return err_set(err, ERR_LIMIT,
                       "the conversation has %zu bytes and may have %zu (limit "
                       "agent_history_bytes): clear it, or begin another",
                       size->bytes, max->history_bytes);
    if (size->messages > max->messages)
        return err_set(err, ERR_LIMIT,
                       "the conversation has %zu messages and may have %zu (limit "
                       "agent_messages): clear it, or begin another",
                       size->messages, max->messages);
    return 0;
}

int agent_take_messages(struct agent *a, const struct agent_chat *chat, bool *ret_is_all,
                        struct err *err) {
    _cleanup_(chat_match) struct chat_match k = {.sent = chat->messages, .in_order = chat->whole};
    struct history_size size = {.bytes = chat->messages->bytes, .messages = chat->messages->count};
    int rc = read_known(a, chat->whole, &k, err);
    if (rc < 0)
        return rc;
    /* The client goes on from an earlier place: what came after it makes way. */
    bool rewinds = chat->whole;
    for (size_t i = 0; i < k.sent->count; i++)
        rewinds = rewinds && k.are[i] != NEW;
    /* What was just written or compared need not be read again. */
    bool is_all = k.in_order && (k.ngone == 0 || rewinds);
    rc = put_messages(a, chat, &k, rewinds, err);
    if (rc == 0 && !is_all)
        rc = history_size(a->history, &size, err);
    if (rc == 0)
        rc = agent_check_size(a, &size, err);
    if (rc == 0)
        *ret_is_all = is_all;
    return rc;
}

/* The last message is to be the user's: that is what a turn answers. */
static int agent_chat_check_request(const struct agent *a, const struct uimessages *m,
                                    struct err *err) {
    const struct agent_limits *max = &a->agents->opt.limits;
    int rc = uimessages_check(m, max->messages, max->message_bytes, err);
    if (rc == 0 && json_array_size(m->user_ids) == 0)
        rc = err_set(err, ERR_BAD_REQUEST, "the last message must be the user's");
    return rc;
}

int agent_chat(struct agent *a, const struct agent_listener *from, const struct agent_chat *chat,
               struct err *err) {
    struct turn_ask ask = {
        .from = from, .id = chat->turn, .user_ids = chat->messages->user_ids, .chat = chat};
    int rc = agents_check_open(a->agents, err);
    if (rc == 0)
        rc = turns_check(a, chat->turn, err);
    if (rc == 0 && chat->model && *chat->model)
        rc = turns_choose(a, chat->model, &ask.model, err);
    if (rc == 0)
        rc = agent_chat_check_request(a, chat->messages, err);
    if (rc == 0)
        rc = history_admit(a->history, err);
    if (rc == 0)
        rc = turns_add(a, &ask, err);
    if (rc < 0)
        return rc;
    agent_use(a);
    agent_tell_messages(a, from);
    return 0;
}
