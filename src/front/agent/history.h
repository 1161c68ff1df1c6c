#pragma once
/* What one agent instance remembers: its messages (AI SDK UIMessages), its executions, its state,
 * and whether a turn was running. One SQLite file per instance. */

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

struct history;

int history_open(const char *path, struct history **ret_history, struct err *err);
void history_close(struct history *h);

/* All messages in order: an array of UIMessages. */
int history_messages(struct history *h, json_t **ret_messages, struct err *err);
/* Adds the message, or replaces the one with its id in its place. */
int history_put(struct history *h, const json_t *message, struct err *err);
/* Removes every message behind the one with this id; NULL removes all. */
int history_truncate(struct history *h, const char *id, struct err *err);

int history_add_execution(struct history *h, const char *id, const char *code, const char *output,
                          const char *error, struct err *err);
/* Newest first: [{"id","code","output","error","timestamp"}]. */
int history_executions(struct history *h, int64_t limit, json_t **ret_list, struct err *err);

int history_set(struct history *h, const char *key, const char *value, struct err *err);
/* *ret_value is the caller's; NULL if there is none. */
int history_get(struct history *h, const char *key, char **ret_value, struct err *err);
