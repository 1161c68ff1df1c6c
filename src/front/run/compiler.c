#include "front/run/compiler.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/keeper.h"
#include "wire/compile.h"

#include <openssl/sha.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

enum { BUCKETS = 4096, HASH_SIZE = SHA256_DIGEST_LENGTH, TRIES_MAX = 2, ERROR_MAX_BYTES = 65536 };

struct entry {
    unsigned char hash[HASH_SIZE];
    struct entry *next_in_bucket;
    struct entry *newer;
    struct entry *older;
    struct program *program;
};

struct compiler_ticket {
    struct compiler_ticket *next;
    uint64_t id;
    unsigned char hash[HASH_SIZE];
    compiler_done done; /* NULL when cancelled */
    void *ctx;
    unsigned tries;
    size_t len;
    char request[];
};

struct compiler {
    struct compiler_options opt;
    struct keeper *keeper;
    struct compiler_ticket *first; /* in the order they were sent */
    uint64_t next_id;
    uv_timer_t timer; /* for the first */
    struct entry *buckets[BUCKETS];
    struct entry *newest;
    struct entry *oldest;
    struct compiler_stats stats;
};

void program_unref(struct program *p) {
    if (p && --p->refs == 0)
        free(p);
}

struct program *program_ref(struct program *p) {
    p->refs++;
    return p;
}

/* --- the cache --- */

static struct entry **bucket_of(struct compiler *c, const unsigned char *hash) {
    return &c->buckets[((unsigned)hash[0] << 8 | hash[1]) % BUCKETS];
}

static void unlink_entry(struct compiler *c, struct entry *e) {
    *(e->newer ? &e->newer->older : &c->newest) = e->older;
    *(e->older ? &e->older->newer : &c->oldest) = e->newer;
}

static void push_newest(struct compiler *c, struct entry *e) {
    e->newer = NULL;
    e->older = c->newest;
    *(c->newest ? &c->newest->newer : &c->oldest) = e;
    c->newest = e;
}

static struct program *cache_get(struct compiler *c, const unsigned char *hash) {
    for (struct entry *e = *bucket_of(c, hash); e; e = e->next_in_bucket)
        if (memcmp(e->hash, hash, HASH_SIZE) == 0) {
            unlink_entry(c, e);
            push_newest(c, e);
            return e->program;
        }
    return NULL;
}

static void drop_oldest(struct compiler *c) {
    struct entry *e = c->oldest;
    unlink_entry(c, e); // NOLINT(clang-analyzer-unix.Malloc): the oldest is never a freed one
    struct entry **p = bucket_of(c, e->hash);
    while (*p != e)
        p = &(*p)->next_in_bucket;
    *p = e->next_in_bucket;
    c->stats.cache_bytes -= e->program->len + sizeof(*e);
    c->stats.cache_entries--;
    program_unref(e->program);
    free(e); // NOLINT(clang-analyzer-unix.Malloc): it is in both lists, and out of both now
}

static void cache_put(struct compiler *c, const unsigned char *hash, struct program *p) {
    size_t size = p->len + sizeof(struct entry);
    if (size > c->opt.cache_bytes || cache_get(c, hash))
        return;
    struct entry *e = xcalloc(1, sizeof(*e));
    memcpy(e->hash, hash, HASH_SIZE);
    e->program = program_ref(p);
    struct entry **b = bucket_of(c, hash);
    e->next_in_bucket = *b;
    *b = e;
    push_newest(c, e);
    c->stats.cache_bytes += size;
    c->stats.cache_entries++;
    while (c->stats.cache_bytes > c->opt.cache_bytes)
        drop_oldest(c);
}

/* --- the process --- */

static void on_timeout(uv_timer_t *t) {
    struct compiler *c = t->data;
    struct keeper_info k = keeper_info(c->keeper);
    log_warn("compile.timeout", "ms", c->opt.timeout_ms);
    /* The one at the head is to blame and is not tried again. */
    if (c->first)
        c->first->tries = TRIES_MAX;
    if (k.pid > 0)
        (void)kill(k.pid, SIGKILL);
}

static void arm(struct compiler *c) {
    if (c->first)
        (void)uv_timer_start(&c->timer, on_timeout, c->opt.timeout_ms, 0);
    else
        (void)uv_timer_stop(&c->timer);
}

static void finish(struct compiler_ticket *t, struct program *program, const char *error_json,
                   const struct err *err) {
    if (t->done)
        t->done(t->ctx, program, error_json, err);
    else
        program_unref(program);
    free(t);
}

static bool send_request(struct compiler *c, struct compiler_ticket *t) {
    struct channel *ch = keeper_channel(c->keeper);
    struct wire_out out = {.type = COMPILE_REQUEST, .id = t->id, .pieces = {{t->request, t->len}}};
    t->tries++;
    return ch && channel_send(ch, &out);
}

