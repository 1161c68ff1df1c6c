#include "base/sm.h"

#include "base/log.h"

#include <assert.h>
#include <stdlib.h>

unsigned sm_next(const struct sm *sm, unsigned from, unsigned to) {
    assert(from < sm->count && to < sm->count);
    if (sm->states[from].to & SM_TO(to))
        return to;
    log_error("state.move", "what", sm->what, "from", sm->states[from].name, "to",
              sm->states[to].name);
    if (getenv("CAY_STRICT"))
        abort();
    return from;
}
