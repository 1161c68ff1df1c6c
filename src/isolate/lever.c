#include "isolate/lever.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "isolate/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define HUGE ((uintptr_t)2 << 20)
enum { PAGE = 4096 };

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

enum { RANGES_MAX = 4096 };

struct range {
    uintptr_t start;
    size_t len;
    int advice;
};

struct lever_pages {
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

int lever_pages_create(struct lever_pages **ret_pages, struct err *err) {
    void *p = mmap(NULL, sizeof(struct lever_pages), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_sys(err, "room for the pages of a run");
    *ret_pages = p;
    return 0;
}

size_t lever_pages_count(const struct lever_pages *p) {
    return p->pages;
}

static void add_page(struct lever_pages *p, uintptr_t at, int advice, uintptr_t bridge) {
    struct range *last = p->count > 0 ? &p->range[p->count - 1] : NULL;
    p->pages += advice == MADV_POPULATE_WRITE;
    if (last && last->advice == advice && at >= last->start &&
        at - (last->start + last->len) <= bridge * PAGE) {
        last->len = at + PAGE - last->start;
        return;
    }
    if (p->count < RANGES_MAX)
        p->range[p->count++] = (struct range){.start = at, .len = PAGE, .advice = advice};
}

#define PAGEMAP_PRESENT   (1ull << 63)
#define PAGEMAP_FILE      (1ull << 61)
#define PAGEMAP_EXCLUSIVE (1ull << 56)

/* A page of a writable mapping that is ours alone was written by the run. A page of a file that is
 * there at all was read by it, because a fork takes none along. */
static int learn_map(struct lever_pages *p, const struct map *m, int pagemap_fd) {
    uint64_t *entry = p->scratch.entry;
    const size_t max = ARRAY_LEN(p->scratch.entry);
    size_t pages = (m->end - m->start) / PAGE;
    for (size_t from = 0; from < pages; from += max) {
        size_t n = MIN(pages - from, max);
        ssize_t got = pread(pagemap_fd, entry, n * sizeof(*entry),
                            (off_t)((m->start / PAGE + from) * sizeof(*entry)));
        if (got != (ssize_t)(n * sizeof(*entry)))
            return -1;
        for (size_t i = 0; i < n; i++) {
            uintptr_t at = m->start + (from + i) * PAGE;
            if (!(entry[i] & PAGEMAP_PRESENT))
                continue;
            if (m->write && (entry[i] & PAGEMAP_EXCLUSIVE) && !(entry[i] & PAGEMAP_FILE))
                add_page(p, at, MADV_POPULATE_WRITE, 0);
            else if (!m->write && (entry[i] & PAGEMAP_FILE))
                add_page(p, at, MADV_POPULATE_READ, 4);
        }
    }
    return 0;
}

int lever_pages_learn(struct lever_pages *p, int proc_fd, struct err *err) {
    struct maps *maps = &p->scratch.maps;
    int rc = maps_read(maps, proc_fd, p->scratch.text, sizeof(p->scratch.text), err);
    if (rc < 0)
        return rc;
    _cleanup_(close) int fd = openat(proc_fd, "self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "open pagemap");
    p->count = p->pages = 0;
    for (size_t i = 0; i < maps->count; i++) {
        const struct map *m = &maps->map[i];
        if (!m->read || m->shared || strncmp(m->name, "[v", 2) == 0)
            continue;
        if (learn_map(p, m, fd) < 0)
            return err_sys(err, "read pagemap");
    }
    return 0;
}

void lever_pages_populate(const struct lever_pages *p) {
    for (size_t i = 0; i < p->count; i++) {
        const struct range *r = &p->range[i];
        (void)madvise((void *)r->start, r->len, r->advice);
    }
}
