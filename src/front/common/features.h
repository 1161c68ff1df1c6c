#pragma once
/* What this machine offers for isolation, probed for real, with advice: for `cay doctor`, the
 * status page and the lines at start. */

#include <stdbool.h>
#include <stddef.h>

/* Absent is what cay does without: nothing of it was installed. */
enum feature_status { FEATURE_OK, FEATURE_DEGRADED, FEATURE_MISSING, FEATURE_ABSENT };

struct feature {
    const char *name;
    enum feature_status status;
    char detail[240];
    char advice[240];
};

#define FEATURES_MAX 96

struct features {
    struct feature items[FEATURES_MAX];
    size_t n;
};

/* sibling_dir: where cay-isolate and the others are. Starts short-lived children to try things.
 * load_engine: loads JavaScriptCore into this process to ask for its version; not for the server.
 */
void features_probe(struct features *f, const char *sibling_dir, bool load_engine);
/* Control groups are there, but isolates have no limit by them: why, or "" if they have. */
void features_limit(struct features *f, const char *why);
const char *feature_status_name(enum feature_status s);
