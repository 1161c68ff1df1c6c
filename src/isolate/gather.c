#include "isolate/gather.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "isolate/embed.h"
#include "isolate/memory.h"
#include "isolate/reset.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef CAY_WITHOUT_GATHER

int gather_begin(const void *plan, size_t len, bool scouts, struct err *err) {
    (void)plan;
    (void)len;
    (void)scouts;
    return err_set(err, ERR_UNSUPPORTED, "this build does not gather allocations");
}

void gather_end(void) {
}

bool gather_seal(void) {
    return false;
}

bool gather_is_sealed(void) {
    return false;
}

int gather_scout(gather_rehearse rehearse, void *ctx, struct buf *plan, struct err *err) {
    (void)rehearse;
    (void)ctx;
    return gather_begin(plan, 0, true, err);
}

int gather_watch(struct err *err) {
    return gather_begin(NULL, 0, true, err);
}

int gather_note(struct err *err) {
    return gather_begin(NULL, 0, true, err);
}

#else

#define ARENA_SIZE   ((size_t)2 << 20)
#define WATCHED_SIZE ((size_t)256 << 20) /* of addresses */
#define PAGE         ((uintptr_t)4096)
enum {
    GRAIN = 16, /* of libc's allocator */
    GATHERED_MAX = 65535,
    NOTES_MAX = 1 << 18,
    HOLE_MAX = 1 << 18,
    ORDINAL_BITS = 16,
};

/* glibc's own, under the names that it keeps for those who put theirs in front. */
extern void *__libc_malloc(size_t n);                     // NOLINT(bugprone-reserved-identifier)
extern void *__libc_calloc(size_t count, size_t n);       // NOLINT(bugprone-reserved-identifier)
extern void *__libc_realloc(void *p, size_t n);           // NOLINT(bugprone-reserved-identifier)
extern void *__libc_memalign(size_t alignment, size_t n); // NOLINT(bugprone-reserved-identifier)
extern void __libc_free(void *p);                         // NOLINT(bugprone-reserved-identifier)

struct note {
    uintptr_t at;
    uint32_t size; /* 0: it was given back */
    uint32_t name; /* 0: stays where it is */
};

struct plan {
    uint32_t count;
    uint32_t name[GATHER_PLAN_MAX]; /* ascending */
};

static struct {
    bool on;
    bool naming;
    bool sealed;
    uint32_t made[GATHERED_MAX + 1]; /* so far, of each size */
    uint16_t next[GATHERED_MAX + 1]; /* where the plan goes on for that size */
    struct plan plan;
    struct plan *learnt; /* by a scout's rehearsals; shared with them, in no order, some twice */
    char *arena;
    size_t arena_size;
    size_t used;
    bool watched; /* a scout's child: all that it allocates comes from the arena */
    struct note *notes;
    uint32_t nnotes;
    uintptr_t start; /* of libc's heap, from when naming began */
    uintptr_t end;   /* of what lay there when naming ended */
} heap;

