#pragma once
/* AI SDK UIMessages: {"id","role","parts":[...]}, as the clients have them and the history keeps
 * them, and their translation into what a model reads (front/model/model.h). */

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>

/* The list as messages for a model. cut: older ones are left out, which a note says. */
json_t *uimessage_to_model(const json_t *list, bool cut);

/* What a client sent: each message as it will be stored. Large lists are read in a thread. */
struct uimessages {
    struct uimessage {
        char *id;
        char *json;
        size_t len;
        bool user; /* its role */
    } * list;
    size_t count;
    size_t bytes;     /* of all of them */
    struct err err;   /* what the next one lacks; code 0: there is none */
    json_t *user_ids; /* of those at the end that are the user's: strings */
    char *said;       /* the beginning of what the user said last; NULL: nothing */
};
/* Never NULL: what the list is not, the error says. */
struct uimessages *uimessages_read(const json_t *list);
void uimessages_free(struct uimessages *m);
/* Fails unless all are messages, at most so many and each within so many bytes. */
int uimessages_check(const struct uimessages *m, size_t max, size_t max_bytes, struct err *err);

/* An assistant's message that a crash has cut off: draft.h builds the others. */
json_t *uimessage_new(const char *id);
/* Tool calls that have no answer get this error: the turn is over. */
void uimessage_settle(json_t *message, const char *error);
/* A note at the end, for turns that did not run to theirs. */
void uimessage_add_note(json_t *message, const char *text);
