#include "isolate/stay.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "wire/facet.h"
#include "wire/tray.h"

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
    APART_NS = 100000, /* it waits awake for an answer, at most, */
    CROWD_NS = 40000,  /* or so long if the facet serves others: about what it takes to wake it */
    SPARED_MAX = 32,
};

static struct {
    cpu_set_t all;
    bool possible;
    bool apart;
    volatile sig_atomic_t bound; /* to a processor, its number plus one; negative: to the others */
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
    uint32_t where;            /* the facet's word, tray_where() */
    unsigned spared, to_spare; /* waits among others, since one was in vain */
} stay;

void stay_init(void) {
    stay.possible =
        sched_getaffinity(0, sizeof(stay.all), &stay.all) == 0 && CPU_COUNT(&stay.all) > 1;
    stay.patience = PATIENCE_MIN;
}

bool stay_is_talking(void) {
    return stay.turns >= TURNS;
}

uint64_t stay_hint(void) {
    int cpu = stay_is_talking() ? sched_getcpu() : -1;
    if (cpu < 0 || cpu >= FACET_APART - 1)
        return 0;
    uint64_t where = (uint64_t)cpu + 1;
    return (stay.apart ? where | FACET_APART : where) << FACET_NEAR_SHIFT;
}

bool stay_is_apart(void) {
    return stay.apart;
}

static uint32_t facet_processor(void) {
    return (stay.where & TRAY_NOWHERE) - 1;
}

int64_t stay_awake_ns(void) {
    if (!(stay.where & TRAY_CROWD))
        return stay.apart && stay.where != TRAY_NOWHERE ? APART_NS : 0;
    if (facet_processor() == (uint32_t)sched_getcpu() || stay.spared++ < stay.to_spare)
        return 0;
    stay.spared = 0;
    return CROWD_NS;
}

void stay_waited(bool in_vain) {
    stay.to_spare = in_vain ? MIN(2 * stay.to_spare + 1, (unsigned)SPARED_MAX) : 0;
}

static void stay_tick(long every_us) {
    struct itimerval t = {.it_interval = {.tv_usec = every_us}, .it_value = {.tv_usec = every_us}};
    (void)setitimer(ITIMER_VIRTUAL, &t, NULL);
}

void stay_leave(void) {
    if (!stay.bound)
        return;
    stay.bound = false;
    stay_tick(0);
    (void)sched_setaffinity(0, sizeof(stay.all), &stay.all);
}

void stay_on_tick(int sig) {
    (void)sig;
    if (stay.turns == stay.ticked)
        stay_leave();
    stay.ticked = stay.turns;
}

static void bind_to(sig_atomic_t where, const cpu_set_t *set) {
    if (CPU_COUNT(set) == 0 || sched_setaffinity(0, sizeof(*set), set) < 0)
        return;
    stay.bound = where;
    stay.ticked = stay.turns;
    stay_tick(TICK_US);
}

static void stay_here(void) {
    int cpu = sched_getcpu();
    cpu_set_t here;
    CPU_ZERO(&here);
    if (cpu < 0 || stay.bound > 0)
        return;
    CPU_SET((size_t)cpu, &here);
    bind_to(cpu + 1, &here);
}

static void keep_off(uint32_t cpu) {
    cpu_set_t others = stay.all;
    if (cpu >= CPU_SETSIZE || stay.bound == -(sig_atomic_t)cpu - 1)
        return;
    CPU_CLR(cpu, &others);
    bind_to(-(sig_atomic_t)cpu - 1, &others);
}

void stay_told(uint32_t where) {
    stay.where = where;
    if (where & TRAY_KEEP_OFF)
        keep_off(facet_processor());
    else if (where & TRAY_CROWD)
        stay_leave();
    else if (where == TRAY_NOWHERE)
        stay.misses++;
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
    if (stay.apart && (!stay.slow || stay.misses > 0))
        judge_apart(spent / stay.window_turns, now);
    else if (!stay.apart && !stay.slow)
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
    if (stay.turns > TURNS && !(stay.where & TRAY_CROWD)) {
        stay_here();
        count_turn(now);
        return;
    }
    if (!turn) {
        stay_leave();
        stay.where = TRAY_ANYWHERE;
    }
    stay.apart = false;
    begin_window(now);
}
