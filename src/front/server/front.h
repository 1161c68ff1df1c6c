#pragma once
/* The front: one loop that holds the server, the store, the keys and the child programs. What the
 * endpoints need is reached from here. */

#include "base/err.h"
#include "front/common/features.h"
#include "front/common/metrics.h"
#include "front/common/secrets.h"
#include "front/config/config.h"
#include "front/http/server.h"
#include "front/ledger/keyring.h"
#include "front/model/catalog.h"
#include "front/run/runner.h"
#include "front/start/listen.h"
#include "front/store/disk.h"
#include "front/store/mirror.h"
#include "front/store/store.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct front {
    uv_loop_t *loop;
    const struct config *config;
    const struct secrets *secrets;
    struct store *store;
    const struct disk_usage *disk;
    struct mirror *mirror; /* of artifacts; NULL: there is none */
    struct keyring *keys;
    struct ledger_db *ledger_db;
    struct ledger *ledger;
    struct tasks *tasks;
    struct jobs *jobs;
    struct accounts *accounts;
    struct http_server *http;
    struct http_reader run_reader;    /* of POST /v1/run */
    struct http_reader task_reader;   /* of POST /v1/tasks */
    struct http_reader worker_reader; /* of PUT /v1/workers/{id} */
    struct metrics *metrics;
    struct sessions *sessions;
    struct rates *rates; /* of requests, by key and address */
    struct features features;
    struct runner *runner;
    struct intake *intake; /* of large bodies and messages */
    struct databases *databases;
    struct workers *workers;
    struct tails *tails;
    struct models *models;
    struct agents *agents;
    struct sandboxes *sandboxes;
    struct codes *codes;
    struct executes *executes;
    struct vercel *vercel;
    struct reload *reload;
    struct door *door; /* the demo model for sandboxes */
    json_t *door_script;
    json_t *private_upstreams;    /* of the models, for cay-egress */
    struct facet_open facet_open; /* how the facets of programs are opened */
    struct listeners listeners;
    uint64_t isolates_memory_bytes; /* of all together, by a control group; 0: there is none */
    int64_t started_ms;             /* monotonic */
    bool leaving;                   /* SIGTERM came: nothing new begins (drain.h) */
};

/* What answers requests. The front knows none of it: whoever starts it hands it over, so that
 * includes lead from the endpoints to the front and never back. */
struct front_endpoints {
    void (*open)(struct front *f);  /* adds the routes */
    void (*close)(struct front *f); /* when no request is left */
    http_handler guest;             /* of requests for NAME.localhost */
};

struct front_options {
    const struct front_endpoints *endpoints;
    struct config *config;    /* the caller's; changed here when it is read again */
    const char *programs_dir; /* where the programs beside cay are */
    bool level_given;         /* config->log_level is the command line's, not the file's */
    void (*on_ready)(const struct front *f); /* all is open, the loop begins */
    /* After on_ready, once: it is known whether sandboxes can be made (sandboxes_feature()). */
    void (*on_sandboxes)(const struct front *f, const struct feature *found);
};

/* Serves until a signal ends it. An error is one of the start. */
int front_serve(const struct front_options *options, struct err *err);

/* Route flags that the guard reads. A route without FRONT_ROUTE_PUBLIC needs an identity, with at
 * least the scope "run" unless it says FRONT_ROUTE_READ, FRONT_ROUTE_ADMIN (of the whole server) or
 * FRONT_ROUTE_PROJECT_ADMIN (of its project, or of the server). While the server
 * leaves, what may change something is refused unless it is a DELETE or says FRONT_ROUTE_LATE. */
enum {
    FRONT_ROUTE_PUBLIC = HTTP_ROUTE_USER,
    FRONT_ROUTE_READ = HTTP_ROUTE_USER << 1,
    FRONT_ROUTE_ADMIN = HTTP_ROUTE_USER << 2,
    FRONT_ROUTE_LATE = HTTP_ROUTE_USER << 3, /* it is about what runs already */
    FRONT_ROUTE_PROJECT_ADMIN = HTTP_ROUTE_USER << 4,
};

/* Who sent the request; set by the guard on every route that is not public, and on public ones when
 * a valid key came with it. NULL otherwise. */
const struct identity *front_identity(const struct http_req *req);
/* The project whose data the request is about, and the key that it came with: "" for the default
 * project and for the operator, and for requests without an identity. */
const char *front_project(const struct http_req *req);
const char *front_key(const struct http_req *req);
/* Under which name it takes its share of what all have in common. */
const char *front_share(const struct http_req *req);
/* Nobody is let in without one, not even from this machine. */
bool front_requires_key(const struct front *f);
/* Which records that identity may see. */
struct store_scope front_scope(const struct http_req *req);
/* Calls on_child for each child program that is kept running. */
void front_children(const struct front *f,
                    void (*on_child)(void *ctx, const struct keeper_info *info), void *ctx);
/* The name of the model in use and its provider ("demo" when there is no key). */
void front_model(const struct front *f, const char **ret_provider,
                 char ret_name[MODEL_ID_BYTES + 1]);
