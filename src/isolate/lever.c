#include "isolate/lever.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "isolate/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define HUGE ((uintptr_t)2 << 20)
enum {
    PAGE = 4096,
    SELF = -10001, /* in the place of a pidfd: this process (Linux 6.14) */
};

/* ---- text ---- */

/* The kibibytes of huge pages behind the mapping that begins at `start`. */
static long huge_kib(int proc_fd, uintptr_t start) {
    _cleanup_(buf) struct buf text;
    buf_init(&text, 4 << 20);
    struct err err;
    if (fd_read_file(proc_fd, "self/smaps", &text, &err) < 0)
        return -1;
    char head[32];
    (void)snprintf(head, sizeof(head), "%lx-", (unsigned long)start);
    const char *at = strncmp(text.data, head, strlen(head)) == 0 ? text.data : NULL;
    if (!at) {
        (void)snprintf(head, sizeof(head), "\n%lx-", (unsigned long)start);
        at = strstr(text.data, head);
    }
    at = at ? strstr(at, "AnonHugePages:") : NULL;
    return at ? strtol(at + strlen("AnonHugePages:"), NULL, 10) : -1;
}

/* A copy of [start, end) in huge pages takes its place. The bounds are multiples of HUGE. */
static int move_to_huge(int proc_fd, uintptr_t start, uintptr_t end, int prot, struct err *err) {
    size_t len = end - start;
    char *room = mmap(NULL, len + HUGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return err_sys(err, "room for a copy of the text");
    uintptr_t at = ((uintptr_t)room + HUGE - 1) / HUGE * HUGE;
    char *copy = (char *)at;
    /* Trim, so that the copy is a mapping of its own. */
    if (at > (uintptr_t)room)
        (void)munmap(room, at - (uintptr_t)room);
    if (at + len < (uintptr_t)room + len + HUGE)
        (void)munmap(copy + len, (uintptr_t)room + HUGE - at);
    (void)madvise(copy, len, MADV_HUGEPAGE);
    memcpy(copy, (const void *)start, len);
    /* In small pages the copy would make every fork slower: rather none. */
    long have = huge_kib(proc_fd, at);
    if (have < (long)(len / 1024)) {
        (void)munmap(copy, len);
        return err_set(err, ERR_UNSUPPORTED, "no huge pages (%ld of %zu KiB)", have, len / 1024);
    }
    if (mprotect(copy, len, prot) < 0 ||
        mremap(copy, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) == MAP_FAILED) {
        int rc = err_sys(err, "move the text");
        (void)munmap(copy, len);
        return rc;
    }
    return 0;
}

int lever_text(int proc_fd, struct err *err) {
    static struct maps maps;
    _cleanup_(free) char *text = xmalloc(MAPS_TEXT_SIZE);
    int rc = maps_read(&maps, proc_fd, text, MAPS_TEXT_SIZE, err);
    size_t moved = 0;
    for (size_t i = 0; rc == 0 && i < maps.count; i++) {
        const struct map *m = &maps.map[i];
        if (!strstr(m->name, "libjavascriptcoregtk") || m->write || !m->read)
            continue;
        uintptr_t start = (m->start + HUGE - 1) / HUGE * HUGE;
        uintptr_t end = m->end / HUGE * HUGE;
        if (end <= start)
            continue;
        rc = move_to_huge(proc_fd, start, end, PROT_READ | (m->exec ? PROT_EXEC : 0), err);
        moved += rc == 0;
    }
    if (rc == 0 && moved == 0)
        return err_set(err, ERR_UNSUPPORTED, "the engine's library was not found");
    return rc;
}

/* ---- populate ---- */

enum {
    RANGES_MAX = 4096,
    STACK_MARGIN = 4 * PAGE,
};

struct range {
    uintptr_t start;
    size_t len;
    int advice;
    enum owner { OWNER_OTHER, OWNER_ENGINE, OWNER_STACK } owner;
};

struct lever_pages {
    size_t pages; /* that a run writes to */
    char *image;
    bool kept;          /* the image is good */
    struct iovec *fill; /* what it has, in its order */
    size_t nfill;
    size_t count;
    struct range range[];
};

struct lever_lesson {
    size_t count;
    size_t pages;
    struct range range[RANGES_MAX];
    /* Shared memory too: learning must not touch pages that a run does not. */
    struct {
        struct maps maps;
        char text[MAPS_TEXT_SIZE];
        uint64_t entry[65536];
    } scratch;
};

int lever_lesson_create(struct lever_lesson **ret_lesson, struct err *err) {
    void *l = mmap(NULL, sizeof(struct lever_lesson), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (l == MAP_FAILED)
        return err_sys(err, "room for the pages of a run");
    *ret_lesson = l;
    return 0;
}

void lever_lesson_destroy(struct lever_lesson *l) {
    if (l)
        (void)munmap(l, sizeof(*l));
}

static void add_page(struct lever_lesson *l, struct range page, uintptr_t bridge) {
    struct range *last = l->count > 0 ? &l->range[l->count - 1] : NULL;
    l->pages += page.advice == MADV_POPULATE_WRITE;
    if (last && last->advice == page.advice && last->owner == page.owner &&
        page.start >= last->start && page.start - (last->start + last->len) <= bridge * PAGE) {
        last->len = page.start + PAGE - last->start;
        return;
    }
    if (l->count < RANGES_MAX)
        l->range[l->count++] = page;
}

#define PAGEMAP_PRESENT   (1ull << 63)
#define PAGEMAP_FILE      (1ull << 61)
#define PAGEMAP_EXCLUSIVE (1ull << 56)

/* A page of a writable mapping that is ours alone was written by the run. A page of a file that is
 * there at all was read by it, because a fork takes none along. */
static int learn_map(struct lever_lesson *l, const struct map *m, enum owner owner,
                     int pagemap_fd) {
    uint64_t *entry = l->scratch.entry;
    const size_t max = ARRAY_LEN(l->scratch.entry);
    size_t pages = (m->end - m->start) / PAGE;
    for (size_t from = 0; from < pages; from += max) {
        size_t n = MIN(pages - from, max);
        ssize_t got = pread(pagemap_fd, entry, n * sizeof(*entry),
                            (off_t)((m->start / PAGE + from) * sizeof(*entry)));
        if (got != (ssize_t)(n * sizeof(*entry)))
            return -1;
        for (size_t i = 0; i < n; i++) {
            struct range page = {.start = m->start + (from + i) * PAGE, .len = PAGE};
            if (!(entry[i] & PAGEMAP_PRESENT))
                continue;
            page.owner = owner;
            page.advice = m->write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
            if (m->write && (entry[i] & PAGEMAP_EXCLUSIVE) && !(entry[i] & PAGEMAP_FILE))
                add_page(l, page, 0);
            else if (!m->write && (entry[i] & PAGEMAP_FILE))
                add_page(l, page, 4);
        }
    }
    return 0;
}

/* Nobody but the engine and malloc() write to its own: no variables, also not those that lie behind
 * the ones that a file has values for, and not what the kernel and libc have of a thread. */
static enum owner lever_owner_of(const struct map *m, const struct map *before) {
    if (strcmp(m->name, "[stack]") == 0)
        return OWNER_STACK;
    if (!m->write || m->shared || (m->name[0] && strcmp(m->name, "[heap]") != 0))
        return OWNER_OTHER;
    uintptr_t thread = (uintptr_t)__builtin_thread_pointer();
    bool variables = before && before->end == m->start && before->name[0] == '/';
    return variables || (thread >= m->start && thread < m->end) ? OWNER_OTHER : OWNER_ENGINE;
}

int lever_lesson_learn(struct lever_lesson *l, int proc_fd, struct err *err) {
    struct maps *maps = &l->scratch.maps;
    int rc = maps_read(maps, proc_fd, l->scratch.text, sizeof(l->scratch.text), err);
    if (rc < 0)
        return rc;
    _cleanup_(close) int fd = openat(proc_fd, "self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "open pagemap");
    l->count = l->pages = 0;
    for (size_t i = 0; i < maps->count; i++) {
        const struct map *m = &maps->map[i];
        if (!m->read || m->shared || strncmp(m->name, "[v", 2) == 0)
            continue;
        if (learn_map(l, m, lever_owner_of(m, i > 0 ? m - 1 : NULL), fd) < 0)
            return err_sys(err, "read pagemap");
    }
    return 0;
}

/* ---- the image ---- */

/* In a huge page if there is one: a fork takes that along as one entry. */
static char *map_image(size_t size) {
    size_t room = (size + HUGE - 1) / HUGE * HUGE;
    char *p =
        mmap(NULL, room + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    char *at = p + (HUGE - (uintptr_t)p % HUGE) % HUGE;
    if (at > p)
        (void)munmap(p, (size_t)(at - p));
    (void)munmap(at + room, (size_t)(p + HUGE - at));
    (void)madvise(at, room, MADV_HUGEPAGE);
    return at;
}

static bool is_present(uintptr_t page) {
    unsigned char v;
    return mincore((void *)page, PAGE, &v) == 0 && (v & 1);
}

/* The training child has mapped some itself. What the zygote maps may lie there later. */
static bool is_mapped(const struct range *r) {
    unsigned char v;
    for (size_t at = 0; at < r->len; at += PAGE)
        if (mincore((void *)(r->start + at), PAGE, &v) < 0)
            return false;
    return true;
}

int lever_pages_create(struct lever_lesson *l, struct lever_pages **ret_pages, struct err *err) {
    for (size_t i = 0; i < l->count; i++)
        if (l->range[i].owner == OWNER_ENGINE && !is_mapped(&l->range[i]))
            l->range[i].owner = OWNER_OTHER;
    size_t size = sizeof(struct lever_pages) + l->count * sizeof(l->range[0]);
    /* Not from malloc(): they are read while the heap is filled. */
    struct lever_pages *p = mmap(NULL, size + l->pages * sizeof(p->fill[0]), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *image = map_image((l->pages + 1) * PAGE);
    if (p == MAP_FAILED || !image)
        return err_sys(err, "room for the pages of a run");
    p->pages = l->pages;
    p->image = image;
    p->fill = (struct iovec *)((char *)p + size);
    p->count = l->count;
    memcpy(p->range, l->range, l->count * sizeof(p->range[0]));
    *ret_pages = p;
    return 0;
}

size_t lever_pages_count(const struct lever_pages *p) {
    return p->pages;
}

/* What is below is of calls that are over. */
static void drop_stack(const struct lever_pages *p) {
    uintptr_t end = (uintptr_t)__builtin_frame_address(0) / PAGE * PAGE - STACK_MARGIN;
    for (size_t i = 0; i < p->count; i++) {
        const struct range *r = &p->range[i];
        if (r->owner == OWNER_STACK && r->start < end)
            (void)madvise((void *)r->start, MIN(r->len, end - r->start), MADV_DONTNEED);
    }
}

/* A page that is not there is one of zeros in an isolate too. */
static void find_fill(struct lever_pages *p) {
    p->nfill = 0;
    for (size_t i = 0; i < p->count; i++) {
        const struct range *r = &p->range[i];
        struct iovec *last = NULL;
        for (uintptr_t at = r->start; at < r->start + r->len; at += PAGE) {
            if (r->owner != OWNER_ENGINE || !is_present(at)) {
                last = NULL;
            } else if (last) {
                last->iov_len += PAGE;
            } else {
                last = &p->fill[p->nfill++];
                *last = (struct iovec){(void *)at, PAGE};
            }
        }
    }
}

int lever_pages_keep(struct lever_pages *p, struct err *err) {
    p->kept = false;
    drop_stack(p);
    find_fill(p);
    if (mprotect(p->image, p->pages * PAGE, PROT_READ | PROT_WRITE) < 0)
        return err_sys(err, "open the image of the engine");
    char *to = p->image;
    for (size_t i = 0; i < p->nfill; to += p->fill[i++].iov_len)
        memcpy(to, p->fill[i].iov_base, p->fill[i].iov_len);
    if (mprotect(p->image, p->pages * PAGE, PROT_READ) < 0)
        return err_sys(err, "close the image of the engine");
    p->kept = true;
    return 0;
}

bool lever_pages_differ(const struct lever_pages *p) {
    const char *from = p->image;
    for (size_t i = 0; p->kept && i < p->nfill; from += p->fill[i++].iov_len)
        if (memcmp(from, p->fill[i].iov_base, p->fill[i].iov_len) != 0)
            return true;
    return false;
}

/* One call for many ranges: most of what one takes is to tell the processor. */
static void lever_drop(const struct iovec *v, size_t n) {
    if (n <= IOV_MAX && syscall(SYS_process_madvise, SELF, v, n, MADV_DONTNEED, 0) >= 0)
        return;
    for (size_t i = 0; i < n; i++)
        (void)madvise(v[i].iov_base, v[i].iov_len, MADV_DONTNEED);
}

/* To part a page that is shared with the zygote takes the kernel twice as long as to make a new
 * one. So what the engine writes to is dropped, made anew and filled from the image. */
void lever_pages_populate(const struct lever_pages *p) {
    if (p->kept)
        lever_drop(p->fill, p->nfill);
    for (size_t i = 0; i < p->count; i++)
        (void)madvise((void *)p->range[i].start, p->range[i].len, p->range[i].advice);
    const char *from = p->image;
    for (size_t i = 0; p->kept && i < p->nfill; from += p->fill[i++].iov_len)
        memcpy(p->fill[i].iov_base, from, p->fill[i].iov_len);
}
