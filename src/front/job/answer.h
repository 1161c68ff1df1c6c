#pragma once
/* What is answered about a job: its record with its events (/v1/runs/{id}, /v1/code), and what the
 * answers of /execute and what is below it have in common. Endpoints and tasks use the same
 * functions, so that the result of a task is what its endpoint would have answered. */

#include "base/json.h"
#include "front/store/store.h"

/* The members of a record, without its detail and events. */
void job_answer_run(struct json_writer *w, const struct store_run *r);
/* The whole of it. */
int job_answer(struct store *s, const char *id, struct store_scope scope, struct buf *out,
               struct err *err);

/* --- /execute and what is below it --- */

struct job_asked {
    struct store *store;
    size_t events; /* that a job may have */
    const char *id;
    struct store_scope scope;
    bool short_; /* without what was told before as events: messages, logs */
};

struct job_answered {
    int status;            /* of HTTP */
    bool quota;            /* its key had no more for the day */
    int64_t retry_after_s; /* 0: nobody said */
};

/* "success", "request_id" and "timestamp". */
void job_answer_head(struct json_writer *w, bool success, const char *uuid, int64_t time_ms);
/* "error": null without a code. */
void job_answer_error(struct json_writer *w, const char *code, const char *message);
