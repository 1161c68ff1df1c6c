#include "isolate/reset.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "isolate/maps.h"
#include "wire/isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/types.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* Linux 6.7; Debian 12's headers are older. */
#ifndef PAGEMAP_SCAN
struct page_region {
    __u64 start;
    __u64 end;
    __u64 categories;
};
struct pm_scan_arg {
    __u64 size;
    __u64 flags;
    __u64 start;
    __u64 end;
    __u64 walk_end;
    __u64 vec;
    __u64 vec_len;
    __u64 max_pages;
    __u64 category_inverted;
    __u64 category_mask;
    __u64 category_anyof_mask;
    __u64 return_mask;
};
#define PAGEMAP_SCAN    _IOWR('f', 16, struct pm_scan_arg)
#define PAGE_IS_PRESENT (1 << 3)
#endif

_Static_assert(PAGEMAP_SCAN == RESET_SCAN_REQUEST, "the filter lets the right request through");

#define PAGEMAP_PRESENT   (1ull << 63)
#define PAGEMAP_FILE      (1ull << 61)
#define PAGEMAP_EXCLUSIVE (1ull << 56)

/* Bytes of a page, and how much is kept of what. */
enum {
    PAGE = 4096,
    PAGES_MAX = 65536,         /* of an image */
    OWN_MAX = 8192,            /* pages that an isolate keeps a copy of */
    REGIONS_MAX = 4096,        /* of one scan */
    SPAN_GAP_MAX = 256 * PAGE, /* between regions that are read as one */
    STACK_SIZE = 64 * 1024,
    /* New pages up to this number are zeroed and stay, because the next run will want them. */
    KEEP_NEW_MAX = 512,
};

struct page {
    uintptr_t at;
    const char *content;
};

/* A mapping that a run can write to. */
struct area {
    uintptr_t start;
    uintptr_t end;
    bool file;  /* a page that was not there comes from the file, not from zeros */
    bool stack; /* grows down and does not shrink */
};

struct image {
    size_t count;
    struct page page[PAGES_MAX];
    char *room; /* for contents */
    size_t room_pages, room_used;
};

/* The pages of a process that are its own: it can write to no other without a page fault. So where
 * no fault and no change of mappings has come since they were found, they are all that can differ.
 */
struct known {
    bool whole; /* all of them are here */
    size_t count;
    struct page page[OWN_MAX]; /* without content: zeros */
    long faults;
    struct extent {
        unsigned long size, data; /* pages that are mapped, and that can be written to */
    } extent;
    volatile bool remapped;
};

/* An isolate's own part. All of it is shared memory, which no reset touches. */
struct own {
    struct image image;
    struct maps layout;
    struct maps now;
    struct area area[MAPS_MAX];
    size_t nareas;
    uintptr_t brk;
    size_t cursor; /* into an image, while pages are visited */
    struct reset_stats stats;
    struct known known;
    bool armed;
    ucontext_t point, restorer;
    char text[MAPS_TEXT_SIZE];
    struct page_region region[REGIONS_MAX];
    uint64_t entry[4096];
    char stack[STACK_SIZE] __attribute__((aligned(64)));
};

/* Ordinary memory: the same before and after a reset. */
struct reset {
    struct image *zygote;
    struct own *own;
};

