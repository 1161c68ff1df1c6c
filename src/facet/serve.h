#pragma once
/* The loop of a facet: the control socket and the capability sockets, one call at a time, in turn.
 * A holder that breaks the contract, or does not read, is cut off; the others go on. */

#include "facet/db.h"

#include <stdint.h>

struct serve_options {
    int control;
    uint64_t open_id; /* the frame id that OPENED answers */
    uint64_t idle_ms;
    struct facet_opened opened;
};

/* A timer that ends the process (FACET_EXIT_TIME) when a call outlives its limit inside a single
 * function of SQLite, where nothing else can stop it. Must be installed before the calls are
 * locked. */
void serve_watch_install(void);
/* The process may spend this long from now on. */
void serve_watch_begin(uint64_t time_ms);
void serve_watch_end(void);

/* The epoll descriptor that serve_run() needs: made before the calls are locked. -1 with errno. */
int serve_epoll(void);
/* Answers OPEN and serves until the control socket is closed. Returns the exit status. */
int serve_run(struct db *db, int epoll, const struct serve_options *o);
