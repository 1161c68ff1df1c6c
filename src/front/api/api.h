#pragma once
/* The endpoints: one thin file per family, each with one function that adds its routes. */

#include "front/server/front.h"

void api_health_routes(struct front *f);
void api_status_routes(struct front *f);
void api_config_routes(struct front *f);
void api_runs_routes(struct front *f);
void api_artifacts_routes(struct front *f);
/* A job in the path is named by its id, or by the UUID that is the same. */
const char *api_run_id(const struct http_req *req, char out[ID_SIZE]);
/* Answers with the job's events after a number as they come, or (stream false) with its record when
 * it has ended. */
void api_follow(struct front *f, struct http_req *req, const char *id, int64_t after, bool stream);
struct api_following {
    const char *id; /* of the job */
    int64_t after;
    bool stream;
    bool cancels;       /* a client that waits for the end cancels the job when it leaves */
    const char *prefix; /* "PREFIX.N" are the events' ids; NULL: "N" */
    /* Each NULL: the job's record. */
    void (*respond)(struct front *f, struct http_req *req, const char *id);
    void (*write_end)(struct front *f, struct http_req *req, const char *id, struct buf *out);
};
/* The same in another shape; what it points to is read before this returns. */
void api_follow_as(struct front *f, struct http_req *req, const struct api_following *how);
void api_code_routes(struct front *f);
void api_execute_routes(struct front *f);
/* The body of an error of /execute and what is below it. */
void api_execute_error(struct buf *out, const struct err *err);
void api_run_routes(struct front *f);
void api_tasks_routes(struct front *f);
void api_task_events_routes(struct front *f);
void api_usage_routes(struct front *f);
enum { API_TASK_BYTES = 32 << 20 }; /* of an answer about tasks */
void api_task_write(struct json_writer *w, const struct ledger_task *t, bool whole);
/* The task that the path names, or NULL: then the request is answered. */
const char *api_task_id(struct http_req *req);
/* Whose things they may see; NULL: everybody's. */
const char *api_whose(const struct http_req *req);
void api_keys_routes(struct front *f);
void api_databases_routes(struct front *f);
void api_projects_routes(struct front *f);
/* The limits that keys and projects have in common: in requests by a table, in answers. */
struct api_limits {
    struct limits_request asked;
    unsigned fields; /* of enum ledger_limit_field: those that the request has */
};
int api_limits_read(const json_t *body, struct api_limits *ret, struct err *err);
#define API_LIMITS_KEYS "rate_per_minute", "max_jobs", "tokens_per_day", "usd_per_day"
void api_limits_write(struct json_writer *w, const struct ledger_limits *limits);
/* A request that waits for the ledger. */
struct api_wait {
    struct front *front;
    struct http_req *req; /* NULL: the client left */
    char *text;           /* a copy of what the answer needs besides, or NULL */
    void (*respond)(struct api_wait *w, const struct ledger_answer *a);
};
/* Asks the ledger; errors are answered here. A client that leaves changes nothing of it. */
void api_ask(struct front *f, struct http_req *req, const struct ledger_ask *what,
             void (*respond)(struct api_wait *w, const struct ledger_answer *a));
void api_ask_with(struct front *f, struct http_req *req, const struct ledger_ask *what,
                  const char *text,
                  void (*respond)(struct api_wait *w, const struct ledger_answer *a));
/* A page of a list in an answer. */
struct api_page {
    const char *name;
    size_t n;
    const char *next; /* where the next page begins; "": there is none */
    size_t max_bytes;
    void (*write)(struct json_writer *j, const struct ledger_answer *a, size_t i);
};
void api_respond_page(struct api_wait *w, const struct ledger_answer *a,
                      const struct api_page *page);
/* ?limit=N of a list; what it leaves alone is the default. */
int api_read_limit(const struct http_req *req, size_t *ret_limit, struct err *err);
void api_agents_routes(struct front *f);
void api_turns_routes(struct front *f);
void api_sandboxes_routes(struct front *f);
void api_ports_routes(struct front *f);
void api_execs_routes(struct front *f);
void api_output_routes(struct front *f);
void api_tty_routes(struct front *f);
void api_files_routes(struct front *f);
void api_tar_routes(struct front *f);
void api_snapshots_routes(struct front *f);
/* Takes requests for PORT-SANDBOX.localhost; false: it is none. */
bool api_port(struct http_req *req, struct front *f);
/* The handler of requests for NAME.localhost. */
void api_guest(struct http_req *req, void *ctx);
