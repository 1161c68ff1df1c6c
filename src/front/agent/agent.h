#pragma once
/* Agent instances and their turns. An instance is (owner, type, name): it has a history, facets of
 * its own and a state that its listeners see. Turns of one instance run one after the other; a turn
 * goes on when the socket that asked for it is gone. */

#include "base/err.h"
#include "base/json.h"
#include "front/agent/definition.h"
#include "front/agent/history.h"
#include "front/agent/limits.h"
#include "front/agent/uimessage.h"
#include "front/common/intake.h"
#include "front/model/model.h"
#include "front/run/run.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct agents;
struct agent;

/* Nobody is called back inside a function of this header: what it sets off is told from the loop.
 * What it changes (the history, the queue, the instances there are) is changed when it returns, and
 * on the disk a little later: listeners hear of it then, and others wait with
 * agents_when_written(). */

struct agents_options {
    uv_loop_t *loop;
    struct runner *runner;
    struct jobs *jobs;
    struct models *models;
    struct accounts *accounts; /* NULL: what they spend is put down nowhere */
    struct intake *intake;     /* reads long histories; NULL: they are read at once */
    const struct agent_def *defs;
    const char *model; /* for agents that name none; NULL: the models' own default */
    const char *data_dir;
    struct agent_limits limits;
};

/* NULL if there is no thread to be had. */
struct agents *agents_create(const struct agents_options *options);
/* Ends every turn and forgets every listener, which hears so before this returns. */
void agents_destroy(struct agents *a);
/* From now on nothing new is accepted; turns that are under way or wait go on. */
void agents_refuse(struct agents *a);
/* Whether a turn is under way or waits, or somebody was not told yet of what happened. */
bool agents_are_busy(const struct agents *a);
/* For what begins from now on. */
void agents_set_limits(struct agents *a, const struct agent_limits *limits);
/* Calls back, from the loop, when everything is on the disk that was changed before. err: NULL, or
 * why the instance, which may be NULL, could not be written. */
void agents_when_written(struct agents *all, struct agent *a, struct history_wait *w,
                         void (*on_written)(void *ctx, const struct err *err), void *ctx);
const struct agent_def *agents_defs(const struct agents *a);

/* The instance, made if there is none yet. ERR_NOT_FOUND if there is no such type. Stays open while
 * it has listeners or a turn; the pointer is good until the loop goes on. */
int agents_get(struct agents *a, const char *owner, const char *type, const char *name,
               struct agent **ret_agent, struct err *err);
/* The same, but one that is not there is not made: *ret_agent is NULL then. */
int agents_find(struct agents *a, const char *owner, const char *type, const char *name,
                struct agent **ret_agent, struct err *err);
/* Ends the instance and removes what it has stored, its databases too. Those who listen to it hear
 * on_gone; until then only agent_unlisten() and agent_cancel_ready() may be called with it. */
int agents_remove(struct agents *a, const char *owner, const char *type, const char *name,
                  struct err *err);
/* Its databases as they were at the beginning; what was said stays. A turn that runs is ended. */
int agents_reset(struct agents *a, const char *owner, const char *type, const char *name,
                 struct err *err);
/* ERR_CONFLICT while it has a turn, or if there is one of the other name; ERR_UNAVAILABLE while it
 * is being written. Those who listen to it hear on_gone. */
int agents_rename(struct agents *a, const char *owner, const char *type, const char *name,
                  const char *to, struct err *err);
/* Names of the instances of a type, at most 1,000. One that was only looked at is not among them,
 * and goes when nobody looks at it any more. */
json_t *agents_names(struct agents *a, const char *owner, const char *type);

const struct agent_def *agent_def(const struct agent *a);
const char *agent_name(const struct agent *a);

struct agent_turn_end {
    const char *turn;
    const char *outcome;    /* NULL (whole), "error" or "aborted" */
    const json_t *user_ids; /* a list, of the messages that it was to answer */
    const json_t *message;  /* the assistant's: JSON, in a string; NULL: it has said nothing */
    int64_t retry_after_s;  /* of a model that failed: when it may go better; 0: nobody said */
    /* Why it was refused: by the key's account (ERR_QUOTA, ERR_RATE), or because it cannot be
     * written (ERR_FULL, ERR_IO); else 0. */
    enum err_code refusal;
};

