#include "front/store/caretaker.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>

enum { CARE_MS = 2000, DISK_MS = 60000 };

struct caretaker {
    struct store *store;
    uv_timer_t timer;
    uv_check_t after_events;
    uv_work_t work;
    struct err err; /* of the last time */
    bool failed;
    bool told;
    bool told_stuck;
    bool at_work;
    int handles; /* that are not closed */
    char *data_dir;
    int64_t disk_at_ms;       /* when the disk is looked at next; monotonic */
    atomic_bool over;         /* for the thread */
    struct disk_usage disk;   /* of the loop's thread */
    struct disk_usage counts; /* of the other */
};

static void caretaker_free_if_over(struct caretaker *c) {
    if (c->handles > 0 || c->at_work)
        return;
    free(c->data_dir);
    free(c);
}

static void caretaker_on_work(uv_work_t *w) {
    struct caretaker *c = w->data;
    c->failed = store_care(c->store, &c->err) < 0;
    if (clock_mono_ms() < c->disk_at_ms || atomic_load(&c->over))
        return;
    disk_measure(c->data_dir, &c->over, &c->counts);
    c->disk_at_ms = clock_mono_ms() + DISK_MS;
}

const struct disk_usage *caretaker_disk(const struct caretaker *c) {
    return &c->disk;
}

static void caretaker_on_worked(uv_work_t *w, int status) {
    (void)status;
    struct caretaker *c = w->data;
    c->at_work = false;
    c->disk = c->counts;
    if (c->failed && !c->told)
        log_warn("store.care", "error", c->err.message);
    c->told = c->failed; /* once, not every two seconds */
    bool stuck = store_log_is_stuck(c->store);
    if (stuck && !c->told_stuck)
        log_warn("store.log", "error",
                 "cay.db-wal grows, because another program reads cay.db without an end: stop it");
    c->told_stuck = stuck;
    caretaker_free_if_over(c);
}

static void caretaker_begin(struct caretaker *c) {
    if (!c->at_work)
        c->at_work =
            uv_queue_work(c->timer.loop, &c->work, caretaker_on_work, caretaker_on_worked) == 0;
}

static void caretaker_on_timer(uv_timer_t *t) {
    caretaker_begin(t->data);
}

static void caretaker_on_after_events(uv_check_t *h) {
    struct caretaker *c = h->data;
    if (!c->at_work && store_wants_care(c->store))
        caretaker_begin(c);
}

struct caretaker *caretaker_create(uv_loop_t *loop, struct store *store, const char *data_dir) {
    struct caretaker *c = xcalloc(1, sizeof(*c));
    c->store = store;
    c->data_dir = xstrdup(data_dir);
    c->work.data = c->timer.data = c->after_events.data = c;
    (void)uv_timer_init(loop, &c->timer);
    (void)uv_timer_start(&c->timer, caretaker_on_timer, CARE_MS, CARE_MS);
    (void)uv_check_init(loop, &c->after_events);
    (void)uv_check_start(&c->after_events, caretaker_on_after_events);
    c->handles = 2;
    return c;
}

static void caretaker_on_closed(uv_handle_t *h) {
    struct caretaker *c = h->data;
    c->handles--;
    caretaker_free_if_over(c);
}

void caretaker_close(struct caretaker *c) {
    if (!c)
        return;
    store_care_end(c->store);
    atomic_store(&c->over, true);
    uv_close((uv_handle_t *)&c->timer, caretaker_on_closed);
    uv_close((uv_handle_t *)&c->after_events, caretaker_on_closed);
}