static void *isolate_gather_map(size_t n) {
    void *p =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* ---- blocks of the collected heap ---- */

/* The engine asks for its blocks one by one, each aligned to its size. From libc every second one
 * would be lost to the head before the next. Here they lie side by side in chunks. */
#define BLOCK_SIZE   ((size_t)16384)
#define CHUNK_SIZE   ((size_t)1 << 20)
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
        p = isolate_gather_map(2 * CHUNK_SIZE);
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

static void *isolate_gather_take_block(void) {
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
    if (blocks.nfree >= KEPT_BLOCKS) {
        (void)madvise(p, BLOCK_SIZE, MADV_DONTNEED);
        memory_returned();
    }
    b->next = blocks.free;
    blocks.free = b;
    blocks.nfree++;
}

/* ---- the allocator ---- */

/* What is gathered has its size before it, and is never given back: it lives as long as the
 * zygote. */
static void *gather_place(size_t n) {
    size_t room = GRAIN + (n + GRAIN - 1) / GRAIN * GRAIN;
    if (room < n || room > heap.arena_size - heap.used)
        return NULL;
    char *p = heap.arena + heap.used;
    heap.used += room;
    memcpy(p, &n, sizeof(n));
    return p + GRAIN;
}

static bool is_gathered(const void *p) {
    return heap.arena && (uintptr_t)p - (uintptr_t)heap.arena < heap.arena_size;
}

static size_t gathered_size(const void *p) {
    size_t n;
    memcpy(&n, (const char *)p - GRAIN, sizeof(n));
    return n;
}

/* An allocation that is made: its name, if it can be gathered. */
static uint32_t isolate_gather_name(size_t n) {
    if (!heap.naming || n == 0 || n > GATHERED_MAX)
        return 0;
    uint32_t ordinal = ++heap.made[n];
    return ordinal >> ORDINAL_BITS ? 0 : (uint32_t)n << ORDINAL_BITS | ordinal;
}

/* A place for it, if the plan has one. */
static void *isolate_gather_planned(uint32_t it, size_t n) {
    const struct plan *plan = &heap.plan;
    if (heap.watched)
        return gather_place(n);
    if (it == 0 || plan->count == 0)
        return NULL;
    uint16_t *at = &heap.next[n];
    while (*at < plan->count && plan->name[*at] < it)
        (*at)++;
    return *at < plan->count && plan->name[*at] == it ? gather_place(n) : NULL;
}

static void *isolate_gather_noted(void *p, uint32_t it, size_t n) {
    if (heap.notes && heap.naming && heap.nnotes < NOTES_MAX && n <= UINT32_MAX)
        heap.notes[heap.nnotes++] = (struct note){(uintptr_t)p, (uint32_t)n, it};
    return p;
}

static void *isolate_gather_refused(void) {
    errno = ENOMEM;
    return NULL;
}

void *malloc(size_t size) {
    heap.sealed = false;
    if (!memory_allow(size))
        return isolate_gather_refused();
    uint32_t it = isolate_gather_name(size);
    void *p = isolate_gather_planned(it, size);
    return p ? p : isolate_gather_noted(__libc_malloc(size), it, size);
}

void *calloc(size_t nmemb, size_t size) {
    size_t all;
    heap.sealed = false;
    if (__builtin_mul_overflow(nmemb, size, &all))
        return __libc_calloc(nmemb, size);
    if (!memory_allow(all))
        return isolate_gather_refused();
    uint32_t it = isolate_gather_name(all);
    void *p = isolate_gather_planned(it, all); /* from the kernel, used once: zero */
    return p ? p : isolate_gather_noted(__libc_calloc(nmemb, size), it, all);
}

void free(void *ptr) {
    heap.sealed = false;
    if (is_block(ptr)) {
        drop_block(ptr);
    } else if (!is_gathered(ptr)) {
        if (!ptr)
            return;
        (void)isolate_gather_noted(ptr, 0, 0);
        memory_before_free(ptr);
        __libc_free(ptr);
    }
}

/* Into the arena, or out of it. */
static void *isolate_gather_move(void *p, void *to, size_t n) {
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

/* From this size on libc may move an allocation by its pages, which causes no fault. */
enum { MOVED_MIN = 64 << 10 };

void *realloc(void *ptr, size_t size) {
    heap.sealed = false;
    size_t has = !ptr || is_gathered(ptr) || is_block(ptr) ? 0 : malloc_usable_size(ptr);
    if (size > has && !memory_allow(size - has))
        return isolate_gather_refused();
    if (size >= MOVED_MIN)
        reset_remapped();
    uint32_t it = isolate_gather_name(size);
    void *place = isolate_gather_planned(it, size);
    if (place || is_gathered(ptr) || is_block(ptr))
        return isolate_gather_move(ptr, place, size);
    if (ptr)
        (void)isolate_gather_noted(ptr, 0, 0);
    return isolate_gather_noted(__libc_realloc(ptr, size), it, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    heap.sealed = false;
    if (!memory_allow(size))
        return isolate_gather_refused();
    if (alignment == BLOCK_SIZE && size == BLOCK_SIZE && heap.on)
        return isolate_gather_take_block();
    return isolate_gather_noted(__libc_memalign(alignment, size), 0, size);
}

void *memalign(size_t alignment, size_t size) {
    return aligned_alloc(alignment, size);
}

int posix_memalign(void **memptr, size_t alignment, size_t size) {
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)))
        return EINVAL;
    void *p = aligned_alloc(alignment, size);
    if (!p)
        return ENOMEM;
    *memptr = p;
    return 0;
}

