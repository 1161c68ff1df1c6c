#include "isolate/stay.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "wire/facet.h"

#include <sched.h>
#include <signal.h>
#include <sys/time.h>

enum {
    TURNS = 3,
    TURN_NS = 300000, /* of computing, at most */
    TICK_US = 5000,
    WINDOW_TURNS = 16,   /* turns that are judged together, */
    WINDOW_NS = 1200000, /* for so long at least, */
    FIRST_NS = 400000,   /* or so long at the beginning */
    MISSES_MAX = 4,      /* of one window */
    SLOW_NS = 1000000,   /* a turn in which others ran */
    PATIENCE_MIN = 16,   /* windows together before the next try, */
    PATIENCE_MAX = 1024,
};

static struct {
    cpu_set_t all;
    bool possible;
    bool apart;
    volatile sig_atomic_t bound;
    volatile sig_atomic_t turns; /* in a row */
    sig_atomic_t ticked;         /* turns at the last tick */
    int64_t woke_ns;             /* when it began to run last */
    int64_t window_ns;           /* when the window began */
    int64_t turn_ns;             /* when the last turn did */
    bool slow;                   /* one of its turns was */
    unsigned window_turns;
    unsigned misses;
    unsigned bad;        /* windows in a row that were slower apart */
    int64_t together_ns; /* a turn's time, of late, 0: not known */
    unsigned patience, waits;
} stay;

void stay_init(void) {
    stay.possible =
        sched_getaffinity(0, sizeof(stay.all), &stay.all) == 0 && CPU_COUNT(&stay.all) > 1;
    stay.patience = PATIENCE_MIN;
}

uint64_t stay_hint(void) {
    int cpu = stay.turns >= TURNS ? sched_getcpu() : -1;
    if (cpu < 0 || cpu >= FACET_APART - 1)
        return 0;
    uint64_t where = (uint64_t)cpu + 1;
    return (stay.apart ? where | FACET_APART : where) << FACET_NEAR_SHIFT;
}

bool stay_is_apart(void) {
    return stay.apart;
}

static void tick(long every_us) {
    struct itimerval t = {.it_interval = {.tv_usec = every_us}, .it_value = {.tv_usec = every_us}};
    (void)setitimer(ITIMER_VIRTUAL, &t, NULL);
}

void stay_leave(void) {
    if (!stay.bound)
        return;
    stay.bound = false;
    tick(0);
    (void)sched_setaffinity(0, sizeof(stay.all), &stay.all);
}

void stay_on_tick(int sig) {
    (void)sig;
    if (stay.turns == stay.ticked)
        stay_leave();
    stay.ticked = stay.turns;
}

static void stay_here(void) {
    int cpu = sched_getcpu();
    cpu_set_t here;
    CPU_ZERO(&here);
    if (cpu < 0 || stay.bound)
        return;
    CPU_SET((size_t)cpu, &here);
    if (sched_setaffinity(0, sizeof(here), &here) < 0)
        return;
    stay.bound = true;
    stay.ticked = stay.turns;
    tick(TICK_US);
}

/* ---- together or apart ---- */

static void begin_window(int64_t now) {
    stay.window_ns = stay.turn_ns = now;
    stay.window_turns = stay.misses = 0;
    stay.slow = false;
}

static void come_together(int64_t now) {
    stay.apart = false;
    stay.waits = stay.patience;
    stay.patience = MIN(stay.patience * 2, (unsigned)PATIENCE_MAX);
    begin_window(now);
}

static void judge_together(int64_t turn_ns) {
    stay.together_ns =
        stay.together_ns == 0 ? turn_ns : stay.together_ns + (turn_ns - stay.together_ns) / 4;
    if (stay.waits > 0) {
        stay.waits--;
        return;
    }
    stay.apart = true;
    stay.bad = 0;
}

static void judge_apart(int64_t turn_ns, int64_t now) {
    if (turn_ns < stay.together_ns) {
        stay.bad = 0;
        stay.patience = PATIENCE_MIN;
    } else if (++stay.bad > 1) {
        come_together(now);
    }
}

static void count_turn(int64_t now) {
    stay.window_turns++;
    stay.slow = stay.slow || now - stay.turn_ns > SLOW_NS;
    stay.turn_ns = now;
    if (stay.apart && stay.misses >= MISSES_MAX) {
        come_together(now);
        return;
    }
    int64_t spent = now - stay.window_ns;
    if (stay.window_turns < WINDOW_TURNS || spent < (stay.together_ns ? WINDOW_NS : FIRST_NS))
        return;
    if (stay.apart)
        judge_apart(spent / stay.window_turns, now);
    else if (!stay.slow)
        judge_together(spent / stay.window_turns);
    begin_window(now);
}

void stay_missed(void) {
    stay.misses++;
}

void stay_woke(void) {
    stay.woke_ns = clock_mono_ns();
}

void stay_or_leave(bool for_answer) {
    int64_t now = clock_mono_ns();
    bool turn = stay.possible && for_answer && now - stay.woke_ns < TURN_NS;
    stay.turns = turn ? stay.turns + 1 : 0;
    if (stay.turns > TURNS) {
        stay_here();
        count_turn(now);
    } else {
        stay_leave();
        stay.apart = false;
        begin_window(now);
    }
}
