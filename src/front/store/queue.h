#pragma once
/* The store's writes. An operation is a struct that begins with `struct store_op`; the file of its
 * subject defines it. store_submit() puts it into the queue, and the store's writer thread runs
 * what has gathered in one transaction.
 *
 * Everything here belongs to the loop, except `run`, which is called on the writer's thread and may
 * use the write connection (store_write_statement()) and its own operation, nothing else. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store;
struct store_op;

struct store_op_type {
    const char *name; /* for the log */
    bool durable;     /* its commit waits for the disk */
    bool begins;      /* new work: refused while nothing can be written, or too much waits */
    int (*run)(struct store *s, const struct store_op *op, struct err *err);
    void (*free)(struct store_op *op);
};

struct store_op {
    const struct store_op_type *type;
    struct store_op *next;
    struct store_op *prev;
    int64_t ticket;
    size_t bytes; /* of memory, about */
    struct err err;
    bool left_out; /* it cannot be written */
};

/* Takes the operation over. Without a writer thread it is done when this returns, and this is its
 * result. With one, only a refusal is an error: ERR_FULL or ERR_UNAVAILABLE of what begins. */
int store_submit(struct store *s, struct store_op *op, struct err *err);
/* The newest operation that waits and was not handed to the thread yet; NULL: there is none. Going
 * back by `prev`, one can be found and changed: what is written twice within a few milliseconds is
 * written once. */
struct store_op *store_queue_last(const struct store *s);
/* After a change of a waiting operation. */
void store_queue_resized(struct store *s, struct store_op *op, size_t bytes);
