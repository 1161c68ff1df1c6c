#include "front/store/status.h"

#include <string.h>

static const char *const status_names[JOB_STATUSES] = {
    [JOB_NO_STATUS] = "unknown", [JOB_RUNNING] = "running",         [JOB_DONE] = "done",
    [JOB_FAILED] = "failed",     [JOB_INTERRUPTED] = "interrupted", [JOB_CANCELLED] = "cancelled",
};

const char *job_status_name(enum job_status status) {
    return status_names[status];
}

bool job_status_parse(const char *name, enum job_status *ret_status) {
    for (int i = JOB_RUNNING; i < JOB_STATUSES; i++)
        if (strcmp(name, status_names[i]) == 0) {
            *ret_status = (enum job_status)i;
            return true;
        }
    return false;
}
