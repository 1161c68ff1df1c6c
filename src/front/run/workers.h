#pragma once
/* Workers: programs that are loaded by id and stay warm. Deployed ones are kept in the ledger:
 * which there are is in the front's copy (roster.h), and who starts one waits for its code as he
 * waits for the compiler. An isolate is started at the first call and ended when it has been idle,
 * when others need the place, when its worker was put again or deleted, or when the grants of its
 * key changed. A worker belongs to a project, and holds what the key that put it is granted: after
 * that key is revoked, another key must put it again. */

#include "front/run/bindings.h"
#include "front/run/code.h"
#include "front/run/guest.h"
#include "front/run/roster.h"
#include "front/run/run.h"

struct workers;

struct workers_options {
    const struct facet_open *facet_open; /* how their databases are opened; borrowed */
    struct keyring *keys;                /* what their owners may bind; borrowed */
    struct runner *runner;
    struct ledger *ledger;
    struct jobs *jobs;
    const char *data_dir;
    struct intake
        *intake; /* where large programs are read; ended before these. NULL: on the loop */
};

int workers_create(const struct workers_options *options, struct workers **ret_workers,
                   struct err *err);
/* Ends all warm isolates. The ledger may answer later. */
void workers_destroy(struct workers *w);

/* Keys have changed. What an isolate of a key holds was bound by the grants of then: where they are
 * others now, it ends with the calls in it. */
void workers_recheck(struct workers *w);

/* What programs of keys are bound by: also those that are no workers. */
const struct bindings *workers_bindings(const struct workers *w);

/* A run on the warm isolate of (project, key, id): the same program is reused, another one replaces
 * it. */
struct run *workers_run(struct workers *w, const struct code *code,
                        const struct run_request *request, struct err *err);

/* The body of a PUT that was read. */
struct worker_asked {
    json_t *tails; /* or NULL */
    char *text;    /* of the WorkerCode, as it is kept */
    size_t text_len;
    bool public;
    struct code code;
};
/* Reads the text of a body; in any thread. */
int worker_ask_read(const char *text, size_t len, const struct run_limits *max,
                    struct worker_asked *ret_asked, struct err *err);
void worker_asked_finish(struct worker_asked *a);
struct workers_put {
    const char *owner;
    const char *key; /* "" for the operator */
    const char *id;
};
/* What is to be put in the ledger (LEDGER_WORKER_PUT) for it, if it is fine. Takes the text; the
 * caller finishes it. */
int workers_make(struct workers *w, const struct workers_put *put, struct worker_asked *asked,
                 struct ledger_worker *ret_worker, struct err *err);
/* What clients see of one, besides its code. */
json_t *workers_describe(struct workers *w, const struct ledger_worker *worker);
int workers_list(struct workers *w, const char *owner, json_t **ret_json, struct err *err);

/* A call of fetch() on the worker with that label. ERR_NOT_FOUND if there is none. */
struct workers_fetch {
    const char *label;
    const char *caller; /* the caller's project; NULL if nobody knows who it is */
    bool all;           /* the caller may have anyone's */
};
/* Whether there is such a worker for the caller, and whose: to be asked before a body is read. */
struct workers_whose {
    char owner[ID_SIZE];
    char key[ID_SIZE];
};
int workers_check_label(struct workers *w, const struct workers_fetch *fetch,
                        struct workers_whose *ret_whose, struct err *err);
int workers_call_label(struct workers *w, const struct workers_fetch *fetch,
                       const struct guest_request *request, struct guest_call **ret_call,
                       struct err *err);

/* A capability on a worker: the other end of a socket on which its methods can be called. */
int workers_connect(struct workers *w, const char *owner, const char *id, const char *entrypoint,
                    const json_t *props, int *ret_fd, struct err *err);
size_t workers_warm(const struct workers *w);
