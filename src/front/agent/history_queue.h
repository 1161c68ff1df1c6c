#pragma once
/* Between history.c, which knows what was changed, and history_queue.c, which has it written. */

#include "front/agent/history.h"

struct sqlite3;

/* One row as it is to be in the file. */
enum history_op_kind { HISTORY_OP_MESSAGE, HISTORY_OP_KEY, HISTORY_OP_EXECUTION };
enum { HISTORY_OP_TEXTS = 5 };
struct history_op {
    struct history_op *next;
    enum history_op_kind kind;
    int64_t seq; /* of a message, or of an execution */
    /* A message: id, JSON; a key: its name, value: without the second the row goes.
     * An execution: id, code, output, error, timestamp. */
    char *texts[HISTORY_OP_TEXTS];
};

/* What the queue knows of a history; a part of it. */
struct history_writes {
    struct histories *all;
    struct history *next; /* in one of the queue's lists */
    bool waits;           /* in the list of those with changes */
    bool durable;
    bool blocked; /* it could not be written, because of: */
    struct err why;
    size_t bytes;           /* of what is changed and not written */
    struct history_op *ops; /* the thread's, while it has the history */
    bool batch_durable;
    bool at_work;
    int64_t ticket; /* of the last change that is among them */
    int rc;
    struct err err;
    bool closed; /* by its owner: the queue frees it */
    bool dropped;
};

/* --- history.c --- */

struct history_writes *history_writes(struct history *h);
/* The rows that are changed, as they are now. Opens the file if it rests. */
int history_take_changes(struct history *h, struct history_op **ret_ops, struct err *err);
/* On the thread: writes them in one transaction. */
int history_write(struct history *h, const struct history_op *ops, bool durable, struct err *err);
/* Those that were changed up to this number are in the file. */
void history_forget_changes(struct history *h, int64_t ticket);
void history_free_ops(struct history_op *ops);
void history_free(struct history *h);

/* --- history_queue.c --- */

/* The number of the next change. */
int64_t histories_ticket(struct histories *all);
/* Has it written soon; the caller's changes of this turn of the loop are written together. */
void histories_add(struct histories *all, struct history *h);
/* It goes when nothing of it is left to be written. */
void histories_leave(struct history *h);
int histories_admit(const struct histories *all, struct err *err);
