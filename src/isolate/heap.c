#include "isolate/heap.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define OWN_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OWN_MALLOC 0
#endif
#endif
#ifndef OWN_MALLOC
#define OWN_MALLOC 1
#endif

#if !OWN_MALLOC

static int unsupported(struct err *err) {
    return err_set(err, ERR_UNSUPPORTED, "a sanitizer has the heap");
}

int heap_begin(const struct heap_plan *plan, struct err *err) {
    (void)plan;
    return unsupported(err);
}

void heap_end(void) {
}

int heap_watch(struct err *err) {
    return unsupported(err);
}

int heap_learn(struct heap_plan *ret_plan, struct err *err) {
    (void)ret_plan;
    return unsupported(err);
}

void heap_forget(void) {
}

#else

#define ARENA_SIZE ((size_t)2 << 20)
enum {
    GRAIN = 16,          /* of libc's allocator */
    GATHERED_MAX = 4096, /* a larger one has pages of its own */
    NOTES_MAX = 1 << 18,
    ORDINAL_BITS = 18,
};

/* glibc's own, under the names that it keeps for those who put theirs in front. */
extern void *__libc_malloc(size_t n);                     // NOLINT(bugprone-reserved-identifier)
extern void *__libc_calloc(size_t count, size_t n);       // NOLINT(bugprone-reserved-identifier)
extern void *__libc_realloc(void *p, size_t n);           // NOLINT(bugprone-reserved-identifier)
extern void *__libc_memalign(size_t alignment, size_t n); // NOLINT(bugprone-reserved-identifier)
extern void __libc_free(void *p);                         // NOLINT(bugprone-reserved-identifier)

struct note {
    uintptr_t at;
    uint32_t size;
    uint32_t name; /* 0: stays where it is */
};

static struct {
    bool naming;
    uint32_t made[GATHERED_MAX + 1]; /* so far, of each size */
    uint16_t next[GATHERED_MAX + 1]; /* where the plan goes on for that size */
    const struct heap_plan *plan;
    char *arena;
    size_t used;
    struct note *notes;
    uint32_t nnotes;
    uintptr_t start; /* of libc's heap, from when naming began */
    uintptr_t end;
    char *copy; /* of it */
} heap;

