#pragma once
/* Agent instances and their turns. An instance is (owner, type, name): it has a history, facets of
 * its own and a state that its listeners see. Turns of one instance run one after the other; a turn
 * goes on when the socket that asked for it is gone. */

#include "base/err.h"
#include "base/json.h"
#include "front/agent/definition.h"
#include "front/model/model.h"
#include "front/run/run.h"
#include "front/store/store.h"

#include <stdbool.h>
#include <stddef.h>

struct agents;
struct agent;

struct agents_options {
    uv_loop_t *loop;
    struct runner *runner;
    struct store *store;
    struct models *models;
    const struct agent_def *defs;
    const char *model; /* for agents that name none; NULL: the models' own default */
    const char *data_dir;
};

struct agents *agents_create(const struct agents_options *options);
void agents_destroy(struct agents *a);
const struct agent_def *agents_defs(const struct agents *a);

/* The instance, opened if it is not. ERR_NOT_FOUND if there is no such type. Stays open while it
 * has listeners or a turn. */
int agents_get(struct agents *a, const char *owner, const char *type, const char *name,
               struct agent **ret_agent, struct err *err);
/* Names of the instances of a type that have a history. */
json_t *agents_names(struct agents *a, const char *owner, const char *type);

const struct agent_def *agent_def(const struct agent *a);
const char *agent_name(const struct agent *a);

/* What a listener hears. Pointers are borrowed. Each may be NULL. */
struct agent_events {
    /* One chunk of the AI SDK's UI message stream. */
    void (*on_chunk)(void *ctx, const char *turn, size_t seq, const char *json, size_t len);
    /* The turn failed; text is for people. on_end follows. */
    void (*on_fail)(void *ctx, const char *turn, const char *text);
    /* The turn is over: outcome NULL (whole), "error" or "aborted". user_ids: a list. */
    void (*on_end)(void *ctx, const char *turn, const char *outcome, const json_t *user_ids);
    /* The history changed other than by the listener's own doing. */
    void (*on_messages)(void *ctx, const json_t *messages);
    void (*on_state)(void *ctx, const json_t *state);
    void (*on_clear)(void *ctx);
};

struct agent_listener {
    struct agent_listener *next;
    struct agent *agent;
    const struct agent_events *events;
    void *ctx;
    bool waiting; /* it has not asked for the running turn's stream yet */
};

/* The listener's memory is the caller's. */
void agent_listen(struct agent *a, struct agent_listener *l);
void agent_unlisten(struct agent_listener *l);

/* Borrowed until the next call. NULL while the agent has no state. */
const json_t *agent_state(const struct agent *a);
/* Calls back when the state has been read for the first time. */
void agent_when_ready(struct agent *a, void (*cb)(void *ctx), void *ctx);
void agent_cancel_ready(struct agent *a, void *ctx);
/* A client's state replaces ours; others are told. */
int agent_set_state(struct agent *a, const struct agent_listener *from, const json_t *state,
                    struct err *err);

int agent_messages(struct agent *a, json_t **ret_messages, struct err *err);
/* Replaces the history; others are told. */
int agent_set_messages(struct agent *a, const struct agent_listener *from, const json_t *messages,
                       struct err *err);
int agent_clear(struct agent *a, const struct agent_listener *from, struct err *err);

struct agent_chat {
    const char *turn; /* the client's id for it */
    const json_t *messages;
    bool regenerate;
};
/* Queues a turn. from may be NULL. */
int agent_chat(struct agent *a, const struct agent_listener *from, const struct agent_chat *chat,
               struct err *err);
/* Stops the turn, running or queued. */
void agent_cancel(struct agent *a, const char *turn);
/* The id of the running turn, or NULL; and its chunks so far. */
const char *agent_turn(const struct agent *a);
size_t agent_chunk_count(const struct agent *a);
const char *agent_chunk(const struct agent *a, size_t i, size_t *ret_len);

/* A callable method of agent.json. The answer is JSON or an error text. */
typedef void (*agent_rpc_done)(void *ctx, const json_t *result, const char *error);
void agent_rpc(struct agent *a, const char *method, const json_t *args, agent_rpc_done done,
               void *ctx);

/* {"columns","rows"} of a facet as a list of objects. */
json_t *agent_rows(const char *json, size_t len);
