#pragma once
/* What one agent instance remembers: its messages (AI SDK UIMessages), its executions, its state,
 * and whether a turn was running. One SQLite file per instance, which is open only while it is in
 * use: an idle instance costs no more than its names. */

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

enum { HISTORY_EXECUTIONS_MAX = 200 }; /* older ones go */

struct history;

int history_open(const char *path, struct history **ret_history, struct err *err);
void history_close(struct history *h);
/* Closes the file until the next call; false if it was closed already. */
bool history_rest(struct history *h);

/* What is written between the two is written whole or not at all. They do not nest. */
int history_begin(struct history *h, struct err *err);
int history_end(struct history *h, bool keep, struct err *err);

/* Each message as it is stored, in order or the newest first, until one returns false. Nothing is
 * written meanwhile. */
typedef bool (*history_row)(void *ctx, const char *id, const char *json, size_t len);
int history_each(struct history *h, bool newest_first, history_row row, void *ctx, struct err *err);
/* All messages in order, a JSON array of UIMessages, appended to out. */
int history_text(struct history *h, struct buf *out, struct err *err);
/* *ret_json is the caller's; NULL if there is no message with this id. */
int history_find(struct history *h, const char *id, char **ret_json, struct err *err);
struct history_size {
    size_t bytes;
    size_t messages;
};
int history_size(struct history *h, struct history_size *ret_size, struct err *err);
struct history_message {
    const char *id;
    const char *json;
    size_t len;
};
/* Adds each at the end, or replaces the one with its id in its place. */
int history_put(struct history *h, const struct history_message *list, size_t n, struct err *err);
/* Keeps a place behind what is there now, for a message that will be put later. */
int history_reserve(struct history *h, int64_t *ret_place, struct err *err);
int history_put_at(struct history *h, int64_t place, const json_t *message, struct err *err);
/* Removes the message, or all of them if id is NULL. */
int history_remove(struct history *h, const char *id, struct err *err);
/* Removes every message behind the one with this id. */
int history_truncate(struct history *h, const char *id, struct err *err);
/* Makes the message the last one. */
int history_move_last(struct history *h, const char *id, struct err *err);

/* In the caller's transaction. */
int history_add_execution(struct history *h, const char *id, const char *code, const char *output,
                          const char *error, struct err *err);
/* Newest first: [{"id","code","output","error","timestamp"}]. Texts beyond text_max bytes are cut
 * and say so. */
int history_executions(struct history *h, int64_t limit, size_t text_max, json_t **ret_list,
                       struct err *err);

/* value NULL removes the key. */
int history_set(struct history *h, const char *key, const char *value, struct err *err);
/* *ret_value is the caller's; NULL if there is none. */
int history_get(struct history *h, const char *key, char **ret_value, struct err *err);