/* What a listener hears. Pointers are borrowed. Each may be NULL. Inside one, agent_unlisten() and
 * agent_messages() may be called. */
struct agent_events {
    /* One chunk of the AI SDK's UI message stream. */
    void (*on_chunk)(void *ctx, const char *turn, size_t seq, const char *json, size_t len);
    /* The turn failed; text is for people. on_end follows. user_ids: a list, of the messages that
     * it was to answer. */
    void (*on_fail)(void *ctx, const char *turn, const char *text, const json_t *user_ids);
    /* The turn is over. */
    void (*on_end)(void *ctx, const struct agent_turn_end *end);
    /* The history changed other than by the listener's own doing. */
    void (*on_messages)(void *ctx, json_t *text); /* a string: JSON, which may be kept */
    void (*on_state)(void *ctx, json_t *text);    /* the same */
    void (*on_clear)(void *ctx);
    /* The instance is no more: the listener has left already. */
    void (*on_gone)(void *ctx);
};

struct agent_listener {
    struct agent_listener *next;
    struct agent *agent; /* NULL when it does not listen */
    const struct agent_events *events;
    void *ctx;
    bool waiting;         /* it has not asked for the running turn's stream yet */
    uint64_t since;       /* what had happened before it came is not for it */
    uint64_t knows_state; /* nor are states up to this one */
};

/* The listener's memory is the caller's. It may leave at any time, inside an event too. */
void agent_listen(struct agent *a, struct agent_listener *l);
void agent_unlisten(struct agent_listener *l);
/* What it is still to be told, now: before it reads the running turn's stream, which has the rest.
 */
void agent_catch_up(struct agent_listener *l);
/* False when it was removed, or is NULL. */
bool agent_is_open(const struct agent *a);

/* As JSON text, a string. Borrowed until the next call. NULL while the agent has no state. */
const json_t *agent_state(struct agent *a);
/* The same, for a listener: it is not told of this state, or of an earlier one. */
const json_t *agent_state_for(struct agent_listener *l);
/* Calls back, from the loop, when the state has been read for the first time. */
void agent_when_ready(struct agent *a, void (*cb)(void *ctx), void *ctx);
void agent_cancel_ready(struct agent *a, const void *ctx);
/* A client's state replaces ours; others are told. state: as agent_state() has it, or NULL. */
int agent_set_state(struct agent *a, const struct agent_listener *from, json_t *state,
                    struct err *err);

/* As a JSON array, appended to out. */
int agent_messages(struct agent *a, struct buf *out, struct err *err);
/* Replaces the history; others are told. */
int agent_set_messages(struct agent *a, const struct agent_listener *from,
                       const struct uimessages *messages, struct err *err);
int agent_clear(struct agent *a, const struct agent_listener *from, struct err *err);

struct agent_chat {
    const char *key;             /* that asks, and pays; "" for the operator */
    const char *turn;            /* the client's id for it */
    struct uimessages *messages; /* whose texts may be taken */
    const char *model;           /* that is to answer; NULL: the agent's */
    bool whole; /* messages is the client's whole history: what it has dropped goes here too */
    bool regenerate;
};
/* Queues a turn. from may be NULL. */
int agent_chat(struct agent *a, const struct agent_listener *from, const struct agent_chat *chat,
               struct err *err);
/* Stops the turn, running or queued. False if there is none. */
bool agent_cancel(struct agent *a, const char *turn);
/* The id of the running turn, or NULL; and its stream so far, with adjacent deltas joined. */
const char *agent_turn(const struct agent *a);
size_t agent_chunk_count(const struct agent *a);
const char *agent_chunk(const struct agent *a, size_t i, size_t *ret_seq, size_t *ret_len);

/* A callable method of agent.json. The answer is JSON or an error text; it comes from the loop, and
 * always. */
typedef void (*agent_rpc_done)(void *ctx, const char *result, size_t len, const json_t *error);
/* args: a JSON array. */
void agent_rpc(struct agent *a, const char *method, const char *args, agent_rpc_done done,
               void *ctx);
