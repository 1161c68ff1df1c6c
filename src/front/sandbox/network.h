#pragma once
/* The way out of sandboxes: keeps cay-egress running and tells it what each sandbox may reach. A
 * line is one sandbox's: its listener, its policy and what it used. It outlives cay-egress: after a
 * restart everything is opened again, with the usage so far. What happened is in the store. */

#include "base/err.h"
#include "base/json.h"
#include "front/common/secrets.h"
#include "front/model/catalog.h"
#include "front/sandbox/settings.h"
#include "front/store/store.h"
#include "loop/keeper.h"
#include "wire/egress.h"
#include "wire/sandbox.h"

#include <uv.h>

struct network;
struct network_line;

struct network_options {
    uv_loop_t *loop;
    const struct sandbox_settings *settings;
    struct secrets *secrets;
    const json_t *models; /* models.json, for prices; or NULL; borrowed */
    const json_t
        *private_also;   /* "host:port" besides the settings', for routes; or NULL; borrowed */
    struct store *store; /* for events; borrowed */
    int exec_fd;         /* cay-egress, or -1: there is no network then; borrowed */
};

/* Fails if a route of the settings is malformed or lacks its secret. */
int network_create(const struct network_options *options, struct network **ret, struct err *err);
bool network_is_there(const struct network *n);
struct keeper_info network_info(const struct network *n);
/* Before everything is stopped: nothing is said to cay-egress any more, which ends soon. */
void network_hush(struct network *n);
void network_stop(struct network *n, void (*on_stopped)(void *ctx), void *ctx);

/* What a sandbox is to reach; all zero is nothing at all. */
struct network_ask {
    struct sandbox_strv allow;  /* hosts */
    struct sandbox_strv routes; /* names of the settings' */
};
/* Fills a struct network_ask from {allow:[host], routes:[name]}; null leaves it as it is. */
int network_ask_read(const json_t *json, void *ask, struct err *err);
void network_ask_copy(const struct network_ask *from, struct network_ask *ret);
void network_ask_finish(struct network_ask *a);
/* What a client sees of it; a new reference. */
json_t *network_ask_show(const struct network_ask *a);
/* The policy that it comes to, within the settings and the key's grants. */
int network_resolve(const struct network *n, const struct network_ask *ask, const json_t *grants,
                    struct egress_policy *ret_policy, struct err *err);
/* Adds a route that is not among the configured ones, copied. */
void network_add_route(const struct network *n, struct egress_policy *p,
                       const struct egress_route *route);
/* The price of a model as cay-egress knows it; the name is borrowed. */
struct egress_price network_price(const char *model, const struct model_price *price);
/* What a model costs, unless the list of models tells it. */
void network_add_price(const struct network *n, struct egress_policy *p,
                       const struct egress_price *price);
/* Models may cost that much at most, if it is not 0 and less than what holds already. */
void network_cap_cost(struct egress_policy *p, double usd);
/* What a line's models have used so far, with what is on its way at the worst. */
struct network_spent {
    uint64_t tokens_in, tokens_out, cost_nusd;
};
struct network_spent network_line_spent(const struct network_line *l);
/* The same without what is on its way. */
struct network_spent network_line_ended(const struct network_line *l);
/* A configured route that the key has. Borrowed. */
int network_find_route(const struct network *n, const char *name, const json_t *grants,
                       const struct egress_route **ret_route, struct err *err);
/* Whether the operator has listed this host and port, or a pattern that covers it, in "allow": only
 * then may what a key has chosen lead to one of the private endpoints. */
bool network_names(const struct network *n, const struct egress_allow *a);
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
/* Who pays for what a line's models are asked, if its policy asks (struct egress_policy). A call
 * that waits is granted or refused by network_line_grant(), from the loop or later. */
struct network_payer {
    void (*on_ask)(void *ctx, uint64_t call, const struct egress_ask *ask);
    /* What it used. NULL: nobody knows, for cay-egress ended; what was granted counts. */
    void (*on_spent)(void *ctx, uint64_t call, const struct egress_spent *spent);
    /* The last: nothing comes any more. */
    void (*on_gone)(void *ctx);
};
/* Replaces the former payer, who is told that nothing comes any more. */
void network_line_set_payer(struct network_line *l, const struct network_payer *payer, void *ctx);
/* err NULL: granted, with at most so many tokens and billionths of a dollar. */
void network_line_grant(struct network_line *l, uint64_t call, int64_t tokens, int64_t nusd,
                        const struct err *err);
void network_line_close(struct network_line *l);
/* What programs need in their environment to find the way out: adds "NAME=value" to env unless the
 * name is in one of the other lists (which may be NULL). */
void network_line_env(const struct network_line *l, const struct sandbox_strv *over,
                      const struct sandbox_strv *over2, struct sandbox_strv *env);
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
