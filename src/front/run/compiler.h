#pragma once
/* The client of cay-compile: modules in, a linked program out, with a cache (run/programs.h).
 *
 * Everybody's programs are compiled here, so nobody's may hold up the others': there are two
 * processes, one for small programs and one, started when it is needed, for the others and for
 * small ones that turn out to be slow; each does one program at a time; keys take turns. A program
 * may take so much processor time, whatever else the machine does meanwhile. When a process ends,
 * the program it was at is the cause, and the only one that pays. */

#include "base/err.h"
#include "front/run/programs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct compiler;
struct keeper_info;

/* Either a program (the caller gets a reference) or an error. error_json: what the compiler said,
 * for an error in the user's source; NULL otherwise. */
typedef void (*compiler_done)(void *ctx, struct program *program, const char *error_json,
                              const struct err *err);

struct compiler_options {
    uv_loop_t *loop;
    int exec_fd;
    size_t cache_bytes;
    size_t small_bytes;    /* of a request that counts as small */
    unsigned small_cpu_ms; /* until it does not any more */
    unsigned cpu_ms;
    unsigned timeout_ms;  /* by the clock: a process that does not answer is stuck */
    size_t waiting_bytes; /* of all requests together; a key may have a quarter of it */
    unsigned idle_ms;     /* until the process for large programs, which may have grown, goes */
    bool cold;            /* for one run: one process, and no time spent on warming up */
};

struct compiler_request {
    const char *source; /* the JSON text of src/wire/compile.h; borrowed during the call */
    size_t source_len;
    const unsigned char *hash; /* programs_hash() of it, if that is known; or NULL */
    const char *owner;         /* whose turn it takes: a key's id; borrowed during the call */
    compiler_done done;
    void *ctx;
};

struct compiler *compiler_create(const struct compiler_options *options);
/* Either the program is in the cache: then it is in *ret_program (a reference for the caller), NULL
 * is returned and done is never called. Or a ticket is returned, *ret_program is NULL, and done is
 * called once, later, from the loop; the ticket is good until then. */
struct compiler_ticket *compiler_compile(struct compiler *c, const struct compiler_request *request,
                                         struct program **ret_program);
/* done will not be called. NULL is allowed. */
void compiler_cancel(struct compiler_ticket *t);

struct compiler_stats {
    uint64_t hits, misses, failures;
    size_t cache_bytes;
    size_t cache_entries;
};
struct compiler_stats compiler_stats(const struct compiler *c);
void compiler_children(const struct compiler *c,
                       void (*on_child)(void *ctx, const struct keeper_info *info), void *ctx);
/* Ends the processes; nothing is called back but on_stopped. */
void compiler_stop(struct compiler *c, void (*on_stopped)(void *ctx), void *ctx);
/* After it has stopped. NULL is allowed. */
void compiler_destroy(struct compiler *c);
