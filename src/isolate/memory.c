#include "isolate/memory.h"

#include "base/cleanup.h"
#include "base/fd.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    PAGE_BYTES = 4096,
    EXACT_BYTES = 3 << 20, /* from here on a peak is worth the exact count */
    NEAR_BYTES = 1 << 19,  /* an error of that much is not */
    LOOK_BYTES = 1 << 20,  /* are allocated between two looks */
    LARGE_BYTES = 1 << 20, /* of a block that the kernel gets back when it is freed */
    REFUSED_PART = 4,      /* of the limit: whoever asks for that much at once can be told no */
};
/* Above the limit, for what the engine needs beside the program. It is little, because more comes
 * on top when the limit is reached: a collection writes to all pages of the heap that were shared
 * with the zygote, some 7 MiB. */
#define SLACK        ((uint64_t)1 << 20)
#define GLANCE_SLACK ((uint64_t)4 << 20)

/* What a look costs decides how exact it is. Resident pages and faults cost a microsecond: pages
 * that were shared with the zygote are not counted when they are copied, but each copy is a fault,
 * so faults that added no page are copies. That is exact until memory goes back to the kernel and
 * comes again, which takes faults too, or until one fault brings a huge page. From then on there is
 * doubt, and where the difference matters the kernel is asked for the pages themselves
 * (smaps_rollup), which takes it a millisecond: what is private and dirty is the process's own. */
static struct {
    int statm_fd; /* -1: not in an isolate */
    int pages_fd; /* -1: the kernel cannot be asked */
    bool looking;
    bool seeing; /* a signal came into the middle of it */
    bool refused;
    bool doubt;
    void (*exceeded)(void);
    uint64_t limit, wall;
    uint64_t base_size, base_resident;
    uint64_t base_private; /* pages of its own that it had before the program */
    uint64_t shared;       /* the most that the zygote's pages can add when they are written to */
    /* When the pages were last counted, or at the beginning. */
    struct {
        int64_t copied; /* what there was beside the growth */
        int64_t grown;
        uint64_t faults;
    } known;
    uint64_t peak;
    int64_t most_grown;   /* since the last memory_restart() */
    uint64_t kernel_peak; /* what it was then */
} memory = {.statm_fd = -1, .pages_fd = -1};

int64_t memory_left = INT64_MAX;

struct statm {
    uint64_t size, resident;
};

static bool statm_read(struct statm *ret) {
    char text[128];
    ssize_t n = memory.statm_fd >= 0 ? pread(memory.statm_fd, text, sizeof(text) - 1, 0) : -1;
    if (n <= 0)
        return false;
    text[n] = 0;
    char *end;
    ret->size = strtoull(text, &end, 10) * PAGE_BYTES;
    ret->resident = strtoull(end, NULL, 10) * PAGE_BYTES;
    return true;
}

uint64_t memory_writable(int proc_fd) {
    char line[512];
    bool writable = false;
    uint64_t bytes = 0;
    int fd = openat(proc_fd, "self/smaps", O_RDONLY | O_CLOEXEC);
    FILE *f = fd >= 0 ? fdopen(fd, "re") : NULL;
    if (!f)
        fd_close(&fd);
    while (f && fgets(line, sizeof(line), f)) {
        const char *at = strchr(line, ' ');
        if (at && strchr(line, '-') && strchr(line, '-') < at) /* "from-to perms ..." */
            writable = at[2] == 'w';
        else if (writable && strncmp(line, "Anonymous:", 10) == 0)
            bytes += strtoull(line + 10, NULL, 10) * 1024;
    }
    if (f)
        (void)fclose(f);
    return bytes;
}

/* One line of smaps, or of smaps_rollup, which is as one private mapping. */
static void smaps_line(const char *line, bool *mine, uint64_t *bytes) {
    static const char dirty[] = "Private_Dirty:";
    const char *dash = strchr(line, '-');
    const char *space = strchr(line, ' ');
    if (dash && space && dash < space && strlen(space) > 4) /* "from-to perms ..." */
        *mine = space[4] == 'p';
    else if (*mine && strncmp(line, dirty, strlen(dirty)) == 0)
        *bytes += strtoull(line + strlen(dirty), NULL, 10) * 1024;
}

