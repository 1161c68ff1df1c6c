#pragma once
/* What sandboxes did on the network, in the store: numbered for each sandbox, kept by count for
 * each and for all together. What was let out and what was refused are counted apart, so that the
 * one cannot push out the other. Goes with the record of the sandbox. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store;
struct store_network;

struct store_network_limits {
    size_t each;  /* of either kind, for each sandbox */
    size_t total; /* refused ones go first, then the oldest */
};

/* The store is borrowed. */
struct store_network *store_network_create(struct store *s,
                                           const struct store_network_limits *limits);
void store_network_destroy(struct store_network *n);

struct store_network_event {
    char *sandbox;
    bool refused;
    char *json; /* one object */
};
/* All of them or none. */
int store_network_add(struct store_network *n, const struct store_network_event *events,
                      size_t count, struct err *err);

struct store_network_query {
    const char *sandbox;
    int64_t after; /* negative: the newest */
    size_t limit;
};
/* Oldest first. *ret_gone is how many of the sandbox's were there once. */
int store_network_list(struct store_network *n, const struct store_network_query *query,
                       void (*on_event)(void *ctx, int64_t seq, const char *json), void *ctx,
                       int64_t *ret_gone, struct err *err);
