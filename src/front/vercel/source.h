#pragma once
/* What a new sandbox begins with, fetched inside it: a git repository, or an archive. Its host may
 * be reached for that time alone. */

#include "front/sandbox/sandboxes.h"

struct source;
struct source_plan {
    struct sandbox_strv argv;   /* what to run; none: nothing */
    struct sandbox_strv env;    /* with what; credentials do not show in a list of processes */
    struct network_ask network; /* its host, for that time */
};
/* {type: "git"|"tarball"|"snapshot", ...}, or NULL. ret_snapshot is borrowed from the JSON. */
int vercel_source_read(const json_t *source, struct source_plan *ret, const char **ret_snapshot,
                       struct err *err);
void vercel_source_plan_finish(struct source_plan *p);
/* Runs it; cb comes later. NULL with err if it cannot begin. */
struct source *vercel_source_start(struct sandbox *box, const struct source_plan *plan,
                                   void (*cb)(void *ctx, const struct err *err), void *ctx,
                                   struct err *err);
/* cb does not come any more; the sandbox is about to end. */
void vercel_source_leave(struct source *s);
