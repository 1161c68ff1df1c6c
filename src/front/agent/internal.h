#pragma once
/* Shared by the files of this folder: an instance, its listeners, its state and its turns. */

#include "base/buf.h"
#include "base/id.h"
#include "front/agent/agent.h"
#include "front/agent/history.h"
#include "front/common/intake.h"
#include "front/tool/tool.h"
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

/* A program of the running turn has ended; this is written with the state that it led to. */
struct execution {
    struct execution *next;
    char id[UUID_SIZE];
    char *code;
    char *output;
    char *error; /* or NULL */
};

/* Reading the state, item by item. */
enum sync_state {
    SYNC_IDLE,
    SYNC_READING,
    SYNC_STALE, /* the same, and something has changed since: it is read again */
};
struct sync {
    enum sync_state state;
    enum { SYNC_FOR_NONE, SYNC_FOR_THIS, SYNC_FOR_NEXT } turn_waits; /* for which reading */
    size_t item;
    struct buf text; /* of the new one, so far */
    json_t *errors;
    struct facet_op *op;
    struct intake_item *reading; /* of a large answer */
    struct later start;
    struct later end;
};

struct turn;
struct rpc;
struct notice;

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
    /* What the listeners will hear, from the loop. */
    struct notice *notices;
    struct notice **last_notice;
    uint64_t noticed; /* how many there have been */
    struct later tell;
    struct history_wait tell_wait; /* for the first of them to be written */
    int64_t saved;                 /* the last change that chunks wait for */
    bool telling_large;            /* some have not heard the first of them */
    unsigned tell_round;
    struct turn *turns; /* the first runs */
    struct later next_turn;
    struct rpc *calls;
    /* What its tools work with; made for a turn, freed when it rests. */
    struct tool_env tool_env;
    struct env bindings;
    struct tool_facet *facets;
    struct execution *executions; /* to be written, in their order */
    json_t *state; /* its text, as a string that many may hold; NULL: in the history, or unknown */
    bool synced;
    struct ready_wait *ready;
    struct later tell_ready;
    struct sync sync;
    int64_t used_ms;
    bool fresh;   /* nothing was ever asked of it */
    bool closing; /* its data is closed; it stays until its listeners know */
    struct later bury;
};

struct agents {
    struct agents_options opt;
    struct histories *histories;
    struct agent *list;
    struct later_queue later;
    struct later_queue last; /* behind what else the loop has to do */
    struct later_queue next; /* in its next turn */
    uv_timer_t timer;
    bool refusing; /* the server leaves */
};

/* --- agent.c --- */

/* Whether something new may begin. */
int agents_check_open(const struct agents *a, struct err *err);

/* Its folder, for facets_*(); *dir is the caller's. */
struct facet_ref agent_facet_ref(const struct agent *a, const struct agent_facet *f, char **dir);
/* Something is asked of it: from now on it is kept. */
void agent_use(struct agent *a);
/* What its records are called; the caller's. */
char *agent_title(const struct agent *a);

/* --- listen.c: what is told is told from the loop, in the order in which it happened --- */

/* text: for people. */
void agent_tell_fail(struct agent *a, const char *turn, const json_t *text, const json_t *user_ids);
void agent_tell_end(struct agent *a, const struct agent_turn_end *end, bool ran);
/* What the history is when they are told, unless agent_keep_messages() comes first. */
void agent_tell_messages(struct agent *a, const struct agent_listener *except);
void agent_keep_messages(struct agent *a);
void agent_tell_state(struct agent *a, const struct agent_listener *except);
void agent_tell_clear(struct agent *a, const struct agent_listener *except);
/* At once, or behind what is still to be told: from the loop only. */
void agent_tell_chunk(struct agent *a, const char *turn, size_t seq, const char *json, size_t len);
/* What is still to be told: all of it, or up to the next large one for one listener. */
void agent_tell_now(struct agent *a);
void agent_tell_some(struct agent *a);

/* --- rpc.c --- */

/* The calls under way end soon, with an error. */
void rpcs_end(struct agent *a);

/* --- state.c --- */

/* Takes the stored state over if it is still what a sync would find. */
void agent_state_load(struct agent *a);
/* Frees what can be read again. */
void agent_state_rest(struct agent *a);
void agent_state_finish(struct agent *a);
/* From now on the stored state may be wrong, until the next sync. */
void agent_state_spoil(struct agent *a);
/* In the caller's transaction. */
int agent_state_store(struct agent *a, struct err *err);
/* Those who waited for the first state are called: from the loop. */
void agent_tell_ready(struct agent *a);

/* --- sync.c --- */

/* Reads the state again. turn_waits: turns_release() is called, from the loop, when it was told. */
void agent_sync(struct agent *a, bool turn_waits);
bool sync_is_idle(const struct sync *s);
/* The turn waits no more. */
void sync_forget_turn(struct sync *s);
void sync_finish(struct sync *s);

/* --- tools.c --- */

struct tool_env *agent_tools(struct agent *a, const char *key);
/* Frees what can be made again, unless a tool is at work. */
void agent_tools_rest(struct agent *a);
void agent_tools_finish(struct agent *a);
/* Writes what its programs have done, in the caller's transaction. */
int executions_write(struct agent *a, struct err *err);
/* They are written, or cannot be. */
void executions_forget(struct agent *a);

/* --- turn.c --- */

struct turn_ask {
    const struct agent_listener *from; /* or NULL */
    const char *id;
    struct model_info model; /* without a name: the agent's, as it is when the turn starts */
    json_t *user_ids;        /* of the messages that it answers */
    const struct agent_chat *chat;
};
/* Fails if a history of that size is larger than it may be. */
int agent_check_size(const struct agent *a, const struct history_size *size, struct err *err);
/* Puts the messages of the request into the history, within the caller's transaction. is_all: they
 * are what it has now, in its order. */
int agent_take_messages(struct agent *a, const struct agent_chat *chat, bool *ret_is_all,
                        struct err *err);
/* Whether another may be queued under this id. */
int turns_check(const struct agent *a, const char *id, struct err *err);
/* The model of this name, if a client may choose it. */
int turns_choose(const struct agent *a, const char *model, struct model_info *ret_info,
                 struct err *err);
int turns_add(struct agent *a, const struct turn_ask *ask, struct err *err);
/* A turn that the end of the server cut off is marked. */
void turn_mark_cut(struct agent *a);
/* Ends every turn, those that wait first. error may be NULL: they were stopped. */
void turns_end(struct agent *a, const char *error);
/* The message of the turn that runs is saved, if that was put off. */
void turns_save(struct agent *a);
/* A program of the running turn has ended: its result is told when the state is. */
void turns_hold(struct agent *a);
/* It is. */
void turns_release(struct agent *a);
void turns_forget_listener(struct agent *a, const struct agent_listener *l);
