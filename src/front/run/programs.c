#include "front/run/programs.h"

#include "base/mem.h"
#include "front/common/digest.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 4096 };

struct entry {
    unsigned char hash[PROGRAM_HASH_SIZE];
    struct entry *next_in_bucket;
    struct entry *newer;
    struct entry *older;
    struct program *program;
};

struct programs {
    size_t max_bytes;
    size_t bytes;
    size_t count;
    struct entry *newest;
    struct entry *oldest;
    struct entry *buckets[BUCKETS];
};

struct program *program_create(const void *data, size_t len) {
    struct program *p = xmalloc(sizeof(*p) + len);
    p->refs = 1;
    p->len = len;
    memcpy(p->data, data, len);
    return p;
}

void program_unref(struct program *p) {
    if (p && --p->refs == 0)
        free(p);
}

struct program *program_ref(struct program *p) {
    p->refs++;
    return p;
}

struct programs *programs_create(size_t max_bytes) {
    struct programs *all = xcalloc(1, sizeof(*all));
    all->max_bytes = max_bytes;
    return all;
}

void programs_hash(const void *request, size_t len, unsigned char ret_hash[PROGRAM_HASH_SIZE]) {
    digest_sha256(request, len, ret_hash);
}

static struct entry **bucket_of(struct programs *all, const unsigned char *hash) {
    return &all->buckets[((unsigned)hash[0] << 8 | hash[1]) % BUCKETS];
}

static void unlink_entry(struct programs *all, struct entry *e) {
    *(e->newer ? &e->newer->older : &all->newest) = e->older;
    *(e->older ? &e->older->newer : &all->oldest) = e->newer;
}

static void push_newest(struct programs *all, struct entry *e) {
    e->newer = NULL;
    e->older = all->newest;
    *(all->newest ? &all->newest->newer : &all->oldest) = e;
    all->newest = e;
}

struct program *programs_get(struct programs *all, const unsigned char *hash) {
    for (struct entry *e = *bucket_of(all, hash); e; e = e->next_in_bucket)
        if (memcmp(e->hash, hash, PROGRAM_HASH_SIZE) == 0) {
            unlink_entry(all, e);
            push_newest(all, e);
            return e->program;
        }
    return NULL;
}

static size_t programs_size_of(const struct program *p) {
    return p->len + sizeof(struct entry);
}

static void drop_oldest(struct programs *all) {
    struct entry *e = all->oldest;
    unlink_entry(all, e); // NOLINT(clang-analyzer-unix.Malloc): the oldest is never a freed one
    struct entry **p = bucket_of(all, e->hash);
    while (*p != e)
        p = &(*p)->next_in_bucket;
    *p = e->next_in_bucket;
    all->bytes -= programs_size_of(e->program);
    all->count--;
    program_unref(e->program);
    free(e); // NOLINT(clang-analyzer-unix.Malloc): it is in both lists, and out of both now
}

void programs_put(struct programs *all, const unsigned char *hash, struct program *p) {
    if (programs_size_of(p) > all->max_bytes || programs_get(all, hash))
        return;
    struct entry *e = xcalloc(1, sizeof(*e));
    memcpy(e->hash, hash, PROGRAM_HASH_SIZE);
    e->program = program_ref(p);
    struct entry **b = bucket_of(all, hash);
    e->next_in_bucket = *b;
    *b = e;
    push_newest(all, e);
    all->bytes += programs_size_of(p);
    all->count++;
    while (all->bytes > all->max_bytes)
        drop_oldest(all);
}

size_t programs_bytes(const struct programs *all) {
    return all->bytes;
}

size_t programs_count(const struct programs *all) {
    return all->count;
}

void programs_destroy(struct programs *all) {
    if (!all)
        return;
    while (all->oldest)
        drop_oldest(all);
    free(all);
}
