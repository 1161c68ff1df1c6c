#include "wire/tray.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum tray_state { TRAY_UNWATCHED, TRAY_WATCHED, TRAY_FULL, TRAY_ASLEEP };

enum {
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
    LOOKS = 32, /* between two looks at the clock */
};

_Static_assert(sizeof(struct tray) <= TRAY_SIZE, "a tray fits into its file");

static struct tray *tray_map(int fd) {
    void *p = mmap(NULL, TRAY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

int tray_create(struct tray **ret_tray, int *ret_fd, struct err *err) {
    _cleanup_(close) int fd = memfd_create("tray", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, TRAY_SIZE) < 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        return err_sys(err, "make a tray");
    struct tray *t = tray_map(fd);
    if (!t)
        return err_sys(err, "map a tray");
    *ret_tray = t;
    *ret_fd = steal_fd(&fd);
    return 0;
}

int tray_open(struct tray **ret_tray, int fd, struct err *err) {
    char end[2];
    int seals = fcntl(fd, F_GET_SEALS);
    /* Exactly so large: a mapping of huge pages would not be unmapped by this size. */
    if (seals < 0 || (seals & SEALS) != SEALS || pread(fd, end, 2, TRAY_SIZE - 1) != 1)
        return err_set(err, ERR_PROTOCOL, "a descriptor is no sealed tray");
    struct tray *t = tray_map(fd);
    if (!t)
        return err_sys(err, "map a tray");
    *ret_tray = t;
    return 0;
}

void tray_close(struct tray *t) {
    if (t)
        (void)munmap(t, TRAY_SIZE);
}

struct place {
    struct tray_place *at;
    char *frame;
    size_t max;
};

static struct place tray_place_of(struct tray *t, enum tray_side side) {
    return side == TRAY_CALL ? (struct place){&t->call, t->call_frame, sizeof(t->call_frame)}
                             : (struct place){&t->answer, t->answer_frame, sizeof(t->answer_frame)};
}

void tray_watch(struct tray *t, enum tray_side side) {
    atomic_store_explicit(&tray_place_of(t, side).at->state, TRAY_WATCHED, memory_order_release);
}

void tray_set_where(struct tray *t, uint32_t where) {
    atomic_store_explicit(&t->call.where, where, memory_order_relaxed);
}

uint32_t tray_where(struct tray *t) {
    return atomic_load_explicit(&t->call.where, memory_order_relaxed);
}

void tray_rest(void) {
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

bool tray_wait(struct tray *t, enum tray_side side, int64_t ns) {
    _Atomic uint32_t *state = &tray_place_of(t, side).at->state;
    int64_t until = clock_mono_ns() + ns;
    do
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(state, memory_order_relaxed) == TRAY_FULL)
                return true;
            tray_rest();
        }
    while (clock_mono_ns() < until);
    return false;
}

bool tray_sleep(struct tray *t, enum tray_side side, int64_t ns) {
    _Atomic uint32_t *state = &tray_place_of(t, side).at->state;
    uint32_t was = TRAY_WATCHED;
    struct timespec at_most = {.tv_nsec = (long)MIN(ns, (int64_t)999999999)};
    if (atomic_compare_exchange_strong(state, &was, TRAY_ASLEEP))
        (void)syscall(SYS_futex, state, FUTEX_WAIT, TRAY_ASLEEP, &at_most, NULL, 0);
    return atomic_load_explicit(state, memory_order_relaxed) == TRAY_FULL;
}

int tray_take(struct tray *t, enum tray_side side, bool last, struct wire_reader *r,
              struct err *err) {
    struct place p = tray_place_of(t, side);
    uint32_t state = last ? atomic_exchange(&p.at->state, TRAY_UNWATCHED)
                          : atomic_load_explicit(&p.at->state, memory_order_acquire);
    if (state != TRAY_FULL)
        return 0;
    size_t len = atomic_load_explicit(&p.at->len, memory_order_relaxed); /* once */
    /* One that is empty would be work that nobody counts. */
    if (len < WIRE_HEAD_SIZE || len > p.max)
        return err_set(err, ERR_PROTOCOL, "a frame in the tray has %zu of %zu bytes", len, p.max);
    int rc = wire_feed(r, p.frame, len, NULL, 0, err);
    if (!last)
        tray_watch(t, side);
    return rc < 0 ? rc : 1;
}

static bool is_watched(uint32_t state) {
    return state == TRAY_WATCHED || state == TRAY_ASLEEP;
}

bool tray_put(struct tray *t, enum tray_side side, const struct wire_piece *pieces, size_t n) {
    struct place p = tray_place_of(t, side);
    uint32_t was = atomic_load_explicit(&p.at->state, memory_order_acquire);
    if (!is_watched(was))
        return false;
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (pieces[i].len > p.max - len)
            return false;
        if (pieces[i].len > 0)
            memcpy(p.frame + len, pieces[i].data, pieces[i].len);
        len += pieces[i].len;
    }
    atomic_store_explicit(&p.at->len, (uint32_t)len, memory_order_relaxed);
    /* The reader may fall asleep meanwhile: once, if it is honest. */
    bool put =
        atomic_compare_exchange_strong(&p.at->state, &was, TRAY_FULL) ||
        (was == TRAY_ASLEEP && atomic_compare_exchange_strong(&p.at->state, &was, TRAY_FULL));
    if (put && was == TRAY_ASLEEP)
        (void)syscall(SYS_futex, &p.at->state, FUTEX_WAKE, 1, NULL, NULL, 0);
    return put;
}
