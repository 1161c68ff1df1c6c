#pragma once
/* When the store is taken care of, and on which thread: now and then, and as soon as it asks for
 * it. Owns its handles and one piece of work at a time; the store stays its maker's and must
 * outlive the loop's run. */

#include "front/store/disk.h"
#include "front/store/store.h"

#include <uv.h>

struct caretaker;

struct caretaker *caretaker_create(uv_loop_t *loop, struct store *store, const char *data_dir);
/* How much the data folder takes, as it was a minute ago at most. Lives as long as the caretaker.
 */
const struct disk_usage *caretaker_disk(const struct caretaker *c);
/* Goes when what it is doing is done. */
void caretaker_close(struct caretaker *c);
