#pragma once
/* Shared by the files of this folder: an instance, its listeners, its state and its turns. */

#include "front/agent/agent.h"
#include "front/agent/history.h"
#include "loop/later.h"

#include <uv.h>

/* A loop over the listeners that is under way. Any of them may leave meanwhile. */
struct telling {
    struct agent_listener *next;
    struct telling *outer;
};

struct ready_wait {
    struct ready_wait *next;
    void (*cb)(void *ctx);
    void *ctx;
};

struct turn;
struct rpc;

struct agent {
    struct agent *next;
    struct agents *agents;
    const struct agent_def *def;
    char *owner;
    char *name;
    char *dir;
    struct history *history;
    struct agent_listener *listeners;
    struct telling *telling;
    struct turn *turns;  /* the first runs */
    struct turn *ending; /* over, but a run of theirs is not */
    struct later next_turn;
    struct rpc *calls;
    json_t *state; /* NULL: in the history, or not read yet */
    bool synced;
    struct ready_wait *ready;
    struct later tell_ready;
    /* Reading the state: item by item. */
    bool syncing;
    bool sync_again;
    size_t sync_item;
    json_t *sync_state;
    json_t *sync_errors;
    struct facet_op *sync_op;
    void (*sync_done)(struct agent *a); /* when the one that runs has ended */
    void (*sync_next)(struct agent *a); /* when the one after it has */
    int64_t used_ms;
    bool closing; /* nothing new is begun */
};

struct agents {
    struct agents_options opt;
    struct agent *list;
    struct later_queue later;
    uv_timer_t timer;
};

#define TELL(a, except, call)                                                                      \
    do {                                                                                           \
        struct telling telling_ = {.next = (a)->listeners, .outer = (a)->telling};                 \
        (a)->telling = &telling_;                                                                  \
        struct agent_listener *l;                                                                  \
        while ((l = telling_.next)) {                                                              \
            telling_.next = l->next;                                                               \
            if (l != (except))                                                                     \
                call; /* NOLINT(bugprone-macro-parentheses): a statement */                        \
        }                                                                                          \
        (a)->telling = telling_.outer;                                                             \
    } while (0)

/* --- agent.c --- */

/* Its folder, for facets_*(); *dir is the caller's. */
struct facet_ref agent_facet_ref(const struct agent *a, const struct agent_facet *f, char **dir);
void agent_tell_messages(struct agent *a, const struct agent_listener *except);

/* --- state.c --- */

/* What a facet's failure says, as a text for people. */
json_t *agent_facet_error(const char *json, size_t len, const struct err *err);
/* Takes the stored state over if it is still what a sync would find. */
void agent_state_load(struct agent *a);
/* Frees what can be read again. */
void agent_state_rest(struct agent *a);
void agent_state_finish(struct agent *a);
/* From now on the stored state may be wrong, until the next sync. */
void agent_state_spoil(struct agent *a);
/* Reads the state afresh; done is called when it has been told to everybody. */
void agent_sync(struct agent *a, void (*done)(struct agent *a));

/* --- turn.c --- */

/* A turn that the end of the server cut off is marked. */
void turn_mark_cut(struct agent *a);
/* Ends every turn, those that wait first. error may be NULL: they were stopped. */
void turns_end(struct agent *a, const char *error);
/* Nothing of a turn that has ended comes back any more. */
void turns_abandon(struct agent *a);
void turns_forget_listener(struct agent *a, const struct agent_listener *l);
