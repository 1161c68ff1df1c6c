#pragma once
/* What one agent instance remembers: its messages (AI SDK UIMessages), its executions, its state,
 * and whether a turn was running. One SQLite file per instance, which is open only while it is in
 * use: an idle instance costs no more than its names.
 *
 * The functions here belong to the loop and never wait for the disk. What they change is kept in
 * memory, beside the file, until one thread for all conversations has written it
 * (history_queue.c); what they read is the file with those changes. So a change can be seen when
 * the call returns, and is in the file when histories_after() says so. */

#include "base/err.h"
#include "base/json.h"
#include "loop/later.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum { HISTORY_EXECUTIONS_MAX = 200 }; /* older ones go */

struct history;
struct histories;

/* --- the thread that writes --- */

/* NULL if there is no thread to be had. */
struct histories *histories_create(uv_loop_t *loop);
/* Writes what is left before it returns. Every history is closed. NULL is allowed. */
void histories_close(struct histories *all);
/* What was changed up to now, of all histories. */
int64_t histories_submitted(const struct histories *all);
/* True too for changes that cannot be written (mostly: the disk is full): they are kept and tried
 * again, and nobody waits for them. */
bool histories_have_written(const struct histories *all, int64_t ticket);
/* The names in this folder have changed: they are to be on the disk too. */
void histories_sync_folder(struct histories *all, const char *path);

struct history_wait {
    struct history_wait *next;
    struct history_wait **at; /* NULL: it does not wait */
    struct history *history;
    int64_t ticket;
    void (*on_written)(void *ctx, const struct err *err);
    void *ctx;
};
/* Calls back, from the loop, when everything is written that was changed before. err is NULL, or
 * why the history, which may be NULL, could not be written. */
void histories_after(struct histories *all, struct history_wait *w, struct history *h,
                     void (*on_written)(void *ctx, const struct err *err), void *ctx);
/* Zeroed memory and one that does not wait are allowed. */
void history_wait_cancel(struct history_wait *w);

/* --- one of them --- */

/* all NULL: each change is written before its call returns. */
int history_open(struct histories *all, const char *path, struct history **ret_history,
                 struct err *err);
/* What is not written yet is written later: until then the file must not be opened again. */
void history_close(struct history *h);
/* Closes it and leaves out what is not written yet: its folder is to be removed. */
void history_drop(struct history *h);
/* Closes the file until the next call; false if it was closed already, or is being written. */
bool history_rest(struct history *h);
/* Nothing of it waits to be written. */
bool history_is_settled(const struct history *h);
/* Fails while nothing can be written, or too much waits: new work is refused then. */
int history_admit(const struct history *h, struct err *err);
/* What was changed just now is on the disk (synchronous=FULL) when it counts as written. Other
 * changes survive the death of the server, and may be lost with the power. */
void history_make_durable(struct history *h);

/* What is changed between the two is changed whole or not at all. They do not nest. */
int history_begin(struct history *h, struct err *err);
int history_end(struct history *h, bool keep, struct err *err);

/* Each message as it is stored, in order or the newest first, until one returns false. Nothing is
 * changed meanwhile. */
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
    bool is_new; /* there is none with its id */
};
/* Adds each at the end, or replaces the one with its id in its place. */
int history_put(struct history *h, const struct history_message *list, size_t n, struct err *err);
/* Keeps a place after what is there now, for a message that will be put later. */
int history_reserve(struct history *h, int64_t *ret_place, struct err *err);
int history_put_at(struct history *h, int64_t place, const struct history_message *m,
                   struct err *err);
/* Removes the message, or all of them if id is NULL. */
int history_remove(struct history *h, const char *id, struct err *err);
/* Removes every message after the one with this id. */
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
