#pragma once
/* Workers: programs that are loaded by id and stay warm. Their definitions are kept in the store;
 * an isolate is started at the first call and ended when it has been idle, or when others need the
 * place. A worker belongs to the key that made it: ids of different owners do not meet. */

#include "front/run/code.h"
#include "front/run/guest.h"
#include "front/run/run.h"
#include "front/store/store.h"

struct workers;

struct workers_options {
    const struct facet_open *facet_open; /* how their databases are opened; borrowed */
    struct runner *runner;
    struct store *store; /* NULL: nothing outlives the process */
    struct jobs *jobs;
    const char *data_dir;
};

struct workers *workers_create(const struct workers_options *options);
/* Ends all warm isolates. */
void workers_destroy(struct workers *w);

/* Where an owner's facets lie; the caller frees. */
char *workers_facets_dir(const struct workers *w, const char *owner);

/* A run on the warm isolate of (owner, id): the same program is reused, another one replaces it. */
struct run *workers_run(struct workers *w, const char *owner, const struct code *code,
                        const struct run_request *request, struct err *err);

/* Loads (or replaces) a worker. json: its WorkerCode. The label is its host name before
 * ".localhost". */
int workers_put(struct workers *w, const char *owner, const char *id, const json_t *json,
                char ret_label[64], struct err *err);
int workers_delete(struct workers *w, const char *owner, const char *id, struct err *err);
/* Its definition and state as JSON members, for GET. */
int workers_get(struct workers *w, const char *owner, const char *id, json_t **ret_json,
                struct err *err);
int workers_list(struct workers *w, const char *owner, json_t **ret_json, struct err *err);

/* A call of fetch() on the worker with that label. ERR_NOT_FOUND if there is none. */
struct workers_fetch {
    const char *label;
    const char *caller;   /* key id of the caller, NULL if it has none, "" for the operator */
    bool caller_required; /* only the owner and public workers */
};
/* Whether there is such a worker for the caller, and whose: to be asked before a body is read. */
int workers_check_label(struct workers *w, const struct workers_fetch *fetch,
                        char ret_owner[ID_SIZE], struct err *err);
int workers_call_label(struct workers *w, const struct workers_fetch *fetch,
                       const struct guest_request *request, struct guest_call **ret_call,
                       struct err *err);

/* A capability on a worker: the other end of a socket on which its methods can be called. */
int workers_connect(struct workers *w, const char *owner, const char *id, const char *entrypoint,
                    const json_t *props, int *ret_fd, struct err *err);
size_t workers_warm(const struct workers *w);
