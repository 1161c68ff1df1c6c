#pragma once
/* What has become of a job. The names are those in JSON and in the database; everything between
 * them uses the enum. */

#include <stdbool.h>

enum job_status {
    JOB_NO_STATUS, /* zeroed memory, or a name that this version does not know */
    JOB_RUNNING,
    JOB_DONE,
    JOB_FAILED,
    JOB_INTERRUPTED, /* the server ended while it ran */
    JOB_CANCELLED,
    JOB_STATUSES,
};

const char *job_status_name(enum job_status status);
/* False: no status has this name. JOB_NO_STATUS has none. */
bool job_status_parse(const char *name, enum job_status *ret_status);