static void *reset_shared(size_t size) {
    void *p =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* ---- reading the kernel's view ---- */

static int read_maps(struct own *o, struct maps *ret) {
    size_t n = 0;
    for (;;) {
        ssize_t k = pread(RESET_MAPS_FD, o->text + n, sizeof(o->text) - 1 - n, (off_t)n);
        if (k < 0)
            return -1;
        if (k == 0)
            break;
        n += (size_t)k;
        if (n == sizeof(o->text) - 1)
            return -1;
    }
    o->text[n] = 0;
    struct err err;
    return maps_parse(ret, o->text, &err);
}

static bool is_writable_memory(const struct map *m) {
    return m->read && m->write && !m->shared && strncmp(m->name, "[v", 2) != 0;
}

/* What is seen of each present page of a writable mapping. */
typedef int (*page_visitor)(struct own *o, const struct area *a, uintptr_t at, uint64_t entry,
                            void *arg);

/* The pages of [start, end), all in one area, that are present: one read for all of them. */
static int visit_span(struct own *o, const struct area *a, uintptr_t start, uintptr_t end,
                      page_visitor visit, void *arg) {
    for (uintptr_t at = start; at < end;) {
        size_t n = MIN((end - at) / PAGE, ARRAY_LEN(o->entry));
        ssize_t want = (ssize_t)(n * sizeof(o->entry[0]));
        if (pread(RESET_PAGEMAP_FD, o->entry, (size_t)want, (off_t)(at / PAGE * 8)) != want)
            return -1;
        for (size_t i = 0; i < n; i++)
            if ((o->entry[i] & PAGEMAP_PRESENT) && visit(o, a, at + i * PAGE, o->entry[i], arg) < 0)
                return -1;
        at += n * PAGE;
    }
    return 0;
}

/* The areas and the present regions, both sorted, side by side. Regions that are near each other
 * are read as one span. */
static int visit_regions(struct own *o, size_t nregions, size_t *area, page_visitor visit,
                         void *arg) {
    size_t k = 0;
    while (k < nregions && *area < o->nareas) {
        const struct area *a = &o->area[*area];
        uintptr_t start = MAX((uintptr_t)o->region[k].start, a->start);
        uintptr_t end = MIN((uintptr_t)o->region[k].end, a->end);
        if (start >= end) {
            if ((uintptr_t)o->region[k].end <= a->start)
                k++;
            else
                (*area)++;
            continue;
        }
        while (k + 1 < nregions && o->region[k + 1].start < a->end &&
               o->region[k + 1].start - end <= SPAN_GAP_MAX) {
            k++;
            end = MIN((uintptr_t)o->region[k].end, a->end);
        }
        if (visit_span(o, a, start, end, visit, arg) < 0)
            return -1;
        if ((uintptr_t)o->region[k].end <= a->end)
            k++;
        else
            (*area)++;
    }
    return 0;
}

/* In the order of addresses. */
static int visit_present(struct own *o, page_visitor visit, void *arg) {
    if (o->nareas == 0)
        return 0;
    uintptr_t end = o->area[o->nareas - 1].end;
    size_t area = 0;
    for (uintptr_t from = o->area[0].start; from < end;) {
        struct pm_scan_arg s = {.size = sizeof(s),
                                .start = from,
                                .end = end,
                                .vec = (uintptr_t)o->region,
                                .vec_len = REGIONS_MAX,
                                .category_mask = PAGE_IS_PRESENT,
                                .return_mask = PAGE_IS_PRESENT};
        int n = ioctl(RESET_PAGEMAP_FD, PAGEMAP_SCAN, &s);
        if (n < 0 || visit_regions(o, (size_t)n, &area, visit, arg) < 0)
            return -1;
        from = n == REGIONS_MAX ? (uintptr_t)s.walk_end : end;
    }
    return 0;
}

static void note_areas(struct own *o, const struct maps *m) {
    o->nareas = 0;
    for (size_t i = 0; i < m->count; i++)
        if (is_writable_memory(&m->map[i]))
            o->area[o->nareas++] = (struct area){.start = m->map[i].start,
                                                 .end = m->map[i].end,
                                                 .file = m->map[i].name[0] == '/',
                                                 .stack = strcmp(m->map[i].name, "[stack]") == 0};
}

/* ---- images ---- */

static int keep_page(struct image *im, uintptr_t at) {
    if (im->count == PAGES_MAX || im->room_used == im->room_pages)
        return -1;
    char *copy = im->room + im->room_used++ * PAGE;
    memcpy(copy, (const void *)at, PAGE);
    im->page[im->count++] = (struct page){.at = at, .content = copy};
    return 0;
}

/* A page of a file that nobody wrote to needs no copy: it can be dropped. */
static bool is_clean_file_page(const struct area *a, uint64_t entry) {
    return a->file && (entry & PAGEMAP_FILE);
}

static int visit_zygote(struct own *o, const struct area *a, uintptr_t at, uint64_t entry,
                        void *arg) {
    (void)o;
    return is_clean_file_page(a, entry) ? 0 : keep_page(arg, at);
}

static int open_at(int proc_fd, const char *path, int fixed) {
    int fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int rc = dup3(fd, fixed, O_CLOEXEC);
    close(fd);
    return rc;
}

static int own_create(struct own **ret_own, int proc_fd, struct err *err) {
    struct own *o = reset_shared(sizeof(*o));
    char *room = reset_shared((size_t)OWN_MAX * PAGE);
    if (!o || !room || open_at(proc_fd, "self/pagemap", RESET_PAGEMAP_FD) < 0 ||
        open_at(proc_fd, "self/maps", RESET_MAPS_FD) < 0 ||
        open_at(proc_fd, "self/statm", RESET_STATM_FD) < 0)
        return err_sys(err, "prepare to reset");
    o->image.room = room;
    o->image.room_pages = OWN_MAX;
    *ret_own = o;
    return 0;
}

/* Memory that is written to once, and then by nobody. */
static void *map_book(int fd, size_t size) {
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        return NULL;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* All isolates have it, and each is put back from it: what one could write to another would get. A
 * seal holds also against one that may call mprotect(). */
static int seal_book(int fd, void *at, size_t size) {
    if (munmap(at, size) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return -1;
    void *p = mmap(at, size, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0);
    return p == at ? 0 : -1;
}

static int take_zygote(struct reset *r) {
    struct own *o = r->own;
    int rc = read_maps(o, &o->now);
    if (rc < 0)
        return rc;
    note_areas(o, &o->now);
    return visit_present(o, visit_zygote, r->zygote);
}

int reset_create(struct reset **ret_reset, int proc_fd, struct err *err) {
    const size_t size = sizeof(struct image);
    const size_t room_size = (size_t)PAGES_MAX * PAGE;
    struct reset *r = xcalloc(1, sizeof(*r));
    _cleanup_(close) int fd = memfd_create("cay-image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    _cleanup_(close) int room_fd = memfd_create("cay-pages", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    r->zygote = map_book(fd, size);
    char *room = map_book(room_fd, room_size);
    int rc = r->zygote && room ? 0 : err_sys(err, "room for the image");
    if (rc == 0)
        rc = own_create(&r->own, proc_fd, err);
    if (rc < 0)
        return rc;
    r->zygote->room = room;
    r->zygote->room_pages = PAGES_MAX;
    rc = take_zygote(r);
    if (rc < 0)
        rc = errno == ENOTTY || errno == EINVAL
                 ? err_set(err, ERR_UNSUPPORTED, "the kernel has no PAGEMAP_SCAN (Linux 6.7)")
                 : err_sys(err, "take an image of the zygote");
    if (rc == 0 && (seal_book(room_fd, room, room_size) < 0 || seal_book(fd, r->zygote, size) < 0))
        rc = err_sys(err, "seal the image of the zygote");
    struct own *o = r->own;
    /* They see the process that opened them: an isolate needs its own. */
    close(RESET_PAGEMAP_FD);
    close(RESET_MAPS_FD);
    close(RESET_STATM_FD);
    (void)munmap(o->image.room, (size_t)OWN_MAX * PAGE);
    (void)munmap(o, sizeof(*o));
    r->own = NULL;
    if (rc == 0)
        *ret_reset = r;
    return rc;
}

static struct reset *current;

int reset_prepare(struct reset *r, int proc_fd, struct err *err) {
    current = r; /* before the point, so that a reset leaves it so */
    return own_create(&r->own, proc_fd, err);
}

/* ---- the point ---- */

/* The zygote's image serves for what still is as it was there; the rest is copied. */
static int visit_point(struct own *o, const struct area *a, uintptr_t at, uint64_t entry,
                       void *arg) {
    const struct image *z = arg;
    if (is_clean_file_page(a, entry))
        return 0;
    if (entry & PAGEMAP_EXCLUSIVE)
        o->stats.own_at_point++;
    size_t *k = &o->cursor;
    while (*k < z->count && z->page[*k].at < at)
        (*k)++;
    bool same = *k < z->count && z->page[*k].at == at && !(entry & PAGEMAP_EXCLUSIVE) &&
                memcmp((const void *)at, z->page[*k].content, PAGE) == 0;
    if (!same)
        return keep_page(&o->image, at);
    if (o->image.count == PAGES_MAX)
        return -1;
    o->image.page[o->image.count++] = z->page[*k];
    return 0;
}

static int take_image(struct reset *r) {
    struct own *o = r->own;
    o->brk = (uintptr_t)syscall(SYS_brk, 0);
    o->cursor = 0;
    if (read_maps(o, &o->layout) < 0)
        return -1;
    note_areas(o, &o->layout);
    return visit_present(o, visit_point, r->zygote);
}

int reset_point(struct reset *r, struct err *err) {
    if (getcontext(&r->own->point) < 0)
        return err_sys(err, "remember the point of return");
    if (r->own->armed)
        return 1;
    if (take_image(r) < 0)
        return err_sys(err, "take an image");
    r->own->armed = true;
    return 0;
}

/* ---- back ---- */

/* Neighbours of one kind are one mapping or several, as the kernel pleases: what counts is which
 * addresses are mapped how. Takes the next merged mapping from i on. */
static struct map reset_merged(const struct maps *m, size_t *i) {
    struct map out = m->map[(*i)++];
    while (*i < m->count) {
        const struct map *next = &m->map[*i];
        if (next->start != out.end || next->read != out.read || next->write != out.write ||
            next->exec != out.exec || next->shared != out.shared ||
            strcmp(next->name, out.name) != 0)
            break;
        out.end = next->end;
        (*i)++;
    }
    return out;
}

static bool reset_is_alike(const struct map *a, const struct map *b) {
    return a->read == b->read && a->write == b->write && a->exec == b->exec &&
           a->shared == b->shared && strcmp(a->name, b->name) == 0;
}

/* Unmaps what `have` has beyond the mappings of the beginning inside it; *i is the first of those
 * that may be. A new mapping next to an old one shows as one. */
static int reset_trim(struct own *o, const struct map *have, size_t *i, size_t *removed) {
    uintptr_t at = have->start;
    while (at < have->end) {
        size_t next = *i;
        struct map want = {.start = UINTPTR_MAX};
        if (next < o->layout.count)
            want = reset_merged(&o->layout, &next);
        uintptr_t until = MIN(want.start, have->end);
        if (at < until && strcmp(have->name, "[stack]") != 0) {
            if (have->shared || munmap((void *)at, until - at) < 0)
                return -1;
            (*removed)++;
        }
        if (want.start >= have->end)
            return 0;
        if (want.start < at || want.end > have->end || !reset_is_alike(&want, have))
            return -1; /* something of the beginning is gone or changed */
        at = want.end;
        *i = next;
    }
    return 0;
}

/* Removes what the run mapped, and looks again. Fails if anything that was there is gone or
 * changed. */
static int restore_layout(struct own *o) {
    if ((uintptr_t)syscall(SYS_brk, 0) != o->brk && (uintptr_t)syscall(SYS_brk, o->brk) != o->brk)
        return -1;
    for (int pass = 0; pass < 2; pass++) {
        if (read_maps(o, &o->now) < 0)
            return -1;
        size_t removed = 0;
        size_t i = 0;
        for (size_t k = 0; k < o->now.count;) {
            struct map have = reset_merged(&o->now, &k);
            if (reset_trim(o, &have, &i, &removed) < 0)
                return -1;
        }
        if (i < o->layout.count)
            return -1;
        if (removed == 0)
            return 0;
    }
    return -1;
}

static void put_back(struct own *o, const struct page *p) {
    if (memcmp((const void *)p->at, p->content, PAGE) == 0)
        return;
    memcpy((void *)p->at, p->content, PAGE);
    o->stats.restored++;
}

/* ---- known pages ---- */

void reset_remapped(void) {
    if (current && current->own)
        current->own->known.remapped = true;
}

#ifndef CAY_WITHOUT_GATHER

/* The engine's, in the place of libc's: they say that they were called. What malloc does to
 * mappings shows in a fault (it writes a head into what it gets), or gather.c says it. */

/* libraries know it by two names, headers by one. */
void *reset_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset) __asm__("mmap");

void *reset_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset) {
    reset_remapped();
    return (void *)syscall(SYS_mmap, at, len, prot, flags, fd, offset);
}

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset) {
    reset_remapped();
    return (void *)syscall(SYS_mmap, at, len, prot, flags, fd, offset);
}

int munmap(void *at, size_t len) {
    reset_remapped();
    return (int)syscall(SYS_munmap, at, len);
}

int mprotect(void *at, size_t len, int prot) {
    reset_remapped();
    return (int)syscall(SYS_mprotect, at, len, prot);
}

int madvise(void *at, size_t len, int advice) {
    if (advice != MADV_WILLNEED) /* which changes nothing, and is said of every block */
        reset_remapped();
    return (int)syscall(SYS_madvise, at, len, advice);
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

#endif

static long faults_now(void) {
    struct rusage ru;
    (void)getrusage(RUSAGE_SELF, &ru);
    return ru.ru_minflt + ru.ru_majflt;
}

static struct extent extent_now(void) {
    char text[128];
    ssize_t n = pread(RESET_STATM_FD, text, sizeof(text) - 1, 0);
    unsigned long v[6] = {0};
    const char *at = text;
    text[n > 0 ? n : 0] = 0;
    for (size_t i = 0; i < ARRAY_LEN(v) && *at; i++, at += *at == ' ')
        for (; *at >= '0' && *at <= '9'; at++)
            v[i] = v[i] * 10 + (unsigned long)(*at - '0');
    return (struct extent){.size = v[0], .data = v[5]};
}

static void reset_know(struct known *k, uintptr_t at, const char *content) {
    if (k->count == ARRAY_LEN(k->page))
        k->whole = false;
    else
        k->page[k->count++] = (struct page){.at = at, .content = content};
}

static void know_begin(struct known *k) {
#ifndef CAY_WITHOUT_GATHER
    k->whole = true;
#endif
    k->count = 0;
}

static void know_end(struct known *k) {
    k->remapped = false;
    k->extent = extent_now();
    k->faults = faults_now();
}

static bool reset_is_zero(const char *page) {
    return page[0] == 0 && memcmp(page, page + 1, PAGE - 1) == 0;
}

static bool restore_known(struct own *o) {
    const struct known *k = &o->known;
    if (!k->whole || k->remapped || faults_now() != k->faults ||
        (uintptr_t)syscall(SYS_brk, 0) != o->brk)
        return false;
    struct extent now = extent_now();
    if (now.size != k->extent.size || now.data != k->extent.data)
        return false;
    for (size_t i = 0; i < k->count; i++) {
        const struct page *p = &k->page[i];
        if (p->content)
            put_back(o, p);
        else if (!reset_is_zero((const char *)p->at))
            memset((void *)p->at, 0, PAGE);
    }
    return true;
}

static int visit_back(struct own *o, const struct area *a, uintptr_t at, uint64_t entry,
                      void *arg) {
    (void)arg;
    const struct image *im = &o->image;
    /* Pages of the image that are not there any more: the run gave them away. */
    while (o->cursor < im->count && im->page[o->cursor].at < at)
        put_back(o, &im->page[o->cursor++]);
    if (o->cursor < im->count && im->page[o->cursor].at == at) {
        const struct page *p = &im->page[o->cursor++];
        /* Still the zygote's own page: nobody wrote to it. */
        if (entry & PAGEMAP_EXCLUSIVE) {
            put_back(o, p);
            reset_know(&o->known, p->at, p->content);
        }
        return 0;
    }
    if (is_clean_file_page(a, entry))
        return 0;
    o->stats.dropped++;
    if (a->file || o->stats.dropped > KEEP_NEW_MAX)
        return madvise((void *)at, PAGE, MADV_DONTNEED);
    memset((void *)at, 0, PAGE);
    reset_know(&o->known, at, NULL);
    return 0;
}

static void restore_all(struct own *o) {
    o->cursor = 0;
    know_begin(&o->known);
    if (restore_layout(o) < 0)
        _exit(ISOLATE_EXIT_RESET);
    /* The stack may have grown; what is below the old start is new. */
    for (size_t i = 0; i < o->nareas; i++)
        if (o->area[i].stack)
            for (size_t k = 0; k < o->now.count; k++)
                if (strcmp(o->now.map[k].name, "[stack]") == 0)
                    o->area[i].start = o->now.map[k].start;
    if (visit_present(o, visit_back, NULL) < 0)
        _exit(ISOLATE_EXIT_RESET);
    while (o->cursor < o->image.count)
        put_back(o, &o->image.page[o->cursor++]);
    know_end(&o->known);
    o->stats.own = (uint32_t)o->known.count;
}

/* On a stack of its own. From the first page that is put back to the end nothing here may rely on
 * ordinary memory that the run has changed. */
static void reset_restore(void) {
    struct own *o = current->own;
    o->stats.restored = o->stats.dropped = 0;
    o->stats.known = restore_known(o);
    if (!o->stats.known)
        restore_all(o);
    o->stats.rounds++;
    (void)setcontext(&o->point);
    _exit(ISOLATE_EXIT_RESET);
}

void reset_now(struct reset *r) {
    struct own *o = r->own;
    current = r;
    if (getcontext(&o->restorer) == 0) {
        o->restorer.uc_stack.ss_sp = o->stack;
        o->restorer.uc_stack.ss_size = sizeof(o->stack);
        o->restorer.uc_link = NULL;
        makecontext(&o->restorer, reset_restore, 0);
        (void)setcontext(&o->restorer);
    }
    _exit(ISOLATE_EXIT_RESET);
}

void reset_note_private(struct reset *r, uint64_t bytes) {
    r->own->stats.private_bytes = bytes;
}

struct reset_stats reset_stats(const struct reset *r) {
    return r->own->stats;
}
