#pragma once
/* Traces that leave the server: the record of a run, posted to a URL when the run has ended. Only
 * origins that the operator listed can be named ("tail_origins" in cay.json), and redirects are not
 * followed, so a caller cannot make the server ask anybody else. */

#include "base/err.h"
#include "base/json.h"
#include "front/store/store.h"

#include <stddef.h>
#include <uv.h>

struct tails;

struct tails *tails_create(uv_loop_t *loop, struct store *store, char *const *origins,
                           size_t norigins);
/* What is under way is given up. */
void tails_close(struct tails *t);

/* A list of {"run": id} and {"url": url}; NULL is an empty one. */
int tails_check(const struct tails *t, const json_t *list, struct err *err);
/* Does not wait. How it went is an event of the run, "tail_sent". */
void tails_post(struct tails *t, const char *run_id, const char *url, const char *record,
                size_t len);
