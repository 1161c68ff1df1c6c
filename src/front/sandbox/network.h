#pragma once
/* The way out of sandboxes: keeps cay-egress running and tells it what each sandbox may reach. A
 * line is one sandbox's: its listener, its policy and what it used. It outlives cay-egress: after a
 * restart everything is opened again, with the usage so far. What happened is in the store. */

#include "base/err.h"
#include "base/json.h"
#include "front/sandbox/settings.h"
#include "front/secrets.h"
#include "front/store/store.h"
#include "loop/keeper.h"
#include "wire/egress.h"

#include <uv.h>

struct network;
struct network_line;

struct network_options {
    uv_loop_t *loop;
    const struct sandbox_settings *settings;
    struct secrets *secrets;
    const json_t *models;       /* models.json, for prices; or NULL; borrowed */
    const json_t *private_also; /* "host:port" besides the settings'; or NULL; borrowed */
    struct store *store;        /* for events; borrowed */
    int exec_fd;                /* cay-egress, or -1: there is no network then; borrowed */
};

/* Fails if a route of the settings is malformed or lacks its secret. */
int network_create(const struct network_options *options, struct network **ret, struct err *err);
bool network_is_there(const struct network *n);
struct keeper_info network_info(const struct network *n);
/* Before everything is stopped: nothing is said to cay-egress any more, which ends soon. */
void network_hush(struct network *n);
void network_stop(struct network *n, void (*on_stopped)(void *ctx), void *ctx);

/* Reads {allow:[host], routes:[name]}; json NULL is nothing at all. The shown form is what a client
 * sees of it. */
int network_read(const struct network *n, const json_t *json, const json_t *grants,
                 struct egress_policy *ret_policy, json_t **ret_shown, struct err *err);
/* Adds a route of the server's own making, copied. */
void network_add_route(const struct network *n, struct egress_policy *p,
                       const struct egress_route *route);
/* What a model costs, unless the list of models tells it. */
void network_add_price(const struct network *n, struct egress_policy *p,
                       const struct egress_price *price);
/* Models may cost that much at most, if it is not 0 and less than what holds already. */
void network_cap_cost(struct egress_policy *p, double usd);
/* The same for tokens. */
void network_cap_tokens(struct egress_policy *p, uint64_t tokens);
/* What a line's models have used so far, with what is on its way at the worst. */
struct network_spent {
    uint64_t tokens_in, tokens_out, cost_nusd;
};
struct network_spent network_line_spent(const struct network_line *l);
/* A configured route that the key has. Borrowed. */
int network_find_route(const struct network *n, const char *name, const json_t *grants,
                       const struct egress_route **ret_route, struct err *err);
/* Whether the operator lets sandboxes reach the host of that address. */
int network_may_reach(const struct network *n, const char *url, struct err *err);
/* Takes listener and policy. */
struct network_line *network_open(struct network *n, const char *id, int listener,
                                  struct egress_policy *policy);
/* Takes the policy. cb: it holds now, or why it does not (the former one holds then). */
void network_line_set(struct network_line *l, struct egress_policy *policy,
                      void (*cb)(void *ctx, const struct err *err), void *ctx);
/* What happens on it is told to whoever opened it, and not kept. From the loop. */
void network_line_listen(struct network_line *l,
                         void (*told)(void *ctx, const struct egress_event *event), void *ctx);
void network_line_close(struct network_line *l);
/* What programs need in their environment to find the way out: adds "NAME=value" to env unless the
 * name is in one of the objects (which may be NULL). */
void network_line_env(const struct network_line *l, const json_t *over, const json_t *over2,
                      struct sandbox_strv *env);
/* {requests, refused, bytes_in, ...}; a new reference. */
json_t *network_line_usage(const struct network_line *l);

struct network_query {
    const char *sandbox; /* that is there, or was */
    int64_t after;       /* seq of the last one that was seen; negative: the newest */
    size_t limit;
};
/* Writes {"events":[...],"lost":n}, oldest first. */
int network_events(struct network *n, const struct network_query *query, struct buf *out,
                   struct err *err);