uint64_t memory_private(int pages_fd) {
    char text[4096 + 1];
    size_t have = 0;
    off_t at = 0;
    bool mine = false;
    uint64_t bytes = 0;
    ssize_t n;
    while ((n = pages_fd >= 0 ? pread(pages_fd, text + have, sizeof(text) - 1 - have, at) : 0) >
           0) {
        at += n;
        have += (size_t)n;
        text[have] = 0;
        char *line = text;
        for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
            *end = 0;
            smaps_line(line, &mine, &bytes);
        }
        have = strlen(line);
        if (have == sizeof(text) - 1) /* no such line is that long */
            return 0;
        memmove(text, line, have);
    }
    return bytes;
}

void memory_open(const struct memory_start *start) {
    struct rusage ru;
    struct statm now = {0};
    memory.statm_fd = start->statm_fd;
    memory.pages_fd = start->pages_fd;
    memory.refused = memory.doubt = memory.seeing = false;
    memory.exceeded = NULL;
    memory_left = INT64_MAX;
    (void)statm_read(&now);
    (void)getrusage(RUSAGE_SELF, &ru);
    memory.base_size = now.size;
    memory.base_resident = now.resident;
    memory.known.faults = (uint64_t)ru.ru_minflt;
    memory.known.copied = memory.known.grown = 0;
    memory.shared = start->shared_bytes;
    /* After a fork every page was shared: each of its own came by a fault. */
    memory.base_private =
        start->private_bytes ? start->private_bytes : memory.known.faults * PAGE_BYTES;
}

void memory_begin(uint64_t limit_bytes, void (*exceeded)(void)) {
    memory.limit = limit_bytes;
    memory.wall = limit_bytes + SLACK;
    memory.exceeded = exceeded;
    memory_left = LOOK_BYTES;
}

void memory_close(void) {
    memory.statm_fd = memory.pages_fd = -1;
    memory_left = INT64_MAX;
}

uint64_t memory_base_size(void) {
    return memory.base_size;
}

uint64_t memory_base_resident(void) {
    return memory.base_resident;
}

static int64_t memory_grown(uint64_t resident) {
    return (int64_t)resident - (int64_t)memory.base_resident;
}

/* Copies since they were last counted: faults that added nothing. At most what was shared. */
static uint64_t memory_own(int64_t grown, uint64_t faults) {
    int64_t faulted = (int64_t)(faults - memory.known.faults) * PAGE_BYTES;
    int64_t added = MAX(grown - memory.known.grown, (int64_t)0);
    if (faulted < added)
        memory.doubt = true; /* huge pages */
    int64_t left = MAX((int64_t)memory.shared - memory.known.copied, (int64_t)0);
    int64_t copied = memory.known.copied + MIN(MAX(faulted - added, (int64_t)0), left);
    return (uint64_t)MAX(grown + copied, (int64_t)0);
}

/* Asks the kernel. A peak that was seen in doubt is not above what was ever resident and all that
 * is copied by now. */
static uint64_t memory_count(int64_t grown, uint64_t faults, uint64_t own) {
    uint64_t private = memory_private(memory.pages_fd);
    if (private == 0)
        return own;
    own = private - MIN(private, memory.base_private);
    memory.known.copied = (int64_t)own - grown;
    memory.known.grown = grown;
    memory.known.faults = faults;
    memory.doubt = false;
    uint64_t most = (uint64_t)MAX(memory.most_grown + memory.known.copied, (int64_t)0);
    memory.peak = MAX(MIN(memory.peak, most), own);
    return own;
}

enum glance { GLANCE, COUNT_IF_DOUBT };

