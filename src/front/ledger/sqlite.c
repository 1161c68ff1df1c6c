#include "base/log.h"
#include "base/mem.h"
#include "front/ledger/db.h"

#include <stdlib.h>

/* Another process (`cay key`) writes to the file as we do, and touches it then. It is watched, so
 * that this is noticed before a request that comes after it is looked at: the kernel queues both in
 * the order they happened. Where there is no watch (the machine's inotify instances are used up), a
 * timer looks more often. */
enum { UNWATCHED_MS = 100 };

struct ledger {
    struct ledger_db *db;
    struct ledger_watch watch;
    uv_timer_t timer;
    uv_fs_event_t event;
    int handles; /* that are not closed */
    int64_t seen;
    uint64_t version;
    bool failing; /* it was said */
};

/* Tells the keys if they may have changed, else that they have not. */
static int refresh(struct ledger *l, struct err *err) {
    int64_t now = ledger_db_version(l->db);
    struct ledger_key *keys = NULL;
    size_t n = 0;
    if (now < 0)
        return err_set(err, ERR_IO, "the ledger cannot be read");
    if (now == l->seen) {
        l->watch.on_confirmed(l->watch.ctx, l->version);
        return 0;
    }
    int rc = ledger_db_keys(l->db, &keys, &n, err);
    if (rc < 0)
        return rc;
    l->seen = now;
    l->watch.on_keys(l->watch.ctx, keys, n, ++l->version);
    return 0;
}

void ledger_refresh(void *ledger) {
    struct ledger *l = ledger;
    struct err err;
    bool failed = refresh(l, &err) < 0;
    if (failed && !l->failing)
        log_error("ledger.keys", "error", err.message);
    l->failing = failed;
}

static void on_timer(uv_timer_t *t) {
    ledger_refresh(t->data);
}

static void on_event(uv_fs_event_t *h, const char *name, int events, int status) {
    (void)name;
    (void)events;
    (void)status;
    ledger_refresh(h->data);
}

int ledger_open(uv_loop_t *loop, struct ledger_db *db, const struct ledger_watch *watch,
                struct ledger **ret_ledger, struct err *err) {
    struct ledger *l = xcalloc(1, sizeof(*l));
    *l = (struct ledger){.db = db, .watch = *watch, .seen = -1, .handles = 2};
    (void)uv_timer_init(loop, &l->timer);
    (void)uv_fs_event_init(loop, &l->event);
    l->timer.data = l->event.data = l;
    bool watched = uv_fs_event_start(&l->event, on_event, ledger_db_path(db), 0) == 0;
    unsigned ms = watched ? LEDGER_CONFIRM_MS : UNWATCHED_MS;
    if (!watched)
        log_warn("ledger.watch", "error", "there is no inotify: changes of keys are looked for");
    (void)uv_timer_start(&l->timer, on_timer, ms, ms);
    int rc = refresh(l, err);
    if (rc < 0) {
        ledger_close(l);
        return rc;
    }
    *ret_ledger = l;
    return 0;
}

static void on_closed(uv_handle_t *h) {
    struct ledger *l = h->data;
    if (--l->handles == 0)
        free(l);
}

void ledger_close(struct ledger *l) {
    if (!l)
        return;
    uv_close((uv_handle_t *)&l->timer, on_closed);
    uv_close((uv_handle_t *)&l->event, on_closed);
}
