#pragma once
/* State machines as tables: which states there are, and which may follow which. Whoever has a state
 * has one function x_move(), and nothing else writes it. A move that the table lacks is a fault of
 * ours: it ends the program where CAY_STRICT is in the environment (tests), and is logged and not
 * made elsewhere. */

#include <stdint.h>

struct sm_state {
    const char *name;
    uint32_t to; /* SM_TO() of each state that may follow */
};

struct sm {
    const char *what; /* "guest" */
    const struct sm_state *states;
    unsigned count;
};

#define SM_TO(state) (UINT32_C(1) << (state))

/* `to` if it may follow `from`, else `from`. */
unsigned sm_next(const struct sm *sm, unsigned from, unsigned to);