/* How much there is now; the peak is put down. */
static uint64_t memory_see(enum glance how) {
    struct rusage ru;
    struct statm now;
    if (memory.seeing || !statm_read(&now))
        return 0;
    memory.seeing = true;
    (void)getrusage(RUSAGE_SELF, &ru);
    uint64_t faults = (uint64_t)ru.ru_minflt;
    int64_t grown = memory_grown(now.resident);
    uint64_t most = (uint64_t)ru.ru_maxrss * 1024;
    if (most > memory.kernel_peak) { /* so it was in this call */
        memory.most_grown = MAX(memory.most_grown, memory_grown(most));
        memory.peak = MAX(memory.peak, memory_own(memory_grown(most), faults));
    }
    memory.most_grown = MAX(memory.most_grown, grown);
    uint64_t own = memory_own(grown, faults);
    memory.peak = MAX(memory.peak, own);
    if (how == COUNT_IF_DOUBT && memory.doubt)
        own = memory_count(grown, faults, own);
    memory.seeing = false;
    return own;
}

bool memory_check(size_t coming) {
    if (memory.looking || memory.statm_fd < 0 || !memory.exceeded)
        return true;
    memory.looking = true;
    uint64_t own = memory_see(GLANCE);
    bool fits = own + coming <= memory.wall;
    if (!fits) {
        /* libc keeps what is freed, tens of megabytes of it: that is nobody's. */
        memory_trim();
        own = memory_see(COUNT_IF_DOUBT);
        fits = own + coming <= memory.wall;
    }
    memory_left = LOOK_BYTES;
    memory.looking = false;
    if (fits)
        return true;
    memory.refused = true;
    if (coming >= memory.limit / REFUSED_PART && own <= memory.wall)
        return false;
    memory.exceeded();
    return true;
}

void memory_look(void) {
    (void)memory_check(0);
}

void memory_collected(void) {
    memory_look();
    memory_returned();
}

void memory_returned(void) {
    memory.doubt = true;
}

void memory_trim(void) {
    (void)malloc_trim(0);
    memory_returned();
}

void memory_glance(void) {
    if (memory.looking || !memory.exceeded)
        return;
    uint64_t own = memory_see(GLANCE);
    if (own > memory.wall)
        memory_left = 0;
    if (own > memory.wall + GLANCE_SLACK && memory.doubt)
        own = memory_see(COUNT_IF_DOUBT);
    if (own > memory.wall + GLANCE_SLACK) {
        memory.refused = true;
        memory.exceeded();
    }
}

uint64_t memory_now(void) {
    return memory_see(GLANCE);
}

uint64_t memory_exact(void) {
    return memory_see(COUNT_IF_DOUBT);
}

uint64_t memory_peak(void) {
    (void)memory_see(GLANCE);
    bool matters =
        memory.peak >= EXACT_BYTES && (int64_t)memory.shared - memory.known.copied >= NEAR_BYTES;
    if (matters && memory.doubt)
        (void)memory_see(COUNT_IF_DOUBT);
    return MAX(memory.peak, (uint64_t)PAGE_BYTES);
}

void memory_restart(void) {
    struct rusage ru;
    (void)getrusage(RUSAGE_SELF, &ru);
    memory.kernel_peak = (uint64_t)ru.ru_maxrss * 1024;
    memory.peak = 0;
    memory.most_grown = INT64_MIN / 2;
}

bool memory_is_short(void) {
    struct statm now;
    if (memory.refused)
        return true;
    return statm_read(&now) && now.size > memory.base_size &&
           now.size - memory.base_size > memory.limit / 2;
}

void memory_before_free(const void *block) {
    if (memory.exceeded && !memory.looking &&
        malloc_usable_size((void *)(uintptr_t)block) >= LARGE_BYTES) {
        (void)memory_see(GLANCE);
        memory_returned();
    }
}

extern void *__libc_malloc(size_t size);

void *memory_sparse(size_t size, size_t used) {
    return memory_allow(used) ? __libc_malloc(size) : NULL;
}