static void *map(size_t n) {
    void *p =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* ---- blocks of the collected heap ---- */

/* The engine asks for its blocks one by one, each aligned to its size. From libc every second one
 * would be lost to the head before the next. Here they lie side by side in chunks. */
#define BLOCK_SIZE ((size_t)16384)
#define CHUNK_SIZE ((size_t)1 << 20)
enum { CHUNKS_MAX = 16384, KEPT_BLOCKS = 64 };

struct free_block {
    struct free_block *next;
};

static struct {
    struct free_block *free;
    size_t nfree;
    char *fresh; /* the rest of the newest chunk */
    char *fresh_end;
    uintptr_t chunks[CHUNKS_MAX]; /* a hash table by address */
    size_t nchunks;
} blocks;

static size_t chunk_slot(uintptr_t base) {
    size_t i = base / CHUNK_SIZE * 0x9e3779b1u % CHUNKS_MAX;
    while (blocks.chunks[i] && blocks.chunks[i] != base)
        i = (i + 1) % CHUNKS_MAX;
    return i;
}

static bool is_block(const void *p) {
    uintptr_t at = (uintptr_t)p;
    return at % BLOCK_SIZE == 0 && p && blocks.chunks[chunk_slot(at / CHUNK_SIZE * CHUNK_SIZE)];
}

static bool add_chunk(void) {
    if (blocks.nchunks == CHUNKS_MAX / 2)
        return false;
    /* Next to the last one there is room as a rule. */
    void *hint = blocks.fresh_end ? blocks.fresh_end - 2 * CHUNK_SIZE : NULL;
    char *p = mmap(hint, CHUNK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return false;
    if ((uintptr_t)p % CHUNK_SIZE != 0) {
        (void)munmap(p, CHUNK_SIZE);
        p = map(2 * CHUNK_SIZE);
        if (!p)
            return false;
        char *end = p + 2 * CHUNK_SIZE;
        char *at = p + (CHUNK_SIZE - (uintptr_t)p % CHUNK_SIZE) % CHUNK_SIZE;
        if (at > p)
            (void)munmap(p, (size_t)(at - p));
        (void)munmap(at + CHUNK_SIZE, (size_t)(end - at) - CHUNK_SIZE);
        p = at;
    }
    blocks.chunks[chunk_slot((uintptr_t)p)] = (uintptr_t)p;
    blocks.nchunks++;
    blocks.fresh = p;
    blocks.fresh_end = p + CHUNK_SIZE;
    return true;
}

static void *take_block(void) {
    struct free_block *b = blocks.free;
    if (b) {
        blocks.free = b->next;
        blocks.nfree--;
        return b;
    }
    if (blocks.fresh == blocks.fresh_end && !add_chunk())
        return NULL;
    void *p = blocks.fresh;
    blocks.fresh += BLOCK_SIZE;
    return p;
}

static void drop_block(void *p) {
    struct free_block *b = p;
    if (blocks.nfree >= KEPT_BLOCKS)
        (void)madvise(p, BLOCK_SIZE, MADV_DONTNEED);
    b->next = blocks.free;
    blocks.free = b;
    blocks.nfree++;
}

/* ---- the allocator ---- */

/* What is gathered has its size before it, and is never given back: it lives as long as the
 * zygote. */
static void *gather(size_t n) {
    size_t room = GRAIN + (n + GRAIN - 1) / GRAIN * GRAIN;
    if (heap.used + room > ARENA_SIZE)
        return NULL;
    char *p = heap.arena + heap.used;
    heap.used += room;
    memcpy(p, &n, sizeof(n));
    return p + GRAIN;
}

static bool is_gathered(const void *p) {
    return heap.arena && (uintptr_t)p - (uintptr_t)heap.arena < ARENA_SIZE;
}

static size_t gathered_size(const void *p) {
    size_t n;
    memcpy(&n, (const char *)p - GRAIN, sizeof(n));
    return n;
}

/* An allocation that is made: its name, if it can be gathered. */
static uint32_t name(size_t n) {
    if (!heap.naming || n == 0 || n > GATHERED_MAX)
        return 0;
    uint32_t ordinal = ++heap.made[n];
    return ordinal >> ORDINAL_BITS ? 0 : (uint32_t)n << ORDINAL_BITS | ordinal;
}

/* A place for it, if the plan has one. */
static void *planned(uint32_t it, size_t n) {
    const struct heap_plan *plan = heap.plan;
    if (it == 0 || !plan)
        return NULL;
    uint16_t *at = &heap.next[n];
    while (*at < plan->count && plan->name[*at] < it)
        (*at)++;
    return *at < plan->count && plan->name[*at] == it ? gather(n) : NULL;
}

static void *noted(void *p, uint32_t it, size_t n) {
    if (heap.naming && heap.notes && heap.nnotes < NOTES_MAX && n <= UINT32_MAX)
        heap.notes[heap.nnotes++] = (struct note){(uintptr_t)p, (uint32_t)n, it};
    return p;
}

void *malloc(size_t n) {
    uint32_t it = name(n);
    void *p = planned(it, n);
    return p ? p : noted(__libc_malloc(n), it, n);
}

void *calloc(size_t count, size_t n) {
    size_t all;
    if (__builtin_mul_overflow(count, n, &all))
        return __libc_calloc(count, n);
    uint32_t it = name(all);
    void *p = planned(it, all); /* from the kernel, used once: zero */
    return p ? p : noted(__libc_calloc(count, n), it, all);
}

void free(void *p) {
    if (is_block(p))
        drop_block(p);
    else if (!is_gathered(p))
        __libc_free(p);
}

/* Into the arena, or out of it. */
static void *move(void *p, void *to, size_t n) {
    if (!to && n > 0)
        to = __libc_malloc(n);
    if (!to && n > 0)
        return NULL;
    size_t have = !p               ? 0
                  : is_gathered(p) ? gathered_size(p)
                  : is_block(p)    ? BLOCK_SIZE
                                   : malloc_usable_size(p);
    if (to && p)
        memcpy(to, p, MIN(have, n));
    free(p);
    return to;
}

void *realloc(void *p, size_t n) {
    uint32_t it = name(n);
    void *place = planned(it, n);
    if (place || is_gathered(p) || is_block(p))
        return move(p, place, n);
    return noted(__libc_realloc(p, n), it, n);
}

void *aligned_alloc(size_t alignment, size_t n) {
    if (alignment == BLOCK_SIZE && n == BLOCK_SIZE)
        return take_block();
    return noted(__libc_memalign(alignment, n), 0, n);
}

void *memalign(size_t alignment, size_t n) {
    return aligned_alloc(alignment, n);
}

int posix_memalign(void **ret_p, size_t alignment, size_t n) {
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)))
        return EINVAL;
    void *p = aligned_alloc(alignment, n);
    if (!p)
        return ENOMEM;
    *ret_p = p;
    return 0;
}