/* ---- learning ---- */

static void set_arena(size_t size) {
    heap.arena = isolate_gather_map(size);
    heap.arena_size = heap.arena ? size : 0;
    heap.used = 0;
}

static void find_starts(const struct plan *plan) {
    uint32_t at = 0;
    for (uint32_t n = 0; n <= GATHERED_MAX; n++) {
        while (at < plan->count && plan->name[at] >> ORDINAL_BITS < n)
            at++;
        heap.next[n] = (uint16_t)at;
    }
}

int gather_begin(const void *plan, size_t len, bool scouts, struct err *err) {
    bool gathers = len >= sizeof(uint32_t) && len <= sizeof(heap.plan.name) && !scouts;
    heap.on = true;
    heap.start = (uintptr_t)sbrk(0) / GRAIN * GRAIN;
    if (!gathers && !scouts)
        return 0;
    if (gathers)
        set_arena(ARENA_SIZE);
    else
        heap.notes = isolate_gather_map(NOTES_MAX * sizeof(*heap.notes));
    if (!heap.arena && !heap.notes)
        return err_sys(err, "room for allocations");
    if (gathers) {
        memcpy(heap.plan.name, plan, len);
        heap.plan.count = (uint32_t)(len / sizeof(heap.plan.name[0]));
        find_starts(&heap.plan);
    }
    heap.naming = true;
    return gathers;
}

/* Takes all room that was given back, so that what an isolate allocates comes from the end of the
 * heap, page by page, and not from holes everywhere. */
static void fill_holes(void) {
    uintptr_t end = (uintptr_t)sbrk(0) - mallinfo2().keepcost;
    heap.end = end / PAGE * PAGE;
    for (size_t n = HOLE_MAX; n >= GRAIN; n -= n > 1024 ? n / 4 / GRAIN * GRAIN : GRAIN)
        for (;;) {
            void *p = __libc_malloc(n - sizeof(size_t));
            if (p && (uintptr_t)p < end)
                continue;
            __libc_free(p);
            break;
        }
}

void gather_end(void) {
    heap.naming = false;
    if (heap.on)
        fill_holes();
}

bool gather_seal(void) {
    heap.sealed = true;
    return true;
}

bool gather_is_sealed(void) {
    return heap.sealed;
}

/* Pages are closed, and opened for one instruction at each write to them: that tells of every
 * write, also of one that changes nothing. */
static struct {
    bool *touched; /* by grain */
    char *open[4]; /* pages, until the instruction is over */
    size_t nopen;
} trap;

#ifdef __x86_64__

enum { TRAP_FLAG = 0x100 };

