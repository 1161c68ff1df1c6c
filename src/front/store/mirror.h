#pragma once
/* Copies of artifacts in a bucket of any server that speaks S3. What is to be sent, and what is to
 * be removed there, is in the store itself ("stored" of a blob), so that it goes on after a crash:
 * an artifact that was committed is sent in the end, and what a record's end has made needless is
 * removed in the end. Objects are named by the artifact's hash, which is what the request signs as
 * the hash of its body: the server refuses what it did not get whole.
 *
 * The local file stays: it is what is read. */

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
    uint64_t sent, removed, failed;
    char error[200]; /* of the last failure; "" when the last one went well */
};

/* NULL: there is none in the settings. */
struct mirror *mirror_create(const struct mirror_options *options);
struct mirror_stats mirror_stats(const struct mirror *b);
/* What is under way begins anew next time. NULL is allowed. Before the store is closed. */
void mirror_close(struct mirror *b);
