#pragma once
/* What is behind the ledger. ledger.h says what it promises. */

#include "front/ledger/ledger.h"

struct ledger_backend {
    /* Does what is asked, or sends it on its way; the ask is gone when this returns. */
    void (*ask)(void *backend, uint64_t id, const struct ledger_ask *ask);
    void (*refresh)(void *backend);
    /* Finishes and answers what it was asked, then answers nothing any more; its memory goes from
     * the loop. */
    void (*close)(void *backend);
    int (*watch_workers)(void *backend, const struct ledger_worker_watch *watch, struct err *err);
};

struct ledger *ledger_create(uv_loop_t *loop, const struct ledger_backend *ops, void *backend);
/* Instead of LEDGER_WAIT_MS. */
void ledger_set_wait(struct ledger *l, int64_t ms);
/* False: it was answered, or its time is over. What was not begun by then must not be: its asker
 * was told so, and may ask again. */
bool ledger_is_waited_for(struct ledger *l, uint64_t id);
/* At any time, also inside ask(); what was answered before, or given up, is dropped. The answer is
 * the ledger's from then on. */
void ledger_answered(struct ledger *l, uint64_t id, struct ledger_answer *with);
