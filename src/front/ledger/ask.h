#pragma once
/* A copy of an ask that outlives its caller, for a back end that works on another thread. */

#include "front/ledger/ledger.h"

struct ledger_ask_copy {
    struct ledger_ask ask;
    void *block;    /* what the ask points to */
    char *own_text; /* the text that was taken, not copied */
};

/* Takes the text of own_text, if there is one, and copies the rest. */
void ledger_ask_copy(const struct ledger_ask *from, struct ledger_ask_copy *ret_copy);
/* Zeroed memory is allowed. */
void ledger_ask_copy_finish(struct ledger_ask_copy *copy);