/* ---- learning ---- */

int heap_begin(const struct heap_plan *plan, struct err *err) {
    if (plan)
        heap.arena = map(ARENA_SIZE);
    else
        heap.notes = map(NOTES_MAX * sizeof(*heap.notes));
    if (!heap.arena && !heap.notes)
        return err_sys(err, "room for allocations");
    heap.plan = plan;
    uint32_t at = 0;
    for (uint32_t n = 0; plan && n <= GATHERED_MAX; n++) {
        while (at < plan->count && plan->name[at] >> ORDINAL_BITS < n)
            at++;
        heap.next[n] = (uint16_t)at;
    }
    heap.start = (uintptr_t)sbrk(0) / GRAIN * GRAIN;
    heap.naming = true;
    return 0;
}

void heap_end(void) {
    heap.naming = false;
}

int heap_watch(struct err *err) {
    heap.end = (uintptr_t)sbrk(0);
    heap.copy = map(heap.end - heap.start);
    if (!heap.notes || !heap.copy)
        return err_sys(err, "room for a copy of the heap");
    memcpy(heap.copy, (const void *)heap.start, heap.end - heap.start);
    return 0;
}

static int by_name(const void *a, const void *b) {
    const uint32_t *x = a;
    const uint32_t *y = b;
    return *x < *y ? -1 : *x > *y;
}

int heap_learn(struct heap_plan *ret_plan, struct err *err) {
    size_t grains = (heap.end - heap.start) / GRAIN;
    uint32_t *owner = map(grains * sizeof(*owner)); /* the note of a grain, from 1 on */
    bool *written = map(NOTES_MAX + 1);
    if (!owner || !written)
        return err_sys(err, "room for the owners of the heap");
    /* Room that was given back belongs to who had it last. */
    for (uint32_t i = 0; i < heap.nnotes; i++) {
        const struct note *n = &heap.notes[i];
        if (n->at < heap.start || n->at + n->size > heap.end)
            continue;
        size_t to = (n->at + n->size - heap.start + GRAIN - 1) / GRAIN;
        for (size_t g = (n->at - heap.start) / GRAIN; g < to && g < grains; g++)
            owner[g] = i + 1;
    }
    const char *now = (const char *)heap.start;
    for (size_t g = 0; g < grains; g++)
        if (owner[g] && memcmp(now + g * GRAIN, heap.copy + g * GRAIN, GRAIN) != 0)
            written[owner[g]] = true;
    uint32_t count = 0;
    for (uint32_t i = 0; i < heap.nnotes && count < HEAP_PLAN_MAX; i++)
        if (written[i + 1] && heap.notes[i].name)
            ret_plan->name[count++] = heap.notes[i].name;
    qsort(ret_plan->name, count, sizeof(ret_plan->name[0]), by_name);
    ret_plan->count = count;
    return 0;
}

void heap_forget(void) {
    if (heap.notes)
        (void)munmap(heap.notes, NOTES_MAX * sizeof(*heap.notes));
    heap.notes = NULL;
}

#endif
