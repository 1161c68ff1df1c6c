#pragma once
/* Asks and answers of the SQLite back end with texts of megabytes: the body of a task, the code of
 * a worker. They go into the file and come out of it in pieces (store/pieces.h), one in each turn
 * of the loop, those that wait in turns. The ask itself, one transaction, is done when the text of
 * it is there. Owns what waits. */

#include "front/ledger/db.h"

struct longs;

struct longs_options {
    uv_loop_t *loop;
    struct ledger_db *db;
    /* From the loop, once for each. The answer is the callee's. */
    void (*on_done)(void *ctx, uint64_t id, enum ledger_op op, struct ledger_answer *answer);
    void (*on_progress)(void *ctx, uint64_t id);
    void *ctx;
};

struct longs *longs_create(const struct longs_options *options);
/* False: the ask is not one of these. Else its text is taken. */
bool longs_ask(struct longs *l, uint64_t id, const struct ledger_ask *ask);
/* Gets the texts that the answer to an ask lacks. False: it lacks none, and is the caller's. */
bool longs_fill(struct longs *l, uint64_t id, enum ledger_op op, struct ledger_answer *answer);
/* Texts may have been dropped. */
void longs_sweep(struct longs *l);
/* Whether all of them wait. */
void longs_pause(struct longs *l, bool paused);
/* What waits is forgotten. closed(ctx) comes when its memory goes; the database is not touched
 * any more when this returns. */
void longs_close(struct longs *l, void (*closed)(void *ctx), void *ctx);
