#pragma once
/* What a new sandbox begins with, fetched inside it: a git repository, or an archive. Its host may
 * be reached for that time alone. */

#include "base/json_table.h"
#include "front/sandbox/sandboxes.h"

struct source;
struct source_plan {
    struct sandbox_strv argv;   /* what to run; none: nothing */
    struct sandbox_strv env;    /* with what; credentials do not show in a list of processes */
    struct network_ask network; /* its host, for that time */
};
/* "source" as a request has it. */
struct source_wire {
    enum source_type { SOURCE_GIT, SOURCE_TARBALL, SOURCE_SNAPSHOT } type;
    const char *url, *snapshot, *user, *password, *revision;
    int64_t depth;
};
enum { VERCEL_SOURCE_FIELDS = 7 };
extern const struct json_field vercel_source_fields[VERCEL_SOURCE_FIELDS];
/* ret_snapshot, which may be none, is borrowed from the JSON. */
int vercel_source_plan(const struct source_wire *w, struct source_plan *ret,
                       const char **ret_snapshot, struct err *err);
void vercel_source_plan_finish(struct source_plan *p);
/* Runs it; cb comes later. NULL with err if it cannot begin. */
struct source *vercel_source_start(struct sandbox *box, const struct source_plan *plan,
                                   void (*cb)(void *ctx, const struct err *err), void *ctx,
                                   struct err *err);
/* cb does not come any more; the sandbox is about to end. */
void vercel_source_leave(struct source *s);
