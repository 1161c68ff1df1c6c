#pragma once
/* Copies of artifacts in a bucket of any server that speaks S3. What is to be sent, and what is to
 * be removed there, is in the store itself ("stored" of a blob), so that it goes on after a crash:
 * an artifact that was committed is sent in the end, and what a record's end has made needless is
 * removed in the end. Objects are named by the artifact's hash, which is what the request signs as
 * the hash of its body: the server refuses what it did not get whole.
 *
 * The local file stays: it is what is read. One that was lost, or is damaged, is got back from
 * there when it is asked for. */

#include "front/store/store.h"

#include <uv.h>

struct mirror;

struct mirror_options {
    uv_loop_t *loop;
    struct store *store; /* of whose settings "bucket" says where it is */
    const char *key;     /* the access key's id, and its secret: copied */
    const char *secret;
};

struct mirror_stats {
    int64_t waiting; /* to be sent or removed */
    uint64_t sent, removed, failed, recalled;
    char error[200]; /* of the last failure; "" when the last one went well */
};

/* NULL: there is none in the settings. */
struct mirror *mirror_create(const struct mirror_options *options);
/* Whether it was sent, and is not to be removed. NULL has nothing. */
bool mirror_has(const struct mirror *b, const char *hash);
struct mirror_recall;
/* Has the file of an artifact that was lost brought back. The answer comes from the loop, once,
 * unless it is cancelled before; ERR_RATE if too many are under way. */
int mirror_recall(struct mirror *b, const char *hash, int64_t bytes,
                  void (*on_back)(void *ctx, const struct err *err), void *ctx,
                  struct mirror_recall **ret_recall, struct err *err);
/* Nobody waits for it any more. NULL is allowed; before mirror_close(). */
void mirror_recall_cancel(struct mirror_recall *r);
struct mirror_stats mirror_stats(const struct mirror *b);
/* What is under way begins anew next time. NULL is allowed. Before the store is closed. */
void mirror_close(struct mirror *b);
