#include "base/cleanup.h"
#include "front/agent/internal.h"
#include "front/agent/uimessage.h"

#include <string.h>

/* Asking for a turn: the messages of the request go into the history, the turn into the queue. */

static const char *id_of(const json_t *message) {
    return json_string_value(json_object_get(message, "id"));
}

static bool is_user(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "user") == 0;
}

static const json_t *find_message(const json_t *list, const char *id) {
    size_t i;
    const json_t *m;
    json_array_foreach(list, i, m) if (strcmp(id_of(m), id) == 0) return m;
    return NULL;
}

/* The messages that the turn answers: the user's at the end. */
static int check_request(const struct agent *a, const json_t *messages, json_t *user_ids,
                         struct err *err) {
    size_t i;
    const json_t *m;
    if (!json_is_array(messages))
        return err_set(err, ERR_BAD_REQUEST, "\"messages\" must be a list");
    json_array_foreach(messages, i, m) {
        int rc = uimessage_check(m, a->agents->opt.limits.message_bytes, err);
        if (rc < 0)
            return rc;
        if (is_user(m))
            (void)json_array_append(user_ids, json_object_get(m, "id"));
        else
            (void)json_array_clear(user_ids);
    }
    if (json_array_size(user_ids) == 0)
        return err_set(err, ERR_BAD_REQUEST, "the last message must be the user's");
    return 0;
}

/* The new messages of the request go into the history; what the history has already stays. */
static int put_messages(struct agent *a, const struct agent_chat *chat, const json_t *known,
                        struct err *err) {
    size_t i;
    const json_t *m;
    bool all_known = true;
    const char *last = NULL;
    int rc = 0;
    json_array_foreach(chat->messages, i, m) {
        const json_t *own = find_message(known, id_of(m));
        all_known = all_known && own;
        last = id_of(m);
        /* An edited message of the user replaces ours; an assistant's is ours to keep. */
        if (rc == 0 && (!own || (is_user(m) && !json_equal(own, m))))
            rc = history_put(a->history, m, err);
    }
    /* The client goes on from an earlier place: what came after it makes way. */
    json_array_foreach(known, i, m) {
        if (rc == 0 && chat->whole && all_known && !find_message(chat->messages, id_of(m)))
            rc = history_remove(a->history, id_of(m), err);
    }
    if (rc == 0 && chat->regenerate)
        rc = history_truncate(a->history, last, err);
    int64_t bytes = 0;
    if (rc == 0)
        rc = history_bytes(a->history, &bytes, err);
    size_t max = a->agents->opt.limits.history_bytes;
    if (rc == 0 && bytes > (int64_t)max)
        rc = err_set(err, ERR_LIMIT,
                     "the conversation has %lld bytes and may have %zu (limit "
                     "agent_history_bytes): clear it, or begin another",
                     (long long)bytes, max);
    return rc;
}

/* Those that the history has of the request, or all of it. */
static int read_known(struct agent *a, const struct agent_chat *chat, json_t **ret_known,
                      struct err *err) {
    size_t i;
    const json_t *m;
    if (chat->whole)
        return history_messages(a->history, ret_known, err);
    _cleanup_(json) json_t *known = json_array();
    int rc = 0;
    json_array_foreach(chat->messages, i, m) {
        if (rc == 0)
            rc = history_find(a->history, id_of(m), known, err);
    }
    if (rc == 0)
        *ret_known = steal_ptr(&known);
    return rc;
}

int agent_take_messages(struct agent *a, const struct agent_chat *chat, struct err *err) {
    _cleanup_(json) json_t *known = NULL;
    int rc = read_known(a, chat, &known, err);
    return rc < 0 ? rc : put_messages(a, chat, known, err);
}

int agent_chat(struct agent *a, const struct agent_listener *from, const struct agent_chat *chat,
               struct err *err) {
    _cleanup_(json) json_t *user_ids = json_array();
    struct turn_ask ask = {.from = from, .id = chat->turn, .user_ids = user_ids, .chat = chat};
    int rc = turns_check(a, chat->turn, err);
    if (rc == 0 && chat->model && *chat->model)
        rc = turns_choose(a, chat->model, &ask.model, err);
    if (rc == 0)
        rc = check_request(a, chat->messages, user_ids, err);
    if (rc == 0)
        rc = turns_add(a, &ask, err);
    if (rc < 0)
        return rc;
    agent_use(a);
    agent_tell_messages(a, from);
    return 0;
}
