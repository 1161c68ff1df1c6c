#pragma once
/* The client of cay-compile: modules in, a linked program out, with a cache by SHA-256 of the
 * request that is bounded in bytes. A request that takes too long ends the compiler's process; the
 * requests behind it are sent again to the next one. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct compiler;
struct keeper;

/* A linked program, shared and counted. */
struct program {
    unsigned refs;
    size_t len;
    char data[];
};
void program_unref(struct program *p);
struct program *program_ref(struct program *p);

/* Either a program (the caller gets a reference) or an error. error_json: what the compiler said,
 * for an error in the user's source; NULL otherwise. */
typedef void (*compiler_done)(void *ctx, struct program *program, const char *error_json,
                              const struct err *err);

struct compiler_options {
    uv_loop_t *loop;
    int exec_fd;
    bool drop;
    uid_t uid;
    gid_t gid;
    size_t cache_bytes;
    unsigned timeout_ms;
    bool cold; /* for one run: do not spend time on warming up */
};

struct compiler_request {
    const char *source; /* the JSON text of src/wire/compile.h; borrowed during the call */
    size_t source_len;
    const char *owner; /* whose program it is: a key's id; borrowed during the call */
    compiler_done done;
    void *ctx;
};

struct compiler *compiler_create(const struct compiler_options *options);
struct keeper *compiler_keeper(struct compiler *c);
/* Either the program is in the cache: then it is in *ret_program (a reference for the caller), NULL
 * is returned and done is never called. Or a ticket is returned, *ret_program is NULL, and done is
 * called once, later, from the loop; the ticket is good until then. */
struct compiler_ticket *compiler_compile(struct compiler *c, const struct compiler_request *request,
                                         struct program **ret_program);
/* done will not be called. */
void compiler_cancel(struct compiler_ticket *t);

struct compiler_stats {
    uint64_t hits, misses, failures;
    size_t cache_bytes;
    size_t cache_entries;
};
struct compiler_stats compiler_stats(const struct compiler *c);
/* Frees the cache; the keeper is stopped by its owner before. */
void compiler_destroy(struct compiler *c);