static void on_start(void *ctx, struct channel *channel) {
    (void)channel;
    struct compiler *c = ctx;
    for (struct compiler_ticket *t = c->first; t; t = t->next)
        (void)send_request(c, t);
    arm(c);
}

/* This process is gone: those that may try again wait for the next one. */
static void on_end(void *ctx) {
    struct compiler *c = ctx;
    struct compiler_ticket **p = &c->first;
    struct compiler_ticket *failed = NULL;
    while (*p) {
        struct compiler_ticket *t = *p;
        if (t->tries >= TRIES_MAX || !t->done) {
            *p = t->next;
            t->next = failed;
            failed = t;
        } else {
            p = &t->next;
        }
    }
    (void)uv_timer_stop(&c->timer);
    struct err err;
    (void)err_set(&err, ERR_LIMIT, "compiling took longer than %u ms", c->opt.timeout_ms);
    while (failed) {
        struct compiler_ticket *t = failed;
        failed = t->next;
        c->stats.failures++;
        finish(t, NULL, NULL, &err);
    }
}

static void on_frame(void *ctx, struct wire_frame *f) {
    struct compiler *c = ctx;
    struct compiler_ticket *t = c->first;
    if (f->type == COMPILE_READY || !t || f->id != t->id)
        return;
    c->first = t->next;
    arm(c);
    if (f->type == COMPILE_PROGRAM) {
        struct program *p = xmalloc(sizeof(*p) + f->len);
        p->refs = 1;
        p->len = f->len;
        memcpy(p->data, f->data, f->len);
        cache_put(c, t->hash, p);
        finish(t, p, NULL, NULL);
        return;
    }
    c->stats.failures++;
    _cleanup_(free) char *json = xstrndup((const char *)f->data, MIN(f->len, ERROR_MAX_BYTES));
    struct err err;
    (void)err_set(&err, ERR_BAD_REQUEST, "the program does not compile");
    finish(t, NULL, json, &err);
}

struct compiler *compiler_create(const struct compiler_options *options) {
    struct compiler *c = xcalloc(1, sizeof(*c));
    c->opt = *options;
    (void)uv_timer_init(options->loop, &c->timer);
    c->timer.data = c;
    static const char *const cold[] = {"--cold", NULL};
    c->keeper = keeper_create(options->loop, &(struct keeper_options){
                                                 .name = "cay-compile",
                                                 .exec_fd = options->exec_fd,
                                                 .args = options->cold ? cold : NULL,
                                                 .drop = options->drop,
                                                 .uid = options->uid,
                                                 .gid = options->gid,
                                                 .max_frame_bytes = COMPILE_FRAME_MAX,
                                                 .max_queue_bytes = 4 * (size_t)COMPILE_FRAME_MAX,
                                                 .on_start = on_start,
                                                 .on_frame = on_frame,
                                                 .on_end = on_end,
                                                 .ctx = c,
                                             });
    return c;
}

struct keeper *compiler_keeper(struct compiler *c) {
    return c->keeper;
}

struct compiler_ticket *compiler_compile(struct compiler *c, const struct compiler_request *request,
                                         struct program **ret_program) {
    unsigned char hash[HASH_SIZE];
    (void)SHA256((const unsigned char *)request->source, request->source_len, hash);
    struct program *hit = cache_get(c, hash);
    if (hit) {
        c->stats.hits++;
        *ret_program = program_ref(hit);
        return NULL;
    }
    c->stats.misses++;
    *ret_program = NULL;
    struct compiler_ticket *t = xmalloc(sizeof(*t) + request->source_len);
    *t = (struct compiler_ticket){
        .id = ++c->next_id, .done = request->done, .ctx = request->ctx, .len = request->source_len};
    memcpy(t->hash, hash, HASH_SIZE);
    memcpy(t->request, request->source, request->source_len);
    struct compiler_ticket **p = &c->first;
    bool alone = !*p;
    while (*p)
        p = &(*p)->next;
    *p = t;
    (void)send_request(c, t);
    if (alone)
        arm(c);
    return t;
}

void compiler_cancel(struct compiler_ticket *t) {
    if (t)
        t->done = NULL;
}

struct compiler_stats compiler_stats(const struct compiler *c) {
    return c->stats;
}

static void on_timer_closed(uv_handle_t *h) {
    free(h->data);
}

void compiler_destroy(struct compiler *c) {
    if (!c)
        return;
    while (c->oldest)
        drop_oldest(c);
    while (c->first) {
        struct compiler_ticket *t = c->first;
        c->first = t->next;
        free(t);
    }
    uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}
