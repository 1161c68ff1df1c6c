#pragma once
/* The AI SDK's view of a dialog: the UI message stream in chunks, which are kept for those who join
 * later (adjacent deltas joined), and the assistant's UIMessage that they add up to. */

#include "base/json.h"
#include "front/dialog/dialog.h"

#include <stdbool.h>
#include <stddef.h>

struct chunks;

struct chunks_events {
    void (*on_chunk)(void *ctx, size_t seq, const char *json, size_t len);
    /* The message so far is worth keeping. */
    void (*on_save)(void *ctx, const char *json, size_t len);
    /* The stream has reached its limit; chunks_failure() says so. No more chunks come. */
    void (*on_full)(void *ctx);
    /* What the message says of itself besides, when it is over: an object, the caller's. Asked
     * once. */
    json_t *(*metadata)(void *ctx);
    void (*on_end)(void *ctx, const struct dialog_end *end);
};

struct chunks_options {
    size_t max_bytes;
    const struct chunks_events *events;
    void *ctx;
};

extern const struct dialog_view chunks_view; /* its ctx is the chunks */

struct chunks *chunks_create(const struct chunks_options *options);
void chunks_destroy(struct chunks *c);
/* The first chunk: from the loop. */
void chunks_begin(struct chunks *c);
/* The end of the message. error: a text that says what went wrong; else aborted: it was stopped;
 * else it is whole. */
void chunks_close(struct chunks *c, const json_t *error, bool aborted);
/* Keeps back what comes, for what has to be told before it... */
void chunks_hold(struct chunks *c);
/* ...and tells it: from the loop. */
void chunks_release(struct chunks *c);
/* Has the message saved, if it was put off. */
void chunks_save(struct chunks *c);
/* Closes the calls of a message that no answer will come to any more. */
void chunks_settle(json_t *message);

const char *chunks_message_id(const struct chunks *c);
/* When it was closed: JSON, in a string. NULL: there is nothing in it. */
const json_t *chunks_message(const struct chunks *c);
/* Why the stream ended before the dialog did, or NULL. */
const char *chunks_failure(const struct chunks *c);
/* Those that were told. */
size_t chunks_count(const struct chunks *c);
const char *chunks_get(const struct chunks *c, size_t i, size_t *ret_seq, size_t *ret_len);