static void isolate_gather_on_write(int sig, siginfo_t *info, void *context) {
    (void)sig;
    ucontext_t *u = context;
    uintptr_t at = (uintptr_t)info->si_addr;
    if (at < heap.start || at >= heap.end || trap.nopen == ARRAY_LEN(trap.open))
        _exit(EXIT_FAILURE);
    trap.touched[(at - heap.start) / GRAIN] = true;
    char *page = (char *)(at / PAGE * PAGE);
    trap.open[trap.nopen++] = page;
    (void)mprotect(page, PAGE, PROT_READ | PROT_WRITE);
    u->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void isolate_gather_on_step(int sig, siginfo_t *info, void *context) {
    (void)sig;
    (void)info;
    ucontext_t *u = context;
    while (trap.nopen > 0)
        (void)mprotect(trap.open[--trap.nopen], PAGE, PROT_READ);
    u->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

static bool set_traps(void) {
    struct sigaction sa = {.sa_sigaction = isolate_gather_on_write,
                           .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct sigaction step = {.sa_sigaction = isolate_gather_on_step,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK};
    return sigaction(SIGSEGV, &sa, NULL) == 0 && sigaction(SIGTRAP, &step, NULL) == 0;
}

#else

static bool set_traps(void) {
    return false;
}

#endif

int gather_watch(struct err *err) {
    /* The kernel does not write to a closed page, it fails. What it writes to is allocated from
     * here on, but libc might take room for it that the program gave back: so it comes from
     * elsewhere. */
    set_arena(WATCHED_SIZE);
    heap.watched = heap.arena != NULL;
    uintptr_t from = (heap.start + PAGE - 1) / PAGE * PAGE;
    trap.touched = isolate_gather_map((heap.end - heap.start) / GRAIN);
    if (!heap.watched || !trap.touched || !set_traps())
        return err_set(err, ERR_UNSUPPORTED, "writes cannot be traced here");
    if (mprotect((void *)from, (heap.end - from) / PAGE * PAGE, PROT_READ) < 0)
        return err_sys(err, "close the heap");
    return 0;
}

/* The note of each grain that is in use, from 1 on. */
static uint32_t *find_owners(size_t grains) {
    uint32_t *owner = isolate_gather_map(grains * sizeof(*owner));
    for (uint32_t i = 0; owner && i < heap.nnotes; i++) {
        const struct note *n = &heap.notes[i];
        if (n->at < heap.start || n->at + n->size > heap.end)
            continue;
        size_t g = (n->at - heap.start) / GRAIN;
        uint32_t had = owner[g];
        size_t len = (n->size > 0 ? n->size : had ? heap.notes[had - 1].size : 0) + GRAIN - 1;
        for (size_t to = g + len / GRAIN; g < to && g < grains; g++)
            owner[g] = n->size > 0 ? i + 1 : 0;
    }
    return owner;
}

int gather_note(struct err *err) {
    struct plan *plan = heap.learnt;
    size_t grains = (heap.end - heap.start) / GRAIN;
    uint32_t *owner = find_owners(grains);
    bool *written = isolate_gather_map(NOTES_MAX + 1);
    if (!owner || !written)
        return err_sys(err, "room for the owners of the heap");
    for (size_t g = 0; g < grains; g++)
        if (trap.touched[g])
            written[owner[g]] = true;
    for (uint32_t i = 0; i < heap.nnotes && plan->count < GATHER_PLAN_MAX; i++)
        if (written[i + 1] && heap.notes[i].name)
            plan->name[plan->count++] = heap.notes[i].name;
    return 0;
}

static int isolate_gather_by_name(const void *a, const void *b) {
    const uint32_t *x = a;
    const uint32_t *y = b;
    return *x < *y ? -1 : *x > *y;
}

static void isolate_gather_sort(struct plan *plan) {
    qsort(plan->name, plan->count, sizeof(plan->name[0]), isolate_gather_by_name);
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->count; i++)
        if (n == 0 || plan->name[n - 1] != plan->name[i])
            plan->name[n++] = plan->name[i];
    plan->count = n;
}

int gather_scout(gather_rehearse rehearse, void *ctx, struct buf *plan, struct err *err) {
    void *room =
        mmap(NULL, sizeof(*heap.learnt), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return err_sys(err, "room for a plan");
    heap.learnt = room;
    static const char *const programs[] = {isolate_short_js, isolate_warm_js, isolate_other_js};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(programs); i++)
        rc = rehearse(ctx, programs[i], err);
    isolate_gather_sort(heap.learnt);
    (void)buf_add(plan, heap.learnt->name, heap.learnt->count * sizeof(heap.learnt->name[0]));
    (void)munmap(room, sizeof(*heap.learnt));
    (void)munmap(heap.notes, NOTES_MAX * sizeof(*heap.notes));
    heap.learnt = NULL;
    heap.notes = NULL;
    return rc;
}

#endif
