#pragma once
/* Calls on a facet that are made and answered without JavaScript: what the interpreter takes for
 * one is more than what the database takes. A call whose arguments are a few texts, numbers and
 * nothing is written here, its promise is made here, and rows become objects here. Everything else
 * is left to the prelude (js/core/bindings.js), which means the same by it.
 *
 * A call waits in one of a few slots; the prelude has the others. Its engine values are protected
 * while it waits. */

#include "isolate/isolate.h"

void quick_init(struct isolate *iso);

/* method(name): a number for ask(), negative where there are too many */
HOST(quick_host_method);
/* ask(binding, method, ...arguments): a promise; undefined if the prelude is to do it */
HOST(quick_host_ask);
/* answers(call): how many have come since this was asked last */
HOST(quick_host_answers);
/* drop(call): nobody waits for its answers any more */
HOST(quick_host_drop);
/* settles(call): it has its result, from now on the prelude is told each answer */
HOST(quick_host_settles);

/* Whether the id is of a call that is made here. */
bool quick_is(uint64_t id);
/* False if nobody asked, or it is no answer. */
bool quick_reply(struct isolate *iso, size_t binding, uint64_t id, const struct wire_frame *f);
/* The binding is gone: its calls fail. */
void quick_gone(struct isolate *iso, size_t binding, const char *why);
/* Forgets all (warm-up only). */
void quick_clear(struct isolate *iso);
