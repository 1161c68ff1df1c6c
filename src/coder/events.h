#pragma once
/* The lines of wire/coder.h on standard output: each is written whole, at once. */

#include "base/json.h"
#include "coder/life.h"
#include "wire/coder.h"

struct events {
    int fd;
    struct life *life;
};

/* Takes the fields; "type" and "at" are put before them. If nobody reads any more, or nobody reads
 * while the run is being ended, that is a cancel. */
void events_tell(struct events *e, enum coder_type type, json_t *fields);
